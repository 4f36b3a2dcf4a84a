//! The registry in a real etcd: joining, starts, what is refused, and etcd killed, restarted, compacted.
#![allow(clippy::unwrap_used, missing_docs)]

use registry::{
    Access, Alive, Brought, Cluster, Etcd, Founding, LeaseId, LocalEtcd, RegistryError, Server,
    ServerState, Step, change, follow, prefix,
};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::channel;
use tempfile::TempDir;
use wire::{InodeNo, Layout, MapEpoch, ServerAddress, ServerId, ShardCounts, ShardId, Term};

const FS: [u8; 16] = [7; 16];
const COUNTS: ShardCounts = ShardCounts { meta: 4, data: 4 };

/// An etcd of this test alone, at a loopback address of this process.
struct TestEtcd {
    dir: TempDir,
    running: Option<LocalEtcd>,
    host: [u8; 4],
    port: u16,
}

impl TestEtcd {
    fn start() -> Self {
        static PORT: AtomicU16 = AtomicU16::new(24_790);
        let [low, high, rest, _] = std::process::id().to_le_bytes();
        let port = PORT.fetch_add(2, Ordering::Relaxed);
        let host = [127, 64 + (rest & 63), high, low];
        let mut etcd = Self { dir: tempfile::tempdir().unwrap(), running: None, host, port };
        etcd.restart();
        etcd
    }

    fn url(&self) -> String {
        let [a, b, c, d] = self.host;
        format!("http://{a}.{b}.{c}.{d}:{}", self.port)
    }

    /// Kills it, if it runs, and starts it on the same data.
    fn restart(&mut self) {
        self.kill();
        let [client, peer] = [0, 1].map(|more| SocketAddr::from((self.host, self.port + more)));
        let data = self.dir.path().join("data");
        self.running = Some(LocalEtcd::start(&data, client, peer).unwrap());
    }

    fn kill(&mut self) {
        self.running = None;
    }

    fn client(&self) -> Etcd {
        Etcd::new(&Access::to_endpoints(&self.url())).unwrap()
    }
}

fn to(endpoints: &str) -> Etcd {
    Etcd::new(&Access::to_endpoints(endpoints)).unwrap()
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

fn brought(uuid: &str) -> Brought {
    let state = ServerState::Active;
    let server =
        Server { uuid: uuid.to_owned(), weight: 100, state, address: address(7117), lanes: 2 };
    Brought { server, counts: COUNTS }
}

fn add(etcd: &Etcd, uuid: &str) -> ServerId {
    change(etcd, FS, |cluster| cluster.add(&brought(uuid))).unwrap().0
}

fn cluster(etcd: &Etcd) -> Cluster {
    Cluster::read(FS, &etcd.read(&prefix(FS)).unwrap()).unwrap()
}

/// A start of a server, and its lease.
fn begin(etcd: &Etcd, id: u16, uuid: &str, boot_id: u64) -> Result<LeaseId, RegistryError> {
    let alive = Alive { uuid: uuid.to_owned(), boot_id };
    let lease = etcd.grant(600)?;
    change(etcd, FS, |cluster| {
        let writes = cluster.start(ServerId(id), &alive, (address(7000 + id), 3), lease)?;
        Ok((lease, writes))
    })
}

fn sentence<T: std::fmt::Debug>(result: Result<T, RegistryError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn each_server_brings_its_shards_and_nothing_that_exists_moves() {
    let server = TestEtcd::start();
    let etcd = server.client();
    assert!(!cluster(&etcd).exists());
    assert_eq!(cluster(&etcd).map(), None);
    assert_eq!(add(&etcd, "a"), ServerId(1));
    let one = cluster(&etcd).map().unwrap();
    assert_eq!((one.shard_counts(), one.generation()), (COUNTS, 0));
    assert_eq!(add(&etcd, "b"), ServerId(2));
    let two = cluster(&etcd).map().unwrap();
    assert_eq!(two.shard_counts(), ShardCounts { meta: 8, data: 8 });
    assert_eq!(two.place(ShardId::meta(3)).server, ServerId(1));
    assert_eq!(two.place(ShardId::data(4)).server, ServerId(2));
    assert!(two.is_newer_than(&one) && two.extends(&one));
    for count in 1..100 {
        let inode = InodeNo::new(0, count);
        assert_eq!(two.data_shard(inode, 0), one.data_shard(inode, 0));
    }
    let new = |low| InodeNo::new(0, InodeNo::counts_of(1).start() + low);
    assert!((0..100).any(|low| two.place(two.data_shard(new(low), 0)).server == ServerId(2)));
    assert!(sentence(change(&etcd, FS, |cluster| cluster.add(&brought("b")))).contains("server 2"));
}

#[test]
fn a_server_has_shards_by_its_weight() {
    let server = TestEtcd::start();
    let etcd = server.client();
    add(&etcd, "a");
    let of_weight = |weight, uuid| {
        let mut brought = brought(uuid);
        brought.server.weight = weight;
        change(&etcd, FS, |cluster| cluster.add(&brought))
    };
    let (id, shards) = of_weight(250, "b").unwrap();
    assert_eq!((id, shards.metas, shards.datas), (ServerId(2), (4, 10), (4, 10)));
    let (id, shards) = of_weight(0, "c").unwrap();
    assert_eq!((id, shards.metas, shards.datas), (ServerId(3), (14, 1), (14, 1)));
    assert!(sentence(of_weight(u32::MAX, "d")).contains("too many shards"));
    assert_eq!(cluster(&etcd).servers().count(), 3);
}

#[test]
fn servers_that_join_at_once_get_different_ids_and_shards() {
    let server = TestEtcd::start();
    let joining: Vec<_> = (0..4)
        .map(|number| {
            let etcd = server.client();
            std::thread::spawn(move || add(&etcd, &format!("{number}")))
        })
        .collect();
    let mut ids: Vec<u16> = joining.into_iter().map(|thread| thread.join().unwrap().0).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4]);
    let map = cluster(&server.client()).map().unwrap();
    assert_eq!(map.shard_counts(), ShardCounts { meta: 16, data: 16 });
    assert_eq!(map.generation(), 3);
}

#[test]
fn a_drained_server_keeps_what_it_has_and_gets_nothing_new() {
    let server = TestEtcd::start();
    let etcd = server.client();
    let drain = |id| change(&etcd, FS, |cluster| Ok(((), cluster.drain(ServerId(id))?)));
    add(&etcd, "a");
    assert!(sentence(drain(1)).contains("the only one"));
    add(&etcd, "b");
    let before = cluster(&etcd).map().unwrap();
    drain(1).unwrap();
    let after = cluster(&etcd).map().unwrap();
    assert!(after.extends(&before) && after.is_newer_than(&before));
    assert_eq!(after.runs(), before.runs());
    let new = |low| InodeNo::new(0, InodeNo::counts_of(after.generation()).start() + low);
    for low in 0..100 {
        assert_eq!(after.place(after.data_shard(new(low), 0)).server, ServerId(2));
        assert_eq!(after.place(after.directory_shard(low)).server, ServerId(2));
    }
    assert!(sentence(drain(1)).contains("already"));
    assert!(sentence(drain(9)).contains("no server 9"));
    // One that joins later does not bring the drained one back.
    add(&etcd, "c");
    let later = cluster(&etcd).map().unwrap();
    let metas = |number| later.place(later.directory_shard(number)).server;
    assert!((0..16).all(|number| metas(number) != ServerId(1)));
    let undrain = |id| change(&etcd, FS, |cluster| Ok(((), cluster.undrain(ServerId(id))?)));
    assert!(sentence(undrain(2)).contains("not draining"));
    assert!(sentence(undrain(9)).contains("no server 9"));
    undrain(1).unwrap();
    let undone = cluster(&etcd).map().unwrap();
    assert!(undone.extends(&later) && undone.is_newer_than(&later));
    let servers: BTreeSet<u16> =
        (0..64).map(|number| undone.place(undone.directory_shard(number)).server.0).collect();
    assert_eq!(servers, BTreeSet::from([1, 2, 3]));
    assert_eq!(cluster(&etcd).map(), Some(undone));
}

#[test]
fn a_store_is_alive_once_and_begins_a_later_term_with_each_start() {
    let server = TestEtcd::start();
    let etcd = server.client();
    add(&etcd, "a");
    add(&etcd, "b");
    let lease = begin(&etcd, 1, "a", 57).unwrap();
    begin(&etcd, 2, "b", 1).unwrap();
    let map = cluster(&etcd).map().unwrap();
    assert_eq!(map.place(ShardId::meta(0)).term, Term(57));
    let row = map.server(ServerId(1)).unwrap();
    assert_eq!((row.lane_count, row.address), (3, ServerAddress::At(address(7001))));
    assert_eq!(cluster(&etcd).alive(ServerId(1)).unwrap().boot_id, 57);
    // A copy of the store, and the store again before its lease ended.
    assert!(sentence(begin(&etcd, 1, "a", 58)).contains("runs already, at 10.0.0.1:7001"));
    etcd.revoke(lease).unwrap();
    assert!(!etcd.keep(lease).unwrap());
    assert_eq!(cluster(&etcd).alive(ServerId(1)), None);
    assert!(cluster(&etcd).map().unwrap() == map, "a server that is away keeps its shards");
    assert!(sentence(begin(&etcd, 1, "a", 57)).contains("older copy"));
    assert!(sentence(begin(&etcd, 1, "z", 58)).contains("foreign"));
    assert!(sentence(begin(&etcd, 3, "c", 1)).contains("no server 3"));
    let lease = begin(&etcd, 1, "a", 59).unwrap();
    assert!(etcd.keep(lease).unwrap());
    assert!(cluster(&etcd).map().unwrap().is_newer_than(&map));
}

#[test]
fn a_server_whose_lease_has_ended_is_alive_again_unless_a_copy_was_started() {
    let server = TestEtcd::start();
    let etcd = server.client();
    add(&etcd, "a");
    let lease = begin(&etcd, 1, "a", 5).unwrap();
    let map = cluster(&etcd).map().unwrap();
    let alive = Alive { uuid: "a".to_owned(), boot_id: 5 };
    let revive = || {
        let lease = etcd.grant(600).unwrap();
        change(&etcd, FS, |cluster| Ok(((), cluster.revive(ServerId(1), &alive, lease)?)))
    };
    etcd.revoke(lease).unwrap();
    revive().unwrap();
    assert_eq!(cluster(&etcd).alive(ServerId(1)), Some(&alive));
    assert!(cluster(&etcd).map().unwrap() == map, "nothing else has changed");
    // Again, as if the answer to the first time was lost.
    revive().unwrap();
    let key = format!("{}alive/1", prefix(FS));
    let version = etcd.read(&key).unwrap().entries[0].version;
    let ends = registry::Write { key, version, value: None, lease: None };
    assert!(etcd.swap(&[ends]).unwrap().is_some());
    begin(&etcd, 1, "a", 6).unwrap();
    assert!(sentence(revive()).contains("started elsewhere, with a copy"));
}

#[test]
fn a_file_system_that_becomes_a_clusters_keeps_its_layout_and_its_epochs_rise() {
    let server = TestEtcd::start();
    let etcd = server.client();
    let layout = Layout { stripe_unit_bytes: 1 << 20, stripe_count: 3, narrow: false };
    let founding = Founding { layout, epoch: MapEpoch(5000) };
    let found = |uuid| change(&etcd, FS, |cluster| cluster.found(&brought(uuid), &founding));
    assert_eq!(found("a").unwrap().0, ServerId(1));
    let founded = cluster(&etcd);
    assert_eq!(founded.layout(), layout);
    assert!(founded.map().unwrap().epoch() > founding.epoch);
    assert_eq!(founded.server_of("a").unwrap().0, ServerId(1));
    assert_eq!(founded.server_of("b"), None);
    assert!(sentence(found("b")).contains("a cluster's already"));
    add(&etcd, "b");
    assert_eq!(cluster(&etcd).layout(), layout);
    assert!(cluster(&etcd).map().unwrap().is_newer_than(&founded.map().unwrap()));
}

#[test]
fn a_change_of_a_state_that_has_passed_is_not_made() {
    let server = TestEtcd::start();
    let etcd = server.client();
    let (_, writes) = cluster(&etcd).add(&brought("a")).unwrap();
    assert!(etcd.swap(&writes).unwrap().is_some());
    assert_eq!(etcd.swap(&writes).unwrap(), None);
    assert_eq!(cluster(&etcd).servers().count(), 1);
}

#[test]
fn what_is_known_stays_while_etcd_is_away_and_changes_are_seen_when_it_is_back() {
    let mut server = TestEtcd::start();
    add(&server.client(), "a");
    let (sender, steps) = channel();
    let (etcd, url) = (server.client(), server.url());
    let following = std::thread::spawn(move || {
        follow(&etcd, FS, |step| {
            let said = match step {
                Step::Is(cluster) => Ok(cluster.servers().count()),
                Step::Fails(error) => Err(error.to_string()),
            };
            let ends = said == Ok(3);
            sender.send(said).unwrap();
            if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    });
    assert_eq!(steps.recv().unwrap(), Ok(1));
    add(&server.client(), "b");
    // A step may bring what is known already.
    while steps.recv().unwrap() != Ok(2) {}
    server.kill();
    let why = loop {
        if let Err(why) = steps.recv().unwrap() {
            break why;
        }
    };
    assert!(why.contains("etcd does not answer") && why.contains(&url), "{why}");
    server.restart();
    assert_eq!(
        steps.recv().unwrap(),
        Ok(2),
        "it is said once that etcd is away, and when it is back"
    );
    add(&server.client(), "c");
    while steps.recv().unwrap() != Ok(3) {}
    following.join().unwrap();
}

#[test]
fn a_watch_of_what_was_compacted_says_so() {
    let server = TestEtcd::start();
    let etcd = server.client();
    add(&etcd, "a");
    let before = etcd.read(&prefix(FS)).unwrap().revision;
    add(&etcd, "b");
    add(&etcd, "c");
    let now = etcd.read(&prefix(FS)).unwrap().revision;
    let compact = format!(r#"{{"revision":"{now}"}}"#);
    ureq::post(format!("{}/v3/kv/compaction", server.url())).send(&compact).unwrap();
    let watched = etcd.watch(&prefix(FS), before - 1, |changes| panic!("{changes:?}"));
    assert!(matches!(watched, Err(RegistryError::Compacted)), "{watched:?}");
    assert_eq!(cluster(&etcd).servers().count(), 3);
}

#[test]
fn another_endpoint_is_asked_if_one_does_not_answer() {
    let server = TestEtcd::start();
    // Nobody listens at the discard port.
    let nobody = "http://127.0.0.1:9".to_owned();
    let etcd = to(&format!("{nobody},{}", server.url()));
    assert_eq!(add(&etcd, "a"), ServerId(1));
    let away = to(&nobody).read(&prefix(FS));
    assert!(sentence(away).contains("etcd does not answer"));
}

#[test]
fn entries_of_another_version_are_refused_by_their_key() {
    let server = TestEtcd::start();
    let etcd = server.client();
    add(&etcd, "a");
    for (name, value) in [("unknown", "{}"), ("servers/x", "{}"), ("servers/7", "{}"), ("fs", "[")]
    {
        let key = format!("{}{name}", prefix(FS));
        let version = if name == "fs" { cluster(&etcd).map().unwrap().epoch().0 } else { 0 };
        let write = registry::Write {
            key: key.clone(),
            version: i64::try_from(version).unwrap(),
            value: Some(value.to_owned()),
            lease: Some(etcd.grant(600).unwrap()),
        };
        let lease = write.lease.unwrap();
        assert!(etcd.swap(&[write]).unwrap().is_some(), "{name}");
        let read = Cluster::read(FS, &etcd.read(&prefix(FS)).unwrap());
        assert!(sentence(read).contains(&key), "{name}");
        etcd.revoke(lease).unwrap();
    }
}
