//! Alerts: what a person should look at, as sentences that name the cause.
//!
//! Invariant: judging has no state. Two snapshots and the thresholds decide.

use super::interval::{Interval, client_text};
use super::text;
use library::Snapshot;
use library::counters::{By, Label, Metric, Row};
use std::time::Duration;

/// A threshold.
pub(crate) struct Threshold {
    /// As it is named on the command line, with its unit.
    pub(crate) name: &'static str,
    pub(crate) default: u64,
    /// What alerts when it is reached.
    pub(crate) help: &'static str,
}

/// All thresholds, in the order of [`Thresholds`].
pub(crate) const THRESHOLDS: [Threshold; 9] = [
    Threshold { name: "flush-ms", default: 50, help: "flush of a log, 99 of 100, in milliseconds" },
    Threshold {
        name: "busy-percent",
        default: 95,
        help: "a lane is busy for this part of the time",
    },
    Threshold { name: "client-percent", default: 80, help: "requests of one client, of all ..." },
    Threshold { name: "client-requests", default: 1000, help: "... if they are so many a second" },
    Threshold { name: "recalls", default: 50, help: "recalls of leases a second" },
    Threshold {
        name: "recall-ms",
        default: 1000,
        help: "a client has not answered a recall for so long",
    },
    Threshold {
        name: "lock-ms",
        default: 5000,
        help: "a request waits for a lock on a file for so long",
    },
    Threshold {
        name: "log-ms",
        default: 1000,
        help: "a log has had no space for changes for so long",
    },
    Threshold {
        name: "shard-ms",
        default: 1000,
        help: "a request waits for a change over several shards for so long",
    },
];

/// The thresholds in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thresholds([u64; THRESHOLDS.len()]);

impl Thresholds {
    const FLUSH_MS: usize = 0;
    const BUSY_PERCENT: usize = 1;
    const CLIENT_PERCENT: usize = 2;
    const CLIENT_REQUESTS: usize = 3;
    const RECALLS: usize = 4;
    const RECALL_MS: usize = 5;
    const LOCK_MS: usize = 6;
    const LOG_MS: usize = 7;
    const SHARD_MS: usize = 8;

    /// Reads NAME=NUMBER: which one, and what it shall be.
    pub(crate) fn parse(text: &str) -> Result<(usize, u64), String> {
        let (name, number) = text.split_once('=').ok_or("NAME=NUMBER is needed")?;
        let index = THRESHOLDS.iter().position(|row| row.name == name);
        let known = || THRESHOLDS.map(|row| row.name).join(", ");
        let index = index.ok_or_else(|| format!("there is no {name}; there are {}", known()))?;
        let number = number.parse().map_err(|_| format!("'{number}' is no whole number"))?;
        Ok((index, number))
    }

    /// The defaults, but for some.
    pub(super) fn with(changed: &[(usize, u64)]) -> Self {
        let mut numbers = THRESHOLDS.map(|row| row.default);
        changed.iter().for_each(|(index, number)| numbers[*index] = *number);
        Self(numbers)
    }

    const fn us(&self, index: usize) -> u64 {
        self.0[index].saturating_mul(1000)
    }

    #[expect(clippy::cast_precision_loss, reason = "they are small")]
    const fn number(&self, index: usize) -> f64 {
        self.0[index] as f64
    }
}

/// Something to look at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    /// The kind of cause.
    pub(super) cause: &'static str,
    /// Which one: a later finding with the same cause about the same replaces this one.
    pub(super) about: String,
    /// A sentence.
    pub(super) sentence: String,
}

impl Finding {
    fn new(cause: &'static str, about: impl ToString, sentence: String) -> Self {
        Self { cause, about: about.to_string(), sentence }
    }
}

/// What an interval shows, the worst first.
pub(super) fn judge(interval: &Interval, thresholds: &Thresholds) -> Vec<Finding> {
    let checks = [lanes, greedy_client, ping_pong];
    let of_interval = checks.iter().flat_map(|check| check(interval, thresholds));
    judge_now(interval, thresholds).into_iter().chain(of_interval).collect()
}

/// The same of what the end of an interval shows by itself.
fn judge_now(interval: &Interval, thresholds: &Thresholds) -> Vec<Finding> {
    let checks =
        [unreachable_server, disks, full_logs, silent_clients, file_locks, shards, recovery];
    checks.iter().flat_map(|check| check(interval, thresholds)).collect()
}

/// What counters show at one moment, the worst first, as sentences.
pub(crate) fn standing(lanes: &[Snapshot]) -> Vec<String> {
    const FLUSH_MS: u64 = 1000;
    // A flush that takes its time is no finding by itself.
    let thresholds = Thresholds::with(&[(Thresholds::FLUSH_MS, FLUSH_MS)]);
    let interval = Interval::between(lanes, lanes, Duration::from_secs(1));
    let found = judge_now(&interval, &thresholds);
    found.into_iter().map(|finding| finding.sentence).collect()
}

fn lane_text(lane: &Row) -> String {
    format!("lane {}", lane.label(Label::Lane).unwrap_or("?"))
}

/// A mount without a connection to its server.
fn unreachable_server(interval: &Interval, _thresholds: &Thresholds) -> Vec<Finding> {
    let waiting_count = interval.all().number(Metric::WaitingConnection).unwrap_or(0);
    if waiting_count == 0 {
        return Vec::new();
    }
    let waits = if waiting_count == 1 { "request waits" } else { "requests wait" };
    let sentence =
        format!("server: it cannot be reached: {waiting_count} {waits} for a connection to it");
    vec![Finding::new("server", "", sentence)]
}

/// A disk that is slow, does not answer, has failed, or has changed what was written.
fn disks(interval: &Interval, thresholds: &Thresholds) -> Vec<Finding> {
    let of_lane = |lane: &Row| {
        let (name, limit_us) = (lane_text(lane), thresholds.us(Thresholds::FLUSH_MS));
        let mut found = Vec::new();
        let mut add = |kind: &str, sentence| {
            found.push(Finding::new("disk", format!("{name} {kind}"), sentence));
        };
        if lane.number(Metric::LogFailed) > Some(0) {
            add(
                "failed",
                format!(
                    "disk: it has failed, {name} changes nothing more; the server's log says why"
                ),
            );
        }
        let age_us = lane.number(Metric::FlushAge).unwrap_or(0);
        let p99_us = lane.histogram(Metric::FlushTime).and_then(|times| times.quantile_us(99, 100));
        let late_us = p99_us.filter(|p99_us| *p99_us >= limit_us && *p99_us >= age_us);
        if let Some(p99_us) = late_us {
            let time = text::time_us(p99_us);
            add("slow", format!("disk: flush of the log takes {time} (p99) at {name}"));
        } else if age_us >= limit_us.max(1) {
            let time = text::time_us(age_us);
            add("slow", format!("disk: flush of the log takes {time} so far at {name}"));
        }
        if lane.number(Metric::Damages) > Some(0) {
            add(
                "damage",
                format!(
                    "disk: contents do not match their checksums at {name}; the server's log names the files"
                ),
            );
        }
        found
    };
    interval.lane_rows().flat_map(of_lane).collect()
}

/// Lanes whose log has no space for changes.
fn full_logs(interval: &Interval, thresholds: &Thresholds) -> Vec<Finding> {
    let limit_us = thresholds.us(Thresholds::LOG_MS).max(1);
    let of_lane = |lane: &Row| {
        let age_us = lane.number(Metric::LogFullAge).filter(|age_us| *age_us > 0)?;
        let is_disk = lane.number(Metric::DiskFull) > Some(0);
        if age_us < limit_us && !is_disk {
            return None;
        }
        let (name, time) = (lane_text(lane), text::time_us(age_us));
        let why = if is_disk {
            "the disk of the store is full: free space there, or remove files here"
        } else {
            "its changes wait to be applied to the rows: the disk is too slow for them, or \
             --log-max too small"
        };
        let sentence = format!("log: {name} has had no space for changes for {time}; {why}");
        Some(Finding::new("log", name, sentence))
    };
    interval.lane_rows().filter_map(of_lane).collect()
}

/// Shards that are busy with changes over several of them.
fn shards(interval: &Interval, thresholds: &Thresholds) -> Vec<Finding> {
    let limit_us = thresholds.us(Thresholds::SHARD_MS).max(1);
    let of_lane = |lane: &Row| {
        let name = lane_text(lane);
        let mut found = Vec::new();
        let mut add = |kind: &str, sentence| {
            found.push(Finding::new("shards", format!("{name} {kind}"), sentence));
        };
        if let Some(count) = lane.number(Metric::InDoubt).filter(|count| *count > 0) {
            let count = text::count(count);
            add(
                "in doubt",
                format!(
                    "shards: {count} changes over several shards have no outcome at {name}, and block \
                     their names: restart the server"
                ),
            );
        }
        if let Some(age_us) = lane.number(Metric::LockAge).filter(|age_us| *age_us >= limit_us) {
            let requests = requests(lane.number(Metric::WaitingLock).unwrap_or(0));
            let time = text::time_us(age_us);
            add(
                "busy",
                format!(
                    "shards: {requests} at {name} for a change over several shards to end, the oldest \
                     for {time}: look at the disks of all lanes"
                ),
            );
        }
        found
    };
    interval.lane_rows().flat_map(of_lane).collect()
}

/// Clients that keep others waiting because they do not give leases back: dead, stopped or cut off.
fn silent_clients(interval: &Interval, thresholds: &Thresholds) -> Vec<Finding> {
    let limit_us = thresholds.us(Thresholds::RECALL_MS).max(1);
    let waiting = interval.all().number(Metric::WaitingLease).unwrap_or(0);
    let silent = |row: &&Row| row.number(Metric::RecallAge) >= Some(limit_us);
    let finding = |row: &Row| {
        let time = text::time_us(row.number(Metric::RecallAge).unwrap_or(0));
        let (client, requests) = (client_text(row), requests(waiting));
        let state = if is_lost(row) { LOST } else { "does not answer" };
        let sentence = format!(
            "client: {client} {state}: it has held on to leases for {time} that others \
             need; {requests} for leases"
        );
        Finding::new("client", row.label(Label::Client).unwrap_or_default(), sentence)
    };
    interval.total.rows(By::Client).iter().filter(silent).map(finding).collect()
}

/// What is said of a client without a connection.
const LOST: &str = "has no connection, it is dead or cut off";

/// Whether a client has no connection.
fn is_lost(client: &Row) -> bool {
    client.number(Metric::Connections) == Some(0)
}

/// "1 request waits", "2 requests wait".
fn requests(count: u64) -> String {
    let words = if count == 1 { "request waits" } else { "requests wait" };
    format!("{} {words}", text::count(count))
}

/// Locks on files that others wait for.
fn file_locks(interval: &Interval, thresholds: &Thresholds) -> Vec<Finding> {
    let limit_us = thresholds.us(Thresholds::LOCK_MS).max(1);
    let holds = |row: &&Row| row.number(Metric::FileLockAge) >= Some(limit_us);
    let finding = |row: &Row| {
        let count = row.number(Metric::WaitingFileLock).unwrap_or(0);
        let time = text::time_us(row.number(Metric::FileLockAge).unwrap_or(0));
        let (client, requests) = (client_text(row), requests(count));
        let state = if is_lost(row) { format!("; it {LOST}") } else { String::new() };
        let sentence = format!(
            "lock: {requests} for locks on files that a process of client {client} holds, the \
             oldest for {time}{state}"
        );
        Finding::new("lock", row.label(Label::Client).unwrap_or_default(), sentence)
    };
    interval.total.rows(By::Client).iter().filter(holds).map(finding).collect()
}

/// Clients that the recovery waits for.
fn recovery(interval: &Interval, _: &Thresholds) -> Vec<Finding> {
    let of_lane = |lane: &Row| {
        let waiting =
            super::interval::sum(lane, &[Metric::WaitingRecovery, Metric::WaitingReopening])
                .unwrap_or(0);
        if waiting == 0 {
            return None;
        }
        let (name, requests) = (lane_text(lane), requests(waiting));
        let sentence =
            format!("recovery: {requests} for the recovery of {name}, which awaits its clients");
        Some(Finding::new("recovery", name, sentence))
    };
    interval.lane_rows().filter_map(of_lane).collect()
}

/// Lanes without time to spare.
fn lanes(interval: &Interval, thresholds: &Thresholds) -> Vec<Finding> {
    let limit = thresholds.number(Thresholds::BUSY_PERCENT);
    let busy: Vec<(String, f64)> = interval
        .lane_rows()
        .filter_map(|lane| Some((lane_text(lane), interval.busy_percent(lane)?)))
        .collect();
    let of_lane = |(index, (name, percent)): (usize, &(String, f64))| {
        if *percent < limit {
            return None;
        }
        let others = busy.iter().enumerate().filter(|(other, _)| *other != index);
        let most = others.map(|(_, (_, percent))| *percent).max_by(f64::total_cmp);
        let others = match (most, busy.len()) {
            (None, _) => "it is the only lane".to_owned(),
            (Some(most), 2) => format!("the other one {most:.0} %"),
            (Some(most), _) => format!("no other one more than {most:.0} %"),
        };
        let sentence = format!("lane: {name} is {percent:.0} % busy, {others}");
        Some(Finding::new("lane", name, sentence))
    };
    busy.iter().enumerate().filter_map(of_lane).collect()
}

/// One client that has most of the requests, beside others.
fn greedy_client(interval: &Interval, thresholds: &Thresholds) -> Vec<Finding> {
    let rate = |row: &Row| interval.rate(row, Metric::Requests).unwrap_or(0.0);
    let rows = interval.total.rows(By::Client);
    let all: f64 = rows.iter().map(rate).sum();
    let Some(most) = rows.iter().max_by(|one, other| rate(one).total_cmp(&rate(other))) else {
        return Vec::new();
    };
    // Administration, and so this program, is no client that could suffer.
    let is_user = |row: &&Row| row.label(Label::Export).is_some_and(|export| !export.is_empty());
    let is_other = |row: &&Row| row.labels != most.labels && rate(row) > 0.0;
    let other_count = rows.iter().filter(is_user).filter(is_other).count();
    let percent = rate(most) * 100.0 / all.max(1.0);
    if other_count == 0
        || percent < thresholds.number(Thresholds::CLIENT_PERCENT)
        || rate(most) < thresholds.number(Thresholds::CLIENT_REQUESTS)
    {
        return Vec::new();
    }
    let (client, total) = (client_text(most), text::number(all));
    let others = match other_count {
        1 => "one other client has the rest".to_owned(),
        count => format!("{count} other clients share the rest"),
    };
    let sentence = format!("client: {client} has {percent:.0} % of {total} requests/s; {others}");
    vec![Finding::new("client", most.label(Label::Client).unwrap_or_default(), sentence)]
}

/// Leases that clients take from one another.
fn ping_pong(interval: &Interval, thresholds: &Thresholds) -> Vec<Finding> {
    let all = interval.all();
    let rate = |metric| interval.rate(&all, metric).unwrap_or(0.0);
    let (recalled, granted) = (rate(Metric::LeasesRecalled), rate(Metric::LeasesGranted));
    let hot = rate(Metric::LeasesHot);
    if recalled < thresholds.number(Thresholds::RECALLS).max(0.1) {
        return Vec::new();
    }
    let (recalled, granted, hot) =
        (text::number(recalled), text::number(granted), text::number(hot));
    let sentence = format!(
        "leases: {recalled} recalls/s beside {granted} grants/s: clients change what others have \
         cached ({hot}/s not granted for that)"
    );
    vec![Finding::new("leases", "", sentence)]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use library::Snapshot;
    use library::counters::{Histogram, Value};
    use std::time::Duration;

    /// A lane's snapshot with these numbers.
    fn lane(lane_no: u16, numbers: &[(Metric, u64)]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let labels = vec![(Label::Lane, lane_no.to_string())];
        snapshot.section_mut(By::Lane).rows.push(row(labels, numbers));
        snapshot
    }

    fn row(labels: Vec<(Label, String)>, numbers: &[(Metric, u64)]) -> Row {
        let mut row = Row { labels, values: Vec::new() };
        numbers.iter().for_each(|(metric, number)| row.set(*metric, Value::Number(*number)));
        row
    }

    fn client(uuid: &str, host: &str, numbers: &[(Metric, u64)]) -> Row {
        let text = str::to_owned;
        let labels =
            [(Label::Client, uuid), (Label::Host, host), (Label::Export, "up"), (Label::Job, "")];
        row(labels.map(|(label, it)| (label, text(it))).to_vec(), numbers)
    }

    fn with_clients(mut snapshot: Snapshot, rows: Vec<Row>) -> Snapshot {
        snapshot.section_mut(By::Client).rows = rows;
        snapshot
    }

    /// The sentences about what happened within two seconds.
    fn judged(before: &[Snapshot], now: &[Snapshot]) -> Vec<String> {
        let interval = Interval::between(before, now, Duration::from_secs(2));
        judge(&interval, &Thresholds::with(&[])).into_iter().map(|it| it.sentence).collect()
    }

    #[test]
    fn a_server_at_ease_has_no_alerts() {
        let busy = [(Metric::LaneCpuTime, 1_800_000_000), (Metric::LeasesRecalled, 90)];
        let now =
            with_clients(lane(0, &busy), vec![client("aa", "web1", &[(Metric::Requests, 9000)])]);
        assert_eq!(judged(&[lane(0, &[])], &[now]), [""; 0]);
    }

    #[test]
    fn a_slow_disk_is_named_with_its_lane() {
        let flushed = |times_us: &[u64]| {
            let mut times = Histogram::default();
            times_us.iter().for_each(|us| times.record(*us));
            let mut lane = lane(1, &[]);
            lane.section_mut(By::Lane).rows[0].set(Metric::FlushTime, Value::Histogram(times));
            lane
        };
        // What was slow before counts no more.
        let before = flushed(&[900_000]);
        assert_eq!(judged(std::slice::from_ref(&before), &[flushed(&[900_000, 2_000])]), [""; 0]);
        let found = judged(&[before], &[flushed(&[900_000, 2_000, 310_000])]);
        assert_eq!(found, ["disk: flush of the log takes 328 ms (p99) at lane 1"]);
    }

    #[test]
    fn a_disk_that_does_not_answer_has_failed_or_lies_is_named() {
        let now = lane(0, &[(Metric::FlushAge, 12_000_000)]);
        let found = judged(&[lane(0, &[])], &[now]);
        assert_eq!(found, ["disk: flush of the log takes 12 s so far at lane 0"]);
        let found =
            judged(&[lane(0, &[])], &[lane(0, &[(Metric::LogFailed, 1), (Metric::Damages, 2)])]);
        assert!(found[0].starts_with("disk: it has failed, lane 0"), "{found:?}");
        assert!(found[1].starts_with("disk: contents do not match"), "{found:?}");
    }

    #[test]
    fn a_full_lane_is_named_beside_the_others() {
        let lanes = [
            lane(0, &[(Metric::LaneCpuTime, 1_000_000_000), (Metric::BacklogTime, 1_980_000_000)]),
            lane(1, &[(Metric::LaneCpuTime, 200_000_000), (Metric::BacklogTime, 0)]),
        ];
        let before = [lane(0, &[]), lane(1, &[])];
        assert_eq!(judged(&before, &lanes), ["lane: lane 0 is 99 % busy, the other one 10 %"]);
        let found = judged(&before[..1], &lanes[..1]);
        assert_eq!(found, ["lane: lane 0 is 99 % busy, it is the only lane"]);
    }

    #[test]
    fn a_greedy_client_is_one_that_has_most_beside_others() {
        let clients = |other| {
            let rows = vec![
                client("aaaaaaaaaa", "web1", &[(Metric::Requests, 9200)]),
                client("bbbbbbbbbb", "web2", &[(Metric::Requests, other)]),
            ];
            with_clients(lane(0, &[]), rows)
        };
        let before = [with_clients(lane(0, &[]), Vec::new())];
        let found = judged(&before, &[clients(800)]);
        let sentence = "client: web1 (id aaaaaaaa) has 92 % of 5,000 requests/s; one other client has the rest";
        assert_eq!(found, [sentence]);
        assert_eq!(judged(&before, &[clients(0)]), [""; 0], "it takes nothing from others");
        assert_eq!(judged(&before, &[clients(4000)]), [""; 0], "they have their share");
    }

    #[test]
    fn leases_that_go_back_and_forth_are_named() {
        let now = lane(
            0,
            &[(Metric::LeasesRecalled, 400), (Metric::LeasesGranted, 420), (Metric::LeasesHot, 6)],
        );
        let found = judged(&[lane(0, &[])], &[now]);
        let sentence = "leases: 200 recalls/s beside 210 grants/s: clients change what others have \
                        cached (3.0/s not granted for that)";
        assert_eq!(found, [sentence]);
    }

    #[test]
    fn a_client_that_does_not_answer_is_named() {
        let waiting = lane(0, &[(Metric::WaitingLease, 1)]);
        let silent = |age| vec![client("aaaaaaaaaa", "web1", &[(Metric::RecallAge, age)])];
        let found = judged(&[lane(0, &[])], &[with_clients(waiting.clone(), silent(2_300_000))]);
        let sentence = "client: web1 (id aaaaaaaa) does not answer: it has held on to leases for 2.3 s \
                        that others need; 1 request waits for leases";
        assert_eq!(found, [sentence]);
        assert_eq!(judged(&[lane(0, &[])], &[with_clients(waiting, silent(10_000))]), [""; 0]);
    }

    #[test]
    fn the_holder_of_a_lock_that_others_wait_for_is_named() {
        let numbers = [(Metric::WaitingFileLock, 2), (Metric::FileLockAge, 12_000_000)];
        let now = with_clients(lane(0, &[]), vec![client("aaaaaaaaaa", "web1", &numbers)]);
        let found = judged(&[lane(0, &[])], &[now]);
        let sentence = "lock: 2 requests wait for locks on files that a process of client web1 (id \
                        aaaaaaaa) holds, the oldest for 12 s";
        assert_eq!(found, [sentence]);
    }

    #[test]
    fn a_client_without_a_connection_is_called_dead_or_cut_off() {
        let numbers = [
            (Metric::RecallAge, 2_300_000),
            (Metric::FileLockAge, 6_000_000),
            (Metric::Connections, 0),
        ];
        let now = with_clients(lane(0, &[]), vec![client("aaaaaaaaaa", "web1", &numbers)]);
        let found = judged(&[lane(0, &[])], &[now]);
        let begin =
            "client: web1 (id aaaaaaaa) has no connection, it is dead or cut off: it has held";
        assert!(found[0].starts_with(begin), "{found:?}");
        let end = "the oldest for 6.0 s; it has no connection, it is dead or cut off";
        assert!(found[1].ends_with(end), "{found:?}");
    }

    #[test]
    fn a_log_without_space_is_named_with_its_lane_and_the_remedy() {
        let full =
            |age_us, disk| lane(1, &[(Metric::LogFullAge, age_us), (Metric::DiskFull, disk)]);
        let found = judged(&[lane(1, &[])], &[full(12_000_000, 0)]);
        let sentence = "log: lane 1 has had no space for changes for 12 s; its changes wait to be \
                        applied to the rows: the disk is too slow for them, or --log-max too small";
        assert_eq!(found, [sentence]);
        assert_eq!(judged(&[lane(1, &[])], &[full(900_000, 0)]), [""; 0], "it passes");
        let found = standing(&[full(900_000, 1)]);
        assert!(found[0].contains("the disk of the store is full: free space"), "{found:?}");
        assert_eq!(standing(&[full(0, 0)]), [""; 0]);
    }

    #[test]
    fn shards_that_are_busy_with_a_change_over_several_are_named() {
        let busy = lane(
            2,
            &[(Metric::WaitingLock, 3), (Metric::LockAge, 4_000_000), (Metric::InDoubt, 2)],
        );
        let found = judged(&[lane(2, &[])], &[busy]);
        let begin = "shards: 2 changes over several shards have no outcome at lane 2";
        assert!(found[0].starts_with(begin), "{found:?}");
        let begin = "shards: 3 requests wait at lane 2 for a change over several shards to end, the oldest for 4.0 s";
        assert!(found[1].starts_with(begin), "{found:?}");
    }

    #[test]
    fn a_recovery_that_requests_wait_for_is_named() {
        let found = judged(&[lane(0, &[])], &[lane(0, &[(Metric::WaitingRecovery, 3)])]);
        let sentence =
            "recovery: 3 requests wait for the recovery of lane 0, which awaits its clients";
        assert_eq!(found, [sentence]);
    }

    #[test]
    fn thresholds_are_read_by_name() {
        assert_eq!(Thresholds::parse("busy-percent=80"), Ok((1, 80)));
        let wrong = Thresholds::parse("busy=80").unwrap_err();
        assert!(wrong.contains("no busy; there are flush-ms, busy-percent"), "{wrong}");
        assert!(
            Thresholds::parse("busy-percent").is_err() && Thresholds::parse("recalls=x").is_err()
        );
        assert_eq!(Thresholds::with(&[(0, 7)]).us(0), 7000);
        // The constants name rows of the table.
        let named = [
            (Thresholds::FLUSH_MS, "flush-ms"),
            (Thresholds::BUSY_PERCENT, "busy-percent"),
            (Thresholds::CLIENT_PERCENT, "client-percent"),
            (Thresholds::CLIENT_REQUESTS, "client-requests"),
            (Thresholds::RECALLS, "recalls"),
            (Thresholds::RECALL_MS, "recall-ms"),
            (Thresholds::LOCK_MS, "lock-ms"),
            (Thresholds::LOG_MS, "log-ms"),
            (Thresholds::SHARD_MS, "shard-ms"),
        ];
        assert!(named.iter().all(|(index, name)| THRESHOLDS[*index].name == *name));
    }
}
