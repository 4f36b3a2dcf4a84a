//! Guards: removals and renames under way whose names are known, so that it is known which inodes they
//! change, as long as no other client, and no other call of this one, changes the names first.
//!
//! ```text
//! begin ─▶ names are looked up ─▶ limit ─▶ request ─▶ answer ─▶ what has changed is outdated ─▶ end
//!             a name is recalled, or another call is to change it ─▶ lose ─▶ until then it may be any inode
//!
//! bits 63 .. 48 changes under way      bits 47 .. 0 until when all of their names are known, in µs
//! ```
//! Invariant: the time only falls while there are changes under way.

use core::sync::atomic::{AtomicU64, Ordering};
use interface::Mono;

const ONE_CHANGE: u64 = 1 << 48;
const UNTIL_MASK: u64 = ONE_CHANGE - 1;
const NS_OF_US: u64 = 1_000;

/// The guards of a cache.
#[derive(Debug)]
pub(super) struct Guards {
    word: AtomicU64,
}

impl Guards {
    pub(super) const fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    fn change(&self, to: impl Fn(u64) -> u64) {
        let order = Ordering::SeqCst;
        let mut found = self.word.load(order);
        while let Err(other) = self.word.compare_exchange(found, to(found), order, order) {
            found = other;
        }
    }

    /// A change begins. To be called before its names are looked up.
    pub(super) fn begin(&self) {
        self.change(|word| {
            let until = if word < ONE_CHANGE { UNTIL_MASK } else { word & UNTIL_MASK };
            ((word & !UNTIL_MASK) + ONE_CHANGE) | until
        });
    }

    /// Its names are known until then.
    pub(super) fn limit(&self, until: Mono) {
        let until = until.0 / NS_OF_US;
        self.change(|word| (word & !UNTIL_MASK) | (word & UNTIL_MASK).min(until));
    }

    /// Names of changes under way may name other inodes now.
    pub(super) fn lose(&self) {
        self.limit(Mono(0));
    }

    /// A change has ended. To be called when what it has changed is outdated.
    pub(super) fn end(&self) {
        self.change(|word| if word < 2 * ONE_CHANGE { 0 } else { word - ONE_CHANGE });
    }

    /// Whether a change under way may be one of any inode.
    pub(super) fn may_be_any(&self, now: Mono) -> bool {
        let word = self.word.load(Ordering::SeqCst);
        word >= ONE_CHANGE && now.0 / NS_OF_US >= word & UNTIL_MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_may_be_one_of_any_inode_once_its_names_are_lost_and_until_it_ends() {
        let (guards, now) = (Guards::new(), Mono(5_999));
        assert!(!guards.may_be_any(now));
        guards.lose();
        guards.begin();
        assert!(!guards.may_be_any(now), "what was lost before concerns nothing");
        guards.limit(Mono(6_000));
        guards.limit(Mono(9_000));
        assert_eq!([now, Mono(6_000)].map(|at| guards.may_be_any(at)), [false, true]);
        guards.begin();
        guards.lose();
        assert!(guards.may_be_any(now));
        guards.end();
        assert!(guards.may_be_any(now), "which of them it was is not known");
        guards.end();
        assert!(!guards.may_be_any(now));
    }
}
