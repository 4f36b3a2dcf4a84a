//! Questions of other threads and processes to the lanes of a server or a mount. Each lane of a process
//! gets the same question.
//!
//! ```text
//! question   kind 2 (little-endian) | what the kind needs
//! ```
//! To add a kind: a variant of [`Question`] with its number and bytes, and an arm where lanes answer: once,
//! by `interface::Action::Answer`, now or later. What the answers of all lanes mean is up to the asker. A
//! lane that does not answer a kind answers with no bytes.

use crate::InodeNo;
use crate::codec::{Reader, Writer};
use alloc::vec::Vec;

/// A question to each lane of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// All counters: an encoded [`crate::counters::Snapshot`].
    Counters,
    /// Of a mount: which process asks for what, an encoded [`crate::counters::Snapshot`] of what was
    /// recorded since the last such question, by [`crate::counters::By::Call`].
    Record {
        /// Go on to record for so long; 0: end.
        record_ms: u32,
    },
    /// Of a mount: names of inodes and of the directories above them, as far as they are known.
    Names {
        /// At most [`INODE_COUNT_MAX`].
        inodes: Vec<InodeNo>,
    },
    /// Where the time of recent requests went, and what waits now: of a server
    /// [`crate::traces::Traces`], of a mount [`crate::traces::CallTraces`], encoded.
    Traces,
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
const TRACES: u16 = 4;

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
            Self::Traces => to.write(&TRACES),
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
            TRACES => Some(Self::Traces),
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
        for question in
            [Question::Counters, Question::Traces, recorded, names(0), names(INODE_COUNT_MAX)]
        {
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
