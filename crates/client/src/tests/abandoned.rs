//! Changes of contents whose callers were answered before their end: closes and unlocks wait for
//! them.

use super::harness::{Harness, bulk};
use super::locks::{file, lock, relocked, set};
use super::{CALLER, attr};
use crate::{Answer, Call, Open, Write};
use interface::{Event, MountMessage, PeerEvent};
use wire::{
    ClearPrivileges, Entry, HandleId, InodeNo, LaneId, Layout, LockSet, LockType, Op, OpenFor,
    Status, Wire, Written,
};

/// A lane that keeps the locks of a file, and has it open and locked.
fn opened() -> (Harness, InodeNo, HandleId) {
    let mut harness = Harness::new(1);
    let inode = file(&harness);
    harness.client.layouts.learn(inode, Layout::DEFAULT);
    let open = Open { caller: CALLER, inode, open_for: OpenFor::ReadWrite, sizes: false };
    harness.call(1, Call::Open(open));
    let request = harness.take();
    harness.answer(&request, &Entry { attr: attr(inode, 0) }.to_bytes());
    let Ok(Answer::Opened { handle, .. }) = harness.outcome() else { panic!("not opened") };
    let write = set(&harness, 9, Some(LockType::Write), (0, 9));
    lock(&mut harness, 2, write);
    harness.peer_messages.clear();
    (harness, inode, handle)
}

/// The file is closed, and the lock released.
fn leave(harness: &mut Harness, inode: InodeNo, handle: HandleId) {
    harness.call(3, Call::Flush { inode, owner: 9 });
    harness.call(4, Call::Close(handle));
}

fn left(harness: &mut Harness) {
    let unlock = harness.take();
    let close = harness.take();
    let mut both = [unlock, close];
    both.sort_by_key(|request| request.head.op != Op::SetLock);
    let [unlock, close] = both;
    assert_eq!((unlock.head.op, close.head.op), (Op::SetLock, Op::Close));
    harness.answer(&unlock, &LockSet { granted: true, place: 0 }.to_bytes());
    harness.answer(&close, &[]);
    assert_eq!((harness.client.open_count(), harness.client.busy_count()), (0, 0));
}

fn tell(harness: &mut Harness, inode: InodeNo, is_over: bool) {
    let message = MountMessage::Abandoned { inode, is_over };
    harness.event(Event::Peer(PeerEvent::Message { from: LaneId(1), message }));
}

#[test]
fn a_file_is_closed_and_unlocked_when_an_abandoned_write_is_over() {
    let (mut harness, inode, handle) = opened();
    let write = Write {
        inode,
        file_offset: 8,
        append: false,
        bulk: Some(bulk(9, 4096)),
        sync: false,
        clears: ClearPrivileges::Nothing,
        behind: false,
    };
    harness.call(5, Call::Write(write));
    harness.take();
    harness.interrupt(5);
    harness.wait_ms(1_000);
    assert_eq!(harness.outcome(), Err(Status::Interrupted));
    let message = |is_over| MountMessage::Abandoned { inode, is_over };
    let to_all = |is_over| [0, 1, 2].map(|lane| (LaneId(lane), message(is_over)));
    assert_eq!(harness.peer_messages, to_all(false), "in the turn of the answer");
    harness.peer_messages.clear();
    relocked(&mut harness);
    let again = harness.take();
    assert_eq!(again.head.op, Op::Write);
    leave(&mut harness, inode, handle);
    assert!(harness.requests.is_empty(), "{:?}", harness.requests);
    harness.answer(&again, &Written { file_offset: 8, written_bytes: 4096 }.to_bytes());
    assert_eq!(harness.peer_messages, to_all(true));
    left(&mut harness);
}

#[test]
fn it_waits_for_those_of_all_lanes() {
    let (mut harness, inode, handle) = opened();
    (0..2).for_each(|_| tell(&mut harness, inode, false));
    tell(&mut harness, InodeNo(inode.0 + 8), false);
    leave(&mut harness, inode, handle);
    tell(&mut harness, inode, true);
    assert!(harness.requests.is_empty(), "one more is under way");
    harness.wait_ms(1_000);
    let flushed = harness.outcome();
    assert_eq!(flushed, Ok(Answer::Done), "a process that ends waits no longer");
    // What is held back outlives a connection.
    harness.hang_up();
    harness.wait_ms(1_000);
    assert_eq!(relocked(&mut harness).len(), 1, "it is held still");
    assert!(harness.requests.is_empty(), "{:?}", harness.requests);
    tell(&mut harness, inode, true);
    left(&mut harness);
}
