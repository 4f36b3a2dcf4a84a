//! A store whose server was killed in the middle of a `mkdir` over two shards: the parent's shard has
//! committed its part, the other one has only prepared the new directory.
#![allow(clippy::unwrap_used, missing_docs)]

use check::{Depth, Finding, Kind, Severity, Watch};
use disk::rows::{DirentRow, Key};
use disk::{Change, InodeRow, TxnId};
use std::collections::BTreeMap;
use std::path::Path;
use store::{RowStore, Shape};
use wire::{FileKind, InodeNo, List, Name, ShardId, Timestamp, Transno, Wire, Writer};

struct Quiet;

impl Watch for Quiet {
    fn pass(&mut self, _: &'static str) {}
    fn looked(&mut self, _: u64) {}
}

/// What a check finds in a store whose root names a directory that is prepared, or is not there.
fn findings(path: &Path, is_prepared: bool) -> Vec<Finding> {
    let shape = Shape { meta_shard_count: 2, data_shard_count: 2, ..Shape::default() };
    let mut store = store::open_or_create(path, &shape).unwrap();
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
    let (dir, kind) = (InodeNo::new(1, 2), FileKind::Directory);
    let mut rows = BTreeMap::new();
    let name = Name::new(b"new").unwrap();
    let entry = DirentRow { cookie: 1, inode: dir, kind, version: Transno(1) };
    rows.insert(Key::dirent(InodeNo::ROOT, name).bytes().to_vec(), Some(entry.to_bytes()));
    let mut listing = Vec::new();
    entry.encode_listing(name, &mut listing);
    rows.insert(Key::listing(InodeNo::ROOT, 1).bytes().to_vec(), Some(listing));
    let view = store.view(&row_store).unwrap();
    let root = view.reader().get(&Key::inode(InodeNo::ROOT)).unwrap().unwrap();
    let root = InodeRow::decode_all(root).unwrap();
    let root = InodeRow { nlink: 3, entry_count: 1, next_cookie: 2, ..root };
    rows.insert(Key::inode(InodeNo::ROOT).bytes().to_vec(), Some(root.to_bytes()));
    if is_prepared {
        let row = InodeRow::new(dir, kind, 0o755, Timestamp::from_ns(1));
        let row = InodeRow { nlink: 2, parent: InodeNo::ROOT, ..row };
        let txn = TxnId { coordinator: InodeNo::ROOT.shard(), number: 1 };
        let mut part = Transno(1).to_bytes();
        Change::Inode { row }.encode(&mut Writer::new(&mut part));
        rows.insert(Key::prepared(dir.shard(), txn).bytes().to_vec(), Some(part));
        let shard = dir.shard().to_bytes();
        let shards: List<'_, ShardId> = List::new(1, &shard);
        rows.insert(Key::decided(txn).bytes().to_vec(), Some(shards.to_bytes()));
    }
    drop(view);
    row_store.put_all(&rows).unwrap();
    drop((row_store, store));
    let view = store::View::open(path).unwrap();
    check::check(&view, Depth::Contents, &mut Quiet).unwrap().findings
}

#[test]
fn a_directory_that_is_being_made_counts_as_a_link_of_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let found = findings(&folder.path().join("store"), true);
    let kinds: Vec<_> = found.iter().map(|finding| (finding.kind, finding.severity)).collect();
    let of_txn = [Kind::NameWithoutInode, Kind::TxnPending].map(|kind| (kind, Severity::Info));
    assert_eq!(kinds, of_txn, "{found:?}");
}

#[test]
fn a_directory_that_nothing_makes_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let found = findings(&folder.path().join("store"), false);
    let is_link_count = |finding: &Finding| finding.kind == Kind::LinkCount;
    assert!(found.iter().any(is_link_count), "{found:?}");
    assert!(found.iter().all(|finding| finding.severity > Severity::Info), "{found:?}");
}
