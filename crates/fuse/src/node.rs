//! Node ids: the numbers by which the kernel names inodes.
//!
//! The kernel has one dentry for each directory's node id. A LOOKUP that finds a node id below
//! another parent makes the kernel move that dentry (`d_splice_alias`), for which it only tries the
//! locks of a rename: while a name is created or renamed there, the program gets ESTALE. Therefore
//! a directory has a node id of its own below each parent, and no dentry moves when another mount
//! moves the directory. A tag in the node id, derived from the parent's, distinguishes them.
//!
//! ```text
//! bit 63: 0       a plain inode number: the root, non-directories, and numbers beyond the fields below
//! bits 63, 62: 10  61 .. 44 tag  43 .. 36 metadata shard                           35 .. 0 count
//! bits 63, 62: 11  61 .. 50 tag  49 .. 40 metadata shard  39 .. 34 generation      33 .. 0 count
//! ```
//! The second form is for the inodes of later generations and of further servers.
//! A directory that this kernel renames retains its node id, because the kernel moves that dentry
//! itself: [`Moves`]. Invariant: a directory's node id below a parent is constant while the kernel
//! has it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{Attr, FileKind, InodeNo};

const TAGGED: u64 = 1 << 63;
const OF_CLUSTER: u64 = 1 << 62;

/// How many bits the fields of a node id with a tag have; the tag has the rest.
struct Form {
    mark: u64,
    shard_bits: u32,
    generation_bits: u32,
    count_bits: u32,
}

const FORMS: [Form; 2] = [
    Form { mark: TAGGED, shard_bits: 8, generation_bits: 0, count_bits: 36 },
    Form { mark: TAGGED | OF_CLUSTER, shard_bits: 10, generation_bits: 6, count_bits: 34 },
];

impl Form {
    const fn tag_shift(&self) -> u32 {
        self.shard_bits + self.generation_bits + self.count_bits
    }

    const fn tag_mask(&self) -> u64 {
        mask(OF_CLUSTER.trailing_zeros() - self.tag_shift())
    }

    /// The fields of an inode, if they are wide enough for it.
    fn fields(&self, inode: InodeNo) -> Option<u64> {
        let (shard, generation) = (u64::from(inode.shard().index()), u64::from(inode.generation()));
        let count = inode.count() & mask(InodeNo::GENERATION_SHIFT);
        let fits = shard <= mask(self.shard_bits)
            && generation <= mask(self.generation_bits)
            && count <= mask(self.count_bits);
        let upper = shard << self.generation_bits | generation;
        fits.then_some(upper << self.count_bits | count)
    }

    /// The inode that a node id names.
    fn inode(&self, node: Node) -> InodeNo {
        let upper = node.0 >> self.count_bits;
        let generation = upper & mask(self.generation_bits);
        let shard = upper >> self.generation_bits & mask(self.shard_bits);
        let count = generation << InodeNo::GENERATION_SHIFT | node.0 & mask(self.count_bits);
        // Only a broken kernel sends one with count 0; no inode has the number 0.
        if count == 0 {
            return InodeNo(0);
        }
        InodeNo::new(u16::try_from(shard).unwrap_or(0), count)
    }
}

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// The most moved directories that a lane remembers. Beyond, the ones with the smallest numbers are
/// dropped: they get another node id, and for a process in such a directory `getcwd` reports a
/// removed one.
const MOVED_COUNT_MAX: usize = 65_536;

/// A node id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Node(pub(crate) u64);

impl Node {
    /// No node: the parent of a directory whose place is not known.
    const NOWHERE: Self = Self(0);

    /// The node id of a non-directory.
    pub(crate) const fn plain(inode: InodeNo) -> Self {
        Self(inode.0)
    }

    /// The inode that it names.
    pub(crate) fn inode(self) -> InodeNo {
        if self.0 & TAGGED == 0 {
            return InodeNo(self.0);
        }
        let [alone, of_cluster] = &FORMS;
        let form = if self.0 & OF_CLUSTER == 0 { alone } else { of_cluster };
        form.inode(self)
    }

    /// The node id of a directory below `parent`, if `skip_count` others are taken.
    fn below(parent: Self, directory: InodeNo, skip_count: u64) -> Self {
        let fitting = FORMS.iter().find_map(|form| Some((form, form.fields(directory)?)));
        let Some((form, fields)) = fitting.filter(|_| directory != InodeNo::ROOT) else {
            return Self(directory.0);
        };
        // Fibonacci hashing: parents with numbers in sequence have different tags.
        let hash = parent.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> form.tag_mask().leading_zeros();
        let tag = hash.wrapping_add(skip_count) & form.tag_mask();
        Self(form.mark | tag << form.tag_shift() | fields)
    }
}

/// The parents of directories that this kernel has moved.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// The parent of each node id.
    parents: BTreeMap<(InodeNo, Node), Node>,
}

impl Moves {
    /// The node id of an inode that a request found below `parent`.
    pub(crate) fn node(&self, parent: Node, attr: &Attr) -> Node {
        if attr.kind == FileKind::Directory {
            self.directory(parent, attr.inode)
        } else {
            Node::plain(attr.inode)
        }
    }

    /// The node id of a directory below `parent`.
    pub(crate) fn directory(&self, parent: Node, directory: InodeNo) -> Node {
        if let Some(node) = self.of(directory).find(|(_, at)| *at == parent).map(|(node, _)| node) {
            return node;
        }
        let mut skip_count = 0;
        loop {
            let node = Node::below(parent, directory, skip_count);
            let taken = self.parents.contains_key(&(directory, node));
            if !taken || node == Node::plain(directory) {
                return node;
            }
            skip_count += 1;
        }
    }

    fn of(&self, directory: InodeNo) -> impl Iterator<Item = (Node, Node)> {
        let range = (directory, Node(0))..=(directory, Node(u64::MAX));
        self.parents.range(range).map(|((_, node), parent)| (*node, *parent))
    }

    /// Records that the kernel has moved this node below `parent`.
    pub(crate) fn put(&mut self, node: Node, parent: Node) {
        let directory = node.inode();
        // Another node of the directory there was removed, or the kernel would have refused the
        // move.
        let replaced: Vec<Node> =
            self.of(directory).filter(|(_, at)| *at == parent).map(|(node, _)| node).collect();
        for node in replaced {
            self.parents.insert((directory, node), Node::NOWHERE);
        }
        self.parents.remove(&(directory, node));
        if self.directory(parent, directory) != node {
            self.parents.insert((directory, node), parent);
        }
        if self.parents.len() > MOVED_COUNT_MAX {
            self.parents.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Node = Node(1);

    fn inode(count: u64) -> InodeNo {
        InodeNo::new(3, count)
    }

    #[test]
    fn a_node_names_its_inode_below_any_parent() {
        for inode in [
            InodeNo::ROOT,
            InodeNo::new(0, 2),
            InodeNo::new(255, (1 << 36) - 1),
            InodeNo::new(255, 1 << 36),
            InodeNo::new(256, 1),
            InodeNo::new(255, 1 << InodeNo::GENERATION_SHIFT),
            InodeNo::new(1023, (63 << InodeNo::GENERATION_SHIFT) | ((1 << 34) - 1)),
            InodeNo::new(0, (1 << InodeNo::GENERATION_SHIFT) | (1 << 34)),
            InodeNo::new(0, 64 << InodeNo::GENERATION_SHIFT),
            InodeNo::new(1024, 1),
            InodeNo::new(0x7fff, (1 << 48) - 1),
        ] {
            for parent in [ROOT, Node(u64::MAX), Node::below(ROOT, InodeNo::new(7, 7), 0)] {
                assert_eq!(Node::below(parent, inode, 0).inode(), inode);
                assert_eq!(Node::below(parent, inode, u64::MAX).inode(), inode);
            }
            assert_eq!(Node::plain(inode).inode(), inode);
        }
        assert_eq!(Node(TAGGED).inode(), InodeNo(0), "from a broken kernel");
    }

    #[test]
    fn directories_of_a_cluster_have_a_node_below_each_parent_too() {
        let moves = Moves::default();
        let later = 3 << InodeNo::GENERATION_SHIFT;
        for directory in [InodeNo::new(200, later + (1 << 30)), InodeNo::new(700, later + 1)] {
            let parents = (2..1002).map(|count| Node::plain(InodeNo::new(200, later + count)));
            let mut nodes: Vec<Node> =
                parents.map(|parent| moves.directory(parent, directory)).collect();
            nodes.sort_unstable();
            nodes.dedup();
            assert!(nodes.len() > 850, "{} different ones", nodes.len());
        }
    }

    #[test]
    fn parents_in_sequence_give_different_nodes() {
        let moves = Moves::default();
        let mut nodes: Vec<Node> =
            (2..10_002).map(|parent| moves.directory(Node(parent), inode(9))).collect();
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes.len(), 10_000);
        let below_both = nodes.iter().map(|parent| moves.directory(*parent, inode(10)));
        let mut below_both: Vec<Node> = below_both.collect();
        below_both.sort_unstable();
        below_both.dedup();
        assert!(
            below_both.len() > 9_800,
            "an entry of a directory with two nodes has two nodes, too"
        );
    }

    #[test]
    fn a_moved_directory_retains_its_node() {
        let mut moves = Moves::default();
        let [a, b, c] = [2, 3, 4].map(Node);
        let node = moves.directory(a, inode(9));
        moves.put(node, b);
        assert_eq!(moves.directory(b, inode(9)), node);
        // Another mount moves it back to `a`, where its node would be the one that is now at `b`.
        let second = moves.directory(a, inode(9));
        assert_ne!(second, node);
        assert_eq!(second.inode(), inode(9));
        // This kernel moves that one to `b` as well: the first is no longer there.
        moves.put(second, b);
        assert_eq!(moves.directory(b, inode(9)), second);
        assert!(![node, second].contains(&moves.directory(a, inode(9))));
        moves.put(second, c);
        assert_eq!(moves.directory(c, inode(9)), second);
        assert!(![node, second].contains(&moves.directory(b, inode(9))));
        assert_eq!(
            moves.directory(a, inode(10)).inode(),
            inode(10),
            "other directories are unchanged"
        );
    }

    #[test]
    fn a_directory_that_is_moved_back_takes_no_memory() {
        let mut moves = Moves::default();
        let [a, b] = [2, 3].map(Node);
        let node = moves.directory(a, inode(9));
        moves.put(node, b);
        assert_eq!(moves.parents.len(), 1);
        moves.put(node, a);
        assert!(moves.parents.is_empty());
        assert_eq!(moves.directory(a, inode(9)), node);
    }

    #[test]
    fn the_number_of_moved_directories_is_limited() {
        let mut moves = Moves::default();
        for count in 1..=MOVED_COUNT_MAX as u64 + 10 {
            let node = moves.directory(Node(2), inode(count));
            moves.put(node, Node(3));
        }
        assert_eq!(moves.parents.len(), MOVED_COUNT_MAX);
    }
}
