//! Twins: the same random operations on a mount and on a local directory come to the same results,
//! errors and trees.
//!
//! A player has a thread with a root directory, umask and user of its own, so that paths cannot
//! leave its tree and differ in nothing. What is asked is made of prng alone; a failure names
//! the seed, and `LANEFS_COMPARISON=SEED[,COUNT]` plays that one again.

use crate::fixture::{Fixture, Up, must, program};
use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps,
};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Gid, Uid};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Numbers that follow from a seed.
pub(crate) struct Prng(fastrand::Rng);

impl Prng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0.usize(..limit)
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// A path with whatever a path may have in it; `.` and `..` are for root, since the kernel asks
    /// nobody whether a directory may be searched for them.
    fn path(&mut self, uid: u32, last: &[u8]) -> Vec<u8> {
        let dots = uid == 0;
        if self.chance(1) {
            let names: [&[u8]; 5] = [b"", b"/", b"//", b".", b".."];
            return self.pick(&names[..if dots { 5 } else { 3 }]).to_vec();
        }
        let mut path = if self.chance(4) { b"/".to_vec() } else { Vec::new() };
        let depth = self.pick(&[1, 1, 1, 1, 2, 2, 2, 3]);
        for level in 0..depth {
            if level > 0 {
                path.extend(if self.chance(2) { &b"//"[..] } else { b"/" });
            }
            match self.below(100) {
                0 if dots => path.push(b'.'),
                1..=3 if dots => path.extend(b".."),
                7 => path.extend([b'n'; 255]),
                8 => path.extend([b'n'; 256]),
                9 => path.extend("\u{e9}\n".bytes()),
                // Some names are directories more often than others.
                _ if level + 1 < depth => path.push(self.pick(b"aab")),
                _ => path.push(self.pick(last)),
            }
        }
        match self.below(100) {
            0..=4 => path.push(b'/'),
            8 if dots => path.extend(b"/."),
            9 if dots => path.extend(b"/.."),
            _ => {}
        }
        path
    }

    fn mode(&mut self) -> u32 {
        self.pick(&[0o777, 0o755, 0o700, 0o770, 0o1777, 0o2775, 0o644, 0o600, 0o4755, 0o2711])
    }
}

/// Names, in paths whose first ones are mostly those of directories.
const ANY: &[u8; 10] = b"abcdefghab";

/// What is done.
#[derive(Clone, Debug)]
enum Act {
    Create(Vec<u8>, OFlags, u32),
    Mkdir(Vec<u8>, u32),
    Mknod(Vec<u8>, FileType, u32, u64),
    Symlink(Vec<u8>, Vec<u8>),
    Link(Vec<u8>, Vec<u8>, bool),
    Unlink(Vec<u8>),
    Rmdir(Vec<u8>),
    Rename(Vec<u8>, Vec<u8>, RenameFlags),
    Stat(Vec<u8>, bool),
    Readlink(Vec<u8>),
    List(Vec<u8>),
    Access(Vec<u8>, Access),
    Chmod(Vec<u8>, u32),
    Chown(Vec<u8>, u32, u32, bool),
    Times(Vec<u8>, bool),
    Truncate(Vec<u8>, u64),
}

impl Act {
    fn roll(prng: &mut Prng, uid: u32) -> Self {
        let what = prng.below(40);
        let last = match what {
            0..=5 | 12..=14 => b"ddeeffgghb",
            6..=11 | 21 | 22 => b"aaaabbbbcd",
            _ => ANY,
        };
        let path = prng.path(uid, last);
        match what {
            0..=5 => Self::Create(path, open_flags(prng), prng.mode()),
            6..=11 => Self::Mkdir(path, prng.mode()),
            12 | 13 => {
                let kinds = [FileType::Fifo, FileType::Socket, FileType::CharacterDevice];
                let more = [FileType::RegularFile, FileType::BlockDevice, FileType::Directory];
                let kind = if prng.chance(80) { prng.pick(&kinds) } else { prng.pick(&more) };
                let device = prng.pick(&[0, rustix::fs::makedev(1, 3), u64::MAX]);
                Self::Mknod(path, kind, prng.mode(), device)
            }
            14 => {
                let mut target = if prng.chance(20) { b"../".to_vec() } else { Vec::new() };
                // Everybody follows it.
                target.extend(prng.path(1000, ANY));
                Self::Symlink(target, path)
            }
            15..=17 => Self::Link(path, prng.path(uid, ANY), prng.chance(30)),
            18..=20 => Self::Unlink(path),
            21 | 22 => Self::Rmdir(path),
            23..=29 => {
                let bits =
                    if prng.chance(70) { prng.pick(&[0, 0, 1, 2, 2, 4]) } else { prng.below(9) };
                let flags = RenameFlags::from_bits_retain(u32::try_from(bits).unwrap());
                Self::Rename(path, prng.path(uid, ANY), flags)
            }
            30 | 31 => Self::Stat(path, prng.chance(50)),
            32 => Self::Readlink(path),
            33 => Self::List(path),
            34 => {
                Self::Access(path, Access::from_bits_retain(u32::try_from(prng.below(8)).unwrap()))
            }
            35 | 36 => Self::Chmod(path, prng.mode()),
            37 => {
                let id = |prng: &mut Prng| prng.pick(&[0, 1000, 1001, 70_000, u32::MAX - 1]);
                Self::Chown(path, id(prng), id(prng), prng.chance(50))
            }
            38 => Self::Times(path, prng.chance(50)),
            _ => Self::Truncate(path, prng.pick(&[0, 5, 100_000])),
        }
    }

    /// Does it; what is worth comparing of what comes back.
    fn perform(&self) -> Result<String, Errno> {
        use rustix::fs;
        match self {
            Self::Create(path, flags, mode) => {
                let file = fs::open(path, *flags, Mode::from_raw_mode(*mode))?;
                Ok(shown(&fs::fstat(file)?))
            }
            Self::Mkdir(path, mode) => fs::mkdir(path, Mode::from_raw_mode(*mode)).map(done),
            Self::Mknod(path, kind, mode, device) => {
                fs::mknodat(CWD, path, *kind, Mode::from_raw_mode(*mode), *device).map(done)
            }
            Self::Symlink(target, path) => fs::symlink(target, path).map(done),
            Self::Link(old, new, follow) => {
                let flags = if *follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
                fs::linkat(CWD, old, CWD, new, flags).map(done)
            }
            Self::Unlink(path) => fs::unlink(path).map(done),
            Self::Rmdir(path) => fs::rmdir(path).map(done),
            Self::Rename(old, new, flags) => {
                fs::renameat_with(CWD, old, CWD, new, *flags).map(done)
            }
            Self::Stat(path, follow) => {
                Ok(shown(&if *follow { fs::stat(path)? } else { fs::lstat(path)? }))
            }
            Self::Readlink(path) => {
                fs::readlink(path, Vec::new()).map(|target| format!("{target:?}"))
            }
            Self::List(path) => list(path),
            Self::Access(path, access) => fs::access(path, *access).map(done),
            Self::Chmod(path, mode) => fs::chmod(path, Mode::from_raw_mode(*mode)).map(done),
            Self::Chown(path, uid, gid, follow) => {
                let flags = if *follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
                fs::chownat(CWD, path, Some(uid), Some(gid), flags).map(done)
            }
            Self::Times(path, follow) => {
                let flags = if *follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                fs::utimensat(CWD, path, &LONG_AGO, flags).map(done)
            }
            Self::Truncate(path, size_bytes) => {
                let file = fs::open(path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty())?;
                fs::ftruncate(&file, *size_bytes)?;
                Ok(shown(&fs::fstat(file)?))
            }
        }
    }
}

const LONG_AGO: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: -5, tv_nsec: 1 },
    last_modification: Timespec { tv_sec: 1_000_000_000, tv_nsec: 999_999_999 },
};

fn open_flags(prng: &mut Prng) -> OFlags {
    let mut flags = prng.pick(&[OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR]);
    // A fifo without a second end would wait.
    flags |= OFlags::NONBLOCK;
    let more = [
        (70, OFlags::CREATE),
        (30, OFlags::EXCL),
        (15, OFlags::TRUNC),
        (8, OFlags::DIRECTORY),
        (10, OFlags::NOFOLLOW),
        (10, OFlags::APPEND),
    ];
    for (percent, flag) in more {
        if prng.chance(percent) {
            flags |= flag;
        }
    }
    flags
}

fn done((): ()) -> String {
    String::new()
}

fn shown(stat: &Stat) -> String {
    let Stat { st_mode, st_nlink, st_uid, st_gid, st_rdev, st_size, .. } = *stat;
    let kind = FileType::from_raw_mode(st_mode);
    let size = if kind == FileType::Directory { 0 } else { st_size };
    let old = stat.st_mtime == LONG_AGO.last_modification.tv_sec;
    format!("{st_mode:o} {st_nlink} links {st_uid}:{st_gid} {st_rdev:x} {size} {old}")
}

/// Names with their kinds, in order.
fn list(path: &[u8]) -> Result<String, Errno> {
    let dir = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let mut lines = Vec::new();
    for entry in rustix::fs::Dir::new(dir)? {
        let entry = entry?;
        lines.push(format!("{:?} {:?}", entry.file_name(), entry.file_type()));
    }
    lines.sort();
    Ok(lines.join(","))
}

/// The whole tree below a directory, with what belongs together by hard links.
fn tree(path: &Path, numbers: &mut BTreeMap<u64, usize>, text: &mut String) -> Result<(), Errno> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|error| Errno::from_io_error(&error).unwrap())? {
        names.push(entry.unwrap().file_name());
    }
    names.sort();
    for name in names {
        let below = path.join(name);
        let stat = rustix::fs::lstat(&below)?;
        let count = numbers.len();
        let number = *numbers.entry(stat.st_ino).or_insert(count);
        writeln!(text, "{} #{number} {}", below.display(), shown(&stat)).unwrap();
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let above = rustix::fs::stat(below.join(".."))?.st_ino;
                assert_eq!(above, rustix::fs::stat(path)?.st_ino, "{}/..", below.display());
                tree(&below, numbers, text)?;
            }
            FileType::Symlink => {
                let target = rustix::fs::readlink(&below, Vec::new())?;
                writeln!(text, "-> {target:?}").unwrap();
            }
            FileType::RegularFile
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => {}
        }
    }
    Ok(())
}

/// An operation, as a user.
enum Ask {
    Act(Act, u32),
    Tree,
}

/// A thread whose root is a directory.
struct Player {
    asks: Sender<Ask>,
    answers: Receiver<Result<String, Errno>>,
}

impl Player {
    fn new(root: &Path) -> Self {
        let (asks, asked) = channel();
        let (answer, answers) = channel();
        let root = root.to_owned();
        std::thread::spawn(move || {
            #[expect(
                deprecated,
                reason = "root, umask and working directory harm no other thread"
            )]
            rustix::thread::unshare(rustix::thread::UnshareFlags::FS).unwrap();
            rustix::process::chroot(&root).unwrap();
            rustix::process::chdir("/").unwrap();
            rustix::process::umask(Mode::from_raw_mode(0o022));
            for ask in asked {
                let answered = match ask {
                    Ask::Act(act, uid) => {
                        be(uid);
                        let answered = act.perform();
                        be(0);
                        answered
                    }
                    Ask::Tree => {
                        let mut text = String::new();
                        tree(Path::new("/"), &mut BTreeMap::new(), &mut text).map(|()| text)
                    }
                };
                if answer.send(answered).is_err() {
                    return;
                }
            }
        });
        Self { asks, answers }
    }

    fn ask(&self, ask: Ask) -> Result<String, Errno> {
        self.asks.send(ask).unwrap();
        self.answers.recv().unwrap()
    }
}

/// Gives this thread, and no other, the ids of another user; it can become root again.
fn be(uid: u32) {
    let root = Uid::ROOT;
    rustix::thread::set_thread_res_uid(root, root, root).unwrap();
    let gid = Gid::from_raw(uid);
    let groups = if uid == 0 { vec![] } else { vec![Gid::from_raw(70_000)] };
    rustix::thread::set_thread_groups(&groups).unwrap();
    rustix::thread::set_thread_res_gid(gid, gid, Gid::ROOT).unwrap();
    rustix::thread::set_thread_res_uid(Uid::from_raw(uid), Uid::from_raw(uid), root).unwrap();
}

/// A local directory that is mounted on itself as a lanefs mount is: nosuid and nodev.
struct Local(PathBuf);

impl Local {
    fn new(dir: PathBuf) -> Self {
        rustix::mount::mount_bind(&dir, &dir).unwrap();
        let local = Self(dir);
        let flags = MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount_remount(&local.0, flags, c"").unwrap();
        local
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, UnmountFlags::DETACH).ok();
    }
}

/// Plays one game; how many operations did something.
fn play(seed: u64, count: usize, up: &Up, local: &Path) -> usize {
    let roots = [up.dir.join(seed.to_string()), local.join(seed.to_string())];
    let players = roots.each_ref().map(|root| {
        std::fs::create_dir(root).unwrap();
        must(program("chmod").arg("1777").arg(root));
        Player::new(root)
    });
    let mut prng = Prng::new(seed);
    let repeat = |number| format!("LANEFS_COMPARISON={seed},{count} at {number}");
    let mut trace: Vec<String> = Vec::new();
    let mut ok_count = 0;
    for number in 0..count {
        let uid = if prng.chance(70) { 0 } else { prng.pick(&[1000, 1001]) };
        let act = Act::roll(&mut prng, uid);
        let [mount, twin] = players.each_ref().map(|player| player.ask(Ask::Act(act.clone(), uid)));
        ok_count += usize::from(twin.is_ok());
        trace.push(format!("{uid} {act:?}: {twin:?}"));
        if mount != twin && !is_known(uid, &mount, &twin) {
            let last = trace[trace.len().saturating_sub(25)..].join("\n");
            panic!("{}: mounted {mount:?}, local {twin:?}\n{last}", repeat(number));
        }
        if number % 250 == 249 || number + 1 == count {
            let [mount, twin] = players.each_ref().map(|player| player.ask(Ask::Tree).unwrap());
            assert!(mount == twin, "{}\nmounted:\n{mount}\nlocal:\n{twin}", repeat(number));
        }
    }
    drop(players);
    must(program("rm").arg("-rf").args(roots));
    ok_count
}

/// What a user sees differently, since the kernel asks the server late or not at all whether he may:
/// another of two reasons for a refusal comes first, and nobody asks for the opening of a fifo.
fn is_known(uid: u32, mount: &Result<String, Errno>, local: &Result<String, Errno>) -> bool {
    let denied = matches!(local, Err(Errno::PERM | Errno::ACCESS));
    let is_fifo = |shown: &String| shown.find(' ') == Some(5) && shown.starts_with('1');
    uid != 0 && denied && mount.as_ref().map_or(true, is_fifo)
}

/// The one game that was asked for, or these.
fn games(seeds: std::ops::Range<u64>, count: usize) -> Vec<(u64, usize)> {
    let Ok(wanted) = std::env::var("LANEFS_COMPARISON") else {
        return seeds.map(|seed| (seed, count)).collect();
    };
    let mut numbers = wanted.split(',').map(|number| number.parse::<u64>().unwrap());
    let seed = numbers.next().unwrap();
    let count = numbers.next().map_or(count, |count| usize::try_from(count).unwrap());
    vec![(seed, count)]
}

#[test]
fn a_mount_does_what_a_local_file_system_does() {
    let Some(fixture) = Fixture::new("twins") else { return };
    let local = Local::new(fixture.make_dir("local"));
    let up = fixture.up(&[]);
    let play_all = |up: &Up, seeds| -> usize {
        let games = games(seeds, 300).into_iter();
        games.map(|(seed, count)| play(seed, count, up, &local.0)).sum()
    };
    let ok_count = play_all(&up, 0..8);
    assert!(ok_count > 100, "only {ok_count} operations were done");
    up.stop();
    let up = fixture.up(&["--meta-memory", "0"]);
    play_all(&up, 100..103);
    up.stop();
}
