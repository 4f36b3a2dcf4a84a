//! A program that uses a mount: one thread, one operation at a time.

use super::op::Op;
use crate::load::Tally;
use crate::plan::Options;
use anyhow::{Context as _, Result, ensure};
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, StatxFlags, Timespec, Timestamps, UTIME_OMIT, Uid, fchmod, fchown,
    fsync, futimens, open, openat, statx, unlinkat,
};
use rustix::io::{pread, pwrite};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a caller's file, in which random reads and writes go.
const FILE_BYTES: u64 = 16 << 20;
const PIECE_BYTES: u64 = 1 << 20;
const PAGE_BYTES: usize = 4096;
/// Files that are made at a time for unlinks.
const PREPARED_COUNT: u64 = 64;

/// Every file has a name of its own.
static NAME_COUNT: AtomicU64 = AtomicU64::new(0);

fn file_bytes(options: &Options) -> u64 {
    options.file_bytes(FILE_BYTES)
}

/// The files of callers.
pub(super) struct Place;

impl Place {
    /// Makes the file of each caller in a directory.
    pub(super) fn furnish(dir: &Path, caller_count: usize, options: &Options) -> Result<()> {
        let bytes = vec![7; usize::try_from(PIECE_BYTES)?];
        for index in 0..caller_count {
            let file = File::create(dir.join(data_name(index)))?;
            for offset in (0..file_bytes(options)).step_by(bytes.len()) {
                file.write_all_at(&bytes, offset)?;
            }
            file.sync_all()?;
        }
        Ok(())
    }
}

fn data_name(index: usize) -> String {
    format!("data{index}")
}

/// One of them.
pub(super) struct Caller {
    dir: OwnedFd,
    index: usize,
    op: Op,
    /// Its file, opened for the operation.
    file: OwnedFd,
    /// A buffer with an aligned part: the kernel splits unaligned reads and writes.
    buffer: Vec<u8>,
    file_bytes: u64,
    offset: u64,
    /// Names for unlinks.
    prepared: Vec<String>,
    rng: fastrand::Rng,
}

impl Caller {
    pub(super) fn new(dir: &Path, (index, op): (usize, Op), options: &Options) -> Result<Self> {
        let dir = open(dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = match op {
            Op::Write(_) | Op::WriteAt(_) | Op::WriteSync => OFlags::WRONLY,
            Op::Stat
            | Op::OpenClose
            | Op::Create
            | Op::CreateWrite
            | Op::Unpack
            | Op::Unlink
            | Op::Read(_)
            | Op::ReadAt(_) => OFlags::RDONLY,
        };
        let file = openat(&dir, data_name(index), flags | OFlags::CLOEXEC, Mode::empty())
            .context("cannot open the caller's file")?;
        let buffer = vec![7; op.bytes() + PAGE_BYTES];
        let (prepared, rng) = (Vec::new(), fastrand::Rng::with_seed(index as u64));
        let file_bytes = file_bytes(options);
        Ok(Self { dir, index, op, file, buffer, file_bytes, offset: 0, prepared, rng })
    }

    /// Makes what so many operations need.
    pub(super) fn prepare(&mut self, count: u64) -> Result<()> {
        if self.op == Op::Unlink {
            for _ in 0..count {
                let name = self.new_name();
                drop(self.make(&name)?);
                self.prepared.push(name);
            }
        }
        Ok(())
    }

    /// Repeats calls until so much time was spent in them.
    pub(super) fn run(&mut self, duration: Duration, options: &Options) -> Result<Tally> {
        let mut tally = Tally::new()?;
        let mut spent = Duration::ZERO;
        while spent < duration {
            options.interrupt.check()?;
            if self.prepared.is_empty() {
                self.prepare(PREPARED_COUNT)?;
            }
            let began = Instant::now();
            drop(self.call()?);
            let took = began.elapsed();
            spent += took;
            tally.latency.saturating_record(u64::try_from(took.as_nanos())?);
            tally.op_count += 1;
        }
        tally.measured_ns = u64::try_from(spent.as_nanos())?;
        if matches!(self.op, Op::Read(_) | Op::Write(_) | Op::ReadAt(_) | Op::WriteAt(_)) {
            tally.moved_bytes = tally.op_count * u64::try_from(self.op.bytes())?;
        }
        Ok(tally)
    }

    /// One operation. The caller drops the returned file as its last step.
    pub(super) fn call(&mut self) -> Result<Option<OwnedFd>> {
        match self.op {
            Op::Stat => {
                let name = data_name(self.index);
                statx(&self.dir, name, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS)?;
            }
            Op::OpenClose => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                return Ok(Some(openat(&self.dir, data_name(self.index), flags, Mode::empty())?));
            }
            Op::Create => return self.make_new().map(Some),
            Op::CreateWrite => {
                let file = self.make_new()?;
                self.write_to(&file, 0)?;
                return Ok(Some(file));
            }
            Op::Unpack => return self.unpack().map(Some),
            Op::Unlink => {
                let name = self.prepared.pop().context("nothing is left to unlink")?;
                unlinkat(&self.dir, name, AtFlags::empty())?;
            }
            Op::Read(bytes) | Op::ReadAt(bytes) => {
                let offset = self.next_offset();
                let start = self.start();
                let read = pread(&self.file, &mut self.buffer[start..start + bytes], offset)?;
                ensure!(read == bytes, "{read} bytes of {bytes} came");
            }
            Op::Write(_) | Op::WriteAt(_) => {
                let offset = self.next_offset();
                self.write_to(&self.file, offset)?;
            }
            Op::WriteSync => {
                let offset = self.next_offset();
                self.write_to(&self.file, offset)?;
                fsync(&self.file)?;
            }
        }
        Ok(None)
    }

    /// As GNU tar does it as root.
    fn unpack(&self) -> Result<OwnedFd> {
        let file = self.make_new()?;
        self.write_to(&file, 0)?;
        let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let modified = Timespec { tv_sec: 1_700_000_000, tv_nsec: 0 };
        futimens(&file, &Timestamps { last_access: omitted, last_modification: modified })?;
        fchown(&file, Some(Uid::ROOT), Some(Gid::ROOT))?;
        fchmod(&file, Mode::from_raw_mode(0o644))?;
        Ok(file)
    }

    fn make_new(&self) -> Result<OwnedFd> {
        self.make(&self.new_name())
    }

    fn make(&self, name: &str) -> Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(openat(&self.dir, name, flags, Mode::from_raw_mode(0o600))?)
    }

    fn new_name(&self) -> String {
        format!("new{}-{}", self.index, NAME_COUNT.fetch_add(1, Ordering::Relaxed))
    }

    fn write_to(&self, file: &OwnedFd, offset: u64) -> Result<()> {
        let (start, bytes) = (self.start(), self.op.bytes());
        let written = pwrite(file, &self.buffer[start..start + bytes], offset)?;
        ensure!(written == bytes, "{written} bytes of {bytes} were taken");
        Ok(())
    }

    fn start(&self) -> usize {
        self.buffer.as_ptr().align_offset(PAGE_BYTES)
    }

    /// The offset behind the last one, or a random one.
    fn next_offset(&mut self) -> u64 {
        let bytes = self.op.bytes() as u64;
        if matches!(self.op, Op::ReadAt(_) | Op::WriteAt(_)) {
            return self.rng.u64(..self.file_bytes / bytes) * bytes;
        }
        let offset = self.offset;
        self.offset = (offset + bytes) % self.file_bytes;
        offset
    }
}
