//! The operations that a lane executes itself, one file each. Those of metadata lie in
//! `meta/src/ops`, those of contents in `data`.

mod cancel_lock;
mod claim;
mod counters;
mod exports;
mod freeze;
mod get_lock;
mod goodbye;
mod inspect;
mod ping;
mod relock;
mod replay_done;
mod resume;
mod set_export;
mod set_lock;
mod statfs;
mod stats;
mod sync;
mod traces;

use crate::Lane;
use crate::request::ReceivedRequest;
use crate::response::Response;
use interface::Turn;
use wire::{HEADER_BYTES, Op, ProtocolError, Status};

impl Lane {
    /// Whether the client administers; if not, the request is answered. For what names other clients.
    fn permit_administration(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> bool {
        let administers = received.open.binding.administers;
        if !administers {
            let response = Response::plain(Status::NotPermitted, &[]);
            self.send_reply(turn, received.conn, &received.header(), &response);
        }
        administers
    }

    /// Executes an operation of the lane or of a shard's locks.
    pub(crate) fn execute_own(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
    ) -> Result<(), ProtocolError> {
        macro_rules! locks {
            ($($op:ident $module:ident;)*) => {
                match received.request.op {
                    $(Op::$op => $module::execute(self, turn, received),)*
                    _ => wire::lane_operations!(lane),
                }
            };
        }
        macro_rules! lane {
            ($($op:ident $module:ident;)*) => {
                match received.request.op {
                    $(Op::$op => $module::execute(self, turn, received),)*
                    // Executed by a metadata or data shard.
                    _ => Err(ProtocolError::Route),
                }
            };
        }
        wire::lock_operations!(locks)
    }
}

/// Checks that a request has no body.
fn no_body(turn: &Turn<'_>, received: &ReceivedRequest<'_>) -> Result<(), ProtocolError> {
    if turn.arena.get(received.frame).len() == HEADER_BYTES {
        Ok(())
    } else {
        Err(ProtocolError::Malformed)
    }
}
