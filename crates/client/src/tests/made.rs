//! A directory that is made at another shard than its parent is asked for there, with its names.

use super::harness::{Harness, ReceivedRequest, config};
use super::{CALLER, FILE, attr};
use crate::{Answer, Call, Client, Granted};
use alloc::vec::Vec;
use wire::{
    Attr, Entry, FileKind, Getattr, InodeNo, LeaseGrant, LeaseNo, Mkdir, Name, Op, Reply,
    ReplyParts, Status, Wire, Writer, attr_flag, lease_flag, request_flag,
};

/// A directory of the same shard, and one of another.
const PARENT: InodeNo = InodeNo((2 << 48) | 5);
const THERE: InodeNo = InodeNo((3 << 48) | 9);
const MKDIR: u64 = 7;

fn mkdir() -> Call<'static> {
    let name = Name::new(b"d").unwrap();
    Call::Mkdir(Mkdir { caller: CALLER, parent: PARENT, name, mode: 0o755, umask: 0 })
}

fn directory(inode: InodeNo, flags: u32) -> Attr {
    Attr { kind: FileKind::Directory, ..attr(inode, flags) }
}

fn entry(attr: Attr) -> Vec<u8> {
    Entry { attr }.to_bytes()
}

impl Harness {
    fn grant_names(&mut self, request: &ReceivedRequest, message: &[u8], granted: u8) {
        let lease = LeaseGrant { lease_no: LeaseNo(9), term_ms: 10_000, granted, further_count: 0 };
        let parts = ReplyParts { lease: Some(lease), ..ReplyParts::plain(message) };
        let mut body = Vec::new();
        parts.put(&mut Writer::new(&mut body));
        let reply = Reply { flags: parts.flags(), ..self.reply(request) };
        self.send(request.conn, reply, &body, None);
    }
}

/// A client that was granted something, and has made the directory.
fn made() -> Harness {
    let mut harness = Harness::new(1);
    harness.client = Client::new(config()).with_leases().with_writes_behind();
    for inode in [FILE, THERE] {
        harness.call(1, Call::Getattr(Getattr { inode }));
        let request = harness.take();
        assert_eq!(request.head.flags & request_flag::BEHIND, 0);
        harness.grant_names(&request, &entry(attr(inode, 0)), lease_flag::ATTRIBUTES);
        assert!(harness.outcome().is_ok());
        harness.granted.clear();
    }
    harness.call(MKDIR, mkdir());
    let request = harness.take();
    let unknown = attr_flag::XATTRS | attr_flag::EMPTY;
    harness.durable(&request, 3, &entry(directory(THERE, unknown)));
    harness
}

#[test]
fn its_attributes_and_names_are_granted_with_the_answer() {
    let mut harness = made();
    let request = harness.take();
    assert_eq!((request.head.op, request.body.clone()), {
        (Op::Getattr, Getattr { inode: THERE }.to_bytes())
    });
    assert_ne!(request.head.flags & request_flag::BEHIND, 0);
    assert!(harness.answers().is_empty(), "it waits");
    let shown = directory(THERE, attr_flag::EMPTY);
    let granted = lease_flag::ATTRIBUTES | lease_flag::WRITING;
    harness.grant_names(&request, &entry(shown), granted);
    assert_eq!(harness.outcome(), Ok(Answer::Entry(shown)));
    let Granted { attributes, name, writing, .. } = harness.granted.remove(0);
    assert!(attributes.is_some() && name.is_none() && writing);
}

#[test]
fn it_is_made_whatever_the_answer_to_that() {
    let made_as = directory(THERE, attr_flag::XATTRS | attr_flag::EMPTY);
    let mut harness = made();
    let request = harness.take();
    harness.fail(&request, Status::Stale);
    assert_eq!(harness.outcome(), Ok(Answer::Entry(made_as)), "another client has removed it");
    assert!(!harness.granted.remove(0).writing);

    let mut harness = made();
    harness.take();
    harness.shape.listening = false;
    harness.hang_up();
    assert!(harness.answers().is_empty());
    assert!(harness.interrupt(MKDIR));
    assert_eq!(harness.outcome(), Ok(Answer::Entry(made_as)));
    assert!(!harness.granted.remove(0).writing);
    assert!(!harness.client.take_late_change(), "nothing of it is executed later");
}

#[test]
fn it_is_not_asked_for_without_leases_or_at_the_parents_shard() {
    for (asks, was_granted, inode) in
        [(false, true, THERE), (false, false, THERE), (true, true, InodeNo(PARENT.0 + 1))]
    {
        let mut harness = Harness::new(1);
        let client = Client::new(config()).with_leases();
        harness.client = if asks { client.with_writes_behind() } else { client };
        harness.call(1, Call::Getattr(Getattr { inode: FILE }));
        let request = harness.take();
        let shown = entry(attr(FILE, 0));
        if was_granted {
            harness.grant_names(&request, &shown, lease_flag::ATTRIBUTES);
        } else {
            harness.answer(&request, &shown);
        }
        assert!(harness.outcome().is_ok());
        harness.call(2, mkdir());
        let request = harness.take();
        let made_as = directory(inode, attr_flag::EMPTY);
        harness.durable(&request, 3, &entry(made_as));
        assert_eq!(harness.outcome(), Ok(Answer::Entry(made_as)));
    }
}

#[test]
fn where_nothing_was_granted_it_is_asked_for_once() {
    let mut harness = Harness::new(1);
    harness.client = Client::new(config()).with_leases().with_writes_behind();
    let made_as = directory(THERE, attr_flag::EMPTY);
    for number in 0..3 {
        harness.call(number, mkdir());
        let request = harness.take();
        assert_eq!(request.head.op, Op::Mkdir);
        harness.durable(&request, number + 1, &entry(made_as));
        if number == 0 {
            // Over a connection that is made for it.
            let request = harness.take();
            assert_eq!(request.head.op, Op::Getattr);
            assert_ne!(request.head.flags & request_flag::BEHIND, 0);
            harness.answer(&request, &entry(made_as));
        }
        assert_eq!(harness.outcome(), Ok(Answer::Entry(made_as)), "{number}");
    }
}
