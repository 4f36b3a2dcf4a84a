//! A pool of worker threads: each takes the oldest operation, of any file.

use super::super::pool::Pool;
use super::{Engine, Offloaded, Token, Wakeup, Work};
use interface::Errno;
use std::io;

/// Threads of a lane, and so its operations in the kernel at a time; further ones wait.
const THREAD_COUNT_MAX: usize = 16;

/// A lane's worker threads for objects.
pub(super) struct Stay {
    pool: Pool,
    offloaded_count: u64,
    call_count: u64,
}

impl Stay {
    pub(super) fn new(cores: &[u16]) -> io::Result<Self> {
        let mut pool = Pool::new("objects", THREAD_COUNT_MAX)?;
        pool.work_on(cores);
        Ok(Self { pool, offloaded_count: 0, call_count: 0 })
    }
}

impl Engine for Stay {
    unsafe fn begin(&mut self, work: Work) {
        self.offloaded_count += 1;
        // SAFETY: the caller vouches.
        self.call_count += unsafe { self.pool.begin(work.token, work.op) };
    }

    fn take(&mut self, taken: &mut dyn FnMut(Token, Result<u32, Errno>)) {
        self.pool.take(taken);
    }

    fn wakeup(&self) -> Option<&Wakeup> {
        Some(self.pool.wakeup())
    }

    fn end(&mut self) -> bool {
        self.pool.end()
    }

    fn offloaded(&self) -> Offloaded {
        Offloaded { offloaded_count: self.offloaded_count, thread_count: self.pool.thread_count() }
    }

    fn call_count(&self) -> u64 {
        self.call_count
    }
}
