//! The requests of plans: their shards and bodies.

use super::Plan;
use interface::Bulk;
use wire::{InodeNo, LaneId, Op, ShardId, Wire as _, Writer};

/// The destination of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Inode(InodeNo),
    /// The data shard of a byte of a file.
    Contents(InodeNo, u64),
    /// The metadata shard of an inode, regardless of the op's route.
    MetaShard(InodeNo),
    /// The data shard of a file.
    DataShard(InodeNo),
    Shard(ShardId),
    /// A lane of the server that the client was started with.
    Lane(LaneId),
    /// The lane of a link.
    Link(usize),
}

/// The first request of a plan, whose body is encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRequest {
    pub(crate) plan: Plan,
    pub(crate) op: Op,
    pub(crate) target: Target,
    pub(crate) bulk: Option<Bulk>,
    /// The reply waits until the change is durable.
    pub(crate) sync: bool,
    /// Further flags, see [`wire::request_flag`].
    pub(crate) flags: u16,
    /// A second request, sent at the same time.
    pub(crate) beside: Option<FollowUp>,
}

impl NewRequest {
    pub(crate) const fn new(plan: Plan, op: Op, target: Target) -> Self {
        Self { plan, op, target, bulk: None, sync: false, flags: 0, beside: None }
    }
}

/// A further request of a plan; none of them has names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FollowUp {
    Getattr(wire::Getattr),
    Glimpse(wire::Glimpse),
    Truncate(wire::Truncate),
    Close(wire::Close),
    Reopen(wire::Reopen),
    Claim(wire::Claim),
    Statfs(wire::Statfs),
    Sync(Target),
    /// The same behind the last write behind that the shard has received.
    SyncBehind(Target),
    Goodbye(Target),
    /// Opens the file that a create found; credentials and handle are in the create's body.
    OpenCreated {
        inode: InodeNo,
    },
}

impl FollowUp {
    pub(crate) const fn op(&self) -> Op {
        match self {
            Self::Getattr(_) => Op::Getattr,
            Self::Glimpse(_) => Op::Glimpse,
            Self::Truncate(_) => Op::Truncate,
            Self::Close(_) => Op::Close,
            Self::Reopen(_) => Op::Reopen,
            Self::Claim(_) => Op::Claim,
            Self::Statfs(_) => Op::Statfs,
            Self::Sync(_) | Self::SyncBehind(_) => Op::Sync,
            Self::Goodbye(_) => Op::Goodbye,
            Self::OpenCreated { .. } => Op::Open,
        }
    }

    /// Its flags, see [`wire::request_flag`].
    pub(crate) const fn flags(&self) -> u16 {
        if matches!(self, Self::SyncBehind(_)) { wire::request_flag::BEHIND } else { 0 }
    }

    pub(crate) const fn target(&self) -> Target {
        match self {
            Self::Getattr(getattr) => Target::Inode(getattr.inode),
            Self::Glimpse(glimpse) => Target::Contents(glimpse.inode, 0),
            Self::Truncate(truncate) => Target::Contents(truncate.inode, 0),
            Self::Close(close) => Target::Inode(close.inode),
            Self::Reopen(reopen) => Target::Inode(reopen.inode),
            Self::Claim(claim) => Target::Inode(claim.inode),
            Self::Statfs(statfs) => Target::Inode(statfs.inode),
            Self::Sync(target) | Self::SyncBehind(target) | Self::Goodbye(target) => *target,
            Self::OpenCreated { inode } => Target::Inode(*inode),
        }
    }

    /// Encodes the request's body. `before` is the body of the request before, with the
    /// credentials.
    pub(crate) fn encode(&self, before: &[u8], to: &mut Writer<'_>) {
        match self {
            Self::Getattr(getattr) => to.write(getattr),
            Self::Glimpse(glimpse) => to.write(glimpse),
            Self::Truncate(truncate) => to.write(truncate),
            Self::Close(close) => to.write(close),
            Self::Reopen(reopen) => to.write(reopen),
            Self::Claim(claim) => to.write(claim),
            Self::Statfs(statfs) => to.write(statfs),
            Self::Sync(_) | Self::SyncBehind(_) | Self::Goodbye(_) => {}
            Self::OpenCreated { inode } => {
                // The create's plan encoded it.
                let Ok(create) = wire::Create::decode_all(before) else { return };
                let Some(handle) = create.handle else { return };
                to.write(&wire::Open { caller: create.caller, inode: *inode, handle });
            }
        }
    }
}
