//! `lanefs check`: stores that were used and killed have no findings; injected damage is found with its path
//! and mended, also by a repair that was killed before.

use crate::fixture::{Fixture, Process, failure, must, program, run, texts, until};
use disk::rows::{DirentRow, Key, ObjectRow, Range, Row, ShardRow};
use disk::{InodeRow, SessionRow};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use store::RowStore;
use wire::{ClientUuid, InodeNo, LaneId, Name, SessionId, ShardId, Wire};

/// A store with a few files, ended in order: a directory with a file of two names, one of which is a
/// directory's further down, a symbolic link, and a tree to play with.
fn used(fixture: &Fixture) -> PathBuf {
    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    fill(&mount.dir);
    mount.stop();
    let mut process = server.process;
    process.signal(Signal::TERM);
    assert_eq!(process.end().code(), Some(0), "{}", process.said());
    fixture.path("store")
}

fn fill(dir: &Path) {
    fs::create_dir_all(dir.join("a/b/c")).unwrap();
    fs::write(dir.join("a/file"), b"contents of a file").unwrap();
    fs::hard_link(dir.join("a/file"), dir.join("a/b/other")).unwrap();
    fs::write(dir.join("a/b/c/deep"), vec![7; 100_000]).unwrap();
    std::os::unix::fs::symlink("file", dir.join("a/link")).unwrap();
    fs::create_dir(dir.join("empty")).unwrap();
}

/// `lanefs check --json`; its exit code, and kind and first path of each finding.
pub(crate) fn check(
    fixture: &Fixture,
    store: &Path,
    more: &[&str],
) -> (i32, Vec<(String, String)>) {
    let mut command = fixture.lanefs(["check", "--json"]);
    let output = run(command.arg(store).args(more));
    let (stdout, stderr) = texts(&output);
    let mut found = Vec::new();
    for line in stdout.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        if row["type"] == "finding" {
            let path = row["paths"][0].as_str().unwrap_or_default();
            found.push((row["kind"].as_str().unwrap().to_owned(), path.to_owned()));
        }
    }
    let code = output.status.code().unwrap();
    assert!([0, 6, 7, 8].contains(&code), "{code}: {stdout}{stderr}");
    (code, found)
}

/// The rows of a store that nobody serves, to be changed.
pub(crate) struct RowEdits {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    changed: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl RowEdits {
    fn path_of(&self, path: &str) -> (InodeNo, InodeNo, Vec<u8>) {
        let (mut dir, mut at, mut last) = (InodeNo::ROOT, InodeNo::ROOT, Vec::new());
        for name in path.split('/').filter(|name| !name.is_empty()) {
            dir = at;
            last = name.as_bytes().to_vec();
            let value = &self.rows[Key::dirent(dir, Name::new(&last).unwrap()).bytes()];
            at = DirentRow::decode_all(value).unwrap().inode;
        }
        (dir, at, last)
    }

    fn inode(&self, path: &str) -> InodeNo {
        self.path_of(path).1
    }

    fn entry(&self, path: &str) -> (Vec<u8>, DirentRow) {
        let (dir, _, name) = self.path_of(path);
        let key = Key::dirent(dir, Name::new(&name).unwrap()).bytes().to_vec();
        let row = DirentRow::decode_all(&self.rows[&key]).unwrap();
        (key, row)
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>) {
        self.changed.insert(key.to_vec(), Some(value));
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.changed.insert(key.to_vec(), None);
    }

    pub(crate) fn change(&mut self, path: &str, change: impl FnOnce(&mut InodeRow)) {
        let key = Key::inode(self.inode(path));
        let mut row = InodeRow::decode_all(&self.rows[key.bytes()]).unwrap();
        change(&mut row);
        self.put(key.bytes(), row.to_bytes());
    }
}

pub(crate) fn edit_rows(store: &Path, edit: impl FnOnce(&mut RowEdits)) {
    let mut store = store::open(store).unwrap();
    let row_store = store.open_rows(RowStore::ROWS_BYTES_MAX).unwrap();
    store.redo(&row_store).unwrap();
    store.remove_earlier_logs().unwrap();
    let mut rows = BTreeMap::new();
    let view = store.view(&row_store).unwrap();
    let reader = view.reader();
    reader
        .scan(&Range::all(), |key, value| {
            rows.insert(key.to_vec(), value.to_vec());
            Ok(store::ScanControl::Continue)
        })
        .unwrap();
    let mut edits = RowEdits { rows, changed: BTreeMap::new() };
    edit(&mut edits);
    row_store.put_all(&edits.changed).unwrap();
}

fn copy(from: &Path, to: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).unwrap();
    }
    must(program("cp").arg("-a").arg(from).arg(to));
}

#[test]
fn a_store_that_was_used_has_no_findings() {
    let Some(fixture) = Fixture::new("check_used") else { return };
    let store = used(&fixture);
    let before = fs::metadata(store.join("boot")).unwrap().mtime_nsec();
    let output = run(fixture.lanefs(["check"]).arg(&store));
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    assert!(stdout.ends_with("8 inodes, 8 names, 2 objects: 0 damages, 0 warnings\n"), "{stdout}");
    assert_eq!(fs::metadata(store.join("boot")).unwrap().mtime_nsec(), before, "it was opened");
}

#[test]
fn the_map_epoch_and_the_terms_of_the_last_records_are_shown() {
    let Some(fixture) = Fixture::new("check_terms") else { return };
    let store = used(&fixture);
    // A second start, which changes one metadata shard.
    let mut server = fixture.serve("127.0.0.1:0");
    must(&mut fixture.lanefs(["mkdir", &format!("lanefs://{}/later", server.address)]));
    server.process.signal(Signal::TERM);
    assert_eq!(server.process.end().code(), Some(0));
    let said = must(fixture.lanefs(["check"]).arg(&store));
    let line = said.lines().next().unwrap();
    assert!(line.starts_with("map epoch 2; last records: metadata 0 term 2, "), "{said}");
    let said = must(fixture.lanefs(["check", "--json"]).arg(&store));
    let row: serde_json::Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!((&row["type"], &row["epoch"]), (&"map".into(), &2.into()));
    let terms = row["terms"].as_array().unwrap();
    let first = serde_json::json!({ "kind": "metadata", "first": 0, "shard_count": 1, "term": 2 });
    assert_eq!(terms[0], first, "{said}");
    let is_of_first_start = |run: &serde_json::Value| run["kind"] == "data" && run["term"] == 1;
    assert!(terms.iter().any(is_of_first_start), "{said}");
}

#[test]
fn a_served_store_is_not_repaired_and_its_address_is_named() {
    let Some(fixture) = Fixture::new("check_served") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let output = run(fixture.lanefs(["check", "--repair"]).arg(fixture.path("store")));
    let (code, said) = failure(&output);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&format!("is served at {}", server.address)), "{said}");
}

#[test]
fn a_killed_server_leaves_no_findings() {
    let Some(fixture) = Fixture::new("check_killed") else { return };
    let mut server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    let mut writers = Vec::new();
    for no in 0..4 {
        let script = format!(
            "cd {} && for i in $(seq 24); do mkdir -p d{no}/$i && echo $i > d{no}/$i/f && \
             ln d{no}/$i/f d{no}/l$i && mv d{no}/$i d{no}/m$i && rm -f d{no}/l$((i - 1)) && \
             rm -rf d{no}/m$((i - 7)); done",
            mount.dir.display()
        );
        writers.push(program("sh").arg("-ec").arg(script).spawn().unwrap());
    }
    let store = fixture.path("store");
    for no in 0..2 {
        // Each time something new is there.
        until("a writer goes on", || mount.dir.join(format!("d0/m{}", 8 + 8 * no)).exists());
        kill_9(&mut server.process);
        only_in_the_middle(&fixture, &store);
        server = fixture.serve_with(&server.address, &["--lanes", "3"]);
    }
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    // Who could bring back what is not durable goes first.
    let mut mount = mount;
    kill_9(&mut mount.process);
    kill_9(&mut server.process);
    only_in_the_middle(&fixture, &store);
}

/// A server that was killed leaves nothing that is wrong, at most what the next start finishes.
#[track_caller]
fn only_in_the_middle(fixture: &Fixture, store: &Path) {
    let output = run(fixture.lanefs(["check"]).arg(store));
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
}

fn kill_9(process: &mut Process) {
    process.signal(Signal::KILL);
    process.end();
}

/// One thing that is wrong, and what must be found.
type Damage = (&'static str, &'static str, fn(&mut RowEdits));

/// Everything that is wrong in rows.
const ROW_DAMAGE: [Damage; 22] = [
    ("name-without-inode", "/a/link", |rows| {
        let inode = rows.inode("/a/link");
        rows.delete(Key::inode(inode).bytes());
        rows.delete(Key::target(inode).bytes());
    }),
    ("name-of-other-kind", "/a/file", |rows| {
        let (key, row) = rows.entry("/a/file");
        let kind = wire::FileKind::Fifo;
        let row = DirentRow { kind, ..row };
        rows.put(&key, row.to_bytes());
        let mut listing = Vec::new();
        row.encode_listing(Name::new(b"file").unwrap(), &mut listing);
        rows.put(Key::listing(rows.inode("/a"), row.cookie).bytes(), listing);
    }),
    ("name-without-listing", "/a/b/other", |rows| {
        let row = rows.entry("/a/b/other").1;
        rows.delete(Key::listing(rows.inode("/a/b"), row.cookie).bytes());
    }),
    ("listing-without-name", "/a/b/other", |rows| {
        let key = rows.entry("/a/b/other").0;
        rows.delete(&key);
    }),
    ("entry-without-directory", "/a/link/lost", |rows| {
        let (file, empty) = (rows.inode("/a/file"), rows.inode("/a/link"));
        let kind = wire::FileKind::File;
        let row = DirentRow { cookie: 1, inode: file, kind, version: wire::Transno(1) };
        rows.put(Key::dirent(empty, Name::new(b"lost").unwrap()).bytes(), row.to_bytes());
    }),
    ("cookie-reused", "/a", |rows| rows.change("/a", |row| row.next_cookie = 1)),
    ("directory-named-twice", "/empty/again", |rows| {
        let (dir, b) = (rows.inode("/empty"), rows.entry("/a/b").1);
        let row = DirentRow { cookie: 1, ..b };
        let name = Name::new(b"again").unwrap();
        rows.put(Key::dirent(dir, name).bytes(), row.to_bytes());
        let mut listing = Vec::new();
        row.encode_listing(name, &mut listing);
        rows.put(Key::listing(dir, 1).bytes(), listing);
        rows.change("/empty", |row| (row.next_cookie, row.entry_count) = (2, 1));
    }),
    ("inode-without-name", "", |rows| {
        let (key, row) = rows.entry("/a/b/c/deep");
        rows.delete(&key);
        rows.delete(Key::listing(rows.inode("/a/b/c"), row.cookie).bytes());
    }),
    ("orphan-unmarked", "", |rows| {
        let (key, row) = rows.entry("/a/b/c/deep");
        rows.delete(&key);
        rows.delete(Key::listing(rows.inode("/a/b/c"), row.cookie).bytes());
        rows.change("/a/b/c/deep", |row| row.nlink = 0);
        rows.change("/a/b/c", |row| row.entry_count = 0);
    }),
    ("orphan-named", "/a/link", |rows| {
        rows.put(Key::orphan(rows.inode("/a/link")).bytes(), Vec::new());
    }),
    ("orphan-without-inode", "", |rows| {
        rows.put(Key::orphan(InodeNo(rows.inode("/a/link").0 + 1_000_000)).bytes(), Vec::new());
    }),
    ("link-count", "/a/file", |rows| rows.change("/a/file", |row| row.nlink = 7)),
    ("entry-count", "/a/b", |rows| rows.change("/a/b", |row| row.entry_count = 7)),
    ("parent-wrong", "/a/b/c", |rows| {
        let empty = rows.inode("/empty");
        rows.change("/a/b/c", |row| row.parent = empty);
    }),
    ("attribute-without-inode", "", |rows| {
        let inode = InodeNo(rows.inode("/a").0 + 1_000_000);
        rows.put(Key::xattr(inode, b"user.lost").unwrap().bytes(), b"value".to_vec());
    }),
    ("shard-counts", "", |rows| {
        let key = Key::shard(rows.inode("/a/file").shard());
        let row = ShardRow::decode_all(&rows.rows[key.bytes()]).unwrap();
        rows.put(key.bytes(), ShardRow { next_count: 1, ..row }.to_bytes());
    }),
    ("size-wrong", "/a/b/c/deep", |rows| {
        rows.change("/a/b/c/deep", |row| (row.size_bytes, row.size_at_data) = (5, false));
    }),
    ("root-missing", "/", |rows| rows.delete(Key::inode(InodeNo::ROOT).bytes())),
    ("row-damage", "", |rows| rows.put(Key::inode(rows.inode("/a/link")).bytes(), vec![1, 2, 3])),
    ("unknown-shard", "", |rows| {
        rows.put(Key::shard(ShardId::meta(5000)).bytes(), ShardRow::default().to_bytes());
    }),
    ("slot-without-session", "", |rows| {
        let slot = rows.rows.iter().find_map(|(key, value)| match Row::decode(key, value) {
            Ok(Row::Slot { shard, .. }) => Some((shard, value.clone())),
            _ => None,
        });
        // What nobody had a session for has no record of a reply.
        let (shard, value) = slot.unwrap_or_else(|| (ShardId::meta(0), slot_value()));
        rows.put(Key::slot(shard, wire::SessionId(0xdead), 1).bytes(), value);
    }),
    ("directory-cycle", "/a/b/c/b", |rows| {
        // /a/b moves into /a/b/c.
        let (key, row) = rows.entry("/a/b");
        rows.delete(&key);
        rows.delete(Key::listing(rows.inode("/a"), row.cookie).bytes());
        let c = rows.inode("/a/b/c");
        let row = DirentRow { cookie: 1000, ..row };
        let name = Name::new(b"b").unwrap();
        rows.put(Key::dirent(c, name).bytes(), row.to_bytes());
        let mut listing = Vec::new();
        row.encode_listing(name, &mut listing);
        rows.put(Key::listing(c, 1000).bytes(), listing);
        rows.change("/a/b", |row| row.parent = c);
    }),
];

/// The value of a record of a reply: request 1, ping, well, transaction 1, nothing.
fn slot_value() -> Vec<u8> {
    let mut value = 1_u64.to_bytes();
    value.extend_from_slice(&wire::Op::Ping.number().to_bytes());
    value.extend_from_slice(&wire::Status::Ok.to_bytes());
    value.extend_from_slice(&wire::Transno(1).to_bytes());
    value.extend_from_slice(&wire::Bytes(&[]).to_bytes());
    value
}

#[test]
fn injected_row_damage_is_found_and_repaired() {
    let Some(fixture) = Fixture::new("check_row_damage") else { return };
    let store = used(&fixture);
    let copied = fixture.path("copy");
    for (kind, path, how) in ROW_DAMAGE {
        copy(&store, &copied);
        edit_rows(&copied, how);
        let (code, found) = check(&fixture, &copied, &[]);
        assert!(
            found.iter().any(|(found, at)| found == kind && (path.is_empty() || shows(at, path))),
            "{kind} at {path}: {found:?}"
        );
        assert_eq!(code, 7, "{kind}: {found:?}");
        assert_eq!(check(&fixture, &copied, &[]).1, found, "a check changes nothing");
        let (code, mended) = check(&fixture, &copied, &["--repair"]);
        assert_eq!(code, 6, "{kind}: {mended:?}");
        assert_eq!(check(&fixture, &copied, &[]), (0, Vec::new()), "{kind} is mended");
    }
}

/// Whether a path is reported; of an entry outside the tree, whether its last name is.
fn shows(reported: &str, path: &str) -> bool {
    reported == path
        || (reported.starts_with('#') && reported.rsplit('/').next() == path.rsplit('/').next())
}

#[test]
fn inodes_that_lost_their_name_are_served_in_lost_and_found() {
    let Some(fixture) = Fixture::new("check_adopts") else { return };
    let store = used(&fixture);
    let mut lost = String::new();
    edit_rows(&store, |rows| {
        // The name of /a/b: what lies below comes along.
        let (key, row) = rows.entry("/a/b");
        rows.delete(&key);
        rows.delete(Key::listing(rows.inode("/a"), row.cookie).bytes());
        lost = format!("#{:016x}", row.inode.0);
    });
    assert_eq!(check(&fixture, &store, &["--repair"]).0, 6);
    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    let found = mount.dir.join("lost+found").join(lost);
    assert_eq!(fs::read(found.join("c/deep")).unwrap(), vec![7; 100_000]);
    assert_eq!(fs::read(found.join("other")).unwrap(), b"contents of a file");
    assert_eq!(fs::metadata(&found).unwrap().nlink(), 3);
    fs::rename(&found, mount.dir.join("a/b")).unwrap();
    fs::remove_dir(mount.dir.join("lost+found")).unwrap();
    mount.stop();
    let mut process = server.process;
    process.signal(Signal::TERM);
    process.end();
    assert_eq!(check(&fixture, &store, &[]), (0, Vec::new()));
}

/// The file of an object with so many bytes.
fn object(store: &Path, size_bytes: u64) -> PathBuf {
    let found = must(program("find").arg(store.join("objects")).args(["-type", "f"]));
    let with_size = |path: &&str| fs::metadata(path).unwrap().len() == size_bytes;
    PathBuf::from(found.lines().find(with_size).unwrap())
}

#[test]
fn objects_are_held_against_what_is_recorded() {
    let Some(fixture) = Fixture::new("check_objects") else { return };
    let store = used(&fixture);
    let copied = fixture.path("copy");
    let deep = |kind: &str| vec![(kind.to_owned(), "/a/b/c/deep".to_owned())];
    copy(&store, &copied);
    fs::remove_file(object(&copied, 100_000)).unwrap();
    assert_eq!(check(&fixture, &copied, &[]), (8, deep("object-missing")));
    assert_eq!(check(&fixture, &copied, &["--repair"]), (8, deep("object-missing")));

    copy(&store, &copied);
    let file = fs::OpenOptions::new().write(true).open(object(&copied, 100_000)).unwrap();
    file.set_len(99_999).unwrap();
    assert_eq!(check(&fixture, &copied, &[]), (8, deep("object-short")));

    copy(&store, &copied);
    let file = fs::OpenOptions::new().write(true).open(object(&copied, 100_000)).unwrap();
    file.write_all_at(&[8], 70_000).unwrap();
    assert_eq!(check(&fixture, &copied, &[]), (8, deep("contents-changed")));
    assert_eq!(check(&fixture, &copied, &["--skip-contents"]), (0, Vec::new()));
    assert_eq!(check(&fixture, &copied, &["--repair"]), (8, deep("contents-changed")));

    // An inode and its object are removed: their rows and the file are left.
    copy(&store, &copied);
    let path = object(&copied, 100_000);
    edit_rows(&copied, |rows| {
        let (key, row) = rows.entry("/a/b/c/deep");
        rows.delete(&key);
        rows.delete(Key::listing(rows.inode("/a/b/c"), row.cookie).bytes());
        rows.delete(Key::inode(row.inode).bytes());
        rows.change("/a/b/c", |row| row.entry_count = 0);
        let key = Key::shard(row.inode.shard());
        let numbers = ShardRow::decode_all(&rows.rows[key.bytes()]).unwrap();
        let inode_count = numbers.inode_count - 1;
        rows.put(key.bytes(), ShardRow { inode_count, ..numbers }.to_bytes());
    });
    let (code, found) = check(&fixture, &copied, &[]);
    assert_eq!((code, found), (7, vec![("object-without-inode".to_owned(), String::new())]));
    // A client that has a session may have been given the number, and create the file again.
    let key = Key::session(ShardId::meta(0), SessionId(1));
    let row = SessionRow {
        client: ClientUuid([1; 16]),
        client_lane: LaneId(0),
        host_id: [1; 16],
        host_boot_id: [1; 16],
    };
    edit_rows(&copied, |rows| rows.put(key.bytes(), [row.to_bytes(), vec![0]].concat()));
    assert_eq!(check(&fixture, &copied, &[]).1, vec![("object-ahead".to_owned(), String::new())]);
    edit_rows(&copied, |rows| rows.delete(key.bytes()));
    assert_eq!(check(&fixture, &copied, &["--repair"]).0, 6);
    assert!(!path.exists(), "it was moved");
    let aside = path.strip_prefix(copied.join("objects")).unwrap();
    let aside = copied.join("quarantine").join(aside);
    assert_eq!(fs::read(aside).unwrap(), vec![7; 100_000]);
    assert_eq!(check(&fixture, &copied, &[]), (0, Vec::new()));

    // Nothing that a program mends.
    copy(&store, &copied);
    fs::write(copied.join("objects/notes"), b"mine").unwrap();
    edit_rows(&copied, |rows| {
        let inode = rows.inode("/a/b/c/deep");
        rows.delete(Key::target(rows.inode("/a/link")).bytes());
        let row = rows.rows.iter().find(|(key, value)| {
            matches!(Row::decode(key, value), Ok(Row::Object { inode: of, .. }) if of == inode)
        });
        let (key, value) = row.map(|(key, value)| (key.clone(), value.clone())).unwrap();
        let object = ObjectRow::decode_all(&value).unwrap();
        rows.put(&key, ObjectRow { size_bytes: object.size_bytes + 1, ..object }.to_bytes());
        rows.change("/a/b/c/deep", |row| row.size_at_data = true);
    });
    let (code, mut found) = check(&fixture, &copied, &[]);
    found.sort();
    let wanted = [
        ("object-foreign", ""),
        ("object-short", "/a/b/c/deep"),
        ("symlink-without-target", "/a/link"),
    ];
    let wanted: Vec<_> =
        wanted.iter().map(|(kind, path)| ((*kind).to_owned(), (*path).to_owned())).collect();
    assert_eq!((code, found), (8, wanted));
}

#[test]
fn damage_in_a_log_is_reported_and_not_repaired() {
    let Some(fixture) = Fixture::new("check_log") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up"]);
    fill(&mount.dir);
    must(program("sync").arg("-f").arg(&mount.dir));
    fs::File::open(mount.dir.join("a")).unwrap().sync_all().unwrap();
    let (mut server, mut mount) = (server, mount);
    kill_9(&mut mount.process);
    kill_9(&mut server.process);
    let store = fixture.path("store");
    // The first byte behind the head of the longest log.
    let logs = fs::read_dir(store.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let log = logs.max_by_key(|path| {
        fs::read(path).unwrap().iter().rposition(|byte| *byte != 0).unwrap_or(0)
    });
    let log = log.unwrap();
    let mut bytes = fs::read(&log).unwrap();
    bytes[disk::LOG_HEADER_BYTES + disk::BATCH_HEADER_BYTES + 3] ^= 0x40;
    fs::write(&log, bytes).unwrap();
    let (code, found) = check(&fixture, &store, &[]);
    assert_eq!(code, 8, "{found:?}");
    assert!(found.iter().any(|(kind, _)| kind == "log-damage"), "{found:?}");
    let output = run(fixture.lanefs(["check", "--repair"]).arg(&store));
    let (code, said) = failure(&output);
    assert_eq!(code, 1);
    assert!(said.contains("nothing was changed"), "{said}");
}

#[test]
fn a_repair_that_is_killed_is_done_again() {
    let Some(fixture) = Fixture::new("check_killed_repair") else { return };
    let store = used(&fixture);
    let damaged = fixture.path("damaged");
    copy(&store, &damaged);
    edit_rows(&damaged, |rows| {
        let (key, row) = rows.entry("/a/b");
        rows.delete(&key);
        rows.delete(Key::listing(rows.inode("/a"), row.cookie).bytes());
        rows.change("/a", |row| row.nlink = 9);
        rows.delete(Key::inode(rows.inode("/a/b/c/deep")).bytes());
    });
    let copied = fixture.path("copy");
    for kill_at in 1.. {
        copy(&damaged, &copied);
        let mut repair =
            fixture.lanefs(["check", "--repair", "--kill-after", &kill_at.to_string()]);
        let ended = run(repair.arg(&copied)).status;
        if ended.signal() != Some(Signal::KILL.as_raw()) {
            assert_eq!(ended.code(), Some(6), "not killed");
            assert!(kill_at > 4, "a repair of several rounds has more steps than {kill_at}");
            break;
        }
        assert!([0, 6].contains(&check(&fixture, &copied, &["--repair"]).0), "killed at {kill_at}");
        assert_eq!(check(&fixture, &copied, &[]), (0, Vec::new()), "killed at {kill_at}");
    }
}
