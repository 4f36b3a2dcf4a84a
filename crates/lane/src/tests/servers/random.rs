//! Random changes over several servers, while some of them die, and pairs of them are cut off from
//! each other.

use super::cluster::{Client, Cluster};
use super::{Act, check, joined, of};
use crate::tests::across::{Model, is_plain, made};
use alloc::vec::Vec;
use fastrand::Rng;
use wire::Status;

/// What happens to the servers of a run.
pub(super) struct Faults {
    rng: Rng,
    /// One in so many steps; 0: never.
    pub(super) one_in: usize,
    pub(super) crash_count: usize,
    pub(super) cut_count: usize,
}

impl Faults {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0xfa01);
        let one_in = [0, 12, 50][rng.usize(..3)];
        Self { rng, one_in, crash_count: 0, cut_count: 0 }
    }

    /// One step's. A server that is down comes back after a while, and so does a connection.
    pub(super) fn strike(&mut self, cluster: &mut Cluster) {
        let count = cluster.servers.len();
        for index in 0..count {
            if cluster.servers[index].is_down() && self.rng.usize(..40) == 0 {
                cluster.start(index);
            }
        }
        if !cluster.parted.is_empty() && self.rng.usize(..100) == 0 {
            cluster.parted.clear();
        }
        if self.one_in == 0 || self.rng.usize(..self.one_in) != 0 {
            return;
        }
        if self.rng.bool() {
            self.crash_count += 1;
            cluster.crash(self.rng.usize(..count));
        } else {
            self.cut_count += 1;
            let one = self.rng.usize(..count);
            cluster.parted.push((one, (one + 1 + self.rng.usize(..count - 1)) % count));
        }
    }

    /// Whether time passes beside what happens.
    pub(super) fn passes(&mut self) -> bool {
        self.rng.usize(..4) == 0
    }

    /// All servers come back, and all connections.
    pub(super) fn cease(&mut self, cluster: &mut Cluster) {
        self.one_in = 0;
        cluster.parted.clear();
        for index in 0..cluster.servers.len() {
            if cluster.servers[index].is_down() {
                cluster.start(index);
            }
        }
    }

    /// The same, and the clients to them.
    fn end(&mut self, cluster: &mut Cluster, clients: &mut [Client]) {
        self.cease(cluster);
        for _ in 0..500 {
            cluster.step();
            clients.iter_mut().for_each(|client| client.connect(cluster));
        }
    }
}

/// Two to four servers of up to three lanes.
pub(super) fn rolled_lanes(seed: u64) -> Vec<u16> {
    let mut rng = Rng::with_seed(seed);
    (0..rng.usize(2..5)).map(|_| rng.u16(1..4)).collect()
}

fn rolled(seed: u64) -> Cluster {
    Cluster::new(seed, &rolled_lanes(seed))
}

#[test]
fn each_operation_takes_effect_once_or_fails_as_in_a_model() {
    let (mut crash_count, mut cut_count) = (0, 0);
    for seed in 1..=8 {
        let mut cluster = rolled(seed);
        let mut faults = Faults::new(seed);
        let mut rng = Rng::with_seed(seed ^ 0x5eed);
        let mut client = joined(&mut cluster, 1);
        let mut model = Model::new();
        for _ in 0..40 {
            let act = model.roll(&mut rng);
            let expected = model.expected(&act);
            let (status, body) =
                client.ask(&mut cluster, of(&act), |cluster| faults.strike(cluster));
            // An inode without a name exists until it is destroyed.
            let going = expected == Status::Stale && status != Status::Ok;
            assert!(status == expected || going, "seed {seed}: {act:?}: {status:?}, {expected:?}");
            if status == Status::Ok {
                model.apply(&act, made(&act, &body));
                if let Some(left) = model.whiteout(&act) {
                    let (_, body) = client.ask(&mut cluster, of(&left), |_| {});
                    model.add_whiteout(&left, made(&left, &body));
                }
            }
        }
        faults.end(&mut cluster, core::slice::from_mut(&mut client));
        check(&mut cluster, &mut client);
        crash_count += faults.crash_count;
        cut_count += faults.cut_count;
    }
    assert!(crash_count > 20 && cut_count > 20, "{crash_count} crashes, {cut_count} cuts");
}

#[test]
fn concurrent_changes_of_several_clients_are_atomic() {
    for seed in 101..=112 {
        let mut cluster = rolled(seed);
        let mut faults = Faults::new(seed);
        let mut rng = Rng::with_seed(seed ^ 0xface);
        let mut clients: Vec<Client> =
            (0..3).map(|number| joined(&mut cluster, 1 + number)).collect();
        let mut acts: Vec<Option<Act>> = alloc::vec![None; clients.len()];
        let mut model = Model::new();
        let (mut left, mut done) = (90, 0);
        for step in 0..20_000 {
            if step == 3_000 {
                // All that waits ends when the faults do.
                faults.one_in = 0;
            }
            for (client, act) in clients.iter_mut().zip(&mut acts) {
                if act.is_none() && left > 0 {
                    left -= 1;
                    let rolled = model.roll(&mut rng);
                    client.begin(&mut cluster, of(&rolled));
                    *act = Some(rolled);
                }
            }
            cluster.step();
            faults.strike(&mut cluster);
            for (client, asked) in clients.iter_mut().zip(&mut acts) {
                client.connect(&mut cluster);
                let Some((status, body)) = client.receive(&mut cluster) else { continue };
                let Some(act) = asked.take() else { continue };
                assert!(is_plain(status), "seed {seed}: {status:?} to {act:?}");
                done += 1;
                if status == Status::Ok {
                    model.learn(&act, made(&act, &body));
                }
            }
            if done == 90 {
                break;
            }
        }
        assert_eq!(done, 90, "seed {seed}: all are answered");
        faults.end(&mut cluster, &mut clients);
        check(&mut cluster, &mut clients[0]);
    }
}
