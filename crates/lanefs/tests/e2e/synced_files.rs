//! New files that a program syncs one after the other: the name and the contents of a small one are durable
//! after one flush of the log.

use crate::engines::connect;
use crate::fixture::Fixture;
use crate::leases::LEASES;
use crate::names_behind::{changed, deep};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use wire::{InodeNo, ShardId};

const LANE_COUNT: u16 = 2;
const COUNT: usize = 240;
const SMALL_BYTES: usize = 4096;
const LARGE_BYTES: usize = 128 << 10;

/// Files of one directory.
struct Made {
    /// Those whose contents are at the lane of the directory.
    near_count: usize,
    flush_count: u64,
}

/// A server with two lanes. A program makes files of this length, and may sync each.
fn made(test: &str, file_bytes: usize, syncs: bool) -> Option<Made> {
    let fixture = Fixture::new(test)?;
    let lanes = LANE_COUNT.to_string();
    let mut server = fixture.serve_with("127.0.0.1:0", &["--lanes", &lanes, "--lease-term", "60s"]);
    let mount = fixture.mount(&server.address, "mnt", &[&LEASES[..], &["--lanes", "1"]].concat());
    let mut volume = connect(&fixture, &server.address);
    let mut flush_count = || {
        let lanes = volume.stats().unwrap();
        lanes.iter().map(|lane| lane.batch_count).sum::<u64>()
    };
    let dir = deep(&mount.dir).join("files");
    fs::create_dir(&dir).unwrap();
    let before = (flush_count(), changed(&fixture, &mount, "made"));
    let mut numbers = Vec::new();
    for number in 0..COUNT {
        let mut file = File::create_new(dir.join(number.to_string())).unwrap();
        file.write_all(&vec![7; file_bytes]).unwrap();
        if syncs {
            file.sync_all().unwrap();
        }
        numbers.push(InodeNo(file.metadata().unwrap().ino()));
    }
    let after = (flush_count(), changed(&fixture, &mount, "made"));
    assert_eq!(after.1 - before.1, u64::try_from(COUNT).unwrap(), "created behind");
    mount.stop();
    drop(volume);
    server.process.signal(Signal::TERM);
    assert!(server.process.end().success(), "{}", server.process.said());

    let shards = store::open(&fixture.path("store")).unwrap().superblock().shard_counts();
    let lane = |shard: ShardId| shard.index() % LANE_COUNT;
    let is_near = |inode: &&InodeNo| lane(shards.data_shard(**inode, 0)) == lane(inode.shard());
    let near_count = numbers.iter().filter(is_near).count();
    let flush_count = after.0 - before.0;
    println!("{near_count} of {COUNT} are near, {flush_count} flushes");
    Some(Made { near_count, flush_count })
}

/// As chance has it, but for six standard deviations.
fn is_even(count: usize) -> bool {
    (COUNT / 2 - 46..COUNT / 2 + 46).contains(&count)
}

#[test]
fn small_ones_have_their_contents_at_the_lane_of_their_directory() {
    let Some(made) = made("synced_small", SMALL_BYTES, true) else { return };
    assert!(made.near_count > COUNT * 4 / 5, "{} of {COUNT}", made.near_count);
    let flush_count_max = u64::try_from(COUNT * 5 / 4).unwrap();
    assert!(made.flush_count <= flush_count_max, "{} for {COUNT}", made.flush_count);
}

#[test]
fn files_that_are_not_synced_are_spread_over_all_lanes() {
    let Some(made) = made("not_synced", SMALL_BYTES, false) else { return };
    assert!(is_even(made.near_count), "{} of {COUNT}", made.near_count);
}

#[test]
fn long_files_are_spread_over_all_lanes() {
    let Some(made) = made("synced_long", LARGE_BYTES, true) else { return };
    assert!(is_even(made.near_count), "{} of {COUNT}", made.near_count);
}
