//! Rows: sessions, slots, objects and clients after records. (`meta` compares rows of names with a
//! shard in memory.)

use super::{row, session_record};
use crate::rows::{Key, ObjectRow, Range, Row, Rows, ShardRow, SlotRow, apply, begin};
use crate::{
    BlockSum, BlockSums, Change, ClientChange, ContentsChange, Creation, Fault, GROUP_BLOCK_COUNT,
    Origin, PreVersions, Record,
};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{Bytes, ClientUuid, InodeNo, Op, SessionId, ShardId, Status, Term, Transno, Wire, Xid};

const SHARD: ShardId = ShardId::data(3);
const MADE: Creation =
    Creation { at_ns: 5, uid: 1, gid: 2, mode: 0o755, layout: wire::Layout::DEFAULT };

/// Rows and one shard's own row.
#[derive(Default)]
struct Table {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    shard: ShardRow,
}

impl Table {
    fn apply(&mut self, record: &Record<'_>) -> Result<bool, Fault> {
        apply(record, &mut self.shard, &mut self.rows)
    }

    fn change(&mut self, shard: ShardId, changes: &[Change<'_>]) -> Result<bool, Fault> {
        let changes: Vec<u8> = changes.iter().flat_map(|change| change.to_bytes()).collect();
        let (lsn, changes) = (self.shard.lsn + 1, changes.as_slice());
        let (transno, origin, pre_versions) = (Transno(lsn), Origin::Internal, PreVersions::new());
        let term = Term(1);
        self.apply(&Record { shard, lsn, term, transno, pre_versions, origin, changes })
    }

    fn all(&self) -> Vec<Row<'_>> {
        self.rows.iter().map(|(key, value)| Row::decode(key, value).unwrap()).collect()
    }
}

#[test]
fn a_record_is_applied_once_and_none_may_be_missing() {
    let mut table = Table::default();
    let (inode, write_time_ns) = (InodeNo(2), 1);
    let size = |size_bytes| {
        Change::Contents(ContentsChange::Truncate { inode, size_bytes, write_time_ns })
    };
    assert_eq!(table.change(SHARD, &[size(5)]), Ok(true));
    table.shard.lsn = 0;
    assert_eq!(table.change(SHARD, &[size(7)]), Ok(true));
    let old = table.rows.clone();
    (table.shard.lsn, table.shard.term) = (5, Term(1));
    for lsn in [1, 5] {
        assert_eq!(table.apply(&Record { shard: SHARD, ..session_record(lsn, &[99]) }), Ok(false));
    }
    assert_eq!(table.rows, old);
    let fault = table.apply(&session_record(7, &[])).unwrap_err();
    assert_eq!((fault.expected, fault.found), (6, 7));
}

#[test]
fn objects_have_the_written_size_and_time() {
    let mut table = Table::default();
    let (inode, crc32c) = (InodeNo(2), 0);
    let write = |object_offset, write_bytes, write_time_ns| {
        Change::Contents(ContentsChange::Write {
            inode,
            object_offset,
            write_bytes,
            crc32c,
            write_time_ns,
        })
    };
    let truncate = |size_bytes, write_time_ns| {
        Change::Contents(ContentsChange::Truncate { inode, size_bytes, write_time_ns })
    };
    let object = |size_bytes, write_time_ns| {
        let row = ObjectRow { size_bytes, write_time_ns, ..ObjectRow::default() };
        [Row::Object { shard: SHARD, inode, row }]
    };
    table.change(SHARD, &[write(100, 50, 4), write(10, 5, 3)]).unwrap();
    assert_eq!(table.all(), object(150, 4));
    table.change(SHARD, &[truncate(7, 9), write(3, 1, 8)]).unwrap();
    assert_eq!(table.all(), object(7, 9));
    let list = |write_time_ns| {
        let pieces = super::pieces();
        Change::Contents(ContentsChange::WriteList { inode, pieces, crc32c, write_time_ns })
    };
    table.change(SHARD, &[list(20)]).unwrap();
    assert_eq!(table.all(), object(4096 + 512, 20), "up to the piece that ends last");
    table.change(SHARD, &[write(0, 5000, 30), list(25)]).unwrap();
    assert_eq!(table.all(), object(5000, 30), "it makes nothing shorter and no time earlier");
    table.change(SHARD, &[Change::Contents(ContentsChange::ObjectRemoved { inode })]).unwrap();
    assert_eq!(table.all(), []);
    assert!(table.change(ShardId::meta(0), &[write(0, 1, 1)]).is_err());
    assert!(table.change(SHARD, &[Change::Inode { row: row() }]).is_err());
}

#[test]
fn blocks_have_the_last_recorded_checksums() {
    let mut table = Table::default();
    let inode = InodeNo(2);
    let sum = |number: u32| BlockSum { crc32c: number, covered_bytes: 100 };
    let sums = |first_block, sums: &[BlockSum]| {
        Change::Contents(ContentsChange::Sums { inode, first_block, sums: BlockSums(sums.into()) })
    };
    let removed = |from_block, until_block| {
        Change::Contents(ContentsChange::SumsRemoved { inode, from_block, until_block })
    };
    let found = |table: &Table| {
        let mut found = Vec::new();
        for row in table.all() {
            if let Row::Object { row, .. } = row {
                found.push((0, row.first_sum));
            }
            if let Row::Sums { group, sums, .. } = row {
                let sums = BlockSums::decode_all(sums).unwrap();
                found.extend((group * GROUP_BLOCK_COUNT..).zip(sums.0));
            }
        }
        found.retain(|(_, sum)| !sum.is_none());
        found
    };
    table.change(SHARD, &[sums(0, &[sum(1)])]).unwrap();
    assert_eq!((table.all().len(), found(&table)), (1, [(0, sum(1))].to_vec()), "one row");
    table.change(SHARD, &[sums(62, &[sum(2), BlockSum::NONE, sum(3), sum(4)])]).unwrap();
    assert_eq!(found(&table), [(0, sum(1)), (62, sum(2)), (64, sum(3)), (65, sum(4))]);
    table.change(SHARD, &[sums(64, &[BlockSum::NONE, sum(5)]), removed(1, 65)]).unwrap();
    assert_eq!(found(&table), [(0, sum(1)), (65, sum(5))]);
    table.change(SHARD, &[sums(200, &[sum(6)]), removed(65, u64::MAX)]).unwrap();
    assert_eq!((table.all().len(), found(&table)), (1, [(0, sum(1))].to_vec()));
    table.change(SHARD, &[sums(1, &[sum(7)]), removed(0, 1)]).unwrap();
    assert_eq!(found(&table), [(1, sum(7))]);
    table.change(SHARD, &[sums(1 << 40, &[sum(8)])]).unwrap();
    table.change(SHARD, &[Change::Contents(ContentsChange::ObjectRemoved { inode })]).unwrap();
    assert_eq!(table.all(), []);
}

#[test]
fn stripes_are_known_until_their_file_is_removed() {
    let mut table = Table::default();
    let layout = wire::Layout::DEFAULT;
    let stripe = |inode, stripe_index| {
        Change::Contents(ContentsChange::Stripe { inode: InodeNo(inode), stripe_index, layout })
    };
    table.change(SHARD, &[stripe(2, 1), stripe(2, u32::MAX), stripe(3, 7)]).unwrap();
    table.change(SHARD, &[stripe(2, 1)]).unwrap();
    let row = ObjectRow { layout: Some(layout), ..ObjectRow::default() };
    let object = |inode| Row::Object { shard: SHARD, inode: InodeNo(inode), row };
    let one =
        |inode, stripe_index| Row::Stripe { shard: SHARD, inode: InodeNo(inode), stripe_index };
    let of_3 = [object(3), one(3, 7)];
    assert_eq!(table.all(), [object(2), of_3[0], one(2, 1), one(2, u32::MAX), of_3[1]]);
    let inode = InodeNo(2);
    table.change(SHARD, &[Change::Contents(ContentsChange::ObjectRemoved { inode })]).unwrap();
    assert_eq!(table.all(), of_3);
}

#[test]
fn slots_keep_the_latest_reply_and_are_removed_with_their_session() {
    let mut table = Table::default();
    let (shard, session) = (ShardId::meta(5), SessionId(0x1122_3344_5566_7788));
    table.apply(&session_record(1, &[])).unwrap();
    let Origin::Session { opened: Some(who), .. } = session_record(1, &[]).origin else {
        unreachable!("the first record has the identity")
    };
    let slot = |xid, lsn: u64| Row::Slot {
        shard,
        session,
        slot: 2,
        row: SlotRow {
            xid: Xid(xid),
            op: Op::Rename,
            status: Status::Ok,
            transno: Transno((1 << 32) + lsn),
            reply: b"reply",
        },
    };
    let who = |away| Row::Session { shard, session, row: who, away };
    assert_eq!(table.all(), [who(false), slot(99, 1)]);
    let asked = |lsn, xid| {
        let record = session_record(lsn, &[]);
        let Origin::Session { session, slot, op, status, reply, .. } = record.origin else {
            unreachable!("it is a session's")
        };
        let xid = Xid(xid);
        let origin = Origin::Session { session, slot, xid, op, status, reply, opened: None };
        Record { origin, ..record }
    };
    table.apply(&asked(2, 120)).unwrap();
    table.apply(&asked(3, 110)).unwrap();
    assert_eq!(table.all(), [who(false), slot(120, 2)], "a lower number is an older request");
    table.change(shard, &[Change::Client(ClientChange::SessionAway { session })]).unwrap();
    assert_eq!(table.all(), [who(true), slot(120, 2)]);
    table.apply(&session_record(5, &[])).unwrap();
    assert_eq!(table.all(), [who(false), slot(120, 2)]);
    table.change(shard, &[Change::Client(ClientChange::SessionRemoved { session })]).unwrap();
    assert_eq!(table.all(), []);
}

#[test]
fn evicted_clients_are_remembered() {
    let mut table = Table::default();
    let clients = [1, 2].map(|byte| ClientUuid([byte; 16]));
    for client in clients {
        table.change(SHARD, &[Change::Client(ClientChange::VbrFailed { client })]).unwrap();
    }
    table
        .change(SHARD, &[Change::Client(ClientChange::Evicted { client: clients[0], boot_id: 3 })])
        .unwrap();
    let [client, failed] = clients;
    assert_eq!(
        table.all(),
        [Row::Evicted { client, boot_id: 3 }, Row::VbrFailed { client: failed }]
    );
    for boot_id in [3, 2] {
        let over = ClientChange::EvictionOver { client, boot_id };
        table.change(SHARD, &[Change::Client(over)]).unwrap();
        let last = Row::EvictedLast { boot_id: 3 };
        assert_eq!(table.all(), [last, Row::VbrFailed { client: failed }]);
    }
}

#[test]
fn a_shard_remembers_its_last_recovery() {
    let mut table = Table::default();
    for _ in 0..2 {
        table.change(SHARD, &[Change::Client(ClientChange::Recovered)]).unwrap();
    }
    let [Row::Recovered { shard: SHARD, transno }] = table.all()[..] else {
        panic!("{:?}", table.all())
    };
    assert!(transno.0 > 0);
}

#[test]
fn golden_keys_and_values() {
    let mut table = Table::default();
    assert_eq!(begin(MADE, &mut table.rows), Ok(true));
    assert_eq!(begin(Creation { at_ns: 6, uid: 3, ..MADE }, &mut table.rows), Ok(false));
    let keys: Vec<&[u8]> = table.rows.keys().map(Vec::as_slice).collect();
    assert_eq!(keys, [&[1, 0, 0, 0, 0, 0, 0, 0, 1, 0][..], &[7, 0, 0]]);
    let name = wire::Name::new(b"ab").unwrap();
    let (inode, shard, session) = (InodeNo(0x0102), ShardId::meta(3), SessionId(4));
    assert_eq!(Key::dirent(inode, name).bytes(), [2, 0, 0, 0, 0, 0, 0, 1, 2, b'a', b'b']);
    assert_eq!(Key::listing(inode, 9).bytes(), [3, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 9]);
    assert_eq!(Key::slot(shard, session, 7).bytes(), [6, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 7]);
    assert_eq!(Key::xattr(inode, &[b'x'; 256]).map(|_| ()), None);
    assert!(!Range::listing(inode, u64::MAX).contains(Key::listing(inode, 9).bytes()));
    assert!(Range::inode(InodeNo(u64::MAX)).contains(Key::inode(InodeNo(u64::MAX)).bytes()));
}

#[test]
fn an_invalid_row_is_a_fault() {
    let mut table = Table::default();
    begin(MADE, &mut table.rows).unwrap();
    table.apply(&session_record(1, &[])).unwrap();
    for (key, value) in &table.rows {
        assert!(Row::decode(key, value).is_ok());
        assert!(Row::decode(&key[..key.len() - 1], value).is_err(), "{key:?}");
        assert!(value.is_empty() || Row::decode(key, &value[1..]).is_err(), "{key:?}");
    }
    assert!(Row::decode(&[], &[]).is_err());
    assert!(Row::decode(&[200, 1], &[]).is_err());
    table.rows.put(Key::object(SHARD, InodeNo(2)).bytes(), b"short");
    let write = Change::Contents(ContentsChange::Write {
        inode: InodeNo(2),
        object_offset: 0,
        write_bytes: 1,
        crc32c: 0,
        write_time_ns: 1,
    });
    table.shard.lsn = 0;
    assert!(table.change(SHARD, &[write]).is_err());
    let unnamed = Change::Xattr { inode: InodeNo(2), name: Bytes(&[b'x'; 256]), value: Bytes(b"") };
    assert!(table.change(ShardId::meta(0), &[unnamed]).is_err());
}

/// A damaged row is a fault or another row, never a panic.
#[test]
fn changed_keys_and_values_decode_to_a_row_or_not_at_all() {
    let mut table = Table::default();
    begin(MADE, &mut table.rows).unwrap();
    table.apply(&session_record(1, &[])).unwrap();
    // Each change on its own: not all of them fit together.
    for change in super::changes() {
        for shard in [SHARD, ShardId::meta(0)] {
            table.change(shard, core::slice::from_ref(&change)).ok();
        }
    }
    assert!(table.rows.len() > 10, "{}", table.rows.len());
    let mut rng = fastrand::Rng::with_seed(0x40e5);
    let (mut decoded_count, mut refused_count) = (0, 0);
    for (key, value) in &table.rows {
        assert!(Row::decode(key, value).is_ok(), "{key:?}");
        for _ in 0..2_000 {
            let (mut key, mut value) = (key.clone(), value.clone());
            for _ in 0..=rng.usize(..3) {
                let bytes =
                    if rng.usize(..3) == 0 || value.is_empty() { &mut key } else { &mut value };
                let at = rng.usize(..bytes.len());
                match rng.u8(..5) {
                    0 => bytes.truncate(at.max(1)),
                    1 => bytes.insert(at, rng.u8(..)),
                    // Small numbers: lengths, counts and cases.
                    2 => bytes[at] = rng.u8(..24),
                    _ => bytes[at] ^= 1 << rng.u8(..8),
                }
            }
            match Row::decode(&key, &value) {
                Ok(_) => decoded_count += 1,
                Err(_) => refused_count += 1,
            }
        }
    }
    assert!(decoded_count > 1_000 && refused_count > 1_000, "{decoded_count} {refused_count}");
}

#[test]
fn a_term_that_falls_and_another_record_in_the_same_place_are_damage() {
    let record = |lsn, term| Record { term: Term(term), ..session_record(lsn, &[]) };
    let mut table = Table::default();
    (table.shard.lsn, table.shard.term) = (5, Term(3));
    let falls = table.apply(&record(6, 2)).unwrap_err();
    assert_eq!(falls.what, "a record of an earlier term behind a later one");
    assert_eq!((falls.expected, falls.found), (3, 2));
    let other = table.apply(&record(5, 4)).unwrap_err();
    assert_eq!(other.what, "two records in one place");
    assert!(table.rows.is_empty(), "nothing was applied");
    assert_eq!(table.apply(&record(6, 3)), Ok(true), "the same term goes on");
    assert_eq!(table.apply(&record(7, 9)), Ok(true), "terms may be left out");
    assert_eq!(table.shard.position(), record(7, 9).position());
}
