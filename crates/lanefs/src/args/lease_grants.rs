//! What a server grants to clients that cache.

use super::units::{time_in, time_text};
use clap::{Args, ValueEnum};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Bounds of a term.
const TERMS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);

/// Whether leases are granted.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Granting {
    /// To every client that asks for them
    On,
    /// To nobody: no client caches
    Off,
}

impl Granting {
    const fn text(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// The leases of a server.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct LeaseGrants {
    /// Whether clients are granted leases, under which they cache
    #[arg(long, value_name = "WHETHER", value_enum, default_value_t = Granting::On)]
    pub(crate) leases: Granting,
    /// How long a lease lasts, from 1s to 60s: a client that does not answer delays another one's
    /// change, and a recovery, for so long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time_in(TERMS))]
    pub(crate) lease_term: Duration,
}

impl LeaseGrants {
    /// The same as arguments.
    pub(crate) fn texts(self) -> [String; 2] {
        let Self { leases, lease_term } = self;
        [format!("--leases={}", leases.text()), format!("--lease-term={}", time_text(lease_term))]
    }

    /// The term; zero: nothing is granted.
    pub(crate) fn term(self) -> Duration {
        match self.leases {
            Granting::On => self.lease_term,
            Granting::Off => Duration::ZERO,
        }
    }

    /// For people.
    pub(crate) fn state(self) -> String {
        match self.leases {
            Granting::On => format!("on, for {}", time_text(self.lease_term)),
            Granting::Off => "off".to_owned(),
        }
    }
}
