//! `cargo xtask debian`: README's first ten minutes in a Debian with only its base system and our
//! package, as root and as an ordinary user. With `--units`: the package's units, under systemd.
//!
//! Invariant: the system is made anew each time, in `target/debian`; nothing else on this machine
//! changes.

use crate::package;
use crate::readme::blocks;
use crate::run::{find, root, run, target_dir};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The script that uses the package in that system.
const WALK: &str = include_str!("debian/walk.sh");

/// The script that boots three such systems, and has systemd run the package's units.
const UNITS: &str = include_str!("debian/units.sh");
/// What these have beside the base system.
const UNITS_NEED: &str = "--include=systemd,systemd-sysv,dbus,fuse3,etcd-server";

/// The options.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The release that debootstrap installs
    #[arg(long, default_value = "bookworm")]
    suite: String,
    /// Where packages come from
    #[arg(long, default_value = "http://deb.debian.org/debian")]
    mirror: String,
    /// A package to install, instead of building one
    #[arg(long, value_name = "FILE")]
    package: Option<PathBuf>,
    /// Run the units instead: servers, a cluster and mounts on three hosts that systemd boots
    #[arg(long)]
    units: bool,
}

/// Runs the chore.
pub(crate) fn run_alone(args: &Args) -> Result<()> {
    if find("debootstrap").is_none() {
        bail!("there is no debootstrap on the path: `apt-get install debootstrap`");
    }
    if args.units && find("systemd-nspawn").is_none() {
        bail!("there is no systemd-nspawn on the path: `apt-get install systemd-container`");
    }
    let package = match &args.package {
        Some(package) => package.clone(),
        None => package::make()?,
    };
    let place = target_dir().join("debian");
    remove(&place)?;
    fs::create_dir_all(&place)?;
    let system = place.join("root");
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.arg("--variant=minbase").args(args.units.then_some(UNITS_NEED));
    debootstrap.arg(&args.suite).arg(&system).arg(&args.mirror);
    run(&mut debootstrap)?;
    let (script, lines) = (place.join("script.sh"), place.join("lines"));
    fs::write(&script, if args.units { UNITS } else { WALK })?;
    fs::write(&lines, lines_of_readme()?)?;
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "--uts", "--pid", "--fork"]);
    unshare.args(args.units.then_some("--net")).args(["--kill-child", "bash"]);
    unshare.arg(&script).arg(&system).arg(package).arg(&lines);
    run(&mut unshare)?;
    remove(&place)
}

fn remove(place: &Path) -> Result<()> {
    if place.exists() {
        fs::remove_dir_all(place).with_context(|| format!("cannot remove {}", place.display()))?;
    }
    Ok(())
}

/// README's commands, one a line: the one that serves, then the others.
fn lines_of_readme() -> Result<String> {
    let path = root().join("README.md");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let blocks = blocks(&text, "First ten minutes").unwrap_or_default();
    let Some(([serve], rest)) = blocks.split_first().map(|(first, rest)| (&first[..], rest)) else {
        bail!("README's first ten minutes do not begin with one command that serves");
    };
    let run = rest.iter().flatten().map(|line| format!("run {line}\n"));
    Ok(std::iter::once(format!("serve {serve}\n")).chain(run).collect())
}
