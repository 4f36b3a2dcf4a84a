//! The command line of `lanefs bench`.

use super::units::{size_in, time_in};
use super::{DriverArg, SPIN_MAX, SecretFile, Transport};
use clap::{Args, ValueEnum};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// How long a repetition may be measured.
const MEASURED: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_hours(1);
/// How much one read or write of a stream may be of.
const PIECE_BYTES: RangeInclusive<u64> = 4 << 10..=1 << 20;

#[derive(Args, Clone, Debug)]
pub(crate) struct Bench {
    /// What to measure
    #[arg(value_enum, required = true, value_name = "NAME")]
    pub(crate) names: Vec<Name>,
    /// One JSON object per row and line instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Print this text with tables of at most eight columns in the place of {{NAME}}, and the machine's
    /// description in that of {{machine}}
    #[arg(long, value_name = "TEMPLATE", conflicts_with = "json")]
    pub(crate) report: Option<PathBuf>,
    /// With --report: also write all rows with all their numbers to this file, a JSON object a line
    #[arg(long, value_name = "FILE", requires = "report")]
    pub(crate) rows: Option<PathBuf>,
    /// seeds: the folder of its report, made if it is not there
    #[arg(long, value_name = "DIR", default_value = "lanefs-seeds")]
    pub(crate) out: PathBuf,
    /// How long one repetition is measured; a quarter of it is added to warm up. Below 1s, to try a
    /// benchmark out, its files are smaller
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time_in(MEASURED))]
    pub(crate) time: Duration,
    /// Repetitions; who is compared takes turns in each
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: u16,
    /// Numbers of clients, separated by commas [default: the benchmark's own]
    #[arg(long, value_name = "N", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub(crate) clients: Vec<u32>,
    /// Operations that each client keeps under way [default: the benchmark's own]
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) depth: Option<u32>,
    /// Lanes of the servers that are started [default: 1]. affinity: at most so many [default: one per
    /// core]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(crate::args::LANE_COUNT_MAX)))]
    pub(crate) lanes: Option<u16>,
    /// How long the servers' lanes poll before they sleep [default: as `serve` does]
    #[arg(long, value_name = "TIME", value_parser = time_in(Duration::ZERO..=SPIN_MAX))]
    pub(crate) spin: Option<Duration>,
    #[command(flatten)]
    pub(crate) driver: DriverArg,
    /// echo: also through a server with a thread for each layer, where a request is handed on so many
    /// times, as a number from 0 to 16 or several, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',',
          value_parser = clap::value_parser!(u8).range(0..=16))]
    pub(crate) hops: Vec<u8>,
    /// Their sharing mode [default: as `serve` does]. create: several, separated by commas, are held
    /// against `off`
    #[arg(long, value_name = "MODE", value_enum, value_delimiter = ',')]
    pub(crate) share: Vec<super::Share>,
    /// They answer no change before it is on disk
    #[arg(long)]
    pub(crate) sync: bool,
    /// create: where the files go [default: both, one after the other]
    #[arg(long, value_enum)]
    pub(crate) dirs: Option<Dirs>,
    /// stream: how much one read or write is of, from 4KiB to 1MiB
    #[arg(long = "piece", value_name = "SIZE", default_value = "1MiB", value_parser = size_in(PIECE_BYTES))]
    pub(crate) piece_bytes: u64,
    /// Where the servers' stores are made, and removed again: the disk to measure
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    pub(crate) dir: PathBuf,
    /// Measure this server, HOST or HOST:PORT, instead of starting one here. Files that are made
    /// there stay in /lanefs-bench-PID
    #[arg(long, value_name = "ADDR", value_parser = crate::address::read)]
    pub(crate) server: Option<String>,
    /// With --server: the export to use
    #[arg(long, value_name = "NAME", default_value = "", requires = "server")]
    pub(crate) export: String,
    #[command(flatten)]
    pub(crate) secret: SecretFile,
}

/// A benchmark.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Name {
    /// Frames through a lane without a file system, beside a bare loop
    Echo,
    /// Attributes of one file, beside echo
    Getattr,
    /// New files, beside getattr, log and memory without network, and the disk's flush
    Create,
    /// Large reads and writes, beside sendfile, and recv and pwrite
    Stream,
    /// Work handed to a thread that sleeps, in all ways there are
    Handoff,
    /// Readings of the clock, in all ways there are
    Clock,
    /// What the way through the kernel costs: a null file system, really mounted (as root)
    FuseNull,
    /// Operations through a real mount, beside a null file system with as many exchanges (as root)
    Mount,
    /// New files where replies may wait for other clients' changes, beside those that do not
    Share,
    /// A lane whose log becomes durable once in 14,000 or 140,000 operations
    Commit,
    /// One request for many pieces of a file, beside a request for each
    Lists,
    /// What a few modest clients get beside a greedy one, and without it
    Fair,
    /// What a mount's callers wait when all cores compute, with lanes on cores of their own and without (as root)
    Busy,
    /// The two drivers of a lane, io_uring and epoll, beside each other
    Drivers,
    /// Requests that arrive at the lane that executes them, at the client's lane, and at any lane
    Affinity,
    /// Reads and writes of 4 KiB by many clients, beside pread and pwrite in a lane
    Brw,
    /// Small reads of one file by all clients, beside a file for each, with every I/O engine, through the
    /// page cache and past it
    SharedFile,
    /// Getattrs and streams under TLS, beside the same in plain text, and the cipher alone
    Seal,
    /// The experiments that lanefs was begun for, as a report with plots in the folder that --out names
    Seeds,
    /// All of them but seeds
    All,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dirs {
    /// Each client in a directory of its own
    Own,
    /// All in one directory
    Shared,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchLimit {
    /// Which one, and what it needs to know.
    pub(crate) arguments: Vec<String>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct BenchNull {
    /// Where to mount; none: be a lane that only echoes.
    pub(crate) dir: Option<PathBuf>,
    /// How the kernel's requests reach the mount.
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub(crate) fuse: Transport,
    /// What is done before an answer.
    #[arg(long, value_enum, default_value_t = Exchange::None)]
    pub(crate) exchange: Exchange,
    /// Exchanges that requests of the kernel take: OPCODE, so many at once and so many after them
    /// before the answer, and the same behind it, with colons between them.
    #[arg(long = "cost", value_parser = cost)]
    pub(crate) costs: Vec<bench::null::Cost>,
    /// Keep what is written in a file below this directory.
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

/// What a null file system does before it answers what a mount would ask its server.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exchange {
    /// Nothing.
    None,
    /// A frame goes over loopback to the lane itself, and comes back.
    Within,
    /// A frame goes over loopback to a lane in another process on the same core, and comes back.
    Apart,
}
