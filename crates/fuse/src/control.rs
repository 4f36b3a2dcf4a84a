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
use interface::{Action, Mono, Span, Ticket, Turn};
use wire::{Bytes, InodeNo, Reader, Writer};

/// A question to each lane of a mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// All counters: an encoded [`wire::counters::Snapshot`].
    Counters,
    /// Which process asks for what: an encoded [`wire::counters::Snapshot`] of what was recorded since the last
    /// such question, by [`wire::counters::By::Call`].
    Record {
        /// Go on to record for so long; 0: end.
        record_ms: u32,
    },
    /// [`SeenName`]s of inodes and of the directories above them, as far as they are known.
    Names {
        /// At most [`INODE_COUNT_MAX`].
        inodes: Vec<InodeNo>,
    },
}

/// The most inodes of a [`Question::Names`].
pub const INODE_COUNT_MAX: usize = 1_024;

/// Bytes that are no question, or one of a later version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadQuestion {
    /// No such kind is known.
    Unknown,
    /// The kind is known, and the rest does not fit.
    Malformed,
}

const COUNTERS: u16 = 1;
const RECORD: u16 = 2;
const NAMES: u16 = 3;

impl Question {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut to = Writer::new(&mut bytes);
        match self {
            Self::Counters => to.write(&COUNTERS),
            Self::Record { record_ms } => {
                to.write(&RECORD);
                to.write(record_ms);
            }
            Self::Names { inodes } => {
                to.write(&NAMES);
                inodes.iter().for_each(|inode| to.write(inode));
            }
        }
        bytes
    }

    /// Of bytes from another process.
    ///
    /// # Errors
    /// When they are no question that this version knows.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadQuestion> {
        let mut from = Reader::new(bytes);
        let kind: u16 = from.read().map_err(|_| BadQuestion::Malformed)?;
        let question = match kind {
            COUNTERS => Some(Self::Counters),
            RECORD => from.read().ok().map(|record_ms| Self::Record { record_ms }),
            NAMES => inodes_of(&mut from).map(|inodes| Self::Names { inodes }),
            _ => return Err(BadQuestion::Unknown),
        };
        question.filter(|_| from.left() == 0).ok_or(BadQuestion::Malformed)
    }
}

fn inodes_of(from: &mut Reader<'_>) -> Option<Vec<InodeNo>> {
    let mut inodes = Vec::new();
    while from.left() > 0 && inodes.len() < INODE_COUNT_MAX {
        inodes.push(from.read().ok()?);
    }
    Some(inodes)
}

/// A name of an inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenName {
    /// The inode.
    pub inode: InodeNo,
    /// The directory; of the mount's own, [`InodeNo::ROOT`].
    pub parent: InodeNo,
    /// When a lane saw it.
    pub at: Mono,
    /// The name.
    pub name: Vec<u8>,
}

impl SeenName {
    /// `inode 8 | parent 8 | at 8 | name_bytes 4 | name`
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let mut to = Writer::new(bytes);
        to.write(&self.inode);
        to.write(&self.parent);
        to.write(&self.at.0);
        to.write(&Bytes(&self.name));
    }

    /// The answer of a lane to [`Question::Names`]; `None` if it is none.
    #[must_use]
    pub fn decode_all(bytes: &[u8]) -> Option<Vec<Self>> {
        let mut from = Reader::new(bytes);
        let mut names = Vec::new();
        while from.left() > 0 {
            let (inode, parent) = (from.read().ok()?, from.read().ok()?);
            let (at, name): (u64, Bytes<'_>) = (from.read().ok()?, from.read().ok()?);
            names.push(Self { inode, parent, at: Mono(at), name: name.0.to_vec() });
        }
        Some(names)
    }
}

impl MountLane {
    pub(crate) fn on_asked(&mut self, turn: &mut Turn<'_>, ticket: Ticket, question: Span) {
        match Question::decode(turn.arena.get(question)) {
            // With what the runtime counts.
            Ok(Question::Counters) => turn.act(Action::Usage { ticket }),
            Ok(Question::Record { record_ms }) => {
                let recorded = self.record(turn.now.mono, record_ms);
                answer(turn, ticket, &recorded.encode());
            }
            Ok(Question::Names { inodes }) => {
                answer(turn, ticket, &self.names_of(inodes.into_iter()));
            }
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
        let names = |count: usize| {
            let count = u64::try_from(count).unwrap_or(0);
            Question::Names { inodes: (0..count).map(InodeNo).collect() }
        };
        let recorded = Question::Record { record_ms: 70_000 };
        for question in [Question::Counters, recorded, names(0), names(INODE_COUNT_MAX)] {
            assert_eq!(Question::decode(&question.encode()), Ok(question));
        }
        let too_many = names(INODE_COUNT_MAX + 1).encode();
        assert_eq!(Question::decode(&too_many), Err(BadQuestion::Malformed));
        assert_eq!(Question::decode(&[3, 0, 1]), Err(BadQuestion::Malformed));
        assert_eq!(Question::decode(&[]), Err(BadQuestion::Malformed));
        assert_eq!(Question::decode(&[1]), Err(BadQuestion::Malformed));
        assert_eq!(Question::decode(&[1, 0, 7]), Err(BadQuestion::Malformed));
        assert_eq!(Question::decode(&[0xff, 0xff]), Err(BadQuestion::Unknown));
    }
}
