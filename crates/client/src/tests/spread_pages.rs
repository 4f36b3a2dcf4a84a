//! Pages of a file whose stripes are at two servers: they may be kept if each part has granted its
//! own.

use super::FILE;
use super::harness::{Harness, ReceivedRequest, config};
use super::spread::{LAYOUT, UNIT, glimpsed, harness as two_servers, take_all};
use crate::{Answer, Call, Client, Granted};
use alloc::vec::Vec;
use wire::{LeaseKey, Op, Read, lease_flag, request_flag};

fn harness() -> Harness {
    let mut harness = two_servers();
    harness.client = Client::new(config()).with_leases();
    harness.client.layouts.learn(FILE, LAYOUT);
    harness
}

/// Reads the end of the first stripe and the beginning of the second one. Returns both requests.
fn begin(harness: &mut Harness) -> Vec<ReceivedRequest> {
    let read = Read { inode: FILE, file_offset: UNIT - 4, read_bytes: 10, accesses: true };
    harness.call(1, Call::ReadPages(read));
    let parts = take_all(harness);
    assert_eq!(parts.len(), 2);
    for part in &parts {
        assert_ne!(part.head.flags & request_flag::LEASES, 0, "each part is asked for its pages");
    }
    parts
}

/// The file ends before what is read.
fn end(harness: &mut Harness, size_bytes: u64) {
    let glimpse = harness.take();
    assert_eq!(glimpse.head.op, Op::Glimpse);
    harness.answer(&glimpse, &glimpsed(size_bytes));
}

#[test]
fn pages_are_granted_if_all_parts_have_granted_them() {
    for refused in [None, Some(0), Some(1)] {
        let mut harness = harness();
        for (index, part) in begin(&mut harness).iter().enumerate() {
            if refused == Some(index) {
                harness.answer(part, &[]);
            } else {
                harness.grant(part, &[], 7, lease_flag::CONTENTS);
            }
        }
        end(&mut harness, 3);
        assert_eq!(harness.outcome(), Ok(Answer::Bytes(None)));
        assert_eq!(harness.granted().contents.is_some(), refused.is_none(), "{refused:?}");
    }
}

#[test]
fn a_part_that_was_recalled_before_the_answer_ends_the_grants_of_all() {
    for recalled in [0, 1] {
        let mut harness = harness();
        let parts = begin(&mut harness);
        for part in &parts {
            harness.grant(part, &[], 7, lease_flag::CONTENTS);
        }
        harness.recall(&parts[recalled], (1, 7), LeaseKey::Pages(FILE));
        end(&mut harness, 3);
        assert_eq!(harness.granted(), Granted::default());
    }
}

#[test]
fn what_is_read_again_has_to_be_granted_too() {
    for is_granted in [true, false] {
        let mut harness = harness();
        for part in begin(&mut harness) {
            harness.grant(&part, &[], 7, lease_flag::CONTENTS);
        }
        end(&mut harness, UNIT - 2);
        let again = take_all(&mut harness);
        assert_eq!(again.len(), 1, "below the size");
        if is_granted {
            harness.grant(&again[0], &[], 8, lease_flag::CONTENTS);
        } else {
            harness.answer(&again[0], &[]);
        }
        assert_eq!(harness.granted().contents.is_some(), is_granted);
    }
}

#[test]
fn a_read_past_the_page_cache_asks_for_nothing() {
    let mut harness = harness();
    let read = Read { inode: FILE, file_offset: UNIT - 4, read_bytes: 10, accesses: true };
    harness.call(1, Call::Read(read));
    for part in take_all(&mut harness) {
        assert_eq!(part.head.flags & request_flag::LEASES, 0);
    }
}
