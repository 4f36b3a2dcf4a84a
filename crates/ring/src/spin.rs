//! For how long a lane looks out for more work before it sleeps.
//!
//! Looking out costs the core and saves a sleep: the switch away, and the waking. Invariants: no
//! clock is read while it looks out, rounds are counted instead; who has looked out in vain sleeps,
//! and looks out again only after something was done.

use crate::clock::Clock;
use crate::driver::{Driver, Wait};
use crate::mailbox::Mailbox;
use interface::Mono;

/// Rounds of a measurement.
const ROUND_COUNT: u64 = 1000;
/// Measurements; the fastest counts, because the others were disturbed.
const TRIAL_COUNT: usize = 3;
/// The longest that can be asked for, in microseconds.
pub(crate) const SPIN_US_MAX: u32 = 1000;

/// A lane's budget.
#[derive(Debug)]
pub(crate) struct Spin {
    spin_ns: u64,
    /// 0 while nobody wants to look out.
    rounds_per_ms: u64,
    /// Something was done since the lane last slept.
    pub(crate) worked: bool,
}

/// What comes before a sleep, and what is left of it then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PollBudget {
    pub(crate) round_count: u64,
    pub(crate) rest: Wait,
}

impl Spin {
    /// Finds out how many rounds a millisecond has, should they be wanted.
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
                // Whatever comes is left where it is: the rounds shall be as long as real ones.
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

    /// How to look out before this sleep; `None`: not at all.
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
    fn it_is_patient_once_after_work_and_no_longer_than_the_sleep() {
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
        assert_eq!(never.before(Wait::Ever), None, "nobody asked for it");
    }

    #[test]
    fn rounds_are_measured_against_the_clock() {
        assert_eq!(rounds_per_ms_of(Mono(0), Mono(50_000)), 20_000);
        assert_eq!(rounds_per_ms_of(Mono(5), Mono(5)), 1_000_000_000);
    }
}
