//! The command line of `lanefs bench`.

use super::units::{size_in, time_in};
use super::{BenchVersus, DriverArg, SPIN_MAX, SecretFile, Transport};
use clap::{Args, Subcommand, ValueEnum};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// How long a repetition may be measured.
const MEASURED: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_hours(1);
/// How much one read or write of a stream may be of.
const PIECE_BYTES: RangeInclusive<u64> = 4 << 10..=1 << 20;

#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,
    /// What to measure
    #[arg(value_enum, required = true, value_name = "NAME")]
    pub(crate) names: Vec<Name>,
    /// One JSON object per row and line instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Print this template: {{NAME}} is replaced by a table of at most eight columns, {{machine}} by the
    /// machine's description
    #[arg(long, value_name = "TEMPLATE", conflicts_with = "json")]
    pub(crate) report: Option<PathBuf>,
    /// With --report: also write all rows and columns to this file, one JSON object per line
    #[arg(long, value_name = "FILE", requires = "report")]
    pub(crate) rows: Option<PathBuf>,
    /// seeds: the folder of its report, created if missing
    #[arg(long, value_name = "DIR", default_value = "lanefs-seeds")]
    pub(crate) out: PathBuf,
    /// Time of one repetition; a quarter of it is added as warm-up. Below 1s the files are smaller: only
    /// to try a benchmark
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time_in(MEASURED))]
    pub(crate) time: Duration,
    /// Repetitions; the variants alternate within each
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: u16,
    /// Numbers of clients, separated by commas [default: the benchmark's own]
    #[arg(long, value_name = "N", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub(crate) clients: Vec<u32>,
    /// Operations that each client has in flight [default: the benchmark's own]
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) depth: Option<u32>,
    /// Lanes of the started servers [default: 1]. affinity: the maximum [default: one per core]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(crate::args::LANE_COUNT_MAX)))]
    pub(crate) lanes: Option<u16>,
    /// How long the servers' lanes busy-poll before they sleep [default: as `serve`]
    #[arg(long, value_name = "TIME", value_parser = time_in(Duration::ZERO..=SPIN_MAX))]
    pub(crate) spin: Option<Duration>,
    #[command(flatten)]
    pub(crate) driver: DriverArg,
    /// echo: also measure a server with one thread per layer and this number of handovers per request,
    /// 0 to 16; several separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',',
          value_parser = clap::value_parser!(u8).range(0..=16))]
    pub(crate) hops: Vec<u8>,
    /// Their sharing mode [default: as `serve`]. create: several, separated by commas, are compared with
    /// `off`
    #[arg(long, value_name = "MODE", value_enum, value_delimiter = ',')]
    pub(crate) share: Vec<super::Share>,
    /// They reply to a change only when it is durable
    #[arg(long)]
    pub(crate) sync: bool,
    /// create: the placement of the files [default: both, one after the other]
    #[arg(long, value_enum)]
    pub(crate) dirs: Option<Dirs>,
    /// stream: size of one read or write, 4KiB to 1MiB
    #[arg(long = "piece", value_name = "SIZE", default_value = "1MiB", value_parser = size_in(PIECE_BYTES))]
    pub(crate) piece_bytes: u64,
    /// Directory for the servers' stores, which are removed at the end: on the disk to measure
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    pub(crate) dir: PathBuf,
    /// Measure this server, HOST or HOST:PORT, instead of starting one. The files it creates
    /// stay in /lanefs-bench-PID
    #[arg(long, value_name = "ADDR", value_parser = crate::address::read)]
    pub(crate) server: Option<String>,
    /// With --server: the export to use
    #[arg(long, value_name = "NAME", default_value = "", requires = "server")]
    pub(crate) export: String,
    #[command(flatten)]
    pub(crate) secret: SecretFile,
}

#[derive(Subcommand, Clone, Debug)]
pub(crate) enum BenchCommand {
    /// Compare file systems: the same work on directories of each
    Versus(BenchVersus),
}

/// A benchmark.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Name {
    /// Frames through a lane without a file system, compared with a bare loop
    Echo,
    /// Attributes of one file, compared with echo
    Getattr,
    /// New files, compared with getattr, log and memory without network, and the disk's flush
    Create,
    /// Large reads and writes, compared with sendfile, and recv and pwrite
    Stream,
    /// Handover of work to a sleeping thread, by each mechanism
    Handoff,
    /// Readings of the clock, by each source
    Clock,
    /// The cost of FUSE in the kernel: a mounted null file system (as root)
    FuseNull,
    /// Operations through a real mount, compared with a null file system with as many round trips (as root)
    Mount,
    /// New files with and without reply gating on other clients' changes
    Share,
    /// A lane whose log is flushed once in 14,000 or 140,000 operations
    Commit,
    /// One list request for many pieces of a file, compared with one request for each
    Lists,
    /// Throughput of a few modest clients with and without a greedy one
    Fair,
    /// Latency of a mount's callers when all cores are busy, with pinned lanes and without (as root)
    Busy,
    /// The two drivers of a lane, io_uring and epoll, compared
    Drivers,
    /// Requests that arrive at the lane that executes them, at the client's lane, and at any lane
    Affinity,
    /// Reads and writes of 4 KiB by many clients, compared with pread and pwrite in a lane
    Brw,
    /// Small reads of one file by all clients, compared with one file each, with every I/O engine, through
    /// the page cache and with direct I/O
    SharedFile,
    /// Getattrs and streams under TLS, compared with plain text and with the cipher alone
    Seal,
    /// Getattrs at a server that counts and traces them, compared with one that does not
    Observed,
    /// Clients of one file system over four servers on this machine, compared with one server and with
    /// bare streams over loopback (needs etcd)
    Cluster,
    /// The experiments of the original design questions, as a report with plots in the folder --out
    Seeds,
    /// All of them but seeds
    All,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dirs {
    /// One directory per client
    Own,
    /// One directory for all clients
    Shared,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchLimit {
    /// The limit and its arguments.
    pub(crate) arguments: Vec<String>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchNull {
    /// The mount point; without one the process is a lane that echoes.
    pub(crate) dir: Option<PathBuf>,
    /// How the kernel's requests reach the mount.
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub(crate) fuse: Transport,
    /// The work before a reply.
    #[arg(long, value_enum, default_value_t = Exchange::None)]
    pub(crate) exchange: Exchange,
    /// Round trips per kernel request: OPCODE, the number in parallel and the number in sequence before
    /// the reply, then the same two numbers after it, separated by colons.
    #[arg(long = "cost", value_parser = cost)]
    pub(crate) costs: Vec<bench::null::Cost>,
    /// Store written data in a file below this directory.
    #[arg(long)]
    pub(crate) contents: Option<PathBuf>,
    /// The lane's core.
    #[arg(long)]
    pub(crate) core: u16,
    #[command(flatten)]
    pub(crate) driver: DriverArg,
    /// End when this parent process ends.
    #[arg(long, value_name = "PID")]
    pub(crate) parent_pid: u32,
}

fn cost(text: &str) -> Result<bench::null::Cost, String> {
    let numbers: Result<Vec<u32>, _> = text.split(':').map(str::parse).collect();
    let numbers = numbers.map_err(|error| error.to_string())?;
    let [opcode, waves @ ..] = numbers.as_slice() else { return Err("no numbers".to_owned()) };
    let waves: Result<Vec<u8>, _> = waves.iter().map(|count| u8::try_from(*count)).collect();
    match waves.map_err(|error| error.to_string())?.as_slice() {
        &[first, second, third, fourth] => Ok(bench::null::Cost {
            opcode: *opcode,
            before: [first, second],
            behind: [third, fourth],
        }),
        _ => Err("not OPCODE and four counts".to_owned()),
    }
}

/// The work of a null file system in place of a mount's request to its server.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exchange {
    /// Nothing.
    None,
    /// A frame over loopback to the lane itself and back.
    Within,
    /// A frame over loopback to a lane in another process on the same core and back.
    Apart,
}
