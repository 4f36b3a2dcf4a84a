//! The load of `create`: new files in some directories.

use crate::load::Work;
use rustix::process::{getegid, geteuid};
use std::sync::atomic::{AtomicU64, Ordering};
use wire::InodeNo;

/// The operation, in these directories.
pub(crate) fn create(parents: &[InodeNo]) -> Work {
    static LOAD_NO: AtomicU64 = AtomicU64::new(0);
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let load_no = LOAD_NO.fetch_add(1, Ordering::Relaxed);
    Work::Create { parents: parents.to_vec(), uid, gid, load_no }
}
