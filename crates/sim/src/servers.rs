//! How many servers a run has, and what befalls them.

use crate::number::{low_u16, wide};
use test_runtime::Prng;
use wire::Rule;

/// Most servers of a run.
pub(crate) const SERVER_COUNT_MAX: usize = 4;

/// The process of each server, by the number of the process.
pub(crate) type Lives = [u64; SERVER_COUNT_MAX];

/// The servers of a run and their shards, from a generator of their own: a run with one server is the
/// same as without them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Servers {
    pub(crate) server_count: usize,
    /// Shards of each kind that each server has.
    pub(crate) meta_count: u16,
    pub(crate) data_count: u16,
    pub(crate) partition_count: u64,
    pub(crate) crash_count: u64,
    /// The last server joins when clients work.
    pub(crate) joins: bool,
    /// How often a server stops taking what is new, or takes it again.
    pub(crate) drain_count: u64,
    /// Files are spread over all servers.
    pub(crate) spreads: bool,
    /// If so, writes are long enough for several stripes.
    pub(crate) writes_stripes: bool,
    /// If so, files are at one server until they have a second stripe.
    pub(crate) grows: bool,
}

/// Whether a rule is about files that are spread over servers.
pub(crate) const fn is_spread(rule: Rule) -> bool {
    matches!(
        rule,
        Rule::AppendFenced
            | Rule::AppendReopened
            | Rule::AppendCloses
            | Rule::CutEndFirst
            | Rule::CutsDurable
            | Rule::CutOnce
            | Rule::CutHomeOnce
            | Rule::AbandonedEnded
            | Rule::SettleBehindCuts
            | Rule::LooksWait
            | Rule::SyncParts
            | Rule::ReadAgain
            | Rule::CutPages
            | Rule::PageParts
            | Rule::NarrowRefused
    )
}

impl Servers {
    /// One of so many runs has several servers.
    const ONE_IN: u64 = 3;
    /// Makes the draws another stream than the run's. The seeds that were kept before have one
    /// server.
    const STREAM: u64 = 0x41d5;

    /// Those of a seed; `None` for one server.
    pub(crate) fn of_seed(seed: u64) -> Option<Self> {
        let mut prng = Prng::new(seed ^ Self::STREAM);
        prng.one_in(Self::ONE_IN).then(|| {
            let servers = Self::roll(&mut prng);
            let writes_stripes = prng.one_in(4);
            Self { writes_stripes, grows: prng.one_in(2), ..servers }
        })
    }

    /// Those of a run in which a rule about several servers matters; `None` for other rules.
    pub(crate) fn for_rule(rule: Rule, seed: u64) -> Option<Self> {
        let mut prng = Prng::new(seed ^ Self::STREAM);
        let servers = Self::roll(&mut prng);
        let partition_count = match rule {
            Rule::LocksReleased
            | Rule::UndecidedGivenUp
            | Rule::ConnectionAnew
            | Rule::OldConnectionEnded => 3,
            Rule::PreparedKept
            | Rule::DecidedKept
            | Rule::OutcomeAsked
            | Rule::PresumedAbort
            | Rule::MapAwaited
            | Rule::NewInodeLocked => 0,
            Rule::AppendFenced | Rule::AppendReopened => 3,
            Rule::AppendCloses
            | Rule::AbandonedEnded
            | Rule::SettleBehindCuts
            | Rule::CutOnce
            | Rule::CutHomeOnce
            | Rule::CutEndFirst
            | Rule::CutsDurable
            | Rule::LooksWait
            | Rule::SyncParts
            | Rule::CutPages
            | Rule::PageParts
            | Rule::NarrowRefused
            | Rule::ReadAgain => 0,
            // In a part of the runs a silent client is fenced at several servers.
            Rule::WriteBehind if prng.one_in(3) => {
                let (spreads, writes_stripes) = (true, true);
                return Some(Self { spreads, writes_stripes, ..servers });
            }
            _ => return None,
        };
        if !is_spread(rule) {
            return Some(Self { partition_count, ..servers });
        }
        let crash_count = match rule {
            Rule::AppendCloses
            | Rule::LooksWait
            | Rule::CutOnce
            | Rule::CutHomeOnce
            | Rule::AbandonedEnded
            | Rule::SettleBehindCuts
            | Rule::ReadAgain
            | Rule::CutPages
            | Rule::PageParts
            | Rule::NarrowRefused => 0,
            _ => servers.crash_count,
        };
        // A part beside the home part and the one with the new last byte.
        let third = matches!(rule, Rule::CutEndFirst | Rule::CutPages);
        let server_count = servers.server_count.max(if third { 3 } else { 2 });
        let (joins, spreads) = (servers.joins && rule == Rule::AppendFenced, true);
        let grows = rule == Rule::NarrowRefused;
        Some(Self { server_count, partition_count, crash_count, joins, spreads, grows, ..servers })
    }

    fn roll(prng: &mut Prng) -> Self {
        let server_count = prng.pick(&[2, 2, 3, SERVER_COUNT_MAX]).unwrap_or(2);
        Self {
            server_count,
            meta_count: 1 + low_u16(prng.number() % 2),
            data_count: 1 + low_u16(prng.number() % 2),
            partition_count: prng.pick(&[0, 1, 3]).unwrap_or(0),
            crash_count: prng.number() % (1 + wide(server_count)),
            joins: prng.one_in(3),
            drain_count: prng.pick(&[0, 0, 1, 3]).unwrap_or(0),
            spreads: prng.one_in(2),
            writes_stripes: false,
            grows: false,
        }
    }
}
