//! The layouts on the medium have not changed since the format was fixed.

use super::{changes, session_record};
use crate::{
    Batch, BatchHeader, Creation, Fault, LogHeader, LogPosition, Member, Origin, PreVersions,
    Record, Superblock, Trailer,
};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use hex::encode as hex;
use wire::{FsUuid, LaneId, ServerId, ShardId, Term, Transno, Wire};

fn superblock() -> Superblock {
    let fs = FsUuid([0xF5; 16]);
    let layout = wire::Layout::DEFAULT;
    let creation = Creation { at_ns: 0x0102_0304, uid: 1000, gid: 100, mode: 0o1777, layout };
    Superblock { fs, meta_shard_count: 64, data_shard_count: 32, creation, member: None }
}

fn log_head() -> LogHeader {
    LogHeader {
        fs: FsUuid([0xF5; 16]),
        boot_id: 3,
        lane: LaneId(1),
        lane_count: 2,
        segment_no: 7,
        file_bytes: 0x0400_0000,
        is_first: true,
    }
}

#[test]
fn superblock_bytes() {
    let bytes = superblock().encode();
    assert_eq!(
        hex(&bytes[..60]),
        "4c414e45465353420a00000088ba0dfef5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5400020000000\
         00000403020100000000e803000064000000ff030000"
    );
    assert_eq!(hex(&bytes[60..76]), "00000000000000000002000001000000");
    assert!(bytes[76..].iter().all(|byte| *byte == 0));
    assert_eq!(Superblock::decode(&bytes), Ok(superblock()));
}

#[test]
fn superblock_bytes_of_a_store_in_a_cluster() {
    let member =
        Member { server: ServerId(3), first_meta: 128, first_data: 130, store: [0xAB; 16] };
    let superblock = Superblock { member: Some(member), ..superblock() };
    let bytes = superblock.encode();
    assert_eq!(hex(&bytes[8..16]), "0b00000011246b87");
    assert_eq!(hex(&bytes[74..96]), "030080008200abababababababababababababababab");
    assert!(bytes[96..].iter().all(|byte| *byte == 0));
    assert_eq!(Superblock::decode(&bytes), Ok(superblock));
}

#[test]
fn a_superblock_of_another_version_names_both() {
    let mut bytes = superblock().encode();
    bytes[8] = 8;
    let fault = Superblock::decode(&bytes).unwrap_err().on("store/superblock");
    assert_eq!((fault.expected, fault.found, fault.offset), (10, 8, 8));
    assert_eq!(
        fault.to_string(),
        "store/superblock: a store of an unknown format version at byte 8 (expected 10, found 8)"
    );
}

#[test]
fn any_flipped_bit_of_a_superblock_is_found() {
    let bytes = superblock().encode();
    for index in 0..bytes.len() {
        let mut damaged = bytes;
        damaged[index] ^= 0x10;
        assert!(Superblock::decode(&damaged).is_err(), "byte {index}");
    }
    assert!(Superblock::decode(&bytes[..4095]).is_err());
    assert!(Superblock::decode(&[]).is_err());
}

#[test]
fn impossible_shard_counts_are_refused() {
    let mut bytes = superblock().encode();
    bytes[34] = 0;
    bytes[12..16].fill(0);
    let crc = wire::crc32c(&bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Superblock::decode(&bytes).unwrap_err().offset, 34);
}

#[test]
fn log_head_bytes() {
    let bytes = log_head().encode();
    assert_eq!(
        hex(bytes),
        "4c414e4546534c470a0000004c8b7e33f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5030000000000\
         0000010002000700000000000004000000000100000000000000"
    );
    assert_eq!(LogHeader::decode(&bytes), Ok(log_head()));
    for index in 0..bytes.len() {
        let mut damaged = bytes;
        damaged[index] ^= 1;
        assert!(LogHeader::decode(&damaged).is_err(), "byte {index}");
    }
    assert!(LogHeader::decode(&bytes[..63]).is_err());
}

#[test]
fn batch_head_bytes() {
    let head = BatchHeader {
        boot_id: 3,
        batch_no: 7,
        batch_bytes: 0x0128,
        record_count: 2,
        payload_crc32c: 0xAABB_CCDD,
    };
    let bytes = head.encode();
    assert_eq!(
        hex(bytes),
        "4c414e4546534254030000000000000007000000000000002801000002000000ddccbbaae4d8\
         7e08"
    );
    assert_eq!(BatchHeader::decode(&bytes), Some(head));
    for index in 0..bytes.len() {
        let mut damaged = bytes;
        damaged[index] ^= 1;
        assert_eq!(BatchHeader::decode(&damaged), None, "byte {index}");
    }
}

#[test]
fn trailer_bytes() {
    let trailer = Trailer {
        boot_id: 3,
        batch_no: 7,
        batch_bytes: 0x0128,
        zero_piece_count: 2,
        file_bytes: 0x0400_0000,
        places: [(1, 64), (9, 0x0102_0304)]
            .map(|(segment_no, offset)| LogPosition { segment_no, offset })
            .to_vec(),
    };
    let mut bytes = Vec::new();
    trailer.encode(&mut bytes);
    assert_eq!(
        hex(&bytes),
        "4c414e4546534245030000000000000007000000000000002801000002000000000000040000\
         000002000000ea120d5340000000000100000403020100090000"
    );
    assert_eq!(bytes.len(), Trailer::bytes_count(2));
    assert_eq!(Trailer::decode(&bytes), Some(trailer));
    for index in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[index] ^= 1;
        assert_eq!(Trailer::decode(&damaged), None, "byte {index}");
    }
}

#[test]
fn change_bytes() {
    let golden = [
        "01020000000000010008ed090000e80300006400000003000000060504030201000000100000\
         0000000001010000000000000002000000fdffffffffffffff04000000fcffff\
         ffffffffff050000000500000000000000ff\
         c99a3b0700000000000000080000000000000009000000000000000a00000000000000000000\
         00000200000100\
         0c000000000000000d00000001faffffffffffffff07000000",
        "020200000000000000100000000000000011000000100000000000000011000000ffffffff0100\
         0000",
        "0301000000000000000300612062050000000000000002000000000000000406000000000000\
         00",
        "0401000000000000000300612062",
        "050200000000000000040000002e2e2f78",
        "06020000000000000006000000757365722e6b0100000076",
        "07020000000000000006000000757365722e6b",
        "080200000000000000",
        "090200000000000000001000000000000000020000ddccbbaa0807060504030201",
        "0a02000000000000004d000000000000001100000000000000",
        "0b0200000000000000",
        "25020000000000000002000010000000000000000200000700000000000000090000004433221\
         11300000000000000",
        "240200000000000000001000000000000000000000020000000263000000000000001200000000\
         000000",
        "2602000000000000000300000000000000020044332211000001008877665509000000",
        "27020000000000000000000000000000000004000000000000",
        "2802000000000000000700000000000000000200000100",
        "2902000000000000000200000000100000000000000300000061626300200000000000000100000064",
        "0c0200000000000000ed0100000100000002000000100000000000000011000000011000000000\
         000000110000000110000000000000001100000010000000000000001100000001000000000000\
         000600000000000000",
        "120200000000000000100000000000000011000000",
        "1302000000000000000900000000000000001000000000000001100000000000000011000000",
        "0d0300000000000000",
        "0e0400000000000000",
        "0f050505050505050505050505050505050700000000000000",
        "1006060606060606060606060606060606",
        "11050505050505050505050505050505050700000000000000",
        "1b",
        "140900020100000000000009000000080200000000000000",
        "15090002010000000000000200000001000200",
        "1609000201000000000000",
        "1709000201000000000000",
        "1809000201000000000000",
        "19080706050403020104000000686f6d650200000000000000020000002f610102e80300006400\
         000000",
        "1a04000000686f6d65",
    ];
    let found: Vec<String> = changes().iter().map(|change| hex(change.to_bytes())).collect();
    assert_eq!(found, golden);
}

#[test]
fn record_bytes() {
    let mut bytes = Vec::new();
    let record = session_record(9, b"changes");
    record.encode(&mut bytes);
    assert_eq!(
        hex(&bytes),
        "8a0000000601050009000000000000000900000001000000010000000203000000000000000400000000\
         0000008877665544332211020063000000000000000a000000050000007265706c7901c1c1c1\
         c1c1c1c1c1c1c1c1c1c1c1c1c10100a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0b0b0b0b0b0b0b0\
         b0b0b0b0b0b0b0b0b0070000006368616e676573"
    );
    bytes.push(0xEE);
    assert_eq!(Record::decode(&bytes), Ok((record, &[0xEE][..])));

    let internal = Record {
        shard: ShardId::data(3),
        lsn: 1,
        term: Term(0x0102_0304),
        transno: Transno(2),
        pre_versions: PreVersions::new(),
        origin: Origin::Internal,
        changes: b"c",
    };
    bytes.clear();
    internal.encode(&mut bytes);
    assert_eq!(
        hex(&bytes),
        "220000000600038001000000000000000200000000000000040302010001000000\
         63"
    );
    assert_eq!(Record::decode(&bytes), Ok((internal, &[][..])));
}

#[test]
fn a_damaged_record_names_its_fault() {
    let mut bytes = Vec::new();
    session_record(9, b"").encode(&mut bytes);
    bytes[4] = 1;
    let fault = Record::decode(&bytes).unwrap_err();
    assert_eq!(fault, Fault::new("a record of an unknown redo version", 4).numbers(6_u64, 1_u64));
}

#[test]
fn a_sealed_batch_is_padded_and_the_builder_is_empty_again() {
    let mut batch = Batch::new();
    assert!(batch.is_empty());
    batch.push(&session_record(1, b"x"));
    assert_eq!(batch.record_count(), 1);
    let announced_bytes = batch.bytes_count();
    let mut out = Vec::new();
    batch.seal(3, 1, &mut out);
    assert_eq!(out.len(), announced_bytes);
    assert_eq!(out.len() % 8, 0);
    assert!(batch.is_empty());
    let head = BatchHeader::decode(&out).unwrap();
    assert_eq!(usize::try_from(head.batch_bytes).unwrap(), out.len());
    assert_eq!(head.payload_crc32c, wire::crc32c(&out[40..]));
}

#[test]
fn at_most_five_versions_are_retained() {
    let mut versions = PreVersions::new();
    (1..=6).for_each(|number| versions.push(Transno(number)));
    assert_eq!(versions.as_slice(), [1, 2, 3, 4, 5].map(Transno));
}
