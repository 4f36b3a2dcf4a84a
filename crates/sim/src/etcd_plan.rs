//! How etcd behaves in a run with several servers, from a generator of its own.

use test_runtime::Prng;
use wire::Rule;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// How etcd behaves in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EtcdPlan {
    /// A call takes this long in each direction, on average.
    pub(crate) call_ns: u64,
    /// A server sees a change after this time, on average.
    pub(crate) watch_ns: u64,
    /// One answer in so many is lost; 0: none.
    pub(crate) lost_one_in: u64,
    pub(crate) fault_count: u64,
    /// It may be away for so long.
    pub(crate) away_ns_max: u64,
    /// The lease of a process that dies ends at once.
    pub(crate) lease_ends: bool,
}

impl EtcdPlan {
    /// Makes the draws another stream than the run's.
    const STREAM: u64 = 0xe7cd;
    /// Where there is one server.
    pub(crate) const NONE: Self = Self {
        call_ns: 0,
        watch_ns: 0,
        lost_one_in: 0,
        fault_count: 0,
        away_ns_max: 0,
        lease_ends: true,
    };
    const AWAY_NS_MAX: u64 = 90_000_000_000;

    /// That of a seed without an injected fault.
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut prng = Prng::new(seed ^ Self::STREAM);
        prng.number();
        Self {
            call_ns: prng.pick(&[200 * US, 200 * US, 5 * MS, 200 * MS]).unwrap_or(US),
            watch_ns: prng.pick(&[MS, 50 * MS, 1_000 * MS, 20_000 * MS]).unwrap_or(MS),
            lost_one_in: prng.pick(&[0, 0, 5, 30]).unwrap_or(0),
            fault_count: prng.pick(&[0, 1, 3, 8]).unwrap_or(0),
            away_ns_max: prng.pick(&[MS, 1_000 * MS, Self::AWAY_NS_MAX]).unwrap_or(MS),
            lease_ends: !prng.one_in(4),
        }
    }

    /// That of a run in which a rule matters: etcd has no faults.
    pub(crate) fn for_rule(rule: Rule, seed: u64) -> Self {
        let mut prng = Prng::new(seed ^ Self::STREAM);
        let rolled_ns = prng.pick(&[MS, 50 * MS, 1_000 * MS]).unwrap_or(MS);
        let watch_ns = if rule == Rule::MapAwaited { 20_000 * MS } else { rolled_ns };
        Self { call_ns: 200 * US, watch_ns, ..Self::NONE }
    }
}
