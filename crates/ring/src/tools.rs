//! What every part of a ring works with.

use crate::buffer::Pool;
use crate::config::{Counters, Fault, FaultPoint};
use crate::driver::{Driver, Op, Token};
use door::{Arena, Bulk, Event, Now};

/// Shared by connections, files and the kernel's channel; owned by the ring.
pub(crate) struct Tools {
    pub(crate) driver: Driver,
    pub(crate) pool: Pool,
    pub(crate) arena: Arena,
    /// For the brain, in order.
    pub(crate) events: Vec<Event>,
    pub(crate) counters: Counters,
    pub(crate) now: Now,
    pub(crate) fault: Option<Fault>,
}

impl Tools {
    /// As [`Driver::queue`], unless a test wants it to fail.
    ///
    /// # Safety
    /// As [`Driver::queue`].
    pub(crate) unsafe fn queue_or_fail(&mut self, point: FaultPoint, token: Token, op: Op) {
        match self.fault.as_ref().and_then(|fault| fault(point)) {
            Some(errno) => self.driver.answer(token, Err(errno)),
            // SAFETY: the caller vouches.
            None => unsafe { self.driver.queue(token, op) },
        }
    }

    /// The bytes of a bulk.
    pub(crate) fn bulk_bytes(&self, bulk: Bulk) -> &[u8] {
        self.pool.bytes(bulk.buf, bulk.start as usize, bulk.bulk_bytes as usize)
    }
}
