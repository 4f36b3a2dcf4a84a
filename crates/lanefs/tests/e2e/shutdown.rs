//! The end of `up` while programs write: quiet, without a kill, and with all that was answered.

use crate::fixture::{Fixture, Process, Up, is_mounted, program};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

const WRITER_COUNT: usize = 4;
const ROUND_COUNT: usize = 6;
/// Files that each writer has made before the end is asked for.
const FILE_COUNT_MIN: u64 = 5;
const FILE_BYTES: usize = 20_000;

/// Makes files until it cannot; how many were answered.
fn write_files(dir: &Path, writer: usize, count: &AtomicU64) {
    loop {
        let number = count.load(Ordering::Relaxed);
        let path = dir.join(format!("{writer}.{number}"));
        if fs::write(path, vec![b'x'; FILE_BYTES]).is_err() {
            return;
        }
        count.store(number + 1, Ordering::Relaxed);
    }
}

/// Writers in a directory that is on the mount alone, at work.
fn start_writers(dir: &Path) -> (Vec<JoinHandle<()>>, Vec<Arc<AtomicU64>>) {
    let mut threads = Vec::new();
    let mut counts = Vec::new();
    for writer in 0..WRITER_COUNT {
        let count = Arc::new(AtomicU64::new(0));
        let (dir, counted) = (dir.to_owned(), Arc::clone(&count));
        threads.push(std::thread::spawn(move || write_files(&dir, writer, &counted)));
        counts.push(count);
    }
    crate::fixture::until("all writers write", || {
        counts.iter().all(|count| count.load(Ordering::Relaxed) >= FILE_COUNT_MIN)
    });
    (threads, counts)
}

/// What was said beyond information: levels, and what `up` says of a child that it had to kill.
fn noise(said: &str) -> Vec<&str> {
    let known = ["is in use", "held by", "by whom cannot be seen", "detached; its users will see"];
    let is_noise = |line: &&str| {
        let level =
            [" WARN ", " ERROR ", "ALARM", "killed", "panicked", "protocol error", "closed:"];
        level.iter().any(|word| line.contains(word))
            && !known.iter().any(|word| line.contains(word))
    };
    said.lines().filter(is_noise).collect()
}

/// Asks for the end while writers write, and checks what is there at the next start.
fn end_under_load(fixture: &Fixture, mut up: Up, signal: Signal, round: usize) -> Up {
    let name = format!("round{round}");
    let dir = up.dir.join(&name);
    fs::create_dir(&dir).unwrap();
    // One stays in a directory, so that the mount is busy in every second round.
    let mut holder = program("sh");
    let script = "cd \"$1\" && echo inside && read -r line";
    holder.args(["-c", script, "sh"]).arg(&dir).stdin(std::process::Stdio::piped());
    let holder = (round % 2 == 1).then(|| {
        let mut holder = Process::start(&mut holder);
        holder.line_with("inside");
        holder
    });
    let (threads, counts) = start_writers(&dir);
    up.process.signal(signal);
    let status = up.process.end();
    let said = up.process.said();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(!is_mounted(&up.dir), "{said}");
    assert_eq!(noise(&said), [""; 0], "{said}");
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    drop(holder);
    drop(up);
    let up = fixture.up(&[]);
    for (writer, count) in counts.iter().enumerate() {
        for number in 0..count.load(Ordering::Relaxed) {
            let path = up.dir.join(&name).join(format!("{writer}.{number}"));
            let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            assert!(bytes == vec![b'x'; FILE_BYTES], "{path:?} is not what was written");
        }
    }
    up
}

fn ends_quietly(test: &str, signal: Signal) {
    let Some(fixture) = Fixture::new(test) else { return };
    let mut up = fixture.up(&[]);
    for round in 0..ROUND_COUNT {
        up = end_under_load(&fixture, up, signal, round);
    }
    up.stop();
}

#[test]
fn sigint_under_load_is_quiet_and_loses_nothing() {
    ends_quietly("quiet_sigint", Signal::INT);
}

#[test]
fn sigterm_under_load_is_quiet_and_loses_nothing() {
    ends_quietly("quiet_sigterm", Signal::TERM);
}

/// A terminal and a service manager may both send theirs.
#[test]
fn a_second_signal_during_the_shutdown_kills_no_process() {
    let Some(fixture) = Fixture::new("second_signal") else { return };
    let mut up = fixture.up(&[]);
    let dir = up.dir.join("sub");
    fs::create_dir(&dir).unwrap();
    let (threads, _) = start_writers(&dir);
    up.process.signal(Signal::INT);
    up.process.signal(Signal::TERM);
    assert_eq!(up.process.end().code(), Some(0), "{}", up.process.said());
    assert_eq!(noise(&up.process.said()), [""; 0], "{}", up.process.said());
    assert!(!is_mounted(&up.dir));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
