//! Output for scripts: one JSON object a line, with stable keys.
//!
//! JSON's strings are Unicode and names are bytes: in a name that is not UTF-8, U+FFFD replaces invalid
//! bytes, and a second key has all bytes in hexadecimal.

use super::show::device_parts;
use crate::address::Url;
use crate::out;
use anyhow::Result;
use library::{Attr, FileKind, Space, Timestamp};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use wire::ServerId;

/// A file, directory or whatever it is.
#[derive(Serialize)]
pub(crate) struct FileRow {
    /// `lanefs://HOST:PORT/path`.
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// The last name of the path, `/` of the root.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    inode: u64,
    /// Four octal digits.
    mode: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    size_bytes: u64,
    allocated_bytes: u64,
    atime_ns: i128,
    mtime_ns: i128,
    ctime_ns: i128,
    /// Of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
    /// Of a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    rdev_major: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdev_minor: Option<u32>,
    /// In a tree: levels below its root.
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<u32>,
}

/// A sum of `du`.
#[derive(Serialize)]
pub(crate) struct SumRow {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    allocated_bytes: u64,
    size_bytes: u64,
}

/// A server's space.
#[derive(Serialize)]
pub(crate) struct SpaceRow {
    filesystem: String,
    /// Of one server in a cluster; none of the sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<u16>,
    total_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    available_bytes: u64,
    inode_count: u64,
    inode_free_count: u64,
}

impl FileRow {
    pub(crate) fn new(url: &Url, attr: &Attr, target: Option<&[u8]>) -> Self {
        let (path, path_hex) = text(&url.bytes());
        let (name, name_hex) = text(url.name());
        let (target, target_hex) = target.map(text).unzip();
        let device = attr.kind.is_device().then(|| device_parts(attr.rdev));
        let (rdev_major, rdev_minor) = device.unzip();
        Self {
            path,
            path_hex,
            name,
            name_hex,
            kind: kind_word(attr.kind),
            inode: attr.inode.0,
            mode: format!("{:04o}", attr.mode),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size_bytes: attr.size_bytes,
            allocated_bytes: attr.allocated_bytes,
            atime_ns: ns(attr.atime),
            mtime_ns: ns(attr.mtime),
            ctime_ns: ns(attr.ctime),
            target,
            target_hex: target_hex.flatten(),
            rdev_major,
            rdev_minor,
            depth: None,
        }
    }

    pub(crate) fn at_depth(self, depth: u32) -> Self {
        Self { depth: Some(depth), ..self }
    }
}

impl SumRow {
    pub(crate) fn new(url: &Url, kind: FileKind, allocated_bytes: u64, size_bytes: u64) -> Self {
        let (path, path_hex) = text(&url.bytes());
        Self { path, path_hex, kind: kind_word(kind), allocated_bytes, size_bytes }
    }
}

impl SpaceRow {
    pub(crate) fn new(filesystem: &str, server: Option<ServerId>, space: &Space) -> Self {
        Self {
            filesystem: filesystem.to_owned(),
            server: server.map(|server| server.0),
            total_bytes: space.total_bytes,
            used_bytes: space.total_bytes.saturating_sub(space.free_bytes),
            free_bytes: space.free_bytes,
            available_bytes: space.available_bytes,
            inode_count: space.inode_count,
            inode_free_count: space.inode_free_count,
        }
    }
}

/// Prints a row.
pub(crate) fn put(row: &impl Serialize) -> Result<()> {
    out::print_bytes(&line(row)?)
}

/// A row as a line.
pub(crate) fn line(row: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(row)?;
    line.push(b'\n');
    Ok(line)
}

/// What a kind is called here.
const fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Directory => "directory",
        FileKind::File => "file",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "char_device",
        FileKind::BlockDevice => "block_device",
    }
}

fn ns(time: Timestamp) -> i128 {
    i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos)
}

/// A path as text, and in hexadecimal if that is not all it is.
pub(crate) fn path_text(path: &Path) -> (String, Option<String>) {
    text(path.as_os_str().as_bytes())
}

/// Bytes as text, and in hexadecimal if that is not all they are.
fn text(bytes: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => {
            let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            (String::from_utf8_lossy(bytes).into_owned(), Some(hex))
        }
    }
}

impl Url {
    /// The last name as it was written, `/` of the root.
    pub(crate) fn name(&self) -> &[u8] {
        let mut names = self.path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/');
        names.find(|name| !name.is_empty()).unwrap_or(b"/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_text_keeps_its_bytes() {
        assert_eq!(text("\u{e4}".as_bytes()), ("\u{e4}".to_owned(), None));
        assert_eq!(text(b"a\xff"), ("a\u{fffd}".to_owned(), Some("61ff".to_owned())));
    }

    #[test]
    fn the_last_name_is_as_it_was_written() {
        let name =
            |path: &str| Url { address: "h:1".to_owned(), path: path.into() }.name().to_vec();
        assert_eq!(
            (name("/"), name("/a/b"), name("/a/b//")),
            (b"/".to_vec(), b"b".to_vec(), b"b".to_vec())
        );
        assert_eq!((name("/a/."), name("/a/..")), (b".".to_vec(), b"..".to_vec()));
    }

    #[test]
    fn a_time_before_1970_is_negative() {
        assert_eq!(ns(Timestamp { secs: -1, nanos: 250_000_000 }), -750_000_000);
    }
}
