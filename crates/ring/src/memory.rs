//! The memory of bulk buffers, and its way out of the ring and back.
//!
//! ```text
//! Pool ── detach ─▶ BulkBytes (any thread) ── drop ─▶ Returned ── Pool::take ─▶ Pool
//! ```
//! Invariant: memory has one owner, and is initialised from its allocation on.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) const PAGE_BYTES: usize = 4096;

/// Page-aligned bytes, zeroed when allocated.
pub(crate) struct Memory {
    pub(crate) at: NonNull<u8>,
    pub(crate) capacity_bytes: usize,
}

// SAFETY: it owns its allocation, which any thread may use and free.
unsafe impl Send for Memory {}

impl Memory {
    fn layout(capacity_bytes: usize) -> Layout {
        let Ok(layout) = Layout::from_size_align(capacity_bytes, PAGE_BYTES) else {
            panic!("{capacity_bytes} bytes cannot be laid out")
        };
        layout
    }

    pub(crate) fn new(capacity_bytes: usize) -> Self {
        assert!(capacity_bytes > 0, "no buffer is empty");
        let layout = Self::layout(capacity_bytes);
        // SAFETY: the layout's size is not 0.
        let at = unsafe { alloc_zeroed(layout) };
        let Some(at) = NonNull::new(at) else { handle_alloc_error(layout) };
        Self { at, capacity_bytes }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and dropped once.
        unsafe { dealloc(self.at.as_ptr(), Self::layout(self.capacity_bytes)) };
    }
}

/// The bytes of a bulk in the memory in which they were received. When they are dropped, the
/// memory returns to the ring that received them.
pub struct BulkBytes {
    /// `None` only while it is dropped.
    memory: Option<Memory>,
    range: Range<usize>,
    home: Arc<Returned>,
}

impl BulkBytes {
    /// These bytes of `memory`, which nothing else uses.
    pub(crate) fn new(memory: Memory, range: Range<usize>, home: Arc<Returned>) -> Self {
        assert!(range.start <= range.end, "a range begins before it ends");
        assert!(range.end <= memory.capacity_bytes, "the bytes are in the memory");
        Self { memory: Some(memory), range, home }
    }
}

impl AsRef<[u8]> for BulkBytes {
    fn as_ref(&self) -> &[u8] {
        let Some(memory) = &self.memory else { return &[] };
        let at = memory.at.as_ptr().wrapping_add(self.range.start);
        // SAFETY: `new` checked that the range is in the memory, which is initialised and owned.
        unsafe { std::slice::from_raw_parts(at, self.range.len()) }
    }
}

impl Drop for BulkBytes {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.home.push(memory);
        }
    }
}

impl fmt::Debug for BulkBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkBytes").field("range", &self.range).finish_non_exhaustive()
    }
}

/// Memory that was returned to a ring and waits there for reuse.
pub(crate) struct Returned {
    memories: Mutex<Vec<Memory>>,
    count_max: usize,
}

impl Returned {
    /// Space for so many buffers; what is returned beyond it is freed.
    pub(crate) const fn new(count_max: usize) -> Self {
        Self { memories: Mutex::new(Vec::new()), count_max }
    }

    fn push(&self, memory: Memory) {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        if memories.len() < self.count_max {
            memories.push(memory);
        }
    }

    /// All of it, last returned last.
    pub(crate) fn take(&self) -> Vec<Memory> {
        std::mem::take(&mut *self.memories.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn dropped_bytes_return_their_memory_from_any_thread() {
        let home = Arc::new(Returned::new(1));
        let bytes = |range| BulkBytes::new(Memory::new(PAGE_BYTES), range, Arc::clone(&home));
        let (first, second) = (bytes(0..PAGE_BYTES), bytes(5..7));
        let at = first.as_ref().as_ptr();
        assert_eq!(second.as_ref(), [0, 0]);
        std::thread::spawn(move || drop(first)).join().unwrap();
        drop(second);
        let returned = home.take();
        assert_eq!(returned.len(), 1, "there is no space for the second");
        assert_eq!(returned[0].at.as_ptr().cast_const(), at);
        assert!(home.take().is_empty());
    }
}
