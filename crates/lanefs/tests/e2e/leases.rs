//! Mounts that cache: nothing is stale, and what is cached costs no request.

use crate::fixture::{Fixture, Mount, Server, program, until};
use crate::idle::connect;
use crate::random_comparison::Prng;
use library::Volume;
use rustix::fs::{AtFlags, CWD, RenameFlags, XattrFlags};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The server's lease term in these tests.
const TERM: Duration = Duration::from_secs(3);
pub(crate) const LEASES: [&str; 4] = ["--export", "up", "--leases", "on"];

/// A server with two mounts that cache.
pub(crate) struct Pair {
    pub(crate) server: Server,
    pub(crate) mounts: [Mount; 2],
}

impl Pair {
    fn new(fixture: &Fixture) -> Self {
        let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "3s"]);
        let mounts = ["a", "b"].map(|name| fixture.mount(&server.address, name, &LEASES));
        Self { server, mounts }
    }

    /// Where changes are made, and where they are looked at, in this round.
    pub(crate) fn dirs(&self, round: usize) -> (&Path, &Path) {
        let [a, b] = [0, 1].map(|index| self.mounts[index].dir.as_path());
        if round.is_multiple_of(2) { (a, b) } else { (b, a) }
    }

    pub(crate) fn stop(self) {
        self.mounts.into_iter().for_each(Mount::stop);
        drop(self.server);
    }
}

pub(crate) fn pair(test: &str, body: impl FnOnce(&Fixture, Pair)) {
    if let Some(fixture) = Fixture::new(test) {
        let pair = Pair::new(&fixture);
        body(&fixture, pair);
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// Caches all that can be cached of a directory with a file `f` in it.
fn warm(dir: &Path) {
    for _ in 0..2 {
        for name in names(dir) {
            let path = dir.join(name);
            let found = fs::symlink_metadata(&path).unwrap();
            if found.is_file() {
                fs::read(&path).unwrap();
            }
        }
        assert!(!dir.join("absent").exists());
        fs::metadata(dir).unwrap();
    }
}

/// Makes a directory, and caches it at the other mount; then does something at the first.
fn after(pair: &Pair, what: &str, does: impl Fn(&Path), sees: impl Fn(&Path, &File)) {
    for round in 0..4 {
        let (here, there) = pair.dirs(round);
        let name = format!("{what}{round}");
        let (here, there) = (here.join(&name), there.join(&name));
        fs::create_dir_all(here.join("sub")).unwrap();
        fs::create_dir(here.join("empty")).unwrap();
        fs::write(here.join("f"), "before").unwrap();
        warm(&there);
        let open = File::open(there.join("f")).unwrap();
        let mut bytes = [0; 6];
        open.read_exact_at(&mut bytes, 0).unwrap();
        does(&here);
        sees(&there, &open);
        warm(&there);
    }
}

fn text(open: &File) -> String {
    let mut bytes = [0; 64];
    let found_bytes = open.read_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes[..found_bytes]).into_owned()
}

#[test]
fn a_name_that_a_rename_made_is_not_shown_when_another_mount_has_removed_it() {
    pair("leases_renamed", |_, pair| {
        for round in 0..150 {
            let (one, other) = pair.dirs(round);
            // The kernel chooses the lane of each request; none of them knows the directory yet.
            let dir = one.join(round.to_string());
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("new"), "x").unwrap();
            fs::hard_link(dir.join("new"), one.join(format!("kept{round}"))).unwrap();
            fs::rename(dir.join("new"), dir.join("name")).unwrap();
            assert!(dir.join("name").exists());
            fs::remove_file(other.join(format!("{round}/name"))).unwrap();
            assert!(!dir.join("name").exists(), "round {round}");
        }
        pair.stop();
    });
}

#[test]
fn changes_of_names_are_seen_at_the_next_call() {
    pair("lease_names", |_, pair| {
        let absent = |path: PathBuf| path.symlink_metadata().is_err();
        after(
            &pair,
            "create",
            |dir| fs::write(dir.join("absent"), "x").unwrap(),
            |dir, _| {
                assert_eq!(fs::read_to_string(dir.join("absent")).unwrap(), "x");
                fs::remove_file(dir.join("absent")).unwrap();
            },
        );
        after(
            &pair,
            "unlink",
            |dir| fs::remove_file(dir.join("f")).unwrap(),
            |dir, open| {
                assert!(absent(dir.join("f")));
                assert_eq!(
                    (open.metadata().unwrap().nlink(), text(open)),
                    (0, "before".to_owned())
                );
                assert_eq!(names(dir), ["empty", "sub"]);
            },
        );
        let moves = |dir: &Path| fs::rename(dir.join("f"), dir.join("sub/absent")).unwrap();
        after(&pair, "rename", moves, |dir, _| {
            assert!(absent(dir.join("f")));
            assert_eq!(fs::read_to_string(dir.join("sub/absent")).unwrap(), "before");
        });
        let replaces = |dir: &Path| {
            fs::write(dir.join("new"), "after").unwrap();
            fs::rename(dir.join("new"), dir.join("f")).unwrap();
        };
        after(&pair, "replace", replaces, |dir, open| {
            assert_eq!(fs::read_to_string(dir.join("f")).unwrap(), "after");
            assert_eq!(text(open), "before");
        });
        let exchanges = |dir: &Path| {
            let (f, sub) = (dir.join("f"), dir.join("sub"));
            rustix::fs::renameat_with(CWD, &f, CWD, &sub, RenameFlags::EXCHANGE).unwrap();
        };
        after(&pair, "exchange", exchanges, |dir, _| {
            assert!(dir.join("f").is_dir());
            assert_eq!(fs::read_to_string(dir.join("sub")).unwrap(), "before");
        });
        after(
            &pair,
            "mkdir",
            |dir| fs::create_dir(dir.join("absent")).unwrap(),
            |dir, _| {
                assert_eq!(fs::metadata(dir).unwrap().nlink(), 5);
                fs::remove_dir(dir.join("absent")).unwrap();
            },
        );
        after(
            &pair,
            "rmdir",
            |dir| fs::remove_dir(dir.join("empty")).unwrap(),
            |dir, _| {
                assert!(absent(dir.join("empty")));
                assert_eq!(fs::metadata(dir).unwrap().nlink(), 3);
            },
        );
        after(
            &pair,
            "symlink",
            |dir| symlink("f", dir.join("absent")).unwrap(),
            |dir, _| {
                assert_eq!(fs::read_to_string(dir.join("absent")).unwrap(), "before");
                fs::remove_file(dir.join("absent")).unwrap();
            },
        );
        let links = |dir: &Path| fs::hard_link(dir.join("f"), dir.join("absent")).unwrap();
        after(&pair, "link", links, |dir, open| {
            assert_eq!(open.metadata().unwrap().nlink(), 2);
            assert_eq!(fs::metadata(dir.join("f")).unwrap().nlink(), 2);
            assert_eq!(fs::read_to_string(dir.join("absent")).unwrap(), "before");
            fs::remove_file(dir.join("absent")).unwrap();
        });
        pair.stop();
    });
}

#[test]
fn changes_of_attributes_are_seen_at_the_next_call() {
    pair("lease_attributes", |_, pair| {
        let chmod = |dir: &Path, name: &str, mode| {
            fs::set_permissions(dir.join(name), Permissions::from_mode(mode)).unwrap();
        };
        after(
            &pair,
            "chmod",
            |dir| chmod(dir, "f", 0o604),
            |dir, open| {
                assert_eq!(mode(&dir.join("f")), 0o604);
                assert_eq!(open.metadata().unwrap().mode() & 0o7777, 0o604);
            },
        );
        let owns = |dir: &Path| std::os::unix::fs::chown(dir.join("f"), Some(7), Some(8)).unwrap();
        after(&pair, "chown", owns, |dir, open| {
            let found = fs::metadata(dir.join("f")).unwrap();
            assert_eq!((found.uid(), found.gid()), (7, 8));
            assert_eq!(open.metadata().unwrap().uid(), 7);
        });
        let sets = |dir: &Path| {
            let flags = XattrFlags::empty();
            rustix::fs::setxattr(dir.join("f"), "user.x", b"value", flags).unwrap();
        };
        after(&pair, "setxattr", sets, |dir, _| {
            let mut value = [0; 16];
            let count = rustix::fs::getxattr(dir.join("f"), "user.x", &mut value).unwrap();
            assert_eq!(&value[..count], b"value");
        });
        after(
            &pair,
            "utimens",
            |dir| {
                let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
                OpenOptions::new()
                    .write(true)
                    .open(dir.join("f"))
                    .unwrap()
                    .set_times(times)
                    .unwrap();
            },
            |dir, open| {
                assert_eq!(fs::metadata(dir.join("f")).unwrap().mtime(), 0);
                assert_eq!(open.metadata().unwrap().mtime(), 0);
            },
        );
        // Above what is cached.
        after(
            &pair,
            "search",
            |dir| chmod(dir, ".", 0o700),
            |dir, _| {
                let mut command = program("setpriv");
                command.args(["--reuid", "1000", "--clear-groups", "cat"]).arg(dir.join("f"));
                assert!(!command.output().unwrap().status.success(), "the path is cached");
                assert_eq!(mode(dir), 0o700);
            },
        );
        pair.stop();
    });
}

#[test]
fn changes_of_contents_are_seen_at_the_next_call() {
    pair("lease_contents", |_, pair| {
        let writer = |dir: &Path| OpenOptions::new().write(true).open(dir.join("f")).unwrap();
        let sees = |wanted: &'static str| {
            move |dir: &Path, open: &File| {
                assert_eq!(text(open), wanted);
                assert_eq!(open.metadata().unwrap().len(), wanted.len() as u64);
                assert_eq!(fs::read_to_string(dir.join("f")).unwrap(), wanted);
            }
        };
        let writes = |dir: &Path| writer(dir).write_all_at(b"BEFORE", 0).unwrap();
        after(&pair, "write", writes, sees("BEFORE"));
        let grows = |dir: &Path| writer(dir).write_all_at(b", longer", 6).unwrap();
        after(&pair, "grow", grows, sees("before, longer"));
        after(&pair, "truncate", |dir| writer(dir).set_len(3).unwrap(), sees("bef"));
        // Neither size nor mtime show it.
        let restores = |dir: &Path| {
            let file = writer(dir);
            let modified = file.metadata().unwrap().modified().unwrap();
            file.write_all_at(b"BEFORE", 0).unwrap();
            file.set_times(fs::FileTimes::new().set_modified(modified)).unwrap();
        };
        after(&pair, "restore", restores, sees("BEFORE"));

        // The file stays open at both.
        let (here, there) = pair.dirs(0);
        fs::write(here.join("f"), "000").unwrap();
        let (file, open) = (writer(here), File::open(there.join("f")).unwrap());
        for count in 0..200 {
            let wanted = format!("{count:03}");
            file.write_all_at(wanted.as_bytes(), 0).unwrap();
            assert_eq!(text(&open), wanted);
            assert_eq!(fs::read_to_string(there.join("f")).unwrap(), wanted);
        }
        pair.stop();
    });
}

#[test]
fn names_that_each_other_mount_holds_as_absent_are_made_at_the_same_time() {
    pair("lease_crosswise", |_, pair| {
        for round in 0..50 {
            let (a, b) = pair.dirs(0);
            let (x, y) = (format!("x{round}"), format!("y{round}"));
            assert!(!a.join(&y).exists() && !b.join(&x).exists());
            let both = [(a.join(&x), b.join(&x)), (b.join(&y), a.join(&y))];
            std::thread::scope(|scope| {
                for (here, there) in &both {
                    scope.spawn(move || {
                        fs::write(here, "made").unwrap();
                        assert!(there.exists());
                    });
                }
            });
            for path in both.iter().flat_map(|(here, there)| [here, there]) {
                assert_eq!(fs::read_to_string(path).unwrap(), "made");
            }
        }
        pair.stop();
    });
}

#[test]
fn a_stopped_mount_delays_others_no_longer_than_its_term_and_then_its_kernel_waits() {
    pair("lease_stopped", |_, pair| {
        let (here, there) = pair.dirs(0);
        fs::write(here.join("f"), "before").unwrap();
        warm(there);
        let open = File::open(there.join("f")).unwrap();
        assert_eq!(text(&open), "before");
        pair.mounts[1].process.signal(Signal::STOP);
        let began = Instant::now();
        fs::set_permissions(here.join("f"), Permissions::from_mode(0o600)).unwrap();
        fs::write(here.join("f"), "after!").unwrap();
        // One term, and what a busy machine takes.
        assert!(began.elapsed() < TERM * 3, "{:?}", began.elapsed());
        let path = there.join("f");
        let (thread_sender, thread) = std::sync::mpsc::channel();
        let asking = std::thread::spawn(move || {
            thread_sender.send(rustix::thread::gettid()).unwrap();
            (mode(&path), fs::read(&path).unwrap(), text(&open))
        });
        // Whatever is cached has expired: the kernel asks, and nothing is answered.
        let thread = thread.recv().unwrap().as_raw_nonzero();
        let place = format!("/proc/self/task/{thread}/wchan");
        until("the kernel waits", || fs::read_to_string(&place).unwrap() == "request_wait_answer");
        assert!(!asking.is_finished());
        pair.mounts[1].process.signal(Signal::CONT);
        let found = asking.join().unwrap();
        assert_eq!(found, (0o600, b"after!".to_vec(), "after!".to_owned()));
        pair.stop();
    });
}

#[test]
fn a_server_that_was_killed_finds_nothing_stale_at_its_mounts() {
    pair("lease_killed_server", |fixture, mut pair| {
        for round in 0..3 {
            let (here, there) = pair.dirs(round);
            fs::write(here.join("f"), format!("{round}")).unwrap();
            warm(there);
            warm(here);
            let address = pair.server.address.clone();
            crate::fixture::kill(pair.server.process.pid());
            pair.server.process.end();
            pair.server = fixture.serve_with(&address, &["--lease-term", "3s"]);
            let (here, there) = pair.dirs(round);
            fs::write(here.join("f"), format!("after {round}")).unwrap();
            fs::write(here.join(format!("new{round}")), "new").unwrap();
            assert_eq!(fs::read_to_string(there.join("f")).unwrap(), format!("after {round}"));
            assert!(there.join(format!("new{round}")).exists());
        }
        pair.stop();
    });
}

/// Requests and reads that a server has answered.
pub(crate) struct Counting {
    pub(crate) volume: Volume,
    pub(crate) own_count: u64,
}

impl Counting {
    /// The Pings of all clients.
    pub(crate) fn ping_count(&mut self) -> u64 {
        let lanes = self.volume.stats().unwrap();
        self.own_count += u64::try_from(lanes.len()).unwrap();
        lanes.iter().map(|lane| lane.leases.ping_count).sum()
    }

    /// Requests without those of this client and without Pings, and bytes read.
    pub(crate) fn now(&mut self) -> (u64, u64) {
        let lanes = self.volume.stats().unwrap();
        let sum = |field: fn(&library::Stats) -> u64| lanes.iter().map(field).sum::<u64>();
        let pings = sum(|lane| lane.leases.ping_count);
        let request_count = sum(|lane| lane.request_count) - pings - self.own_count;
        let found = (request_count, sum(|lane| lane.read_bytes));
        self.own_count += u64::try_from(lanes.len()).unwrap();
        found
    }
}

#[test]
fn what_is_cached_costs_no_request() {
    let Some(fixture) = Fixture::new("lease_counts") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "60s"]);
    // With more lanes, one that is asked for what another has a lease of may ask for its own.
    let options = [&LEASES[..], &["--lanes", "1"]].concat();
    let mount = fixture.mount(&server.address, "a", &options);
    let deep = mount.dir.join("1/2/3/4/5/6/7/8");
    fs::create_dir_all(&deep).unwrap();
    let paths: Vec<PathBuf> = (0..1_000).map(|count| deep.join(format!("{count}"))).collect();
    for path in &paths {
        fs::write(path, "contents").unwrap();
    }
    let look = || {
        for path in &paths {
            assert_eq!(fs::metadata(path).unwrap().len(), 8);
        }
        assert!(!deep.join("absent").exists());
    };
    let read = || paths.iter().for_each(|path| assert_eq!(fs::read(path).unwrap(), b"contents"));
    // An absent name, and what the kernel asks another lane for than the one that has the lease, get
    // a lease when they were looked for several times.
    for _ in 0..4 {
        look();
    }
    let mut counting = Counting { volume: connect(&fixture, &server.address), own_count: 0 };
    counting.now();
    // Files are cached whose size is recorded, which no request waits for. What was read ahead before
    // costs one pass nothing, cached or not.
    until("all contents are cached", || {
        let (_, read_before) = counting.now();
        read();
        read();
        counting.now().1 == read_before
    });
    look();
    let (before, _) = counting.now();
    look();
    assert_eq!(counting.now().0 - before, 0, "1,001 names eight directories deep");
    let (before, read_before) = counting.now();
    read();
    let (after, read_after) = counting.now();
    assert_eq!(read_after - read_before, 0, "no byte is read again");
    assert!(after - before <= 2_000, "{} for an open and a close each", after - before);
    drop(counting);
    mount.stop();
}

#[test]
fn without_leases_every_name_is_asked_for() {
    let Some(fixture) = Fixture::new("lease_off") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &[]);
    for off in [["--leases", "off"], ["-o", "leases=off"]] {
        let mount = fixture.mount(&server.address, "a", &[&["--export", "up"][..], &off].concat());
        fs::write(mount.dir.join("f"), "contents").unwrap();
        let mut counting = Counting { volume: connect(&fixture, &server.address), own_count: 0 };
        counting.now();
        let (before, _) = counting.now();
        for _ in 0..10 {
            fs::metadata(mount.dir.join("f")).unwrap();
        }
        assert!(counting.now().0 - before >= 10);
        drop(counting);
        mount.stop();
    }
}

/// One operation below a directory; what is worth comparing of what comes back.
fn perform(dir: &Path, act: usize, names: [&str; 2], number: usize) -> io::Result<String> {
    let [path, other] = names.map(|name| dir.join(name));
    let done = |()| String::new();
    let bytes = format!("{number}").into_bytes();
    match act {
        0 | 1 => fs::write(&path, &bytes).map(done),
        2 => {
            let file = OpenOptions::new().append(true).create(true).open(&path)?;
            io::Write::write_all(&mut &file, &bytes).map(done)
        }
        3 => OpenOptions::new().write(true).open(&path)?.set_len(number as u64 % 9).map(done),
        4 => OpenOptions::new().write(true).open(&path)?.write_all_at(&bytes, 2).map(done),
        5 => fs::remove_file(&path).map(done),
        6 => fs::create_dir(&path).map(done),
        7 => fs::remove_dir(&path).map(done),
        8 => fs::rename(&path, &other).map(done),
        9 => rustix::fs::renameat_with(CWD, &path, CWD, &other, RenameFlags::EXCHANGE)
            .map(done)
            .map_err(Into::into),
        10 => fs::hard_link(&path, &other).map(done),
        11 => symlink(names[1], &path).map(done),
        12 => {
            let mode = if number.is_multiple_of(2) { 0o755 } else { 0o640 };
            fs::set_permissions(&path, Permissions::from_mode(mode)).map(done)
        }
        13 => rustix::fs::setxattr(&path, "user.x", &bytes, XattrFlags::empty())
            .map(done)
            .map_err(Into::into),
        14..=19 => {
            let found = rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)?;
            let is_dir = found.st_mode & 0o170_000 == 0o040_000;
            let size_bytes = if is_dir { 0 } else { found.st_size };
            Ok(format!("{:o} {} {size_bytes}", found.st_mode, found.st_nlink))
        }
        20 => {
            let mut value = [0; 16];
            let count = rustix::fs::getxattr(&path, "user.x", &mut value)?;
            Ok(format!("{:?}", &value[..count]))
        }
        21 | 22 => {
            let mut found: Vec<_> =
                fs::read_dir(&path)?.map(|it| it.unwrap().file_name()).collect();
            found.sort();
            Ok(format!("{found:?}"))
        }
        23 => fs::read_link(&path).map(|target| format!("{target:?}")),
        _ => fs::read(&path).map(|bytes| format!("{bytes:?}")),
    }
}

/// Files that stay open at a mount, each with its twin.
struct Open {
    here: File,
    twin: File,
}

#[test]
fn random_operations_at_two_mounts_see_what_a_local_directory_shows() {
    const COUNT: usize = 6_000;
    const ACT_COUNT: usize = 30;
    let names = ["a", "b", "c", "d", "a/a", "a/b", "b/a", "b/b", "c/a", "a/a/b"];
    pair("lease_random", |fixture, pair| {
        let twin_dir = fixture.make_dir("twin");
        let mut prng = Prng::new(crate::fixture::roll() + 1);
        let mut open: Vec<Open> = Vec::new();
        for number in 0..COUNT {
            let (dir, _) = pair.dirs(prng.below(2));
            let act = prng.below(ACT_COUNT + 4);
            let chosen = [prng.pick(&names), prng.pick(&names)];
            let line = format!("{number}: {act} {chosen:?} at {}", dir.display());
            if act < ACT_COUNT {
                let errno = |error: io::Error| error.raw_os_error();
                let found = perform(dir, act, chosen, number).map_err(errno);
                let wanted = perform(&twin_dir, act, chosen, number).map_err(errno);
                assert_eq!(found, wanted, "{line}");
            } else if act < ACT_COUNT + 2 || open.is_empty() {
                let opened = [dir, &twin_dir].map(|dir| File::open(dir.join(chosen[0])));
                let [here, twin] = opened;
                assert_eq!(here.is_ok(), twin.is_ok(), "{line}");
                if let (Ok(here), Ok(twin)) = (here, twin)
                    && here.metadata().unwrap().is_file()
                {
                    open.truncate(15);
                    open.insert(prng.below(open.len() + 1), Open { here, twin });
                }
            } else {
                let Open { here, twin } = &open[prng.below(open.len())];
                assert_eq!(text(here), text(twin), "{line}: of an open file");
                let shown = |file: &File| {
                    let found = file.metadata().unwrap();
                    (found.len(), found.nlink(), found.mode())
                };
                assert_eq!(shown(here), shown(twin), "{line}: of an open file");
            }
        }
        pair.stop();
    });
}
