//! Files that are opened to read and write without the server: before the first change through such a
//! handle the file is opened for writing at the server (`client::Client::open_to_write`), and the request
//! waits for that, on whichever lane it comes. Most programs that open a file so only read it.
//!
//! ```text
//! OPEN ─▶ unwritten ─ RELEASE ─▶ over
//!           └ WRITE, FALLOCATE, SETATTR of the size, COPY_FILE_RANGE: waits ─▶ opened, or refused: fails
//! ```
//! A store through a mapping comes as a WRITE, before its last handle is released. If that fails, the
//! kernel says so at the next msync or fsync.
//!
//! Invariant: a place names a file from before its attributes are looked at until it is open for writing
//! at the server, or closed.

use crate::abi::{Opcode, open_flag, setattr_flag};
use crate::args::split;
use crate::behind::Behind;
use crate::early::Waiting;
use crate::lane::MountLane;
use interface::{MountMessage, Span, Turn};
use wire::{InodeNo, OpenFor};

/// When a file was written that was opened so, this many others are opened at the server at once: programs
/// that write do so in turn, and the server lets them write behind.
const SERVER_COUNT: u8 = 16;

impl MountLane {
    /// An OPEN to read and write: answered at once, if it may be.
    pub(crate) fn open_unwritten(&mut self, turn: &mut Turn<'_>, pending_id: usize) -> bool {
        let Some(table) = self.behind.table.clone() else { return false };
        let Some(pending) = self.pendings.get(pending_id) else { return false };
        let Ok((header, mut args)) = split(&pending.request) else { return false };
        // Who appends, writes.
        let appends = args.u32().is_ok_and(|flags| flags & open_flag::APPEND != 0);
        if self.behind.to_server_count > 0 {
            self.behind.to_server_count -= 1;
            return false;
        }
        let inode = header.inode;
        if appends || !table.unwritten.begin(inode) {
            return false;
        }
        let is_opened = self.open_locally(turn, pending_id, OpenFor::ReadWrite);
        if !is_opened {
            let waiters = table.unwritten.end(inode);
            self.wake(turn, inode, waiters);
        }
        is_opened
    }

    /// Whether a request waits until a file is open for writing, or fails because it cannot be.
    pub(crate) fn waits_to_write(
        &mut self,
        turn: &mut Turn<'_>,
        pending_id: usize,
        table: &Behind,
    ) -> bool {
        let Some(pending) = self.pendings.get(pending_id) else { return false };
        let Ok((header, mut args)) = split(&pending.request) else { return false };
        let Some(opcode) = Opcode::from_number(header.opcode) else { return false };
        #[expect(clippy::wildcard_enum_match_arm, reason = "no other request changes contents")]
        let inode = match opcode {
            Opcode::Write | Opcode::Fallocate => header.inode,
            Opcode::Setattr => match args.u32() {
                Ok(valid) if valid & setattr_flag::SIZE != 0 => header.inode,
                Ok(_) | Err(_) => return false,
            },
            Opcode::CopyFileRange => {
                let Ok(to) = args.skip(16).and_then(|()| args.u64()) else { return false };
                InodeNo(to)
            }
            _ => return false,
        };
        if !table.unwritten.waits(inode, self.client.lane()) {
            return false;
        }
        // Who is refused from here on is told.
        if let Some(status) = table.unwritten.refused(inode) {
            self.reply(turn, pending_id, status, Span::default(), None);
            return true;
        }
        self.behind.waiting.push((inode, Waiting::Request(pending_id)));
        if !self.open_to_write(inode) {
            self.send_to_peer_lanes(turn, MountMessage::OpenToWrite { inode });
        }
        true
    }

    /// Opens a file for writing at the server that this lane has opened without that. Returns whether it
    /// has.
    pub(crate) fn open_to_write(&mut self, inode: InodeNo) -> bool {
        let opens = self.client.open_to_write(inode);
        if opens {
            self.behind.to_server_count = SERVER_COUNT;
        }
        opens
    }

    /// Files are open for writing now, closed, or cannot be opened so. Returns whether there were any.
    pub(crate) fn end_unwritten(&mut self, turn: &mut Turn<'_>) -> bool {
        let ended = self.client.take_ended_to_write();
        let Some(table) = self.behind.table.clone().filter(|_| !ended.is_empty()) else {
            return false;
        };
        for (inode, opened) in ended {
            let waiters = match opened {
                Ok(()) => table.unwritten.end(inode),
                Err(status) => table.unwritten.refuse(inode, status),
            };
            self.wake(turn, inode, waiters);
        }
        true
    }
}
