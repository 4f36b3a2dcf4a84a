//! Time as a state machine sees it: one clock reading per turn, passed in.

/// Nanoseconds on a clock that only rises and starts anywhere (CLOCK_MONOTONIC). The same clock for
/// all lanes of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Mono(pub u64);

impl Mono {
    /// This many milliseconds later.
    #[must_use]
    pub const fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }

    /// Nanoseconds since `earlier`, 0 if that is later.
    #[must_use]
    pub const fn since_ns(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The turn's clock reading.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Now {
    /// For deadlines and order.
    pub mono: Mono,
    /// For logs and inode times: nanoseconds since 1970, derived from `mono` by an offset that all
    /// lanes of a process share, so that order on `mono` is order here while the clock is not set.
    pub wall_ns: u64,
}
