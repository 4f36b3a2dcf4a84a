//! The lane's log: batches become durable in order, space is reserved ahead, and a long log
//! continues in another file, which the applier's thread makes.
//!
//! The content of a batch is the core's; the log appends a trailer with the durable positions of
//! all lanes' logs. The log changes files only when the next one is ready; until then its file
//! grows. Invariants: one batch is in flight at a time; after a failed write nothing more is
//! written; space behind the end is zeros, up to the reserve; zeros and a batch are never written
//! to the same place at a time.
//!
//! ```text
//!            end      zeroed                       reserved
//! │ batches ──┤ zeros ──┤ reserved, not written yet ──┤
//! ```
//! A batch written over zeros costs one write and one flush. Over space that is only reserved, the
//! file system must also journal that it was written, which is a second flush; so zeros are written
//! ahead, in the background.

use crate::config::LogFile;
use crate::driver::{Kind, Op, Token};
use crate::fault::{FaultPoint, LOG_SLOW_MS};
use crate::feed::{Feed, LogPosition};
use crate::io_context::IoContext;
use crate::number::{u32_of, u64_of};
use disk::{BatchHeader, Trailer, zero_piece_count};
use interface::{Errno, Event, LogSpace, Mono, StoreEvent, Ticket};
use std::cell::Cell;
use std::os::fd::AsRawFd;

/// Delay before space is requested again after a refusal.
const RESERVE_RETRY_MS: u64 = 1000;
/// Smallest request for space.
const RESERVE_BYTES_MIN: u64 = 256 * 1024;
/// How far ahead of the end zeros are written.
const ZERO_AHEAD_BYTES: u64 = 2 << 20;
/// Zeros per write.
const ZERO_BYTES: usize = 256 * 1024;
static ZEROS: [u8; ZERO_BYTES] = [0; ZERO_BYTES];
const IO: Errno = Errno(5);

/// A lane's log.
pub(crate) struct Log {
    config: LogFile,
    /// Number of the current file.
    segment_no: u32,
    /// Bytes of all batches so far.
    written_bytes: u64,
    /// The admitted log space was last reported as less than is reserved.
    is_behind: Cell<bool>,
    /// End of the last durable batch.
    end_offset: u64,
    /// Space is reserved up to here.
    reserved_offset: u64,
    /// Zeros or batches were written up to here.
    zeroed_offset: u64,
    zeroing: Zeroing,
    appending: Option<Appending>,
    slowed: Slowed,
    /// Reused by each batch; the trailer is behind it.
    batch: Vec<u8>,
    /// The pending reservation: offset and length.
    reserving: Option<(u64, u64)>,
    /// When a reservation was last refused.
    refused_at: Option<Mono>,
    broken: Option<Errno>,
}

/// Whether zeros are being written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zeroing {
    Idle,
    /// So many, from [`Log::zeroed_offset`] on.
    Writing {
        zero_bytes: u32,
    },
    /// A write of zeros failed; the next batch will meet the error itself.
    Given,
}

/// What an injected fault does to the batch in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slowed {
    No,
    /// It is written then.
    Until(Mono),
    Over,
}

#[derive(Clone, Copy)]
struct Appending {
    ticket: Ticket,
    written_bytes: usize,
    /// It waits for overlapping zeros to be written, or, before a change of files, until nothing
    /// else is in flight to the old file.
    held_up: bool,
}

impl Log {
    /// Takes the log over and requests the first reservation, which an event reports.
    pub(crate) fn new(config: LogFile, io: &mut IoContext) -> Self {
        let start_offset = config.start_offset;
        let mut log = Self {
            config,
            segment_no: 1,
            written_bytes: 0,
            is_behind: Cell::new(false),
            end_offset: start_offset,
            reserved_offset: start_offset,
            zeroed_offset: start_offset,
            zeroing: Zeroing::Idle,
            appending: None,
            slowed: Slowed::No,
            batch: Vec::new(),
            reserving: None,
            refused_at: None,
            broken: None,
        };
        // Space that an earlier run reserved comes first: it is available even on a full disk.
        let file_bytes = rustix::fs::fstat(&log.config.file)
            .map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        let left_bytes = file_bytes.saturating_sub(start_offset);
        let first_bytes = if left_bytes > 0 { left_bytes } else { log.config.reserve_bytes };
        log.reserve(first_bytes, io);
        log
    }

    /// Whether a batch is in flight.
    pub(crate) const fn is_appending(&self) -> bool {
        self.appending.is_some()
    }

    /// Reserved space left in this file.
    const fn file_space_bytes(&self) -> u64 {
        self.reserved_offset.saturating_sub(self.end_offset)
    }

    /// Log space for admission: the reserved space, limited by how far the applier is behind.
    pub(crate) fn space(&self) -> LogSpace {
        let mut space_bytes = self.file_space_bytes();
        if let Some(feed) = &self.config.feed {
            // A batch that does not fit begins the next file.
            if self.reserved_offset >= feed.file_bytes() {
                space_bytes = space_bytes.max(feed.segment_bytes());
            }
            let taken_bytes = feed.space_bytes(self.written_bytes);
            self.is_behind.set(taken_bytes < space_bytes);
            space_bytes = space_bytes.min(taken_bytes);
            space_bytes = space_bytes.saturating_sub(u64_of(feed.trailer_bytes()));
        }
        // Space that was not refused will be reserved.
        LogSpace { space_bytes, awaits_checkpoint: self.is_behind() || self.refused_at.is_none() }
    }

    /// Whether log space was reported as less than is reserved.
    pub(crate) const fn is_behind(&self) -> bool {
        self.is_behind.get()
    }

    /// Continues in the next file if this one is long and the next is ready. `false`: it must, but
    /// an operation on this file is still in flight.
    fn change_files(&mut self) -> bool {
        let Some(feed) = &self.config.feed else { return true };
        if self.batch_end_offset() <= feed.file_bytes() {
            return true;
        }
        let space_bytes = self.file_space_bytes();
        if self.reserving.is_some() || matches!(self.zeroing, Zeroing::Writing { .. }) {
            return feed.segment_bytes() < space_bytes;
        }
        let Some(next) = feed.take_segment(space_bytes) else { return true };
        feed.retire(std::mem::replace(&mut self.config.file, next.file));
        self.segment_no = next.segment_no;
        self.end_offset = next.start_offset;
        self.zeroed_offset = next.start_offset;
        self.reserved_offset = next.start_offset + next.reserved_bytes;
        self.zeroing = Zeroing::Idle;
        true
    }

    /// Whether the next file is ready and this one is about to be left.
    fn is_leaving(&self) -> bool {
        self.config.feed.as_ref().is_some_and(|feed| {
            let is_long = self.batch_end_offset() + ZERO_AHEAD_BYTES > feed.file_bytes();
            is_long && feed.segment_bytes() > 0
        })
    }

    /// Announces the durable position to the applier.
    fn announce(&self, io: &mut IoContext) {
        let Some(feed) = &self.config.feed else { return };
        let place = LogPosition { segment_no: self.segment_no, offset: self.end_offset };
        feed.set_durable(place);
        io.log_first.on_durable(place);
        let mut woken = pass_on(feed, io);
        feed.hurry(self.written_bytes);
        if self.end_offset > feed.file_bytes() / 2 {
            woken |= feed.request_segment();
        }
        io.counters.syscall_count += u64::from(woken);
    }

    /// Lets the rows take over what they may.
    pub(crate) fn pass_on(&self, io: &mut IoContext) {
        if let Some(feed) = &self.config.feed {
            let woken = pass_on(feed, io);
            io.counters.syscall_count += u64::from(woken);
        }
    }

    /// Starts a batch.
    pub(crate) fn append(&mut self, ticket: Ticket, batch: &[u8]) -> Option<Event> {
        assert!(self.appending.is_none(), "one batch at a time");
        if let Some(errno) = self.broken {
            return Some(Event::Store(StoreEvent::Logged { ticket, result: Err(errno) }));
        }
        self.batch.clear();
        self.batch.extend_from_slice(batch);
        if let Some(feed) = &self.config.feed {
            self.batch.resize(batch.len() + feed.trailer_bytes(), 0);
        }
        self.appending = Some(Appending { ticket, written_bytes: 0, held_up: false });
        None
    }

    /// Queues the rest of the batch in flight.
    pub(crate) fn write(&mut self, io: &mut IoContext) {
        let Some(Appending { written_bytes, .. }) = self.appending else { return };
        if self.slowed == Slowed::No && io.inject(FaultPoint::LogSlow).is_some() {
            self.slowed = Slowed::Until(io.now.mono.after_ms(LOG_SLOW_MS));
        }
        if matches!(self.slowed, Slowed::Until(_)) {
            return;
        }
        let waits = (written_bytes == 0 && !self.change_files()) || self.meets_zeros();
        if let Some(appending) = &mut self.appending {
            appending.held_up = waits;
        }
        if waits {
            return;
        }
        if written_bytes == 0 {
            self.put_trailer();
        }
        let rest = &self.batch[written_bytes..];
        let token = Token::new(Kind::LogWrite, 0);
        if io.inject(FaultPoint::LogStall).is_some() {
            return;
        }
        if io.inject(FaultPoint::LogFreeze).is_some() {
            return io.driver.complete(token, Ok(u32_of(rest.len())));
        }
        let op = Op::WriteDurable {
            file: self.config.file.as_raw_fd(),
            at: rest.as_ptr(),
            write_bytes: u32_of(rest.len()),
            offset: self.end_offset + u64_of(written_bytes),
        };
        // SAFETY: the batch is not touched until the append has completed; the log outlives it.
        unsafe { io.queue_or_fail(FaultPoint::LogWrite, token, op) };
    }

    /// Writes the trailer, now that the batch's position is known.
    fn put_trailer(&mut self) {
        let Some(feed) = &self.config.feed else { return };
        let batch_bytes = self.batch.len() - feed.trailer_bytes();
        let batch = &self.batch[..batch_bytes];
        #[expect(clippy::expect_used, reason = "a log with a feed is a server's")]
        let head = BatchHeader::decode(batch).expect("a lane appends whole batches");
        let trailer = Trailer {
            boot_id: head.boot_id,
            batch_no: head.batch_no,
            batch_bytes: head.batch_bytes,
            zero_piece_count: zero_piece_count(self.end_offset, batch),
            file_bytes: self.reserved_offset.max(self.batch_end_offset()),
            places: feed.positions(),
        };
        self.batch.truncate(batch_bytes);
        trailer.encode(&mut self.batch);
    }

    /// A batch was written durably, or failed.
    pub(crate) fn on_write(&mut self, result: Result<u32, Errno>, io: &mut IoContext) {
        let Some(appending) = self.appending.as_mut() else { return };
        let ticket = appending.ticket;
        let errno = match result {
            Ok(written_bytes) => {
                appending.written_bytes += written_bytes as usize;
                if appending.written_bytes == self.batch.len() {
                    io.inject(FaultPoint::LogWritten);
                    self.appending = None;
                    self.slowed = Slowed::No;
                    self.end_offset += u64_of(self.batch.len());
                    self.written_bytes += u64_of(self.batch.len());
                    self.reserved_offset = self.reserved_offset.max(self.end_offset);
                    self.zeroed_offset = self.zeroed_offset.max(self.end_offset);
                    self.zero_ahead(io);
                    self.announce(io);
                    io.events.push(Event::Store(StoreEvent::Logged {
                        ticket,
                        result: Ok(self.space()),
                    }));
                    self.reserve_ahead(io);
                    return;
                }
                if written_bytes > 0 {
                    return self.write(io);
                }
                IO
            }
            Err(Errno(4)) => return self.write(io),
            Err(errno) => errno,
        };
        self.appending = None;
        self.broken = Some(errno);
        io.events.push(Event::Store(StoreEvent::Logged { ticket, result: Err(errno) }));
    }

    /// End of the batch in flight, or of the last one.
    fn batch_end_offset(&self) -> u64 {
        let batch_bytes = if self.appending.is_some() { self.batch.len() } else { 0 };
        self.end_offset + u64_of(batch_bytes)
    }

    fn meets_zeros(&self) -> bool {
        let zeroing = matches!(self.zeroing, Zeroing::Writing { .. });
        zeroing && self.batch_end_offset() > self.zeroed_offset
    }

    /// Writes the next zeros, if they are due.
    fn zero_ahead(&mut self, io: &mut IoContext) {
        if self.zeroing != Zeroing::Idle || self.broken.is_some() || self.is_leaving() {
            return;
        }
        self.zeroed_offset = self.zeroed_offset.max(self.batch_end_offset());
        let wanted_offset = self.reserved_offset.min(self.end_offset + ZERO_AHEAD_BYTES);
        let zero_bytes = u32_of(ZERO_BYTES);
        if wanted_offset.saturating_sub(self.zeroed_offset) < u64::from(zero_bytes) {
            return;
        }
        self.zeroing = Zeroing::Writing { zero_bytes };
        let op = Op::WriteDurable {
            file: self.config.file.as_raw_fd(),
            at: ZEROS.as_ptr(),
            write_bytes: zero_bytes,
            offset: self.zeroed_offset,
        };
        let token = Token::new(Kind::LogZero, 0);
        // SAFETY: the zeros are static; the file lives as long as the log.
        unsafe { io.queue_or_fail(FaultPoint::LogReserve, token, op) };
    }

    /// Zeros were written, or failed.
    pub(crate) fn on_zero(&mut self, result: Result<u32, Errno>, io: &mut IoContext) {
        let Zeroing::Writing { zero_bytes } = self.zeroing else { return };
        self.zeroing = match result {
            Ok(written_bytes) if written_bytes == zero_bytes => {
                self.zeroed_offset += u64::from(zero_bytes);
                Zeroing::Idle
            }
            Ok(_) | Err(_) => Zeroing::Given,
        };
        self.go_on(io);
        self.zero_ahead(io);
    }

    /// Writes the delayed batch, if nothing is in its way any more.
    fn go_on(&mut self, io: &mut IoContext) {
        if self.appending.is_some_and(|appending| appending.held_up) {
            self.write(io);
        }
    }

    /// Writes a slowed batch whose time has come, and requests more space.
    pub(crate) fn on_turn(&mut self, io: &mut IoContext) {
        if let Slowed::Until(until) = self.slowed
            && until <= io.now.mono
        {
            self.slowed = Slowed::Over;
            self.write(io);
        }
        self.reserve_ahead(io);
    }

    /// Requests more space when less than half is left, after a refusal with a delay.
    fn reserve_ahead(&mut self, io: &mut IoContext) {
        let early = self.reserve_retry_at().is_some_and(|deadline| io.now.mono < deadline);
        if self.wants_more() && !early {
            self.reserve(self.config.reserve_bytes, io);
        }
    }

    /// When to write a slowed batch, or to request refused space again. On a full disk no append
    /// happens that would.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        let slowed_until = if let Slowed::Until(until) = self.slowed { Some(until) } else { None };
        [slowed_until, self.reserve_retry_at()].into_iter().flatten().min()
    }

    fn reserve_retry_at(&self) -> Option<Mono> {
        let refused_at = self.refused_at.filter(|_| self.wants_more())?;
        Some(refused_at.after_ms(RESERVE_RETRY_MS))
    }

    fn wants_more(&self) -> bool {
        let enough = self.file_space_bytes() >= self.config.reserve_bytes / 2;
        !enough && !self.is_leaving() && self.reserving.is_none() && self.broken.is_none()
    }

    /// The feed of this log.
    pub(crate) const fn feed(&self) -> Option<&Feed> {
        self.config.feed.as_ref()
    }

    fn reserve(&mut self, reserve_bytes: u64, io: &mut IoContext) {
        self.reserving = Some((self.reserved_offset, reserve_bytes));
        let file = self.config.file.as_raw_fd();
        let (offset, range_bytes) = (self.reserved_offset, reserve_bytes);
        let op = Op::Allocate { file, offset, range_bytes, mode: 0 };
        let token = Token::new(Kind::LogReserve, 0);
        // SAFETY: names no memory; the file lives as long as the log.
        unsafe { io.queue_or_fail(FaultPoint::LogReserve, token, op) };
    }

    /// Space was reserved, or refused.
    pub(crate) fn on_reserve(&mut self, result: Result<u32, Errno>, io: &mut IoContext) {
        let Some((offset, reserve_bytes)) = self.reserving.take() else { return };
        match result {
            Ok(_) => {
                self.refused_at = None;
                // Batches may have been written beyond the reservation meanwhile.
                self.reserved_offset = self.reserved_offset.max(offset + reserve_bytes);
                self.zero_ahead(io);
            }
            // Less space may still be available.
            Err(_) if reserve_bytes / 2 >= RESERVE_BYTES_MIN => {
                return self.reserve(reserve_bytes / 2, io);
            }
            Err(_) => self.refused_at = Some(io.now.mono),
        }
        // A refusal reports log space too: the first event of a log must come.
        io.events.push(Event::Store(StoreEvent::LogSpace(self.space())));
        self.go_on(io);
        self.reserve_ahead(io);
    }
}

/// Lets the rows take over what they may. Returns whether a thread was woken.
fn pass_on(feed: &Feed, io: &mut IoContext) -> bool {
    if io.log_first.has_failed() {
        return feed.fail_contents();
    }
    io.log_first.take_ready().is_some_and(|place| feed.set_ready(place))
}
