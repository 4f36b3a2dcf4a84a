//! Traces say where the time of requests went, for whom they waited, and nothing of them is left
//! behind.

use super::file_locks::{Client, WRITE, ask, file, waits};
use super::peer::{HelloFields, Peer, ROOT, create, name};
use crate::test_server::TestServer;
use alloc::vec::Vec;
use interface::{Event, NetEvent};
use wire::traces::{Kept, RequestTrace, Traces, WaitCause};
use wire::{ClientUuid, Freeze, Getattr, InodeNo, Lookup, Op, Purpose, Request, Status, Wire as _};

pub(super) fn admin(server: &mut TestServer) -> Peer {
    Peer::new(server, &HelloFields { purpose: Purpose::Administer, ..HelloFields::new(9) })
}

pub(super) fn traces(server: &mut TestServer, admin: &mut Peer) -> Vec<RequestTrace> {
    let got = admin.ask(server, Op::Traces, 0, &[0_u8; 0]);
    assert_eq!(got.head.status, Status::Ok);
    Traces::decode(&got.body).unwrap().requests
}

pub(super) fn one_of(traces: &[RequestTrace], op: Op) -> &RequestTrace {
    let mut found = traces.iter().filter(|trace| trace.op == Some(op));
    let first = found.next().unwrap_or_else(|| panic!("no {op:?} in {traces:?}"));
    assert!(found.next().is_none(), "one {op:?} in {traces:?}");
    first
}

#[test]
fn a_request_that_waits_is_there_and_then_what_it_has_waited_for() {
    let mut server = TestServer::started(70, 1);
    let fields = HelloFields { host: "host1", job: "build", ..HelloFields::new(1) };
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &fields));
    admin.ask(&mut server, Op::Freeze, 0, &Freeze { lease_ms: 1000 });
    let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
    peer.send(&mut server, &head, &create("one").to_bytes(), None);
    server.run();
    server.pass_ms(300);
    let found = traces(&mut server, &mut admin);
    let waiting = one_of(&found, Op::Create);
    assert_eq!((waiting.kept, waiting.status), (Kept::Waiting, None));
    assert_eq!((waiting.inode, &waiting.name[..]), (Some(InodeNo::ROOT), &b"one"[..]));
    assert_eq!(waiting.client.client, ClientUuid([1; 16]));
    assert_eq!((&waiting.client.host[..], &waiting.client.job[..]), ("host1", "build"));
    assert_eq!((waiting.session, waiting.xid), (head.session, head.xid));
    assert_eq!(waiting.trace_id, head.trace_id);
    let wait = &waiting.waits[..];
    assert_eq!((wait.len(), wait[0].cause, wait[0].is_now), (1, WaitCause::Freeze, true));
    assert!((300_000..400_000).contains(&wait[0].took_us), "{wait:?}");
    admin.ask(&mut server, Op::Freeze, 0, &Freeze { lease_ms: 0 });
    server.run();
    assert_eq!(peer.replies(&mut server).len(), 1);
    let found = traces(&mut server, &mut admin);
    let slow = one_of(&found, Op::Create);
    assert_eq!((slow.kept, slow.status), (Kept::Slow, Some(Status::Ok)));
    assert_eq!(slow.name, b"one");
    assert!((300_000..400_000).contains(&slow.queue_us), "{slow:?}");
    let wait = &slow.waits[0];
    assert_eq!((wait.cause, wait.begun_us, wait.is_now), (WaitCause::Freeze, 0, false));
    assert_eq!(wait.took_us, slow.queue_us);
    assert_eq!(server.lane(0).traces.open_count(), 0);
}

#[test]
fn a_slow_flush_of_the_log_is_named() {
    let mut server = TestServer::started(71, 1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    // The first change of a session is durable before its reply.
    let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
    peer.send(&mut server, &head, &create("one").to_bytes(), None);
    server.run_turns_only(0);
    server.sleep(340_000_000);
    server.land_log(0);
    server.run();
    assert_eq!(peer.replies(&mut server).len(), 1);
    let found = traces(&mut server, &mut admin);
    let slow = one_of(&found, Op::Create);
    assert_eq!((slow.kept, slow.queue_us, slow.execution_us), (Kept::Slow, 0, 0));
    assert!((340_000..350_000).contains(&slow.flush_us), "{slow:?}");
    assert!(slow.commit_us >= slow.flush_us, "{slow:?}");
    assert_eq!(slow.waits.len(), 1);
    assert_eq!((slow.waits[0].cause, slow.waits[0].took_us), (WaitCause::Batch, slow.commit_us));
}

#[test]
fn a_flush_that_does_not_end_is_named() {
    let mut server = TestServer::started(72, 1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
    peer.send(&mut server, &head, &create("one").to_bytes(), None);
    server.run_turns_only(0);
    server.sleep(340_000_000);
    let ask = admin.head(Op::Traces, InodeNo::ROOT.shard(), 0);
    admin.send(&mut server, &ask, &[], None);
    server.run_turns_only(0);
    let got = admin.replies(&mut server).remove(0);
    let found = Traces::decode(&got.body).unwrap().requests;
    let waiting = one_of(&found, Op::Create);
    assert_eq!((waiting.kept, &waiting.name[..]), (Kept::Waiting, &b"one"[..]));
    assert_eq!((waiting.waits[0].cause, waiting.waits[0].is_now), (WaitCause::Batch, true));
    assert!(waiting.flush_us >= 340_000, "{waiting:?}");
}

#[test]
fn who_holds_the_lock_that_is_waited_for_is_named() {
    let mut server = TestServer::started(73, 1);
    let mut admin = admin(&mut server);
    let (mut one, mut other) = (Client::new(&mut server, 1), Client::new(&mut server, 2));
    assert_eq!(one.set(&mut server, ask(file(0), 1, WRITE)), Ok(true));
    assert_eq!(other.set(&mut server, waits(7, ask(file(0), 1, WRITE))), Ok(false));
    server.pass_ms(2000);
    let found = traces(&mut server, &mut admin);
    let waiting = one_of(&found, Op::SetLock);
    assert_eq!((waiting.kept, waiting.inode), (Kept::Waiting, Some(file(0))));
    assert_eq!((waiting.client.client, waiting.client.pid), (ClientUuid([2; 16]), 5));
    let wait = &waiting.waits[0];
    assert_eq!((wait.cause, wait.is_now), (WaitCause::FileLock, true));
    assert!(wait.took_us >= 2_000_000, "{wait:?}");
    assert_eq!(wait.whom.len(), 1);
    assert_eq!((wait.whom[0].client, wait.whom[0].pid), (ClientUuid([1; 16]), 5));
    assert_eq!(one.set(&mut server, ask(file(0), 1, None)), Ok(true));
    let found = traces(&mut server, &mut admin);
    let ended = one_of(&found, Op::SetLock);
    assert_eq!((ended.kept, ended.status), (Kept::Slow, Some(Status::Ok)));
    assert_eq!((ended.client.client, ended.client.pid), (ClientUuid([2; 16]), 5));
    let wait = &ended.waits[0];
    assert_eq!((wait.cause, wait.is_now), (WaitCause::FileLock, false));
    assert!(wait.took_us >= 2_000_000, "{wait:?}");
    assert_eq!((wait.whom[0].client, wait.whom[0].pid), (ClientUuid([1; 16]), 5));
    let counted = super::counters::snapshot(&mut server, &mut admin);
    let lane = &counted.rows(wire::counters::By::Lane)[0];
    assert_eq!(lane.number(wire::counters::Metric::WaitsFileLock), Some(1));
}

#[test]
fn a_sample_is_kept_though_it_was_fast() {
    let mut server = TestServer::started(74, 1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    for trace_id in 0..=256 {
        let head = Request { trace_id, ..peer.head(Op::Lookup, InodeNo::ROOT.shard(), 0) };
        let ask = Lookup { caller: ROOT, parent: InodeNo::ROOT, name: name("absent") };
        peer.send(&mut server, &head, &ask.to_bytes(), None);
        server.run();
    }
    let found = traces(&mut server, &mut admin);
    let mut ids: Vec<u64> = found.iter().map(|trace| trace.trace_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [64, 128, 192, 256]);
    let is_whole = |trace: &RequestTrace| {
        trace.kept == Kept::Sample
            && trace.status == Some(Status::NotFound)
            && trace.name == b"absent"
            && trace.client.client == ClientUuid([1; 16])
    };
    assert!(found.iter().all(is_whole), "{found:?}");
}

#[test]
fn requests_before_it_in_a_turn_are_counted() {
    let mut server = TestServer::started(75, 1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    for _ in 0..60 {
        let head = Request { trace_id: 64, ..peer.head(Op::Getattr, InodeNo::ROOT.shard(), 0) };
        peer.send(&mut server, &head, &Getattr { inode: InodeNo::ROOT }.to_bytes(), None);
    }
    server.run();
    let mut found = traces(&mut server, &mut admin);
    found.sort_by_key(|trace| trace.xid);
    let counts: Vec<u64> = found.iter().map(|trace| trace.ahead_count).collect();
    // Each is the first of its turn, or the next one.
    assert!(counts.windows(2).all(|pair| pair[1] == 0 || pair[1] == pair[0] + 1), "{counts:?}");
    assert_eq!((counts.len(), counts[0]), (60, 0));
    assert!(counts.iter().any(|count| *count > 0), "{counts:?}");
}

#[test]
fn no_more_is_kept_than_the_bound() {
    let mut server = TestServer::started(76, 1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    for _ in 0..1000 {
        let head = Request { trace_id: 64, ..peer.head(Op::Getattr, InodeNo::ROOT.shard(), 0) };
        peer.send(&mut server, &head, &Getattr { inode: InodeNo::ROOT }.to_bytes(), None);
        server.run();
    }
    let found = traces(&mut server, &mut admin);
    assert_eq!(found.len(), 256);
}

#[test]
fn what_a_lost_connection_asked_for_leaves_no_trace_open() {
    let mut server = TestServer::started(77, 1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    admin.ask(&mut server, Op::Freeze, 0, &Freeze { lease_ms: 1000 });
    let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
    peer.send(&mut server, &head, &create("one").to_bytes(), None);
    server.run();
    assert_eq!(server.lane(0).traces.open_count(), 1);
    server.cut(peer.conn);
    server.run();
    assert!(traces(&mut server, &mut admin).is_empty());
    assert_eq!(server.lane(0).traces.open_count(), 0);
}

#[test]
fn a_reply_that_its_client_reads_late_is_named() {
    let mut server = TestServer::started(80, 1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    let conn = peer.conn;
    let late = |took_us| Event::Net(NetEvent::SentLate { conn, took_us });
    // Of a request that is kept: its reply took until now.
    let head = Request { trace_id: 64, ..peer.head(Op::Getattr, InodeNo::ROOT.shard(), 0) };
    peer.send(&mut server, &head, &Getattr { inode: InodeNo::ROOT }.to_bytes(), None);
    server.run();
    server.sleep(400_000_000);
    server.event(0, late(1_000));
    server.event(0, late(500_000));
    server.run();
    let found = traces(&mut server, &mut admin);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!((400_000..500_000).contains(&found[0].reply_us), "{found:?}");
    assert_eq!(found[0].total_us(), found[0].reply_us);
    let wait = found[0].waits.last().unwrap();
    assert_eq!((wait.cause, wait.took_us), (WaitCause::Reply, found[0].reply_us));
    // Of requests that are not: by itself.
    server.sleep(1_000_000_000);
    server.event(0, late(300_000));
    server.run();
    let found = traces(&mut server, &mut admin);
    assert_eq!(found.len(), 2, "{found:?}");
    let alone = found.iter().find(|trace| trace.op.is_none()).unwrap();
    assert_eq!((alone.kept, alone.reply_us), (Kept::Slow, 300_000));
    assert_eq!(alone.client.client, ClientUuid([1; 16]));
}

#[test]
fn numbers_of_traces_are_used_again() {
    let mut server = TestServer::started(79, 1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    for round in 0..100 {
        // One waits before it is executed, one for its commit, one not at all.
        admin.ask(&mut server, Op::Freeze, 0, &Freeze { lease_ms: 1000 });
        let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
        peer.send(&mut server, &head, &create(&alloc::format!("f{round}")).to_bytes(), None);
        let head = Request { trace_id: 64, ..peer.head(Op::Getattr, InodeNo::ROOT.shard(), 0) };
        peer.send(&mut server, &head, &Getattr { inode: InodeNo::ROOT }.to_bytes(), None);
        server.run();
        admin.ask(&mut server, Op::Freeze, 0, &Freeze { lease_ms: 0 });
        server.run();
        assert_eq!(peer.replies(&mut server).len(), 2);
    }
    let lane = server.lane(0);
    assert_eq!((lane.traces.open_count(), lane.traces.number_count()), (0, 2));
}

#[test]
fn traces_need_an_administrator() {
    let mut server = TestServer::started(78, 1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let got = peer.ask(&mut server, Op::Traces, 0, &[0_u8; 0]);
    assert_eq!(got.head.status, Status::NotPermitted);
    assert!(got.body.is_empty());
}
