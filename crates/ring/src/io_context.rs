//! What all parts of a ring use to reach the kernel and their core: driver, buffers, events.

use crate::buffer::Pool;
use crate::counters::Counters;
use crate::driver::{Driver, Op, Token};
use crate::fault::{Fault, FaultPoint};
use crate::lists::Lists;
use crate::log_first::LogFirst;
use crate::sums::SumJobs;
use interface::{Arena, Bulk, Errno, Event, Now, ObjectEvent, Span};
use wire::{Bytes, FrameKind, Writer};

/// Minimum length of a read that may stay a range of the file: below it, the two calls that check
/// whether it can and the additional call that sends it cost as much as the copy.
pub(crate) const FILE_RANGE_BYTES_MIN: usize = 64 * 1024;
/// Offsets of a frame's kind and slot in its header.
const KIND_OFFSET: usize = 5;
const SLOT_OFFSET: usize = 28;

/// Shared by connections, objects and the kernel channel; owned by the ring.
pub(crate) struct IoContext {
    pub(crate) driver: Driver,
    pub(crate) pool: Pool,
    pub(crate) lists: Lists,
    pub(crate) sum_jobs: SumJobs,
    pub(crate) log_first: LogFirst,
    pub(crate) arena: Arena,
    /// Events for the core, in order.
    pub(crate) events: Vec<Event>,
    pub(crate) counters: Counters,
    pub(crate) now: Now,
    pub(crate) fault: Option<Fault>,
    /// At-most-once replies are being sent; tracked only with fault injection.
    pub(crate) replying: bool,
    /// See [`crate::Config::checksum_memory`].
    pub(crate) checksum_memory: bool,
}

impl IoContext {
    /// Calls the fault injection, if configured.
    pub(crate) fn inject(&self, point: FaultPoint) -> Option<Errno> {
        self.fault.as_ref().and_then(|fault| fault(point))
    }

    /// Injects faults before a reply is sent.
    pub(crate) fn check_reply_fault(&mut self, frame: Span) {
        if self.fault.is_none() {
            return;
        }
        let frame = self.arena.get(frame);
        let slot = frame.get(SLOT_OFFSET..SLOT_OFFSET + 2);
        let reply = frame.get(KIND_OFFSET) == Some(&(FrameKind::Reply as u8));
        if reply && slot.is_some_and(|slot| slot != [0; 2]) {
            self.replying = true;
            self.inject(FaultPoint::Reply);
        }
    }

    /// Injects faults after replies were sent.
    pub(crate) fn check_replied_fault(&mut self) {
        if std::mem::take(&mut self.replying) {
            self.inject(FaultPoint::Replied);
        }
    }

    /// As [`Driver::queue`], unless a fault is injected.
    ///
    /// # Safety
    /// As [`Driver::queue`].
    pub(crate) unsafe fn queue_or_fail(&mut self, point: FaultPoint, token: Token, op: Op) {
        match self.inject(point) {
            Some(errno) => self.driver.complete(token, Err(errno)),
            // SAFETY: the caller vouches.
            None => unsafe { self.driver.queue(token, op) },
        }
    }

    /// Loads the bytes that the log wants, each encoded as those of one range.
    pub(crate) fn load_log_first(&mut self) {
        for (ticket, bulk) in self.log_first.take_wanted() {
            let (start, bulk_bytes) = (bulk.start as usize, bulk.bulk_bytes as usize);
            let bytes = self.pool.bytes(bulk.buf, start, bulk_bytes);
            let loaded = self.arena.write(|out| Writer::new(out).write(&Bytes(bytes)));
            self.pool.release(bulk.buf);
            self.events.push(Event::Object(ObjectEvent::Loaded { ticket, result: Ok(loaded) }));
        }
    }

    /// The bytes of a bulk.
    pub(crate) fn bulk_bytes(&self, bulk: Bulk) -> &[u8] {
        self.pool.bytes(bulk.buf, bulk.start as usize, bulk.bulk_bytes as usize)
    }

    /// The checksum of a bulk that is sent in plain text, if it gets one: a file range gets none.
    pub(crate) fn sum_of(&self, bulk: Bulk, asked_by_us: bool) -> Option<u32> {
        let small = (bulk.bulk_bytes as usize) < FILE_RANGE_BYTES_MIN;
        let sums = asked_by_us || small || self.checksum_memory;
        let sum = || {
            let in_memory = self.pool.range(bulk.buf).is_none();
            (sums && in_memory).then(|| wire::crc32c(self.bulk_bytes(bulk)))
        };
        bulk.crc32c.or_else(sum)
    }
}
