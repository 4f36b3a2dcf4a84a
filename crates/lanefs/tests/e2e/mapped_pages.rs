//! Mappings of open files on mounts that cache: what one mount changes, another one shows at its
//! next look through a mapping that it made before, and through `sendfile`.
//!
//! A model has what each look must show. Two mounts map the file once and keep it mapped; a third
//! one, without leases, changes it as well. `LANEFS_TEST_LONG=1` and `LANEFS_TRIALS=N` as for
//! `lease_trials`.

use crate::fixture::{Fixture, Mount, Server, is_alive, kill, no_fuse_over_io_uring, skip, until};
use crate::lease_trials::trial_count;
use crate::random_comparison::Prng;
use ring::FileMap;
use rustix::fs::{FallocateFlags, fallocate, sendfile};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Options of each mount. The last one maps nothing.
const MOUNTS: [(&str, &[&str]); 3] = [
    ("one-lane", &["--export", "up", "--leases", "on", "--lanes", "1"]),
    ("lanes", &["--export", "up", "--leases", "on", "--lanes", "3"]),
    ("without", &["--export", "up", "--leases", "off"]),
];
const MAPPING_COUNT: usize = 2;
const SERVER: [&str; 6] = ["--lanes", "2", "--lease-term", "3s", "--recovery-soft", "3s"];
const PAGE_BYTES: usize = 4096;
const WORD_BYTES: usize = 8;
const FILE_BYTES: usize = 16 * PAGE_BYTES;
const WORD_COUNT: usize = FILE_BYTES / WORD_BYTES;

/// What a mount has open.
struct Held {
    /// Open for reading and writing all the time.
    file: File,
    /// Mapped, at mounts that cache.
    map: Option<FileMap>,
}

impl Held {
    fn of(dir: &Path, maps: bool) -> Self {
        let path = dir.join("mapped");
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let map = maps.then(|| FileMap::new(&File::open(path).unwrap(), WORD_COUNT).unwrap());
        Self { file, map }
    }
}

struct Trials<'f> {
    fixture: &'f Fixture,
    server: Server,
    mounts: Vec<Mount>,
    held: Vec<Held>,
    prng: Prng,
    model: Vec<u8>,
}

impl<'f> Trials<'f> {
    fn new(fixture: &'f Fixture) -> Self {
        let server = fixture.serve_with("127.0.0.1:0", &SERVER);
        let mount =
            |(name, options): (&str, &[&str])| fixture.mount(&server.address, name, options);
        let mounts: Vec<Mount> = MOUNTS.into_iter().map(mount).collect();
        let model = vec![0; FILE_BYTES];
        fs::write(mounts[0].dir.join("mapped"), &model).unwrap();
        let held = mounts.iter().enumerate();
        let held = held.map(|(index, mount)| Held::of(&mount.dir, index < MAPPING_COUNT)).collect();
        let prng = Prng::new(crate::fixture::roll());
        Self { fixture, server, mounts, held, prng, model }
    }

    /// A change through one mount, and a look through another.
    fn run(&mut self) {
        let changing = self.prng.below(self.mounts.len());
        let observing = if changing < MAPPING_COUNT {
            MAPPING_COUNT - 1 - changing
        } else {
            self.prng.below(MAPPING_COUNT)
        };
        let kind = self.prng.below(8);
        self.change(kind, changing, observing);
        self.look(observing, &format!("change {kind} at {changing}, seen at {observing}"));
    }

    fn change(&mut self, kind: usize, mount: usize, observing: usize) {
        let word = (self.prng.below(usize::MAX) as u64).to_ne_bytes();
        let at = self.prng.below(WORD_COUNT) * WORD_BYTES;
        let held = &self.held[mount].file;
        match kind {
            0..4 => held.write_all_at(&word, at as u64).unwrap(),
            4 => {
                let path = self.mounts[mount].dir.join("mapped");
                let file = OpenOptions::new().write(true).open(path).unwrap();
                file.write_all_at(&word, at as u64).unwrap();
            }
            5 => {
                self.model = word.repeat(WORD_COUNT);
                return held.write_all_at(&self.model, 0).unwrap();
            }
            6 => {
                let from = at / PAGE_BYTES * PAGE_BYTES;
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(held, flags, from as u64, PAGE_BYTES as u64).unwrap();
                return self.model[from..from + PAGE_BYTES].fill(0);
            }
            _ => return self.cut(mount, observing, at | WORD_BYTES),
        }
        self.model[at..at + WORD_BYTES].copy_from_slice(&word);
    }

    /// The file loses its end, and gets zeros for it.
    fn cut(&mut self, mount: usize, observing: usize, at: usize) {
        self.held[mount].file.set_len(at as u64).unwrap();
        self.model[at..].fill(0);
        // Pages behind the new end are no longer there.
        let end = at.next_multiple_of(PAGE_BYTES);
        self.look_at(observing, end, &format!("cut to {at} at {mount}, seen at {observing}"));
        self.held[mount].file.set_len(FILE_BYTES as u64).unwrap();
        // A mapping ends where this kernel knows the file to end.
        for held in &self.held {
            assert_eq!(held.file.metadata().unwrap().len(), FILE_BYTES as u64);
        }
    }

    /// The next look at this mount shows the model.
    fn look(&self, mount: usize, context: &str) {
        self.look_at(mount, FILE_BYTES, context);
        let out = tempfile::tempfile().unwrap();
        let mut sent_bytes = 0;
        while sent_bytes < FILE_BYTES {
            let mut from = sent_bytes as u64;
            let left_bytes = FILE_BYTES - sent_bytes;
            let file = &self.held[mount].file;
            sent_bytes += sendfile(&out, file, Some(&mut from), left_bytes).unwrap();
        }
        let mut sent = vec![0; FILE_BYTES];
        out.read_exact_at(&mut sent, 0).unwrap();
        same(&sent, &self.model, &format!("sendfile, {context}"));
    }

    fn look_at(&self, mount: usize, bytes_count: usize, context: &str) {
        let mut words = vec![0; bytes_count / WORD_BYTES];
        self.held[mount].map.as_ref().unwrap().read(0, &mut words);
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        same(&bytes, &self.model[..bytes_count], context);
    }

    /// The server dies while the mappings have pages, and is started again.
    fn kill_server(&mut self) {
        let (pid, address) = (self.server.process.pid(), self.server.address.clone());
        kill(pid);
        until("the server has died", || !is_alive(pid));
        self.server = self.fixture.serve_with(&address, &SERVER);
    }

    fn stop(self) {
        drop(self.held);
        self.mounts.into_iter().for_each(Mount::stop);
        drop(self.server);
    }
}

/// Bytes are compared; the first difference is shown.
#[track_caller]
fn same(found: &[u8], wanted: &[u8], context: &str) {
    let at = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
    assert_eq!(at, None, "where bytes differ of {context}");
}

#[test]
fn a_mapping_shows_what_another_mount_has_changed() {
    let Some(fixture) = Fixture::new("mapped_pages") else { return };
    let mut trials = Trials::new(&fixture);
    (0..trial_count(400)).for_each(|_| trials.run());
    trials.stop();
}

#[test]
fn a_mapping_shows_what_another_mount_has_changed_with_requests_over_io_uring() {
    const TEST: &str = "mapped_pages_uring";
    let Some(fixture) = Fixture::new(TEST) else { return };
    let fixture = fixture.mounting_on_io_uring();
    if let Some(reason) = no_fuse_over_io_uring(fixture.drivers.mount) {
        skip(TEST, reason);
        return;
    }
    let mut trials = Trials::new(&fixture);
    (0..trial_count(200)).for_each(|_| trials.run());
    trials.stop();
}

#[test]
fn a_mapping_shows_what_another_mount_has_changed_since_the_server_was_killed() {
    let Some(fixture) = Fixture::new("mapped_pages_killed") else { return };
    let mut trials = Trials::new(&fixture);
    for _ in 0..trial_count(90).div_ceil(30) {
        (0..30).for_each(|_| trials.run());
        trials.kill_server();
    }
    (0..30).for_each(|_| trials.run());
    trials.stop();
}

/// A file that is replaced goes on having its bytes for those that have it mapped.
#[test]
fn a_mapping_of_a_file_that_another_mount_replaces_shows_its_bytes() {
    let Some(fixture) = Fixture::new("mapped_pages_replaced") else { return };
    let trials = Trials::new(&fixture);
    let (here, there) = (trials.mounts[0].dir.clone(), trials.mounts[1].dir.clone());
    let bytes_of = |number: u8| vec![number; PAGE_BYTES];
    fs::write(here.join("replaced"), bytes_of(0)).unwrap();
    for number in 1..50 {
        let file = File::open(there.join("replaced")).unwrap();
        let map = FileMap::new(&file, PAGE_BYTES / WORD_BYTES).unwrap();
        let shown = |number: u8| {
            let mut words = [0; PAGE_BYTES / WORD_BYTES];
            map.read(0, &mut words);
            assert_eq!(words, [u64::from_ne_bytes([number; WORD_BYTES]); PAGE_BYTES / WORD_BYTES]);
        };
        shown(number - 1);
        fs::write(here.join("new"), bytes_of(number)).unwrap();
        fs::rename(here.join("new"), here.join("replaced")).unwrap();
        shown(number - 1);
        assert_eq!(fs::read(there.join("replaced")).unwrap(), bytes_of(number));
    }
    trials.stop();
}
