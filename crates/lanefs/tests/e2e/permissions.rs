//! Who may do what: the server decides, by the caller's ids and groups.

use crate::fixture::{Fixture, failure, must, program, run, texts, until};
use crate::idle::connect;
use crate::leases::Counting;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

const USER: u32 = 12_345;
const GROUP: u32 = 12_346;
const TEAM: u32 = 12_347;

/// A shell as another user, with these supplementary groups.
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
fn root_is_nobody_on_a_default_export_that_was_defined_and_root_on_up_s() {
    let Some(fixture) = Fixture::new("squash") else { return };
    let up = fixture.up(&[]);
    fs::create_dir(up.dir.join("open")).unwrap();
    mode(&up.dir.join("open"), 0o777);
    fs::write(up.dir.join("private"), "root's").unwrap();
    mode(&up.dir.join("private"), 0o600);
    assert_eq!(fs::metadata(up.dir.join("private")).unwrap().uid(), 0);
    mode(&up.dir, 0o755);
    let default = fixture.run(["export", "add", &up.address, "default", "/"]);
    assert!(default.status.success(), "{:?}", failure(&default));
    let squashed = fixture.mount(&up.address, "squashed", &[]);
    let denied = fs::read(squashed.dir.join("private")).unwrap_err();
    assert_eq!(denied.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(fs::write(squashed.dir.join("new"), "").is_err(), "the root folder is root's");
    fs::write(squashed.dir.join("open/mine"), "").unwrap();
    let owner = fs::metadata(up.dir.join("open/mine")).unwrap().uid();
    assert_eq!(owner, 65_534, "root's files belong to nobody");
    assert!(std::os::unix::fs::chown(squashed.dir.join("open/mine"), Some(0), None).is_err());
    let refused = fixture.run(["cat", &up.url("/private")]);
    assert_eq!(failure(&refused).0, 1, "{:?}", texts(&refused));
    let allowed = fixture.run(["cat", "--export", "up", &up.url("/private")]);
    assert_eq!(texts(&allowed).0, "root's");
    squashed.stop();
    up.stop();
}

/// Root has mounted an export on which it is nobody.
#[test]
fn what_others_have_cached_is_not_opened_for_a_root_that_is_nobody() {
    let Some(fixture) = Fixture::new("squash_cached") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lease-term", "60s"]);
    let default = fixture.run(["export", "add", &server.address, "default", "/"]);
    assert!(default.status.success(), "{:?}", failure(&default));
    let options = ["--leases", "on", "--lanes", "1"];
    let mount = fixture.mount(&server.address, "squashed", &options);
    let make = "umask 077; mkdir \"$1/dir\"; echo mine >\"$1/dir/file\"";
    must(&mut shell_as(USER, GROUP, &[], make, &mount.dir));
    let (dir, file) = (mount.dir.join("dir"), mount.dir.join("dir/file"));
    let look = "stat \"$1/file\"; ls \"$1\"; cat \"$1/file\"";
    let mut counting = Counting { volume: connect(&fixture, &server.address), own_count: 0 };
    until("the file is cached", || {
        must(&mut shell_as(USER, GROUP, &[], look, &dir));
        let before = counting.now();
        must(&mut shell_as(USER, GROUP, &[], look, &dir));
        counting.now() == before
    });
    let denied = |outcome: std::io::Result<()>| {
        assert_eq!(outcome.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    };
    denied(fs::read(&file).map(drop));
    denied(fs::read_dir(&dir).map(drop));
    denied(fs::write(&file, "root's"));
    denied(fs::write(dir.join("new"), ""));
    denied(fs::remove_file(&file));
    let own = must(&mut shell_as(USER, GROUP, &[], "cat \"$1\"", &file));
    assert_eq!(own, "mine\n");
    drop(counting);
    mount.stop();
}

#[test]
fn another_user_has_the_rights_of_his_ids_and_groups() {
    let Some(fixture) = Fixture::new("users") else { return };
    let up = fixture.up(&[]);
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
    let Some(fixture) = Fixture::new("sticky") else { return };
    let up = fixture.up(&[]);
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

/// Access by one of very many groups.
const BY_GROUP: &str = r#"
import errno, os, subprocess, sys
top, count = sys.argv[1], int(sys.argv[2])
ONE, OTHER = 3_000_000, 2_999_999
os.umask(0)
def put(name, mode, uid, gid, text=''):
    path = os.path.join(top, name)
    with open(path, 'w') as file: file.write(text)
    os.chown(path, uid, gid); os.chmod(path, mode)
for gid in ONE, OTHER:
    end = '-%d' % gid
    put('read' + end, 0o640, 0, gid, 'text'); put('write' + end, 0o620, 0, gid)
    put('run' + end, 0o750, 0, gid, '#!/bin/sh\necho ran\n'); put('mine' + end, 0o755, 5001, gid)
    put('bits' + end, 0o2766, 0, gid); put('denied' + end, 0o706, 0, gid)
    for name, mode in (('dir', 0o750), ('full', 0o2770), ('sticky', 0o1770)):
        path = os.path.join(top, name + end)
        os.mkdir(path); os.chown(path, 0, gid); os.chmod(path, mode); open(path + '/in', 'w').close()
os.setgroups(list(range(100_000, 100_000 + count - 1)) + [ONE])
os.setresgid(5001, 5001, 5001); os.setresuid(5001, 5001, 5001)
os.chdir(top)
def made(path, mode):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    return '%o %d' % (os.stat(path).st_mode, os.stat(path).st_gid)
def mode(path, bits): os.chmod(path, bits); return '%o' % os.stat(path).st_mode
def append(path): os.write(os.open(path, os.O_WRONLY | os.O_APPEND), b'x'); return '%o' % os.stat(path).st_mode
DO = {
    'read': lambda end: open('read' + end).read(), 'denied': lambda end: open('denied' + end).read(),
    'write': lambda end: append('write' + end), 'bits': lambda end: append('bits' + end),
    'truncate': lambda end: os.truncate('write' + end, 3),
    'access': lambda end: [os.access(name + end, how) for name in ('read', 'write', 'run', 'dir', 'denied') for how in (4, 2, 1)],
    'eaccess': lambda end: [os.access(name + end, how, effective_ids=True) for name in ('read', 'write', 'run', 'dir', 'denied') for how in (4, 2, 1)],
    'run': lambda end: subprocess.run(['./run' + end], stdout=subprocess.PIPE).stdout,
    'list': lambda end: os.listdir('dir' + end), 'search': lambda end: os.stat('dir' + end + '/in').st_size,
    'make': lambda end: made('full' + end + '/new', 0o2755), 'mkdir': lambda end: os.mkdir('full' + end + '/sub'),
    'link': lambda end: os.link('mine' + end, 'full' + end + '/linked'),
    'rename': lambda end: os.rename('full' + end + '/in', 'full' + end + '/out'),
    'unlink': lambda end: os.unlink('full' + end + '/out'), 'sticky': lambda end: os.unlink('sticky' + end + '/in'),
    'chmod': lambda end: mode('mine' + end, 0o2755), 'chmod 2744': lambda end: mode('mine' + end, 0o2744),
    'chgrp away': lambda end: os.chown('mine' + end, -1, 5001),
    'chgrp': lambda end: os.chown('mine' + end, -1, int(end[1:])),
    'setxattr': lambda end: os.setxattr('write' + end, 'user.k', b'v' * 100),
    'getxattr': lambda end: os.getxattr('read' + end, 'user.none'),
    'utime': lambda end: os.utime('write' + end), 'fallocate': lambda end: os.posix_fallocate(os.open('write' + end, os.O_WRONLY), 0, 9),
}
for what, act in DO.items():
    for gid in ONE, OTHER:
        try: result = act('-%d' % gid)
        except OSError as error: result = errno.errorcode[error.errno]
        print(what, gid == ONE, result)
"#;

#[test]
fn one_of_very_many_groups_counts() {
    let Some(fixture) = Fixture::new("groups") else { return };
    let up = fixture.up(&["--lanes", "2"]);
    for count in [2, 17, 1000, 65_536] {
        let said = |top: &Path| {
            let dir = top.join(format!("by{count}"));
            fs::create_dir(&dir).unwrap();
            mode(&dir, 0o777);
            let mut script = program("python3");
            must(script.args(["-c", BY_GROUP]).arg(&dir).arg(count.to_string()))
        };
        let (here, there) = (said(&fixture.make_dir("local")), said(&up.dir));
        assert!(here.lines().count() >= 40 && here.contains("run True b'ran"), "{here}");
        let differs = here.lines().zip(there.lines()).find(|(local, mount)| local != mount);
        assert_eq!(differs, None, "{count} groups: on ext4, on the mount");
    }
    // The longest value, from a caller with the most groups.
    const LONGEST: &str = "import os, sys
os.chdir(sys.argv[1])
os.setgroups(list(range(100_000, 165_535)) + [3_000_000])
os.setresgid(5001, 5001, 5001); os.setresuid(5001, 5001, 5001)
os.setxattr('write-3000000', 'user.long', b'v' * 65536)
print(os.listxattr('write-3000000'))";
    let mut script = program("python3");
    must(script.args(["-c", LONGEST]).arg(up.dir.join("by65536")));
    up.stop();
}
