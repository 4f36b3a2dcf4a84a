//! Invariants of every tree, and of an idle server.

use super::mount::Mount;
use super::start;
use crate::test_server::TestServer;
use alloc::collections::BTreeMap;
use alloc::vec;
use wire::{FileKind, InodeNo};

/// Checks the tree and that nothing is left over; then again after a restart.
pub(super) fn check(server: &mut TestServer, mount: &mut Mount) {
    for _ in 0..2 {
        mount.settle(server);
        check_tree(server, mount);
        check_idle(server);
        server.crash();
        start(server);
        mount.connect(server);
    }
}

/// Nothing is locked, prepared, decided or waiting.
fn check_idle(server: &TestServer) {
    for index in 0..usize::from(server.lane_count()) {
        let lane = server.lane(index);
        assert!(lane.metas.iter().all(meta::Shard::is_unlocked), "no lock is left");
        assert!(lane.txns.is_at_rest(), "no change is left: {:?}", lane.txns);
    }
}

/// Every entry names an inode, every link count is right, every directory is reachable from the
/// root by its one name, and there are no other inodes.
fn check_tree(server: &mut TestServer, mount: &mut Mount) {
    let mut names: BTreeMap<InodeNo, u32> = BTreeMap::new();
    let mut dirs = vec![InodeNo::ROOT];
    let mut inode_count = 1;
    while let Some(dir) = dirs.pop() {
        let attr = mount.attr(server, dir).unwrap();
        assert_eq!(attr.kind, FileKind::Directory);
        let (_, entries) = mount.listing(server, dir).unwrap();
        let mut nlink = 2;
        for (text, inode) in entries {
            let found = mount.attr(server, inode);
            let found = found.unwrap_or_else(|| panic!("{text} in {dir} names {inode}, no inode"));
            let count = names.entry(inode).or_default();
            *count += 1;
            inode_count += u64::from(*count == 1);
            if found.kind == FileKind::Directory {
                assert_eq!(*count, 1, "{inode} has one name");
                nlink += 1;
                let (parent, _) = mount.listing(server, inode).unwrap();
                assert_eq!(parent, dir, "parent of {inode}");
                dirs.push(inode);
            }
        }
        assert_eq!(attr.nlink, nlink, "links of {dir}");
    }
    for (inode, count) in names {
        let attr = mount.attr(server, inode).unwrap();
        if attr.kind != FileKind::Directory {
            assert_eq!(attr.nlink, count, "links of {inode}");
        }
    }
    let lanes = 0..usize::from(server.lane_count());
    let known: u64 = lanes.map(|index| server.lane(index).inode_count()).sum();
    assert_eq!(known, inode_count, "no inode is left over");
}
