//! What a lane says of replies that other lanes of its client have received.

use super::harness::{Harness, config};
use super::replays::chmod;
use super::{FILE, attr};
use crate::{Call, Client, Config, ReceivedByLanes};
use alloc::sync::Arc;
use alloc::vec::Vec;
use wire::{Entry, Getattr, LaneAcks, LaneId, ShardId, Wire};

/// Two lanes of one client.
fn two_lanes() -> [Harness; 2] {
    let table = Arc::new(ReceivedByLanes::new(2));
    [0, 1].map(|lane| {
        let mut harness = Harness::new(1);
        let client = Client::new(Config { lane: LaneId(lane), lane_count: 2, ..config() });
        harness.client = client.with_received(Arc::clone(&table));
        harness
    })
}

fn told(harness: &mut Harness) -> Vec<(ShardId, Vec<LaneAcks>)> {
    core::mem::take(&mut harness.server.told)
}

fn changes(harness: &mut Harness) -> u64 {
    harness.call(1, chmod(FILE));
    let request = harness.take();
    harness.answer(&request, &Entry { attr: attr(FILE, 0) }.to_bytes());
    request.head.xid.0
}

#[test]
fn a_lane_says_once_what_another_one_has_received_before_its_next_change() {
    let [mut first, mut second] = two_lanes();
    changes(&mut second);
    let xid = changes(&mut first);
    assert_eq!(told(&mut second), [], "it says nothing by itself");
    second.call(2, Call::Getattr(Getattr { inode: FILE }));
    assert_eq!(told(&mut second), [], "nor before it looks at something");
    changes(&mut second);
    let [(shard, lanes)] = told(&mut second).try_into().unwrap();
    assert_eq!(shard, FILE.shard());
    let [LaneAcks { client_lane, ack_xid, sack }] = lanes.try_into().unwrap();
    assert_eq!((client_lane, ack_xid.0, sack), (LaneId(0), xid, 0));
    changes(&mut second);
    assert_eq!(told(&mut second), [], "it has said that");
    // What was said over an earlier connection may not have arrived.
    second.hang_up();
    second.wait_ms(1_000);
    changes(&mut second);
    let [(_, lanes)] = told(&mut second).try_into().unwrap();
    assert_eq!(lanes[0].ack_xid.0, xid);
}

#[test]
fn what_is_unanswered_is_left_out() {
    let [mut first, mut second] = two_lanes();
    let xid = changes(&mut first);
    first.call(2, chmod(FILE));
    first.call(3, chmod(FILE));
    let (unanswered, later) = (first.take(), first.take());
    assert_eq!((unanswered.head.xid.0, later.head.xid.0), (xid + 1, xid + 2));
    changes(&mut second);
    let [(_, lanes)] = told(&mut second).try_into().unwrap();
    assert_eq!((lanes[0].ack_xid.0, lanes[0].sack), (xid, 0), "nothing that was only sent");
    first.answer(&later, &Entry { attr: attr(FILE, 0) }.to_bytes());
    changes(&mut second);
    let [(_, lanes)] = told(&mut second).try_into().unwrap();
    assert_eq!((lanes[0].ack_xid.0, lanes[0].sack), (xid, 0b10), "the later one alone");
}
