//! Small writes that make the object of a new file: answered, and logged, before the object has them.

use super::*;
use crate::log::logged_bytes;

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
        all.iter()
            .any(|outcome| matches!(outcome, Outcome::Written { token: of, .. } if *of == token))
    }
}

fn is_log_first(action: &Action) -> bool {
    matches!(action, Action::Object(ObjectAction::Write { log_first: true, .. }))
}

#[test]
fn the_first_write_of_a_new_file_is_answered_and_logged_before_the_object_has_it() {
    let mut harness = Harness::new_file();
    let token = harness.write(0, 600);
    let write = harness.one();
    assert!(is_log_first(&write));
    assert!(harness.is_answered(token));
    harness.sync(LOG_BYTES);
    let load = harness.one();
    harness.load_write(&load, 600);
    let outcomes = harness.outcomes();
    let [Outcome::Changed { logged: Some(logged), sums, .. }] = &outcomes[..] else {
        panic!("{outcomes:?}")
    };
    assert_eq!(logged_bytes(logged), 600);
    assert!(sums.is_some(), "with the checksum of its block");
    assert!(!harness.shards.is_idle(), "the write is in progress");
    harness.done(&write);
    assert_eq!(released(&harness.take()), [1], "the buffer is kept until then");
    harness.settle_at(LOG_BYTES);
    assert!(harness.take().is_empty(), "there is nothing to be synced");
    assert!(harness.shards.is_idle() && harness.shards.is_durable());
    assert_eq!(harness.shards.held_bytes, 0);
}

#[test]
fn nothing_else_begins_before_it_has_ended() {
    let mut harness = Harness::new_file();
    harness.write(0, 600);
    let write = harness.one();
    harness.read(0, 600);
    harness.write(600, 10);
    harness.glimpse();
    harness.now.mono = harness.now.mono.after_ms(60_000);
    harness.settle();
    assert!(harness.take().is_empty(), "nor a sync, though one is due");
    assert_eq!(harness.shards.deadline(), None, "nor is the lane to wake for one");
    harness.done(&write);
    assert!(matches!(
        harness.take()[1..],
        [
            Action::Object(ObjectAction::Read { .. }),
            Action::Object(ObjectAction::Write { log_first: false, .. }),
            ..
        ]
    ));
}

#[test]
fn what_nobody_waits_for_is_synced_when_it_has_ended() {
    let mut harness = Harness::new_file();
    harness.write(0, 600);
    let write = harness.one();
    harness.done(&write);
    harness.take();
    harness.settle();
    let sync = harness.one();
    assert!(matches!(sync, Action::Object(ObjectAction::Sync { .. })));
    harness.done(&sync);
    let outcomes = harness.outcomes();
    assert!(matches!(outcomes[..], [Outcome::Changed { logged: None, .. }]), "{outcomes:?}");
}

#[test]
fn without_space_in_the_log_it_waits_for_the_object() {
    let mut harness = Harness::new_file();
    harness.write(0, 600);
    let write = harness.one();
    harness.sync(599);
    assert!(harness.take().is_empty());
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
        let write = harness.one();
        let read = harness.read(0, 600);
        if is_loaded {
            harness.sync(LOG_BYTES);
            let load = harness.one();
            harness.load_write(&load, 600);
            harness.outcomes();
        }
        harness.fail(&write, 5);
        let outcomes = harness.outcomes();
        let failed = Outcome::Failed { status: Status::Io };
        assert_eq!(outcomes[..2], [failed, refused(read, Status::Io)]);
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
        let write = harness.one();
        assert!(!is_log_first(&write), "{why}");
        assert!(!harness.is_answered(token), "{why}");
    }
}
