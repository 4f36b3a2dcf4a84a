//! The disk under a directory: how long a flush takes, and whether it can be believed.
//!
//! Invariant: what is written has no name (O_TMPFILE), so nothing is left however this process ends.

use super::finding::Finding;
use super::text::time_text;
use anyhow::{Context as _, Result};
use ring::Mounted;
use rustix::fs::{Mode, OFlags, fdatasync, fsync, open};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// As large as a small record of the log.
const WRITE_BYTES: usize = 512;
/// Written once before, as the log does it, so that a flush writes no metadata.
const FILE_BYTES: usize = 64 << 10;
const FLUSH_COUNT_MAX: usize = 60;
/// Fewer flushes than the maximum are made when these take longer.
const FLUSHING_MAX: Duration = Duration::from_secs(2);

/// A median of more than this makes programs that sync feel slow.
const SLOW: Duration = Duration::from_millis(20);
/// A worst one of more than this stops a log for a moment.
const STALL: Duration = Duration::from_secs(1);
/// No device with a volatile cache empties it faster.
const TOO_FAST: Duration = Duration::from_micros(30);

/// How long flushes took, ascending; at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Flushes(Vec<Duration>);

impl Flushes {
    fn median(&self) -> Duration {
        self.0[self.0.len() / 2]
    }

    fn worst(&self) -> Duration {
        self.0[self.0.len() - 1]
    }
}

/// What the kernel says of the file system and the device under it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Device {
    fs_type: String,
    mount_options: String,
    /// Its name in /sys/block, if it is one block device.
    name: Option<String>,
    /// `write back` (it has a volatile cache, which is flushed) or `write through`.
    write_cache: Option<String>,
    /// It can write past its cache.
    has_fua: bool,
}

impl Device {
    /// That under `dir`, an existing directory.
    fn of(dir: &Path, table: &[Mounted]) -> Self {
        let whole = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        let under = table.iter().filter(|mounted| whole.starts_with(&mounted.point));
        // Of equally long ones the last is mounted over the others.
        let mounted = under.max_by_key(|mounted| mounted.point.as_os_str().len());
        let (fs_type, mount_options) = match mounted {
            Some(mounted) => (mounted.fs_type.clone(), mounted.options.clone()),
            None => ("unknown".to_owned(), String::new()),
        };
        let device = Self { fs_type, mount_options, ..Self::default() };
        let Ok(metadata) = whole.metadata() else { return device };
        let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
        device.with_queue(Path::new(&format!("/sys/dev/block/{major}:{minor}")))
    }

    /// Reads the queue of the device at this place in sysfs, or of the whole disk of a partition.
    fn with_queue(mut self, place: &Path) -> Self {
        let Ok(mut place) = place.canonicalize() else { return self };
        if place.join("partition").exists() {
            place.pop();
        }
        let text = |name: &str| {
            let text = fs::read_to_string(place.join("queue").join(name)).ok()?;
            Some(text.trim_end().to_owned())
        };
        self.name = place.file_name().map(|name| name.to_string_lossy().into_owned());
        self.write_cache = text("write_cache");
        self.has_fua = text("fua").is_some_and(|text| text == "1");
        self
    }

    fn is_in_memory(&self) -> bool {
        matches!(self.fs_type.as_str(), "tmpfs" | "ramfs")
    }

    /// An option with which the file system does not flush.
    fn unsafe_option(&self) -> Option<&str> {
        let none = ["nobarrier", "barrier=0", "volatile", "eatmydata"];
        self.mount_options.split(',').find(|option| none.contains(option))
    }
}

/// Flushes in `dir`, and judges that.
pub(super) fn look(dir: &Path, table: &[Mounted]) -> Vec<Finding> {
    let device = Device::of(dir, table);
    match measure(dir) {
        Ok(flushes) => vec![latency(&flushes, &device), honesty(&flushes, &device)],
        Err(error) => vec![
            Finding::note("flush", format!("cannot be measured: {error:#}"))
                .remedy("run it as a user who may write there"),
        ],
    }
}

/// Small writes to a file without a name, each flushed.
fn measure(dir: &Path) -> Result<Flushes> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file =
        File::from(open(dir, flags, Mode::RUSR | Mode::WUSR).context("no file can be made")?);
    file.write_all_at(&vec![0; FILE_BYTES], 0).context("nothing can be written")?;
    fsync(&file).context("a flush fails")?;
    let begin = Instant::now();
    let mut took = Vec::with_capacity(FLUSH_COUNT_MAX);
    for count in 0..FLUSH_COUNT_MAX {
        if begin.elapsed() > FLUSHING_MAX {
            break;
        }
        let file_offset = (count * WRITE_BYTES % FILE_BYTES) as u64;
        let one = Instant::now();
        file.write_all_at(&[0x5a; WRITE_BYTES], file_offset).context("nothing can be written")?;
        fdatasync(&file).context("a flush fails")?;
        took.push(one.elapsed());
    }
    took.sort_unstable();
    Ok(Flushes(took))
}

fn latency(flushes: &Flushes, device: &Device) -> Finding {
    let (median, worst, count) = (flushes.median(), flushes.worst(), flushes.0.len());
    let found = format!(
        "a write of {WRITE_BYTES} bytes and its flush take {} (median of {count}), at worst {}, on {}",
        time_text(median),
        time_text(worst),
        device.fs_type
    );
    let remedy = "every fsync waits for it: use a disk with power-loss protection, or one that others use \
                  less";
    let finding = if median > SLOW || worst > STALL {
        Finding::warning("flush", found, remedy)
    } else {
        Finding::ok("flush", found)
    };
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    finding.value("median_us", us(median)).value("worst_us", us(worst)).value("flush_count", count)
}

/// Whether what was flushed survives a power failure, as far as that can be known here.
fn honesty(flushes: &Flushes, device: &Device) -> Finding {
    const CHECK: &str = "flush-honesty";
    if device.is_in_memory() {
        return Finding::warning(
            CHECK,
            format!(
                "{} keeps files in memory: a restart of the machine loses them",
                device.fs_type
            ),
            "put the store on a disk, unless it is for tests",
        );
    }
    if let Some(option) = device.unsafe_option() {
        return Finding::warning(
            CHECK,
            format!("mounted with {option}: flushes are left out, and a power failure loses data"),
            format!("mount it without {option}"),
        );
    }
    let Device { name: Some(name), write_cache: Some(cache), has_fua, .. } = device else {
        return Finding::note(
            CHECK,
            format!(
                "which device is below {} is not known, nor whether it has a cache",
                device.fs_type
            ),
        );
    };
    let fua = if *has_fua { ", it can write past it" } else { "" };
    let unknown =
        "; what a hypervisor or controller below does with flushes cannot be known from here";
    match cache.as_str() {
        "write back" if flushes.median() < TOO_FAST => Finding::warning(
            CHECK,
            format!(
                "{name} says that it has a volatile cache, and flushes it in {}, faster than a device can",
                time_text(flushes.median())
            ),
            "find out whether the host or the controller ignores flushes (cache=unsafe of QEMU, for one)",
        ),
        "write back" => Finding::ok(
            CHECK,
            format!("{name} has a volatile cache, which the kernel flushes{fua}{unknown}"),
        ),
        _ => Finding::note(
            CHECK,
            format!(
                "{name} says that it has no volatile cache ({cache}), so the kernel sends it no flushes{unknown}"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::doctor::finding::Severity;

    fn flushes(us: &[u64]) -> Flushes {
        Flushes(us.iter().map(|us| Duration::from_micros(*us)).collect())
    }

    fn disk(write_cache: &str) -> Device {
        Device {
            fs_type: "ext4".to_owned(),
            mount_options: "rw,relatime".to_owned(),
            name: Some("sda".to_owned()),
            write_cache: Some(write_cache.to_owned()),
            has_fua: true,
        }
    }

    #[test]
    fn a_slow_flush_and_a_long_pause_are_named() {
        let usual = latency(&flushes(&[200, 300, 9000]), &disk("write back"));
        assert_eq!(usual.severity, Severity::Ok);
        assert!(usual.found.contains("300 us (median of 3), at worst 9.0 ms, on ext4"), "{usual}");
        let slow = latency(&flushes(&[30_000]), &disk("write back"));
        assert_eq!(slow.severity, Severity::Warning);
        let stalled = latency(&flushes(&[200, 200, 1_500_000]), &disk("write back"));
        assert_eq!(stalled.severity, Severity::Warning);
    }

    #[test]
    fn a_flush_that_is_too_fast_for_the_cache_is_doubted() {
        let doubted = honesty(&flushes(&[8]), &disk("write back"));
        assert_eq!(doubted.severity, Severity::Warning);
        assert!(doubted.found.contains("8 us, faster than a device can"), "{doubted}");
        assert_eq!(honesty(&flushes(&[400]), &disk("write back")).severity, Severity::Ok);
        // Nothing is flushed there, so its speed says nothing.
        let through = honesty(&flushes(&[8]), &disk("write through"));
        assert_eq!(through.severity, Severity::Note);
        assert!(through.found.contains("cannot be known"), "{through}");
    }

    #[test]
    fn what_keeps_nothing_over_a_power_failure_is_named() {
        let memory = Device { fs_type: "tmpfs".to_owned(), ..Device::default() };
        assert_eq!(honesty(&flushes(&[2]), &memory).severity, Severity::Warning);
        let bare = Device { mount_options: "rw,nobarrier".to_owned(), ..disk("write back") };
        let finding = honesty(&flushes(&[400]), &bare);
        assert!(finding.severity == Severity::Warning && finding.found.contains("nobarrier"));
        let unknown = Device { fs_type: "btrfs".to_owned(), ..Device::default() };
        assert_eq!(honesty(&flushes(&[400]), &unknown).severity, Severity::Note);
    }

    #[test]
    fn a_partition_has_the_queue_of_its_disk() {
        let sys = tempfile::tempdir().unwrap();
        let queue = sys.path().join("sda/queue");
        let partition = sys.path().join("sda/sda1");
        fs::create_dir_all(&queue).unwrap();
        fs::create_dir_all(&partition).unwrap();
        fs::write(partition.join("partition"), "1\n").unwrap();
        fs::write(queue.join("write_cache"), "write back\n").unwrap();
        fs::write(queue.join("fua"), "1\n").unwrap();
        let found = Device::default().with_queue(&partition);
        assert_eq!(found.name.as_deref(), Some("sda"));
        assert_eq!((found.write_cache.as_deref(), found.has_fua), (Some("write back"), true));
        assert_eq!(Device::default().with_queue(&sys.path().join("none")), Device::default());
    }

    #[test]
    fn the_file_system_is_that_of_the_deepest_mount() {
        let dir = tempfile::tempdir().unwrap();
        let mounted = |point: &Path, fs_type: &str| Mounted {
            point: point.to_owned(),
            device: "1:1".to_owned(),
            fs_type: fs_type.to_owned(),
            options: "rw".to_owned(),
        };
        let here = dir.path().canonicalize().unwrap();
        let table =
            [mounted(Path::new("/"), "ext4"), mounted(&here, "xfs"), mounted(&here, "btrfs")];
        assert_eq!(Device::of(&here, &table).fs_type, "btrfs");
        assert_eq!(Device::of(&here, &table[..1]).fs_type, "ext4");
    }

    #[test]
    fn a_measurement_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let flushes = measure(dir.path()).unwrap();
        assert!(flushes.median() <= flushes.worst());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
