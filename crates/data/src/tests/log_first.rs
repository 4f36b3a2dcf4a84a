//! Small writes that make the object of a new file: answered, and logged, before the object has them.

use super::*;
use crate::log::logged_bytes;
use interface::StoreAction;

const LOG_BYTES: u64 = 1 << 20;

impl Harness {
    /// A file that was just made, in a store with much space.
    fn new_file() -> Self {
        let mut harness = Self::new(&[]);
        harness.with(|shards, turn| {
            shards.made(FILE);
            shards.allow_log_first(turn.now.mono.after_ms(1_000));
        });
        harness
    }

    /// A request waits for all that was written.
    fn sync(&mut self, log_bytes: u64) {
        self.shards.request_sync(None);
        self.settle_at(log_bytes);
    }

    fn settle_at(&mut self, log_bytes: u64) {
        self.with(|shards, turn| shards.settle(turn, SumRecording::Quiet, log_bytes));
    }

    /// The bytes of a write in progress, of a bulk that has so many.
    fn load_write(&mut self, action: &Action, count: u32) {
        let Action::Object(ObjectAction::LoadWrite { ticket, bulk }) = *action else {
            panic!("{action:?}")
        };
        assert_eq!(bulk.bulk_bytes, count);
        let mut bytes = count.to_le_bytes().to_vec();
        bytes.resize(bytes.len() + count as usize, 7);
        let span = self.arena.put(&bytes);
        self.with(|shards, turn| shards.on_loaded(turn, ticket, Ok(span)));
    }

    /// Whether a change has its number and may be answered.
    fn is_answered(&mut self, token: Token) -> bool {
        let all: Vec<Outcome> = core::iter::from_fn(|| self.shards.outcome()).collect();
        assert!(all.len() <= 1, "{all:?}");
        let is_it = |outcome: &Outcome| matches!(outcome, Outcome::Written { token: of, .. } if *of == token);
        all.iter().any(is_it)
    }

    /// Takes the actions on the rows: how many were held less those that were released, and whether
    /// one has failed.
    fn holds(&mut self) -> (i32, bool) {
        let (mut held, mut failed) = (0, false);
        self.actions.retain(|action| match action {
            Action::Store(StoreAction::HoldRows { .. }) => {
                held += 1;
                false
            }
            Action::Store(StoreAction::ReleaseRows { has_failed, .. }) => {
                held -= 1;
                failed |= has_failed;
                false
            }
            _ => true,
        });
        (held, failed)
    }

    /// The write of the object, which begins now.
    fn write_action(&mut self) -> Action {
        let write = self.one();
        assert!(
            matches!(write, Action::Object(ObjectAction::Write { object_offset: 0, .. })),
            "{write:?}"
        );
        write
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now.mono = self.now.mono.after_ms(ms);
        self.settle_at(LOG_BYTES);
    }
}

#[test]
fn the_first_write_of_a_new_file_is_answered_and_logged_before_the_object_is_written() {
    let mut harness = Harness::new_file();
    let token = harness.write(0, 600);
    assert_eq!(harness.holds(), (1, false), "before anything is logged");
    assert!(harness.is_answered(token));
    harness.sync(LOG_BYTES);
    let load = harness.one();
    harness.pass_ms(10);
    assert!(harness.take().is_empty(), "the log comes first");
    harness.load_write(&load, 600);
    let outcomes = harness.outcomes();
    let [Outcome::Changed { logged: Some(logged), sums, transno, .. }] = &outcomes[..] else {
        panic!("{outcomes:?}")
    };
    assert_eq!(logged_bytes(logged), 600);
    assert!(sums.is_some(), "with the checksum of its block");
    harness.pass_ms(10);
    assert!(harness.take().is_empty(), "it is on its way");
    assert!(!harness.shards.is_idle(), "the object is to be written");
    harness.shards.on_durable(SHARDS.data_shard(FILE, 0), *transno);
    harness.pass_ms(0);
    let write = harness.write_action();
    assert!(!harness.shards.is_idle());
    harness.done(&write);
    assert_eq!(harness.holds(), (-1, false));
    assert_eq!(released(&harness.take()), [1], "the buffer is kept until then");
    harness.settle_at(LOG_BYTES);
    assert!(harness.take().is_empty(), "there is nothing to be synced");
    assert!(harness.shards.is_idle() && harness.shards.is_durable());
    assert_eq!(harness.shards.held_bytes, 0);
}

#[test]
fn an_object_that_nobody_syncs_is_written_soon_and_synced_then() {
    let mut harness = Harness::new_file();
    let token = harness.write(0, 600);
    assert!(harness.is_answered(token));
    harness.holds();
    harness.pass_ms(0);
    assert!(harness.take().is_empty(), "an fsync may come");
    assert_eq!(harness.shards.deadline(), Some(harness.now.mono.after_ms(1)));
    harness.pass_ms(1);
    let write = harness.write_action();
    harness.pass_ms(60_000);
    assert!(harness.take().is_empty(), "it is not synced before it has ended, though that is due");
    assert_eq!(harness.shards.deadline(), None, "nor is the lane to wake for that");
    harness.done(&write);
    harness.take();
    harness.pass_ms(0);
    let sync = harness.one();
    assert!(matches!(sync, Action::Object(ObjectAction::Sync { .. })));
    harness.done(&sync);
    let outcomes = harness.outcomes();
    assert!(matches!(outcomes[..], [Outcome::Changed { logged: None, .. }]), "{outcomes:?}");
}

#[test]
fn what_waits_for_the_object_has_it_written_at_once_and_begins_behind_it() {
    let mut harness = Harness::new_file();
    harness.write(0, 600);
    harness.read(0, 600);
    harness.write(600, 10);
    harness.glimpse();
    harness.holds();
    harness.settle();
    let write = harness.write_action();
    harness.settle();
    assert!(harness.take().is_empty());
    harness.done(&write);
    harness.holds();
    let actions = harness.take();
    assert!(matches!(
        actions[1..],
        [
            Action::Object(ObjectAction::Read { .. }),
            Action::Object(ObjectAction::Write { object_offset: 600, .. }),
            ..
        ]
    ));
}

#[test]
fn its_bytes_are_logged_also_while_the_object_is_written() {
    let mut harness = Harness::new_file();
    harness.write(0, 600);
    harness.holds();
    harness.pass_ms(1);
    let write = harness.write_action();
    harness.sync(LOG_BYTES);
    let load = harness.one();
    harness.done(&write);
    harness.take();
    harness.load_write(&load, 600);
    let outcomes = harness.outcomes();
    assert!(matches!(outcomes[..], [Outcome::Changed { logged: Some(_), .. }]), "{outcomes:?}");
    harness.pass_ms(100);
    assert!(harness.take().is_empty() && harness.shards.is_idle());
}

#[test]
fn without_space_in_the_log_it_waits_for_the_object() {
    let mut harness = Harness::new_file();
    harness.write(0, 600);
    harness.holds();
    harness.sync(599);
    let write = harness.write_action();
    harness.done(&write);
    harness.take();
    harness.settle_at(599);
    assert!(matches!(harness.one(), Action::Object(ObjectAction::Sync { .. })));
}

#[test]
fn one_that_fails_is_lost_until_the_next_start() {
    for is_loaded in [false, true] {
        let mut harness = Harness::new_file();
        harness.write(0, 600);
        harness.holds();
        if is_loaded {
            harness.sync(LOG_BYTES);
            let load = harness.one();
            harness.load_write(&load, 600);
            harness.outcomes();
        }
        let read = harness.read(0, 600);
        harness.settle();
        let write = harness.write_action();
        harness.fail(&write, 5);
        let outcomes = harness.outcomes();
        let failed = Outcome::Failed { status: Status::Io };
        assert_eq!(outcomes[..2], [failed, refused(read, Status::Io)]);
        assert_eq!(harness.holds(), (-1, true), "the rows take over nothing more");
        harness.take();
        harness.sync(LOG_BYTES);
        assert!(harness.take().is_empty(), "it is not said to be durable");
        let again = harness.read(0, 600);
        assert_eq!(harness.outcomes(), [refused(again, Status::Io)]);
    }
}

#[test]
fn other_writes_are_answered_when_the_object_has_them() {
    let mut no_space = Harness::new(&[]);
    no_space.with(|shards, _| shards.made(FILE));
    let mut late = Harness::new_file();
    late.now.mono = late.now.mono.after_ms(1_000);
    for (mut harness, offset, write_bytes, why) in [
        (no_space, 0, 600, "the space is not known"),
        (late, 0, 600, "it was known too long ago"),
        (Harness::new_file(), 1, 600, "there is a hole"),
        (Harness::new_file(), 0, 65_537, "it is long"),
        (Harness::with_file(0), 0, 600, "the file is not new"),
    ] {
        let token = harness.write(offset, write_bytes);
        assert!(!harness.is_answered(token), "{why}");
        assert_eq!(harness.holds(), (0, false), "{why}");
        assert!(matches!(harness.one(), Action::Object(ObjectAction::Write { .. })), "{why}");
    }
}
