//! Writes to what gives something to whoever runs it.

use super::{FILE, World};
use crate::{Answer, Outcome};
use alloc::vec::Vec;
use interface::Action;
use wire::{
    Allocate, Allocation, ClearPrivileges, InodeNo, Op, PrivilegedBits, Status, Transno, Write,
};

/// Whether a write and an allocation of somebody who may not leave `takes` are refused.
fn is_refused(world: &mut World, takes: ClearPrivileges) -> bool {
    let bulk = world.bulk(10);
    let write = Write { inode: FILE, file_offset: 0, append: false, takes };
    let token = world.ask(Op::Write, &write, Some(bulk));
    let outcomes = world.outcomes();
    if outcomes.is_empty() {
        world.finish();
        world.outcomes();
        return false;
    }
    let result: Result<Answer, Status> = Err(Status::NeedClearPrivileges);
    assert_eq!(outcomes, [Outcome::Answered { token, result, shown: Transno(0) }]);
    assert_eq!(world.take(), [Action::Release { buf: bulk.buf }], "nothing is written");
    let (inode, file_offset, range_bytes) = (FILE, 0, 10);
    let (allocation, keep_size) = (Allocation::Zero, true);
    let ask = Allocate { inode, file_offset, range_bytes, allocation, keep_size, takes };
    let token = world.ask(Op::Allocate, &ask, None);
    assert_eq!(world.outcomes(), [Outcome::Answered { token, result, shown: Transno(0) }]);
    true
}

#[test]
fn a_write_is_refused_that_would_leave_what_it_takes_away() {
    let mut world = World::with_file(100);
    let (nothing, all) =
        (PrivilegedBits::default(), PrivilegedBits { set_id: true, capability: true });
    for (gives, to_nobody, to_root, to_user) in [
        (nothing, false, false, false),
        (PrivilegedBits { set_id: true, ..nothing }, false, false, true),
        (PrivilegedBits { capability: true, ..nothing }, false, true, true),
        (all, false, true, true),
    ] {
        world.shards.set_gives(FILE, gives);
        world.shards.set_gives(InodeNo(FILE.0 + 1), all);
        let refused: Vec<bool> =
            [ClearPrivileges::Nothing, ClearPrivileges::Capability, ClearPrivileges::All]
                .into_iter()
                .map(|takes| is_refused(&mut world, takes))
                .collect();
        assert_eq!(refused, [to_nobody, to_root, to_user], "{gives:?}");
    }
}
