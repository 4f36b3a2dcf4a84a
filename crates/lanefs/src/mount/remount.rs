//! `-o remount`: changes the kernel's flags of a mount; the process that serves it is not affected.

use super::options::Options;
use crate::exit::{Code, Exit};
use crate::mounts;
use anyhow::{Result, bail};
use std::io;
use std::path::Path;

/// Sets the named flags of the mount at `dir`; the others stay.
pub(super) fn run(dir: &Path, options: &Options) -> Result<()> {
    let shown = dir.display();
    let failed = |line| Exit::new(Code::Failed, line);
    let Some(mounted) = mounts::at(dir)? else {
        bail!(failed(format!("{shown} cannot be remounted: nothing is mounted there")));
    };
    if !mounted.is_lanefs() {
        let fs_type = mounted.fs_type;
        bail!(failed(format!("{shown} cannot be remounted: it is no lanefs mount but {fs_type}")));
    }
    ring::remount(dir, options.flags_over(&mounted.options)).map_err(|error| {
        let why = if error.kind() == io::ErrorKind::PermissionDenied {
            "that is for root alone".to_owned()
        } else if error.kind() == io::ErrorKind::ResourceBusy {
            format!("files on it are open for writing (`fuser -m {shown}` says by whom)")
        } else {
            error.to_string()
        };
        failed(format!("{shown} cannot be remounted: {why}")).into()
    })
}
