//! The directories in which a mount makes and removes names behind the server: a table that all lanes
//! read and write without locks.
//!
//! ```text
//! MKDIR, with a write lease ─▶ idle ◀─ CREATE, UNLINK ─▶ busy: changes under way, counted
//! recalled, or another place of the file system gets a name in it ─▶ ended: no more when it is idle
//! ```
//! The attributes of a directory are shown as the changes under way leave them. What else reads or
//! changes the directory waits until it is idle; a change that is made so has to be seen in the
//! attributes first (`refresh`). The kernel makes one change of a directory's names at a time.
//!
//! Invariant: a directory is busy from before the kernel gets its reply until the server has answered.

use crate::leases::{APPLY_MS_MAX, MOMENT_NS};
use crate::shared::{AttrWords, hash_of, lane_bit, place_of};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use interface::Mono;
use wire::{Attr, InodeNo, LaneId, Timestamp};

/// The most directories.
const COUNT: usize = 512;
const NAME_COUNT: usize = 16_384;
const LINKED_WORD_COUNT: usize = 1024;
/// How long the kernel may use attributes that it is given for a moment: two ticks of the slowest clock (100 a second), and until it has the reply.
pub(crate) const GIVEN_MS_MAX: u64 = 20 + APPLY_MS_MAX;

/// Bits of a state; above them are the number of changes under way, and the generation.
mod bit {
    pub(super) const HELD: u64 = 1;
    pub(super) const ENDED: u64 = 2;
    /// It is being filled in.
    pub(super) const NEW: u64 = 4;
    /// The attributes are those of the directory.
    pub(super) const SHOWN: u64 = 8;
    /// They are being written.
    pub(super) const WRITTEN: u64 = 16;
}
const COUNT_SHIFT: u32 = 8;
const COUNT_ONE: u64 = 1 << COUNT_SHIFT;
const COUNT_MASK: u64 = 0xffff << COUNT_SHIFT;
const GENERATION_SHIFT: u32 = 32;
const GENERATION_ONE: u64 = 1 << GENERATION_SHIFT;

#[derive(Default, Debug)]
struct Place {
    state: AtomicU64,
    inode: AtomicU64,
    name_hash: AtomicU64,
    /// The lane that has the lease.
    lane: AtomicU64,
    /// When a name was last changed behind, in nanoseconds since 1970; 0: not since the attributes were
    /// written.
    changed_ns: AtomicU64,
    /// Lanes that wait, by their bits.
    waiters: AtomicU64,
    attr: AttrWords,
    /// The kernel may have attributes until then that it was given for a moment. It stays when the place
    /// is given to another directory.
    given_until: AtomicU64,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Directories {
    places: Box<[Place]>,
    /// Directories, by the hashes of the names that they were made under.
    names: Box<[AtomicU64]>,
    held_count: AtomicUsize,
    /// Files that have got another name, by their hashes, for ever.
    linked: Box<[AtomicU64]>,
    /// The new file that was synced last, if it was small then.
    pub(crate) synced: AtomicU64,
    pub(crate) made_count: AtomicU64,
    pub(crate) removed_count: AtomicU64,
    pub(crate) lost_count: AtomicU64,
}

/// A directory that is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewDirectory<'a> {
    pub(crate) attr: &'a Attr,
    pub(crate) parent: InodeNo,
    pub(crate) name: &'a [u8],
    /// The lane that has the lease.
    pub(crate) lane: LaneId,
}

/// A directory that is in the table no more, and the lane that has its lease.
pub(crate) type Removed = (InodeNo, LaneId);

impl Default for Directories {
    fn default() -> Self {
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            places: (0..COUNT).map(|_| Place::default()).collect(),
            names: zeros(NAME_COUNT),
            held_count: AtomicUsize::new(0),
            linked: zeros(LINKED_WORD_COUNT),
            synced: AtomicU64::new(0),
            made_count: AtomicU64::new(0),
            removed_count: AtomicU64::new(0),
            lost_count: AtomicU64::new(0),
        }
    }
}

const fn is_busy(state: u64) -> bool {
    state & COUNT_MASK != 0
}

fn ns_of(at: Timestamp) -> u64 {
    let secs = u64::try_from(at.secs).unwrap_or(0);
    secs.saturating_mul(1_000_000_000).saturating_add(at.nanos.into())
}

impl Place {
    fn lane(&self) -> LaneId {
        LaneId(u16::try_from(self.lane.load(Ordering::SeqCst)).unwrap_or(0))
    }

    fn exchange(&self, state: u64, next: u64) -> bool {
        self.state.compare_exchange(state, next, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

impl Directories {
    fn place(&self, inode: InodeNo) -> &Place {
        &self.places[place_of(inode.0, COUNT)]
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.held_count.load(Ordering::SeqCst) == 0
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.held_count.load(Ordering::SeqCst)
    }

    fn find(&self, inode: InodeNo) -> Option<(&Place, u64)> {
        let place = self.place(inode);
        let state = place.state.load(Ordering::SeqCst);
        let is_held = state & bit::HELD != 0 && place.inode.load(Ordering::SeqCst) == inode.0;
        // A place that was given to another directory meanwhile has another generation.
        is_held.then_some((place, state))
    }

    /// Changes the state of a directory, unless `to` says that it stays. Returns the state of before.
    fn change(&self, inode: InodeNo, to: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        loop {
            let (place, state) = self.find(inode)?;
            if place.exchange(state, to(state)?) {
                return Some(state);
            }
        }
    }

    /// Names may be changed behind in a directory from now on. An idle one may have to give its place.
    /// `None`: there is no place.
    pub(crate) fn insert(&self, new: &NewDirectory<'_>) -> Option<Option<Removed>> {
        let hash = hash_of(new.parent, new.name);
        let name = &self.names[place_of(hash, NAME_COUNT)];
        if self.find(InodeNo(name.load(Ordering::SeqCst))).is_some() {
            return None;
        }
        let inode = new.attr.inode;
        let place = self.place(inode);
        let before = place.state.load(Ordering::SeqCst);
        if is_busy(before) || before & (bit::NEW | bit::WRITTEN) != 0 {
            return None;
        }
        let generation = (before >> GENERATION_SHIFT).wrapping_add(1) << GENERATION_SHIFT;
        if !place.exchange(before, generation | bit::NEW) {
            return None;
        }
        let removed = InodeNo(place.inode.load(Ordering::SeqCst));
        let removed = (before & bit::HELD != 0).then(|| (removed, place.lane()));
        let set = |word: &AtomicU64, value: u64| word.store(value, Ordering::SeqCst);
        set(&place.inode, inode.0);
        set(&place.name_hash, hash);
        set(&place.lane, new.lane.0.into());
        set(&place.changed_ns, 0);
        set(&place.waiters, 0);
        set(name, inode.0);
        place.attr.set(new.attr);
        if removed.is_none() {
            self.held_count.fetch_add(1, Ordering::SeqCst);
        }
        set(&place.state, generation | bit::HELD | bit::SHOWN);
        Some(removed)
    }

    /// Whether names are changed behind in a directory, or were a moment ago.
    pub(crate) fn is_held(&self, inode: InodeNo) -> bool {
        self.find(inode).is_some()
    }

    /// The directory that was made under a name.
    pub(crate) fn named(&self, parent: InodeNo, name: &[u8]) -> Option<InodeNo> {
        if self.is_empty() {
            return None;
        }
        let hash = hash_of(parent, name);
        let inode = InodeNo(self.names[place_of(hash, NAME_COUNT)].load(Ordering::SeqCst));
        let (place, _) = self.find(inode)?;
        (place.name_hash.load(Ordering::SeqCst) == hash).then_some(inode)
    }

    /// Whether something of a directory is under way.
    pub(crate) fn is_busy(&self, inode: InodeNo) -> bool {
        self.find(inode).is_some_and(|(_, state)| is_busy(state))
    }

    /// The same; if so, this lane is told when that is over.
    pub(crate) fn waits(&self, inode: InodeNo, lane: LaneId) -> bool {
        let Some((place, _)) = self.find(inode) else { return false };
        if !self.is_busy(inode) {
            return false;
        }
        place.waiters.fetch_or(lane_bit(lane), Ordering::SeqCst);
        self.is_busy(inode)
    }

    /// The attributes of a directory as the changes under way leave them, if they are known.
    pub(crate) fn attr(&self, inode: InodeNo) -> Option<Attr> {
        let (place, before) = self.find(inode)?;
        let (attr, changed_ns) = (place.attr.get(), place.changed_ns.load(Ordering::SeqCst));
        let state = place.state.load(Ordering::SeqCst);
        let is_whole = before & bit::SHOWN != 0
            && (before | state) & bit::WRITTEN == 0
            && before >> GENERATION_SHIFT == state >> GENERATION_SHIFT;
        let attr = attr.filter(|attr| is_whole && attr.inode == inode)?;
        if changed_ns == 0 {
            return Some(attr);
        }
        let changed_at = Timestamp::from_ns(changed_ns);
        let flags = attr.flags & !wire::attr_flag::EMPTY;
        let (mtime, ctime) = (attr.mtime.max(changed_at), attr.ctime.max(changed_at));
        Some(Attr { flags, mtime, ctime, ..attr })
    }

    /// The same, if other requests may be answered with them: nothing has ended.
    pub(crate) fn lasting_attr(&self, inode: InodeNo) -> Option<Attr> {
        let (_, state) = self.find(inode)?;
        self.attr(inode).filter(|_| is_busy(state) || state & bit::ENDED == 0)
    }

    /// The kernel is about to get the attributes of a directory. Returns until when it may keep them, if
    /// it may: it checks twice whether a caller may change a name, and would ask twice.
    pub(crate) fn give(&self, inode: InodeNo, now: Mono) -> Option<Mono> {
        let (place, _) = self.find(inode)?;
        place.given_until.fetch_max(now.after_ms(GIVEN_MS_MAX).0, Ordering::SeqCst);
        // `end` comes before this look, or `given_until` after this change.
        let (_, state) = self.find(inode)?;
        (state & bit::ENDED == 0).then_some(Mono(now.0 + MOMENT_NS))
    }

    /// When the kernel has no such attributes of a directory any more.
    pub(crate) fn given_until(&self, inode: InodeNo) -> Mono {
        Mono(self.place(inode).given_until.load(Ordering::SeqCst))
    }

    /// Attributes of an idle directory, as the server has said them.
    pub(crate) fn refresh(&self, attr: &Attr) {
        let begun = self.change(attr.inode, |state| {
            let may = !is_busy(state) && state & (bit::ENDED | bit::SHOWN | bit::WRITTEN) == 0;
            may.then_some(state | bit::WRITTEN)
        });
        let Some((place, _)) = begun.and_then(|_| self.find(attr.inode)) else { return };
        place.attr.set(attr);
        place.changed_ns.store(0, Ordering::SeqCst);
        self.change(attr.inode, |state| {
            Some((state & !bit::WRITTEN | bit::SHOWN).wrapping_add(GENERATION_ONE))
        });
    }

    /// A directory is changed, or read, by a request that is not answered early: its attributes are to be
    /// asked for after that.
    pub(crate) fn hide(&self, inode: InodeNo) {
        self.change(inode, |state| {
            let hides = state & bit::SHOWN != 0 && !is_busy(state);
            hides.then_some(state & !bit::SHOWN)
        });
    }

    /// Begins a change of a name. Returns whether it may be made behind.
    pub(crate) fn begin(&self, inode: InodeNo, at: Timestamp) -> bool {
        let begun = self.change(inode, |state| {
            let may = state & bit::SHOWN != 0
                && state & (bit::ENDED | bit::WRITTEN) == 0
                && state & COUNT_MASK != COUNT_MASK;
            may.then_some(state + COUNT_ONE)
        });
        if begun.is_some()
            && let Some((place, _)) = self.find(inode)
        {
            place.changed_ns.fetch_max(ns_of(at), Ordering::SeqCst);
        }
        begun.is_some()
    }

    /// A change was answered. Returns the lanes that wait, if nothing is under way any more.
    pub(crate) fn end_change(&self, inode: InodeNo) -> u64 {
        let before = self.change(inode, |state| is_busy(state).then_some(state - COUNT_ONE));
        if before.is_none_or(|before| is_busy(before - COUNT_ONE)) {
            return 0;
        }
        self.place(inode).waiters.swap(0, Ordering::SeqCst)
    }

    /// No further name is changed behind.
    pub(crate) fn end(&self, inode: InodeNo) {
        self.change(inode, |state| (state & bit::ENDED == 0).then_some(state | bit::ENDED));
    }

    /// Removes a directory that has ended, and of which nothing is under way.
    pub(crate) fn remove_ended(&self, inode: InodeNo) -> Option<Removed> {
        let (place, _) = self.find(inode)?;
        let removed = (inode, place.lane());
        self.change(inode, |state| {
            let is_over = state & bit::ENDED != 0 && !is_busy(state);
            is_over.then_some(state >> GENERATION_SHIFT << GENERATION_SHIFT)
        })?;
        self.held_count.fetch_sub(1, Ordering::SeqCst);
        Some(removed)
    }

    /// A file has got another name.
    pub(crate) fn link(&self, inode: InodeNo) {
        let (word, bit) = self.linked_bit(inode);
        word.fetch_or(bit, Ordering::SeqCst);
    }

    /// Whether it may have got one.
    pub(crate) fn may_be_linked(&self, inode: InodeNo) -> bool {
        let (word, bit) = self.linked_bit(inode);
        word.load(Ordering::SeqCst) & bit != 0
    }

    fn linked_bit(&self, inode: InodeNo) -> (&AtomicU64, u64) {
        let index = place_of(inode.0, LINKED_WORD_COUNT * 64);
        (&self.linked[index / 64], 1 << (index % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::FileKind;

    const DIR: InodeNo = InodeNo(500);

    fn attr(inode: InodeNo) -> Attr {
        crate::tests::attr(inode, FileKind::Directory)
    }

    fn insert(table: &Directories, inode: InodeNo, name: &[u8]) -> Option<Option<Removed>> {
        let parent = InodeNo::ROOT;
        table.insert(&NewDirectory { attr: &attr(inode), parent, name, lane: LaneId(3) })
    }

    #[test]
    fn a_directory_is_busy_until_all_changes_are_answered_and_then_it_ends() {
        let table = Directories::default();
        assert_eq!(insert(&table, DIR, b"d"), Some(None));
        assert_eq!(table.named(InodeNo::ROOT, b"d"), Some(DIR));
        let late = Timestamp { secs: 9_000_000_000, nanos: 7 };
        assert!(table.begin(DIR, late) && table.begin(DIR, Timestamp::default()));
        assert_eq!(table.attr(DIR).map(|attr| (attr.mtime, attr.ctime)), Some((late, late)));
        assert!(table.waits(DIR, LaneId(5)));
        table.end(DIR);
        assert!(!table.begin(DIR, late), "it has ended");
        assert_eq!(table.remove_ended(DIR), None, "it is busy");
        assert_eq!(table.end_change(DIR), 0, "one is under way");
        assert_eq!(table.end_change(DIR), lane_bit(LaneId(5)));
        assert!(!table.waits(DIR, LaneId(5)));
        assert_eq!(table.remove_ended(DIR), Some((DIR, LaneId(3))));
        assert!(table.is_empty() && table.named(InodeNo::ROOT, b"d").is_none());
    }

    #[test]
    fn hidden_attributes_must_be_said_again_before_names_are_changed() {
        let table = Directories::default();
        insert(&table, DIR, b"d");
        table.hide(DIR);
        assert!(table.attr(DIR).is_none() && !table.begin(DIR, Timestamp::default()));
        let seen = Attr { nlink: 9, ..attr(DIR) };
        table.refresh(&seen);
        assert_eq!(table.attr(DIR), Some(seen));
        assert!(table.begin(DIR, Timestamp::default()));
    }

    #[test]
    fn an_idle_directory_gives_its_place_and_a_busy_one_does_not() {
        let table = Directories::default();
        insert(&table, DIR, b"d");
        let same_place = |inode: &InodeNo| place_of(inode.0, COUNT) == place_of(DIR.0, COUNT);
        let other = (501..).map(InodeNo).find(same_place).expect("there are many");
        assert!(table.begin(DIR, Timestamp::default()));
        assert_eq!(insert(&table, other, b"e"), None);
        table.end_change(DIR);
        assert_eq!(insert(&table, other, b"e"), Some(Some((DIR, LaneId(3)))));
        assert!(!table.is_held(DIR) && table.is_held(other) && table.count() == 1);
    }

    #[test]
    fn a_linked_file_is_known_for_ever() {
        let table = Directories::default();
        assert!(!table.may_be_linked(DIR));
        table.link(DIR);
        assert!(table.may_be_linked(DIR));
    }
}
