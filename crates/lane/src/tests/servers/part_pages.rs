//! Pages of a file whose stripes are at two servers: each grants those of its own, and a truncation
//! waits at both, also while one of them dies.

use super::cluster::Client;
use super::leases::Scene;
use super::restated::{answer, ask, steps};
use crate::request::Asked;
use crate::tests::leases::Key;
use crate::tests::peer::{HelloFields, Peer, ROOT};
use alloc::collections::BTreeSet;
use interface::Event;
use wire::{
    Attr, ClearPrivileges, Close, Entry, Getattr, Glimpse, Glimpsed, Handle, HandleId, Layout, Op,
    Open, OpenFor, Read, Request, Reserve, ShardId, Status, Truncate, Wire, Write, lease_flag,
};

const UNIT: u64 = 1 << 16;
const LAYOUT: Layout = Layout { stripe_unit_bytes: UNIT, stripe_count: 2, narrow: false };
/// The servers of the first stripe and of the second one.
const HOME: usize = 1;
const OTHER: usize = 0;

/// A file of a stripe and ten bytes, and who has written them.
fn scene(seed: u64) -> (Scene, Peer) {
    let mut scene = Scene::with(seed, LAYOUT);
    scene.client.layout = LAYOUT;
    scene.holders.iter_mut().for_each(|holder| holder.layout = LAYOUT);
    let mut writer = Peer::new(&mut scene.cluster.servers[OTHER], &HelloFields::new(3));
    assert_eq!(send_write(&mut scene, &mut writer, UNIT), Some(Status::Ok));
    (scene, writer)
}

fn shard(scene: &Scene, stripe: u32) -> ShardId {
    scene.cluster.newest_map().stripe_shard(scene.file, LAYOUT, stripe)
}

/// Writes ten bytes at the second server. Returns the status, if it is answered.
fn send_write(scene: &mut Scene, writer: &mut Peer, file_offset: u64) -> Option<Status> {
    let (inode, append, clears) = (scene.file, false, ClearPrivileges::Nothing);
    let body = Write { inode, file_offset, append, clears }.to_bytes();
    let head = writer.head(Op::Write, shard(scene, 1), 1);
    let head = Request { layout: Some(LAYOUT), ..head };
    writer.send(&mut scene.cluster.servers[OTHER], &head, &body, Some(b"0123456789"));
    let reply = answer(&mut scene.cluster, (OTHER, writer));
    reply.map(|reply| reply.head.status)
}

/// Reads a stripe for a page cache. Returns what is granted.
fn read(scene: &mut Scene, stripe: u32) -> u8 {
    let file_offset = u64::from(stripe) * UNIT;
    let read = Read { inode: scene.file, file_offset, read_bytes: 4096, accesses: false };
    scene.ask((Op::Read, shard(scene, stripe), 0), &read)
}

fn begin_truncation(scene: &mut Scene, size_bytes: u64) {
    let truncate = Truncate { inode: scene.file, size_bytes };
    let home = shard(scene, 0);
    scene.client.begin(&mut scene.cluster, (Op::Truncate, home, truncate.to_bytes()));
}

fn size(scene: &mut Scene) -> u64 {
    let home = shard(scene, 0);
    let body = Glimpse { inode: scene.file }.to_bytes();
    let (status, body) = scene.client.ask(&mut scene.cluster, (Op::Glimpse, home, body), |_| {});
    assert_eq!(status, Status::Ok);
    Glimpsed::decode_all(&body).unwrap().contents.size_bytes
}

/// What is recalled by the home server, and by the other one.
fn recalled(scene: &mut Scene) -> (BTreeSet<Key>, BTreeSet<Key>) {
    let [other, home] = scene.recalled();
    (home, other)
}

/// Steps until the client's call is answered, with time that passes.
fn answered(scene: &mut Scene) -> Status {
    for _ in 0..400 {
        scene.cluster.pass_ms(250);
        for _ in 0..20 {
            steps(&mut scene.cluster, 1);
            scene.client.connect(&mut scene.cluster);
            if let Some((status, _)) = scene.client.receive(&mut scene.cluster) {
                return status;
            }
        }
    }
    panic!("it is never answered");
}

#[test]
fn each_part_recalls_the_pages_of_its_own_stripes() {
    let (mut scene, mut writer) = scene(81);
    let pages = BTreeSet::from([Key::Pages(scene.file)]);
    assert_eq!([read(&mut scene, 0), read(&mut scene, 1)], [lease_flag::CONTENTS; 2]);
    assert_eq!(send_write(&mut scene, &mut writer, UNIT), None, "it waits for the pages");
    assert_eq!(recalled(&mut scene), (BTreeSet::new(), pages.clone()));
    scene.ack(OTHER);
    let reply = answer(&mut scene.cluster, (OTHER, &writer)).unwrap();
    assert_eq!(reply.head.status, Status::Ok);
    begin_truncation(&mut scene, UNIT + 10);
    assert_eq!(scene.answer(), None, "the home server's pages are still there");
    assert_eq!(recalled(&mut scene), (pages, BTreeSet::new()));
    scene.ack(HOME);
    assert_eq!(scene.answer(), Some(Status::Ok));
}

#[test]
fn a_truncation_waits_for_the_pages_of_all_parts_while_looks_go_on() {
    let (mut scene, _) = scene(82);
    let pages = BTreeSet::from([Key::Pages(scene.file)]);
    assert_eq!(read(&mut scene, 1), lease_flag::CONTENTS);
    begin_truncation(&mut scene, 5);
    assert_eq!(scene.answer(), None);
    assert_eq!(recalled(&mut scene), (BTreeSet::new(), pages));
    let (glimpse, home) = (Glimpse { inode: scene.file }, shard(&scene, 0));
    scene.ask((Op::Glimpse, home, 0), &glimpse);
    for stripe in [0, 1] {
        assert_eq!(read(&mut scene, stripe), 0, "nobody is granted any further");
    }
    scene.ack(OTHER);
    assert_eq!(scene.answer(), Some(Status::Ok));
    assert_eq!(size(&mut scene), 5);
    assert_eq!([read(&mut scene, 0), read(&mut scene, 1)], [lease_flag::CONTENTS; 2]);
}

#[test]
fn truncations_of_a_file_have_its_pages_recalled_one_after_the_other() {
    let (mut scene, _) = scene(83);
    assert_eq!(read(&mut scene, 1), lease_flag::CONTENTS);
    begin_truncation(&mut scene, 5);
    let mut second = Peer::new(&mut scene.cluster.servers[HOME], &HelloFields::new(3));
    let truncate = Truncate { inode: scene.file, size_bytes: 3 };
    let head = second.head(Op::Truncate, shard(&scene, 0), 1);
    let head = Request { layout: Some(LAYOUT), ..head };
    second.send(&mut scene.cluster.servers[HOME], &head, &truncate.to_bytes(), None);
    assert_eq!(scene.answer(), None);
    assert!(answer(&mut scene.cluster, (HOME, &second)).is_none());
    scene.recalled();
    scene.ack(OTHER);
    assert_eq!(scene.answer(), Some(Status::Ok));
    let reply = answer(&mut scene.cluster, (HOME, &second));
    // It may have been answered meanwhile.
    assert!(reply.is_none_or(|reply| reply.head.status == Status::Ok));
    assert_eq!(size(&mut scene), 3);
}

fn attributes(scene: &mut Scene, peer: &mut Peer) -> Attr {
    let (shard, body) = (scene.file.shard(), Getattr { inode: scene.file }.to_bytes());
    let asked = (Op::Getattr, shard, 0);
    let reply = ask(&mut scene.cluster, (OTHER, peer), asked, (&body, None)).unwrap();
    Entry::decode_all(&reply.body).unwrap().attr
}

#[test]
fn a_size_is_settled_behind_a_truncation_that_came_before() {
    let (mut scene, mut peer) = scene(88);
    let (inode, meta, id) = (scene.file, scene.file.shard(), HandleId(7));
    let handle = Handle { id, open_for: OpenFor::Write };
    scene.ask((Op::Open, meta, 1), &Open { caller: ROOT, inode, handle });
    assert_eq!(read(&mut scene, 1), lease_flag::CONTENTS);
    begin_truncation(&mut scene, 5);
    assert_eq!(scene.answer(), None, "it waits for pages");
    scene.ask((Op::Close, meta, 1), &Close { inode, handle: id });
    scene.cluster.pass_ms(100);
    steps(&mut scene.cluster, 100);
    assert!(attributes(&mut scene, &mut peer).is_size_at_data(), "the truncation came first");
    scene.recalled();
    scene.ack(OTHER);
    assert_eq!(scene.answer(), Some(Status::Ok));
    for _ in 0..10 {
        scene.cluster.pass_ms(100);
        steps(&mut scene.cluster, 100);
    }
    let attr = attributes(&mut scene, &mut peer);
    assert!(!attr.is_size_at_data());
    assert_eq!(attr.size_bytes, 5);
}

#[test]
fn a_truncation_goes_on_when_either_server_has_died_while_it_waited() {
    for dies in [HOME, OTHER] {
        let (mut scene, _) = scene(84 + dies as u64);
        assert_eq!([read(&mut scene, 0), read(&mut scene, 1)], [lease_flag::CONTENTS; 2]);
        begin_truncation(&mut scene, 5);
        assert_eq!(scene.answer(), None);
        scene.recalled();
        scene.ack(HOME);
        assert_eq!(scene.answer(), None, "the other server waits");
        scene.cluster.crash(dies);
        steps(&mut scene.cluster, 20);
        scene.cluster.start(dies);
        // Its holder does not come back, and its term ends.
        assert_eq!(answered(&mut scene), Status::Ok, "{dies}");
        assert_eq!(size(&mut scene), 5);
    }
}

#[test]
fn a_server_that_stops_does_not_wait_for_pages_of_another_one() {
    let (mut scene, _) = scene(89);
    assert_eq!(read(&mut scene, 1), lease_flag::CONTENTS);
    begin_truncation(&mut scene, 5);
    assert_eq!(scene.answer(), None);
    scene.cluster.servers[HOME].event(0, Event::Stop);
    steps(&mut scene.cluster, 100);
    assert!(scene.cluster.servers[HOME].is_stopped());
}

/// A truncation whose home server dies when the other server, which has died after so many steps,
/// recovers. Returns the size in the end, if that server was asked for a cut while it recovered.
fn size_after_both_died(step_count: usize) -> Option<u64> {
    let (mut scene, _) = scene(89);
    begin_truncation(&mut scene, UNIT + 5);
    steps(&mut scene.cluster, step_count);
    scene.cluster.crash(OTHER);
    steps(&mut scene.cluster, 20);
    scene.cluster.start(OTHER);
    steps(&mut scene.cluster, 200);
    let early = &scene.cluster.servers[OTHER].lane(0).spread.early;
    if !matches!(early[..], [(_, Asked::Cut { .. })]) {
        return None;
    }
    scene.cluster.crash(HOME);
    steps(&mut scene.cluster, 20);
    scene.cluster.start(HOME);
    // The client that has asked does not come back either.
    scene.client = Client::new(4);
    scene.client.layout = LAYOUT;
    for _ in 0..200 {
        scene.cluster.pass_ms(250);
        steps(&mut scene.cluster, 20);
    }
    Some(size(&mut scene))
}

#[test]
fn a_part_executes_no_cut_of_a_home_server_that_died() {
    // In the first of these runs the part had not begun the cut when it died.
    let size_bytes = (0..40).find_map(size_after_both_died);
    assert_eq!(size_bytes, Some(UNIT + 10));
}

#[test]
fn a_truncation_waits_for_a_silent_holder_for_a_term() {
    let (mut scene, _) = scene(86);
    assert_eq!(read(&mut scene, 1), lease_flag::CONTENTS);
    begin_truncation(&mut scene, 5);
    assert_eq!(scene.answer(), None);
    assert_eq!(answered(&mut scene), Status::Ok);
    assert_eq!(size(&mut scene), 5);
}

#[test]
fn a_change_that_has_waited_for_pages_does_not_move_an_end_that_is_appended_to() {
    let (mut scene, mut writer) = scene(87);
    assert_eq!(read(&mut scene, 1), lease_flag::CONTENTS);
    assert_eq!(send_write(&mut scene, &mut writer, UNIT + 5), None, "it waits for the pages");
    let (home, inode) = (shard(&scene, 0), scene.file);
    let reserve = |begins| Reserve { inode, begins, again: false }.to_bytes();
    let asked = (Op::Reserve, home, reserve(true));
    let (status, _) = scene.client.ask(&mut scene.cluster, asked, |_| {});
    assert_eq!(status, Status::Ok);
    scene.recalled();
    scene.ack(OTHER);
    let reply = answer(&mut scene.cluster, (OTHER, &writer)).unwrap();
    assert_eq!(reply.head.status, Status::RetryLater);
    let (status, _) =
        scene.client.ask(&mut scene.cluster, (Op::Reserve, home, reserve(false)), |_| {});
    assert_eq!(status, Status::Ok);
    steps(&mut scene.cluster, 50);
    writer.xid -= 1;
    assert_eq!(send_write(&mut scene, &mut writer, UNIT + 5), Some(Status::Ok));
    assert_eq!(size(&mut scene), UNIT + 15);
}
