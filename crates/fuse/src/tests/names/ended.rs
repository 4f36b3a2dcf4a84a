//! The end of a mount whose lanes change names behind under each other's leases.

use super::super::harness::Harness;
use super::super::known::cache;
use crate::Behind;
use alloc::sync::Arc;
use interface::Event;
use wire::LaneId;

#[test]
fn no_lane_says_goodbye_before_all_have_ended_what_they_have_under_way() {
    let table = Arc::new(Behind::default());
    let mut harness = Harness::with_cache(&cache());
    harness.lane = harness.lane.with_write_behind(Arc::clone(&table));
    harness.event(Event::Stop);
    harness.wait_ms(5);
    table.note_idle(LaneId(2));
    harness.wait_ms(5);
    assert_eq!((harness.stopped_count, harness.goodbye_count), (0, 0));
    table.note_idle(LaneId(1));
    harness.wait_ms(5);
    assert_eq!(harness.stopped_count, 1);
}

#[test]
fn a_lane_waits_for_the_others_for_five_seconds_at_most() {
    let mut harness = Harness::with_cache(&cache());
    harness.lane = harness.lane.with_write_behind(Arc::new(Behind::default()));
    harness.event(Event::Stop);
    harness.wait_ms(4_999);
    assert_eq!(harness.stopped_count, 0);
    harness.wait_ms(1);
    assert_eq!(harness.stopped_count, 1);
}
