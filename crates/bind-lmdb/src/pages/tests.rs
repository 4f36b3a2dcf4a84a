//! Files as LMDB leaves them are sound; files that are damaged are found to be, or harmless.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use super::*;
use crate::{FILE, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::path::Path;

const BYTES_MAX: usize = 1 << 30;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn checked(folder: &Path) -> io::Result<Checked> {
    check(&File::open(folder.join(FILE))?)
}

fn row(dice: &mut Dice, key_count: u64) -> (Vec<u8>, Vec<u8>) {
    let number = dice.below(key_count);
    let mut key = vec![1 + (number % 3) as u8];
    key.extend_from_slice(&number.to_be_bytes());
    key.resize(key.len() + (number % 90) as usize, b'n');
    // Some have pages of their own.
    let value_bytes = if dice.below(40) == 0 { dice.below(20_000) } else { dice.below(150) };
    (key, vec![dice.below(256) as u8; value_bytes as usize])
}

/// Writes rows and takes rows away, some transactions long.
fn work(table: &Table, model: &mut Model, dice: &mut Dice, key_count: u64) {
    for _ in 0..1 + dice.below(4) {
        let mut rows = BTreeMap::new();
        for _ in 0..dice.below(key_count / 2) {
            let (key, value) = row(dice, key_count);
            let value = (dice.below(3) > 0).then_some(value);
            rows.insert(key, value);
        }
        table.write(rows.iter().map(|(key, value)| (&key[..], value.as_deref()))).unwrap();
        for (key, value) in rows {
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
        }
    }
}

fn new(folder: &Path, dice: &mut Dice, key_count: u64, round_count: u64) -> Model {
    let mut model = Model::from([(vec![9], vec![7])]);
    Table::create(folder, [(&[9][..], Some(&[7][..]))].into_iter()).unwrap();
    for _ in 0..round_count {
        let table = Table::open(folder, BYTES_MAX).unwrap();
        work(&table, &mut model, dice, key_count);
        drop(table);
        assert_eq!(checked(folder).unwrap().row_count, model.len() as u64);
    }
    model
}

/// All rows, if every one can be read.
fn rows(folder: &Path) -> io::Result<Model> {
    let table = Table::open(folder, BYTES_MAX)?;
    let snapshot = table.snapshot()?;
    let all = snapshot.range(&[0], &[255])?;
    all.map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

#[test]
fn a_table_that_was_written_is_sound() {
    for (seed, key_count) in [(1, 30), (2, 300), (3, 3000), (4, 9000), (5, 300)] {
        let folder = tempfile::tempdir().unwrap();
        let model = new(folder.path(), &mut Dice(seed), key_count, 12);
        assert!(rows(folder.path()).unwrap() == model, "seed {seed}");
    }
}

#[test]
fn a_table_that_a_snapshot_has_held_is_sound() {
    let folder = tempfile::tempdir().unwrap();
    let mut dice = Dice(6);
    let mut model = new(folder.path(), &mut dice, 300, 2);
    let table = Table::open(folder.path(), BYTES_MAX).unwrap();
    for _ in 0..20 {
        let held = table.snapshot().unwrap();
        work(&table, &mut model, &mut dice, 300);
        drop(held);
        work(&table, &mut model, &mut dice, 300);
    }
    drop(table);
    assert_eq!(checked(folder.path()).unwrap().row_count, model.len() as u64);
}

/// A copy with a byte changed is found out, or has all its rows and takes new ones.
#[test]
fn a_flipped_bit_is_found_or_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let mut dice = Dice(7);
    let model = new(folder.path(), &mut dice, 400, 6);
    let good = fs::read(folder.path().join(FILE)).unwrap();
    let (mut found_count, mut harmless_count) = (0, 0);
    for step in 0..1600_u64 {
        // Heads of pages and what stands in meta pages come as often as all the rest.
        let page_count = good.len() as u64 / PAGE_BYTES as u64;
        let at = match step % 4 {
            0 => dice.below(good.len() as u64),
            1 => dice.below(page_count) * PAGE_BYTES as u64 + dice.below(24),
            2 => dice.below(2) * PAGE_BYTES as u64 + dice.below(160),
            _ => dice.below(page_count) * PAGE_BYTES as u64 + 4096 - 1 - dice.below(300),
        };
        let at = usize::try_from(at).unwrap();
        let place = tempfile::tempdir().unwrap();
        let mut bad = good.clone();
        bad[at] ^= 1 << dice.below(8);
        fs::write(place.path().join(FILE), &bad).unwrap();
        match rows(place.path()) {
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::InvalidData, "byte {at}: {error}");
                found_count += 1;
            }
            Ok(rows) => {
                assert!(rows == model, "byte {at}");
                harmless_count += 1;
                if harmless_count % 8 > 0 {
                    continue;
                }
                let table = Table::open(place.path(), BYTES_MAX).unwrap();
                let mut rows = model.clone();
                work(&table, &mut rows, &mut dice, 400);
                drop(table);
                assert_eq!(
                    checked(place.path()).unwrap().row_count,
                    rows.len() as u64,
                    "byte {at}"
                );
            }
        }
    }
    assert!(found_count > 400 && harmless_count > 100, "{found_count}, {harmless_count}");
}

#[test]
fn a_file_that_is_cut_short_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut dice = Dice(8);
    let model = new(folder.path(), &mut dice, 400, 6);
    let good = fs::read(folder.path().join(FILE)).unwrap();
    let mut refused_count = 0;
    for step in 0..200 {
        let file_bytes = dice.below(good.len() as u64);
        fs::write(folder.path().join(FILE), &good).unwrap();
        let file = OpenOptions::new().write(true).open(folder.path().join(FILE)).unwrap();
        file.set_len(file_bytes).unwrap();
        match rows(folder.path()) {
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{step}: {error}");
                refused_count += 1;
            }
            // Only free pages were cut off.
            Ok(rows) => assert!(rows == model, "{step}: {file_bytes} bytes"),
        }
    }
    assert!(refused_count > 150, "{refused_count}");
}

/// The pages that each row lies on, with all that lead to none but it: its leaf and its value's own.
fn places(file: &File) -> BTreeMap<Vec<u8>, Vec<u64>> {
    fn add(file: &File, (page_no, depth): (u64, u16), to: &mut BTreeMap<Vec<u8>, Vec<u64>>) {
        let page = read(file, page_no).unwrap();
        let flags = if depth == 1 { LEAF } else { BRANCH };
        for node in nodes(&page, flags).unwrap() {
            if depth > 1 {
                add(file, (node.child, depth - 1), to);
                continue;
            }
            let mut pages = vec![page_no];
            if node.flags == BIG {
                let count = (HEAD_BYTES + node.value_bytes).div_ceil(PAGE_BYTES) as u64;
                pages.extend((0..count).map(|index| number(node.rest) + index));
            }
            to.insert(node.key.to_vec(), pages);
        }
    }
    let (_, meta) = metas(file).unwrap();
    let mut found = BTreeMap::new();
    add(file, (meta.rows.root, meta.rows.depth), &mut found);
    found.remove(&crate::WRITE_NO_KEY[..]);
    found
}

/// What is read of a damaged file: rows of the newest state, and those that may be older.
struct Read {
    newest: Model,
    perhaps: BTreeSet<(Vec<u8>, Vec<u8>)>,
    salvaged: Salvaged,
}

fn salvage_all(path: &Path) -> Read {
    let (mut newest, mut perhaps) = (Model::new(), BTreeSet::new());
    let mut feed = |key: &[u8], value: &[u8], age| {
        match age {
            Age::Newest => {
                let double = newest.insert(key.to_vec(), value.to_vec());
                assert!(double.is_none(), "a row is given once");
            }
            Age::Unknown => {
                perhaps.insert((key.to_vec(), value.to_vec()));
            }
        }
        Ok(())
    };
    let salvaged = salvage(&File::open(path).unwrap(), &mut feed).unwrap();
    Read { newest, perhaps, salvaged }
}

/// Every row that does not lie on a damaged page was read, with the value that was written last, and
/// what was not read is said to be lost.
#[track_caller]
fn assert_rest_is_read(
    read: &Read,
    model: &Model,
    places: &BTreeMap<Vec<u8>, Vec<u64>>,
    is_damaged: impl Fn(u64) -> bool,
    case: &str,
) {
    for (key, value) in &read.newest {
        assert!(model.get(key) == Some(value), "{case}: {key:?} has another value");
    }
    let mut lost_count = 0;
    for (key, value) in model {
        if read.newest.contains_key(key) {
            continue;
        }
        if read.perhaps.contains(&(key.clone(), value.clone())) {
            continue;
        }
        lost_count += 1;
        assert!(places[key].iter().any(|page_no| is_damaged(*page_no)), "{case}: {key:?}");
        let covers = |lost: &Lost| {
            lost.from.as_ref().is_none_or(|from| from <= key)
                && lost.until.as_ref().is_none_or(|until| key < until)
        };
        assert!(read.salvaged.lost.iter().any(covers), "{case}: {key:?} is not said to be lost");
    }
    if lost_count == 0 && read.perhaps.is_empty() {
        assert_eq!(read.salvaged.lost, [], "{case}");
    }
    if let (true, Some(said)) = (read.perhaps.is_empty(), read.salvaged.said_row_count)
        && !read.salvaged.lost.is_empty()
    {
        assert_eq!(said - read.salvaged.row_count, lost_count, "{case}");
    }
}

#[test]
fn of_a_file_with_a_flipped_bit_all_rows_but_those_of_its_page_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    let (mut whole_count, mut partly_count) = (0, 0);
    for seed in [21, 22, 23] {
        let mut dice = Dice(seed);
        let model = new(folder.path(), &mut dice, 900, 6);
        let good = fs::read(&path).unwrap();
        let places = places(&File::open(&path).unwrap());
        assert_eq!(places.len(), model.len());
        let page_count = good.len() as u64 / PAGE_BYTES as u64;
        for step in 0..240_u64 {
            let at = match step % 4 {
                0 => dice.below(good.len() as u64),
                1 => dice.below(page_count) * PAGE_BYTES as u64 + dice.below(24),
                2 => dice.below(2) * PAGE_BYTES as u64 + dice.below(160),
                _ => dice.below(page_count) * PAGE_BYTES as u64 + 4096 - 1 - dice.below(300),
            };
            let mut bad = good.clone();
            bad[usize::try_from(at).unwrap()] ^= 1 << dice.below(8);
            fs::write(&path, &bad).unwrap();
            let read = salvage_all(&path);
            let case = format!("seed {seed}, byte {at}: {:?}", read.salvaged);
            assert!(read.perhaps.is_empty(), "{case}");
            let page_no = at / PAGE_BYTES as u64;
            assert_rest_is_read(&read, &model, &places, |no| no == page_no, &case);
            *(if read.newest.len() == model.len() {
                &mut whole_count
            } else {
                &mut partly_count
            }) += 1;
        }
        fs::remove_file(&path).unwrap();
    }
    assert!(whole_count > 200 && partly_count > 100, "{whole_count}, {partly_count}");
}

#[test]
fn of_a_file_with_overwritten_pages_all_rows_of_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    let mut dice = Dice(31);
    let model = new(folder.path(), &mut dice, 3000, 8);
    let good = fs::read(&path).unwrap();
    let places = places(&File::open(&path).unwrap());
    let page_count = good.len() as u64 / PAGE_BYTES as u64;
    for step in 0..120_u64 {
        // The first pages are the meta pages.
        let first = if step % 3 == 0 { 0 } else { dice.below(page_count) };
        let count = 1 + dice.below(4);
        let mut bad = good.clone();
        let start = usize::try_from(first).unwrap() * PAGE_BYTES;
        let end = (start + usize::try_from(count).unwrap() * PAGE_BYTES).min(bad.len());
        bad[start..end].fill(if step % 2 == 0 { 0 } else { 0xA5 });
        fs::write(&path, &bad).unwrap();
        let read = salvage_all(&path);
        let case = format!("{count} pages from {first}: {:?}", read.salvaged);
        if read.salvaged.is_before && count > 2 {
            // Without both meta pages and the newest first leaf, the state before is all there is.
            assert!(first < META_COUNT, "{case}");
            continue;
        }
        let is_damaged = |no| (first..first + count).contains(&no);
        assert_rest_is_read(&read, &model, &places, is_damaged, &case);
    }
}

#[test]
fn of_a_file_that_was_cut_short_all_rows_before_the_cut_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    let mut dice = Dice(41);
    let model = new(folder.path(), &mut dice, 3000, 8);
    let good = fs::read(&path).unwrap();
    let places = places(&File::open(&path).unwrap());
    let mut read_count = 0;
    for step in 0..60 {
        let file_bytes = dice.below(good.len() as u64);
        fs::write(&path, &good[..usize::try_from(file_bytes).unwrap()]).unwrap();
        let read = salvage_all(&path);
        read_count += u64::from(read.newest.len() + read.perhaps.len() > 0);
        let case = format!("{step}: {file_bytes} bytes: {:?}", read.salvaged);
        let end = file_bytes / PAGE_BYTES as u64;
        assert_rest_is_read(&read, &model, &places, |no| no >= end, &case);
    }
    assert!(read_count > 45, "{read_count}");
}

#[test]
fn a_sound_file_gives_all_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    for (seed, key_count) in [(51, 4), (52, 60), (53, 5000)] {
        let model = new(folder.path(), &mut Dice(seed), key_count, 5);
        let read = salvage_all(&folder.path().join(FILE));
        assert!(read.newest == model && read.salvaged.lost.is_empty(), "seed {seed}");
        assert_eq!(read.salvaged.said_row_count, Some(model.len() as u64));
        fs::remove_file(folder.path().join(FILE)).unwrap();
    }
}
