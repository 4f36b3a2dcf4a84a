//! What a server promises its clients: which replies are deferred, and how long leases last. A store
//! remembers it for its next recovery.

/// Which replies are deferred until the changes that they depend on are durable (docs/protocol.md §6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Share {
    /// Replies that depend on a change whose own client may not know of it. A client that does not
    /// return after a restart may take others' changes with it.
    Off,
    /// Also replies that depend on another client's change: a client that returns loses nothing.
    #[default]
    Write,
    /// Also replies that show another client's change: everything that any client has seen
    /// survives.
    Strict,
}

impl Share {
    /// Every mode, the weakest first.
    pub const ALL: [Self; 3] = [Self::Off, Self::Write, Self::Strict];

    /// The text of an option.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Write => "write",
            Self::Strict => "strict",
        }
    }

    /// The number in a row, from 1.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Off => 1,
            Self::Write => 2,
            Self::Strict => 3,
        }
    }

    /// The mode of a number in a row.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|share| share.number() == number)
    }
}
/// What the clients of a server may rely on until the next recovery is completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promised {
    /// The weakest sharing mode.
    pub share: Share,
    /// The longest term of a lease, in milliseconds; 0: none were granted.
    pub lease_term_ms: u64,
}

impl Promised {
    /// What is assumed where nothing is known: the weakest mode, and the longest term that a server
    /// can be started with.
    pub const UNKNOWN: Self = Self { share: Share::Off, lease_term_ms: 60_000 };

    /// What clients may rely on after two starts without a completed recovery between them.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let share = self.share.min(other.share);
        Self { share, lease_term_ms: self.lease_term_ms.max(other.lease_term_ms) }
    }
}
