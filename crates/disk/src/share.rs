//! Which replies wait: the mode of a server, which a store remembers for its next recovery.

/// Which replies wait until what they depend on is durable (PROTOCOL.md §1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Share {
    /// Those that depend on a change whose own client may not know of it. A client that does not
    /// come back after a restart may take others' changes with it.
    Off,
    /// Also those that depend on another client's change: whoever comes back loses nothing.
    #[default]
    Write,
    /// Also those that show another client's change: what anybody has seen is there afterwards.
    Strict,
}

impl Share {
    /// Every mode, the weakest first.
    pub const ALL: [Self; 3] = [Self::Off, Self::Write, Self::Strict];

    /// As it is written.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Write => "write",
            Self::Strict => "strict",
        }
    }

    /// As a row has it, from 1.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Off => 1,
            Self::Write => 2,
            Self::Strict => 3,
        }
    }

    /// The mode of such a number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|share| share.number() == number)
    }
}
