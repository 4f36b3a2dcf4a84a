//! What a server does while nobody asks it anything, and what it pays for an answer.

use crate::fixture::{Fixture, until};
use library::{ConnectOptions, DriverKind, InodeNo, Secret, Stats, Volume};
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

/// The secret that a server of this fixture has made.
pub(crate) fn secret(fixture: &Fixture) -> Secret {
    library::secret::read(&fixture.path("config/lanefs/secret")).unwrap()
}

/// A client that waits for its server as long as a test waits for anything.
pub(crate) fn connect(fixture: &Fixture, address: &str) -> Volume {
    let options = ConnectOptions {
        connect_timeout: crate::fixture::PATIENCE,
        ..ConnectOptions::new(address.parse().unwrap(), secret(fixture))
    };
    Volume::connect(&options).unwrap()
}

fn sum(lanes: &[Stats], field: fn(&Stats) -> u64) -> u64 {
    lanes.iter().map(field).sum()
}

/// An interval in which this process does nothing.
fn a_while() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// A server with 64 sessions of which none asks for anything.
fn idle(name: &str, more: &[&str]) {
    let Some(fixture) = Fixture::new(name) else { return };
    let server = fixture.serve_with("127.0.0.1:0", more);
    let mut volumes: Vec<Volume> = (0..64).map(|_| connect(&fixture, &server.address)).collect();
    let asking = &mut volumes[0];
    // The log's first reserves may still be on their way.
    let mut before = asking.stats().unwrap();
    let mut began = Instant::now();
    until("the server has come to rest", || {
        began = Instant::now();
        let now = asking.stats().unwrap();
        let lane_count = u64::try_from(now.len()).unwrap();
        let turns = |lanes: &[Stats]| sum(lanes, |lane| lane.turn_count);
        // A question is a turn, and its answer another.
        let quiet = turns(&now) - turns(&before) <= 2 * lane_count;
        before = now;
        quiet
    });
    assert_eq!(sum(&before, |lane| lane.conn_count), 64 + u64::try_from(before.len()).unwrap() - 1);
    a_while();
    let after = asking.stats().unwrap();
    let elapsed = began.elapsed();
    let risen = |field: fn(&Stats) -> u64| sum(&after, field) - sum(&before, field);
    let turn_count = risen(|lane| lane.turn_count);
    // Those of the questions, and a few that time brings: the longer this took, the more.
    let turn_count_max = 10 + 5 * elapsed.as_secs();
    assert!(turn_count <= turn_count_max, "{turn_count} turns of an idle server in {elapsed:?}");
    // Who has looked out in vain sleeps.
    assert!(risen(|lane| lane.spin_count) <= turn_count);
    let cpu_ns = after[0].cpu_ns - before[0].cpu_ns;
    println!("an idle server: {turn_count} turns and {cpu_ns} ns in {elapsed:?}");
}

#[test]
fn an_idle_server_sleeps() {
    idle("idle", &[]);
}

#[test]
fn an_idle_server_that_may_look_out_sleeps_as_well() {
    idle("idle_spin", &["--spin", "50us"]);
}

#[test]
fn a_question_to_the_right_lane_makes_no_hop_and_reads_the_clock_once_a_turn() {
    const ASKED_COUNT: u64 = 200;
    let Some(fixture) = Fixture::new("hops") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let mut volume = connect(&fixture, &server.address);
    // One connection to each lane; the second one is handed over by a message.
    assert_eq!(volume.stats().unwrap().len(), 2);
    let began = Instant::now();
    let before = volume.stats().unwrap();
    assert_eq!(sum(&before, |lane| lane.message_out_count), 1);
    for _ in 0..ASKED_COUNT {
        volume.stat(Path::new("/")).unwrap();
    }
    let after = volume.stats().unwrap();
    let risen = |field: fn(&Stats) -> u64| sum(&after, field) - sum(&before, field);
    assert_eq!(risen(|lane| lane.message_out_count), 0, "hops");
    assert_eq!(risen(|lane| lane.deferred_count), 0, "nothing waits for the log");
    assert!(risen(|lane| lane.request_count) >= ASKED_COUNT);
    let turn_count = risen(|lane| lane.turn_count);
    let read_count = risen(|lane| lane.clock_read_count);
    // Once a second the first lane looks at the other clock, too.
    let read_count_max = turn_count + began.elapsed().as_secs() + 2;
    assert!((turn_count..=read_count_max).contains(&read_count), "{read_count} readings");
    let syscall_count = risen(|lane| lane.syscall_count);
    let turn_calls = match fixture.drivers.server {
        DriverKind::IoUring => 1,
        // It waits, receives and sends.
        DriverKind::Epoll => 3,
    };
    // Each of the two lanes asks the kernel for its own figures, with five calls.
    let syscall_count_max = turn_calls * turn_count + 2 * 5;
    assert!(syscall_count <= syscall_count_max, "{syscall_count} calls in {turn_count} turns");
    assert!(after[0].cpu_ns > before[0].cpu_ns);
    assert!(after[0].voluntary_switch_count > 0, "it slept until a request came");
    let root = volume.stat(Path::new("/")).unwrap();
    assert_eq!(root.inode, InodeNo::ROOT);
}

#[test]
fn up_lets_server_and_mount_look_out() {
    let Some(fixture) = Fixture::new("up_spin") else { return };
    let up = fixture.up(&["--spin", "20us"]);
    for child in ["serve", "mount"] {
        let line = fs::read(format!("/proc/{}/cmdline", up.child(child))).unwrap();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        assert!(words.windows(2).any(|pair| pair == [&b"--spin"[..], b"20us"]), "{child}");
    }
    fs::write(up.dir.join("file"), "as ever").unwrap();
    assert_eq!(fs::read_to_string(up.dir.join("file")).unwrap(), "as ever");
    up.stop();
}
