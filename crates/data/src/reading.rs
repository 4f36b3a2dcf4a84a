//! Reads: when their blocks have to be compared with their checksums first.
//!
//! ```text
//! read ─ a block is not verified ─▶ all its blocks are compared ─▶ read, wherever the bytes are
//!  │                                   ▲
//!  └─ all are ─▶ read from the page cache ─ not all is there ─▶ no block of the object is verified
//! ```
//! Invariant: bytes that have a checksum are answered only if they were compared with it since they came
//! from the disk, as far as reads of ours brought them from there.

use crate::integrity::Verifying;
use crate::list::{ReadingList, places_of};
use crate::object::Object;
use crate::request::Pending;
use crate::sums::Sums;
use crate::unstable::Touch;
use crate::work::Job;
use crate::{Answer, Damage, Outcome, Shards, Token};
use alloc::vec::Vec;
use disk::BlockSum;
use interface::{ObjectAction, Ticket, Turn};
use wire::{ClientUuid, InodeNo, Rule, Status};

/// A read of what is in the page cache alone, as it begins once more if that does not do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Again {
    pending: Pending,
    /// Of the checksums, when its blocks were verified.
    generation: u16,
}

/// How a read goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// It waits for its blocks to be compared, or has failed.
    Nothing,
    /// Its blocks were compared earlier, in this generation: what has left the page cache since is not
    /// read.
    Cached(u16),
    /// Nothing is to be compared, or it was just now.
    Anywhere,
}

impl Shards {
    /// Begins a read.
    pub(crate) fn begin_reading(&mut self, turn: &mut Turn<'_>, inode: InodeNo, pending: Pending) {
        let next = self.next_of(turn, inode, &pending);
        if next == Next::Nothing {
            return;
        }
        if let Pending::Read { accesses: true, .. }
        | Pending::ReadList(ReadingList { accesses: true, .. }) = pending
        {
            self.access(inode, turn.now.wall_ns);
        }
        let again = match next {
            Next::Cached(generation) => {
                Some(Again { pending: pending.clone().noted(), generation })
            }
            Next::Anywhere | Next::Nothing => None,
        };
        if let Pending::ReadList(reading) = pending {
            self.begin_read_list(turn, inode, &reading, again);
        } else if let Pending::Read { token, object_offset, read_bytes, client, .. } = pending {
            let place = (object_offset, read_bytes);
            self.begin_read(turn, inode, (token, client), place, again);
        }
    }

    fn begin_read(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        (token, client): (Token, ClientUuid),
        (object_offset, wanted_bytes): (u64, u32),
        again: Option<Again>,
    ) {
        let durable = self.durable(self.shard(inode));
        let Some(object) = self.objects.get_mut(&inode) else { return };
        object.unstable.settle(durable);
        let until = object_offset.saturating_add(u64::from(wanted_bytes));
        let (extends, at_end) = (false, false);
        let touch = Touch { client, from: object_offset, until, extends, at_end };
        let shown = object.unstable.depends(&touch).foreign;
        let left_bytes = object.size_bytes().saturating_sub(object_offset);
        let read_bytes = wanted_bytes.min(u32::try_from(left_bytes).unwrap_or(u32::MAX));
        if read_bytes == 0 {
            let result = Ok(Answer::Bytes(None));
            return self.outcomes.push_back(Outcome::Answered { token, result, shown });
        }
        object.running_count += 1;
        let object = object.name;
        let only_cached = again.is_some();
        let job = Job::Read { inode, token, shown, object_offset, read_bytes, again };
        let ticket = self.ticket(job);
        turn.act(ObjectAction::Read { ticket, object, object_offset, read_bytes, only_cached });
    }

    /// Whether blocks have to be compared before a read, in which case that begins, or it fails at once.
    fn next_of(&mut self, turn: &mut Turn<'_>, inode: InodeNo, pending: &Pending) -> Next {
        let Some((token, is_compared)) = pending.reads() else { return Next::Anywhere };
        if is_compared || !self.shape.rules.hold(Rule::VerifyContents) {
            return Next::Anywhere;
        }
        let block_bytes = self.block_bytes();
        let Some(object) = self.objects.get_mut(&inode) else { return Next::Anywhere };
        let places = read_by(pending, object.size_bytes());
        let sums = self.sums.get_mut(&inode);
        if let Some(at) = lacks(object, sums.as_deref(), &places, block_bytes) {
            let found_bytes = object.blocks.short_bytes.unwrap_or(0);
            self.damaged(turn, inode, (at, Damage::Short { found_bytes }));
            self.answer(token, Err(Status::Io));
            return Next::Nothing;
        }
        let Some(sums) = sums else { return Next::Anywhere };
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
            (true, _) => Next::Anywhere,
            (false, true) => Next::Cached(sums.generation()),
            (false, false) => {
                object.running_count += 1;
                let (name, read) = (object.name, Some(pending.clone()));
                self.verify(turn, name, Verifying { inode, read, blocks });
                Next::Nothing
            }
        }
    }

    /// Not all of a read was in the page cache any more.
    pub fn on_uncached(&mut self, turn: &mut Turn<'_>, ticket: Ticket) {
        let Some(
            Job::Read { inode, again: Some(again), .. }
            | Job::ReadList { inode, again: Some(again), .. },
        ) = self.jobs.remove(&ticket.0)
        else {
            return;
        };
        if self.shape.rules.hold(Rule::VerifyEvicted) {
            self.unverify(inode);
            self.begin(turn, inode, again.pending);
        } else {
            self.begin(turn, inode, again.pending.compared());
        }
        self.ran(turn, inode);
    }

    /// Whether a read has to begin once more although all of it was in the page cache: what was verified
    /// when it began is not any more, and it may have found what came from the disk since.
    pub(crate) fn is_outdated(&self, inode: InodeNo, again: Option<&Again>) -> bool {
        let generation = self.sums.get(&inode).map(Sums::generation);
        self.shape.rules.hold(Rule::VerifyEvicted)
            && again.is_some_and(|again| Some(again.generation) != generation)
    }

    pub(crate) fn read_again(&mut self, turn: &mut Turn<'_>, inode: InodeNo, again: Option<Again>) {
        if let Some(Again { pending, .. }) = again {
            self.begin(turn, inode, pending);
        }
        self.ran(turn, inode);
    }

    /// Something of an object came from the disk.
    pub(crate) fn unverify(&mut self, inode: InodeNo) {
        if let Some(sums) = self.sums.get_mut(&inode) {
            sums.unverify();
        }
    }
}

impl Pending {
    /// Of a read its token, and whether its blocks were just compared.
    const fn reads(&self) -> Option<(Token, bool)> {
        if let Self::Read { token, compared, .. }
        | Self::ReadList(ReadingList { token, compared, .. }) = self
        {
            return Some((*token, *compared));
        }
        None
    }

    /// The same read, whose blocks were just compared.
    pub(crate) const fn compared(mut self) -> Self {
        if let Self::Read { compared, .. } | Self::ReadList(ReadingList { compared, .. }) =
            &mut self
        {
            *compared = true;
        }
        self
    }

    /// The same read, of whose access is known.
    const fn noted(mut self) -> Self {
        if let Self::Read { accesses, .. } | Self::ReadList(ReadingList { accesses, .. }) =
            &mut self
        {
            *accesses = false;
        }
        self
    }
}

/// The places that something will read of an object of this size.
fn read_by(pending: &Pending, size_bytes: u64) -> Vec<(u64, u64)> {
    match pending {
        Pending::Read { object_offset, read_bytes, .. } => {
            let until = object_offset.saturating_add(u64::from(*read_bytes)).min(size_bytes);
            if *object_offset < until { Vec::from([(*object_offset, until)]) } else { Vec::new() }
        }
        Pending::ReadList(reading) => places_of(&reading.pieces.within(size_bytes)),
        Pending::Glimpse(_)
        | Pending::Seek(_)
        | Pending::Write { .. }
        | Pending::WriteList(_)
        | Pending::Append { .. }
        | Pending::Truncate { .. }
        | Pending::Allocate(_)
        | Pending::Replay { .. }
        | Pending::Remove => Vec::new(),
    }
}

/// The first byte of these places that an object was found not to have, if nothing was written there
/// since and no checksum tells.
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
