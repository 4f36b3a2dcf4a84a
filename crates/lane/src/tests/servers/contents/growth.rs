//! Files that are at one server until they have a second stripe: random changes of them by several
//! clients, while servers die and are cut off, equal a model of bytes.

use super::{File, PRIVILEGES, Run, spread_by};
use crate::tests::peer::ReceivedReply;
use crate::tests::servers::cluster::Cluster;
use alloc::vec::Vec;
use wire::{
    Glimpse, Glimpsed, Layout, Op, Read, Status, SyncNarrow, Truncate, Widen, Wire as _, Write,
};

/// Servers whose files are spread over several of them once they have a second stripe.
fn growing(seed: u64) -> Cluster {
    spread_by(seed, Layout { stripe_unit_bytes: 1 << 16, stripe_count: 64, narrow: true })
}

impl Run {
    /// Makes a file wide that is about to get bytes up to this end, as its client does.
    pub(super) fn widen_for(&mut self, client: usize, file: &mut File, end: u64) {
        if file.layout.must_widen(end) {
            self.widen(client, file);
        } else if file.layout.is_spread() && self.rng.usize(..4) == 0 {
            // Another client may take it for narrow still.
            self.is_refused(client, file);
        }
    }

    pub(super) fn widen(&mut self, client: usize, file: &mut File) {
        file.layout = file.layout.widened();
        let widen = Widen { inode: file.inode };
        let got = self.ask_data(client, (Op::Widen, file), &widen, None);
        assert_eq!((got.head.status, got.head.transno.0), (Status::Ok, 0), "seed {}", self.seed);
    }

    /// A request that takes a wide file of this run for narrow does nothing.
    fn is_refused(&mut self, client: usize, file: &File) {
        let seed = self.seed;
        if !self.grows {
            return;
        }
        let inode = file.inode;
        let narrow = File { layout: Layout { narrow: true, ..file.layout }, ..file.clone() };
        let (file_offset, append, clears) = (0, self.rng.bool(), PRIVILEGES);
        let got: ReceivedReply = match self.rng.usize(..5) {
            0 => {
                let read = Read { inode, file_offset, read_bytes: 9, accesses: false };
                self.ask_data(client, (Op::Read, &narrow), &read, None)
            }
            1 => {
                let truncate = Truncate { inode, size_bytes: 0 };
                self.ask_data(client, (Op::Truncate, &narrow), &truncate, None)
            }
            2 => self.ask_data(client, (Op::Sync, &narrow), &SyncNarrow { inode }, None),
            3 => {
                let write = Write { inode, file_offset, append, clears };
                self.ask_data(client, (Op::Write, &narrow), &write, Some(Vec::from(*b"late")))
            }
            _ => {
                let glimpse = Glimpse { inode };
                let got = self.ask_data(client, (Op::Glimpse, &narrow), &glimpse, None);
                let size_bytes = Glimpsed::decode_all(&got.body).unwrap().contents.size_bytes;
                assert_eq!(size_bytes, file.bytes.len() as u64, "seed {seed}: of all parts");
                return;
            }
        };
        assert_eq!(got.head.status, Status::MustWiden, "seed {seed}");
    }
}

#[test]
fn files_that_grow_equal_a_model() {
    let (mut crashes, mut replays, mut wide, mut narrow) = (0, 0, 0, 0);
    for seed in 301..=305 {
        let mut run = Run::on(seed, growing(seed), 200_000);
        run.grows = true;
        run.work(45);
        let count = run.cluster.servers.len() as u16;
        for file in &run.files {
            assert_eq!(file.layout.stripe_count, count, "seed {seed}");
            wide += usize::from(file.layout.is_spread());
            narrow += usize::from(file.layout.narrow);
        }
        let (crash_count, _, replay_count, _) = run.end();
        crashes += crash_count;
        replays += replay_count;
    }
    assert!(crashes > 10 && replays > 10, "{crashes} crashes, {replays} replays");
    assert!(wide > 3 && narrow > 0, "{wide} wide, {narrow} narrow");
}

/// Without a Widen nothing gets behind the first stripe, by whatever request.
#[test]
fn a_narrow_file_is_not_written_behind_its_first_stripe() {
    let mut run = Run::on(311, growing(311), 1 << 20);
    run.grows = true;
    let _ = core::mem::take(&mut run.faults.one_in);
    run.create(0);
    let mut file = run.files[0].clone();
    run.open(0, &file);
    let unit = file.layout.stripe_unit_bytes;
    let bytes = alloc::vec![7; 1000];
    let write = |run: &mut Run, file: &File, file_offset, append| {
        let write = Write { inode: file.inode, file_offset, append, clears: PRIVILEGES };
        run.ask_data(0, (Op::Write, file), &write, Some(bytes.clone())).head.status
    };
    assert_eq!(write(&mut run, &file, unit - 1500, false), Status::Ok);
    assert_eq!(write(&mut run, &file, 0, true), Status::MustWiden, "it ends behind the stripe");
    assert_eq!(write(&mut run, &file, unit, false), Status::MustWiden);
    let truncate = Truncate { inode: file.inode, size_bytes: unit + 1 };
    let got = run.ask_data(0, (Op::Truncate, &file), &truncate, None);
    assert_eq!(got.head.status, Status::MustWiden);
    file.bytes.resize(unit as usize - 1500, 0);
    file.bytes.resize(unit as usize - 500, 7);
    run.size(0, &file);
    run.widen(0, &mut file);
    run.widen(0, &mut file);
    assert!(run.append(0, &mut file, 1000));
    run.read(0, &file, 0, 1 << 17);
    run.size(0, &file);
}
