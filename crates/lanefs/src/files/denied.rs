//! Explains a refused permission: the directory or file, its owner, and the command's user.
//!
//! It sends further requests, so a command uses it for the first refusal only. It checks owners and modes,
//! not access control lists.

use crate::export_name::or_default;
use library::{Attr, Error, Status, Volume};
use std::path::{Path, PathBuf};

/// Operations that change the directory a name is in.
const CHANGES_PARENT: [&str; 8] =
    ["create", "mkdir", "unlink", "rmdir", "rename", "symlink", "mknod", "link"];

/// The reason and the remedy, if it was a matter of rights that can be found out.
pub(super) fn explain(volume: &mut Volume, error: &Error, export: &str) -> Option<String> {
    let Error::Op { op, path, status: Status::Access | Status::NotPermitted } = error else {
        return None;
    };
    let root = rustix::process::geteuid().is_root();
    if root && volume.is_root_trusted() {
        return None;
    }
    let wanted = if CHANGES_PARENT.contains(op) { path.parent()? } else { path };
    let (shown, attr) = deepest(volume, wanted)?;
    let Attr { uid, gid, mode, .. } = attr;
    let whose = format!("{} belongs to {uid}:{gid} and has mode {mode:04o}", shown.display());
    let export = or_default(export);
    Some(if root {
        format!(
            "{whose}; root is nobody on the export {export}: run it on the server's host, over loopback and \
             with the store's secret, or use an export where root is root (`lanefs export add SERVER NAME \
             PATH --squash none`)"
        )
    } else {
        let (me, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let (me, group) = (me.as_raw(), group.as_raw());
        format!(
            "{whose}; you came as {me}:{group}: its owner, or root on the server's host, lets you in with \
             `lanefs chmod` or `lanefs chown`"
        )
    })
}

/// The last on the way to `path` that can be looked at: what is in it cannot, or it is `path` itself.
fn deepest(volume: &mut Volume, path: &Path) -> Option<(PathBuf, Attr)> {
    let mut at = PathBuf::new();
    let mut found = None;
    for component in path.components() {
        at.push(component);
        match volume.stat(&at) {
            Ok(attr) => found = Some((at.clone(), attr)),
            Err(_) => break,
        }
    }
    found
}
