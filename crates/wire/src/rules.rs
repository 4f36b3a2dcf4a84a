//! Rules of the protocol that can be taken away, one at a time, so that tests can show that each is
//! needed and that they would notice. Only with the feature `planted`; otherwise all of them hold and
//! cost nothing.

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident $name:literal,)*) => {
        /// A rule of client or server (PROTOCOL.md).
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
    /// A client's own change gates until its reply is known to be received.
    OwnUnacked "own-unacked",
    /// A name that was removed is a change of that name.
    Tombstones "tombstones",
    /// Of a directory's entries two changes are remembered, the second by another client.
    EntriesSecond "entries-second",
    /// A client's last change of a directory's entries is received when all before it are.
    EntriesCumulative "entries-cumulative",
    /// Making something and being in it are a change and a dependency.
    ExistMarks "exist-marks",
    /// Moves of directories depend on each other; one that moves across shards locks the topology
    /// and never goes below itself.
    Topology "topology",
    /// Replays of one client's lanes are merged by their numbers.
    MergePeerLanes "merge-peer lanes",
    /// What was replayed is durable before anybody is evicted and anything new is admitted. Two
    /// phases wait for it. For names the second alone would do: the evictions' records, which it
    /// waits for, stand behind the replays' in the log. Replayed contents come into the log later.
    S3Flush "s3-flush",
    /// With sharing off, another client's change gates until that client's reply is received.
    OffUnacked "off-unacked",
    /// That the size of a file is with its contents is durable before anybody may write to it.
    SizeFlag "size-flag",
    /// The size that a metadata shard takes over is one of bytes that are durable.
    SettleDurable "settle-durable",
    /// A size that was asked for before somebody opened the file for writing is old news.
    SettleAsked "settle-asked",
    /// A change over several shards is decided when all have prepared it durably, not before.
    TwoPhaseOrder "two-phase-order",
    /// Connections that lead to an earlier boot are closed once the next boot is known. Nobody may
    /// ever say that they are dead, and the next boot waits for what their sessions have to say.
    DrainPeerLanes "drain-peer lanes",
    /// What an earlier boot answered and is read when the next boot is known is replayed like all
    /// else: a shard's replays begin when its own connection is a new one. It comes only where
    /// connections are not closed, so it counts only without [`Rule::DrainPeerLanes`].
    LateReplies "late-replies",
    /// Of a list that was lost and is brought back every piece is written.
    ListsWhole "lists-whole",
    /// A block is compared with its checksum before it is read for the first time.
    VerifyContents "verify-contents",
    /// A block that has left the page cache since is compared again before it is read.
    VerifyEvicted "verify-evicted",
    /// That a block has no checksum any more is durable before a byte that it covers is overwritten.
    OverwriteIntent "overwrite-intent",
    /// A client is its uuid together with its credential and export.
    Parties "parties",
}

impl Rule {
    /// The rule of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(rule, _)| *rule)
    }
}

/// Which rules hold: all, unless a test took one away.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rules {
    #[cfg(feature = "planted")]
    missing: u32,
}

#[cfg(feature = "planted")]
impl Rules {
    /// The same without this one.
    #[must_use]
    pub const fn without(self, rule: Rule) -> Self {
        Self { missing: self.missing | 1 << rule as u32 }
    }

    /// Whether this one holds.
    #[must_use]
    pub const fn hold(self, rule: Rule) -> bool {
        self.missing & 1 << rule as u32 == 0
    }
}

#[cfg(not(feature = "planted"))]
impl Rules {
    /// Whether this one holds: always.
    #[must_use]
    pub const fn hold(self, _: Rule) -> bool {
        true
    }
}
