//! The names of log files: a boot, a lane and a number.

use crate::layout::LOG;
use std::path::{Path, PathBuf};
use wire::LaneId;

/// A log file by its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct LogName {
    pub(crate) boot_id: u64,
    pub(crate) lane: LaneId,
    pub(crate) segment_no: u32,
}

impl LogName {
    pub(crate) fn text(&self) -> String {
        let Self { boot_id, lane, segment_no } = self;
        format!("{boot_id:016x}-{:04x}-{segment_no:08x}.log", lane.0)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_suffix(".log")?.split('-');
        let (boot, lane, segment) = (parts.next()?, parts.next()?, parts.next()?);
        let parsed = Self {
            boot_id: u64::from_str_radix(boot, 16).ok()?,
            lane: LaneId(u16::from_str_radix(lane, 16).ok()?),
            segment_no: u32::from_str_radix(segment, 16).ok()?,
        };
        (text == parsed.text()).then_some(parsed)
    }

    /// Its path in the store at `path`.
    pub(crate) fn path(&self, path: &Path) -> PathBuf {
        path.join(LOG).join(self.text())
    }
}
