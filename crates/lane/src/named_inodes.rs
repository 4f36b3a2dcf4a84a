//! Which inodes a request names, and whether it changes anything: what an export has to be held
//! against. Both follow from the table of operations.

use wire::{Changes, ContentsAccess, InodeNo, Op, OpenFor, Wire};

/// What a request asks of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) inode: InodeNo,
    pub(crate) wants: Wants,
}

/// What a client must be allowed. What its caller must be, the metadata shard looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wants {
    /// To know of it.
    Knowledge,
    /// To read what a file contains.
    Contents,
    /// To change what a file contains.
    Change,
    /// To have it open for this.
    Handle(OpenFor),
}

/// The inodes that a request names by their numbers, with what it asks of each.
pub(crate) fn named(op: Op, body: &[u8]) -> impl Iterator<Item = Named> {
    let wants = match op.row().contents {
        ContentsAccess::None => Wants::Knowledge,
        ContentsAccess::Read => Wants::Contents,
        ContentsAccess::Write => Wants::Change,
        // Whoever says that it had a file open is asked whether it could have.
        ContentsAccess::AsOpened => {
            let reopen = wire::Reopen::decode_all(body);
            reopen.map_or(Wants::Knowledge, |reopen| Wants::Handle(reopen.handle.open_for))
        }
    };
    op.inodes(body).into_iter().flatten().map(move |inode| Named { inode, wants })
}

/// Whether a request would change what others see of the file system.
pub(crate) fn changes(op: Op, body: &[u8]) -> bool {
    match op.row().changes {
        Changes::Never => false,
        Changes::Always => true,
        Changes::IfOpenedForWriting => opened_for(op, body).is_some_and(OpenFor::writes),
        Changes::IfWriteAsked => {
            // W_OK.
            wire::Access::decode_all(body).is_ok_and(|access| access.mask & 2 != 0)
        }
        Changes::Exports => false, // Not this way: a connection to an export does not administer.
    }
}

/// What a request opens a file for.
pub(crate) fn opened_for(op: Op, body: &[u8]) -> Option<OpenFor> {
    let handle = if op == Op::Reopen {
        wire::Reopen::decode_all(body).map(|reopen| reopen.handle)
    } else {
        wire::Open::decode_all(body).map(|open| open.handle)
    };
    handle.ok().map(|handle| handle.open_for)
}
