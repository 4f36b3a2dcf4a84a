//! The map of servers and shards: golden bytes, look-ups, and what decoding refuses.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::SocketAddr;
use std::sync::Arc;
use wire::*;

const SHARDS: ShardCounts = ShardCounts { meta: 5, data: 4 };

fn address(text: &str) -> ServerAddress {
    ServerAddress::At(text.parse::<SocketAddr>().unwrap())
}

fn row(id: u16, lane_count: u16, address: ServerAddress) -> ServerRow {
    ServerRow { id: ServerId(id), lane_count, address }
}

fn run(first: ShardId, shard_count: u16, server: u16, term: u32) -> ShardRun {
    ShardRun { first, shard_count, server: ServerId(server), term: Term(term) }
}

fn servers() -> Vec<ServerRow> {
    vec![
        row(1, 2, address("10.0.0.1:7000")),
        row(3, 3, address("[fd00::3]:7001")),
        row(9, 1, ServerAddress::Initial),
    ]
}

fn runs() -> Vec<ShardRun> {
    let (meta, data) = (ShardId::meta, ShardId::data);
    vec![run(meta(0), 2, 3, 7), run(meta(2), 3, 1, 6), run(data(0), 1, 9, 1), run(data(1), 3, 3, 8)]
}

fn map_of(servers: Vec<ServerRow>, runs: Vec<ShardRun>) -> Option<Map> {
    Map::new(MapEpoch(0x0102_0304_0506_0708), SHARDS, servers.into(), runs.into())
}

fn several() -> Map {
    map_of(servers(), runs()).unwrap()
}

#[test]
fn a_map_of_one_server_has_these_bytes() {
    let map = Map::single_server(2, SHARDS, Term(9));
    let bytes = [
        &[9, 0, 0, 0, 0, 0, 0, 0, 5, 0, 4, 0][..],
        &[1, 0, 1, 0, 2, 0, 0],
        &[2, 0],
        &[0, 0, 5, 0, 1, 0, 9, 0, 0, 0],
        &[0, 0x80, 4, 0, 1, 0, 9, 0, 0, 0],
    ];
    assert_eq!(map.to_bytes(), bytes.concat());
}

#[test]
fn a_map_of_three_servers_has_these_bytes() {
    let bytes = [
        &[8, 7, 6, 5, 4, 3, 2, 1, 5, 0, 4, 0, 3, 0][..],
        &[1, 0, 2, 0, 4, 10, 0, 0, 1, 0x58, 0x1b],
        &[3, 0, 3, 0, 6, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0x59, 0x1b],
        &[9, 0, 1, 0, 0],
        &[4, 0],
        &[0, 0, 2, 0, 3, 0, 7, 0, 0, 0],
        &[2, 0, 3, 0, 1, 0, 6, 0, 0, 0],
        &[0, 0x80, 1, 0, 9, 0, 1, 0, 0, 0],
        &[1, 0x80, 3, 0, 3, 0, 8, 0, 0, 0],
    ]
    .concat();
    assert_eq!(several().to_bytes(), bytes);
    assert_eq!(Map::decode_all(&bytes), Ok(several()));
}

#[test]
fn a_shard_is_at_a_lane_of_its_runs_server() {
    let map = several();
    let place = |shard| {
        let Place { server, lane, term } = map.place(shard);
        (server.0, lane.0, term.0)
    };
    let metas: Vec<_> = (0..5).map(|index| place(ShardId::meta(index))).collect();
    assert_eq!(metas, [(3, 0, 7), (3, 1, 7), (1, 0, 6), (1, 1, 6), (1, 0, 6)]);
    let datas: Vec<_> = (0..4).map(|index| place(ShardId::data(index))).collect();
    assert_eq!(datas, [(9, 0, 1), (3, 1, 8), (3, 2, 8), (3, 0, 8)]);
    assert_eq!((map.lane_count(ServerId(3)), map.lane_count(ServerId(2))), (Some(3), None));
}

#[test]
fn no_two_shards_of_a_lane_and_kind_have_the_same_index() {
    for map in [several(), Map::single_server(3, SHARDS, Term(1))] {
        let of = |shard: ShardId| {
            let Place { server, lane, .. } = map.place(shard);
            (server, lane, shard.is_data(), map.index_at_lane(shard))
        };
        let mut all: Vec<_> = SHARDS.shards().map(of).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 9);
    }
}

#[test]
fn every_shard_of_one_server_is_there_in_its_term() {
    let map = Map::single_server(3, SHARDS, Term(4));
    for shard in SHARDS.shards() {
        let lane = LaneId(shard.index() % 3);
        assert_eq!(map.place(shard), Place { server: ServerId::FIRST, lane, term: Term(4) });
    }
    assert_eq!(map.epoch(), MapEpoch(4));
}

#[test]
fn a_new_term_changes_no_place_and_another_server_or_lane_count_does() {
    let (mut later, mut moved, mut fewer) = (runs(), runs(), servers());
    later[1].term = Term(7);
    moved[1].server = ServerId(3);
    fewer[1].lane_count = 2;
    assert!(map_of(servers(), later).unwrap().places_all_as(&several()));
    assert!(!map_of(servers(), moved).unwrap().places_all_as(&several()));
    assert!(!map_of(fewer, runs()).unwrap().places_all_as(&several()));
}

#[test]
fn the_higher_epoch_is_newer() {
    let [one, two] = [1, 2].map(|term| Map::single_server(1, SHARDS, Term(term)));
    assert!(two.is_newer_than(&one));
    assert!(!one.is_newer_than(&two));
    assert!(!one.is_newer_than(&one));
}

#[test]
fn incomplete_overlapping_and_foreign_runs_are_malformed() {
    let wrong = |change: fn(&mut Vec<ShardRun>)| {
        let mut runs = runs();
        change(&mut runs);
        // Encoded as a peer that does not check would.
        let mut bytes = several().to_bytes();
        bytes.truncate(12 + 2 + 11 + 23 + 5);
        bytes.extend(u16::try_from(runs.len()).unwrap().to_le_bytes());
        runs.iter().for_each(|run| bytes.extend(run.to_bytes()));
        assert_eq!(map_of(servers(), runs), None);
        let malformed = DecodeError::ProtocolError(ProtocolError::Malformed);
        assert_eq!(Map::decode_all(&bytes), Err(malformed));
    };
    wrong(|runs| runs.clear());
    wrong(|runs| runs.truncate(3));
    wrong(|runs| runs.truncate(2));
    wrong(|runs| runs.retain(|run| run.server != ServerId(1)));
    wrong(|runs| runs.retain(|run| run.term != Term(7)));
    wrong(|runs| runs.swap(0, 1));
    wrong(|runs| runs.swap(1, 2));
    wrong(|runs| runs[0].shard_count = 1);
    wrong(|runs| runs[0].shard_count = 3);
    wrong(|runs| runs[1].first = ShardId::meta(1));
    wrong(|runs| runs[1].shard_count = 4);
    wrong(|runs| runs[3].shard_count = 4);
    wrong(|runs| runs[3].shard_count = u16::MAX);
    wrong(|runs| runs.insert(2, run(ShardId::meta(5), 0, 1, 1)));
    wrong(|runs| runs.push(run(ShardId::data(4), 1, 1, 1)));
    wrong(|runs| runs.push(runs[3]));
    wrong(|runs| runs[2].server = ServerId(2));
    wrong(|runs| runs[2].term = Term(0));
}

#[test]
fn servers_out_of_order_without_lanes_or_with_half_an_address_are_malformed() {
    let wrong = |change: fn(&mut Vec<ServerRow>)| {
        let mut servers = servers();
        change(&mut servers);
        assert_eq!(map_of(servers, runs()), None);
    };
    wrong(|servers| servers.clear());
    wrong(|servers| servers.swap(0, 1));
    wrong(|servers| servers.push(servers[2]));
    wrong(|servers| servers[0].lane_count = 0);
    wrong(|servers| servers[0].lane_count = 0x8000);
    wrong(|servers| servers[0].address = address("10.0.0.1:0"));
    wrong(|servers| servers[0].address = address("[fe80::1%2]:7000"));
    wrong(|servers| servers.extend((10..).map(|id| row(id, 1, ServerAddress::Initial)).take(254)));
}

#[test]
fn counts_that_the_body_cannot_hold_are_malformed_before_rows_are_read() {
    let mut bytes = several().to_bytes();
    for (offset, count) in [(12, 257_u16), (12, u16::MAX), (12 + 2 + 39, 1025)] {
        let whole = bytes.clone();
        bytes[offset..offset + 2].copy_from_slice(&count.to_le_bytes());
        let malformed = DecodeError::ProtocolError(ProtocolError::Malformed);
        assert_eq!(Map::decode_all(&bytes), Err(malformed));
        bytes = whole;
    }
}

fn set(ranges: &[(u16, u16)]) -> ShardSet {
    let range = |&(first, shard_count): &(u16, u16)| ShardRange { first, shard_count };
    ShardSet::new(ranges.iter().map(range)).unwrap()
}

/// Two servers; the second one brought two shards of each kind, then the first one was drained.
fn grown() -> Map {
    let (meta, data) = (ShardId::meta, ShardId::data);
    let servers = [row(1, 2, address("10.0.0.1:7000")), row(2, 1, address("10.0.0.2:7000"))];
    let runs = [
        run(meta(0), 3, 1, 7),
        run(meta(3), 2, 2, 1),
        run(data(0), 2, 1, 7),
        run(data(2), 2, 2, 1),
    ];
    let generations = [
        Generation { metas: set(&[(0, 3)]), datas: set(&[(0, 2)]) },
        Generation { metas: set(&[(0, 3), (3, 2)]), datas: set(&[(0, 2), (2, 2)]) },
        Generation { metas: set(&[(3, 2)]), datas: set(&[(2, 2)]) },
    ];
    let map = Map::new(MapEpoch(9), SHARDS, Arc::new(servers), Arc::new(runs)).unwrap();
    map.with_generations(Arc::new(generations)).unwrap()
}

#[test]
fn a_map_with_generations_has_these_bytes() {
    let bytes = [
        &[9, 0, 0, 0, 0, 0, 0, 0, 5, 0, 4, 0x80, 2, 0][..],
        &[1, 0, 2, 0, 4, 10, 0, 0, 1, 0x58, 0x1b],
        &[2, 0, 1, 0, 4, 10, 0, 0, 2, 0x58, 0x1b],
        &[4, 0],
        &[0, 0, 3, 0, 1, 0, 7, 0, 0, 0],
        &[3, 0, 2, 0, 2, 0, 1, 0, 0, 0],
        &[0, 0x80, 2, 0, 1, 0, 7, 0, 0, 0],
        &[2, 0x80, 2, 0, 2, 0, 1, 0, 0, 0],
        &[3],
        &[1, 0, 0, 3, 0, 1, 0, 0, 2, 0],
        &[1, 0, 0, 5, 0, 1, 0, 0, 4, 0],
        &[1, 3, 0, 2, 0, 1, 2, 0, 2, 0],
    ]
    .concat();
    assert_eq!(grown().to_bytes(), bytes);
    assert_eq!(Map::decode_all(&bytes), Ok(grown()));
}

#[test]
fn each_part_of_a_file_is_at_another_server_of_its_generation() {
    let (map, one) = (grown(), Map::single_server(2, SHARDS, Term(9)));
    for (generation, count) in [(0, 1), (1, 2), (2, 1)] {
        for low in 0..100 {
            let inode = InodeNo::new(0, *InodeNo::counts_of(generation).start() + low);
            assert_eq!(map.part_count_max(Some(inode)), count);
            let mut servers = std::collections::BTreeSet::new();
            for part in 0..u32::from(count) {
                let server = map.place(map.data_shard(inode, part)).server;
                assert_eq!(map.part_of(inode, server), part);
                servers.insert(server);
            }
            assert_eq!(servers.len(), usize::from(count));
            assert_eq!(one.part_of(inode, ServerId(1)), 0);
        }
    }
    assert_eq!((map.part_count_max(None), one.part_count_max(None)), (1, 1));
}

#[test]
fn files_stay_where_they_were_when_shards_are_added() {
    let map = grown();
    let first = ShardCounts { meta: 3, data: 2 };
    let of = |generation: u8, low| {
        let count = *InodeNo::counts_of(generation).start() + low;
        let inode = InodeNo::new(0, count);
        assert_eq!(inode.generation(), generation);
        inode
    };
    let indices = |generation| -> std::collections::BTreeSet<u16> {
        (0..200).map(|low| map.data_shard(of(generation, low), 0).index()).collect()
    };
    for low in 0..200 {
        assert_eq!(map.data_shard(of(0, low), 0), first.data_shard(of(0, low), 0));
    }
    assert_eq!(indices(0), [0, 1].into());
    assert_eq!(indices(1), [0, 1, 2, 3].into());
    assert_eq!(indices(2), [2, 3].into());
    assert_eq!(map.generation(), 2);
    let directories: Vec<u16> = (0..4).map(|number| map.directory_shard(number).index()).collect();
    assert_eq!(directories, [3, 4, 3, 4]);
    assert_eq!(map.directory_shard_count(), 2);
}

#[test]
fn a_map_extends_those_that_were_before_it() {
    let shards = ShardCounts { meta: 3, data: 2 };
    let (before, other) =
        (Map::single_server(2, shards, Term(7)), Map::single_server(2, SHARDS, Term(7)));
    assert!(grown().extends(&before), "shards were added");
    assert!(before.extends(&before));
    assert!(!before.extends(&grown()));
    assert!(!grown().extends(&other), "files would lie elsewhere");
}

#[test]
fn generations_of_other_shards_are_refused() {
    let without = || Map::new(MapEpoch(9), SHARDS, grown().servers().into(), grown().runs().into());
    let with = |metas: &[(u16, u16)], datas: &[(u16, u16)]| {
        let one = Generation { metas: set(metas), datas: set(datas) };
        without().unwrap().with_generations(Arc::new([one]))
    };
    assert!(with(&[(0, 5)], &[(0, 4)]).is_some());
    assert_eq!(with(&[(0, 5)], &[(0, 4)]), without(), "there is one encoding of all shards");
    assert_eq!(with(&[(0, 6)], &[(0, 4)]), None);
    assert_eq!(with(&[(0, 5)], &[(3, 2)]), None);
    assert_eq!(without().unwrap().with_generations(Arc::new([])), None);
    let range = |first, shard_count| ShardRange { first, shard_count };
    assert_eq!(ShardSet::new([]), None);
    assert_eq!(ShardSet::new([range(0, 0)]), None);
    assert_eq!(ShardSet::new([range(0, 2), range(1, 2)]), None);
    assert_eq!(ShardSet::new([range(1, u16::MAX)]), None);
    // Ranges that touch, of no shard, or without the flag.
    let bytes = grown().to_bytes();
    let behind_runs = bytes.len() - 31;
    for (at, value) in [(behind_runs, 0), (behind_runs + 4, 0), (behind_runs + 1, 2), (11, 0)] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        assert!(Map::decode_all(&bytes).is_err(), "{at}");
    }
}

#[test]
fn the_largest_map_fits_into_a_welcome() {
    let shards = ShardCounts { meta: 512, data: 512 };
    let v6 = address("[fd00::1]:7000");
    let servers: Vec<ServerRow> = (1..=256).map(|id| row(id, 8, v6)).collect();
    let one = |shard: ShardId| run(shard, 1, 1 + shard.index() % 256, 1);
    let runs: Vec<ShardRun> = shards.shards().map(one).collect();
    let map = Map::new(MapEpoch(1), shards, servers.into(), runs.into()).unwrap();
    let all = |shard_count| (0..shard_count).map(|index| (2 * index, 1)).collect::<Vec<_>>();
    let one = Generation { metas: set(&[(0, 512)]), datas: set(&all(3)) };
    let generations: Vec<Generation> = (0..255).map(|_| one.clone()).collect();
    let map = map.with_generations(generations.into()).unwrap();
    assert!(map.to_bytes().len() <= Map::BYTES_MAX);
}

/// A random complete map.
fn random_map(rng: &mut fastrand::Rng) -> Map {
    let shards = ShardCounts { meta: rng.u16(1..20), data: rng.u16(1..20) };
    let mut id = 0;
    let servers: Vec<ServerRow> = (0..rng.usize(1..5))
        .map(|_| {
            id += rng.u16(1..3);
            let address = match rng.u8(..3) {
                0 => ServerAddress::Initial,
                1 => address("192.0.2.7:1"),
                _ => address("[2001:db8::1]:65535"),
            };
            row(id, rng.u16(1..9), address)
        })
        .collect();
    let mut runs = Vec::new();
    for (first, count) in [(ShardId::meta(0), shards.meta), (ShardId::data(0), shards.data)] {
        let mut at = 0;
        while at < count {
            let shard_count = rng.u16(1..=count - at);
            let server = servers[rng.usize(..servers.len())].id.0;
            runs.push(run(ShardId(first.0 + at), shard_count, server, rng.u32(1..)));
            at += shard_count;
        }
    }
    let map = Map::new(MapEpoch(rng.u64(1..)), shards, servers.into(), runs.into()).unwrap();
    let some = |rng: &mut fastrand::Rng, shard_count| {
        let first = rng.u16(..shard_count);
        set(&[(first, rng.u16(1..=shard_count - first))])
    };
    let generations: Vec<Generation> = (0..rng.usize(..4))
        .map(|_| Generation { metas: some(rng, shards.meta), datas: some(rng, shards.data) })
        .collect();
    if generations.is_empty() { map } else { map.with_generations(generations.into()).unwrap() }
}

#[test]
fn a_random_map_decodes_from_its_bytes_and_places_each_shard_by_its_run() {
    let mut rng = fastrand::Rng::with_seed(19);
    for _ in 0..2000 {
        let map = random_map(&mut rng);
        let bytes = map.to_bytes();
        assert_eq!(Map::decode_all(&bytes).as_ref(), Ok(&map));
        for shard in map.shard_counts().shards() {
            let holds = |run: &&ShardRun| {
                let at = shard.0.checked_sub(run.first.0);
                at.is_some_and(|at| at < run.shard_count)
            };
            let run = map.runs().iter().find(holds).unwrap();
            let lane = LaneId(shard.index() % map.lane_count(run.server).unwrap());
            assert_eq!(map.place(shard), Place { server: run.server, lane, term: run.term });
        }
    }
}

#[test]
fn any_bytes_decode_to_a_map_with_the_same_bytes_or_not_at_all() {
    let mut rng = fastrand::Rng::with_seed(20);
    let mut decoded_count = 0;
    for _ in 0..20_000 {
        let mut bytes = random_map(&mut rng).to_bytes();
        for _ in 0..rng.usize(..4) {
            let at = rng.usize(..bytes.len());
            match rng.u8(..4) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes.insert(at, rng.u8(..)),
                2 => bytes[at] = rng.u8(..),
                _ => bytes[at] ^= 1 << rng.u8(..8),
            }
        }
        if let Ok(map) = Map::decode_all(&bytes) {
            decoded_count += 1;
            assert_eq!(map.to_bytes(), bytes);
            map.shard_counts().shards().for_each(|shard| {
                assert!(map.lane_count(map.place(shard).server).is_some());
            });
        }
    }
    assert!(decoded_count > 1000, "{decoded_count} maps were still complete");
}
