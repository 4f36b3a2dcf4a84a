//! A client: random calls on its mount, each compared with its model at once.

use super::model::{Change, Contents, Model, Node, Op, Place, SHARED_DIRS, bytes_of, walk};
use crate::random_comparison::Prng;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

/// Files to which all clients write, each its own blocks.
pub(super) const SHARED_FILES: [&str; 3] = ["plain/shared", "wide/shared", "two/shared"];
pub(super) const CLIENT_COUNT: usize = 4;
/// Two clients' blocks meet in a page.
const BLOCK_BYTES: usize = 10_000;
const BLOCK_COUNT: usize = 48;
const FILE_BYTES_MAX: usize = 300_000;
const FILE_COUNT_MAX: usize = 14;
const DIR_COUNT_MAX: usize = 6;
const OPEN_COUNT_MAX: usize = 4;
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// What others see of a client.
#[derive(Default)]
pub(super) struct Shown {
    /// Its mount is being killed, or was.
    pub(super) dies: AtomicBool,
    /// What it does, for a failed test.
    pub(super) doing: Mutex<String>,
}

pub(super) struct Player<'s> {
    pub(super) number: usize,
    pub(super) root: PathBuf,
    prng: Prng,
    pub(super) model: Model,
    pub(super) shared: [Contents; SHARED_FILES.len()],
    handles: BTreeMap<u32, File>,
    shared_handles: Vec<File>,
    shown: &'s Shown,
    /// Says that its mount is there again.
    again: Receiver<()>,
    pub(super) op_count: u64,
}

/// The client that a byte of a shared file belongs to.
pub(super) fn owner_of(at: usize) -> usize {
    at / BLOCK_BYTES % CLIENT_COUNT
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap()
}

type Done = Result<(), Errno>;

impl<'s> Player<'s> {
    pub(super) fn new(
        number: usize,
        root: &Path,
        seed: u64,
        shown: &'s Shown,
        again: Receiver<()>,
    ) -> Self {
        let prng = Prng::new(seed.wrapping_mul(31).wrapping_add(number as u64));
        let mut player = Self {
            number,
            root: root.to_owned(),
            prng,
            model: Model::new(),
            shared: Default::default(),
            handles: BTreeMap::new(),
            shared_handles: Vec::new(),
            shown,
            again,
            op_count: 0,
        };
        player.open_shared();
        player
    }

    fn open_shared(&mut self) {
        let open = |name: &&str| {
            let path = self.root.join(name);
            OpenOptions::new().read(true).write(true).open(path).unwrap()
        };
        self.shared_handles = SHARED_FILES.iter().map(open).collect();
    }

    /// Whether a name is this client's.
    pub(super) fn is_mine(number: usize, name: &str) -> bool {
        name.starts_with(&format!("c{number}"))
    }

    /// One random call.
    pub(super) fn step(&mut self) {
        self.op_count += 1;
        match self.prng.below(20) {
            0 | 1 => self.write_shared(),
            2 => self.read_shared(),
            3 | 4 => self.read_file(),
            5 => self.look(),
            _ => {
                let Some(op) = self.roll() else { return };
                self.change(&op);
            }
        }
    }

    /// Its mount is there.
    pub(super) fn come_to_rest(&mut self) {
        if self.shown.dies.load(Ordering::SeqCst) {
            self.revive(None);
        }
        self.says("at rest".to_owned());
    }

    fn says(&self, text: String) {
        *self.shown.doing.lock().unwrap() = text;
    }

    fn change(&mut self, op: &Op) {
        self.says(format!("{op:?}"));
        let done = self.perform(op);
        let expected = self.model.outcome(op);
        if done == expected {
            // A call that fails changes nothing.
            let _outcome = self.model.apply(op);
            return;
        }
        if self.shown.dies.load(Ordering::SeqCst) {
            return self.revive(Some(op));
        }
        self.fail(&format!("{op:?}: {done:?}, expected {expected:?}"));
    }

    #[track_caller]
    fn fail(&self, text: &str) -> ! {
        panic!("client {}, call {}: {text}", self.number, self.op_count);
    }

    /// If a call that changes nothing failed because the mount died, waits for the next mount.
    #[track_caller]
    fn survived<T>(&mut self, result: Result<T, String>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(_) if self.shown.dies.load(Ordering::SeqCst) => {
                self.revive(None);
                None
            }
            Err(text) => self.fail(&text),
        }
    }

    /// Takes over what is there, once the mount is.
    pub(super) fn revive(&mut self, op: Option<&Op>) {
        self.handles.clear();
        self.shared_handles.clear();
        self.says("waiting for its mount".to_owned());
        self.again.recv().unwrap();
        self.shown.dies.store(false, Ordering::SeqCst);
        self.says(format!("looking at what is left, after {op:?}"));
        self.open_shared();
        let number = self.number;
        let found = walk(&self.root, &|name| Self::is_mine(number, name));
        self.model.close_all();
        let mut after = self.model.clone();
        let is_done = op.is_some_and(|op| after.apply(op).is_ok());
        after.close_all();
        if let Err(without) = self.model.adopt(&found) {
            let with = if is_done { after.adopt(&found) } else { Err("nothing else".to_owned()) };
            if let Err(with) = with {
                self.fail(&format!("after the mount's death: {without}\nor with {op:?}: {with}"));
            }
            self.model = after;
        }
        for (name, contents) in SHARED_FILES.iter().zip(&mut self.shared) {
            let bytes = fs::read(self.root.join(name)).unwrap();
            let adopted = contents.adopt_owned(&bytes, |at| owner_of(at) == number);
            if let Err(at) = adopted {
                panic!("client {number}: {name} after the mount's death, at {at}");
            }
        }
        self.sync_all();
    }

    /// Everything that it has done is durable afterwards.
    pub(super) fn sync_all(&mut self) {
        let files: Vec<u32> = self.model.files.keys().copied().collect();
        for file in files {
            if !self.model.files[&file].contents.is_synced() {
                self.change(&Op::Sync { file });
            }
        }
        let dirs: Vec<u32> = self.model.dirs.keys().copied().collect();
        for dir in dirs {
            let path = self.root.join(self.model.dir_path(dir));
            let synced = File::open(&path).and_then(|dir| dir.sync_all());
            let synced = synced.map_err(|error| format!("sync of {}: {error}", path.display()));
            self.survived(synced);
        }
        (0..SHARED_FILES.len()).for_each(|index| self.sync_shared(index));
    }

    fn write_shared(&mut self) {
        let index = self.prng.below(SHARED_FILES.len());
        let block = self.prng.below(BLOCK_COUNT / CLIENT_COUNT) * CLIENT_COUNT + self.number;
        let from = self.prng.below(BLOCK_BYTES / 2);
        let change = Change::Write {
            offset: block * BLOCK_BYTES + from,
            seed: self.seed(),
            count: 1 + self.prng.below(BLOCK_BYTES - from),
        };
        self.says(format!("{} {change:?}", SHARED_FILES[index]));
        // It may have been done, if the mount dies with it.
        self.shared[index].change(&change);
        let Change::Write { offset, seed, count } = change else { unreachable!() };
        let written =
            self.shared_handles[index].write_all_at(&bytes_of(seed, count), offset as u64);
        let written = written.map_err(|error| format!("{}: {error}", SHARED_FILES[index]));
        if self.survived(written).is_some() && self.prng.below(8) == 0 {
            self.sync_shared(index);
        }
    }

    fn sync_shared(&mut self, index: usize) {
        let synced = self.shared_handles[index].sync_all();
        let synced = synced.map_err(|error| format!("{}: {error}", SHARED_FILES[index]));
        if self.survived(synced).is_some() {
            self.shared[index].sync();
        }
    }

    fn read_shared(&mut self) {
        let index = self.prng.below(SHARED_FILES.len());
        let block = self.prng.below(BLOCK_COUNT / CLIENT_COUNT) * CLIENT_COUNT + self.number;
        let (offset, end) = (block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
        let known = self.shared[index].bytes.len().min(end);
        if known <= offset {
            return;
        }
        self.says(format!("reading {} at {offset}", SHARED_FILES[index]));
        let mut bytes = vec![0; known - offset];
        let read = self.shared_handles[index].read_exact_at(&mut bytes, offset as u64);
        let same = bytes == self.shared[index].bytes[offset..known];
        let read = read.map_err(|error| error.to_string());
        let read = read.and_then(|()| if same { Ok(()) } else { Err("other bytes".to_owned()) });
        let text = |error| format!("{} at {offset}: {error}", SHARED_FILES[index]);
        self.survived(read.map_err(text));
    }

    fn file(&self, file: u32, options: &OpenOptions) -> Result<File, Errno> {
        match self.handles.get(&file) {
            Some(open) => open.try_clone().map_err(|error| errno(&error)),
            None => {
                let path = self.root.join(self.model.file_path(file).unwrap());
                options.open(path).map_err(|error| errno(&error))
            }
        }
    }

    fn read_file(&mut self) {
        let files: Vec<u32> = self.model.files.keys().copied().collect();
        let Some(file) = self.pick(&files) else { return };
        let size_bytes = self.model.files[&file].contents.bytes.len();
        let (offset, count) = (self.prng.below(size_bytes + 1), 1 + self.prng.below(100_000));
        self.says(format!("reading {count} of {file} at {offset}"));
        let found = self.file(file, OpenOptions::new().read(true)).and_then(|open| {
            let mut bytes = vec![0; count];
            let mut done = 0;
            while done < count {
                match open.read_at(&mut bytes[done..], (offset + done) as u64) {
                    Ok(0) => break,
                    Ok(more) => done += more,
                    Err(error) => return Err(errno(&error)),
                }
            }
            bytes.truncate(done);
            let found = open.metadata().map_err(|error| errno(&error))?;
            Ok((bytes, found.len(), found.nlink(), found.mode() & 0o777))
        });
        let (model, contents) = (&self.model.files[&file], &self.model.files[&file].contents.bytes);
        let wanted = &contents[offset..size_bytes.min(offset + count)];
        let name = self.model.file_path(file);
        let checked = found.map_err(|error| format!("{error}")).and_then(
            |(bytes, size, link_count, mode)| {
                let links = self.model.link_count(file);
                let wanted_at = (size_bytes as u64, links, model.mode);
                if (size, link_count, mode) != wanted_at {
                    return Err(format!(
                        "found {:?}, expected {wanted_at:?}",
                        (size, link_count, mode)
                    ));
                }
                if bytes == wanted {
                    return Ok(());
                }
                let at = bytes.iter().zip(wanted).position(|(one, other)| one != other);
                Err(format!("{} bytes of {}, differing at {at:?}", bytes.len(), wanted.len()))
            },
        );
        let text = |error| format!("read of {file} ({name:?}), {count} at {offset}: {error}");
        self.survived(checked.map_err(text));
    }

    /// The names of a directory.
    fn look(&mut self) {
        let dirs: Vec<u32> = self.model.dirs.keys().copied().collect();
        let dir = self.prng.pick(&dirs);
        let path = self.root.join(self.model.dir_path(dir));
        self.says(format!("listing {}", path.display()));
        let listed = fs::read_dir(&path).and_then(|entries| {
            let names = entries.map(|entry| Ok(entry?.file_name().into_string().unwrap()));
            let mut names = names.collect::<Result<Vec<_>, std::io::Error>>()?;
            names.retain(|name| Self::is_mine(self.number, name));
            names.sort();
            Ok(names)
        });
        let entries = self.model.entries.keys().filter(|(parent, _)| *parent == dir);
        let wanted: Vec<String> = entries.map(|(_, name)| name.clone()).collect();
        let listed = listed.map_err(|error| error.to_string()).and_then(|names| {
            if names == wanted {
                Ok(())
            } else {
                Err(format!("found {names:?}, expected {wanted:?}"))
            }
        });
        self.survived(listed.map_err(|error| format!("list of {}: {error}", path.display())));
    }

    fn seed(&mut self) -> u64 {
        self.prng.below(1 << 40) as u64
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| self.prng.pick(from))
    }

    fn place(&mut self) -> Place {
        let dirs: Vec<u32> = self.model.dirs.keys().copied().collect();
        // Half of the names are in shared directories.
        let dirs = if self.prng.below(2) == 0 { &dirs[..SHARED_DIRS.len()] } else { &dirs };
        (self.prng.pick(dirs), format!("c{}{}", self.number, self.prng.pick(&NAMES)))
    }

    /// A name that is there, mostly.
    fn known_place(&mut self, fits: impl Fn(&Node) -> bool) -> Place {
        let fitting = self.model.entries.iter().filter(|(_, node)| fits(node));
        let places: Vec<Place> = fitting.map(|(place, _)| place.clone()).collect();
        if self.prng.below(12) == 0 {
            return self.place();
        }
        self.pick(&places).unwrap_or_else(|| self.place())
    }

    fn roll(&mut self) -> Option<Op> {
        let files: Vec<u32> = self.model.files.keys().copied().collect();
        let named: Vec<u32> =
            files.iter().copied().filter(|file| self.model.link_count(*file) > 0).collect();
        let xattr = |prng: &mut Prng| format!("user.{}", prng.pick(&["one", "two", "three"]));
        let op = match self.prng.below(30) {
            0..=3 if files.len() < FILE_COUNT_MAX => {
                let keep_open = self.handles.len() < OPEN_COUNT_MAX && self.prng.below(3) == 0;
                Op::Create { at: self.place(), keep_open }
            }
            0..=10 => {
                let file = self.pick(&files)?;
                let change = self.roll_change(file);
                Op::Change { file, change }
            }
            11 | 12 => Op::Sync { file: self.pick(&files)? },
            13 => {
                let open: Vec<u32> = self.handles.keys().copied().collect();
                Op::Close { file: self.pick(&open)? }
            }
            14 => {
                let mode = 0o600 | u32::try_from(self.prng.below(0o100)).unwrap();
                Op::Chmod { file: self.pick(&files)?, mode }
            }
            15 | 16 => {
                let (name, value) = (xattr(&mut self.prng), self.prng.below(600));
                let value = bytes_of(self.seed(), value);
                Op::SetXattr { file: self.pick(&files)?, name, value }
            }
            17 => Op::RemoveXattr { file: self.pick(&files)?, name: xattr(&mut self.prng) },
            18 | 19 => Op::Unlink { at: self.known_place(|node| !matches!(node, Node::Dir(_))) },
            20 | 21 => Op::Link { file: self.pick(&named)?, to: self.place() },
            22 => Op::Symlink { at: self.place(), target: self.prng.pick(&NAMES).to_owned() },
            23..=26 => Op::Rename { from: self.known_place(|_| true), to: self.place() },
            27 | 28 if self.model.dirs.len() < SHARED_DIRS.len() + DIR_COUNT_MAX => {
                Op::Mkdir { at: self.place() }
            }
            _ => Op::Rmdir { at: self.known_place(|node| matches!(node, Node::Dir(_))) },
        };
        Some(op)
    }

    fn roll_change(&mut self, file: u32) -> Change {
        let (is_spread, size_bytes) = {
            let file = &self.model.files[&file];
            (file.is_spread, file.contents.bytes.len())
        };
        let most = if self.prng.below(4) == 0 { 150_000 } else { 9_000 };
        let (seed, count) = (self.seed(), 1 + self.prng.below(most));
        match self.prng.below(8) {
            0 => Change::Truncate(self.prng.below(FILE_BYTES_MAX)),
            1 => Change::Truncate(self.prng.below(size_bytes + 1)),
            2 | 3 if !is_spread && size_bytes < FILE_BYTES_MAX => Change::Append { seed, count },
            4 if size_bytes < FILE_BYTES_MAX => Change::Write { offset: size_bytes, seed, count },
            _ => Change::Write {
                offset: self.prng.below(size_bytes + 70_000).min(FILE_BYTES_MAX),
                seed,
                count,
            },
        }
    }

    /// Makes the call.
    fn perform(&mut self, op: &Op) -> Done {
        let path = |player: &Self, place: &Place| player.root.join(player.model.path(place));
        let lasting = |error: std::io::Error| errno(&error);
        match op {
            Op::Create { at, keep_open } => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create_new(true).mode(0o644);
                let file = options.open(path(self, at)).map_err(lasting)?;
                if *keep_open {
                    self.handles.insert(self.model.coming_no(), file);
                }
                Ok(())
            }
            Op::Change { file, change: Change::Append { seed, count } } => {
                // By a file of its own: the other ones are not opened for appending.
                let Some(path) = self.model.file_path(*file) else {
                    let open = self.file(*file, OpenOptions::new().write(true))?;
                    let end = open.metadata().map_err(lasting)?.len();
                    return open.write_all_at(&bytes_of(*seed, *count), end).map_err(lasting);
                };
                let mut open =
                    OpenOptions::new().append(true).open(self.root.join(path)).map_err(lasting)?;
                open.write_all(&bytes_of(*seed, *count)).map_err(lasting)
            }
            Op::Change { file, change } => {
                let open = self.file(*file, OpenOptions::new().write(true))?;
                match *change {
                    Change::Truncate(size_bytes) => {
                        open.set_len(size_bytes as u64).map_err(lasting)
                    }
                    Change::Write { offset, seed, count } => {
                        open.write_all_at(&bytes_of(seed, count), offset as u64).map_err(lasting)
                    }
                    Change::Append { .. } => unreachable!("above"),
                }
            }
            Op::Sync { file } => {
                self.file(*file, OpenOptions::new().read(true))?.sync_all().map_err(lasting)
            }
            Op::Close { file } => {
                self.handles.remove(file);
                Ok(())
            }
            Op::Chmod { file, mode } => {
                let open = self.file(*file, OpenOptions::new().read(true))?;
                open.set_permissions(Permissions::from_mode(*mode)).map_err(lasting)
            }
            Op::SetXattr { file, name, value } => {
                let open = self.file(*file, OpenOptions::new().read(true))?;
                rustix::fs::fsetxattr(open, name, value, XattrFlags::empty())
            }
            Op::RemoveXattr { file, name } => {
                rustix::fs::fremovexattr(self.file(*file, OpenOptions::new().read(true))?, name)
            }
            Op::Unlink { at } => rustix::fs::unlink(path(self, at)),
            Op::Link { file, to } => {
                let from = self.root.join(self.model.file_path(*file).unwrap());
                rustix::fs::link(from, path(self, to))
            }
            Op::Symlink { at, target } => rustix::fs::symlink(target, path(self, at)),
            Op::Rename { from, to } => rustix::fs::rename(path(self, from), path(self, to)),
            Op::Mkdir { at } => fs::create_dir(path(self, at)).map_err(lasting),
            Op::Rmdir { at } => rustix::fs::rmdir(path(self, at)),
        }
    }
}
