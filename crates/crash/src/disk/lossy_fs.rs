//! The disk of a run: its process, a loop device on its file, ext4 on that.
//!
//! Invariant: dropping the lossy_fs unmounts and detaches everything in order. If the run itself is
//! killed, the sweep of the next run does it.

use super::image::{Counts, Lost, Tear};
use super::kinds::LostBytes;
use super::server::{IMAGE_NAME, SUBCOMMAND};
use crate::child::{must, until};
use anyhow::{Context as _, Result, bail};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Pid;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Large enough for ext4's journal and the logs' reserve.
const IMAGE_BYTES: usize = 384 << 20;

/// How long a cut waits for a busy moment: a starting server may write nothing.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);

/// A disk with a file system on it.
pub(crate) struct LossyFs {
    process: Child,
    answers: BufReader<ChildStdout>,
    disk_dir: PathBuf,
    loop_device: Option<PathBuf>,
    /// Where the file system is mounted.
    pub(crate) dir: PathBuf,
    mounted: bool,
}

impl LossyFs {
    /// Makes the disk, its loop device and its file system below `folder`.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let disk_dir = folder.join("disk");
        let dir = folder.join("disk-fs");
        fs::create_dir_all(&disk_dir)?;
        fs::create_dir_all(&dir)?;
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        command.arg(SUBCOMMAND).arg(&disk_dir).arg(IMAGE_BYTES.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("cannot start the disk's process")?;
        let stdout = process.stdout.take().context("the disk's process has no stdout")?;
        let answers = BufReader::new(stdout);
        let mut lossy_fs =
            Self { process, answers, disk_dir, loop_device: None, dir, mounted: false };
        if lossy_fs.read_line()? != "ready" {
            bail!("the disk's process did not mount");
        }
        lossy_fs.attach()?;
        let device = lossy_fs.device()?.to_path_buf();
        // No kernel thread initializes anything later.
        let options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        must(Command::new("mkfs.ext4").args(["-q", "-F", "-E", options]).arg(&device))?;
        lossy_fs.mount()?;
        Ok(lossy_fs)
    }

    /// The path of the loop device.
    fn device(&self) -> Result<&Path> {
        self.loop_device.as_deref().context("no loop device is attached")
    }

    fn attach(&mut self) -> Result<()> {
        let image = self.disk_dir.join(IMAGE_NAME);
        let found = must(Command::new("losetup").args(["--find", "--show"]).arg(&image))?;
        self.loop_device = Some(PathBuf::from(found.trim()));
        Ok(())
    }

    fn mount(&mut self) -> Result<()> {
        let device = self.device()?.to_path_buf();
        must(Command::new("mount").args(["-t", "ext4"]).arg(&device).arg(&self.dir))?;
        self.mounted = true;
        Ok(())
    }

    /// Cuts the power: decides what survives; every operation fails from here on.
    pub(crate) fn cut(&mut self, tear: Tear, seed: u64) -> Result<Counts> {
        self.command(&format!("cut {seed} {}", tear_text(tear)))
    }

    /// The same at a flush with at least `bytes_min` bytes to make durable, or after a time limit.
    /// The process `victim`, whose machine it is, is killed first.
    pub(crate) fn cut_busy(
        &mut self,
        tear: Tear,
        seed: u64,
        (bytes_min, victim): (usize, Pid),
    ) -> Result<Counts> {
        let (tear, victim) = (tear_text(tear), victim.as_raw_nonzero());
        self.command(&format!("arm {seed} {tear} {bytes_min} {victim}"))?;
        let deadline = Instant::now() + BUSY_PATIENCE;
        while self.counts()?.is_on && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.command("now")
    }

    /// Cuts the power at the write after which `bytes_min` bytes are not durable.
    pub(crate) fn cut_when_filled(
        &mut self,
        tear: Tear,
        seed: u64,
        bytes_min: usize,
    ) -> Result<()> {
        self.command(&format!("fill {seed} {} {bytes_min}", tear_text(tear))).map(drop)
    }

    /// Every flush takes so long from here on.
    pub(crate) fn slow(&mut self, flush_ms: u64) -> Result<()> {
        self.command(&format!("slow {flush_ms}")).map(drop)
    }

    /// Bytes that the last cut took, by the kind of file. The file system must be mounted again.
    pub(crate) fn lost(&mut self, store: &Path) -> Result<LostBytes> {
        let output = self.exchange("lost")?;
        let mut lost = Vec::new();
        for text in output.split_whitespace() {
            let is_contents = text.ends_with('+');
            let range = text.trim_end_matches('+').split_once('-');
            let (start, end) = range.with_context(|| format!("no range: {text}"))?;
            lost.push(Lost { start: start.parse()?, end: end.parse()?, is_contents });
        }
        LostBytes::count(&lost, store)
    }

    /// Restarts the machine after a cut: memory is lost, and ext4 replays its journal from the
    /// disk. No process may use the file system any more.
    pub(crate) fn reboot(&mut self) -> Result<()> {
        self.take_down()?;
        self.command("heal")?;
        self.attach()?;
        self.mount()
    }

    /// Suspends flushes, or resumes them.
    pub(crate) fn hold(&mut self, holding: bool) -> Result<()> {
        self.command(if holding { "hold" } else { "release" }).map(drop)
    }

    /// Flushes succeed without effect until the next cut.
    pub(crate) fn ignore_flushes(&mut self) -> Result<()> {
        self.command("ignore").map(drop)
    }

    /// The counters of the disk.
    pub(crate) fn counts(&mut self) -> Result<Counts> {
        self.command("counts")
    }

    fn take_down(&mut self) -> Result<()> {
        if self.mounted {
            // The io_uring of a killed process closes its files a little after the process has
            // ended.
            until("the disk's file system is let go of", || {
                match unmount(&self.dir, UnmountFlags::empty()) {
                    Err(Errno::BUSY) => Ok(false),
                    unmounted => unmounted.map(|()| true).context("cannot unmount it"),
                }
            })?;
            self.mounted = false;
        }
        if let Some(device) = self.loop_device.take() {
            detach(&device)?;
        }
        Ok(())
    }

    fn exchange(&mut self, line: &str) -> Result<String> {
        let stdin = self.process.stdin.as_mut().context("the disk's process has no stdin")?;
        writeln!(stdin, "{line}").context("the disk's process has ended")?;
        self.read_line()
    }

    fn command(&mut self, line: &str) -> Result<Counts> {
        let output = self.exchange(line)?;
        let numbers: Vec<u64> =
            output.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [write_count, flush_count, held_count, unflushed_count, lost_bytes, kept_bytes, is_on] =
            numbers[..]
        else {
            bail!("the disk's process replied {output}");
        };
        let is_on = is_on > 0;
        let counts = Counts {
            write_count,
            flush_count,
            held_count,
            unflushed_count,
            lost_bytes,
            kept_bytes,
            is_on,
        };
        Ok(counts)
    }

    fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("the disk's process has ended");
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for LossyFs {
    fn drop(&mut self) {
        if self.take_down().is_err() {
            // A process still uses it: detach it now; the kernel unmounts it after the last close.
            unmount(&self.dir, UnmountFlags::DETACH).ok();
        }
        if let Some(device) = self.loop_device.take() {
            detach(&device).ok();
        }
        // The disk's process ends at the end of its input.
        drop(self.process.stdin.take());
        self.process.wait().ok();
        unmount(&self.disk_dir, UnmountFlags::DETACH).ok();
    }
}

fn tear_text(tear: Tear) -> String {
    match tear {
        Tear::DropAll => "drop".to_owned(),
        Tear::Prefix => "prefix".to_owned(),
        Tear::Sectors(sector_bytes) => sector_bytes.to_string(),
    }
}

/// Loop devices whose file lies below `folder`.
pub(crate) fn loops_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut devices = Vec::new();
    for entry in fs::read_dir("/sys/block")?.flatten() {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(file.trim_end()).starts_with(folder) {
            devices.push(Path::new("/dev").join(entry.file_name()));
        }
    }
    Ok(devices)
}

/// Detaches a loop device from its file, now or when its last user ends.
pub(crate) fn detach(device: &Path) -> Result<()> {
    must(Command::new("losetup").arg("--detach").arg(device)).map(drop)
}
