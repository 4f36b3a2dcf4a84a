//! The configuration of a lane, and its limits.

use crate::affinity::Affinity;
use crate::token::FsKey;
use alloc::string::String;
use alloc::vec::Vec;
pub use disk::{Promised, Share};
use wire::Rules;
use wire::{FsUuid, LaneId, Map, Secrets, ServerId};

/// The configuration of a lane.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which lane it is.
    pub lane: LaneId,
    /// Servers and shards.
    pub map: Map,
    /// Which of the servers it is of.
    pub server: ServerId,
    /// Which file system.
    pub fs: FsUuid,
    /// The valid secrets at the start; [`interface::Event::Secrets`] brings later ones.
    pub secrets: Secrets,
    /// The key of the file system: the same at each of its servers and starts, known to them only.
    pub fs_key: FsKey,
    /// What was promised since the last completed recovery, by this start too.
    pub promised: Promised,
    /// The number of this start of the store, from 1.
    pub boot_id: u64,
    /// Exports of the command line, each the whole file system. The first is the default, unless
    /// the store defines another.
    pub exports: Vec<Export>,
    /// Random bytes, of this lane and boot alone.
    pub seed: [u8; 32],
    /// Which lane keeps a connection's socket.
    pub affinity: Affinity,
    /// The limits.
    pub limits: Limits,
    /// The rules of the protocol, which a test may disable one by one.
    pub rules: Rules,
}

impl Config {
    /// Lanes of this server.
    pub(crate) fn lane_count(&self) -> u16 {
        let lane_count = self.map.lane_count(self.server);
        assert!(lane_count.is_some(), "the map of a server has it");
        lane_count.unwrap_or(1)
    }
}

/// An export of the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// Its name.
    pub name: String,
    /// A client's root acts as root; otherwise as the anonymous user.
    pub root_trusted: bool,
}

/// Limits of a lane: everything that grows has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections.
    pub conn_count_max: usize,
    /// Connections that have not proven the secret.
    pub handshake_count_max: usize,
    /// Time for the handshake, in milliseconds.
    pub handshake_ms_max: u64,
    /// Sessions remembered.
    pub session_count_max: usize,
    /// Open handles at a metadata shard.
    pub handle_count_max: usize,
    /// Slots per session and shard, [`wire::SLOT_COUNT_MIN`] ..= 64.
    pub slot_count: u16,
    /// Requests outstanding per connection.
    pub credits: u16,
    /// A client without a connection for this long has lost its open files, in milliseconds.
    pub client_absent_ms: u64,
    /// A client without a connection for this long loses the file locks that others want, in
    /// milliseconds.
    pub lock_absent_ms: u64,
    /// Which replies wait for the changes that they depend on.
    pub share: Share,
    /// Every reply waits until its own change is durable.
    pub sync: bool,
    /// After a start, time for known clients to reconnect, in milliseconds; extended while clients
    /// replay.
    pub recovery_soft_ms: u64,
    /// The same, without any extension.
    pub recovery_hard_ms: u64,
    /// Written contents are made durable after this many milliseconds at the latest.
    pub sync_ms: u64,
    /// Or when this many bytes of a file are not durable.
    pub unsynced_bytes_max: u64,
    /// The log takes at most this many unsynced bytes of a file in place of a sync of it, when a
    /// request waits for them; 0: none.
    pub logged_bytes_max: u64,
    /// Bytes of a page of contents, of which the log takes all or nothing.
    pub page_bytes: u64,
    /// Bytes of a block that has a checksum.
    pub block_bytes: u32,
    /// Overwritten blocks get their checksums when their object has not been written for this long,
    /// in milliseconds.
    pub quiet_ms: u64,
    /// A batch without dependents is appended this many milliseconds after its first record, so
    /// that it gathers more records. A batch with dependents is appended at once.
    pub log_ms: u64,
    /// Messages to other lanes that nothing waits for gather this many milliseconds, and so do
    /// acknowledgements of messages.
    pub message_ms: u64,
    /// A commit notification is sent after this many milliseconds to sessions that learn of
    /// durability in no other way.
    pub notification_ms: u64,
    /// The longest redo token; the reply to a change that needs a longer one waits until the change
    /// is durable.
    pub token_bytes_max: usize,
    /// Objects remembered, apart from those in use.
    pub object_count_max: usize,
    /// Objects being destroyed at a time.
    pub destroy_count_max: usize,
    /// Log space required for changes that take space, in bytes.
    pub log_space_bytes_min: u64,
    /// Log space required for changes that free space, in bytes.
    pub log_space_bytes_last: u64,
    /// Requests that take this long or longer are remembered, in milliseconds.
    pub slow_ms: u64,
    /// Requests are counted and traced. Measurements alone switch it off.
    pub observes: bool,
    /// How long a lease lasts, in milliseconds; 0: none are granted.
    pub lease_term_ms: u64,
    /// Leases of all clients.
    pub lease_count_max: usize,
    /// New directories down to this depth are spread over the metadata shards, deeper ones stay
    /// with their parent: 0 (none), 1 (the root's entries) or 2.
    pub spread_depth: u8,
}

impl Limits {
    /// What a server with these limits promises its clients.
    #[must_use]
    pub const fn promised(&self) -> Promised {
        Promised { share: self.share, lease_term_ms: self.lease_term_ms }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            conn_count_max: 16_384,
            handshake_count_max: 256,
            handshake_ms_max: 10_000,
            session_count_max: 16_384,
            handle_count_max: 4_000_000,
            slot_count: 16,
            credits: 64 + 16,
            client_absent_ms: 60_000,
            lock_absent_ms: 5_000,
            share: Share::Write,
            sync: false,
            recovery_soft_ms: 10_000,
            recovery_hard_ms: 60_000,
            sync_ms: 50,
            unsynced_bytes_max: 8 << 20,
            logged_bytes_max: 64 << 10,
            page_bytes: 4096,
            block_bytes: disk::BLOCK_BYTES,
            quiet_ms: 3_000,
            log_ms: 0,
            message_ms: 0,
            notification_ms: 100,
            token_bytes_max: 16 * 1024,
            object_count_max: 65_536,
            destroy_count_max: 64,
            log_space_bytes_min: 1 << 20,
            log_space_bytes_last: 1 << 18,
            slow_ms: 20,
            observes: true,
            lease_term_ms: 10_000,
            lease_count_max: 1_000_000,
            spread_depth: 2,
        }
    }
}
