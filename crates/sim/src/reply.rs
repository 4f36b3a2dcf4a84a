//! What a client lane got for a call: numbers, bytes and entries of a listing.

use crate::work::CallResult;
use client::Answer;
use interface::{Action, Turn};
use test_runtime::{Bufs, LaneState};
use wire::{InodeNo, Listing, Status, Wire};

/// The bytes of a reply.
#[derive(Clone, Default, Debug)]
pub(crate) struct ReplyBytes {
    pub(crate) bytes: Vec<u8>,
    /// The size of the file, in the reply to a list.
    pub(crate) size_bytes: u64,
}

/// Puts the buffers of answers together, which are read in the same turn.
pub(crate) fn join_buffers(turn: &mut Turn<'_>, bufs: &mut Bufs) {
    turn.actions.retain(|action| {
        if let Action::Zeros { as_buf, bulk_bytes } = action {
            bufs.make(*as_buf, *bulk_bytes);
        } else if let Action::Copy { to, at, bulk } = action {
            bufs.fill((*to, *at), *bulk);
        } else {
            return true;
        }
        false
    });
}

/// Copies the bytes of a reply out of the turn's arena and buffers, and releases the buffers.
pub(crate) fn take_reply_bytes(
    result: &Result<Answer, Status>,
    turn: &Turn<'_>,
    state: &mut LaneState,
) -> ReplyBytes {
    match result {
        Ok(
            Answer::Target(span)
            | Answer::Listing(span)
            | Answer::Found(span)
            | Answer::Value(span),
        ) => ReplyBytes { bytes: turn.arena.get(*span).to_vec(), ..ReplyBytes::default() },
        Ok(Answer::Bytes(Some(bulk))) => {
            let bytes = state.bufs.get(*bulk);
            state.bufs.release(bulk.buf);
            ReplyBytes { bytes, ..ReplyBytes::default() }
        }
        Ok(Answer::List { bulk, size_bytes }) => {
            let bytes = bulk.map(|bulk| state.bufs.get(bulk)).unwrap_or_default();
            if let Some(bulk) = bulk {
                state.bufs.release(bulk.buf);
            }
            ReplyBytes { bytes, size_bytes: *size_bytes }
        }
        Ok(
            Answer::Done
            | Answer::Entry(_)
            | Answer::Created { .. }
            | Answer::Opened { .. }
            | Answer::Space(_)
            | Answer::Bytes(None)
            | Answer::Written(_)
            | Answer::Sought(_)
            | Answer::Renamed(_)
            | Answer::LockFound(_)
            | Answer::Stats(_)
            | Answer::Counters(_)
            | Answer::Traces(_)
            | Answer::Exports(_)
            | Answer::Frozen(_)
            | Answer::Inspected(_),
        )
        | Err(_) => ReplyBytes::default(),
    }
}

/// The numbers of a reply.
pub(crate) fn result_of(answer: &Answer) -> CallResult {
    let none = CallResult::default();
    match answer {
        Answer::Entry(attr) => {
            CallResult { inode: Some(attr.inode), kind: Some(attr.kind), attr: Some(*attr), ..none }
        }
        Answer::Created { attr, made, handle } => CallResult {
            inode: Some(attr.inode),
            kind: Some(attr.kind),
            attr: Some(*attr),
            made: *made,
            handle: *handle,
            ..none
        },
        Answer::Opened { attr, handle } => CallResult {
            inode: Some(attr.inode),
            kind: Some(attr.kind),
            attr: Some(*attr),
            handle: Some(*handle),
            ..none
        },
        Answer::Written(written) => CallResult {
            file_offset: Some(written.file_offset),
            written_bytes: Some(written.written_bytes),
            ..none
        },
        Answer::Sought(at) => CallResult { sought: Some(*at), ..none },
        Answer::Done
        | Answer::Target(_)
        | Answer::Listing(_)
        | Answer::Found(_)
        | Answer::Value(_)
        | Answer::Space(_)
        | Answer::Bytes(_)
        | Answer::List { .. }
        | Answer::Renamed(_)
        | Answer::LockFound(_)
        | Answer::Stats(_)
        | Answer::Counters(_)
        | Answer::Traces(_)
        | Answer::Exports(_)
        | Answer::Frozen(_)
        | Answer::Inspected(_) => none,
    }
}

/// An entry of a listing: cookie, inode, name.
pub(crate) type Listed = (u64, InodeNo, Vec<u8>);

/// Whether a listing is at its end, and its entries.
pub(crate) fn entries_of(bytes: &[u8]) -> Option<(bool, Vec<Listed>)> {
    let listing = Listing::decode_all(bytes).ok()?;
    let entries = listing.entries.iter();
    let list = entries.map(|entry| (entry.cookie, entry.inode, entry.name.bytes().to_vec()));
    Some((listing.end, list.collect()))
}
