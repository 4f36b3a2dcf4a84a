//! The files that a mount writes behind: a table that all lanes read and write without locks, because
//! the kernel sends each request of a file to any of them.
//!
//! ```text
//! CREATE, with a write lease ─▶ idle ─ WRITE at the end ─▶ writing ─ answered ─▶ idle ─ RELEASE ─▶ free
//! OPEN, the same (`opened_behind`) ┘
//!    └ answered early ─▶ creating ┘ └ SETATTR ─▶ setting ────────┘   └ UNLINK ─▶ removing ─▶ idle
//! recalled, or anything else changes the file ─▶ ended: idle again, writes are waited for
//! ```
//! A file has at most one write under way that its caller does not wait for, perhaps behind its create,
//! and behind it changes of its attributes, one after the other: so all are executed in the order of
//! their callers. Whatever
//! else concerns the file waits until nothing is under way. A file and a name have one place each;
//! where it is taken, a new file is not written behind.
//!
//! Invariant: a file is busy from before the kernel gets its reply until the server has answered.

use crate::local_files::LocalFiles;
use crate::names_behind::Directories;
use crate::shared::{AttrWords, hash_of, lane_bit, place_of};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use wire::{Attr, HandleId, InodeNo, LaneId, Status};

const COUNT: usize = 4096;

/// Bits of a state; between them are the error and two numbers of changes of attributes, and above
/// them the generation.
pub(crate) mod bit {
    pub(crate) const HELD: u64 = 1;
    pub(crate) const WRITING: u64 = 2;
    /// Its create is under way.
    pub(crate) const CREATING: u64 = 4;
    pub(crate) const ENDED: u64 = 8;
    /// It is being filled in.
    pub(crate) const NEW: u64 = 16;
    /// The removal of its name is under way.
    pub(crate) const REMOVING: u64 = 32;
    /// Its create was refused: there is no such file.
    pub(crate) const LOST: u64 = 64;
    /// The server has not granted that it is written behind.
    pub(crate) const PLAIN: u64 = 128;
    /// A change of its size is under way whose caller waits for it.
    pub(crate) const AWAITED: u64 = 1 << 32;
    /// It was there before, and is written behind since it was opened.
    pub(crate) const OPENED: u64 = 1 << 33;
}
const ERROR_SHIFT: u32 = 8;
const ERROR_MASK: u64 = 0xffff << ERROR_SHIFT;
/// The number of the next change of attributes.
const NEXT_SHIFT: u32 = 24;
/// The number of the first one that is not answered.
const FIRST_SHIFT: u32 = 28;
const NUMBER_MASK: u64 = 15;
const GENERATION_SHIFT: u32 = 34;

/// The size of an opened file that no reply has shown yet.
pub(crate) const UNKNOWN: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Place {
    state: AtomicU64,
    inode: AtomicU64,
    pub(crate) size_bytes: AtomicU64,
    handle: AtomicU64,
    /// The user that has created it.
    creator: AtomicU64,
    name_hash: AtomicU64,
    /// Lanes that wait, by their bits.
    pub(crate) waiters: AtomicU64,
    pub(crate) attr: AttrWords,
    /// Not 0: something waits until nothing is under way, so no further write is joined.
    pub(crate) wanted: AtomicU64,
    /// Requests of this mount that may change sizes of files with this place: how many have begun, and,
    /// in the lower half, how many are unanswered.
    pub(crate) resizes: AtomicU64,
}

/// The table.
#[derive(Debug)]
pub struct Behind {
    pub(crate) places: Box<[Place]>,
    /// Inodes, by the hashes of the names that they were created under.
    names: Box<[AtomicU64]>,
    pub(crate) held_count: AtomicUsize,
    /// Bytes of the writes under way.
    pub(crate) bytes: AtomicU64,
    pub(crate) written_count: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) lost_count: AtomicU64,
    pub(crate) lost_bytes: AtomicU64,
    /// Lanes that end and have nothing under way, by their bits.
    idle_lanes: AtomicU64,
    pub(crate) directories: Directories,
    pub(crate) local: LocalFiles,
    /// Files that are open to read and write, and not for writing at the server.
    pub(crate) unwritten: LocalFiles,
}

/// A file that is created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewFile<'a> {
    pub(crate) attr: &'a Attr,
    pub(crate) handle: HandleId,
    /// The user that has created it.
    pub(crate) creator: u32,
    pub(crate) parent: InodeNo,
    pub(crate) name: &'a [u8],
}

/// Why a file gets a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begun {
    /// It was created, and may be written behind.
    Created,
    /// It was opened, and may be written behind.
    Opened,
    /// Its create is under way.
    Creating,
    /// The removal of its name is under way; it is not written behind.
    Removing,
}

/// A change of attributes that is begun, and those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setting {
    /// It is made when those with lower numbers are answered.
    pub(crate) number: u64,
    pub(crate) attr: Attr,
}

/// How a change may be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How<T> {
    /// Its caller waits for it.
    Through,
    /// When nothing is under way.
    Later,
    /// An earlier write has failed, and this caller is told so.
    Failed(Status),
    /// Its caller waits for it, and others wait for the size that it leaves.
    Awaited,
    /// Its caller gets the answer at once, and it is made with others when the one under way is over.
    Joined(T),
    /// Its caller gets the answer at once.
    Behind(T),
}

/// A write to the end of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// Where it begins; `None`: at the end.
    pub(crate) file_offset: Option<u64>,
    pub(crate) write_bytes: u64,
    /// It may not be made behind.
    pub(crate) is_awaited: bool,
    /// This lane has one under way: so many further bytes may be joined behind it.
    pub(crate) joinable_bytes: u64,
}

impl Place {
    fn attr(&self) -> Option<Attr> {
        let size_bytes = self.size_bytes.load(Ordering::SeqCst);
        Some(Attr { size_bytes, ..self.attr.get()? }).filter(|_| size_bytes != UNKNOWN)
    }
}

impl Default for Behind {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        let place = |_| Place {
            state: zero(),
            inode: zero(),
            size_bytes: zero(),
            handle: zero(),
            creator: zero(),
            name_hash: zero(),
            waiters: zero(),
            attr: AttrWords::default(),
            wanted: zero(),
            resizes: zero(),
        };
        Self {
            places: (0..COUNT).map(place).collect(),
            names: (0..COUNT).map(|_| zero()).collect(),
            held_count: AtomicUsize::new(0),
            bytes: zero(),
            written_count: zero(),
            written_bytes: zero(),
            lost_count: zero(),
            lost_bytes: zero(),
            idle_lanes: zero(),
            directories: Directories::default(),
            local: LocalFiles::default(),
            unwritten: LocalFiles::default(),
        }
    }
}

pub(crate) const fn error_in(state: u64) -> u64 {
    (state & ERROR_MASK) >> ERROR_SHIFT
}

/// What callers are told of it.
fn status_in(state: u64) -> Status {
    let number = u16::try_from(error_in(state)).unwrap_or(0);
    let status = Status::from_number(number).unwrap_or(Status::Io);
    if matches!(status, Status::NoSpace | Status::Quota) { status } else { Status::Io }
}

/// A number of changes of attributes.
const fn number_in(state: u64, shift: u32) -> u64 {
    (state >> shift) & NUMBER_MASK
}

/// The state with the next higher one.
const fn with_next(state: u64, shift: u32) -> u64 {
    let next = (number_in(state, shift) + 1) & NUMBER_MASK;
    state & !(NUMBER_MASK << shift) | next << shift
}

pub(crate) const fn is_setting(state: u64) -> bool {
    number_in(state, NEXT_SHIFT) != number_in(state, FIRST_SHIFT)
}

/// Whether something is under way.
pub(crate) const fn is_busy(state: u64) -> bool {
    let under_way = bit::WRITING | bit::CREATING | bit::REMOVING | bit::AWAITED;
    state & under_way != 0 || is_setting(state)
}

impl Behind {
    pub(crate) fn place(&self, inode: InodeNo) -> &Place {
        &self.places[place_of(inode.0, COUNT)]
    }

    /// Whether nothing is changed behind.
    pub(crate) fn is_empty(&self) -> bool {
        self.held_count.load(Ordering::SeqCst) == 0 && self.directories.is_empty()
    }

    /// The place of a file, and its state.
    pub(crate) fn find(&self, inode: InodeNo) -> Option<(&Place, u64)> {
        let place = self.place(inode);
        let state = place.state.load(Ordering::SeqCst);
        let is_held = state & bit::HELD != 0 && place.inode.load(Ordering::SeqCst) == inode.0;
        // A place that was given to another file meanwhile has another generation.
        is_held.then_some((place, state))
    }

    /// Changes the state of a file, unless `to` says that it stays.
    pub(crate) fn change(&self, inode: InodeNo, to: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        loop {
            let (place, state) = self.find(inode)?;
            let next = to(state)?;
            let changed =
                place.state.compare_exchange(state, next, Ordering::SeqCst, Ordering::SeqCst);
            if changed.is_ok() {
                return Some(state);
            }
        }
    }

    /// A file may be written behind from now on, before the kernel knows it, or its name is being removed.
    /// Returns whether there is a place for it.
    pub(crate) fn insert(&self, file: &NewFile<'_>, begun: Begun) -> bool {
        let is_opened = begun == Begun::Opened;
        let hash = if is_opened { 0 } else { hash_of(file.parent, file.name) };
        let name = &self.names[place_of(hash, COUNT)];
        let other = InodeNo(name.load(Ordering::SeqCst));
        if !is_opened && self.find(other).is_some() {
            return false;
        }
        let place = self.place(file.attr.inode);
        let before = place.state.load(Ordering::SeqCst);
        if before & (bit::HELD | bit::NEW) != 0 {
            return false;
        }
        let generation = (before >> GENERATION_SHIFT).wrapping_add(1) << GENERATION_SHIFT;
        let new = generation | bit::NEW;
        let claimed =
            place.state.compare_exchange(before, new, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if !claimed {
            return false;
        }
        let set = |word: &AtomicU64, value: u64| word.store(value, Ordering::SeqCst);
        set(&place.inode, file.attr.inode.0);
        let size_bytes = match begun {
            Begun::Created | Begun::Creating => 0,
            Begun::Opened if file.attr.is_size_at_data() => UNKNOWN,
            Begun::Opened | Begun::Removing => file.attr.size_bytes,
        };
        set(&place.size_bytes, size_bytes);
        set(&place.handle, file.handle.0);
        set(&place.creator, file.creator.into());
        set(&place.name_hash, hash);
        if !is_opened {
            set(name, file.attr.inode.0);
        }
        set(&place.waiters, 0);
        place.attr.set(file.attr);
        self.held_count.fetch_add(1, Ordering::SeqCst);
        let bits = match begun {
            Begun::Created => 0,
            Begun::Opened => bit::OPENED,
            Begun::Creating => bit::CREATING,
            Begun::Removing => bit::REMOVING | bit::ENDED,
        };
        set(&place.state, generation | bit::HELD | bits);
        true
    }

    /// The file that was created under a name, if it is written behind.
    pub(crate) fn named(&self, parent: InodeNo, name: &[u8]) -> Option<InodeNo> {
        let hash = hash_of(parent, name);
        let inode = InodeNo(self.names[place_of(hash, COUNT)].load(Ordering::SeqCst));
        let (place, _) = self.find(inode)?;
        (place.name_hash.load(Ordering::SeqCst) == hash).then_some(inode)
    }

    /// The first file from a place on of which something is under way, and the place behind it.
    pub(crate) fn busy_from(&self, first: usize) -> Option<(InodeNo, usize)> {
        let places = self.places.iter().enumerate().skip(first);
        let mut busy = places.filter(|(_, place)| {
            let state = place.state.load(Ordering::SeqCst);
            state & bit::HELD != 0 && is_busy(state)
        });
        let (index, place) = busy.next()?;
        Some((InodeNo(place.inode.load(Ordering::SeqCst)), index + 1))
    }

    /// A lane ends, and has nothing under way.
    pub(crate) fn note_idle(&self, lane: LaneId) {
        self.idle_lanes.fetch_or(lane_bit(lane), Ordering::SeqCst);
    }

    /// Whether that is so of all lanes.
    pub(crate) fn are_all_idle(&self, lane_count: u16) -> bool {
        let idle = self.idle_lanes.load(Ordering::SeqCst);
        (0..lane_count).all(|lane| idle & lane_bit(LaneId(lane)) != 0)
    }

    /// Whether a file has a place.
    pub(crate) fn is_held(&self, inode: InodeNo) -> bool {
        self.find(inode).is_some()
    }

    /// Whether something of a file is under way.
    pub(crate) fn is_busy(&self, inode: InodeNo) -> bool {
        self.find(inode).is_some_and(|(_, state)| is_busy(state))
    }

    /// Whether writes alone are under way of a file.
    pub(crate) fn is_only_writing(&self, inode: InodeNo) -> bool {
        let (writing, others) = (bit::WRITING, bit::CREATING | bit::REMOVING | bit::AWAITED);
        self.find(inode)
            .is_some_and(|(_, it)| it & (writing | others) == writing && !is_setting(it))
    }

    /// Whether something of a file is under way; if so, this lane is told when that is over.
    pub(crate) fn waits(&self, inode: InodeNo, lane: LaneId) -> bool {
        let Some((place, _)) = self.find(inode) else { return false };
        place.waiters.fetch_or(lane_bit(lane), Ordering::SeqCst);
        place.wanted.store(1, Ordering::SeqCst);
        self.is_busy(inode)
    }

    /// The same for a change of attributes, which waits for a write and for the changes before it.
    pub(crate) fn setting_waits(&self, inode: InodeNo, number: u64, lane: LaneId) -> bool {
        let Some((place, _)) = self.find(inode) else { return false };
        place.waiters.fetch_or(lane_bit(lane), Ordering::SeqCst);
        self.find(inode).is_some_and(|(_, state)| {
            state & (bit::WRITING | bit::CREATING) != 0 || number_in(state, FIRST_SHIFT) != number
        })
    }

    /// The same for a write, which waits for the create.
    pub(crate) fn write_waits(&self, inode: InodeNo, lane: LaneId) -> bool {
        let Some((place, _)) = self.find(inode) else { return false };
        place.waiters.fetch_or(lane_bit(lane), Ordering::SeqCst);
        self.find(inode).is_some_and(|(_, state)| state & bit::CREATING != 0)
    }

    /// Whether the create of a file was refused.
    pub(crate) fn is_lost(&self, inode: InodeNo) -> bool {
        self.find(inode).is_some_and(|(_, state)| state & bit::LOST != 0)
    }

    /// Whether the server has not granted that a file is written behind, though something follows its
    /// create.
    pub(crate) fn is_plain(&self, inode: InodeNo) -> bool {
        self.find(inode).is_some_and(|(_, state)| state & bit::PLAIN != 0)
    }

    /// The changes of such a file are sent as those that are made behind. Returns whether they were not.
    pub(crate) fn send_behind(&self, inode: InodeNo) -> bool {
        self.change(inode, |it| (it & bit::PLAIN != 0).then_some(it & !bit::PLAIN)).is_some()
    }

    /// None of the file's writes is made behind any more.
    pub(crate) fn end(&self, inode: InodeNo) {
        self.change(inode, |state| (state & bit::ENDED == 0).then_some(state | bit::ENDED));
    }

    /// Begins a write.
    pub(crate) fn begin_write(&self, inode: InodeNo, extent: Extent) -> How<u64> {
        let Extent { file_offset, write_bytes, is_awaited, .. } = extent;
        loop {
            let Some((place, state)) = self.find(inode) else { return How::Through };
            if is_busy(state & !bit::CREATING) {
                return self.join((place, state), extent);
            }
            let is_creating = state & bit::CREATING != 0;
            if let Some(status) = self.take_error(inode) {
                return How::Failed(status);
            }
            if state & bit::ENDED != 0 {
                return if is_creating { How::Later } else { How::Through };
            }
            let size_bytes = place.size_bytes.load(Ordering::SeqCst);
            if size_bytes == UNKNOWN && file_offset.is_none() && write_bytes > 0 {
                let how = self.begin_awaited(inode);
                if how == How::Later {
                    continue;
                }
                return how;
            }
            let is_at_end = file_offset.is_none_or(|offset| offset == size_bytes);
            let end = size_bytes.saturating_add(write_bytes);
            let under_way = self.bytes.load(Ordering::SeqCst).saturating_add(write_bytes);
            let fits = under_way <= wire::BEHIND_BYTES_MAX && i64::try_from(end).is_ok();
            let is_behind = is_at_end && fits && write_bytes > 0 && !is_awaited;
            if is_creating && !is_behind {
                return How::Later;
            }
            let next = state | if is_behind { bit::WRITING } else { bit::ENDED };
            let changed =
                place.state.compare_exchange(state, next, Ordering::SeqCst, Ordering::SeqCst);
            if changed.is_err() {
                continue;
            }
            if !is_behind {
                return How::Through;
            }
            place.wanted.store(0, Ordering::SeqCst);
            place.size_bytes.store(end, Ordering::SeqCst);
            self.bytes.fetch_add(write_bytes, Ordering::SeqCst);
            return How::Behind(size_bytes);
        }
    }

    /// A create was answered. Returns the lanes that wait.
    pub(crate) fn end_create(
        &self,
        inode: InodeNo,
        (result, is_granted): (Result<(), Status>, bool),
    ) -> u64 {
        let bits = match result {
            Ok(()) if is_granted => 0,
            Ok(()) => bit::ENDED | bit::PLAIN,
            Err(_) => bit::LOST,
        };
        self.end_one(inode, |state| state & !bit::CREATING | bits, result)
    }

    /// Begins the removal of the only name of a file. Returns whether it may be made behind.
    pub(crate) fn begin_removal(&self, file: &NewFile<'_>) -> bool {
        let Some((place, _)) = self.find(file.attr.inode) else {
            return self.insert(file, Begun::Removing);
        };
        let hash = hash_of(file.parent, file.name);
        let is_named = place.name_hash.load(Ordering::SeqCst) == hash;
        is_named
            && self
                .change(file.attr.inode, |state| {
                    (!is_busy(state)).then_some(state | bit::REMOVING | bit::ENDED)
                })
                .is_some()
    }

    /// A removal was answered. Returns the lanes that wait.
    pub(crate) fn end_removal(&self, inode: InodeNo) -> u64 {
        if let Some((place, _)) = self.find(inode) {
            let hash = place.name_hash.load(Ordering::SeqCst);
            let name = &self.names[place_of(hash, COUNT)];
            // Another file may get the name while this one is open.
            if name.load(Ordering::SeqCst) == inode.0 {
                name.store(0, Ordering::SeqCst);
            }
        }
        let waiters = self.end_one(inode, |state| state & !bit::REMOVING, Ok(()));
        self.release(inode, HandleId(0));
        waiters
    }

    /// A change of attributes was answered. Returns the lanes that wait.
    pub(crate) fn end_setting(&self, inode: InodeNo, result: Result<(), Status>) -> u64 {
        self.end_one(inode, |state| with_next(state, FIRST_SHIFT), result)
    }

    pub(crate) fn end_one(
        &self,
        inode: InodeNo,
        ended: impl Fn(u64) -> u64,
        result: Result<(), Status>,
    ) -> u64 {
        let error = match result {
            Ok(()) => 0,
            Err(status) => u64::from(status.number()) << ERROR_SHIFT | bit::ENDED,
        };
        self.change(inode, |state| {
            let error = if error_in(state) > 0 { bit::ENDED & error } else { error };
            Some(ended(state) | error)
        });
        let place = self.place(inode);
        place.waiters.swap(0, Ordering::SeqCst)
    }

    /// The attributes of a file that is written behind, and the user that has created it.
    pub(crate) fn attr(&self, inode: InodeNo) -> Option<(Attr, u32)> {
        let (place, _) = self.find(inode)?;
        let creator = u32::try_from(place.creator.load(Ordering::SeqCst)).ok()?;
        Some((place.attr()?, creator))
    }

    /// Whether a file that is written behind certainly has no extended attributes.
    pub(crate) fn has_no_xattrs(&self, inode: InodeNo) -> bool {
        self.find(inode).is_some_and(|(place, state)| {
            state & bit::ENDED == 0 && place.attr.get().is_some_and(|attr| attr.has_no_xattrs())
        })
    }

    /// Whether a file that is written behind was certainly never written: its contents are known to
    /// be empty.
    pub(crate) fn is_unwritten(&self, inode: InodeNo) -> bool {
        self.find(inode).is_some_and(|(place, state)| {
            let is_new = state & (bit::ENDED | bit::OPENED) == 0;
            is_new && place.size_bytes.load(Ordering::SeqCst) == 0
        })
    }

    /// Begins a change of a file's attributes, which may follow a write and other changes. The kernel
    /// makes one at a time, and waits for its reply. [`Self::set_attr`] is called before that.
    pub(crate) fn begin_setting(&self, inode: InodeNo) -> How<Setting> {
        loop {
            let Some((place, state)) = self.find(inode) else { return How::Through };
            if state & (bit::ENDED | bit::REMOVING) != 0 || error_in(state) > 0 {
                return if is_busy(state) { How::Later } else { How::Through };
            }
            let next = with_next(state, NEXT_SHIFT);
            if !is_setting(next) {
                return How::Later; // There are as many as are numbered.
            }
            let Some(attr) = place.attr() else { return How::Through };
            let changed =
                place.state.compare_exchange(state, next, Ordering::SeqCst, Ordering::SeqCst);
            if changed.is_ok() {
                return How::Behind(Setting { number: number_in(state, NEXT_SHIFT), attr });
            }
        }
    }

    /// The attributes as a change that is begun leaves them.
    pub(crate) fn set_attr(&self, attr: &Attr) {
        if let Some((place, _)) = self.find(attr.inode) {
            place.attr.set(attr);
        }
    }

    /// Takes the error of an earlier change: the caller whose file it is hears of it.
    pub(crate) fn take_error(&self, inode: InodeNo) -> Option<Status> {
        let taken = self.change(inode, |state| {
            (error_in(state) > 0 && !is_busy(state)).then_some(state & !ERROR_MASK)
        });
        Some(status_in(taken?))
    }

    /// That error. It stays: who closes the file may not be who has changed it.
    pub(crate) fn error(&self, inode: InodeNo) -> Option<Status> {
        let (_, state) = self.find(inode)?;
        (error_in(state) > 0 && !is_busy(state)).then(|| status_in(state))
    }

    /// The kernel has released a handle of a file. Whether that was the one that it was created with,
    /// so that it is written behind no more. Nothing of it is under way.
    pub(crate) fn release(&self, inode: InodeNo, handle: HandleId) -> bool {
        let Some((place, _)) = self.find(inode) else { return false };
        if place.handle.load(Ordering::SeqCst) != handle.0 {
            return false;
        }
        let released = self.change(inode, |state| {
            (!is_busy(state)).then_some(state >> GENERATION_SHIFT << GENERATION_SHIFT)
        });
        if released.is_some() {
            self.held_count.fetch_sub(1, Ordering::SeqCst);
        }
        released.is_some()
    }
}
