//! Reads: when their blocks must be verified first.
//!
//! ```text
//! read ─ a block is not verified ─▶ all its blocks are compared ─▶ read, wherever the bytes are
//!  │                                   ▲
//!  └─ all are ─▶ read from the page cache ─ not all is there ─▶ no block of the object is verified
//! ```
//! Invariant: bytes with a checksum are returned only if they were verified since they came from
//! the disk, as far as our own reads brought them from there.

use crate::in_flight::{CachedRead, InFlight, Verifying};
use crate::object::Object;
use crate::ranges::read_by;
use crate::request::{QueuedOp, ReadingList};
use crate::sums::Sums;
use crate::unstable::ByteAccess;
use crate::{Answer, Damage, Outcome, Shards, Token};
use alloc::vec::Vec;
use disk::BlockSum;
use interface::{Ticket, Turn};
use wire::{ClientUuid, InodeNo, Rule, Status};

/// The next step of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReadStep {
    /// It waits for the verification of its blocks, or has failed.
    Nothing,
    /// Its blocks were verified earlier in this generation: bytes that have left the page cache
    /// since must not be read.
    Cached(u16),
    /// Nothing to verify, or just verified.
    Anywhere,
}

impl Shards {
    /// Begins a read.
    pub(crate) fn begin_reading(&mut self, turn: &mut Turn<'_>, inode: InodeNo, pending: QueuedOp) {
        let next = self.next_of(turn, inode, &pending);
        if next == ReadStep::Nothing {
            return;
        }
        if let QueuedOp::Read { accesses: true, .. }
        | QueuedOp::ReadList(ReadingList { accesses: true, .. }) = pending
        {
            self.access(inode, turn.now.wall_ns);
        }
        let cached = match next {
            ReadStep::Cached(generation) => {
                Some(CachedRead { pending: pending.clone().without_access(), generation })
            }
            ReadStep::Anywhere | ReadStep::Nothing => None,
        };
        if let QueuedOp::ReadList(reading) = pending {
            self.begin_read_list(turn, inode, &reading, cached);
        } else if let QueuedOp::Read { token, object_offset, read_bytes, client, .. } = pending {
            let place = (object_offset, read_bytes);
            self.begin_read(turn, inode, (token, client), place, cached);
        }
    }

    fn begin_read(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        (token, client): (Token, ClientUuid),
        (object_offset, wanted_bytes): (u64, u32),
        cached: Option<CachedRead>,
    ) {
        let durable = self.durable(self.shard(inode));
        let Some(object) = self.objects.get_mut(&inode) else { return };
        object.unstable.settle(durable);
        let until = object_offset.saturating_add(u64::from(wanted_bytes));
        let (extends, at_end) = (false, false);
        let touch = ByteAccess { client, from: object_offset, until, extends, at_end };
        let shown = object.unstable.depends(&touch).foreign;
        let left_bytes = object.size_bytes().saturating_sub(object_offset);
        let read_bytes = wanted_bytes.min(u32::try_from(left_bytes).unwrap_or(u32::MAX));
        if read_bytes == 0 {
            let result = Ok(Answer::Bytes(None));
            return self.outcomes.push_back(Outcome::Answered { token, result, shown });
        }
        object.running_count += 1;
        let only_cached = cached.is_some();
        let in_flight = InFlight::Read { inode, token, shown, object_offset, read_bytes, cached };
        let ticket = self.ticket(in_flight);
        self.read_objects(turn, (inode, ticket), (object_offset, read_bytes), only_cached);
    }

    /// The next step of a read; begins the verification of its blocks if needed.
    fn next_of(&mut self, turn: &mut Turn<'_>, inode: InodeNo, pending: &QueuedOp) -> ReadStep {
        let Some((token, is_compared)) = pending.reads() else { return ReadStep::Anywhere };
        if is_compared || !self.shape.rules.hold(Rule::VerifyContents) {
            return ReadStep::Anywhere;
        }
        let block_bytes = self.block_bytes();
        let Some(object) = self.objects.get_mut(&inode) else { return ReadStep::Anywhere };
        let places = read_by(pending, object.size_bytes());
        let sums = self.sums.get_mut(&inode);
        if let Some(at) = lacks(object, sums.as_deref(), &places, block_bytes) {
            let found_bytes = object.blocks.short_bytes.unwrap_or(0);
            self.damaged(turn, inode, (at, Damage::Short { found_bytes }));
            self.answer(token, Err(Status::Io));
            return ReadStep::Nothing;
        }
        let Some(sums) = sums else { return ReadStep::Anywhere };
        sums.age(turn.now.mono);
        let mut blocks: Vec<(u64, BlockSum)> = Vec::new();
        let mut all_verified = true;
        for (from, until) in places {
            for (block, entry) in sums.covering(from..until, block_bytes) {
                all_verified &= entry.is_verified();
                if blocks.last().is_none_or(|(last, _)| *last < block) {
                    blocks.push((block, entry.sum()));
                }
            }
        }
        match (blocks.is_empty(), all_verified) {
            (true, _) => ReadStep::Anywhere,
            (false, true) => ReadStep::Cached(sums.generation()),
            (false, false) => {
                object.running_count += 1;
                object.blocks.begin_comparison(&blocks, block_bytes);
                let read = Some(pending.clone());
                self.verify(turn, Verifying { inode, read, blocks });
                ReadStep::Nothing
            }
        }
    }

    /// A read missed the page cache.
    pub fn on_uncached(&mut self, turn: &mut Turn<'_>, ticket: Ticket) {
        let Some(
            InFlight::Read { inode, cached: Some(cached), .. }
            | InFlight::ReadList { inode, cached: Some(cached), .. },
        ) = self.in_flight.remove(&ticket.0)
        else {
            return;
        };
        if self.shape.rules.hold(Rule::VerifyEvicted) {
            self.unverify(inode);
            self.queue_again(inode, cached.pending);
        } else {
            self.begin(turn, inode, cached.pending.compared());
        }
        self.ran(turn, inode);
    }

    /// Whether a read must begin again although it hit the page cache: its blocks are not verified
    /// any more, and it may have returned bytes that came from the disk since.
    pub(crate) fn is_outdated(&self, inode: InodeNo, cached: Option<&CachedRead>) -> bool {
        let generation = self.sums.get(&inode).map(Sums::generation);
        self.shape.rules.hold(Rule::VerifyEvicted)
            && cached.is_some_and(|cached| Some(cached.generation) != generation)
    }

    pub(crate) fn read_again(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        cached: Option<CachedRead>,
    ) {
        if let Some(CachedRead { pending, .. }) = cached {
            self.queue_again(inode, pending);
        }
        self.ran(turn, inode);
    }

    /// A read begins again as the next operation of its object, after the writes that it must not
    /// overlap.
    pub(crate) fn queue_again(&mut self, inode: InodeNo, read: QueuedOp) {
        if let Some(object) = self.objects.get_mut(&inode) {
            object.queue.push_front(read);
        }
    }

    /// Bytes of an object came from the disk: no block is verified any more.
    pub(crate) fn unverify(&mut self, inode: InodeNo) {
        if let Some(sums) = self.sums.get_mut(&inode) {
            sums.unverify();
        }
    }
}

impl QueuedOp {
    /// A read's token, and whether its blocks were just verified.
    const fn reads(&self) -> Option<(Token, bool)> {
        if let Self::Read { token, compared, .. }
        | Self::ReadList(ReadingList { token, compared, .. }) = self
        {
            return Some((*token, *compared));
        }
        None
    }

    /// The same read with verified blocks.
    pub(crate) const fn compared(mut self) -> Self {
        if let Self::Read { compared, .. } | Self::ReadList(ReadingList { compared, .. }) =
            &mut self
        {
            *compared = true;
        }
        self
    }

    /// The same read without reporting an access.
    const fn without_access(mut self) -> Self {
        if let Self::Read { accesses, .. } | Self::ReadList(ReadingList { accesses, .. }) =
            &mut self
        {
            *accesses = false;
        }
        self
    }
}

/// The first of these ranges' bytes that is missing in the object's file, if nothing was written
/// there since and no checksum covers it.
fn lacks(
    object: &Object,
    sums: Option<&Sums>,
    places: &[(u64, u64)],
    block_bytes: u64,
) -> Option<u64> {
    let short_bytes = object.blocks.short_bytes?;
    let missing = places.iter().filter(|(_, until)| *until > short_bytes);
    let mut blocks = missing.flat_map(|(from, until)| {
        (*from).max(short_bytes) / block_bytes..until.div_ceil(block_bytes)
    });
    let lacking = |block: &u64| {
        let is_known = sums.is_some_and(|sums| sums.get(*block).is_some());
        !is_known && !object.blocks.is_moving(*block)
    };
    blocks.find(lacking).map(|block| block * block_bytes)
}
