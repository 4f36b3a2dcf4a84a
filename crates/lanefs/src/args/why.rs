//! The arguments of `lanefs why`.

use super::{AdminLogin, EXIT_CODES};
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs why                          what is slow or stuck at the mounts and the server of this machine
  lanefs why ./mnt/a/b                requests about this file or directory
  lanefs why --pid 4711               requests of this process, and those that wait for it
  lanefs why --client host1           requests of a client, and those that wait for it
  lanefs why --server host --json     for programs
  lanefs why --chrome slow.json       to look at in Perfetto or chrome://tracing

A server remembers its latest 256 slow requests in each lane (serve --slow), 256 samples of all others,
and what waits now. So does a mount, of the kernel's requests; both sides of a request are shown as one.
Times are those of a lane's turns: what happens within a turn takes 0.

{EXIT_CODES}"))]
pub(crate) struct Why {
    /// A file or directory of a mount of this machine: show requests about it
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    /// Show requests of this process of this machine, and those that wait for it
    #[arg(long, value_name = "N", conflicts_with = "path")]
    pub(crate) pid: Option<u32>,
    /// Show the slowest requests, and what waits now (the default)
    #[arg(long, conflicts_with_all = ["path", "pid"])]
    pub(crate) slow: bool,
    /// Show requests of this client, and those that wait for it: its host name, its job, or the beginning
    /// of its uuid
    #[arg(long, value_name = "CLIENT")]
    pub(crate) client: Option<String>,
    /// Ask this server: HOST, HOST:PORT, or the directory of a store or a mount of this machine [default:
    /// that of PATH, or the server that the calling user runs on this machine]
    #[arg(long, value_name = "SERVER|DIR")]
    pub(crate) server: Option<String>,
    /// Show samples of fast requests, too
    #[arg(long)]
    pub(crate) samples: bool,
    /// Show at most so many requests
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) count: u16,
    /// Print one JSON object a request
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a trace that Perfetto and chrome://tracing show
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) chrome: Option<PathBuf>,
    /// Export to OpenTelemetry: OTLP as JSON, to a file or to a collector, as http://localhost:4318
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "FILE|URL", conflicts_with_all = ["json", "chrome"])]
    pub(crate) otlp: Option<String>,
    #[command(flatten)]
    pub(crate) login: AdminLogin,
}
