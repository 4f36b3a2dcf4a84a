//! Small files that are read one after the other, as `cp -r`, `tar c`, `grep -r` and data loaders read
//! them: the contents of the next ones are asked for ahead, several in one message, so that a program
//! waits for one exchange in many files. The next ones are those with the next inode numbers: files that
//! were made one after the other have numbers in that order, and so have listings. Files that several
//! programs have made at a time have them in blocks, one program in each ([`NUMBER_BLOCK`]), so the next
//! block is asked for only by who has read on into it before, and who goes on in another block goes on.
//!
//! ```text
//! READ of a small file ─▶ in order, several times ─▶ ask for the next ones ─▶ asked ─ answered ─▶ here
//! READ of one that is here ─▶ reply                       recalled, term over, unused for long ─▶ released
//! READ of one that is asked for ─▶ wait ─▶ begin again
//! ```
//! Invariant: what is here was read under a lease of the file's pages that has not ended, and of the
//! version that the mount's cache of attributes shows, so that neither another client nor this one has
//! changed the file since.

use crate::abi::Opcode;
use crate::begin::Decoded;
use crate::cache::begin_call;
use crate::lane::MountLane;
use crate::leases::version_of;
use crate::pending::Continuation;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use client::{Answer, Asked, Call, CallId, Granted, NUMBER_BLOCK, NUMBER_STEP_MAX};
use core::ops::Range;
use interface::{Action, Bulk, FileVersion, Mono, Span, Turn};
use wire::{Attr, FileKind, InodeNo, Read, Status};

/// Ids of these calls begin here; those of requests are smaller.
const FIRST_CALL: u64 = 1 << 61;
/// Longer files are read ahead by the kernel.
const FILE_BYTES_MAX: u64 = 128 << 10;
/// The most bytes that are here or asked for.
const BYTES_MAX: u64 = 4 << 20;
/// The most files of one reader.
const WINDOW_MAX: u64 = 32;
const WINDOW_MIN: u64 = 4;
/// Files that are read in order before the next ones are asked for.
const RUN_MIN: u64 = 4;
/// A program that has read so many in order is expected to do that wherever it goes on.
const LONG_RUN_MIN: u64 = 16;
/// Readers that go on at different places, at a time.
const READER_COUNT_MAX: usize = 8;
/// A reader may leave out so many numbers, less one: others' files, those of other readers, and those that
/// their maker has left out.
const STEP_MAX: u64 = NUMBER_STEP_MAX;
/// What nobody has read after so long is given up.
const UNUSED_MS_MAX: u64 = 1_000;

/// Files that are read in the order of their numbers.
#[derive(Clone, Copy, Debug)]
struct Reader {
    /// The process that has read last.
    pid: u32,
    last: u64,
    /// Files that it has read in order.
    run: u64,
    /// The first number that was not looked at.
    next: u64,
    window: u64,
    /// It has read on from one block of numbers into the next.
    crosses: bool,
}

/// The contents of a file.
#[derive(Debug)]
struct Ahead {
    call: CallId,
    version: FileVersion,
    file_bytes: u64,
    since: Mono,
    /// With the end of the term in which its pages are leased; `None`: they are asked for.
    here: Option<(Bulk, Mono)>,
    /// The READ that waits for them.
    waiting: Option<usize>,
}

/// What a lane has read ahead.
#[derive(Default, Debug)]
pub(crate) struct FilesAhead {
    /// The one that has read last is the last.
    readers: Vec<Reader>,
    files: BTreeMap<InodeNo, Ahead>,
    calls: BTreeMap<u64, (InodeNo, Option<Asked>)>,
    call_count: u64,
    bytes: u64,
    /// The READ for which files are to be looked for, and its process.
    seen: Option<(Read, u32)>,
    /// READs that have waited, and begin again.
    again: Vec<usize>,
    /// When files are looked at for their age.
    check_at: Option<Mono>,
}

impl FilesAhead {
    /// Whether this is the id of such a call.
    pub(crate) const fn has_made(call: CallId) -> bool {
        call.0 >= FIRST_CALL && call.0 < FIRST_CALL << 1
    }

    /// A file is read by a process. Returns the place of its reader.
    fn read(&mut self, number: u64, pid: u32) -> usize {
        let goes_on = |it: &Reader| number > it.last && number - it.last <= STEP_MAX;
        let was_here = |it: &Reader| number <= it.last && it.last - number < STEP_MAX;
        let readers = &self.readers;
        let own = readers.iter().position(|it| it.pid == pid && goes_on(it));
        let reader = if let Some(index) = own.or_else(|| readers.iter().position(goes_on)) {
            let reader = self.readers.remove(index);
            let next = reader.next.max(number + 1);
            let crosses = reader.crosses || block_of(number) > block_of(reader.last);
            Reader { pid, last: number, run: reader.run + 1, next, crosses, ..reader }
        } else if let Some(index) = readers.iter().position(was_here) {
            self.readers.remove(index)
        } else {
            let is_long = |it: &&Reader| it.pid == pid && it.run >= LONG_RUN_MIN;
            let (run, window) = match readers.iter().rev().find(is_long) {
                Some(long) => (long.run, long.window / 2),
                None => (1, 0),
            };
            if self.readers.len() >= READER_COUNT_MAX {
                self.readers.remove(0);
            }
            Reader { pid, last: number, run, next: number + 1, window, crosses: false }
        };
        self.readers.push(reader);
        self.readers.len() - 1
    }

    /// The numbers to look at for a reader, and how many files may be asked for. None while it has
    /// enough: several are asked for at once.
    fn wanted(&mut self, index: usize) -> Option<(Range<u64>, u64)> {
        let reader = &mut self.readers[index];
        if reader.run < RUN_MIN {
            return None;
        }
        let ahead = InodeNo(reader.last + 1)..InodeNo(reader.next.max(reader.last + 1));
        let count = u64::try_from(self.files.range(ahead).count()).unwrap_or(u64::MAX);
        if count > reader.window / 2 {
            return None;
        }
        let end =
            if reader.crosses { u64::MAX } else { (block_of(reader.last) + 1) * NUMBER_BLOCK };
        if reader.next >= end {
            return None;
        }
        reader.window = (reader.window * 2).clamp(WINDOW_MIN, WINDOW_MAX);
        Some((reader.next..end, reader.window - count))
    }

    /// A file was read ahead in vain: readers begin with few again.
    fn give_up(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        self.remove(turn, inode);
        self.readers.clear();
    }

    /// A file's contents are not used any more.
    pub(crate) fn remove(&mut self, turn: &mut Turn<'_>, inode: InodeNo) {
        let Some(ahead) = self.files.remove(&inode) else { return };
        self.bytes -= ahead.file_bytes;
        self.again.extend(ahead.waiting);
        if let Some((bulk, _)) = ahead.here {
            turn.act(Action::Release { buf: bulk.buf });
        }
    }

    /// A READ does not wait any more. Returns whether it did.
    pub(crate) fn end_wait_of(&mut self, pending_id: usize) -> bool {
        let mut files = self.files.values_mut();
        let waited = files.find_map(|it| it.waiting.take_if(|waiting| *waiting == pending_id));
        let count = self.again.len();
        self.again.retain(|waiting| *waiting != pending_id);
        waited.is_some() || self.again.len() < count
    }

    /// Whether no READ is to begin again.
    pub(crate) const fn is_settled(&self) -> bool {
        self.again.is_empty()
    }

    /// Nothing that was read ahead is used any more.
    pub(crate) fn clear(&mut self, turn: &mut Turn<'_>) {
        while let Some((inode, _)) = self.files.first_key_value() {
            self.remove(turn, *inode);
        }
        self.readers.clear();
    }
}

/// The block of a file's number.
const fn block_of(number: u64) -> u64 {
    number / NUMBER_BLOCK
}

impl MountLane {
    /// Whether a READ is answered with what was read ahead.
    pub(crate) fn was_read_ahead(&mut self, turn: &mut Turn<'_>, pending_id: usize) -> bool {
        if !self.leases.on || self.opcode(pending_id) != Some(Opcode::Read) {
            return false;
        }
        let Some(pending) = self.pendings.get(pending_id) else { return false };
        let Ok(Decoded::Call(Call::ReadPages(read), Continuation::Pages)) = pending.decoded()
        else {
            return false;
        };
        if read.file_offset == 0 {
            self.ahead.seen = Some((read, pending.pid));
        }
        let now = turn.now.mono;
        let current = self.small_file(now, read.inode).map(|attr| version_of(&attr));
        let Some(ahead) = self.ahead.files.get_mut(&read.inode) else { return false };
        let is_current = current == Some(ahead.version);
        if is_current && ahead.here.is_none() && ahead.waiting.is_none() {
            ahead.waiting = Some(pending_id);
            if let Some(pending) = self.pendings.get_mut(pending_id) {
                pending.asked_server = true;
            }
            return true;
        }
        let Some((bulk, until)) = ahead.here.filter(|(_, until)| is_current && now < *until) else {
            self.ahead.remove(turn, read.inode);
            return false;
        };
        let start = read.file_offset.min(ahead.file_bytes);
        let end = (start + u64::from(read.read_bytes)).min(ahead.file_bytes);
        let (Ok(offset), Ok(bulk_bytes)) = (u32::try_from(start), u32::try_from(end - start))
        else {
            return false;
        };
        let part = (bulk_bytes > 0).then(|| Bulk {
            start: bulk.start + offset,
            bulk_bytes,
            crc32c: bulk.crc32c.filter(|_| bulk_bytes == bulk.bulk_bytes),
            ..bulk
        });
        let is_last = end == ahead.file_bytes;
        if let Some(pending) = self.pendings.get(pending_id) {
            self.leases.see_read(&pending.request);
        }
        self.reply(turn, pending_id, Status::Ok, Span::default(), part);
        if is_last {
            self.ahead.remove(turn, read.inode);
        }
        self.hold_pages(turn, read.inode, Some(until));
        true
    }

    /// The attributes of a file that may be read ahead, if they are known.
    fn small_file(&self, now: Mono, inode: InodeNo) -> Option<Attr> {
        let attr = self.cache.as_ref()?.attributes(now, inode)?.value;
        let is_small = attr.kind == FileKind::File
            && (1..=FILE_BYTES_MAX).contains(&attr.size_bytes)
            && !attr.is_size_at_data()
            && !attr.layout.is_some_and(|layout| layout.is_spread());
        let is_behind = self.behind.table.as_ref().is_some_and(|it| it.is_held(inode));
        (is_small && !is_behind).then_some(attr)
    }

    /// Asks for the files behind the one that was just read, and gives up old ones.
    pub(crate) fn read_files_ahead(&mut self, turn: &mut Turn<'_>) {
        self.give_up_unused(turn);
        for pending_id in core::mem::take(&mut self.ahead.again) {
            self.begin(turn, pending_id);
        }
        let Some((read, pid)) = self.ahead.seen.take() else { return };
        let may = self.is_serving() && self.client.was_granted_any() && self.client.takes_calls();
        if !may || self.small_file(turn.now.mono, read.inode).is_none() {
            return;
        }
        let index = self.ahead.read(read.inode.0, pid);
        let Some((numbers, mut count)) = self.ahead.wanted(index) else { return };
        let (mut number, mut unknown_count) = (numbers.start, 0);
        while count > 0 && unknown_count < STEP_MAX && number < numbers.end {
            match self.small_file(turn.now.mono, InodeNo(number)) {
                Some(attr) if self.ahead.bytes + attr.size_bytes > BYTES_MAX => break,
                Some(attr) => {
                    self.ask_ahead(turn, &attr, read.accesses);
                    (count, unknown_count) = (count - 1, 0);
                }
                None => unknown_count += 1,
            }
            number += 1;
        }
        self.ahead.readers[index].next = number - unknown_count;
    }

    fn ask_ahead(&mut self, turn: &mut Turn<'_>, attr: &Attr, accesses: bool) {
        let (now, inode) = (turn.now.mono, attr.inode);
        let Ok(read_bytes) = u32::try_from(attr.size_bytes) else { return };
        if self.ahead.files.contains_key(&inode) {
            return;
        }
        let call = Call::ReadPages(Read { inode, file_offset: 0, read_bytes, accesses });
        let asked = begin_call(self.cache.as_ref(), &mut self.client, (now, &call));
        let ahead = &mut self.ahead;
        ahead.call_count += 1;
        let call_id = CallId(FIRST_CALL + ahead.call_count);
        ahead.calls.insert(call_id.0, (inode, asked));
        let (version, file_bytes) = (version_of(attr), attr.size_bytes);
        let file =
            Ahead { call: call_id, version, file_bytes, since: now, here: None, waiting: None };
        ahead.files.insert(inode, file);
        ahead.bytes += file_bytes;
        ahead.check_at.get_or_insert(now.after_ms(UNUSED_MS_MAX));
        self.client.call(turn, call_id, call);
    }

    /// A file's contents are here.
    pub(crate) fn on_read_ahead(
        &mut self,
        turn: &mut Turn<'_>,
        call: CallId,
        (result, granted): (Result<Answer, Status>, Granted),
    ) {
        let Some((inode, asked)) = self.ahead.calls.remove(&call.0) else { return };
        if let Some((cache, asked)) = self.cache.as_ref().zip(asked) {
            cache.end_unlearned(asked);
        }
        let bulk = match result {
            Ok(Answer::Bytes(bulk)) => bulk,
            other => {
                self.discard(turn, other);
                None
            }
        };
        // It may have been asked for again, because it has changed.
        let ahead = self.ahead.files.get_mut(&inode).filter(|it| it.call == call);
        let is_asked = ahead.is_some();
        match (bulk, ahead, granted.contents) {
            (Some(bulk), Some(ahead), Some(until))
                if u64::from(bulk.bulk_bytes) == ahead.file_bytes =>
            {
                ahead.here = Some((bulk, until));
                self.ahead.again.extend(ahead.waiting.take());
            }
            (bulk, _, _) => {
                if is_asked {
                    self.ahead.remove(turn, inode);
                }
                if let Some(bulk) = bulk {
                    turn.act(Action::Release { buf: bulk.buf });
                }
            }
        }
    }

    /// What nobody has read for long.
    fn give_up_unused(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        let Some(check_at) = self.ahead.check_at else { return };
        if check_at <= now {
            let is_old = |it: &Ahead| it.since.after_ms(UNUSED_MS_MAX) <= now && it.here.is_some();
            let old = self.ahead.files.iter().filter(|(_, it)| is_old(it));
            for inode in old.map(|(inode, _)| *inode).collect::<Vec<_>>() {
                self.ahead.give_up(turn, inode);
            }
            let is_empty = self.ahead.files.is_empty();
            self.ahead.check_at = (!is_empty).then(|| now.after_ms(UNUSED_MS_MAX));
        }
        if let Some(at) = self.ahead.check_at {
            turn.act(Action::WakeAt { at });
        }
    }
}
