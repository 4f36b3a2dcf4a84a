//! Which lane of a server keeps a connection's socket, on the command line.

use clap::ValueEnum;

/// What the socket of a connection follows.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Affinity {
    /// What is asked for: requests arrive on the core that executes them
    Object,
    /// Who asks: all of a client's requests arrive on one core, and are passed on from there
    Client,
    /// Dice: for measuring what passing on costs
    Random,
}

impl Affinity {
    /// As it is written on a command line.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Client => "client",
            Self::Random => "random",
        }
    }

    pub(crate) const fn mode(self) -> lane::Affinity {
        match self {
            Self::Object => lane::Affinity::Object,
            Self::Client => lane::Affinity::Client,
            Self::Random => lane::Affinity::Random,
        }
    }
}
