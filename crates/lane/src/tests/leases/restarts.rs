//! Leases over a restart: they are lost, and nothing conflicting happens before their holders know.

use super::*;
use wire::{ReplayDone, SetExport, Squash, SquashedIds};

/// Ends the replays of a client at all shards of its lane. What is answered later is ignored.
fn come_back(server: &mut TestServer, holder: &mut Holder) {
    holder.reconnect(server);
    let counts = server.map.shard_counts();
    let metas = (0..counts.meta).map(ShardId::meta);
    for shard in metas.chain((0..counts.data).map(ShardId::data)) {
        let done = ReplayDone { reopen_count: 0 };
        holder.send_to(server, (Op::ReplayDone, shard, 0), 0, &done);
    }
    server.run();
    holder.collect(server);
    holder.replies.clear();
    holder.lease_no_last = LeaseNo(0);
}

#[test]
fn a_client_is_granted_nothing_until_its_record_is_durable() {
    let mut server = started(1);
    let mut holder = Holder::unknown(&mut server, HelloFields::new(1));
    let lookup = Lookup { caller: ROOT, parent: InodeNo::ROOT, name: name("x") };
    holder.send(&mut server, Op::Lookup, 0, &lookup);
    server.run_turns_only(0);
    holder.send(&mut server, Op::Lookup, 0, &lookup);
    server.run_turns_only(0);
    holder.collect(&mut server);
    let granted: Vec<_> = holder.replies.drain(..).map(|reply| reply.lease).collect();
    assert_eq!(granted, [None, None], "the record is not durable");
    server.run();
    assert_eq!(holder.lookup(&mut server, "x").granted(), lease_flag::NAME);
}

#[test]
fn a_holder_that_only_reads_is_awaited_after_a_restart() {
    let mut server = TestServer::new(5);
    server.limits.recovery_soft_ms = 100;
    server.start(1);
    server.run();
    let mut reader = Holder::unknown(&mut server, HelloFields::new(1));
    reader.lookup(&mut server, "x");
    server.run();
    assert_eq!(reader.lookup(&mut server, "x").granted(), lease_flag::NAME);
    let mut writer = Holder::new(&mut server, 2);
    server.crash_losing_all();
    server.start(1);
    server.run();
    come_back(&mut server, &mut writer);
    writer.send(&mut server, Op::Create, 1, &create("x"));
    assert!(
        !writer.has_reply(&mut server),
        "the reader's kernel may still answer that x is absent"
    );
    come_back(&mut server, &mut reader);
    assert!(writer.has_reply(&mut server));
}

#[test]
fn each_lane_of_a_holder_is_awaited_after_a_restart() {
    let mut server = TestServer::new(6);
    server.limits.recovery_soft_ms = 100;
    server.start(1);
    server.run();
    let mut first = Holder::unknown(&mut server, HelloFields::new(1));
    first.lookup(&mut server, "x");
    server.run();
    let fields = HelloFields { client_lane: LaneId(1), ..HelloFields::new(1) };
    let mut second = Holder::unknown(&mut server, fields);
    assert_eq!(second.lookup(&mut server, "x").lease, None, "this lane is not recorded");
    server.run();
    assert_eq!(second.lookup(&mut server, "x").granted(), lease_flag::NAME);
    let mut writer = Holder::new(&mut server, 2);
    server.crash_losing_all();
    server.start(1);
    server.run();
    come_back(&mut server, &mut writer);
    come_back(&mut server, &mut first);
    writer.send(&mut server, Op::Create, 1, &create("x"));
    assert!(!writer.has_reply(&mut server), "the other lane may still answer that x is absent");
    come_back(&mut server, &mut second);
    assert!(writer.has_reply(&mut server));
}

/// A client changes something after a restart of which another, missing client had a lease.
fn change_beside_missing(rules: wire::Rules) -> (TestServer, Holder) {
    let mut server = TestServer::new(2);
    server.limits.recovery_soft_ms = 100;
    server.rules = rules;
    server.start(1);
    server.run();
    let (mut first, mut second, file) = two(&mut server);
    assert!(first.getattr(&mut server, file).granted() != 0);
    server.crash_losing_all();
    server.start(1);
    server.run();
    come_back(&mut server, &mut second);
    second.send(&mut server, Op::Setattr, 1, &chmod(file, 0o700));
    (server, second)
}

#[test]
fn a_missing_holder_is_given_up_no_sooner_than_after_the_term() {
    let (mut server, mut second) = change_beside_missing(wire::Rules::default());
    server.pass_ms(9_900);
    assert!(!second.has_reply(&mut server), "the missing client's kernel may still answer");
    server.pass_ms(200);
    assert!(second.has_reply(&mut server));
}

#[test]
fn a_missing_holder_is_given_up_after_the_term_that_it_was_promised() {
    let mut server = TestServer::new(2);
    server.limits.recovery_soft_ms = 100;
    server.start(1);
    server.run();
    let (mut first, mut second, file) = two(&mut server);
    assert!(first.getattr(&mut server, file).granted() != 0);
    server.limits.lease_term_ms = 0;
    for _ in 0..2 {
        server.crash_losing_all();
        server.start(1);
        server.run();
    }
    come_back(&mut server, &mut second);
    second.send(&mut server, Op::Setattr, 1, &chmod(file, 0o700));
    server.pass_ms(9_900);
    assert!(!second.has_reply(&mut server), "the missing client's kernel may still answer");
    server.pass_ms(200);
    assert!(second.has_reply(&mut server));
    assert_eq!(server.promised.unwrap().lease_term_ms, 0, "that is over");
}

#[cfg(feature = "removable-rules")]
#[test]
fn without_its_rule_a_missing_holder_is_given_up_while_it_may_still_answer() {
    let rules = wire::Rules::default().without(wire::Rule::LeaseRestart);
    let (mut server, mut second) = change_beside_missing(rules);
    server.pass_ms(500);
    assert!(second.has_reply(&mut server));
}

#[test]
fn a_holder_that_is_back_has_dropped_everything() {
    let mut server = started(3);
    let (mut first, mut second, file) = two(&mut server);
    assert!(first.getattr(&mut server, file).granted() != 0);
    server.crash_losing_all();
    server.start(1);
    server.run();
    come_back(&mut server, &mut first);
    come_back(&mut server, &mut second);
    second.send(&mut server, Op::Setattr, 1, &chmod(file, 0o700));
    assert!(second.has_reply(&mut server), "nothing is recalled");
    assert!(first.recalled(&mut server).is_empty());
    assert_eq!(first.getattr(&mut server, file).granted(), lease_flag::ATTRIBUTES);
}

#[test]
fn a_changed_export_recalls_everything_from_its_clients() {
    let mut server = started(4);
    let administers = HelloFields { purpose: wire::Purpose::Administer, ..HelloFields::new(9) };
    let mut administrator = Holder::unknown(&mut server, administers);
    let export = |read_only, ids| wire::Export {
        id: 7,
        name: wire::Bytes(b"part"),
        root: InodeNo::ROOT,
        path: wire::Bytes(b"/"),
        read_only,
        squash: Squash { ids, anon_uid: 65_534, anon_gid: 65_534 },
        closed: false,
    };
    let mut define = |server: &mut TestServer, read_only, ids| {
        let set = SetExport { export: export(read_only, ids), replace: true };
        let answer = administrator.ask(server, Op::SetExport, 0, &set);
        assert_eq!(answer.head.status, Status::Ok);
    };
    define(&mut server, false, SquashedIds::None);
    let mut bound =
        Holder::unknown(&mut server, HelloFields { export: "part", ..HelloFields::new(1) });
    let mut free = Holder::new(&mut server, 2);
    bound.open(&mut server, InodeNo::ROOT, OpenFor::Read);
    assert_eq!(bound.lookup(&mut server, "x").granted(), lease_flag::NAME);
    assert_eq!(free.lookup(&mut server, "x").granted(), lease_flag::NAME);
    define(&mut server, true, SquashedIds::All);
    assert_eq!(bound.recalled(&mut server), BTreeSet::from([Key::All]));
    assert!(bound.recalls[0].lease_no_max >= bound.lease_no_last);
    assert!(free.recalled(&mut server).is_empty());
    bound.ack(&mut server);
    // Callers get other ids: its kernel must not check permissions.
    let seen = bound.lookup(&mut server, "x");
    assert_eq!((seen.head.status, seen.lease), (Status::NotFound, None));
    // The acknowledgement has ended what it had, so nobody waits for it.
    free.send(&mut server, Op::Create, 1, &create("x"));
    assert!(free.has_reply(&mut server));
}
