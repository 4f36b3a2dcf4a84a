//! Decoding the other requests about a file's contents: fallocate, lseek, copy_file_range.

use crate::abi::{Opcode, WRITE_KILL_SET_ID, fallocate_flag, whence};
use crate::begin::{Decoded, RequestDecoder, clear_privileges, cleared_by_write};
use crate::cache::begin_call;
use crate::handle::FileHandle;
use crate::lane::MountLane;
use crate::out::put_written;
use crate::pending::Continuation;
use client::{Call, CallId, Write};
use interface::{Action, Bulk, Span, Turn};
use wire::{Allocation, BULK_BYTES_MAX, ClearPrivileges, InodeNo, Status};

/// The most bytes that one COPY_FILE_RANGE copies. Programs continue where a copy ended.
const COPY_BYTES_MAX: u32 = BULK_BYTES_MAX;

impl<'a> RequestDecoder<'a> {
    /// Whether the caller may retain set-id bits. Except for WRITE the kernel does not say: root
    /// may.
    pub(crate) const fn keeps_set_id(&self) -> bool {
        self.header.uid == 0
    }

    /// Clears the privileges because of which the server refused a change: they were set after the
    /// open.
    pub(crate) fn clear_after_refusal(self, opcode: Opcode) -> Result<Decoded<'a>, Status> {
        let mut args = self.args;
        let (inode, keeps_set_id) = if opcode == Opcode::Write {
            args.skip(20)?; // fh, offset, size
            (self.header.inode, args.u32()? & WRITE_KILL_SET_ID == 0)
        } else if opcode == Opcode::CopyFileRange {
            args.skip(16)?; // fh_in, off_in
            (InodeNo(args.u64()?), self.keeps_set_id())
        } else {
            (self.header.inode, self.keeps_set_id())
        };
        let request = clear_privileges(self.caller(), inode, cleared_by_write(keeps_set_id));
        Ok(Decoded::Call(Call::Setattr(request), Continuation::Cleared))
    }

    /// `fuse_fallocate_in`. Privileges are cleared first.
    pub(crate) fn fallocate(self) -> Result<Decoded<'a>, Status> {
        let mut args = self.args;
        let keeps_set_id = self.keeps_set_id();
        let clears = FileHandle(args.u64()?).cleared_by_write(keeps_set_id);
        if clears == ClearPrivileges::Nothing {
            return self.allocate(cleared_by_write(keeps_set_id));
        }
        let request = clear_privileges(self.caller(), self.header.inode, clears);
        Ok(Decoded::Call(Call::Setattr(request), Continuation::Cleared))
    }

    /// The allocation itself. Modes that move the bytes behind the range are not supported.
    pub(crate) fn allocate(mut self, clears: ClearPrivileges) -> Result<Decoded<'a>, Status> {
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
        let inode = self.header.inode;
        let request =
            wire::Allocate { inode, file_offset, range_bytes, allocation, keep_size, clears };
        Ok(Decoded::Call(Call::Allocate(request), Continuation::Done))
    }

    /// `fuse_lseek_in`. The kernel implements the other positions.
    pub(crate) fn lseek(mut self) -> Result<Decoded<'a>, Status> {
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
        let request = wire::Seek { inode: self.header.inode, file_offset, hole };
        Ok(Decoded::Call(Call::Seek(request), Continuation::Sought))
    }

    /// `fuse_copy_file_range_in`. Privileges are cleared first.
    pub(crate) fn copy_file_range(self) -> Result<Decoded<'a>, Status> {
        let mut args = self.args;
        args.skip(16)?; // fh_in, off_in
        let to = InodeNo(args.u64()?);
        let keeps_set_id = self.keeps_set_id();
        match FileHandle(args.u64()?).cleared_by_write(keeps_set_id) {
            ClearPrivileges::Nothing => self.copy(cleared_by_write(keeps_set_id)),
            clears @ (ClearPrivileges::Capability | ClearPrivileges::All) => {
                let request = clear_privileges(self.caller(), to, clears);
                Ok(Decoded::Call(Call::Setattr(request), Continuation::Cleared))
            }
        }
    }

    /// The copy itself: this lane reads the bytes and writes them again.
    pub(crate) fn copy(mut self, clears: ClearPrivileges) -> Result<Decoded<'a>, Status> {
        self.args.skip(8)?; // fh_in
        let file_offset = self.args.u64()?;
        let to = InodeNo(self.args.u64()?);
        self.args.skip(8)?; // fh_out
        let offset_there = self.args.u64()?;
        let wanted_bytes = self.args.u64()?;
        if self.args.u64()? != 0 {
            return Err(Status::Invalid); // flags
        }
        let read_bytes = u32::try_from(wanted_bytes).unwrap_or(u32::MAX).min(COPY_BYTES_MAX);
        let end = offset_there.checked_add(u64::from(read_bytes));
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(Status::TooLarge);
        }
        let inode = self.header.inode;
        let request = wire::Read { inode, file_offset, read_bytes, accesses: true };
        Ok(Decoded::Call(
            Call::Read(request),
            Continuation::CopyRead { to, file_offset: offset_there, clears },
        ))
    }
}

impl MountLane {
    /// Writes the bytes that a copy has read.
    pub(crate) fn write_copy(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        (inode, file_offset, clears): (InodeNo, u64, ClearPrivileges),
        bulk: Option<Bulk>,
    ) {
        let Some(bulk) = bulk else {
            let payload = turn.arena.write(|out| put_written(out, 0));
            return self.reply(turn, pending_id, Status::Ok, payload, None);
        };
        let (append, sync) = (false, false);
        let write =
            Write { inode, file_offset, append, bulk: Some(bulk), sync, clears, behind: false };
        let made = (turn.now.mono, &Call::Write(write));
        let asked = begin_call(self.cache.as_ref(), &mut self.client, made);
        let Some(pending) = self.pendings.get_mut(pending_id) else {
            // The kernel then copies by itself.
            turn.act(Action::Release { buf: bulk.buf });
            return self.reply(turn, pending_id, Status::NotSupported, Span::default(), None);
        };
        pending.continuation = Continuation::CopyWritten { buf: bulk.buf };
        pending.asked = asked;
        let call = CallId(u64::try_from(pending_id).unwrap_or(u64::MAX));
        self.client.call(turn, call, Call::Write(write));
        self.note_abandoned(pending_id);
    }
}
