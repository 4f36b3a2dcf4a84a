//! What a client holds leases of at several servers: each is recalled by the server that has the
//! shard, also by a change that another server coordinates.

use super::cluster::{Client, Cluster};
use super::restated::steps;
use super::{Act, check, directories, done, joined, list, of, server_of};
use crate::tests::leases::{Holder, Key};
use crate::tests::peer::{HelloFields, ROOT, name};
use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec::Vec;
use interface::ProtocolPoint;
use wire::{
    Getattr, Handle, HandleId, InodeNo, LaneId, Layout, Lookup, Op, Open, OpenFor, Read, RenameHow,
    ShardId, Status, Truncate, Wire, lease_flag, request_flag,
};

/// Two servers, a file `x` of the first one, a directory of the second one, and two clients, of
/// which one caches.
pub(super) struct Scene {
    pub(super) cluster: Cluster,
    pub(super) holders: Vec<Holder>,
    pub(super) client: Client,
    pub(super) file: InodeNo,
    dir: InodeNo,
}

impl Scene {
    fn new(seed: u64) -> Self {
        Self::with(seed, Layout::DEFAULT)
    }

    /// The same with files of this layout.
    pub(super) fn with(seed: u64, layout: Layout) -> Self {
        let mut cluster = Cluster::with(seed, &[1, 1], |server| {
            server.limits.sync = true;
            if layout.is_spread() {
                server.layout = layout;
            }
        });
        let mut client = joined(&mut cluster, 1);
        let dirs = directories(&mut cluster, &mut client);
        let dir = dirs.into_iter().find(|dir| server_of(*dir) == 1).unwrap();
        // Its contents are at the other server than its name.
        let map = cluster.newest_map();
        let file = loop {
            let made = done(&mut cluster, &mut client, Act::Create(InodeNo::ROOT, "x")).unwrap();
            if map.place(map.data_shard(made, 0)).server.0 == 2 {
                break made;
            }
            done(&mut cluster, &mut client, Act::Unlink(InodeNo::ROOT, "x"));
        };
        cluster.settle();
        let holders =
            [0, 1].map(|index| Holder::unknown(&mut cluster.servers[index], HelloFields::new(2)));
        let mut scene = Self { cluster, holders: holders.into(), client, file, dir };
        for (inode, id) in [(InodeNo::ROOT, 1), (file, 2), (dir, 3)] {
            let handle = Handle { id: HandleId(id), open_for: OpenFor::Read };
            let open = Open { caller: ROOT, inode, handle };
            scene.ask((Op::Open, inode.shard(), 1), &open);
        }
        scene
    }

    /// The caching client asks. Returns what is granted.
    pub(super) fn ask<'a>(&mut self, asked: (Op, ShardId, u16), body: &impl Wire<'a>) -> u8 {
        let index = usize::from(self.cluster.newest_map().place(asked.1).server.0 - 1);
        let server = &mut self.cluster.servers[index];
        self.holders[index].send_to(server, asked, request_flag::LEASES, body);
        steps(&mut self.cluster, 100);
        self.holders[index].reply(&mut self.cluster.servers[index]).granted()
    }

    fn look_up(&mut self, dir: InodeNo, text: &str) -> u8 {
        let lookup = Lookup { caller: ROOT, parent: dir, name: name(text) };
        self.ask((Op::Lookup, dir.shard(), 0), &lookup)
    }

    /// What each server recalls.
    pub(super) fn recalled(&mut self) -> [BTreeSet<Key>; 2] {
        [0, 1].map(|index| self.holders[index].recalled(&mut self.cluster.servers[index]))
    }

    pub(super) fn ack(&mut self, index: usize) {
        self.holders[index].ack(&mut self.cluster.servers[index]);
    }

    pub(super) fn answer(&mut self) -> Option<Status> {
        for _ in 0..1_000 {
            self.cluster.step();
            if let Some((status, _)) = self.client.receive(&mut self.cluster) {
                return Some(status);
            }
        }
        None
    }
}

fn key_of(dir: InodeNo, text: &str) -> Key {
    Key::Name(dir, text.to_string())
}

#[test]
fn a_change_over_servers_waits_for_the_leases_of_each() {
    let mut scene = Scene::new(61);
    let (file, dir) = (scene.file, scene.dir);
    assert!(scene.look_up(InodeNo::ROOT, "x") & lease_flag::NAME != 0);
    assert_eq!(scene.look_up(dir, "t"), lease_flag::NAME, "that it does not exist");
    let getattr = Getattr { inode: dir };
    assert_eq!(scene.ask((Op::Getattr, dir.shard(), 0), &getattr), lease_flag::ATTRIBUTES);
    let act = Act::Rename((InodeNo::ROOT, "x"), (dir, "t"), RenameHow::NoReplace);
    scene.client.begin(&mut scene.cluster, of(&act));
    assert_eq!(scene.answer(), None, "the first server waits for the old name");
    let [first, second] = scene.recalled();
    assert!(first.contains(&key_of(InodeNo::ROOT, "x")) && first.contains(&Key::Attributes(file)));
    assert!(second.is_empty(), "it has not been asked");
    scene.ack(0);
    assert_eq!(scene.answer(), None, "the second server waits for the new one");
    let [_, second] = scene.recalled();
    assert_eq!(second, BTreeSet::from([key_of(dir, "t"), Key::Attributes(dir)]));
    scene.ack(1);
    assert_eq!(scene.answer(), Some(Status::Ok));
    scene.look_up(dir, "t");
}

#[test]
fn a_change_of_contents_waits_for_pages_at_their_server_alone() {
    let mut scene = Scene::new(62);
    let (file, dir) = (scene.file, scene.dir);
    assert_eq!(scene.look_up(dir, "t"), lease_flag::NAME);
    let shard = scene.cluster.newest_map().data_shard(file, 0);
    let read = Read { inode: file, file_offset: 0, read_bytes: 4096, accesses: false };
    assert_eq!(scene.ask((Op::Read, shard, 0), &read), lease_flag::CONTENTS);
    let truncate = Truncate { inode: file, size_bytes: 9 };
    scene.client.begin(&mut scene.cluster, (Op::Truncate, shard, truncate.to_bytes()));
    assert_eq!(scene.answer(), None, "it waits for the pages");
    let [first, second] = scene.recalled();
    assert_eq!((first, second), (BTreeSet::new(), BTreeSet::from([Key::Pages(file)])));
    scene.ack(1);
    assert_eq!(scene.answer(), Some(Status::Ok));
}

#[test]
fn a_lease_of_a_server_that_is_cut_off_from_its_client_ends_with_its_term() {
    let mut scene = Scene::new(63);
    let dir = scene.dir;
    assert!(scene.look_up(InodeNo::ROOT, "x") & lease_flag::NAME != 0);
    assert_eq!(scene.look_up(dir, "t"), lease_flag::NAME);
    let act = Act::Create(dir, "t");
    scene.client.begin(&mut scene.cluster, of(&act));
    assert_eq!(scene.answer(), None);
    for _ in 0..40 {
        scene.cluster.pass_ms(250);
        steps(&mut scene.cluster, 20);
    }
    assert_eq!(scene.answer(), Some(Status::Ok), "a term is over");
    let [first, _] = scene.recalled();
    assert!(first.is_empty(), "the other server's leases go on");
}

/// A directory is made at the other server, and one of them dies at a point. Whether its client is
/// granted its names when it asks for it.
fn made_while_one_dies(dies: Option<(usize, ProtocolPoint)>) -> bool {
    let mut cluster = Cluster::new(64, &[1, 1]);
    let mut client = joined(&mut cluster, 1);
    // The next one is at the other server.
    for text in ["a", "b", "c", "d"] {
        let made = done(&mut cluster, &mut client, Act::Mkdir(InodeNo::ROOT, text)).unwrap();
        if made.shard().index() == 1 {
            break;
        }
    }
    cluster.settle();
    let boots = |cluster: &Cluster| [0, 1].map(|index: usize| cluster.servers[index].boot_id);
    let before = boots(&cluster);
    if let Some((dies, point)) = dies {
        cluster.servers[dies].points.clear();
        cluster.servers[dies].dies_at = Some((point, 1));
    }
    let mut down_for = 0;
    let act = Act::Mkdir(InodeNo::ROOT, "x");
    let (status, _) = client.ask(&mut cluster, of(&act), |cluster| {
        let down = (0..2).find(|index| cluster.servers[*index].is_down());
        down_for += usize::from(down.is_some());
        down.filter(|_| down_for > 60).into_iter().for_each(|index| cluster.start(index));
    });
    assert_eq!(status, Status::Ok);
    // It may die after the answer.
    steps(&mut cluster, 100);
    for index in 0..2 {
        cluster.servers[index].dies_at = None;
        if cluster.servers[index].is_down() {
            cluster.start(index);
        }
    }
    steps(&mut cluster, 300);
    client.connect(&mut cluster);
    steps(&mut cluster, 300);
    assert_eq!(dies.is_some(), boots(&cluster) != before, "{dies:?}");
    let made = list(&mut cluster, &mut client, InodeNo::ROOT);
    let dir = made.into_iter().find(|(name, _)| name == "x").unwrap().1;
    assert_eq!(server_of(dir), 1, "{dies:?}");
    // The session is not recorded, and is granted what it asks for all the same.
    let fields = HelloFields { client_lane: LaneId(1), ..HelloFields::new(1) };
    let mut holder = Holder::unknown(&mut cluster.servers[1], fields);
    let granted = [0, 1].map(|_| {
        let flags = request_flag::LEASES | request_flag::BEHIND;
        let asked = (Op::Getattr, dir.shard(), 0);
        holder.send_to(&mut cluster.servers[1], asked, flags, &Getattr { inode: dir });
        steps(&mut cluster, 100);
        holder.reply(&mut cluster.servers[1]).granted()
    });
    check(&mut cluster, &mut client);
    assert!(granted.iter().all(|granted| granted & lease_flag::ATTRIBUTES != 0));
    assert_eq!(granted[1] & lease_flag::WRITING, 0, "it is granted once");
    granted[0] & lease_flag::WRITING != 0
}

#[test]
fn a_directory_made_at_another_server_is_granted_unless_that_has_died() {
    use ProtocolPoint::{TxnDecided, TxnDone, TxnForgotten, TxnPrepared};
    assert!(made_while_one_dies(None));
    for point in [TxnDecided, TxnForgotten] {
        assert!(made_while_one_dies(Some((0, point))), "{point:?}");
    }
    // Before the decision all is done again.
    assert!(made_while_one_dies(Some((1, TxnPrepared))));
    assert!(!made_while_one_dies(Some((1, TxnDone))));
}
