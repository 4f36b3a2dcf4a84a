//! The terms of the lanes' leases, where all lanes see them, and when any of them was last used.
//!
//! Invariant: nothing of an earlier term is taken for leased because a later one has begun.

use super::entries::Lease;
use crate::Term;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};
use interface::Mono;
use wire::LaneId;

/// What further lanes learn is not answered from the cache.
const LANE_COUNT_MAX: usize = 1_024;
/// Uses that follow each other faster are noted once: all lanes write it.
const NOTED_MS: u64 = 1_000;

#[derive(Default, Debug)]
struct LaneTerm {
    no: AtomicU64,
    until: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Terms {
    lanes: Box<[LaneTerm]>,
    used_at: AtomicU64,
}

impl Terms {
    pub(super) fn new() -> Self {
        let lanes = (0..LANE_COUNT_MAX).map(|_| LaneTerm::default()).collect();
        Self { lanes, used_at: AtomicU64::new(0) }
    }

    fn lane(&self, lane: LaneId) -> Option<&LaneTerm> {
        self.lanes.get(usize::from(lane.0))
    }

    pub(super) fn set(&self, lane: LaneId, term: Term) {
        let Some(known) = self.lane(lane) else { return };
        // Who sees the later end sees the later number as well.
        known.no.store(term.no, Ordering::Relaxed);
        known.until.store(term.until.0, Ordering::Release);
    }

    /// A lease that a lane has been granted in its present term.
    pub(super) fn lease_of(&self, lane: LaneId) -> Lease {
        let term_no = self.lane(lane).map_or(0, |known| known.no.load(Ordering::Relaxed));
        Lease { term_no, lane }
    }

    /// When a lease ends, for all that is known now.
    pub(super) fn until(&self, lease: Lease) -> Mono {
        let Some(known) = self.lane(lease.lane) else { return Mono(0) };
        let until = known.until.load(Ordering::Acquire);
        let is_present = known.no.load(Ordering::Relaxed) == lease.term_no;
        if is_present { Mono(until) } else { Mono(0) }
    }

    pub(super) fn note_use(&self, now: Mono) {
        if now >= self.used_at().after_ms(NOTED_MS) {
            self.used_at.store(now.0, Ordering::Relaxed);
        }
    }

    pub(super) fn used_at(&self) -> Mono {
        Mono(self.used_at.load(Ordering::Relaxed))
    }
}
