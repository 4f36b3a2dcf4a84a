//! The encoding of requirements and observations between lanes of one process.

use super::plan::{AncestorSearch, InodeSnapshot, Observed, Requirement};
use alloc::boxed::Box;
use wire::{Bytes, DecodeError, InodeNo, ProtocolError, Reader, Wire, Writer};

const UNKNOWN: DecodeError = DecodeError::ProtocolError(ProtocolError::Malformed);

fn name(from: &mut Reader<'_>) -> Result<Box<[u8]>, DecodeError> {
    Bytes::decode(from).map(|bytes| bytes.0.into())
}

impl Wire<'_> for Requirement {
    fn encode(&self, to: &mut Writer<'_>) {
        match self {
            Self::Inode(inode) => {
                to.write(&1_u8);
                to.write(inode);
            }
            Self::Entry(dir, name) => {
                to.write(&2_u8);
                to.write(dir);
                to.write(&Bytes(name));
            }
            Self::New(shard) => {
                to.write(&3_u8);
                to.write(shard);
            }
            Self::Topology => to.write(&4_u8),
            Self::Ancestor { dir, inode } => {
                to.write(&5_u8);
                to.write(dir);
                to.write(inode);
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(from)? {
            1 => Self::Inode(from.read()?),
            2 => Self::Entry(from.read()?, name(from)?),
            3 => Self::New(from.read()?),
            4 => Self::Topology,
            5 => Self::Ancestor { dir: from.read()?, inode: from.read()? },
            _ => return Err(UNKNOWN),
        })
    }
}

impl Wire<'_> for AncestorSearch {
    fn encode(&self, to: &mut Writer<'_>) {
        // No inode has these numbers.
        to.write(&match self {
            Self::Found => InodeNo(u64::MAX),
            Self::Top => InodeNo(0),
            Self::LeftShard(dir) => *dir,
        });
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match from.read()? {
            InodeNo(u64::MAX) => Self::Found,
            InodeNo(0) => Self::Top,
            dir => Self::LeftShard(dir),
        })
    }
}

impl Wire<'_> for InodeSnapshot {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.row);
        to.write(&Bytes(&self.acl));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { row: from.read()?, acl: name(from)? })
    }
}

impl Wire<'_> for Observed {
    fn encode(&self, to: &mut Writer<'_>) {
        match self {
            Self::Inode(inode, snapshot) => {
                to.write(&1_u8);
                to.write(inode);
                to.write(snapshot);
            }
            Self::Entry { dir, name, snapshot, target } => {
                to.write(&2_u8);
                to.write(dir);
                to.write(&Bytes(name));
                to.write(snapshot);
                to.write(target);
            }
            Self::New(shard, inode) => {
                to.write(&3_u8);
                to.write(shard);
                to.write(inode);
            }
            Self::Topology => to.write(&4_u8),
            Self::Ancestor { dir, inode, search } => {
                to.write(&5_u8);
                to.write(dir);
                to.write(inode);
                to.write(search);
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(from)? {
            1 => Self::Inode(from.read()?, from.read()?),
            2 => Self::Entry {
                dir: from.read()?,
                name: name(from)?,
                snapshot: from.read()?,
                target: from.read()?,
            },
            3 => Self::New(from.read()?, from.read()?),
            4 => Self::Topology,
            5 => Self::Ancestor { dir: from.read()?, inode: from.read()?, search: from.read()? },
            _ => return Err(UNKNOWN),
        })
    }
}
