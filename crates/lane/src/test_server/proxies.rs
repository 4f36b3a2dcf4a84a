//! The lanes, proxy lanes and the TLS state of the test server's connections.

use super::{Incoming, TestServer};
use crate::Lane;
use interface::{ConnId, NetEvent, Span};
use wire::{Bytes, CertificateIdentity, Channel, Wire as _};

impl TestServer {
    /// A lane whose state a test changes.
    pub(crate) fn lane_mut(&mut self, index: usize) -> &mut Lane {
        &mut self.hosts[index].lane
    }

    /// The lane with a peer's socket: the proxy lane, if there is one.
    pub(crate) fn proxy_of(&self, conn: ConnId) -> usize {
        self.peers[&conn].proxy
    }

    /// Puts a peer's connection under TLS, before its first frame.
    pub(crate) fn seal(&mut self, conn: ConnId, channel: Channel) {
        let lane = self.lane_of(conn);
        self.hosts[lane].state.deliver(NetEvent::Sealed { conn, channel, holder: None });
    }

    /// The same with a client certificate.
    pub(crate) fn certify(&mut self, conn: ConnId, channel: Channel, (key, uri): (u8, &str)) {
        let lane = self.lane_of(conn);
        let opens = CertificateIdentity::grant_lines([uri].into_iter());
        let holder = CertificateIdentity { key: [key; 32], grants: Bytes(&opens) }.to_bytes();
        let event = NetEvent::Sealed { conn, channel, holder: Some(Span::default()) };
        self.hosts[lane].state.deliver(Incoming::new(event, holder));
    }
}
