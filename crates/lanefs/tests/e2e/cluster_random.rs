//! Random calls of four clients over four servers equal a model, while servers, a mount and etcd are killed.
//!
//! Each client has a mount, and names of its own in directories that all of them use; some of these spread
//! their files over all servers. Files of all clients have blocks of each. A client compares every call with
//! its model; behind each round every mount shows what all models have together. In the end everything is
//! synced, and all servers and mounts are killed at once.
//!
//! A failure names the seed; `LANEFS_CLUSTER_SEED=N` rolls the same calls. `LANEFS_TEST_LONG=1` has more rounds.

mod model;
mod player;

use crate::cluster::Cluster;
use crate::fixture::{Mount, PATIENCE, Server, kill, must, own_address, roll};
use crate::lease_trials::trial_count;
use crate::random_comparison::Prng;
use model::{FIRST_SPREAD, SHARED_DIRS, Seen, Tree, differences, walk};
use player::{CLIENT_COUNT, Player, SHARED_FILES, Shown, owner_of};
use rustix::mount::UnmountFlags;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

const STORES: [&str; 4] = ["one", "two", "three", "four"];
const MOUNTS: [&str; CLIENT_COUNT] = ["mnt1", "mnt2", "mnt3", "mnt4"];
/// Little time is lost with who is dead.
const OPTIONS: [&str; 4] = ["--lease-term", "3s", "--recovery-soft", "3s"];
/// Calls of a client in a round: at least, and at most while the disturbance lasts.
const CALL_COUNTS: (u64, u64) = (150, 900);

/// What happens in a round.
#[derive(Clone, Debug)]
enum Disturbance {
    /// These servers die at once, and etcd before them.
    Servers { indexes: Vec<usize>, with_etcd: bool },
    /// A client's mount dies, and then this server.
    Mount(usize, Option<usize>),
}

impl Disturbance {
    /// The first two rounds have one of each.
    fn roll(prng: &mut Prng, round: usize) -> Self {
        let (server, other) = (prng.below(4), 1 + prng.below(3));
        let with_etcd = round == 0 || prng.below(2) == 0;
        if round == 0 || (round > 1 && prng.below(2) == 0) {
            let mut indexes = vec![server, (server + other) % 4];
            indexes.truncate(1 + prng.below(2));
            return Self::Servers { indexes, with_etcd };
        }
        Self::Mount(prng.below(CLIENT_COUNT), prng.pick(&[None, Some(server)]))
    }
}

/// All processes.
struct Stage {
    cluster: Cluster,
    servers: Vec<Server>,
    /// `None` of one that is dead.
    mounts: Vec<Option<Mount>>,
    again: Vec<Sender<()>>,
}

impl Stage {
    fn new(cluster: Cluster) -> (Self, Vec<Receiver<()>>) {
        cluster.init();
        let mut servers = vec![cluster.serve(STORES[0], &own_address(), &OPTIONS)];
        for store in &STORES[1..] {
            servers.push(cluster.join_with(store, &OPTIONS));
        }
        let mount = |index: usize| Some(cluster.mount(&servers[index], MOUNTS[index]));
        let mounts = (0..CLIENT_COUNT).map(mount).collect();
        let (again, receivers) = (0..CLIENT_COUNT).map(|_| channel()).unzip();
        (Self { cluster, servers, mounts, again }, receivers)
    }

    /// The directories and files that all clients use.
    fn make_shared(&self) {
        let root = self.cluster.fixture.path(MOUNTS[0]);
        for (index, name) in SHARED_DIRS.iter().enumerate() {
            let dir = root.join(name);
            fs::create_dir(&dir).unwrap();
            if index >= FIRST_SPREAD {
                let count = if index == FIRST_SPREAD { "all" } else { "2" };
                let options = ["--count", count, "--unit", "64KiB"];
                must(self.cluster.fixture.lanefs(["layout", "set"]).arg(&dir).args(options));
            }
        }
        for name in SHARED_FILES {
            File::create(root.join(name)).unwrap().sync_all().unwrap();
        }
        let mut layout = self.cluster.fixture.lanefs(["layout", "get"]);
        let said = must(layout.arg(root.join(SHARED_FILES[1])));
        assert!(said.contains("4 servers, stripes of 64K"), "{said}");
    }

    fn kill_servers(&mut self, indexes: &[usize]) {
        for index in indexes {
            kill(self.servers[*index].process.pid());
        }
        for index in indexes {
            self.servers[*index].process.end();
        }
    }

    fn start_servers(&mut self, indexes: &[usize]) {
        let cluster = &self.cluster;
        let addresses: Vec<_> =
            indexes.iter().map(|index| (*index, self.servers[*index].address.clone())).collect();
        // All wait until etcd has forgotten their last start.
        let started: Vec<(usize, Server)> = std::thread::scope(|scope| {
            let start = |(index, address): (usize, String)| {
                scope.spawn(move || (index, cluster.serve(STORES[index], &address, &OPTIONS)))
            };
            let threads: Vec<_> = addresses.into_iter().map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (index, server) in started {
            self.servers[index] = server;
        }
    }

    /// Waits until all that was acknowledged is durable.
    fn sync(&self) {
        let url = format!("lanefs://{}", self.servers[0].address);
        must(&mut self.cluster.fixture.lanefs(["sync", &url]));
    }

    fn kill_mount(&mut self, client: usize, shown: &[Shown]) {
        shown[client].dies.store(true, Ordering::SeqCst);
        let mut mount = self.mounts[client].take().unwrap();
        abort(&mount);
        mount.process.end();
    }

    fn mount_again(&mut self, client: usize) {
        let mount = self.cluster.mount(&self.servers[client], MOUNTS[client]);
        self.mounts[client] = Some(mount);
        self.again[client].send(()).unwrap();
    }

    fn disturb(&mut self, disturbance: &Disturbance, shown: &[Shown]) {
        match disturbance {
            Disturbance::Servers { indexes, with_etcd } => {
                if *with_etcd {
                    self.cluster.stop_etcd();
                }
                self.kill_servers(indexes);
                if *with_etcd {
                    self.cluster.start_etcd();
                }
                self.start_servers(indexes);
            }
            Disturbance::Mount(client, server) => {
                // What only the dead client could replay would be lost with a server.
                self.sync();
                self.kill_mount(*client, shown);
                self.sync();
                let servers: Vec<usize> = server.iter().copied().collect();
                self.kill_servers(&servers);
                self.start_servers(&servers);
                self.mount_again(*client);
            }
        }
    }

    /// All clients at once, and what happens meanwhile.
    fn round(&mut self, players: &mut [Player<'_>], shown: &[Shown], disturbance: &Disturbance) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let start = |player| {
                let over = &over;
                scope.spawn(move || play(player, over))
            };
            let threads: Vec<_> = players.iter_mut().map(start).collect();
            let disturbed = catch_unwind(AssertUnwindSafe(|| self.disturb(disturbance, shown)));
            over.store(true, Ordering::Relaxed);
            let deadline = Instant::now() + PATIENCE;
            let all_end = || {
                let has_ended = || threads.iter().all(ScopedJoinHandle::is_finished);
                while !has_ended() && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(5));
                }
                has_ended()
            };
            if disturbed.is_err() || !all_end() {
                for (client, shown) in shown.iter().enumerate() {
                    eprintln!("client {client}: {}", shown.doing.lock().unwrap());
                }
                // Nothing ends that waits for a mount.
                self.again.clear();
                self.mounts.clear();
            }
            if let Err(panic) = disturbed {
                resume_unwind(panic);
            }
        });
    }
}

/// Kills a mount, and takes it from the programs that wait for it, as `umount -f` does: else one that holds a
/// directory's lock, and the dead process's thread that tells the kernel of a changed name there, wait for
/// each other.
fn abort(mount: &Mount) {
    kill(mount.process.pid());
    // It is busy; its connection ends nevertheless.
    let _busy = rustix::mount::unmount(&mount.dir, UnmountFlags::FORCE);
}

fn play(player: &mut Player<'_>, over: &AtomicBool) {
    let (least, most) = (player.op_count + CALL_COUNTS.0, player.op_count + CALL_COUNTS.1);
    while player.op_count < least || (!over.load(Ordering::Relaxed) && player.op_count < most) {
        player.step();
    }
    player.come_to_rest();
}

/// All names and bytes, as all models have them together.
fn wanted(players: &[Player<'_>]) -> Tree {
    let mut tree = Tree::new();
    for player in players {
        player.model.add_to(&mut tree);
    }
    for (index, name) in SHARED_FILES.iter().enumerate() {
        let parts: Vec<&Vec<u8>> =
            players.iter().map(|player| &player.shared[index].bytes).collect();
        let size_bytes = parts.iter().map(|part| part.len()).max().unwrap();
        let byte = |at: usize| parts[owner_of(at)].get(at).copied().unwrap_or(0);
        let bytes = (0..size_bytes).map(byte).collect();
        let (mode, xattrs) = (0o644, BTreeMap::new());
        let file = Seen::File { bytes, mode, link_count: 1, xattrs };
        tree.insert((*name).to_owned(), file);
    }
    tree
}

/// Every mount shows everything.
fn compare(players: &[Player<'_>], context: &str) {
    let wanted = wanted(players);
    std::thread::scope(|scope| {
        for player in players {
            let (wanted, number, root) = (&wanted, player.number, &player.root);
            scope.spawn(move || {
                if let Some(text) = differences(&walk(root, &|_| true), wanted) {
                    panic!("{context}, at client {number}:\n{text}");
                }
            });
        }
    });
}

#[test]
fn random_calls_of_four_clients_over_four_servers_equal_a_model() {
    let Some(cluster) = Cluster::new("cluster_random") else { return };
    let given = std::env::var("LANEFS_CLUSTER_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed: u64 = given.unwrap_or_else(roll);
    eprintln!("again with LANEFS_CLUSTER_SEED={seed}");
    let mut prng = Prng::new(seed);
    let (mut stage, again) = Stage::new(cluster);
    stage.make_shared();
    let shown: Vec<Shown> = (0..CLIENT_COUNT).map(|_| Shown::default()).collect();
    let player = |(number, again)| {
        let root = stage.cluster.fixture.path(MOUNTS[number]);
        Player::new(number, &root, seed, &shown[number], again)
    };
    let mut players: Vec<Player<'_>> = again.into_iter().enumerate().map(player).collect();
    for round in 0..trial_count(2).min(100) {
        let disturbance = Disturbance::roll(&mut prng, round);
        stage.round(&mut players, &shown, &disturbance);
        compare(&players, &format!("round {round}, {disturbance:?}"));
    }
    std::thread::scope(|scope| {
        for player in &mut players {
            scope.spawn(|| player.sync_all());
        }
    });
    let wanted = wanted(&players);
    stage.mounts.iter().flatten().for_each(abort);
    stage.kill_servers(&[0, 1, 2, 3]);
    stage.mounts.clear();
    drop(players);
    stage.start_servers(&[0, 1, 2, 3]);
    let mount = stage.cluster.mount(&stage.servers[3], "after");
    if let Some(text) = differences(&walk(&mount.dir, &|_| true), &wanted) {
        panic!("after the death of all:\n{text}");
    }
    mount.stop();
    for mut server in stage.servers {
        server.process.signal(Signal::TERM);
        assert_eq!(server.process.end().code(), Some(0), "{}", server.process.said());
    }
    let mut check = stage.cluster.fixture.lanefs(["check", "--cluster"]);
    let found = must(check.args(STORES.map(|store| stage.cluster.fixture.path(store))));
    assert!(found.contains("0 damages, 0 warnings"), "{found}");
}
