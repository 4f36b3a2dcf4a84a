//! Which inodes a request names, and whether it changes anything: what export containment checks.
//! Both follow from the op table.

use wire::{Changes, ContentsAccess, InodeNo, Op, OpenFor, Wire};

/// An inode named by a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) inode: InodeNo,
    pub(crate) wants: Wants,
}

/// The right that the client needs. The metadata shard checks the rights of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wants {
    /// To know that it exists.
    Knowledge,
    /// To read a file's contents.
    Contents,
    /// To change a file's contents.
    Change,
    /// To have it open in this mode.
    Handle(OpenFor),
}

/// The inodes that a request names by number, with the right that it needs to each.
pub(crate) fn named(op: Op, body: &[u8]) -> impl Iterator<Item = Named> {
    let wants = match op.row().contents {
        ContentsAccess::None => Wants::Knowledge,
        ContentsAccess::Read => Wants::Contents,
        ContentsAccess::Write => Wants::Change,
        // A client that reopens a file must have the right to open it.
        ContentsAccess::AsOpened => opened_for(op, body).map_or(Wants::Knowledge, Wants::Handle),
    };
    op.inodes(body).into_iter().flatten().map(move |inode| Named { inode, wants })
}

/// Whether a request would change the file system for other clients.
pub(crate) fn changes(op: Op, body: &[u8]) -> bool {
    match op.row().changes {
        Changes::Never => false,
        Changes::Always => true,
        Changes::IfOpenedForWriting => opened_for(op, body).is_some_and(OpenFor::writes),
        Changes::IfWriteAsked => {
            // W_OK.
            wire::Access::decode_all(body).is_ok_and(|access| access.mask & 2 != 0)
        }
        Changes::Exports => false, // A connection to an export does not administer.
    }
}

/// What a request opens a file for.
fn opened_for(op: Op, body: &[u8]) -> Option<OpenFor> {
    let handle = if op == Op::Reopen {
        wire::Reopen::decode_all(body).map(|reopen| reopen.handle)
    } else {
        wire::Open::decode_all(body).map(|open| open.handle)
    };
    handle.ok().map(|handle| handle.open_for)
}
