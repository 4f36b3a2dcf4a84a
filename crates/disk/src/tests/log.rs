//! Log files: finding the end, and damage.

use super::{changes, session_record};
use crate::{
    BATCH_HEADER_BYTES, Batch, BatchHeader, Changes, Fault, LOG_HEADER_BYTES, LogHeader,
    LogPosition, LogReader, Trailer, zero_piece_count,
};
use alloc::vec::Vec;
use wire::{FsUuid, LaneId, Wire};

const BOOT_ID: u64 = 3;

/// A log of batches with these record counts, and the end of each batch.
fn log(record_counts: &[u64]) -> (Vec<u8>, Vec<usize>) {
    let head = LogHeader {
        fs: FsUuid([1; 16]),
        boot_id: BOOT_ID,
        lane: LaneId(0),
        lane_count: 1,
        segment_no: 1,
        file_bytes: 64,
        is_first: false,
    };
    let mut file = Vec::from(head.encode());
    let mut ends = Vec::new();
    let (mut batch, mut batch_no, mut lsn) = (Batch::new(), 0, 0);
    for record_count in record_counts {
        for _ in 0..*record_count {
            lsn += 1;
            batch.push(&session_record(lsn, &lsn.to_le_bytes()));
        }
        batch_no += 1;
        batch.seal(BOOT_ID, batch_no, &mut file);
        ends.push(file.len());
    }
    (file, ends)
}

/// The same with a trailer behind each batch, as a server writes it.
fn log_with_trailers(record_counts: &[u64]) -> (Vec<u8>, Vec<usize>) {
    let (bare, _) = log(record_counts);
    let mut file = Vec::from(&bare[..LOG_HEADER_BYTES]);
    let (mut rest, mut ends) = (&bare[LOG_HEADER_BYTES..], Vec::new());
    while let Some(head) = BatchHeader::decode(rest) {
        let (batch, behind) = rest.split_at(usize::try_from(head.batch_bytes).unwrap());
        let offset = bytes_count(file.len());
        file.extend_from_slice(batch);
        Trailer {
            boot_id: BOOT_ID,
            batch_no: head.batch_no,
            batch_bytes: head.batch_bytes,
            zero_piece_count: zero_piece_count(offset, batch),
            file_bytes: 1 << 20,
            places: [LogPosition { segment_no: 1, offset }].to_vec(),
        }
        .encode(&mut file);
        ends.push(file.len());
        rest = behind;
    }
    (file, ends)
}

/// The LSNs read, where reading ended, and the fault, if any.
fn read(file: &[u8]) -> (Vec<u64>, u64, Option<Fault>) {
    let (_, mut reader) = LogReader::new(file).unwrap();
    let (mut lsns, mut fault) = (Vec::new(), None);
    for batch in reader.by_ref() {
        match batch {
            Ok(batch) => lsns.extend(batch.records().map(|record| record.lsn)),
            Err(found) => fault = Some(found),
        }
    }
    (lsns, reader.valid_bytes(), fault)
}

fn bytes_count(count: usize) -> u64 {
    u64::try_from(count).unwrap()
}

#[test]
fn all_batches_are_read_and_the_reserved_tail_is_the_end() {
    let (mut file, ends) = log(&[1, 3, 2]);
    let end = bytes_count(ends[2]);
    assert_eq!(read(&file), ((1..=6).collect(), end, None));
    file.resize(file.len() + 1000, 0);
    assert_eq!(read(&file), ((1..=6).collect(), end, None));
    let (head, mut reader) = LogReader::new(&file).unwrap();
    assert_eq!(head.boot_id, BOOT_ID);
    while reader.next_batch().unwrap().is_some() {}
    assert!(!reader.is_torn());
    assert_eq!(reader.batch_no(), 3);
}

#[test]
fn an_empty_log_ends_behind_its_head() {
    let (file, _) = log(&[]);
    assert_eq!(read(&file), (Vec::new(), bytes_count(LOG_HEADER_BYTES), None));
    assert!(LogReader::new(&file[..LOG_HEADER_BYTES - 1]).is_err());
}

#[test]
fn a_torn_tail_is_cut_wherever_it_is_torn() {
    let (file, ends) = log(&[2, 2, 1]);
    for cut in ends[1]..ends[2] {
        let mut torn = Vec::from(&file[..cut]);
        torn.resize(ends[2] + 64, 0);
        let (_, mut reader) = LogReader::new(&torn).unwrap();
        let mut record_count = 0;
        while let Some(batch) = reader.next_batch().unwrap() {
            record_count += batch.records().count();
        }
        // A cut within the padding loses nothing: the reserved zeros are the padding.
        let whole = torn[..ends[2]] == file[..];
        assert_eq!(record_count, if whole { 5 } else { 4 }, "cut at {cut}");
        let valid = if whole { ends[2] } else { ends[1] };
        assert_eq!(reader.valid_bytes(), bytes_count(valid), "cut at {cut}");
        assert_eq!(reader.is_torn(), !whole && cut > ends[1], "cut at {cut}");
        assert_eq!(read(&file[..cut]).1, bytes_count(ends[1]), "short at {cut}");
    }
}

#[test]
fn a_torn_tail_written_out_of_order_is_cut() {
    let (file, ends) = log(&[2, 9]);
    let mut torn = file;
    torn[ends[0]..ends[0] + BATCH_HEADER_BYTES].fill(0);
    assert_eq!(read(&torn), ((1..=2).collect(), bytes_count(ends[0]), None));
}

#[test]
fn damage_in_front_of_a_later_batch_is_a_fault_and_says_where() {
    let (file, ends) = log(&[2, 1, 2]);
    for index in LOG_HEADER_BYTES..ends[1] {
        let mut damaged = file.clone();
        damaged[index] ^= 4;
        let (lsns, valid_bytes, fault) = read(&damaged);
        let start = if index < ends[0] { LOG_HEADER_BYTES } else { ends[0] };
        let fault = fault.unwrap();
        assert_eq!(fault.offset, bytes_count(start), "byte {index}");
        assert_eq!(valid_bytes, bytes_count(start), "byte {index}");
        assert_eq!(lsns.len(), if index < ends[0] { 0 } else { 2 }, "byte {index}");
    }
}

#[test]
fn a_flipped_bit_in_the_last_batch_cuts_it() {
    let (file, ends) = log(&[2, 1, 2]);
    for index in ends[1]..ends[2] {
        let mut damaged = file.clone();
        damaged[index] ^= 4;
        assert_eq!(read(&damaged), ((1..=3).collect(), bytes_count(ends[1]), None), "{index}");
    }
}

#[test]
fn a_flipped_bit_in_the_last_batch_with_a_trailer_is_a_fault() {
    let (file, ends) = log_with_trailers(&[2, 1, 9]);
    let batch_end = ends[2] - Trailer::bytes_count(1);
    for index in ends[1]..batch_end {
        let mut damaged = file.clone();
        damaged[index] ^= 4;
        let (lsns, valid_bytes, fault) = read(&damaged);
        assert_eq!((lsns.len(), valid_bytes), (3, bytes_count(ends[1])), "byte {index}");
        let fault = fault.unwrap();
        assert_eq!((fault.what, fault.offset), ("a durable batch is damaged", valid_bytes));
    }
    for index in batch_end..ends[2] {
        let mut damaged = file.clone();
        damaged[index] ^= 4;
        assert_eq!(read(&damaged), ((1..=12).collect(), bytes_count(batch_end), None), "{index}");
    }
}

#[test]
fn a_last_batch_with_missing_sectors_is_dropped_trailer_or_not() {
    let (file, ends) = log_with_trailers(&[1, 40]);
    let start = ends[0].next_multiple_of(512);
    for sector in (start..ends[1] - Trailer::bytes_count(1)).step_by(512) {
        let mut torn = file.clone();
        let end = torn.len().min(sector + 512);
        torn[sector..end].fill(0);
        assert_eq!(read(&torn), (alloc::vec![1], bytes_count(ends[0]), None), "{sector}");
    }
}

#[test]
fn the_last_trailer_has_the_file_length() {
    let (file, ends) = log_with_trailers(&[1, 1]);
    let (_, mut reader) = LogReader::new(&file).unwrap();
    while reader.next_batch().unwrap().is_some() {}
    let trailer = reader.trailer().unwrap();
    assert_eq!((trailer.batch_no, trailer.file_bytes), (2, 1 << 20));
    assert_eq!(trailer.places[0].offset, bytes_count(ends[0]));
    // In pieces, as a log is read while it is written.
    let mut piece = LogReader::piece(&file[ends[0] - Trailer::bytes_count(1)..], BOOT_ID, 1);
    assert_eq!(piece.next_batch().unwrap().unwrap().head().batch_no, 2);
}

#[test]
fn a_batch_of_another_boot_is_no_continuation_and_no_damage() {
    let (mut file, ends) = log(&[1]);
    let mut batch = Batch::new();
    batch.push(&session_record(2, b""));
    batch.seal(BOOT_ID + 1, 2, &mut file);
    assert_eq!(read(&file), (alloc::vec![1], bytes_count(ends[0]), None));
}

#[test]
fn a_missing_batch_is_damage() {
    let (file, ends) = log(&[1, 1, 1]);
    let mut gap = Vec::from(&file[..ends[0]]);
    gap.extend_from_slice(&file[ends[1]..]);
    let fault = read(&gap).2.unwrap();
    assert_eq!((fault.offset, fault.expected, fault.found), (bytes_count(ends[0]), 2, 3));
}

#[test]
fn client_bytes_in_a_torn_batch_are_not_taken_for_a_later_batch() {
    let (mut file, ends) = log(&[1]);
    let mut forged = Vec::new();
    let mut batch = Batch::new();
    batch.push(&session_record(9, b""));
    batch.seal(BOOT_ID, 3, &mut forged);
    // All alignments: the forged header lies at a multiple of 8 somewhere.
    let mut changes = Vec::new();
    for shift in 0..8 {
        changes.resize(changes.len() + shift, 7);
        changes.extend_from_slice(&forged);
    }
    batch.push(&session_record(2, &changes));
    batch.seal(BOOT_ID, 2, &mut file);
    let last = file.len() - 9;
    file[last] ^= 1;
    assert_eq!(read(&file), (alloc::vec![1], bytes_count(ends[0]), None));
}

#[test]
fn changes_decode_and_stop_at_a_fault() {
    let mut bytes = Vec::new();
    for change in changes() {
        change.encode(&mut wire::Writer::new(&mut bytes));
    }
    let good_bytes = bytes.len();
    bytes.extend_from_slice(&[99, 1, 2, 3]);
    let mut reader = Changes::new(&bytes);
    for change in changes() {
        assert_eq!(reader.next(), Some(Ok(change)));
    }
    assert_eq!(reader.next().unwrap().unwrap_err().offset, bytes_count(good_bytes));
    assert_eq!(reader.next(), None);
}

#[test]
fn random_logs_are_read_as_written() {
    for seed in 1..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let counts: Vec<u64> = (0..rng.usize(..9)).map(|_| 1 + rng.u64(..) % 5).collect();
        let (mut file, ends) = log(&counts);
        let end = ends.last().copied().unwrap_or(LOG_HEADER_BYTES);
        let tail = rng.usize(..100);
        file.resize(file.len() + tail, 0);
        let all = (1..=counts.iter().sum()).collect();
        assert_eq!(read(&file), (all, bytes_count(end), None), "seed {seed}");
    }
}
