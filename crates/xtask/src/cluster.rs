//! `cargo xtask cluster`: several servers, their etcd and a mount on this machine, to try a cluster out.
//!
//! It is `lanefs up --servers N`, built from this workspace; a second run goes on with what the first one made.

use crate::run::{cargo, run, target_dir};
use anyhow::{Context as _, Result};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// The options.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// How many servers
    #[arg(long, value_name = "N", default_value_t = 4)]
    servers: u16,
    /// Where to mount; the stores are beside it [default: target/cluster/mnt]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Further options of `lanefs up`
    #[arg(last = true)]
    more: Vec<String>,
}

/// Runs the chore: this process becomes `lanefs up`, so that Ctrl-C reaches it alone.
pub(crate) fn run_alone(args: &Args) -> Result<()> {
    run(&mut cargo(["build", "--release", "-p", "lanefs"]))?;
    let dir = args.dir.clone().unwrap_or_else(|| target_dir().join("cluster/mnt"));
    if let Some(parent) = dir.parent() {
        std::fs::create_dir_all(parent)
            .with_context(|| format!("cannot make {}", parent.display()))?;
    }
    let mut up = Command::new(target_dir().join("release/lanefs"));
    up.args(["up", "--servers", &args.servers.to_string()]).args(&args.more).arg(&dir);
    Err(up.exec()).context("cannot start lanefs")
}
