//! Trees of everything a file system can hold go to the mount and come back by tar, rsync and cp,
//! and are compared in all that they are.

use crate::fixture::{Fixture, must, program};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::Path;

/// Prints every fact of every file of a tree: what two of them must have in common.
const FACTS: &str = r#"
import os, sys, stat, hashlib
root = os.fsencode(sys.argv[1])
links = {}
for at, dirs, files in os.walk(root):
    dirs.sort()
    for name in [b''] * (at == root) + sorted(dirs + files):
        path = os.path.join(at, name) if name else at
        s = os.lstat(path)
        facts = [os.path.relpath(path, root), oct(s.st_mode), s.st_uid, s.st_gid]
        facts.append(s.st_mtime_ns)
        if stat.S_ISREG(s.st_mode):
            facts += [s.st_size, hashlib.sha1(open(path, 'rb').read()).hexdigest()]
            facts.append('sparse' if s.st_blocks * 512 < s.st_size // 2 else 'full')
        if stat.S_ISLNK(s.st_mode):
            facts.append(os.readlink(path))
        if stat.S_ISCHR(s.st_mode) or stat.S_ISBLK(s.st_mode):
            facts.append((os.major(s.st_rdev), os.minor(s.st_rdev)))
        if not stat.S_ISDIR(s.st_mode):
            facts.append(('links', s.st_nlink, links.setdefault(s.st_ino, path[len(root):])))
        for key in sorted(os.listxattr(path, follow_symlinks=False)):
            facts.append((key, os.getxattr(path, key, follow_symlinks=False)))
        print(*map(repr, facts))
"#;

fn facts(root: &Path) -> String {
    must(program("python3").args(["-c", FACTS]).arg(root))
}

#[track_caller]
fn same(one: &Path, other: &Path) {
    let (one, other) = (facts(one), facts(other));
    for (one, other) in one.lines().zip(other.lines()) {
        assert_eq!(one, other);
    }
    assert_eq!(one.lines().count(), other.lines().count());
}

/// Names, contents and modes that programs find hard. Made on a local file system.
fn make_tree(root: &Path) {
    let name = |bytes: &[u8]| root.join(OsStr::from_bytes(bytes));
    fs::create_dir_all(root.join("deep/er/and/deeper")).unwrap();
    let odd: [&[u8]; 9] = [
        b"new\nline",
        b"-rf",
        b"--help",
        b"not \xff\xfe utf8",
        b" leading and trailing ",
        b"*?[a]\\'\"$x",
        b"...",
        b"\x01\x7f\t",
        &[b'n'; 255],
    ];
    for bytes in odd {
        fs::write(name(bytes), bytes).unwrap();
    }
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("deep/er/large"), vec![7; 3_000_001]).unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"begin", 0).unwrap();
    sparse.write_all_at(b"middle", 5 << 20).unwrap();
    sparse.set_len(20 << 20).unwrap();
    fs::hard_link(root.join("deep/er/large"), root.join("hard1")).unwrap();
    fs::hard_link(root.join("deep/er/large"), root.join("deep/hard2")).unwrap();
    symlink("deep/er", root.join("link")).unwrap();
    symlink(OsStr::from_bytes(b"dangling \xff\n"), root.join("dangling")).unwrap();
    symlink("x".repeat(4095), root.join("longest")).unwrap();
    for (number, mode) in [0o000, 0o4755, 0o2755, 0o1777, 0o6711, 0o7777].into_iter().enumerate() {
        let path = root.join(format!("mode{number}"));
        fs::write(&path, "x").unwrap();
        must(program("chown").arg(format!("{}:{}", 1000 + number, 2000 + number)).arg(&path));
        must(program("chmod").arg(format!("{mode:o}")).arg(&path));
        let dir = root.join(format!("dir{number}"));
        fs::create_dir(&dir).unwrap();
        must(program("chmod").arg(format!("{mode:o}")).arg(&dir));
    }
    for (key, value) in [("user.a", "one"), ("user.empty", ""), ("trusted.t", "two")] {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(root.join("empty"), key, value.as_bytes(), flags).unwrap();
        rustix::fs::setxattr(root.join("deep"), key, value.as_bytes(), flags).unwrap();
    }
    for (path, when) in [
        ("empty", "1969-12-31 23:59:58.000000001"),
        ("deep/er/large", "2001-02-03 04:05:06.123456789"),
        ("mode1", "2242-03-16 12:56:31.999999999"),
        ("link", "1999-01-01 00:00:00.5"),
        ("deep/er", "2010-10-10 10:10:10.010101010"),
    ] {
        must(program("touch").args(["-h", "-d", &format!("{when} UTC")]).arg(root.join(path)));
    }
}

/// Pipes and devices.
fn make_nodes(root: &Path) {
    must(program("mkfifo").arg(root.join("pipe")));
    must(program("mknod").arg(root.join("null")).args(["c", "1", "3"]));
    must(program("mknod").arg(root.join("disk")).args(["b", "259", "1048575"]));
}

/// Lists and default lists of rights.
fn make_acls(root: &Path) {
    let acl = ["-m", "u:1234:rwx,g:4321:r-x,m::rwx"];
    must(program("setfacl").args(acl).arg(root.join("empty")).arg(root.join("deep")));
    must(program("setfacl").args(["-d", "-m", "u:77:rw-"]).arg(root.join("deep/er/and")));
}

fn tar(from: &Path, to: &Path, archive: &Path) {
    let all = ["--xattrs", "--xattrs-include=*", "--acls", "--sparse", "--format=posix"];
    let mut pack = program("tar");
    pack.args(all).arg("-cf").arg(archive).arg("-C").arg(from).arg(".");
    must(&mut pack);
    fs::create_dir(to).unwrap();
    let mut unpack = program("tar");
    unpack.args(all).args(["--same-owner", "-xpf"]).arg(archive).arg("-C").arg(to);
    must(&mut unpack);
}

fn rsync(from: &Path, to: &Path) {
    must(program("rsync").args(["-aHAXS"]).arg(from.join("")).arg(to.join("")));
    let again = ["-aHAXSn", "--delete", "--checksum", "--itemize-changes"];
    let left = must(program("rsync").args(again).arg(from.join("")).arg(to.join("")));
    assert_eq!(left, "", "nothing is left to do");
}

fn cp(from: &Path, to: &Path) {
    must(program("cp").args(["-a", "--sparse=always", "-T"]).arg(from).arg(to));
}

#[test]
fn trees_of_odd_files_go_there_and_back() {
    let Some(fixture) = Fixture::new("trees") else { return };
    let up = fixture.up(&[]);
    let original = fixture.make_dir("original");
    make_tree(&original);
    make_nodes(&original);
    make_acls(&original);
    let (mnt, local) = (&up.dir.clone(), fixture.make_dir("local"));
    tar(&original, &mnt.join("tar"), &fixture.path("archive"));
    same(&original, &mnt.join("tar"));
    tar(&mnt.join("tar"), &local.join("tar"), &mnt.join("archive"));
    same(&original, &local.join("tar"));
    // tar packs no sockets, and rsync takes times of one second to be the same.
    let socket = original.join("socket");
    std::os::unix::net::UnixListener::bind(&socket).unwrap();
    must(program("touch").args(["-d", "2001-02-03 04:05:06.789"]).args([&socket, &original]));
    rsync(&original, &mnt.join("rsync"));
    same(&original, &mnt.join("rsync"));
    rsync(&mnt.join("rsync"), &local.join("rsync"));
    same(&original, &local.join("rsync"));
    cp(&original, &mnt.join("cp"));
    cp(&mnt.join("cp"), &mnt.join("within"));
    cp(&mnt.join("within"), &local.join("cp"));
    same(&original, &local.join("cp"));
    up.stop();
    let up = fixture.up(&[]);
    same(&original, &mnt.join("rsync"));
    must(program("rm").arg("-rf").args(["tar", "rsync", "cp"].map(|name| mnt.join(name))));
    must(program("rm").arg("-rf").args(["within", "archive"].map(|name| mnt.join(name))));
    assert_eq!(fs::read_dir(mnt).unwrap().count(), 0);
    up.stop();
}

/// `LANEFS_RM_COUNT` makes it a million by hand.
#[test]
fn many_files_are_removed_by_rm() {
    let Some(fixture) = Fixture::new("rm") else { return };
    let up = fixture.up(&[]);
    let count = std::env::var("LANEFS_RM_COUNT").map_or(6_000, |count| count.parse().unwrap());
    let tree = up.dir.join("tree");
    let began = std::time::Instant::now();
    for folder in 0..count / 1000 {
        let dir = tree.join(format!("{}/{folder}", folder % 7));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..1000 {
            File::create(dir.join(format!("{file}"))).unwrap();
        }
    }
    let made = began.elapsed();
    must(program("rm").arg("-rf").arg(&tree));
    eprintln!("{count} files: made in {made:?}, removed in {:?}", began.elapsed() - made);
    assert!(!tree.exists());
    assert_eq!(fs::read_dir(&up.dir).unwrap().count(), 0);
    up.stop();
}
