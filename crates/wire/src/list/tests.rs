//! Lists: valid and invalid pieces.
#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::cast_possible_truncation, reason = "numbers out of a seed")]
use super::*;
use alloc::vec;

fn piece(file_offset: u64, piece_bytes: u32) -> Piece {
    Piece { file_offset, piece_bytes }
}

fn pieces(all: &[(u64, u32)]) -> Result<Pieces, DecodeError> {
    Pieces::new(all.iter().map(|(at, bytes)| piece(*at, *bytes)).collect())
}

/// The encoding of pieces, valid or not, with this count.
fn raw(count: u16, all: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut to = Writer::new(&mut bytes);
    to.write(&count);
    for piece in all {
        to.write(piece);
    }
    bytes
}

const TOO_LONG: DecodeError = DecodeError::ProtocolError(ProtocolError::TooLong);
const MALFORMED: DecodeError = DecodeError::ProtocolError(ProtocolError::Malformed);

#[test]
fn encoded_pieces_decode() {
    let mut rng = fastrand::Rng::with_seed(1);
    for round in 0..2000 {
        let count =
            rng.u64(..1 << 40) as usize % if round % 10 == 0 { PIECE_COUNT_MAX + 1 } else { 8 };
        let all: Vec<_> = (0..count)
            .map(|_| piece(rng.u64(..1 << 40), 1 + rng.u64(..1 << 40) as u32 % 4096))
            .collect();
        let pieces = Pieces::new(all).unwrap();
        let (inode, accesses) = (InodeNo(rng.u64(..1 << 40)), round % 2 == 0);
        let read = ReadList { inode, pieces: pieces.clone(), accesses };
        assert_eq!(ReadList::decode_all(&read.to_bytes()), Ok(read.clone()));
        assert_eq!(pieces.to_bytes().len(), Pieces::wire_bytes(count));
        let write = WriteList { inode, pieces, clears: ClearPrivileges::Nothing };
        let bytes = write.to_bytes();
        assert_eq!(WriteList::decode_all(&bytes), Ok(write));
        for end in 0..bytes.len() {
            assert_eq!(WriteList::decode_all(&bytes[..end]), Err(MALFORMED), "cut at {end}");
        }
    }
}

#[test]
fn no_bytes_decode_to_invalid_pieces() {
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let count = rng.u64(..1 << 40) as u16 % 12;
        let mut bytes = raw(count, &[]);
        for _ in 0..rng.u64(..1 << 40) % 130 {
            // Small numbers, so that some lists are valid.
            let byte =
                if rng.u64(..1 << 40).is_multiple_of(4) { rng.u64(..1 << 40) as u8 } else { 0 };
            bytes.push(byte);
        }
        if let Ok(pieces) = Pieces::decode_all(&bytes) {
            assert_eq!(pieces.to_bytes(), bytes);
            assert!(pieces.iter().all(|piece| piece.piece_bytes > 0));
            assert!(pieces.end() <= FILE_BYTES_MAX && pieces.total_bytes() <= BULK_BYTES_MAX);
        }
    }
}

#[test]
fn every_wrong_length_is_refused() {
    let one = piece(0, 1);
    assert_eq!(Pieces::decode_all(&raw(0, &[])), Ok(Pieces::NONE));
    assert_eq!(Pieces::decode_all(&raw(1, &[])), Err(MALFORMED), "fewer than it says");
    assert_eq!(Pieces::decode_all(&raw(1, &[one, one])), Err(MALFORMED), "more than it says");
    let most = vec![one; PIECE_COUNT_MAX];
    assert!(Pieces::decode_all(&raw(256, &most)).is_ok());
    let more = vec![one; PIECE_COUNT_MAX + 1];
    assert_eq!(Pieces::decode_all(&raw(257, &more)), Err(TOO_LONG));
    assert_eq!(Pieces::decode_all(&raw(u16::MAX, &[])), Err(TOO_LONG), "before it allocates");
    assert_eq!(Pieces::new(more), Err(TOO_LONG));
    assert_eq!(pieces(&[(0, 4), (9, 0)]), Err(MALFORMED), "an empty piece");
    assert!(pieces(&[(0, BULK_BYTES_MAX)]).is_ok());
    assert_eq!(pieces(&[(0, BULK_BYTES_MAX + 1)]), Err(TOO_LONG));
    assert_eq!(pieces(&[(0, BULK_BYTES_MAX), (5, 1)]), Err(TOO_LONG));
    assert_eq!(pieces(&[(0, u32::MAX), (0, u32::MAX)]), Err(TOO_LONG), "no sum runs over");
    assert!(pieces(&[(FILE_BYTES_MAX - 1, 1)]).is_ok());
    let large = Err(DecodeError::Status(Status::TooLarge));
    assert_eq!(pieces(&[(0, 1), (FILE_BYTES_MAX, 1)]), large);
    assert_eq!(pieces(&[(u64::MAX, 1)]), large);
}

#[test]
fn pieces_that_share_a_byte_overlap() {
    assert!(!pieces(&[(10, 10), (0, 10), (20, 1)]).unwrap().overlap(), "they touch");
    assert!(pieces(&[(10, 10), (0, 11)]).unwrap().overlap());
    assert!(pieces(&[(5, 1), (0, 100)]).unwrap().overlap(), "one within the other");
    assert!(pieces(&[(5, 1), (7, 1), (5, 1)]).unwrap().overlap(), "twice the same");
    assert!(!Pieces::NONE.overlap());
}

#[test]
fn pieces_are_cut_at_the_file_size() {
    let all = pieces(&[(90, 20), (0, 10), (100, 5), (99, 1)]).unwrap();
    assert_eq!(all.within(100), pieces(&[(90, 10), (0, 10), (99, 1)]).unwrap());
    assert_eq!(all.within(0), Pieces::NONE);
    assert_eq!(all.within(u64::MAX), all);
    assert_eq!((all.end(), all.total_bytes(), all.first_offset()), (110, 36, 90));
    assert_eq!((Pieces::NONE.end(), Pieces::NONE.first_offset()), (0, 0));
}

#[test]
fn adjacent_pieces_are_joined_in_order() {
    let all = pieces(&[(0, 4), (4, 4), (8, 1), (0, 2), (20, 2)]).unwrap();
    assert_eq!(all.joined(), pieces(&[(0, 9), (0, 2), (20, 2)]).unwrap());
    assert_eq!(all.joined().total_bytes(), all.total_bytes());
}
