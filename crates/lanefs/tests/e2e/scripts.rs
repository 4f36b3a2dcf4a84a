//! What scripts, shells and `man` get: JSON, completions, pages, and ways out.

use crate::fixture::{Fixture, Process, binary, must, program, run, texts};
use rustix::process::Signal;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

fn rows(fixture: &Fixture, arguments: &[&str]) -> Vec<Value> {
    let mut all = vec![arguments[0], "--json", "--export", "up"];
    all.extend(&arguments[1..]);
    let output = fixture.run(all);
    assert!(output.status.success(), "{arguments:?}: {}", texts(&output).1);
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn json_matches_stat() {
    let Some(fixture) = Fixture::new("json") else { return };
    let up = fixture.up(&[]);
    let odd = OsStr::from_bytes(b"not \xff utf8");
    fs::create_dir(up.dir.join("dir")).unwrap();
    fs::write(up.dir.join("dir/file \"quoted\"\n"), "12345").unwrap();
    fs::write(up.dir.join("dir").join(odd), "").unwrap();
    std::os::unix::fs::symlink(odd, up.dir.join("dir/link")).unwrap();
    for command in ["ls", "find", "tree"] {
        let found = rows(&fixture, &[command, &up.url("/dir")]);
        let skipped = usize::from(command != "ls");
        assert_eq!(found.len(), 3 + skipped, "{command}");
        for row in &found {
            let path = match row.get("path_hex") {
                Some(hex) => hex::decode(hex.as_str().unwrap()).unwrap(),
                None => row["path"].as_str().unwrap().as_bytes().to_vec(),
            };
            let below = path.strip_prefix(up.url("/").as_bytes()).unwrap();
            let metadata = fs::symlink_metadata(up.dir.join(OsStr::from_bytes(below))).unwrap();
            assert_eq!(row["inode"], metadata.ino(), "{command}: {row}");
            assert_eq!(row["size_bytes"], metadata.size(), "{row}");
            assert_eq!(row["allocated_bytes"], metadata.blocks() * 512, "{row}");
            assert_eq!(row["mode"], format!("{:04o}", metadata.mode() & 0o7777), "{row}");
            let mtime_ns = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
            assert_eq!(row["mtime_ns"], mtime_ns, "{row}");
            let links = (row["nlink"].as_u64().unwrap(), row["uid"].as_u64().unwrap());
            assert_eq!(links, (metadata.nlink(), u64::from(metadata.uid())), "{row}");
            assert_eq!(row.get("depth").is_some(), command == "tree");
        }
    }
    let link = &rows(&fixture, &["stat", &up.url("/dir/link")])[0];
    assert_eq!((&link["type"], &link["name"]), (&"symlink".into(), &"link".into()));
    assert_eq!(link["target"], "not \u{fffd} utf8");
    assert_eq!(hex::decode(link["target_hex"].as_str().unwrap()).unwrap(), odd.as_bytes());
    let names = |all: &[&str]| {
        let found = rows(&fixture, &[&["ls"], all, &[&up.url("/")]].concat());
        found.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<String>>()
    };
    assert_eq!(
        (names(&[]), names(&["-a"])),
        (vec!["dir".into()], vec![".".into(), "..".into(), "dir".into()])
    );
    let sums = rows(&fixture, &["du", "-a", &up.url("/dir")]);
    assert_eq!(sums.len(), 4);
    assert_eq!(sums[3]["size_bytes"], 5 + odd.len());
    let space = &rows(&fixture, &["df", &up.url("/")])[0];
    let there = rustix::fs::statvfs(&up.dir).unwrap();
    assert_eq!(space["total_bytes"], there.f_blocks * there.f_frsize);
    up.stop();
}

/// The commands that `lanefs --help` shows.
fn commands() -> Vec<String> {
    let help = must(Command::new(binary()).arg("--help"));
    let shown = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    // What goes on in a second line stands further to the right.
    let lines = shown.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    let names: Vec<String> = names.filter(|name| *name != "help").map(str::to_owned).collect();
    assert!(names.len() >= 20 && names.contains(&"find".to_owned()), "{names:?}");
    names
}

#[test]
fn every_command_has_a_page_and_examples() {
    let below = [
        "bench-versus",
        "cert-ca",
        "cert-server",
        "cert-client",
        "cluster-init",
        "cluster-status",
        "cluster-token",
        "export-add",
        "export-list",
        "export-remove",
        "export-secret",
        "layout-check",
        "layout-get",
        "layout-set",
        "secret-retire",
        "secret-rotate",
        "secret-show",
    ];
    let folder = tempfile::tempdir().unwrap();
    must(Command::new(binary()).arg("man").arg("--dir").arg(folder.path()));
    let without_examples = ["up", "serve", "mount", "umount", "bench"];
    for name in commands() {
        let page = fs::read_to_string(folder.path().join(format!("lanefs-{name}.1"))).unwrap();
        let alone = must(Command::new(binary()).arg("man").arg(&name));
        assert_eq!(page, alone, "{name}");
        assert!(
            page.contains(&format!("lanefs\\-{name}")) && page.contains(".SH EXIT CODES\n"),
            "{name}"
        );
        assert_eq!(!page.contains(".SH EXAMPLES\n"), without_examples.contains(&&*name), "{name}");
    }
    for name in below {
        let page = fs::read_to_string(folder.path().join(format!("lanefs-{name}.1"))).unwrap();
        assert_eq!(page, must(Command::new(binary()).args(["man", name])));
    }
    let page_count = fs::read_dir(folder.path()).unwrap().count();
    let expected_count = commands().len() + below.len() + 1;
    assert_eq!(page_count, expected_count, "and lanefs.1, and no hidden one");
    let wrong = run(Command::new(binary()).args(["man", "nothing"]));
    assert_eq!(wrong.status.code(), Some(2));
}

fn bash(script: &str, completions: &Path) -> String {
    must(program("bash").args(["--norc", "-c", script, "bash"]).arg(completions))
}

#[test]
fn bash_loads_the_completions_and_completes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lanefs.bash");
    fs::write(&file, must(Command::new(binary()).args(["completions", "bash"]))).unwrap();
    bash("bash -n \"$1\"", &file);
    assert!(bash("source \"$1\" && complete -p lanefs", &file).contains("lanefs"));
    let complete = "source \"$1\"; COMP_WORDS=(lanefs TYPED); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _lanefs lanefs \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let offered = |typed: &str| bash(&complete.replace("TYPED", typed), &file);
    assert_eq!(offered("fin"), "find\n");
    assert_eq!(offered("find --ma"), "--maxdepth\n");
    for hidden in ["bench-", "serve --fau", "up --in-b"] {
        assert_eq!(offered(hidden), "\n", "{hidden} is nothing for people");
    }
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let script = must(Command::new(binary()).args(["completions", shell]));
        assert!(script.contains("lanefs") && script.contains("find"), "{shell}");
    }
}

#[test]
fn a_closed_pipe_ends_every_command_quietly() {
    let Some(fixture) = Fixture::new("pipes") else { return };
    let up = fixture.up(&[]);
    for number in 0..2000 {
        fs::write(up.dir.join(format!("{number:0>200}")), "").unwrap();
    }
    let url = up.url("/");
    let access = "--export up";
    for command in [
        format!("find {access} {url}"),
        format!("tree {access} {url}"),
        format!("du -a {access} {url}"),
        format!("ls --json {access} {url}"),
        "completions bash".to_owned(),
        "man find".to_owned(),
    ] {
        let mut shell = program("bash");
        let script = format!("\"$0\" {command} | head -c 10 >/dev/null; echo ${{PIPESTATUS[0]}}");
        shell.args(["-c", &script]).arg(binary());
        shell.env("XDG_CONFIG_HOME", fixture.path("config")).env_remove("LANEFS_SECRET_FILE");
        let (stdout, stderr) = texts(&run(&mut shell));
        assert_eq!(stderr, "", "{command}");
        // 141 is SIGPIPE; what fits into the pipe is written without noticing.
        assert!(["141\n", "0\n"].contains(&&*stdout), "{command}: {stdout}");
    }
    up.stop();
}

#[test]
fn ctrl_c_ends_a_command_without_a_reply() {
    let Some(fixture) = Fixture::new("ctrl_c") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let url = format!("lanefs://{}/", server.address);
    server.process.signal(Signal::STOP);
    let mut find = fixture.lanefs(["find", "--connect-timeout", "1h", &url]);
    let mut find = Process::start(find.stdin(Stdio::null()));
    find.signal(Signal::INT);
    assert_eq!(find.end().signal(), Some(Signal::INT.as_raw()));
    assert_eq!(find.said(), "");
    server.process.signal(Signal::CONT);
}
