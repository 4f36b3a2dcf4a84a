//! The arguments of `lanefs check`, `backup`, `dump` and `restore`.

use super::{AdminLogin, EXIT_CODES, units};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// What `check` ends with besides.
const CHECK_CODES: &str = "
  6  --repair has mended all that was found
  7  something is wrong that --repair mends
  8  something is wrong that a person has to mend";

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs check /srv/store              logs, names, links, contents, also while it is served
  lanefs check host:7117               the same, done by the host of the server
  lanefs check /srv/store --repair     the same, and mend what can be mended: nobody serves it then
  lanefs check --cluster one two three the stores of all servers of a cluster, while none is served
  lanefs check /srv/store --json | jq -r 'select(.severity == \"damage\") | .paths[]'

{EXIT_CODES}{CHECK_CODES}"))]
pub(crate) struct Check {
    /// The directory of the store, on the machine that serves it, if it is served; or its server:
    /// HOST or HOST:PORT
    #[arg(value_name = "STORE|ADDRESS")]
    pub(crate) store: PathBuf,
    /// The stores of further servers of a cluster, on this machine. Nobody serves them
    #[arg(value_name = "STORE")]
    pub(crate) more: Vec<PathBuf>,
    /// These are the stores of all servers of a cluster: what is in none of them is nowhere
    #[arg(long, conflicts_with = "repair")]
    pub(crate) cluster: bool,
    #[command(flatten)]
    pub(crate) serving: AdminLogin,
    /// Mend what can be mended; what is changed is written to STORE.repair-N.jsonl first
    #[arg(long)]
    pub(crate) repair: bool,
    /// Do not compare contents with their checksums, which reads all of them
    #[arg(long, conflicts_with = "repair")]
    pub(crate) skip_contents: bool,
    /// One JSON object a finding and line; the last one sums up
    #[arg(long)]
    pub(crate) json: bool,
    /// The repair kills itself with -9 after this step, for tests of crashes
    #[arg(long, value_name = "COUNT", hide = true, requires = "repair")]
    pub(crate) kill_after: Option<u64>,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs dump /srv/store > store.jsonl     also while it is served
  lanefs dump host:7117 > store.jsonl      of the store of a server
  lanefs dump /srv/store | jq -c 'select(.type == \"entry\")'

{EXIT_CODES}"))]
pub(crate) struct Dump {
    /// The directory of the store, on the machine that serves it, if it is served; or its server:
    /// HOST or HOST:PORT
    #[arg(value_name = "STORE|ADDRESS")]
    pub(crate) store: PathBuf,
    #[command(flatten)]
    pub(crate) serving: AdminLogin,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs backup /srv/store /backup/monday
  lanefs backup host:7117 /backup/monday     of the store of a server: all contents travel
  lanefs restore /backup/monday /srv/new

The store is copied while clients work. Then their changes wait, and what changed meanwhile is copied again:
the backup is the state of that one moment. The same command continues an interrupted backup of a directory;
by the address of a server it begins anew. The copy is compared with the store's checksums; damaged files are
named and marked in it.

{EXIT_CODES}
  8  the backup is whole, and contents of files are damaged"))]
pub(crate) struct Backup {
    /// The directory of the store, on the machine that serves it, if it is served; or its server:
    /// HOST or HOST:PORT
    #[arg(value_name = "STORE|ADDRESS")]
    pub(crate) store: PathBuf,
    /// A new folder for the copy
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) serving: AdminLogin,
    /// How long changes of clients may wait at a time
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::time)]
    pub(crate) freeze_max: Duration,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs restore /backup/monday /srv/new          what `lanefs backup` made
  lanefs restore store.jsonl /srv/new --contents /srv/store/objects
  lanefs restore store.jsonl /srv/new --zeros     names and attributes; files read as zeros

The store is a new file system: mounts of the old one are made anew. Contents are compared with the
dump's checksums; where they differ, files are named and no store is made, unless --accept-damage is given.

{EXIT_CODES}
  8  restored with damage that was accepted"))]
pub(crate) struct Restore {
    /// The folder of a backup, or what `lanefs dump` printed
    #[arg(value_name = "DUMP")]
    pub(crate) dump: PathBuf,
    /// The store to make
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// The folder of objects to copy contents from: that of the store that the dump is of
    #[arg(long, value_name = "DIR", conflicts_with = "zeros")]
    pub(crate) contents: Option<PathBuf>,
    /// No contents: files have their sizes and read as zeros
    #[arg(long)]
    pub(crate) zeros: bool,
    /// Restore the rest where contents are damaged or missing: what is damaged reads as EIO
    #[arg(long, conflicts_with = "zeros")]
    pub(crate) accept_damage: bool,
}
