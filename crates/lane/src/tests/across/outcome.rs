//! Time-outs of transactions over two lanes.

use super::*;
use crate::test_server::Delivery;
use interface::Event;

/// A rename over three shards at two lanes, up to the moment when a participant of the other lane
/// has prepared its part, and has not been heard.
fn prepared(seed: u64) -> (TestServer, Mount, usize) {
    let mut server = store(seed, 2);
    server.start(2);
    let mut mount = Mount::new(&mut server, 1);
    let mut dirs = Vec::new();
    for text in ["a", "b", "c", "d"] {
        let act = Act::Mkdir(InodeNo::ROOT, text);
        mount.begin(&act);
        let (status, body) = ask(&mut server, &mut mount, 0);
        assert_eq!(status, Status::Ok);
        dirs.push(mount::made(&act, &body).unwrap());
    }
    let here = *dirs.iter().find(|dir| dir.shard().index() == 0).unwrap();
    let there = *dirs.iter().find(|dir| dir.shard().index() == 1).unwrap();
    mount.begin(&Act::Create(here, "f"));
    assert_eq!(ask(&mut server, &mut mount, 0).0, Status::Ok);
    server.run();
    server.points.clear();
    mount.begin(&Act::Rename((here, "f"), (there, "g"), RenameHow::Replace));
    mount.send(&mut server);
    while !server.points.contains_key(&ProtocolPoint::TxnPrepared) {
        assert!(server.step(), "it prepares");
    }
    let holds = |lane: &usize| server.lane(*lane).txns.has_prepared();
    let participant = (0..2).find(holds).unwrap();
    (server, mount, participant)
}

#[test]
fn a_participant_asks_for_the_outcome_after_a_second_of_silence() {
    for seed in 0..10 {
        let (mut server, _, participant) = prepared(seed);
        // The coordinator forgets it, as one that begins a new term.
        server.lane_mut(1 - participant).txns.forget_running();
        server.run();
        assert!(server.lane(participant).txns.has_prepared(), "the locks are held");
        server.pass_ms(900);
        server.run();
        assert!(server.lane(participant).txns.has_prepared(), "it does not decide by itself");
        server.pass_ms(200);
        server.run();
        assert!(!server.lane(participant).txns.has_prepared(), "it was aborted");
        assert!(!server.points.contains_key(&ProtocolPoint::TxnDone));
    }
}

#[test]
fn a_coordinator_gives_up_a_prepare_phase_after_three_seconds_and_tries_again() {
    for seed in 0..10 {
        let (mut server, mut mount, participant) = prepared(seed);
        server.delivery = Delivery { loses_one_in: 1, ..Delivery::default() };
        // The answer that was on its way is lost too.
        server.lose_messages();
        server.pass_ms(2500);
        assert!(!server.lane(1 - participant).txns.is_pausing());
        let begun = |server: &TestServer| server.points.get(&ProtocolPoint::TxnDeciding).copied();
        assert_eq!(begun(&server), None);
        server.pass_ms(600);
        server.delivery = Delivery::default();
        server.pass_ms(5000);
        let (status, _) = ask(&mut server, &mut mount, 0);
        assert_eq!(status, Status::Ok);
        server.run();
        assert!((0..2).all(|lane| !server.lane(lane).txns.has_prepared()));
        assert_eq!(server.points[&ProtocolPoint::TxnPrepared], 2, "prepared twice");
        assert_eq!(begun(&server), Some(1));
    }
}

#[test]
fn a_lane_that_ends_waits_two_seconds_for_the_outcome() {
    let (mut server, _, participant) = prepared(1);
    server.delivery = Delivery { loses_one_in: 1, ..Delivery::default() };
    server.lose_messages();
    server.lane_mut(1 - participant).txns.forget_running();
    (0..2).for_each(|lane| server.event(lane, Event::Stop));
    while server.step() {}
    server.pass_ms(1900);
    assert!(!server.is_stopped() && server.lane(participant).txns.has_prepared());
    server.pass_ms(200);
    while server.step() {}
    assert!(server.is_stopped(), "the next start decides");
    assert!(server.wake_count < 40, "{} timers were set", server.wake_count);
}
