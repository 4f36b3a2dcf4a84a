//! What a lane says that it has done.

use super::harness::{Harness, u32s, u64s};
use super::{DIRECTORY, FILE, attr};
use crate::abi::Opcode;
use alloc::sync::Arc;
use alloc::vec::Vec;
use client::{Cache, CacheSize};
use interface::{BufId, Bulk, Event, NO_MAC, Span, Ticket};
use test_runtime::Incoming;
use wire::counters::{By, Label, Metric, Row, Snapshot};
use wire::{Entry, FileKind, Op, Question, Rules, Status, Wire as _, lease_flag};

impl Harness {
    pub(super) fn asked(&mut self, question: Vec<u8>) -> Vec<u8> {
        let event = Event::Asked { ticket: Ticket(3), question: Span::default() };
        self.state.deliver(Incoming::new(event, question));
        self.run();
        assert_eq!(self.answers.len(), 1, "each question has one answer");
        self.answers.remove(0)
    }

    fn snapshot(&mut self) -> Snapshot {
        let answer = self.asked(Question::Counters.encode());
        Snapshot::decode(&answer).unwrap()
    }
}

fn of<'a>(snapshot: &'a Snapshot, by: By, name: &str) -> &'a Row {
    let rows = snapshot.rows(by).iter();
    let mut found = rows.filter(|row| row.label(Label::Op) == Some(name));
    found.next().unwrap_or_else(|| panic!("no {name}"))
}

fn numbers<const N: usize>(row: &Row, metrics: [Metric; N]) -> [u64; N] {
    metrics.map(|metric| row.number(metric).unwrap_or_else(|| panic!("no {metric:?}")))
}

#[test]
fn requests_and_exchanges_are_counted_with_their_times_and_bytes() {
    let mut harness = Harness::new();
    harness.kernel_request(Opcode::Getattr, 1, FILE, &[]);
    let getattr = harness.take();
    harness.now_ms += 3;
    harness.answer(&getattr, &Entry { attr: attr(FILE, FileKind::File) }.to_bytes());
    assert_eq!(harness.reply().status, Status::Ok);
    harness.kernel_request(Opcode::Lookup, 2, DIRECTORY, b"absent\0");
    let lookup = harness.take();
    harness.fail(&lookup, Status::NotFound);
    assert_eq!(harness.status(), Status::NotFound);
    // An op code that there is not, and one without a reply.
    let unknown = super::harness::request(4000, 3, FILE, &[]);
    harness.kernel_bytes(Some(3), unknown, None);
    assert_eq!(harness.status(), Status::NotImplemented);
    harness.kernel_bytes(None, super::harness::request(2, 4, FILE, &u64s(&[1])), None);

    let snapshot = harness.snapshot();
    let metrics = [Metric::Requests, Metric::AnsweredAlone, Metric::ErrorsAbsent];
    let of_op = |name| numbers(of(&snapshot, By::Op, name), metrics);
    assert_eq!(of_op("getattr"), [1, 0, 0]);
    assert_eq!(of_op("lookup"), [1, 0, 1]);
    assert_eq!(of_op("unknown"), [1, 1, 0]);
    assert_eq!(of_op("forget"), [1, 1, 0]);
    let getattr = of(&snapshot, By::Op, "getattr");
    let bytes = [Metric::InBytes, Metric::OutBytes, Metric::RequestTime];
    // Headers of 40 and 16 bytes, and `fuse_attr_out`.
    assert_eq!(numbers(getattr, bytes), [40, 16 + 104, 3_000]);
    let times = getattr.histogram(Metric::ReplyTime).unwrap();
    assert_eq!((times.count(), times.sum_us()), (1, 3_000));
    let forget = of(&snapshot, By::Op, "forget").histogram(Metric::ReplyTime).unwrap();
    assert_eq!((forget.count(), forget.sum_us()), (1, 0));

    let exchange = of(&snapshot, By::Exchange, Op::Getattr.row().name);
    assert_eq!(numbers(exchange, metrics[..1].try_into().unwrap()), [1]);
    let times = exchange.histogram(Metric::ExchangeTime).unwrap();
    assert_eq!((times.count(), times.sum_us()), (1, 3_000));
    let [lane] = snapshot.rows(By::Lane) else { panic!("{snapshot:?}") };
    let of_lane = [Metric::Requests, Metric::AnsweredAlone, Metric::Exchanges, Metric::Connections];
    assert_eq!(numbers(lane, of_lane), [4, 2, 2, 1]);
    // The first one came before there was a connection.
    assert_eq!(numbers(lane, [Metric::WaitsConnection, Metric::WaitingReply]), [1, 0]);
}

#[test]
fn bytes_of_files_are_counted_without_headers_and_what_waits_is_said() {
    let mut harness = Harness::with_open(&[FILE]);
    let write = [u64s(&[1, 0]), u32s(&[100, 0]), u64s(&[0]), u32s(&[1, 0])].concat();
    let data = Bulk { buf: BufId(4), start: 0, bulk_bytes: 100, crc32c: None, mac: NO_MAC };
    let bytes = super::harness::request(Opcode::Write as u32, 8, FILE, &write);
    harness.kernel_bytes(Some(8), bytes, Some(data));
    let received = harness.take();
    let waiting = [Metric::Unanswered, Metric::WaitingReply, Metric::WrittenBytes];
    let lane = |harness: &mut Harness| harness.snapshot().rows(By::Lane)[0].clone();
    assert_eq!(numbers(&lane(&mut harness), waiting), [1, 1, 0]);
    let written = wire::Written { file_offset: 0, written_bytes: 100 };
    harness.answer(&received, &written.to_bytes());
    assert_eq!(harness.reply().status, Status::Ok);
    assert_eq!(numbers(&lane(&mut harness), waiting), [0, 0, 100]);
    let snapshot = harness.snapshot();
    let row = of(&snapshot, By::Op, "write");
    assert_eq!(numbers(row, [Metric::WrittenBytes, Metric::InBytes]), [100, 40 + 40 + 100]);
}

#[test]
fn what_is_answered_from_the_cache_is_told_apart_and_recalls_are_counted() {
    let size = CacheSize {
        name_count_max: 64,
        attributes_count_max: 64,
        directory_count_max: 64,
        slot_count: 1_024,
    };
    let cache = Arc::new(Cache::new([1, 2, 3], size, Rules::default()));
    let mut harness = Harness::with_cache(&cache);
    harness.kernel_request(Opcode::Getattr, 1, FILE, &[]);
    let received = harness.take();
    let entry = Entry { attr: attr(FILE, FileKind::File) }.to_bytes();
    harness.grant_leases(&received, Ok(&entry), (1, lease_flag::ATTRIBUTES));
    assert_eq!(harness.reply().status, Status::Ok);
    harness.kernel_request(Opcode::Getattr, 2, FILE, &[]);
    assert_eq!(harness.reply().status, Status::Ok);
    harness.recall(&received, 1, &[wire::LeaseKey::Attributes(FILE)]);
    let snapshot = harness.snapshot();
    let getattr = of(&snapshot, By::Op, "getattr");
    assert_eq!(numbers(getattr, [Metric::Requests, Metric::AnsweredAlone]), [2, 1]);
    let lane = &snapshot.rows(By::Lane)[0];
    let cached = [Metric::CachedAttributes, Metric::CachedNames, Metric::LeasesGranted];
    assert_eq!(numbers(lane, cached), [1, 0, 1]);
    let recalls = [Metric::Recalls, Metric::RecalledAttributes, Metric::RecallsOpen];
    assert_eq!(numbers(lane, recalls), [1, 1, 1]);
    harness.now_ms += 2;
    harness.all_notified();
    let snapshot = harness.snapshot();
    let lane = &snapshot.rows(By::Lane)[0];
    assert_eq!(numbers(lane, [Metric::RecallsOpen, Metric::RecallTime]), [0, 2_000]);
}

#[test]
fn what_is_no_question_gets_an_empty_answer() {
    let mut harness = Harness::new();
    assert!(harness.asked(Vec::new()).is_empty());
    assert!(harness.asked([0xff; 9].to_vec()).is_empty());
}
