//! Writes to files with privileged bits.

use super::{FILE, Harness};
use crate::{Answer, Outcome};
use alloc::vec::Vec;
use interface::Action;
use wire::{
    Allocate, Allocation, ClearPrivileges, InodeNo, Op, PrivilegedBits, Status, Transno, Write,
};

/// Whether a write and an allocation that must clear `clears` are refused.
fn is_refused(harness: &mut Harness, clears: ClearPrivileges) -> bool {
    let bulk = harness.bulk(10);
    let write = Write { inode: FILE, file_offset: 0, append: false, clears };
    let token = harness.request(Op::Write, &write, Some(bulk));
    let outcomes = harness.outcomes();
    if outcomes.is_empty() {
        harness.finish();
        harness.outcomes();
        return false;
    }
    let result: Result<Answer, Status> = Err(Status::NeedClearPrivileges);
    assert_eq!(outcomes, [Outcome::Answered { token, result, shown: Transno(0) }]);
    assert_eq!(harness.take(), [Action::Release { buf: bulk.buf }], "nothing is written");
    let (inode, file_offset, range_bytes) = (FILE, 0, 10);
    let (allocation, keep_size) = (Allocation::Zero, true);
    let request = Allocate { inode, file_offset, range_bytes, allocation, keep_size, clears };
    let token = harness.request(Op::Allocate, &request, None);
    assert_eq!(harness.outcomes(), [Outcome::Answered { token, result, shown: Transno(0) }]);
    true
}

#[test]
fn a_write_that_must_clear_privileged_bits_is_refused() {
    let mut harness = Harness::with_file(100);
    let (nothing, all) =
        (PrivilegedBits::default(), PrivilegedBits { set_id: true, capability: true });
    for (privileged_bits, to_nobody, to_root, to_user) in [
        (nothing, false, false, false),
        (PrivilegedBits { set_id: true, ..nothing }, false, false, true),
        (PrivilegedBits { capability: true, ..nothing }, false, true, true),
        (all, false, true, true),
    ] {
        harness.shards.set_privileged_bits(FILE, privileged_bits);
        harness.shards.set_privileged_bits(InodeNo(FILE.0 + 1), all);
        let refused: Vec<bool> =
            [ClearPrivileges::Nothing, ClearPrivileges::Capability, ClearPrivileges::All]
                .into_iter()
                .map(|clears| is_refused(&mut harness, clears))
                .collect();
        assert_eq!(refused, [to_nobody, to_root, to_user], "{privileged_bits:?}");
    }
}
