//! What lanes of different servers send each other before their first message: who they are, in
//! which start, and that they have the file system's key.
//!
//! ```text
//! dialling lane  -> PeerHello { fs, from, boot, to, nonce }
//! accepting lane -> PeerChallenge { boot, nonce, MAC(key, "accept" | hello | boot | nonce | channel) }
//! dialling lane  -> PeerProof { MAC(key, "dial" | hello | boot | nonce | channel) }
//! both           -> PeerMessage ...
//! ```
//! The key is known to servers only, and serves no other purpose, so no client can take part.

use crate::codec::{DecodeError, Reader, Wire, Writer};
use crate::{FsUuid, LaneId, Nonce, ServerId};

/// A lane of one of the file system's servers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerLane {
    /// The server.
    pub server: ServerId,
    /// Its lane.
    pub lane: LaneId,
}

impl Wire<'_> for PeerLane {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.server);
        to.write(&self.lane);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { server: from.read()?, lane: from.read()? })
    }
}

/// The first frame of a connection between servers, from the lane that dials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerHello {
    /// The file system.
    pub fs: FsUuid,
    /// The lane that dials.
    pub from: PeerLane,
    /// The start of its server.
    pub boot_id: u64,
    /// The lane that it dials.
    pub to: PeerLane,
    /// Random.
    pub nonce: Nonce,
}

impl Wire<'_> for PeerHello {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.fs);
        to.write(&self.from);
        to.write(&self.boot_id);
        to.write(&self.to);
        to.write(&self.nonce);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            fs: from.read()?,
            from: from.read()?,
            boot_id: from.read()?,
            to: from.read()?,
            nonce: from.read()?,
        })
    }
}

/// The answer of the lane that accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerChallenge {
    /// The start of its server.
    pub boot_id: u64,
    /// Random.
    pub nonce: Nonce,
    /// That it has the key.
    pub proof: [u8; 32],
}

impl Wire<'_> for PeerChallenge {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.boot_id);
        to.write(&self.nonce);
        to.write(&self.proof);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { boot_id: from.read()?, nonce: from.read()?, proof: from.read()? })
    }
}

/// The answer of the lane that dials. Its messages follow at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerProof {
    /// That it has the key.
    pub proof: [u8; 32],
}

impl Wire<'_> for PeerProof {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.proof);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { proof: from.read()? })
    }
}
