//! Who may do what: the server decides, by the caller's ids and groups.

use crate::stage::{Stage, failure, must, program, run, texts};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

const USER: u32 = 12_345;
const GROUP: u32 = 12_346;
const TEAM: u32 = 12_347;

/// A shell as somebody else, with the supplementary groups given.
fn shell_as(uid: u32, gid: u32, groups: &[u32], script: &str, dir: &Path) -> Command {
    let mut command = program("setpriv");
    command.args([format!("--reuid={uid}"), format!("--regid={gid}")]);
    if groups.is_empty() {
        command.arg("--clear-groups");
    } else {
        let list: Vec<String> = groups.iter().map(ToString::to_string).collect();
        command.arg(format!("--groups={}", list.join(",")));
    }
    command.args(["sh", "-c", script, "sh"]).arg(dir);
    command
}

fn mode(path: &Path, bits: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
}

#[test]
fn root_is_nobody_on_the_default_export_and_root_on_up_s() {
    let Some(stage) = Stage::new("squash") else { return };
    let up = stage.up(&[]);
    fs::create_dir(up.dir.join("open")).unwrap();
    mode(&up.dir.join("open"), 0o777);
    fs::write(up.dir.join("private"), "root's").unwrap();
    mode(&up.dir.join("private"), 0o600);
    assert_eq!(fs::metadata(up.dir.join("private")).unwrap().uid(), 0);
    let squashed = stage.mount(&up.address, "squashed", &[]);
    let denied = fs::read(squashed.dir.join("private")).unwrap_err();
    assert_eq!(denied.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(fs::write(squashed.dir.join("new"), "").is_err(), "the root folder is root's");
    fs::write(squashed.dir.join("open/mine"), "").unwrap();
    let owner = fs::metadata(up.dir.join("open/mine")).unwrap().uid();
    assert_eq!(owner, 65_534, "root's files belong to nobody");
    assert!(std::os::unix::fs::chown(squashed.dir.join("open/mine"), Some(0), None).is_err());
    let refused = stage.run(["cat", &up.url("/private")]);
    assert_eq!(failure(&refused).0, 1, "{:?}", texts(&refused));
    let allowed = stage.run(["cat", "--export", "up", &up.url("/private")]);
    assert_eq!(texts(&allowed).0, "root's");
    squashed.stop();
    up.stop();
}

#[test]
fn another_user_has_the_rights_of_his_ids_and_groups() {
    let Some(stage) = Stage::new("users") else { return };
    let up = stage.up(&[]);
    let team = up.dir.join("team");
    fs::create_dir(&team).unwrap();
    std::os::unix::fs::chown(&team, Some(0), Some(TEAM)).unwrap();
    mode(&team, 0o2770);
    let write = "echo hello >\"$1/file\"";
    let outside = run(&mut shell_as(USER, GROUP, &[], write, &team));
    assert!(!outside.status.success(), "not in the group: no");
    must(&mut shell_as(USER, GROUP, &[TEAM], write, &team));
    let metadata = fs::metadata(team.join("file")).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (USER, TEAM), "setgid folders give their group");
    must(&mut shell_as(USER, GROUP, &[TEAM], "chmod 600 \"$1/file\"", &team));
    let reader = shell_as(USER + 1, GROUP, &[TEAM], "cat \"$1/file\"", &team).output().unwrap();
    assert!(!reader.status.success(), "0600 is for its owner");
    must(&mut shell_as(USER, GROUP, &[TEAM], "cat \"$1/file\"", &team));
    let give = run(&mut shell_as(USER, GROUP, &[TEAM], "chown 0 \"$1/file\"", &team));
    assert!(!give.status.success(), "files cannot be given away");
    up.stop();
}

#[test]
fn a_sticky_folder_keeps_files_from_others() {
    let Some(stage) = Stage::new("sticky") else { return };
    let up = stage.up(&[]);
    let shared = up.dir.join("shared");
    fs::create_dir(&shared).unwrap();
    mode(&shared, 0o1777);
    must(&mut shell_as(USER, GROUP, &[], "touch \"$1/mine\"", &shared));
    let other = run(&mut shell_as(USER + 1, GROUP, &[], "rm -f \"$1/mine\"", &shared));
    assert!(!other.status.success());
    assert!(shared.join("mine").exists());
    must(&mut shell_as(USER, GROUP, &[], "rm \"$1/mine\"", &shared));
    up.stop();
}
