//! What is mounted where, from `/proc/self/mountinfo`, and taking it away again.
//!
//! Nothing here looks into a mount: a file system whose server is away would not answer.

use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// The file system type lanefs mounts show.
pub(crate) const TYPE: &str = "fuse.lanefs";

/// One mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mounted {
    /// Where.
    pub(crate) point: PathBuf,
    /// `MAJOR:MINOR`, decimal.
    pub(crate) device: String,
    /// Its type.
    pub(crate) fs_type: String,
    /// Its options, and those of its file system.
    pub(crate) options: String,
}

impl Mounted {
    /// Whether it is one of ours.
    pub(crate) fn is_lanefs(&self) -> bool {
        self.fs_type == TYPE
    }

    /// Whether it is the same mount. Its options may be others now.
    fn is_same(&self, other: &Self) -> bool {
        (&self.point, &self.device, &self.fs_type) == (&other.point, &other.device, &other.fs_type)
    }
}

/// The absolute path of a mount point without asking the file system mounted there: the parent is
/// resolved, the last name is taken as it is.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    let lexical = std::path::absolute(path)?;
    let (Some(parent), Some(name)) = (lexical.parent(), lexical.file_name()) else {
        return Ok(lexical);
    };
    let parent = parent
        .canonicalize()
        .with_context(|| format!("the folder {} of {}", parent.display(), path.display()))?;
    Ok(parent.join(name))
}

/// The topmost mount exactly at `point` (absolute).
pub(crate) fn at(point: &Path) -> Result<Option<Mounted>> {
    let text = std::fs::read("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    let lines = text.split(|byte| *byte == b'\n');
    Ok(lines.filter_map(parse).rfind(|mounted| mounted.point == point))
}

/// `36 35 98:0 /root /point options... - type source options`.
fn parse(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.nth(2)?;
    let point = fields.nth(1)?;
    let of_mount = fields.next()?;
    let mut behind = fields.skip_while(|field| *field != b"-");
    let fs_type = behind.nth(1)?;
    let of_fs = behind.nth(1)?;
    let text = |field| String::from_utf8_lossy(field);
    Some(Mounted {
        point: PathBuf::from(OsString::from_vec(unescape(point))),
        device: text(device).into_owned(),
        fs_type: text(fs_type).into_owned(),
        options: [text(of_mount), text(of_fs)].join(","),
    })
}

/// Space, tab, newline and backslash stand there as `\` and three octal digits.
pub(crate) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let octal = behind.get(..3).filter(|_| *first == b'\\').and_then(from_octal);
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = &behind[3..];
            }
            None => {
                out.push(*first);
                rest = behind;
            }
        }
    }
    out
}

fn from_octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

/// A mount that this process serves. Somebody may have unmounted it, and may have mounted another
/// one at its place.
#[derive(Debug)]
pub(crate) struct Served {
    dir: PathBuf,
    device: OwnedFd,
    mounted: Option<Mounted>,
}

impl Served {
    /// What was mounted on `dir` just now, with the device that its requests come from. Where that
    /// cannot be looked at it is taken away again, since nobody would serve it.
    pub(crate) fn new(dir: &Path, device: &OwnedFd) -> Result<Self> {
        let served = Self::look(dir, device);
        if served.is_err() {
            detach(dir)?;
        }
        served
    }

    fn look(dir: &Path, device: &OwnedFd) -> Result<Self> {
        let device = device.try_clone().context("cannot keep the mount's device")?;
        Ok(Self { dir: dir.to_owned(), device, mounted: at(dir)? })
    }

    /// Where.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether what is mounted there is this.
    pub(crate) fn is_there(&self) -> Result<bool> {
        // A number is given again when its mount is no more.
        let exists = ring::is_connected(&self.device).context("cannot ask the mount's device")?;
        let Some(ours) = &self.mounted else { return Ok(false) };
        Ok(exists && at(&self.dir)?.is_some_and(|there| there.is_same(ours)))
    }

    /// Takes away what may be left of it after a failure.
    pub(crate) fn clear(&self) -> Result<()> {
        if self.is_there()? {
            detach(&self.dir)?;
        }
        Ok(())
    }
}

/// Outcome of [`take_away`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TakenAway {
    /// Nothing is mounted there any more.
    Gone,
    /// Somebody uses it.
    Busy,
}

/// Unmounts what is at `point`.
pub(crate) fn take_away(point: &Path) -> Result<TakenAway> {
    match ring::unmount(point, false) {
        Ok(()) => Ok(TakenAway::Gone),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(TakenAway::Busy),
        Err(error) => Err(error).with_context(|| format!("cannot unmount {}", point.display())),
    }
}

/// Takes `point` out of the tree at once; who uses it keeps it until it lets go.
pub(crate) fn detach(point: &Path) -> Result<()> {
    ring::unmount(point, true).with_context(|| format!("cannot detach {}", point.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_read() {
        let line = br"36 35 0:98 / /a\040b\134c rw,nosuid shared:1 - fuse.lanefs lanefs rw";
        let mounted = parse(line).unwrap();
        assert_eq!(mounted.point, Path::new(r"/a b\c"));
        assert_eq!(mounted.device, "0:98");
        assert!(mounted.is_lanefs());
        assert_eq!(mounted.options, "rw,nosuid,rw");
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(at(Path::new("/")).unwrap().is_some());
        assert!(at(Path::new("/proc/self")).unwrap().is_none());
    }

    #[test]
    fn a_broken_line_is_no_mount() {
        assert_eq!(parse(b"36 35 0:98 /"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn a_backslash_without_digits_stays() {
        assert_eq!(unescape(br"a\zz\04"), br"a\zz\04");
    }
}
