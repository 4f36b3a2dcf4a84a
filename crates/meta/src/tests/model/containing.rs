//! The known directories of an inode match the model.

use super::Node;
use crate::ParentLink;
use crate::tests::Harness;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{FileKind, InodeNo};

/// A known directory of an inode contains that inode.
pub(super) fn check(
    harness: &mut Harness,
    nodes: &BTreeMap<InodeNo, Node>,
    inode: InodeNo,
    node: &Node,
) {
    let shard = &*harness.at(inode.shard()).0;
    let ways: Vec<InodeNo> = shard.containing_directories(inode).collect();
    if node.kind == FileKind::Directory {
        assert_eq!(ways, [inode]);
        let above =
            if node.parent == inode { ParentLink::Top } else { ParentLink::Parent(node.parent) };
        assert_eq!(shard.above(inode), above, "{inode}");
        return;
    }
    for way in ways.into_iter().filter(|_| node.nlink > 0) {
        let entries = nodes.get(&way).map(|dir| &dir.entries);
        let named = entries.is_some_and(|entries| entries.values().any(|named| *named == inode));
        assert!(named, "{inode} is led up to {way}, where it has no name");
    }
}
