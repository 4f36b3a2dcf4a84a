//! List reads in progress: pieces of a file's objects that are read into one buffer, side by side.
//!
//! Each piece is a job of its own ([`crate::job::JobKind::Part`]) and writes its own part of the
//! buffer. Invariant: only the list's jobs use the buffer until the last of them is done; then its
//! id is passed to the core, and every byte of it was read or is zero.

use crate::io_context::IoContext;
use crate::number::u32_of;
use interface::{BufId, Bulk, Errno, Event, NO_MAC, ObjectEvent, Ticket};
use slab::Slab;

/// The place of a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    list: u32,
    /// Offset in the list's buffer.
    pub(crate) start: usize,
}

impl Part {
    pub(crate) const fn new(list: u32, start: usize) -> Self {
        Self { list, start }
    }
}

struct List {
    ticket: Ticket,
    buf: Option<BufId>,
    list_bytes: usize,
    left_count: usize,
    outcome: Result<(), Errno>,
    /// The page cache lacked part of it, and only the page cache was asked.
    missed: bool,
}

/// All list reads of a lane.
#[derive(Default)]
pub(crate) struct Lists {
    slots: Slab<List>,
}

impl Lists {
    /// Registers a list of so many pieces and bytes.
    pub(crate) fn begin(&mut self, ticket: Ticket, left_count: usize, list_bytes: usize) -> u32 {
        let (buf, outcome, missed) = (None, Ok(()), false);
        let list = List { ticket, buf, list_bytes, left_count, outcome, missed };
        u32_of(self.slots.insert(list))
    }

    fn slot(&mut self, index: u32) -> &mut List {
        &mut self.slots[index as usize]
    }
}

impl IoContext {
    /// The buffer of a piece's list; `None` while the pool has no space.
    pub(crate) fn list_buf(&mut self, part: Part) -> Option<BufId> {
        let list = self.lists.slot(part.list);
        if list.buf.is_none() {
            list.buf = self.pool.take(list.list_bytes);
        }
        list.buf
    }

    /// A piece was read, or not. Missing bytes are zeros; the last piece completes the list.
    pub(crate) fn end_part(
        &mut self,
        part: Part,
        wanted_bytes: usize,
        outcome: Result<usize, Errno>,
    ) {
        let list = self.lists.slot(part.list);
        list.left_count -= 1;
        match (outcome, list.buf) {
            (Ok(moved_bytes), Some(buf)) => {
                let rest_bytes = wanted_bytes - moved_bytes;
                self.pool.bytes_mut(buf, part.start + moved_bytes, rest_bytes).fill(0);
            }
            // The object does not exist, so no piece needed a buffer before.
            (Ok(_), None) => {
                list.buf = self.pool.take(list.list_bytes);
                match list.buf {
                    Some(buf) => self.pool.bytes_mut(buf, part.start, wanted_bytes).fill(0),
                    None => list.outcome = Err(NO_MEMORY),
                }
            }
            (Err(errno), _) => list.outcome = Err(errno),
        }
        if list.left_count == 0 {
            self.end_list(part.list);
        }
    }

    /// The page cache lacks part of a piece.
    pub(crate) fn miss_part(&mut self, part: Part) {
        let list = self.lists.slot(part.list);
        list.left_count -= 1;
        list.missed = true;
        if list.left_count == 0 {
            self.end_list(part.list);
        }
    }

    fn end_list(&mut self, index: u32) {
        let List { ticket, buf, list_bytes, outcome, missed, .. } =
            self.lists.slots.remove(index as usize);
        if missed && outcome.is_ok() {
            if let Some(buf) = buf {
                self.pool.release(buf);
            }
            return self.events.push(Event::Object(ObjectEvent::Uncached { ticket }));
        }
        let result = match (outcome, buf) {
            (Ok(()), Some(buf)) => {
                let bulk_bytes = u32_of(list_bytes);
                Ok(Some(Bulk { buf, start: 0, bulk_bytes, crc32c: None, mac: NO_MAC }))
            }
            (Ok(()), None) => Ok(None),
            (Err(errno), buf) => {
                if let Some(buf) = buf {
                    self.pool.release(buf);
                }
                Err(errno)
            }
        };
        self.events.push(Event::Object(ObjectEvent::Read { ticket, result }));
    }
}

const NO_MEMORY: Errno = Errno(12);
