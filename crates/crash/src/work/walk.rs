//! Reads the whole tree with all contents through a new client.

use super::frontend::rooted;
use super::item::Kind;
use anyhow::{Context as _, Result, bail};
use library::{BULK_BYTES_MAX, FileKind, OpenFor, Piece, Volume};
use std::collections::BTreeMap;

/// A file or directory that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) kind: Kind,
    /// Its inode: two names of one file have the same.
    pub(crate) inode_no: u64,
    pub(crate) mode: u32,
    pub(crate) link_count: u32,
    /// The bytes of a file, or the target of a symbolic link.
    pub(crate) contents: Vec<u8>,
}

/// All of them, by path from the root.
pub(crate) type Tree = BTreeMap<String, Found>;

/// Reads everything below the root.
pub(crate) fn read_tree(volume: &mut Volume) -> Result<Tree> {
    let mut tree = Tree::new();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        let mut listing = volume.read_dir(&rooted(&dir))?;
        loop {
            let entries = volume.next_entries(&mut listing)?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                let name = entry.name.to_str().context("a name that nobody gave")?;
                let path = if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") };
                let found = found(volume, &path).with_context(|| path.clone())?;
                if found.kind == Kind::Dir {
                    dirs.push(path.clone());
                }
                tree.insert(path, found);
            }
        }
    }
    Ok(tree)
}

fn found(volume: &mut Volume, path: &str) -> Result<Found> {
    let rooted = rooted(path);
    let attr = volume.lstat(&rooted)?;
    let (kind, contents) = match attr.kind {
        FileKind::Directory => (Kind::Dir, Vec::new()),
        FileKind::Symlink => (Kind::Symlink, volume.readlink(&rooted)?.into_encoded_bytes()),
        FileKind::File => (Kind::File, read(volume, path)?),
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
            bail!("{path} is a special file; nobody makes any")
        }
    };
    let inode_no = attr.inode.0;
    Ok(Found { kind, inode_no, mode: attr.mode, link_count: attr.nlink, contents })
}

fn read(volume: &mut Volume, path: &str) -> Result<Vec<u8>> {
    let file = volume.open(&rooted(path), OpenFor::Read)?;
    let mut bytes = Vec::new();
    loop {
        let piece = Piece { file_offset: bytes.len() as u64, piece_bytes: BULK_BYTES_MAX };
        let more = volume.read_at(&file, piece)?;
        bytes.extend_from_slice(&more);
        if more.len() < BULK_BYTES_MAX as usize {
            break;
        }
    }
    volume.close(file)?;
    Ok(bytes)
}
