//! Rules of the protocol that tests can disable one at a time, to show that each is needed and that
//! its absence is detected. Only with the feature `removable-rules`; otherwise all rules hold at no cost.

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident $name:literal,)*) => {
        /// A rule of client or server (docs/protocol.md).
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Rule {
            $($(#[$doc])* $rule,)*
        }

        impl Rule {
            /// Every rule with its name.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$rule, $name),)*];
        }
    };
}

rules! {
    /// A client's own change defers replies until its own reply is known to be received.
    OwnUnacked "own-unacked",
    /// The removal of a name is a change of that name.
    Tombstones "tombstones",
    /// Two changes of a directory's entries are tracked, the second one by another client.
    EntriesSecond "entries-second",
    /// A client's last change of a directory's entries counts as received when all before it are.
    EntriesCumulative "entries-cumulative",
    /// Creating an inode is a change of its existence, and an entry in it depends on that.
    ExistMarks "exist-marks",
    /// Moves of directories depend on each other; a move across shards locks the topology and never
    /// moves a directory below itself.
    Topology "topology",
    /// The replays of one client's lanes are merged by their transaction numbers.
    MergePeerLanes "merge-peer-lanes",
    /// Replays are durable before any client is evicted and new requests are admitted. Two phases
    /// wait for that. For names the second alone would do: it waits for the evictions' records,
    /// which follow the replays' in the log. Replayed contents are logged later.
    S3Flush "s3-flush",
    /// With sharing off, another client's change defers replies until that client's reply is
    /// received.
    OffUnacked "off-unacked",
    /// The flag that a file's size is at the data shard is durable before the file may be written.
    SizeFlag "size-flag",
    /// A metadata shard takes over the size of durable bytes only.
    SettleDurable "settle-durable",
    /// A size queried before a file was opened for writing again is discarded.
    SettleAsked "settle-asked",
    /// A transaction over several shards commits only when all of them have prepared durably.
    TwoPhaseOrder "two-phase-order",
    /// Connections to an earlier boot are closed once the next boot is known. Otherwise they might
    /// never fail, and the next boot waits for their sessions' replays.
    DrainPeerLanes "drain-peer-lanes",
    /// A client resumes its session at all data shards of each lane at which it has changed contents:
    /// the server has recorded it at all of them.
    SessionShards "session-shards",
    /// A reply of an earlier boot that is received when the next boot is known is replayed like any
    /// other: a shard's replays begin when its own connection is a new one. Such replies come only
    /// where connections are not closed, so this rule counts only without [`Rule::DrainPeerLanes`].
    LateReplies "late-replies",
    /// Every piece of a lost list write is replayed.
    ListsWhole "lists-whole",
    /// A block is verified against its checksum before it is read for the first time.
    VerifyContents "verify-contents",
    /// A block that has left the page cache is verified again before it is read.
    VerifyEvicted "verify-evicted",
    /// The removal of a block's checksum is durable before a covered byte is overwritten.
    OverwriteIntent "overwrite-intent",
    /// A client is identified by its uuid together with its credential and export.
    Parties "parties",
    /// A message between lanes that was received before is dropped.
    PeerOnce "peer-once",
    /// A message between lanes that is not acknowledged in time is sent again.
    PeerResend "peer-resend",
    /// A change waits until other clients have dropped what they cache of it.
    LeaseRecall "lease-recall",
    /// A key is not granted while a request waits for its leases to end.
    LeaseWaiter "lease-waiter",
    /// A client ignores a grant that was recalled before the answer was taken.
    LeaseLateGrant "lease-late-grant",
    /// The server waits for the whole term that it granted.
    LeaseTerm "lease-term",
    /// A client whose connection has ended keeps its leases until they expire.
    LeaseReconnect "lease-reconnect",
    /// Leases are granted only to clients that the next recovery awaits, and it awaits them for
    /// the term.
    LeaseRestart "lease-restart",
    /// What a client knows of a directory's names ends with the lease of its attributes.
    KnownNames "known-names",
    /// A client forgets the attributes of the inodes that a reply names as changed.
    NamedInodes "named-inodes",
    /// A client's own change outdates what its other lanes have cached.
    OwnChanges "own-changes",
    /// A change of contents waits until other clients have dropped their pages of them.
    LeasePages "lease-pages",
    /// A truncation of a file over several data shards waits, at each of them, until other clients have
    /// dropped their pages of it.
    CutPages "cut-pages",
    /// A client keeps pages of a file over several data shards if all parts that it has read grant
    /// them.
    PageParts "page-parts",
    /// What a client writes behind is seen by others only when it has been written.
    WriteBehind "write-behind",
    /// A file that was there before is written behind only by a client that alone has it open.
    WriteOpened "write-opened",
    /// Objects are synced before the rows pass records that have bytes of them.
    ContentsFlush "contents-flush",
    /// Bytes in the log are not redone where a later record says that the object has them.
    ContentsOrder "contents-order",
    /// What a start finds prepared for another server's coordinator stays prepared and locked.
    PreparedKept "prepared-kept",
    /// A coordinator that starts goes on with what it has decided, until all are done.
    DecidedKept "decided-kept",
    /// What is prepared is asked about.
    OutcomeAsked "outcome-asked",
    /// A coordinator answers that it has aborted what it does not know.
    PresumedAbort "presumed-abort",
    /// A participant releases what is locked, and not prepared, for a coordinator that is away.
    LocksReleased "locks-released",
    /// A coordinator gives up what is undecided when a participant is away.
    UndecidedGivenUp "undecided-given-up",
    /// Messages are numbered anew on each connection between servers: none outlives it.
    ConnectionAnew "connection-anew",
    /// A new inode is locked from Prepare on.
    NewInodeLocked "new-inode-locked",
    /// A part of a file over several data shards is appended to only by the session that has the
    /// file's end.
    AppendFenced "append-fenced",
    /// While a session has the end of a file, only its appends move the ends of the file's parts.
    AppendCloses "append-closes",
    /// A part is open again for all when the connection to the lane ends that looked at it for an
    /// append.
    AppendReopened "append-reopened",
    /// A truncation is executed first by the part that has the new last byte.
    CutEndFirst "cut-end-first",
    /// A part is cut durably before the home shard is told.
    CutsDurable "cuts-durable",
    /// What a file over several data shards has is looked at while no truncation of it runs.
    LooksWait "looks-wait",
    /// A sync of a file's contents goes to all shards that may have some.
    SyncParts "sync-parts",
    /// What was short is read again once the size of a file over several data shards is known.
    ReadAgain "read-again",
    /// The home shard of a file that was widened refuses requests that take it for one at a single
    /// data shard.
    NarrowRefused "narrow-refused",
    /// Nothing of a connection between servers is applied once a newer one of the same lanes is
    /// proven.
    OldConnectionEnded "old-connection-ended",
    /// A file that a client has open without the server is registered before its lease ends, and before
    /// the client removes it.
    LocalRegistered "local-registered",
    /// A file that a client has open to read and write without the server is opened for writing there
    /// before the client changes it.
    LocalWritten "local-written",
    /// A recovery goes on waiting for a client that knows a newer map than the server has.
    MapAwaited "map-awaited",
    /// What names a file waits until the file's data shards know which privileged bits it has, and so
    /// does the reply to the request that has changed them.
    BitsTold "bits-told",
    /// What names a file waits until the file's data shards know that its write lease was taken.
    FenceTold "fence-told",
    /// A client closes a file when it knows what became of changes that killed programs have left.
    AbandonedEnded "abandoned-ended",
    /// A size is settled behind the truncations of all of the file that have begun.
    SettleBehindCuts "settle-behind-cuts",
    /// A part executes a cut once that it is asked for again.
    CutOnce "cut-once",
    /// The home part only records a truncation that it was cut by first.
    CutHomeOnce "cut-home-once",
    /// A client lane says of another one only that it has received replies that it has received.
    PeerLaneReceived "peer-lane-received",
    /// No record goes to the rows that may have bytes of a write whose object does not have them yet.
    LogFirst "log-first",
}

impl Rule {
    /// The rule of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(rule, _)| *rule)
    }
}

/// The rules that hold: all, unless a test disabled one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rules {
    #[cfg(feature = "removable-rules")]
    missing: u128,
}

#[cfg(feature = "removable-rules")]
impl Rules {
    /// The rules without this one.
    #[must_use]
    pub const fn without(self, rule: Rule) -> Self {
        Self { missing: self.missing | 1 << rule as u32 }
    }

    /// Whether this rule holds.
    #[must_use]
    pub const fn hold(self, rule: Rule) -> bool {
        self.missing & 1 << rule as u32 == 0
    }
}

#[cfg(not(feature = "removable-rules"))]
impl Rules {
    /// Whether this rule holds: always.
    #[must_use]
    pub const fn hold(self, _: Rule) -> bool {
        true
    }
}
