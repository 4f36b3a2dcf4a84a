//! `lanefs cp` between files of a server and pipes, held against what cat and cp do.

use crate::fixture::{Fixture, Server, binary, failure, must, program, texts};
use std::fs::{self, File};
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

const MIB: usize = 1 << 20;

/// Bytes that no two places have in common, with a hole in the middle if they are long enough.
fn contents(size_bytes: usize) -> Vec<u8> {
    let numbers = (0_u64..).flat_map(u64::to_le_bytes);
    let mut bytes: Vec<u8> = numbers.skip(8).take(size_bytes).collect();
    if size_bytes > 4 * MIB {
        bytes[2 * MIB..4 * MIB].fill(0);
    }
    bytes
}

fn url(server: &Server, name: &str) -> String {
    format!("lanefs://{}/{name}", server.address)
}

fn cp(fixture: &Fixture, arguments: &[&str]) -> Command {
    fixture.lanefs(["cp", "--export", "up"].iter().chain(arguments))
}

/// A shell with `$CP`, which is `lanefs cp --export up`, and `$1`, a URL.
fn bash(fixture: &Fixture, script: &str, url: &str) -> Output {
    let mut bash = program("bash");
    let script = format!("cp() {{ \"$0\" cp --export up \"$@\"; }}; {script}");
    bash.arg("-c").arg(script).arg(binary()).arg(url).current_dir(fixture.path(""));
    bash.env("XDG_CONFIG_HOME", fixture.path("config")).env_remove("LANEFS_SECRET_FILE");
    crate::fixture::run(&mut bash)
}

#[test]
fn bytes_through_pipes_are_unchanged() {
    let Some(fixture) = Fixture::new("pipes") else { return };
    let server = fixture.serve("127.0.0.1:0");
    for size_bytes in [0, 1, 4096, MIB, MIB + 1, 20 * MIB + 17] {
        let bytes = contents(size_bytes);
        fs::write(fixture.path("here"), &bytes).unwrap();
        let there = url(&server, &size_bytes.to_string());
        for script in [
            "cat here | cp - \"$1\"",
            "cp - \"$1\" < here",
            // Longer before, and all zeros at its end.
            "{ cat here; head -c 3000000 /dev/zero; } | cp - \"$1\" && cat here | cp - \"$1\"",
        ] {
            let output = bash(&fixture, &format!("set -o pipefail; {script}"), &there);
            assert!(output.status.success(), "{script}: {}", texts(&output).1);
            let output = bash(&fixture, "set -o pipefail; cp \"$1\" - | cmp - here", &there);
            assert!(output.status.success(), "{size_bytes} {script}: {}", texts(&output).1);
        }
        let output = must(&mut cp(&fixture, &[&there, fixture.path("back").to_str().unwrap()]));
        assert_eq!(output, "");
        assert_eq!(fs::read(fixture.path("back")).unwrap(), bytes);
    }
    let zeros = url(&server, "zeros");
    let output =
        bash(&fixture, "head -c 3000000 /dev/zero | cp - \"$1\"; cp \"$1\" - | wc -c", &zeros);
    assert_eq!(texts(&output).0.trim(), "3000000", "a hole at the end");
}

#[test]
fn small_pieces_are_read_to_the_end() {
    let Some(fixture) = Fixture::new("pipes_short") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let there = url(&server, "f");
    let mut child = cp(&fixture, &["-", &there]).stdin(Stdio::piped()).spawn().unwrap();
    let bytes = contents(100_000);
    let mut input = child.stdin.take().unwrap();
    let mut left = bytes.as_slice();
    for piece_bytes in (1..).step_by(7) {
        let (piece, rest) = left.split_at(left.len().min(piece_bytes));
        input.write_all(piece).unwrap();
        left = rest;
        if left.is_empty() {
            break;
        }
    }
    drop(input);
    assert!(child.wait().unwrap().success());
    assert_eq!(crate::fixture::run(&mut cp(&fixture, &[&there, "-"])).stdout, bytes);
}

#[test]
fn a_reader_that_ends_ends_it_as_it_ends_cat() {
    let Some(fixture) = Fixture::new("pipes_closed") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let there = url(&server, "f");
    fs::write(fixture.path("here"), contents(20 * MIB)).unwrap();
    must(&mut cp(&fixture, &[fixture.path("here").to_str().unwrap(), &there]));
    let ended = |script: &str| {
        let output = bash(
            &fixture,
            &format!("{script} | head -c 1 > /dev/null; echo ${{PIPESTATUS[0]}}"),
            &there,
        );
        let (stdout, stderr) = texts(&output);
        assert_eq!(stderr, "", "{script}");
        stdout
    };
    assert_eq!(ended("cp \"$1\" -"), ended("cat here"));
}

#[test]
fn what_a_pipe_makes_has_the_mode_that_a_shell_gives() {
    let Some(fixture) = Fixture::new("pipes_modes") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    for (umask, name) in [("022", "a"), ("077", "b")] {
        let script = format!("umask {umask}; echo x | cp - \"$1\"; echo x > mnt/{name}_shell");
        let output = bash(&fixture, &script, &url(&server, name));
        assert!(output.status.success(), "{}", texts(&output).1);
        let mode = |name: &str| fs::metadata(mount.dir.join(name)).unwrap().permissions();
        assert_eq!(mode(name), mode(&format!("{name}_shell")));
    }
    // What is there keeps its own, and a link is not written through.
    fs::set_permissions(mount.dir.join("a"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    let before = fs::metadata(mount.dir.join("a")).unwrap();
    assert!(bash(&fixture, "echo longer | cp - \"$1\"", &url(&server, "a")).status.success());
    let after = fs::metadata(mount.dir.join("a")).unwrap();
    assert_eq!(after.permissions(), before.permissions());
    assert_eq!(fs::read(mount.dir.join("a")).unwrap(), b"longer\n");
    std::os::unix::fs::symlink("a", mount.dir.join("link")).unwrap();
    let output = bash(&fixture, "echo x | cp - \"$1\"", &url(&server, "link"));
    let (code, line) = failure(&output);
    assert!(code == 1 && line.contains("not writing through symbolic link"), "{line}");
    mount.stop();
}

#[test]
fn an_unsupported_pipe_is_refused_with_its_reason() {
    let Some(fixture) = Fixture::new("pipes_wrong") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let (file, root) = (url(&server, "f"), url(&server, ""));
    let here = fixture.path("here");
    fs::write(&here, "x").unwrap();
    let here = here.to_str().unwrap();
    for (arguments, code, says) in [
        (&["-", "-"][..], 2, "has to be lanefs://HOST:PORT/path"),
        (&["-", here], 2, "has to be lanefs://HOST:PORT/path"),
        (&[here, "-"], 2, "has to be lanefs://HOST:PORT/path"),
        (&["-", here, &root], 2, "- stands for one SOURCE or for DEST"),
        (&["-r", &root, "-"], 2, "not for pipes"),
        (&["-p", "-", &file], 2, "not for pipes"),
        (&["-", &root], 1, "standard input has no name"),
        (&[&file, "-"], 1, "no such file"),
        (&[&root, "-"], 1, "directory"),
        (&["-", "lanefs://127.0.0.1:1/f", "--connect-timeout", "0"], 3, "no lanefs server"),
    ] {
        let output = crate::fixture::run(cp(&fixture, arguments).stdin(Stdio::null()));
        let (found, line) = failure(&output);
        assert!(found == code && line.contains(says), "{arguments:?}: {found} {line}");
    }
    // What cannot be read leaves what was written before, as cp does.
    let output = crate::fixture::run(cp(&fixture, &["-", &file]).stdin(File::open("/").unwrap()));
    let (code, line) = failure(&output);
    assert!(code == 1 && line.contains("cannot read standard input"), "{line}");
    assert_eq!(must(&mut cp(&fixture, &[&file, "-"])), "");
    must(&mut cp(&fixture, &[here, &file]));
    let (code, line) = failure(&bash(&fixture, "cp \"$1\" - > /dev/full", &file));
    assert!(code == 1 && line.contains("no space left"), "{line}");
}
