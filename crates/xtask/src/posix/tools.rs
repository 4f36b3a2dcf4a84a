//! The suites that come from crates.io, built below the target directory.
//!
//! Invariant: one version, the one named here; an installed one is not built again.

use crate::run::{cargo, run, target_dir};
use anyhow::Result;
use std::path::PathBuf;

/// Crates and their versions.
const CRATES: [(&str, &str); 2] = [("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];

/// Where an installed suite is.
pub(crate) fn path(name: &str) -> PathBuf {
    home().join("bin").join(name)
}

fn home() -> PathBuf {
    target_dir().join("suites")
}

/// Installs all. They mostly wait for the file system, so they are built without optimization, in a
/// fifth of the time.
pub(crate) fn install() -> Result<()> {
    for (name, version) in CRATES {
        let mut command = cargo(["install", "--quiet", "--locked", "--profile", "dev"]);
        command.arg("--root").arg(home()).args(["--version", version, name]);
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_TARGET_DIR", home().join("build"));
        run(&mut command)?;
    }
    Ok(())
}
