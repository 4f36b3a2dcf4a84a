//! A directory by itself: lookups at any size, reuse of slots.

use super::{MADE, ROOT};
use crate::Shard;
use crate::directory::{Directory, Target};
use crate::hash::NameKey;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::{BuildHasher as _, Hasher as _};
use foldhash::quality::FixedState;
use test_runtime::Prng;
use wire::{FileKind, ShardId, Transno};

fn target(cookie: u64) -> Target {
    Target { cookie, inode: ROOT, kind: FileKind::File, version: Transno(cookie) }
}

#[test]
fn entries_match_a_sorted_map() {
    let (mut rng, key) = (Prng::new(3), NameKey::new(9));
    let (mut directory, mut model) = (Directory::default(), BTreeMap::<String, u64>::new());
    let mut cookie = 0;
    // Grows beyond what one table holds, shrinks to nothing, and grows again.
    for (rounds, percent) in [(20_000, 90), (40_000, 20), (12_000, 95)] {
        for _ in 0..rounds {
            let text = alloc::format!("{}", rng.below(30_000));
            if rng.per_mille(10 * percent) {
                cookie += 1;
                assert!(directory.put(key.hashed(text.as_bytes()), target(cookie)));
                model.insert(text, cookie);
            } else {
                directory.remove(key.hashed(text.as_bytes()));
                model.remove(&text);
            }
            assert_eq!(directory.after(0).next().is_none(), model.is_empty());
        }
        for no in 0..30_000 {
            let text = alloc::format!("{no}");
            let found = directory.get(key.hashed(text.as_bytes())).map(|target| target.cookie);
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
    let (mut directory, key) = (Directory::default(), NameKey::new(1));
    assert!(directory.put(key.hashed(b"a"), target(5)));
    assert!(!directory.put(key.hashed(b"b"), target(5)));
    assert!(directory.put(key.hashed(b"a"), target(6)));
    assert!(directory.put(key.hashed(b"b"), target(5)));
    assert_eq!(directory.after(0).count(), 2);
    assert_eq!(directory.after(5).next(), Some((&b"a"[..], target(6))));
}

#[test]
fn the_key_changes_the_hash_and_so_does_every_byte() {
    let name = *b"a name of some length, not of whole words";
    let hash = NameKey::new(1).hashed(&name).hash;
    assert_ne!(hash, NameKey::new(2).hashed(&name).hash);
    for index in 0..name.len() {
        let mut other = name;
        other[index] ^= 1;
        assert_ne!(hash, NameKey::new(1).hashed(&other).hash, "byte {index}");
    }
    assert_ne!(NameKey::new(1).hashed(b"a").hash, NameKey::new(1).hashed(b"a\0").hash);
}

/// The last bytes of these names cancel a seed that is the same in every program with this hash.
#[test]
fn names_chosen_without_the_key_do_not_collide() {
    const KNOWN_SEED: u64 = 0x3f84_d5b5_b547_0917;
    let name = |no: u64| [no.to_ne_bytes(), KNOWN_SEED.to_ne_bytes()].concat();
    let fixed = FixedState::with_seed(5);
    let fixed_hashes: BTreeSet<u64> = (0..1000).map(|no| fixed_hash(&fixed, &name(no))).collect();
    assert_eq!(fixed_hashes.len(), 1, "this is that seed");
    let key = NameKey::new(5);
    let hashes: BTreeSet<u64> = (0..1000).map(|no| key.hashed(&name(no)).hash).collect();
    assert_eq!(hashes.len(), 1000);
}

#[test]
fn a_shards_names_are_hashed_by_the_key_it_gets() {
    let shard = |key: Option<u64>| {
        let mut shard = Shard::new(ShardId::meta(0), MADE);
        key.into_iter().for_each(|key| shard.hash_names_by(key));
        shard.state.name_key.hashed(b"name").hash
    };
    assert_eq!(shard(Some(1)), shard(Some(1)));
    assert_ne!(shard(Some(1)), shard(Some(2)));
    assert_ne!(shard(Some(1)), shard(None));
}

fn fixed_hash(fixed: &FixedState, name: &[u8]) -> u64 {
    let mut hasher = fixed.build_hasher();
    hasher.write(name);
    hasher.finish()
}
