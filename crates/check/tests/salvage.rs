//! A store whose file of rows is damaged anywhere is repaired: it opens, has every row that is not said to
//! be lost, and nothing is wrong with the rest.
#![allow(clippy::unwrap_used, missing_docs)]

use check::{Depth, Finding, Kind, Repaired, Step, Watch};
use disk::InodeRow;
use disk::rows::{DirentRow, Key, Range, ShardRow};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use store::{RowStore, SalvageStep, ScanControl, Shape, StoreFault};
use wire::{FileKind, InodeNo, Name, Timestamp, Transno, Wire};

const DIR_COUNT: u64 = 5;
const FILE_COUNT: u64 = 600;
const PAGE_BYTES: usize = 4096;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

struct Quiet;

impl Watch for Quiet {
    fn pass(&mut self, _: &'static str) {}
    fn looked(&mut self, _: u64) {}
}

struct Prng(u64);

impl Prng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

/// A store whose metadata has one shard: directories with files that have no contents, some of them
/// with a long attribute.
fn made(folder: &Path) -> PathBuf {
    let path = folder.join("good");
    let shape = Shape { meta_shard_count: 1, data_shard_count: 2, ..Shape::default() };
    let mut store = store::open_or_create(&path, &shape).unwrap();
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
    let mut rows = BTreeMap::new();
    let now = Timestamp::from_ns(1);
    let link = |rows: &mut BTreeMap<_, _>, (dir, cookie), text: &str, (inode, kind)| {
        let row = DirentRow { cookie, inode, kind, version: Transno(1) };
        rows.insert(Key::dirent(dir, name(text)).bytes().to_vec(), Some(row.to_bytes()));
        let mut listing = Vec::new();
        row.encode_listing(name(text), &mut listing);
        rows.insert(Key::listing(dir, cookie).bytes().to_vec(), Some(listing));
    };
    let put = |rows: &mut BTreeMap<_, _>, row: InodeRow| {
        rows.insert(Key::inode(row.inode).bytes().to_vec(), Some(row.to_bytes()));
    };
    let files_each = FILE_COUNT / DIR_COUNT;
    for dir_no in 0..DIR_COUNT {
        let dir = InodeNo::new(0, 2 + dir_no);
        let kind = FileKind::Directory;
        link(&mut rows, (InodeNo::ROOT, 1 + dir_no), &format!("dir{dir_no}"), (dir, kind));
        let new = InodeRow::new(dir, kind, 0o755, now);
        let (nlink, entry_count, next_cookie) = (2, files_each, files_each + 1);
        put(&mut rows, InodeRow { nlink, entry_count, next_cookie, parent: InodeNo::ROOT, ..new });
        for file_no in 0..files_each {
            let inode = InodeNo::new(0, 2 + DIR_COUNT + dir_no * files_each + file_no);
            let kind = FileKind::File;
            link(&mut rows, (dir, 1 + file_no), &format!("file{file_no}"), (inode, kind));
            put(&mut rows, InodeRow { parent: dir, ..InodeRow::new(inode, kind, 0o644, now) });
            if file_no % 40 == 0 {
                let key = Key::xattr(inode, b"user.long").unwrap();
                rows.insert(key.bytes().to_vec(), Some(vec![7; 6000]));
            }
        }
    }
    let view = store.view(&row_store).unwrap();
    let root = view.reader().get(&Key::inode(InodeNo::ROOT)).unwrap().unwrap();
    let root = InodeRow::decode_all(root).unwrap();
    let (entry_count, nlink) = (DIR_COUNT, 2 + u32::try_from(DIR_COUNT).unwrap());
    put(&mut rows, InodeRow { nlink, entry_count, next_cookie: DIR_COUNT + 1, ..root });
    let inode_count = 1 + DIR_COUNT + FILE_COUNT;
    let row = ShardRow { next_count: inode_count + 2, inode_count, ..ShardRow::default() };
    rows.insert(Key::shard(InodeNo::ROOT.shard()).bytes().to_vec(), Some(row.to_bytes()));
    drop(view);
    // In two writes, so that pages are free.
    let later = rows.split_off(Key::listing(InodeNo::new(0, 4), 1).bytes());
    row_store.put_all(&rows).unwrap();
    row_store.put_all(&later).unwrap();
    path
}

fn copy(from: &Path, to: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).unwrap();
    }
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), &to).unwrap();
        }
    }
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
}

/// All rows but those that every opening changes.
fn rows_of(path: &Path) -> Rows {
    let mut store = store::open(path).unwrap();
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
    store.redo(&row_store).unwrap();
    let mut rows = Rows::new();
    let view = store.view(&row_store).unwrap();
    let scanned = view.reader().scan(&Range::all(), |key, value| {
        rows.insert(key.to_vec(), value.to_vec());
        Ok(ScanControl::Continue)
    });
    scanned.unwrap();
    rows.remove(Key::store().bytes());
    rows
}

fn repair(path: &Path) -> Repaired {
    check::repair(path, &mut Quiet, |_| Ok(())).unwrap()
}

fn has(findings: &[Finding], kind: Kind) -> bool {
    findings.iter().any(|finding| finding.kind == kind)
}

fn file_of(path: &Path) -> PathBuf {
    path.join("rows/data.mdb")
}

/// Repairs a store with this file of rows; how many rows are missing from it then.
#[track_caller]
fn repaired(bad: &Path, bytes: &[u8], before: &Rows, case: &str) -> usize {
    let file = file_of(bad);
    fs::write(&file, bytes).unwrap();
    let Some(damaged) = store::damaged_rows(bad).unwrap() else {
        assert!(rows_of(bad) == *before, "{case}: it is sound and has other rows");
        return 0;
    };
    let refused = store::open(bad).unwrap().open_rows(RowStore::ROWS_BYTES_MAX).unwrap_err();
    let said = refused.to_string();
    assert!(said.contains(&format!("lanefs check {} --repair", bad.display())), "{case}: {said}");
    let findings = check::rows_findings(&damaged);
    assert_eq!(findings[0].kind, Kind::RowsDamage, "{case}");
    let Repaired { mended, left, .. } = repair(bad);
    assert!(has(&mended, Kind::RowsDamage), "{case}: {mended:?}");
    assert_eq!(findings[1..], left.findings[..findings.len() - 1], "{case}: the same is lost");
    let beyond = &left.findings[findings.len() - 1..];
    assert!(beyond.is_empty(), "{case}: {beyond:?}");
    let quarantine = fs::read_dir(bad.join("quarantine")).unwrap();
    let aside: Vec<_> = quarantine.map(|entry| entry.unwrap().path()).collect();
    let aside = aside.iter().filter(|path| path.extension().is_some_and(|name| name == "mdb"));
    let aside: Vec<Vec<u8>> = aside.map(|path| fs::read(path).unwrap()).collect();
    assert!(aside == [bytes], "{case}: the damaged file is unchanged");

    // It opens, and nothing is wrong with it.
    let rows = rows_of(bad);
    let view = store::View::open(bad).unwrap();
    let outcome = check::check(&view, Depth::Contents, &mut Quiet).unwrap();
    assert_eq!(outcome.findings, [], "{case}");
    drop(view);
    let is_lost = |key: &[u8]| {
        damaged.lost.iter().any(|lost| {
            lost.from.as_deref().is_none_or(|from| from <= key)
                && lost.until.as_deref().is_none_or(|until| key < until)
        })
    };
    if damaged.lost.is_empty() && damaged.undated_count == 0 && !damaged.is_previous_state {
        assert!(rows == *before, "{case}: nothing is said to be lost");
    }
    if damaged.lost.iter().all(|lost| lost.row_count.is_some()) {
        // What hangs on a lost inode goes with it, and a mend makes rows anew: of all others none is.
        let is_inode = |key: &&Vec<u8>| key[0] == 1;
        let missing = before.keys().filter(is_inode).filter(|key| !rows.contains_key(*key));
        let missing: Vec<&Vec<u8>> = missing.filter(|key| !is_lost(key)).collect();
        let of_lost = |key: &Vec<u8>| is_lost(Key::inode(inode_of(key)).bytes());
        assert!(missing.into_iter().all(of_lost), "{case}");
    }
    fs::remove_dir_all(bad.join("quarantine")).unwrap();
    before.keys().filter(|key| !rows.contains_key(*key)).count()
}

fn inode_of(key: &[u8]) -> InodeNo {
    InodeNo(u64::from_be_bytes(*key[1..].first_chunk().unwrap()))
}

#[test]
fn a_store_with_a_flipped_bit_in_its_rows_is_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let good = made(folder.path());
    let view = store::View::open(&good).unwrap();
    assert_eq!(check::check(&view, Depth::Contents, &mut Quiet).unwrap().findings, []);
    drop(view);
    let (bytes, before) = (fs::read(file_of(&good)).unwrap(), rows_of(&good));
    let bad = folder.path().join("bad");
    let mut prng = Prng(3);
    let (mut whole_count, mut partly_count) = (0, 0);
    for step in 0..60 {
        copy(&good, &bad);
        let page_count = bytes.len() / PAGE_BYTES;
        let at = match step % 4 {
            0 => prng.below(bytes.len()),
            1 => prng.below(page_count) * PAGE_BYTES + prng.below(24),
            2 => prng.below(2) * PAGE_BYTES + prng.below(160),
            _ => prng.below(page_count) * PAGE_BYTES + PAGE_BYTES - 1 - prng.below(300),
        };
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << prng.below(8);
        match repaired(&bad, &flipped, &before, &format!("byte {at}")) {
            0 => whole_count += 1,
            _ => partly_count += 1,
        }
    }
    assert!(whole_count > 20 && partly_count > 5, "{whole_count}, {partly_count}");
}

#[test]
fn a_store_with_overwritten_pages_or_a_cut_in_its_rows_is_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let good = made(folder.path());
    let (bytes, before) = (fs::read(file_of(&good)).unwrap(), rows_of(&good));
    let bad = folder.path().join("bad");
    let mut prng = Prng(4);
    let page_count = bytes.len() / PAGE_BYTES;
    for step in 0..24 {
        copy(&good, &bad);
        let mut changed = bytes.clone();
        let case = if step % 2 == 0 {
            let first = if step == 0 { 0 } else { prng.below(page_count - 2) };
            changed[first * PAGE_BYTES..(first + 2) * PAGE_BYTES].fill(0xA5);
            format!("pages from {first}")
        } else {
            changed.truncate(bytes.len() / 2 + prng.below(bytes.len() / 2));
            format!("{} bytes", changed.len())
        };
        repaired(&bad, &changed, &before, &case);
    }
}

#[test]
fn a_file_of_rows_without_a_readable_page_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let good = made(folder.path());
    for bytes in [Vec::new(), vec![0; 100_000]] {
        fs::write(file_of(&good), &bytes).unwrap();
        let refused = check::repair(&good, &mut Quiet, |_| Ok(())).unwrap_err();
        assert!(matches!(refused.fault(), StoreFault::RowsUnreadable { .. }), "{refused}");
        assert!(refused.to_string().contains("`lanefs restore`"), "{refused}");
        assert_eq!(fs::read(file_of(&good)).unwrap(), bytes);
        assert!(!good.join("quarantine").exists());
        let damaged = store::damaged_rows(&good).unwrap().unwrap();
        assert_eq!(check::rows_findings(&damaged)[0].kind, Kind::StoreDamage);
    }
}

#[test]
fn a_salvage_that_ends_at_any_step_leaves_the_damaged_rows_or_the_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let good = made(folder.path());
    let mut bytes = fs::read(file_of(&good)).unwrap();
    let before = rows_of(&good);
    // The magic number of the first meta page: nothing is lost.
    bytes[16] ^= 1;
    let bad = folder.path().join("bad");
    for end in [SalvageStep::Written, SalvageStep::Quarantined, SalvageStep::Replaced] {
        copy(&good, &bad);
        fs::write(file_of(&bad), &bytes).unwrap();
        let ended = check::repair(&bad, &mut Quiet, |step| {
            let is_end = step == Step::Salvaged(end);
            if is_end { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
        });
        assert!(ended.is_err(), "{end:?}");
        let is_damaged = store::damaged_rows(&bad).unwrap().is_some();
        assert_eq!(is_damaged, end != SalvageStep::Replaced, "{end:?}");
        if is_damaged {
            assert!(fs::read(file_of(&bad)).unwrap() == bytes, "{end:?}");
        }
        let Repaired { left, .. } = repair(&bad);
        assert_eq!(left.findings, [], "{end:?}");
        assert!(rows_of(&bad) == before, "{end:?}");
        assert!(!bad.join("rows/salvaged").exists(), "{end:?}");
    }
}
