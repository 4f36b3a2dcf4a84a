//! The lane's buffers: where bulk bytes lie, counted by references, reused.
//!
//! A buffer is memory, or a range of an object's file that is sent from there ([`FileRange`]). It
//! leaves to others what the bytes mean. Invariants: a buffer with references is never given out
//! again; its memory never moves; it is written only by whoever took it, before anyone else learned
//! its name; its file stays open. Sizes are powers of two from 4 KiB on, the largest a little more
//! than 1 MiB (a FUSE write with its headers); a range counts against the limit like the memory it
//! saves, so that it can become memory at any time.

use crate::number::{u32_of, u64_of};
use interface::{BufId, Bulk, Mono, Object};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

const PAGE_BYTES: usize = 4096;
const CLASS_COUNT: usize = 10;
/// Capacity of the largest class, in bytes: 1 MiB of data and two pages for headers.
pub(crate) const BUFFER_BYTES_MAX: usize = (1 << 20) + 2 * PAGE_BYTES;
/// Memory kept for reuse even if nobody needs it, in bytes.
const SPARE_BYTES_MIN: usize = 64 << 20;
/// How long more than that must have lain unused before it is given back.
const TRIM_MS: u64 = 1000;

struct Slot {
    place: Place,
    refs_count: u32,
    /// `None`: made to stay, for the kernel's FUSE queues.
    class: Option<usize>,
    /// A core keeps it: it does not count against the limit.
    uncounted: bool,
}

/// Where a buffer's bytes are.
enum Place {
    Memory(Memory),
    File(FileRange),
    /// Nowhere: the slot waits to be used again.
    Vacant,
}

impl Place {
    /// The memory, which somebody is sure of.
    #[track_caller]
    const fn memory(&self) -> &Memory {
        match self {
            Self::Memory(memory) => memory,
            Self::File(_) | Self::Vacant => panic!("these bytes are not in memory"),
        }
    }
}

/// Bytes of an object that are sent from its file. The descriptor is shared: the object may be
/// forgotten or removed meanwhile.
#[derive(Debug)]
pub(crate) struct FileRange {
    pub(crate) file: Arc<OwnedFd>,
    pub(crate) object: Object,
    pub(crate) offset: u64,
    pub(crate) range_bytes: usize,
}

impl FileRange {
    fn overlaps(&self, touched: &Range<u64>) -> bool {
        self.offset < touched.end && self.offset + u64_of(self.range_bytes) > touched.start
    }

    /// Copies bytes out, from the range's `start` on; whether all were there.
    fn read(&self, start: usize, to: &mut [u8]) -> bool {
        let mut read_bytes = 0;
        while read_bytes < to.len() {
            let offset = self.offset + u64_of(start + read_bytes);
            match rustix::io::pread(&self.file, &mut to[read_bytes..], offset) {
                Ok(0) => return false,
                Ok(count) => read_bytes += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }
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
    spare: [Vec<u32>; CLASS_COUNT],
    spare_bytes: usize,
    /// The least of [`Self::spare_bytes`] since [`Self::trim_at`] was set.
    unused_bytes: usize,
    /// When to look whether memory lies unused.
    trim_at: Option<Mono>,
    /// Indices of slots without anything.
    vacant: Vec<u32>,
    /// Buffers that are ranges of an object's file.
    file_ranges: HashMap<Object, Vec<BufId>>,
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
            spare: [const { Vec::new() }; CLASS_COUNT],
            spare_bytes: 0,
            unused_bytes: 0,
            trim_at: None,
            vacant: Vec::new(),
            file_ranges: HashMap::new(),
            used_bytes: 0,
            // One buffer of the largest size fits always, or nothing would ever move.
            used_bytes_max: used_bytes_max.max(BUFFER_BYTES_MAX),
            freed: false,
        }
    }

    /// A buffer of at least this many bytes, with one reference; `None` while the limit forbids.
    pub(crate) fn take(&mut self, space_bytes: usize) -> Option<BufId> {
        if !self.has_space(space_bytes) {
            return None;
        }
        let class = class_of(space_bytes);
        let capacity_bytes = capacity_of(class);
        self.used_bytes += capacity_bytes;
        if let Some(index) = self.spare[class].pop() {
            self.spare_bytes -= capacity_bytes;
            self.unused_bytes = self.unused_bytes.min(self.spare_bytes);
            let slot = &mut self.slots[index as usize];
            assert!(slot.refs_count == 0, "a kept buffer has no owner");
            slot.refs_count = 1;
            return Some(BufId(index));
        }
        // What is kept in other sizes makes space, so that both together stay within the limit.
        let over_bytes = (self.used_bytes + self.spare_bytes).saturating_sub(self.used_bytes_max);
        if over_bytes > 0 {
            self.drop_spare(over_bytes + BUFFER_BYTES_MAX);
        }
        Some(self.add(Slot {
            place: Place::Memory(Memory::new(capacity_bytes)),
            refs_count: 1,
            class: Some(class),
            uncounted: false,
        }))
    }

    /// Whether the limit lets a buffer of so many bytes be taken.
    pub(crate) fn has_space(&self, space_bytes: usize) -> bool {
        self.used_bytes + capacity_of(class_of(space_bytes)) <= self.used_bytes_max
    }

    /// A buffer that is a range of a file, with one reference. There must be space for it.
    pub(crate) fn add_file_range(&mut self, range: FileRange) -> BufId {
        assert!(self.has_space(range.range_bytes), "who uses_file_ranges has asked for space");
        let (object, class) = (range.object, class_of(range.range_bytes));
        self.used_bytes += capacity_of(class);
        let slot =
            Slot { place: Place::File(range), refs_count: 1, class: Some(class), uncounted: false };
        let buf = self.add(slot);
        self.file_ranges.entry(object).or_default().push(buf);
        buf
    }

    /// The range of a file that a buffer is, if it is one.
    pub(crate) fn range(&self, buf: BufId) -> Option<&FileRange> {
        let slot = &self.slots[buf.0 as usize];
        assert!(slot.refs_count > 0, "{buf:?} is nobody's");
        match &slot.place {
            Place::File(range) => Some(range),
            Place::Memory(_) | Place::Vacant => None,
        }
    }

    /// A part of an object is about to change: ranges of its file that overlap it become memory, so
    /// that who was promised them gets what was there. Returns how many were copied. A range that
    /// cannot be read whole stays what it is; its sending finds out.
    pub(crate) fn load(&mut self, object: Object, touched: &Range<u64>) -> usize {
        let Some(mut bufs) = self.file_ranges.remove(&object) else { return 0 };
        let lent_count = bufs.len();
        bufs.retain(|buf| !self.load_one(*buf, touched));
        let loaded_count = lent_count - bufs.len();
        if !bufs.is_empty() {
            self.file_ranges.insert(object, bufs);
        }
        loaded_count
    }

    fn load_one(&mut self, buf: BufId, touched: &Range<u64>) -> bool {
        let Slot { place: Place::File(range), class: Some(class), .. } =
            &self.slots[buf.0 as usize]
        else {
            panic!("{buf:?} is no range of a file")
        };
        if !range.overlaps(touched) {
            return false;
        }
        let memory = Memory::new(capacity_of(*class));
        // SAFETY: these are the memory's first bytes, initialised by `new`; nobody else has them.
        let to = unsafe { std::slice::from_raw_parts_mut(memory.at.as_ptr(), range.range_bytes) };
        let whole = range.read(0, to);
        if whole {
            self.slots[buf.0 as usize].place = Place::Memory(memory);
        }
        whole
    }

    /// A buffer that stays for the ring's life and does not count against the limit.
    pub(crate) fn pin(&mut self, space_bytes: usize) -> BufId {
        let capacity_bytes = space_bytes.next_multiple_of(PAGE_BYTES);
        let place = Place::Memory(Memory::new(capacity_bytes));
        self.add(Slot { place, refs_count: 1, class: None, uncounted: false })
    }

    fn add(&mut self, slot: Slot) -> BufId {
        if let Some(index) = self.vacant.pop() {
            self.slots[index as usize] = slot;
            return BufId(index);
        }
        self.slots.push(slot);
        BufId(u32_of(self.slots.len() - 1))
    }

    /// One more reference.
    pub(crate) fn retain(&mut self, buf: BufId) {
        let slot = &mut self.slots[buf.0 as usize];
        assert!(slot.refs_count > 0, "{buf:?} was released before it was used");
        slot.refs_count += 1;
    }

    /// The same buffer with one more reference.
    pub(crate) fn retained(&mut self, buf: BufId) -> BufId {
        self.retain(buf);
        buf
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
        let Some(class) = slot.class else { panic!("{buf:?} is the ring's own") };
        let capacity_bytes = capacity_of(class);
        if !std::mem::take(&mut slot.uncounted) {
            self.used_bytes -= capacity_bytes;
        }
        if let Place::File(range) = &slot.place {
            let object = range.object;
            slot.place = Place::Vacant;
            self.vacant.push(buf.0);
            self.forget(object, buf);
        } else {
            self.spare_bytes += capacity_bytes;
            self.spare[class].push(buf.0);
        }
    }

    /// Keeps a piece beyond its owner's time and beside the limit: the buffer and where in it the
    /// bytes begin. A buffer that the piece fills at least by half is held, of another it is copied.
    pub(crate) fn copy_uncounted(
        &mut self,
        buf: BufId,
        start: u32,
        piece_bytes: usize,
    ) -> (BufId, u32) {
        let slot = &mut self.slots[buf.0 as usize];
        let retained_class = slot.class.filter(|class| capacity_of(*class) / 2 <= piece_bytes);
        if let Some(class) = retained_class {
            if !std::mem::replace(&mut slot.uncounted, true) {
                self.used_bytes -= capacity_of(class);
            }
            return (self.retained(buf), start);
        }
        let copy = self.take_uncounted(piece_bytes);
        let from = self.at(buf, start as usize, piece_bytes);
        let to = self.at(copy, 0, piece_bytes);
        assert!(buf != copy, "a copy is another buffer");
        // SAFETY: `at` checked that both pieces lie in live buffers, which are two; nobody writes
        // the one, and nobody has heard of the other.
        unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), to, piece_bytes) };
        (copy, 0)
    }

    fn take_uncounted(&mut self, space_bytes: usize) -> BufId {
        let class = class_of(space_bytes);
        let capacity_bytes = capacity_of(class);
        if let Some(index) = self.spare[class].pop() {
            self.spare_bytes -= capacity_bytes;
            self.unused_bytes = self.unused_bytes.min(self.spare_bytes);
            let slot = &mut self.slots[index as usize];
            assert!(slot.refs_count == 0, "a kept buffer has no owner");
            slot.refs_count = 1;
            slot.uncounted = true;
            return BufId(index);
        }
        let place = Place::Memory(Memory::new(capacity_bytes));
        self.add(Slot { place, refs_count: 1, class: Some(class), uncounted: true })
    }

    /// PrivilegedBits memory back that nobody has needed since the last call but one: asking the system for
    /// it again and again costs more than the bytes that go through it. Call it each turn.
    pub(crate) fn trim(&mut self, now: Mono) {
        match self.trim_at {
            None if self.spare_bytes > SPARE_BYTES_MIN => {
                self.trim_at = Some(now.after_ms(TRIM_MS));
                self.unused_bytes = self.spare_bytes;
            }
            Some(at) if at <= now => {
                self.trim_at = None;
                let spare_bytes = self.spare_bytes.saturating_sub(SPARE_BYTES_MIN);
                self.drop_spare(self.unused_bytes.min(spare_bytes));
            }
            None | Some(_) => {}
        }
    }

    /// When [`Self::trim`] has something to do.
    pub(crate) const fn trim_at(&self) -> Option<Mono> {
        self.trim_at
    }

    fn drop_spare(&mut self, mut drop_bytes: usize) {
        for class in (0..CLASS_COUNT).rev() {
            while drop_bytes >= capacity_of(class)
                && let Some(index) = self.spare[class].pop()
            {
                drop_bytes -= capacity_of(class);
                self.spare_bytes -= capacity_of(class);
                self.slots[index as usize].place = Place::Vacant;
                self.vacant.push(index);
            }
        }
    }

    fn forget(&mut self, object: Object, buf: BufId) {
        let Some(bufs) = self.file_ranges.get_mut(&object) else {
            panic!("{buf:?} was never lent")
        };
        bufs.retain(|known| *known != buf);
        if bufs.is_empty() {
            self.file_ranges.remove(&object);
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

    /// Whether [`Self::take_freed`] will say so.
    pub(crate) const fn is_freed(&self) -> bool {
        self.freed
    }

    /// How much at most is given out at a time.
    pub(crate) const fn used_bytes_max(&self) -> usize {
        self.used_bytes_max
    }

    /// What a buffer for so many bytes counts.
    pub(crate) fn space_bytes(bulk_bytes: usize) -> usize {
        capacity_of(class_of(bulk_bytes))
    }

    /// Bytes given out.
    pub(crate) const fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Where a piece lies, for the kernel.
    pub(crate) fn at(&self, buf: BufId, start: usize, piece_bytes: usize) -> *mut u8 {
        let slot = &self.slots[buf.0 as usize];
        assert!(slot.refs_count > 0, "{buf:?} is nobody's");
        let memory = slot.place.memory();
        assert!(start <= memory.capacity_bytes, "a piece starts within its buffer");
        assert!(piece_bytes <= memory.capacity_bytes - start, "a piece ends in its buffer");
        memory.at.as_ptr().wrapping_add(start)
    }

    /// The bytes of a piece. Nobody writes them: see the invariant.
    pub(crate) fn bytes(&self, buf: BufId, start: usize, piece_bytes: usize) -> &[u8] {
        let at = self.at(buf, start, piece_bytes);
        // SAFETY: `at` checked that the piece lies within initialised memory of a live buffer, and
        // who writes into a buffer has not told its name to anybody yet.
        unsafe { std::slice::from_raw_parts(at, piece_bytes) }
    }

    /// Appends the bytes of a piece, wherever they are; those of a file are read from the page cache,
    /// where they were when they were lent. Whether all were there.
    #[must_use]
    pub(crate) fn append(&self, bulk: Bulk, out: &mut Vec<u8>) -> bool {
        let (start, piece_bytes) = (bulk.start as usize, bulk.bulk_bytes as usize);
        let Some(range) = self.range(bulk.buf) else {
            out.extend_from_slice(self.bytes(bulk.buf, start, piece_bytes));
            return true;
        };
        let before_bytes = out.len();
        out.resize(before_bytes + piece_bytes, 0);
        range.read(start, &mut out[before_bytes..])
    }

    /// Copies the bytes of a piece, as [`Self::append`] does.
    #[must_use]
    pub(crate) fn copy(&self, buf: BufId, start: usize, to: &mut [u8]) -> bool {
        let Some(range) = self.range(buf) else {
            to.copy_from_slice(self.bytes(buf, start, to.len()));
            return true;
        };
        range.read(start, to)
    }

    /// A buffer beside the limit, with one reference, into which `make` writes what it finds in others.
    pub(crate) fn filled<R>(
        &mut self,
        space_bytes: usize,
        make: impl FnOnce(&mut [u8], &Self) -> R,
    ) -> (BufId, R) {
        let buf = self.take_uncounted(space_bytes);
        // Out of the pool meanwhile, so that nothing else can lie in it.
        let place = std::mem::replace(&mut self.slots[buf.0 as usize].place, Place::Vacant);
        let at = place.memory().at;
        assert!(space_bytes <= place.memory().capacity_bytes, "the buffer has the space");
        // SAFETY: the memory is initialised, has the space, and is owned by `place` alone, which outlives
        // the slice.
        let space = unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), space_bytes) };
        let made = make(space, self);
        self.slots[buf.0 as usize].place = place;
        (buf, made)
    }

    /// The bytes of a piece, to be written by its only owner.
    pub(crate) fn bytes_mut(&mut self, buf: BufId, start: usize, piece_bytes: usize) -> &mut [u8] {
        assert!(self.refs_count(buf) == 1, "{buf:?} is written by its only owner");
        let at = self.at(buf, start, piece_bytes);
        // SAFETY: as in `bytes`; there is one reference, the caller's, and `self` is borrowed.
        unsafe { std::slice::from_raw_parts_mut(at, piece_bytes) }
    }
}

fn class_of(space_bytes: usize) -> usize {
    assert!(space_bytes <= BUFFER_BYTES_MAX, "no buffer holds {space_bytes} bytes");
    (0..CLASS_COUNT).find(|class| capacity_of(*class) >= space_bytes).unwrap_or(CLASS_COUNT - 1)
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
        pool.retain(first);
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
    fn memory_that_nobody_needed_for_a_while_goes_back() {
        let mut pool = Pool::new(256 << 20);
        let bufs: Vec<BufId> = (0..100).map(|_| pool.take(1 << 20).unwrap()).collect();
        bufs.iter().for_each(|buf| pool.release(*buf));
        assert_eq!((pool.spare_bytes, pool.used_bytes()), (100 << 20, 0));
        pool.trim(Mono(0));
        let at = pool.trim_at().unwrap();
        // Ninety of them are needed meanwhile: those stay.
        let bufs: Vec<BufId> = (0..90).map(|_| pool.take(1 << 20).unwrap()).collect();
        bufs.iter().for_each(|buf| pool.release(*buf));
        pool.trim(at);
        assert_eq!((pool.spare_bytes, pool.trim_at()), (90 << 20, None));
        pool.trim(at);
        pool.trim(pool.trim_at().unwrap());
        assert_eq!(pool.spare_bytes, SPARE_BYTES_MIN);
        pool.trim(at);
        assert_eq!(pool.trim_at(), None, "the least is kept for ever");
    }

    #[test]
    fn what_is_kept_and_what_is_used_share_the_limit() {
        let mut pool = Pool::new(8 << 20);
        let bufs: Vec<BufId> = (0..8).map(|_| pool.take(1 << 20).unwrap()).collect();
        bufs.iter().for_each(|buf| pool.release(*buf));
        (0..1024).for_each(|_| assert!(pool.take(8192).is_some()));
        assert_eq!(pool.used_bytes(), 8 << 20);
        assert!(pool.spare_bytes < 2 * BUFFER_BYTES_MAX, "{} are kept", pool.spare_bytes);
    }
}
