//! What commands say of what they do fits a terminal of 80 columns, whatever the names of files are.

use crate::fixture::{Fixture, Process, binary, must, program};
use std::fs;

const COLUMNS: usize = 80;

#[track_caller]
fn fits(what: &str, text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= COLUMNS, "{what}: {line}");
    }
}

#[test]
fn status_lines_fit_80_columns() {
    let Some(fixture) = Fixture::new("lines") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    for (what, said) in [("serve", server.process.said()), ("mount", mount.process.said())] {
        fits(what, &said.replace(mount.dir.to_str().unwrap(), "/mnt"));
    }
    fs::create_dir(mount.dir.join("dir")).unwrap();
    fs::write(mount.dir.join("dir/file"), vec![b'x'; 3 << 20]).unwrap();
    std::os::unix::fs::symlink("file", mount.dir.join("dir/link")).unwrap();
    let url = format!("lanefs://{}/", server.address);
    for command in ["ls -la", "stat", "df", "df -h", "du -a", "tree", "find"] {
        let words: Vec<&str> = command.split(' ').collect();
        let (name, options) = words.split_first().unwrap();
        let mut line = fixture.lanefs([name]);
        line.args(options).args(["--export", "up", &url]);
        fits(command, &must(&mut line));
    }
    let guests = ["export", "add", &server.address, "guests", "/dir", "--squash", "all"];
    must(&mut fixture.lanefs(guests));
    fits("export list", &must(&mut fixture.lanefs(["export", "list", &server.address])));
    mount.stop();
}

/// What is drawn on a terminal while bytes are awaited.
#[test]
fn the_progress_of_a_copy_fits_80_columns() {
    let Some(fixture) = Fixture::new("lines_progress") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let long = "x".repeat(200);
    let input = fixture.path("input");
    must(program("mkfifo").arg(&input));
    // Lines are ended where the cursor goes back, so that each drawing is a line.
    let script = format!(
        "stty cols {COLUMNS}; '{}' cp --export up - 'lanefs://{}/{long}' < '{}'",
        binary().to_str().unwrap(),
        server.address,
        input.display()
    );
    let mut shell = program("sh");
    shell.args(["-c", "script -qefc \"$0\" /dev/null | stdbuf -o0 tr '\\r' '\\n'", &script]);
    shell.env("XDG_CONFIG_HOME", fixture.path("config")).env_remove("LANEFS_SECRET_FILE");
    shell.env("TERM", "xterm");
    let mut copy = Process::start(&mut shell);
    let mut bytes = fs::File::options().write(true).open(&input).unwrap();
    std::io::Write::write_all(&mut bytes, b"some").unwrap();
    let drawn = copy.line_with("4 B/4 B");
    drop(bytes);
    assert!(copy.end().success(), "{}", copy.said());
    let shown = without_escapes(&drawn);
    assert!(shown.contains("lanefs://") && shown.chars().count() <= COLUMNS, "{shown:?}");
    for line in copy.said().lines() {
        let shown = without_escapes(line);
        assert!(shown.chars().count() <= COLUMNS, "{shown:?}");
    }
}

/// A line without what moves the cursor.
fn without_escapes(line: &str) -> String {
    let mut shown = String::new();
    let mut chars = line.chars();
    while let Some(next) = chars.next() {
        if next == '\u{1b}' {
            // ESC [ and numbers, ended by an alphabetic character.
            let _moved = chars.find(char::is_ascii_alphabetic);
        } else {
            shown.push(next);
        }
    }
    shown
}
