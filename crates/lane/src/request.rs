//! Requests within a lane: received, suspended, and replays.

use crate::connections::Open;
use crate::request_header::{RequestHeader, Target, Times};
use alloc::boxed::Box;
use alloc::vec::Vec;
use data::Token;
use interface::{Bulk, ConnId, ContentsMac, Span, mac_of};
use meta::{LeaseKey, Unit};
use wire::{
    ClientUuid, InodeNo, Layout, Op, PeerLane, Request, SessionId, ShardId, Status, Transno,
};

/// A request with its connection, frame and bulk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedRequest<'a> {
    pub(crate) conn: ConnId,
    pub(crate) open: Open,
    pub(crate) request: &'a Request,
    pub(crate) frame: Span,
    pub(crate) bulk: Option<Bulk>,
    /// Why its client may not execute it, if so.
    pub(crate) denied: Option<Status>,
    /// The turns in which it arrived and in which it is executed.
    pub(crate) times: Times,
}

impl ReceivedRequest<'_> {
    /// The fields that its reply repeats.
    pub(crate) fn header(&self) -> RequestHeader {
        RequestHeader { times: self.times, ..RequestHeader::from(self.request) }
    }

    /// Where its reply goes.
    pub(crate) const fn target(&self) -> Target {
        Target { conn: self.conn, trace_id: self.request.trace_id, times: self.times }
    }
}

/// A suspended request.
#[derive(Clone, Debug)]
pub(crate) struct SuspendedRequest {
    pub(crate) conn: ConnId,
    pub(crate) open: Open,
    pub(crate) times: Times,
    pub(crate) frame: Vec<u8>,
    /// Its buffer, until it is executed.
    pub(crate) bulk: Option<Bulk>,
    /// The units that must stay resident for it.
    pub(crate) pins: Vec<Unit>,
    /// The keys whose leases it ends.
    pub(crate) lease_keys: Box<[LeaseKey]>,
    /// It waits until its session is durably recorded.
    pub(crate) for_record: bool,
}

/// A request that was received, and not begun.
#[derive(Debug)]
pub(crate) struct ReceivedFrame {
    pub(crate) conn: ConnId,
    pub(crate) times: Times,
    pub(crate) frame: Vec<u8>,
    pub(crate) bulk: Option<Bulk>,
}

/// A replay that has arrived.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) conn: ConnId,
    pub(crate) header: RequestHeader,
    pub(crate) transno: Transno,
    /// A [`wire::Replay`].
    pub(crate) body: Vec<u8>,
    pub(crate) bulk: Option<Bulk>,
}

impl Replay {
    /// The MAC of the contents that came with it.
    pub(crate) fn contents(&self) -> ContentsMac {
        mac_of(self.bulk)
    }
}

/// A metadata shard's query for a file's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizing {
    pub(crate) inode: InodeNo,
    /// The query's number, repeated in the reply.
    pub(crate) number: u64,
}

/// What a lane does with its part of a file over several servers, for the home shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartWork {
    pub(crate) inode: InodeNo,
    /// The number of the operation, repeated in the answer.
    pub(crate) number: u64,
    /// The lane's shard.
    pub(crate) shard: ShardId,
    /// For a cut, the lane that asked for it.
    pub(crate) cut_by: Option<PeerLane>,
    /// It must be durable before the answer.
    pub(crate) durable: bool,
}

/// A client's request about all of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WholeRequest {
    pub(crate) token: Token,
    pub(crate) op: Op,
    pub(crate) shard: ShardId,
    pub(crate) body: Vec<u8>,
    pub(crate) client: ClientUuid,
    /// The session that is to append to the file.
    pub(crate) appends: Option<SessionId>,
}

/// A message about a part that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Recall { inode: InodeNo, number: u64, client: ClientUuid },
    Look { inode: InodeNo, number: u64, durable: bool, appends: Option<SessionId> },
    Cut { inode: InodeNo, number: u64, oldest: u64, size_bytes: u64, layout: Layout },
}

impl Asked {
    pub(crate) const fn inode(&self) -> InodeNo {
        let (Self::Recall { inode, .. } | Self::Look { inode, .. } | Self::Cut { inode, .. }) =
            self;
        *inode
    }
}
