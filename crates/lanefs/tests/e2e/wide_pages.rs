//! Pages of files whose stripes are at several servers: what a mount has cached it reads again
//! without a server, and what another mount changes it shows at its next look, whether the file is
//! closed, open or mapped.

#![allow(clippy::cast_possible_truncation)]

use crate::cluster::{Cluster, count_of};
use crate::fixture::{Mount, Server, kill, until};
use crate::wide_files::{UNIT, bytes, open, there, wide};
use ring::FileMap;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

const ROUND_COUNT: usize = 120;
const WORD_BYTES: usize = 8;
const PAGE_BYTES: usize = 4096;
/// The longest that the file becomes.
const FILE_BYTES_MAX: usize = 8 * UNIT as usize;

/// Two mounts that cache.
fn caching(cluster: &Cluster, servers: &[Server]) -> [Mount; 2] {
    let options = ["--export", "up", "--leases", "on"];
    let mount =
        |(name, server): (_, &Server)| cluster.fixture.mount(&server.address, name, &options);
    [("here", &servers[1]), ("other", &servers[2])].map(mount)
}

fn read_count(cluster: &Cluster, servers: &[Server]) -> u64 {
    servers.iter().map(|server| count_of(cluster, server, "read")).sum()
}

#[test]
fn a_file_that_is_read_again_is_asked_for_at_no_server() {
    let Some(cluster) = Cluster::new("wide_pages_again") else { return };
    let (servers, mount, dir) = wide(&cluster);
    let [here, other] = caching(&cluster, &servers);
    let path = there(&dir.join("file"), &mount, &here);
    let contents = bytes(7, 9 * UNIT as usize + 77);
    fs::write(&path, &contents).unwrap();
    for path in [path.clone(), there(&path, &here, &other)] {
        until("no server is asked", || {
            let before = read_count(&cluster, &servers);
            assert!(fs::read(&path).unwrap() == contents);
            read_count(&cluster, &servers) == before
        });
    }
    // A change at one server is seen at once, and what follows is cached again.
    let (mut contents, there) = (contents, there(&path, &here, &other));
    contents[4 * UNIT as usize] ^= 1;
    let file = open(&path);
    file.write_all_at(&contents[4 * UNIT as usize..][..1], 4 * UNIT).unwrap();
    drop(file);
    until("no server is asked", || {
        let before = read_count(&cluster, &servers);
        assert!(fs::read(&there).unwrap() == contents);
        read_count(&cluster, &servers) == before
    });
    [here, other, mount].into_iter().for_each(Mount::stop);
}

/// What a mount has open all the time.
struct Held {
    path: PathBuf,
    file: File,
    map: FileMap,
}

impl Held {
    fn of(path: PathBuf) -> Self {
        let file = File::open(&path).unwrap();
        let map = FileMap::new(&file, FILE_BYTES_MAX / WORD_BYTES).unwrap();
        Self { path, file, map }
    }

    /// All that this mount shows is the model.
    fn look(&self, model: &[u8], context: &str) {
        assert_eq!(self.file.metadata().unwrap().len(), model.len() as u64, "{context}");
        let mapped_bytes = model.len().next_multiple_of(PAGE_BYTES);
        let mut words = vec![0; mapped_bytes / WORD_BYTES];
        self.map.read(0, &mut words);
        let mapped: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        same(&mapped[..model.len()], model, &format!("mapped, {context}"));
        let mut found = vec![0; FILE_BYTES_MAX];
        let mut found_bytes = 0;
        loop {
            let more = self.file.read_at(&mut found[found_bytes..], found_bytes as u64).unwrap();
            found_bytes += more;
            if more == 0 {
                break;
            }
        }
        same(&found[..found_bytes], model, &format!("open, {context}"));
        same(&fs::read(&self.path).unwrap(), model, &format!("closed, {context}"));
    }
}

#[track_caller]
fn same(found: &[u8], wanted: &[u8], context: &str) {
    let at = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
    assert_eq!((at, found.len()), (None, wanted.len()), "where bytes differ: {context}");
}

/// Changes a file and its model.
fn change(rng: &mut fastrand::Rng, path: &Path, model: &mut Vec<u8>) -> String {
    let file = open(path);
    let at = rng.usize(..model.len());
    let some = bytes(rng.u64(..), rng.usize(1..2 * UNIT as usize));
    match rng.u32(..8) {
        0..4 => {
            let some = &some[..some.len().min(FILE_BYTES_MAX - at)];
            file.write_all_at(some, at as u64).unwrap();
            model.resize(model.len().max(at + some.len()), 0);
            model[at..at + some.len()].copy_from_slice(some);
            format!("{} bytes written at {at}", some.len())
        }
        4 => {
            let some = &some[..some.len().min(FILE_BYTES_MAX - model.len())];
            file.write_all_at(some, model.len() as u64).unwrap();
            model.extend_from_slice(some);
            format!("{} bytes at the end", some.len())
        }
        5 => {
            file.set_len(at as u64 + 1).unwrap();
            model.truncate(at + 1);
            format!("cut to {}", at + 1)
        }
        6 => {
            let more = rng.usize(model.len()..=FILE_BYTES_MAX);
            file.set_len(more as u64).unwrap();
            model.resize(more, 0);
            format!("extended to {more}")
        }
        _ => {
            let until = rng.usize(at..model.len()) + 1;
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, flags, at as u64, (until - at) as u64).unwrap();
            model[at..until].fill(0);
            format!("a hole from {at} to {until}")
        }
    }
}

/// Changes at one mount, and looks at the other.
fn rounds(cluster: &Cluster, between: impl Fn(usize, &mut [Server; 3])) {
    let (mut servers, mount, dir) = wide(cluster);
    let [here, other] = caching(cluster, &servers);
    let path = there(&dir.join("file"), &mount, &here);
    let mut model = bytes(3, 5 * UNIT as usize + 100);
    fs::write(&path, &model).unwrap();
    let held = [Held::of(there(&path, &here, &other)), Held::of(path)];
    let mut rng = fastrand::Rng::with_seed(crate::fixture::roll());
    for round in 0..ROUND_COUNT {
        between(round, &mut servers);
        let [changing, looking] = if rng.bool() { [0, 1] } else { [1, 0] };
        let what = change(&mut rng, &held[changing].path, &mut model);
        held[looking].look(&model, &format!("round {round}, {what} at {changing}"));
    }
    drop(held);
    [here, other, mount].into_iter().for_each(Mount::stop);
}

#[test]
fn what_another_mount_changes_is_seen_by_the_next_look() {
    let Some(cluster) = Cluster::new("wide_pages_seen") else { return };
    rounds(&cluster, |_, _| {});
}

#[test]
fn what_another_mount_changes_is_seen_while_servers_die() {
    let Some(cluster) = Cluster::new("wide_pages_killed") else { return };
    rounds(&cluster, |round, servers| {
        if round % 20 == 19 {
            let index = round / 20 % 3;
            let address = servers[index].address.clone();
            kill(servers[index].process.pid());
            servers[index].process.end();
            servers[index] = cluster.serve(["one", "two", "three"][index], &address, &[]);
        }
    });
}
