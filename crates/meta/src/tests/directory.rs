//! A directory by itself: lookups at any size, reuse of slots.

use super::{ROOT, TestRng};
use crate::directory::{Directory, Target};
use crate::hash::Seed;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use wire::{FileKind, Transno};

fn target(cookie: u64) -> Target {
    Target { cookie, inode: ROOT, kind: FileKind::File, version: Transno(cookie) }
}

#[test]
fn entries_match_a_sorted_map() {
    let (mut rng, seed) = (TestRng::new(3), Seed::new(9));
    let (mut directory, mut model) = (Directory::default(), BTreeMap::<String, u64>::new());
    let mut cookie = 0;
    // Grows beyond what one table holds, shrinks to nothing, and grows again.
    for (rounds, percent) in [(20_000, 90), (40_000, 20), (12_000, 95)] {
        for _ in 0..rounds {
            let text = alloc::format!("{}", rng.below(30_000));
            if rng.chance(percent) {
                cookie += 1;
                assert!(directory.put(seed, text.as_bytes(), target(cookie)));
                model.insert(text, cookie);
            } else {
                directory.remove(seed, text.as_bytes());
                model.remove(&text);
            }
            assert_eq!(directory.after(0).next().is_none(), model.is_empty());
        }
        for no in 0..30_000 {
            let text = alloc::format!("{no}");
            let found = directory.get(seed, text.as_bytes()).map(|target| target.cookie);
            assert_eq!(found, model.get(&text).copied());
        }
        let listed: Vec<u64> = directory.after(0).map(|(_, target)| target.cookie).collect();
        let mut cookies: Vec<u64> = model.values().copied().collect();
        cookies.sort_unstable();
        assert_eq!(listed, cookies);
    }
}

#[test]
fn a_cookie_belongs_to_one_name() {
    let (mut directory, seed) = (Directory::default(), Seed::new(1));
    assert!(directory.put(seed, b"a", target(5)));
    assert!(!directory.put(seed, b"b", target(5)));
    assert!(directory.put(seed, b"a", target(6)));
    assert!(directory.put(seed, b"b", target(5)));
    assert_eq!(directory.after(0).count(), 2);
    assert_eq!(directory.after(5).next(), Some((&b"a"[..], target(6))));
}

#[test]
fn the_key_changes_the_hash_and_so_does_every_byte() {
    let name = *b"a name of some length, not of whole words";
    let hash = Seed::new(1).hash_name(&name);
    assert_ne!(hash, Seed::new(2).hash_name(&name));
    for index in 0..name.len() {
        let mut other = name;
        other[index] ^= 1;
        assert_ne!(hash, Seed::new(1).hash_name(&other), "byte {index}");
    }
    assert_ne!(Seed::new(1).hash_name(b"a"), Seed::new(1).hash_name(b"a\0"));
}
