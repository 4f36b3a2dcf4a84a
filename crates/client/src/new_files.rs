//! What a lane needs to create files behind its server: inode numbers that the server has given it, the
//! server's clock, and the claims of a restart.
//!
//! ```text
//! reply with new files ─▶ range ─▶ take_new_file ─▶ Call::CreateBehind ─▶ end_new_file
//! another boot of the server ─▶ the ranges are void; what is under way is claimed
//! ```
//! A program that creates several files has a block of numbers of its own: so files that one program makes have
//! numbers in a row also where several make files at a time, and are read in that order by another one.
//!
//! A number says where the contents are. A program whose last new file was synced is expected to sync the next one.
//! So it gets one of the next few numbers whose contents are at the lane of the directory, if there is one: a flush
//! there makes name and contents durable.
//!
//! Invariant: a number is taken once, and while a create with one of the range before the last is under
//! way, none is taken of a further range: the server remembers a few ranges.

use crate::client::Client;
use crate::plan::{FollowUp, NewRequest, Plan};
use crate::session::slots_behind;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use interface::Mono;
use wire::{
    Attr, Claim, Getattr, Handle, HandleId, InodeNo, NewFiles, Op, OpenFor, Reply, ShardId,
    Timestamp, Writer, request_flag,
};

/// So many ranges of a shard are known at a time.
const RANGE_COUNT_MAX: usize = 4;
/// A block ends before each multiple of this.
pub const NUMBER_BLOCK: u64 = 64;
/// Files that a program has created before it has a block.
const CREATED_COUNT_MIN: u32 = 4;
/// Programs whose files are counted.
const CREATOR_COUNT_MAX: usize = 8;
/// The block of all programs that have none.
const ANYBODY: u32 = 0;
/// The number of a file is at most so many above that of the one before it in its block. Who reads files in a
/// row expects no longer steps.
pub const NUMBER_STEP_MAX: u64 = 4;

/// Numbers that a server has given to this lane.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Range {
    shard: ShardId,
    server_index: usize,
    boot_id: u64,
    first: u64,
    /// The numbers from here on are in no block.
    next: u64,
    end: u64,
    /// Those with numbers left.
    blocks: Vec<Block>,
}

/// Numbers of one program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Block {
    creator: u32,
    next: u64,
    end: u64,
}

/// A program that has created files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Creator {
    pid: u32,
    created_count: u32,
    /// Its last file.
    last: Option<InodeNo>,
}

/// Programs that have created files; the latest is the last.
#[derive(Debug, Default)]
struct Creators {
    known: Vec<Creator>,
    /// Who has taken the last numbers of the block of anybody, and how many.
    alone: (u32, u32),
}

/// Whose block a number is taken of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Taker {
    Anybody,
    /// One that has taken the last numbers of the block of anybody: the block is its own now.
    Heir(u32),
    Creator(u32),
}

impl Creators {
    /// Whether a program is expected to sync its next file, as the one that was synced last.
    fn syncs(&self, pid: u32, synced: InodeNo) -> bool {
        self.known.iter().any(|known| (known.pid, known.last) == (pid, Some(synced)))
    }

    /// A program creates a file.
    fn count(&mut self, pid: u32) -> Taker {
        let known = self.known.iter().position(|known| known.pid == pid);
        let before = known.map_or(0, |index| self.known.remove(index).created_count);
        if self.known.len() >= CREATOR_COUNT_MAX {
            self.known.remove(0);
        }
        let created_count = before.saturating_add(1);
        self.known.push(Creator { pid, created_count, last: None });
        let alone = if self.alone.0 == pid { self.alone.1 } else { 0 };
        if created_count < CREATED_COUNT_MIN || pid == ANYBODY {
            self.alone = (pid, alone + 1);
            return Taker::Anybody;
        }
        let is_heir = created_count == CREATED_COUNT_MIN && alone + 1 >= CREATED_COUNT_MIN;
        if is_heir { Taker::Heir(pid) } else { Taker::Creator(pid) }
    }
}

impl Range {
    const fn has_numbers(&self) -> bool {
        self.next < self.end || !self.blocks.is_empty()
    }

    /// The first of the next numbers of a block for which `is_wanted` is true, or the last of them: then there
    /// are as many others for the next file.
    fn take(&mut self, taker: Taker, is_wanted: impl Fn(InodeNo) -> bool) -> Option<u64> {
        let creator = match taker {
            Taker::Anybody => ANYBODY,
            Taker::Heir(creator) => {
                let inherited = self.blocks.iter_mut().find(|block| block.creator == ANYBODY);
                inherited.into_iter().for_each(|block| block.creator = creator);
                creator
            }
            Taker::Creator(creator) => creator,
        };
        let own = self.blocks.iter().position(|block| block.creator == creator);
        let index = own.or_else(|| self.new_block(creator))?;
        let block = &mut self.blocks[index];
        let end = block.end.min(block.next.saturating_add(NUMBER_STEP_MAX));
        let wanted = (block.next..end).find(|number| is_wanted(InodeNo(*number)));
        let number = wanted.unwrap_or(end - 1);
        block.next = number + 1;
        if block.next == block.end {
            self.blocks.remove(index);
        }
        Some(number)
    }

    /// Numbers for a program that has none left: if all are in blocks, half of the longest rest.
    fn new_block(&mut self, creator: u32) -> Option<usize> {
        let block = if self.next < self.end {
            let end = self.end.min((self.next / NUMBER_BLOCK + 1) * NUMBER_BLOCK);
            let next = core::mem::replace(&mut self.next, end);
            Block { creator, next, end }
        } else {
            let rest = |block: &Block| block.end - block.next;
            let index = (0..self.blocks.len()).max_by_key(|index| rest(&self.blocks[*index]))?;
            let longest = &mut self.blocks[index];
            if rest(longest) == 1 {
                longest.creator = creator;
                return Some(index);
            }
            let end = longest.end;
            longest.end -= rest(longest) / 2;
            Block { creator, next: longest.end, end }
        };
        self.blocks.push(block);
        Some(self.blocks.len() - 1)
    }
}

/// The numbers of a lane.
#[derive(Debug, Default)]
pub(crate) struct NewFileNumbers {
    /// In the order in which they were given.
    ranges: Vec<Range>,
    creators: Creators,
    /// Numbers of creates under way.
    unanswered: BTreeSet<InodeNo>,
    /// Directories with a Claim under way.
    claiming: BTreeSet<InodeNo>,
}

impl NewFileNumbers {
    fn add(&mut self, range: Range) {
        let is_same = |other: &Range| {
            (other.shard, other.server_index, other.boot_id)
                == (range.shard, range.server_index, range.boot_id)
        };
        self.ranges.retain(|other| other.shard != range.shard || is_same(other));
        // The reply that gave it first may have been lost.
        if self.ranges.iter().any(|other| is_same(other) && other.first == range.first) {
            return;
        }
        if self.ranges.iter().filter(|other| is_same(other)).count() >= RANGE_COUNT_MAX
            && let Some(oldest) = self.ranges.iter().position(is_same)
        {
            self.ranges.remove(oldest);
        }
        self.ranges.push(range);
    }

    fn take(
        &mut self,
        shard: ShardId,
        (server_index, boot_id): (usize, u64),
        (creator, synced): (u32, Option<InodeNo>),
        is_near: impl Fn(InodeNo) -> bool,
    ) -> Option<InodeNo> {
        let of_shard = self.ranges.iter_mut().filter(|range| {
            (range.shard, range.server_index, range.boot_id) == (shard, server_index, boot_id)
        });
        let mut of_shard: Vec<&mut Range> = of_shard.collect();
        let index = of_shard.iter().position(|range| range.has_numbers())?;
        let lowest = index.saturating_sub(1);
        let is_recent = |inode: &InodeNo| {
            let mut recent = of_shard.iter().skip(lowest);
            inode.shard() != shard || recent.any(|it| (it.first..it.end).contains(&inode.0))
        };
        if !self.unanswered.iter().all(is_recent) {
            return None;
        }
        let syncs = synced.is_some_and(|synced| self.creators.syncs(creator, synced));
        let taker = self.creators.count(creator);
        let is_wanted = |inode| !syncs || is_near(inode);
        let inode = InodeNo(of_shard.get_mut(index)?.take(taker, is_wanted)?);
        self.creators.known.last_mut().into_iter().for_each(|it| it.last = Some(inode));
        self.unanswered.insert(inode);
        Some(inode)
    }
}

impl Client {
    /// A number for a file that a process creates behind, in a directory with this number. The call must be
    /// made, or the number given up by [`Self::end_new_file`]. `synced`: the new file that was synced last.
    pub fn take_new_file(
        &mut self,
        directory: InodeNo,
        (creator, synced): (u32, Option<InodeNo>),
    ) -> Option<InodeNo> {
        let server_index = self.servers.server_of_inode(directory);
        let server = self.servers.server(server_index)?;
        if slots_behind(server.slot_count()) == 0 {
            return None;
        }
        let boot_id = server.boot_id();
        let is_near = |inode| self.servers.has_contents_at(inode, directory.shard());
        let by = (creator, synced);
        self.new_files.take(directory.shard(), (server_index, boot_id), by, is_near)
    }

    /// A number is used, or never will be.
    pub fn end_new_file(&mut self, inode: InodeNo) {
        self.new_files.unanswered.remove(&inode);
    }

    /// A handle for a file that is created behind; `None` at the limit.
    pub fn begin_handle(&mut self, open_for: OpenFor) -> Option<Handle> {
        self.handles.begin(InodeNo(0), open_for)
    }

    /// A handle of [`Self::begin_handle`] is not used.
    pub fn cancel_handle(&mut self, handle: HandleId) {
        self.handles.remove(handle);
    }

    /// The clock of an inode's server, never later than it is there. `None`: nothing is known of it.
    #[must_use]
    pub fn server_time(&self, now: Mono, inode: InodeNo) -> Option<Timestamp> {
        let link = self.servers.link_of_inode(inode).and_then(|index| self.servers.link(index))?;
        let (at_ns, seen_at) = link.clock?;
        Some(Timestamp::from_ns(at_ns.saturating_add(now.since_ns(seen_at))))
    }

    /// A reply says what the server's clock showed when it left.
    pub(crate) fn see_clock(&mut self, now: Mono, link_index: usize, reply: &Reply) {
        let Some(link) = self.servers.link_mut(link_index) else { return };
        let known = link.clock.map(|(at_ns, seen_at)| at_ns.saturating_add(now.since_ns(seen_at)));
        link.clock =
            Some((known.map_or(reply.op_time_ns, |known| known.max(reply.op_time_ns)), now));
    }

    /// Whether a directory that was just made is asked for: it is at another shard than its parent, so
    /// the reply has granted nothing. It is not worth a wait for a server that may be away: a connection
    /// is made only to the one that has just answered. Of a server that has granted this lane nothing it
    /// is asked once.
    pub(crate) fn asks_for_made(&mut self, job_id: usize, made: (ShardId, &Attr)) -> bool {
        let (parent, Attr { inode, .. }) = made;
        let servers = &self.servers;
        let link = servers.link_of_inode(*inode).and_then(|index| servers.link(index));
        let is_near = servers.server_of_shard(parent) == servers.server_of_inode(*inode);
        let answers = link.map_or(is_near, |it| it.is_up() || is_near && it.state_is_idle());
        let asks = inode.shard() != parent
            && self.leases.asks
            && self.leases.writes_behind
            && answers
            && self.jobs.get(job_id).is_some_and(|job| job.call.is_some());
        asks && (self.was_granted_any()
            || !core::mem::replace(&mut self.leases.has_asked_for_made, true))
    }

    /// Asks for the attributes of a directory that was just made, and for its names.
    pub(crate) fn ask_for_made(&mut self, job_id: usize, made: Attr) {
        let getattr = FollowUp::Getattr(Getattr { inode: made.inode });
        let mut body = self.requests.take_body();
        getattr.encode(&[], &mut Writer::new(&mut body));
        let request = NewRequest::new(Plan::Made(made), getattr.op(), getattr.target());
        self.submit(job_id, NewRequest { flags: request_flag::BEHIND, ..request }, body);
    }

    /// A reply gives numbers. They are no lease.
    pub(crate) fn add_new_files(&mut self, link_index: usize, boot_id: u64, given: NewFiles) {
        let Some(link) = self.servers.link(link_index) else { return };
        let NewFiles { first: InodeNo(first), count, .. } = given;
        let (shard, server_index) = (given.first.shard(), link.server_index());
        let end = first.saturating_add(count.into());
        let (next, blocks) = (first, Vec::new());
        self.new_files.add(Range { shard, server_index, boot_id, first, next, end, blocks });
    }

    /// The server knows nothing of this client any more.
    pub(crate) fn forget_new_files(&mut self) {
        self.new_files.ranges.clear();
    }

    /// Claims, at their restarted server, all directories for which `wanted` is true and in which names are
    /// being changed behind.
    pub(crate) fn claim(&mut self, wanted: impl Fn(&Self, InodeNo) -> bool) {
        let mut claims: BTreeMap<InodeNo, Option<(u64, u64)>> = BTreeMap::new();
        for (_, exchange) in self.requests.iter() {
            let changes_names = matches!(exchange.op, Op::Create | Op::Unlink);
            let directory = exchange.inode();
            let is_due = !self.new_files.claiming.contains(&directory) && wanted(self, directory);
            if !exchange.is_behind() || !changes_names || !is_due {
                continue;
            }
            let numbers = claims.entry(directory).or_default();
            let plan = self.jobs.get(exchange.job_id).map(|job| job.plan);
            if let Some(Plan::Create(create)) = plan
                && let Some(InodeNo(number)) = create.chosen()
            {
                let (first, last) = numbers.unwrap_or((number, number));
                *numbers = Some((first.min(number), last.max(number)));
            }
        }
        for (inode, numbers) in claims {
            let (first, last) = numbers.unwrap_or((1, 0));
            let count = u32::try_from((last + 1).saturating_sub(first)).unwrap_or(u32::MAX);
            let first = InodeNo(if count > 0 { first } else { inode.0 });
            self.new_files.claiming.insert(inode);
            let server_index = self.servers.server_of_inode(inode);
            self.servers.begin_registering(server_index);
            let claim = FollowUp::Claim(Claim { inode, first, count });
            self.begin_without_caller(Plan::Claim { inode, server_index }, claim);
        }
    }

    /// A directory was claimed: the frontend ends that when nothing of it is under way.
    pub(crate) fn on_claimed(&mut self, inode: InodeNo, is_granted: bool) {
        self.new_files.claiming.remove(&inode);
        if is_granted {
            self.leases.writing.insert(inode);
            self.leases.writing_ended.push(inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: ShardId = ShardId::meta(3);
    const SERVER: (usize, u64) = (0, 7);

    fn range(first: u64, count: u64) -> Range {
        let InodeNo(first) = InodeNo::new(SHARD.index(), first);
        let (server_index, boot_id) = SERVER;
        let (shard, next, end) = (SHARD, first, first + count);
        Range { shard, server_index, boot_id, first, next, end, blocks: Vec::new() }
    }

    /// Files with such numbers have their contents at the lane of the directory.
    fn is_even(inode: InodeNo) -> bool {
        inode.count().is_multiple_of(2)
    }

    fn take(numbers: &mut NewFileNumbers) -> Option<u64> {
        take_for(numbers, 1)
    }

    fn take_for(numbers: &mut NewFileNumbers, creator: u32) -> Option<u64> {
        let taken = numbers.take(SHARD, SERVER, (creator, None), is_even).map(InodeNo::count);
        numbers.unanswered.clear();
        taken
    }

    #[test]
    fn files_of_one_program_have_numbers_in_a_row_while_others_create() {
        let mut numbers = NewFileNumbers::default();
        numbers.add(range(64, 1024));
        let mut taken = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..200 {
            for (files, creator) in taken.iter_mut().zip(1..) {
                files.extend(take_for(&mut numbers, creator));
            }
        }
        for files in &taken {
            let in_row = files.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
            assert!(in_row >= 190, "{files:?}");
        }
        let mut all = taken.concat();
        all.extend(core::iter::from_fn(|| take_for(&mut numbers, 9)));
        all.sort_unstable();
        assert!(all.into_iter().eq(64..1088), "each number once, and all of them");
    }

    #[test]
    fn files_of_a_program_alone_and_of_programs_that_make_one_each_are_in_a_row() {
        let mut numbers = NewFileNumbers::default();
        numbers.add(range(64, 1024));
        let mut taken: Vec<u64> = (0..100).filter_map(|_| take(&mut numbers)).collect();
        assert!(taken.iter().copied().eq(64..164));
        taken = (10..70).filter_map(|creator| take_for(&mut numbers, creator)).collect();
        assert!(taken.iter().copied().eq(192..252));
    }

    /// A program takes a number. This file was synced last.
    fn take_after(numbers: &mut NewFileNumbers, creator: u32, synced: u64) -> u64 {
        let by = (creator, Some(InodeNo::new(SHARD.index(), synced)));
        let taken = numbers.take(SHARD, SERVER, by, is_even);
        numbers.unanswered.clear();
        taken.map_or(0, InodeNo::count)
    }

    #[test]
    fn a_program_whose_last_file_was_synced_last_gets_numbers_whose_contents_are_near() {
        let mut numbers = NewFileNumbers::default();
        numbers.add(range(65, 1023));
        let mut take = |creator, synced| take_after(&mut numbers, creator, synced);
        let first: Vec<u64> = [1, 65, 66, 68, 70].map(|synced| take(1, synced)).into();
        assert_eq!(first, [65, 66, 68, 70, 72]);
        assert_eq!([70, 73, 70].map(|synced| take(1, synced)), [73, 74, 75], "an earlier file");
        assert_eq!([75, 128].map(|synced| take(2, synced)), [128, 130], "that of another one");
        assert_eq!([130, 75].map(|synced| take(1, synced)), [76, 77], "another one has synced");
    }

    #[test]
    fn few_numbers_are_left_out_for_one_whose_contents_are_near() {
        let mut numbers = NewFileNumbers::default();
        numbers.add(range(64, 1024));
        let mut last = None;
        let mut take = |multiple: u64| {
            let is_near = |inode: InodeNo| inode.count().is_multiple_of(multiple);
            last = numbers.take(SHARD, SERVER, (1, last), is_near);
            numbers.unanswered.clear();
            last.map_or(0, InodeNo::count)
        };
        let taken = [1, 4, 4, 5, 1000, 1000].map(&mut take);
        assert_eq!(taken, [64, 68, 72, 75, 79, 83], "at most four further on");
    }

    #[test]
    fn each_number_is_taken_once_and_in_order() {
        let mut numbers = NewFileNumbers::default();
        assert_eq!(take(&mut numbers), None);
        numbers.add(range(10, 2));
        assert_eq!((take(&mut numbers), take(&mut numbers)), (Some(10), Some(11)));
        numbers.add(range(10, 2));
        assert_eq!(take(&mut numbers), None, "it was given a second time");
        numbers.add(range(20, 1));
        assert_eq!(numbers.take(ShardId::meta(4), SERVER, (1, None), is_even), None);
        assert_eq!((take(&mut numbers), take(&mut numbers)), (Some(20), None));
    }

    #[test]
    fn those_of_another_boot_are_void() {
        let mut numbers = NewFileNumbers::default();
        numbers.add(range(10, 2));
        assert_eq!(numbers.take(SHARD, (0, 8), (1, None), is_even), None);
        assert_eq!(numbers.take(SHARD, (1, 7), (1, None), is_even), None);
        numbers.add(Range { boot_id: 8, ..range(30, 1) });
        assert_eq!(numbers.take(SHARD, (0, 8), (1, None), is_even).map(InodeNo::count), Some(30));
        assert_eq!(take(&mut numbers), None);
    }

    #[test]
    fn no_create_of_an_old_range_is_under_way_when_a_later_one_is_begun() {
        let mut numbers = NewFileNumbers::default();
        let take = |numbers: &mut NewFileNumbers| {
            numbers.take(SHARD, SERVER, (1, None), is_even).map(InodeNo::count)
        };
        [10, 20, 30].into_iter().for_each(|first| numbers.add(range(first, 1)));
        assert_eq!((take(&mut numbers), take(&mut numbers)), (Some(10), Some(20)));
        assert_eq!(take(&mut numbers), None);
        numbers.unanswered.remove(&InodeNo::new(SHARD.index(), 10));
        assert_eq!(take(&mut numbers), Some(30));
        [40, 50, 60].into_iter().for_each(|first| numbers.add(range(first, 1)));
        assert_eq!(numbers.ranges.len(), RANGE_COUNT_MAX);
        assert_eq!(take(&mut numbers), None, "20 is of a range that is known no more");
        numbers.unanswered.clear();
        assert_eq!(take(&mut numbers), Some(40));
    }
}
