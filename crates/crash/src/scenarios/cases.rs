//! Operations that must take effect once, each with an operation of another client in between.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use wire::Op;

type Step = fn(&Path) -> io::Result<()>;

/// An operation, on the mount of its client.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The op whose reply is lost.
    pub(crate) op: Op,
    /// Prepares the folder.
    pub(crate) prepare: Step,
    /// The operation; it must succeed.
    pub(crate) act: Step,
    /// Fails unless the operation took effect once.
    pub(crate) once: Step,
    /// The other client's operation.
    pub(crate) undo: Step,
    /// Fails unless the other client's operation came last.
    pub(crate) undone: Step,
}

fn expect(holds: bool, what: &str) -> io::Result<()> {
    if holds { Ok(()) } else { Err(io::Error::other(what.to_owned())) }
}

fn absent(path: &Path) -> io::Result<()> {
    expect(fs::symlink_metadata(path).is_err(), "a name is there that should not be")
}

fn reads(path: &Path, wanted: &str) -> io::Result<()> {
    let found = fs::read_to_string(path)?;
    expect(found == wanted, &format!("{found:?} instead of {wanted:?}"))
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().append(true).open(path)?;
    let written_bytes = file.write(text.as_bytes())?;
    expect(written_bytes == text.len(), "a short append")
}

fn links(path: &Path, link_count: u64) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?.nlink();
    expect(found == link_count, &format!("{found} links instead of {link_count}"))
}

fn chmod(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn has_mode(path: &Path, mode: u32) -> io::Result<()> {
    let found = fs::metadata(path)?.permissions().mode() & 0o7777;
    expect(found == mode, &format!("mode {found:o} instead of {mode:o}"))
}

fn nothing(_: &Path) -> io::Result<()> {
    Ok(())
}

fn write_a(dir: &Path) -> io::Result<()> {
    write_synced(&dir.join("a"), "old")
}

/// Nothing of the file is under way then: a mount may answer writes early.
fn write_synced(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// All of them.
pub(crate) const CASES: [Case; 9] = [
    Case {
        name: "create-excl",
        op: Op::Create,
        prepare: nothing,
        act: |dir| fs::File::create_new(dir.join("x")).map(drop),
        once: |dir| reads(&dir.join("x"), "").and_then(|()| links(&dir.join("x"), 1)),
        undo: |dir| fs::remove_file(dir.join("x")),
        undone: |dir| absent(&dir.join("x")),
    },
    Case {
        name: "mkdir",
        op: Op::Mkdir,
        prepare: nothing,
        act: |dir| fs::create_dir(dir.join("d")),
        once: |dir| expect(dir.join("d").is_dir(), "no directory"),
        undo: |dir| fs::remove_dir(dir.join("d")),
        undone: |dir| absent(&dir.join("d")),
    },
    Case {
        name: "symlink",
        op: Op::Symlink,
        prepare: nothing,
        act: |dir| std::os::unix::fs::symlink("there", dir.join("l")),
        once: |dir| expect(fs::read_link(dir.join("l"))? == Path::new("there"), "another target"),
        undo: |dir| fs::remove_file(dir.join("l")),
        undone: |dir| absent(&dir.join("l")),
    },
    Case {
        name: "unlink",
        op: Op::Unlink,
        prepare: write_a,
        act: |dir| fs::remove_file(dir.join("a")),
        once: |dir| absent(&dir.join("a")),
        undo: |dir| fs::write(dir.join("a"), "new"),
        undone: |dir| reads(&dir.join("a"), "new"),
    },
    Case {
        name: "rename",
        op: Op::Rename,
        prepare: write_a,
        act: |dir| fs::rename(dir.join("a"), dir.join("b")),
        once: |dir| absent(&dir.join("a")).and_then(|()| reads(&dir.join("b"), "old")),
        undo: |dir| fs::rename(dir.join("b"), dir.join("c")),
        undone: |dir| absent(&dir.join("b")).and_then(|()| reads(&dir.join("c"), "old")),
    },
    Case {
        name: "link",
        op: Op::Link,
        prepare: write_a,
        act: |dir| fs::hard_link(dir.join("a"), dir.join("b")),
        once: |dir| reads(&dir.join("b"), "old").and_then(|()| links(&dir.join("a"), 2)),
        undo: |dir| fs::remove_file(dir.join("b")),
        undone: |dir| absent(&dir.join("b")).and_then(|()| links(&dir.join("a"), 1)),
    },
    Case {
        name: "chmod",
        op: Op::Setattr,
        prepare: write_a,
        act: |dir| chmod(&dir.join("a"), 0o600),
        once: |dir| has_mode(&dir.join("a"), 0o600),
        undo: |dir| chmod(&dir.join("a"), 0o640),
        undone: |dir| has_mode(&dir.join("a"), 0o640),
    },
    Case {
        name: "append",
        op: Op::Write,
        prepare: |dir| write_synced(&dir.join("a"), "one\n"),
        act: |dir| append(&dir.join("a"), "two\n"),
        once: |dir| reads(&dir.join("a"), "one\ntwo\n"),
        undo: |dir| append(&dir.join("a"), "three\n"),
        undone: |dir| reads(&dir.join("a"), "one\ntwo\nthree\n"),
    },
    Case {
        name: "truncate",
        op: Op::Truncate,
        prepare: write_a,
        act: |dir| fs::File::create(dir.join("a")).map(drop),
        once: |dir| reads(&dir.join("a"), ""),
        undo: |dir| append(&dir.join("a"), "new"),
        undone: |dir| reads(&dir.join("a"), "new"),
    },
];
