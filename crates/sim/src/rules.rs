//! Rules of the protocol that a run may take away, one at a time. Only with the feature `planted`;
//! otherwise there are none.

use crate::plan::Planted;

macro_rules! rules {
    ($($rule:ident $name:literal $field:ident,)*) => {
        /// A rule of the server's.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Rule {
            $(#[doc = $name] $rule,)*
            /// drain-sisters: the client's.
            DrainSisters,
        }

        impl Rule {
            /// Every rule that can be taken away here, with its name.
            #[must_use]
            pub const fn all() -> &'static [(Self, &'static str)] {
                if cfg!(feature = "planted") {
                    &[$((Self::$rule, $name),)* (Self::DrainSisters, "drain-sisters")]
                } else {
                    &[]
                }
            }
        }

        /// The server's rules in a run.
        #[cfg(feature = "planted")]
        pub(crate) fn of_lanes(planted: Option<Planted>) -> lane::Rules {
            let mut rules = lane::Rules::default();
            match planted {
                $(Some(Planted::Rule(Rule::$rule)) => rules.$field = false,)*
                Some(
                    Planted::Rule(Rule::DrainSisters)
                    | Planted::LostBatch
                    | Planted::LostResend
                    | Planted::LostSync,
                )
                | None => {}
            }
            rules
        }
    };
}

rules! {
    OwnUnacked "own-unacked" own_unacked,
    Tombstones "tombstones" tombstones,
    EntriesSecond "entries-second" entries_second,
    EntriesCumulative "entries-cumulative" entries_cumulative,
    ExistMarks "exist-marks" exist_marks,
    Topology "topology" topology,
    MergeSisters "merge-sisters" merge_sisters,
    S3Flush "s3-flush" s3_flush,
    OffUnacked "off-unacked" off_unacked,
    SizeFlag "size-flag" size_flag,
    TwoPhaseOrder "two-phase-order" two_phase_order,
}

/// The server's rules in a run.
#[cfg(not(feature = "planted"))]
pub(crate) fn of_lanes(_: Option<Planted>) -> lane::Rules {
    lane::Rules::default()
}

/// A client's rules in a run.
#[cfg(feature = "planted")]
pub(crate) fn of_clients(planted: Option<Planted>) -> client::Rules {
    let drain_sisters = planted != Some(Planted::Rule(Rule::DrainSisters));
    client::Rules { drain_sisters }
}

/// A client's rules in a run.
#[cfg(not(feature = "planted"))]
pub(crate) fn of_clients(_: Option<Planted>) -> client::Rules {
    client::Rules::default()
}
