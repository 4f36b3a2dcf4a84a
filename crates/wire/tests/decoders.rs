//! No bytes make a decoder panic, and what decodes encodes to the same bytes: the bodies of handshake
//! and unsolicited frames, and what other messages consist of. (`golden.rs` does the same for
//! requests and replies, `map.rs` for maps.)
#![allow(clippy::unwrap_used, missing_docs)]

use wire::*;

/// A decoder with an example of what it decodes.
struct Decoder {
    name: &'static str,
    example: Vec<u8>,
    /// Decodes and encodes again.
    again: fn(&[u8]) -> Option<Vec<u8>>,
}

macro_rules! decoder {
    ($message:ident, $example:expr) => {
        Decoder {
            name: stringify!($message),
            example: $example.to_bytes(),
            again: |bytes| $message::decode_all(bytes).ok().map(|message| message.to_bytes()),
        }
    };
}

fn decoders() -> Vec<Decoder> {
    let hello = Hello {
        server_lane: LaneId(1),
        client: ClientUuid([1; 16]),
        client_lane: LaneId(2),
        conn_epoch: 3,
        nonce: [4; 32],
        host_id: [5; 16],
        host_boot_id: [6; 16],
        boot_id_last: 7,
        predecessor: ClientUuid([8; 16]),
        export: Bytes(b"up"),
        credential: Credential::Export,
        purpose: Purpose::Use,
        key_id: Secret::new([9; 32]).key_id(&[4; 32]),
        host_name: Bytes(b"host"),
        job: Bytes(b"job"),
    };
    let welcome = Welcome {
        session: SessionId(9),
        boot_id: 7,
        map: Map::single_server(2, ShardCounts { meta: 3, data: 4 }, Term(9)),
        server: ServerId::FIRST,
        lane: LaneId(1),
        slot_count: 16,
        credits: 80,
        flags: welcome_flag::HANDLES_UNKNOWN,
        recovery_ms: 10_000,
        root: InodeNo(259),
    };
    let rows = [3, 4].map(|index| CommitRow { shard: ShardId::meta(index), committed: Transno(5) });
    let rows = rows.map(|row| row.to_bytes()).concat();
    let keys = [
        LeaseKey::Attributes(InodeNo(5)).to_bytes(),
        LeaseKey::Name(InodeNo(6), Name::new(b"name").unwrap()).to_bytes(),
        LeaseKey::All.to_bytes(),
    ]
    .concat();
    let (recall_no, lease_no_max) = (RecallNo(1), LeaseNo(2));
    let recall = Recall { recall_no, lease_no_max, keys: List::new(3, &keys) };
    let nos = RecallNo(1).to_bytes();
    let recall_ack = RecallAck {
        recall_nos: List::new(1, &nos),
        dropped_until: LeaseNo(3),
        written: List::new(1, &nos),
    };
    let acks = LaneAcks { client_lane: LaneId(1), ack_xid: Xid(7), sack: 5 }.to_bytes();
    let received = Received { shard: ShardId::data(3), lanes: List::new(1, &acks) };
    let layout = Layout { stripe_unit_bytes: 1 << 20, stripe_count: 1, narrow: false };
    vec![
        decoder!(Hello, hello),
        decoder!(Challenge, Challenge { fs: FsUuid([3; 16]), nonce: [8; 32], proof: [7; 32] }),
        decoder!(Proof, Proof { proof: [7; 32] }),
        decoder!(Welcome, welcome),
        decoder!(Refusal, Refusal { reason: RefusalReason::WrongSecret }),
        decoder!(CommitNotification, CommitNotification { rows: List::new(2, &rows) }),
        decoder!(Grant, Grant { inode: InodeNo(2), wait_id: 85, status: Status::Deadlock }),
        decoder!(Recall, recall),
        decoder!(RecallAck, recall_ack),
        decoder!(Received, received),
        decoder!(Replay, Replay { reply: Bytes(b"reply"), token: Bytes(b"token") }),
        decoder!(Layout, layout),
        decoder!(
            CertificateIdentity,
            CertificateIdentity { key: [6; 32], grants: Bytes(b"lanefs:store\n") }
        ),
    ]
}

fn mutate(rng: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.usize(..3) {
        let at = rng.usize(..bytes.len());
        match rng.u8(..6) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes.insert(at, rng.u8(..)),
            // Small numbers: lengths, counts and cases.
            2 => bytes[at] = rng.u8(..8),
            3 => bytes[at] = rng.u8(..),
            _ => bytes[at] ^= 1 << rng.u8(..8),
        }
    }
}

#[test]
fn changed_bytes_decode_to_what_has_these_bytes_or_not_at_all() {
    let mut rng = fastrand::Rng::with_seed(0xdec0);
    for Decoder { name, example, again } in decoders() {
        assert_eq!(again(&example), Some(example.clone()), "{name}");
        let (mut decoded_count, mut refused_count) = (0, 0);
        for _ in 0..5_000 {
            let mut bytes = example.clone();
            mutate(&mut rng, &mut bytes);
            match again(&bytes) {
                Some(same) => {
                    assert_eq!(same, bytes, "{name}");
                    decoded_count += 1;
                }
                None => refused_count += 1,
            }
        }
        assert!(
            decoded_count > 0 && refused_count > 500,
            "{name}: {decoded_count} {refused_count}"
        );
    }
}

#[test]
fn random_bytes_decode_to_what_has_these_bytes_or_not_at_all() {
    let mut rng = fastrand::Rng::with_seed(0xdec1);
    for Decoder { name, again, .. } in decoders() {
        let mut refused_count = 0;
        for _ in 0..5_000 {
            let bytes: Vec<u8> = (0..rng.usize(..120)).map(|_| rng.u8(..)).collect();
            match again(&bytes) {
                Some(same) => assert_eq!(same, bytes, "{name}"),
                None => refused_count += 1,
            }
        }
        assert!(refused_count > 1_000, "{name}: {refused_count}");
    }
}

/// The parts of a reply's body behind its message.
#[test]
fn a_reply_body_of_any_bytes_splits_or_is_refused() {
    let mut rng = fastrand::Rng::with_seed(0xdec2);
    let (mut split_count, mut refused_count) = (0, 0);
    for _ in 0..50_000 {
        let body: Vec<u8> = (0..rng.usize(..60)).map(|_| rng.u8(..4)).collect();
        let flags = rng.u16(..) & (reply_flag::LEASES | reply_flag::TOKEN | reply_flag::FROM_SLOT);
        let reply = Reply { flags, ..Reply::of(Op::Lookup) };
        match ReplyParts::split(&reply, &body) {
            Ok(parts) => {
                let mut same = Vec::new();
                parts.put(&mut Writer::new(&mut same));
                assert_eq!(same, body);
                split_count += 1;
            }
            Err(_) => refused_count += 1,
        }
    }
    assert!(split_count > 5_000 && refused_count > 5_000, "{split_count} {refused_count}");
}
