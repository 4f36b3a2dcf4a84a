//! Questions of other threads to a core, and its answers.

use super::Parts;
use crate::mailbox::Question;
use interface::{Event, Span, Ticket};
use slab::Slab;
use std::sync::mpsc::Sender;

/// The most questions without an answer.
const OPEN_COUNT_MAX: usize = 256;

/// Questions that a core has not answered.
#[derive(Debug, Default)]
pub(super) struct Questions {
    open: Slab<Sender<Vec<u8>>>,
}

impl Parts {
    /// Other threads may have asked something.
    pub(super) fn take_questions(&mut self) {
        for Question { bytes, answer } in self.mailbox.take_questions() {
            if self.questions.open.len() >= OPEN_COUNT_MAX {
                continue;
            }
            let ticket = Ticket(crate::number::u64_of(self.questions.open.insert(answer)));
            let question = self.io.arena.put(&bytes);
            self.io.events.push(Event::Asked { ticket, question });
        }
    }

    pub(super) fn answer(&mut self, ticket: Ticket, answer: Span) {
        let open_no = usize::try_from(ticket.0).ok();
        if let Some(asked) = open_no.and_then(|open_no| self.questions.open.try_remove(open_no)) {
            // The thread that asked may not wait any more.
            let _unheard = asked.send(self.io.arena.get(answer).to_vec());
        }
    }
}
