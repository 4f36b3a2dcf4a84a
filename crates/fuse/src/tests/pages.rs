//! Pages that the kernel reads for mappings: what the mount asks for, and when it has them dropped.

use super::FILE;
use super::harness::{Dropped, Harness, ReceivedRequest, request, u32s, u64s};
use crate::abi::{Opcode, READ_LOCK_OWNER, WRITE_CACHE};
use alloc::vec;
use alloc::vec::Vec;
use interface::{BufId, Bulk, NO_MAC};
use wire::{LeaseKey, Op, Status, lease_flag, request_flag};

/// Longer than the rest of a term.
const TERM_MS: u64 = 10_000;

impl Harness {
    fn read(&mut self, read_flags: u32) -> ReceivedRequest {
        let args = [u64s(&[9, 0]), u32s(&[4096, read_flags]), u64s(&[0]), u32s(&[0, 0])].concat();
        self.kernel_request(Opcode::Read, 7, FILE, &args);
        let received = self.take();
        assert_eq!(received.head.op, Op::Read);
        received
    }

    /// The kernel has a page under the lease with this number.
    fn with_page(&mut self, lease_no: u64) -> ReceivedRequest {
        let received = self.read(0);
        self.grant_leases(&received, Ok(&[]), (lease_no, lease_flag::CONTENTS));
        assert_eq!(self.status(), Status::Ok);
        received
    }
}

#[test]
fn only_a_read_that_fills_pages_asks_for_a_lease() {
    let mut harness = Harness::with_leases();
    assert_eq!(harness.read(0).head.flags, request_flag::LEASES);
    assert_eq!(harness.read(READ_LOCK_OWNER).head.flags, 0);
    let mut harness = Harness::new();
    assert_eq!(harness.read(0).head.flags, 0, "this mount does not cache");
}

#[test]
fn pages_under_a_lease_stay_until_it_is_recalled() {
    let mut harness = Harness::with_leases();
    let received = harness.with_page(1);
    assert!(harness.dropped().is_empty());
    harness.recall(&received, 4, &[LeaseKey::Pages(FILE)]);
    assert_eq!(harness.dropped(), [Dropped::Contents(FILE.0)]);
    harness.wait_ms(1_000);
    assert!(harness.acknowledged.is_empty(), "a mapping shows them until they are dropped");
    harness.notified(Ok(()));
    assert_eq!(harness.acknowledged, [(vec![4], 0)]);
}

#[test]
fn pages_without_a_lease_are_dropped_behind_the_answer() {
    let mut harness = Harness::with_leases();
    let received = harness.read(0);
    harness.answer(&received, &[]);
    assert_eq!(harness.status(), Status::Ok);
    assert!(harness.dropped().is_empty(), "this server grants nothing");
    harness.with_page(1);
    let received = harness.read(0);
    harness.answer(&received, &[]);
    assert_eq!(harness.status(), Status::Ok);
    assert_eq!(harness.dropped(), [Dropped::Contents(FILE.0)]);
    let received = harness.read(READ_LOCK_OWNER);
    harness.answer(&received, &[]);
    assert_eq!(harness.status(), Status::Ok);
    assert_eq!(harness.dropped().len(), 1, "it fills none");
}

#[test]
fn pages_whose_lease_was_recalled_before_the_answer_are_dropped_behind_it() {
    let mut harness = Harness::with_leases();
    harness.with_page(1);
    let received = harness.read(0);
    harness.recall(&received, 4, &[LeaseKey::Pages(FILE)]);
    harness.all_notified();
    harness.grant_leases(&received, Ok(&[]), (2, lease_flag::CONTENTS));
    assert_eq!(harness.status(), Status::Ok);
    assert_eq!(harness.dropped(), [Dropped::Contents(FILE.0)]);
}

#[test]
fn pages_are_dropped_when_the_term_is_over() {
    let mut harness = Harness::with_leases();
    harness.with_page(1);
    // Its Pings are not answered.
    harness.wait_ms(TERM_MS * 9 / 10 - 1);
    assert!(harness.dropped().is_empty());
    harness.wait_ms(1);
    assert_eq!(harness.dropped(), [Dropped::Contents(FILE.0)]);
}

#[test]
fn pages_are_dropped_when_the_connection_is_lost() {
    let mut harness = Harness::with_leases();
    harness.with_page(1);
    harness.hang_up();
    assert_eq!(harness.dropped(), [Dropped::AllNames, Dropped::Contents(FILE.0)]);
    harness.all_notified();
    harness.kernel_request(Opcode::Getattr, 9, FILE, b"");
    assert_eq!(harness.take().head.op, Op::Getattr);
    assert_eq!(harness.acknowledged, [(vec![], 1)]);
}

#[test]
fn what_a_mapping_has_stored_is_written_back_as_such() {
    let mut harness = Harness::with_open(&[FILE]);
    for (write_flags, flags) in [(WRITE_CACHE, request_flag::WRITE_BACK), (0, 0)] {
        let bulk = Bulk { buf: BufId(9), start: 0, bulk_bytes: 8, crc32c: Some(2), mac: NO_MAC };
        let args: Vec<u8> =
            [u64s(&[9, 0]), u32s(&[8, write_flags]), u64s(&[0]), u32s(&[0, 0])].concat();
        let bytes = request(Opcode::Write as u32, 7, FILE, &args);
        harness.kernel_bytes(Some(7), bytes, Some(bulk));
        assert_eq!(harness.take().head.flags, flags);
    }
}
