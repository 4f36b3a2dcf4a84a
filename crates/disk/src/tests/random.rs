//! No bytes make a decoder panic, and what decodes encodes to the same bytes.

use super::{changes, session_record};
use crate::{Batch, Change, Changes, LogHeader, LogReader, Record, Superblock};
use alloc::vec::Vec;
use fastrand::Rng;
use wire::{FsUuid, LaneId, Reader, Wire};

fn decode_everything(bytes: &[u8]) -> usize {
    let mut decoded_count = 0;
    decoded_count += usize::from(Superblock::decode(bytes).is_ok());
    if let Ok((_, reader)) = LogReader::new(bytes) {
        decoded_count +=
            reader.filter_map(Result::ok).map(|batch| batch.records().count()).sum::<usize>();
    }
    if let Ok((record, rest)) = Record::decode(bytes) {
        let mut again = Vec::new();
        record.encode(&mut again);
        assert_eq!(again, bytes[..bytes.len() - rest.len()]);
        decoded_count += 1;
    }
    decoded_count + Changes::new(bytes).filter(Result::is_ok).count()
}

fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.usize(..4) {
        let index = rng.usize(..bytes.len());
        match rng.usize(..4) {
            0 => bytes[index] = rng.u8(..),
            1 => bytes[index] ^= 1 << rng.usize(..8),
            2 => bytes.truncate(index.max(1)),
            _ => {
                let inserted_count = rng.usize(..9);
                let inserted: Vec<u8> = (0..inserted_count).map(|_| rng.u8(..)).collect();
                bytes.splice(index..index, inserted);
            }
        }
    }
}

#[test]
fn random_bytes() {
    let mut rng = Rng::with_seed(1);
    for _ in 0..20_000 {
        let count = rng.usize(..300);
        let mut bytes: Vec<u8> = (0..count).map(|_| rng.u8(..)).collect();
        if let Some(tag) = bytes.first_mut() {
            *tag %= 40;
        }
        decode_everything(&bytes);
    }
}

const HEAD: LogHeader = LogHeader {
    fs: FsUuid([1; 16]),
    boot_id: 3,
    lane: LaneId(0),
    lane_count: 1,
    segment_no: 1,
    file_bytes: 64,
    is_first: false,
};

#[test]
fn mutated_layouts() {
    let mut rng = Rng::with_seed(2);
    let mut encoded_changes = Vec::new();
    for change in changes() {
        change.encode(&mut wire::Writer::new(&mut encoded_changes));
    }
    let mut record = Vec::new();
    session_record(7, &encoded_changes).encode(&mut record);
    let mut log = Vec::from(HEAD.encode());
    let mut batch = Batch::new();
    for batch_no in 1..4 {
        batch.push(&session_record(batch_no, &encoded_changes));
        batch.seal(3, batch_no, &mut log);
    }
    let mut decoded_count = 0;
    for _ in 0..4000 {
        for original in [&encoded_changes, &record, &log] {
            let mut bytes = original.clone();
            mutate(&mut rng, &mut bytes);
            decoded_count += decode_everything(&bytes);
        }
    }
    assert!(decoded_count > 1000, "the mutations are small enough to decode at times");
}

#[test]
fn changes_that_decode_encode_to_the_same_bytes() {
    let mut rng = Rng::with_seed(3);
    let mut decoded_count = 0;
    for _ in 0..20_000 {
        let originals = changes();
        let mut bytes = originals[rng.usize(..originals.len())].to_bytes();
        mutate(&mut rng, &mut bytes);
        let mut reader = Reader::new(&bytes);
        if let Ok(change) = Change::decode(&mut reader) {
            assert_eq!(change.to_bytes(), bytes[..bytes.len() - reader.left()]);
            decoded_count += 1;
        }
    }
    assert!(decoded_count > 1000);
}

#[test]
fn a_mutated_record_in_a_good_batch_is_a_fault_or_a_record() {
    let mut rng = Rng::with_seed(4);
    let mut record = Vec::new();
    session_record(7, b"changes").encode(&mut record);
    let (mut fault_count, mut record_count) = (0, 0);
    for _ in 0..5000 {
        let mut payload = record.clone();
        mutate(&mut rng, &mut payload);
        payload.resize(payload.len().next_multiple_of(8), 0);
        let mut file = Vec::from(HEAD.encode());
        let batch_head = crate::BatchHeader {
            boot_id: 3,
            batch_no: 1,
            batch_bytes: u32::try_from(40 + payload.len()).unwrap(),
            record_count: 1,
            payload_crc32c: wire::crc32c(&payload),
        };
        file.extend_from_slice(&batch_head.encode());
        file.extend_from_slice(&payload);
        let (_, mut reader) = LogReader::new(&file).unwrap();
        match reader.next_batch() {
            Ok(batch) => {
                assert_eq!(batch.unwrap().records().count(), 1);
                record_count += 1;
            }
            Err(fault) => {
                assert!(fault.offset >= 64 + 40);
                fault_count += 1;
            }
        }
    }
    assert!(fault_count > 100 && record_count > 100);
}
