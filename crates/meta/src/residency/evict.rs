//! Eviction: one unit at a time, least recently used first.

use super::Unit;
use crate::shard::Shard;
use crate::state::State;
use wire::Transno;

/// Consecutive units that cannot be evicted, because the rows lack changes or the units are in use,
/// after which a scan stops.
const FAILED_COUNT_MAX: usize = 128;

impl State {
    /// Evicts a unit that the rows have.
    fn evict(&mut self, unit: &Unit) {
        match unit {
            Unit::Inode(inode) => {
                let there = self.inode(*inode).is_some();
                self.forget_inode(*inode);
                if let Some(residency) = self.residency.as_mut().filter(|_| there) {
                    residency.on_disk_below = residency.on_disk_below.max(inode.count() + 1);
                }
            }
            Unit::Entry(dir, name) => self.forget_entry(*dir, name),
            Unit::Listing(..) => {}
        }
        if let Some(residency) = &mut self.residency {
            residency.take(unit);
        }
    }
}

impl Shard {
    /// The rows have everything up to this transaction.
    pub fn checkpointed(&mut self, transno: Transno) {
        if let Some(residency) = &mut self.state.residency {
            residency.checkpointed = residency.checkpointed.max(transno);
        }
    }

    /// Evicts the least recently used units while the memory exceeds the limit; scans at most
    /// `count_max` units. Each unit is evicted by itself, so the work is bounded.
    pub fn shrink(&mut self, count_max: usize) {
        let Some(residency) = &self.state.residency else { return };
        if residency.bytes <= residency.bytes_max {
            return;
        }
        let (settled, mut failed_count) = (residency.settled(), 0);
        for _ in 0..count_max {
            let Some(residency) = &mut self.state.residency else { return };
            if residency.bytes <= residency.bytes_max || failed_count >= FAILED_COUNT_MAX {
                return;
            }
            let Some((unit, unit_state)) = residency.next() else { return };
            if unit_state.used {
                continue;
            }
            let stays = unit_state.stamp > settled || residency.pins.contains_key(&unit);
            if stays || self.is_in_use(&unit) {
                failed_count += 1;
            } else {
                self.state.evict(&unit);
                failed_count = 0;
            }
        }
    }

    fn is_in_use(&self, unit: &Unit) -> bool {
        match unit {
            Unit::Inode(inode) => {
                self.locks.inode(*inode, None).is_some()
                    || self.state.orphans.contains(inode)
                    || self.handles.has_any(*inode)
            }
            Unit::Entry(dir, name) => self.locks.name(*dir, name, None).is_some(),
            Unit::Listing(..) => false,
        }
    }

    /// Redone changes may be older than others of this boot, and are recorded before the next.
    pub(crate) fn stamp_from(&mut self, floor: Transno) {
        if let Some(residency) = &mut self.state.residency {
            residency.floor = floor;
        }
    }
}
