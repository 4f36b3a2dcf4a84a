//! How long a lane busy-polls before it sleeps.
//!
//! Polling uses the core and saves a sleep: a context switch, a wakeup, and where the core halts
//! meanwhile, its return from that. The pause adapts, as haltpoll's does: there is none unless the
//! recent waits were short, and one in vain is followed by sleeps without, twice as many each time.
//! So a lane that has the core of the process it waits for, or of a computing one, soon polls
//! hardly ever. Invariants: no clock is read while polling, rounds are counted instead; a lane that
//! polled in vain sleeps, and polls again only after it did some work.

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
/// The shortest pause.
const PAUSE_NS_MIN: u64 = 10_000;
/// A long wait counts as this many of the longest pauses.
const GAP_PAUSES_MAX: u64 = 8;
/// The most sleeps without a pause.
const SKIP_COUNT_MAX: u32 = 1023;
/// How much longer than it should a pause may take; else another task had the core.
const DELAY_NS_MAX: u64 = 50_000;

/// A lane's polling state.
#[derive(Debug)]
pub(crate) struct Spin {
    /// The longest pause.
    spin_ns: u64,
    /// 0 if polling is disabled.
    rounds_per_ms: u64,
    /// The lane did some work since it last slept.
    pub(crate) worked: bool,
    /// The average of the last waits.
    gap_ns: u64,
    /// Sleeps without a pause, after the last one that was in vain.
    skip_count: u32,
    /// Of those, still to come.
    left_count: u32,
    /// The pause of this turn.
    paused: Option<Paused>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Paused {
    pause_ns: u64,
    found: bool,
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
        Self::of(spin_ns, rounds_per_ms)
    }

    const fn of(spin_ns: u64, rounds_per_ms: u64) -> Self {
        let (worked, gap_ns, skip_count, left_count) = (false, 0, 0, 0);
        Self { spin_ns, rounds_per_ms, worked, gap_ns, skip_count, left_count, paused: None }
    }

    /// How to poll before this wait; `None`: not at all.
    pub(crate) fn before(&mut self, wait: Wait) -> Option<PollBudget> {
        if wait == Wait::No {
            return None;
        }
        let worked = std::mem::replace(&mut self.worked, false);
        if !worked || self.rounds_per_ms == 0 || self.gap_ns > self.spin_ns {
            return None;
        }
        if self.left_count > 0 {
            self.left_count -= 1;
            return None;
        }
        let pause_ns = (2 * self.gap_ns).max(PAUSE_NS_MIN).min(self.spin_ns);
        let (pause_ns, rest) = match wait {
            Wait::No => (0, Wait::No),
            Wait::Ever => (pause_ns, Wait::Ever),
            Wait::Ns(wait_ns) if wait_ns > pause_ns => (pause_ns, Wait::Ns(wait_ns - pause_ns)),
            Wait::Ns(wait_ns) => (wait_ns, Wait::No),
        };
        let round_count = (pause_ns * self.rounds_per_ms / 1_000_000).max(1);
        self.paused = Some(Paused { pause_ns, found: false });
        Some(PollBudget { round_count, rest })
    }

    /// The polling has found something.
    pub(crate) const fn on_found(&mut self) {
        if let Some(paused) = &mut self.paused {
            paused.found = true;
        }
    }

    /// The lane has waited for so long, with or without polling.
    pub(crate) fn on_waited(&mut self, gap_ns: u64) {
        if self.rounds_per_ms == 0 {
            return;
        }
        self.gap_ns = (self.gap_ns + gap_ns.min(GAP_PAUSES_MAX * self.spin_ns)) / 2;
        match self.paused.take() {
            Some(Paused { pause_ns, found: true }) if gap_ns <= pause_ns + DELAY_NS_MAX => {
                self.skip_count = 0;
            }
            Some(_) => {
                self.skip_count = (2 * self.skip_count + 1).min(SKIP_COUNT_MAX);
                self.left_count = self.skip_count;
            }
            None => {}
        }
    }
}

fn rounds_per_ms_of(began: Mono, ended: Mono) -> u64 {
    ROUND_COUNT * 1_000_000 / ended.since_ns(began).max(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MAX_NS: u64 = 50_000;

    fn spin() -> Spin {
        Spin::of(MAX_NS, 20_000)
    }

    /// A wait after work that ends after so long; returns whether the lane polled.
    fn wait(spin: &mut Spin, gap_ns: u64, seen_by_polling: bool) -> bool {
        spin.worked = true;
        let budget = spin.before(Wait::Ever);
        let pause_ns = spin.paused.map_or(0, |paused| paused.pause_ns);
        if seen_by_polling && gap_ns <= pause_ns {
            spin.on_found();
        }
        spin.on_waited(gap_ns);
        budget.is_some()
    }

    #[test]
    fn a_lane_polls_once_after_work_and_no_longer_than_its_wait() {
        let mut spin = spin();
        spin.gap_ns = MAX_NS / 2;
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
        let mut never = Spin { worked: true, ..Spin::of(0, 0) };
        assert_eq!(never.before(Wait::Ever), None, "polling is disabled");
    }

    #[test]
    fn a_lane_polls_while_waits_are_short_and_not_after_long_ones() {
        let mut spin = spin();
        let polls = |spin: &mut Spin, gap_ns| (0..20).filter(|_| wait(spin, gap_ns, true)).count();
        assert_eq!(polls(&mut spin, 20_000), 19, "the first pause was too short");
        assert_eq!(polls(&mut spin, 10 * MAX_NS), 1, "until one was in vain");
        let back: Vec<bool> = (0..8).map(|_| wait(&mut spin, 20_000, true)).collect();
        assert!(!back[0] && back[7], "short waits bring it back: {back:?}");
    }

    #[test]
    fn pauses_in_vain_become_rare_and_one_that_finds_work_ends_that() {
        let mut spin = spin();
        let vain: Vec<usize> = (0..200).filter(|_| wait(&mut spin, 20_000, false)).collect();
        assert_eq!(vain, [0, 2, 6, 14, 30, 62, 126]);
        let next = (200..).find(|_| wait(&mut spin, 20_000, true));
        assert_eq!(next, Some(254));
        assert!(wait(&mut spin, 20_000, true));
    }

    #[test]
    fn a_pause_in_which_another_task_had_the_core_was_in_vain() {
        let mut spin = spin();
        spin.gap_ns = MAX_NS / 2;
        spin.worked = true;
        assert!(spin.before(Wait::Ever).is_some());
        spin.on_found();
        spin.on_waited(4_000_000);
        spin.gap_ns = 0;
        spin.worked = true;
        assert_eq!(spin.before(Wait::Ever), None);
    }

    #[test]
    fn rounds_are_measured_against_the_clock() {
        assert_eq!(rounds_per_ms_of(Mono(0), Mono(50_000)), 20_000);
        assert_eq!(rounds_per_ms_of(Mono(5), Mono(5)), 1_000_000_000);
    }
}
