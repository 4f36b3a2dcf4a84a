//! Rules that a test can take away to see that it notices. Only with the feature `planted`;
//! otherwise all are in force and cost nothing.

/// One flag a rule; all are in force by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(feature = "planted"), derive(Default))]
pub struct Rules {
    /// A directory that moves across shards locks the topology and never goes below itself.
    #[cfg(feature = "planted")]
    pub topology: bool,
    /// That the size of a file is with its contents is durable before anybody may write to it.
    #[cfg(feature = "planted")]
    pub size_flag: bool,
}

#[cfg(feature = "planted")]
impl Default for Rules {
    fn default() -> Self {
        Self { topology: true, size_flag: true }
    }
}

#[cfg(feature = "planted")]
impl Rules {
    /// See [`Rules`].
    pub(crate) const fn topology(self) -> bool {
        self.topology
    }

    /// See [`Rules`].
    pub(crate) const fn size_flag(self) -> bool {
        self.size_flag
    }
}

#[cfg(not(feature = "planted"))]
#[expect(clippy::unused_self, reason = "with the feature it asks")]
impl Rules {
    /// See [`Rules`].
    pub(crate) const fn topology(self) -> bool {
        true
    }

    /// See [`Rules`].
    pub(crate) const fn size_flag(self) -> bool {
        true
    }
}
