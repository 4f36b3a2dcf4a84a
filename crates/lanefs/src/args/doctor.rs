//! The arguments of `lanefs doctor`.

use super::{Access, EXIT_CODES};
use clap::Args;
use std::path::PathBuf;

/// What `doctor` ends with besides.
const DOCTOR_CODES: &str = "
  9  the worst finding is a warning
 10  the worst finding is an error";

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs doctor                        this machine, and all of lanefs that you run on it
  lanefs doctor /srv/store             also the disk under a store, or under one that is to be made
  lanefs doctor host:7117              also the way to a server, and whether it lets you in
  lanefs doctor --report bug.txt ./mnt host
  lanefs doctor --json | jq -r 'select(.severity == \"error\") | .remedy'

{EXIT_CODES}{DOCTOR_CODES}"))]
pub(crate) struct Doctor {
    /// What to look at besides this machine: the directory of a store, of a mount, or one where a
    /// store shall be made; or a server, HOST or HOST:PORT
    #[arg(value_name = "PATH|ADDR")]
    pub(crate) targets: Vec<PathBuf>,
    /// One JSON object a finding and line; the last one sums up
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a report to attach to a bug report: versions, findings, mounts and the ends of logs,
    /// without secrets; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) access: Access,
}
