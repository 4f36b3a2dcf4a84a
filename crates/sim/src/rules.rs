//! Rules of the protocol that a run may take away, one at a time. Only with the feature `planted`;
//! otherwise they hold, and only the runs that would miss them can be asked for.

#[cfg(feature = "planted")]
use crate::plan::Planted;

macro_rules! rules {
    ($($rule:ident $name:literal,)*) => {
        /// A rule.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Rule {
            $(#[doc = $name] $rule,)*
        }

        impl Rule {
            /// Every rule that can be taken away, with its name.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$rule, $name),)*];
        }
    };
}

rules! {
    OwnUnacked "own-unacked",
    Tombstones "tombstones",
    EntriesSecond "entries-second",
    EntriesCumulative "entries-cumulative",
    ExistMarks "exist-marks",
    Topology "topology",
    MergeSisters "merge-sisters",
    S3Flush "s3-flush",
    OffUnacked "off-unacked",
    SizeFlag "size-flag",
    TwoPhaseOrder "two-phase-order",
    DrainSisters "drain-sisters",
    LateReplies "late-replies",
}

impl Rule {
    /// The rule of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(rule, _)| *rule)
    }
}

/// The server's rules in a run.
#[cfg(feature = "planted")]
pub(crate) fn of_lanes(planted: Option<Planted>) -> lane::Rules {
    let holds = |rule| planted != Some(Planted::Rule(rule));
    lane::Rules {
        own_unacked: holds(Rule::OwnUnacked),
        tombstones: holds(Rule::Tombstones),
        entries_second: holds(Rule::EntriesSecond),
        entries_cumulative: holds(Rule::EntriesCumulative),
        exist_marks: holds(Rule::ExistMarks),
        topology: holds(Rule::Topology),
        merge_sisters: holds(Rule::MergeSisters),
        s3_flush: holds(Rule::S3Flush),
        off_unacked: holds(Rule::OffUnacked),
        size_flag: holds(Rule::SizeFlag),
        two_phase_order: holds(Rule::TwoPhaseOrder),
    }
}

/// The server's rules in a run.
#[cfg(not(feature = "planted"))]
pub(crate) fn of_lanes(_: Option<crate::plan::Planted>) -> lane::Rules {
    lane::Rules::default()
}

/// A client's rules in a run.
#[cfg(feature = "planted")]
pub(crate) fn of_clients(planted: Option<Planted>) -> client::Rules {
    let holds = |rule| planted != Some(Planted::Rule(rule));
    client::Rules {
        // Where connections of an earlier boot are closed, nothing comes late.
        drain_sisters: holds(Rule::DrainSisters) && holds(Rule::LateReplies),
        late_replies: holds(Rule::LateReplies),
    }
}

/// A client's rules in a run.
#[cfg(not(feature = "planted"))]
pub(crate) fn of_clients(_: Option<crate::plan::Planted>) -> client::Rules {
    client::Rules::default()
}
