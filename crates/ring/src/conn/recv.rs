//! From received bytes to frames for the core.
//!
//! A bulk is received directly into its buffer, behind the part that came with its header.
//! Invariant: the core gets complete frames, and in plain text their checksums match.

use super::landing::Landed;
use super::sums::{Summed, Sums};
use super::{Conn, Conns, Incoming, State};
use crate::framing::Cut;
use crate::io_context::IoContext;
use crate::limits::Limits;
use crate::number::{errno_of, u64_of};
use interface::{BufId, Bulk, CloseReason, Event, NetEvent};
use rustix::net::{RecvFlags, recv};
use wire::{
    FrameKind, HANDSHAKE_BODY_BYTES_MAX, Header, Lengths, ProtocolError, WELCOME_BODY_BYTES_MAX,
};

/// Minimum rest of a bulk that is worth receive calls of the lane's own.
pub(super) const OWN_BYTES_MIN: usize = 64 * 1024;
/// Bytes received and summed at a time; they fit a second-level cache.
pub(super) const PIECE_BYTES_MAX: usize = 256 * 1024;
/// Frames that all clients together may bring in a turn, because each request waits for the
/// processing of all; but each client may bring [`CONN_FRAMES_MIN`].
const TURN_FRAMES: usize = 64;
const CONN_FRAMES_MIN: usize = 4;

impl Conns {
    pub(super) fn received(&mut self, index: u32, received_bytes: usize, io: &mut IoContext) {
        let conn = self.conn(index);
        match (&mut conn.seal, conn.incoming.is_some()) {
            (Some(_), _) => return self.on_records(index, received_bytes, io),
            (None, true) => self.on_bulk(index, received_bytes, io),
            (None, false) => conn.inbox.received(received_bytes),
        }
        self.cut(index, io);
        self.touch(index);
    }

    /// More bytes of a bulk were received. They are summed at once, while they are in the
    /// processor's cache.
    pub(super) fn on_bulk(&mut self, index: u32, arrived_bytes: usize, io: &mut IoContext) {
        let Some(incoming) = &mut self.conn(index).incoming else { return };
        incoming.received_bytes += arrived_bytes;
        let Incoming { buf, received_bytes, .. } = *incoming;
        let whole = received_bytes == incoming.lengths.bulk_bytes as usize;
        if !whole {
            if incoming.sums.is_wanted() {
                incoming.sums.update(io.pool.bytes(buf, 0, received_bytes));
            }
        } else if let Some(whole) = self.conn(index).incoming.take() {
            self.discharge(whole.charge);
            let mut summed = whole.sums.end(io.pool.bytes(buf, 0, received_bytes));
            io.pool.put_block_sums(buf, std::mem::take(&mut summed.block_sums));
            self.deliver(index, whole.lengths, Some((buf, summed)), io);
        }
    }

    /// Receives the available part of a large bulk by calls of the lane's own: piece by piece, so
    /// that each is summed before the next one displaces it from the cache. Returns whether the
    /// driver shall receive the rest.
    pub(super) fn receive_bulk(&mut self, index: u32, io: &mut IoContext) -> bool {
        let mut left_bytes = Limits::TURN_BYTES_MAX;
        let discards = self.sink.is_some();
        while let Some(incoming) = &self.conn(index).incoming {
            let Incoming { buf, lengths, received_bytes, .. } = *incoming;
            if discards || !incoming.lands() {
                return true;
            }
            if left_bytes == 0 {
                self.touch(index);
                return false;
            }
            let conn = self.conn(index);
            let sealed = conn.seal.is_some();
            let space = if sealed {
                conn.land(&mut io.pool)
            } else {
                received_bytes..lengths.bulk_bytes as usize
            };
            let piece_bytes = space.len().min(PIECE_BYTES_MAX).min(left_bytes);
            let piece = io.pool.bytes_mut(buf, space.start, piece_bytes);
            let Some(socket) = &conn.socket else { return false };
            io.counters.syscall_count += 1;
            io.counters.recv_count += 1;
            let mut short = false;
            match recv(socket, piece, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => {
                    self.fail(index, CloseReason::Ended, io);
                    return false;
                }
                Ok((_, arrived_bytes)) => {
                    left_bytes -= arrived_bytes;
                    short = arrived_bytes < piece_bytes;
                    io.counters.in_bytes += u64_of(arrived_bytes);
                    if sealed {
                        self.conn(index).take_landed(arrived_bytes);
                        self.cut(index, io);
                        let conn = self.slots.get(index as usize);
                        if conn.is_some_and(|conn| conn.paused || conn.starved) {
                            self.touch(index);
                            return false;
                        }
                    } else {
                        self.on_bulk(index, arrived_bytes, io);
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return true,
                Err(errno) => {
                    self.fail(index, CloseReason::Failed(errno_of(errno)), io);
                    return false;
                }
            }
            if !matches!(self.slots.get(index as usize), Some(Conn { state: State::Open, .. })) {
                return false;
            }
            if short {
                // Nothing more is available; the driver waits for the whole rest.
                return true;
            }
        }
        true
    }

    /// A turn ends: frames cut from here on belong to the next one.
    pub(super) const fn begin_turn(&mut self) {
        self.turn_frames_left = TURN_FRAMES;
    }

    /// Divides the rest of the turn's frames among so many connections.
    pub(crate) fn share_turn(&mut self, bringing_count: usize) {
        let share = self.turn_frames_left / bringing_count.max(1);
        self.conn_frames_max = share.max(CONN_FRAMES_MIN);
    }

    /// Delivers complete frames, within the turn's share; starts the receive of an incomplete bulk.
    pub(super) fn cut(&mut self, index: u32, io: &mut IoContext) {
        let mut left_count = self.conn_frames_max;
        // The slot may be empty: an earlier frame was a protocol error.
        while let Some(conn) = self.slots.get_mut(index as usize) {
            let open = matches!(conn.state, State::Open);
            if !open || conn.paused || conn.starved || conn.waits_for_credit() {
                return;
            }
            if !conn.skip() {
                if self.open_record(index, io) {
                    continue;
                }
                return;
            }
            let cut = match conn.incoming {
                Some(_) => Ok(Cut::More),
                None => conn.inbox.cut(conn.body_bytes_max()),
            };
            let lengths = match cut {
                Ok(Cut::Frame(lengths)) => lengths,
                Ok(Cut::More) if self.open_record(index, io) => continue,
                Ok(Cut::More) => return self.awaits(index, io),
                Err(reason) => return self.fail_framing(index, reason, io),
            };
            if conn.accepted {
                if left_count == 0 {
                    conn.paused = true;
                    return self.touch(index);
                }
                left_count -= 1;
                self.turn_frames_left = self.turn_frames_left.saturating_sub(1);
            }
            let bulk_bytes = lengths.bulk_bytes as usize;
            if bulk_bytes == 0 {
                self.deliver(index, lengths, None, io);
                continue;
            }
            if conn.accepted && !conn.admission.writes {
                conn.skip_bytes = bulk_bytes;
                self.deliver(index, lengths, None, io);
                if self.slots.get(index as usize).is_some_and(Conn::is_open) {
                    self.began(index, bulk_bytes, io);
                }
                continue;
            }
            let taken = match self.sink {
                Some(sink) => Some((io.pool.retained(sink), None)),
                None => self.take_for(index, bulk_bytes, io),
            };
            let (discards, mac_key) = (self.sink.is_some(), self.contents_key);
            let conn = self.conn(index);
            let Some((buf, charge)) = taken else {
                conn.starved = true;
                conn.unfinished = None;
                self.starved.push_back(index);
                return;
            };
            let there_bytes = if discards {
                conn.inbox.drop_behind(lengths.frame_bytes, bulk_bytes)
            } else {
                let to = io.pool.bytes_mut(buf, 0, bulk_bytes);
                conn.inbox.take_behind(lengths.frame_bytes, to)
            };
            // A request's checksum goes into the log; a reply's is only on the wire.
            let crc32c = !discards && (conn.accepted || conn.sum_of(&lengths).is_some());
            let key = mac_key.filter(|_| !discards && lengths.kind == FrameKind::Request);
            let (sums, landed) = (Sums::new(crc32c, key), Landed::default());
            let received_bytes = 0;
            conn.incoming = Some(Incoming { buf, lengths, received_bytes, charge, sums, landed });
            self.began(index, bulk_bytes, io);
            self.on_bulk(index, there_bytes, io);
        }
    }

    fn deliver(
        &mut self,
        index: u32,
        lengths: Lengths,
        mut summed: Option<(BufId, Summed)>,
        io: &mut IoContext,
    ) {
        if let Some((sink, _)) = summed.take_if(|_| self.sink.is_some()) {
            io.pool.release(sink);
        }
        self.conn(index).unfinished = None;
        let conn = self.conn(index);
        let frame = conn.inbox.front(lengths.frame_bytes);
        let head_fits = conn.seal.is_some() || Header::check_sum(frame).is_ok();
        let sent = conn.sum_of(&lengths);
        let fits = |(_, summed): &(BufId, Summed)| sent.is_none() || sent == summed.crc32c;
        let bulk_fits = summed.as_ref().is_none_or(fits);
        if !(head_fits && bulk_fits) {
            if let Some((buf, _)) = summed {
                io.pool.release(buf);
            }
            return self.fail(index, CloseReason::ProtocolError(ProtocolError::Checksum), io);
        }
        let bulk_bytes = lengths.bulk_bytes;
        let bulk = summed.map(|(buf, Summed { crc32c, mac, block_sums: _ })| Bulk {
            buf,
            start: 0,
            bulk_bytes,
            crc32c,
            mac,
        });
        let conn = self.conn(index);
        io.counters.frame_in_count += 1;
        if conn.relay.is_some() {
            return self.forward_frame(index, lengths.frame_bytes, bulk, io);
        }
        if conn.accepted && !conn.announced {
            self.report_origin(index, io);
        }
        let conn = self.conn(index);
        let frame = io.arena.put(conn.inbox.front(lengths.frame_bytes));
        conn.inbox.consume(lengths.frame_bytes);
        conn.announced = true;
        conn.paused = !conn.admitted;
        io.events.push(Event::Net(NetEvent::Frame { conn: conn.id, frame, bulk }));
    }
}

impl Conn {
    /// Most bytes of a body that the peer may send now, if fewer than ever. Only a server sends a
    /// Welcome.
    pub(super) const fn body_bytes_max(&self) -> Option<u32> {
        match (self.admitted, self.accepted) {
            (true, _) => None,
            (false, true) => Some(HANDSHAKE_BODY_BYTES_MAX),
            (false, false) => Some(WELCOME_BODY_BYTES_MAX),
        }
    }

    /// The checksum that a bulk must match, if it came with one: under TLS it does not.
    fn sum_of(&self, lengths: &Lengths) -> Option<u32> {
        lengths.bulk_crc32c.filter(|_| self.seal.is_none())
    }
}
