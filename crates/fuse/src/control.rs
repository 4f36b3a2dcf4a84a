//! Questions to a mount from other processes: what arrives over its control socket, and is asked of each of
//! its lanes ([`wire::Question`] has the kinds). A lane does nothing here that may block or takes long.

use crate::lane::MountLane;
use alloc::vec::Vec;
use interface::{Action, Mono, Span, Ticket, Turn};
use wire::{Bytes, InodeNo, Question, Reader, Writer};

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
            Ok(Question::Traces) => {
                answer(turn, ticket, &self.call_traces(turn.now.mono).encode());
            }
            Err(_) => answer(turn, ticket, &[]),
        }
    }
}

pub(crate) fn answer(turn: &mut Turn<'_>, ticket: Ticket, bytes: &[u8]) {
    let answer = turn.arena.put(bytes);
    turn.act(Action::Answer { ticket, answer });
}
