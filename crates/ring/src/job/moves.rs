//! Jobs that transfer bytes: from the page cache, through it, or past it.
//!
//! Invariant: a transfer bypasses the page cache only if its offset, length and memory are whole
//! pages; other transfers of the same job may use the page cache, and the kernel keeps both
//! consistent.

use super::{IO, Job, JobKind, Step};
use crate::allocate::{may_leave_space, takes_space};
use crate::buffer::FileRange;
use crate::cache::is_cached;
use crate::direct::DIRECT_BYTES;
use crate::driver::{Op, Token};
use crate::fault::FaultPoint;
use crate::io_context::{FILE_RANGE_BYTES_MIN, IoContext};
use crate::number::{u32_of, u64_of};
use crate::objects::{FileState, Objects};
use interface::{BufId, Errno, Event, ObjectEvent};
use rustix::fs::fstat;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::sync::Arc;

/// The error of a page-cache-only read that finds nothing.
const NOT_CACHED: Errno = Errno(11);
/// Its errors where the file system, or the kernel, does not support such reads.
const CANNOT_TELL: [Errno; 3] = [Errno(95), Errno(22), Errno(38)];

impl Job {
    /// A range of the open file instead of a buffer, if the read is large, the file has all of it,
    /// and it is in the page cache, so that sending it does not wait for the disk.
    pub(super) fn take_file_range(
        &mut self,
        offset: u64,
        read_bytes: usize,
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> Option<BufId> {
        if read_bytes < FILE_RANGE_BYTES_MIN || !objects.uses_file_ranges {
            return None;
        }
        let slot = objects.slot(self.object_index);
        let FileState::Open { file, .. } = &slot.file else { return None };
        io.counters.syscall_count += 1;
        let size_bytes = u64::try_from(fstat(file).ok()?.st_size).ok()?;
        let left_bytes = size_bytes.saturating_sub(offset);
        let range_bytes = usize::try_from(left_bytes).unwrap_or(usize::MAX).min(read_bytes);
        if range_bytes < FILE_RANGE_BYTES_MIN {
            return None;
        }
        io.counters.syscall_count += 1;
        match is_cached(file.as_fd(), offset..offset + u64_of(range_bytes)) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(_) => {
                // The kernel cannot tell, and will not next time either.
                objects.uses_file_ranges = false;
                return None;
            }
        }
        let (file, object) = (Arc::clone(file), slot.object);
        self.moved_bytes = range_bytes;
        Some(io.pool.add_file_range(FileRange { file, object, offset, range_bytes }))
    }

    /// Starts a transfer: returns its descriptor, and whether that one bypasses the page cache.
    fn begin_move(
        &self,
        (at, piece_bytes, offset): (*const u8, usize, u64),
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> (RawFd, bool) {
        let is_whole = |number: u64| number.is_multiple_of(DIRECT_BYTES);
        let whole =
            is_whole(u64_of(at.addr())) && is_whole(u64_of(piece_bytes)) && is_whole(offset);
        objects.count_move_begun(self.object_index, &mut io.counters);
        match &objects.slot(self.object_index).file {
            FileState::Open { direct: Some(direct), .. } if whole => {
                io.counters.object_direct_count += 1;
                (direct.as_raw_fd(), true)
            }
            FileState::Open { file, .. } => (file.as_raw_fd(), false),
            FileState::Unknown | FileState::Opening => (-1, false),
        }
    }

    /// A step of a job has completed; if it was a transfer, it is no longer in flight.
    pub(super) fn end_move(&self, objects: &mut Objects) {
        let moves = matches!(
            self.kind,
            JobKind::Read { .. }
                | JobKind::Part { .. }
                | JobKind::Sum { .. }
                | JobKind::Write { .. }
        );
        if moves && self.step == Step::Move {
            objects.count_move_ended(self.object_index);
        }
    }

    pub(super) fn on_moved(
        &mut self,
        outcome: Result<u32, Errno>,
        token: Token,
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> bool {
        let moved_bytes = match outcome {
            Ok(moved_bytes) => moved_bytes as usize,
            Err(errno) if self.cached && errno == NOT_CACHED => {
                return self.on_missed(token, objects, io);
            }
            Err(errno) if self.cached && CANNOT_TELL.contains(&errno) => {
                self.cached = false;
                return self.go(Step::Move, token, objects, io);
            }
            Err(errno) => {
                if let JobKind::Allocate { mode, .. } = self.kind
                    && takes_space(mode)
                    && may_leave_space(errno)
                {
                    return self.on_refused(errno, token, objects, io);
                }
                return self.fail(errno, objects, io);
            }
        };
        self.moved_bytes += moved_bytes;
        let wanted_bytes = match self.kind {
            JobKind::Read { read_bytes, .. } | JobKind::Part { read_bytes, .. } => {
                read_bytes as usize
            }
            JobKind::Sum { .. } => self.chunk.map_or(0, |chunk| chunk.read_bytes),
            JobKind::Write { bulk, .. } => bulk.bulk_bytes as usize,
            JobKind::Truncate { .. }
            | JobKind::Allocate { .. }
            | JobKind::GiveBack { .. }
            | JobKind::Sync { .. }
            | JobKind::Stat { .. }
            | JobKind::Seek { .. }
            | JobKind::Remove { .. } => return self.done(io),
        };
        if self.moved_bytes < wanted_bytes && moved_bytes > 0 {
            return self.go(Step::Move, token, objects, io);
        }
        if let JobKind::Sum { sums, .. } = self.kind {
            return self.on_chunk(sums, token, objects, io);
        }
        let written_short = self.kind.creates() && self.moved_bytes < wanted_bytes;
        if written_short { self.fail(IO, objects, io) } else { self.done(io) }
    }

    /// Whether the page cache lacks part of a page-cache-only read, as far as the kernel can tell.
    /// A non-blocking read alone does not show it: the kernel starts reading missing pages, and
    /// returns those that have arrived by the time it checks.
    pub(super) fn lacks(
        &self,
        (offset, read_bytes): (u64, usize),
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> bool {
        let checks_cache = self.cached && objects.knows_cached && read_bytes > 0;
        let FileState::Open { file, direct: None } = &objects.slot(self.object_index).file else {
            return false;
        };
        if !checks_cache {
            return false;
        }
        io.counters.syscall_count += 1;
        match is_cached(file.as_fd(), offset..offset + u64_of(read_bytes)) {
            Ok(is_cached) => !is_cached,
            Err(_) => {
                objects.knows_cached = false;
                false
            }
        }
    }

    /// Reads the next chunk to be summed.
    pub(super) fn read_chunk(
        &mut self,
        token: Token,
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> bool {
        let place = self.chunk.map_or((0, 0), |chunk| (chunk.offset, chunk.read_bytes));
        if self.lacks(place, objects, io) {
            (self.missed, self.cached) = (true, false);
        }
        self.go(Step::Move, token, objects, io)
    }

    /// The page cache lacks part of the read.
    pub(super) fn on_missed(
        &mut self,
        token: Token,
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> bool {
        self.missed = true;
        match self.kind {
            JobKind::Read { ticket, .. } => {
                if let Some(buf) = self.buf.take() {
                    io.pool.release(buf);
                }
                io.events.push(Event::Object(ObjectEvent::Uncached { ticket }));
                true
            }
            JobKind::Part { part, .. } => {
                io.miss_part(part);
                true
            }
            JobKind::Sum { .. }
            | JobKind::Write { .. }
            | JobKind::Truncate { .. }
            | JobKind::Allocate { .. }
            | JobKind::GiveBack { .. }
            | JobKind::Sync { .. }
            | JobKind::Stat { .. }
            | JobKind::Seek { .. }
            | JobKind::Remove { .. } => {
                self.cached = false;
                self.go(Step::Move, token, objects, io)
            }
        }
    }

    /// A chunk was read, as far as it exists.
    fn on_chunk(
        &mut self,
        sums: u32,
        token: Token,
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> bool {
        if let (Some(chunk), Some(buf)) = (self.chunk.take(), self.buf) {
            let bytes = io.pool.bytes(buf, 0, self.moved_bytes);
            io.sum_jobs.sum(sums, chunk, bytes);
        }
        self.moved_bytes = 0;
        self.chunk = io.sum_jobs.next(sums);
        if self.chunk.is_none() {
            return self.done(io);
        }
        self.read_chunk(token, objects, io)
    }

    pub(super) fn move_op(&self, objects: &mut Objects, io: &mut IoContext) -> (FaultPoint, Op) {
        let moved_bytes = self.moved_bytes;
        let buffered = objects.raw(self.object_index);
        match self.kind {
            JobKind::Read { offset, read_bytes, .. } => {
                let rest_bytes = read_bytes as usize - moved_bytes;
                let Some(buf) = self.buf else { panic!("a read has its buffer") };
                let at = io.pool.at(buf, moved_bytes, rest_bytes);
                let (read_bytes, offset) = (u32_of(rest_bytes), offset + u64_of(moved_bytes));
                let piece = (at.cast_const(), rest_bytes, offset);
                let (file, direct) = self.begin_move(piece, objects, io);
                let cached = self.cached && !direct;
                (FaultPoint::ObjectRead, Op::Read { file, at, read_bytes, offset, direct, cached })
            }
            JobKind::Part { part, offset, read_bytes, .. } => {
                let rest_bytes = read_bytes as usize - moved_bytes;
                let Some(buf) = io.list_buf(part) else { panic!("a list has its buffer") };
                let at = io.pool.at(buf, part.start + moved_bytes, rest_bytes);
                let (read_bytes, offset) = (u32_of(rest_bytes), offset + u64_of(moved_bytes));
                let piece = (at.cast_const(), rest_bytes, offset);
                let (file, direct) = self.begin_move(piece, objects, io);
                let cached = self.cached && !direct;
                (FaultPoint::ObjectRead, Op::Read { file, at, read_bytes, offset, direct, cached })
            }
            JobKind::Sum { .. } => {
                let (Some(chunk), Some(buf)) = (self.chunk, self.buf) else {
                    panic!("a chunk is read into its buffer")
                };
                let rest_bytes = chunk.read_bytes - moved_bytes;
                let at = io.pool.at(buf, moved_bytes, rest_bytes);
                let (read_bytes, offset) = (u32_of(rest_bytes), chunk.offset + u64_of(moved_bytes));
                let piece = (at.cast_const(), rest_bytes, offset);
                let (file, direct) = self.begin_move(piece, objects, io);
                let cached = self.cached && !direct;
                (FaultPoint::ObjectRead, Op::Read { file, at, read_bytes, offset, direct, cached })
            }
            JobKind::Write { offset, bulk, .. } => {
                let rest_bytes = bulk.bulk_bytes as usize - moved_bytes;
                let at = io.pool.at(bulk.buf, bulk.start as usize + moved_bytes, rest_bytes);
                let (write_bytes, offset) = (u32_of(rest_bytes), offset + u64_of(moved_bytes));
                let at = at.cast_const();
                let (file, direct) = self.begin_move((at, rest_bytes, offset), objects, io);
                (FaultPoint::ObjectWrite, Op::Write { file, at, write_bytes, offset, direct })
            }
            JobKind::Truncate { size_bytes, .. } => {
                (FaultPoint::ObjectTruncate, Op::Truncate { file: buffered, size_bytes })
            }
            JobKind::Allocate { offset, range_bytes, mode, .. } => (
                FaultPoint::ObjectAllocate,
                Op::Allocate { file: buffered, offset, range_bytes, mode },
            ),
            JobKind::GiveBack { .. }
            | JobKind::Sync { .. }
            | JobKind::Stat { .. }
            | JobKind::Seek { .. }
            | JobKind::Remove { .. } => {
                panic!("{:?} moves no bytes", self.kind)
            }
        }
    }
}
