//! Servers that die while a file becomes one over several servers, or while such a file is removed.

use super::{File, Run};
use crate::test_server::TestServer;
use crate::tests::servers::cluster::Cluster;
use crate::tests::servers::file_client::Asked;
use alloc::vec::Vec;
use wire::{InodeNo, Layout, Op, Read, Status, Widen, Wire as _};

const SERVER_COUNT: usize = 3;
const UNIT: u64 = 1 << 16;

impl Run {
    /// Three servers, and a file in its first stripe that a client has open.
    fn with_small_file(seed: u64) -> (Self, File) {
        let layout = Layout { stripe_unit_bytes: UNIT, stripe_count: 64, narrow: true };
        let cluster = Cluster::with(seed, &[1; SERVER_COUNT], |server: &mut TestServer| {
            server.layout = layout;
        });
        let mut run = Self::on(seed, cluster, 1 << 20);
        let _ = core::mem::take(&mut run.faults.one_in);
        run.create(0);
        let mut file = run.files[0].clone();
        run.open(0, &file);
        run.write(0, &mut file, 0, 1000);
        (run, file)
    }

    /// A server dies and starts again.
    fn restart(&mut self, index: usize) {
        self.cluster.crash(index);
        self.cluster.start(index);
    }

    /// One step. Returns whether the first client got its answer.
    fn step(&mut self) -> bool {
        self.cluster.step();
        let mut is_answered = false;
        for (index, client) in self.clients.iter_mut().enumerate() {
            client.advance(&mut self.cluster);
            let got = client.receive(&mut self.cluster);
            is_answered |= index == 0 && got.is_some_and(|got| got.head.status == Status::Ok);
        }
        is_answered
    }

    /// The servers recover, and do what is left to do.
    fn come_to_rest(&mut self) {
        (0..400).for_each(|_| _ = self.step());
        self.cluster.settle();
    }

    fn home(&self, inode: InodeNo) -> usize {
        let map = self.cluster.newest_map();
        usize::from(map.place(map.data_shard(inode, 0)).server.0) - 1
    }

    fn object_count(&self) -> usize {
        self.cluster.servers.iter().map(TestServer::object_count).sum()
    }

    fn inode_count(&self) -> u64 {
        let lanes = |server: &TestServer| {
            (0..usize::from(server.lane_count())).map(|at| server.lane(at).inode_count()).sum()
        };
        self.cluster.servers.iter().map(|server| -> u64 { lanes(server) }).sum()
    }

    /// Whether the file is wide to its home shard.
    fn is_wide(&mut self, file: &File) -> bool {
        let layout = Layout { narrow: true, ..file.layout };
        let (inode, file_offset) = (file.inode, 0);
        let read = Read { inode, file_offset, read_bytes: 1 << 20, accesses: true };
        let narrow = File { layout, ..file.clone() };
        let got = self.ask_data(0, (Op::Read, &narrow), &read, None);
        if got.head.status == Status::Ok {
            assert!(got.bulk == file.bytes, "all of it is at its home shard");
        }
        got.head.status == Status::MustWiden
    }
}

#[test]
fn a_home_server_that_dies_during_a_widen_leaves_a_narrow_or_a_wide_file() {
    let (mut narrow_count, mut wide_count) = (0, 0);
    for (seed, goes_on) in [(411, false), (412, false), (411, true), (412, true)] {
        for step_count in 0.. {
            let (mut run, mut file) = Run::with_small_file(seed);
            let shard = run.cluster.newest_map().data_shard(file.inode, 0);
            let body = Widen { inode: file.inode }.to_bytes();
            let layout = Some(file.layout.widened());
            run.clients[0].begin(Asked { op: Op::Widen, shard, body, bulk: None, layout });
            run.clients[0].send_new(&mut run.cluster);
            let is_answered = (0..step_count).any(|_| run.step());
            run.restart(run.home(file.inode));
            if goes_on && !is_answered {
                let answered = (0..10_000).any(|_| run.step());
                assert!(answered, "after {step_count} steps it is sent again");
            } else if !is_answered {
                run.clients[0].give_up();
            }
            let is_wide = run.is_wide(&file);
            assert!(is_wide || !is_answered && !goes_on, "after {step_count} steps it lasts");
            narrow_count += usize::from(!is_wide);
            wide_count += usize::from(is_wide);
            if is_wide {
                file.layout = file.layout.widened();
            } else {
                run.widen(0, &mut file);
            }
            run.write(0, &mut file, UNIT - 500, 3000);
            run.restart(run.home(file.inode));
            run.read(0, &file, 0, 1 << 18);
            run.size(0, &file);
            if is_answered {
                break;
            }
        }
    }
    assert!(narrow_count > 2 && wide_count > 8, "{narrow_count} narrow, {wide_count} wide");
}

/// Any of the servers dies after any step of the removal of a file.
#[test]
fn no_death_leaves_a_part_of_a_removed_file() {
    let mut death_count = 0;
    for (is_wide, dies) in [false, true]
        .into_iter()
        .flat_map(|is_wide| (0..SERVER_COUNT).map(move |dies| (is_wide, dies)))
    {
        for step_count in 0.. {
            let (mut run, mut file) = Run::with_small_file(412);
            let before = run.inode_count();
            if is_wide {
                run.widen(0, &mut file);
                run.write(0, &mut file, UNIT - 500, 2 * UNIT as usize);
                assert_eq!(run.object_count(), 3, "an object at each server");
            }
            run.unlink(0, 0);
            (0..step_count).for_each(|_| _ = run.step());
            let is_over = run.object_count() == 0 && run.inode_count() < before;
            run.restart(dies);
            run.come_to_rest();
            let at = alloc::format!("wide: {is_wide}, server {dies}, {step_count} steps");
            assert_eq!(run.object_count(), 0, "{at}: objects are left");
            assert_eq!(run.inode_count(), before - 1, "{at}: the inode is left");
            death_count += 1;
            if is_over {
                break;
            }
        }
    }
    assert!(death_count > 30, "{death_count} deaths");
}

/// What is removed of a narrow file concerns no other server: one that is away delays nothing.
#[test]
fn a_narrow_file_is_removed_without_the_other_servers() {
    let (mut run, file) = Run::with_small_file(413);
    let (before, home) = (run.inode_count(), run.home(file.inode));
    let meta = usize::from(run.cluster.newest_map().place(file.inode.shard()).server.0) - 1;
    let other = (0..SERVER_COUNT).find(|at| ![home, meta].contains(at)).unwrap();
    let parted = (0..SERVER_COUNT).filter(|at| *at != other).map(|at| (at, other));
    let parted: Vec<_> = parted.collect();
    run.unlink(0, 0);
    run.cluster.parted = parted;
    (0..400).for_each(|_| _ = run.step());
    assert_eq!((run.object_count(), run.inode_count()), (0, before - 1));
}
