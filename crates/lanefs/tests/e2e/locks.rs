//! flock, fcntl and open-file-description locks between processes of one mount and of two.

use crate::fixture::{Fixture, Mount, PATIENCE, Process, Up, kill, must, program, state_of, until};
use rustix::process::Signal;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Instant;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/lock.py");

/// A process with open files that locks ranges on command.
pub(crate) struct Locker {
    process: Process,
    orders: ChildStdin,
    pub(crate) pid: u32,
}

impl Locker {
    pub(crate) fn new(dir: &Path, name: &str) -> Self {
        Self::of(dir, &[name])
    }

    fn of(dir: &Path, names: &[&str]) -> Self {
        let mut command = program("python3");
        command.arg(SCRIPT).args(names.iter().map(|name| dir.join(name)));
        command.stdin(Stdio::piped());
        let mut process = Process::start(&mut command);
        let orders = process.orders();
        let pid = process.line_with("pid ").replace("pid ", "").parse().unwrap();
        Self { process, orders, pid }
    }

    /// Sends a command and does not wait for its end.
    fn send(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    /// The answer to an order.
    #[track_caller]
    pub(crate) fn answer(&mut self, order: &str) -> String {
        self.process.line_with(&format!("{order}: ")).replace(&format!("{order}: "), "")
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.send(order);
        self.answer(order)
    }

    /// Sends a command that waits for a lock, and checks that it waits.
    #[track_caller]
    pub(crate) fn blocks(&mut self, order: &str) {
        self.send(order);
        self.is_blocked();
    }

    /// It stands in the kernel, in a lock.
    #[track_caller]
    fn is_blocked(&self) {
        let path = format!("/proc/{}/syscall", self.pid);
        until("it waits for a lock", || {
            let call = fs::read_to_string(&path).unwrap_or_default();
            let number = call.split(' ').next().unwrap_or_default();
            let locks = number == FLOCK || number == FCNTL;
            locks && matches!(state_of(self.pid), Some('S' | 'D'))
        });
    }
}

#[cfg(target_arch = "x86_64")]
const FLOCK: &str = "73";
#[cfg(target_arch = "x86_64")]
const FCNTL: &str = "72";
#[cfg(not(target_arch = "x86_64"))]
const FLOCK: &str = "32";
#[cfg(not(target_arch = "x86_64"))]
const FCNTL: &str = "25";

fn two_mounts(test: &str) -> Option<(Fixture, Up, Mount)> {
    let fixture = Fixture::new(test)?;
    let up = fixture.up(&[]);
    let second = fixture.mount(&up.address, "second", &["--export", "up"]);
    Some((fixture, up, second))
}

#[test]
fn locks_exclude_over_two_mounts_and_within_one() {
    let Some((_stage, up, second)) = two_mounts("locks_exclude") else { return };
    for (here, there) in [(&up.dir, &second.dir), (&up.dir, &up.dir)] {
        let (mut one, mut other) = (Locker::new(here, "f"), Locker::new(there, "f"));
        assert_eq!(one.ask("flock ex nb"), "ok");
        assert_eq!(other.ask("flock ex nb"), "EAGAIN");
        assert_eq!(other.ask("flock sh nb"), "EAGAIN");
        assert_eq!(other.ask("lockf w 0 0 nb"), "ok", "fcntl does not know of flock");
        assert_eq!(one.ask("flock sh nb"), "ok");
        assert_eq!(other.ask("flock sh nb"), "ok");
        assert_eq!(one.ask("flock ex nb"), "EAGAIN", "two have it shared");
        assert_eq!(other.ask("flock un"), "ok");
        assert_eq!(other.ask("lockf u 0 0"), "ok");

        assert_eq!(one.ask("lockf w 10 10 nb"), "ok");
        assert_eq!(other.ask("lockf w 0 10 nb"), "ok");
        assert_eq!(other.ask("lockf w 20 0 nb"), "ok", "to the end of all files");
        assert_eq!(other.ask("lockf r 19 1 nb"), "EAGAIN");
        assert_eq!(one.ask("lockf u 12 2 nb"), "ok");
        assert_eq!(other.ask("lockf w 12 2 nb"), "ok", "out of the middle");
        assert_eq!(one.ask("lockf r 0 5 nb"), "EAGAIN");
        for order in ["lockf u 0 0", "lockf u 0 0 nb"] {
            assert_eq!((one.ask(order), other.ask(order)), ("ok".into(), "ok".into()));
        }

        assert_eq!(one.ask("ofd w 0 100 nb"), "ok");
        assert_eq!(other.ask("ofd r 50 1 nb"), "EAGAIN");
        assert_eq!(other.ask("lockf w 99 1 nb"), "EAGAIN", "fcntl's both kinds conflict");
        assert_eq!(one.ask("lockf w 99 1 nb"), "EAGAIN", "with oneself too");
        assert_eq!(one.ask("open"), "ok");
        assert_eq!(one.ask("close"), "ok");
        assert_eq!(
            other.ask("ofd r 50 1 nb"),
            "EAGAIN",
            "it is the open file's, not the process's"
        );
        assert_eq!(one.ask("ofd u 0 0"), "ok");
        assert_eq!(other.ask("ofd r 50 1 nb"), "ok");
    }
    second.stop();
    up.stop();
}

#[test]
fn the_holder_of_a_conflicting_lock_is_named() {
    let Some((_stage, up, second)) = two_mounts("locks_get") else { return };
    let (mut one, mut peer_lane) = (Locker::new(&up.dir, "f"), Locker::new(&up.dir, "f"));
    let mut other = Locker::new(&second.dir, "f");
    assert_eq!(other.ask("get w 0 0"), "u 0 0 0");
    assert_eq!(one.ask("lockf r 10 5"), "ok");
    assert_eq!(one.ask("get w 0 0"), "u 0 0 0", "not oneself");
    assert_eq!(other.ask("get r 0 0"), "u 0 0 0", "readers share");
    assert_eq!(other.ask("get w 0 0"), "r 10 5 0", "another host's process has no number here");
    let own = format!("r 10 5 {}", one.pid);
    assert_eq!(peer_lane.ask("get w 12 1"), own);
    drop((one, peer_lane, other));
    second.stop();
    up.stop();
}

#[test]
fn a_waiter_is_woken() {
    let Some((_stage, up, second)) = two_mounts("locks_wake") else { return };
    for (take, give) in
        [("flock ex", "flock un"), ("lockf w 5 5", "lockf u 0 0"), ("ofd w 5 5", "ofd u 0 0")]
    {
        let (mut one, mut other) = (Locker::new(&up.dir, "f"), Locker::new(&second.dir, "f"));
        for _ in 0..3 {
            assert_eq!(one.ask(take), "ok");
            other.blocks(take);
            assert_eq!(one.ask(give), "ok");
            assert_eq!(other.answer(take), "ok");
            one.blocks(take);
            assert_eq!(other.ask(give), "ok");
            assert_eq!(one.answer(take), "ok");
            assert_eq!(one.ask(give), "ok");
        }
        // The end of a process gives up all that it had.
        assert_eq!(one.ask(take), "ok");
        other.blocks(take);
        kill(one.pid);
        assert_eq!(other.answer(take), "ok");
    }
    second.stop();
    up.stop();
}

#[test]
fn closing_one_of_two_descriptors_drops_what_fcntl_locked() {
    let Some((_stage, up, second)) = two_mounts("locks_close") else { return };
    let (mut one, mut other) = (Locker::new(&up.dir, "f"), Locker::new(&second.dir, "f"));
    assert_eq!(one.ask("open"), "ok");
    assert_eq!(one.ask("lockf w 0 0 nb"), "ok");
    assert_eq!(one.ask("flock ex nb"), "ok");
    assert_eq!(other.ask("lockf w 0 0 nb"), "EAGAIN");
    assert_eq!(one.ask("close"), "ok");
    assert_eq!(other.ask("lockf w 0 0 nb"), "ok", "as POSIX says");
    assert_eq!(other.ask("flock ex nb"), "EAGAIN", "flock is the other descriptor's");
    drop((one, other));
    second.stop();
    up.stop();
}

#[test]
fn a_wait_can_be_interrupted_and_killed() {
    let Some((_stage, up, second)) = two_mounts("locks_interrupt") else { return };
    for take in ["flock ex", "lockf w 0 10", "ofd w 0 10"] {
        let (mut one, mut other) = (Locker::new(&up.dir, "f"), Locker::new(&second.dir, "f"));
        let mut third = Locker::new(&second.dir, "f");
        assert_eq!(one.ask(take), "ok");
        assert_eq!(other.ask("signal"), "ok");
        other.blocks(take);
        other.process.signal(Signal::USR1);
        assert_eq!(other.answer(take), "EINTR");
        other.blocks(take);
        third.blocks(take);
        kill(other.pid);
        other.process.end();
        // Nobody is left but the third.
        kill(one.pid);
        assert_eq!(third.answer(take), "ok");
    }
    second.stop();
    up.stop();
}

#[test]
fn a_circle_of_waits_over_two_mounts_and_files_is_refused() {
    let Some((_stage, up, second)) = two_mounts("locks_deadlock") else { return };
    let names = ["a", "b", "c"];
    let mut lockers = [&up.dir, &second.dir, &up.dir].map(|dir| Locker::of(dir, &names));
    for _ in 0..4 {
        // Each has one of the files and wants the next one.
        for (at, locker) in lockers.iter_mut().enumerate() {
            assert_eq!(locker.ask(&format!("on {at} lockf w 0 1")), "ok");
        }
        for (at, locker) in lockers.iter_mut().enumerate() {
            locker.send(&format!("on {} lockf w 0 1", (at + 1) % 3));
        }
        let mut refused = None;
        until("one of them hears of it", || {
            let next = lockers.iter_mut().map(|locker| locker.process.next_line());
            refused = next.enumerate().find_map(|(at, line)| Some((at, line?)));
            refused.is_some()
        });
        let (last, line) = refused.unwrap();
        assert!(line.ends_with(": EDEADLK"), "{line}");
        // The others have theirs when it gives up what it has, one after the other.
        for back in 0..3 {
            let at = (last + 3 - back) % 3;
            if back > 0 {
                let order = format!("on {} lockf w 0 1", (at + 1) % 3);
                assert_eq!(lockers[at].answer(&order), "ok");
            }
            for file in 0..3 {
                assert_eq!(lockers[at].ask(&format!("on {file} lockf u 0 0")), "ok");
            }
        }
    }
    drop(lockers);
    second.stop();
    up.stop();
}

#[test]
fn a_counter_under_a_lock_loses_nothing() {
    let Some((_stage, up, second)) = two_mounts("locks_counter") else { return };
    const COUNT: usize = 150;
    let dirs = [&up.dir, &second.dir, &up.dir, &second.dir];
    let mut lockers = dirs.map(|dir| Locker::new(dir, "counter"));
    let order = format!("add {COUNT}");
    lockers.iter_mut().for_each(|locker| locker.send(&order));
    for locker in &mut lockers {
        assert_eq!(locker.answer(&order), "ok");
    }
    let text = fs::read_to_string(up.dir.join("counter")).unwrap();
    assert_eq!(text.trim(), (4 * COUNT).to_string());
    drop(lockers);
    second.stop();
    up.stop();
}

#[test]
fn locks_and_waits_survive_a_restart_of_the_server() {
    let Some((_stage, mut up, second)) = two_mounts("locks_restart") else { return };
    for (take, give) in
        [("flock ex", "flock un"), ("lockf w 3 4", "lockf u 0 0"), ("ofd w 3 4", "ofd u 0 0")]
    {
        let (mut one, mut other) = (Locker::new(&up.dir, "f"), Locker::new(&second.dir, "f"));
        let mut third = Locker::new(&up.dir, "f");
        assert_eq!(one.ask(take), "ok");
        other.blocks(take);
        up.kill_server();
        let tried = format!("{take} nb");
        assert_eq!(third.ask(&tried), "EAGAIN", "it is held over the restart");
        other.is_blocked();
        assert_eq!(one.ask(give), "ok");
        assert_eq!(other.answer(take), "ok");
        assert_eq!(third.ask(&tried), "EAGAIN");
        assert_eq!(other.ask(give), "ok");
        assert_eq!(third.ask(&tried), "ok");
    }
    second.stop();
    up.stop();
}

#[test]
fn a_wait_can_be_killed_while_the_server_is_stopped_or_dead() {
    let Some(fixture) = Fixture::new("locks_away") else { return };
    let mut server = fixture.serve("127.0.0.1:0");
    let address = server.address.clone();
    let mount = fixture.mount(&address, "mnt", &["--export", "up"]);
    let mut one = Locker::new(&mount.dir, "f");
    let mut waiting = [0; 2].map(|_| Locker::new(&mount.dir, "f"));
    assert_eq!(one.ask("lockf w 0 0"), "ok");
    waiting.iter_mut().for_each(|locker| locker.blocks("lockf w 0 0"));
    server.process.signal(Signal::STOP);
    kill(waiting[0].pid);
    waiting[0].process.end();
    server.process.signal(Signal::KILL);
    server.process.end();
    kill(waiting[1].pid);
    waiting[1].process.end();
    // Who has it can be killed as well, and gives it up when the server is back.
    kill(one.pid);
    one.process.end();
    let again = fixture.serve(&address);
    let mut last = Locker::new(&mount.dir, "f");
    assert_eq!(last.ask("lockf w 0 0"), "ok");
    drop(last);
    mount.stop();
    drop(again);
}

#[test]
fn the_locks_of_a_mount_that_is_killed_go_to_others() {
    let Some((_stage, up, mut second)) = two_mounts("locks_of_a_killed_mount") else { return };
    let (mut one, mut other) = (Locker::new(&second.dir, "f"), Locker::new(&up.dir, "f"));
    let mut third = Locker::new(&up.dir, "g");
    let mut lost = Locker::new(&second.dir, "g");
    assert_eq!(one.ask("lockf w 0 0"), "ok");
    assert_eq!(lost.ask("flock ex"), "ok");
    other.blocks("lockf w 0 0");
    let began = Instant::now();
    second.process.signal(Signal::KILL);
    second.process.end();
    assert_eq!(other.answer("lockf w 0 0"), "ok");
    assert_eq!(third.ask("flock ex"), "ok", "nobody waited for it when it was left");
    // After 5 s, and not after a minute, when all of the client is given up: `lane` tests that by its clock.
    println!("others had the locks after {:?}", began.elapsed());
    drop((one, lost, other, third));
    drop(second);
    up.stop();
}

/// Its successor does not find them either: a database's journal would be taken for one in use.
#[test]
fn the_locks_of_a_killed_mount_are_released_when_it_runs_again() {
    let Some(fixture) = Fixture::new("locks_again") else { return };
    let mut up = fixture.up(&["--lanes", "2"]);
    for round in 0..3 {
        let names = ["f", "g", "h"].map(|name| format!("{name}{round}"));
        let mut held: Vec<_> = names.iter().map(|name| Locker::new(&up.dir, name)).collect();
        for locker in &mut held {
            assert_eq!(locker.ask("lockf w 0 0"), "ok");
            assert_eq!(locker.ask("flock ex"), "ok");
        }
        kill(up.child("mount"));
        up.process.line_with("mount running again");
        for name in &names {
            let mut next = Locker::new(&up.dir, name);
            assert_eq!(next.ask("lockf w 0 0"), "ok", "{name}");
            assert_eq!(next.ask("flock ex"), "ok", "{name}");
        }
    }
    up.stop();
}

#[test]
fn the_program_flock_works_with_a_time_limit() {
    let Some((_stage, up, second)) = two_mounts("locks_program") else { return };
    let mut one = Locker::new(&up.dir, "f");
    assert_eq!(one.ask("flock ex"), "ok");
    let flock = |arguments: &[&str]| -> Command {
        let mut command = program("flock");
        command.args(arguments).arg(second.dir.join("f")).arg("true");
        command
    };
    assert_eq!(flock(&["-w", "0.1"]).status().unwrap().code(), Some(1));
    assert_eq!(one.ask("flock un"), "ok");
    must(&mut flock(&["-w", &PATIENCE.as_secs().to_string()]));
    drop(one);
    second.stop();
    up.stop();
}
