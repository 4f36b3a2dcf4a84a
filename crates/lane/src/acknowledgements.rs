//! Numbered batches, and which of them are safe: those that every required member has acknowledged.
//!
//! ```text
//! open 7 ─ sealed ─▶ appended 6 ─ flushed ─▶ acknowledged up to 5 by the local flush ─┐
//!                       acknowledged up to 4 by another member that a shard requires ─┴▶ safe: 4
//! ```
//! Each shard has a required set of its own. The flush of the lane's own log is in all of them, and
//! is the only member today. A slow member delays what depends on records of the shards that
//! require it, and nothing else.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::ShardId;

/// The number of a batch of this lane's log in this boot, from 1. 0 is that of what was durable
/// when the boot began, and of what has no record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct BatchNo(pub(crate) u64);

impl BatchNo {
    /// The number of the batch behind this one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Whose required set counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Scope {
    /// Those of all shards of the lane.
    Lane,
    /// That of one shard.
    Shard(ShardId),
}

/// What something waits for: the records of a scope, up to those in a batch, to be safe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Gate {
    pub(crate) scope: Scope,
    pub(crate) batch_no: BatchNo,
}

impl Gate {
    /// The records of a shard up to a batch.
    pub(crate) const fn of(shard: ShardId, batch_no: BatchNo) -> Self {
        Self { scope: Scope::Shard(shard), batch_no }
    }

    /// All records up to a batch.
    pub(crate) const fn of_all(batch_no: BatchNo) -> Self {
        Self { scope: Scope::Lane, batch_no }
    }
}

/// A member that acknowledges batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Acknowledger(pub(crate) u16);

impl Acknowledger {
    /// The flush of this lane's log.
    pub(crate) const LOCAL_FLUSH: Self = Self(0);
}

/// The members, each with the last batch that it has acknowledged, and which shard requires which.
/// An acknowledgement covers all earlier batches.
#[derive(Debug)]
pub(crate) struct Acknowledgements {
    /// The local flush is first.
    members: Vec<(Acknowledger, BatchNo)>,
    /// The members that a shard requires beside the local flush. Shards without any are left out.
    required: BTreeMap<ShardId, Vec<Acknowledger>>,
    /// The minimum over all members.
    safe_of_all: BatchNo,
}

impl Acknowledgements {
    /// Every shard requires the local flush.
    pub(crate) fn new() -> Self {
        let members = [(Acknowledger::LOCAL_FLUSH, BatchNo(0))].into();
        Self { members, required: BTreeMap::new(), safe_of_all: BatchNo(0) }
    }

    /// From now on a batch with records of a shard is also not safe before this member has
    /// acknowledged it. It has acknowledged all up to a batch.
    #[cfg(test)]
    pub(crate) fn require(&mut self, shard: ShardId, member: Acknowledger, acknowledged: BatchNo) {
        if self.members.iter().all(|(known, _)| *known != member) {
            self.members.push((member, acknowledged));
        }
        self.required.entry(shard).or_default().push(member);
        self.safe_of_all = self.members.iter().map(|(_, at)| *at).min().unwrap_or_default();
    }

    /// The last safe batch of a scope.
    pub(crate) fn safe(&self, scope: Scope) -> BatchNo {
        let Scope::Shard(shard) = scope else { return self.safe_of_all };
        let local = self.members.first().map_or(BatchNo(0), |(_, acknowledged)| *acknowledged);
        let Some(required) = self.required.get(&shard) else { return local };
        let is_required = |member: &&(Acknowledger, BatchNo)| required.contains(&member.0);
        let others = self.members.iter().filter(is_required).map(|(_, acknowledged)| *acknowledged);
        others.fold(local, BatchNo::min)
    }

    /// Whether a batch is safe.
    pub(crate) fn is_safe(&self, Gate { scope, batch_no }: Gate) -> bool {
        batch_no <= self.safe(scope)
    }

    /// A member has acknowledged all batches up to this one. One that no shard requires does not
    /// count. Returns whether it had not acknowledged as much before.
    pub(crate) fn acknowledge(&mut self, by: Acknowledger, up_to: BatchNo) -> bool {
        let known = self.members.iter_mut().find(|(member, _)| *member == by);
        let Some((_, acknowledged)) = known else { return false };
        assert!(up_to >= *acknowledged, "an acknowledgement is not taken back");
        let is_news = up_to > *acknowledged;
        *acknowledged = up_to;
        self.safe_of_all = self.members.iter().map(|(_, at)| *at).min().unwrap_or_default();
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::{Acknowledgements, Acknowledger, BatchNo, Gate, Scope};
    use wire::ShardId;

    const SLOW: ShardId = ShardId::meta(0);
    const OTHER: ShardId = ShardId::meta(1);

    #[test]
    fn a_batch_is_safe_when_the_slowest_member_that_its_shard_requires_has_it() {
        let (local, slow) = (Acknowledger::LOCAL_FLUSH, Acknowledger(1));
        let mut acknowledgements = Acknowledgements::new();
        acknowledgements.require(SLOW, slow, BatchNo(0));
        let safe = |acknowledgements: &Acknowledgements| {
            [Scope::Shard(SLOW), Scope::Shard(OTHER), Scope::Lane]
                .map(|scope| acknowledgements.safe(scope).0)
        };
        assert!(acknowledgements.acknowledge(local, BatchNo(3)));
        assert_eq!(safe(&acknowledgements), [0, 3, 0]);
        assert!(acknowledgements.acknowledge(slow, BatchNo(2)));
        assert_eq!(safe(&acknowledgements), [2, 3, 2]);
        assert!(!acknowledgements.acknowledge(slow, BatchNo(2)), "nothing new");
        acknowledgements.acknowledge(slow, BatchNo(9));
        assert_eq!(safe(&acknowledgements), [3, 3, 3]);
        assert!(!acknowledgements.acknowledge(Acknowledger(2), BatchNo(1)), "no shard requires it");
        assert!(acknowledgements.is_safe(Gate::of(SLOW, BatchNo(3))));
        assert!(!acknowledgements.is_safe(Gate::of_all(BatchNo(4))));
    }
}
