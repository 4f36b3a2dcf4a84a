//! Files whose sizes were settled, by the session that holds their attributes: these ride on later
//! replies to it (docs/protocol.md R20.39). Otherwise who has written many files asks for each.
//!
//! ```text
//! settled, its attributes are leased ─▶ remembered ─ a reply that grants something ─▶ granted with it
//!                                          └─ the lease has ended, the session has ended ─▶ forgotten
//! ```

use alloc::collections::{BTreeMap, VecDeque};
use wire::{InodeNo, SessionId};

/// The most files of a session: beyond that the oldest one is forgotten, and has to be asked for.
const COUNT_MAX: usize = 4096;

/// The files that a lane remembers.
#[derive(Default, Debug)]
pub(super) struct Settled {
    files: BTreeMap<SessionId, VecDeque<InodeNo>>,
}

impl Settled {
    /// A file was settled whose attributes this session holds.
    pub(super) fn add(&mut self, session: SessionId, inode: InodeNo) {
        let files = self.files.entry(session).or_default();
        if files.len() >= COUNT_MAX {
            files.pop_front();
        }
        files.push_back(inode);
    }

    /// Takes the file of a session that was settled first.
    pub(super) fn take(&mut self, session: SessionId) -> Option<InodeNo> {
        let files = self.files.get_mut(&session)?;
        let first = files.pop_front();
        if files.is_empty() {
            self.files.remove(&session);
        }
        first
    }

    pub(super) fn forget_session(&mut self, session: SessionId) {
        self.files.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_takes_its_own_files_in_order_and_the_oldest_is_forgotten_beyond_a_limit() {
        let mut settled = Settled::default();
        let (mine, other) = (SessionId(1), SessionId(2));
        let count = COUNT_MAX as u64;
        (0..=count).for_each(|number| settled.add(mine, InodeNo(100 + number)));
        settled.add(other, InodeNo(7));
        assert_eq!(settled.take(mine), Some(InodeNo(101)));
        assert_eq!(settled.take(other), Some(InodeNo(7)));
        assert_eq!(settled.take(other), None);
        assert_eq!(settled.take(mine), Some(InodeNo(102)));
        settled.forget_session(mine);
        assert_eq!(settled.take(mine), None);
        assert!(settled.files.is_empty());
    }
}
