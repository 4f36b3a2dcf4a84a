//! From the kernel's request to a call: what is asked of a file's contents beside reading and writing.

use crate::abi::{fallocate_flag, whence};
use crate::begin::{Begin, Beginning};
use crate::pending::Then;
use client::Call;
use wire::{Allocation, Status};

impl<'a> Beginning<'a> {
    /// `fuse_fallocate_in`. What moves the bytes behind the range is not done.
    pub(crate) fn fallocate(mut self) -> Result<Begin<'a>, Status> {
        self.args.skip(8)?; // fh
        let file_offset = self.args.u64()?;
        let range_bytes = self.args.u64()?;
        let mode = self.args.u32()?;
        let keep_size = mode & fallocate_flag::KEEP_SIZE != 0;
        let allocation = match mode & !fallocate_flag::KEEP_SIZE {
            0 => Allocation::Reserve,
            fallocate_flag::PUNCH_HOLE if keep_size => Allocation::Punch,
            fallocate_flag::ZERO_RANGE => Allocation::Zero,
            _ => return Err(Status::NotSupported),
        };
        let inode = self.header.node;
        let ask = wire::Allocate { inode, file_offset, range_bytes, allocation, keep_size };
        Ok(Begin::Call(Call::Allocate(ask), Then::Done))
    }

    /// `fuse_lseek_in`: the kernel looks for the other places itself.
    pub(crate) fn lseek(mut self) -> Result<Begin<'a>, Status> {
        self.args.skip(8)?; // fh
        let file_offset = self.args.u64()?;
        let hole = match self.args.u32()? {
            whence::DATA => false,
            whence::HOLE => true,
            _ => return Err(Status::Invalid),
        };
        if i64::try_from(file_offset).is_err() {
            return Err(Status::NoDevice);
        }
        let ask = wire::Seek { inode: self.header.node, file_offset, hole };
        Ok(Begin::Call(Call::Seek(ask), Then::Sought))
    }
}
