//! The terms of shards, as `status` and `check` show them: runs of shards with the same term.

use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use wire::{Map, ServerId, ShardId, Term};

/// Consecutive shards of one kind with the same term.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct TermRun {
    /// `metadata` or `data`.
    kind: String,
    /// The first one's index.
    first: u16,
    shard_count: u16,
    term: u32,
}

/// The runs of shards that are in order.
pub(crate) fn runs_of(shards: impl IntoIterator<Item = (ShardId, Term)>) -> Vec<TermRun> {
    let mut runs: Vec<TermRun> = Vec::new();
    for (shard, Term(term)) in shards {
        let kind = if shard.is_data() { "data" } else { "metadata" };
        let goes_on = |run: &&mut TermRun| {
            let behind = u32::from(run.first) + u32::from(run.shard_count);
            run.kind == kind && run.term == term && behind == u32::from(shard.index())
        };
        match runs.last_mut().filter(goes_on) {
            Some(run) => run.shard_count += 1,
            None => {
                let (kind, first) = (kind.to_owned(), shard.index());
                runs.push(TermRun { kind, first, shard_count: 1, term });
            }
        }
    }
    runs
}

/// The terms in which a server of a map has its shards.
pub(crate) fn of_map(map: &Map, server: ServerId) -> Vec<TermRun> {
    let places = map.shard_counts().shards().map(|shard| (shard, map.place(shard)));
    let own = places.filter(|(_, place)| place.server == server);
    runs_of(own.map(|(shard, place)| (shard, place.term)))
}

/// The runs in a line: `metadata 0-63 term 3, data 0-63 term 3`.
pub(crate) fn text(runs: &[TermRun]) -> String {
    let mut text = String::new();
    for TermRun { kind, first, shard_count, term } in runs {
        let gap = if text.is_empty() { "" } else { ", " };
        let last = u32::from(*first) + u32::from(*shard_count) - 1;
        // Writing to a string cannot fail.
        let _written = match shard_count {
            1 => write!(text, "{gap}{kind} {first} term {term}"),
            _ => write!(text, "{gap}{kind} {first}-{last} term {term}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{of_map, runs_of, text};
    use wire::{Map, ServerId, ShardCounts, ShardId, Term};

    #[test]
    fn shards_with_the_same_term_are_a_run() {
        let meta = |index, term| (ShardId::meta(index), Term(term));
        let data = |index, term| (ShardId::data(index), Term(term));
        let all = [meta(0, 3), meta(1, 3), meta(2, 1), meta(4, 1), data(0, 1), data(1, 1)];
        let shown = "metadata 0-1 term 3, metadata 2 term 1, metadata 4 term 1, data 0-1 term 1";
        assert_eq!(text(&runs_of(all)), shown);
        let map = Map::single_server(2, ShardCounts { meta: 64, data: 8 }, Term(5));
        assert_eq!(text(&of_map(&map, ServerId::FIRST)), "metadata 0-63 term 5, data 0-7 term 5");
    }
}
