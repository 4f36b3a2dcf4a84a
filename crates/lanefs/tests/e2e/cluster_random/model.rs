//! What a client expects of the names and files that it alone changes.

use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Directories that all clients use; the names in them are of one client each.
pub(super) const SHARED_DIRS: [&str; 5] = ["plain", "other", "third", "wide", "two"];
/// The first of them whose files are spread over servers.
pub(super) const FIRST_SPREAD: usize = 3;

/// A name in a directory.
pub(super) type Place = (u32, String);

/// What a name leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Node {
    File(u32),
    Dir(u32),
    Link(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Dir {
    /// `None` of a shared one.
    at: Option<Place>,
    pub(super) is_spread: bool,
}

/// A change of bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Write { offset: usize, seed: u64, count: usize },
    Append { seed: u64, count: usize },
    Truncate(usize),
}

/// Bytes, and those of the last sync with what was changed since.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Contents {
    pub(super) bytes: Vec<u8>,
    synced: Vec<u8>,
    since: Vec<Change>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FileModel {
    pub(super) contents: Contents,
    pub(super) xattrs: BTreeMap<String, Vec<u8>>,
    pub(super) mode: u32,
    pub(super) is_spread: bool,
    /// The client has it open.
    pub(super) is_open: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Model {
    pub(super) dirs: BTreeMap<u32, Dir>,
    pub(super) entries: BTreeMap<Place, Node>,
    pub(super) files: BTreeMap<u32, FileModel>,
    next_no: u32,
}

/// A call that changes something.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Create { at: Place, keep_open: bool },
    Change { file: u32, change: Change },
    Sync { file: u32 },
    Close { file: u32 },
    Chmod { file: u32, mode: u32 },
    SetXattr { file: u32, name: String, value: Vec<u8> },
    RemoveXattr { file: u32, name: String },
    Unlink { at: Place },
    Link { file: u32, to: Place },
    Symlink { at: Place, target: String },
    Rename { from: Place, to: Place },
    Mkdir { at: Place },
    Rmdir { at: Place },
}

/// What is found under a name, or expected.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Seen {
    Dir,
    Link(String),
    File { bytes: Vec<u8>, mode: u32, link_count: u64, xattrs: BTreeMap<String, Vec<u8>> },
}

pub(super) type Tree = BTreeMap<String, Seen>;

/// Bytes that follow from a seed.
pub(super) fn bytes_of(seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match *self {
            Self::Write { offset, seed, count } => {
                bytes.resize(bytes.len().max(offset + count), 0);
                bytes[offset..offset + count].copy_from_slice(&bytes_of(seed, count));
            }
            Self::Append { seed, count } => bytes.extend(bytes_of(seed, count)),
            Self::Truncate(size_bytes) => bytes.resize(size_bytes, 0),
        }
    }
}

impl Contents {
    pub(super) fn change(&mut self, change: &Change) {
        change.apply(&mut self.bytes);
        self.since.push(change.clone());
    }

    pub(super) fn sync(&mut self) {
        self.synced.clone_from(&self.bytes);
        self.since.clear();
    }

    pub(super) fn is_synced(&self) -> bool {
        self.since.is_empty()
    }

    /// Whether a file may have these bytes after the death of the mount that has changed it: each is from
    /// the last sync, from a change since, or was never written.
    fn may_be(&self, found: &[u8]) -> bool {
        if self.since.is_empty() {
            return found == self.synced;
        }
        let states = self.states();
        let sizes = || states.iter().map(Vec::len);
        let fits = sizes().min() <= Some(found.len()) && Some(found.len()) <= sizes().max();
        let has = |at: usize| states.iter().any(|state| state.get(at) == Some(&found[at]));
        fits && (0..found.len()).all(|at| found[at] == 0 || has(at))
    }

    /// As of the last sync, and behind each change since.
    fn states(&self) -> Vec<Vec<u8>> {
        let mut states = vec![self.synced.clone()];
        for change in &self.since {
            let mut next = states.last().cloned().unwrap_or_default();
            change.apply(&mut next);
            states.push(next);
        }
        states
    }

    /// Takes over what a file has to which others write as well, with their bytes; or says where it may not
    /// be so.
    pub(super) fn adopt_owned(
        &mut self,
        found: &[u8],
        owned: impl Fn(usize) -> bool,
    ) -> Result<(), usize> {
        if found.len() < self.synced.len() {
            return Err(found.len());
        }
        let size_bytes = self.bytes.len().min(found.len());
        let states = self.states();
        let may_be = |at: usize| {
            found[at] == 0 || states.iter().any(|state| state.get(at) == Some(&found[at]))
        };
        if let Some(at) = (0..size_bytes).find(|at| owned(*at) && !may_be(*at)) {
            return Err(at);
        }
        self.adopt(found[..size_bytes].to_vec());
        Ok(())
    }

    /// What was found after a death counts from now on.
    pub(super) fn adopt(&mut self, found: Vec<u8>) {
        self.bytes = found;
        self.sync();
    }
}

impl Model {
    pub(super) fn new() -> Self {
        let dir = |index| Dir { at: None, is_spread: index >= FIRST_SPREAD };
        let dirs = (0..SHARED_DIRS.len()).map(|index| (u32::try_from(index).unwrap(), dir(index)));
        let (dirs, entries) = (dirs.collect(), BTreeMap::new());
        Self { dirs, entries, files: BTreeMap::new(), next_no: 100 }
    }

    /// The path of a directory below a mount.
    pub(super) fn dir_path(&self, dir: u32) -> PathBuf {
        match &self.dirs[&dir].at {
            None => PathBuf::from(SHARED_DIRS[dir as usize]),
            Some(place) => self.path(place),
        }
    }

    pub(super) fn path(&self, (dir, name): &Place) -> PathBuf {
        self.dir_path(*dir).join(name)
    }

    /// A path of a file that has one.
    pub(super) fn file_path(&self, file: u32) -> Option<PathBuf> {
        let mut places = self.entries.iter().filter(|(_, node)| **node == Node::File(file));
        places.next().map(|(place, _)| self.path(place))
    }

    pub(super) fn link_count(&self, file: u32) -> u64 {
        self.entries.values().filter(|node| **node == Node::File(file)).count() as u64
    }

    pub(super) fn is_empty(&self, dir: u32) -> bool {
        self.entries.keys().all(|(parent, _)| *parent != dir)
    }

    /// Whether a directory is another one or lies in it.
    fn is_in(&self, dir: u32, other: u32) -> bool {
        let parent = || self.dirs[&dir].at.as_ref().map(|(parent, _)| *parent);
        dir == other || parent().is_some_and(|parent| self.is_in(parent, other))
    }

    fn next_no(&mut self) -> u32 {
        self.next_no += 1;
        self.next_no
    }

    /// The number that the next created file or directory gets.
    pub(super) const fn coming_no(&self) -> u32 {
        self.next_no + 1
    }

    /// How a call ends, before it is made.
    pub(super) fn outcome(&self, op: &Op) -> Result<(), Errno> {
        // These change no name, and bytes are many.
        let is_of_bytes = matches!(op, Op::Change { .. } | Op::Sync { .. } | Op::Close { .. });
        if is_of_bytes { Ok(()) } else { self.clone().apply(op) }
    }

    /// Does it, and tells how the call ends.
    pub(super) fn apply(&mut self, op: &Op) -> Result<(), Errno> {
        match op {
            Op::Create { at, keep_open } => {
                self.must_be_free(at)?;
                let (no, is_spread) = (self.next_no(), self.dirs[&at.0].is_spread);
                let (contents, xattrs) = (Contents::default(), BTreeMap::new());
                let is_open = *keep_open;
                let file = FileModel { contents, xattrs, mode: 0o644, is_spread, is_open };
                self.files.insert(no, file);
                self.entries.insert(at.clone(), Node::File(no));
            }
            Op::Change { file, change } => self.file(*file).contents.change(change),
            Op::Sync { file } => self.file(*file).contents.sync(),
            Op::Close { file } => {
                self.file(*file).is_open = false;
                self.forget(*file);
            }
            Op::Chmod { file, mode } => self.file(*file).mode = *mode,
            Op::SetXattr { file, name, value } => {
                self.file(*file).xattrs.insert(name.clone(), value.clone());
            }
            Op::RemoveXattr { file, name } => {
                self.file(*file).xattrs.remove(name).ok_or(Errno::NODATA)?;
            }
            Op::Unlink { at } => match self.entries.get(at).cloned().ok_or(Errno::NOENT)? {
                Node::Dir(_) => return Err(Errno::ISDIR),
                Node::Link(_) => drop(self.entries.remove(at)),
                Node::File(file) => {
                    self.entries.remove(at);
                    self.forget(file);
                }
            },
            Op::Link { file, to } => {
                self.must_be_free(to)?;
                self.entries.insert(to.clone(), Node::File(*file));
            }
            Op::Symlink { at, target } => {
                self.must_be_free(at)?;
                self.entries.insert(at.clone(), Node::Link(target.clone()));
            }
            Op::Rename { from, to } => self.rename(from, to)?,
            Op::Mkdir { at } => {
                self.must_be_free(at)?;
                let (no, is_spread) = (self.next_no(), self.dirs[&at.0].is_spread);
                self.dirs.insert(no, Dir { at: Some(at.clone()), is_spread });
                self.entries.insert(at.clone(), Node::Dir(no));
            }
            Op::Rmdir { at } => match self.entries.get(at).ok_or(Errno::NOENT)? {
                Node::Dir(dir) if self.is_empty(*dir) => {
                    self.dirs.remove(dir);
                    self.entries.remove(at);
                }
                Node::Dir(_) => return Err(Errno::NOTEMPTY),
                Node::File(_) | Node::Link(_) => return Err(Errno::NOTDIR),
            },
        }
        Ok(())
    }

    fn rename(&mut self, from: &Place, to: &Place) -> Result<(), Errno> {
        let moved = self.entries.get(from).cloned().ok_or(Errno::NOENT)?;
        let replaced = self.entries.get(to).cloned();
        if let Node::Dir(dir) = moved
            && self.is_in(to.0, dir)
        {
            return Err(Errno::INVAL);
        }
        match (&moved, &replaced) {
            (_, Some(same)) if *same == moved && !matches!(moved, Node::Link(_)) => return Ok(()),
            (Node::Dir(_), Some(Node::Dir(dir))) => {
                if !self.is_empty(*dir) {
                    return Err(Errno::NOTEMPTY);
                }
                self.dirs.remove(dir);
            }
            (Node::Dir(_), Some(_)) => return Err(Errno::NOTDIR),
            // The kernel refuses an ancestor before it looks at its kind.
            (_, Some(Node::Dir(dir))) if self.is_in(from.0, *dir) => return Err(Errno::NOTEMPTY),
            (_, Some(Node::Dir(_))) => return Err(Errno::ISDIR),
            (_, Some(_) | None) => {}
        }
        if from == to {
            return Ok(());
        }
        self.entries.remove(from);
        if let Node::Dir(dir) = moved
            && let Some(dir) = self.dirs.get_mut(&dir)
        {
            dir.at = Some(to.clone());
        }
        self.entries.insert(to.clone(), moved);
        if let Some(Node::File(file)) = replaced {
            self.forget(file);
        }
        Ok(())
    }

    fn must_be_free(&self, at: &Place) -> Result<(), Errno> {
        if self.entries.contains_key(at) { Err(Errno::EXIST) } else { Ok(()) }
    }

    fn file(&mut self, file: u32) -> &mut FileModel {
        self.files.get_mut(&file).unwrap()
    }

    /// A file without a name that is not open is no more.
    fn forget(&mut self, file: u32) {
        if !self.files[&file].is_open && self.link_count(file) == 0 {
            self.files.remove(&file);
        }
    }

    pub(super) fn close_all(&mut self) {
        let open = self.files.iter().filter(|(_, file)| file.is_open).map(|(no, _)| *no);
        for file in open.collect::<Vec<_>>() {
            self.file(file).is_open = false;
            self.forget(file);
        }
    }

    /// What a walk finds of it.
    pub(super) fn add_to(&self, tree: &mut Tree) {
        for (place, node) in &self.entries {
            let seen = match node {
                Node::Dir(_) => Seen::Dir,
                Node::Link(target) => Seen::Link(target.clone()),
                Node::File(no) => {
                    let file = &self.files[no];
                    Seen::File {
                        bytes: file.contents.bytes.clone(),
                        mode: file.mode,
                        link_count: self.link_count(*no),
                        xattrs: file.xattrs.clone(),
                    }
                }
            };
            tree.insert(self.path(place).to_str().unwrap().to_owned(), seen);
        }
    }

    /// Takes over what a walk has found of its names after its mount has died, if that may be.
    pub(super) fn adopt(&mut self, found: &Tree) -> Result<(), String> {
        let mut wanted = Tree::new();
        self.add_to(&mut wanted);
        let mut found = found.clone();
        let places: Vec<(String, u32)> = self
            .entries
            .iter()
            .filter_map(|(place, node)| {
                let Node::File(file) = node else { return None };
                Some((self.path(place).to_str().unwrap().to_owned(), *file))
            })
            .collect();
        for (path, file) in places {
            let (Some(Seen::File { bytes, .. }), Some(Seen::File { bytes: wanted, .. })) =
                (found.get_mut(&path), wanted.get_mut(&path))
            else {
                continue;
            };
            let contents = &mut self.file(file).contents;
            if !contents.may_be(bytes) && *bytes != contents.bytes {
                return Err(format!(
                    "the bytes of {path}, {} since the last sync",
                    contents.since.len()
                ));
            }
            contents.adopt(bytes.clone());
            wanted.clone_from(bytes);
        }
        differences(&found, &wanted).map_or(Ok(()), Err)
    }
}

/// What differs first, in words.
pub(super) fn differences(found: &Tree, wanted: &Tree) -> Option<String> {
    let paths = found.keys().chain(wanted.keys());
    let differs = |path: &&String| found.get(*path) != wanted.get(*path);
    let lines: Vec<String> = paths
        .filter(differs)
        .take(6)
        .map(|path| {
            format!(
                "{path}: found {}, expected {}",
                shown(found.get(path), wanted.get(path)),
                shown(wanted.get(path), None)
            )
        })
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn shown(seen: Option<&Seen>, other: Option<&Seen>) -> String {
    match seen {
        None => "nothing".to_owned(),
        Some(Seen::Dir) => "a directory".to_owned(),
        Some(Seen::Link(target)) => format!("a link to {target}"),
        Some(Seen::File { bytes, mode, link_count, xattrs }) => {
            let differs = match other {
                Some(Seen::File { bytes: other, .. }) => {
                    let mut pairs = bytes.iter().zip(other);
                    let at = pairs.position(|(one, other)| one != other);
                    let last = bytes.iter().zip(other).rposition(|(one, other)| one != other);
                    let zero =
                        at.is_some_and(|at| bytes[at..].iter().take(16).all(|byte| *byte == 0));
                    format!(", bytes differ at {at:?} to {last:?} (zeros there: {zero})")
                }
                _ => String::new(),
            };
            let xattrs: Vec<_> = xattrs.iter().map(|(name, value)| (name, value.len())).collect();
            format!("{} bytes, {mode:o}, {link_count} links, {xattrs:?}{differs}", bytes.len())
        }
    }
}

/// Everything below the shared directories of a mount.
pub(super) fn walk(root: &Path, is_shown: &dyn Fn(&str) -> bool) -> Tree {
    let mut tree = Tree::new();
    for dir in SHARED_DIRS {
        walk_dir(root, Path::new(dir), is_shown, &mut tree);
    }
    tree
}

fn walk_dir(root: &Path, dir: &Path, is_shown: &dyn Fn(&str) -> bool, tree: &mut Tree) {
    use std::os::unix::fs::MetadataExt as _;
    for entry in std::fs::read_dir(root.join(dir)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !is_shown(&name) {
            continue;
        }
        let below = dir.join(&name);
        let path = root.join(&below);
        let found = path.symlink_metadata().unwrap();
        let seen = if found.is_dir() {
            walk_dir(root, &below, is_shown, tree);
            Seen::Dir
        } else if found.is_symlink() {
            Seen::Link(std::fs::read_link(&path).unwrap().to_str().unwrap().to_owned())
        } else {
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes.len() as u64, found.len(), "{}", path.display());
            let (mode, link_count) = (found.mode() & 0o777, found.nlink());
            Seen::File { bytes, mode, link_count, xattrs: xattrs_of(&path) }
        };
        tree.insert(below.to_str().unwrap().to_owned(), seen);
    }
}

fn xattrs_of(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 4096];
    let names_bytes = rustix::fs::listxattr(path, &mut names).unwrap();
    let names = String::from_utf8(names[..names_bytes].to_vec()).unwrap();
    let of_users = names.split('\0').filter(|name| name.starts_with("user."));
    of_users
        .map(|name| {
            let mut value = vec![0; 4096];
            let value_bytes = rustix::fs::getxattr(path, name, &mut value).unwrap();
            (name.to_owned(), value[..value_bytes].to_vec())
        })
        .collect()
}
