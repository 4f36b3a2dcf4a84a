//! `lanefs find`, `tree` and `du`, held against GNU's of the same tree on a mount.

use crate::fixture::{Fixture, Up, failure, must, program, roll, texts};
use crate::random_comparison::Prng;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Directories on several shards, names of all sorts, sizes and ages.
fn furnish(root: &Path) {
    for dir in ["a", "b", "a/deep", "a/deep/er", "b/.hidden", "b/[set]", "b/void"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for (name, size_bytes) in [
        ("a/one.c", 0),
        ("a/two.h", 1),
        ("a/deep/three.c", 1024),
        ("a/deep/er/four.C", 1025),
        ("b/five.c", 70_000),
        ("b/.hidden/six.c", 3),
        ("b/[set]/a*b", 2),
        ("b/\u{e4}.c", 5),
        ("b/\u{1f980}", 6),
        ("new\nline", 7),
    ] {
        fs::write(root.join(name), vec![b'x'; size_bytes]).unwrap();
    }
    fs::write(root.join("b").join(OsStr::from_bytes(b"not \xff utf8.c")), "12345678").unwrap();
    std::os::unix::fs::symlink("../a/one.c", root.join("b/link.c")).unwrap();
    // A name whose inode lies at another directory's shard.
    fs::hard_link(root.join("a/deep/three.c"), root.join("b/other name.c")).unwrap();
    must(program("mkfifo").arg(root.join("a/fifo.c")));
    must(program("touch").args(["-d", "2001-02-03"]).arg(root.join("a/one.c")));
    must(program("touch").args(["-d", "2010-02-03 04:05:06.789"]).arg(root.join("b/five.c")));
}

/// What GNU find has, as URLs, each ended by NUL.
fn gnu(up: &Up, arguments: &[&str]) -> BTreeSet<Vec<u8>> {
    let mut find = program("find");
    find.arg(".").args(arguments).arg("-print0").current_dir(&up.dir).env("LC_ALL", "C.UTF-8");
    let output = crate::fixture::run(&mut find);
    assert!(output.status.success(), "{arguments:?}: {}", texts(&output).1);
    let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let url = |name: &[u8]| {
        let below = name.strip_prefix(b"./".as_slice()).unwrap_or(b"");
        [up.url("/").as_bytes(), below].concat()
    };
    names.map(url).collect()
}

/// What lanefs has.
fn ours(fixture: &Fixture, up: &Up, arguments: &[&str]) -> BTreeSet<Vec<u8>> {
    let fixed = ["find", "--export", "up", "-0", &up.url("/")];
    let output = fixture.run(fixed.iter().chain(arguments));
    assert!(output.status.success(), "{arguments:?}: {}", texts(&output).1);
    let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(<[u8]>::to_vec).collect()
}

#[test]
fn find_finds_what_find_finds() {
    let Some(fixture) = Fixture::new("find") else { return };
    for options in [&["--lanes", "2"][..], &["--meta-memory", "0", "--spread-depth", "0"]] {
        let up = fixture.up(options);
        if !up.dir.join("a").exists() {
            furnish(&up.dir);
        }
        // Its size is with its contents as long as it is open.
        let mut open = fs::File::create(up.dir.join("a/open")).unwrap();
        open.write_all(&[b'y'; 3000]).unwrap();
        for pattern in [
            "*",
            "*.c",
            "*.[ch]",
            "?.c",
            "?",
            "[!a-m]*",
            "\\[set]",
            "a\\**",
            "*\n*",
            "[[:alpha:]]",
            "none",
        ] {
            let both = [["-name", pattern], ["--name", pattern]];
            assert_eq!(ours(&fixture, &up, &both[1]), gnu(&up, &both[0]), "{pattern:?}");
        }
        for (ours_asked, gnu_asked) in [
            ("", ""),
            ("--type f", "-type f"),
            ("--type d", "-type d"),
            ("--type l,p", "-type l,p"),
            ("--type f --size 0", "-type f -size 0c"),
            ("--type f --size +1k", "-type f -size +1024c"),
            ("--type f --size -1k --size +1", "-type f -size -1024c -size +1c"),
            ("--name *.c --size 5", "-name *.c -size 5c"),
            ("--newer 2005-01-01", "-newermt 2005-01-01"),
            ("--newer b/five.c", "-newer b/five.c"),
            ("--mtime +30d", "-mmin +43200"),
            ("--mtime -30d --type f", "-mmin -43200 -type f"),
            ("--mtime +3650d --newer @0", "-mtime +3650"),
            ("--maxdepth 0", "-maxdepth 0"),
            ("--maxdepth 1", "-maxdepth 1"),
            ("--maxdepth 2 --name *.c", "-maxdepth 2 -name *.c"),
        ] {
            let path = up.dir.join("b/five.c");
            let asked = ours_asked.replace("b/five.c", path.to_str().unwrap());
            let asked: Vec<&str> = asked.split_whitespace().collect();
            let gnu_asked: Vec<&str> = gnu_asked.split_whitespace().collect();
            assert_eq!(ours(&fixture, &up, &asked), gnu(&up, &gnu_asked), "{ours_asked}");
        }
        let by_url = ours(&fixture, &up, &["--newer", &up.url("/b/five.c")]);
        assert_eq!(by_url, gnu(&up, &["-newer", "b/five.c"]));
        drop(open);
        up.stop();
    }
}

/// A random expression of find(1). Sizes are asked of files alone: those of directories are each system's own.
fn expression(prng: &mut Prng, depth: usize, words: &mut Vec<String>) {
    let choice = prng.below(if depth == 0 { 5 } else { 10 });
    let text = match choice {
        0 => format!("-name {}", prng.pick(&["*.c", "a*", "[!.]*", "d1", "?", "*[0-4]*"])),
        1 => format!("-type {}", prng.pick(&["f", "d", "l", "f,d", "l,p"])),
        2 => format!("-type f -size {}", prng.pick(&["+1k", "-3k", "2k", "0", "+10c"])),
        3 => prng.pick(&["-newer d0", "-newermt 2005-01-01", "-empty", "-print"]).to_owned(),
        4 => prng.pick(&["-prune", "-type d -prune", "-name d* -prune", "-empty"]).to_owned(),
        5 | 6 => {
            words.push(prng.pick(&["!", "-not"]).to_owned());
            words.push("(".to_owned());
            expression(prng, depth - 1, words);
            ")".to_owned()
        }
        _ => {
            words.push("(".to_owned());
            for no in 0..2 + prng.below(2) {
                if no > 0 {
                    words.extend(
                        prng.pick(&["-o", "-o", "-or", "-a", ""])
                            .split_whitespace()
                            .map(str::to_owned),
                    );
                }
                expression(prng, depth - 1, words);
            }
            ")".to_owned()
        }
    };
    words.extend(text.split(' ').map(str::to_owned));
}

/// The words of `expression` with each test negated twice, which GNU find does not move to the front. Its release
/// 4.9.0 moves `-type l` before `( ( -print -o A ) -o B )`, which then prints too little.
fn in_written_order(expression: &[String]) -> Vec<&str> {
    let mut words = Vec::new();
    for word in expression {
        if ["-name", "-type"].contains(&word.as_str()) {
            words.extend(["!", "!"]);
        }
        words.push(word);
    }
    words
}

/// A random tree, and random expressions; how often a path is printed counts.
#[test]
fn random_expressions_find_what_find_finds() {
    let Some(fixture) = Fixture::new("find_random") else { return };
    let up = fixture.up(&["--lanes", "2"]);
    let mut prng = Prng::new(roll());
    // Its name is the same for both.
    let top = up.dir.join("top");
    fs::create_dir(&top).unwrap();
    let mut dirs = vec![top.clone()];
    for no in 0..60 {
        let dir = dirs[prng.below(dirs.len())].clone();
        match prng.below(8) {
            0..3 => {
                dirs.push(dir.join(format!("d{no}")));
                fs::create_dir(dirs.last().unwrap()).unwrap();
            }
            3 => std::os::unix::fs::symlink("x", dir.join(format!("l{no}.c"))).unwrap(),
            4 => drop(must(program("mkfifo").arg(dir.join(format!("p{no}"))))),
            _ => {
                let file = dir.join(format!("{}{no}.c", prng.pick(&["a", "b", "."])));
                fs::write(&file, vec![1; prng.below(4) * 1000]).unwrap();
                if prng.below(3) == 0 {
                    must(program("touch").args(["-d", "2001-02-03"]).arg(&file));
                }
            }
        }
    }
    fs::create_dir_all(top.join("d0")).unwrap();
    let newer = top.join("d0").to_str().unwrap().to_owned();
    let sorted = |output: Vec<u8>, prefix: &str| {
        let paths = String::from_utf8(output).unwrap();
        let below = |path: &str| path.strip_prefix(prefix).unwrap().to_owned();
        let mut paths: Vec<String> = paths.lines().map(below).collect();
        paths.sort_unstable();
        paths
    };
    let mut found_count = 0;
    for _ in 0..60 {
        let mut words = Vec::new();
        if prng.below(4) == 0 {
            let (option, levels) = (prng.pick(&["-mindepth", "-maxdepth"]), prng.below(3));
            words.extend([option.to_owned(), levels.to_string()]);
        }
        expression(&mut prng, 3, &mut words);
        words.iter_mut().filter(|word| *word == "d0").for_each(|word| word.clone_from(&newer));
        let gnu = crate::fixture::run(
            program("find").arg("top").args(in_written_order(&words)).current_dir(&up.dir),
        );
        assert!(gnu.status.success(), "{words:?}: {}", texts(&gnu).1);
        let fixed = ["find", "--export", "up", &up.url("/top")].map(str::to_owned);
        let ours = fixture.run(fixed.iter().chain(&words));
        assert!(ours.status.success(), "{words:?}: {}", texts(&ours).1);
        let ours = sorted(ours.stdout, &up.url("/"));
        assert_eq!(ours, sorted(gnu.stdout, ""), "{}", words.join(" "));
        found_count += ours.len();
    }
    assert!(found_count > 60, "{found_count}");
    up.stop();
}

/// The same words have the same meaning.
#[test]
fn words_of_find_find_what_find_finds() {
    let Some(fixture) = Fixture::new("find_words") else { return };
    let up = fixture.up(&["--lanes", "2"]);
    furnish(&up.dir);
    let mut open = fs::File::create(up.dir.join("a/open")).unwrap();
    open.write_all(&[b'y'; 3000]).unwrap();
    // Half a minute from where -mmin cuts, so that no slow run changes the answer.
    must(program("touch").args(["-d", "90 seconds ago"]).arg(up.dir.join("a/two.h")));
    must(program("touch").args(["-d", "36 hours ago"]).arg(up.dir.join("a/deep/three.c")));
    for words in [
        "-name *.c",
        "-type f,l",
        "-type d -a -not -name *e*",
        "-type f -size +1k",
        "-type f -size -1k",
        "-type f -size -2",
        "-type f -size 1k",
        "-type f -size 2",
        "-type f -size +1024c",
        "-type f -size 3w",
        "-type f -size 0",
        "-type f ! -size +1k",
        "-mtime +3650",
        "-type f -mtime -1",
        "-type f -mtime 1",
        "-type f -mmin +1000",
        "-newer b/five.c",
        "-type f ! -newer b/five.c",
        "-newermt 2005-01-01",
        "-empty",
        "! -empty",
        "-empty -type d",
        "-empty -name *.c",
        "-name a* -name *.c",
        "! ! -type d",
        "! -type d ! -name *.c",
        "-mindepth 1",
        "-mindepth 2 -name *.c",
        "-mindepth 1 -maxdepth 2 -type d",
        "-maxdepth 0 -empty",
        "-type f ( -name *.c -o -name *.h ) ! -name one*",
        "! ( -type f -o -type l )",
    ] {
        let words: Vec<&str> = words.split_whitespace().collect();
        let path = up.dir.join("b/five.c");
        let here = |word: &&str| word.replace("b/five.c", path.to_str().unwrap());
        let asked: Vec<String> = words.iter().map(here).collect();
        let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
        assert_eq!(ours(&fixture, &up, &asked), gnu(&up, &words), "{words:?}");
    }
    // Both spellings in one line; ours does not round.
    assert_eq!(
        ours(&fixture, &up, &["--size", "+1k", "-type", "f"]),
        gnu(&up, &["-type", "f", "-size", "+1024c"])
    );
    assert_eq!(
        ours(&fixture, &up, &["--empty", "--mindepth", "1"]),
        gnu(&up, &["-mindepth", "1", "-empty"])
    );
    assert_eq!(
        ours(&fixture, &up, &["-newer", &up.url("/b/five.c")]),
        gnu(&up, &["-newer", "b/five.c"])
    );
    // A symbolic link itself, not what it leads to.
    let of_link = gnu(&up, &["-newer", "b/link.c"]);
    assert_eq!(ours(&fixture, &up, &["-newer", &up.url("/b/link.c")]), of_link);
    assert_eq!(
        ours(&fixture, &up, &["-newer", up.dir.join("b/link.c").to_str().unwrap()]),
        of_link
    );
    let lines = fixture.run(["find", "--export", "up", &up.url("/"), "-name", "*.c", "-print"]);
    assert_eq!(texts(&lines).0.lines().count(), gnu(&up, &["-name", "*.c"]).len());
    drop(open);
    up.stop();
}

#[test]
fn find_goes_through_directories_of_any_size() {
    let Some(fixture) = Fixture::new("find_many") else { return };
    let up = fixture.up(&[]);
    let many = up.dir.join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..5000 {
        fs::write(many.join(format!("file {number}")), "").unwrap();
    }
    assert_eq!(ours(&fixture, &up, &["--name", "file 4999"]).len(), 1);
    assert_eq!(ours(&fixture, &up, &["--name", "file *", "--size", "0"]).len(), 5000);
    assert_eq!(ours(&fixture, &up, &["--name", "file *", "--size", "+0"]).len(), 0);
    up.stop();
}

#[test]
fn what_is_found_can_be_named_whatever_its_bytes() {
    let Some(fixture) = Fixture::new("find_names") else { return };
    let up = fixture.up(&[]);
    furnish(&up.dir);
    let mut shell = program("sh");
    let script = "\"$0\" find --export up -0 \"$1\" --type f,l | xargs -0 \"$0\" rm --export up";
    shell.args(["-c", script]).arg(crate::fixture::binary()).arg(up.url("/"));
    shell.env("XDG_CONFIG_HOME", fixture.path("config")).env_remove("LANEFS_SECRET_FILE");
    must(&mut shell);
    let left = gnu(&up, &["!", "-type", "d"]);
    assert_eq!(left, BTreeSet::from([up.url("/a/fifo.c").into_bytes()]));
    up.stop();
}

#[test]
fn find_asks_for_the_permissions_of_every_directory() {
    let Some(fixture) = Fixture::new("find_rights") else { return };
    let up = fixture.up(&[]);
    for (name, mode) in [("open", 0o755), ("unread", 0o711), ("unsearched", 0o744)] {
        let dir = up.dir.join(name);
        fs::create_dir_all(dir.join("below")).unwrap();
        fs::write(dir.join("file"), "x").unwrap();
        fs::write(dir.join("below/file"), "x").unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
    }
    // Root is nobody on an export that was defined without --squash none.
    let default = fixture.run(["export", "add", &up.address, "default", "/"]);
    assert!(default.status.success(), "{:?}", texts(&default));
    let found = fixture.run(["find", &up.url("/"), "--name", "file"]);
    let (stdout, stderr) = texts(&found);
    let lines: BTreeSet<String> =
        stdout.lines().map(|line| line.replace(&up.url("/"), "")).collect();
    let expected = ["open/below/file", "open/file", "unsearched/file"].map(str::to_owned);
    assert_eq!(lines, BTreeSet::from(expected));
    assert_eq!(found.status.code(), Some(1));
    for denied in ["cannot look into '%/unread': ", "cannot look into '%/unsearched/below': "] {
        let denied = denied.replace("%/", &up.url("/"));
        assert!(stderr.contains(&(denied + "permission denied")), "{stderr}");
    }
    // What needs attributes is not judged where nobody may look at them.
    let found = fixture.run(["find", &up.url("/unsearched"), "--size", "1"]);
    let (stdout, stderr) = texts(&found);
    assert_eq!(stdout, "");
    assert!(stderr.contains("/unsearched/file': permission denied"), "{stderr}");
    let found = fixture.run(["find", "--json", &up.url("/unsearched"), "--name", "file"]);
    let (stdout, stderr) = texts(&found);
    assert_eq!(stdout, "");
    assert!(stderr.contains("/unsearched/file': permission denied"), "{stderr}");
    up.stop();
}

#[test]
fn find_reports_unreadable_directories() {
    let Some(fixture) = Fixture::new("find_wrong") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let url = format!("lanefs://{}/", server.address);
    for (wrong, code, says) in [
        (vec!["find"], 2, "URL"),
        (vec!["find", "/tmp"], 2, "is no lanefs://HOST:PORT/path"),
        (vec!["find", &url, "--size", "x"], 2, "as +10M, -4k or 0"),
        (vec!["find", &url, "--size", "-0"], 2, "nothing is smaller than 0 bytes"),
        (vec!["find", &url, "--mtime", "7"], 2, "as +30d or -12h"),
        (vec!["find", &url, "--type", "x"], 2, "--type"),
        (vec!["find", &url, "--name", ""], 2, "a pattern has a byte at least"),
        (vec!["find", &url, "--newer", "yesterday"], 1, "neither a time nor a file"),
        (vec!["find", &url, "-perm", "644"], 2, "there is no -perm here; of find(1)'s words"),
        (vec!["find", &url, "-name", "a", "-o"], 2, "-a or -o stands before no test"),
        (vec!["find", &url, "(", "-name", "a"], 2, "( has no )"),
        (vec!["find", &url, "-name", ""], 2, "a pattern has a byte at least"),
        (vec!["find", &url, "-size", "1.5M"], 2, "'1.5M' is no size of find(1)"),
        (vec!["find", &url, "-newermt", "yesterday"], 2, "no time, as 2026-01-31"),
        (vec!["find", &url, "-newer", "nothing here"], 1, "no such file"),
        (vec!["find", &format!("{url}none")], 1, "no such file or directory"),
        (vec!["tree", &format!("{url}none")], 1, "no such file or directory"),
        (vec!["du", &format!("{url}none")], 1, "no such file or directory"),
        (vec!["find", "lanefs://127.0.0.1:1", "--connect-timeout", "1s"], 3, "no lanefs server"),
        (vec!["tree", "lanefs://127.0.0.1:1", "--connect-timeout", "1s"], 3, "no lanefs server"),
    ] {
        let (found, stderr) = failure(&fixture.run(&wrong));
        assert_eq!(found, code, "{wrong:?}: {stderr}");
        assert!(stderr.contains(says), "{wrong:?}: {stderr}");
    }
    let long = "x".repeat(256);
    let (code, stderr) = failure(&fixture.run(["find", &url, "--name", &long]));
    assert_eq!((code, stderr.contains("255 bytes at most")), (2, true), "{stderr}");
    // Which secret it is does not matter, as long as it is another.
    let other = fixture.path("other");
    fs::write(&other, "00".repeat(32)).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
    let output = fixture.run(["find", &url, "--secret-file", other.to_str().unwrap()]);
    assert_eq!(failure(&output).0, 4, "{}", texts(&output).1);
}

#[test]
fn tree_draws_what_is_there() {
    let Some(fixture) = Fixture::new("tree") else { return };
    let up = fixture.up(&[]);
    fs::create_dir_all(up.dir.join("b/c/d")).unwrap();
    fs::write(up.dir.join("a"), "").unwrap();
    fs::write(up.dir.join("b/c/.e"), "").unwrap();
    std::os::unix::fs::symlink("../a", up.dir.join("b/z")).unwrap();
    let tree = |more: &[&str]| {
        let output = fixture.run(["tree", "--export", "up", &up.url("/")].iter().chain(more));
        assert!(output.status.success());
        texts(&output).0.replace(&up.url("/"), "URL")
    };
    let drawn = "URL\n├── a\n└── b\n    ├── c\n    │   └── d\n    └── z -> ../a\n\
                 \n3 directories, 2 files\n";
    assert_eq!(tree(&[]), drawn);
    assert!(tree(&["-a"]).contains("    │   ├── .e\n    │   └── d\n"));
    assert_eq!(tree(&["-d", "-L", "2"]), "URL\n└── b\n    └── c\n\n2 directories\n");
    up.stop();
}

#[test]
fn du_counts_what_du_counts() {
    let Some(fixture) = Fixture::new("du") else { return };
    let up = fixture.up(&[]);
    furnish(&up.dir);
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<String>>();
    // A file with several names counts where it is met first, which may differ between the two.
    fs::remove_file(up.dir.join("b/other name.c")).unwrap();
    for options in [&[][..], &["-a"], &["-s"], &["-d", "1"], &["-h"]] {
        let mut gnu = program("du");
        gnu.args(options).arg(".").current_dir(&up.dir);
        let gnu = must(&mut gnu).replace("\t./", "\t/").replace("\t.", "\t/");
        let ours = fixture.run(["du", "--export", "up", &up.url("/")].iter().chain(options));
        assert!(ours.status.success());
        let ours = texts(&ours).0.replace(&up.url("/"), "/");
        assert_eq!(lines(&ours), lines(&gnu), "{options:?}");
    }
    fs::hard_link(up.dir.join("b/five.c"), up.dir.join("again")).unwrap();
    let sum = |path: &str| {
        let output = fixture.run(["du", "-s", "--apparent-size", "--export", "up", &up.url(path)]);
        texts(&output).0.split('\t').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(sum("/again"), 69);
    assert_eq!(sum("/"), 71, "once under both of its names");
    up.stop();
}
