//! Lists: many pieces of one object, read or written by one request.
//!
//! A list write is one change: it has one number and one record, and runs alone at its object like
//! an append, so that it is ordered as a whole against all other changes. Its pieces are written in
//! parallel, because they are disjoint. A list read runs beside other reads; the object's size when
//! it begins determines its bytes.

use crate::in_flight::{CachedRead, InFlight};
use crate::object::Effect;
use crate::ranges::{changed_places, places_of};
use crate::request::{ReadingList, WritingList, bulk_bytes, release};
use crate::{Answer, Outcome, Shards, Token};
use alloc::vec::Vec;
use core::ops::Range;
use disk::ContentsChange;
use interface::{Action, Bulk, Errno, NO_MAC, ObjectAction, Turn};
use wire::{InodeNo, Piece, Pieces, Status, Transno, Written};

/// A list write in progress.
#[derive(Debug)]
pub(crate) struct Writing {
    inode: InodeNo,
    effect: Effect,
    left_count: usize,
    result: Result<(), Status>,
}

/// The ranges of pieces, in the order of their bytes.
fn ranges_of(pieces: &Pieces) -> Vec<Range<u64>> {
    pieces.iter().map(|piece| piece.file_offset..piece.end()).collect()
}

impl Shards {
    pub(crate) fn begin_read_list(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        reading: &ReadingList,
        cached: Option<CachedRead>,
    ) {
        let ReadingList { token, client, ref pieces, .. } = *reading;
        let durable = self.durable(self.shard(inode));
        let Some(object) = self.objects.get_mut(&inode) else { return };
        object.unstable.settle(durable);
        let shown = object.unstable.depends_of(client, &places_of(pieces)).foreign;
        let size_bytes = object.size_bytes();
        let within = pieces.within(size_bytes);
        if within.count() == 0 {
            let result = Ok(Answer::List { bulk: None, size_bytes });
            return self.outcomes.push_back(Outcome::Answered { token, result, shown });
        }
        object.running_count += 1;
        let list_bytes = within.total_bytes();
        let only_cached = cached.is_some();
        let in_flight = InFlight::ReadList { inode, token, shown, size_bytes, list_bytes, cached };
        let ticket = self.ticket(in_flight);
        self.read_ranges(turn, (inode, ticket), &ranges_of(&within.joined()), only_cached);
    }

    /// The outcome of a list read. The object's size was known, so all bytes must be present.
    pub(crate) fn on_list_read(
        &mut self,
        turn: &mut Turn<'_>,
        result: Result<Option<Bulk>, Errno>,
        (token, shown): (Token, Transno),
        (size_bytes, list_bytes): (u64, u32),
    ) {
        let result = match result {
            Ok(bulk) if bulk_bytes(bulk) == list_bytes => Ok(Answer::List { bulk, size_bytes }),
            Ok(bulk) => {
                release(turn, bulk);
                Err(Status::Io)
            }
            Err(errno) => Err(errno.status()),
        };
        self.outcomes.push_back(Outcome::Answered { token, result, shown });
    }

    pub(crate) fn begin_write_list(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        writing: WritingList,
    ) {
        let WritingList { token, client, pieces, bulk } = writing;
        let file_offset = pieces.first_offset();
        let answer = Answer::Written(Written { file_offset, written_bytes: pieces.total_bytes() });
        let Some(bulk) = bulk.filter(|_| pieces.count() > 0) else {
            release(turn, bulk);
            return self.answer(token, Ok(answer));
        };
        let change = list_change(inode, pieces, bulk);
        let (transno, place_no, change_no) = (Transno(0), 0, 0);
        let effect = Effect { token, change, answer, client, transno, place_no, change_no };
        self.write_list(turn, inode, effect, bulk);
    }

    /// Writes all pieces of a list, alone at its object.
    pub(crate) fn write_list(
        &mut self,
        turn: &mut Turn<'_>,
        inode: InodeNo,
        effect: Effect,
        bulk: Bulk,
    ) {
        self.begin_places(turn, inode, &changed_places(&effect.change));
        let Some(object) = self.objects.get_mut(&inode) else { return release(turn, Some(bulk)) };
        object.exclusive = true;
        let ContentsChange::WriteList { pieces, .. } = &effect.change else {
            panic!("{:?} is no list", effect.change)
        };
        let pieces = pieces.joined();
        self.list_count += 1;
        let list_no = self.list_count;
        let is_striped = self.is_striped(inode);
        let left_count = if is_striped { 1 } else { pieces.count() };
        self.writing.insert(list_no, Writing { inode, effect, left_count, result: Ok(()) });
        if is_striped {
            let ticket = self.ticket(InFlight::WritePiece { list_no });
            self.write_ranges(turn, (inode, ticket), &ranges_of(&pieces), bulk);
            return turn.act(Action::Release { buf: bulk.buf });
        }
        let object = self.object_name(inode, 0);
        let mut start = bulk.start;
        for Piece { file_offset: object_offset, piece_bytes } in pieces.iter() {
            let ticket = self.ticket(InFlight::WritePiece { list_no });
            // No checksum of a piece is known.
            let bulk =
                Bulk { buf: bulk.buf, start, bulk_bytes: piece_bytes, crc32c: None, mac: NO_MAC };
            start += piece_bytes;
            let block_bytes = 0;
            turn.act(ObjectAction::Write { ticket, object, object_offset, bulk, block_bytes });
        }
        turn.act(Action::Release { buf: bulk.buf });
    }

    /// The write of a piece ended; the last one ends the list.
    pub(crate) fn on_piece_written(
        &mut self,
        turn: &mut Turn<'_>,
        list_no: u64,
        result: Result<(), Status>,
    ) {
        let Some(writing) = self.writing.get_mut(&list_no) else { return };
        writing.left_count -= 1;
        writing.result = writing.result.and(result);
        if writing.left_count > 0 {
            return;
        }
        let Some(Writing { inode, effect, result, .. }) = self.writing.remove(&list_no) else {
            return;
        };
        let end = effect.end();
        self.on_written(turn, inode, effect, (result.map(|()| end), None));
        self.ran_alone(turn, inode);
    }
}

/// The change of a list write.
fn list_change(inode: InodeNo, pieces: Pieces, bulk: Bulk) -> ContentsChange {
    let Some(crc32c) = bulk.crc32c else { panic!("the bulk of a request was checked") };
    ContentsChange::WriteList { inode, pieces, crc32c, write_time_ns: 0 }
}
