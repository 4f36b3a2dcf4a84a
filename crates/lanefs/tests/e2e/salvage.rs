//! A store whose file of rows is damaged: a start names the command, a check says what is lost, a repair goes on
//! with the rest, and the store is served again.

use crate::fixture::{Fixture, Process, Server, failure, must, program, run, texts};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};

const FILE_COUNT: usize = 120;
const PAGE_BYTES: usize = 4096;
/// Nobody of before comes back.
const ALONE: [&str; 6] = ["--recovery-soft", "1ms", "--recovery-hard", "1s", "--leases", "off"];

fn stop(mut process: Process, signal: Signal) {
    process.signal(signal);
    process.end();
}

fn path_of(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("d{}/file{index}", index % 3))
}

fn make(dir: &Path, range: std::ops::Range<usize>) {
    for index in range {
        let path = path_of(dir, index);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, index.to_string()).unwrap();
    }
    must(program("sync").arg("-f").arg(dir));
    fs::File::open(dir.join("d0")).unwrap().sync_all().unwrap();
}

/// A store of a second boot, so that its logs do not go back to its making; ended by a signal.
fn served_twice(fixture: &Fixture, end: Signal) -> PathBuf {
    let Server { process, address, .. } = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&address, "mnt", &["--export", "up"]);
    make(&mount.dir, 0..FILE_COUNT / 2);
    mount.stop();
    stop(process, Signal::TERM);
    let Server { process, address, .. } = fixture.serve_with("127.0.0.1:0", &ALONE);
    let mount = fixture.mount(&address, "again", &["--export", "up"]);
    make(&mount.dir, FILE_COUNT / 2..FILE_COUNT);
    mount.stop();
    stop(process, end);
    fixture.path("store")
}

fn rows(store: &Path) -> PathBuf {
    store.join("rows/data.mdb")
}

/// `lanefs check --json`; its exit code, and kind, whether it was mended and the text of each finding.
fn check(fixture: &Fixture, store: &Path, more: &[&str]) -> (i32, Vec<(String, bool, String)>) {
    let output = run(fixture.lanefs(["check", "--json"]).arg(store).args(more));
    let (stdout, stderr) = texts(&output);
    let rows = stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let findings = rows.filter(|row| row["type"] == "finding").map(|row| {
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        assert_eq!(row["file"], "rows/data.mdb", "{row}");
        (text("kind"), row["mended"].as_bool().unwrap(), text("what"))
    });
    let findings = findings.collect();
    (output.status.code().unwrap_or_else(|| panic!("{stderr}")), findings)
}

fn kinds(findings: &[(String, bool, String)]) -> Vec<(&str, bool)> {
    findings.iter().map(|(kind, mended, _)| (kind.as_str(), *mended)).collect()
}

/// What a start says that refuses.
fn refusal(fixture: &Fixture, store: &Path) -> String {
    let mut serve = fixture.lanefs(["serve", "--listen", "127.0.0.1:0", "--store"]);
    let (code, said) = failure(&run(serve.arg(store)));
    assert_eq!(code, 1, "{said}");
    said
}

/// How many files there are; each has its contents.
fn served_count(fixture: &Fixture, name: &str) -> usize {
    let Server { process, address, .. } = fixture.serve_with("127.0.0.1:0", &ALONE);
    let mount = fixture.mount(&address, name, &["--export", "up"]);
    let mut count = 0;
    for index in 0..FILE_COUNT {
        match fs::read_to_string(path_of(&mount.dir, index)) {
            Ok(text) => {
                assert_eq!(text, index.to_string());
                count += 1;
            }
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{index}"),
        }
    }
    // What is there can be added to.
    fs::create_dir(mount.dir.join("more")).unwrap();
    mount.stop();
    stop(process, Signal::TERM);
    count
}

#[test]
fn unreadable_rows_are_reported_and_a_repair_continues_with_the_rest() {
    let Some(fixture) = Fixture::new("salvage") else { return };
    let store = served_twice(&fixture, Signal::TERM);
    let good = fs::read(rows(&store)).unwrap();
    // A bit of a row that is in use, of a name or its place in a listing: what is lost with it can be made anew.
    let bad = (2..good.len() / PAGE_BYTES).find_map(|page_no| {
        let mut bad = good.clone();
        bad[page_no * PAGE_BYTES + PAGE_BYTES - 20] ^= 4;
        fs::write(rows(&store), &bad).unwrap();
        let damaged = store::damaged_rows(&store).unwrap()?;
        let [lost] = damaged.lost.as_slice() else { return None };
        // The rows before and after are names of one directory that is not the root.
        let place = |key: &Option<Vec<u8>>| key.as_deref()?.first_chunk::<9>().copied();
        let [table, dir @ ..] =
            place(&lost.from).filter(|from| place(&lost.until) == Some(*from))?;
        let is_name = matches!(table, 2 | 3) && u64::from_be_bytes(dir) != 1;
        (is_name && lost.row_count == Some(1)).then_some(bad)
    });
    let bad = bad.unwrap();

    let said = refusal(&fixture, &store);
    for part in ["rows/data.mdb is damaged", "lanefs check ", " --repair`", "`lanefs restore`"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (code, findings) = check(&fixture, &store, &[]);
    assert_eq!(code, 8, "{findings:?}");
    assert_eq!(kinds(&findings), [("rows-damage", false), ("rows-lost", false)]);
    assert!(findings[0].2.contains("rows can be read"), "{findings:?}");
    assert!(findings[1].2.contains("1 row of "), "{findings:?}");
    assert!(fs::read(rows(&store)).unwrap() == bad, "a check changes nothing");

    let output = run(fixture.lanefs(["check", "--repair"]).arg(&store));
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(8), "{stdout}{stderr}");
    assert!(stdout.contains("mended: rows-damage: rows/data.mdb"), "{stdout}");
    assert!(stdout.contains("damage: rows-lost: rows/data.mdb"), "{stdout}");
    let aside: Vec<PathBuf> =
        fs::read_dir(store.join("quarantine")).unwrap().map(|it| it.unwrap().path()).collect();
    assert!(aside.iter().any(|path| fs::read(path).is_ok_and(|bytes| bytes == bad)), "{aside:?}");
    assert_eq!(check(&fixture, &store, &[]), (0, Vec::new()));
    assert!(served_count(&fixture, "after") >= FILE_COUNT - 1);
}

#[test]
fn rows_without_meta_pages_lose_nothing_that_was_durable() {
    let Some(fixture) = Fixture::new("salvage_metas") else { return };
    let store = served_twice(&fixture, Signal::KILL);
    let mut bytes = fs::read(rows(&store)).unwrap();
    bytes[..2 * PAGE_BYTES].fill(0);
    fs::write(rows(&store), &bytes).unwrap();
    let (code, findings) = check(&fixture, &store, &[]);
    assert_eq!(code, 8, "{findings:?}");
    // Nothing says any more which state was the newest.
    assert_eq!(kinds(&findings), [("rows-damage", false), ("rows-older", false)]);
    let (code, findings) = check(&fixture, &store, &["--repair"]);
    assert_eq!(code, 8, "{findings:?}");
    assert_eq!(kinds(&findings), [("rows-damage", true), ("rows-older", false)]);
    assert_eq!(check(&fixture, &store, &[]), (0, Vec::new()));
    assert_eq!(served_count(&fixture, "after"), FILE_COUNT);
}

#[test]
fn a_salvage_that_is_killed_is_done_again() {
    let Some(fixture) = Fixture::new("salvage_killed") else { return };
    let store = served_twice(&fixture, Signal::KILL);
    let mut bytes = fs::read(rows(&store)).unwrap();
    // The magic number of a meta page: the other one has all that the logs go on from.
    bytes[16] ^= 1;
    let copied = fixture.path("copy");
    for kill_at in 1.. {
        if copied.exists() {
            fs::remove_dir_all(&copied).unwrap();
        }
        must(program("cp").arg("-a").arg(&store).arg(&copied));
        fs::write(rows(&copied), &bytes).unwrap();
        let mut repair =
            fixture.lanefs(["check", "--repair", "--kill-after", &kill_at.to_string()]);
        let output = run(repair.arg(&copied));
        if let Some(code) = output.status.code() {
            assert_eq!(code, 6, "not killed: {:?}", texts(&output));
            assert!(kill_at > 3, "a salvage has more steps than {kill_at}");
            break;
        }
        let (code, findings) = check(&fixture, &copied, &["--repair"]);
        assert!([0, 6].contains(&code), "killed at {kill_at}: {code}, {findings:?}");
        assert_eq!(check(&fixture, &copied, &[]), (0, Vec::new()), "killed at {kill_at}");
    }
}

#[test]
fn rows_that_the_logs_have_as_a_whole_are_made_anew() {
    let Some(fixture) = Fixture::new("salvage_logs") else { return };
    let Server { process, address, .. } = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&address, "mnt", &["--export", "up"]);
    make(&mount.dir, 0..FILE_COUNT);
    mount.stop();
    stop(process, Signal::KILL);
    let store = fixture.path("store");
    fs::remove_file(rows(&store)).unwrap();
    let (code, findings) = check(&fixture, &store, &[]);
    assert_eq!((code, kinds(&findings)), (7, vec![("rows-damage", false)]), "{findings:?}");
    let (code, findings) = check(&fixture, &store, &["--repair"]);
    assert_eq!((code, kinds(&findings)), (6, vec![("rows-damage", true)]), "{findings:?}");
    assert_eq!(served_count(&fixture, "after"), FILE_COUNT);
}

#[test]
fn every_start_that_damage_keeps_from_serving_ends_with_what_to_do() {
    let Some(fixture) = Fixture::new("salvage_refused") else { return };
    let store = served_twice(&fixture, Signal::KILL);
    let logs = fs::read_dir(store.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let log = logs.max().unwrap();
    let copied = fixture.path("copy");
    let part = |name: &str| copied.join(name);
    let log = copied.join(log.strip_prefix(&store).unwrap());
    let flip = |path: &Path, at: usize| {
        let mut bytes = fs::read(path).unwrap();
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    type Damage<'a> = (&'a str, &'a dyn Fn(), &'a [&'a str]);
    let (check, backup) = ("`lanefs check ", "`lanefs restore` makes a new store of a backup");
    let damages: [Damage; 7] = [
        ("rows", &|| flip(&part("rows/data.mdb"), 16), &[check, " --repair`", backup]),
        ("no rows", &|| fs::remove_file(part("rows/data.mdb")).unwrap(), &[backup]),
        ("a log", &|| flip(&log, 9), &[check, backup]),
        ("no log", &|| fs::remove_file(&log).unwrap(), &[check, backup]),
        ("the superblock", &|| flip(&part("superblock"), 30), &[check, backup]),
        ("the file system's key", &|| flip(&part("fs-key"), 40), &[check, backup]),
        ("no key of the file system", &|| fs::remove_file(part("fs-key")).unwrap(), &[backup]),
    ];
    for (what, damage, wanted) in damages {
        if copied.exists() {
            fs::remove_dir_all(&copied).unwrap();
        }
        must(program("cp").arg("-a").arg(&store).arg(&copied));
        damage();
        let said = refusal(&fixture, &copied);
        for part in wanted {
            assert!(said.contains(part), "{what}: {part}: {said}");
        }
        // And that command finds it.
        let output = run(fixture.lanefs(["check"]).arg(&copied));
        let (stdout, stderr) = texts(&output);
        assert!([7, 8].contains(&output.status.code().unwrap()), "{what}: {stdout}{stderr}");
    }
}
