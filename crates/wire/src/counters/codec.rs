//! The encoding of a snapshot.
//!
//! ```text
//! snapshot  version 2 | section*
//! section   kind 2 | bytes 4 | row*
//! row       bytes 4 | label_count 1 | value_count 2 | label* | value* | what later versions add
//! label     kind 1 | text_bytes 1 | text
//! value     metric 2 | bytes 2 | number 8, or sum 8 and (bucket 1, count 8)*
//! ```
//! A reader skips sections, labels and metrics that it does not know. Invariant: what was decoded takes
//! memory in proportion to the bytes that it came from.

use super::{By, Histogram, Kind, Label, Metric, Row, Section, Snapshot, Value};
use crate::ProtocolError;
use crate::codec::{DecodeError, Reader, Wire as _, Writer};
use alloc::string::String;
use alloc::vec::Vec;

/// The version that is written and read: another one cannot be read at all.
const VERSION: u16 = 1;
/// Most bytes of a label's text.
const TEXT_BYTES_MAX: usize = 255;

impl Snapshot {
    /// The encoding.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut to = Writer::new(&mut out);
        to.write(&VERSION);
        for Section { by, rows } in &self.sections {
            let mut body = Vec::new();
            rows.iter().for_each(|row| put_row(row, &mut body));
            to.write(&(*by as u16));
            to.write(&crate::Bytes(&body));
        }
        out
    }

    /// Reads one of this or another version of the program.
    ///
    /// # Errors
    /// [`ProtocolError::Malformed`] when lengths do not fit, something is there twice, or a value is
    /// not one of its metric.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        read_snapshot(bytes).map_err(|error| match error {
            DecodeError::ProtocolError(protocol_error) => protocol_error,
            DecodeError::Status(_) => ProtocolError::Malformed,
        })
    }
}

const MALFORMED: DecodeError = DecodeError::ProtocolError(ProtocolError::Malformed);

fn put_row(Row { labels, values }: &Row, out: &mut Vec<u8>) {
    let mut body = Vec::new();
    let mut to = Writer::new(&mut body);
    to.write(&u8::try_from(labels.len()).unwrap_or(u8::MAX));
    to.write(&u16::try_from(values.len()).unwrap_or(u16::MAX));
    for (label, text) in labels {
        let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        to.write(&(*label as u8));
        to.write(&u8::try_from(text.len()).unwrap_or(u8::MAX));
        to.put(text.as_bytes());
    }
    for (metric, value) in values {
        to.write(&metric.number());
        match value {
            Value::Number(number) => {
                to.write(&8_u16);
                to.write(number);
            }
            Value::Histogram(histogram) => {
                let mut buckets = Vec::new();
                let mut into = Writer::new(&mut buckets);
                into.write(&histogram.sum_us());
                for (bucket, count) in histogram.buckets() {
                    into.write(&bucket);
                    into.write(&count);
                }
                to.write(&u16::try_from(buckets.len()).unwrap_or(u16::MAX));
                to.put(&buckets);
            }
        }
    }
    Writer::new(out).write(&crate::Bytes(&body));
}

fn read_snapshot(bytes: &[u8]) -> Result<Snapshot, DecodeError> {
    let mut from = Reader::new(bytes);
    if u16::decode(&mut from)? != VERSION {
        return Err(MALFORMED);
    }
    let mut sections: Vec<Section> = Vec::new();
    while from.left() > 0 {
        let by = By::from_number(from.read()?);
        let body: crate::Bytes<'_> = from.read()?;
        let Some(by) = by else { continue };
        if sections.iter().any(|section| section.by == by) {
            return Err(MALFORMED);
        }
        let mut rows = Vec::new();
        let mut from = Reader::new(body.0);
        while from.left() > 0 {
            let row: crate::Bytes<'_> = from.read()?;
            rows.push(read_row(row.0)?);
        }
        sections.push(Section { by, rows });
    }
    Ok(Snapshot { sections })
}

fn read_row(bytes: &[u8]) -> Result<Row, DecodeError> {
    let mut from = Reader::new(bytes);
    let (label_count, value_count) = (u8::decode(&mut from)?, u16::decode(&mut from)?);
    let mut row = Row::default();
    for _ in 0..label_count {
        let label = Label::from_number(from.read()?);
        let text_bytes = u8::decode(&mut from)?;
        let text = from.take(text_bytes.into())?;
        let text = core::str::from_utf8(text).map_err(|_| MALFORMED)?;
        let Some(label) = label else { continue };
        if row.label(label).is_some() {
            return Err(MALFORMED);
        }
        row.labels.push((label, String::from(text)));
    }
    for _ in 0..value_count {
        let metric = Metric::from_number(from.read()?);
        let value_bytes = u16::decode(&mut from)?;
        let value = from.take(value_bytes.into())?;
        let Some(metric) = metric else { continue };
        // In the order of the table, so nothing is there twice.
        if row.values.last().is_some_and(|(last, _)| *last >= metric) {
            return Err(MALFORMED);
        }
        row.values.push((metric, read_value(metric, value)?));
    }
    Ok(row)
}

fn read_value(metric: Metric, bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut from = Reader::new(bytes);
    let number = u64::decode(&mut from)?;
    if metric.row().kind != Kind::Histogram {
        return from.finish().map(|()| Value::Number(number));
    }
    let mut buckets = Vec::new();
    while from.left() > 0 {
        buckets.push((u8::decode(&mut from)?, u64::decode(&mut from)?));
    }
    let histogram = Histogram::of_buckets(number, buckets.into_iter());
    histogram.map(Value::Histogram).ok_or(MALFORMED)
}
