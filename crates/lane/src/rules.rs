//! Rules of the protocol that can be taken away, so that tests can show that each is needed and that
//! they would notice. Only with the feature `planted`; otherwise all of them hold and cost nothing.

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident,)*) => {
        /// One switch for each rule; all hold unless told otherwise.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[cfg_attr(not(feature = "planted"), derive(Default))]
        pub struct Rules {
            $($(#[$doc])* #[cfg(feature = "planted")] pub $rule: bool,)*
        }

        #[cfg(feature = "planted")]
        impl Default for Rules {
            fn default() -> Self {
                Self { $($rule: true,)* }
            }
        }

        impl Rules {
            $(
                #[cfg(feature = "planted")]
                pub(crate) const fn $rule(self) -> bool {
                    self.$rule
                }

                #[cfg(not(feature = "planted"))]
                pub(crate) const fn $rule(self) -> bool {
                    true
                }
            )*
        }
    };
}

rules! {
    /// A client's own change gates until its reply is known to be received.
    own_unacked,
    /// A name that was removed is a change of that name.
    tombstones,
    /// Of a directory's entries two changes are remembered, the second by another client.
    entries_second,
    /// A client's last change of a directory's entries is received when all before it are.
    entries_cumulative,
    /// Making something and being in it are a change and a dependency.
    exist_marks,
    /// Moves of directories depend on each other.
    topology,
    /// Replays of one client's lanes are merged by their numbers.
    merge_sisters,
    /// What was replayed is durable before anybody is evicted and anything new is admitted. Two
    /// phases wait for it. For names the second alone would do: the evictions' records, which it
    /// waits for, stand behind the replays' in the log. Replayed contents come into the log later.
    s3_flush,
    /// That the size of a file is with its contents is durable before anybody may write to it.
    size_flag,
    /// With sharing off, another client's change gates until that client's reply is received.
    off_unacked,
    /// A change over several shards is decided when all have prepared it durably, not before.
    two_phase_order,
}

impl Rules {
    /// Those that the metadata shards keep.
    pub(crate) fn of_names(self) -> meta::Rules {
        meta::Rules {
            #[cfg(feature = "planted")]
            topology: self.topology,
            #[cfg(feature = "planted")]
            size_flag: self.size_flag,
        }
    }
}
