//! Changes of a new file that are answered before the server has made them.

use super::answers::setattr_args;
use super::harness::{Harness, ReceivedRequest, request, u32s, u64s};
use super::{DIRECTORY, FILE, attr};
use crate::Behind;
use crate::abi::Opcode;
use alloc::sync::Arc;
use interface::{BufId, Bulk, Event, MountMessage, NO_MAC, PeerEvent};
use wire::{
    Attr, Created, Entry, FileKind, InodeNo, LaneId, Op, Setattr, Status, Wire as _, Written,
    attr_flag, lease_flag, request_flag,
};

const MODE: u32 = 1;
const OWNER: u32 = 2;
const NOW: u32 = 16 | 32 | 128 | 256;

fn file() -> Attr {
    attr(FILE, FileKind::File)
}

/// A mount that has created a file, which it may write behind.
fn created() -> Harness {
    created_with(Harness::with_leases())
}

fn created_with(mut harness: Harness) -> Harness {
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

/// What a mount with a cache knows of its new file behind a change of the attributes, to which the
/// server answers that it does not have the size.
fn known_behind(is_written: bool) -> (Harness, bool) {
    let mut harness = created_with(Harness::with_cache(&super::known::cache()));
    if is_written {
        let received = write(&mut harness);
        end_write(&mut harness, &received);
    }
    assert_eq!(harness.set(MODE, 0o600), Some(0o600));
    let received = harness.take();
    assert_eq!(received.head.op, Op::Setattr);
    let attr = Attr { mode: 0o600, flags: attr_flag::SIZE_AT_DATA, ..file() };
    let body = Entry { attr }.to_bytes();
    harness.grant_leases(&received, Ok(&body), (2, lease_flag::ATTRIBUTES));
    harness.kernel_request(Opcode::Getattr, 9, FILE, &[]);
    let is_known = harness.requests.is_empty();
    (harness, is_known)
}

#[test]
fn a_file_that_was_never_written_is_known_to_be_empty() {
    let (mut harness, is_known) = known_behind(false);
    assert!(is_known);
    // Behind the validity: the number, the size and the space.
    let payload = harness.reply().payload;
    assert_eq!(payload[24..40], [0; 16]);
    let (mut harness, is_known) = known_behind(true);
    assert!(!is_known, "the space that it takes is not known");
    assert_eq!(harness.take().head.op, Op::Getattr);
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

/// Processes that were forked close the file as well.
#[test]
fn a_change_that_fails_is_reported_by_each_close_until_a_sync() {
    use Opcode::{Flush, Fsync};
    let mut harness = created();
    assert_eq!(harness.set(MODE, 0o600), Some(0o600));
    let received = harness.take();
    harness.fail(&received, Status::Stale);
    let (lost, ok) = (Status::Io, Status::Ok);
    for (opcode, status) in [(Flush, lost), (Flush, lost), (Fsync, lost), (Fsync, ok), (Flush, ok)]
    {
        harness.kernel_request(opcode, 10, FILE, &[0; 24]);
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

/// A write to the end of the file, of which the server gets to know.
fn write(harness: &mut Harness) -> ReceivedRequest {
    let args = [u64s(&[1, 0]), u32s(&[100, 0]), u64s(&[0]), u32s(&[1, 0])].concat();
    let data = Bulk { buf: BufId(4), start: 0, bulk_bytes: 100, crc32c: None, mac: NO_MAC };
    let bytes = request(Opcode::Write as u32, 11, FILE, &args);
    harness.kernel_bytes(Some(11), bytes, Some(data));
    assert_eq!(harness.reply().status, Status::Ok, "it is answered at once");
    let received = harness.take();
    assert_eq!(received.head.op, Op::Write);
    received
}

fn end_write(harness: &mut Harness, write: &ReceivedRequest) {
    harness.answer(write, &Written { file_offset: 0, written_bytes: 100 }.to_bytes());
}

fn fsync(harness: &mut Harness) {
    harness.kernel_request(Opcode::Fsync, 12, FILE, &u64s(&[1, 0]));
}

/// A file that is being written.
fn writing() -> (Harness, ReceivedRequest) {
    let mut harness = created();
    let write = write(&mut harness);
    (harness, write)
}

/// Begins an FSYNC of it. Returns the request of its name; the data shard is asked as well, and has
/// not received the write before.
fn fsync_ahead(harness: &mut Harness) -> ReceivedRequest {
    fsync(harness);
    let data = harness.shape.map.data_shard(FILE, 0);
    let mut both = [harness.take(), harness.take()];
    both.sort_by_key(|received| received.head.shard != FILE.shard());
    let [names, contents] = both;
    assert_eq!((names.head.op, names.head.shard, names.head.flags), (Op::Sync, FILE.shard(), 0));
    let found = (contents.head.op, contents.head.shard, contents.head.flags);
    assert_eq!(found, (Op::Sync, data, request_flag::BEHIND));
    assert!(harness.requests.is_empty());
    harness.answer(&contents, &[]);
    assert!(harness.replies.is_empty());
    names
}

#[test]
fn both_shards_are_asked_while_the_contents_are_written_and_the_data_shard_again() {
    let (mut harness, write) = writing();
    let names = fsync_ahead(&mut harness);
    harness.answer(&names, &[]);
    assert!(harness.requests.is_empty() && harness.replies.is_empty(), "it is still written");
    end_write(&mut harness, &write);
    let contents = harness.take();
    let data = harness.shape.map.data_shard(FILE, 0);
    assert_eq!((contents.head.op, contents.head.shard), (Op::Sync, data));
    assert!(harness.replies.is_empty());
    harness.answer(&contents, &[]);
    assert_eq!(harness.reply().status, Status::Ok);
    assert!(harness.requests.is_empty(), "its name is not synced again");
}

#[test]
fn nothing_is_synced_ahead_of_a_change_of_attributes() {
    let (mut harness, write) = writing();
    assert_eq!(harness.set(MODE, 0o600), Some(0o600));
    fsync(&mut harness);
    assert!(harness.requests.is_empty(), "its record is still to come");
    end_write(&mut harness, &write);
    harness.made(Some(0o600));
    let both = [harness.take(), harness.take()];
    assert!(both.iter().all(|received| received.head.op == Op::Sync));
}

#[test]
fn a_sync_that_has_begun_reports_the_write_that_fails() {
    let (mut harness, write) = writing();
    let names = fsync_ahead(&mut harness);
    harness.fail(&write, Status::NoSpace);
    assert!(harness.replies.is_empty(), "its name is still waited for");
    harness.answer(&names, &[]);
    assert_eq!(harness.reply().status, Status::NoSpace);
    assert!(harness.requests.is_empty());
    // It is reported once.
    fsync(&mut harness);
    for _ in 0..2 {
        let received = harness.take();
        harness.answer(&received, &[]);
    }
    assert_eq!(harness.reply().status, Status::Ok);
}

/// The process of the request with this number is killed.
fn kill(harness: &mut Harness, unique: u64) {
    harness.kernel_request(Opcode::Interrupt, 13, InodeNo(0), &u64s(&[unique]));
    harness.wait_ms(20);
    assert_eq!(harness.reply().status, Status::Interrupted);
}

#[test]
fn a_killed_process_leaves_its_sync() {
    for is_written_first in [false, true] {
        let (mut harness, write) = writing();
        let names = fsync_ahead(&mut harness);
        let mut left = [Some(&names), None];
        if is_written_first {
            end_write(&mut harness, &write);
        }
        let contents = is_written_first.then(|| harness.take());
        left[1] = contents.as_ref();
        kill(&mut harness, 12);
        if !is_written_first {
            end_write(&mut harness, &write);
        }
        assert!(harness.requests.is_empty(), "it has no caller");
        left.into_iter().flatten().for_each(|received| harness.answer(received, &[]));
        assert!(harness.replies.is_empty());
        assert_eq!(harness.lane.client().busy_count(), 0);
    }
}

#[test]
fn a_killed_process_does_not_wait_for_what_is_under_way() {
    let (mut harness, write) = writing();
    let seek = [u64s(&[1, 0]), u32s(&[3, 0])].concat();
    harness.kernel_request(Opcode::Lseek, 12, FILE, &seek);
    assert!(harness.requests.is_empty() && harness.replies.is_empty(), "the write is under way");
    kill(&mut harness, 12);
    end_write(&mut harness, &write);
    assert!(harness.requests.is_empty() && harness.replies.is_empty(), "it is over");
    harness.kernel_request(Opcode::Lseek, 14, FILE, &seek);
    assert_eq!(harness.take().head.op, Op::Seek, "others go on");
}

/// Another lane of the mount tells that something of the file is over, which was earlier.
#[test]
fn a_late_message_of_an_earlier_write_syncs_nothing() {
    let (mut harness, write) = writing();
    let names = fsync_ahead(&mut harness);
    let message = MountMessage::Written { inode: FILE };
    harness.event(Event::Peer(PeerEvent::Message { from: LaneId(1), message }));
    assert!(harness.requests.is_empty());
    end_write(&mut harness, &write);
    let contents = harness.take();
    harness.answer(&contents, &[]);
    assert!(harness.replies.is_empty());
    harness.answer(&names, &[]);
    assert_eq!(harness.reply().status, Status::Ok);
}
