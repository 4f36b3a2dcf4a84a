//! Actions of a server that take time: what each is while it is under way, and when it ends.

use crate::disk::Patch;
use crate::number::narrow;
use crate::world::{Due, World};
use interface::{Object, ObjectAction, StoreAction, SumRange, Ticket};
use wire::{Pieces, Reader, Wire as _};

/// An action in flight.
#[derive(Clone, Debug)]
pub(crate) enum Flight {
    Log { ticket: Ticket, batch: Vec<u8> },
    ReadList { ticket: Ticket, object: Object, pieces: Pieces, only_cached: bool },
    Read { ticket: Ticket, object: Object, from: usize, count: usize, only_cached: bool },
    Patch { ticket: Ticket, object: Object, patch: Patch, block_bytes: u32 },
    Sync { ticket: Ticket, object: Object, patch_no: u64 },
    Sums { ticket: Ticket, object: Object, ranges: Vec<(usize, usize)> },
    Stat { ticket: Ticket, object: Object },
    Seek { ticket: Ticket, object: Object, from: usize, hole: bool },
    Remove { ticket: Ticket, object: Object },
    Space { ticket: Ticket },
    Usage { ticket: Ticket },
    Cold { ticket: Ticket, from: Vec<u8>, until: Vec<u8>, row_count_max: u32 },
}

impl World {
    /// An action that takes time begins.
    pub(crate) fn launch(&mut self, lane: usize, flight: Option<Flight>) {
        let Some(flight) = flight else { return };
        let speeds = &self.plan.speeds;
        let is_log = matches!(flight, Flight::Log { .. });
        let delay_ns = self.dice.span_ns(if is_log { speeds.log_ns } else { speeds.object_ns });
        self.server.flight_count += 1;
        let (flight_no, life) = (self.server.flight_count, self.server.life);
        let Some(seat) = self.server.seats.get_mut(lane) else { return };
        seat.flights.insert(flight_no, flight);
        self.put(self.now_ns + delay_ns, Due::Land { lane, life, flight_no });
    }

    pub(crate) fn store_flight(&mut self, lane: usize, action: StoreAction) -> Option<Flight> {
        let seat = self.server.seats.get(lane)?;
        Some(match action {
            StoreAction::LogAppend { ticket, batch } => {
                let batch = seat.desk.arena.get(batch).to_vec();
                if seat.flights.values().any(|flight| matches!(flight, Flight::Log { .. })) {
                    self.breaks(format!("server lane {lane}: two appends at a time"));
                }
                Flight::Log { ticket, batch }
            }
            StoreAction::Space { ticket } => Flight::Space { ticket },
            StoreAction::Inspect { .. } | StoreAction::InspectEnd { .. } => {
                self.breaks(format!("no client of a run inspects: {action:?}"));
                return None;
            }
            StoreAction::ReadRows { ticket, from, until, row_count_max } => {
                let (from, until) = (seat.desk.arena.get(from), seat.desk.arena.get(until));
                let (from, until) = (from.to_vec(), until.to_vec());
                Flight::Cold { ticket, from, until, row_count_max }
            }
        })
    }

    pub(crate) fn object_flight(&mut self, lane: usize, action: ObjectAction) -> Option<Flight> {
        let seat = self.server.seats.get(lane)?;
        Some(match action {
            ObjectAction::Read { ticket, object, object_offset, read_bytes, only_cached } => {
                let (from, count) = (narrow(object_offset), narrow(u64::from(read_bytes)));
                Flight::Read { ticket, object, from, count, only_cached }
            }
            ObjectAction::ReadList { ticket, object, pieces, only_cached } => {
                let pieces = Pieces::decode_all(seat.desk.arena.get(pieces)).ok()?;
                Flight::ReadList { ticket, object, pieces, only_cached }
            }
            ObjectAction::Write { ticket, object, object_offset, bulk, block_bytes } => {
                let bytes = self.server_bulk(lane, bulk)?;
                let patch = Patch::Write { from: narrow(object_offset), bytes };
                Flight::Patch { ticket, object, patch, block_bytes }
            }
            ObjectAction::Truncate { ticket, object, size_bytes } => {
                let patch = Patch::Truncate { size: narrow(size_bytes) };
                Flight::Patch { ticket, object, patch, block_bytes: 0 }
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
                Flight::Patch { ticket, object, patch, block_bytes: 0 }
            }
            ObjectAction::Seek { ticket, object, object_offset, hole } => {
                Flight::Seek { ticket, object, from: narrow(object_offset), hole }
            }
            ObjectAction::Sync { ticket, object } => {
                Flight::Sync { ticket, object, patch_no: self.disk.patch_count() }
            }
            ObjectAction::Sums { ticket, object, ranges } => {
                let mut ranges = Reader::new(seat.desk.arena.get(ranges));
                let mut all = Vec::new();
                while let Ok(SumRange { object_offset, range_bytes }) = ranges.read() {
                    all.push((narrow(object_offset), narrow(u64::from(range_bytes))));
                }
                Flight::Sums { ticket, object, ranges: all }
            }
            ObjectAction::Stat { ticket, object } => Flight::Stat { ticket, object },
            ObjectAction::Remove { ticket, object } => Flight::Remove { ticket, object },
        })
    }
}
