//! Rules of the protocol that a run may take away, one at a time. Only with the feature `planted`;
//! otherwise they hold, and only the runs that would miss them can be asked for.

use crate::plan::Planted;
#[cfg(feature = "planted")]
use wire::Rule;
use wire::Rules;

/// The rules of servers and clients in a run.
#[cfg(feature = "planted")]
pub(crate) fn of_run(planted: Option<Planted>) -> Rules {
    let all = Rules::default();
    match planted {
        // Where connections of an earlier boot are closed, nothing comes late.
        Some(Planted::Rule(Rule::LateReplies)) => {
            all.without(Rule::LateReplies).without(Rule::DrainPeerLanes)
        }
        Some(Planted::Rule(rule)) => all.without(rule),
        Some(
            Planted::LostBatch | Planted::LostResend | Planted::LostSync | Planted::Control(_),
        )
        | None => all,
    }
}

/// The rules of servers and clients in a run.
#[cfg(not(feature = "planted"))]
pub(crate) fn of_run(_: Option<Planted>) -> Rules {
    Rules::default()
}
