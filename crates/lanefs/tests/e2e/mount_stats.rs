//! `lanefs stats` of a mount: it agrees with a load of known size and with the server, and is asked by its user
//! alone.

use crate::fixture::{Fixture, Mount, failure, kill, must, program, run, wrap};
use crate::mount_namespace::USER;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// How often each operation is executed.
const COUNT: u64 = 150;
/// What one reads or writes.
const BLOCK_BYTES: usize = 4096;

/// The rows of `lanefs stats --json`.
fn rows(fixture: &Fixture, target: &str, by: &str) -> Vec<Value> {
    let said = must(&mut fixture.lanefs(["stats", "--json", target, "--by", by]));
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A number of an operation, 0 if it was not used.
fn number(rows: &[Value], (by, op): (&str, &str), pointer: &str) -> u64 {
    let row = rows.iter().find(|row| row["by"] == by && row["op"] == op);
    row.map_or(0, |row| row.pointer(pointer).and_then(Value::as_u64).unwrap_or_default())
}

/// How many requests of an operation a mount has made.
pub(crate) fn exchange_count(fixture: &Fixture, mount: &Mount, op: &str) -> u64 {
    let rows = rows(fixture, target_of(mount), "exchange");
    number(&rows, ("exchange", op), "/requests")
}

/// How many requests of the kernel of a kind a mount has answered, and how many of these without waiting
/// for the server.
pub(crate) fn answered_count(fixture: &Fixture, mount: &Mount, op: &str) -> (u64, u64) {
    let rows = rows(fixture, target_of(mount), "op");
    let count = |pointer| number(&rows, ("op", op), pointer);
    (count("/requests"), count("/answered_alone"))
}

/// What all lanes of a mount have counted.
pub(crate) fn total_of(fixture: &Fixture, mount: &Mount) -> Value {
    total(&rows(fixture, target_of(mount), "lane")).clone()
}

/// The row of all lanes.
fn total(rows: &[Value]) -> &Value {
    let found = rows.iter().find(|row| row["by"] == "lane" && row["lane"].is_null());
    found.unwrap_or_else(|| panic!("{rows:?}"))
}

fn target_of(mount: &Mount) -> &str {
    mount.dir.to_str().unwrap()
}

fn socket(fixture: &Fixture, pid: u32) -> PathBuf {
    fixture.running_dir().join(format!("{pid}.sock"))
}

/// Without leases each of these is one request of the kernel.
fn load(dir: &Path) {
    let file = File::options().read(true).write(true).open(dir.join("file")).unwrap();
    let mut block = vec![7; BLOCK_BYTES];
    for number in 0..COUNT {
        let at = number * BLOCK_BYTES as u64;
        file.write_all_at(&block, at).unwrap();
        file.read_exact_at(&mut block, at).unwrap();
        rustix::fs::fstat(&file).unwrap();
        fs::create_dir(dir.join(number.to_string())).unwrap();
        assert!(fs::read_link(dir.join("absent")).is_err());
    }
}

#[test]
fn a_mount_counts_a_load_exactly_and_as_its_server_does() {
    let Some(fixture) = Fixture::new("mount_stats_agree") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let options = ["--export", "up", "--leases", "off", "--job", "nightly", "--lanes", "2"];
    let mount = fixture.mount(&server.address, "mnt", &options);
    fs::write(mount.dir.join("file"), "").unwrap();
    let by = "op,exchange,lane,job";
    let ask = || rows(&fixture, target_of(&mount), by);
    let ask_server = || rows(&fixture, &server.address, "op");
    let (before, server_before) = (ask(), ask_server());
    load(&mount.dir);
    let (after, server_after) = (ask(), ask_server());

    let grown = |at: (&str, &str), pointer: &str| {
        number(&after, at, pointer) - number(&before, at, pointer)
    };
    for op in ["write", "read", "getattr", "mkdir"] {
        assert_eq!(grown(("op", op), "/requests"), COUNT, "{op}");
        assert_eq!(grown(("op", op), "/reply_us/count"), COUNT, "{op}");
        assert_eq!(grown(("op", op), "/answered_alone"), 0, "{op}");
    }
    let bytes = COUNT * BLOCK_BYTES as u64;
    assert_eq!(grown(("op", "read"), "/read_bytes"), bytes);
    assert_eq!(grown(("op", "write"), "/written_bytes"), bytes);
    assert_eq!(total(&after)["read_bytes"].as_u64(), Some(bytes));
    // Names that do not exist: of each directory that was made, and the absent one.
    assert_eq!(grown(("op", "lookup"), "/errors/absent"), 2 * COUNT);
    assert!(grown(("op", "read"), "/request_us") > 0, "an exchange takes time");

    // What it asked its server for is what that counts.
    for op in ["write", "read", "getattr", "mkdir", "lookup"] {
        let at = ("op", op);
        for pointer in ["/requests", "/in_bytes", "/out_bytes", "/errors/absent"] {
            let at_server =
                number(&server_after, at, pointer) - number(&server_before, at, pointer);
            assert_eq!(grown(("exchange", op), pointer), at_server, "{op} {pointer}");
        }
        assert!(grown(("exchange", op), "/requests") >= COUNT, "{op}");
    }
    let job = after.iter().find(|row| row["by"] == "job").unwrap();
    assert_eq!(job["job"], "nightly");
    assert_eq!(job["requests"], total(&after)["requests"]);
    let of_ops: u64 = after
        .iter()
        .filter(|row| row["by"] == "op")
        .map(|row| row["requests"].as_u64().unwrap())
        .sum();
    assert_eq!(of_ops, total(&after)["requests"].as_u64().unwrap());
    mount.stop();
}

#[test]
fn a_mount_that_caches_says_what_it_has_and_what_was_recalled() {
    let Some(fixture) = Fixture::new("mount_stats_leases") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let options = ["--export", "up", "--leases", "on"];
    let [one, other] = ["one", "other"].map(|name| fixture.mount(&server.address, name, &options));
    fs::create_dir(one.dir.join("d")).unwrap();
    for number in 0..20 {
        fs::write(one.dir.join("d").join(number.to_string()), "x").unwrap();
    }
    for number in 0..20 {
        assert_eq!(fs::read(one.dir.join("d").join(number.to_string())).unwrap(), b"x");
    }
    let found = rows(&fixture, target_of(&one), "lane");
    let all = total(&found);
    let at_least = |name: &str, least: u64| {
        assert!(all[name].as_u64() >= Some(least), "{name}: {all}");
    };
    at_least("cached_names", 21);
    at_least("cached_attributes", 21);
    at_least("cached_directories", 1);
    at_least("leases_granted", 40);
    at_least("answered_alone", 1);
    at_least("connections", 1);
    assert_eq!(all["changes_lost"], 0);
    let recalls = all["recalls"].as_u64().unwrap();
    for number in 0..20 {
        fs::remove_file(other.dir.join("d").join(number.to_string())).unwrap();
    }
    let found = rows(&fixture, target_of(&one), "lane");
    let all = total(&found);
    assert!(all["recalls"].as_u64().unwrap() > recalls, "{all}");
    assert!(all["recalled"]["attributes"].as_u64() > Some(0), "{all}");
    one.stop();
    other.stop();
}

#[test]
fn a_mount_is_shown_as_tables_csv_and_rates() {
    let Some(fixture) = Fixture::new("mount_stats_shown") else { return };
    let up = fixture.up(&[]);
    for number in 0..20 {
        fs::write(up.dir.join(number.to_string()), "contents").unwrap();
    }
    let target = up.dir.to_str().unwrap();
    let text = must(&mut fixture.lanefs(["stats", target, "--by", "op,exchange,lane"]));
    let has = |begin: &[&str]| {
        let begins =
            |line: &str| line.split_whitespace().take(begin.len()).eq(begin.iter().copied());
        assert!(text.lines().any(begins), "{begin:?}: {text}");
    };
    has(&["OP", "REQUESTS", "ERRORS", "RECEIVED", "SENT", "ALONE", "TIME", "p50/p99", "MEAN"]);
    has(&["create", "20", "0"]);
    has(&["EXCHANGE", "REQUESTS", "ERRORS", "SENT", "RECEIVED", "TIME", "p50/p99"]);
    has(&["COUNTER", "LANE", "0"]);
    has(&["exchanges"]);
    let csv = must(&mut fixture.lanefs(["stats", target, "--csv"]));
    let creates = csv.lines().find(|line| line.contains(",create,") && line.contains(",requests,"));
    assert_eq!(creates.and_then(|line| line.rsplit(',').next()), Some("20"), "{csv}");
    // In an interval nothing was created.
    let interval = ["stats", target, "--json", "--interval", "10ms", "--count", "2"];
    let said = must(&mut fixture.lanefs(interval));
    let rows: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let created: Vec<&Value> = rows.iter().filter(|row| row["op"] == "create").collect();
    assert_eq!(created.len(), 2, "{said}");
    assert!(created.iter().all(|row| row["requests"] == 0), "{said}");
    let (code, stderr) = failure(&fixture.run(["stats", target, "--by", "client"]));
    assert!(code == 2 && stderr.contains("a mount does not count by client"), "{code} {stderr}");
    up.stop();
}

#[test]
fn only_a_mount_can_be_asked_and_by_its_user_alone() {
    let Some(fixture) = Fixture::new("mount_stats_refused") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mut mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    let target = target_of(&mount).to_owned();
    let socket = socket(&fixture, mount.process.pid());
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    let other = fixture.make_dir("other");
    let (code, stderr) = failure(&fixture.run(["stats", other.to_str().unwrap()]));
    assert!(code == 1 && stderr.contains("nothing of lanefs runs here"), "{code} {stderr}");
    let mut as_user = program("setpriv");
    as_user.args([format!("--reuid={USER}"), format!("--regid={USER}")]).arg("--clear-groups");
    let (code, stderr) = failure(&run(&mut wrap(as_user, fixture.lanefs(["stats", &target]))));
    assert!(code == 1 && stderr.contains("user id 0"), "{code} {stderr}");
    // Who asks nothing, or half of it, is in nobody's way.
    let mut stuck: Vec<UnixStream> =
        (0..5).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    stuck[0].write_all(&[1, 0, 0]).unwrap();
    assert!(!rows(&fixture, &target, "op").is_empty());
    fs::write(mount.dir.join("file"), "x").unwrap();
    // Nonsense is answered as such.
    let mut nonsense = UnixStream::connect(&socket).unwrap();
    nonsense.write_all(&[1, 0, 0, 0, 2, 0, 0, 0, 0xff, 0xff]).unwrap();
    let mut answer = Vec::new();
    nonsense.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [1, 0, 2, 0, 0, 0, 0, 0]);

    kill(mount.process.pid());
    mount.process.end();
    assert!(socket.exists(), "nobody has removed it");
    let (code, stderr) = failure(&fixture.run(["stats", &target]));
    assert!(code == 1 && stderr.contains("lanefs umount"), "{code} {stderr}");
    assert!(!socket.exists(), "it was taken away");
    must(&mut fixture.lanefs(["umount", &target]));
    let again = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    assert!(!rows(&fixture, &target, "op").is_empty());
    let socket = self::socket(&fixture, again.process.pid());
    assert!(socket.exists());
    again.stop();
    assert!(!socket.exists(), "a mount that ends removes it");
}
