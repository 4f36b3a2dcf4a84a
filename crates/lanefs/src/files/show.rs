//! Attributes in text form: modes, times, owners, sizes.

use jiff::tz::TimeZone;
use library::{FileKind, Timestamp};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// `-rwxr-xr-x`.
pub(crate) fn mode_text(kind: FileKind, mode: u32) -> String {
    let mut text = String::with_capacity(10);
    text.push(match kind {
        FileKind::Directory => 'd',
        FileKind::File => '-',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    });
    let classes = [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')];
    for (shift, special, symbol) in classes {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => symbol,
            (false, true) => symbol.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// What a kind is called.
pub(crate) const fn kind_text(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Directory => "directory",
        FileKind::File => "regular file",
        FileKind::Symlink => "symbolic link",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "character special file",
        FileKind::BlockDevice => "block special file",
    }
}

/// A device's number as text: major and minor.
pub(crate) fn device_parts(rdev: u32) -> (u32, u32) {
    let rdev = u64::from(rdev);
    (rustix::fs::major(rdev), rustix::fs::minor(rdev))
}

/// A size in powers of 1024 with one symbol, rounded up, as `df -h` has it.
pub(crate) fn human(bytes: u64) -> String {
    let units = ["", "K", "M", "G", "T", "P", "E"];
    let mut unit_bytes = 1_u64;
    let mut unit = units[0];
    for next in &units[1..] {
        if bytes / unit_bytes < 1024 {
            break;
        }
        unit_bytes *= 1024;
        unit = next;
    }
    let tenths = (u128::from(bytes) * 10).div_ceil(u128::from(unit_bytes));
    if unit.is_empty() {
        format!("{bytes}")
    } else if tenths < 100 {
        format!("{}.{}{unit}", tenths / 10, tenths % 10)
    } else {
        format!("{}{unit}", tenths.div_ceil(10))
    }
}

/// A time in the local time zone, in `strftime` words.
pub(crate) fn time_text(time: Timestamp, format: &str) -> String {
    let nanos = i32::try_from(time.nanos).unwrap_or(0);
    match jiff::Timestamp::new(time.secs, nanos) {
        Ok(stamp) => stamp.to_zoned(TimeZone::system()).strftime(format).to_string(),
        Err(_) => format!("@{}", time.secs),
    }
}

/// A name as it may be shown: on a terminal, control characters become `?`.
pub(crate) fn shown(name: &OsStr, terminal: bool) -> Vec<u8> {
    let bytes = name.as_bytes().iter();
    let mask = |byte: &u8| if terminal && byte.is_ascii_control() { b'?' } else { *byte };
    bytes.map(mask).collect()
}

/// Names of users or groups, from this machine's `/etc/passwd` or `/etc/group`.
pub(crate) struct Names(HashMap<u32, String>);

impl Names {
    /// Of users.
    pub(crate) fn users() -> Self {
        Self::read(Path::new("/etc/passwd"))
    }

    /// Of groups.
    pub(crate) fn groups() -> Self {
        Self::read(Path::new("/etc/group"))
    }

    fn read(path: &Path) -> Self {
        let text = std::fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mut names = HashMap::new();
        for line in text.lines() {
            let mut fields = line.split(':');
            let (Some(name), Some(id)) = (fields.next(), fields.nth(1)) else { continue };
            if let Ok(id) = id.parse() {
                names.entry(id).or_insert_with(|| name.to_owned());
            }
        }
        Self(names)
    }

    /// The id of a name.
    pub(crate) fn id(&self, name: &str) -> Option<u32> {
        self.0.iter().find_map(|(id, of)| (of == name).then_some(*id))
    }

    /// The name of an id, or its number.
    pub(crate) fn of(&self, id: u32) -> String {
        self.0.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_like_ls() {
        assert_eq!(mode_text(FileKind::File, 0o644), "-rw-r--r--");
        assert_eq!(mode_text(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_text(FileKind::Symlink, 0o777), "lrwxrwxrwx");
        assert_eq!(mode_text(FileKind::Fifo, 0o600), "prw-------");
        assert_eq!(mode_text(FileKind::CharDevice, 0o666), "crw-rw-rw-");
        assert_eq!(mode_text(FileKind::File, 0o6644), "-rwSr-Sr--");
        assert_eq!(mode_text(FileKind::File, 0o4755), "-rwsr-xr-x");
    }

    #[test]
    fn a_device_has_a_major_and_a_minor_number() {
        assert_eq!(device_parts(0x0103), (1, 3));
        assert_eq!(device_parts(0xfff1_23ff), (0x123, 0xf_ffff));
    }

    #[test]
    fn sizes_are_rounded_up() {
        assert_eq!(human(0), "0");
        assert_eq!(human(1023), "1023");
        assert_eq!(human(1024), "1.0K");
        assert_eq!(human(1025), "1.1K");
        assert_eq!(human(10 * 1024), "10K");
        assert_eq!(human(10 * 1024 + 1), "11K");
        assert_eq!(human(u64::MAX), "16E");
    }

    #[test]
    fn a_time_keeps_its_nanoseconds() {
        let time = Timestamp { secs: 1, nanos: 5 };
        assert!(time_text(time, "%S.%9f").ends_with("01.000000005"));
    }

    #[test]
    fn uid_0_has_a_name_and_an_unknown_uid_is_a_number() {
        assert_eq!(Names::users().of(0), "root");
        assert_eq!(Names::users().of(4_000_000_000), "4000000000");
    }
}
