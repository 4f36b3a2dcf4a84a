//! `lanefs cp` from one server to another.

use crate::fixture::{Fixture, failure, must, program, texts};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

/// Runs a command and prints the KiB of memory that it had at most.
const PEAK_KIB: &str = "import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)";

#[test]
fn a_tree_goes_from_server_to_server_unchanged() {
    let Some(fixture) = Fixture::new("between") else { return };
    let (one, two) = (fixture.up_on("one", &[]), fixture.up_on("two", &[]));
    let tree = one.dir.join("tree");
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    fs::write(tree.join("small"), "x").unwrap();
    fs::write(tree.join("empty"), "").unwrap();
    fs::write(tree.join("deep/large"), vec![3; (9 << 20) + 17]).unwrap();
    fs::write(tree.join("deep/er").join(OsStr::from_bytes(b"not \xff utf8")), "y").unwrap();
    std::os::unix::fs::symlink("../small", tree.join("deep/link")).unwrap();
    fs::set_permissions(tree.join("small"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(tree.join("small"), Some(12), Some(34)).unwrap();
    fs::File::create(tree.join("sparse")).unwrap().set_len(100 << 20).unwrap();
    must(program("touch").args(["-d", "2001-02-03 04:05:06.789"]).arg(tree.join("small")));
    let (from, to) = (one.url("/tree"), two.url("/copy"));
    must(&mut fixture.lanefs(["cp", "-rp", "--export", "up", &from, &to]));
    let mut rsync = program("rsync");
    rsync.args(["-aHn", "--delete", "--itemize-changes"]).arg(tree.join(""));
    assert_eq!(must(rsync.arg(two.dir.join("copy").join(""))), "");
    // Into what is there, and under the same names on both.
    must(&mut fixture.lanefs(["cp", "-r", "--export", "up", &from, &two.url("/")]));
    must(program("diff").args(["-r", "--no-dereference"]).arg(&tree).arg(two.dir.join("tree")));
    let same =
        fixture.run(["cp", "--export", "up", &one.url("/tree/small"), &two.url("/tree/small")]);
    assert!(same.status.success(), "the same path at another server: {}", texts(&same).1);
    let omitted = fixture.run(["cp", "--export", "up", &from, &two.url("/flat")]);
    let (code, stderr) = failure(&omitted);
    assert_eq!((code, stderr.contains("-r not given")), (1, true), "{stderr}");
    two.stop();
    // With one server stopped the command ends and names that server.
    let url = "lanefs://127.0.0.1:1/x";
    let unreachable =
        fixture.run(["cp", "--export", "up", "--connect-timeout", "1s", "-r", &from, url]);
    let (code, stderr) = failure(&unreachable);
    assert_eq!((code, stderr.contains("127.0.0.1:1")), (3, true), "{stderr}");
    one.stop();
}

#[test]
fn servers_may_have_secrets_and_exports_of_their_own() {
    let Some(fixture) = Fixture::new("between_secrets") else { return };
    let secret = fixture.path("two.secret");
    let secret = secret.to_str().unwrap();
    let one = fixture.up_on("one", &[]);
    let two = fixture.up_on("two", &["--secret-file", secret]);
    fs::write(one.dir.join("file"), "kept").unwrap();
    let copy = |more: &[&str]| {
        let fixed = ["cp", "--export", "up", &one.url("/file"), &two.url("/file")];
        fixture.run(fixed.iter().chain(more))
    };
    assert_eq!(failure(&copy(&[])).0, 4, "two has another secret");
    assert!(copy(&["--to-secret-file", secret]).status.success());
    assert_eq!(fs::read_to_string(two.dir.join("file")).unwrap(), "kept");
    let add = ["export", "add", &two.address, "default", "/", "--secret-file", secret];
    assert!(fixture.run(add).status.success());
    let nameless = copy(&["--to-secret-file", secret, "--to-export", ""]);
    let (code, stderr) = failure(&nameless);
    assert_eq!((code, stderr.contains("permission denied")), (1, true), "{stderr}");
    let here = fixture.run(["cp", "--to-export", "x", &one.url("/file"), "/tmp"]);
    assert_eq!(failure(&here).0, 2);
    let within = fixture.run(["cp", "--to-export", "x", &one.url("/file"), &one.url("/b")]);
    assert_eq!(failure(&within).0, 2);
    two.stop();
    one.stop();
}

#[test]
fn however_large_a_file_is_little_of_it_is_in_memory() {
    let Some(fixture) = Fixture::new("between_memory") else { return };
    let (one, two) = (fixture.up_on("one", &[]), fixture.up_on("two", &[]));
    let size_bytes = 160 << 20;
    let piece: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    fs::write(one.dir.join("large"), piece.repeat(size_bytes / piece.len())).unwrap();
    let mut copy = program("python3");
    copy.args(["-c", PEAK_KIB]).arg(crate::fixture::binary());
    copy.args(["cp", "--export", "up", &one.url("/large"), &two.url("/large")]);
    copy.env("XDG_CONFIG_HOME", fixture.path("config")).env_remove("LANEFS_SECRET_FILE");
    let peak_kib: u64 = must(&mut copy).trim().parse().unwrap();
    println!("{peak_kib} KiB");
    // A client keeps what is not durable yet, 64 MiB at most: on a slow disk it comes to that.
    assert!(peak_kib < 128 << 10, "{peak_kib} KiB for 160 MiB");
    must(program("cmp").arg(one.dir.join("large")).arg(two.dir.join("large")));
    two.stop();
    one.stop();
}
