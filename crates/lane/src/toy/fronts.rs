//! Which lane has a peer's socket, in the toy world, and what is under TLS there.

use super::{Coming, Toy};
use interface::ConnId;
use wire::{Bytes, CertificateIdentity, Channel, Wire as _};

impl Toy {
    /// The lane that accepted it, or that it was handed to; not the one to which it is relayed.
    pub(crate) fn front_of(&self, conn: ConnId) -> usize {
        self.peers[&conn].front
    }

    /// A peer's connection is under TLS; said before its first frame.
    pub(crate) fn seal(&mut self, conn: ConnId, channel: Channel) {
        let lane = self.lane_of(conn);
        self.places[lane].coming.push(Coming::Sealed { conn, channel, holder: None });
    }

    /// The same of one that has shown a certificate.
    pub(crate) fn certify(&mut self, conn: ConnId, channel: Channel, (key, uri): (u8, &str)) {
        let lane = self.lane_of(conn);
        let opens = CertificateIdentity::grant_lines([uri].into_iter());
        let holder = CertificateIdentity { key: [key; 32], grants: Bytes(&opens) }.to_bytes();
        self.places[lane].coming.push(Coming::Sealed { conn, channel, holder: Some(holder) });
    }
}
