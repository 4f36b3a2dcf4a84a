//! SQLite on the mount, in each of its journal modes: four writers at once, and what is left when
//! one of them, the server or the mount is killed with -9.

use crate::fixture::{Fixture, Process, Up, kill, must, program, until};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

const WRITER_COUNT: usize = 4;
const ROW_COUNT: usize = 25;

fn sql(base: &Path, text: &str) -> String {
    let text = format!(".timeout 1800000\n{text}");
    let mut command = program("sqlite3");
    must(command.arg("-cmd").arg(".bail on").arg(base).args(text.lines()))
}

/// One writer: a transaction a row, each acknowledged by a line in a file outside the mount.
struct Writer {
    child: Child,
    acks: PathBuf,
}

impl Writer {
    fn start(fixture: &Fixture, base: &Path, journal: &str, number: usize) -> Self {
        let mut script = format!(".timeout 1800000\npragma journal_mode={journal};\n");
        // The first one is at work for as long as it lives, where it is to be killed.
        let journaled = !is_careless(journal);
        let row_count = if journaled && number == 0 { 100 * ROW_COUNT } else { ROW_COUNT };
        for row in 0..row_count {
            let text = "x".repeat(row * 37 % 1500);
            writeln!(script, "begin immediate; insert into t values({number},{row},'{text}');")
                .unwrap();
            writeln!(script, "update total set n = n + 1; commit; select 'ack {row}';").unwrap();
        }
        let acks = fixture.path(&format!("{journal}-acks{number}"));
        let mut command = program("stdbuf");
        command.args(["-oL", "sqlite3", "-bail"]).arg(base).stdin(Stdio::piped());
        let log = fs::File::create(&acks).unwrap();
        command.stderr(log.try_clone().unwrap()).stdout(log);
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        // A writer that is killed leaves some of it unread.
        std::thread::spawn(move || input.write_all(script.as_bytes()).ok());
        Self { child, acks }
    }

    fn acked_count(&self) -> usize {
        let text = fs::read_to_string(&self.acks).unwrap();
        text.lines().filter(|line| line.starts_with("ack ")).count()
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.acks).unwrap()
    }
}

/// Without a journal on disk a killed writer takes the database with it, on any file system.
fn is_careless(journal: &str) -> bool {
    matches!(journal, "memory" | "off")
}

fn begin(fixture: &Fixture, base: &Path, journal: &str) -> Vec<Writer> {
    sql(base, &format!("pragma journal_mode={journal};"));
    sql(base, "create table t(writer, row, text, primary key(writer, row));");
    sql(base, "create table total(n); insert into total values(0);");
    (0..WRITER_COUNT).map(|number| Writer::start(fixture, base, journal, number)).collect()
}

/// Everything acknowledged is there, and what is there fits together.
fn check(base: &Path, writers: &[Writer], journal: &str) {
    assert_eq!(sql(base, "pragma integrity_check;"), "ok\n", "{journal}");
    let total: usize = sql(base, "select n from total;").trim().parse().unwrap();
    let rows: usize = sql(base, "select count(*) from t;").trim().parse().unwrap();
    assert_eq!(total, rows, "{journal}: a transaction is whole");
    for (number, writer) in writers.iter().enumerate() {
        let acked_count = writer.acked_count();
        let text = format!("select count(*) from t where writer = {number};");
        let found: usize = sql(base, &text).trim().parse().unwrap();
        assert!(found >= acked_count, "{journal}: {found} of {acked_count}\n{}", writer.said());
        assert!(found <= acked_count + 1, "{journal}: only the last may lack its line");
    }
}

fn all_ended_well(writers: &mut [Writer], journal: &str) {
    for writer in writers {
        let status = writer.child.wait().unwrap();
        assert!(status.success(), "{journal}: {status}\n{}", writer.said());
        assert_eq!(writer.acked_count(), ROW_COUNT, "{journal}\n{}", writer.said());
    }
}

/// Four writers; one is killed where its journal mode allows that, the server in every mode.
fn writers_and_kills(up: &mut Up, fixture: &Fixture, journal: &str) {
    let base = up.dir.join(format!("{journal}.db"));
    let mut writers = begin(fixture, &base, journal);
    let journaled = !is_careless(journal);
    if journaled {
        until("the first one is at work", || writers[0].acked_count() >= 2);
        kill(writers[0].child.id());
        let status = writers[0].child.wait().unwrap();
        assert!(!status.success(), "killed in the middle\n{}", writers[0].said());
    }
    let others = &mut writers[usize::from(journaled)..];
    until("the others are at work", || others.iter().any(|writer| writer.acked_count() >= 2));
    up.kill_server();
    all_ended_well(others, journal);
    check(&base, &writers, journal);
}

#[test]
fn sqlite_keeps_its_word_in_every_journal_mode() {
    let Some(fixture) = Fixture::new("sqlite_modes") else { return };
    let mut up = fixture.up(&[]);
    for journal in ["delete", "truncate", "persist", "wal", "memory", "off"] {
        writers_and_kills(&mut up, &fixture, journal);
    }
    up.stop();
}

#[test]
fn sqlite_recovers_when_the_mount_was_killed() {
    let Some(fixture) = Fixture::new("sqlite_mount") else { return };
    let mut up = fixture.up(&[]);
    for journal in ["delete", "truncate", "persist", "wal"] {
        let base = up.dir.join(format!("{journal}.db"));
        let mut writers = begin(&fixture, &base, journal);
        until("they are at work", || writers.iter().any(|writer| writer.acked_count() >= 5));
        kill(up.child("mount"));
        up.process.line_with("mount running again");
        for writer in &mut writers {
            // One may still wait for a lock in a file of the ended mount.
            writer.child.kill().unwrap();
            writer.child.wait().unwrap();
        }
        check(&base, &writers, journal);
    }
    up.stop();
}

#[test]
fn a_database_is_dumped_and_read_again() {
    let Some(fixture) = Fixture::new("sqlite_dump") else { return };
    let up = fixture.up(&[]);
    let base = up.dir.join("base.db");
    let numbers = "with recursive n(i) as (select 1 union all select i+1 from n where i < 20000)";
    sql(&base, "create table t(i integer primary key, hash);");
    sql(&base, &format!("{numbers} insert into t select i, hex(i * 7919) from n;"));
    sql(&base, "delete from t where i % 3 = 0; vacuum; create index h on t(hash);");
    let dump = sql(&base, ".dump");
    let copy = up.dir.join("copy.db");
    sql(&base, &format!(".backup {}", copy.display()));
    assert_eq!(sql(&copy, "pragma integrity_check;"), "ok\n");
    assert_eq!(sql(&copy, ".dump"), dump);
    up.stop();
    let up = fixture.up(&[]);
    assert_eq!(sql(&base, ".dump"), dump);
    up.stop();
}

/// Two processes see each other through the mapped index of the write-ahead log.
#[test]
fn readers_of_a_write_ahead_log_see_every_commit() {
    let Some(fixture) = Fixture::new("sqlite_wal") else { return };
    let up = fixture.up(&[]);
    let base = up.dir.join("base.db");
    sql(&base, "pragma journal_mode=wal; create table t(n);");
    let mut command = program("stdbuf");
    command.args(["-oL", "sqlite3"]).arg(&base);
    let (mut ask, questions) = pipe();
    command.stdin(questions);
    let mut reader = Process::start(&mut command);
    for round in 0..50 {
        sql(&base, &format!("insert into t values({round});"));
        writeln!(ask, "select 'has ' || max(n) || ' of ' || count(*) from t;").unwrap();
        let line = reader.line_with("has ");
        assert_eq!(line, format!("has {round} of {}", round + 1));
    }
    drop(ask);
    assert!(reader.end().success(), "{}", reader.said());
    assert_eq!(sql(&base, "pragma integrity_check;"), "ok\n");
    up.stop();
}

/// A pipe to a child.
fn pipe() -> (std::io::PipeWriter, Stdio) {
    let (read, write) = std::io::pipe().unwrap();
    (write, Stdio::from(read))
}
