//! Generations: which shards take new directories and new files, from one change of that to the next.
//!
//! A file system that gets a server has more shards. What exists stays where it is: an inode's number
//! names its generation ([`InodeNo::generation`]), and the contents of a file are spread over the data
//! shards of that generation. Generations are added at the end and never changed.
//!
//! ```text
//! 1 generation_count | generation_count times: metas | datas
//! metas, datas: 1 range_count | range_count times: 2 first | 2 shard_count
//! ```
//! Ranges rise and do not touch, so there is one encoding of a set.

use crate::codec::{DecodeError, Reader, Wire, Writer};
use crate::shard_counts::{ShardCounts, stripe_hash};
use crate::{InodeNo, ProtocolError, ShardId};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Consecutive shards of one kind, by index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardRange {
    /// The first one's index.
    pub first: u16,
    /// How many, 1 or more.
    pub shard_count: u16,
}

impl ShardRange {
    const BYTES: usize = 4;

    fn end(self) -> u32 {
        u32::from(self.first) + u32::from(self.shard_count)
    }
}

impl Wire<'_> for ShardRange {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.first);
        to.write(&self.shard_count);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { first: from.read()?, shard_count: from.read()? })
    }
}

/// Shards of one kind, at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardSet {
    ranges: Arc<[ShardRange]>,
    shard_count: u16,
}

impl ShardSet {
    /// Most ranges of a set.
    pub const RANGE_COUNT_MAX: usize = 255;

    /// The shards of these ranges, in any order; `None` if there are none or too many, or if two
    /// ranges share a shard.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = ShardRange>) -> Option<Self> {
        let mut sorted: Vec<ShardRange> = ranges.into_iter().collect();
        sorted.sort_unstable_by_key(|range| range.first);
        let mut joined: Vec<ShardRange> = Vec::new();
        for range in sorted {
            match joined.last_mut() {
                Some(last) if last.end() == u32::from(range.first) => {
                    last.shard_count = last.shard_count.checked_add(range.shard_count)?;
                }
                Some(_) | None => joined.push(range),
            }
        }
        Self::of(joined)
    }

    /// The first shards.
    #[must_use]
    pub fn first(shard_count: u16) -> Option<Self> {
        Self::of(alloc::vec![ShardRange { first: 0, shard_count }])
    }

    /// Ranges that rise and do not touch.
    fn of(ranges: Vec<ShardRange>) -> Option<Self> {
        let apart = |one: &ShardRange, next: &ShardRange| one.end() < u32::from(next.first);
        let each = ranges
            .iter()
            .all(|range| range.shard_count > 0 && range.end() <= u32::from(ShardCounts::MAX));
        let fits = !ranges.is_empty() && ranges.len() <= Self::RANGE_COUNT_MAX;
        let valid = fits && each && ranges.is_sorted_by(apart);
        let shard_count = ranges.iter().map(|range| range.shard_count).sum();
        valid.then(|| Self { ranges: ranges.into(), shard_count })
    }

    /// How many shards, 1 or more.
    #[must_use]
    pub const fn shard_count(&self) -> u16 {
        self.shard_count
    }

    /// The ranges, in rising order.
    #[must_use]
    pub fn ranges(&self) -> &[ShardRange] {
        &self.ranges
    }

    /// The index of the shard at a position of the set, below [`ShardSet::shard_count`].
    fn at(&self, position: u16) -> u16 {
        let mut left = position;
        for range in self.ranges.iter() {
            if left < range.shard_count {
                return range.first + left;
            }
            left -= range.shard_count;
        }
        panic!("position {position} is not in {self:?}")
    }

    /// Whether all are among the first `shard_count`.
    fn is_below(&self, shard_count: u16) -> bool {
        self.ranges.last().is_none_or(|range| range.end() <= u32::from(shard_count))
    }

    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&u8::try_from(self.ranges.len()).unwrap_or(u8::MAX));
        self.ranges.iter().for_each(|range| to.write(range));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let range_count = usize::from(u8::decode(from)?);
        let malformed = DecodeError::ProtocolError(ProtocolError::Malformed);
        if from.left() < range_count * ShardRange::BYTES {
            return Err(malformed);
        }
        let ranges: Result<Vec<ShardRange>, _> = (0..range_count).map(|_| from.read()).collect();
        Self::of(ranges?).ok_or(malformed)
    }
}

/// Which shards take what is new.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Generation {
    /// The metadata shards of new directories.
    pub metas: ShardSet,
    /// The data shards of new files.
    pub datas: ShardSet,
}

/// All generations of a file system; at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Generations(Arc<[Generation]>);

impl Generations {
    /// Most generations: their count is one byte.
    const COUNT_MAX: usize = 255;
    /// Most ranges of all of them.
    const RANGE_COUNT_MAX: usize = 1024;
    /// Most bytes of an encoding.
    pub(crate) const BYTES_MAX: usize =
        1 + 2 * Self::COUNT_MAX + ShardRange::BYTES * Self::RANGE_COUNT_MAX;

    /// `None` if there are none or too many, or if they have other shards than the file system.
    pub(crate) fn new(generations: Arc<[Generation]>, shards: ShardCounts) -> Option<Self> {
        let fits = (1..=Self::COUNT_MAX).contains(&generations.len());
        let range_count: usize = generations
            .iter()
            .map(|generation| generation.metas.ranges.len() + generation.datas.ranges.len())
            .sum();
        let exist = generations.iter().all(|generation| {
            generation.metas.is_below(shards.meta) && generation.datas.is_below(shards.data)
        });
        let valid = fits && range_count <= Self::RANGE_COUNT_MAX && exist;
        valid.then_some(Self(generations))
    }

    /// One, of all shards.
    pub(crate) fn trivial(shards: ShardCounts) -> Self {
        let all = |shard_count| ShardSet::first(shard_count);
        let (Some(metas), Some(datas)) = (all(shards.meta), all(shards.data)) else {
            panic!("{shards:?} are no numbers of shards");
        };
        Self(Arc::new([Generation { metas, datas }]))
    }

    /// `None` if all shards take what is new, and always did.
    pub(crate) fn unless_trivial(self, shards: ShardCounts) -> Option<Self> {
        (self != Self::trivial(shards)).then_some(self)
    }

    /// Whether these are `earlier` and further ones.
    pub(crate) fn continue_those(&self, earlier: &Self) -> bool {
        self.0.starts_with(&earlier.0)
    }

    pub(crate) fn last_no(&self) -> u8 {
        u8::try_from(self.0.len() - 1).unwrap_or(u8::MAX)
    }

    fn last(&self) -> &Generation {
        &self.0[self.0.len() - 1]
    }

    pub(crate) fn directory_shard_count(&self) -> u16 {
        self.last().metas.shard_count
    }

    pub(crate) fn directory_shard(&self, position: u16) -> ShardId {
        ShardId::meta(self.last().metas.at(position))
    }

    pub(crate) fn data_shard(&self, inode: InodeNo) -> ShardId {
        let datas = &self.of(Some(inode)).datas;
        let position = stripe_hash(inode, 0) % u64::from(datas.shard_count);
        ShardId::data(datas.at(u16::try_from(position).unwrap_or(0)))
    }

    /// Whether a data shard has contents of an inode's generation (`None`: of new inodes).
    pub(crate) fn has_data(&self, inode: Option<InodeNo>, shard: ShardId) -> bool {
        let index = u32::from(shard.index());
        let ranges = self.of(inode).datas.ranges();
        ranges.iter().any(|range| (u32::from(range.first)..range.end()).contains(&index))
    }

    fn of(&self, inode: Option<InodeNo>) -> &Generation {
        let found = inode.and_then(|inode| self.0.get(usize::from(inode.generation())));
        found.unwrap_or_else(|| self.last())
    }

    pub(crate) fn encode(&self, to: &mut Writer<'_>) {
        to.write(&u8::try_from(self.0.len()).unwrap_or(u8::MAX));
        for generation in self.0.iter() {
            generation.metas.encode(to);
            generation.datas.encode(to);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>, shards: ShardCounts) -> Result<Self, DecodeError> {
        let count = u8::decode(from)?;
        let one = |from: &mut Reader<'_>| {
            Ok(Generation { metas: ShardSet::decode(from)?, datas: ShardSet::decode(from)? })
        };
        let generations: Result<Vec<Generation>, DecodeError> =
            (0..count).map(|_| one(from)).collect();
        Self::new(generations?.into(), shards)
            .ok_or(DecodeError::ProtocolError(ProtocolError::Malformed))
    }
}
