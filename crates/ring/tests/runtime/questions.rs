//! Questions of other threads to a core.

use super::support::{Recorder, only_mailbox, ring_config, turns};
use interface::{Action, Event};
use ring::Ring;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use wire::LaneId;

#[test]
fn a_question_wakes_a_lane_and_its_answer_goes_to_who_asked() {
    let mut config = ring_config(LaneId(0));
    let mailbox = only_mailbox();
    let waker = mailbox.waker();
    config.mailbox = Some(mailbox);
    let mut ring = Ring::new(config).unwrap();
    let mut recorder = Recorder::default();
    let (sender, answers) = channel();
    let (first, second) = (sender.clone(), sender);
    let asking = std::thread::spawn(move || {
        waker.ask(b"one".to_vec(), first);
        waker.ask(b"two".to_vec(), second);
    });
    turns(&mut ring, &mut recorder, |recorder| recorder.events.len() > 1);
    asking.join().unwrap();
    let [Event::Asked { ticket: one, .. }, Event::Asked { ticket: two, .. }] = recorder.events[..]
    else {
        panic!("{:?}", recorder.events)
    };
    // In any order, and once.
    for (ticket, text) in [(two, &b"to two"[..]), (one, b"to one"), (one, b"again")] {
        ring.with(|turn| {
            let answer = turn.arena.put(text);
            turn.act(Action::Answer { ticket, answer });
        });
    }
    let waker = ring.stopper();
    waker.stop();
    turns(&mut ring, &mut recorder, |recorder| recorder.events.contains(&Event::Stop));
    assert_eq!(answers.recv_timeout(Duration::ZERO), Ok(b"to two".to_vec()));
    assert_eq!(answers.recv_timeout(Duration::ZERO), Ok(b"to one".to_vec()));
    assert_eq!(answers.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Disconnected));
}
