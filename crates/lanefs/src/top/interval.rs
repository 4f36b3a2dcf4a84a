//! What happened between two snapshots of a server's counters.

use library::Snapshot;
use library::counters::{By, Label, Metric, OTHERS, Row, StatusClass};
use std::time::Duration;

/// Counters of an interval.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    /// By lane: counters are what was counted in the interval, gauges are those of its end.
    pub(super) lanes: Vec<Snapshot>,
    /// All lanes together.
    pub(super) total: Snapshot,
    /// Its length.
    pub(super) elapsed: Duration,
    /// It is one of a mount.
    pub(super) is_mount: bool,
    /// Hot directories and files, where they were asked for.
    pub(super) hot: Vec<Hot>,
}

/// A directory or file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hot {
    pub(super) path: String,
    pub(super) requests: u64,
    pub(super) time_us: u64,
    /// The operation with most requests.
    pub(super) most: String,
    /// Who has most requests: a process or a client.
    pub(super) who: String,
}

/// Requests wait for one of these, or replies.
const WAITING: [Metric; 10] = [
    Metric::WaitingBatch,
    Metric::WaitingWrite,
    Metric::WaitingLock,
    Metric::WaitingRows,
    Metric::WaitingContainment,
    Metric::WaitingReopening,
    Metric::WaitingRecovery,
    Metric::WaitingFreeze,
    Metric::WaitingLease,
    Metric::WaitingFileLock,
];

/// What was waited for.
const WAITS: [Metric; 10] = [
    Metric::WaitsBatch,
    Metric::WaitsWrite,
    Metric::WaitsLock,
    Metric::WaitsRows,
    Metric::WaitsContainment,
    Metric::WaitsReopening,
    Metric::WaitsRecovery,
    Metric::WaitsFreeze,
    Metric::WaitsLease,
    Metric::WaitsFileLock,
];

impl Interval {
    /// From one snapshot of all lanes to a later one.
    pub(super) fn between(before: &[Snapshot], now: &[Snapshot], elapsed: Duration) -> Self {
        let since = |(lane_no, lane): (usize, &Snapshot)| {
            before.get(lane_no).map_or_else(|| lane.clone(), |before| lane.since(before))
        };
        let lanes: Vec<Snapshot> = now.iter().enumerate().map(since).collect();
        let total = Snapshot::total(&lanes);
        Self { lanes, total, elapsed, is_mount: false, hot: Vec::new() }
    }

    /// The rows of lanes, in their order.
    pub(super) fn lane_rows(&self) -> impl Iterator<Item = &Row> {
        self.lanes.iter().flat_map(|lane| lane.rows(By::Lane))
    }

    /// All lanes as one row.
    pub(super) fn all(&self) -> Row {
        self.total.rows(By::Lane).first().cloned().unwrap_or_default()
    }

    /// How many a second a counter has risen.
    pub(super) fn rate(&self, row: &Row, metric: Metric) -> Option<f64> {
        row.number(metric).map(|number| self.per_s(number))
    }

    /// So many in the interval, as so many a second.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub(super) fn per_s(&self, number: u64) -> f64 {
        number as f64 / self.elapsed.as_secs_f64().max(0.001)
    }

    /// How busy a lane was: its thread's processor time, or the time in which more work waited for it.
    pub(super) fn busy_percent(&self, lane: &Row) -> Option<f64> {
        let used = [Metric::LaneCpuTime, Metric::BacklogTime];
        let busy_ns = used.iter().filter_map(|metric| lane.number(*metric)).max()?;
        Some((self.per_s(busy_ns) / 1e7).min(100.0))
    }
}

/// The sum of some counters or gauges; `None`: the server has none of them.
pub(super) fn sum(row: &Row, metrics: &[Metric]) -> Option<u64> {
    let numbers = metrics.iter().filter_map(|metric| row.number(*metric));
    numbers.fold(None, |sum, number| Some(sum.unwrap_or(0) + number))
}

/// What waits now.
pub(super) fn waiting(row: &Row) -> Option<u64> {
    sum(row, &WAITING)
}

/// Waits, whatever for.
pub(super) fn waits(row: &Row) -> Option<u64> {
    sum(row, &WAITS)
}

/// Errors of all classes.
pub(super) fn errors(row: &Row) -> Option<u64> {
    sum(row, &StatusClass::ALL.map(StatusClass::metric))
}

/// The mean time of requests in microseconds.
pub(super) fn mean_us(row: &Row) -> Option<u64> {
    row.number(Metric::RequestTime)?.checked_div(row.number(Metric::Requests)?)
}

/// A client in words: its host, job, and the beginning of its uuid.
pub(super) fn client_text(row: &Row) -> String {
    let label = |label| row.label(label).filter(|text| !text.is_empty()).map(shown);
    let uuid = label(Label::Client).unwrap_or_default();
    if uuid == OTHERS {
        return "clients beyond the first 256".to_owned();
    }
    let host = label(Label::Host).unwrap_or_else(|| "of an unnamed host".to_owned());
    let job = label(Label::Job).map(|job| format!("job {job}, ")).unwrap_or_default();
    format!("{host} ({job}id {})", id_text(&uuid))
}

/// The beginning of a client's uuid, which tells most clients apart.
pub(super) fn id_text(uuid: &str) -> &str {
    &uuid[..uuid.floor_char_boundary(8)]
}

/// A name on a screen: control characters are shown as such.
pub(super) fn shown(text: &str) -> String {
    let escaped = |at: char| {
        let (plain, control) =
            if at.is_control() { (None, Some(at.escape_debug())) } else { (Some(at), None) };
        plain.into_iter().chain(control.into_iter().flatten())
    };
    text.chars().flat_map(escaped).collect()
}
