//! Actions in flight in the test server, and their effects on its disks.

use super::{PendingEvent, TestServer, bulk_of};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use interface::{
    Action, Event, LogSpace, Object, ObjectAction, ObjectEvent, ObjectPiece, ObjectStat,
    StoreAction, StoreEvent, StoreSpace, Ticket, Usage,
};

/// An object's bytes: what readers see, and what a crash leaves.
#[derive(Clone, Default, Debug)]
pub(super) struct File {
    pub(super) seen: Vec<u8>,
    pub(super) durable: Option<Vec<u8>>,
}

/// The resource usage that the test server reports.
pub(crate) const USAGE: Usage = Usage {
    cpu_ns: 101,
    voluntary_switch_count: 102,
    involuntary_switch_count: 103,
    turn_count: 104,
    syscall_count: 105,
    clock_read_count: 106,
    message_out_count: 107,
    send_count: 108,
    spin_count: 109,
    spin_hit_count: 110,
    turn_ns_max: 111,
    object_offloaded_count: 112,
    object_thread_count: 113,
    object_in_flight_max: 114,
    object_in_flight_one_max: 115,
};

/// An action in flight.
#[derive(Clone, Debug)]
pub(super) enum Flight {
    Log { ticket: Ticket, bytes: Vec<u8> },
    Read { ticket: Ticket, object: Object, from: usize, count: usize },
    ReadList { ticket: Ticket, object: Object, pieces: Vec<ObjectPiece> },
    Write { ticket: Ticket, object: Object, from: usize, bytes: Vec<u8>, block_bytes: usize },
    Sums { ticket: Ticket, object: Object, ranges: Vec<interface::SumRange> },
    Truncate { ticket: Ticket, object: Object, size: usize },
    Allocate { ticket: Ticket, action: Action },
    Seek { ticket: Ticket, object: Object, from: usize, hole: bool },
    Sync { ticket: Ticket, object: Object, snapshot: Option<Vec<u8>> },
    Stat { ticket: Ticket, object: Object },
    Remove { ticket: Ticket, object: Object },
    Space { ticket: Ticket },
    Usage { ticket: Ticket },
    ReadRows { ticket: Ticket, from: Vec<u8>, until: Vec<u8>, row_count_max: u32 },
}

/// The kinds of action that can be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Log,
    Read,
    Write,
    Sync,
    Remove,
}

impl TestServer {
    /// An action that takes time begins.
    pub(super) fn launch(&mut self, index: usize, action: Action) {
        let host = &mut self.hosts[index];
        let flight = match action {
            Action::Store(StoreAction::LogAppend { ticket, batch }) => {
                let logging =
                    host.flights.iter().any(|flight| matches!(flight, Flight::Log { .. }));
                assert!(!logging, "one append at a time");
                Flight::Log { ticket, bytes: host.arena.get(batch).to_vec() }
            }
            Action::Object(ObjectAction::Read {
                ticket,
                object,
                object_offset,
                read_bytes,
                ..
            }) => {
                let (from, count) = (object_offset as usize, read_bytes as usize);
                Flight::Read { ticket, object, from, count }
            }
            Action::Object(ObjectAction::ReadList { ticket, object, pieces, .. }) => {
                let mut from = wire::Reader::new(host.arena.get(pieces));
                let pieces = core::iter::from_fn(|| from.read().ok()).collect();
                Flight::ReadList { ticket, object, pieces }
            }
            Action::Object(ObjectAction::Sums { ticket, object, ranges }) => {
                let mut from = wire::Reader::new(host.arena.get(ranges));
                let ranges = core::iter::from_fn(|| from.read().ok()).collect();
                Flight::Sums { ticket, object, ranges }
            }
            Action::Object(ObjectAction::Write {
                ticket,
                object,
                object_offset,
                bulk,
                block_bytes,
            }) => {
                let bytes = bulk_of(host, bulk);
                // The pieces of a list have none.
                assert!(bulk.crc32c.is_none_or(|crc32c| crc32c == wire::crc32c(&bytes)));
                let (from, block_bytes) = (object_offset as usize, block_bytes as usize);
                Flight::Write { ticket, object, from, bytes, block_bytes }
            }
            // No object takes space here that it does not show.
            Action::Object(
                ObjectAction::Truncate { ticket, object, size_bytes }
                | ObjectAction::GiveBack { ticket, object, size_bytes, .. },
            ) => Flight::Truncate { ticket, object, size: size_bytes as usize },
            action @ Action::Object(ObjectAction::Allocate { ticket, .. }) => {
                Flight::Allocate { ticket, action }
            }
            Action::Object(ObjectAction::Seek { ticket, object, object_offset, hole }) => {
                Flight::Seek { ticket, object, from: object_offset as usize, hole }
            }
            Action::Object(ObjectAction::Sync { ticket, object }) => {
                let snapshot = self.files.get(&object).map(|file| file.seen.clone());
                Flight::Sync { ticket, object, snapshot }
            }
            Action::Object(ObjectAction::Stat { ticket, object }) => {
                Flight::Stat { ticket, object }
            }
            Action::Object(ObjectAction::Remove { ticket, object }) => {
                Flight::Remove { ticket, object }
            }
            Action::Store(StoreAction::Space { ticket }) => Flight::Space { ticket },
            Action::Usage { ticket } => Flight::Usage { ticket },
            Action::Store(StoreAction::ReadRows { ticket, from, until, row_count_max }) => {
                let [from, until] = [from, until].map(|key| host.arena.get(key).to_vec());
                Flight::ReadRows { ticket, from, until, row_count_max }
            }
            other => panic!("a server does not do this: {other:?}"),
        };
        host.flights.push(flight);
    }

    /// Ends a lane's append.
    pub(crate) fn land_log(&mut self, index: usize) {
        let flights = &self.hosts[index].flights;
        let found = flights.iter().position(|flight| matches!(flight, Flight::Log { .. }));
        self.land_one(index, found.unwrap());
    }

    /// Ends all actions on a lane's objects, but not its append.
    pub(crate) fn land_objects(&mut self, index: usize) {
        let is_log = |flight: &Flight| matches!(flight, Flight::Log { .. });
        while let Some(found) = self.hosts[index].flights.iter().position(|flight| !is_log(flight))
        {
            self.land_one(index, found);
            self.run_turns_only(index);
        }
    }

    /// Ends a random action.
    pub(super) fn land(&mut self, index: usize) {
        let flight_index = self.rng.usize(..self.hosts[index].flights.len());
        let logs = matches!(self.hosts[index].flights[flight_index], Flight::Log { .. });
        if logs && self.log_slowness > 0 && self.rng.usize(..self.log_slowness) != 0 {
            return;
        }
        self.land_one(index, flight_index);
    }

    fn land_one(&mut self, index: usize, flight_index: usize) {
        let flight = self.hosts[index].flights.remove(flight_index);
        let kind = match flight {
            Flight::Log { .. } => Some(Kind::Log),
            Flight::Write { .. } => Some(Kind::Write),
            Flight::Sync { .. } => Some(Kind::Sync),
            Flight::Remove { .. } => Some(Kind::Remove),
            Flight::Read { .. } | Flight::ReadList { .. } => Some(Kind::Read),
            Flight::Truncate { .. }
            | Flight::Allocate { .. }
            | Flight::Seek { .. }
            | Flight::Sums { .. }
            | Flight::Stat { .. }
            | Flight::Space { .. }
            | Flight::ReadRows { .. }
            | Flight::Usage { .. } => None,
        };
        let fails = self.failing.iter().position(|(failing, _)| Some(*failing) == kind);
        let failed = fails.map(|at| self.failing.remove(at).1);
        let (files, host) = (&mut self.files, &mut self.hosts[index]);
        let done = |ticket| {
            Event::Object(ObjectEvent::Done { ticket, result: failed.map_or(Ok(()), Err) })
        };
        let event = match flight {
            Flight::Log { ticket, bytes } => {
                let bytes_count = bytes.len() as u64;
                assert!(bytes_count <= host.space_bytes, "the log never outgrows its reserve");
                host.space_bytes -= bytes_count;
                host.log.extend_from_slice(&bytes);
                let space = LogSpace { space_bytes: host.space_bytes, awaits_checkpoint: false };
                Event::Store(StoreEvent::Logged { ticket, result: failed.map_or(Ok(space), Err) })
            }
            Flight::Read { ticket, object, from, count } => {
                if let Some(errno) = failed {
                    let event = Event::Object(ObjectEvent::Read { ticket, result: Err(errno) });
                    return host.pending_events.push(PendingEvent::Plain(event));
                }
                let seen = files.get(&object).map_or(&[][..], |file| &file.seen);
                let from = from.min(seen.len());
                let bytes = seen[from..seen.len().min(from + count)].to_vec();
                host.pending_events.push(PendingEvent::Read { ticket, bytes });
                return;
            }
            Flight::ReadList { ticket, object, pieces } => {
                if let Some(errno) = failed {
                    let event = Event::Object(ObjectEvent::Read { ticket, result: Err(errno) });
                    return host.pending_events.push(PendingEvent::Plain(event));
                }
                let mut bytes = Vec::new();
                for ObjectPiece { stripe_index, object_offset, piece_bytes } in pieces {
                    let file = files.get(&Object { stripe_index, ..object });
                    let seen = file.map_or(&[][..], |file| &file.seen);
                    let all = object_offset..object_offset + u64::from(piece_bytes);
                    bytes.extend(all.map(|at| seen.get(at as usize).copied().unwrap_or(0)));
                }
                host.pending_events.push(PendingEvent::Read { ticket, bytes });
                return;
            }
            Flight::Write { ticket, object, from, bytes, block_bytes } => {
                if failed.is_none() {
                    write(files.entry(object).or_default(), from, &bytes);
                }
                if block_bytes > 0 {
                    let sums = written_sums(from, &bytes, block_bytes);
                    let result = failed.map_or(Ok(sums), Err);
                    return host.pending_events.push(PendingEvent::Written { ticket, result });
                }
                done(ticket)
            }
            Flight::Sums { ticket, object, ranges } => {
                let seen = files.get(&object).map_or(&[][..], |file| &file.seen);
                let mut sums = Vec::new();
                for range in ranges {
                    let from = (range.object_offset as usize).min(seen.len());
                    let end = (from + range.range_bytes as usize).min(seen.len());
                    put_sum(&mut sums, &seen[from..end]);
                }
                return host.pending_events.push(PendingEvent::Sums { ticket, sums });
            }
            Flight::Truncate { ticket, object, size } => {
                files.entry(object).or_default().seen.resize(size, 0);
                done(ticket)
            }
            Flight::Allocate { ticket, action } => {
                allocate(files, action);
                done(ticket)
            }
            // No object has holes here.
            Flight::Seek { ticket, object, from, hole } => {
                let size = files.get(&object).map_or(0, |file| file.seen.len());
                let found = (from < size).then_some(if hole { size } else { from } as u64);
                Event::Object(ObjectEvent::Sought { ticket, result: Ok(found) })
            }
            Flight::Sync { ticket, object, snapshot } => {
                if let (Some(file), None) = (files.get_mut(&object), failed) {
                    file.durable = snapshot;
                }
                done(ticket)
            }
            Flight::Stat { ticket, object } => {
                let stat = files.get(&object).map(|file| ObjectStat {
                    size_bytes: file.seen.len() as u64,
                    allocated_bytes: file.seen.len().next_multiple_of(4096) as u64,
                });
                Event::Object(ObjectEvent::Stat { ticket, result: Ok(stat) })
            }
            Flight::Remove { ticket, object } => {
                if failed.is_none() {
                    files.remove(&object);
                }
                done(ticket)
            }
            Flight::Space { ticket } => {
                let space = StoreSpace {
                    total_bytes: 1 << 40,
                    free_bytes: 1 << 39,
                    available_bytes: 1 << 38,
                    available_file_count: Some(1 << 20),
                };
                Event::Store(StoreEvent::Space { ticket, result: Ok(space) })
            }
            Flight::Usage { ticket } => Event::Usage { ticket, usage: USAGE },
            Flight::ReadRows { ticket, from, until, row_count_max } => {
                let Some(row_store) = &mut self.row_store else {
                    panic!("the server has no row store")
                };
                let rows = row_store.read(&from, &until, row_count_max as usize);
                host.pending_events.push(PendingEvent::Rows { ticket, rows });
                return;
            }
        };
        host.pending_events.push(PendingEvent::Plain(event));
    }
}

fn put_sum(sums: &mut Vec<u8>, bytes: &[u8]) {
    sums.extend_from_slice(&wire::crc32c(bytes).to_le_bytes());
    sums.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
}

/// The checksums of written bytes, by blocks.
fn written_sums(from: usize, bytes: &[u8], block_bytes: usize) -> Vec<u8> {
    let mut sums = Vec::new();
    let (first, more) = bytes.split_at((block_bytes - from % block_bytes).min(bytes.len()));
    put_sum(&mut sums, first);
    more.chunks(block_bytes).for_each(|piece| put_sum(&mut sums, piece));
    sums
}

/// Performs an `ObjectAllocate`.
pub(super) fn allocate(files: &mut BTreeMap<Object, File>, action: Action) {
    let Action::Object(ObjectAction::Allocate {
        object,
        object_offset,
        range_bytes,
        allocation,
        keep_size,
        ..
    }) = action
    else {
        panic!("{action:?}")
    };
    let seen = &mut files.entry(object).or_default().seen;
    let (from, end) = (object_offset as usize, (object_offset + range_bytes) as usize);
    if !keep_size && seen.len() < end {
        seen.resize(end, 0);
    }
    let size = seen.len();
    if allocation != wire::Allocation::Reserve {
        seen[from.min(size)..end.min(size)].fill(0);
    }
}

pub(super) fn write(file: &mut File, from: usize, bytes: &[u8]) {
    if file.seen.len() < from + bytes.len() {
        file.seen.resize(from + bytes.len(), 0);
    }
    file.seen[from..from + bytes.len()].copy_from_slice(bytes);
}

/// Stands for the MAC of a bulk.
pub(super) fn mac_of(bytes: &[u8]) -> interface::ContentsMac {
    let mut mac = [0_u8; 16];
    for (index, byte) in bytes.iter().enumerate() {
        mac[index % 16] = mac[index % 16].wrapping_mul(3).wrapping_add(*byte);
    }
    mac
}
