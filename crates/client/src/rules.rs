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
    /// Connections that lead to an earlier boot are closed once the next boot is known. Nobody may
    /// ever say that they are dead, and the next boot waits for what their sessions have to say.
    drain_sisters,
    /// What an earlier boot answered and is read when the next boot is known is replayed like all
    /// else: a shard's replays begin when its own connection is a new one. It comes only where
    /// connections are not closed, so it counts only without `drain_sisters`.
    late_replies,
}
