//! The encoding, other versions of it, and how snapshots are taken together.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::Op;
use alloc::collections::BTreeSet;
use alloc::string::ToString as _;
use alloc::vec;

fn row(label: Label, text: &str, numbers: &[(Metric, u64)]) -> Row {
    let mut row = Row { labels: vec![(label, text.to_string())], values: Vec::new() };
    for (metric, number) in numbers {
        row.set(*metric, Value::Number(*number));
    }
    row
}

fn times(us: &[u64]) -> Histogram {
    let mut histogram = Histogram::default();
    us.iter().for_each(|us| histogram.record(*us));
    histogram
}

fn lane(number: u16, requests: u64) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let numbers =
        [(Metric::Requests, requests), (Metric::CpuTime, 70), (Metric::TurnTimeMax, requests)];
    snapshot.section_mut(By::Lane).rows.push(row(Label::Lane, &number.to_string(), &numbers));
    let mut getattr =
        row(Label::Op, "getattr", &[(Metric::Requests, requests), (Metric::ErrorsAbsent, 1)]);
    getattr.set(Metric::QueueTime, Value::Histogram(times(&[0, 5, requests])));
    snapshot.section_mut(By::Op).rows.push(getattr);
    snapshot
}

#[test]
fn what_is_encoded_is_decoded() {
    let snapshot = lane(3, 700);
    assert_eq!(Snapshot::decode(&snapshot.encode()), Ok(snapshot));
    assert_eq!(Snapshot::decode(&Snapshot::default().encode()), Ok(Snapshot::default()));
}

#[test]
fn every_cut_is_refused() {
    let bytes = lane(3, 700).encode();
    let (first, second) = (Snapshot::default().encode().len(), {
        let mut one = lane(3, 700);
        one.sections.truncate(1);
        one.encode().len()
    });
    for end in 0..bytes.len() {
        // Sections may end anywhere between two.
        let is_whole = end == first || end == second;
        assert_eq!(Snapshot::decode(&bytes[..end]).is_ok(), is_whole, "{end}");
    }
}

#[test]
fn what_a_newer_server_adds_is_skipped() {
    let known = lane(1, 9);
    let row = |metric: u16, label: u8| {
        let mut row = vec![2_u8, 2, 0, 2, 7];
        row.extend_from_slice(b"getattr");
        row.extend_from_slice(&[label, 1, b'x']);
        row.extend_from_slice(&1_u16.to_le_bytes());
        row.extend_from_slice(&8_u16.to_le_bytes());
        row.extend_from_slice(&9_u64.to_le_bytes());
        row.extend_from_slice(&metric.to_le_bytes());
        row.extend_from_slice(&3_u16.to_le_bytes());
        row.extend_from_slice(b"new");
        row.extend_from_slice(b"behind the values");
        row
    };
    let section = |by: u16, body: &[u8]| {
        let mut bytes = by.to_le_bytes().to_vec();
        bytes.extend_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    };
    let unknown_row = row(60_000, 200);
    let mut rows = u32::try_from(unknown_row.len()).unwrap().to_le_bytes().to_vec();
    rows.extend_from_slice(&unknown_row);
    let mut bytes = vec![1, 0];
    bytes.extend_from_slice(&section(50_000, b"anything"));
    bytes.extend_from_slice(&section(2, &rows));
    let decoded = Snapshot::decode(&bytes).unwrap();
    let expected = super::tests::row(Label::Op, "getattr", &[(Metric::Requests, 9)]);
    assert_eq!(decoded.rows(By::Op), [expected]);
    // And what an older one does not count is absent.
    assert_eq!(decoded.rows(By::Client), []);
    assert_eq!(decoded.rows(By::Op)[0].value(Metric::CommitTime), None);
    assert!(known.rows(By::Op)[0].histogram(Metric::QueueTime).is_some());
}

#[test]
fn what_is_there_twice_or_of_another_kind_is_refused() {
    let twice = |snapshot: &Snapshot| {
        let mut bytes = snapshot.encode();
        let again = bytes[2..].to_vec();
        bytes.extend_from_slice(&again);
        bytes
    };
    assert!(Snapshot::decode(&twice(&lane(0, 1))).is_err());
    let with = |values: Vec<(Metric, Value)>| {
        let rows = vec![Row { labels: Vec::new(), values }];
        Snapshot { sections: vec![Section { by: By::Op, rows }] }.encode()
    };
    let number = Value::Number(1);
    assert!(Snapshot::decode(&with(vec![(Metric::Requests, number.clone())])).is_ok());
    let doubled = vec![(Metric::Requests, number.clone()), (Metric::Requests, number)];
    assert!(Snapshot::decode(&with(doubled)).is_err());
    let other_kind = vec![(Metric::Requests, Value::Histogram(times(&[1])))];
    assert!(Snapshot::decode(&with(other_kind)).is_err());
    let mut version = lane(0, 1).encode();
    version[0] = 2;
    assert!(Snapshot::decode(&version).is_err());
}

/// Bytes that no server sent: they decode or are refused, and what decodes is encoded again.
#[test]
fn changed_bytes_decode_or_are_refused() {
    let mut state = 1_u64;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap()
    };
    let bytes = lane(3, 700).encode();
    let mut decoded_count = 0;
    for _ in 0..20_000 {
        let mut changed = bytes.clone();
        for _ in 0..=random() % 3 {
            let at = random() % changed.len();
            changed[at] = u8::try_from(random() % 256).unwrap();
        }
        if let Ok(decoded) = Snapshot::decode(&changed) {
            decoded_count += 1;
            assert_eq!(Snapshot::decode(&decoded.encode()), Ok(decoded.clone()));
            let total = Snapshot::total([&decoded, &decoded]);
            let _difference = total.since(&decoded);
            let histograms = total.samples().filter_map(|sample| match sample.value {
                Value::Histogram(histogram) => Some(histogram.quantile_us(99, 100)),
                Value::Number(_) => None,
            });
            assert!(histograms.count() <= 2);
        }
    }
    assert!(decoded_count > 1000, "{decoded_count}");
}

#[test]
fn lanes_become_one() {
    let total = Snapshot::total([&lane(0, 10), &lane(1, 30)]);
    let [one] = total.rows(By::Lane) else { panic!("{total:?}") };
    assert_eq!(one.labels, []);
    let numbers = [Metric::Requests, Metric::CpuTime, Metric::TurnTimeMax].map(|it| one.number(it));
    assert_eq!(numbers, [Some(40), Some(70), Some(30)]);
    let [getattr] = total.rows(By::Op) else { panic!("{total:?}") };
    assert_eq!(getattr.label(Label::Op), Some("getattr"));
    assert_eq!(getattr.number(Metric::ErrorsAbsent), Some(2));
    let expected = times(&[0, 0, 5, 5, 10, 30]);
    assert_eq!(getattr.histogram(Metric::QueueTime), Some(&expected));
}

#[test]
fn an_interval_is_the_difference_of_two() {
    let (before, now) = (lane(0, 10), lane(0, 25));
    let between = now.since(&before);
    let row = &between.rows(By::Lane)[0];
    assert_eq!(row.number(Metric::Requests), Some(15));
    assert_eq!(row.number(Metric::TurnTimeMax), Some(25), "a gauge");
    // A server that was started again counts from 0, and a new row from its beginning.
    assert_eq!(before.since(&now).rows(By::Lane)[0].number(Metric::Requests), Some(10));
    assert_eq!(now.since(&Snapshot::default()), now);
}

#[test]
fn the_largest_snapshot_fits_into_a_reply() {
    let mut full = Histogram::default();
    for exponent in 0..40 {
        (4..8).for_each(|quarter: u64| full.record(quarter << exponent >> 2));
    }
    let values = |histograms: bool| {
        let is_meant = |metric: &&Metric| histograms || metric.row().kind != Kind::Histogram;
        let value = |metric: &Metric| match metric.row().kind {
            Kind::Histogram => Value::Histogram(full.clone()),
            Kind::Counter | Kind::Gauge => Value::Number(u64::MAX),
        };
        let metrics = Metric::ALL.iter().filter(is_meant);
        metrics.map(|metric| (*metric, value(metric))).collect::<Vec<_>>()
    };
    let of_op = |metric: &Metric| metric.number() < Metric::SendTime.number();
    let mut snapshot = Snapshot::default();
    let mut of_lane = values(false);
    of_lane.push((Metric::SendTime, Value::Histogram(full.clone())));
    snapshot.section_mut(By::Lane).rows.push(Row { labels: Vec::new(), values: of_lane });
    for op in Op::ALL {
        let values = values(true).into_iter().filter(|(metric, _)| of_op(metric)).collect();
        let labels = vec![(Label::Op, op.row().name.to_string())];
        snapshot.section_mut(By::Op).rows.push(Row { labels, values });
    }
    let of_request: Vec<_> =
        values(false).into_iter().filter(|(metric, _)| of_op(metric)).collect();
    let long = "x".repeat(64);
    for (by, count) in [(By::Client, 256), (By::Export, 64), (By::Job, 64)] {
        for number in 0..count {
            let labels = Label::ALL[2..6].iter().map(|label| (*label, long.clone())).collect();
            let mut values = of_request.clone();
            if by == By::Client {
                values.push((Metric::Connections, Value::Number(u64::MAX)));
            }
            assert!(number < 256);
            snapshot.section_mut(by).rows.push(Row { labels, values });
        }
    }
    let bytes = snapshot.encode().len();
    assert!(bytes <= crate::BODY_BYTES_MAX as usize, "{bytes} bytes");
}

#[test]
fn names_and_labels_tell_metrics_apart() {
    let told: BTreeSet<_> =
        Metric::ALL.iter().map(|metric| (metric.row().name, metric.row().label)).collect();
    assert_eq!(told.len(), Metric::ALL.len());
    for metric in Metric::ALL {
        let same = |other: &&Metric| other.row().name == metric.row().name;
        let rows = Metric::ALL.iter().filter(same).map(|other| other.row());
        for row in rows {
            let here = metric.row();
            let said =
                |row: &super::metric::MetricRow| (row.kind, row.unit, row.label.map(|it| it.0));
            assert_eq!(said(row), said(here), "{}", here.name);
        }
    }
}
