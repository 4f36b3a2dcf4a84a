//! Decoding a kernel request: header, structs, names. Numbers are in the machine's byte order. A
//! short request is answered with EINVAL; no request causes a read beyond its end.

use crate::abi::{Opcode, size};
use crate::node::Node;
use alloc::vec::Vec;
use wire::{InodeNo, Name, Status};

/// `fuse_in_header`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) opcode: u32,
    /// The kernel's id of the request.
    pub(crate) unique: u64,
    /// The inode, and the node id by which the kernel names it.
    pub(crate) inode: InodeNo,
    pub(crate) node: Node,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

/// Decodes fields from the front of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args<'a> {
    rest: &'a [u8],
}

/// Splits a request into header and arguments.
pub(crate) fn split(request: &[u8]) -> Result<(Header, Args<'_>), Status> {
    let (header, rest) = request.split_at_checked(size::IN_HEADER).ok_or(Status::Invalid)?;
    let mut from = Args { rest: header };
    let _bytes_count = from.u32()?;
    let (opcode, unique, node) = (from.u32()?, from.u64()?, Node(from.u64()?));
    let header = Header {
        opcode,
        unique,
        inode: node.inode(),
        node,
        uid: from.u32()?,
        gid: from.u32()?,
        pid: from.u32()?,
    };
    Ok((header, Args { rest }))
}

impl<'a> Args<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Status> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Status::Invalid)?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Status> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Status> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Skips unused fields.
    pub(crate) fn skip(&mut self, bytes_count: usize) -> Result<(), Status> {
        self.bytes(bytes_count).map(|_| ())
    }

    /// The next bytes.
    pub(crate) fn bytes(&mut self, bytes_count: usize) -> Result<&'a [u8], Status> {
        let (bytes, rest) = self.rest.split_at_checked(bytes_count).ok_or(Status::Invalid)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Bytes up to a NUL, which is skipped.
    pub(crate) fn text(&mut self) -> Result<&'a [u8], Status> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(Status::Invalid)?;
        let text = self.bytes(end)?;
        self.skip(1)?;
        Ok(text)
    }

    /// The inodes of a `fuse_batch_forget_in`.
    pub(crate) fn forgotten(mut self) -> Result<Vec<InodeNo>, Status> {
        let count = self.u32()?;
        self.skip(4)?; // dummy
        let mut inodes = Vec::new();
        for _ in 0..count {
            inodes.push(Node(self.u64()?).inode());
            self.skip(8)?; // nlookup
        }
        Ok(inodes)
    }

    /// The name in the directory that a request is about, if it makes or finds one.
    pub(crate) fn name_of(mut self, opcode: u32) -> Option<&'a [u8]> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "no other has such a name")]
        let bytes_before = match Opcode::from_number(opcode)? {
            Opcode::Lookup | Opcode::Symlink => 0,
            Opcode::Link | Opcode::Mkdir => 8,
            Opcode::Mknod | Opcode::Create => 16,
            _ => return None,
        };
        self.skip(bytes_before).ok()?;
        self.text().ok()
    }

    /// The old and the new name of a RENAME or RENAME2.
    pub(crate) fn names_of_rename(mut self, opcode: u32) -> Result<(Vec<u8>, Vec<u8>), Status> {
        self.skip(if opcode == Opcode::Rename as u32 { 8 } else { 16 })?;
        Ok((self.text()?.to_vec(), self.text()?.to_vec()))
    }

    /// The name of a directory entry. Only NFS servers look up `.` and `..`, which are not
    /// supported.
    pub(crate) fn name(&mut self) -> Result<Name<'a>, Status> {
        self.text().and_then(Name::new)
    }
}
