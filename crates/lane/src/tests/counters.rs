//! What a lane counts agrees with what its clients did; times are those of turns.

use super::peer::{HelloFields, Peer, ROOT, create, name};
use crate::counters::CLIENT_COUNT_MAX;
use crate::test_server::TestServer;
use alloc::vec::Vec;
use wire::counters::{By, Histogram, Label, Metric, Row, Snapshot};
use wire::traces::Traces;
use wire::{Freeze, Getattr, InodeNo, Lookup, Op, Purpose, Question, ShardId, Status, Wire as _};

pub(super) fn admin(server: &mut TestServer) -> Peer {
    Peer::new(server, &HelloFields { purpose: Purpose::Administer, ..HelloFields::new(9) })
}

pub(super) fn snapshot(server: &mut TestServer, admin: &mut Peer) -> Snapshot {
    let got = admin.ask(server, Op::Counters, 0, &[0_u8; 0]);
    assert_eq!(got.head.status, Status::Ok);
    Snapshot::decode(&got.body).unwrap()
}

pub(super) fn of<'a>(snapshot: &'a Snapshot, (by, label): (By, Label), text: &str) -> &'a Row {
    let found = snapshot.rows(by).iter().find(|row| row.label(label) == Some(text));
    found.unwrap_or_else(|| panic!("no {text} in {snapshot:?}"))
}

#[test]
fn another_thread_gets_what_an_administrator_gets() {
    let mut server = TestServer::started(65, 1);
    let mut admin = admin(&mut server);
    Peer::new(&mut server, &HelloFields::new(1)).create(&mut server, "f");
    let answer = server.asked(0, &Question::Counters);
    let found = Snapshot::decode(&answer).unwrap();
    assert_eq!(op(&found, Op::Create).number(Metric::Requests), Some(1));
    let counted = snapshot(&mut server, &mut admin);
    assert_eq!(op(&found, Op::Create), op(&counted, Op::Create));
    assert_eq!(found.rows(By::Op).len(), 1, "asking is no request");
    let traces = Traces::decode(&server.asked(0, &Question::Traces)).unwrap();
    assert_eq!(traces, Traces::default());
    for of_mounts in [Question::Record { record_ms: 1 }, Question::Names { inodes: Vec::new() }] {
        assert_eq!(server.asked(0, &of_mounts), [0_u8; 0]);
    }
}

fn op(snapshot: &Snapshot, op: Op) -> &Row {
    of(snapshot, (By::Op, Label::Op), op.row().name)
}

fn sum(snapshot: &Snapshot, by: By, metric: Metric) -> u64 {
    snapshot.rows(by).iter().map(|row| row.number(metric).unwrap()).sum()
}

fn is_zero(histogram: &Histogram) -> bool {
    histogram.bounds().all(|(last_us, _)| last_us == Some(0))
}

#[test]
fn every_answered_request_is_counted_once_for_its_operation_client_export_and_job() {
    let mut server = TestServer::started(60, 1);
    let mut admin = admin(&mut server);
    let fields = |client, job, host| HelloFields { job, host, ..HelloFields::new(client) };
    let mut one = Peer::new(&mut server, &fields(1, "build", "host1"));
    let mut two = Peer::new(&mut server, &fields(2, "build", "host2"));
    let mut three = Peer::new(&mut server, &fields(3, "", "host1"));
    let mut absent_count = 0;
    for round in 0..7 {
        one.create(&mut server, &alloc::format!("f{round}"));
        for (peer, text) in [(&mut two, "f0"), (&mut three, "absent")] {
            let ask = Lookup { caller: ROOT, parent: InodeNo::ROOT, name: name(text) };
            let got = peer.ask(&mut server, Op::Lookup, 0, &ask);
            absent_count += u64::from(got.head.status == Status::NotFound);
        }
    }
    assert_eq!(absent_count, 7);
    server.cut(two.conn);
    server.run();
    let found = snapshot(&mut server, &mut admin);
    let numbers = |row: &Row| [Metric::Requests, Metric::ErrorsAbsent].map(|it| row.number(it));
    assert_eq!(numbers(op(&found, Op::Create)), [Some(7), Some(0)]);
    assert_eq!(numbers(op(&found, Op::Lookup)), [Some(14), Some(7)]);
    let clients = ["01", "02", "03"].map(|byte| byte.repeat(16));
    let of_client = |index: usize| of(&found, (By::Client, Label::Client), &clients[index]);
    assert_eq!(numbers(of_client(0)), [Some(7), Some(0)]);
    assert_eq!(numbers(of_client(1)), [Some(7), Some(0)], "it has left");
    assert_eq!(numbers(of_client(2)), [Some(7), Some(7)]);
    let labels = [Label::Host, Label::Export, Label::Job].map(|it| of_client(1).label(it));
    assert_eq!(labels, [Some("host2"), Some("default"), Some("build")]);
    assert_eq!(numbers(of(&found, (By::Job, Label::Job), "build")), [Some(14), Some(0)]);
    assert_eq!(numbers(of(&found, (By::Export, Label::Export), "default")), [Some(21), Some(7)]);
    for metric in [Metric::Requests, Metric::InBytes, Metric::OutBytes, Metric::ErrorsAbsent] {
        let all = found.rows(By::Lane)[0].number(metric).unwrap();
        for by in [By::Op, By::Client, By::Export, By::Job] {
            assert_eq!(sum(&found, by, metric), all, "{metric:?} {by:?}");
        }
    }
    let lane = &found.rows(By::Lane)[0];
    assert_eq!(lane.number(Metric::Sessions), Some(4), "also the one that has left");
    assert_eq!(lane.number(Metric::Connections), Some(3));
    assert_eq!(lane.number(Metric::NamesBytes), None, "no limit");
    // The request for the counters itself is counted when its reply leaves, so by the next one.
    let counted = |found: &Snapshot| found.rows(By::Lane)[0].number(Metric::Requests).unwrap();
    assert_eq!(counted(&found), 21);
    assert_eq!(counted(&snapshot(&mut server, &mut admin)), 22);
}

#[test]
fn bytes_are_those_of_the_frames() {
    let mut server = TestServer::started(61, 1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    let ask = Getattr { inode: InodeNo::ROOT };
    let got = peer.ask(&mut server, Op::Getattr, 0, &ask);
    let found = snapshot(&mut server, &mut admin);
    let head_bytes = u64::try_from(wire::HEADER_BYTES).unwrap();
    let row = op(&found, Op::Getattr);
    assert_eq!(row.number(Metric::InBytes), Some(head_bytes + ask.to_bytes().len() as u64));
    assert_eq!(row.number(Metric::OutBytes), Some(head_bytes + got.body.len() as u64));
}

#[test]
fn a_request_that_waits_before_it_is_executed_is_in_the_queue() {
    let mut server = TestServer::started(62, 1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    peer.create(&mut server, "recorded");
    admin.ask(&mut server, Op::Freeze, 0, &Freeze { lease_ms: 1000 });
    let before = snapshot(&mut server, &mut admin);
    let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
    peer.send(&mut server, &head, &create("one").to_bytes(), None);
    server.run();
    let waiting = snapshot(&mut server, &mut admin);
    let row = |found: &Snapshot, metric| found.rows(By::Lane)[0].number(metric);
    assert_eq!(row(&waiting, Metric::WaitingFreeze), Some(1));
    server.pass_ms(300);
    admin.ask(&mut server, Op::Freeze, 0, &Freeze { lease_ms: 0 });
    server.run();
    assert_eq!(peer.replies(&mut server).len(), 1);
    let found = snapshot(&mut server, &mut admin).since(&before);
    let created = op(&found, Op::Create);
    let queue = created.histogram(Metric::QueueTime).unwrap();
    assert_eq!(queue.count(), 1);
    assert!((300_000..400_000).contains(&queue.sum_us()), "{}", queue.sum_us());
    assert!(is_zero(created.histogram(Metric::ExecutionTime).unwrap()));
    // It was counted when it arrived, and not again when it was executed.
    assert_eq!(created.number(Metric::Requests), Some(1));
    let in_bytes = (wire::HEADER_BYTES + create("one").to_bytes().len()) as u64;
    assert_eq!(created.number(Metric::InBytes), Some(in_bytes));
    assert_eq!(row(&found, Metric::WaitsFreeze), Some(1));
    assert_eq!(row(&found, Metric::WaitingFreeze), Some(0));
}

#[test]
fn a_deferred_reply_waits_for_its_commit() {
    let mut server = TestServer::started(63, 1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    let before = snapshot(&mut server, &mut admin);
    // The first change of a session is durable before its reply.
    let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
    peer.send(&mut server, &head, &create("one").to_bytes(), None);
    server.run_turns_only(0);
    assert!(peer.replies(&mut server).is_empty());
    server.sleep(5_000_000);
    server.run();
    assert_eq!(peer.replies(&mut server).len(), 1);
    let found = snapshot(&mut server, &mut admin).since(&before);
    let create = op(&found, Op::Create);
    assert!(create.histogram(Metric::CommitTime).unwrap().sum_us() >= 5000);
    assert!(is_zero(create.histogram(Metric::QueueTime).unwrap()));
    assert!(is_zero(create.histogram(Metric::ExecutionTime).unwrap()));
    let row = &found.rows(By::Lane)[0];
    assert_eq!(row.number(Metric::DeferredItself), Some(1));
    assert_eq!(row.number(Metric::WaitsBatch), Some(1));
}

#[test]
fn every_request_has_a_time_of_each_phase() {
    let mut server = TestServer::started(64, 2);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    for round in 0..5 {
        peer.create(&mut server, &alloc::format!("f{round}"));
        peer.ask(&mut server, Op::Getattr, 0, &Getattr { inode: InodeNo::ROOT });
    }
    let found = snapshot(&mut server, &mut admin);
    let phases = [Metric::QueueTime, Metric::ExecutionTime, Metric::CommitTime];
    for row in found.rows(By::Op) {
        let counts = phases.map(|metric| row.histogram(metric).unwrap().count());
        assert_eq!(counts, [row.number(Metric::Requests).unwrap(); 3], "{row:?}");
    }
    assert_eq!(op(&found, Op::Create).number(Metric::Requests), Some(5));
}

#[test]
fn counters_need_an_administrator() {
    let mut server = TestServer::started(65, 1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    let got = peer.ask(&mut server, Op::Counters, 0, &[0_u8; 0]);
    assert_eq!((got.head.status, got.body.len()), (Status::NotPermitted, 0));
    let head = peer.head(Op::Counters, ShardId::meta(0), 0);
    peer.send(&mut server, &head, b"a body", None);
    server.run();
    assert!(server.is_closed(peer.conn));
}

#[test]
fn many_clients_are_counted_together() {
    let mut server = TestServer::started(66, 1);
    let fields = HelloFields { purpose: Purpose::Administer, ..HelloFields::new(200) };
    let mut admin = Peer::new(&mut server, &fields);
    // One uuid is another client for another purpose.
    let purposes = [Purpose::Use, Purpose::Administer];
    let clients = (1..=128).flat_map(|client| purposes.map(|purpose| (client, purpose)));
    for (client, purpose) in clients {
        let fields = HelloFields { purpose, ..HelloFields::new(client) };
        let mut peer = Peer::new(&mut server, &fields);
        for _ in 0..=client % 2 {
            peer.ask(&mut server, Op::Getattr, 0, &Getattr { inode: InodeNo::ROOT });
        }
        server.cut(peer.conn);
        server.run();
    }
    let found = snapshot(&mut server, &mut admin);
    // With the administrator that is one client too many: the oldest is counted among the others.
    assert_eq!(found.rows(By::Client).len(), CLIENT_COUNT_MAX + 1);
    let others = of(&found, (By::Client, Label::Client), wire::counters::OTHERS);
    assert_eq!(others.number(Metric::Requests), Some(2));
    let all = found.rows(By::Lane)[0].number(Metric::Requests).unwrap();
    assert_eq!(sum(&found, By::Client, Metric::Requests), all);
    assert_eq!(op(&found, Op::Getattr).number(Metric::Requests), Some(256 + 128));
}

#[test]
fn a_flush_has_a_time() {
    let mut server = TestServer::started(65, 1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    let before = snapshot(&mut server, &mut admin);
    let head = peer.head(Op::Create, InodeNo::ROOT.shard(), 1);
    peer.send(&mut server, &head, &create("one").to_bytes(), None);
    server.run_turns_only(0);
    server.sleep(5_000_000);
    server.run();
    let found = snapshot(&mut server, &mut admin).since(&before);
    let row = &found.rows(By::Lane)[0];
    let flushes = row.histogram(Metric::FlushTime).unwrap();
    assert_eq!((flushes.count(), row.number(Metric::FlushAge)), (1, Some(0)));
    assert!(flushes.sum_us() >= 5000, "{flushes:?}");
    assert_eq!(row.number(Metric::LogFailed), Some(0));
    assert_eq!(row.number(Metric::UpTime), Some(119));
    let found = snapshot(&mut server, &mut admin);
    let replies = found.rows(By::Lane)[0].histogram(Metric::SendTime).unwrap();
    let bounds: Vec<_> = replies.bounds().collect();
    assert_eq!(bounds, [(Some(0), 1), (Some(131_071), 1)]);
    assert_eq!(replies.sum_us(), 20_000);
}

#[test]
fn a_lane_that_does_not_observe_counts_and_traces_nothing() {
    let mut server = TestServer::new(67);
    server.limits.observes = false;
    server.start(1);
    let (mut admin, mut peer) = (admin(&mut server), Peer::new(&mut server, &HelloFields::new(1)));
    peer.create(&mut server, "f");
    let found = snapshot(&mut server, &mut admin);
    assert_eq!(found.rows(By::Op), []);
    assert_eq!(sum(&found, By::Client, Metric::Requests), 0);
    assert_eq!(server.lane(0).traces.open_count(), 0);
}
