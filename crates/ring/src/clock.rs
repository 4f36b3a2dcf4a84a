//! The clock of a turn: CLOCK_MONOTONIC, and the wall clock as an offset to it that all lanes
//! share.
//!
//! Invariant: two readings ordered by `mono` have the same order by `wall_ns`, on any lanes, unless
//! the system's clock is set.

use interface::{Mono, Now};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};

/// Interval of refreshing the offset, in nanoseconds.
const REFRESH_NS: u64 = 1_000_000_000;

/// Wall clock minus monotonic clock, nanoseconds; wrapping.
static OFFSET_NS: AtomicU64 = AtomicU64::new(0);

/// A lane's view of the clocks.
pub(crate) struct Clock {
    /// This lane refreshes the offset; there is one such lane.
    keeps_offset: bool,
    refreshed: Mono,
    read_count: u64,
}

impl Clock {
    pub(crate) fn new(keeps_offset: bool) -> Self {
        let mut clock = Self { keeps_offset, refreshed: Mono(0), read_count: 0 };
        let mono = Mono(clock.ns(ClockId::Monotonic));
        if keeps_offset || OFFSET_NS.load(Ordering::Relaxed) == 0 {
            clock.refresh(mono);
        }
        clock
    }

    /// Reads the clock.
    pub(crate) fn read(&mut self) -> Now {
        let mono = Mono(self.ns(ClockId::Monotonic));
        if self.keeps_offset && mono.since_ns(self.refreshed) > REFRESH_NS {
            self.refresh(mono);
        }
        Now { mono, wall_ns: mono.0.wrapping_add(OFFSET_NS.load(Ordering::Relaxed)) }
    }

    /// Readings so far, of both clocks.
    pub(crate) const fn read_count(&self) -> u64 {
        self.read_count
    }

    /// Refreshes the offset, right after `mono` was read.
    fn refresh(&mut self, mono: Mono) {
        self.refreshed = mono;
        let offset_ns = self.ns(ClockId::Realtime).wrapping_sub(mono.0);
        OFFSET_NS.store(offset_ns, Ordering::Relaxed);
    }

    /// The only place that reads a clock.
    fn ns(&mut self, clock: ClockId) -> u64 {
        self.read_count += 1;
        ns_of(clock_gettime(clock))
    }
}

/// Times before 1970 count as 1970.
fn ns_of(time: Timespec) -> u64 {
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    secs.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Timers for turns: every requested time stays set until its turn.
///
/// Times within one millisecond share an entry, so that a request per turn costs no memory. The
/// earliest of them is met exactly, the others up to a millisecond late.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    /// By millisecond: the earliest and the latest requested time.
    by_ms: std::collections::BTreeMap<u64, (u64, u64)>,
}

impl Alarms {
    pub(crate) fn add(&mut self, at: Mono) {
        let times = self.by_ms.entry(at.0 / 1_000_000).or_insert((at.0, at.0));
        times.0 = times.0.min(at.0);
        times.1 = times.1.max(at.0);
    }

    /// The next time.
    pub(crate) fn next(&self) -> Option<Mono> {
        self.by_ms.first_key_value().map(|(_, times)| Mono(times.0))
    }

    /// Removes expired times; returns whether there were any.
    pub(crate) fn ring(&mut self, now: Mono) -> bool {
        let mut rang = false;
        while let Some(mut first) = self.by_ms.first_entry() {
            let (earliest, latest) = *first.get();
            if earliest > now.0 {
                break;
            }
            rang = true;
            if latest > now.0 {
                first.insert((latest, latest));
                break;
            }
            first.remove();
        }
        rang
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.by_ms.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_clock_readings_have_the_order_of_monotonic_ones() {
        let mut keeper = Clock::new(true);
        let mut other = Clock::new(false);
        let first = keeper.read();
        let second = other.read();
        assert!(first.mono <= second.mono);
        assert!(first.wall_ns <= second.wall_ns);
        assert!(first.wall_ns > 1_600_000_000_000_000_000, "the offset was found");
    }

    #[test]
    fn every_reading_is_counted() {
        let mut keeper = Clock::new(true);
        assert_eq!(keeper.read_count(), 2, "one of each clock, for the offset");
        let never = Mono(u64::MAX);
        keeper.refreshed = never;
        keeper.read();
        assert_eq!(keeper.read_count(), 3);
        keeper.refreshed = Mono(0);
        keeper.read();
        assert_eq!(keeper.read_count(), 5, "the offset was refreshed");
        keeper.refreshed = never;
        keeper.read();
        assert_eq!(keeper.read_count(), 6);
    }

    #[test]
    fn every_timer_stays_set_until_it_expires() {
        let mut alarms = Alarms::default();
        alarms.add(Mono(5_000_000));
        alarms.add(Mono(2_000_000));
        alarms.add(Mono(2_000_500));
        assert_eq!(alarms.next(), Some(Mono(2_000_000)));
        assert!(!alarms.ring(Mono(1_999_999)));
        assert!(alarms.ring(Mono(2_000_000)));
        assert_eq!(alarms.next(), Some(Mono(2_000_500)));
        assert!(alarms.ring(Mono(3_000_000)));
        assert!(alarms.ring(Mono(5_000_000)));
        assert_eq!(alarms.next(), None);
    }

    #[test]
    fn a_timer_per_turn_needs_one_entry_per_millisecond() {
        let mut alarms = Alarms::default();
        (0..1_000_000).for_each(|turn| alarms.add(Mono(1_000_000_000 + turn)));
        assert_eq!(alarms.count(), 1);
    }
}
