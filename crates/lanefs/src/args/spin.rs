//! The option for busy polling, of `serve`, `up` and `mount`.

use super::units::time_in;
use clap::Args;
use std::time::Duration;

/// Longest busy polling of a lane.
pub(crate) const SPIN_MAX: Duration = Duration::from_millis(1);

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Spin {
    /// How long a lane polls for work before it sleeps, as 50us, at most 1ms: lower latency for more
    /// processor time
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = time_in(Duration::ZERO..=SPIN_MAX))]
    pub(crate) spin: Duration,
}

impl Spin {
    /// The same in microseconds.
    pub(crate) fn us(self) -> u32 {
        spin_us(self.spin)
    }
}

/// At most [`SPIN_MAX`] in microseconds.
pub(crate) fn spin_us(spin: Duration) -> u32 {
    u32::try_from(spin.min(SPIN_MAX).as_micros()).unwrap_or(0)
}
