//! Files as LMDB leaves them are sound; files that are damaged are found to be, or harmless.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use super::*;
use crate::{FILE, Table};
use std::collections::BTreeMap;
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
