//! The lane's buffers: where bulk bytes lie, counted by references, reused.
//!
//! It leaves to others what the bytes mean. Invariants: a buffer with references is never given
//! out again; its memory never moves; it is written only by whoever took it, before anyone else
//! learned its name. Sizes are powers of two from 4 KiB on, the largest a little more than 1 MiB
//! (a FUSE write with its headers).

use crate::number::u32_of;
use door::BufId;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

const PAGE_BYTES: usize = 4096;
const CLASS_COUNT: usize = 10;
/// Capacity of the largest class, in bytes: 1 MiB of data and two pages for headers.
pub(crate) const BUFFER_BYTES_MAX: usize = (1 << 20) + 2 * PAGE_BYTES;
/// Memory kept for reuse, in bytes.
const KEPT_BYTES_MAX: usize = 64 << 20;

struct Slot {
    memory: Memory,
    refs_count: u32,
    /// `None`: made to stay, for the kernel's FUSE queues.
    class: Option<usize>,
}

/// Page-aligned bytes, zeroed when made.
struct Memory {
    at: NonNull<u8>,
    capacity_bytes: usize,
}

impl Memory {
    fn layout(capacity_bytes: usize) -> Layout {
        let Ok(layout) = Layout::from_size_align(capacity_bytes, PAGE_BYTES) else {
            panic!("{capacity_bytes} bytes cannot be laid out")
        };
        layout
    }

    fn new(capacity_bytes: usize) -> Self {
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

/// The buffers of a lane.
pub(crate) struct Pool {
    slots: Vec<Slot>,
    /// Indices of slots without references that keep their memory, by class.
    kept: [Vec<u32>; CLASS_COUNT],
    kept_bytes: usize,
    used_bytes: usize,
    used_bytes_max: usize,
    /// Something was given back since [`Self::take_freed`].
    freed: bool,
}

impl Pool {
    /// A pool that gives out at most `used_bytes_max` bytes at a time.
    pub(crate) fn new(used_bytes_max: usize) -> Self {
        Self {
            slots: Vec::new(),
            kept: [const { Vec::new() }; CLASS_COUNT],
            kept_bytes: 0,
            used_bytes: 0,
            // One buffer of the largest size fits always, or nothing would ever move.
            used_bytes_max: used_bytes_max.max(BUFFER_BYTES_MAX),
            freed: false,
        }
    }

    /// A buffer of at least this many bytes, with one reference; `None` while the limit forbids.
    pub(crate) fn take(&mut self, room_bytes: usize) -> Option<BufId> {
        let class = class_of(room_bytes);
        let capacity_bytes = capacity_of(class);
        if self.used_bytes + capacity_bytes > self.used_bytes_max {
            return None;
        }
        self.used_bytes += capacity_bytes;
        if let Some(index) = self.kept[class].pop() {
            self.kept_bytes -= capacity_bytes;
            let slot = &mut self.slots[index as usize];
            assert!(slot.refs_count == 0, "a kept buffer has no owner");
            slot.refs_count = 1;
            return Some(BufId(index));
        }
        Some(self.add(Slot {
            memory: Memory::new(capacity_bytes),
            refs_count: 1,
            class: Some(class),
        }))
    }

    /// A buffer that stays for the ring's life and does not count against the limit.
    pub(crate) fn pin(&mut self, room_bytes: usize) -> BufId {
        let capacity_bytes = room_bytes.next_multiple_of(PAGE_BYTES);
        self.add(Slot { memory: Memory::new(capacity_bytes), refs_count: 1, class: None })
    }

    fn add(&mut self, slot: Slot) -> BufId {
        self.slots.push(slot);
        BufId(u32_of(self.slots.len() - 1))
    }

    /// One more reference.
    pub(crate) fn hold(&mut self, buf: BufId) {
        let slot = &mut self.slots[buf.0 as usize];
        assert!(slot.refs_count > 0, "{buf:?} was released before it was used");
        slot.refs_count += 1;
    }

    /// One reference less; the last one gives the buffer back.
    pub(crate) fn release(&mut self, buf: BufId) {
        let slot = &mut self.slots[buf.0 as usize];
        assert!(slot.refs_count > 0, "{buf:?} was released twice");
        slot.refs_count -= 1;
        self.freed = true;
        if slot.refs_count > 0 {
            return;
        }
        let capacity_bytes = slot.memory.capacity_bytes;
        let Some(class) = slot.class else { panic!("{buf:?} is the ring's own") };
        self.used_bytes -= capacity_bytes;
        if self.kept_bytes + capacity_bytes <= KEPT_BYTES_MAX {
            self.kept_bytes += capacity_bytes;
            self.kept[class].push(buf.0);
        } else {
            slot.memory = Memory::new(PAGE_BYTES);
            slot.class = Some(0);
            self.kept_bytes += PAGE_BYTES;
            self.kept[0].push(buf.0);
        }
    }

    /// How many references there are.
    pub(crate) fn refs_count(&self, buf: BufId) -> u32 {
        self.slots[buf.0 as usize].refs_count
    }

    /// Whether a reference was given back since the last call.
    pub(crate) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// Bytes given out.
    pub(crate) const fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Where a piece lies, for the kernel.
    pub(crate) fn at(&self, buf: BufId, start: usize, piece_bytes: usize) -> *mut u8 {
        let slot = &self.slots[buf.0 as usize];
        assert!(slot.refs_count > 0, "{buf:?} is nobody's");
        assert!(start <= slot.memory.capacity_bytes, "a piece starts within its buffer");
        assert!(piece_bytes <= slot.memory.capacity_bytes - start, "a piece ends in its buffer");
        slot.memory.at.as_ptr().wrapping_add(start)
    }

    /// The bytes of a piece. Nobody writes them: see the invariant.
    pub(crate) fn bytes(&self, buf: BufId, start: usize, piece_bytes: usize) -> &[u8] {
        let at = self.at(buf, start, piece_bytes);
        // SAFETY: `at` checked that the piece lies within initialised memory of a live buffer, and
        // who writes into a buffer has not told its name to anybody yet.
        unsafe { std::slice::from_raw_parts(at, piece_bytes) }
    }

    /// The bytes of a piece, to be written by its only owner.
    pub(crate) fn bytes_mut(&mut self, buf: BufId, start: usize, piece_bytes: usize) -> &mut [u8] {
        assert!(self.refs_count(buf) == 1, "{buf:?} is written by its only owner");
        let at = self.at(buf, start, piece_bytes);
        // SAFETY: as in `bytes`; there is one reference, the caller's, and `self` is borrowed.
        unsafe { std::slice::from_raw_parts_mut(at, piece_bytes) }
    }
}

fn class_of(room_bytes: usize) -> usize {
    assert!(room_bytes <= BUFFER_BYTES_MAX, "no buffer holds {room_bytes} bytes");
    (0..CLASS_COUNT).find(|class| capacity_of(*class) >= room_bytes).unwrap_or(CLASS_COUNT - 1)
}

const fn capacity_of(class: usize) -> usize {
    // 4 KiB, 8, ... 1 MiB would be nine classes; the largest has two pages more in addition.
    if class + 1 == CLASS_COUNT { BUFFER_BYTES_MAX } else { PAGE_BYTES << class }
}

const _: () = assert!(capacity_of(CLASS_COUNT - 2) == 1 << 20, "nine powers of two, then one more");

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_released_buffer_is_given_out_again_and_a_held_one_is_not() {
        let mut pool = Pool::new(8 << 20);
        let first = pool.take(5000).unwrap();
        assert_eq!(pool.used_bytes(), 8192);
        pool.hold(first);
        pool.release(first);
        let second = pool.take(5000).unwrap();
        assert_ne!(first, second);
        pool.release(first);
        assert_eq!(pool.take(8192), Some(first));
    }

    #[test]
    fn the_limit_holds_and_what_comes_back_counts_again() {
        let mut pool = Pool::new(2 << 20);
        let first = pool.take(1 << 20).unwrap();
        let second = pool.take(1 << 20).unwrap();
        assert_eq!(pool.take(1), None);
        pool.release(second);
        assert!(pool.take_freed());
        assert!(!pool.take_freed());
        assert!(pool.take(1 << 20).is_some());
        pool.release(first);
        assert_eq!(pool.used_bytes(), 1 << 20);
    }

    #[test]
    fn bytes_written_by_the_owner_are_read_back() {
        let mut pool = Pool::new(0);
        let buf = pool.take(BUFFER_BYTES_MAX).unwrap();
        pool.bytes_mut(buf, 4096, 3).copy_from_slice(b"abc");
        assert_eq!(pool.bytes(buf, 4095, 5), b"\0abc\0");
    }

    #[test]
    fn memory_beyond_what_is_kept_goes_back() {
        let mut pool = Pool::new(256 << 20);
        let bufs: Vec<BufId> = (0..100).map(|_| pool.take(1 << 20).unwrap()).collect();
        bufs.iter().for_each(|buf| pool.release(*buf));
        assert!(pool.kept_bytes <= KEPT_BYTES_MAX + 100 * PAGE_BYTES);
        assert_eq!(pool.used_bytes(), 0);
    }
}
