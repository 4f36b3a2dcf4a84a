//! Rules that a test can take away to see that it notices. Only with the feature `planted`;
//! otherwise all are in force and cost nothing.

/// One flag a rule; all are in force by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// A change over several shards is decided when all have prepared it durably, not before.
    #[cfg(feature = "planted")]
    pub two_phase_order: bool,
    /// Rules of the metadata shards.
    pub meta: meta::Rules,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            #[cfg(feature = "planted")]
            two_phase_order: true,
            meta: meta::Rules::default(),
        }
    }
}

impl Rules {
    /// See [`Rules`].
    #[cfg(feature = "planted")]
    pub(crate) const fn two_phase_order(self) -> bool {
        self.two_phase_order
    }

    /// See [`Rules`].
    #[cfg(not(feature = "planted"))]
    #[expect(clippy::unused_self, reason = "with the feature it asks")]
    pub(crate) const fn two_phase_order(self) -> bool {
        true
    }
}
