//! Files that LMDB wrote are intact; damage in a file is detected, or harmless.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use super::*;
use crate::{FILE, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::path::Path;

const BYTES_MAX: usize = 1 << 30;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn checked(folder: &Path) -> io::Result<Checked> {
    check(&File::open(folder.join(FILE))?)
}

fn row(rng: &mut fastrand::Rng, key_count: u64) -> (Vec<u8>, Vec<u8>) {
    let number = rng.u64(..key_count);
    let mut key = vec![1 + (number % 3) as u8];
    key.extend_from_slice(&number.to_be_bytes());
    key.resize(key.len() + (number % 90) as usize, b'n');
    // Some have overflow pages.
    let value_bytes = if rng.u64(..40) == 0 { rng.u64(..20_000) } else { rng.u64(..150) };
    (key, vec![rng.u64(..256) as u8; value_bytes as usize])
}

/// Writes and deletes rows in some transactions.
fn work(table: &Table, model: &mut Model, rng: &mut fastrand::Rng, key_count: u64) {
    for _ in 0..1 + rng.u64(..4) {
        let mut rows = BTreeMap::new();
        for _ in 0..rng.u64(..key_count / 2) {
            let (key, value) = row(rng, key_count);
            let value = (rng.u64(..3) > 0).then_some(value);
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

fn new(folder: &Path, rng: &mut fastrand::Rng, key_count: u64, round_count: u64) -> Model {
    let mut model = Model::from([(vec![9], vec![7])]);
    Table::create(folder, [(&[9][..], Some(&[7][..]))].into_iter()).unwrap();
    for _ in 0..round_count {
        let table = Table::open(folder, BYTES_MAX).unwrap();
        work(&table, &mut model, rng, key_count);
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
fn a_written_table_is_intact() {
    for (seed, key_count) in [(1, 30), (2, 300), (3, 3000), (4, 9000), (5, 300)] {
        let folder = tempfile::tempdir().unwrap();
        let model = new(folder.path(), &mut fastrand::Rng::with_seed(seed), key_count, 12);
        assert!(rows(folder.path()).unwrap() == model, "seed {seed}");
    }
}

#[test]
fn a_table_with_a_long_snapshot_is_intact() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = fastrand::Rng::with_seed(6);
    let mut model = new(folder.path(), &mut rng, 300, 2);
    let table = Table::open(folder.path(), BYTES_MAX).unwrap();
    for _ in 0..20 {
        let held = table.snapshot().unwrap();
        work(&table, &mut model, &mut rng, 300);
        drop(held);
        work(&table, &mut model, &mut rng, 300);
    }
    drop(table);
    assert_eq!(checked(folder.path()).unwrap().row_count, model.len() as u64);
}

/// A copy with a changed byte is detected as damaged, or has all its rows and accepts new ones.
#[test]
fn a_flipped_bit_is_detected_or_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = fastrand::Rng::with_seed(7);
    let model = new(folder.path(), &mut rng, 400, 6);
    let good = fs::read(folder.path().join(FILE)).unwrap();
    let (mut found_count, mut harmless_count) = (0, 0);
    for step in 0..1600_u64 {
        // Page heads and meta pages are hit as often as all the rest.
        let page_count = good.len() as u64 / PAGE_BYTES as u64;
        let at = match step % 4 {
            0 => rng.u64(..good.len() as u64),
            1 => rng.u64(..page_count) * PAGE_BYTES as u64 + rng.u64(..24),
            2 => rng.u64(..2) * PAGE_BYTES as u64 + rng.u64(..160),
            _ => rng.u64(..page_count) * PAGE_BYTES as u64 + 4096 - 1 - rng.u64(..300),
        };
        let at = usize::try_from(at).unwrap();
        let place = tempfile::tempdir().unwrap();
        let mut bad = good.clone();
        bad[at] ^= 1 << rng.u64(..8);
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
                work(&table, &mut rows, &mut rng, 400);
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
fn a_truncated_file_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = fastrand::Rng::with_seed(8);
    let model = new(folder.path(), &mut rng, 400, 6);
    let good = fs::read(folder.path().join(FILE)).unwrap();
    let mut refused_count = 0;
    for step in 0..200 {
        let file_bytes = rng.u64(..good.len() as u64);
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

/// The pages of each row, with all pages that lead only to it: its leaf and its overflow pages.
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
    found.remove(&super::WRITE_NO_KEY[..]);
    found
}

/// The rows read from a damaged file: of the newest state, and of unknown age.
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
                assert!(double.is_none(), "each row is returned once");
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

/// Every row that is not on a damaged page was read, with its last value, and the other rows are
/// reported as lost.
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
        assert!(read.salvaged.lost.iter().any(covers), "{case}: {key:?} is not reported as lost");
    }
    if lost_count == 0 && read.perhaps.is_empty() {
        assert_eq!(read.salvaged.lost, [], "{case}");
    }
    if let (true, Some(recorded)) = (read.perhaps.is_empty(), read.salvaged.recorded_row_count)
        && !read.salvaged.lost.is_empty()
    {
        assert_eq!(recorded - read.salvaged.row_count, lost_count, "{case}");
    }
}

#[test]
fn with_a_flipped_bit_all_rows_of_other_pages_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    let (mut whole_count, mut partly_count) = (0, 0);
    for seed in [21, 22, 23] {
        let mut rng = fastrand::Rng::with_seed(seed);
        let model = new(folder.path(), &mut rng, 900, 6);
        let good = fs::read(&path).unwrap();
        let places = places(&File::open(&path).unwrap());
        assert_eq!(places.len(), model.len());
        let page_count = good.len() as u64 / PAGE_BYTES as u64;
        for step in 0..240_u64 {
            let at = match step % 4 {
                0 => rng.u64(..good.len() as u64),
                1 => rng.u64(..page_count) * PAGE_BYTES as u64 + rng.u64(..24),
                2 => rng.u64(..2) * PAGE_BYTES as u64 + rng.u64(..160),
                _ => rng.u64(..page_count) * PAGE_BYTES as u64 + 4096 - 1 - rng.u64(..300),
            };
            let mut bad = good.clone();
            bad[usize::try_from(at).unwrap()] ^= 1 << rng.u64(..8);
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
fn with_overwritten_pages_all_rows_of_other_pages_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    let mut rng = fastrand::Rng::with_seed(31);
    let model = new(folder.path(), &mut rng, 3000, 8);
    let good = fs::read(&path).unwrap();
    let places = places(&File::open(&path).unwrap());
    let page_count = good.len() as u64 / PAGE_BYTES as u64;
    for step in 0..120_u64 {
        // The first pages are the meta pages.
        let first = if step % 3 == 0 { 0 } else { rng.u64(..page_count) };
        let count = 1 + rng.u64(..4);
        let mut bad = good.clone();
        let start = usize::try_from(first).unwrap() * PAGE_BYTES;
        let end = (start + usize::try_from(count).unwrap() * PAGE_BYTES).min(bad.len());
        bad[start..end].fill(if step % 2 == 0 { 0 } else { 0xA5 });
        fs::write(&path, &bad).unwrap();
        let read = salvage_all(&path);
        let case = format!("{count} pages from {first}: {:?}", read.salvaged);
        if read.salvaged.is_previous_state && count > 2 {
            // Without both meta pages and the newest first leaf, only the previous state is left.
            assert!(first < META_COUNT, "{case}");
            continue;
        }
        let is_damaged = |no| (first..first + count).contains(&no);
        assert_rest_is_read(&read, &model, &places, is_damaged, &case);
    }
}

#[test]
fn in_a_truncated_file_all_rows_before_the_end_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    let mut rng = fastrand::Rng::with_seed(41);
    let model = new(folder.path(), &mut rng, 3000, 8);
    let good = fs::read(&path).unwrap();
    let places = places(&File::open(&path).unwrap());
    let mut read_count = 0;
    for step in 0..60 {
        let file_bytes = rng.u64(..good.len() as u64);
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
fn an_intact_file_yields_all_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    for (seed, key_count) in [(51, 4), (52, 60), (53, 5000)] {
        let model = new(folder.path(), &mut fastrand::Rng::with_seed(seed), key_count, 5);
        let read = salvage_all(&folder.path().join(FILE));
        assert!(read.newest == model && read.salvaged.lost.is_empty(), "seed {seed}");
        assert_eq!(read.salvaged.recorded_row_count, Some(model.len() as u64));
        fs::remove_file(folder.path().join(FILE)).unwrap();
    }
}
