//! The rules of the protocol that hold in a run. With the feature `removable-rules` one of them can be
//! removed; without it all hold, and only control runs can be asked for.

use crate::plan::Injection;
#[cfg(feature = "removable-rules")]
use wire::Rule;
use wire::Rules;

/// The rules of servers and clients in a run.
#[cfg(feature = "removable-rules")]
pub(crate) fn of_run(injection: Option<Injection>) -> Rules {
    let all = Rules::default();
    match injection {
        // Where connections of an earlier boot are closed, no late reply arrives.
        Some(Injection::Rule(Rule::LateReplies)) => {
            all.without(Rule::LateReplies).without(Rule::DrainPeerLanes)
        }
        Some(Injection::Rule(rule)) => all.without(rule),
        Some(
            Injection::LostBatch
            | Injection::LostResend
            | Injection::LostSync
            | Injection::Control(_),
        )
        | None => all,
    }
}

/// The rules of servers and clients in a run.
#[cfg(not(feature = "removable-rules"))]
pub(crate) fn of_run(_: Option<Injection>) -> Rules {
    Rules::default()
}
