//! The option for pinning lanes to cores, of `serve`, `mount` and `up`.

use clap::{Args, ValueEnum};

/// Where a lane runs.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pin {
    /// One core per lane, as far as there are enough
    On,
    /// No pinning: the scheduler places them
    Off,
}

impl Pin {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// The same as an argument.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PinArg {
    /// Whether each lane is pinned to its own core
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Pin::On)]
    pub(crate) pin: Pin,
}
