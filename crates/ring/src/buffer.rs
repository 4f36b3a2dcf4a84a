//! The lane's bulk buffers: reference-counted and reused.
//!
//! A buffer is memory, or a range of an object's file that is sent from there ([`FileRange`]).
//! Invariants: a buffer with references is never reused; its memory never moves; only the code that
//! took it writes to it, before its id is passed on; its file stays open. Sizes are powers of two
//! from 4 KiB on; the largest is a little more than 1 MiB (a FUSE write with its headers). A range
//! counts against the limit like memory, so that it can be loaded into memory at any time.

use crate::memory::{BulkBytes, Memory, PAGE_BYTES, Returned};
use crate::number::{u32_of, u64_of};
use interface::{BufId, Bulk, Mono, Object};
use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

const CLASS_COUNT: usize = 10;
/// Capacity of the largest class, in bytes: 1 MiB of data and two pages for headers.
pub(crate) const BUFFER_BYTES_MAX: usize = (1 << 20) + 2 * PAGE_BYTES;
/// Unused memory that the pool always retains, in bytes.
const SPARE_BYTES_MIN: usize = 64 << 20;
/// A bulk from this length on leaves the ring with its buffer's memory; a shorter one is copied.
const DETACHED_BYTES_MIN: u32 = 32 << 10;
/// Buffers of bulks that left the ring and were dropped, until the pool takes them back.
const RETURNED_COUNT_MAX: usize = SPARE_BYTES_MIN / BUFFER_BYTES_MAX;
/// How long memory beyond that must be unused before it is freed.
const TRIM_MS: u64 = 1000;

struct Slot {
    place: Place,
    refs_count: u32,
    /// `None`: allocated for the ring's life, for the kernel's FUSE queues.
    class: Option<usize>,
    /// A copy that the core owns: it does not count against the limit.
    uncounted: bool,
    /// Checksums of the first complete blocks, as far as they were computed.
    block_sums: Vec<u32>,
}

impl Slot {
    const fn new(place: Place, refs_count: u32, class: Option<usize>) -> Self {
        Self { place, refs_count, class, uncounted: false, block_sums: Vec::new() }
    }
}

/// Where a buffer's bytes are.
enum Place {
    Memory(Memory),
    File(FileRange),
    /// The slot is free.
    Vacant,
}

impl Place {
    /// The memory; the caller knows that the buffer is not a file range.
    #[track_caller]
    const fn memory(&self) -> &Memory {
        match self {
            Self::Memory(memory) => memory,
            Self::File(_) | Self::Vacant => panic!("these bytes are not in memory"),
        }
    }
}

/// A range of an object that is sent from its file. The descriptor is shared, because the object
/// may be closed or removed meanwhile.
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

    /// Copies bytes, from the range's `start` on; returns whether the file still had all of them.
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

/// The buffers of a lane.
pub(crate) struct Pool {
    slots: Vec<Slot>,
    /// Slots that are unreferenced and retain their memory, by class.
    spare: [Vec<u32>; CLASS_COUNT],
    spare_bytes: usize,
    /// The minimum of [`Self::spare_bytes`] since [`Self::trim_at`] was set.
    unused_bytes: usize,
    /// When to check for unused memory.
    trim_at: Option<Mono>,
    /// Free slots.
    vacant: Vec<u32>,
    /// Buffers that are ranges of an object's file, by object.
    file_ranges: HashMap<Object, Vec<BufId>>,
    used_bytes: usize,
    used_bytes_max: usize,
    /// A buffer was released since [`Self::take_freed`].
    freed: bool,
    /// Where the memory of [`Self::detach`] returns to.
    returned: Arc<Returned>,
}

impl Pool {
    /// A pool with at most `used_bytes_max` bytes in use.
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
            // A buffer of the largest size must always fit, or no transfer could progress.
            used_bytes_max: used_bytes_max.max(BUFFER_BYTES_MAX),
            freed: false,
            returned: Arc::new(Returned::new(RETURNED_COUNT_MAX)),
        }
    }

    /// Takes a buffer of at least this size, with one reference; `None` if the limit is reached.
    pub(crate) fn take(&mut self, space_bytes: usize) -> Option<BufId> {
        if !self.has_space(space_bytes) {
            return None;
        }
        let class = class_of(space_bytes);
        let capacity_bytes = capacity_of(class);
        if self.spare[class].is_empty() {
            self.take_returned();
        }
        self.used_bytes += capacity_bytes;
        if let Some(index) = self.spare[class].pop() {
            self.spare_bytes -= capacity_bytes;
            self.unused_bytes = self.unused_bytes.min(self.spare_bytes);
            let slot = &mut self.slots[index as usize];
            assert!(slot.refs_count == 0, "a kept buffer has no owner");
            slot.refs_count = 1;
            return Some(BufId(index));
        }
        // Spare buffers of other sizes are freed, so that used and spare memory together stay
        // within the limit.
        let over_bytes = (self.used_bytes + self.spare_bytes).saturating_sub(self.used_bytes_max);
        if over_bytes > 0 {
            self.drop_spare(over_bytes + BUFFER_BYTES_MAX);
        }
        let place = Place::Memory(Memory::new(capacity_bytes));
        Some(self.add(Slot::new(place, 1, Some(class))))
    }

    /// Whether the limit allows a buffer of this size.
    pub(crate) fn has_space(&self, space_bytes: usize) -> bool {
        self.used_bytes + capacity_of(class_of(space_bytes)) <= self.used_bytes_max
    }

    /// Makes a buffer of a file range, with one reference. The caller has checked
    /// [`Self::has_space`].
    pub(crate) fn add_file_range(&mut self, range: FileRange) -> BufId {
        assert!(self.has_space(range.range_bytes), "the caller has checked for space");
        let (object, class) = (range.object, class_of(range.range_bytes));
        self.used_bytes += capacity_of(class);
        let buf = self.add(Slot::new(Place::File(range), 1, Some(class)));
        self.file_ranges.entry(object).or_default().push(buf);
        buf
    }

    /// The file range of a buffer, if it is one.
    pub(crate) fn range(&self, buf: BufId) -> Option<&FileRange> {
        let slot = &self.slots[buf.0 as usize];
        assert!(slot.refs_count > 0, "{buf:?} has no reference");
        match &slot.place {
            Place::File(range) => Some(range),
            Place::Memory(_) | Place::Vacant => None,
        }
    }

    /// Called before part of an object changes: overlapping file ranges are loaded into memory, so
    /// that readers get the bytes from before the change. Returns how many were loaded. A range
    /// that cannot be read completely stays a range, and its send fails.
    pub(crate) fn load(&mut self, object: Object, touched: &Range<u64>) -> usize {
        let Some(mut bufs) = self.file_ranges.remove(&object) else { return 0 };
        let range_count = bufs.len();
        bufs.retain(|buf| !self.load_one(*buf, touched));
        let loaded_count = range_count - bufs.len();
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
        // SAFETY: these are the memory's first bytes, initialised by `new`; there is no other
        // reference to them.
        let to = unsafe { std::slice::from_raw_parts_mut(memory.at.as_ptr(), range.range_bytes) };
        let whole = range.read(0, to);
        if whole {
            self.slots[buf.0 as usize].place = Place::Memory(memory);
        }
        whole
    }

    /// Allocates a buffer for the ring's life, which does not count against the limit.
    pub(crate) fn pin(&mut self, space_bytes: usize) -> BufId {
        let capacity_bytes = space_bytes.next_multiple_of(PAGE_BYTES);
        let place = Place::Memory(Memory::new(capacity_bytes));
        self.add(Slot::new(place, 1, None))
    }

    fn add(&mut self, slot: Slot) -> BufId {
        if let Some(index) = self.vacant.pop() {
            self.slots[index as usize] = slot;
            return BufId(index);
        }
        self.slots.push(slot);
        BufId(u32_of(self.slots.len() - 1))
    }

    /// Adds a reference.
    pub(crate) fn retain(&mut self, buf: BufId) {
        let slot = &mut self.slots[buf.0 as usize];
        assert!(slot.refs_count > 0, "{buf:?} was released before it was used");
        slot.refs_count += 1;
    }

    /// Adds a reference and returns the same buffer.
    pub(crate) fn retained(&mut self, buf: BufId) -> BufId {
        self.retain(buf);
        buf
    }

    /// Drops a reference; the last one frees the buffer.
    pub(crate) fn release(&mut self, buf: BufId) {
        let slot = &mut self.slots[buf.0 as usize];
        assert!(slot.refs_count > 0, "{buf:?} was released twice");
        slot.refs_count -= 1;
        self.freed = true;
        if slot.refs_count > 0 {
            return;
        }
        let Some(class) = slot.class else { panic!("{buf:?} is the ring's own") };
        slot.block_sums = Vec::new();
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

    /// Takes the memory of a bulk out of the pool, and ends its buffer. `None` if the bulk is too
    /// short for that, or its buffer has other references.
    pub(crate) fn detach(&mut self, bulk: Bulk) -> Option<BulkBytes> {
        let slot = &mut self.slots[bulk.buf.0 as usize];
        let class = slot.class.filter(|_| slot.refs_count == 1)?;
        if bulk.bulk_bytes < DETACHED_BYTES_MIN || !matches!(slot.place, Place::Memory(_)) {
            return None;
        }
        let Place::Memory(memory) = std::mem::replace(&mut slot.place, Place::Vacant) else {
            panic!("these bytes are in memory")
        };
        slot.refs_count = 0;
        slot.block_sums = Vec::new();
        if !std::mem::take(&mut slot.uncounted) {
            self.used_bytes -= capacity_of(class);
        }
        self.freed = true;
        self.vacant.push(bulk.buf.0);
        let start = bulk.start as usize;
        let range = start..start + bulk.bulk_bytes as usize;
        Some(BulkBytes::new(memory, range, Arc::clone(&self.returned)))
    }

    /// Takes back memory that left by [`Self::detach`], as far as the limit allows.
    fn take_returned(&mut self) {
        for memory in self.returned.take() {
            let capacity_bytes = memory.capacity_bytes;
            if self.used_bytes + self.spare_bytes + capacity_bytes > self.used_bytes_max {
                continue;
            }
            let class = class_of(capacity_bytes);
            let place = Place::Memory(memory);
            let buf = self.add(Slot::new(place, 0, Some(class)));
            self.spare_bytes += capacity_bytes;
            self.spare[class].push(buf.0);
        }
    }

    /// A reference for the core that does not count against the limit: returns the buffer and the
    /// piece's offset in it. If the piece fills at least half of its buffer, the buffer is
    /// retained, otherwise the piece is copied.
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
        // SAFETY: `at` checked that both pieces lie within live buffers, which are distinct;
        // nothing writes the source, and the copy's id is not known yet.
        unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), to, piece_bytes) };
        (copy, 0)
    }

    /// A buffer of zeros for the core that does not count against the limit.
    pub(crate) fn zeros_uncounted(&mut self, bulk_bytes: usize) -> BufId {
        let buf = self.take_uncounted(bulk_bytes);
        self.bytes_mut(buf, 0, bulk_bytes).fill(0);
        buf
    }

    /// Copies a bulk to a place of the same length in another buffer.
    pub(crate) fn copy_between(&mut self, from: Bulk, to: Bulk) {
        assert!(from.buf != to.buf, "a copy is another buffer");
        assert!(from.bulk_bytes == to.bulk_bytes, "both are as long");
        let copy_bytes = from.bulk_bytes as usize;
        let source = self.at(from.buf, from.start as usize, copy_bytes);
        let target = self.at(to.buf, to.start as usize, copy_bytes);
        // SAFETY: `at` checked that both pieces lie within live buffers, which are distinct; only
        // this call uses them meanwhile, and the core does not name the target to anything else yet.
        unsafe { std::ptr::copy_nonoverlapping(source.cast_const(), target, copy_bytes) };
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
        self.add(Slot { uncounted: true, ..Slot::new(place, 1, Some(class)) })
    }

    /// Frees memory that was unused since the last check but one; allocating it again and again
    /// would cost more than the transfers through it. Called each turn.
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

    /// When [`Self::trim`] is due.
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

    /// Records checksums of a buffer's first complete blocks; it is not written any more.
    pub(crate) fn put_block_sums(&mut self, buf: BufId, block_sums: Vec<u32>) {
        self.slots[buf.0 as usize].block_sums = block_sums;
    }

    /// The checksum of the complete block that begins so far into a buffer, if it was recorded.
    pub(crate) fn block_sum(&self, buf: BufId, start: usize) -> Option<u32> {
        let block_bytes = disk::BLOCK_BYTES as usize;
        let block_sums = &self.slots[buf.0 as usize].block_sums;
        block_sums.get(start / block_bytes).copied().filter(|_| start.is_multiple_of(block_bytes))
    }

    /// A buffer's reference count.
    pub(crate) fn refs_count(&self, buf: BufId) -> u32 {
        self.slots[buf.0 as usize].refs_count
    }

    /// Whether a buffer was released since the last call.
    pub(crate) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// Whether [`Self::take_freed`] will return true.
    pub(crate) const fn is_freed(&self) -> bool {
        self.freed
    }

    /// The limit of bytes in use.
    pub(crate) const fn used_bytes_max(&self) -> usize {
        self.used_bytes_max
    }

    /// What a buffer for so many bytes counts against the limit.
    pub(crate) fn space_bytes(bulk_bytes: usize) -> usize {
        capacity_of(class_of(bulk_bytes))
    }

    /// Bytes in use.
    pub(crate) const fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Address of a piece, for the kernel.
    pub(crate) fn at(&self, buf: BufId, start: usize, piece_bytes: usize) -> *mut u8 {
        let slot = &self.slots[buf.0 as usize];
        assert!(slot.refs_count > 0, "{buf:?} has no reference");
        let memory = slot.place.memory();
        assert!(start <= memory.capacity_bytes, "a piece starts within its buffer");
        assert!(piece_bytes <= memory.capacity_bytes - start, "a piece ends in its buffer");
        memory.at.as_ptr().wrapping_add(start)
    }

    /// The bytes of a piece. Nothing writes them: see the invariant.
    pub(crate) fn bytes(&self, buf: BufId, start: usize, piece_bytes: usize) -> &[u8] {
        let at = self.at(buf, start, piece_bytes);
        // SAFETY: `at` checked that the piece lies within initialised memory of a live buffer, and
        // a buffer is only written before its id is passed on.
        unsafe { std::slice::from_raw_parts(at, piece_bytes) }
    }

    /// Appends the bytes of a piece. Those of a file range are read from the page cache, where they
    /// were when the range was made. Returns whether all were there.
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

    /// Copies the bytes of a piece, like [`Self::append`].
    #[must_use]
    pub(crate) fn copy(&self, buf: BufId, start: usize, to: &mut [u8]) -> bool {
        let Some(range) = self.range(buf) else {
            to.copy_from_slice(self.bytes(buf, start, to.len()));
            return true;
        };
        range.read(start, to)
    }

    /// Takes an uncounted buffer with one reference; `make` fills it and may read other buffers.
    pub(crate) fn filled<R>(
        &mut self,
        space_bytes: usize,
        make: impl FnOnce(&mut [u8], &Self) -> R,
    ) -> (BufId, R) {
        let buf = self.take_uncounted(space_bytes);
        // Taken out of the pool meanwhile, so that `make` cannot reach it.
        let place = std::mem::replace(&mut self.slots[buf.0 as usize].place, Place::Vacant);
        let at = place.memory().at;
        assert!(space_bytes <= place.memory().capacity_bytes, "the buffer has the space");
        // SAFETY: the memory is initialised, large enough, and owned by `place` alone, which
        // outlives the slice.
        let space = unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), space_bytes) };
        let made = make(space, self);
        self.slots[buf.0 as usize].place = place;
        (buf, made)
    }

    /// The bytes of a piece, writable by the buffer's only owner.
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
    // 4 KiB to 1 MiB are nine classes; the largest has two more pages.
    if class + 1 == CLASS_COUNT { BUFFER_BYTES_MAX } else { PAGE_BYTES << class }
}

const _: () = assert!(capacity_of(CLASS_COUNT - 2) == 1 << 20, "nine powers of two, then one more");

#[cfg(test)]
mod tests;
