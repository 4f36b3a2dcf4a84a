//! The disk's process: a FUSE file system with one file, controlled by lines on standard input.
//!
//! ```text
//! cut SEED TEAR        power off: decide what survives; every operation fails from here on
//! arm SEED TEAR BYTES PID  the same at the next flush with so many bytes to make durable. The process
//!                      PID is killed first, so that it never learns of the flush
//! fill SEED TEAR BYTES the same at the write after which so many bytes are not durable; kills nothing
//! now                  perform the armed cut now, unless it has happened
//! heal                 power on
//! lost                 print what the last cut took: START-END, with + for contents of files
//! slow MS              flushes take so long; requests wait meanwhile
//! hold / release       suspend / resume flushes
//! ignore               flushes succeed without effect until the next cut
//! counts               print the counters
//! ```
//! TEAR is drop, prefix or the bytes of a sector. Each line is answered by one line on standard
//! output. Invariant: one request at a time, so an answered flush covers every write answered
//! before it.

use super::image::{Image, Tear};
use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    Request, WriteFlags,
};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// The subcommand of this process.
pub(crate) const SUBCOMMAND: &str = "disk";
/// The one file.
pub(super) const IMAGE_NAME: &str = "image";

const IMAGE_INODE: INodeNo = INodeNo(2);
const TTL: Duration = Duration::from_secs(3600);

/// Shared between the kernel's requests and the control lines.
struct Power {
    image: Image,
    on: bool,
    holding: bool,
    held: Vec<ReplyEmpty>,
    armed: Option<Armed>,
    flush_time: Duration,
}

/// An armed cut.
#[derive(Clone, Copy)]
struct Armed {
    tear: Tear,
    seed: u64,
    bytes_min: usize,
    trigger: Trigger,
}

/// The trigger of an armed cut, once enough bytes are not durable.
#[derive(Clone, Copy)]
enum Trigger {
    /// The flush that would make them durable. This process is killed first.
    Flush(Pid),
    /// The write that completes them.
    Write,
}

impl Power {
    fn cut(&mut self, tear: Tear, seed: u64) {
        self.image.cut(tear, &mut Rng::with_seed(seed));
        self.on = false;
        self.holding = false;
        self.held.drain(..).for_each(|reply| reply.error(Errno::EIO));
    }

    /// Cuts the power if a cut was armed for this moment.
    fn cut_if_due(&mut self, is_flush: bool) {
        let unflushed_bytes = self.image.unflushed_bytes();
        let is_due = |armed: Armed| {
            let waits_for_flush = matches!(armed.trigger, Trigger::Flush(_));
            waits_for_flush == is_flush && unflushed_bytes >= armed.bytes_min
        };
        if self.armed.is_some_and(is_due) {
            self.cut_armed();
        }
    }

    fn cut_armed(&mut self) {
        if let Some(Armed { tear, seed, trigger, .. }) = self.armed.take() {
            if let Trigger::Flush(victim) = trigger {
                // The process may have ended by itself.
                kill_process(victim, Signal::KILL).ok();
            }
            self.cut(tear, seed);
        }
    }

    fn release(&mut self) {
        self.holding = false;
        if !self.held.is_empty() {
            self.image.flush();
        }
        self.held.drain(..).for_each(ReplyEmpty::ok);
    }
}

struct Disk {
    power: Arc<Mutex<Power>>,
}

fn lock(power: &Mutex<Power>) -> MutexGuard<'_, Power> {
    power.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Mounts the disk on `dir` and executes control lines until standard input ends.
pub(crate) fn serve(dir: &Path, image_bytes: usize) -> Result<()> {
    let image = Image::new(image_bytes);
    let power = Power {
        image,
        on: true,
        holding: false,
        held: Vec::new(),
        armed: None,
        flush_time: Duration::ZERO,
    };
    let power = Arc::new(Mutex::new(power));
    let mut config = fuser::Config::default();
    config.mount_options = vec![MountOption::FSName("lanefs-crash-disk".to_owned())];
    let disk = Disk { power: power.clone() };
    let session = fuser::Session::new(disk, dir, &config).context("cannot mount the disk")?;
    let session = session.spawn().context("cannot serve the disk")?;
    answer("ready")?;
    for line in std::io::stdin().lock().lines() {
        let output = run_command(&line?, &mut lock(&power))?;
        answer(&output)?;
    }
    // In use, or unmounted already: it ends with this process either way.
    session.umount_and_join().ok();
    Ok(())
}

fn answer(line: &str) -> Result<()> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}

fn run_command(line: &str, power: &mut Power) -> Result<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["cut", seed, tear] => power.cut(parse_tear(tear)?, seed.parse()?),
        ["arm", seed, tear, bytes_min, victim] => {
            let (seed, bytes_min) = (seed.parse()?, bytes_min.parse()?);
            let victim = Pid::from_raw(victim.parse()?).context("no process")?;
            let trigger = Trigger::Flush(victim);
            power.armed = Some(Armed { tear: parse_tear(tear)?, seed, bytes_min, trigger });
        }
        ["fill", seed, tear, bytes_min] => {
            let (seed, bytes_min) = (seed.parse()?, bytes_min.parse()?);
            let trigger = Trigger::Write;
            power.armed = Some(Armed { tear: parse_tear(tear)?, seed, bytes_min, trigger });
        }
        ["now"] => power.cut_armed(),
        ["heal"] => power.on = true,
        ["lost"] => {
            let lost = power.image.lost().iter().map(|lost| {
                let mark = if lost.is_contents { "+" } else { "" };
                format!("{}-{}{mark}", lost.start, lost.end)
            });
            return Ok(lost.collect::<Vec<_>>().join(" "));
        }
        ["slow", ms] => power.flush_time = Duration::from_millis(ms.parse()?),
        ["hold"] => power.holding = true,
        ["release"] => power.release(),
        ["ignore"] => power.image.ignore_flushes(),
        ["counts"] => {}
        _ => bail!("no such line: {line}"),
    }
    let counts = power.image.counts();
    Ok(format!(
        "{} {} {} {} {} {} {}",
        counts.write_count,
        counts.flush_count,
        power.held.len(),
        counts.unflushed_count,
        counts.lost_bytes,
        counts.kept_bytes,
        u64::from(power.on)
    ))
}

fn parse_tear(text: &str) -> Result<Tear> {
    Ok(match text {
        "drop" => Tear::DropAll,
        "prefix" => Tear::Prefix,
        sector_bytes => Tear::Sectors(sector_bytes.parse()?),
    })
}

fn attr(ino: INodeNo, image_bytes: u64) -> FileAttr {
    let root = ino == INodeNo::ROOT;
    FileAttr {
        ino,
        size: if root { 0 } else { image_bytes },
        blocks: image_bytes / 512,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: if root { FileType::Directory } else { FileType::RegularFile },
        perm: if root { 0o700 } else { 0o600 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn place(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

impl Filesystem for Disk {
    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name != IMAGE_NAME {
            return reply.error(Errno::ENOENT);
        }
        let image_bytes = lock(&self.power).image.image_bytes() as u64;
        reply.entry(&TTL, &attr(IMAGE_INODE, image_bytes), Generation(0));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let image_bytes = lock(&self.power).image.image_bytes() as u64;
        reply.attr(&TTL, &attr(ino, image_bytes));
    }

    /// Without the kernel's cache: every read and write of the loop device comes here.
    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let power = lock(&self.power);
        if power.on {
            reply.data(power.image.read(place(offset), size as usize));
        } else {
            reply.error(Errno::EIO);
        }
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut power = lock(&self.power);
        let written = power.on && power.image.write(place(offset), data);
        power.cut_if_due(false);
        match u32::try_from(data.len()) {
            Ok(written_bytes) if written => reply.written(written_bytes),
            Ok(_) | Err(_) => reply.error(Errno::EIO),
        }
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let flush_time = lock(&self.power).flush_time;
        std::thread::sleep(flush_time);
        let mut power = lock(&self.power);
        power.cut_if_due(true);
        if !power.on {
            return reply.error(Errno::EIO);
        }
        if power.holding {
            power.held.push(reply);
            return;
        }
        power.image.flush();
        reply.ok();
    }

    /// Closing says nothing about durability.
    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }
}
