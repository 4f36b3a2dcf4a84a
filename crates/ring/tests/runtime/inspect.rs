//! Inspections: what a core asks goes out, answers of another thread wake the lane, and without one there are none.

use super::support::{Diary, ask, only_mailbox, ring_config, turns};
use interface::{Action, ConnId, Event, StoreAction, StoreEvent};
use ring::{InspectQueue, Ring};
use std::sync::Arc;
use std::sync::mpsc::channel;
use wire::{Inspect, LaneId, Status};

const CONN: ConnId = ConnId(7);
const ASK: Inspect = Inspect::Read { stream_offset: 5 };

#[test]
fn questions_go_out_and_answers_wake_a_lane() {
    let mut config = ring_config(LaneId(0));
    let mailbox = only_mailbox();
    let (asks, asked) = channel();
    let queue = InspectQueue::new(mailbox.waker(), Arc::new(move |ask| asks.send(ask).unwrap()));
    config.mailbox = Some(mailbox);
    config.inspections = Some(queue.clone());
    let mut ring = Ring::new(config).unwrap();
    let mut diary = Diary::default();
    let answering = std::thread::spawn(move || {
        let first = asked.recv().unwrap();
        assert_eq!((first.lane, first.conn, first.inspect), (LaneId(0), CONN, Some(ASK)));
        queue.reply(CONN, Status::Ok, b"reply".as_slice().into());
        let last = asked.recv().unwrap();
        assert_eq!((last.conn, last.inspect), (CONN, None));
        // What comes too late is the core's to drop.
        queue.reply(CONN, Status::NotFound, Box::default());
    });
    let event =
        ask(&mut ring, &mut diary, Action::Store(StoreAction::Inspect { conn: CONN, ask: ASK }));
    let Event::Store(StoreEvent::Inspected { conn, status, reply }) = event else {
        panic!("{event:?}")
    };
    assert_eq!((conn, status, reply.bytes_count()), (CONN, Status::Ok, 5));
    ring.with(|turn| turn.act(StoreAction::InspectEnd { conn: CONN }));
    turns(&mut ring, &mut diary, |diary| diary.events.len() > 1);
    answering.join().unwrap();
}

#[test]
fn without_a_thread_that_keeps_them_there_are_no_inspections() {
    let mut config = ring_config(LaneId(0));
    config.mailbox = Some(only_mailbox());
    let mut ring = Ring::new(config).unwrap();
    let action = Action::Store(StoreAction::Inspect { conn: CONN, ask: ASK });
    let event = ask(&mut ring, &mut Diary::default(), action);
    assert!(
        matches!(event, Event::Store(StoreEvent::Inspected { status: Status::NotImplemented, .. })),
        "{event:?}"
    );
}
