//! The messages between lanes: their bytes, and what does not decode.

use crate::peers::containment::{ContainmentMessage, ContainmentQuery, Use};
use crate::peers::message::{
    Bits, Envelope, ExportDefinition, Owner, PeerBody, PeerMessage, Search,
};
use crate::test_server::TestServer;
use crate::txns::{TxnMessage, TxnMessageKind};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Write as _;
use disk::{ExportChange, TxnId};
use meta::LockOwner;
use std::collections::BTreeMap;
use wire::{
    Bytes, ClientUuid, Contents, InodeNo, LaneId, Layout, List, PeerLane, PrivilegedBits, ServerId,
    ShardId, Squash, Status, Term, Timestamp, Wire, Writer,
};

const FILE: InodeNo = InodeNo(0x0003_0000_0000_0102);
const DIR: InodeNo = InodeNo(0x0001_0000_0000_0007);
const CLIENT: ClientUuid = ClientUuid([0xc1; 16]);

fn peer(server: u16, lane: u16) -> PeerLane {
    PeerLane { server: ServerId(server), lane: LaneId(lane) }
}

fn message(body: PeerBody<'_>) -> PeerMessage<'_> {
    let [from, to] = [(1, 1), (2, 0)].map(|(server, lane)| peer(server, lane));
    let envelope = Envelope { from, from_term: Term(9), to, sequence: 3, acknowledged: 4 };
    PeerMessage { envelope, body }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Every body, with its name.
fn each(with: &mut impl FnMut(&str, PeerBody<'_>)) {
    let owner = Owner(LockOwner { client: CLIENT, owner: 5 });
    let search = Search {
        lane: peer(1, 1),
        inode: FILE,
        owner: owner.0,
        wait_id: 6,
        since_ns: 7,
        is_certain: true,
    };
    let mut owners = Vec::new();
    owner.encode(&mut Writer::new(&mut owners));
    let write_time = Some(Timestamp { secs: 5, nanos: 6 });
    let contents = Contents { size_bytes: 4097, allocated_bytes: 8192, write_time };
    let bits = Bits(PrivilegedBits { set_id: true, capability: false });
    let export = ExportChange::Removed { name: Bytes(b"guests") };
    with("DestroyObject", PeerBody::DestroyObject { inode: FILE });
    let shard = ShardId::data(2);
    with("DestroyNarrow", PeerBody::DestroyNarrow { inode: FILE });
    with("NotNarrow", PeerBody::NotNarrow { inode: FILE });
    with("ObjectDestroyed", PeerBody::ObjectDestroyed { inode: FILE, shard });
    with("Accessed", PeerBody::Accessed { inode: FILE, write_time_ns: 8 });
    with("Changed", PeerBody::Changed { inode: FILE });
    let layout = Layout { stripe_unit_bytes: 1 << 20, stripe_count: 4, narrow: false };
    let query = |spread| PeerBody::QueryContents { inode: FILE, number: 3, spread, is_fresh: true };
    with("QueryContents", query(None));
    with("QueryContents spread", query(Some(layout)));
    let number = 0x2_0000_0005;
    let look = |appends| PeerBody::LookAtPart { inode: FILE, number, durable: true, appends };
    with("LookAtPart", look(None));
    with("LookAtPart append", look(Some(wire::SessionId(9))));
    with("EndAppend", PeerBody::EndAppend { inode: FILE, session: wire::SessionId(9) });
    let found = PeerBody::PartContents { inode: FILE, number, shard, contents: Some(contents) };
    with("PartContents", found);
    let (oldest, size_bytes) = (number - 1, 4097);
    with("CutPart", PeerBody::CutPart { inode: FILE, number, oldest, size_bytes, layout });
    with("RecallPages", PeerBody::RecallPages { inode: FILE, number, client: CLIENT });
    with("PagesRecalled", PeerBody::PagesRecalled { inode: FILE, number, shard });
    with("PartCut", PeerBody::PartCut { inode: FILE, number, shard, is_cut: true });
    let found = PeerBody::DurableContents { inode: FILE, number: 3, contents: Some(contents) };
    with("DurableContents", found);
    with(
        "DurableContents none",
        PeerBody::DurableContents { inode: FILE, number: 3, contents: None },
    );
    with("PrivilegedBits", PeerBody::PrivilegedBits { inode: FILE, bits });
    with("Export", PeerBody::Export { change: ExportDefinition(export) });
    with("Evicted", PeerBody::Evicted { client: CLIENT });
    with("EvictionsRecorded", PeerBody::EvictionsRecorded { count: 2 });
    let owners = List::new(1, &owners);
    with("FollowWaits", PeerBody::FollowWaits { search, hops_left: 2, owners });
    with("CycleFound", PeerBody::CycleFound { search });
    with("Acknowledgement", PeerBody::Acknowledgement {});
    with("Restated", PeerBody::Restated {});
    with("Barrier", PeerBody::Barrier {});
    with("WriterFenced", PeerBody::WriterFenced { inode: FILE, client: CLIENT });
    each_of_txn(with);
    each_of_containment(with);
}

fn each_of_txn(with: &mut impl FnMut(&str, PeerBody<'_>)) {
    let kinds = [
        ("Look", TxnMessageKind::Look { client: CLIENT, frees: true, wants: Bytes(&[1, 2]) }),
        ("Seen", TxnMessageKind::Seen { status: Status::Ok, found: Bytes(&[3]), inode_count: 4 }),
        ("Prepare", TxnMessageKind::Prepare { part: Bytes(&[5]) }),
        ("Prepared", TxnMessageKind::Prepared { status: Status::ReadOnly }),
        ("Commit", TxnMessageKind::Commit {}),
        ("Done", TxnMessageKind::Done { inode_count: 6 }),
        ("Abort", TxnMessageKind::Abort {}),
        ("InDoubt", TxnMessageKind::InDoubt {}),
        ("QueryOutcome", TxnMessageKind::QueryOutcome {}),
    ];
    let txn = TxnId { coordinator: ShardId::meta(1), number: 0x9_0000_0002 };
    for (name, kind) in kinds {
        let message = TxnMessage { txn, shard: ShardId::meta(3), kind };
        with(name, PeerBody::Txn { message });
    }
}

fn each_of_containment(with: &mut impl FnMut(&str, PeerBody<'_>)) {
    let by = peer(1, 1);
    let granted = Use { known: true, read: true, write: false, execute: true };
    let squash = Squash::ROOT;
    let of_use =
        ContainmentQuery::Use { by, inode: FILE, client: CLIENT, top: DIR, squash, number: 2 };
    let below = ContainmentQuery::Below { by, top: DIR, dir: FILE };
    let (inode, client, number, stays, moves) = (FILE, CLIENT, 2, true, 3);
    let may_use = ContainmentMessage::MayUse { inode, client, granted, number, stays, moves };
    let lies_below =
        ContainmentMessage::Below { top: DIR, dir: FILE, below: true, stays: false, moves: 3 };
    let all = [
        ("AskBelow", ContainmentMessage::Ask { query: below }),
        ("AskUse", ContainmentMessage::Ask { query: of_use }),
        ("Below", lies_below),
        ("MayUse", may_use),
        ("ContainmentChanged", ContainmentMessage::Changed { inode: FILE }),
        ("Moved", ContainmentMessage::Moved { id: 4 }),
        ("Found", ContainmentMessage::Found { inode: FILE, dir: DIR }),
    ];
    for (name, message) in all {
        with(name, PeerBody::Containment { message });
    }
}

/// `peer_messages.txt` holds a name and the bytes of each message. A line that differs means that
/// lanes of two versions do not understand each other. `LANEFS_GOLDEN_WRITE=1` writes the file.
#[test]
fn each_message_keeps_its_bytes() {
    let mut found = BTreeMap::new();
    each(&mut |name, body| {
        let message = message(body);
        let bytes = message.to_bytes();
        assert_eq!(PeerMessage::decode_all(&bytes), Ok(message), "{name}");
        for count in 0..bytes.len() {
            assert!(PeerMessage::decode_all(&bytes[..count]).is_err(), "{name}, cut to {count}");
        }
        found.insert(name.to_string(), hex(&bytes));
    });
    let text =
        found.iter().fold(String::new(), |text, (name, hex)| text + name + ": " + hex + "\n");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/peer_messages.txt");
    if std::env::var_os("LANEFS_GOLDEN_WRITE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}

#[test]
fn a_message_that_does_not_decode_is_reported_and_ends_the_channel() {
    let mut server = TestServer::started(1, 2);
    server.run();
    let evicted = message(PeerBody::Evicted { client: CLIENT }).to_bytes();
    server.receive(0, LaneId(1), vec![0xff; 20]);
    server.receive(0, LaneId(1), evicted);
    server.run();
    let reported: Vec<_> = server.lines.iter().filter(|line| line.contains("bug: ")).collect();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].contains("lane 1") && reported[0].contains("Malformed"), "{reported:?}");
    assert_eq!(server.counters(0).peers.refused_count, 2);
    assert!(server.lane(0).evictions.extent().0 == 0, "what follows is not applied");
}

#[test]
fn changed_bytes_decode_to_a_message_with_these_bytes_or_not_at_all() {
    let mut rng = fastrand::Rng::with_seed(0x9ee5);
    let mut examples = Vec::new();
    each(&mut |_, body| examples.push(message(body).to_bytes()));
    let (mut decoded_count, mut refused_count) = (0, 0);
    let mut decodes = |bytes: &[u8]| match PeerMessage::decode_all(bytes) {
        Ok(message) => {
            assert_eq!(message.to_bytes(), bytes);
            decoded_count += 1;
        }
        Err(_) => refused_count += 1,
    };
    for example in &examples {
        for _ in 0..1_000 {
            let mut bytes = example.clone();
            for _ in 0..=rng.usize(..3) {
                let at = rng.usize(..bytes.len());
                match rng.u8(..5) {
                    0 => bytes.truncate(at.max(1)),
                    1 => bytes.insert(at, rng.u8(..)),
                    // Small numbers: lengths, counts and cases.
                    2 => bytes[at] = rng.u8(..32),
                    _ => bytes[at] ^= 1 << rng.u8(..8),
                }
            }
            decodes(&bytes);
        }
    }
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..rng.usize(..100)).map(|_| rng.u8(..)).collect();
        decodes(&bytes);
    }
    assert!(decoded_count > 1_000 && refused_count > 10_000, "{decoded_count} {refused_count}");
}
