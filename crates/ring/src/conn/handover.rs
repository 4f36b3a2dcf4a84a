//! Handing a connection over to the peer lane that its first frame names.
//!
//! Invariant: nothing was received behind that frame and nothing was sent, so the peer lane
//! continues from there.

use super::{Conns, State};
use crate::driver::{Kind, Token};
use crate::io_context::IoContext;
use crate::mailbox::QueuedMessage;
use interface::{CloseReason, ConnId};
use std::os::fd::AsRawFd as _;
use wire::ProtocolError;

impl Conns {
    pub(crate) fn hand_over(&mut self, id: ConnId, lane: usize, hello: &[u8], io: &mut IoContext) {
        let Some(index) = self.open_index(id) else { return };
        let conn = self.conn(index);
        let untouched = conn.relay.is_none()
            && conn.inbox.is_empty()
            && conn.seal.as_ref().is_none_or(|seal| seal.is_empty())
            && conn.incoming.is_none()
            && conn.outbox.unsent_bytes() == 0
            && !conn.send_armed;
        if !untouched {
            self.fail(index, CloseReason::ProtocolError(ProtocolError::Sequence), io);
            return;
        }
        conn.state = State::HandingOver { lane, hello: hello.into() };
        if conn.recv_armed {
            io.driver.cancel(Token::new(Kind::Recv, index), conn.raw());
        } else {
            self.complete_handover(index, io);
        }
    }

    pub(super) fn complete_handover(&mut self, index: u32, io: &mut IoContext) {
        let conn = self.conn(index);
        let state = std::mem::replace(&mut conn.state, State::Dead);
        if let (State::HandingOver { lane, hello }, Some(socket)) = (state, conn.socket.take()) {
            let seal = conn.seal.take();
            io.driver.forget(socket.as_raw_fd());
            self.to_peers.push((lane, QueuedMessage::Socket { socket, seal, hello }));
        }
        self.remove(index, io);
    }
}
