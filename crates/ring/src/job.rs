//! One operation on one object, as a state machine; each completion moves it one step.
//!
//! ```text
//! need a file: Open ─ENOENT─▶ (reads: absent) or Create ─ENOENT─▶ MakeDir ×2 ─▶ Create
//!              if objects are also read past the page cache: ─▶ OpenDirect
//! read, write: Move, again while short          truncate, allocate: Move      seek, stat: at once
//! allocate, refused: Shorten ─▶ Punch, hole by hole
//! remove, where one sync makes many names durable: Unlink ─▶ Follow ─▶ (the first of the waiting)
//!              OpenDir ─▶ SyncDir, and all of them are done
//! part of a list: as a read, into the list's buffer (`lists`)
//! page cache only: query ─▶ Move ─EAGAIN─▶ done, nothing read; checksums ─▶ Move, from the disk
//! large read that is in the page cache: done, the bulk is a range of the file
//! sync:        Sync ─▶ (name durable? done) ─▶ for the directory and, once each, its parents:
//!              OpenDir ─▶ SyncDir              remove: Unlink ─▶ the same
//! ```
//! Invariant: path, buffer and descriptor of an operation belong to the job until it is dropped,
//! which happens only after its last completion.

use crate::allocate::{GiveBack, has_space, takes_space};
use crate::driver::{Kind, Op, Token, owned};
use crate::fault::FaultPoint;
use crate::io_context::IoContext;
use crate::number::{errno_of, u32_of, u64_of};
use crate::objects::{FileState, Objects};
use crate::path::ObjectPath;
use crate::sums::Chunk;
mod give_back;
mod kind;
mod moves;
mod query;

use interface::{BufId, Bulk, Errno, Event, NO_MAC, ObjectEvent};
pub(crate) use kind::JobKind;
use query::{seek_in, stat_of};
use rustix::fs::ftruncate;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

const INTERRUPTED: Errno = Errno(4);
const NOT_FOUND: Errno = Errno(2);
const NOT_PERMITTED: Errno = Errno(1);
const IO: Errno = Errno(5);
const EXISTS: Errno = Errno(17);
const NO_SPACE: Errno = Errno(28);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Begin,
    Open,
    Create,
    /// Opens the same file once more, past the page cache.
    OpenDirect,
    /// 0: the shard's directory; 1: the one in it.
    MakeDir(u8),
    Move,
    /// Frees what an allocation has taken: the former size, then hole by hole.
    Shorten,
    Punch,
    Sync,
    Unlink,
    /// Waits for another job's sync, or to become the job that syncs.
    Follow,
    /// 2: the object's directory; 1: the shard's; 0: the store.
    OpenDir(u8),
    SyncDir(u8),
}

/// An operation on an object.
pub(crate) struct Job {
    pub(crate) kind: JobKind,
    pub(crate) object_index: u32,
    step: Step,
    path: ObjectPath,
    /// The directory part of the path, while a directory is made or opened.
    dir_path: [u8; 48],
    dir: Option<OwnedFd>,
    /// The object's file, while it is opened a second time.
    opened: Option<OwnedFd>,
    buf: Option<BufId>,
    moved_bytes: usize,
    /// The chunk being read, of a checksum job.
    chunk: Option<Chunk>,
    /// Reads only from the page cache.
    cached: bool,
    /// The page cache lacked part of it.
    missed: bool,
    /// What is to be freed, and the hole that is being freed.
    give_back: Option<GiveBack>,
    hole: Range<u64>,
    /// Of an allocation: the file's size before it, and its error, if it failed.
    before_bytes: u64,
    refused: Option<Errno>,
    /// It syncs the directory for all earlier removals.
    pub(crate) leads: bool,
    /// The result of that sync.
    pub(crate) synced: Option<Result<(), Errno>>,
}

impl Job {
    pub(crate) const fn new(kind: JobKind, object_index: u32, path: ObjectPath) -> Self {
        Self {
            kind,
            object_index,
            step: Step::Begin,
            path,
            dir_path: [0; 48],
            dir: None,
            opened: None,
            buf: None,
            moved_bytes: 0,
            chunk: None,
            cached: kind.asks_cache(),
            missed: false,
            give_back: None,
            hole: 0..0,
            before_bytes: 0,
            refused: None,
            leads: false,
            synced: None,
        }
    }

    /// Processes the completion of the last step, if any, and starts the next. Returns whether the
    /// job is done; its event was pushed.
    pub(crate) fn step(
        &mut self,
        index: u32,
        result: Option<Result<u32, Errno>>,
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> bool {
        let token = Token::new(Kind::Job, index);
        if result.is_some() {
            self.end_move(objects);
        }
        let outcome = match result {
            None => Ok(0),
            Some(Err(INTERRUPTED)) if self.step != Step::Begin => {
                return self.again(token, objects, io);
            }
            Some(result) => result,
        };
        match self.step {
            Step::Begin => self.begin(token, objects, io),
            Step::Open | Step::Create => self.on_open(outcome, token, objects, io),
            Step::OpenDirect => self.on_open_direct(outcome, token, objects, io),
            Step::MakeDir(level) => match outcome {
                Ok(_) | Err(EXISTS) if level == 0 => self.go(Step::MakeDir(1), token, objects, io),
                Ok(_) | Err(EXISTS) => self.go(Step::Create, token, objects, io),
                Err(errno) => self.not_made(errno, token, objects, io),
            },
            Step::Move => self.on_moved(outcome, token, objects, io),
            Step::Shorten | Step::Punch => match outcome {
                Ok(_) => self.punch_next(token, objects, io),
                Err(errno) => self.end_give_back(Err(errno), objects, io),
            },
            Step::Sync => match outcome {
                Ok(_) if objects.names_follow_files => self.done(io),
                Ok(_) if objects.slot(self.object_index).entry_durable => self.done(io),
                Ok(_) => self.go(Step::OpenDir(2), token, objects, io),
                Err(errno) => self.fail(errno, objects, io),
            },
            Step::Unlink => match outcome {
                Ok(_) | Err(NOT_FOUND) if objects.names_follow_files => {
                    self.step = Step::Follow;
                    self.leads = objects.join_removals(index);
                    self.leads && self.go(Step::OpenDir(2), token, objects, io)
                }
                Ok(_) | Err(NOT_FOUND) => self.go(Step::OpenDir(2), token, objects, io),
                Err(errno) => self.fail(errno, objects, io),
            },
            Step::Follow if result.is_none() => {
                self.leads = true;
                self.go(Step::OpenDir(2), token, objects, io)
            }
            Step::Follow => match outcome {
                Ok(_) => self.done(io),
                Err(errno) => self.fail(errno, objects, io),
            },
            Step::OpenDir(level) => self.on_dir(outcome, level, token, objects, io),
            Step::SyncDir(level) => self.on_dir_synced(outcome, level, token, objects, io),
        }
    }

    fn begin(&mut self, token: Token, objects: &mut Objects, io: &mut IoContext) -> bool {
        if let JobKind::Remove { .. } = self.kind {
            // Closed first: then the kernel frees the blocks in the unlink, off this thread.
            objects.slot(self.object_index).file.count_close(io);
            objects.slot(self.object_index).file = FileState::Unknown;
            objects.slot(self.object_index).entry_durable = false;
            return self.go(Step::Unlink, token, objects, io);
        }
        match objects.slot(self.object_index).file {
            FileState::Open { .. } => self.work(token, objects, io),
            FileState::Unknown | FileState::Opening => {
                objects.slot(self.object_index).file = FileState::Opening;
                // An object that is not open and written from its beginning is usually new.
                let is_new = matches!(
                    self.kind,
                    JobKind::Write { offset: 0, .. } | JobKind::Stat { may_make: true, .. }
                );
                let step = if is_new { Step::Create } else { Step::Open };
                self.go(step, token, objects, io)
            }
        }
    }

    fn on_open(
        &mut self,
        outcome: Result<u32, Errno>,
        token: Token,
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> bool {
        match outcome {
            Ok(file) => {
                self.opened = Some(owned(file));
                if objects.direct {
                    return self.go(Step::OpenDirect, token, objects, io);
                }
                self.on_open_direct(Err(NOT_FOUND), token, objects, io)
            }
            // The file belongs to another user.
            Err(NOT_PERMITTED) if objects.access_flag != 0 => {
                objects.access_flag = 0;
                self.again(token, objects, io)
            }
            Err(NOT_FOUND) if self.kind.creates() && self.step == Step::Open => {
                self.go(Step::Create, token, objects, io)
            }
            // The directories are missing; they are made once.
            Err(NOT_FOUND) if self.kind.creates() && self.dir_path[0] == 0 => {
                self.go(Step::MakeDir(0), token, objects, io)
            }
            Err(NOT_FOUND) if !self.kind.creates() => self.absent(objects, io),
            Err(errno) => self.not_made(errno, token, objects, io),
        }
    }

    /// The file is open, and possibly a second time; without the second all I/O uses the page
    /// cache.
    fn on_open_direct(
        &mut self,
        outcome: Result<u32, Errno>,
        token: Token,
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> bool {
        let Some(file) = self.opened.take() else { panic!("it was opened before") };
        let (file, direct) = (Arc::new(file), outcome.ok().map(owned));
        objects.slot(self.object_index).file = FileState::Open { file, direct };
        self.work(token, objects, io)
    }

    /// The file is open.
    fn work(&mut self, token: Token, objects: &mut Objects, io: &mut IoContext) -> bool {
        match self.kind {
            JobKind::Read { offset, read_bytes, .. } => {
                let space_bytes = read_bytes as usize;
                if self.lacks((offset, space_bytes), objects, io) {
                    return self.on_missed(token, objects, io);
                }
                if !io.pool.has_space(space_bytes) {
                    self.step = Step::Begin;
                    objects.starve(token.index);
                    return false;
                }
                self.buf = self.take_file_range(offset, space_bytes, objects, io);
                if self.buf.is_some() {
                    return self.done(io);
                }
                self.buf = io.pool.take(space_bytes);
                self.go(Step::Move, token, objects, io)
            }
            JobKind::Part { part, offset, read_bytes, .. } => {
                if self.lacks((offset, read_bytes as usize), objects, io) {
                    return self.on_missed(token, objects, io);
                }
                if io.list_buf(part).is_none() {
                    self.step = Step::Begin;
                    objects.starve(token.index);
                    return false;
                }
                self.go(Step::Move, token, objects, io)
            }
            JobKind::Sum { sums, .. } => {
                let space_bytes = io.sum_jobs.read_bytes_max(sums);
                if !io.pool.has_space(space_bytes) {
                    self.step = Step::Begin;
                    objects.starve(token.index);
                    return false;
                }
                self.buf = io.pool.take(space_bytes);
                self.chunk = io.sum_jobs.next(sums);
                self.read_chunk(token, objects, io)
            }
            JobKind::Write { offset, bulk, .. } => {
                let end = offset.saturating_add(u64::from(bulk.bulk_bytes));
                self.load_file_ranges(offset..end, objects, io);
                self.go(Step::Move, token, objects, io)
            }
            JobKind::Truncate { size_bytes, .. } if !io.driver.truncates() => {
                self.load_file_ranges(size_bytes..u64::MAX, objects, io);
                io.counters.syscall_count += 1;
                let result =
                    borrowed(objects, self.object_index, |file| ftruncate(file, size_bytes));
                match result {
                    Ok(()) => self.done(io),
                    Err(errno) => self.fail(errno, objects, io),
                }
            }
            JobKind::Truncate { size_bytes, .. } => {
                self.load_file_ranges(size_bytes..u64::MAX, objects, io);
                self.go(Step::Move, token, objects, io)
            }
            JobKind::Allocate { offset, range_bytes, mode, .. } => {
                if takes_space(mode) && !self.finds_space(range_bytes, objects, io) {
                    return self.fail(NO_SPACE, objects, io);
                }
                self.load_file_ranges(offset..offset.saturating_add(range_bytes), objects, io);
                self.go(Step::Move, token, objects, io)
            }
            JobKind::GiveBack { offset, range_bytes, size_bytes, .. } => {
                let range = offset..offset.saturating_add(range_bytes);
                self.load_file_ranges(range.clone(), objects, io);
                self.give_back = Some(GiveBack::new(range, size_bytes));
                self.shorten(token, objects, io)
            }
            JobKind::Seek { ticket, offset, hole } => {
                io.counters.syscall_count += 1;
                let seek_at = |file: BorrowedFd<'_>| seek_in(file, offset, hole);
                let result = borrowed(objects, self.object_index, seek_at);
                io.events.push(Event::Object(ObjectEvent::Sought { ticket, result }));
                true
            }
            JobKind::Sync { .. } => self.go(Step::Sync, token, objects, io),
            JobKind::Stat { ticket, .. } => {
                io.counters.syscall_count += 1;
                let result = borrowed(objects, self.object_index, stat_of);
                let result = result.map(Some);
                io.events.push(Event::Object(ObjectEvent::Stat { ticket, result }));
                true
            }
            JobKind::Remove { .. } => self.go(Step::Unlink, token, objects, io),
        }
    }

    /// Whether the unallocated part of a range may fit the free space; also reads the file's size.
    fn finds_space(&mut self, range_bytes: u64, objects: &mut Objects, io: &mut IoContext) -> bool {
        io.counters.syscall_count += 2;
        let found = borrowed(objects, self.object_index, |file| {
            let found = stat_of(file)?;
            Ok((found, has_space(file, range_bytes.saturating_sub(found.allocated_bytes))?))
        });
        // If the kernel cannot tell, the allocation is tried.
        let Ok((found, has_space)) = found else { return true };
        self.before_bytes = found.size_bytes;
        has_space
    }

    /// Loads file ranges of buffers that overlap the part of the file that is about to change.
    fn load_file_ranges(&self, touched: Range<u64>, objects: &mut Objects, io: &mut IoContext) {
        let object = objects.slot(self.object_index).object;
        io.counters.syscall_count += u64_of(io.pool.load(object, &touched));
    }

    fn on_dir(
        &mut self,
        outcome: Result<u32, Errno>,
        level: u8,
        token: Token,
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> bool {
        match outcome {
            Ok(dir) => {
                io.counters.syscall_count += 1; // Its close.
                self.dir = Some(owned(dir));
                self.go(Step::SyncDir(level), token, objects, io)
            }
            // The object never existed, so there is nothing to make durable.
            Err(NOT_FOUND) if matches!(self.kind, JobKind::Remove { .. }) => self.done(io),
            Err(errno) => self.fail(errno, objects, io),
        }
    }

    fn on_dir_synced(
        &mut self,
        outcome: Result<u32, Errno>,
        level: u8,
        token: Token,
        objects: &mut Objects,
        io: &mut IoContext,
    ) -> bool {
        self.synced = Some(outcome.map(|_| ()));
        if let Err(errno) = outcome {
            return self.fail(errno, objects, io);
        }
        if matches!(self.kind, JobKind::Remove { .. }) {
            return self.done(io);
        }
        let known = objects.durable_dirs.contains(&self.path.dirs);
        if level > 0 && !known {
            return self.go(Step::OpenDir(level - 1), token, objects, io);
        }
        objects.durable_dirs.insert(self.path.dirs);
        objects.slot(self.object_index).entry_durable = true;
        self.done(io)
    }

    /// Repeats a step that a signal interrupted.
    fn again(&mut self, token: Token, objects: &mut Objects, io: &mut IoContext) -> bool {
        self.go(self.step, token, objects, io)
    }

    /// Starts a step.
    fn go(&mut self, step: Step, token: Token, objects: &mut Objects, io: &mut IoContext) -> bool {
        self.step = step;
        let file = objects.raw(self.object_index);
        let store = objects.dir.as_raw_fd();
        let path = self.path.bytes.as_ptr().cast();
        let (point, op) = match step {
            Step::Begin => return self.begin(token, objects, io),
            Step::Shorten => {
                let size_bytes = self.former_bytes();
                (FaultPoint::ObjectTruncate, Op::Truncate { file, size_bytes })
            }
            Step::Punch => {
                let Range { start: offset, end } = self.hole;
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                let range_bytes = end - offset;
                (FaultPoint::ObjectAllocate, Op::Allocate { file, offset, range_bytes, mode })
            }
            Step::Follow => return false,
            Step::Open => {
                let flags = libc::O_RDWR | objects.access_flag;
                (FaultPoint::ObjectOpen, Op::Open { dir: store, path, flags })
            }
            Step::Create => {
                let flags = libc::O_RDWR | libc::O_CREAT | objects.access_flag;
                (FaultPoint::ObjectOpen, Op::Open { dir: store, path, flags })
            }
            Step::OpenDirect => {
                let flags = libc::O_RDWR | libc::O_DIRECT | objects.access_flag;
                (FaultPoint::ObjectOpen, Op::Open { dir: store, path, flags })
            }
            Step::MakeDir(level) => {
                let path = self.dir_path(usize::from(level));
                (FaultPoint::ObjectOpen, Op::MakeDir { dir: store, path })
            }
            Step::Move => self.move_op(objects, io),
            Step::Sync => (FaultPoint::ObjectSync, Op::Sync { file, data_only: true }),
            Step::Unlink => (FaultPoint::ObjectRemove, Op::Remove { dir: store, path }),
            Step::OpenDir(level) => {
                let path = match level {
                    0 => c".".as_ptr(),
                    level => self.dir_path(usize::from(level) - 1),
                };
                let flags = libc::O_RDONLY | libc::O_DIRECTORY;
                (FaultPoint::ObjectSync, Op::Open { dir: store, path, flags })
            }
            Step::SyncDir(_) => {
                let dir = self.dir.as_ref().map_or(-1, AsRawFd::as_raw_fd);
                (FaultPoint::ObjectSync, Op::Sync { file: dir, data_only: false })
            }
        };
        // SAFETY: paths and directory are in the boxed job, which lives until the completion; the
        // buffer is retained; the object and its file stay in their slot while a job runs.
        unsafe { io.queue_or_fail(point, token, op) };
        false
    }

    fn dir_path(&mut self, level: usize) -> *const libc::c_char {
        let end = self.path.dir_ends[level];
        self.dir_path = [0; 48];
        self.dir_path[..end].copy_from_slice(&self.path.bytes[..end]);
        self.dir_path.as_ptr().cast()
    }

    // --- completion ------------------------------------------------------------------------------

    fn done(&mut self, io: &mut IoContext) -> bool {
        let event = match self.kind {
            JobKind::Read { ticket, .. } => {
                Event::Object(ObjectEvent::Read { ticket, result: Ok(self.take_bulk(io)) })
            }
            JobKind::Part { part, read_bytes, .. } => {
                io.end_part(part, read_bytes as usize, Ok(self.moved_bytes));
                return true;
            }
            JobKind::Sum { sums, .. } => {
                if let Some(buf) = self.buf.take() {
                    io.pool.release(buf);
                }
                io.end_sums(sums, Ok(()), self.missed);
                return true;
            }
            JobKind::Write { ticket, offset, bulk, block_bytes } if block_bytes > 0 => {
                io.written_sums((ticket, offset), bulk, block_bytes);
                io.pool.release(bulk.buf);
                return true;
            }
            JobKind::Write { ticket, bulk, .. } => {
                io.pool.release(bulk.buf);
                Event::Object(ObjectEvent::Done { ticket, result: Ok(()) })
            }
            JobKind::Truncate { ticket, .. }
            | JobKind::Allocate { ticket, .. }
            | JobKind::GiveBack { ticket, .. }
            | JobKind::Sync { ticket }
            | JobKind::Remove { ticket } => {
                Event::Object(ObjectEvent::Done { ticket, result: Ok(()) })
            }
            JobKind::Seek { ticket, .. } => {
                Event::Object(ObjectEvent::Sought { ticket, result: Ok(None) })
            }
            JobKind::Stat { ticket, .. } => {
                Event::Object(ObjectEvent::Stat { ticket, result: Ok(None) })
            }
        };
        io.events.push(event);
        true
    }

    fn take_bulk(&mut self, io: &mut IoContext) -> Option<Bulk> {
        let buf = self.buf.take()?;
        if self.moved_bytes == 0 {
            io.pool.release(buf);
            return None;
        }
        let bulk_bytes = u32_of(self.moved_bytes);
        Some(Bulk { buf, start: 0, bulk_bytes, crc32c: None, mac: NO_MAC })
    }

    /// The object does not exist, which is an error only for jobs that create it.
    fn absent(&mut self, objects: &mut Objects, io: &mut IoContext) -> bool {
        objects.slot(self.object_index).file = FileState::Unknown;
        self.done(io)
    }

    fn fail(&mut self, errno: Errno, objects: &mut Objects, io: &mut IoContext) -> bool {
        let slot = objects.slot(self.object_index);
        if matches!(slot.file, FileState::Opening) {
            slot.file = FileState::Unknown;
        }
        if let Some(buf) = self.buf.take() {
            io.pool.release(buf);
        }
        let event = match self.kind {
            JobKind::Read { ticket, .. } => {
                Event::Object(ObjectEvent::Read { ticket, result: Err(errno) })
            }
            JobKind::Part { part, read_bytes, .. } => {
                io.end_part(part, read_bytes as usize, Err(errno));
                return true;
            }
            JobKind::Sum { sums, .. } => {
                io.end_sums(sums, Err(errno), self.missed);
                return true;
            }
            JobKind::Stat { ticket, .. } => {
                Event::Object(ObjectEvent::Stat { ticket, result: Err(errno) })
            }
            JobKind::Seek { ticket, .. } => {
                Event::Object(ObjectEvent::Sought { ticket, result: Err(errno) })
            }
            JobKind::Write { ticket, bulk, block_bytes: 1.., .. } => {
                io.pool.release(bulk.buf);
                Event::Object(ObjectEvent::Written { ticket, result: Err(errno) })
            }
            JobKind::Write { ticket, bulk, .. } => {
                io.pool.release(bulk.buf);
                Event::Object(ObjectEvent::Done { ticket, result: Err(errno) })
            }
            JobKind::Truncate { ticket, .. }
            | JobKind::Allocate { ticket, .. }
            | JobKind::GiveBack { ticket, .. }
            | JobKind::Sync { ticket }
            | JobKind::Remove { ticket } => {
                Event::Object(ObjectEvent::Done { ticket, result: Err(errno) })
            }
        };
        io.events.push(event);
        true
    }
}

fn borrowed<T>(
    objects: &mut Objects,
    index: u32,
    ask: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<T>,
) -> Result<T, Errno> {
    match &objects.slot(index).file {
        FileState::Open { file, .. } => ask(file.as_fd()).map_err(errno_of),
        FileState::Unknown | FileState::Opening => Err(IO),
    }
}
