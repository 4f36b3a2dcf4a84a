//! Which lanes of a mount wait for requests of `/dev/fuse`.
//!
//! The kernel wakes the lane that has waited longest: lanes that all wait get requests in turns, and
//! a file is closed by another lane than opened it. Here requests go to one lane until it is busy.
//! ```text
//!            took a request while a lane before it waited
//! Waiting ──────────────────────────────────────────────▶ Down ──▶ Resting
//!    ▲      called; lanes before it took no turns           │         │ called
//!    └──────────────────────────────────────────────────────┴─────────┘
//! ```
//! The first lane always waits. It is that of the callers' core, because a wakeup on another core costs
//! several times as much; where a caller runs is looked up now and then. The second waits as well, unless it saw that the first suffices: then
//! it is down, and looks now and then whether the lanes before it take turns. Lanes behind rest
//! when nothing happens, until one before them is busy. Invariants: when the lanes before are stuck
//! or lack memory, the second lane waits at its next look at the latest; without requests no lane
//! takes turns for long.

use crate::mailbox::Waker;
use interface::Mono;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// Time between two looks of a lane that is down.
const LOOK_MS: u64 = 20;
/// Consecutive turns with several requests that processes wait for, until a lane is called.
const CROWDED_COUNT: u32 = 3;
/// Consecutive requests of a called lane while one before it waits, until it goes down.
const SPARED_COUNT: u32 = 16;

/// Turns with requests from one lookup of a caller's core to the next: at first, and at most.
const LOCATE_COUNT_MIN: u32 = 4;
const LOCATE_COUNT_MAX: u32 = 64;
/// Consecutive lookups that find the core of the same lane, until it is the first.
const LOCATED_COUNT: u32 = 3;

const WAITING: u8 = 0;
const DOWN: u8 = 1;
const RESTING: u8 = 2;

/// What the lanes of a mount know of each other.
#[derive(Debug)]
pub(crate) struct SharedOrder {
    /// The lanes follow each other from this one on.
    first: AtomicUsize,
    lanes: Box<[LaneSeen]>,
}

#[derive(Debug)]
struct LaneSeen {
    core: u16,
    /// It runs on that core alone.
    pinned: AtomicBool,
    state: AtomicU8,
    /// It waits for a request in the kernel, and has not seen one since.
    waits: AtomicBool,
    /// It has no memory for a request.
    starved: AtomicBool,
    /// It shall wait.
    called: AtomicBool,
    turn_count: AtomicU64,
}

impl SharedOrder {
    /// Lane n belongs to core `lane_cores[n]`.
    pub(crate) fn new(lane_cores: &[u16]) -> Arc<Self> {
        let seen = |core: &u16| LaneSeen {
            core: *core,
            pinned: AtomicBool::new(false),
            state: AtomicU8::new(WAITING),
            waits: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            called: AtomicBool::new(false),
            turn_count: AtomicU64::new(0),
        };
        Arc::new(Self { first: AtomicUsize::new(0), lanes: lane_cores.iter().map(seen).collect() })
    }

    /// The lane's place: 0 is the first.
    fn place(&self, lane: usize) -> usize {
        let lane_count = self.lanes.len();
        (lane + lane_count - self.first.load(Ordering::Relaxed)) % lane_count
    }

    /// The lane at a place.
    fn at(&self, place: usize) -> (usize, &LaneSeen) {
        let lane = (self.first.load(Ordering::Relaxed) + place) % self.lanes.len();
        (lane, &self.lanes[lane])
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// `spare_count`: requests that it may take while a lane before it waits.
    Waiting { spare_count: u32 },
    /// `seen_count`: turns of the lanes before it at its last look.
    Down { look_at: Mono, seen_count: u64 },
    /// Until it is called.
    Resting,
}

/// A lane's place in the order.
pub(crate) struct LaneOrder {
    lane: usize,
    shared: Arc<SharedOrder>,
    /// Of all lanes.
    wakers: Vec<Waker>,
    state: State,
    crowded_count: u32,
    locating: Locating,
}

/// When this lane looks up a caller's core next, and what it found.
struct Locating {
    turn_count: u32,
    left_count: u32,
    found: Option<usize>,
    found_count: u32,
}

impl LaneOrder {
    /// `core`: of the calling thread, if it is pinned to one.
    pub(crate) fn new(
        lane: usize,
        core: Option<u16>,
        shared: Arc<SharedOrder>,
        wakers: Vec<Waker>,
    ) -> Self {
        let state = State::Waiting { spare_count: 1 };
        let seen = &shared.lanes[lane];
        seen.pinned.store(core == Some(seen.core), Ordering::Relaxed);
        let (turn_count, left_count) = (LOCATE_COUNT_MIN, LOCATE_COUNT_MIN);
        let locating = Locating { turn_count, left_count, found: None, found_count: 0 };
        Self { lane, shared, wakers, state, crowded_count: 0, locating }
    }

    /// A turn of the lane begins.
    pub(crate) fn begin_turn(&mut self, now: Mono) {
        let own = &self.shared.lanes[self.lane];
        own.turn_count.store(own.turn_count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if own.called.load(Ordering::Relaxed) && own.called.swap(false, Ordering::SeqCst) {
            self.enter(State::Waiting { spare_count: SPARED_COUNT });
        }
        if self.shared.place(self.lane) == 0 && !self.is_waiting() {
            self.enter(State::Waiting { spare_count: 1 });
        }
        if let State::Down { look_at, seen_count } = self.state
            && now >= look_at
        {
            self.look(now, seen_count);
        }
    }

    /// Whether the lane shall wait for a request.
    pub(crate) const fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting { .. })
    }

    /// When the lane wants a turn to look.
    pub(crate) const fn look_at(&self) -> Option<Mono> {
        match self.state {
            State::Down { look_at, .. } => Some(look_at),
            State::Waiting { .. } | State::Resting => None,
        }
    }

    /// The kernel was given the lane's wait, or has ended it.
    pub(crate) fn set_waits(&self, waits: bool) {
        self.shared.lanes[self.lane].waits.store(waits, Ordering::Relaxed);
    }

    /// The lane got, or lacks, memory for a request.
    pub(crate) fn set_starved(&self, starved: bool) {
        let before = self.shared.lanes[self.lane].starved.swap(starved, Ordering::SeqCst);
        if starved && !before {
            self.call(&[DOWN, RESTING]);
        }
    }

    /// The lane took requests, so many of them with a process that waits.
    pub(crate) fn on_taken(&mut self, awaited_count: usize, now: Mono) {
        self.crowded_count = if awaited_count > 1 { self.crowded_count + 1 } else { 0 };
        let is_spared = self.before().any(|lane| lane.waits.load(Ordering::Relaxed));
        match self.state {
            State::Waiting { spare_count } if is_spared => {
                let left_count = spare_count.saturating_sub(1);
                self.state = State::Waiting { spare_count: left_count };
                if left_count == 0 {
                    self.go_down(now);
                }
            }
            State::Waiting { .. } if self.crowded_count >= CROWDED_COUNT => {
                self.crowded_count = 0;
                self.call(&[DOWN, RESTING]);
            }
            State::Waiting { .. } if self.shared.place(self.lane) > 0 => self.call(&[RESTING]),
            State::Waiting { .. } | State::Down { .. } | State::Resting => {}
        }
    }

    /// The mount has ended: every lane shall see it.
    pub(crate) fn end(&self) {
        for (lane, waker) in self.shared.lanes.iter().zip(&self.wakers) {
            lane.called.store(true, Ordering::SeqCst);
            waker.wake();
        }
    }

    /// Whether to look up the core of the caller of a request of this turn.
    pub(crate) fn shall_locate(&mut self) -> bool {
        let Locating { turn_count, left_count, .. } = &mut self.locating;
        *left_count -= 1;
        if *left_count > 0 || self.shared.lanes.len() < 2 {
            *left_count = (*left_count).max(1);
            return false;
        }
        *turn_count = (2 * *turn_count).min(LOCATE_COUNT_MAX);
        *left_count = *turn_count;
        true
    }

    /// A caller is on this core.
    pub(crate) fn on_located(&mut self, core: u16) {
        let is_there = |lane: &LaneSeen| lane.core == core && lane.pinned.load(Ordering::Relaxed);
        let found = self.shared.lanes.iter().position(is_there);
        let Locating { found: before, found_count, turn_count, .. } = &mut self.locating;
        *found_count = if *before == found { *found_count + 1 } else { 1 };
        *before = found;
        let Some(lane) = found.filter(|_| *found_count >= LOCATED_COUNT) else { return };
        if self.shared.first.swap(lane, Ordering::SeqCst) != lane {
            *turn_count = LOCATE_COUNT_MIN;
            self.shared.lanes[lane].called.store(true, Ordering::SeqCst);
            self.wakers[lane].wake();
        }
    }

    fn before(&self) -> impl Iterator<Item = &LaneSeen> {
        (0..self.shared.place(self.lane)).map(|place| self.shared.at(place).1)
    }

    fn before_count(&self) -> u64 {
        self.before().map(|lane| lane.turn_count.load(Ordering::Relaxed)).sum()
    }

    fn go_down(&mut self, now: Mono) {
        let seen_count = self.before_count();
        self.enter(State::Down { look_at: now.after_ms(LOOK_MS), seen_count });
    }

    fn look(&mut self, now: Mono, seen_count: u64) {
        let all_starved = self.before().all(|lane| lane.starved.load(Ordering::SeqCst));
        let all_wait = self.before().all(|lane| lane.waits.load(Ordering::Relaxed));
        if self.before_count() != seen_count && !all_starved {
            self.go_down(now);
        } else if self.shared.place(self.lane) > 1 && all_wait {
            self.enter(State::Resting);
        } else {
            self.enter(State::Waiting { spare_count: 1 });
        }
    }

    fn enter(&mut self, state: State) {
        let seen = match state {
            State::Waiting { .. } => WAITING,
            State::Down { .. } => DOWN,
            State::Resting => RESTING,
        };
        self.state = state;
        self.shared.lanes[self.lane].state.store(seen, Ordering::SeqCst);
    }

    /// Lets the first lane behind this one wait that is in one of these states.
    fn call(&self, states: &[u8]) {
        let behind = self.shared.place(self.lane) + 1..self.shared.lanes.len();
        let mut lanes = behind.map(|place| self.shared.at(place));
        let called = lanes.find(|(_, lane)| states.contains(&lane.state.load(Ordering::SeqCst)));
        if let Some((lane, seen)) = called
            && !seen.called.swap(true, Ordering::SeqCst)
        {
            self.wakers[lane].wake();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::mailbox::{Mailbox, Mesh};

    /// The lanes of a mount, taking turns when the test says so.
    struct Mount {
        lanes: Vec<LaneOrder>,
        mailboxes: Vec<Mailbox>,
        now: Mono,
    }

    impl Mount {
        fn of(lane_count: u16) -> Self {
            let mailboxes = Mesh::mailboxes(lane_count).unwrap();
            let cores: Vec<u16> = (0..lane_count).collect();
            let shared = SharedOrder::new(&cores);
            let order = |(lane, mailbox): (usize, &Mailbox)| {
                LaneOrder::new(lane, Some(cores[lane]), Arc::clone(&shared), mailbox.wakers())
            };
            let lanes: Vec<_> = mailboxes.iter().enumerate().map(order).collect();
            let mut mount = Self { lanes, mailboxes, now: Mono(1) };
            (0..mount.lanes.len()).for_each(|lane| mount.turn(lane));
            mount
        }

        /// A turn ends with a wait for a request, if the lane shall wait.
        fn turn(&mut self, lane: usize) {
            self.mailboxes[lane].take_notified();
            let order = &mut self.lanes[lane];
            order.begin_turn(self.now);
            order.set_waits(order.is_waiting());
        }

        /// The lane is woken for requests and takes them.
        fn take(&mut self, lane: usize, awaited_count: usize) {
            self.lanes[lane].set_waits(false);
            self.lanes[lane].on_taken(awaited_count, self.now);
        }

        fn is_waiting(&self) -> Vec<bool> {
            self.lanes.iter().map(LaneOrder::is_waiting).collect()
        }

        fn is_called(&mut self, lane: usize) -> bool {
            self.mailboxes[lane].has_pending()
        }

        fn pass_look(&mut self, lane: usize) {
            self.now = self.lanes[lane].look_at().unwrap();
        }
    }

    /// The second lane takes a request while the first waits.
    fn with_second_down(lane_count: u16) -> Mount {
        let mut mount = Mount::of(lane_count);
        mount.take(1, 1);
        mount.turn(1);
        mount
    }

    #[test]
    fn a_lane_that_is_not_needed_goes_down_while_the_first_takes_turns() {
        let mut mount = with_second_down(2);
        assert_eq!(mount.is_waiting(), [true, false]);
        for _ in 0..3 {
            mount.take(0, 1);
            mount.turn(0);
            mount.pass_look(1);
            mount.turn(1);
            assert_eq!(mount.is_waiting(), [true, false], "the first lane took turns");
        }
    }

    #[test]
    fn nothing_happens_on_an_idle_mount_after_one_look() {
        let mut mount = with_second_down(2);
        mount.pass_look(1);
        mount.turn(1);
        assert_eq!(mount.is_waiting(), [true, true]);
        assert_eq!(mount.lanes[1].look_at(), None, "it takes no further turn");
    }

    #[test]
    fn a_lane_that_is_down_waits_when_the_first_is_stuck() {
        let mut mount = with_second_down(2);
        mount.take(0, 1);
        mount.pass_look(1);
        mount.turn(1);
        assert!(mount.is_waiting()[1], "the first lane took no turn");
        mount.take(1, 1);
        mount.turn(1);
        assert!(mount.is_waiting()[1], "the first lane does not wait");
    }

    #[test]
    fn a_crowded_lane_calls_the_next_which_stays_while_it_is_needed() {
        let mut mount = with_second_down(2);
        for round in 1..=CROWDED_COUNT {
            assert!(!mount.is_called(1), "not before round {round} of several requests");
            mount.take(0, 2);
        }
        assert!(mount.is_called(1));
        mount.turn(1);
        assert!(mount.is_waiting()[1]);
        for _ in 0..2 * SPARED_COUNT {
            mount.take(1, 1);
            mount.turn(1);
            assert!(mount.is_waiting()[1], "the first lane does not wait");
        }
        mount.turn(0);
        for _ in 0..SPARED_COUNT {
            assert!(mount.is_waiting()[1]);
            mount.take(1, 1);
            mount.turn(1);
        }
        assert!(!mount.is_waiting()[1], "the first lane waited all the time");
    }

    #[test]
    fn turns_with_one_request_are_no_crowd() {
        let mut mount = with_second_down(2);
        for _ in 0..10 {
            mount.take(0, 2);
            mount.take(0, 1);
        }
        assert!(!mount.is_called(1));
    }

    #[test]
    fn a_lane_without_memory_calls_the_next() {
        let mut mount = with_second_down(2);
        mount.lanes[0].set_starved(true);
        assert!(mount.is_called(1));
        mount.turn(1);
        assert!(mount.is_waiting()[1]);
    }

    #[test]
    fn a_third_lane_rests_on_an_idle_mount_until_both_before_it_are_busy() {
        let mut mount = Mount::of(3);
        mount.take(2, 1);
        mount.turn(2);
        mount.pass_look(2);
        mount.turn(2);
        assert_eq!((mount.is_waiting()[2], mount.lanes[2].look_at()), (false, None));
        mount.take(0, 1);
        assert!(!mount.is_called(2), "the second lane waits");
        mount.take(1, 1);
        assert!(mount.is_called(2));
        mount.turn(2);
        assert!(mount.is_waiting()[2]);
    }

    #[test]
    fn the_lane_of_the_callers_core_becomes_the_first() {
        let mut mount = with_second_down(2);
        for core in [1, 1, 0, 1, 1] {
            mount.lanes[0].on_located(core);
            assert!(!mount.is_called(1), "callers are on both cores");
        }
        mount.lanes[0].on_located(1);
        assert!(mount.is_called(1));
        mount.turn(1);
        assert!(mount.is_waiting()[1]);
        mount.take(0, 1);
        mount.turn(0);
        assert_eq!(mount.is_waiting(), [false, true], "the former first lane is not needed");
        mount.take(0, 1);
        mount.turn(1);
        mount.turn(0);
        assert_eq!(mount.is_waiting(), [false, true]);
        mount.lanes[1].on_located(7);
        assert_eq!(mount.lanes[0].shared.place(1), 0, "no lane is on that core");
    }

    #[test]
    fn callers_are_located_less_and_less_often() {
        let mut mount = Mount::of(2);
        let order = &mut mount.lanes[0];
        let located: Vec<usize> = (1..300).filter(|_| order.shall_locate()).collect();
        assert_eq!(located, [4, 12, 28, 60, 124, 188, 252]);
        let alone = &mut Mount::of(1).lanes[0];
        assert!((0..300).all(|_| !alone.shall_locate()), "there is no other lane");
    }

    #[test]
    fn every_lane_sees_the_end() {
        let mut mount = with_second_down(3);
        mount.lanes[0].end();
        for lane in 0..3 {
            assert!(mount.is_called(lane));
            mount.turn(lane);
        }
        assert_eq!(mount.is_waiting(), [true, true, true]);
    }
}
