//! Questions of other threads of the server's process ([`wire::Question`]): what administrators may ask over a
//! connection, without one.

use crate::Lane;
use interface::{Action, Span, Ticket, Turn};
use wire::Question;

impl Lane {
    pub(crate) fn on_asked(&mut self, turn: &mut Turn<'_>, ticket: Ticket, question: Span) {
        match Question::decode(turn.arena.get(question)) {
            // With what the runtime counts.
            Ok(Question::Counters) => {
                turn.act(Action::Usage { ticket: Ticket(crate::ticket::ASKED_TICKET | ticket.0) });
            }
            Ok(Question::Traces) => {
                let traces = self.request_traces(turn.now.mono).encode();
                answer(turn, ticket, &traces);
            }
            // Those of mounts.
            Ok(Question::Record { .. } | Question::Names { .. }) | Err(_) => {
                answer(turn, ticket, &[]);
            }
        }
    }
}

pub(crate) fn answer(turn: &mut Turn<'_>, ticket: Ticket, bytes: &[u8]) {
    let answer = turn.arena.put(bytes);
    turn.act(Action::Answer { ticket, answer });
}
