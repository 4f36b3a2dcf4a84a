//! Whether connections are under TLS, on the command line of both ends.

use clap::Args;
use ring::Sealing;

/// The default follows from the address, which both ends see alike.
#[derive(Args, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct SealArg {
    /// All connections are under TLS [default: those to addresses that are not loopback]
    #[arg(long, conflicts_with = "plain")]
    pub(crate) seal: bool,
    /// No connection is under TLS: the network between can read and change what is sent
    #[arg(long)]
    pub(crate) plain: bool,
}

impl SealArg {
    /// `--seal`.
    pub(crate) const ALL: Self = Self { seal: true, plain: false };

    pub(crate) const fn sealing(self) -> Sealing {
        match self {
            Self { seal: true, .. } => Sealing::All,
            Self { plain: true, .. } => Sealing::Nothing,
            Self { seal: false, plain: false } => Sealing::Auto,
        }
    }

    /// The same as arguments.
    pub(crate) fn texts(self) -> impl Iterator<Item = &'static str> {
        let Self { seal, plain } = self;
        [seal.then_some("--seal"), plain.then_some("--plain")].into_iter().flatten()
    }
}
