//! Operations of the server's disk: actions of a lane that take time.

use crate::disk::Patch;
use crate::due::Due;
use crate::number::narrow;
use crate::simulation::Simulation;
use interface::{Object, ObjectAction, ObjectPiece, StoreAction, SumRange, Ticket};
use wire::Reader;

/// An operation under way.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Log { ticket: Ticket, batch: Vec<u8> },
    ReadList { ticket: Ticket, object: Object, pieces: Vec<ObjectPiece>, only_cached: bool },
    Read { ticket: Ticket, object: Object, from: usize, count: usize, only_cached: bool },
    Patch { ticket: Ticket, object: Object, patch: Patch, block_bytes: u32 },
    Sync { ticket: Ticket, object: Object, patch_no: u64 },
    Sums { ticket: Ticket, object: Object, ranges: Vec<(usize, usize)> },
    Stat { ticket: Ticket, object: Object },
    Seek { ticket: Ticket, object: Object, from: usize, hole: bool },
    Remove { ticket: Ticket, object: Object },
    Space { ticket: Ticket },
    Usage { ticket: Ticket },
    ReadRows { ticket: Ticket, from: Vec<u8>, until: Vec<u8>, row_count_max: u32 },
}

impl Simulation {
    /// Starts an operation.
    pub(crate) fn start_operation(&mut self, lane: usize, operation: Option<Operation>) {
        let Some(operation) = operation else { return };
        let speeds = &self.plan.speeds;
        let is_log = matches!(operation, Operation::Log { .. });
        let delay_ns = self.prng.span_ns(if is_log { speeds.log_ns } else { speeds.object_ns });
        self.server.operation_count += 1;
        let (operation_no, life) = (self.server.operation_count, self.server.life);
        let Some(sim_lane) = self.server.lanes.get_mut(lane) else { return };
        sim_lane.operations.insert(operation_no, operation);
        self.schedule_at(self.now_ns + delay_ns, Due::Complete { lane, life, operation_no });
    }

    pub(crate) fn store_operation(
        &mut self,
        lane: usize,
        action: StoreAction,
    ) -> Option<Operation> {
        let sim_lane = self.server.lanes.get(lane)?;
        Some(match action {
            StoreAction::LogAppend { ticket, batch } => {
                let batch = sim_lane.state.arena.get(batch).to_vec();
                if sim_lane
                    .operations
                    .values()
                    .any(|operation| matches!(operation, Operation::Log { .. }))
                {
                    self.violates(format!("server lane {lane}: two appends at a time"));
                }
                Operation::Log { ticket, batch }
            }
            StoreAction::Space { ticket } => Operation::Space { ticket },
            StoreAction::Inspect { .. } | StoreAction::InspectEnd { .. } => {
                self.violates(format!("no client of a run inspects: {action:?}"));
                return None;
            }
            StoreAction::ReadRows { ticket, from, until, row_count_max } => {
                let (from, until) =
                    (sim_lane.state.arena.get(from), sim_lane.state.arena.get(until));
                let (from, until) = (from.to_vec(), until.to_vec());
                Operation::ReadRows { ticket, from, until, row_count_max }
            }
        })
    }

    pub(crate) fn object_operation(
        &mut self,
        lane: usize,
        action: ObjectAction,
    ) -> Option<Operation> {
        let sim_lane = self.server.lanes.get(lane)?;
        Some(match action {
            ObjectAction::Read { ticket, object, object_offset, read_bytes, only_cached } => {
                let (from, count) = (narrow(object_offset), narrow(u64::from(read_bytes)));
                Operation::Read { ticket, object, from, count, only_cached }
            }
            ObjectAction::ReadList { ticket, object, pieces, only_cached } => {
                let mut from = Reader::new(sim_lane.state.arena.get(pieces));
                let pieces = std::iter::from_fn(|| from.read().ok()).collect();
                Operation::ReadList { ticket, object, pieces, only_cached }
            }
            ObjectAction::Write { ticket, object, object_offset, bulk, block_bytes } => {
                let bytes = self.server_bulk(lane, bulk)?;
                let patch = Patch::Write { from: narrow(object_offset), bytes };
                Operation::Patch { ticket, object, patch, block_bytes }
            }
            // An object takes no space here that it does not show.
            ObjectAction::Truncate { ticket, object, size_bytes }
            | ObjectAction::GiveBack { ticket, object, size_bytes, .. } => {
                let patch = Patch::Truncate { size: narrow(size_bytes) };
                Operation::Patch { ticket, object, patch, block_bytes: 0 }
            }
            ObjectAction::Allocate {
                ticket,
                object,
                object_offset,
                range_bytes,
                allocation,
                keep_size,
            } => {
                let (from, count) = (narrow(object_offset), narrow(range_bytes));
                let zeros = allocation != wire::Allocation::Reserve;
                let patch = Patch::Allocate { from, count, zeros, keep_size };
                Operation::Patch { ticket, object, patch, block_bytes: 0 }
            }
            ObjectAction::Seek { ticket, object, object_offset, hole } => {
                Operation::Seek { ticket, object, from: narrow(object_offset), hole }
            }
            ObjectAction::Sync { ticket, object } => {
                Operation::Sync { ticket, object, patch_no: self.disk.patch_count() }
            }
            ObjectAction::Sums { ticket, object, ranges } => {
                let mut ranges = Reader::new(sim_lane.state.arena.get(ranges));
                let mut all = Vec::new();
                while let Ok(SumRange { object_offset, range_bytes }) = ranges.read() {
                    all.push((narrow(object_offset), narrow(u64::from(range_bytes))));
                }
                Operation::Sums { ticket, object, ranges: all }
            }
            ObjectAction::Stat { ticket, object } => Operation::Stat { ticket, object },
            ObjectAction::Remove { ticket, object } => Operation::Remove { ticket, object },
        })
    }
}
