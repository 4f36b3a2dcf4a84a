//! What is mounted where, from `mountinfo`.
//!
//! No function accesses a mount: a file system whose server is away would block. Paths are
//! bytes, because one mount point that is not UTF-8 must not hide the others.

use crate::mount_options::FS_TYPE;
use std::ffi::OsString;
use std::io;
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
    fn a_broken_line_is_no_mount() {
        assert_eq!(parse(b"36 35 0:98 /"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn a_backslash_without_digits_stays() {
        assert_eq!(unescape(br"a\b\07"), br"a\b\07");
    }
}
