//! Finds the processes that use a mount: looks through `/proc` for open files, working directories, roots,
//! programs and mappings below it, by reading links and tables only.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// A process that uses a mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Holder {
    /// Its process id.
    pub(crate) pid: u32,
    /// Its short name.
    pub(crate) name: String,
    /// How it uses it: `cwd`, `root`, `exe`, `fd 3`, `map`.
    pub(crate) by: String,
    /// Which path.
    pub(crate) path: PathBuf,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {}): {} {}", self.name, self.pid, self.by, self.path.display())
    }
}

/// At most this many are looked for.
const HOLDER_COUNT_MAX: usize = 20;

/// The processes that use something at or below `point`, one entry each.
pub(crate) fn of(point: &Path) -> Vec<Holder> {
    let mut holders = Vec::new();
    let Ok(entries) = fs::read_dir("/proc") else { return holders };
    for entry in entries.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(pid) = pid else { continue };
        if let Some((by, path)) = use_of(&entry.path(), point) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            holders.push(Holder { pid, name: name.trim_end().to_owned(), by, path });
        }
        if holders.len() == HOLDER_COUNT_MAX {
            break;
        }
    }
    holders
}

/// The first use of `point` by a process; `None` if the process has ended.
fn use_of(process: &Path, point: &Path) -> Option<(String, PathBuf)> {
    for link in ["cwd", "root", "exe"] {
        if let Some(path) = link_below(&process.join(link), point) {
            return Some((link.to_owned(), path));
        }
    }
    for fd in fs::read_dir(process.join("fd")).ok()?.flatten() {
        if let Some(path) = link_below(&fd.path(), point) {
            return Some((format!("fd {}", fd.file_name().display()), path));
        }
    }
    let maps = fs::read(process.join("maps")).ok()?;
    let mapped = maps.split(|byte| *byte == b'\n').find_map(|line| map_below(line, point));
    mapped.map(|path| ("map".to_owned(), path))
}

fn link_below(link: &Path, point: &Path) -> Option<PathBuf> {
    fs::read_link(link).ok().filter(|path| path.starts_with(point))
}

/// `start-end perms offset device inode   path`.
fn map_below(line: &[u8], point: &Path) -> Option<PathBuf> {
    let slash = line.iter().position(|byte| *byte == b'/')?;
    let path = ring::unescape(&line[slash..]);
    let path = PathBuf::from(OsStr::from_bytes(&path));
    path.starts_with(point).then_some(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_open_file_is_found_with_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let file = fs::File::create(folder.path().join("held")).unwrap();
        let holders = of(folder.path());
        let mine = holders.iter().find(|holder| holder.pid == std::process::id()).unwrap();
        assert!(mine.by.starts_with("fd "), "{mine}");
        assert_eq!(mine.path, folder.path().join("held"));
        drop(file);
        assert!(of(folder.path()).is_empty());
    }

    #[test]
    fn a_mapping_is_read_from_its_line() {
        let line = b"7f0-7f1 r--p 00000000 00:2d 12    /mnt/a\\012b";
        assert_eq!(map_below(line, Path::new("/mnt")).unwrap(), Path::new("/mnt/a\nb"));
        assert_eq!(map_below(line, Path::new("/mn")), None);
    }
}
