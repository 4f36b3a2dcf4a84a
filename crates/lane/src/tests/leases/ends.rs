//! How a recall ends: acknowledged, dropped with a lost connection, expired, left.

use super::*;
use crate::tests::counters;
use wire::ClientUuid;
use wire::counters::{By, Label, Metric, Snapshot};

/// A lease that is recalled, and the request that waits for it.
fn waiting(server: &mut TestServer) -> (Holder, Holder, InodeNo) {
    let (mut first, mut second, file) = two(server);
    assert_eq!(first.getattr(server, file).granted(), lease_flag::ATTRIBUTES);
    second.send(server, Op::Setattr, 1, &chmod(file, 0o700));
    server.run();
    assert!(!second.has_reply(server));
    (first, second, file)
}

#[test]
fn a_recall_comes_behind_the_grant_and_covers_one_that_is_still_on_its_way() {
    let mut server = started(1);
    let (mut first, mut second, file) = two(&mut server);
    // The reply waits for the log, the lease is granted.
    let flags = request_flag::LEASES | request_flag::SYNC;
    let shard = InodeNo::ROOT.shard();
    first.send_to(&mut server, (Op::Setattr, shard, 1), flags, &chmod(file, 0o640));
    server.run_turns_only(0);
    second.send(&mut server, Op::Setattr, 1, &chmod(file, 0o700));
    server.run_turns_only(0);
    first.collect(&mut server);
    assert!(first.replies.is_empty(), "the recall overtakes the reply");
    let lease_no_max = first.recalls[0].lease_no_max;
    server.run();
    first.collect(&mut server);
    let late = first.replies.remove(0);
    assert!(late.head.flags & reply_flag::GATED != 0);
    let late = late.lease.unwrap();
    assert_eq!(late.granted, lease_flag::ATTRIBUTES);
    assert!(late.lease_no <= lease_no_max, "the client ignores it");
    first.ack(&mut server);
    assert_eq!(mode_of(&second.reply(&mut server)), 0o700);
    let next = first.getattr(&mut server, file);
    assert!(next.lease.unwrap().lease_no > lease_no_max, "a later grant counts");
}

#[test]
fn an_acknowledgement_that_is_lost_with_its_connection_is_made_up_for() {
    let mut server = started(2);
    let (mut first, mut second, _) = waiting(&mut server);
    first.collect(&mut server);
    let last = first.lease_no_last;
    server.cut(first.peer.conn);
    server.run();
    first.reconnect(&mut server);
    assert!(!second.has_reply(&mut server), "the client may still answer from it");
    first.send_ack(&mut server, &[], LeaseNo(last.0 - 1));
    assert!(!second.has_reply(&mut server), "that was an earlier grant");
    first.send_ack(&mut server, &[], last);
    assert!(second.has_reply(&mut server));
    assert_eq!(server.counters(0).leases.expired_count, 0);
}

#[test]
fn what_was_recalled_without_a_connection_ends_when_the_client_drops_everything() {
    let mut server = started(3);
    let (mut first, mut second, file) = two(&mut server);
    first.getattr(&mut server, file);
    server.cut(first.peer.conn);
    server.run();
    second.send(&mut server, Op::Setattr, 1, &chmod(file, 0o700));
    assert!(!second.has_reply(&mut server));
    first.reconnect(&mut server);
    // More than it can know of: clamped, so that later grants are not lost.
    first.send_ack(&mut server, &[], LeaseNo(u64::MAX));
    assert!(second.has_reply(&mut server));
    assert_eq!(first.getattr(&mut server, file).granted(), lease_flag::ATTRIBUTES);
    second.replies.clear();
    second.send(&mut server, Op::Setattr, 2, &chmod(file, 0o711));
    assert!(!second.has_reply(&mut server), "this lease is a new one");
}

#[test]
fn a_silent_holder_delays_a_change_by_the_term_and_no_longer() {
    let mut server = started(4);
    let (_first, mut second, _) = waiting(&mut server);
    server.pass_ms(9_990);
    assert!(!second.has_reply(&mut server));
    server.pass_ms(20);
    assert!(second.has_reply(&mut server));
    let counts = server.counters(0).leases;
    assert_eq!((counts.recalled_count, counts.expired_count), (1, 1));
}

#[test]
fn a_client_that_was_replaced_keeps_its_leases_until_they_expire() {
    let mut server = started(5);
    let (first, mut second, _) = waiting(&mut server);
    let successor = HelloFields { predecessor: ClientUuid([1; 16]), ..HelloFields::new(9) };
    Holder::unknown(&mut server, successor);
    assert!(server.is_closed(first.peer.conn));
    assert!(!second.has_reply(&mut server), "its kernel may still answer");
    server.pass_ms(10_000);
    assert!(second.has_reply(&mut server));
}

#[test]
fn goodbye_ends_all_leases() {
    let mut server = started(6);
    let (mut first, mut second, _) = waiting(&mut server);
    let head = first.peer.head(Op::Goodbye, InodeNo::ROOT.shard(), 0);
    first.peer.send(&mut server, &head, &[], None);
    assert!(second.has_reply(&mut server));
}

#[test]
fn only_the_holder_can_acknowledge() {
    let mut server = started(7);
    let (mut first, mut second, _) = waiting(&mut server);
    let third = Holder::new(&mut server, 3);
    first.collect(&mut server);
    let recall_no = first.recalls[0].recall_no;
    third.send_ack(&mut server, &[recall_no, RecallNo(99)], LeaseNo(u64::MAX));
    assert!(!second.has_reply(&mut server));
    first.send_ack(&mut server, &[recall_no, recall_no], LeaseNo(0));
    assert!(second.has_reply(&mut server));
}

#[test]
fn a_malformed_acknowledgement_ends_its_connection() {
    let mut server = started(8);
    let first = Holder::new(&mut server, 1);
    let mut frame = Vec::new();
    Header::RecallAck.encode(&mut frame, None, |to| to.put(b"none"));
    server.send(first.peer.conn, frame, None);
    server.run();
    assert!(server.is_closed(first.peer.conn));
    assert_eq!(server.counters(0).protocol_error_count, 1);
}

#[test]
fn a_request_whose_connection_ends_while_it_waits_is_answered_over_the_next_one() {
    let mut server = started(9);
    let (mut first, mut second, file) = waiting(&mut server);
    let shard = InodeNo::ROOT.shard();
    server.cut(second.peer.conn);
    server.run();
    second.reconnect(&mut server);
    second.peer.xid -= 1;
    let flags = request_flag::LEASES | request_flag::RESENT;
    second.send_to(&mut server, (Op::Setattr, shard, 1), flags, &chmod(file, 0o700));
    assert!(!second.has_reply(&mut server));
    first.ack(&mut server);
    assert!(second.has_reply(&mut server));
    assert_eq!(mode_of(&second.replies[0]), 0o700);
    assert_eq!(server.counters(0).leases.wait_count, 1, "executed once");
}

#[test]
fn a_timer_for_a_lease_that_was_dropped_causes_no_wakeup() {
    let mut server = started(10);
    let (mut first, mut second, _) = waiting(&mut server);
    first.ack(&mut server);
    assert!(second.has_reply(&mut server));
    assert_eq!(server.lane(0).leases.deadline(), None);
}

/// Each waits for the other's lease. One of the leases expires earlier, and the timer for the later
/// one stays.
#[test]
fn two_holders_of_a_key_that_change_it_wait_for_both_leases_to_expire() {
    for is_first in [true, false] {
        let mut server = started(1);
        let (mut one, mut other) = (Holder::new(&mut server, 1), Holder::new(&mut server, 2));
        let file = one.create(&mut server, "f");
        for holder in [&mut one, &mut other] {
            assert_eq!(holder.getattr(&mut server, file).granted(), lease_flag::ATTRIBUTES);
            server.pass_ms(1_000);
        }
        let mut holders = [&mut one, &mut other];
        if is_first {
            holders.reverse();
        }
        for holder in &mut holders {
            holder.send(&mut server, Op::Setattr, 1, &chmod(file, 0o600));
            server.run();
        }
        // Neither acknowledges its recall.
        assert!(holders.iter_mut().all(|holder| !holder.has_reply(&mut server)));
        server.pass_ms(10_000);
        server.run();
        assert!(holders.iter_mut().all(|holder| holder.has_reply(&mut server)), "{is_first}");
    }
}

#[test]
fn each_request_renews_the_term_of_all_that_its_session_holds() {
    let mut server = started(11);
    let (mut first, mut second, file) = two(&mut server);
    assert_eq!(first.getattr(&mut server, file).granted(), lease_flag::ATTRIBUTES);
    for _ in 0..3 {
        server.pass_ms(9_000);
        first.ping(&mut server);
    }
    second.send(&mut server, Op::Setattr, 1, &chmod(file, 0o700));
    server.pass_ms(9_990);
    assert!(!second.has_reply(&mut server), "it was granted 37 s ago");
    assert_eq!(first.recalled(&mut server), BTreeSet::from([Key::Attributes(file)]));
    server.pass_ms(20);
    assert!(second.has_reply(&mut server));
    assert_eq!(server.counters(0).leases.ping_count, 3);
}

#[test]
fn what_is_recalled_ends_within_a_term_although_its_holder_goes_on_to_send_requests() {
    let mut server = started(12);
    let (mut first, mut second, _) = waiting(&mut server);
    first.lookup(&mut server, "f");
    server.pass_ms(9_000);
    first.ping(&mut server);
    server.pass_ms(990);
    assert!(!second.has_reply(&mut server));
    server.pass_ms(20);
    assert!(second.has_reply(&mut server));
    // Its other leases go on.
    let unlink =
        wire::Unlink { caller: ROOT, parent: InodeNo::ROOT, name: name("f"), behind: None };
    second.replies.clear();
    second.send(&mut server, Op::Unlink, 2, &unlink);
    assert!(!second.has_reply(&mut server), "the name was not recalled before");
}

#[test]
fn a_recall_of_a_holder_that_was_silent_for_a_while_waits_for_the_rest_of_its_term() {
    let mut server = started(13);
    let (mut first, mut second, file) = two(&mut server);
    first.getattr(&mut server, file);
    server.pass_ms(6_000);
    second.send(&mut server, Op::Setattr, 1, &chmod(file, 0o700));
    server.pass_ms(3_990);
    assert!(!second.has_reply(&mut server));
    server.pass_ms(20);
    assert!(second.has_reply(&mut server));
    assert_eq!(server.counters(0).leases.expired_count, 1);
}

#[test]
fn a_holder_that_is_heard_of_while_its_recall_waits_is_waited_for_longer() {
    let mut server = started(14);
    let (mut first, mut second, file) = two(&mut server);
    first.getattr(&mut server, file);
    server.pass_ms(6_000);
    second.send(&mut server, Op::Setattr, 1, &chmod(file, 0o700));
    server.run();
    server.pass_ms(3_000);
    // It may have been sent when the recall was on its way.
    first.ping(&mut server);
    server.pass_ms(6_980);
    assert!(!second.has_reply(&mut server));
    server.pass_ms(40);
    assert!(second.has_reply(&mut server), "a term after the recall");
}

#[test]
fn what_has_ended_with_a_term_does_not_come_back_with_the_next_request() {
    let mut server = started(15);
    let (mut first, mut second, file) = two(&mut server);
    first.getattr(&mut server, file);
    server.pass_ms(10_001);
    first.ping(&mut server);
    first.lookup(&mut server, "absent");
    second.send(&mut server, Op::Setattr, 1, &chmod(file, 0o700));
    assert!(second.has_reply(&mut server), "the term was over");
    assert_eq!(first.recalled(&mut server), BTreeSet::new());
    second.replies.clear();
    second.send(&mut server, Op::Create, 2, &create("absent"));
    assert!(!second.has_reply(&mut server), "the next one is not");
}

#[test]
fn the_client_that_does_not_answer_a_recall_is_named_with_how_long() {
    let mut server = started(11);
    let (mut first, mut second, _) = waiting(&mut server);
    let mut admin = counters::admin(&mut server);
    server.pass_ms(1500);
    let found = counters::snapshot(&mut server, &mut admin);
    let of_client = |client: &str| {
        let row = counters::of(&found, (By::Client, Label::Client), &client.repeat(16));
        [Metric::RecallsUnanswered, Metric::RecallAge].map(|metric| row.number(metric))
    };
    let [count, age_us] = of_client("01");
    assert_eq!(count, Some(1));
    assert!((1_500_000..1_600_000).contains(&age_us.unwrap()), "{age_us:?}");
    assert_eq!(of_client("02"), [None, None]);
    assert_eq!(found.rows(By::Lane)[0].number(Metric::RecallsUnanswered), Some(1));
    let connections = |found: &Snapshot| {
        let row = counters::of(found, (By::Client, Label::Client), &"01".repeat(16));
        row.number(Metric::Connections)
    };
    assert_eq!(connections(&found), Some(1));
    first.collect(&mut server);
    first.ack(&mut server);
    assert!(second.has_reply(&mut server));
    let found = counters::snapshot(&mut server, &mut admin);
    assert_eq!(found.rows(By::Lane)[0].number(Metric::RecallsUnanswered), Some(0));
}

#[test]
fn a_client_that_died_with_leases_is_named_as_one_without_a_connection() {
    let mut server = started(16);
    let (first, second, _) = waiting(&mut server);
    let mut admin = counters::admin(&mut server);
    server.cut(first.peer.conn);
    server.pass_ms(1500);
    let found = counters::snapshot(&mut server, &mut admin);
    let row = counters::of(&found, (By::Client, Label::Client), &"01".repeat(16));
    assert_eq!(row.number(Metric::Connections), Some(0));
    assert!(row.number(Metric::RecallAge) >= Some(1_500_000));
    server.cut(second.peer.conn);
}
