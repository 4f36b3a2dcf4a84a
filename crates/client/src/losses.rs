//! Lost changes and which of them were reported, as Linux promises for fsync: each holder of a file
//! that was open when a change of it was lost gets one error from its next fsync; a holder that
//! opened it later, only if no other holder got one before.

use hashbrown::HashMap;
use interface::Seed;
use wire::InodeNo;

/// The most inodes with an entry of their own; beyond, any inode may be among the lost.
const INODE_COUNT_MAX: usize = 4096;

/// The last loss of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Loss {
    /// Its number among all losses.
    no: u64,
    /// A holder got an error for it.
    reported: bool,
}

/// Lost changes, by file.
#[derive(Default, Debug)]
pub(crate) struct Losses {
    last_no: u64,
    inodes: HashMap<InodeNo, Loss, Seed>,
    /// The last loss among inodes without an entry.
    others: Option<Loss>,
    /// A change was lost since the last sync of all shards.
    unreported: bool,
}

impl Losses {
    /// A change of the inode was lost here, or a lock on it.
    pub(crate) fn add_own(&mut self, inode: InodeNo) {
        self.unreported = true;
        self.add(inode);
    }

    /// Whether a change was lost here since the last call.
    pub(crate) const fn take_unreported(&mut self) -> bool {
        core::mem::replace(&mut self.unreported, false)
    }

    pub(crate) fn add(&mut self, inode: InodeNo) {
        self.last_no += 1;
        let loss = Loss { no: self.last_no, reported: false };
        if self.inodes.len() >= INODE_COUNT_MAX && !self.inodes.contains_key(&inode) {
            self.inodes.clear();
            self.others = Some(loss);
        } else {
            self.inodes.insert(inode, loss);
        }
    }

    fn last(&mut self, inode: InodeNo) -> Option<&mut Loss> {
        let known = self.inodes.get_mut(&inode);
        known.into_iter().chain(&mut self.others).max_by_key(|loss| loss.no)
    }

    /// Whether any change of the inode was ever lost.
    pub(crate) fn has(&mut self, inode: InodeNo) -> bool {
        self.last(inode).is_some()
    }

    /// The number of the last loss that a handle opened now need not report.
    pub(crate) fn seen_at_open(&mut self, inode: InodeNo) -> u64 {
        let last_no = self.last_no;
        self.last(inode).filter(|loss| !loss.reported).map_or(last_no, |loss| loss.no - 1)
    }

    /// Whether there was a loss after `seen`; it counts as reported from now on.
    pub(crate) fn report_after(&mut self, inode: InodeNo, seen: &mut u64) -> bool {
        let last_no = self.last_no;
        let Some(loss) = self.last(inode).filter(|loss| loss.no > *seen) else { return false };
        loss.reported = true;
        *seen = last_no;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeNo = InodeNo(7);

    #[test]
    fn every_holder_of_an_open_file_gets_one_error() {
        let mut losses = Losses::default();
        let mut early = [losses.seen_at_open(FILE), losses.seen_at_open(FILE)];
        assert!(early.iter_mut().all(|seen| !losses.report_after(FILE, seen)));
        losses.add(FILE);
        let mut unreported = losses.seen_at_open(FILE);
        for seen in early.iter_mut().chain([&mut unreported]) {
            assert!(losses.report_after(FILE, seen));
            assert!(!losses.report_after(FILE, seen), "once");
        }
        let mut late = losses.seen_at_open(FILE);
        assert!(
            !losses.report_after(FILE, &mut late),
            "another holder got the error before it was opened"
        );
        assert!(!losses.report_after(InodeNo(8), &mut 0), "another file");
        losses.add(FILE);
        for seen in early.iter_mut().chain([&mut unreported, &mut late]) {
            assert!(losses.report_after(FILE, seen), "a further loss");
        }
    }

    #[test]
    fn beyond_the_limit_any_inode_counts_as_lost() {
        let mut losses = Losses::default();
        let mut seen = losses.seen_at_open(FILE);
        let mut innocent = losses.seen_at_open(InodeNo(1));
        losses.add(FILE);
        for number in 0..5000 {
            losses.add(InodeNo(1000 + number));
        }
        assert!(losses.inodes.len() <= INODE_COUNT_MAX);
        assert!(
            losses.report_after(FILE, &mut seen) && losses.report_after(InodeNo(1), &mut innocent)
        );
        let mut late = losses.seen_at_open(FILE);
        assert!(!losses.report_after(FILE, &mut late));
    }
}
