//! The free space of the store, as the lane last saw it. While there is much of it, clients may answer
//! writes before they send them, and the lane answers some before they are in their objects.

use crate::Lane;
use interface::{Mono, StoreAction, StoreSpace, Ticket, Turn};

/// How long what was seen is believed, in milliseconds.
const SPACE_MS_MAX: u64 = 1_000;
/// With so much, others do not take all of it before the next look.
const PLENTY_BYTES: u64 = 4 << 30;
const PLENTY_FILE_COUNT: u64 = 100_000;

/// The free space, and when it was asked for.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct FreeSpace {
    free_bytes: u64,
    asked_at: Option<Mono>,
}

impl FreeSpace {
    /// 0: not known.
    pub(crate) const fn free_bytes(self) -> u64 {
        self.free_bytes
    }
}

impl Lane {
    /// Asks for the free space of the store, if it is not known any more.
    pub(crate) fn ask_for_space(&mut self, turn: &mut Turn<'_>) {
        let (now, free_space) = (turn.now.mono, &mut self.free_space);
        if free_space.asked_at.is_none_or(|at| at.after_ms(SPACE_MS_MAX) <= now) {
            if free_space.asked_at.is_none_or(|at| at.after_ms(10 * SPACE_MS_MAX) <= now) {
                free_space.free_bytes = 0; // Not known any more.
            }
            free_space.asked_at = Some(now);
            turn.act(StoreAction::Space { ticket: Ticket(crate::ticket::FREE_SPACE_TICKET) });
        }
    }

    /// The free space of the store. Where there is plenty, writes are answered before they are in their
    /// objects (docs/protocol.md, R13.50).
    pub(crate) fn on_free_space(&mut self, now: Mono, space: Option<StoreSpace>) {
        let free_bytes = space.map_or(0, |space| space.available_bytes);
        self.free_space.free_bytes = free_bytes;
        let file_count = space.and_then(|space| space.available_file_count);
        let has_files = file_count.is_none_or(|count| count >= PLENTY_FILE_COUNT);
        if free_bytes >= PLENTY_BYTES && has_files {
            self.data.allow_log_first(now.after_ms(SPACE_MS_MAX * 3 / 2));
        }
    }
}
