//! The rules of the protocol that hold in a run. With the feature `planted` one of them can be
//! removed; without it all hold, and only control runs can be asked for.

use crate::plan::Planted;
#[cfg(feature = "planted")]
use wire::Rule;
use wire::Rules;

/// The rules of servers and clients in a run.
#[cfg(feature = "planted")]
pub(crate) fn of_run(planted: Option<Planted>) -> Rules {
    let all = Rules::default();
    match planted {
        // Where connections of an earlier boot are closed, no late reply arrives.
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
