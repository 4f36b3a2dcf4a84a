//! Small files that are read in the order of their numbers are asked for ahead.

use super::answers::setattr_args;
use super::harness::{Harness, KernelReply, ReceivedRequest, u32s, u64s};
use super::{DIRECTORY, FILE, attr, known};
use crate::abi::Opcode;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use client::{Cache, NUMBER_BLOCK};
use interface::{BufId, Bulk, Event, KernelEvent, NO_MAC, Ticket};
use wire::{
    Attr, Entry, FileKind, InodeNo, LaneId, LeaseKey, Op, Read, Status, Timestamp, Wire as _,
    lease_flag,
};

const FILE_BYTES: u32 = 4096;
const BOTH: u8 = lease_flag::NAME | lease_flag::ATTRIBUTES;
const PAGES: u8 = lease_flag::CONTENTS;

fn number(index: i64) -> InodeNo {
    InodeNo(FILE.0.strict_add_signed(index))
}

fn small(index: i64) -> Attr {
    Attr { size_bytes: FILE_BYTES.into(), ..attr(number(index), FileKind::File) }
}

fn contents(index: i64) -> Bulk {
    let buf = BufId(u32::try_from(1_000 + index).unwrap());
    Bulk { buf, start: 16, bulk_bytes: FILE_BYTES, crc32c: Some(7), mac: NO_MAC }
}

struct Mount {
    harness: Harness,
    cache: Arc<Cache>,
    lease_no: u64,
}

impl Mount {
    /// That has looked up these files.
    fn knows(files: &[Attr]) -> Self {
        let cache = known::cache();
        let mut mount = Self { harness: Harness::with_cache(&cache), cache, lease_no: 0 };
        files.iter().for_each(|attr| mount.looks_up(attr));
        mount
    }

    fn looks_up(&mut self, attr: &Attr) {
        let name = format!("{}\0", attr.inode.0);
        self.harness.kernel_request(Opcode::Lookup, 7, DIRECTORY, name.as_bytes());
        let received = self.harness.take();
        self.grants(&received, &Entry { attr: *attr }.to_bytes(), BOTH);
        assert_eq!(self.harness.reply().status, Status::Ok);
    }

    fn grants(&mut self, received: &ReceivedRequest, body: &[u8], granted: u8) {
        self.lease_no += 1;
        self.harness.grant_leases(received, Ok(body), (self.lease_no, granted));
    }

    fn asks_for(&mut self, index: i64, file_offset: u64, read_bytes: u32) {
        let args = [u64s(&[9, file_offset]), u32s(&[read_bytes, 0]), u64s(&[0]), u32s(&[0, 0])];
        self.harness.kernel_request(Opcode::Read, 7, number(index), &args.concat());
    }

    fn changes_mode_of(&mut self, index: i64) -> Attr {
        self.harness.kernel_request(Opcode::Setattr, 8, number(index), &setattr_args(1, 0, 0o644));
        let received = self.harness.take();
        let changed = Attr { ctime: Timestamp { secs: 400, nanos: 1 }, ..small(index) };
        self.grants(&received, &Entry { attr: changed }.to_bytes(), lease_flag::ATTRIBUTES);
        assert_eq!(self.harness.reply().status, Status::Ok);
        changed
    }

    /// The files whose contents the server is asked for.
    fn asked(&mut self) -> Vec<(i64, ReceivedRequest)> {
        let received: Vec<_> = self.harness.requests.drain(..).collect();
        let index = |it: &ReceivedRequest| {
            assert_eq!(it.head.op, Op::Read);
            Read::decode_all(&it.body).unwrap().inode.0.cast_signed() - FILE.0.cast_signed()
        };
        received.into_iter().map(|it| (index(&it), it)).collect()
    }

    fn answers(&mut self, index: i64, received: &ReceivedRequest) {
        self.harness.bulk = Some(contents(index));
        self.grants(received, &[], PAGES);
    }

    /// A READ that the server answers; what else it was asked for.
    fn reads(&mut self, index: i64) -> Vec<(i64, ReceivedRequest)> {
        self.asks_for(index, 0, FILE_BYTES);
        let mut asked = self.asked();
        assert!(!asked.is_empty(), "file {index} was read ahead");
        let (first, received) = asked.remove(0);
        assert_eq!(first, index, "what a program waits for is asked for first");
        self.answers(index, &received);
        assert_eq!(self.harness.reply().bulk, Some(contents(index)));
        asked
    }

    /// A READ that is answered at once.
    fn reads_at_once(&mut self, index: i64) -> KernelReply {
        self.asks_for(index, 0, FILE_BYTES);
        let reply = self.harness.reply();
        assert_eq!(reply.bulk, Some(contents(index)));
        reply
    }

    /// Has read four files in order, so that the next four are here.
    fn with_four_ahead(files: &[Attr]) -> (Self, Vec<(i64, ReceivedRequest)>) {
        let mut mount = Self::knows(files);
        for index in [-1, 0, 1] {
            assert!(mount.reads(index).is_empty(), "{index}");
        }
        let ahead = mount.reads(2);
        assert_eq!(indices(&ahead), [3, 4, 5, 6]);
        mount.harness.released.clear();
        ahead.iter().for_each(|(index, received)| mount.answers(*index, received));
        assert_eq!(mount.harness.released, [], "they are kept");
        (mount, ahead)
    }
}

fn indices(asked: &[(i64, ReceivedRequest)]) -> Vec<i64> {
    asked.iter().map(|(index, _)| *index).collect()
}

fn twenty() -> Vec<Attr> {
    (-1..20).map(small).collect()
}

#[test]
fn files_that_are_read_in_order_are_read_ahead() {
    let (mut mount, _) = Mount::with_four_ahead(&twenty());
    mount.reads_at_once(3);
    assert_eq!(mount.harness.released, [contents(3).buf]);
    assert!(mount.asked().is_empty(), "there are enough");
    mount.reads_at_once(4);
    let ahead = mount.asked();
    assert_eq!(indices(&ahead), [7, 8, 9, 10, 11, 12], "twice as many, together");
    assert!(mount.harness.dropped().is_empty(), "the kernel keeps what it has read");
}

#[test]
fn a_file_may_be_read_in_pieces_and_behind_its_end() {
    let (mut mount, _) = Mount::with_four_ahead(&twenty());
    let bulk = contents(3);
    mount.asks_for(3, 0, 1024);
    let first = Bulk { bulk_bytes: 1024, crc32c: None, ..bulk };
    assert_eq!(mount.harness.reply().bulk, Some(first));
    assert_eq!(mount.harness.released, []);
    mount.asks_for(3, 1024, 8192);
    let rest = Bulk { start: bulk.start + 1024, bulk_bytes: 3072, crc32c: None, ..bulk };
    assert_eq!(mount.harness.reply().bulk, Some(rest));
    assert_eq!(mount.harness.released, [bulk.buf]);
    mount.asks_for(4, 4096, 4096);
    assert_eq!(mount.harness.reply().bulk, None);
}

#[test]
fn only_small_files_with_known_attributes_are_read_ahead() {
    let mut files = twenty();
    files.remove(5);
    files[5].size_bytes = (128 << 10) + 1;
    files[6].size_bytes = 0;
    let mut mount = Mount::knows(&files);
    for index in [-1, 0, 1] {
        assert!(mount.reads(index).is_empty());
    }
    assert_eq!(indices(&mount.reads(2)), [3, 7, 8, 9]);
}

#[test]
fn files_in_no_order_are_not_read_ahead() {
    let mut mount = Mount::knows(&(0..60).map(small).collect::<Vec<_>>());
    for index in [0, 30, 12, 50, 40, 21, 59] {
        assert!(mount.reads(index).is_empty(), "{index}");
    }
}

#[test]
fn what_another_client_changes_is_read_again() {
    let (mut mount, ahead) = Mount::with_four_ahead(&twenty());
    mount.harness.recall(&ahead[0].1, 4, &[LeaseKey::Pages(number(3))]);
    assert_eq!(mount.harness.released, [contents(3).buf]);
    mount.harness.all_notified();
    assert_eq!(mount.harness.acknowledged.len(), 1);
    mount.reads(3);
    mount.reads_at_once(4);
    mount.asked();
    mount.harness.recall(&ahead[0].1, 5, &[LeaseKey::All]);
    mount.harness.all_notified();
    mount.reads(5);
}

#[test]
fn what_a_lane_of_this_mount_changes_is_read_again() {
    let (mut mount, _) = Mount::with_four_ahead(&twenty());
    let change = client::Resize {
        caller: wire::Caller { uid: 0, gid: 0, groups: wire::Groups::Unknown },
        inode: number(3),
        size_bytes: 0,
        open_for_write: true,
    };
    let now = interface::Mono(mount.harness.now_ms * 1_000_000);
    let changing = mount.cache.begin(now, LaneId(1), &client::Call::Resize(change));
    mount.reads(3);
    mount.cache.end_unlearned(changing);
    mount.changes_mode_of(4);
    mount.reads(4);
    mount.reads_at_once(5);
}

#[test]
fn who_reads_what_is_asked_for_waits_for_that() {
    let mut mount = Mount::knows(&twenty());
    for index in [-1, 0, 1] {
        assert!(mount.reads(index).is_empty());
    }
    let ahead = mount.reads(2);
    for (index, received) in &ahead[..2] {
        mount.asks_for(*index, 0, FILE_BYTES);
        assert!(mount.harness.replies.is_empty(), "{index}");
        mount.answers(*index, received);
        assert_eq!(mount.harness.reply().bulk, Some(contents(*index)));
    }
    mount.asked();
    mount.asks_for(5, 0, FILE_BYTES);
    mount.harness.fail(&ahead[2].1, Status::Busy);
    let again = mount.asked();
    assert_eq!(indices(&again), [5], "it is asked for by itself then");
    mount.answers(5, &again[0].1);
    assert_eq!(mount.harness.reply().bulk, Some(contents(5)));
}

#[test]
fn who_waits_may_be_killed() {
    let mut mount = Mount::knows(&twenty());
    for index in [-1, 0, 1] {
        assert!(mount.reads(index).is_empty());
    }
    let ahead = mount.reads(2);
    mount.asks_for(3, 0, FILE_BYTES);
    mount
        .harness
        .event(Event::Kernel(KernelEvent::CallerSignals { ticket: Ticket(7), ends: true }));
    assert_eq!(mount.harness.status(), Status::Interrupted);
    mount.answers(3, &ahead[0].1);
    assert!(mount.harness.replies.is_empty());
    mount.reads_at_once(3);
}

#[test]
fn an_answer_of_before_a_change_is_not_used() {
    let mut mount = Mount::knows(&twenty());
    for index in [-1, 0, 1] {
        assert!(mount.reads(index).is_empty());
    }
    let old = mount.reads(2);
    let changed = mount.changes_mode_of(3);
    mount.asks_for(3, 0, FILE_BYTES);
    let again = mount.asked();
    assert_eq!(indices(&again), [3], "what is asked for is of before: {changed:?}");
    mount.answers(3, &old[0].1);
    assert!(mount.harness.replies.is_empty());
    mount.answers(3, &again[0].1);
    assert_eq!(mount.harness.reply().bulk, Some(contents(3)));
}

#[test]
fn what_came_without_a_lease_or_in_another_length_is_read_again() {
    let mut mount = Mount::knows(&twenty());
    for index in [-1, 0, 1] {
        assert!(mount.reads(index).is_empty());
    }
    let ahead = mount.reads(2);
    mount.harness.released.clear();
    mount.harness.send(&ahead[0].1, Status::Ok, &[], Some(contents(3)));
    mount.harness.fail(&ahead[1].1, Status::Stale);
    mount.harness.bulk = Some(Bulk { bulk_bytes: 8, ..contents(5) });
    mount.grants(&ahead[2].1, &[], PAGES);
    assert_eq!(mount.harness.released, [contents(3).buf, contents(5).buf]);
    mount.answers(6, &ahead[3].1);
    for index in [3, 4, 5] {
        mount.reads(index);
    }
    mount.reads_at_once(6);
}

#[test]
fn what_nobody_reads_is_given_up_and_fewer_are_asked_for() {
    let (mut mount, _) = Mount::with_four_ahead(&twenty());
    mount.harness.wait_ms(1_000);
    let buffers: Vec<_> = (3..7).map(|index| contents(index).buf).collect();
    assert_eq!(mount.harness.released, buffers);
    mount.harness.requests.clear();
    assert!(mount.reads(7).is_empty(), "in order, but this has to be shown again");
}

#[test]
fn nothing_is_used_behind_the_end_of_a_connection() {
    let (mut mount, _) = Mount::with_four_ahead(&twenty());
    mount.harness.hang_up();
    let buffers: Vec<_> = (3..7).map(|index| contents(index).buf).collect();
    assert_eq!(mount.harness.released, buffers);
    mount.harness.all_notified();
    mount.asks_for(3, 0, FILE_BYTES);
    assert_eq!(indices(&mount.asked()), vec![3]);
}

/// Reads files one after the other; those that the server was asked for, each as often as it was.
fn read_all(mount: &mut Mount, files: core::ops::Range<i64>) -> Vec<i64> {
    let mut all = Vec::new();
    for index in files {
        mount.asks_for(index, 0, FILE_BYTES);
        loop {
            let asked = mount.asked();
            if asked.is_empty() {
                break;
            }
            asked.iter().for_each(|(index, received)| mount.answers(*index, received));
            all.extend(indices(&asked));
        }
        assert_eq!(mount.harness.reply().bulk, Some(contents(index)));
    }
    all.sort_unstable();
    all
}

/// The first file of the block behind that of [`FILE`].
fn next_block() -> i64 {
    let next = (FILE.0 / NUMBER_BLOCK + 1) * NUMBER_BLOCK;
    next.cast_signed() - FILE.0.cast_signed()
}

#[test]
fn files_of_the_next_block_are_asked_for_by_who_has_read_on_into_one() {
    let (next, block) = (next_block(), NUMBER_BLOCK.cast_signed());
    let mut mount = Mount::knows(&(0..next + 2 * block).map(small).collect::<Vec<_>>());
    let asked = read_all(&mut mount, 0..next);
    assert!(asked.iter().copied().eq(0..next), "those of this block, once each: {asked:?}");
    let asked = read_all(&mut mount, next..next + block);
    assert!(asked.contains(&(next + block)), "{asked:?}");
}

#[test]
fn who_has_read_many_in_order_is_expected_to_go_on_so_elsewhere() {
    let next = next_block();
    let mut mount = Mount::knows(&(0..next + 60).map(small).collect::<Vec<_>>());
    read_all(&mut mount, 0..20);
    let asked = read_all(&mut mount, next + 30..next + 31);
    assert_eq!(asked[..3], [next + 30, next + 31, next + 32], "{asked:?}");
    let mut other = Mount::knows(&(0..next + 60).map(small).collect::<Vec<_>>());
    read_all(&mut other, 0..8);
    assert_eq!(read_all(&mut other, next + 30..next + 31), [next + 30], "too few to be sure");
}
