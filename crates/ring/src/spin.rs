//! How long a lane busy-polls before it sleeps.
//!
//! Polling uses the core and saves a sleep: a context switch and a wakeup. Invariants: no clock is
//! read while polling, rounds are counted instead; a lane that polled in vain sleeps, and polls
//! again only after it did some work.

use crate::clock::Clock;
use crate::driver::{Driver, Wait};
use crate::mailbox::Mailbox;
use interface::Mono;

/// Rounds per measurement.
const ROUND_COUNT: u64 = 1000;
/// Number of measurements; the fastest counts, because the others were disturbed.
const TRIAL_COUNT: usize = 3;
/// Maximum of the configured time, in microseconds.
pub(crate) const SPIN_US_MAX: u32 = 1000;

/// A lane's polling state.
#[derive(Debug)]
pub(crate) struct Spin {
    spin_ns: u64,
    /// 0 if polling is disabled.
    rounds_per_ms: u64,
    /// The lane did some work since it last slept.
    pub(crate) worked: bool,
}

/// The polling before a sleep, and the wait after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PollBudget {
    pub(crate) round_count: u64,
    pub(crate) rest: Wait,
}

impl Spin {
    /// Measures how many rounds a millisecond has, if polling is enabled.
    pub(crate) fn new(
        spin_us: u32,
        clock: &mut Clock,
        driver: &mut Driver,
        mailbox: &mut Mailbox,
    ) -> Self {
        let spin_ns = u64::from(spin_us.min(SPIN_US_MAX)) * 1000;
        let mut rounds_per_ms = 0;
        if spin_ns > 0 {
            let mut began = clock.read().mono;
            for _ in 0..TRIAL_COUNT {
                // Arriving events are left in place: the rounds must cost as much as real ones.
                driver.poll(ROUND_COUNT, || {
                    std::hint::black_box(mailbox.has_pending());
                    false
                });
                let ended = clock.read().mono;
                rounds_per_ms = rounds_per_ms.max(rounds_per_ms_of(began, ended));
                began = ended;
            }
        }
        Self { spin_ns, rounds_per_ms, worked: false }
    }

    /// How to poll before this wait; `None`: not at all.
    pub(crate) fn before(&mut self, wait: Wait) -> Option<PollBudget> {
        if wait == Wait::No {
            return None;
        }
        let worked = std::mem::replace(&mut self.worked, false);
        if !worked || self.rounds_per_ms == 0 {
            return None;
        }
        let (spin_ns, rest) = match wait {
            Wait::No => (0, Wait::No),
            Wait::Ever => (self.spin_ns, Wait::Ever),
            Wait::Ns(wait_ns) if wait_ns > self.spin_ns => {
                (self.spin_ns, Wait::Ns(wait_ns - self.spin_ns))
            }
            Wait::Ns(wait_ns) => (wait_ns, Wait::No),
        };
        let round_count = (spin_ns * self.rounds_per_ms / 1_000_000).max(1);
        Some(PollBudget { round_count, rest })
    }
}

fn rounds_per_ms_of(began: Mono, ended: Mono) -> u64 {
    ROUND_COUNT * 1_000_000 / ended.since_ns(began).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_polls_once_after_work_and_no_longer_than_its_wait() {
        let mut spin = Spin { spin_ns: 50_000, rounds_per_ms: 20_000, worked: false };
        assert_eq!(spin.before(Wait::Ever), None, "nothing was done");
        spin.worked = true;
        let ever = PollBudget { round_count: 1000, rest: Wait::Ever };
        assert_eq!(spin.before(Wait::Ever), Some(ever));
        assert_eq!(spin.before(Wait::Ever), None, "nothing was done since");
        spin.worked = true;
        let long = PollBudget { round_count: 1000, rest: Wait::Ns(950_000) };
        assert_eq!(spin.before(Wait::Ns(1_000_000)), Some(long));
        spin.worked = true;
        let short = PollBudget { round_count: 200, rest: Wait::No };
        assert_eq!(spin.before(Wait::Ns(10_000)), Some(short));
        spin.worked = true;
        assert_eq!(spin.before(Wait::No), None);
        assert_eq!(spin.before(Wait::Ever), Some(ever), "no sleep came in between");
        let mut never = Spin { spin_ns: 0, rounds_per_ms: 0, worked: true };
        assert_eq!(never.before(Wait::Ever), None, "polling is disabled");
    }

    #[test]
    fn rounds_are_measured_against_the_clock() {
        assert_eq!(rounds_per_ms_of(Mono(0), Mono(50_000)), 20_000);
        assert_eq!(rounds_per_ms_of(Mono(5), Mono(5)), 1_000_000_000);
    }
}
