//! Real processes behind pipes: output is read on request, and a process ends with its client.
#![allow(clippy::unwrap_used)]

use super::{COUNT_MAX, IDLE_MAX, Input, Processes, Spawn};
use interface::ConnId;
use ring::InspectRequest;
use std::collections::BTreeMap;
use std::io::{self, PipeReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use wire::{INSPECTED_BYTES_MAX, Inspect, Inspected, Inspection, LaneId, Status, Wire as _};

/// The thread under test, and its replies with their connections.
struct Fixture {
    asks: Sender<Input>,
    answers: Receiver<(ConnId, Status, Box<[u8]>)>,
    /// Of each process, in the order of their starts: a pipe that is at its end when it has ended.
    alive: Receiver<PipeReader>,
}

/// Runs a shell for a check, `cat` for a dump, and for a backup nothing that exists.
fn fixture(shell: &'static str, idle_max: Duration) -> Fixture {
    let (started, alive) = channel();
    let start = move |name: &str| -> io::Result<Child> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new(name);
        if name == "sh" {
            command.args(["-c", shell]);
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(writer).spawn()?;
        started.send(reader).unwrap();
        Ok(child)
    };
    let spawn: Spawn = Box::new(move |inspection| match inspection {
        Inspection::Check { .. } => start("sh"),
        Inspection::Dump => start("cat"),
        Inspection::Backup { .. } => start("/nowhere"),
    });
    let ((sender, inputs), (reply_to, answers)) = (channel(), channel());
    // A test that ends does not listen any more.
    let reply_to =
        Box::new(move |(_, conn), status, reply| drop(reply_to.send((conn, status, reply))));
    let asks = sender.clone();
    let processes =
        Processes { spawn, reply_to, idle_max, inputs, sender, running: BTreeMap::new(), count: 0 };
    std::thread::spawn(move || processes.run());
    Fixture { asks, answers, alive }
}

const CHECK: Inspect = Inspect::Start(Inspection::Check { json: false, skip_contents: false });

impl Fixture {
    fn say(&self, conn: u64, ask: Option<Inspect>) {
        let (lane, conn) = (LaneId(3), ConnId(conn));
        self.asks.send(Input::Ask(InspectRequest { lane, conn, inspect: ask })).unwrap();
    }

    /// What it is answered: a status, whether it is the end, and bytes.
    fn ask(&self, conn: u64, ask: Inspect) -> (Status, bool, Vec<u8>) {
        self.say(conn, Some(ask));
        let (answered, status, reply) = self.answers.recv().unwrap();
        assert_eq!(answered, ConnId(conn));
        if status != Status::Ok {
            assert!(reply.is_empty());
            return (status, false, Vec::new());
        }
        let Inspected { end, bytes } = Inspected::decode_all(&reply).unwrap();
        (status, end, bytes.0.to_vec())
    }

    fn status(&self, conn: u64, ask: Inspect) -> Status {
        self.ask(conn, ask).0
    }

    /// Waits until the first process that was not waited for has ended.
    fn wait_for_end(&self) {
        let mut said = Vec::new();
        self.alive.recv().unwrap().read_to_end(&mut said).unwrap();
    }
}

fn read(stream_offset: u64) -> Inspect {
    Inspect::Read { stream_offset }
}

#[test]
fn output_is_delivered_completely_in_pieces_that_fit() {
    const BYTES: usize = 1_000_000;
    let fixture = fixture("head -c 1000000 /dev/zero; echo x", IDLE_MAX);
    assert_eq!(fixture.ask(1, CHECK), (Status::Ok, false, Vec::new()));
    let mut all = Vec::new();
    loop {
        let (status, end, bytes) = fixture.ask(1, read(u64::try_from(all.len()).unwrap()));
        assert_eq!(status, Status::Ok);
        assert!(bytes.len() <= INSPECTED_BYTES_MAX);
        assert_eq!(bytes.is_empty(), end);
        if end {
            break;
        }
        all.extend(bytes);
    }
    assert_eq!((all.len(), &all[BYTES..]), (BYTES + 2, &b"x\n"[..]));
    assert_eq!(fixture.status(1, read(0)), Status::NotFound, "it is over");
}

#[test]
fn output_that_is_not_next_is_refused() {
    let fixture = fixture("echo output", IDLE_MAX);
    assert_eq!(fixture.status(1, read(0)), Status::NotFound);
    assert_eq!(fixture.status(1, Inspect::Held), Status::NotFound);
    assert_eq!(fixture.status(1, CHECK), Status::Ok);
    assert_eq!(fixture.status(1, CHECK), Status::Invalid, "it has one");
    assert_eq!(fixture.status(2, read(0)), Status::NotFound, "it is another's");
    assert_eq!(fixture.status(1, read(1)), Status::Invalid);
    assert_eq!(fixture.ask(1, read(0)), (Status::Ok, false, b"output\n".to_vec()));
    assert_eq!(fixture.status(1, read(0)), Status::Invalid, "that was sent");
    assert_eq!(fixture.ask(1, read(7)), (Status::Ok, true, Vec::new()));
}

#[test]
fn a_process_is_notified_that_changes_wait_and_one_that_does_not_read_blocks_nothing() {
    let fixture = fixture("head -c 1 | od -An -tu1; exec sleep 1000", IDLE_MAX);
    assert_eq!(fixture.status(1, CHECK), Status::Ok);
    assert_eq!(fixture.status(1, Inspect::Held), Status::Ok);
    let (_, _, bytes) = fixture.ask(1, read(0));
    assert_eq!(bytes, b"   1\n");
    let said = (0..1 << 20).map(|_| fixture.status(1, Inspect::Held));
    assert!(said.into_iter().any(|status| status == Status::Invalid), "the pipe is full");
    fixture.say(1, None);
    fixture.wait_for_end();
}

#[test]
fn more_than_so_many_at_a_time_are_refused_until_one_has_ended() {
    let fixture = fixture("exec sleep 1000", IDLE_MAX);
    for conn in 0..COUNT_MAX {
        assert_eq!(fixture.status(u64::try_from(conn).unwrap(), CHECK), Status::Ok);
    }
    assert_eq!(fixture.status(9, CHECK), Status::Busy);
    fixture.say(0, None);
    // It is waited for before its place is free.
    while fixture.status(9, CHECK) == Status::Busy {
        std::thread::yield_now();
    }
    fixture.say(1, None);
    fixture.say(9, None);
    (0..=COUNT_MAX).for_each(|_| fixture.wait_for_end());
}

#[test]
fn a_process_ends_with_its_connection_whether_its_output_is_wanted_or_not() {
    let fixture = fixture("exec yes", IDLE_MAX);
    assert_eq!(fixture.status(1, CHECK), Status::Ok);
    assert_eq!(fixture.status(2, Inspect::Start(Inspection::Dump)), Status::Ok);
    fixture.say(2, Some(read(0)));
    fixture.say(1, None);
    fixture.say(2, None);
    fixture.wait_for_end();
    fixture.wait_for_end();
}

#[test]
fn a_client_that_never_asks_loses_its_process() {
    let fixture = fixture("exec yes", Duration::ZERO);
    assert_eq!(fixture.status(1, CHECK), Status::Ok);
    fixture.wait_for_end();
}

#[test]
fn a_process_that_cannot_be_started_is_an_error_and_takes_no_place() {
    let fixture = fixture("true", IDLE_MAX);
    let backup = Inspect::Start(Inspection::Backup { freeze_ms_max: 1 });
    for _ in 0..2 * COUNT_MAX {
        assert_eq!(fixture.status(1, backup), Status::Io);
    }
    assert_eq!(fixture.status(1, CHECK), Status::Ok);
}
