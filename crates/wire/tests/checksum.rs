//! The checksum, against a bit by bit one, at every length that takes another way through it.

use wire::{Crc32c, crc32c};

/// The polynomial of Castagnoli, bit by bit.
fn slow(bytes: &[u8]) -> u32 {
    let register = bytes.iter().fold(u32::MAX, |register, &byte| {
        (0..8).fold(register ^ u32::from(byte), |register, _| {
            (register >> 1) ^ if register & 1 == 1 { 0x82F6_3B78 } else { 0 }
        })
    });
    !register
}

fn bytes(count: u32) -> Vec<u8> {
    (0..count).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn the_known_answer() {
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
}

#[test]
fn every_short_length_and_start_is_as_bit_by_bit() {
    let all = bytes(1200);
    for start in [0, 1, 7, 33] {
        for end in start..all.len() {
            assert_eq!(crc32c(&all[start..end]), slow(&all[start..end]), "{start}..{end}");
        }
    }
}

#[test]
fn a_megabyte_is_as_bit_by_bit() {
    let all = bytes((1 << 20) + 13);
    assert_eq!(crc32c(&all), slow(&all));
}

#[test]
fn pieces_sum_up_to_the_whole() {
    let all = bytes(100_000);
    for piece_bytes in [1, 63, 4096, 65_536] {
        let mut sum = Crc32c::new();
        assert_eq!(sum.sum(), crc32c(b""));
        for piece in all.chunks(piece_bytes) {
            sum.update(piece);
        }
        assert_eq!(sum.sum(), crc32c(&all), "in pieces of {piece_bytes}");
    }
}
