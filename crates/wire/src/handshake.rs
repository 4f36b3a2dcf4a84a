//! The message bodies of the handshake: Hello, Challenge, Proof, Welcome or Refusal. Server lane
//! and client check their order and contents.

use crate::codec::{Bytes, DecodeError, Reader, Wire, Writer};
use crate::{
    ClientUuid, Credential, FsUuid, InodeNo, KeyId, LaneId, Map, Nonce, ProtocolError, ServerId,
    SessionId,
};

/// The first frame of a connection, from the client. The connection is handed over to the lane it
/// names before anything else is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello<'a> {
    /// The server lane wanted, modulo the server's lane count.
    pub server_lane: LaneId,
    /// The mount.
    pub client: ClientUuid,
    /// The lane of the mount.
    pub client_lane: LaneId,
    /// Counts this client lane's connections to this server; rises. An older one is refused.
    pub conn_epoch: u32,
    /// Random.
    pub nonce: Nonce,
    /// The host, and its boot, for telling a rebooted host's sessions from live ones.
    pub host_id: [u8; 16],
    /// From /proc/sys/kernel/random/boot_id.
    pub host_boot_id: [u8; 16],
    /// The oldest boot that had all changes of this client lane at some shard of the server lane; 0
    /// if it never changed anything there.
    pub boot_id_last: u64,
    /// A mount whose process has ended and that this one replaces: the server releases its state at
    /// once. Zeros if there is none.
    pub predecessor: ClientUuid,
    /// The export wanted, at most 64 bytes; empty for the default one.
    pub export: Bytes<'a>,
    /// The credential that is proven.
    pub credential: Credential,
    /// The purpose.
    pub purpose: Purpose,
    /// Which of the valid secrets.
    pub key_id: KeyId,
    /// The name of the host, at most [`LABEL_BYTES_MAX`] bytes. It and the next are for people only.
    pub host_name: Bytes<'a>,
    /// What the client is used for, at most as long; may be empty.
    pub job: Bytes<'a>,
}

/// Longest name of a host or job.
pub const LABEL_BYTES_MAX: usize = 64;

/// The purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub enum Purpose {
    /// To use an export.
    #[default]
    Use = 0,
    /// Administration of the store, as root of the whole file system; no export is named.
    Administer = 1,
}

impl Wire<'_> for Purpose {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&(*self as u8));
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => Ok(Self::Use),
            1 => Ok(Self::Administer),
            _ => Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        }
    }
}

impl<'a> Wire<'a> for Hello<'a> {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.server_lane);
        to.write(&self.client);
        to.write(&self.client_lane);
        to.write(&self.conn_epoch);
        to.write(&self.nonce);
        to.write(&self.host_id);
        to.write(&self.host_boot_id);
        to.write(&self.boot_id_last);
        to.write(&self.predecessor);
        to.write(&self.export);
        to.write(&self.credential);
        to.write(&self.purpose);
        to.write(&self.key_id);
        to.write(&self.host_name);
        to.write(&self.job);
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            server_lane: from.read()?,
            client: from.read()?,
            client_lane: from.read()?,
            conn_epoch: from.read()?,
            nonce: from.read()?,
            host_id: from.read()?,
            host_boot_id: from.read()?,
            boot_id_last: from.read()?,
            predecessor: from.read()?,
            export: from.read()?,
            credential: from.read()?,
            purpose: from.read()?,
            key_id: from.read()?,
            host_name: from.read()?,
            job: from.read()?,
        })
    }
}

/// The server's answer to a Hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Challenge {
    /// Which file system this is.
    pub fs: FsUuid,
    /// Random.
    pub nonce: Nonce,
    /// [`crate::Secret::server_proof`].
    pub proof: [u8; 32],
}

impl Wire<'_> for Challenge {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.fs);
        to.write(&self.nonce);
        to.write(&self.proof);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { fs: from.read()?, nonce: from.read()?, proof: from.read()? })
    }
}

/// The client's answer to a Challenge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proof {
    /// [`crate::Secret::client_proof`].
    pub proof: [u8; 32],
}

impl Wire<'_> for Proof {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.proof);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { proof: from.read()? })
    }
}

/// Bits of [`Welcome::flags`].
pub mod welcome_flag {
    /// This lane has lost the client's open handles: the client reopens them before anything else.
    pub const HANDLES_UNKNOWN: u32 = 1;
    /// The client's root acts as root here (otherwise as nobody).
    pub const ROOT_TRUSTED: u32 = 2;
    /// This export is read-only.
    pub const READ_ONLY: u32 = 4;
    /// All callers get other ids here: a kernel must not check permissions by its own.
    pub const IDS_REPLACED: u32 = 8;
}

/// The server accepts the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The session of this client lane.
    pub session: SessionId,
    /// The server's boot; rises by 1 with every start of the store.
    pub boot_id: u64,
    /// The servers and shards.
    pub map: Map,
    /// The server that replies.
    pub server: ServerId,
    /// The replying lane of it.
    pub lane: LaneId,
    /// Slots per session and shard.
    pub slot_count: u16,
    /// Requests a client lane may have outstanding on this connection.
    pub credits: u16,
    /// See [`welcome_flag`].
    pub flags: u32,
    /// The longest time that this lane's recovery may still take, in milliseconds; 0 when it is
    /// over.
    pub recovery_ms: u32,
    /// The root of the export.
    pub root: InodeNo,
}

impl Wire<'_> for Welcome {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.session);
        to.write(&self.boot_id);
        to.write(&self.map);
        to.write(&self.server);
        to.write(&self.lane);
        to.write(&self.slot_count);
        to.write(&self.credits);
        to.write(&self.flags);
        to.write(&self.recovery_ms);
        to.write(&self.root);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let welcome = Self {
            session: from.read()?,
            boot_id: from.read()?,
            map: from.read()?,
            server: from.read()?,
            lane: from.read()?,
            slot_count: from.read()?,
            credits: from.read()?,
            flags: from.read()?,
            recovery_ms: from.read()?,
            root: from.read()?,
        };
        let in_range =
            welcome.slot_count >= SLOT_COUNT_MIN && welcome.credits > 0 && welcome.root.count() > 0;
        let lane_count = welcome.map.lane_count(welcome.server);
        if in_range && lane_count.is_some_and(|count| welcome.lane.0 < count) {
            Ok(welcome)
        } else {
            Err(DecodeError::ProtocolError(ProtocolError::Malformed))
        }
    }
}

/// Fewest slots of a session: the last one is reserved for reopening handles, which must not wait
/// for a request that waits for them.
pub const SLOT_COUNT_MIN: u16 = 2;

/// Why a handshake ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum RefusalReason {
    /// The client's proof is wrong.
    WrongSecret = 1,
    /// There is no such export.
    NoSuchExport = 2,
    /// A later connection of this client lane exists.
    OldEpoch = 3,
    /// Too many connections or clients.
    Busy = 4,
    /// The server is stopping.
    Stopping = 5,
    /// The client was evicted: it was away for too long and others went on without it. It may
    /// connect under a new uuid.
    Evicted = 6,
    /// The server accepts TLS only. Sent in plain text to a plain-text client.
    MustSeal = 7,
    /// The server has no TLS. Sent in plain text to a TLS client.
    MustNotSeal = 8,
    /// The client's certificate does not grant the export, or it has shown none.
    NotCertified = 9,
}

/// The server refuses the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The reason.
    pub reason: RefusalReason,
}

impl Wire<'_> for Refusal {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&(self.reason as u16));
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let reason = match u16::decode(from)? {
            1 => RefusalReason::WrongSecret,
            2 => RefusalReason::NoSuchExport,
            3 => RefusalReason::OldEpoch,
            4 => RefusalReason::Busy,
            5 => RefusalReason::Stopping,
            6 => RefusalReason::Evicted,
            7 => RefusalReason::MustSeal,
            8 => RefusalReason::MustNotSeal,
            9 => RefusalReason::NotCertified,
            _ => return Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        };
        Ok(Self { reason })
    }
}
