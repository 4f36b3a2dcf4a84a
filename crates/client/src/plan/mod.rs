//! How a call becomes requests: a plan maps each reply to further requests or to the answer.
//! Requests that do not depend on each other are out at the same time; their replies come one by
//! one, in any order, and the answer follows the last one. Plans know nothing of connections; a
//! plan that opened a handle closes it, or passes it to the frontend.

pub(crate) mod begin;
mod close;
mod create;
mod open;
mod read;
mod remote_inode;
mod request;
mod resize;
mod sized;
mod statfs;

pub(crate) use close::Close;
pub(crate) use create::Create;
pub(crate) use open::Open;
pub(crate) use read::Read;
pub(crate) use remote_inode::{RemoteInode, RemoteRef};
pub(crate) use request::{FollowUp, NewRequest, Target};
pub(crate) use resize::Resize;
pub(crate) use sized::Sized;
pub(crate) use statfs::Statfs;

use crate::handles::Handles;
use crate::locks::LockKey;
use crate::{Answer, Sync};
use alloc::vec::Vec;
use interface::{Bulk, Span};
use wire::{
    Attr, ByteRange, Contents, Created, DecodeError, HandleId, InodeNo, Layout, ListRead, LockRow,
    LockSet, Op, ProtocolError, Renamed, ReplyBody, Sought, Space, Status, Wire, Written,
};

/// The state of a call that waits for a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plan {
    /// The reply is the answer.
    Direct,
    Read(Read),
    /// The reply has attributes, which may need a glimpse.
    Entry,
    /// Waits for attributes and for the size that completes them.
    Sized(Sized),
    Create(Create),
    /// A directory was made at another shard than its parent, and is asked for there.
    Made(Attr),
    /// Waits for another shard's attributes.
    RemoteInode(RemoteInode),
    Open(Open),
    Close(Close),
    Resize(Resize),
    Statfs(Statfs),
    /// Reopens a handle at a restarted server.
    Reopen {
        handle: HandleId,
        /// Which server, by its position among all.
        server_index: usize,
    },
    /// Registers a handle that was open here alone.
    Register {
        handle: HandleId,
    },
    /// Claims a directory whose names are changed behind, at a restarted server.
    Claim {
        inode: InodeNo,
        server_index: usize,
    },
    /// A call about a lock, which the keeper answers; it has no request of its own.
    LockCall {
        inode: InodeNo,
    },
    /// Requests a file's layout, for what waits for it.
    Layout {
        inode: InodeNo,
    },
    /// Spreads a file, for what waits for that.
    Widen {
        inode: InodeNo,
        /// As the file had it.
        layout: Layout,
    },
    /// The keeper's request for an owner.
    LockTask(LockKey),
    /// Asserts a lock at a restarted server.
    Relock {
        key: LockKey,
        range: ByteRange,
        server_index: usize,
    },
    /// Syncs of shards.
    Sync {
        outcome: Result<(), Status>,
        /// Of one file, whose caller may get an error for a loss.
        file: Option<Sync>,
        /// The file's contents are still being written, and follow.
        is_ahead: bool,
    },
    /// The end of the sessions at all lanes.
    Goodbye,
    /// A sync that shortens a replay list.
    Durable {
        session_index: usize,
    },
    /// Renews the term of leases.
    Ping,
    /// Ends an append to a file over several data shards.
    EndAppend {
        inode: InodeNo,
    },
    /// Asks a server whether it has a newer map.
    MapAsk,
}

/// A decoded reply with status `Ok`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    Empty,
    Entry(Attr),
    Created(Created),
    Target(Span),
    Listing(Span),
    Found(Span),
    Value(Span),
    Space(Space),
    Bytes(Option<Bulk>),
    List(Option<Bulk>, ListRead),
    Written(Written),
    Contents(Contents),
    Sought(Sought),
    Renamed(Renamed),
    LockSet(LockSet),
    LockFound(Option<LockRow>),
    LockCancelled(bool),
    Stats(Span),
    Counters(Span),
    Traces(Span),
    Exports(Span),
    Frozen(wire::Frozen),
    Inspected(Span),
}

/// A decoded reply to a plan's request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanReply {
    pub(crate) outcome: Result<Body, Status>,
    /// The request was executed earlier, perhaps in an earlier boot.
    pub(crate) from_slot: bool,
    pub(crate) op: Op,
    /// Which of the requests that were sent together it answers, from 0.
    pub(crate) part: u16,
    /// No other request of the plan is out.
    pub(crate) last: bool,
    /// The request has stated its file's layout.
    pub(crate) states_layout: bool,
    /// It grants the contents of the file that it opens, and the server that has sent it has them.
    pub(crate) grants_contents: bool,
}

/// What a plan does next.
#[derive(Debug)]
pub(crate) enum Next {
    Send(Plan, FollowUp),
    /// Sends all of these at once.
    SendAll(Plan, Vec<FollowUp>),
    /// Waits for the replies to the other requests.
    Wait(Plan),
    /// Asks the lanes behind the first one.
    OtherLanes(Statfs),
    /// Says whether a change of this file was lost, and then ends.
    EndSync(Plan, Sync),
    /// Sends the call's first request again.
    Retry,
    Done(Result<Answer, Status>),
}

impl Plan {
    pub(crate) fn next(self, reply: PlanReply, handles: &mut Handles) -> Next {
        match self {
            Self::Direct => Next::Done(reply.outcome.map(Body::answer)),
            Self::Read(read) => read.next(reply, handles),
            Self::Entry => Sized::of_entry(reply),
            Self::Sized(sized) => sized.next(reply),
            Self::Create(create) => create.next(reply, handles),
            Self::RemoteInode(remote_inode) => remote_inode.next(reply, handles),
            Self::Made(attr) => {
                let found = reply.outcome.and_then(Body::entry).ok();
                let found = found.filter(|found| found.inode == attr.inode);
                Next::Done(Ok(Answer::Entry(found.unwrap_or(attr))))
            }
            Self::Open(open) => open.next(reply, handles),
            Self::Close(close) => close.next(reply, handles),
            Self::Resize(resize) => resize.next(reply, handles),
            Self::Statfs(statfs) => statfs.next(reply),
            Self::Sync { outcome, file, is_ahead } => {
                sync(outcome.and(reply.outcome.map(drop)), (file, is_ahead), reply)
            }
            // A lane that cannot say Goodbye ends the session later, by itself.
            Self::Goodbye if reply.last => Next::Done(Ok(Answer::Done)),
            Self::Goodbye => Next::Wait(self),
            Self::Reopen { .. }
            | Self::Register { .. }
            | Self::Claim { .. }
            | Self::LockCall { .. }
            | Self::LockTask(_)
            | Self::Relock { .. }
            | Self::Layout { .. }
            | Self::Widen { .. }
            | Self::Durable { .. }
            | Self::MapAsk
            | Self::EndAppend { .. }
            | Self::Ping => Next::Done(reply.outcome.map(Body::answer)),
        }
    }

    /// The sync of a file.
    pub(crate) const fn sync_of(sync: Sync) -> Self {
        Self::Sync { outcome: Ok(()), file: Some(sync), is_ahead: false }
    }

    /// The handle that this plan has requested or holds.
    pub(crate) const fn handle(&self) -> Option<HandleId> {
        match self {
            Self::Direct
            | Self::Read(_)
            | Self::Entry
            | Self::Made(_)
            | Self::Statfs(_)
            | Self::Reopen { .. }
            | Self::Register { .. }
            | Self::Claim { .. }
            | Self::LockCall { .. }
            | Self::LockTask(_)
            | Self::Relock { .. }
            | Self::Layout { .. }
            | Self::Widen { .. }
            | Self::Sync { .. }
            | Self::Goodbye
            | Self::Durable { .. }
            | Self::MapAsk
            | Self::EndAppend { .. }
            | Self::Ping => None,
            Self::Sized(sized) => sized.handle(),
            Self::Create(create) => create.handle(),
            Self::RemoteInode(remote_inode) => remote_inode.handle(),
            Self::Open(open) => Some(open.handle.id),
            Self::Close(close) => Some(close.handle),
            Self::Resize(resize) => resize.handle(),
        }
    }

    /// Whether the request goes before others.
    pub(crate) const fn is_urgent(&self) -> bool {
        matches!(
            self,
            Self::Reopen { .. } | Self::Register { .. } | Self::Claim { .. } | Self::Relock { .. }
        )
    }
}

fn sync(
    outcome: Result<(), Status>,
    (file, is_ahead): (Option<Sync>, bool),
    reply: PlanReply,
) -> Next {
    let plan = Plan::Sync { outcome, file, is_ahead };
    match file {
        _ if !reply.last => Next::Wait(plan),
        Some(file) => Next::EndSync(plan, file),
        None => Next::Done(outcome.map(|()| Answer::Done)),
    }
}

impl Body {
    fn answer(self) -> Answer {
        match self {
            Self::Empty | Self::Contents(_) | Self::LockSet(_) | Self::LockCancelled(_) => {
                Answer::Done
            }
            Self::LockFound(found) => Answer::LockFound(found),
            Self::Entry(attr) => Answer::Entry(attr),
            Self::Created(created) => {
                Answer::Created { attr: created.attr, made: created.made, handle: None }
            }
            Self::Target(target) => Answer::Target(target),
            Self::Listing(listing) => Answer::Listing(listing),
            Self::Found(found) => Answer::Found(found),
            Self::Value(value) => Answer::Value(value),
            Self::Space(space) => Answer::Space(space),
            Self::Bytes(bulk) => Answer::Bytes(bulk),
            Self::List(bulk, ListRead { size_bytes }) => Answer::List { bulk, size_bytes },
            Self::Written(written) => Answer::Written(written),
            Self::Renamed(renamed) => Answer::Renamed(renamed),
            Self::Sought(sought) => Answer::Sought(sought.file_offset),
            Self::Stats(stats) => Answer::Stats(stats),
            Self::Counters(counters) => Answer::Counters(counters),
            Self::Traces(traces) => Answer::Traces(traces),
            Self::Exports(exports) => Answer::Exports(exports),
            Self::Frozen(frozen) => Answer::Frozen(frozen),
            Self::Inspected(inspected) => Answer::Inspected(inspected),
        }
    }

    fn entry(self) -> Result<Attr, Status> {
        if let Self::Entry(attr) = self { Ok(attr) } else { Err(Status::Protocol) }
    }

    fn contents(self) -> Result<Contents, Status> {
        if let Self::Contents(contents) = self { Ok(contents) } else { Err(Status::Protocol) }
    }

    /// Decodes the body of `op`'s reply. `body` is the span of `bytes` in the turn's arena.
    pub(crate) fn decode(op: Op, bytes: &[u8], body: Span) -> Result<Self, ProtocolError> {
        Self::read(op, bytes, body).map_err(|flaw| match flaw {
            DecodeError::ProtocolError(protocol_error) => protocol_error,
            DecodeError::Status(_) => ProtocolError::Malformed,
        })
    }

    fn read(op: Op, bytes: &[u8], body: Span) -> Result<Self, DecodeError> {
        match op.row().reply {
            ReplyBody::Empty => empty(bytes).map(|()| Self::Empty),
            ReplyBody::Bulk => empty(bytes).map(|()| Self::Bytes(None)),
            ReplyBody::Entry => wire::Entry::decode_all(bytes).map(|entry| Self::Entry(entry.attr)),
            ReplyBody::Created => Created::decode_all(bytes).map(Self::Created),
            ReplyBody::Renamed => wire::Renamed::decode_all(bytes).map(Self::Renamed),
            ReplyBody::Target => {
                let target = wire::Target::decode_all(bytes)?.target.0;
                tail(body, target.len()).map(Self::Target)
            }
            ReplyBody::Value => {
                let value = wire::Value::decode_all(bytes)?.value.0;
                tail(body, value.len()).map(Self::Value)
            }
            ReplyBody::Listing => wire::Listing::decode_all(bytes).map(|_| Self::Listing(body)),
            ReplyBody::Found => wire::Found::decode_all(bytes).map(|_| Self::Found(body)),
            ReplyBody::Space => Space::decode_all(bytes).map(Self::Space),
            ReplyBody::LockSet => LockSet::decode_all(bytes).map(Self::LockSet),
            ReplyBody::LockFound => {
                wire::LockFound::decode_all(bytes).map(|found| Self::LockFound(found.found))
            }
            ReplyBody::LockCancelled => {
                let cancelled = wire::LockCancelled::decode_all(bytes)?;
                Ok(Self::LockCancelled(cancelled.waited))
            }
            ReplyBody::ListRead => ListRead::decode_all(bytes).map(|read| Self::List(None, read)),
            ReplyBody::Written => Written::decode_all(bytes).map(Self::Written),
            ReplyBody::Glimpsed => {
                wire::Glimpsed::decode_all(bytes).map(|found| Self::Contents(found.contents))
            }
            ReplyBody::Sought => wire::Sought::decode_all(bytes).map(Self::Sought),
            ReplyBody::Stats => wire::Stats::decode_all(bytes).map(|_| Self::Stats(body)),
            ReplyBody::Counters => wire::counters::Snapshot::decode(bytes)
                .map(|_| Self::Counters(body))
                .map_err(DecodeError::ProtocolError),
            ReplyBody::Traces => wire::traces::Traces::decode(bytes)
                .map(|_| Self::Traces(body))
                .map_err(DecodeError::ProtocolError),
            ReplyBody::Exports => wire::Exports::decode_all(bytes).map(|_| Self::Exports(body)),
            ReplyBody::Inspected => {
                wire::Inspected::decode_all(bytes).map(|_| Self::Inspected(body))
            }
            ReplyBody::Frozen => wire::Frozen::decode_all(bytes).map(Self::Frozen),
            // The reply to a recovery's own request, which no call makes.
            ReplyBody::Resumed => Err(DecodeError::ProtocolError(ProtocolError::Kind)),
        }
    }
}

/// The last `bytes_count` bytes of a body: a byte string that is last in its message.
fn tail(body: Span, bytes_count: usize) -> Result<Span, DecodeError> {
    body.bytes_count()
        .checked_sub(bytes_count)
        .and_then(|from| body.part(from, bytes_count))
        .ok_or(DecodeError::ProtocolError(ProtocolError::Malformed))
}

const fn empty(bytes: &[u8]) -> Result<(), DecodeError> {
    if bytes.is_empty() {
        Ok(())
    } else {
        Err(DecodeError::ProtocolError(ProtocolError::Malformed))
    }
}
