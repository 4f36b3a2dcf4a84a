//! Interrupts whose request is not here: perhaps a sister lane has it, perhaps it comes later. A
//! short memory; the oldest is forgotten first.

use alloc::collections::VecDeque;

const COUNT_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    uniques: VecDeque<u64>,
}

impl Interrupts {
    pub(crate) fn remember(&mut self, unique: u64) {
        if self.uniques.contains(&unique) {
            return;
        }
        if self.uniques.len() == COUNT_MAX {
            self.uniques.pop_front();
        }
        self.uniques.push_back(unique);
    }

    /// Whether this request was interrupted before it came. Forgets it.
    pub(crate) fn take(&mut self, unique: u64) -> bool {
        let at = self.uniques.iter().position(|known| *known == unique);
        at.and_then(|at| self.uniques.remove(at)).is_some()
    }
}
