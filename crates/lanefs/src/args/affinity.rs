//! Which lane of a server keeps a connection's socket, on the command line.

use clap::ValueEnum;

/// What decides the lane of a connection's socket.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Affinity {
    /// The object of a request: each request arrives at the lane that executes it
    Object,
    /// The client: all of its requests arrive at one lane, which forwards those of other lanes
    Client,
    /// A random lane: for measuring what forwarding costs
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
