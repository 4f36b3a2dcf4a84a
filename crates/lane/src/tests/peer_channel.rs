//! A channel between two lanes over a way that loses, repeats and reorders.

use crate::peers::channel::{Channel, GATHERED_COUNT_MAX, Leaving, Receipt, WINDOW_COUNT_MAX};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use fastrand::Rng;
use interface::Mono;
use wire::Term;

const TERM: Term = Term(3);

/// Messages on their way: sequence and body.
#[derive(Default)]
struct Way {
    messages: VecDeque<(u64, Vec<u8>)>,
    sent_count: usize,
}

impl Way {
    fn put(&mut self, Leaving { sequence, body, .. }: Leaving<'_>) {
        self.messages.push_back((sequence, body.to_vec()));
        self.sent_count += 1;
    }
}

/// Receives a message; returns the bodies that are applied.
fn receive(channel: &mut Channel, (sequence, body): (u64, &[u8])) -> Vec<Vec<u8>> {
    let mut applied = Vec::new();
    match channel.receive(TERM, sequence, Mono(0)) {
        Receipt::Next => applied.push(body.to_vec()),
        Receipt::Early => channel.keep(sequence, body),
        Receipt::Repeated | Receipt::Refused => {}
    }
    applied.extend(core::iter::from_fn(|| channel.next_early()));
    applied
}

#[test]
fn each_message_is_applied_once_and_in_order() {
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let (mut from, mut to, mut way) = (Channel::default(), Channel::default(), Way::default());
        let count = 1 + rng.usize(..600);
        let (mut pushed, mut applied, mut now) = (0, Vec::new(), Mono(0));
        while applied.len() < count || from.unacknowledged_count() > 0 {
            now = now.after_ms(1);
            while pushed < count && rng.usize(..4) != 0 {
                from.push(&pushed.to_le_bytes()[..rng.usize(1..9)], None);
                pushed += 1;
            }
            from.leave(now, &mut |leaving, _| way.put(leaving));
            from.resend(now, &mut |leaving, _| way.put(leaving));
            for _ in 0..rng.usize(..20) {
                if way.messages.is_empty() {
                    break;
                }
                let at = rng.usize(..way.messages.len().min(30));
                let (sequence, body) = way.messages[at].clone();
                if rng.usize(..8) != 0 {
                    way.messages.remove(at);
                }
                if rng.usize(..4) != 0 {
                    applied.extend(receive(&mut to, (sequence, &body)));
                }
            }
            if rng.usize(..3) == 0 {
                from.on_acknowledged(now, to.received());
            }
            let on_way_max = usize::try_from(WINDOW_COUNT_MAX).unwrap();
            assert!(from.unacknowledged_count() <= count && way.messages.len() <= 40 * on_way_max);
            assert!(now < Mono(0).after_ms(600_000), "seed {seed}: {} of {count}", applied.len());
        }
        for (number, body) in applied.iter().enumerate() {
            assert_eq!(*body, number.to_le_bytes()[..body.len()], "seed {seed}");
        }
        assert_eq!(applied.len(), count, "seed {seed}");
        assert_eq!(from.due_at(), None, "no timer is left");
    }
}

#[test]
fn a_window_bounds_what_is_on_its_way() {
    let (mut channel, mut way) = (Channel::default(), Way::default());
    let window = usize::try_from(WINDOW_COUNT_MAX).unwrap();
    for _ in 0..window + 50 {
        channel.push(b"x", None);
        channel.leave(Mono(1), &mut |leaving, _| way.put(leaving));
    }
    assert_eq!((way.sent_count, channel.unacknowledged_count()), (window, window + 50));
    channel.on_acknowledged(Mono(2), 10);
    channel.leave(Mono(2), &mut |leaving, _| way.put(leaving));
    assert_eq!(way.sent_count, window + 10);
    assert_eq!(channel.receive(TERM, 1 + WINDOW_COUNT_MAX, Mono(0)), Receipt::Refused);
}

#[test]
fn a_later_term_begins_anew_and_an_earlier_one_is_refused() {
    let mut channel = Channel::default();
    assert_eq!(channel.receive(Term(2), 1, Mono(0)), Receipt::Next);
    assert_eq!(channel.receive(Term(2), 3, Mono(0)), Receipt::Early);
    channel.keep(3, b"of term 2");
    assert_eq!(channel.receive(Term(4), 2, Mono(0)), Receipt::Early);
    assert_eq!(channel.receive(Term(4), 1, Mono(0)), Receipt::Next);
    assert_eq!(channel.next_early(), None, "early messages are dropped");
    assert_eq!(channel.receive(Term(2), 2, Mono(0)), Receipt::Refused);
}

#[test]
fn the_time_out_doubles_until_an_acknowledgement() {
    let (mut channel, mut way) = (Channel::default(), Way::default());
    channel.push(b"x", None);
    channel.leave(Mono(0), &mut |leaving, _| way.put(leaving));
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let at = channel.due_at().unwrap();
        channel.resend(at, &mut |leaving, _| way.put(leaving));
        pauses.push(channel.due_at().unwrap().since_ns(at) / 1_000_000);
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 1600, 1600, 1600]);
    channel.on_acknowledged(Mono(0), 1);
    assert_eq!(channel.due_at(), None);
    channel.push(b"y", None);
    channel.leave(Mono(0), &mut |leaving, _| way.put(leaving));
    assert_eq!(channel.due_at(), Some(Mono(0).after_ms(50)));
}

#[test]
fn messages_gather_until_their_time_or_a_message_that_does_not() {
    let (mut channel, mut way) = (Channel::default(), Way::default());
    let later = Some(Mono(0).after_ms(10));
    let mut push = |channel: &mut Channel, ms: u64, gathers_until: Option<Mono>| {
        channel.push(b"x", gathers_until);
        channel.leave(Mono(0).after_ms(ms), &mut |leaving, _| way.put(leaving));
        way.sent_count
    };
    assert_eq!(push(&mut channel, 0, later), 0);
    assert_eq!(push(&mut channel, 9, Some(Mono(0).after_ms(19))), 0, "both leave with the first");
    assert_eq!(channel.due_at(), later);
    assert_eq!(push(&mut channel, 9, None), 3, "in their order");
    assert_eq!(push(&mut channel, 9, later), 3);
    channel.on_acknowledged(Mono(0).after_ms(9), 3);
    assert_eq!(channel.due_at(), later, "an acknowledgement sends nothing");
    assert_eq!(push(&mut channel, 10, later), 5);
    for _ in 1..GATHERED_COUNT_MAX {
        assert_eq!(push(&mut channel, 10, Some(Mono(0).after_ms(20))), 5);
    }
    assert_eq!(push(&mut channel, 10, Some(Mono(0).after_ms(20))), 69, "they are many");
}

#[test]
fn messages_behind_a_full_window_leave_with_the_next_acknowledgement() {
    let (mut channel, mut way) = (Channel::default(), Way::default());
    let window = usize::try_from(WINDOW_COUNT_MAX).unwrap();
    for _ in 0..=window {
        channel.push(b"x", None);
        channel.leave(Mono(0), &mut |leaving, _| way.put(leaving));
    }
    channel.push(b"y", Some(Mono(0).after_ms(10)));
    channel.on_acknowledged(Mono(1), 256);
    channel.leave(Mono(1), &mut |leaving, _| way.put(leaving));
    assert_eq!(way.sent_count, window + 2);
}

#[test]
fn messages_are_acknowledged_by_a_message_at_their_time_or_when_they_are_many() {
    let (mut channel, mut way) = (Channel::default(), Way::default());
    let at = Mono(0).after_ms(10);
    channel.receive(TERM, 1, at);
    channel.receive(TERM, 2, Mono(0).after_ms(20));
    assert!(!channel.owes_acknowledgement(Mono(0)) && channel.owes_acknowledgement(at));
    channel.push(b"x", None);
    channel.leave(Mono(0), &mut |leaving, _| way.put(leaving));
    assert!(!channel.owes_acknowledgement(at), "the message has acknowledged them");
    for sequence in 3..2 + GATHERED_COUNT_MAX {
        channel.receive(TERM, sequence, at);
    }
    assert!(!channel.owes_acknowledgement(Mono(0)));
    channel.receive(TERM, 2 + GATHERED_COUNT_MAX, at);
    assert!(channel.owes_acknowledgement(Mono(0)));
    channel.acknowledged_received();
    assert!(!channel.owes_acknowledgement(at));
    channel.receive(TERM, 3 + GATHERED_COUNT_MAX, at);
    channel.acknowledge_by(Mono(0));
    assert!(channel.owes_acknowledgement(Mono(0)), "replies wait for it");
}
