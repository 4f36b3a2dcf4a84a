//! Two mounts, each a process of its own: after a change at one is answered, the next call at the other
//! sees it, through names, open files, open directories and a working directory.
//!
//! The files are at one server, and once more at four, where the roll chooses the test;
//! `LANEFS_TEST_SERVERS=4` does so with all of them.

use crate::fixture::{Fixture, Mount, Up, chosen, has_etcd, must, program};
use crate::networks::Networks;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

/// A server with two mounts.
pub(crate) struct Pair {
    up: Up,
    second: Mount,
    networks: Option<Networks>,
}

impl Pair {
    fn new(fixture: &Fixture, server_count: &str) -> Self {
        let up = fixture.up(&["--servers", server_count]);
        let second = fixture.mount(&up.address, "second", &["--export", "up"]);
        Self { up, second, networks: None }
    }

    /// The second mount is on another host, as far as the network knows.
    fn apart(fixture: &Fixture) -> Self {
        let networks = Networks::new();
        let listen = format!("{}:0", Networks::NEAR);
        let up = fixture.up_in(&networks.near, "mnt", &["--listen", &listen]);
        let more = ["--export", "up"];
        let second = fixture.mount_in(&networks.far, &up.address, "second", &more);
        Self { up, second, networks: Some(networks) }
    }

    /// The two directories, in the order of this round: changes go both ways.
    pub(crate) fn dirs(&self, round: usize) -> (&Path, &Path) {
        let (one, other) = (self.up.dir.as_path(), self.second.dir.as_path());
        if round.is_multiple_of(2) { (one, other) } else { (other, one) }
    }

    pub(crate) fn stop(self) {
        self.second.stop();
        self.up.stop();
        drop(self.networks);
    }
}

/// Runs a test over the best way of carrying requests to these lanes, over a network, and sometimes over
/// several servers.
pub(crate) fn over_each(test: &str, body: impl Fn(&Pair)) {
    let servers = std::env::var("LANEFS_TEST_SERVERS").ok();
    let is_chosen = chosen(test, 4) || servers.is_some();
    let servers = servers.as_deref().unwrap_or("4");
    for server_count in ["1"].into_iter().chain(is_chosen.then_some(servers)) {
        let Some(fixture) = Fixture::new(test) else { return };
        if server_count != "1" && !has_etcd(test) {
            continue;
        }
        let pair = Pair::new(&fixture, server_count);
        body(&pair);
        pair.stop();
    }
    let Some(fixture) = Fixture::new(test) else { return };
    let pair = Pair::apart(&fixture);
    body(&pair);
    pair.stop();
}

const ROUND_COUNT: usize = 20;

fn errno(result: std::io::Result<impl Sized>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn names_come_and_go_at_both() {
    over_each("two_names", |pair| {
        for round in 0..ROUND_COUNT {
            let (here, there) = pair.dirs(round);
            let path = |name: &str| (here.join(name), there.join(name));
            let (made, seen) = path("file");
            // There it is known not to exist before it does.
            assert_eq!(errno(fs::metadata(&seen)), Some(2));
            fs::write(&made, "x").unwrap();
            assert_eq!(fs::metadata(&seen).unwrap().len(), 1);
            assert_eq!(names(there), ["file"]);
            let number = fs::metadata(&made).unwrap().ino();
            assert_eq!(fs::metadata(&seen).unwrap().ino(), number, "the same file");

            let (made_link, seen_link) = path("link");
            assert!(!seen_link.exists());
            fs::hard_link(&made, &made_link).unwrap();
            assert_eq!(fs::metadata(&seen_link).unwrap().ino(), number);
            assert_eq!(fs::metadata(&seen).unwrap().nlink(), 2);
            fs::remove_file(&seen).unwrap();
            assert_eq!(errno(fs::metadata(&made)), Some(2));
            assert_eq!(fs::metadata(&made_link).unwrap().nlink(), 1);

            // Another file under a name that was looked at a moment ago.
            fs::rename(&made_link, &made).unwrap();
            assert_eq!(fs::metadata(&seen).unwrap().ino(), number);
            fs::write(&seen_link, "other").unwrap();
            fs::rename(&seen_link, &seen).unwrap();
            assert_eq!(fs::read_to_string(&made).unwrap(), "other", "renamed over");
            assert_ne!(fs::metadata(&made).unwrap().ino(), number);
            fs::remove_file(&made).unwrap();

            // The same name as one kind after the other.
            fs::create_dir(&seen).unwrap();
            assert!(fs::metadata(&made).unwrap().is_dir());
            assert_eq!(errno(fs::create_dir(&made)), Some(17));
            fs::remove_dir(&made).unwrap();
            for target in ["nowhere", "elsewhere"] {
                symlink(target, &seen).unwrap();
                assert_eq!(fs::read_link(&made).unwrap(), Path::new(target));
                assert!(fs::symlink_metadata(&made).unwrap().is_symlink());
                fs::remove_file(&made).unwrap();
                assert_eq!(errno(fs::read_link(&seen)), Some(2));
            }
            assert!(names(here).is_empty() && names(there).is_empty());
        }
    });
}

#[test]
fn attributes_are_the_same_at_both() {
    over_each("two_attributes", |pair| {
        fs::write(pair.dirs(0).0.join("f"), "12345").unwrap();
        for round in 0..ROUND_COUNT {
            let (here, there) = pair.dirs(round);
            let (path, seen) = (here.join("f"), there.join("f"));
            let open = File::open(&seen).unwrap();
            // By name and by the open file, each as the first to look.
            let stat = |first_by_name: bool| {
                let by_name = || fs::metadata(&seen).unwrap();
                let by_file = || open.metadata().unwrap();
                let pair = if first_by_name {
                    (by_name(), by_file())
                } else {
                    let by_file = by_file();
                    (by_name(), by_file)
                };
                let visible = |m: &fs::Metadata| {
                    (m.mode(), m.uid(), m.gid(), m.len(), m.mtime(), m.mtime_nsec(), m.atime())
                };
                assert_eq!(visible(&pair.0), visible(&pair.1));
                pair.0
            };
            let by_name = round % 4 < 2;
            let mode = 0o600 + u32::try_from(round % 8).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(stat(by_name).mode() & 0o7777, mode);
            let id = u32::try_from(round + 1).unwrap();
            std::os::unix::fs::chown(&path, Some(id), Some(id + 1)).unwrap();
            assert_eq!((stat(by_name).uid(), stat(by_name).gid()), (id, id + 1));
            let when = i64::from(id) * 1_000_003;
            let time = rustix::fs::Timespec { tv_sec: when, tv_nsec: 123_456_789 };
            let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
            rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
            assert_eq!((stat(by_name).mtime(), stat(by_name).mtime_nsec()), (when, 123_456_789));
            let ctime = stat(by_name).ctime_nsec();
            let value = format!("value{round}");
            rustix::fs::setxattr(&path, "user.a", value.as_bytes(), XattrFlags::empty()).unwrap();
            let mut found = [0; 64];
            let found_bytes = rustix::fs::fgetxattr(&open, "user.a", &mut found).unwrap();
            assert_eq!(&found[..found_bytes], value.as_bytes());
            assert_ne!(stat(by_name).ctime_nsec(), ctime, "an attribute changes the ctime");
            rustix::fs::fremovexattr(&open, "user.a").unwrap();
            let removed = rustix::fs::getxattr(&path, "user.a", &mut found);
            assert_eq!(removed.unwrap_err(), Errno::NODATA);
        }
    });
}

#[test]
fn contents_are_the_same_at_both() {
    over_each("two_contents", |pair| {
        for round in 0..ROUND_COUNT {
            let (here, there) = pair.dirs(round);
            let name = format!("f{round}");
            let create = File::options().read(true).write(true).create_new(true).clone();
            let mut mine = create.open(here.join(&name)).unwrap();
            let mut yours = File::options().read(true).write(true).open(there.join(&name)).unwrap();
            let mut text = String::new();
            assert_eq!(yours.read_to_string(&mut text).unwrap(), 0, "known to be empty");
            mine.write_all(b"hello").unwrap();
            assert_eq!(yours.seek(std::io::SeekFrom::End(0)).unwrap(), 5, "the end has moved");
            yours.rewind().unwrap();
            yours.read_to_string(&mut text).unwrap();
            assert_eq!(text, "hello");
            // At the end of the file, where a reader of a growing file waits.
            mine.write_all(b" and more").unwrap();
            yours.read_to_string(&mut text).unwrap();
            assert_eq!(text, "hello and more");
            mine.set_len(5).unwrap();
            assert_eq!(yours.read(&mut [0; 10]).unwrap(), 0);
            assert_eq!(yours.metadata().unwrap().len(), 5);
            yours.set_len(8).unwrap();
            let mut bytes = [1; 10];
            assert_eq!(mine.read_at(&mut bytes, 0).unwrap(), 8);
            assert_eq!(&bytes, b"hello\0\0\0\x01\x01");
            // Adjacent unaligned ranges of one page, from both mounts in turn.
            for at in 0..200 {
                let (file, byte) = if at % 2 == 0 { (&mine, b'a') } else { (&yours, b'b') };
                file.write_all_at(&[byte; 7], at * 7).unwrap();
            }
            let whole = fs::read(there.join(&name)).unwrap();
            let expected: Vec<u8> =
                (0..1400).map(|at| if at / 7 % 2 == 0 { b'a' } else { b'b' }).collect();
            assert!(whole == expected);
            // Emptied by an open.
            File::create(here.join(&name)).unwrap();
            assert_eq!(yours.read_at(&mut bytes, 0).unwrap(), 0);
            // Unlinked there, open here.
            mine.write_all_at(b"kept", 0).unwrap();
            fs::remove_file(there.join(&name)).unwrap();
            assert_eq!(mine.metadata().unwrap().nlink(), 0);
            assert_eq!(mine.read_at(&mut bytes, 0).unwrap(), 4);
            assert_eq!(&bytes[..4], b"kept");
        }
    });
}

fn append(path: &Path) -> File {
    File::options().append(true).create(true).open(path).unwrap()
}

#[test]
fn appends_go_to_the_end_wherever_it_is() {
    over_each("two_appends", |pair| {
        let (here, there) = pair.dirs(0);
        let (mut mine, mut yours) = (append(&here.join("log")), append(&there.join("log")));
        let mut expected = Vec::new();
        for round in 0..200_usize {
            let file = if round.is_multiple_of(2) { &mut mine } else { &mut yours };
            let record = format!("{round} {}\n", "x".repeat(round * 31 % 5000));
            file.write_all(record.as_bytes()).unwrap();
            expected.extend_from_slice(record.as_bytes());
        }
        assert!(fs::read(there.join("log")).unwrap() == expected);
    });
}

/// Four writers on two mounts; each record is one write.
#[test]
fn appends_of_four_processes_tear_no_record() {
    const SCRIPT: &str = "import os,sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
for n in range(300):
    record = ('%s %d ' % (sys.argv[2], n)).encode()
    record += b'x' * (n * 997 % 20000) + b'\\n'
    assert os.write(fd, record) == len(record)
";
    over_each("two_writers", |pair| {
        let (here, there) = pair.dirs(0);
        File::create(here.join("log")).unwrap();
        let mut writers = Vec::new();
        for (number, dir) in [here, there, here, there].into_iter().enumerate() {
            let mut writer = program("python3");
            writer.args(["-c", SCRIPT]).arg(dir.join("log")).arg(number.to_string());
            writers.push(writer.spawn().unwrap());
        }
        for mut writer in writers {
            assert!(writer.wait().unwrap().success());
        }
        let text = fs::read_to_string(there.join("log")).unwrap();
        let mut next = [0; 4];
        for line in text.lines() {
            let mut words = line.split(' ');
            let writer: usize = words.next().unwrap().parse().unwrap();
            let number: usize = words.next().unwrap().parse().unwrap();
            assert_eq!(number, next[writer], "in the writer's own order");
            let filler = words.next().unwrap();
            assert_eq!(filler.len(), number * 997 % 20000, "whole");
            assert!(filler.bytes().all(|byte| byte == b'x'), "not mixed");
            next[writer] += 1;
        }
        assert_eq!(next, [300; 4], "none is lost");
    });
}

fn listed(stream: &mut Dir) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(entry) = stream.read() {
        let name = entry.unwrap().file_name().to_str().unwrap().to_owned();
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    names
}

#[test]
fn an_open_directory_and_a_working_directory_see_changes() {
    over_each("two_directories", |pair| {
        for round in 0..ROUND_COUNT {
            let (here, there) = pair.dirs(round);
            fs::create_dir(here.join("d")).unwrap();
            let open = File::open(there.join("d")).unwrap();
            let mut stream = Dir::read_from(&open).unwrap();
            assert_eq!(listed(&mut stream), [""; 0]);
            let at = |name: &str| rustix::fs::statat(open.as_fd(), name, AtFlags::empty());
            for name in ["a", "b"] {
                assert_eq!(at(name).unwrap_err(), Errno::NOENT);
                fs::write(here.join("d").join(name), name).unwrap();
                assert_eq!(at(name).unwrap().st_size, 1);
            }
            stream.rewind();
            assert_eq!(listed(&mut stream), ["a", "b"]);
            fs::rename(here.join("d/a"), here.join("d/c")).unwrap();
            assert_eq!(at("a").unwrap_err(), Errno::NOENT);
            stream.rewind();
            assert_eq!(listed(&mut stream), ["b", "c"]);
            // The directory itself moves; who stands in it stays in it.
            fs::rename(here.join("d"), here.join("e")).unwrap();
            assert_eq!(at("c").unwrap().st_size, 1);
            assert!(!there.join("d").exists());
            fs::write(here.join("e/new"), "").unwrap();
            assert_eq!(at("new").unwrap().st_size, 0);
            let mode = Mode::from_raw_mode(0o600);
            let made = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
            rustix::fs::openat(open.as_fd(), "made", made, mode).unwrap();
            assert_eq!(names(&here.join("e")), ["b", "c", "made", "new"]);
            must(program("rm").arg("-r").arg(here.join("e")));
            // It is removed: it is empty, and nothing can be created in it.
            assert_eq!(at("c").unwrap_err(), Errno::NOENT);
            let late = rustix::fs::openat(open.as_fd(), "late", made, mode);
            assert_eq!(late.unwrap_err(), Errno::NOENT);
        }
    });
}

#[test]
fn a_shell_works_on_in_a_directory_that_was_renamed_elsewhere() {
    over_each("two_shells", |pair| {
        let (here, there) = pair.dirs(0);
        fs::create_dir(here.join("d")).unwrap();
        let script = "cd \"$1/d\" && mv \"$2/d\" \"$2/e\" && echo x >f && cat \"$2/e/f\" && \
                      mv f g && ls && rm \"$2/e/g\" && ls && rmdir \"$2/e\" && ! touch h";
        let mut shell = program("sh");
        shell.args(["-c", script, "sh"]).arg(there).arg(here);
        assert_eq!(must(&mut shell), "x\ng\n");
    });
}

/// A mapping is fresh when it is made, and what was written to it is elsewhere after msync or
/// munmap.
#[test]
fn mappings_are_fresh_when_they_are_made() {
    const SCRIPT: &str = "import mmap,os,sys
here, there = sys.argv[1:]
open(here, 'wb').write(b'a' * 10000)
for n in range(30):
    fd = os.open(there, os.O_RDWR)
    old = b'%c' % (97 + n % 20)
    m = mmap.mmap(fd, 10000)
    assert m[:] == old * 10000, (n, m[:20])
    new = b'%c' % (97 + (n + 1) % 20)
    if n % 2:
        m[:] = new * 10000
        if n % 4 == 1: m.flush()
        else: m.close()
        got = open(here, 'rb').read()
        assert got == new * 10000, (n, got[:20])
    else:
        # Creation anew by the other side while it is mapped; the next mapping shows it.
        f = open(here, 'r+b'); f.write(new * 10000); f.close()
    os.close(fd)
    here, there = there, here
    if n % 2 == 0: here, there = there, here
";
    over_each("two_mappings", |pair| {
        let (here, there) = pair.dirs(0);
        let mut script = program("python3");
        must(script.args(["-c", SCRIPT]).arg(here.join("f")).arg(there.join("f")));
    });
}

#[test]
fn a_lseek_to_the_end_and_a_stat_agree_while_the_other_side_writes() {
    over_each("two_ends", |pair| {
        let (here, there) = pair.dirs(0);
        let mine = File::create(here.join("f")).unwrap();
        let yours = File::open(there.join("f")).unwrap();
        for size in 1..200_u64 {
            mine.write_all_at(b"x", size * 100).unwrap();
            let end = rustix::fs::seek(&yours, SeekFrom::End(0)).unwrap();
            assert_eq!((end, yours.metadata().unwrap().len()), (size * 100 + 1, size * 100 + 1));
        }
    });
}
