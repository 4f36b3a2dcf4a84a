//! The arguments of `lanefs cluster`, and those of a server in a cluster.

use super::units::{UNITS, time_in};
use super::{AdminLogin, EXIT_CODES, EtcdArg, SecretFile};
use crate::address;
use clap::{Args, Subcommand};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use wire::Layout;

/// How long a join token may be valid.
const VALID: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(24 * 30);

/// A usual server's weight.
pub(crate) const WEIGHT: u32 = 100;

/// What a server in a cluster needs to know.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClusterArg {
    /// Serve as one server of a cluster: the addresses of its etcd, http://HOST:PORT or
    /// https://HOST:PORT with commas between them [default: those that the store was served with last;
    /// none for a store that has the whole file system]
    #[arg(long, value_name = "URL,...")]
    pub(crate) cluster: Option<String>,
    #[command(flatten)]
    pub(crate) etcd: Box<EtcdArg>,
    /// Make the store, as that of a further server of the cluster, with what `lanefs cluster token`
    /// has printed. Without effect once the server has joined
    #[arg(long, value_name = "TOKEN", requires = "cluster")]
    pub(crate) join: Option<String>,
    /// How much of what is new the joining server gets, where others get 100
    #[arg(long, value_name = "N", default_value_t = WEIGHT, requires = "join")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) weight: u32,
    /// The address by which clients and the other servers of the cluster reach this one [default: that
    /// of --listen]
    #[arg(long, value_name = "HOST:PORT", value_parser = address::read)]
    pub(crate) advertise: Option<String>,
}

/// Most servers of `lanefs up`.
pub(crate) const SERVER_COUNT_MAX: u16 = 16;

/// How many servers `lanefs up` has.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ServersArg {
    /// Several servers, to try a cluster out on one machine: their stores are PATH, PATH-2, PATH-3, ..., and
    /// an etcd of their own runs on loopback, with its data in PATH-etcd. Needs etcd (Debian's etcd-server)
    /// [default: as many as there are already, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(SERVER_COUNT_MAX)))]
    pub(crate) servers: Option<u16>,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs cluster init --store ./store --etcd http://127.0.0.1:2379
  lanefs cluster init --store ./store --etcd https://HOST:2379 --etcd-ca ca.pem
  lanefs serve --store ./store
  lanefs cluster token --store ./store
  lanefs serve --store ./second --listen HOST:PORT --cluster http://127.0.0.1:2379 --join TOKEN

{UNITS}

{EXIT_CODES}"))]
pub(crate) struct Cluster {
    #[command(subcommand)]
    pub(crate) command: ClusterCommand,
}

#[derive(Subcommand, Clone, Debug)]
pub(crate) enum ClusterCommand {
    /// Make the server of a store the first one of a cluster
    #[command(after_help = EXIT_CODES)]
    Init(ClusterInit),
    /// Show which server has which shards, in which term, and who is away
    #[command(after_help = EXIT_CODES)]
    Status(ClusterStatus),
    /// Print a token with which one further server may join, once
    #[command(after_help = EXIT_CODES)]
    Token(ClusterToken),
}

/// Where a cluster's registry is.
#[derive(Args, Clone, Debug)]
pub(crate) struct RegistryArg {
    /// The store of a server, on this host, the directory of an `up`, or the addresses of etcd,
    /// http://HOST:PORT or https://HOST:PORT with commas between them [default: the store of a server
    /// that runs here]
    #[arg(value_name = "STORE|DIR|URL")]
    pub(crate) registry: Option<String>,
    #[command(flatten)]
    pub(crate) etcd: EtcdArg,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ClusterStatus {
    #[command(flatten)]
    pub(crate) registry: RegistryArg,
    /// Print JSON: an object for the cluster, then one for each server
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs servers                           of a server that runs here
  lanefs servers ./mnt                     of `lanefs up --servers 3 ./mnt`
  lanefs servers http://127.0.0.1:2379 --json

{EXIT_CODES}"))]
pub(crate) struct Servers {
    #[command(flatten)]
    pub(crate) registry: RegistryArg,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) login: AdminLogin,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs drain 2 --new-only
  lanefs drain 2 --undo http://127.0.0.1:2379

{EXIT_CODES}"))]
pub(crate) struct Drain {
    /// The number of the server, as `lanefs servers` shows it
    #[arg(value_name = "SERVER")]
    pub(crate) server: u16,
    /// Let it keep what it has. To move that to other servers is not built
    #[arg(long, required_unless_present = "undo")]
    pub(crate) new_only: bool,
    /// Give it new directories and files again
    #[arg(long, conflicts_with = "new_only")]
    pub(crate) undo: bool,
    #[command(flatten)]
    pub(crate) registry: RegistryArg,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ClusterInit {
    /// The directory of the data; made if it does not exist. No server may have it open
    #[arg(long, value_name = "PATH")]
    pub(crate) store: PathBuf,
    /// The addresses of etcd, http://HOST:PORT or https://HOST:PORT with commas between them
    #[arg(long, value_name = "URL,...")]
    pub(crate) etcd: String,
    /// The layout of new files in directories without one. `count=1`: each file is at one server
    #[arg(long, value_name = "LAYOUT", default_value = "unit=4M,count=8,grows=1")]
    #[arg(value_parser = layout)]
    pub(crate) layout: Layout,
    #[command(flatten)]
    pub(crate) access: EtcdArg,
}

/// A layout that all files of a cluster may have.
fn layout(text: &str) -> Result<Layout, String> {
    match Layout::from_text(text.as_bytes()) {
        Some(Layout { stripe_count: 1, .. }) => Ok(Layout::DEFAULT),
        Some(layout) if layout.narrow => Ok(layout),
        Some(_) | None => Err("count=1, or as unit=4M,count=8,grows=1".to_owned()),
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ClusterToken {
    /// The store of a server of the cluster, on this host; it may be served
    #[arg(long, value_name = "PATH")]
    pub(crate) store: PathBuf,
    /// How long the token is valid, from 1min to 30d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = time_in(VALID))]
    pub(crate) valid: Duration,
    /// The addresses of etcd [default: those that the store was served with last]
    #[arg(long, value_name = "URL,...")]
    pub(crate) etcd: Option<String>,
    #[command(flatten)]
    pub(crate) access: EtcdArg,
    #[command(flatten)]
    pub(crate) secret: SecretFile,
}
