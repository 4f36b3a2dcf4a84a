//! Operations of a store: actions of a lane that take time.

use crate::{LaneState, Patch};
use interface::{Action, Object, ObjectAction, ObjectPiece, StoreAction, SumRange, Ticket};
use wire::{Allocation, Reader, Wire};

/// The log of a boot and a lane.
pub type LogId = (u64, u16);

/// An operation under way.
#[derive(Clone, Debug)]
pub enum Operation {
    Log { ticket: Ticket, log: LogId, batch: Vec<u8> },
    ReadList { ticket: Ticket, object: Object, pieces: Vec<ObjectPiece>, only_cached: bool },
    Read { ticket: Ticket, object: Object, from: usize, count: usize, only_cached: bool },
    Patch { ticket: Ticket, object: Object, patch: Patch, block_bytes: usize },
    Sync { ticket: Ticket, object: Object, patch_no: u64 },
    Sums { ticket: Ticket, object: Object, ranges: Vec<SumRange> },
    Load { ticket: Ticket, object: Object, ranges: Vec<SumRange> },
    LoadWrite { ticket: Ticket, bytes: Vec<u8> },
    Stat { ticket: Ticket, object: Object },
    Seek { ticket: Ticket, object: Object, from: usize, hole: bool },
    Remove { ticket: Ticket, object: Object },
    Space { ticket: Ticket },
    ReadRows { ticket: Ticket, from: Vec<u8>, until: Vec<u8>, row_count_max: usize },
}

impl Operation {
    /// The operation that an action of a lane begins, after `patch_count` changes of objects; any
    /// other action panics.
    pub fn of(action: Action, log: LogId, lane: &LaneState, patch_count: u64) -> Self {
        let LaneState { arena, bufs, .. } = lane;
        let patch = |ticket, object, patch| Self::Patch { ticket, object, patch, block_bytes: 0 };
        match action {
            Action::Store(StoreAction::LogAppend { ticket, batch }) => {
                Self::Log { ticket, log, batch: arena.get(batch).to_vec() }
            }
            Action::Store(StoreAction::Space { ticket }) => Self::Space { ticket },
            Action::Store(StoreAction::ReadRows { ticket, from, until, row_count_max }) => {
                let [from, until] = [from, until].map(|key| arena.get(key).to_vec());
                Self::ReadRows { ticket, from, until, row_count_max: row_count_max as usize }
            }
            Action::Object(ObjectAction::Read {
                ticket,
                object,
                object_offset,
                read_bytes,
                only_cached,
            }) => {
                let (from, count) = (object_offset as usize, read_bytes as usize);
                Self::Read { ticket, object, from, count, only_cached }
            }
            Action::Object(ObjectAction::ReadList { ticket, object, pieces, only_cached }) => {
                Self::ReadList { ticket, object, pieces: list(arena.get(pieces)), only_cached }
            }
            Action::Object(ObjectAction::Write {
                ticket,
                object,
                object_offset,
                bulk,
                block_bytes,
            }) => {
                let bytes = bufs.get(bulk);
                // The pieces of a list have none.
                assert!(bulk.crc32c.is_none_or(|crc32c| crc32c == wire::crc32c(&bytes)));
                let patch = Patch::Write { from: object_offset as usize, bytes };
                Self::Patch { ticket, object, patch, block_bytes: block_bytes as usize }
            }
            // An object takes no space here that it does not show.
            Action::Object(
                ObjectAction::Truncate { ticket, object, size_bytes }
                | ObjectAction::GiveBack { ticket, object, size_bytes, .. },
            ) => patch(ticket, object, Patch::Truncate { size: size_bytes as usize }),
            Action::Object(ObjectAction::Allocate {
                ticket,
                object,
                object_offset,
                range_bytes,
                allocation,
                keep_size,
            }) => {
                let (from, count) = (object_offset as usize, range_bytes as usize);
                let zeros = allocation != Allocation::Reserve;
                patch(ticket, object, Patch::Allocate { from, count, zeros, keep_size })
            }
            Action::Object(ObjectAction::Seek { ticket, object, object_offset, hole }) => {
                Self::Seek { ticket, object, from: object_offset as usize, hole }
            }
            Action::Object(ObjectAction::Sync { ticket, object }) => {
                Self::Sync { ticket, object, patch_no: patch_count }
            }
            Action::Object(ObjectAction::Sums { ticket, object, ranges }) => {
                Self::Sums { ticket, object, ranges: list(arena.get(ranges)) }
            }
            Action::Object(ObjectAction::Load { ticket, object, ranges }) => {
                Self::Load { ticket, object, ranges: list(arena.get(ranges)) }
            }
            Action::Object(ObjectAction::LoadWrite { ticket, bulk }) => {
                Self::LoadWrite { ticket, bytes: bufs.get(bulk) }
            }
            // The write that follows makes it.
            Action::Object(ObjectAction::Stat { ticket, object, may_make: _ }) => {
                Self::Stat { ticket, object }
            }
            Action::Object(ObjectAction::Remove { ticket, object }) => {
                Self::Remove { ticket, object }
            }
            other => panic!("a server must not ask for this: {other:?}"),
        }
    }

    pub const fn is_log(&self) -> bool {
        matches!(self, Self::Log { .. })
    }
}

fn list<'a, T: Wire<'a>>(encoded: &'a [u8]) -> Vec<T> {
    let mut from = Reader::new(encoded);
    std::iter::from_fn(|| from.read().ok()).collect()
}
