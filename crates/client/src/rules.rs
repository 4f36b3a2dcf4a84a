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
    /// What an earlier boot says on a connection that still stands is not listened to any more once
    /// the next boot is known: its replays have begun.
    drain_sisters,
}
