//! What is mounted where, from `mountinfo`.
//!
//! No function accesses a mount: a file system whose server is away would block. Paths are
//! bytes, because one mount point that is not UTF-8 must not hide the others.

use crate::mount_namespaces::OtherNamespaces;
use crate::mount_options::FS_TYPE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// One mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mounted {
    /// The mount point.
    pub point: PathBuf,
    /// `MAJOR:MINOR`, decimal.
    pub device: String,
    /// Its type.
    pub fs_type: String,
    /// Its options, and those of its file system.
    pub options: String,
}

impl Mounted {
    /// Whether it is one of ours.
    #[must_use]
    pub fn is_lanefs(&self) -> bool {
        self.fs_type == FS_TYPE
    }
}

/// The mounts that a process sees, in the order they were mounted; of the caller without an id.
///
/// # Errors
/// When `/proc` is not there, or no such process.
pub fn mount_table(pid: Option<u32>) -> io::Result<Vec<Mounted>> {
    let process = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let text = std::fs::read(format!("/proc/{process}/mountinfo"))?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse).collect())
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

/// Whether anything is mounted on directories of one mount, as far as this process may see.
pub(crate) struct MountsBelow {
    /// What is looked at; `None`: nothing can be mounted there.
    seen: Option<Seen>,
}

struct Seen {
    /// The table of this process.
    table: File,
    /// The mount's `MAJOR:MINOR`.
    device_number: String,
    any: bool,
    others: OtherNamespaces,
}

impl MountsBelow {
    /// Of the mount with this `MAJOR:MINOR`; without it there are none.
    pub(crate) fn of(device_number: Option<String>) -> io::Result<Self> {
        let Some(device_number) = device_number else { return Ok(Self { seen: None }) };
        let table = File::open("/proc/self/mountinfo")?;
        let others = OtherNamespaces::of(&device_number)?;
        let mut seen = Seen { table, device_number, any: false, others };
        seen.read()?;
        Ok(Self { seen: Some(seen) })
    }

    /// Whether there are any now. The table of this process is read again only when it has changed,
    /// those of others are listed each time.
    pub(crate) fn is_any(&mut self) -> bool {
        let Some(seen) = &mut self.seen else { return false };
        // Unknown: nothing is detached.
        seen.is_any_here().unwrap_or(true) || seen.others.have_mounts_below().unwrap_or(true)
    }
}

impl Seen {
    fn is_any_here(&mut self) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.table, PollFlags::PRI)];
        let changed = poll(&mut polled, Some(&Timespec::default())).map(|count| count > 0);
        if changed != Ok(false) {
            self.read()?;
        }
        Ok(self.any)
    }

    fn read(&mut self) -> io::Result<()> {
        let mut text = Vec::new();
        self.table.rewind()?;
        self.table.read_to_end(&mut text)?;
        self.any = has_mounts_below(&text, self.device_number.as_bytes());
        Ok(())
    }
}

fn has_mounts_below(table: &[u8], device_number: &[u8]) -> bool {
    let mounts = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        Some((fields.next()?, fields.next()?, fields.next()?))
    });
    let mounts: Vec<_> = mounts.collect();
    let ours = mounts.iter().filter(|(_, _, device)| *device == device_number);
    let ours: Vec<&[u8]> = ours.map(|(id, _, _)| *id).collect();
    mounts.iter().any(|(_, parent, _)| ours.contains(parent))
}

/// A path of a table in `/proc`: space, tab, newline and backslash stand there as `\` and three
/// octal digits.
#[must_use]
pub fn unescape(text: &[u8]) -> Vec<u8> {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    #[test]
    fn a_line_of_mountinfo_is_read() {
        let line = br"36 35 0:98 / /a\040b\134c rw,nosuid shared:1 - fuse.lanefs lanefs rw";
        let mounted = parse(line).unwrap();
        assert_eq!(mounted.point, Path::new(r"/a b\c"));
        assert_eq!(mounted.device, "0:98");
        assert!(mounted.is_lanefs());
        assert_eq!(mounted.options, "rw,nosuid,rw");
        let mounted = parse(b"36 35 0:98 / /no\xfftext rw - tmpfs none rw").unwrap();
        assert_eq!(mounted.point, Path::new(OsStr::from_bytes(b"/no\xfftext")));
    }

    #[test]
    fn the_root_is_mounted() {
        let point = |table: &[Mounted], point: &str| {
            table.iter().any(|mounted| mounted.point == Path::new(point))
        };
        let table = mount_table(None).unwrap();
        assert!(point(&table, "/") && !point(&table, "/proc/self"));
        assert!(point(&mount_table(Some(std::process::id())).unwrap(), "/"));
    }

    #[test]
    fn a_mount_on_a_directory_of_another_is_found() {
        let ours = b"36 35 0:98 / /mnt rw - fuse.lanefs host rw\n\
            37 35 0:99 / /mnt2 rw - fuse.lanefs host rw\n";
        assert!(!has_mounts_below(ours, b"0:98"));
        let mut bound = ours.to_vec();
        bound.extend(b"38 36 8:1 /srv /mnt/a rw - ext4 /dev/sda1 rw\n");
        assert!(has_mounts_below(&bound, b"0:98"));
        assert!(!has_mounts_below(&bound, b"0:99"));
        let mut below = MountsBelow::of(Some("0:0".to_owned())).unwrap();
        assert!(!below.is_any());
    }

    #[test]
    fn a_broken_line_is_no_mount() {
        assert_eq!(parse(b"36 35 0:98 /"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn a_backslash_without_digits_stays() {
        assert_eq!(unescape(br"a\b\07"), br"a\b\07");
    }
}
