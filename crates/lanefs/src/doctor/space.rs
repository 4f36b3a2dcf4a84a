//! Free space and inodes: of the file system under a store, and of a server.

use super::finding::Finding;
use indicatif::BinaryBytes;
use library::Space;
use rustix::fs::statvfs;
use std::path::Path;

/// With less, the log cannot be reserved ahead.
const BYTES_MIN: u64 = 64 << 20;
/// With less, it is soon full.
const BYTES_GOOD: u64 = 1 << 30;
const INODE_COUNT_MIN: u64 = 16;
const INODE_COUNT_GOOD: u64 = 10_000;

/// What is there, and what of it an ordinary user may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Free {
    total_bytes: u64,
    available_bytes: u64,
    /// None where the file system has no fixed number.
    inode_count: u64,
    inode_free_count: u64,
}

impl Free {
    pub(super) fn of_server(space: &Space) -> Self {
        Self {
            total_bytes: space.total_bytes,
            available_bytes: space.available_bytes,
            inode_count: space.inode_count,
            inode_free_count: space.inode_free_count,
        }
    }
}

/// The file system under a directory.
pub(super) fn look(dir: &Path) -> Vec<Finding> {
    match statvfs(dir) {
        Ok(found) => {
            let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
            judge(Free {
                total_bytes: bytes(found.f_blocks),
                available_bytes: bytes(found.f_bavail),
                inode_count: found.f_files,
                inode_free_count: found.f_favail,
            })
        }
        Err(error) => vec![Finding::note("space", format!("cannot be looked at: {error}"))],
    }
}

pub(super) fn judge(free: Free) -> Vec<Finding> {
    let Free { total_bytes, available_bytes, inode_count, inode_free_count } = free;
    let found =
        format!("{} of {} are free", BinaryBytes(available_bytes), BinaryBytes(total_bytes));
    let remedy = "remove files beside the store or in it (`lanefs du` finds large ones), or enlarge the disk";
    let space = match available_bytes {
        ..BYTES_MIN => {
            let found = format!("full: {found}; what takes space gets ENOSPC");
            Finding::error("space", found, remedy)
        }
        BYTES_MIN..BYTES_GOOD => Finding::warning("space", found, remedy),
        _ => Finding::ok("space", found),
    };
    let space = space.value("available_bytes", available_bytes).value("total_bytes", total_bytes);
    if inode_count == 0 {
        return vec![space];
    }
    let found = format!("{inode_free_count} of {inode_count} are free");
    let remedy = "remove small files, or make the file system with more inodes (`mkfs.ext4 -N`)";
    let inodes = match inode_free_count {
        ..INODE_COUNT_MIN => Finding::error("inodes", format!("none left: {found}"), remedy),
        INODE_COUNT_MIN..INODE_COUNT_GOOD => Finding::warning("inodes", found, remedy),
        _ => Finding::ok("inodes", found),
    };
    vec![space, inodes.value("free_count", inode_free_count)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;

    const LARGE: Free = Free {
        total_bytes: 1 << 40,
        available_bytes: 1 << 39,
        inode_count: 1 << 20,
        inode_free_count: 1 << 19,
    };

    fn severities(free: Free) -> Vec<Severity> {
        judge(free).iter().map(|finding| finding.severity).collect()
    }

    #[test]
    fn a_full_disk_is_an_error_and_a_nearly_full_one_a_warning() {
        assert_eq!(severities(LARGE), [Severity::Ok, Severity::Ok]);
        let full = Free { available_bytes: 0, ..LARGE };
        assert_eq!(severities(full), [Severity::Error, Severity::Ok]);
        assert!(judge(full)[0].found.starts_with("full: 0 B of 1.00 TiB are free"));
        assert_eq!(severities(Free { available_bytes: 1 << 29, ..LARGE })[0], Severity::Warning);
    }

    #[test]
    fn inodes_count_where_their_number_is_fixed() {
        assert_eq!(severities(Free { inode_free_count: 0, ..LARGE })[1], Severity::Error);
        assert_eq!(severities(Free { inode_free_count: 99, ..LARGE })[1], Severity::Warning);
        assert_eq!(severities(Free { inode_count: 0, inode_free_count: 0, ..LARGE }).len(), 1);
    }

    #[test]
    fn this_directory_has_space_of_some_size() {
        assert_eq!(look(Path::new("."))[0].check, "space");
        assert!(look(Path::new("/nowhere"))[0].found.contains("cannot be looked at"));
    }
}
