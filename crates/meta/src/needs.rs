//! `Needs`: what an operation must find in memory before it is executed.

use wire::{InodeNo, Name};

/// Most inodes, and most entries, an operation looks at.
const COUNT_MAX: usize = 2;

/// Inodes and entries an operation looks at. With all state in memory they are always there; a
/// cold store will fetch what is not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs<'a> {
    inodes: [Option<InodeNo>; COUNT_MAX],
    entries: [Option<(InodeNo, Name<'a>)>; COUNT_MAX],
}

impl<'a> Needs<'a> {
    pub(crate) const fn new() -> Self {
        Self { inodes: [None; COUNT_MAX], entries: [None; COUNT_MAX] }
    }

    /// This inode.
    pub(crate) fn inode(&mut self, inode: InodeNo) {
        let place = self.inodes.iter_mut().find(|place| place.is_none());
        assert!(place.is_some(), "an op names at most two inodes");
        place.into_iter().for_each(|place| *place = Some(inode));
    }

    /// This entry, or that there is none, and the inode it names.
    pub(crate) fn entry(&mut self, dir: InodeNo, name: Name<'a>) {
        let place = self.entries.iter_mut().find(|place| place.is_none());
        assert!(place.is_some(), "an op names at most two entries");
        place.into_iter().for_each(|place| *place = Some((dir, name)));
    }
}
