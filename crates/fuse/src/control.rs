//! Questions to a mount from other processes: what arrives over its control socket, and is asked of each of
//! its lanes.
//!
//! ```text
//! question   kind 2 (little-endian) | what the kind needs
//! ```
//! To add a kind: a variant of [`Question`] with its number and bytes, and an arm of `on_asked`, which
//! acts [`interface::Action::Answer`] once, now or later. What the answers of all lanes mean is up to the
//! program that has asked. A lane does nothing here that may block or takes long.

use crate::lane::MountLane;
use alloc::vec::Vec;
use interface::{Action, Span, Ticket, Turn};

/// A question to each lane of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// All counters: an encoded [`wire::counters::Snapshot`].
    Counters,
}

/// Bytes that are no question, or one of a later version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadQuestion {
    /// No such kind is known.
    Unknown,
    /// The kind is known, and the rest does not fit.
    Malformed,
}

const COUNTERS: u16 = 1;

impl Question {
    /// Its bytes.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        match self {
            Self::Counters => COUNTERS.to_le_bytes().to_vec(),
        }
    }

    /// Of bytes from another process.
    ///
    /// # Errors
    /// When they are no question that this version knows.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadQuestion> {
        let (kind, rest) = bytes.split_first_chunk().ok_or(BadQuestion::Malformed)?;
        let question = match u16::from_le_bytes(*kind) {
            COUNTERS => Self::Counters,
            _ => return Err(BadQuestion::Unknown),
        };
        if rest.is_empty() { Ok(question) } else { Err(BadQuestion::Malformed) }
    }
}

impl MountLane {
    pub(crate) fn on_asked(&mut self, turn: &mut Turn<'_>, ticket: Ticket, question: Span) {
        match Question::decode(turn.arena.get(question)) {
            // With what the runtime counts.
            Ok(Question::Counters) => turn.act(Action::Usage { ticket }),
            Err(BadQuestion::Unknown | BadQuestion::Malformed) => answer(turn, ticket, &[]),
        }
    }
}

pub(crate) fn answer(turn: &mut Turn<'_>, ticket: Ticket, bytes: &[u8]) {
    let answer = turn.arena.put(bytes);
    turn.act(Action::Answer { ticket, answer });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_question_is_refused() {
        assert_eq!(Question::decode(&Question::Counters.encode()), Ok(Question::Counters));
        assert_eq!(Question::decode(&[]), Err(BadQuestion::Malformed));
        assert_eq!(Question::decode(&[1]), Err(BadQuestion::Malformed));
        assert_eq!(Question::decode(&[1, 0, 7]), Err(BadQuestion::Malformed));
        assert_eq!(Question::decode(&[0xff, 0xff]), Err(BadQuestion::Unknown));
    }
}
