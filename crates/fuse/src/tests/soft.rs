//! Requests of soft mounts that no server answers in time.

use super::harness::{Harness, request, u32s, u64s};
use super::{DIRECTORY, FILE};
use crate::abi::{Opcode, WRITE_CACHE};
use interface::{BufId, Bulk, LogLevel, NO_MAC};
use wire::Status;

/// A mount whose requests may take 8 s.
fn soft() -> Harness {
    let mut harness = Harness::with_open(&[FILE]);
    harness.lane.config.soft_ms = Some(8_000);
    harness
}

fn pass_s(harness: &mut Harness, seconds: u64) {
    for _ in 0..seconds {
        harness.wait_ms(1_000);
    }
}

#[test]
fn a_request_that_waits_for_a_server_fails_when_its_time_is_over() {
    let mut harness = soft();
    harness.shape.listening = false;
    harness.hang_up();
    harness.kernel_request(Opcode::Unlink, 8, DIRECTORY, b"a\0");
    pass_s(&mut harness, 5);
    harness.kernel_request(Opcode::Unlink, 9, DIRECTORY, b"b\0");
    pass_s(&mut harness, 2);
    assert!(harness.replies.is_empty(), "it may still be answered in time");
    pass_s(&mut harness, 2);
    assert_eq!(harness.status(), Status::Io);
    assert!(harness.replies.is_empty(), "the other one has come later");
    pass_s(&mut harness, 5);
    assert_eq!(harness.status(), Status::Io);
    let is_it = |line: &[u8]| core::str::from_utf8(line).unwrap().contains("fail with EIO");
    let said = harness.logged.iter().filter(|(_, line)| is_it(line));
    let levels: super::std::vec::Vec<_> = said.map(|(level, _)| *level).collect();
    assert_eq!(levels, [LogLevel::Warning], "once in a minute");
}

#[test]
fn a_server_that_is_connected_and_does_not_answer_is_waited_for_as_long() {
    let mut harness = soft();
    harness.kernel_request(Opcode::Unlink, 8, DIRECTORY, b"a\0");
    let received = harness.take();
    pass_s(&mut harness, 7);
    assert!(harness.replies.is_empty());
    pass_s(&mut harness, 3);
    assert_eq!(harness.status(), Status::Io);
    harness.answer(&received, &[]);
    assert!(harness.replies.is_empty(), "nobody waits for that any more");
}

#[test]
fn other_mounts_wait_and_what_is_answered_in_time_is_not_late() {
    let mut hard = soft();
    hard.lane.config.soft_ms = None;
    hard.shape.listening = false;
    hard.hang_up();
    hard.kernel_request(Opcode::Unlink, 8, DIRECTORY, b"a\0");
    pass_s(&mut hard, 600);
    assert!(hard.replies.is_empty());
    let mut harness = soft();
    harness.kernel_request(Opcode::Unlink, 8, DIRECTORY, b"a\0");
    let received = harness.take();
    pass_s(&mut harness, 7);
    harness.answer(&received, &[]);
    assert_eq!(harness.status(), Status::Ok);
}

#[test]
fn what_the_kernel_writes_back_waits() {
    let mut harness = soft();
    harness.shape.listening = false;
    harness.hang_up();
    let args = [u64s(&[1, 0]), u32s(&[9, WRITE_CACHE]), u64s(&[0]), u32s(&[0, 0])].concat();
    let data = Bulk { buf: BufId(4), start: 0, bulk_bytes: 9, crc32c: None, mac: NO_MAC };
    harness.kernel_bytes(Some(8), request(Opcode::Write as u32, 8, FILE, &args), Some(data));
    pass_s(&mut harness, 60);
    assert!(harness.replies.is_empty(), "the kernel would drop the page");
}
