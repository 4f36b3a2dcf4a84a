//! Changes of attributes of a new file that are answered before the server has made them.

use super::answers::setattr_args;
use super::harness::{Harness, u32s};
use super::{DIRECTORY, FILE, attr};
use crate::Behind;
use crate::abi::Opcode;
use alloc::sync::Arc;
use wire::{
    Attr, Created, Entry, FileKind, Op, Setattr, Status, Wire as _, lease_flag, request_flag,
};

const MODE: u32 = 1;
const OWNER: u32 = 2;
const NOW: u32 = 16 | 32 | 128 | 256;

fn file() -> Attr {
    attr(FILE, FileKind::File)
}

/// A mount that has created a file, which it may write behind.
fn created() -> Harness {
    let mut harness = Harness::with_leases();
    harness.lane.behind.table = Some(Arc::new(Behind::default()));
    let args = [&u32s(&[0o101, 0o100_644, 0o022, 0])[..], b"a\0"].concat();
    harness.kernel_request(Opcode::Create, 7, DIRECTORY, &args);
    let received = harness.take();
    let body = Created { attr: file(), made: true }.to_bytes();
    let granted = lease_flag::NAME | lease_flag::ATTRIBUTES | lease_flag::WRITING;
    harness.grant_leases(&received, Ok(&body), (1, granted));
    assert_eq!(harness.reply().status, Status::Ok);
    harness
}

impl Harness {
    /// The mode that the reply to a SETATTR shows, if it came.
    fn set(&mut self, valid: u32, mode: u32) -> Option<u32> {
        self.kernel_request(Opcode::Setattr, 8, FILE, &setattr_args(valid, 0, mode));
        let reply = self.replies.pop()?;
        assert_eq!(reply.status, Status::Ok);
        // Behind the validity, and the numbers of a `fuse_attr`.
        Some(u32::from_ne_bytes(reply.payload[76..80].try_into().unwrap()) & 0o7777)
    }

    /// The next change at the server, which succeeds.
    fn made(&mut self, wanted_mode: Option<u32>) {
        let received = self.take();
        assert_eq!(received.head.op, Op::Setattr);
        assert!(received.head.flags & request_flag::BEHIND != 0);
        assert_eq!(Setattr::decode_all(&received.body).unwrap().mode, wanted_mode);
        assert!(self.requests.is_empty(), "the next one comes behind it");
        self.answer(&received, &Entry { attr: file() }.to_bytes());
    }
}

#[test]
fn changes_are_answered_at_once_and_made_one_after_the_other() {
    let mut harness = created();
    assert_eq!(harness.set(NOW, 0), Some(0o640));
    assert_eq!(harness.set(MODE, 0o600), Some(0o600));
    assert_eq!(harness.set(NOW, 0), Some(0o600), "what was answered before");
    harness.kernel_request(Opcode::Getattr, 9, FILE, &[]);
    assert!(harness.replies.is_empty(), "who looks waits");
    harness.made(None);
    harness.made(Some(0o600));
    harness.made(None);
    let getattr = harness.take();
    assert_eq!(getattr.head.op, Op::Getattr);
}

#[test]
fn that_it_has_no_capabilities_is_known_meanwhile() {
    let mut harness = created();
    let ask = |harness: &mut Harness, name: &[u8]| {
        harness.kernel_request(Opcode::Getxattr, 9, FILE, &[&u32s(&[0, 0])[..], name].concat());
    };
    assert_eq!(harness.set(NOW, 0), Some(0o640));
    ask(&mut harness, b"security.capability\0");
    assert_eq!(harness.status(), Status::NoData);
    ask(&mut harness, b"user.a\0");
    assert!(harness.replies.is_empty(), "others wait");
    harness.made(None);
    assert_eq!(harness.take().head.op, Op::Getxattr);
}

#[test]
fn what_the_server_may_refuse_is_waited_for() {
    // Set-id bits; an owner, whom a user cannot change.
    for (valid, mode) in [(MODE, 0o4755), (MODE, 0o1777), (OWNER, 0)] {
        let mut harness = created();
        assert_eq!(harness.set(valid, mode), None);
        let received = harness.take();
        assert_eq!(received.head.flags & request_flag::BEHIND, 0);
        harness.fail(&received, Status::NotPermitted);
        assert_eq!(harness.status(), Status::NotPermitted);
        assert_eq!(harness.set(MODE, 0o600), None, "nor is anything behind it");
    }
}

#[test]
fn a_change_that_fails_is_reported_once() {
    let mut harness = created();
    assert_eq!(harness.set(MODE, 0o600), Some(0o600));
    let received = harness.take();
    harness.fail(&received, Status::Stale);
    for status in [Status::Io, Status::Ok] {
        harness.kernel_request(Opcode::Flush, 10, FILE, &[0; 24]);
        while let Some(index) = harness.requests.iter().position(|it| it.head.op != Op::Setattr) {
            let received = harness.requests.remove(index).unwrap();
            harness.answer(&received, &[]);
        }
        assert_eq!(harness.reply().status, status);
    }
}

#[test]
fn a_sixteenth_change_waits_for_the_first() {
    let mut harness = created();
    for _ in 0..15 {
        assert_eq!(harness.set(NOW, 0), Some(0o640));
    }
    assert_eq!(harness.set(MODE, 0o600), None);
    harness.made(None);
    assert_eq!(harness.reply().status, Status::Ok);
    (0..14).for_each(|_| harness.made(None));
    harness.made(Some(0o600));
}
