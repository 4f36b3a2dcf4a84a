//! Paths of inodes, from the names that the lanes of a mount have seen.

use crate::control;
use crate::running::Entry;
use anyhow::{Context as _, Result};
use fuse::control::SeenName;
use std::collections::{BTreeMap, BTreeSet};
use wire::{INODE_COUNT_MAX, InodeNo, Question};

/// The longest path that is followed, in names.
const DEPTH_MAX: usize = 256;

/// Names by inode: of those that several lanes have seen, the newest.
#[derive(Default)]
pub(crate) struct Paths {
    names: BTreeMap<u64, SeenName>,
}

impl Paths {
    /// Asks the mount for the names of inodes and of the directories above. A lane follows a path as far as
    /// it knows it, and another one may know the rest.
    pub(crate) fn of(mount: &Entry, inodes: impl Iterator<Item = u64>) -> Result<Self> {
        let mut paths = Self::default();
        let mut asked: BTreeSet<u64> = [InodeNo::ROOT.0].into();
        let mut wanted: BTreeSet<u64> = inodes.collect();
        while !wanted.is_empty() {
            let now: Vec<InodeNo> = wanted.iter().copied().map(InodeNo).collect();
            asked.append(&mut wanted);
            for some in now.chunks(INODE_COUNT_MAX) {
                let question = Question::Names { inodes: some.to_vec() };
                let answers = control::ask(mount, &question.encode())?;
                for answer in answers {
                    let names = SeenName::decode_all(&answer);
                    names
                        .with_context(|| format!("the mount process {} errs", mount.pid))?
                        .into_iter()
                        .for_each(|name| paths.put(name));
                }
            }
            let parents = paths.names.values().map(|name| name.parent.0);
            wanted = parents.filter(|parent| !asked.contains(parent)).collect();
        }
        Ok(paths)
    }

    fn put(&mut self, name: SeenName) {
        let known = self.names.get(&name.inode.0);
        if known.is_none_or(|known| known.at < name.at) {
            self.names.insert(name.inode.0, name);
        }
    }

    /// The first names of a path, below the mount; `inode N` in place of what is not known.
    pub(crate) fn prefix(&self, inode: u64, depth: usize) -> String {
        let (mut names, mut at) = (Vec::new(), inode);
        while at != InodeNo::ROOT.0 && names.len() < DEPTH_MAX {
            let Some(known) = self.names.get(&at) else {
                names.push(format!("inode {at}"));
                break;
            };
            let name = String::from_utf8_lossy(&known.name);
            names.push(format!("/{}", name.escape_debug()));
            at = known.parent.0;
        }
        if names.is_empty() {
            return "/".to_owned();
        }
        names.into_iter().rev().take(depth.max(1)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use interface::Mono;

    fn paths() -> Paths {
        let mut paths = Paths::default();
        let names =
            [(5, 1, 1, "a"), (6, 5, 1, "old"), (6, 5, 2, "b"), (7, 6, 1, "c\n"), (9, 8, 1, "d")];
        for (inode, parent, at, name) in names {
            let (inode, parent, name) = (InodeNo(inode), InodeNo(parent), name.into());
            paths.put(SeenName { inode, parent, at: Mono(at), name });
        }
        paths
    }

    #[test]
    fn a_prefix_has_the_first_names() {
        let paths = paths();
        let of = |inode: u64| [1, 2, 9].map(|depth| paths.prefix(inode, depth));
        assert_eq!(InodeNo::ROOT.0, 1);
        assert_eq!(of(1), ["/", "/", "/"]);
        assert_eq!(of(7), ["/a", "/a/b", "/a/b/c\\n"]);
        assert_eq!(of(9), ["inode 8", "inode 8/d", "inode 8/d"]);
        assert_eq!(of(77), ["inode 77", "inode 77", "inode 77"]);
    }

    #[test]
    fn a_loop_of_names_ends() {
        let mut paths = paths();
        let (inode, parent, name) = (InodeNo(5), InodeNo(7), b"a".to_vec());
        paths.put(SeenName { inode, parent, at: Mono(9), name });
        assert!(paths.prefix(7, 1).starts_with('/'));
    }
}
