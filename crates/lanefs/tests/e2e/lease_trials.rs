//! Random trials over mounts that cache: a change through one, and the next call through another.
//!
//! A model has what each call must show. Two mounts cache, one with a lane and one with three; the
//! third mount does not. Between trials the server is killed, a mount is killed, or a mount is
//! stopped. `LANEFS_TEST_LONG=1` runs 10,000 trials of each kind, `LANEFS_TRIALS=N` runs N.

use crate::fixture::{
    Fixture, Mount, Server, is_alive, kill, must, no_fuse_over_io_uring, skip, until,
};
use crate::random_comparison::Prng;
use ring::FileMap;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Mounts = [(&'static str, &'static [&'static str]); 3];

/// Options of each mount.
const MOUNTS: Mounts = [
    ("one-lane", &["--export", "up", "--leases", "on", "--lanes", "1"]),
    ("lanes", &["--export", "up", "--leases", "on", "--lanes", "3"]),
    ("without", &["--export", "up", "--leases", "off"]),
];
/// The same on a kernel that cannot forget all names at once, as before Linux 6.16.
const EARLIER_KERNEL: Mounts = [
    ("one-lane", &["--export", "up", "--leases", "on", "--lanes", "1", "--as-before-epochs"]),
    ("lanes", &["--export", "up", "--leases", "on", "--lanes", "3", "--as-before-epochs"]),
    ("epochs", &["--export", "up", "--leases", "on"]),
];
const SERVER: [&str; 6] = ["--lanes", "2", "--lease-term", "3s", "--recovery-soft", "3s"];
const TERM: Duration = Duration::from_secs(3);

/// What is changed in a trial.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A file that nobody has open.
    Closed,
    /// A file that all mounts have open for reading.
    Open,
    /// A file that is mapped for each observation.
    Mapped,
    /// Names and modes.
    Names,
    /// A file that others have open, and that is removed.
    Removed,
    /// A file to which two mounts append at the same time.
    Appends,
    /// A file that all mounts have open for reading and writing.
    Turns,
    /// One of several small files, while they are read one after the other.
    Series,
}

const KINDS: [Kind; 8] = [
    Kind::Closed,
    Kind::Open,
    Kind::Mapped,
    Kind::Names,
    Kind::Removed,
    Kind::Appends,
    Kind::Turns,
    Kind::Series,
];

/// What happens between trials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Disturbance {
    ServerKilled,
    MountKilled,
    MountStopped,
}

const NAME_COUNT: usize = 64;
const SERIES_COUNT: usize = 16;
const WORD_BYTES: usize = 8;
const MAPPED_WORDS: usize = 1024;
const RECORD_BYTES: usize = 16;

/// What all mounts must show.
#[derive(Default)]
struct Model {
    closed: Vec<u8>,
    open: Vec<u8>,
    mapped: Vec<u8>,
    turns: Vec<u8>,
    series: Vec<Vec<u8>>,
    /// The mode of each name that exists.
    names: BTreeMap<String, u32>,
    removed_count: usize,
    appended_count: usize,
}

/// The files that a mount has open all the time.
struct Handles {
    open: File,
    turns: File,
    log: File,
}

impl Handles {
    fn of(dir: &Path) -> Self {
        let open = |name: &str, options: &mut OpenOptions| options.open(dir.join(name)).unwrap();
        Self {
            open: open("open", OpenOptions::new().read(true)),
            turns: open("turns", OpenOptions::new().read(true).write(true)),
            log: open("log", OpenOptions::new().append(true)),
        }
    }
}

struct Trials<'f> {
    fixture: &'f Fixture,
    server: Server,
    options: Mounts,
    mounts: Vec<Mount>,
    handles: Vec<Handles>,
    prng: Prng,
    model: Model,
}

impl<'f> Trials<'f> {
    fn new(fixture: &'f Fixture, options: Mounts) -> Self {
        let server = fixture.serve_with("127.0.0.1:0", &SERVER);
        let mount = |(name, options)| fixture.mount(&server.address, name, options);
        let mounts: Vec<Mount> = options.into_iter().map(mount).collect();
        let zeros = vec![0; MAPPED_WORDS * WORD_BYTES];
        let dir = &mounts[0].dir;
        for name in ["closed", "open", "log"] {
            fs::write(dir.join(name), "").unwrap();
        }
        for name in ["mapped", "turns"] {
            fs::write(dir.join(name), &zeros).unwrap();
        }
        let handles = mounts.iter().map(|mount| Handles::of(&mount.dir)).collect();
        fs::create_dir(dir.join("series")).unwrap();
        let series: Vec<_> = (0..SERIES_COUNT).map(|no| vec![b'a'; 100 * no]).collect();
        for (no, bytes) in series.iter().enumerate() {
            fs::write(series_file(dir, no), bytes).unwrap();
        }
        let model = Model { mapped: zeros.clone(), turns: zeros, series, ..Model::default() };
        let prng = Prng::new(crate::fixture::roll());
        Self { fixture, server, options, mounts, handles, prng, model }
    }

    /// A trial between two of these mounts.
    fn run(&mut self, kind: Kind, mounts: &[usize]) {
        let changing = self.prng.below(mounts.len());
        let observing = (changing + 1 + self.prng.below(mounts.len() - 1)) % mounts.len();
        let (changing, observing) = (mounts[changing], mounts[observing]);
        let context = format!("{kind:?}, changed at {changing}, observed at {observing}");
        match kind {
            Kind::Closed => self.change_closed(changing),
            Kind::Open => self.change_open(changing),
            Kind::Mapped => self.change_mapped(changing),
            Kind::Names => self.change_names(changing),
            Kind::Removed => self.change_removed(changing, observing),
            Kind::Appends => self.change_appended(changing, observing),
            Kind::Turns => self.change_turns(changing),
            Kind::Series => self.change_series(changing, observing),
        }
        self.observe(kind, observing, &context);
    }

    fn dir(&self, mount: usize) -> PathBuf {
        self.mounts[mount].dir.clone()
    }

    fn word(&mut self) -> [u8; WORD_BYTES] {
        (self.prng.below(usize::MAX) as u64).to_ne_bytes()
    }

    fn change_closed(&mut self, mount: usize) {
        let dir = self.dir(mount);
        let path = dir.join("closed");
        let word = self.word();
        match self.prng.below(5) {
            0 => {
                self.model.closed = word.repeat(1 + self.prng.below(600));
                fs::write(dir.join("new"), &self.model.closed).unwrap();
                fs::rename(dir.join("new"), path).unwrap();
            }
            1 => {
                self.model.closed = word.repeat(1 + self.prng.below(600));
                fs::write(path, &self.model.closed).unwrap();
            }
            2 => {
                let size = self.prng.below(self.model.closed.len() + 100);
                self.model.closed.resize(size, 0);
                writer(&path).set_len(size as u64).unwrap();
            }
            3 => {
                let at = self.prng.below(self.model.closed.len() + 1);
                overwrite(&mut self.model.closed, &word, at);
                writer(&path).write_all_at(&word, at as u64).unwrap();
            }
            _ => {
                self.model.closed.extend(word);
                OpenOptions::new().append(true).open(path).unwrap().write_all(&word).unwrap();
            }
        }
    }

    fn change_open(&mut self, mount: usize) {
        let file = writer(&self.dir(mount).join("open"));
        if self.prng.below(4) == 0 {
            let size = self.prng.below(100_000);
            self.model.open.resize(size, 0);
            file.set_len(size as u64).unwrap();
        } else {
            let (word, at) = (self.word(), self.prng.below(self.model.open.len() + 1));
            overwrite(&mut self.model.open, &word, at);
            file.write_all_at(&word, at as u64).unwrap();
        }
    }

    fn change_mapped(&mut self, mount: usize) {
        let (word, at) = (self.word(), self.prng.below(MAPPED_WORDS) * WORD_BYTES);
        overwrite(&mut self.model.mapped, &word, at);
        writer(&self.dir(mount).join("mapped")).write_all_at(&word, at as u64).unwrap();
    }

    fn change_turns(&mut self, mount: usize) {
        let (word, at) = (self.word(), self.prng.below(MAPPED_WORDS) * WORD_BYTES);
        overwrite(&mut self.model.turns, &word, at);
        self.handles[mount].turns.write_all_at(&word, at as u64).unwrap();
    }

    /// The observing mount has read some when another one changes. Afterwards all are changed, so that
    /// they are read again in the next trial.
    fn change_series(&mut self, changing: usize, observing: usize) {
        let (changing, observing) = (self.dir(changing), self.dir(observing));
        // Not by a program: the process that becomes it closes what is open at a mount that is stopped.
        for entry in fs::read_dir(observing.join("series")).unwrap() {
            entry.unwrap().metadata().unwrap();
        }
        let read_count = self.prng.below(SERIES_COUNT);
        for no in 0..read_count {
            let found = fs::read(series_file(&observing, no)).unwrap();
            same(&found, &self.model.series[no], &format!("file {no} of the series"));
        }
        let no = self.prng.below(SERIES_COUNT);
        self.change_file_of_series(&changing, no);
        self.observe_series(&observing, "behind a change");
        for no in 0..SERIES_COUNT {
            self.change_file_of_series(&changing, no);
        }
    }

    fn change_file_of_series(&mut self, dir: &Path, no: usize) {
        let (path, word) = (series_file(dir, no), self.word());
        let bytes = &mut self.model.series[no];
        match self.prng.below(3) {
            0 => {
                *bytes = word.repeat(1 + self.prng.below(600));
                fs::write(path, bytes).unwrap();
            }
            1 => {
                let at = self.prng.below(bytes.len() + 1);
                overwrite(bytes, &word, at);
                writer(&path).write_all_at(&word, at as u64).unwrap();
            }
            _ => {
                *bytes = word.repeat(1 + self.prng.below(600));
                fs::write(dir.join("new"), bytes).unwrap();
                fs::rename(dir.join("new"), path).unwrap();
            }
        }
    }

    fn observe_series(&self, dir: &Path, context: &str) {
        for (no, bytes) in self.model.series.iter().enumerate() {
            let found = fs::read(series_file(dir, no)).unwrap();
            same(&found, bytes, &format!("file {no} of the series, {context}"));
        }
    }

    fn change_names(&mut self, mount: usize) {
        let dir = self.dir(mount);
        let name = format!("name-{}", self.prng.below(NAME_COUNT));
        let path = dir.join(&name);
        let mode = 0o600 | u32::try_from(self.prng.below(0o100)).unwrap();
        match (self.model.names.remove(&name), self.prng.below(3)) {
            (None, _) => {
                File::create_new(&path).unwrap();
                fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
                self.model.names.insert(name, mode);
            }
            (Some(_), 0) => fs::remove_file(path).unwrap(),
            (Some(_), 1) => {
                fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
                self.model.names.insert(name, mode);
            }
            (Some(mode), _) => {
                let other = format!("name-{}", self.prng.below(NAME_COUNT));
                fs::rename(path, dir.join(&other)).unwrap();
                self.model.names.insert(other, mode);
            }
        }
    }

    fn change_removed(&mut self, changing: usize, observing: usize) {
        self.model.removed_count += 1;
        let name = format!("removed-{}", self.model.removed_count);
        fs::write(self.dir(changing).join(&name), &name).unwrap();
        let path = self.dir(observing).join(&name);
        assert_eq!(fs::read_to_string(&path).unwrap(), name);
        let file = File::open(path).unwrap();
        fs::remove_file(self.dir(changing).join(&name)).unwrap();
        let mut bytes = vec![0; name.len()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!((bytes, file.metadata().unwrap().nlink()), (name.into_bytes(), 0));
    }

    /// Either may be the first.
    fn change_appended(&mut self, one: usize, other: usize) {
        let first_no = self.model.appended_count;
        std::thread::scope(|scope| {
            for (index, mount) in [one, other].into_iter().enumerate() {
                let mut log = &self.handles[mount].log;
                let record = record(first_no + index);
                scope.spawn(move || log.write_all(record.as_bytes()).unwrap());
            }
        });
        self.model.appended_count += 2;
    }

    /// The next call at this mount shows the model.
    fn observe(&mut self, kind: Kind, mount: usize, context: &str) {
        let dir = self.dir(mount);
        let size = |name: &str| fs::metadata(dir.join(name)).unwrap().len();
        match kind {
            Kind::Closed => {
                same(&fs::read(dir.join("closed")).unwrap(), &self.model.closed, context);
                assert_eq!(size("closed"), self.model.closed.len() as u64, "{context}");
            }
            Kind::Open => {
                let open = &self.handles[mount].open;
                let mut bytes = vec![0; self.model.open.len() + 1];
                let found = open.read_at(&mut bytes, 0).unwrap();
                same(&bytes[..found], &self.model.open, context);
                assert_eq!(open.metadata().unwrap().len(), self.model.open.len() as u64);
                assert_eq!(size("open"), self.model.open.len() as u64, "{context}");
            }
            Kind::Mapped => {
                let map = FileMap::new(&File::open(dir.join("mapped")).unwrap(), MAPPED_WORDS);
                let mut words = [0; MAPPED_WORDS];
                map.unwrap().read(0, &mut words);
                let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
                same(&bytes, &self.model.mapped, context);
            }
            Kind::Turns => {
                let mut bytes = vec![0; self.model.turns.len()];
                self.handles[mount].turns.read_exact_at(&mut bytes, 0).unwrap();
                same(&bytes, &self.model.turns, context);
            }
            Kind::Names => self.observe_names(&dir, context),
            Kind::Series => self.observe_series(&dir, context),
            Kind::Removed => {
                let name = format!("removed-{}", self.model.removed_count);
                let found = fs::metadata(dir.join(name)).map_err(|error| error.kind());
                assert_eq!(found.err(), Some(ErrorKind::NotFound), "{context}");
            }
            Kind::Appends => self.observe_appended(&dir.join("log"), context),
        }
    }

    /// All names, or their list, or some names.
    fn observe_names(&mut self, dir: &Path, context: &str) {
        let mut asked: Vec<String> =
            (0..NAME_COUNT).map(|number| format!("name-{number}")).collect();
        if self.prng.below(3) == 0 {
            let listed = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
            let mut listed: Vec<_> = listed.map(|name| name.into_string().unwrap()).collect();
            listed.retain(|name| name.starts_with("name-"));
            listed.sort();
            assert_eq!(listed, self.model.names.keys().cloned().collect::<Vec<_>>(), "{context}");
            asked.clone_from(&listed);
        }
        for name in asked {
            let found = match fs::symlink_metadata(dir.join(&name)) {
                Ok(found) => Some(found.mode() & 0o777),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => panic!("{context}: {name}: {error}"),
            };
            assert_eq!(found, self.model.names.get(&name).copied(), "{context}: {name}");
        }
    }

    /// Each record is there once and whole. The last ones are read, and sometimes all.
    fn observe_appended(&mut self, path: &Path, context: &str) {
        let count = self.model.appended_count;
        let file = File::open(path).unwrap();
        assert_eq!(file.metadata().unwrap().len(), (count * RECORD_BYTES) as u64, "{context}");
        let read_count = if self.prng.below(100) == 0 { count } else { count.min(20) };
        let mut bytes = vec![0; read_count * RECORD_BYTES];
        file.read_exact_at(&mut bytes, ((count - read_count) * RECORD_BYTES) as u64).unwrap();
        let mut found: Vec<&[u8]> = bytes.chunks(RECORD_BYTES).collect();
        found.sort_unstable();
        let wanted: Vec<String> = (count - read_count..count).map(record).collect();
        let wanted: Vec<&[u8]> = wanted.iter().map(String::as_bytes).collect();
        assert_eq!(found, wanted, "{context}");
    }

    /// Everything that the model has, at one mount.
    fn observe_all(&mut self, mount: usize, context: &str) {
        for kind in KINDS {
            self.observe(kind, mount, &format!("{kind:?}, {context}"));
        }
    }

    fn disturb(&mut self, disturbance: Disturbance) {
        match disturbance {
            Disturbance::ServerKilled => self.kill_server(),
            Disturbance::MountKilled => self.kill_mount(),
            Disturbance::MountStopped => self.stop_mount(),
        }
    }

    /// The server dies in the middle of trials and is started again.
    fn kill_server(&mut self) {
        let (fixture, address) = (self.fixture, self.server.address.clone());
        let pid = self.server.process.pid();
        let server = std::thread::scope(|scope| {
            let restarted = scope.spawn(move || {
                kill(pid);
                until("the server has died", || !is_alive(pid));
                fixture.serve_with(&address, &SERVER)
            });
            for kind in KINDS {
                self.run(kind, &[0, 1, 2]);
            }
            restarted.join().unwrap()
        });
        self.server = server;
        (0..3).for_each(|mount| self.observe_all(mount, "the server was killed"));
    }

    /// A mount dies, and another one takes its place.
    fn kill_mount(&mut self) {
        let chosen = self.prng.below(3);
        let (name, options) = self.options[chosen];
        kill(self.mounts[chosen].process.pid());
        self.mounts[chosen].process.end();
        // What only the dead client could replay would be lost if the server were killed now.
        let url = format!("lanefs://{}", self.server.address);
        must(&mut self.fixture.lanefs(["sync", &url]));
        drop((self.handles.remove(chosen), self.mounts.remove(chosen)));
        let others: Vec<usize> = vec![0, 1];
        for kind in KINDS {
            self.run(kind, &others);
        }
        self.mounts.insert(chosen, self.fixture.mount(&self.server.address, name, options));
        let handles = Handles::of(&self.mounts[chosen].dir);
        self.handles.insert(chosen, handles);
        (0..3).for_each(|mount| self.observe_all(mount, "a mount was killed"));
    }

    /// A mount with full caches is stopped for some trials.
    fn stop_mount(&mut self) {
        let stopped = self.prng.below(3);
        self.observe_all(stopped, "it will be stopped");
        self.mounts[stopped].process.signal(Signal::STOP);
        let others: Vec<usize> = (0..3).filter(|mount| *mount != stopped).collect();
        let began = Instant::now();
        for kind in KINDS {
            self.run(kind, &others);
        }
        // One term in all, since all leases were granted before, and what a busy machine takes.
        assert!(began.elapsed() < TERM * 3, "{:?}", began.elapsed());
        let pid = self.mounts[stopped].process.pid();
        std::thread::scope(|scope| {
            let (thread_sender, thread) = std::sync::mpsc::channel();
            let observing = scope.spawn(move || {
                thread_sender.send(rustix::thread::gettid()).unwrap();
                self.observe_all(stopped, "it was stopped");
            });
            // Whatever is cached has expired: the kernel asks, and nothing is answered.
            let thread = thread.recv().unwrap().as_raw_nonzero();
            let place = format!("/proc/self/task/{thread}/wchan");
            until("the kernel waits", || {
                observing.is_finished()
                    || fs::read_to_string(&place).unwrap_or_default() == "request_wait_answer"
            });
            assert!(!observing.is_finished());
            let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            kill_process(pid, Signal::CONT).unwrap();
            observing.join().unwrap();
        });
    }

    fn stop(self) {
        drop(self.handles);
        self.mounts.into_iter().for_each(Mount::stop);
        drop(self.server);
    }
}

fn writer(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

fn overwrite(bytes: &mut Vec<u8>, word: &[u8], at: usize) {
    bytes.resize(bytes.len().max(at + word.len()), 0);
    bytes[at..at + word.len()].copy_from_slice(word);
}

fn series_file(dir: &Path, no: usize) -> PathBuf {
    dir.join(format!("series/{no:02}"))
}

fn record(number: usize) -> String {
    format!("{number:0>0$}\n", RECORD_BYTES - 1)
}

/// Bytes are compared; the first difference is shown.
#[track_caller]
fn same(found: &[u8], wanted: &[u8], context: &str) {
    assert_eq!(found.len(), wanted.len(), "bytes of {context}");
    let at = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
    assert_eq!(at, None, "where bytes differ of {context}");
}

/// Trials of each kind.
pub(crate) fn trial_count(short: usize) -> usize {
    let given = std::env::var("LANEFS_TRIALS").ok().map(|count| count.parse().unwrap());
    let long = std::env::var("LANEFS_TEST_LONG").is_ok_and(|long| long == "1");
    given.unwrap_or(if long { 10_000 } else { short })
}

/// Trials of all kinds in random order, `count` of each on average.
fn random_trials(trials: &mut Trials<'_>, count: usize) {
    for _ in 0..count * KINDS.len() {
        let kind = trials.prng.pick(&KINDS);
        trials.run(kind, &[0, 1, 2]);
    }
}

#[test]
fn no_mount_shows_an_earlier_state() {
    let Some(fixture) = Fixture::new("lease_trials") else { return };
    run_trials(&fixture, MOUNTS, trial_count(40));
}

fn run_trials(fixture: &Fixture, mounts: Mounts, count: usize) {
    let mut trials = Trials::new(fixture, mounts);
    random_trials(&mut trials, count);
    (0..3).for_each(|mount| trials.observe_all(mount, "at the end"));
    trials.stop();
}

#[test]
fn no_mount_shows_an_earlier_state_on_a_kernel_before_6_16() {
    let Some(fixture) = Fixture::new("lease_trials_epochs") else { return };
    run_trials(&fixture, EARLIER_KERNEL, trial_count(20));
}

#[test]
fn no_mount_shows_an_earlier_state_with_requests_over_io_uring() {
    const TEST: &str = "lease_trials_uring";
    let Some(fixture) = Fixture::new(TEST) else { return };
    let fixture = fixture.mounting_on_io_uring();
    if let Some(reason) = no_fuse_over_io_uring(fixture.drivers.mount) {
        skip(TEST, reason);
        return;
    }
    run_trials(&fixture, MOUNTS, trial_count(20));
}

#[test]
fn no_mount_shows_an_earlier_state_after_kills_and_stops() {
    let Some(fixture) = Fixture::new("lease_trials_disturbed") else { return };
    let mut trials = Trials::new(&fixture, MOUNTS);
    let all = [Disturbance::MountStopped, Disturbance::MountKilled, Disturbance::ServerKilled];
    // Each of them every 120 trials in the long form.
    for _ in 0..trial_count(120).div_ceil(120) {
        for disturbance in all {
            random_trials(&mut trials, 5);
            trials.disturb(disturbance);
        }
    }
    random_trials(&mut trials, 5);
    trials.stop();
}
