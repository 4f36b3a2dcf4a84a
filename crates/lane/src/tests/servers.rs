//! Several servers: changes over their shards, while one of them restarts or is cut off.

mod cluster;
mod connections;
mod contents;
mod fenced_locks;
mod fences;
mod file_client;
mod leases;
mod part_pages;
mod random;
mod replays;
mod restated;
mod told;
mod written_behind;

use super::across::{Act, encoded, made};
use alloc::string::String;
use alloc::vec::Vec;
use cluster::{Client, Cluster, server_of};
use interface::ProtocolPoint;
use wire::{
    FileKind, Generation, InodeNo, Map, MapEpoch, Op, Readdir, RenameHow, ServerId, ShardId,
    ShardRange, ShardSet, Status, Wire as _,
};

const POINTS: [ProtocolPoint; 6] = [
    ProtocolPoint::TxnBegun,
    ProtocolPoint::TxnPrepared,
    ProtocolPoint::TxnDeciding,
    ProtocolPoint::TxnDecided,
    ProtocolPoint::TxnDone,
    ProtocolPoint::TxnForgotten,
];

fn of(act: &Act) -> (Op, ShardId, Vec<u8>) {
    let (op, inode, body) = encoded(act);
    (op, inode.shard(), body)
}

/// A client that is connected to all servers.
fn joined(cluster: &mut Cluster, number: u8) -> Client {
    let mut client = Client::new(number);
    for _ in 0..500 {
        cluster.step();
    }
    client.connect(cluster);
    client
}

fn done(cluster: &mut Cluster, client: &mut Client, act: Act) -> Option<InodeNo> {
    let (status, body) = client.ask(cluster, of(&act), |_| {});
    assert_eq!(status, Status::Ok, "{act:?}");
    made(&act, &body)
}

fn list(cluster: &mut Cluster, client: &mut Client, inode: InodeNo) -> Vec<(String, InodeNo)> {
    let (caller, cookie, listing_bytes_max) = (super::peer::ROOT, 0, 131_072);
    let args = Readdir { caller, inode, cookie, listing_bytes_max, attrs: false, handle: None };
    let (status, body) = client.ask(cluster, (Op::Readdir, inode.shard(), args.to_bytes()), |_| {});
    assert_eq!(status, Status::Ok);
    let listing = wire::Listing::decode_all(&body).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    listing.entries.iter().map(|entry| (text(entry.name.bytes()), entry.inode)).collect()
}

fn nlink(cluster: &mut Cluster, client: &mut Client, inode: InodeNo) -> Option<(u32, FileKind)> {
    let body = wire::Getattr { inode }.to_bytes();
    let (status, body) = client.ask(cluster, (Op::Getattr, inode.shard(), body), |_| {});
    let attr = (status == Status::Ok).then(|| wire::Entry::decode_all(&body).unwrap().attr);
    attr.map(|attr| (attr.nlink, attr.kind))
}

/// The tree is whole: each entry names an inode, and each inode has as many links as names.
fn check(cluster: &mut Cluster, client: &mut Client) {
    cluster.settle();
    cluster.check_idle();
    let mut names: alloc::collections::BTreeMap<InodeNo, u32> = alloc::collections::BTreeMap::new();
    let mut dirs = alloc::vec![InodeNo::ROOT];
    while let Some(dir) = dirs.pop() {
        let mut links = 2;
        for (text, inode) in list(cluster, client, dir) {
            let found = nlink(cluster, client, inode);
            let Some((_, kind)) = found else { panic!("{text} in {dir} names no inode") };
            *names.entry(inode).or_default() += 1;
            if kind == FileKind::Directory {
                links += 1;
                dirs.push(inode);
            }
        }
        assert_eq!(nlink(cluster, client, dir).unwrap().0, links, "links of {dir}");
    }
    for (inode, count) in names {
        let (found, kind) = nlink(cluster, client, inode).unwrap();
        assert!(kind == FileKind::Directory || found == count, "links of {inode}");
    }
}

/// Directories of all servers.
fn directories(cluster: &mut Cluster, client: &mut Client) -> Vec<InodeNo> {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let made = names.map(|text| done(cluster, client, Act::Mkdir(InodeNo::ROOT, text)));
    made.into_iter().flatten().collect()
}

/// Two directories at different servers, each with a file.
fn furnished(cluster: &mut Cluster, client: &mut Client) -> (InodeNo, InodeNo) {
    let dirs = directories(cluster, client);
    let from = *dirs.iter().find(|dir| server_of(**dir) == 0).unwrap();
    let to = *dirs.iter().find(|dir| server_of(**dir) == 1).unwrap();
    done(cluster, client, Act::Create(from, "f"));
    done(cluster, client, Act::Create(to, "g"));
    cluster.settle();
    (from, to)
}

/// Does `act` while a server dies at a point, and comes back after a while.
fn dying(
    cluster: &mut Cluster,
    client: &mut Client,
    act: &Act,
    (dies, point, count): (usize, ProtocolPoint, usize),
) -> Status {
    cluster.servers[dies].points.clear();
    cluster.servers[dies].dies_at = Some((point, count));
    let mut down_for = 0;
    let (status, _) = client.ask(cluster, of(act), |cluster| {
        if cluster.servers[dies].is_down() {
            down_for += 1;
            if down_for > 60 {
                cluster.start(dies);
            }
        }
    });
    // It may die after the answer.
    cluster.settle();
    if cluster.servers[dies].is_down() {
        cluster.start(dies);
    }
    cluster.servers[dies].dies_at = None;
    for _ in 0..300 {
        cluster.step();
    }
    client.connect(cluster);
    status
}

/// Kills a server at each step of each kind of change over two servers.
fn die_at_each_step(
    prepare: impl Fn(&mut dyn FnMut(Act) -> Option<InodeNo>, InodeNo, InodeNo) -> Act,
    lane_counts: &[u16],
) {
    let mut died = 0;
    for dies in 0..2 {
        for point in POINTS {
            for seed in 1..=2 {
                let mut cluster = Cluster::new(seed, lane_counts);
                let mut client = joined(&mut cluster, 1);
                let (from, to) = furnished(&mut cluster, &mut client);
                let boot_id = cluster.servers[dies].boot_id;
                let act = prepare(&mut |act| done(&mut cluster, &mut client, act), from, to);
                cluster.settle();
                let status = dying(&mut cluster, &mut client, &act, (dies, point, 1));
                assert_eq!(status, Status::Ok, "server {dies} dies at {point:?}, {act:?}");
                died += u32::from(cluster.servers[dies].boot_id > boot_id);
                check(&mut cluster, &mut client);
            }
        }
    }
    assert!(died >= 10, "a server died {died} times");
}

#[test]
fn a_rename_over_servers_takes_effect_once_wherever_one_dies() {
    let how = RenameHow::Replace;
    die_at_each_step(|_, from, to| Act::Rename((from, "f"), (to, "g"), how), &[1, 1]);
    die_at_each_step(|_, from, to| Act::Rename((to, "g"), (from, "x"), how), &[2, 2]);
}

#[test]
fn a_directory_that_moves_to_another_server_is_there_once_wherever_one_dies() {
    let how = RenameHow::Replace;
    die_at_each_step(
        |done, from, to| {
            done(Act::Mkdir(from, "d"));
            Act::Rename((from, "d"), (to, "d"), how)
        },
        &[1, 2],
    );
}

#[test]
fn a_directory_made_at_another_server_is_there_once_wherever_one_dies() {
    // Those near the root are spread over all servers.
    die_at_each_step(|_, _, _| Act::Mkdir(InodeNo::ROOT, "x"), &[1, 1]);
    die_at_each_step(|_, from, _| Act::Mkdir(from, "x"), &[2, 1]);
}

#[test]
fn a_directory_removed_from_another_server_is_away_wherever_one_dies() {
    die_at_each_step(
        |done, _, to| {
            done(Act::Unlink(to, "g"));
            let text = name_in_root(done, to);
            Act::Rmdir(InodeNo::ROOT, text)
        },
        &[1, 1],
    );
}

/// The name of a directory in the root.
fn name_in_root(done: &mut dyn FnMut(Act) -> Option<InodeNo>, dir: InodeNo) -> &'static str {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let is_it = |text: &&&'static str| done(Act::Lookup(InodeNo::ROOT, text)) == Some(dir);
    names.iter().find(is_it).unwrap()
}

#[test]
fn a_link_to_a_file_of_another_server_counts_once_wherever_one_dies() {
    die_at_each_step(
        |done, from, to| {
            let file = done(Act::Lookup(from, "f")).unwrap();
            Act::Link(file, to, "l")
        },
        &[1, 1],
    );
}

#[test]
fn a_link_removed_from_another_server_counts_once_wherever_one_dies() {
    die_at_each_step(
        |done, from, to| {
            let file = done(Act::Lookup(from, "f")).unwrap();
            done(Act::Link(file, to, "l"));
            Act::Unlink(to, "l")
        },
        &[1, 1],
    );
}

/// The next map, by which new files, and new directories if `directories` says so, are made at the
/// second of two servers.
fn second_takes_what_is_new(map: &Map, directories: bool) -> Map {
    let half = map.shard_counts().meta / 2;
    let set = |first, shard_count| ShardSet::new([ShardRange { first, shard_count }]).unwrap();
    let all = Generation { metas: set(0, 2 * half), datas: set(0, 2 * half) };
    let metas = if directories { set(half, half) } else { all.metas.clone() };
    let second = Generation { metas, datas: set(half, half) };
    let (epoch, counts) = (MapEpoch(map.epoch().0 + 1), map.shard_counts());
    let newer = Map::new(epoch, counts, map.servers().into(), map.runs().into()).unwrap();
    newer.with_generations([all, second].into()).unwrap()
}

#[test]
fn a_size_is_settled_when_the_map_has_come_that_says_where_it_is() {
    let mut cluster = Cluster::new(4, &[1, 1]);
    let mut client = joined(&mut cluster, 1);
    let newer = second_takes_what_is_new(&cluster.newest_map(), false);
    cluster.servers[0].set_map(&newer);
    cluster.settle();
    let (caller, parent, mode) = (super::peer::ROOT, InodeNo::ROOT, 0o644);
    let is_open = |attr: wire::Attr| attr.flags & wire::attr_flag::SIZE_AT_DATA != 0;
    let files = ["a", "b", "c", "d", "e", "f"].map(|text| {
        let handle = wire::HandleId(text.as_bytes()[0].into());
        let opened = Some(wire::Handle { id: handle, open_for: wire::OpenFor::Write });
        let args = wire::Create {
            caller,
            parent,
            name: wire::Name::new(text.as_bytes()).unwrap(),
            mode,
            umask: 0,
            exclusive: true,
            handle: opened,
            behind: None,
        };
        let request = (Op::Create, parent.shard(), args.to_bytes());
        let (status, body) = client.ask(&mut cluster, request, |_| {});
        assert_eq!(status, Status::Ok);
        let attr = wire::Created::decode_all(&body).unwrap().attr;
        assert!(attr.inode.generation() == 1 && is_open(attr));
        let inode = attr.inode;
        let close = wire::Close { inode, handle };
        let request = (Op::Close, inode.shard(), close.to_bytes());
        assert_eq!(client.ask(&mut cluster, request, |_| {}).0, Status::Ok);
        inode
    });
    cluster.settle();
    // Only now the server of the contents learns of their generation.
    cluster.servers[1].set_map(&newer);
    cluster.pass_ms(1000);
    cluster.settle();
    for inode in files {
        let request = (Op::Getattr, inode.shard(), wire::Getattr { inode }.to_bytes());
        let (status, body) = client.ask(&mut cluster, request, |_| {});
        assert_eq!(status, Status::Ok);
        assert!(!is_open(wire::Entry::decode_all(&body).unwrap().attr), "{inode} is not settled");
    }
}

#[test]
fn what_is_new_goes_to_the_servers_of_the_last_generation() {
    let mut cluster = Cluster::new(3, &[1, 2]);
    let mut client = joined(&mut cluster, 1);
    let before = done(&mut cluster, &mut client, Act::Create(InodeNo::ROOT, "before")).unwrap();
    let map = cluster.newest_map();
    let newer = second_takes_what_is_new(&map, true);
    cluster.servers.iter_mut().for_each(|server| server.set_map(&newer));
    cluster.settle();
    let file = done(&mut cluster, &mut client, Act::Create(InodeNo::ROOT, "after")).unwrap();
    assert_eq!((before.generation(), file.generation()), (0, 1));
    assert_eq!(newer.data_shard(before, 0), map.data_shard(before, 0), "it stays");
    assert_eq!(newer.place(newer.data_shard(file, 0)).server, ServerId(2));
    for text in ["a", "b", "c", "d"] {
        let dir = done(&mut cluster, &mut client, Act::Mkdir(InodeNo::ROOT, text)).unwrap();
        assert_eq!(server_of(dir), 1);
    }
    check(&mut cluster, &mut client);
}
