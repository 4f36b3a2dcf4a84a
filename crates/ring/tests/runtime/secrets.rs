//! Secrets and maps set by another thread, and secrets read at a core's request.

use super::support::{Recorder, ask, only_mailbox, ring_config, turns};
use interface::{Action, Event};
use ring::Ring;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use wire::{LaneId, Map, Secret, Secrets, ShardCounts, Term};

const FIRST: Secrets = Secrets { current: Secret::new([1; 32]), earlier: None };
const SECOND: Secrets = Secrets { current: Secret::new([2; 32]), earlier: Some(FIRST.current) };

#[test]
fn new_secrets_wake_a_lane_and_their_sender_learns_when_they_are_taken() {
    let mut config = ring_config(LaneId(0));
    let mailbox = only_mailbox();
    let waker = mailbox.waker();
    config.mailbox = Some(mailbox);
    let mut ring = Ring::new(config).unwrap();
    let mut recorder = Recorder::default();
    let (replaced, all_replaced) = channel();
    waker.set_secrets(Some(FIRST), Some(replaced.clone()));
    // The second ones replace the first.
    waker.set_secrets(Some(SECOND), Some(replaced));
    assert_eq!(all_replaced.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
    turns(&mut ring, &mut recorder, |recorder| !recorder.events.is_empty());
    assert_eq!(recorder.events, [Event::Secrets(Some(SECOND))]);
    assert_eq!(all_replaced.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Disconnected));
    // A sleeping lane.
    let giver = std::thread::spawn(move || waker.set_secrets(Some(FIRST), None));
    turns(&mut ring, &mut recorder, |recorder| recorder.events.len() > 1);
    giver.join().unwrap();
    assert_eq!(recorder.events[1], Event::Secrets(Some(FIRST)));
}

#[test]
fn requested_secrets_are_read_on_another_thread() {
    let mut config = ring_config(LaneId(0));
    config.mailbox = Some(only_mailbox());
    let lane = std::thread::current().id();
    config.read_secrets = Some(Arc::new(move || {
        assert_ne!(std::thread::current().id(), lane, "a file may be slow");
        Some(FIRST)
    }));
    let mut ring = Ring::new(config).unwrap();
    let mut recorder = Recorder::default();
    for _ in 0..2 {
        let event = ask(&mut ring, &mut recorder, Action::ReadSecrets);
        assert_eq!(event, Event::Secrets(Some(FIRST)));
    }
}

#[test]
fn without_a_file_the_answer_is_none() {
    let mut config = ring_config(LaneId(0));
    config.mailbox = Some(only_mailbox());
    let mut ring = Ring::new(config).unwrap();
    let event = ask(&mut ring, &mut Recorder::default(), Action::ReadSecrets);
    assert_eq!(event, Event::Secrets(None));
}

#[test]
fn a_newer_map_reaches_a_lane_that_sleeps() {
    let mut config = ring_config(LaneId(0));
    let mailbox = only_mailbox();
    let waker = mailbox.waker();
    config.mailbox = Some(mailbox);
    let mut ring = Ring::new(config).unwrap();
    let map = |term| Map::single_server(1, ShardCounts { meta: 1, data: 1 }, Term(term));
    // The second one replaces the first.
    waker.set_map(&map(1));
    waker.set_map(&map(2));
    let mut recorder = Recorder::default();
    turns(&mut ring, &mut recorder, |recorder| !recorder.events.is_empty());
    assert_eq!(recorder.maps, [map(2)]);
    let sender = std::thread::spawn(move || waker.set_map(&map(3)));
    turns(&mut ring, &mut recorder, |recorder| recorder.events.len() > 1);
    sender.join().unwrap();
    assert_eq!(recorder.maps[1], map(3));
}
