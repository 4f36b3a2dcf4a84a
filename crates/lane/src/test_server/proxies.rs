//! Which lane has a peer's socket, in the toy world, and what is under TLS there.

use super::{PendingEvent, TestServer};
use interface::ConnId;
use wire::{Bytes, Channel, Holder, Wire as _};

impl TestServer {
    /// The lane that accepted it, or that it was handed to; not the one to which it is relayed.
    pub(crate) fn proxy_of(&self, conn: ConnId) -> usize {
        self.peers[&conn].proxy
    }

    /// A peer's connection is under TLS; said before its first frame.
    pub(crate) fn seal(&mut self, conn: ConnId, channel: Channel) {
        let lane = self.lane_of(conn);
        self.hosts[lane].pending_events.push(PendingEvent::Sealed { conn, channel, holder: None });
    }

    /// The same of one that has shown a certificate.
    pub(crate) fn certify(&mut self, conn: ConnId, channel: Channel, (key, uri): (u8, &str)) {
        let lane = self.lane_of(conn);
        let opens = Holder::lines([uri].into_iter());
        let holder = Holder { key: [key; 32], opens: Bytes(&opens) }.to_bytes();
        self.hosts[lane].pending_events.push(PendingEvent::Sealed {
            conn,
            channel,
            holder: Some(holder),
        });
    }
}
