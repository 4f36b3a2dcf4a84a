//! The handshake: Hello, Challenge, Proof, Welcome, or Refusal. Their bodies; the order and the
//! checks are the lane's and the client's.

use crate::codec::{Bytes, Flaw, Reader, Wire, Writer};
use crate::{ClientUuid, FsUuid, InodeNo, KeyId, LaneId, Map, Nonce, ProtocolError, SessionId};

/// The first frame of a connection, from the client. The connection is handed to the lane it names
/// before anything else is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello<'a> {
    /// The server lane wanted; taken modulo the server's lane count.
    pub server_lane: LaneId,
    /// The mount.
    pub client: ClientUuid,
    /// Which of its lanes.
    pub client_lane: LaneId,
    /// Counts this client lane's connections to this server, rising; an older one is refused.
    pub conn_epoch: u32,
    /// Random.
    pub nonce: Nonce,
    /// The host, and its boot, for telling a rebooted host's sessions from live ones.
    pub host_id: [u8; 16],
    /// From /proc/sys/kernel/random/boot_id.
    pub host_boot_id: [u8; 16],
    /// The oldest boot that knew all this client lane had done at some shard of the server lane's, 0
    /// if it never did anything there.
    pub boot_id_last: u64,
    /// A mount whose process has ended and whose place this one takes: what it held is free as soon
    /// as this is said. Zeros if there is none.
    pub predecessor: ClientUuid,
    /// The export wanted, at most 64 bytes; empty for the default one.
    pub export: Bytes<'a>,
    /// Which secret is proven.
    pub credential: Credential,
    /// What for.
    pub purpose: Purpose,
    /// Which of the secrets that are valid.
    pub key_id: KeyId,
}

/// Which secret a client proves that it knows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub enum Credential {
    /// The store's: whoever has it may mount every export, and administer.
    #[default]
    Store = 0,
    /// That of the export alone ([`crate::Secret::of_export`]).
    Export = 1,
    /// None: the connection's client has shown a certificate ([`crate::Secret::of_channel`]).
    Certificate = 2,
}

/// What a client comes for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(u8)]
pub enum Purpose {
    /// To use an export.
    #[default]
    Use = 0,
    /// To administer the store, as root of the whole file system; no export is named.
    Administer = 1,
}

impl Wire<'_> for Credential {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&(*self as u8));
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        match u8::decode(from)? {
            0 => Ok(Self::Store),
            1 => Ok(Self::Export),
            2 => Ok(Self::Certificate),
            _ => Err(Flaw::ProtocolError(ProtocolError::Malformed)),
        }
    }
}

impl Wire<'_> for Purpose {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&(*self as u8));
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        match u8::decode(from)? {
            0 => Ok(Self::Use),
            1 => Ok(Self::Administer),
            _ => Err(Flaw::ProtocolError(ProtocolError::Malformed)),
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
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, Flaw> {
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
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
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
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        Ok(Self { proof: from.read()? })
    }
}

/// Bits of [`Welcome::flags`].
pub mod welcome_flag {
    /// This lane does not know the client's open handles: reopen them before anything else.
    pub const HANDLES_UNKNOWN: u32 = 1;
    /// The client's root acts as root here (otherwise as nobody).
    pub const ROOT_TRUSTED: u32 = 2;
    /// Nothing is changed through this export.
    pub const READ_ONLY: u32 = 4;
}

/// The server's yes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The session of this client lane.
    pub session: SessionId,
    /// The server's boot; rises by 1 with every start of the store.
    pub boot_id: u64,
    /// Its shape.
    pub map: Map,
    /// The lane that answers.
    pub lane: LaneId,
    /// Slots per session and shard.
    pub slot_count: u16,
    /// Requests a client lane may have outstanding on this connection.
    pub credits: u16,
    /// See [`welcome_flag`].
    pub flags: u32,
    /// How long this lane's recovery may still take at most, in milliseconds; 0 when it is over.
    pub recovery_ms: u32,
    /// The root of what is mounted.
    pub root: InodeNo,
}

impl Wire<'_> for Welcome {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.session);
        to.write(&self.boot_id);
        to.write(&self.map);
        to.write(&self.lane);
        to.write(&self.slot_count);
        to.write(&self.credits);
        to.write(&self.flags);
        to.write(&self.recovery_ms);
        to.write(&self.root);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
        let welcome = Self {
            session: from.read()?,
            boot_id: from.read()?,
            map: from.read()?,
            lane: from.read()?,
            slot_count: from.read()?,
            credits: from.read()?,
            flags: from.read()?,
            recovery_ms: from.read()?,
            root: from.read()?,
        };
        let in_range =
            welcome.slot_count >= SLOT_COUNT_MIN && welcome.credits > 0 && welcome.root.count() > 0;
        if in_range { Ok(welcome) } else { Err(Flaw::ProtocolError(ProtocolError::Malformed)) }
    }
}

/// Slots of a session at least: the last one is for handles that are registered again, which may
/// not wait for a request that waits behind them.
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
    /// This client was away for too long and others went on without it; it may come back under a
    /// new uuid.
    Evicted = 6,
    /// The server speaks TLS only. Said in plain text, to whoever does.
    MustSeal = 7,
    /// The server speaks no TLS. Said in plain text, to whoever does.
    MustNotSeal = 8,
    /// The client's certificate does not open what it asks for, or it has shown none.
    NotCertified = 9,
}

/// The server's no.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Why.
    pub reason: RefusalReason,
}

impl Wire<'_> for Refusal {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&(self.reason as u16));
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, Flaw> {
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
            _ => return Err(Flaw::ProtocolError(ProtocolError::Malformed)),
        };
        Ok(Self { reason })
    }
}
