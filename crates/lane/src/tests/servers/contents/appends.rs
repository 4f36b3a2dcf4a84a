//! Several clients append records to a file over several servers at once, while servers die and are
//! cut off: each record is there once, whole, and in its client's order.

use super::{PRIVILEGES, Run, spread};
use crate::tests::peer::ReceivedReply;
use crate::tests::servers::file_client::Asked;
use alloc::vec::Vec;
use wire::{Glimpsed, Op, Reserve, Status, Truncate, Wire as _, Write};

/// How far an append of a client is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Reserve { again: bool },
    Write { place: u64, from: usize, until: usize },
    End,
}

/// A record: client, number, and as many bytes as its length needs.
fn record(client: usize, number: u8, count: usize) -> Vec<u8> {
    let mut bytes = alloc::vec![number; count];
    (bytes[0], bytes[1]) = (0xc0 + client as u8, number);
    bytes
}

#[derive(Clone, Debug)]
struct Appender {
    number: u8,
    bytes: Vec<u8>,
    step: Step,
    /// Where the first byte is, once one is written.
    place: u64,
    done: usize,
}

/// Clients that append to one file.
struct Appenders {
    run: Run,
    appenders: Vec<Appender>,
    /// What has been written, and where.
    records: Vec<(u64, Vec<u8>)>,
    stale_count: usize,
    short_count: usize,
}

impl Appenders {
    fn new(seed: u64) -> Self {
        let mut run = Run::on(seed, spread(seed), 1 << 24);
        let one_in = core::mem::take(&mut run.faults.one_in);
        run.create(0);
        for client in 0..run.clients.len() {
            let file = run.files[0].clone();
            run.open(client, &file);
        }
        run.faults.one_in = if one_in == 0 { 0 } else { 150 };
        let appender =
            Appender { number: 0, bytes: Vec::new(), step: Step::End, place: 0, done: 0 };
        let appenders = alloc::vec![appender; run.clients.len()];
        Self { run, appenders, records: Vec::new(), stale_count: 0, short_count: 0 }
    }

    /// A client's next record.
    fn begin(&mut self, client: usize) {
        let count = [10, 5_000, 40_000, 150_000][self.run.rng.usize(..4)];
        let appender = &mut self.appenders[client];
        appender.number += 1;
        appender.bytes = record(client, appender.number, count);
        (appender.step, appender.place, appender.done) = (Step::Reserve { again: false }, 0, 0);
        self.send(client);
    }

    fn send(&mut self, client: usize) {
        let (file, map) = (&self.run.files[0], self.run.cluster.newest_map());
        let (inode, layout) = (file.inode, Some(file.layout));
        let appender = &self.appenders[client];
        let (op, body, stripe_index, bulk) = match appender.step {
            Step::Reserve { again } => {
                (Op::Reserve, Reserve { inode, begins: true, again }.to_bytes(), 0, None)
            }
            Step::End => {
                (Op::Reserve, Reserve { inode, begins: false, again: false }.to_bytes(), 0, None)
            }
            Step::Write { place, from, until } => {
                let (append, clears) = (true, PRIVILEGES);
                let write = Write { inode, file_offset: place, append, clears };
                let bytes = appender.bytes[from..until].to_vec();
                (Op::Write, write.to_bytes(), file.layout.stripe(place), Some(bytes))
            }
        };
        let shard = map.stripe_shard(inode, file.layout, stripe_index);
        let Run { clients, cluster, .. } = &mut self.run;
        clients[client].begin(Asked { op, shard, body, bulk, layout });
        clients[client].send_new(cluster);
    }

    /// Goes on with an append. Returns whether it has ended.
    fn end(&mut self, client: usize, got: &ReceivedReply) -> bool {
        let seed = self.run.seed;
        let layout = self.run.files[0].layout;
        let appender = &mut self.appenders[client];
        let total = appender.bytes.len();
        let is_stale = got.head.status == Status::Stale;
        match appender.step {
            Step::End => return true,
            Step::Reserve { .. } => {
                assert_eq!(got.head.status, Status::Ok, "seed {seed}");
                let end = Glimpsed::decode_all(&got.body).unwrap().contents.size_bytes;
                if appender.done == 0 {
                    appender.place = end;
                } else if end != appender.place + appender.done as u64 {
                    self.short_count += 1;
                    self.records.push((appender.place, appender.bytes[..appender.done].to_vec()));
                    appender.step = Step::End;
                }
            }
            Step::Write { .. } if is_stale => {
                self.stale_count += 1;
                appender.step = Step::Reserve { again: true };
            }
            Step::Write { until, .. } => {
                assert_eq!(got.head.status, Status::Ok, "seed {seed}");
                appender.done = until;
                if until == total {
                    self.records.push((appender.place, appender.bytes.clone()));
                    appender.step = Step::End;
                }
            }
        }
        let goes_on = appender.step != Step::End && !is_stale;
        if goes_on {
            let (from, place) = (appender.done, appender.place + appender.done as u64);
            let part = layout.parts(place..appender.place + total as u64).next().unwrap();
            let until = from + part.part_bytes as usize;
            appender.step = Step::Write { place, from, until };
        }
        self.send(client);
        false
    }

    /// Each client appends so many records.
    fn work(&mut self, count: u8) {
        let mut left = self.appenders.len();
        (0..left).for_each(|client| self.begin(client));
        for step in 0..400_000 {
            if step == 40_000 {
                self.run.faults.cease(&mut self.run.cluster);
            }
            self.run.cluster.step();
            self.run.faults.strike(&mut self.run.cluster);
            for client in 0..self.appenders.len() {
                let Run { clients, cluster, .. } = &mut self.run;
                clients[client].advance(cluster);
                let Some(got) = clients[client].receive(cluster) else { continue };
                if self.end(client, &got) {
                    match self.appenders[client].number < count {
                        true => self.begin(client),
                        false => left -= 1,
                    }
                }
            }
            if left == 0 {
                return;
            }
        }
        panic!("seed {}: {:?}", self.run.seed, self.appenders.iter().map(|it| it.step));
    }

    /// The file is the records, side by side.
    fn check(mut self) -> (usize, usize, usize, usize) {
        self.run.faults.cease(&mut self.run.cluster);
        self.records.sort();
        let mut wanted = Vec::new();
        for (place, bytes) in &self.records {
            assert_eq!(*place, wanted.len() as u64, "seed {}: a place of its own", self.run.seed);
            wanted.extend_from_slice(bytes);
        }
        let mut file = self.run.files[0].clone();
        file.bytes = wanted;
        let size = file.bytes.len();
        for from in (0..size).step_by(1 << 19) {
            self.run.read(0, &file, from as u64, 1 << 19);
        }
        self.run.size(1, &file);
        let faults = &self.run.faults;
        (faults.crash_count, faults.cut_count, self.stale_count, self.short_count)
    }
}

#[test]
fn appends_of_several_clients_lie_side_by_side() {
    let (mut crashes, mut cuts, mut stale, mut short) = (0, 0, 0, 0);
    for seed in 201..=206 {
        let mut appenders = Appenders::new(seed);
        appenders.work(12);
        let (crash_count, cut_count, stale_count, short_count) = appenders.check();
        crashes += crash_count;
        cuts += cut_count;
        stale += stale_count;
        short += short_count;
    }
    assert!(crashes > 5 && cuts > 5, "{crashes} crashes, {cuts} cuts");
    assert!(stale > 0, "{stale} reserved the end again, {short} were cut short");
}

/// Asks once, and takes the answer whatever it is.
fn ask_once(run: &mut Run, client: usize, asked: Asked) -> Status {
    let Run { clients, cluster, .. } = run;
    clients[client].begin(asked);
    clients[client].send_new(cluster);
    for _ in 0..10_000 {
        cluster.step();
        clients[client].advance(cluster);
        if let Some(got) = clients[client].receive_any(cluster) {
            return got.head.status;
        }
    }
    panic!("no answer")
}

/// A run without faults, with one file of some bytes.
fn quiet() -> Run {
    let mut run = Run::on(7, spread(7), 1 << 24);
    run.faults.one_in = 0;
    run.create(0);
    let mut file = run.files[0].clone();
    run.open(0, &file);
    run.write(0, &mut file, 0, 100_000);
    run.files[0] = file;
    run
}

#[test]
fn others_wait_while_a_file_is_appended_to() {
    let mut run = quiet();
    let file = run.files[0].clone();
    let (map, inode, layout) = (run.cluster.newest_map(), file.inode, Some(file.layout));
    assert_eq!(run.reserve(0, &file, true), 100_000);
    let write = |append, file_offset: u64| {
        let shard = map.stripe_shard(inode, file.layout, file.layout.stripe(file_offset));
        let body = Write { inode, file_offset, append, clears: PRIVILEGES }.to_bytes();
        Asked { op: Op::Write, shard, body, bulk: Some(alloc::vec![1; 9]), layout }
    };
    let home = map.data_shard(inode, 0);
    let truncate = Truncate { inode, size_bytes: 5 }.to_bytes();
    let truncate = Asked { op: Op::Truncate, shard: home, body: truncate, bulk: None, layout };
    let reserve = Reserve { inode, begins: true, again: false }.to_bytes();
    let reserve = Asked { op: Op::Reserve, shard: home, body: reserve, bulk: None, layout };
    for (asked, wanted) in [
        (truncate.clone(), Status::RetryLater),
        (reserve.clone(), Status::RetryLater),
        (write(false, 100_000), Status::RetryLater),
        (write(false, 300_000), Status::RetryLater),
        (write(false, 50_000), Status::Ok),
        (write(true, 100_000), Status::Stale),
    ] {
        assert_eq!(ask_once(&mut run, 1, asked.clone()), wanted, "{asked:?}");
    }
    assert_eq!(ask_once(&mut run, 0, write(true, 100_000)), Status::Ok);
    run.reserve(0, &file, false);
    // Then the first that was refused is the next, and no append is taken that was not reserved.
    assert_eq!(ask_once(&mut run, 0, write(true, 100_009)), Status::Stale);
    assert_eq!(ask_once(&mut run, 0, reserve.clone()), Status::RetryLater);
    assert_eq!(ask_once(&mut run, 1, reserve), Status::Ok);
    run.reserve(1, &file, false);
    assert_eq!(ask_once(&mut run, 1, write(false, 300_000)), Status::Ok);
    assert_eq!(ask_once(&mut run, 1, truncate), Status::Ok);
}

#[test]
fn the_home_server_that_starts_again_takes_no_appends_of_before() {
    let mut run = quiet();
    let file = run.files[0].clone();
    assert_eq!(run.reserve(0, &file, true), 100_000);
    let map = run.cluster.newest_map();
    let home = usize::from(map.place(map.data_shard(file.inode, 0)).server.0) - 1;
    run.cluster.crash(home);
    run.cluster.start(home);
    // Another client has the end.
    assert_eq!(run.reserve(1, &file, true), 100_000);
    let shard = map.stripe_shard(file.inode, file.layout, 1);
    let (inode, layout) = (file.inode, Some(file.layout));
    let body = Write { inode, file_offset: 100_000, append: true, clears: PRIVILEGES }.to_bytes();
    let write = Asked { op: Op::Write, shard, body, bulk: Some(alloc::vec![1; 9]), layout };
    assert_eq!(ask_once(&mut run, 0, write.clone()), Status::Stale);
    assert_eq!(ask_once(&mut run, 1, write), Status::Ok);
    run.reserve(1, &file, false);
    assert_eq!(run.reserve(0, &file, true), 100_009);
}

/// A part's server recovers when it is asked for an append that ends meanwhile.
#[test]
fn an_append_that_ends_while_a_part_recovers_leaves_no_look_without_an_answer() {
    let mut run = quiet();
    let mut file = run.files[0].clone();
    run.open(1, &file);
    run.write(1, &mut file, 70_000, 10);
    run.sync(1, &file);
    let map = run.cluster.newest_map();
    let home = map.data_shard(file.inode, 0);
    let part = map.stripe_shard(file.inode, file.layout, 1);
    let index = usize::from(map.place(part).server.0) - 1;
    assert_ne!(map.place(part).server, map.place(home).server);
    run.cluster.crash(index);
    run.cluster.start(index);
    // The second client is not back: its server waits for it.
    let asked = |op, body: Vec<u8>| {
        let layout = Some(file.layout);
        Asked { op, shard: home, body, bulk: None, layout }
    };
    let reserve = |begins| {
        let reserve = Reserve { inode: file.inode, begins, again: true };
        asked(Op::Reserve, reserve.to_bytes())
    };
    run.clients[0].begin(reserve(true));
    run.clients[0].send_new(&mut run.cluster);
    for _ in 0..1000 {
        run.cluster.step();
        run.clients[0].advance(&mut run.cluster);
        assert!(run.clients[0].receive_any(&mut run.cluster).is_none(), "a part recovers");
    }
    run.clients[0].give_up();
    assert_eq!(ask_once(&mut run, 0, reserve(false)), Status::Ok);
    let truncate = Truncate { inode: file.inode, size_bytes: 5 }.to_bytes();
    assert_eq!(ask_once(&mut run, 1, asked(Op::Truncate, truncate)), Status::Ok);
}
