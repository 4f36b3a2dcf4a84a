//! `Statfs`: the space of the file system, which the runtime reports first.

use crate::Lane;
use crate::request::ReceivedRequest;
use crate::response::Response;
use crate::waiters::Waiting;
use data::Token;
use interface::{Errno, StoreAction, StoreSpace, Ticket, Turn};
use wire::{HEADER_BYTES, Op, ProtocolError, Space, Status, Wire, Writer};

/// Assumed bytes per further file, for the number of free inodes.
const INODE_BYTES: u64 = 4096;

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
    wire::Statfs::decode_all(body).map_err(|_| ProtocolError::Malformed)?;
    let Token(number) = lane.wait(received, None);
    turn.act(StoreAction::Space { ticket: Ticket(crate::ticket::SPACE_TICKET | number) });
    Ok(())
}

impl Lane {
    /// The space under the store is known.
    pub(crate) fn on_space(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        result: Result<StoreSpace, Errno>,
    ) {
        let number = ticket.0 & !crate::ticket::TICKET_TAG;
        let Some(Waiting { conn, header, .. }) = self.waiters.answers.take_request(Token(number))
        else {
            return;
        };
        let mut body = self.scratch.empty();
        let status = match result {
            Ok(space) => {
                // While creation is refused for lack of log space, no space is available.
                let is_full =
                    self.space_for(Op::Create).is_err() && !self.commit.awaits_checkpoint();
                let available_bytes = if is_full { 0 } else { space.available_bytes };
                // A file with contents is also a file under the store.
                let file_count = space.available_file_count.unwrap_or(u64::MAX);
                let meta_shard_count = self.config.map.shard_counts().meta;
                let space = Space {
                    total_bytes: space.total_bytes,
                    free_bytes: space.free_bytes,
                    available_bytes,
                    inode_count: self.inode_count(),
                    inode_free_count: (available_bytes / INODE_BYTES).min(file_count),
                    lane_count: self.config.lane_count().min(meta_shard_count),
                };
                space.encode(&mut Writer::new(&mut body));
                Status::Ok
            }
            Err(errno) => errno.status(),
        };
        self.send(turn, conn, &header, &Response::plain(status, &body));
        self.scratch.recycle(body);
    }
}
