//! The lane's log file: batches become durable in order, space is reserved ahead.
//!
//! What is in a batch is the brain's. Invariants: one batch is in flight at a time; after a failed
//! write nothing is written any more; space behind the end is zeros, up to the reserve.

use crate::config::{FaultPoint, LogFile};
use crate::driver::{Kind, Op, Token};
use crate::number::{u32_of, u64_of};
use crate::tools::Tools;
use door::{Errno, Event, LogRoom, Mono, Ticket};
use std::os::fd::AsRawFd;

/// How long to wait until space is asked for again after there was none.
const RESERVE_RETRY_MS: u64 = 1000;
/// Less than this is not asked for.
const RESERVE_BYTES_MIN: u64 = 256 * 1024;
const IO: Errno = Errno(5);

/// A lane's log.
pub(crate) struct Log {
    config: LogFile,
    /// Behind the last durable batch.
    end_offset: u64,
    /// Up to here the medium has space for sure.
    reserved_offset: u64,
    appending: Option<Appending>,
    /// Reused by every batch.
    batch: Vec<u8>,
    reserving_bytes: Option<u64>,
    /// The reserve was last refused then.
    refused_at: Option<Mono>,
    broken: Option<Errno>,
}

#[derive(Clone, Copy)]
struct Appending {
    ticket: Ticket,
    written_bytes: usize,
}

impl Log {
    /// Takes the log over and asks for the first reserve, of which an event tells.
    pub(crate) fn new(config: LogFile, tools: &mut Tools) -> Self {
        let start_offset = config.start_offset;
        let mut log = Self {
            config,
            end_offset: start_offset,
            reserved_offset: start_offset,
            appending: None,
            batch: Vec::new(),
            reserving_bytes: None,
            refused_at: None,
            broken: None,
        };
        // What an earlier run had reserved comes first: it is had even on a full disk.
        let file_bytes = rustix::fs::fstat(&log.config.file)
            .map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        let kept_bytes = file_bytes.saturating_sub(start_offset);
        let first_bytes = if kept_bytes > 0 { kept_bytes } else { log.config.reserve_bytes };
        log.reserve(first_bytes, tools);
        log
    }

    const fn room(&self) -> LogRoom {
        LogRoom { room_bytes: self.reserved_offset.saturating_sub(self.end_offset) }
    }

    /// Writes a batch.
    pub(crate) fn append(&mut self, ticket: Ticket, batch: &[u8]) -> Option<Event> {
        assert!(self.appending.is_none(), "one batch at a time");
        if let Some(errno) = self.broken {
            return Some(Event::Logged { ticket, result: Err(errno) });
        }
        self.batch.clear();
        self.batch.extend_from_slice(batch);
        self.appending = Some(Appending { ticket, written_bytes: 0 });
        None
    }

    /// Queues what is left of the batch in flight.
    pub(crate) fn write(&mut self, tools: &mut Tools) {
        let Some(Appending { written_bytes, .. }) = self.appending else { return };
        let rest = &self.batch[written_bytes..];
        let op = Op::WriteDurable {
            file: self.config.file.as_raw_fd(),
            at: rest.as_ptr(),
            write_bytes: u32_of(rest.len()),
            offset: self.end_offset + u64_of(written_bytes),
        };
        // SAFETY: the batch is not touched until the append is over; the log outlives it.
        unsafe { tools.queue_or_fail(FaultPoint::LogWrite, Token::new(Kind::LogWrite, 0), op) };
    }

    /// The kernel has written, durably.
    pub(crate) fn on_write(&mut self, result: Result<u32, Errno>, tools: &mut Tools) {
        let Some(appending) = self.appending.as_mut() else { return };
        let ticket = appending.ticket;
        let errno = match result {
            Ok(written_bytes) => {
                appending.written_bytes += written_bytes as usize;
                if appending.written_bytes == self.batch.len() {
                    self.appending = None;
                    self.end_offset += u64_of(self.batch.len());
                    self.reserved_offset = self.reserved_offset.max(self.end_offset);
                    tools.events.push(Event::Logged { ticket, result: Ok(self.room()) });
                    self.reserve_ahead(tools);
                    return;
                }
                if written_bytes > 0 {
                    return self.write(tools);
                }
                IO
            }
            Err(Errno(4)) => return self.write(tools),
            Err(errno) => errno,
        };
        self.appending = None;
        self.broken = Some(errno);
        tools.events.push(Event::Logged { ticket, result: Err(errno) });
    }

    /// Asks for more space when less than half is left, after a refusal not at once.
    pub(crate) fn reserve_ahead(&mut self, tools: &mut Tools) {
        let early = self.deadline().is_some_and(|deadline| tools.now.mono < deadline);
        if self.wants_more() && !early {
            self.reserve(self.config.reserve_bytes, tools);
        }
    }

    /// When to ask again for what was refused. On a full disk nothing is appended any more, so
    /// nothing else would.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        let refused_at = self.refused_at.filter(|_| self.wants_more())?;
        Some(refused_at.after_ms(RESERVE_RETRY_MS))
    }

    fn wants_more(&self) -> bool {
        let enough = self.room().room_bytes >= self.config.reserve_bytes / 2;
        !enough && self.reserving_bytes.is_none() && self.broken.is_none()
    }

    fn reserve(&mut self, reserve_bytes: u64, tools: &mut Tools) {
        self.reserving_bytes = Some(reserve_bytes);
        let file = self.config.file.as_raw_fd();
        let op = Op::Reserve { file, offset: self.reserved_offset, reserve_bytes };
        let token = Token::new(Kind::LogReserve, 0);
        // SAFETY: names no memory; the file lives as long as the log.
        unsafe { tools.queue_or_fail(FaultPoint::LogReserve, token, op) };
    }

    /// The kernel has reserved space, or has none.
    pub(crate) fn on_reserve(&mut self, result: Result<u32, Errno>, tools: &mut Tools) {
        let Some(reserve_bytes) = self.reserving_bytes.take() else { return };
        match result {
            Ok(_) => {
                self.refused_at = None;
                self.reserved_offset += reserve_bytes;
            }
            // Less may still be there.
            Err(_) if reserve_bytes / 2 >= RESERVE_BYTES_MIN => {
                return self.reserve(reserve_bytes / 2, tools);
            }
            Err(_) => self.refused_at = Some(tools.now.mono),
        }
        // A refusal tells the room, too: the first event of a log must come.
        tools.events.push(Event::LogRoom(self.room()));
        self.reserve_ahead(tools);
    }
}
