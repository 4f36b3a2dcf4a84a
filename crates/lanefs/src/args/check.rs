//! The arguments of `lanefs check`, `dump` and `restore`.

use super::EXIT_CODES;
use clap::Args;
use std::path::PathBuf;

/// What `check` ends with besides.
const CHECK_CODES: &str = "
  6  --repair has mended all that was found
  7  something is wrong that --repair mends
  8  something is wrong that a person has to mend";

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs check /srv/store              nobody serves it: logs, names, links, objects
  lanefs check /srv/store --repair     the same, and mend what can be mended; a report is written
  lanefs check /srv/store --json | jq -r 'select(.severity == \"damage\") | .paths[]'

{EXIT_CODES}{CHECK_CODES}"))]
pub(crate) struct Check {
    /// The directory of a store that nobody serves
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// Mend what can be mended; what is changed is written to STORE.repair-N.jsonl first
    #[arg(long)]
    pub(crate) repair: bool,
    /// One JSON object a finding and line; the last one sums up
    #[arg(long)]
    pub(crate) json: bool,
    /// The repair kills itself with -9 after this step, for tests of crashes
    #[arg(long, value_name = "COUNT", hide = true, requires = "repair")]
    pub(crate) kill_after: Option<u64>,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs dump /srv/store > store.jsonl
  lanefs dump /srv/store | jq -c 'select(.type == \"entry\")'

{EXIT_CODES}"))]
pub(crate) struct Dump {
    /// The directory of a store that nobody serves
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs restore store.jsonl /srv/new --contents /srv/store/objects
  lanefs restore store.jsonl /srv/new --zeros     names and attributes; files read as zeros

The store is a new file system: mounts of the old one are made anew.

{EXIT_CODES}"))]
pub(crate) struct Restore {
    /// What `lanefs dump` printed
    #[arg(value_name = "DUMP")]
    pub(crate) dump: PathBuf,
    /// The store to make
    #[arg(value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// The folder of objects to copy contents from: that of the store that the dump is of
    #[arg(long, value_name = "DIR", required_unless_present = "zeros", conflicts_with = "zeros")]
    pub(crate) contents: Option<PathBuf>,
    /// No contents: files have their sizes and read as zeros
    #[arg(long)]
    pub(crate) zeros: bool,
}
