//! What becomes of a dump beside copies: checksums that are added, marks, and findings with their paths.
#![allow(clippy::unwrap_used)]

use super::*;
use disk::rows::{DirentRow, Key, ObjectRow};
use disk::{BlockSum, BlockSums, InodeRow};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use store::{FileObjects, RowStore, Shape};
use wire::{FileKind, Name, ShardId, Timestamp, Transno, Wire as _};

const OTHER_BLOCK: u64 = 200;

/// A store's rows, and copies of objects that they are about.
struct Fixture {
    folder: tempfile::TempDir,
    rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

fn sum(bytes: &[u8]) -> BlockSum {
    let covered_bytes = u32::try_from(bytes.len()).unwrap();
    BlockSum { crc32c: wire::crc32c(bytes), covered_bytes }
}

fn name_of(inode: InodeNo) -> ObjectName {
    ObjectName { shard_index: 0, inode, stripe_index: 0 }
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, rows: BTreeMap::new() }
    }

    fn put(&mut self, key: Key, value: Vec<u8>) {
        self.rows.insert(key.bytes().to_vec(), Some(value));
    }

    fn entry(&mut self, dir: InodeNo, name: &str, (inode, kind): (InodeNo, FileKind)) {
        let row = DirentRow { cookie: inode.0, inode, kind, version: Transno(1) };
        self.put(Key::dirent(dir, Name::new(name.as_bytes()).unwrap()), row.to_bytes());
    }

    fn inode(&mut self, inode: InodeNo, kind: FileKind) {
        let new = InodeRow::new(inode, kind, 0o644, Timestamp::default());
        self.put(Key::inode(inode), InodeRow { nlink: 1, ..new }.to_bytes());
    }

    /// A file with recorded contents, and its copy.
    fn file(&mut self, inode: InodeNo, size_bytes: u64, first_sum: BlockSum) -> PathBuf {
        self.inode(inode, FileKind::File);
        let row = ObjectRow { size_bytes, write_time_ns: 0, first_sum, layout: None };
        self.put(Key::object(ShardId::data(0), inode), row.to_bytes());
        let path = self.folder.path().join("copies").join(name_of(inode).path());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![1; usize::try_from(size_bytes.min(2 * BLOCK)).unwrap()]).unwrap();
        path
    }

    /// The dump of a new store with the rows, and that beside the copies.
    fn prove(&self, unread: &[InodeNo]) -> (Vec<Line>, Vec<Line>, Damages) {
        let folder = tempfile::tempdir().unwrap();
        let mut store =
            store::open_or_create(&folder.path().join("store"), &Shape::default()).unwrap();
        let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
        row_store.put_all(&self.rows).unwrap();
        let mut plain = Vec::new();
        crate::dump::dump(&store.view(&row_store).unwrap(), &mut plain).unwrap();
        let [dump, to] = ["dump", "proven"].map(|name| folder.path().join(name));
        fs::write(&dump, &plain).unwrap();
        let objects = ObjectFiles::new(self.folder.path().join("copies"));
        let unread = unread.iter().map(|inode| name_of(*inode)).collect();
        let copies = Copies { dump: &dump, objects, unread: &unread };
        let (line_count, damages) = prove(&copies, &File::create(&to).unwrap()).unwrap();
        let proven = lines_of(&fs::read(&to).unwrap());
        assert_eq!(u64::try_from(proven.len()).unwrap(), line_count);
        (lines_of(&plain), proven, damages)
    }
}

/// All lines but the last one, which fits to them.
fn lines_of(bytes: &[u8]) -> Vec<Line> {
    let mut lines = LineReader::new(bytes);
    std::iter::from_fn(|| lines.next().unwrap()).collect()
}

fn groups_of(lines: &[Line]) -> Vec<Group> {
    lines.iter().filter_map(Line::group).collect()
}

/// The kind, the paths and the words of each finding.
fn reported(damages: &Damages) -> Vec<(Kind, Vec<String>, String)> {
    let text = |path: &Vec<u8>| String::from_utf8(path.clone()).unwrap();
    let findings = damages.findings.iter();
    findings
        .map(|found| (found.kind, found.paths.iter().map(text).collect(), found.what.clone()))
        .collect()
}

#[test]
fn blocks_without_a_checksum_get_one_and_holes_do_not() {
    let mut fixture = Fixture::new();
    // One block that the rows know, one that they do not, and one behind a large hole, cut at the end.
    let path = fixture.file(InodeNo(7), OTHER_BLOCK * BLOCK + 10, sum(&[1; 30]));
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&[2; 20], OTHER_BLOCK * BLOCK).unwrap();
    let group = |group, sums| Group { group, sums, damaged_blocks: Vec::new() };
    let (plain, proven, damages) = fixture.prove(&[]);
    assert_eq!(groups_of(&plain), [group(0, BlockSums(vec![sum(&[1; 30])]))]);
    let first = BlockSums(vec![sum(&[1; 30]), sum(&[1; 65_536])]);
    let mut last = BlockSums::default();
    last.put(8, sum(&[2; 10]));
    assert_eq!(groups_of(&proven), [group(0, first.clone()), group(3, last)]);
    assert_eq!(damages.count(), 0);
    let others = |lines: &[Line]| -> Vec<Line> {
        lines.iter().filter(|line| line.group().is_none()).cloned().collect()
    };
    assert_eq!(others(&plain), others(&proven), "all other lines stay");

    file.write_all_at(&[9], 29).unwrap();
    let (_, proven, damages) = fixture.prove(&[]);
    let found = &groups_of(&proven)[0];
    assert_eq!((found.damaged_blocks.as_slice(), damages.count()), (&[0][..], 1));
    assert_eq!(found.sums, first, "what was recorded stays");
}

#[test]
fn a_group_that_the_copy_lacks_is_damaged_and_those_around_it_stay_in_their_order() {
    let mut fixture = Fixture::new();
    let inode = InodeNo(7);
    let path = fixture.file(inode, OTHER_BLOCK * BLOCK, BlockSum::NONE);
    let recorded = BlockSums(vec![sum(&[3; 65_536])]);
    fixture.put(Key::sums(ShardId::data(0), inode, 2), recorded.to_bytes());
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&[2; 5], 100 * BLOCK).unwrap();
    file.write_all_at(&[2; 5], (OTHER_BLOCK - 1) * BLOCK).unwrap();
    let (_, proven, damages) = fixture.prove(&[]);
    let groups = groups_of(&proven);
    let numbers: Vec<u64> = groups.iter().map(|group| group.group).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    assert_eq!((groups[2].damaged_blocks.as_slice(), &groups[2].sums), (&[128][..], &recorded));
    assert_eq!(damages.count(), 1);
}

#[test]
fn damaged_files_are_named_by_the_entries_of_the_dump() {
    let mut fixture = Fixture::new();
    let [dir, inner, changed, short, missing, unread, lost] =
        [2, 3, 10, 11, 12, 13, 14].map(InodeNo);
    for dir in [dir, inner] {
        fixture.inode(dir, FileKind::Directory);
    }
    fixture.entry(InodeNo::ROOT, "dir", (dir, FileKind::Directory));
    fixture.entry(dir, "inner", (inner, FileKind::Directory));
    for (dir, name, inode) in [
        (InodeNo::ROOT, "again", changed),
        (inner, "changed", changed),
        (dir, "short", short),
        (InodeNo::ROOT, "missing", missing),
        (dir, "unread", unread),
        (InodeNo(99), "lost", lost),
    ] {
        fixture.entry(dir, name, (inode, FileKind::File));
    }
    let [_, cut, removed, unreadable, _] = [changed, short, missing, unread, lost]
        .map(|inode| fixture.file(inode, 100_000, sum(&[2; 30])));
    File::options().write(true).open(cut).unwrap().set_len(10).unwrap();
    fs::remove_file(removed).unwrap();
    fs::remove_file(unreadable).unwrap();
    let (_, proven, damages) = fixture.prove(&[unread]);
    let changed = "1 of 1 blocks do not have their checksums, the first at byte 0";
    let lack = "100000 bytes are recorded, and ";
    let expected = [
        (Kind::ContentsChanged, vec!["/again", "/dir/inner/changed"], changed.to_owned()),
        (
            Kind::ObjectShort,
            vec!["/dir/short"],
            "100000 bytes are recorded, the file has 10".into(),
        ),
        (Kind::ObjectMissing, vec!["/missing"], format!("{lack}there is no file")),
        (
            Kind::ObjectMissing,
            vec!["/dir/unread"],
            format!("{lack}the file gives: {}", io::Error::from(Errno::IO)),
        ),
        (Kind::ContentsChanged, vec!["#0000000000000063/lost"], changed.to_owned()),
    ];
    let expected = expected.map(|(kind, paths, what)| {
        (kind, paths.into_iter().map(str::to_owned).collect::<Vec<_>>(), what)
    });
    assert_eq!(reported(&damages), expected);
    let groups = groups_of(&proven);
    assert!(groups.iter().all(|group| group.damaged_blocks == [0]), "{groups:?}");
    assert_eq!(groups.len(), 5);
}

#[test]
fn lines_that_follow_no_object_or_no_order_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [dump, to] = ["dump", "proven"].map(|name| folder.path().join(name));
    let row = ObjectRow { size_bytes: 10, ..ObjectRow::default() };
    let object = Line::of_object(&FileObjects::single(0, InodeNo(7)), &row, Group::default());
    let sums = |group| {
        let sums = BlockSums(vec![sum(&[1])]);
        Line::of_group(Group { group, sums, damaged_blocks: Vec::new() })
    };
    let place = Line::Nameless { inode: 7 };
    let last_block =
        Line::Sums { first_block: 1 << 63, sums_hex: String::new(), damaged_blocks: vec![] };
    for (case, lines) in [
        ("nothing before", vec![sums(1)]),
        ("another line before", vec![object.clone(), place, sums(1)]),
        ("twice", vec![object.clone(), sums(1), sums(1)]),
        ("back", vec![object.clone(), sums(2), sums(1)]),
        ("a place that no file has", vec![object, last_block]),
    ] {
        let mut written = LineWriter::new(File::create(&dump).unwrap());
        lines.iter().for_each(|line| written.put(line).unwrap());
        written.end().unwrap();
        let objects = ObjectFiles::new(folder.path().join("copies"));
        let copies = Copies { dump: &dump, objects, unread: &HashSet::new() };
        let refused = prove(&copies, &File::create(&to).unwrap());
        assert!(matches!(refused, Err(BackupError::Line(_))), "{case}: {refused:?}");
    }
}
