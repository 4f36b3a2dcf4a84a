//! `lanefs umount DIR`: removes a mount, or names the processes that use it.

use crate::exit::{Code, Exit};
use crate::mounts::{self, Unmounted};
use crate::{args, holders, log};
use anyhow::{Result, bail};
use std::path::Path;

/// Runs the command.
pub(crate) fn run(args: &args::Umount) -> Result<()> {
    let point = mounts::absolute(&args.dir)?;
    let Some(mounted) = mounts::at(&point)? else {
        bail!("{}: nothing is mounted there", point.display());
    };
    if !mounted.is_lanefs() {
        bail!("{}: not a lanefs mount but {}", point.display(), mounted.fs_type);
    }
    match mounts::unmount(&point)? {
        Unmounted::Done => Ok(()),
        Unmounted::Busy if args.lazy => mounts::detach(&point),
        Unmounted::Busy => {
            complain_of_holders("lanefs umount: ", &point);
            Err(Exit::said(Code::Failed).into())
        }
    }
}

/// Names the processes that use `point`, after the text `before`.
pub(crate) fn complain_of_holders(before: &str, point: &Path) {
    log::report(&format!("{before}{} is in use", point.display()));
    let holders = holders::of(point);
    for holder in &holders {
        log::report(&format!("  held by {holder}"));
    }
    if holders.is_empty() {
        log::report(
            "  by whom cannot be seen: files that are open for moments, another container, or a mount below",
        );
    }
}
