//! Whether a file has changed since its copy, and whether its disk can read it.

use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime};

/// Times of files are as exact as this, at worst: what changed so shortly before it was copied may have
/// changed behind the copy without another time.
const RACY: Duration = Duration::from_secs(2);

/// What a file was when its copy began.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    size_bytes: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

/// Whether a disk did not give what is on it.
pub(crate) fn is_of_medium(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

pub(crate) fn stamp(stat: &fs::Metadata) -> Stamp {
    Stamp {
        size_bytes: stat.len(),
        mtime: (stat.mtime(), stat.mtime_nsec()),
        ctime: (stat.ctime(), stat.ctime_nsec()),
    }
}

/// Whether a file changed so shortly before that it may change again at the same time, as its times go.
pub(crate) fn is_racy(stat: &fs::Metadata, now: SystemTime) -> bool {
    let changed =
        SystemTime::UNIX_EPOCH + Duration::from_secs(stat.ctime().try_into().unwrap_or(0));
    now.duration_since(changed).is_ok_and(|since| since < RACY) || changed > now
}
