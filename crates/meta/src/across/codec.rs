//! How wants and what was seen travel between lanes of one process.

use super::{Climbed, Seen, Told, Want};
use alloc::boxed::Box;
use wire::{Bytes, Flaw, InodeNo, ProtocolError, Reader, Wire, Writer};

const UNKNOWN: Flaw = Flaw::ProtocolError(ProtocolError::Malformed);

fn name(from: &mut Reader<'_>) -> Result<Box<[u8]>, Flaw> {
    Bytes::decode(from).map(|bytes| bytes.0.into())
}

impl Wire<'_> for Want {
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
            Self::Above { dir, inode } => {
                to.write(&5_u8);
                to.write(dir);
                to.write(inode);
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        Ok(match u8::decode(from)? {
            1 => Self::Inode(from.read()?),
            2 => Self::Entry(from.read()?, name(from)?),
            3 => Self::New(from.read()?),
            4 => Self::Topology,
            5 => Self::Above { dir: from.read()?, inode: from.read()? },
            _ => return Err(UNKNOWN),
        })
    }
}

impl Wire<'_> for Climbed {
    fn encode(&self, to: &mut Writer<'_>) {
        // No inode has these numbers.
        to.write(&match self {
            Self::Found => InodeNo(u64::MAX),
            Self::Top => InodeNo(0),
            Self::Left(dir) => *dir,
        });
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        Ok(match from.read()? {
            InodeNo(u64::MAX) => Self::Found,
            InodeNo(0) => Self::Top,
            dir => Self::Left(dir),
        })
    }
}

impl Wire<'_> for Told {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.row);
        to.write(&Bytes(&self.acl));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        Ok(Self { row: from.read()?, acl: name(from)? })
    }
}

impl Wire<'_> for Seen {
    fn encode(&self, to: &mut Writer<'_>) {
        match self {
            Self::Inode(inode, told) => {
                to.write(&1_u8);
                to.write(inode);
                to.write(told);
            }
            Self::Entry { dir, name, told, target } => {
                to.write(&2_u8);
                to.write(dir);
                to.write(&Bytes(name));
                to.write(told);
                to.write(target);
            }
            Self::New(shard, inode) => {
                to.write(&3_u8);
                to.write(shard);
                to.write(inode);
            }
            Self::Topology => to.write(&4_u8),
            Self::Above { dir, inode, climbed } => {
                to.write(&5_u8);
                to.write(dir);
                to.write(inode);
                to.write(climbed);
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        Ok(match u8::decode(from)? {
            1 => Self::Inode(from.read()?, from.read()?),
            2 => Self::Entry {
                dir: from.read()?,
                name: name(from)?,
                told: from.read()?,
                target: from.read()?,
            },
            3 => Self::New(from.read()?, from.read()?),
            4 => Self::Topology,
            5 => Self::Above { dir: from.read()?, inode: from.read()?, climbed: from.read()? },
            _ => return Err(UNKNOWN),
        })
    }
}
