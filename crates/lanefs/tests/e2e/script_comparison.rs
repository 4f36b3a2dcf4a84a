//! The same script on a mount and on the local file system beside it: what it says must be the
//! same.

use crate::fixture::{Fixture, program, run, texts};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// What every script has: another user with groups, and saying how a command went.
const PRELUDE: &str = r#"
export LC_ALL=C
as() { ids=$1; shift; IFS=: read -r uid gid groups <<EOF
$ids
EOF
    if [ -n "$groups" ]; then setpriv --reuid="$uid" --regid="$gid" --groups="$groups" "$@"
    else setpriv --reuid="$uid" --regid="$gid" --clear-groups "$@"; fi; }
try() { echo "+ $*"; "$@" 2>&1; echo "= $?"; }
"#;

/// Runs a script (bash) in an empty folder of the mount and in a local one.
#[track_caller]
pub(crate) fn same(fixture: &Fixture, mounted: &Path, script: &str) {
    let said = |dir: &Path| {
        let mut command = program("bash");
        command.arg("-c").arg(format!("{PRELUDE}{script}")).current_dir(dir);
        let output = run(&mut command);
        let (stdout, stderr) = texts(&output);
        assert!(output.status.success(), "{}\n{stdout}{stderr}", output.status);
        format!("{stdout}{stderr}")
    };
    let local = fixture.make_dir("local");
    // A new store's root directory is for all, where root makes it.
    fs::set_permissions(mounted, fs::Permissions::from_mode(0o755)).unwrap();
    let (here, there) = (said(&local), said(mounted));
    assert!(here.lines().count() > 3, "it says something: {here}");
    if here != there {
        let (mut left, mut right) = (here.lines(), there.lines());
        let mut context = Vec::new();
        loop {
            let (local, mounted) = (left.next(), right.next());
            if local != mounted {
                let before = context.split_off(context.len().saturating_sub(12)).join("\n");
                panic!(
                    "{before}\nlocal:   {local:?}\nmounted: {mounted:?}\n--- all of it:\n{there}"
                );
            }
            context.push(local.unwrap_or_default());
        }
    }
}

/// Whether a program is installed.
pub(crate) fn has(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}
