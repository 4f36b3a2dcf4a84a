//! Small files that are read one after the other: the next ones are read ahead.

use crate::fixture::{Fixture, Mount, must, program, until};
use crate::idle::connect;
use crate::leases::{Counting, LEASES};
use crate::mount_stats::{answered_count, exchange_count};
use crate::random_comparison::Prng;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

const COUNT: usize = 200;
/// The most files that are under way in vain when a reader stops.
const WINDOW: u64 = 32;

fn bytes(no: usize) -> Vec<u8> {
    no.to_string().repeat(1 + no * 17 % 1000).into_bytes()
}

fn file(dir: &Path, no: usize) -> PathBuf {
    dir.join(format!("file-{no:03}"))
}

/// Two mounts with one lane each: the first has made a directory of files, and the second one knows their
/// attributes alone.
fn with_files(fixture: &Fixture, address: &str, syncs: bool) -> Mount {
    let options = [&LEASES[..], &["--lanes", "1"]].concat();
    let maker = fixture.mount(address, "maker", &options);
    let dir = maker.dir.join("files");
    fs::create_dir(&dir).unwrap();
    for no in 0..COUNT {
        let mut made = File::create_new(file(&dir, no)).unwrap();
        made.write_all(&bytes(no)).unwrap();
        if syncs {
            made.sync_all().unwrap();
        }
    }
    let mount = fixture.mount(address, "mnt", &options);
    let mut counting = Counting { volume: connect(fixture, address), own_count: 0 };
    // A file that another mount has just written is leased once its size has moved to the metadata shard.
    until("the second mount knows all attributes", || {
        let before = counting.now().0;
        must(program("ls").arg("-lU").arg(mount.dir.join("files")));
        counting.now().0 == before
    });
    mount
}

#[test]
fn files_that_are_read_in_order_are_waited_for_seldom() {
    read_in_order("files_ahead", (1, false));
}

#[test]
fn those_that_were_synced_one_after_the_other_too() {
    read_in_order("files_ahead_synced", (2, true));
}

fn read_in_order(test: &str, (lane_count, syncs): (u16, bool)) {
    let Some(fixture) = Fixture::new(test) else { return };
    let lanes = lane_count.to_string();
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "60s", "--lanes", &lanes]);
    let mount = with_files(&fixture, &server.address, syncs);
    let dir = mount.dir.join("files");
    for no in 0..COUNT {
        assert_eq!(fs::read(file(&dir, no)).unwrap(), bytes(no), "file {no}");
    }
    let (count, alone_count) = answered_count(&fixture, &mount, "read");
    assert!(count >= COUNT as u64);
    assert!(alone_count * 2 > count, "{alone_count} of {count} waited for no exchange");
}

#[test]
fn programs_that_copy_a_tree_get_all_bytes() {
    let Some(fixture) = Fixture::new("files_ahead_tree") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "60s", "--lanes", "1"]);
    let mount = with_files(&fixture, &server.address, false);
    let copy = fixture.path("copy");
    must(program("cp").arg("-r").arg(mount.dir.join("files")).arg(&copy));
    for no in 0..COUNT {
        assert_eq!(fs::read(file(&copy, no)).unwrap(), bytes(no), "file {no}");
    }
    let (count, alone_count) = answered_count(&fixture, &mount, "read");
    assert!(alone_count * 2 > count, "{alone_count} of {count} waited for no exchange");
}

#[test]
fn files_that_are_read_in_no_order_cost_no_more_than_themselves() {
    let Some(fixture) = Fixture::new("files_in_no_order") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "60s", "--lanes", "1"]);
    let mount = with_files(&fixture, &server.address, false);
    let dir = mount.dir.join("files");
    let mut order: Vec<usize> = (0..COUNT).collect();
    let mut prng = Prng::new(crate::fixture::roll());
    for left in (1..COUNT).rev() {
        order.swap(left, prng.below(left + 1));
    }
    for no in order {
        assert_eq!(fs::read(file(&dir, no)).unwrap(), bytes(no), "file {no}");
    }
    let exchange_count = exchange_count(&fixture, &mount, "read");
    assert!(exchange_count <= COUNT as u64 + WINDOW, "{exchange_count} for {COUNT} files");
}
