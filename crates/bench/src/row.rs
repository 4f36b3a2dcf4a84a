//! A row of a benchmark's table: a measurement, and its ratio to a limit.
//!
//! A row is one line of JSON or one line of the table; fields that do not apply are absent.

use serde::Serialize;

/// One row. Numbers are medians over the repetitions; times of single operations are taken from
/// the histogram of all of them.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Row {
    /// The benchmark.
    pub bench: &'static str,
    /// What varies, words separated by spaces.
    pub row: String,
    /// Clients, each with a connection of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// Operations a client keeps under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// Lanes of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lanes: Option<u32>,
    /// Operations a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops_per_s: Option<f64>,
    /// 10^6 bytes of contents a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mb_per_s: Option<f64>,
    /// Mean time of an operation, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_us: Option<f64>,
    /// Half of the operations took at most so long, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// 99 of 100 took at most so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// 999 of 1000 took at most so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p999_us: Option<f64>,
    /// Context switches of the server's process per operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switches_per_op: Option<f64>,
    /// The same per 10^6 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switches_per_mb: Option<f64>,
    /// CPU time of the server's process per operation, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_op: Option<f64>,
    /// Of it, that of the threads of its lanes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane_cpu_us_per_op: Option<f64>,
    /// Of it, that of the thread that applies the log to the rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applier_cpu_us_per_op: Option<f64>,
    /// The same per 10^9 bytes, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s_per_gb: Option<f64>,
    /// System calls of the server's lanes per operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syscalls_per_op: Option<f64>,
    /// The same per 10^6 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syscalls_per_mb: Option<f64>,
    /// Clock readings of the server's lanes per turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_reads_per_turn: Option<f64>,
    /// Deferred replies: those that waited until a batch was durable, in the measured time of one
    /// repetition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_replies: Option<f64>,
    /// Deferred replies that were checked when a batch became durable, the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub touched_replies: Option<f64>,
    /// Batches that became durable, the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commits: Option<f64>,
    /// Longest turn of the server's lane with waiting events, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_max_us: Option<f64>,
    /// 999 of 1000 turns took at most so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_p999_us: Option<f64>,
    /// Longest turn in which a batch of the log became durable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit_turn_max_us: Option<f64>,
    /// Half of those turns took at most so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit_turn_p50_us: Option<f64>,
    /// Operations that one flush of the log made durable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops_per_flush: Option<f64>,
    /// Requests that the server answered per operation, including those for its counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchanges_per_op: Option<f64>,
    /// Of a mount: synchronous requests to the server per operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchanges_in_way: Option<f64>,
    /// Of a mount: asynchronous ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchanges_behind: Option<f64>,
    /// Messages between the server's lanes per operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hops_per_op: Option<f64>,
    /// Reads and writes of files' contents that the server passed to worker threads, per operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handed_per_op: Option<f64>,
    /// Threads that it started for them, per operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_per_op: Option<f64>,
    /// Threads of the server's process at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<f64>,
    /// Most reads and writes of files' contents that were under way at a time, since the server's start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under_way: Option<f64>,
    /// The same, of one file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under_way_one: Option<f64>,
    /// To the limit of the same run: one client, the p50s; many, CPU per operation or per byte; of
    /// sharing modes, operations a second; of checkpoints, the p99.9.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_limit: Option<f64>,
    /// Which limit that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Operations a second (or bytes), as a part of the best row of the same kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_best: Option<f64>,
    /// (greatest − least) / median over the repetitions, of the ratio if there is one, else of the
    /// rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// How much of its time the load generator was busy, 0 to 1: near 1 it was the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generator_busy: Option<f64>,
    /// How much of a core the server's process used, 0 to 1 per core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_busy: Option<f64>,
    /// A note that the reader of the row needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Row {
    /// A row with nothing but its name.
    #[must_use]
    pub fn new(bench: &'static str, row: impl Into<String>) -> Self {
        Self { bench, row: row.into(), ..Self::default() }
    }

    /// Costs per operation instead of per byte: the bytes are few.
    pub(crate) const fn count_by_operation(&mut self) {
        self.cpu_s_per_gb = None;
        self.switches_per_mb = None;
        self.syscalls_per_mb = None;
    }
}
