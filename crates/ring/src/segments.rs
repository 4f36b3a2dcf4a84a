//! Objects larger than one file can be (16 TiB on ext4): further files of a fixed size, the
//! segments, in a directory beside the first file.
//!
//! ```text
//! 05/12/0003000000048234.0            bytes 0 .. S         S long if and only if more follow
//! 05/12/0003000000048234.0.d/1        bytes S .. 2 S       or it ends there
//! 05/12/0003000000048234.0.d/3fffff   the last one's length says where the object ends
//! ```
//! Segments that were never written do not exist, and all but the last may be short: missing bytes
//! read as zeros. The first file is made S long before a segment is made, and truncated after the
//! last segment was removed, so segments beside a shorter file are leftovers and are removed before
//! new ones are made.
//!
//! Every task here may block, so each has a thread of its own; an object within its first segment
//! needs none. The caller orders the tasks: a task that makes an object longer than S runs alone.

use crate::allocate::{give_back, has_space};
use crate::number::{errno_of, u64_of, usize_of};
use crate::path::ObjectPath;
use crate::sums;
use interface::{Errno, ObjectStat, SumRange};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{
    AtFlags, Dir, FallocateFlags, Mode, OFlags, SeekFrom, fallocate, fdatasync, fstat, fsync,
    ftruncate, mkdirat, openat, seek, statat, unlinkat,
};
use rustix::io;
use std::fmt::Write as _;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

/// Length of a segment: the largest power of two that every file system we stand on can hold in one
/// file, also an ext4 of small blocks.
pub const SEGMENT_BYTES: u64 = 1 << 41;
const STAT_BLOCK_BYTES: u64 = 512;

/// An operation on an object of several segments.
#[derive(Debug)]
pub(crate) enum Task {
    /// Missing bytes are zeros; the caller knows the object's end.
    Read {
        offset: u64,
        read_bytes: usize,
    },
    /// Checksums of ranges.
    Sum {
        ranges: Vec<SumRange>,
    },
    Write {
        offset: u64,
        bytes: Vec<u8>,
    },
    Truncate {
        size_bytes: u64,
    },
    Allocate {
        offset: u64,
        range_bytes: u64,
        mode: i32,
    },
    /// Frees what a failed allocation left in the first file, which had this size.
    GiveBack {
        offset: u64,
        range_bytes: u64,
        size_bytes: u64,
    },
    Seek {
        offset: u64,
        hole: bool,
    },
    Stat,
    /// Syncs all but the first file.
    Sync,
    /// Removes all but the first file.
    Remove,
}

/// Its result.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Done,
    Bytes(Vec<u8>),
    Place(Option<u64>),
    Stat(ObjectStat),
}

/// A task on a thread of its own.
pub(crate) struct SegmentTask {
    /// An eventfd, readable when the task is done.
    pub(crate) done_event: OwnedFd,
    outcome: Arc<OnceLock<Result<Outcome, Errno>>>,
}

impl SegmentTask {
    pub(crate) fn begin(segments: Segments, task: Task) -> Result<Self, Errno> {
        let done_event = eventfd(0, EventfdFlags::CLOEXEC).map_err(errno_of)?;
        let ring = done_event.try_clone().map_err(|_| Errno(wire::Status::Io.number()))?;
        let outcome = Arc::new(OnceLock::new());
        let shared = Arc::clone(&outcome);
        let work = move || {
            shared.set(segments.perform(task).map_err(errno_of)).ok();
            drop(shared); // The reader of the event is then the only owner.
            rustix::io::write(&ring, &1_u64.to_ne_bytes()).ok();
        };
        match std::thread::Builder::new().name("lanefs-segments".to_owned()).spawn(work) {
            Ok(_) => Ok(Self { done_event, outcome }),
            Err(_) => Err(Errno(wire::Status::Again.number())),
        }
    }

    /// The result, once the event is readable.
    pub(crate) fn end(self) -> Result<Outcome, Errno> {
        let lost = || Err(Errno(wire::Status::Io.number()));
        Arc::try_unwrap(self.outcome).ok().and_then(OnceLock::into_inner).unwrap_or_else(lost)
    }
}

/// The files of one object.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    store: Arc<OwnedFd>,
    /// The first file, if the task needs it.
    first: Option<Arc<OwnedFd>>,
    /// Directory of the other segments, relative to the store.
    dir: String,
    segment_bytes: u64,
}

impl Segments {
    pub(crate) fn new(
        store: &Arc<OwnedFd>,
        first: Option<Arc<OwnedFd>>,
        path: &ObjectPath,
        segment_bytes: u64,
    ) -> Self {
        let dir = format!("{}.d", path.text());
        Self { store: Arc::clone(store), first, dir, segment_bytes }
    }

    pub(crate) fn perform(&self, task: Task) -> io::Result<Outcome> {
        match task {
            Task::Read { offset, read_bytes } => self.read(offset, read_bytes).map(Outcome::Bytes),
            Task::Sum { ranges } => self.sum(&ranges).map(Outcome::Bytes),
            Task::Write { offset, bytes } => self.write(offset, &bytes).map(|()| Outcome::Done),
            Task::Truncate { size_bytes } => self.truncate(size_bytes).map(|()| Outcome::Done),
            Task::Allocate { offset, range_bytes, mode } => {
                let end = offset.saturating_add(range_bytes);
                self.allocate(offset..end, mode).map(|()| Outcome::Done)
            }
            Task::GiveBack { offset, range_bytes, size_bytes } => {
                let end = offset.saturating_add(range_bytes);
                give_back(self.first()?, offset..end, size_bytes).map(|()| Outcome::Done)
            }
            Task::Seek { offset, hole } => self.seek(offset, hole).map(Outcome::Place),
            Task::Stat => self.stat().map(Outcome::Stat),
            Task::Sync => self.sync().map(|()| Outcome::Done),
            Task::Remove => self.drop_behind(0).map(|()| Outcome::Done),
        }
    }

    fn read(&self, offset: u64, read_bytes: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; read_bytes];
        let mut rest = &mut bytes[..];
        for (number, place) in self.pieces(offset..offset.saturating_add(u64_of(read_bytes))) {
            let (mut piece, behind) = rest.split_at_mut(usize_of(place.end - place.start));
            rest = behind;
            let Some(file) = self.open(number, false)? else { continue };
            let mut at = place.start;
            while !piece.is_empty() {
                match io::pread(file.fd(), &mut *piece, at) {
                    Ok(0) => break,
                    Ok(read_bytes) => {
                        piece = &mut piece[read_bytes..];
                        at += u64_of(read_bytes);
                    }
                    Err(io::Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(bytes)
    }

    /// Appends the checksum of each range.
    fn sum(&self, ranges: &[SumRange]) -> io::Result<Vec<u8>> {
        let size_bytes = self.stat()?.size_bytes;
        let mut found = Vec::new();
        for range in ranges {
            let left_bytes = size_bytes.saturating_sub(range.object_offset);
            let read_bytes = usize_of(left_bytes.min(range.range_bytes.into()));
            sums::put(&mut found, &self.read(range.object_offset, read_bytes)?);
        }
        Ok(found)
    }

    fn write(&self, offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        self.lengthen()?;
        for (number, place) in self.pieces(offset..offset.saturating_add(u64_of(bytes.len()))) {
            let (mut piece, behind) = bytes.split_at(usize_of(place.end - place.start));
            bytes = behind;
            let Some(file) = self.open(number, true)? else { return Err(io::Errno::IO) };
            let mut at = place.start;
            while !piece.is_empty() {
                match io::pwrite(file.fd(), piece, at) {
                    Ok(0) => return Err(io::Errno::IO),
                    Ok(written_bytes) => {
                        piece = &piece[written_bytes..];
                        at += u64_of(written_bytes);
                    }
                    Err(io::Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(())
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<()> {
        let (last, length) = self.last_of(size_bytes);
        if last == 0 {
            self.drop_behind(0)?;
            return ftruncate(self.first()?, length);
        }
        self.lengthen()?;
        self.drop_behind(last)?;
        let Some(file) = self.open(last, true)? else { return Err(io::Errno::IO) };
        ftruncate(file.fd(), length)
    }

    /// Allocates a range segment by segment. An allocation behind the end that must keep the size
    /// is impossible beyond the last segment.
    fn allocate(&self, range: Range<u64>, mode: i32) -> io::Result<()> {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        if mode.contains(FallocateFlags::PUNCH_HOLE) {
            let numbers = std::iter::once(0).chain(self.numbers()?);
            for number in numbers {
                let start = number * self.segment_bytes;
                let from = range.start.max(start);
                let until = range.end.min(start.saturating_add(self.segment_bytes));
                if let (true, Some(file)) = (from < until, self.open(number, false)?) {
                    fallocate(file.fd(), mode, from - start, until - from)?;
                }
            }
            return Ok(());
        }
        let before = self.stat()?;
        let wanted_bytes = (range.end - range.start).saturating_sub(before.allocated_bytes);
        if !has_space(&*self.store, wanted_bytes)? {
            return Err(io::Errno::NOSPC);
        }
        let allocated = self.take_space(range.clone(), mode);
        if allocated.is_err() {
            self.give_back(range, before.size_bytes)?;
        }
        allocated
    }

    /// Frees what a failed allocation has left, in an object that had this size.
    fn give_back(&self, range: Range<u64>, size_bytes: u64) -> io::Result<()> {
        if self.stat()?.size_bytes > size_bytes {
            self.truncate(size_bytes)?;
        }
        for (number, place) in self.pieces(range) {
            if let Some(file) = self.open(number, false)? {
                let size_bytes = fstat(file.fd())?.st_size.unsigned_abs();
                give_back(file.fd(), place, size_bytes)?;
            }
        }
        Ok(())
    }

    fn take_space(&self, range: Range<u64>, mode: FallocateFlags) -> io::Result<()> {
        let keep = FallocateFlags::KEEP_SIZE;
        let (last, _) = self.last_of(range.end);
        if mode.contains(keep) {
            let known = self.numbers()?.last().copied().unwrap_or(0);
            if last > known {
                return Err(io::Errno::OPNOTSUPP);
            }
        } else {
            self.lengthen()?;
        }
        for (number, place) in self.pieces(range) {
            let Some(file) = self.open(number, true)? else { return Err(io::Errno::IO) };
            // The first file already has its length, and all but the last segment need none.
            let mode = if number == last && number > 0 { mode } else { mode | keep };
            fallocate(file.fd(), mode, place.start, place.end - place.start)?;
        }
        Ok(())
    }

    fn seek(&self, offset: u64, hole: bool) -> io::Result<Option<u64>> {
        let numbers = self.numbers()?;
        let last = numbers.last().copied().unwrap_or(0);
        let mut number = offset / self.segment_bytes;
        let mut from = offset % self.segment_bytes;
        while number <= last {
            let start = number * self.segment_bytes;
            let Some(file) = self.open(number, false)? else {
                if hole {
                    return Ok(Some(start + from));
                }
                let Some(next) = numbers.iter().find(|known| **known > number) else { break };
                (number, from) = (*next, 0);
                continue;
            };
            let sought = if hole { SeekFrom::Hole(from) } else { SeekFrom::Data(from) };
            match seek(file.fd(), sought) {
                // A hole at the end of a full segment is none if another segment follows.
                Ok(found) if found < self.segment_bytes || number == last => {
                    return Ok(Some(start + found));
                }
                Ok(_) => {}
                // Everything behind the end of a short segment is a hole.
                Err(io::Errno::NXIO) if hole && number < last => return Ok(Some(start + from)),
                Err(io::Errno::NXIO) => {}
                Err(errno) => return Err(errno),
            }
            (number, from) = (number + 1, 0);
        }
        Ok(None)
    }

    fn stat(&self) -> io::Result<ObjectStat> {
        let first = fstat(self.first()?)?;
        let blocks = |count: i64| count.unsigned_abs().saturating_mul(STAT_BLOCK_BYTES);
        let mut found = ObjectStat {
            size_bytes: first.st_size.unsigned_abs(),
            allocated_bytes: blocks(first.st_blocks),
        };
        if found.size_bytes < self.segment_bytes {
            return Ok(found);
        }
        for number in self.numbers()? {
            let segment = statat(&*self.store, self.name(number), AtFlags::empty())?;
            let start = number * self.segment_bytes;
            found.size_bytes = start.saturating_add(segment.st_size.unsigned_abs());
            found.allocated_bytes = found.allocated_bytes.saturating_add(blocks(segment.st_blocks));
        }
        Ok(found)
    }

    /// Syncs the segments, then their directory, then its parent.
    fn sync(&self) -> io::Result<()> {
        for number in self.numbers()? {
            if let Some(file) = self.open(number, false)? {
                fdatasync(file.fd())?;
            }
        }
        let folder = self.dir.rsplit_once('/').map_or(".", |(folder, _)| folder);
        for dir in [&self.dir, folder] {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            match openat(&*self.store, dir, flags, Mode::empty()) {
                Ok(dir) => fsync(dir)?,
                Err(io::Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    // --- the files -------------------------------------------------------------------------------

    /// Gives the first file the length that it must have before there are other segments.
    fn lengthen(&self) -> io::Result<()> {
        let first = self.first()?;
        if fstat(first)?.st_size.unsigned_abs() < self.segment_bytes {
            self.drop_behind(0)?;
            ftruncate(first, self.segment_bytes)?;
        }
        match mkdirat(&*self.store, &self.dir, Mode::RWXU) {
            Ok(()) | Err(io::Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Removes all segments behind this one, the last one first; behind the first file also their
    /// directory.
    fn drop_behind(&self, kept: u64) -> io::Result<()> {
        for number in self.numbers()?.into_iter().rev().take_while(|number| *number > kept) {
            unlinkat(&*self.store, self.name(number), AtFlags::empty())?;
        }
        if kept > 0 {
            return Ok(());
        }
        match unlinkat(&*self.store, &self.dir, AtFlags::REMOVEDIR) {
            Ok(()) | Err(io::Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Numbers of the segments behind the first file, ascending.
    fn numbers(&self) -> io::Result<Vec<u64>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = match openat(&*self.store, &self.dir, flags, Mode::empty()) {
            Ok(dir) => dir,
            Err(io::Errno::NOENT) => return Ok(Vec::new()),
            Err(errno) => return Err(errno),
        };
        let mut numbers = Vec::new();
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_str().unwrap_or("");
            numbers.extend(u64::from_str_radix(name, 16).ok().filter(|number| *number > 0));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn open(&self, number: u64, create: bool) -> io::Result<Option<File<'_>>> {
        if number == 0 {
            return Ok(Some(File::First(self.first()?)));
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let flags = if create { flags | OFlags::CREATE } else { flags };
        match openat(&*self.store, self.name(number), flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(Some(File::Further(file))),
            Err(io::Errno::NOENT) if !create => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn first(&self) -> io::Result<BorrowedFd<'_>> {
        self.first.as_ref().map(|first| first.as_fd()).ok_or(io::Errno::IO)
    }

    fn name(&self, number: u64) -> String {
        let mut name = self.dir.clone();
        write!(name, "/{number:x}").ok();
        name
    }

    /// The segments of a range, and the part of each.
    fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
        let segment_bytes = self.segment_bytes;
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let number = at / segment_bytes;
            let start = number * segment_bytes;
            let until = range.end.min(start.saturating_add(segment_bytes));
            let piece = (number, at - start..until - start);
            at = until;
            Some(piece)
        })
    }

    /// The last segment of an object of this size, and its length.
    const fn last_of(&self, size_bytes: u64) -> (u64, u64) {
        let number = size_bytes.saturating_sub(1) / self.segment_bytes;
        (number, size_bytes - number * self.segment_bytes)
    }
}

enum File<'f> {
    First(BorrowedFd<'f>),
    Further(OwnedFd),
}

impl File<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::First(file) => *file,
            Self::Further(file) => file.as_fd(),
        }
    }
}
