//! Inspections: requests go to another thread, its replies wake the lane, and without it they are
//! refused.

use super::support::{Recorder, ask, only_mailbox, ring_config, turns};
use interface::{Action, ConnId, Event, StoreAction, StoreEvent};
use ring::{InspectQueue, Ring};
use std::sync::Arc;
use std::sync::mpsc::channel;
use wire::{Inspect, LaneId, Status};

const CONN: ConnId = ConnId(7);
const ASK: Inspect = Inspect::Read { stream_offset: 5 };

#[test]
fn requests_are_passed_on_and_replies_wake_a_lane() {
    let mut config = ring_config(LaneId(0));
    let mailbox = only_mailbox();
    let (requests, passed_on) = channel();
    let queue =
        InspectQueue::new(mailbox.waker(), Arc::new(move |ask| requests.send(ask).unwrap()));
    config.mailbox = Some(mailbox);
    config.inspections = Some(queue.clone());
    let mut ring = Ring::new(config).unwrap();
    let mut recorder = Recorder::default();
    let answering = std::thread::spawn(move || {
        let first = passed_on.recv().unwrap();
        assert_eq!((first.lane, first.conn, first.inspect), (LaneId(0), CONN, Some(ASK)));
        queue.reply(CONN, Status::Ok, b"reply".as_slice().into());
        let last = passed_on.recv().unwrap();
        assert_eq!((last.conn, last.inspect), (CONN, None));
        // The core drops a reply that comes too late.
        queue.reply(CONN, Status::NotFound, Box::default());
    });
    let event =
        ask(&mut ring, &mut recorder, Action::Store(StoreAction::Inspect { conn: CONN, ask: ASK }));
    let Event::Store(StoreEvent::Inspected { conn, status, reply }) = event else {
        panic!("{event:?}")
    };
    assert_eq!((conn, status, reply.bytes_count()), (CONN, Status::Ok, 5));
    ring.with(|turn| turn.act(StoreAction::InspectEnd { conn: CONN }));
    turns(&mut ring, &mut recorder, |recorder| recorder.events.len() > 1);
    answering.join().unwrap();
}

#[test]
fn without_a_thread_inspections_are_refused() {
    let mut config = ring_config(LaneId(0));
    config.mailbox = Some(only_mailbox());
    let mut ring = Ring::new(config).unwrap();
    let action = Action::Store(StoreAction::Inspect { conn: CONN, ask: ASK });
    let event = ask(&mut ring, &mut Recorder::default(), action);
    assert!(
        matches!(event, Event::Store(StoreEvent::Inspected { status: Status::NotImplemented, .. })),
        "{event:?}"
    );
}
