//! Contents of files whose metadata and data shards are at different servers: random changes by
//! several clients, while servers die and are cut off, equal a model of bytes.

mod appends;
mod growth;
mod growth_deaths;

use super::cluster::Cluster;
use super::file_client::{Asked, FileClient};
use super::random::{Faults, rolled_lanes};
use super::server_of;
use crate::config::Share;
use crate::test_server::TestServer;
use crate::tests::peer::{ROOT, ReceivedReply, name};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use fastrand::Rng;
use wire::{
    Allocate, Allocation, ClearPrivileges, Close, Create, Created, Entry, Getattr, Glimpse,
    Glimpsed, Handle, HandleId, InodeNo, Layout, Mkdir, Op, Open, OpenFor, Read, Reserve, Seek,
    Sought, Status, SyncNarrow, Timestamp, Truncate, Unlink, Wire, Write, Written,
};

const PRIVILEGES: ClearPrivileges = ClearPrivileges::Nothing;
/// The greatest size of a file.
const SIZE_MAX: u64 = 60_000;

/// A file as it must be.
#[derive(Clone, Debug)]
struct File {
    dir: InodeNo,
    text: String,
    inode: InodeNo,
    layout: Layout,
    bytes: Vec<u8>,
    /// When it was changed last, by the clock of the data shard's server.
    changed_ns: u64,
}

/// Servers whose files have small stripes, that answer before changes are durable in most runs.
fn stripes(seed: u64) -> Cluster {
    let mut rng = Rng::with_seed(seed ^ 0x57a1);
    let unit = [1 << 13, 1 << 14, 1 << 41][rng.usize(..3)];
    let is_synced = rng.usize(..4) == 0;
    let object_count_max = rng.usize(1..6);
    Cluster::with(seed, &rolled_lanes(seed), |server: &mut TestServer| {
        server.layout = Layout { stripe_unit_bytes: unit, stripe_count: 1, narrow: false };
        server.limits.block_bytes = 4096;
        server.limits.sync = is_synced;
        server.limits.object_count_max = object_count_max;
    })
}

/// Servers whose files are spread over several of them.
fn spread(seed: u64) -> Cluster {
    spread_by(seed, Layout { stripe_unit_bytes: 1 << 16, stripe_count: 64, narrow: false })
}

fn spread_by(seed: u64, layout: Layout) -> Cluster {
    let mut rng = Rng::with_seed(seed ^ 0x57a2);
    let is_synced = rng.usize(..4) == 0;
    let object_count_max = rng.usize(1..6);
    let share = [Share::Write, Share::Strict][rng.usize(..2)];
    Cluster::with(seed, &rolled_lanes(seed), |server: &mut TestServer| {
        server.layout = layout;
        server.limits.block_bytes = 4096;
        server.limits.sync = is_synced;
        server.limits.share = share;
        server.limits.object_count_max = object_count_max;
    })
}

/// A run: the servers, their faults, the clients and what must be there.
struct Run {
    seed: u64,
    rng: Rng,
    cluster: Cluster,
    faults: Faults,
    clients: Vec<FileClient>,
    dirs: Vec<InodeNo>,
    files: Vec<File>,
    name_count: u32,
    /// Files whose contents are at another server than their names.
    apart_count: usize,
    /// The greatest size of a file.
    size_max: u64,
    /// Files are narrow until they have a second stripe.
    grows: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        Self::on(seed, stripes(seed), SIZE_MAX)
    }

    fn on(seed: u64, mut cluster: Cluster, size_max: u64) -> Self {
        for _ in 0..500 {
            cluster.step();
        }
        let rng = Rng::with_seed(seed ^ 0xc0de);
        let clients = (1..=3).map(FileClient::new).collect();
        let (dirs, files) = (Vec::new(), Vec::new());
        let mut faults = Faults::new(seed);
        let one_in = core::mem::take(&mut faults.one_in);
        let (name_count, apart_count) = (0, 0);
        let mut run = Self {
            seed,
            rng,
            cluster,
            faults,
            clients,
            dirs,
            files,
            name_count,
            apart_count,
            size_max,
            grows: false,
        };
        run.clients.iter_mut().for_each(|client| client.advance(&mut run.cluster));
        for text in ["a", "b", "c", "d", "e", "f"] {
            let (caller, parent) = (ROOT, InodeNo::ROOT);
            let mkdir = Mkdir { caller, parent, name: name(text), mode: 0o755, umask: 0 };
            let got = run.ask_meta(0, Op::Mkdir, InodeNo::ROOT, &mkdir);
            run.dirs.push(Entry::decode_all(&got.body).unwrap().attr.inode);
        }
        run.faults.one_in = one_in;
        run
    }

    fn ask(&mut self, client: usize, asked: Asked) -> ReceivedReply {
        let Self { clients, cluster, faults, .. } = self;
        let (before, rest) = clients.split_at_mut(client);
        let (client, after) = rest.split_first_mut().unwrap();
        client.ask(cluster, asked, |cluster, _| {
            faults.strike(cluster);
            for other in before.iter_mut().chain(after.iter_mut()) {
                other.advance(cluster);
                assert!(other.receive(cluster).is_none(), "it has asked nothing");
            }
        })
    }

    fn ask_meta<'a>(
        &mut self,
        client: usize,
        op: Op,
        inode: InodeNo,
        body: &impl Wire<'a>,
    ) -> ReceivedReply {
        let (body, shard) = (body.to_bytes(), inode.shard());
        let got = self.ask(client, Asked { op, shard, body, bulk: None, layout: None });
        assert_eq!(got.head.status, Status::Ok, "seed {}: {op:?}", self.seed);
        got
    }

    fn ask_data<'a>(
        &mut self,
        client: usize,
        (op, file): (Op, &File),
        body: &impl Wire<'a>,
        bulk: Option<Vec<u8>>,
    ) -> ReceivedReply {
        self.ask_part(client, (op, file, 0), body, bulk)
    }

    /// The same at the shard of a stripe.
    fn ask_part<'a>(
        &mut self,
        client: usize,
        (op, file, stripe_index): (Op, &File, u32),
        body: &impl Wire<'a>,
        bulk: Option<Vec<u8>>,
    ) -> ReceivedReply {
        let map = self.cluster.newest_map();
        let shard = map.stripe_shard(file.inode, file.layout, stripe_index);
        let (body, layout) = (body.to_bytes(), Some(file.layout));
        self.ask(client, Asked { op, shard, body, bulk, layout })
    }

    /// The ranges that are requested apart: of a spread file those of each stripe.
    fn ranges(file: &File, range: core::ops::Range<u64>) -> Vec<(u32, u64, u64)> {
        let layout = file.layout;
        if !layout.is_spread() {
            return Vec::from([(0, range.start, range.end)]);
        }
        let of = |part: wire::StripePart| {
            let from = layout.start(part.stripe_index) + part.object_offset;
            (part.stripe_index, from, from + part.part_bytes)
        };
        layout.parts(range).map(of).collect()
    }

    /// What each part has of a range: from its first byte there to its last one.
    fn part_ranges(file: &File, range: core::ops::Range<u64>) -> Vec<(u32, u64, u64)> {
        let layout = file.layout;
        if !layout.is_spread() {
            return Vec::from([(0, range.start, range.end)]);
        }
        let of_part = |part| {
            let from = layout.next_of_part(part, range.start).filter(|from| *from < range.end)?;
            Some((part, from, layout.part_end(part, range.end)))
        };
        (0..u32::from(layout.stripe_count)).filter_map(of_part).collect()
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let first = self.rng.u8(1..=255);
        (0..count).map(|at| (first.wrapping_add(at as u8)).max(1)).collect()
    }

    fn create(&mut self, client: usize) {
        let dir = self.dirs[self.rng.usize(..self.dirs.len())];
        self.name_count += 1;
        let text = format!("f{}", self.name_count);
        let create = Create {
            caller: ROOT,
            parent: dir,
            name: name(&text),
            mode: 0o644,
            umask: 0,
            exclusive: true,
            handle: None,
            behind: None,
        };
        let got = self.ask_meta(client, Op::Create, dir, &create);
        let attr = Created::decode_all(&got.body).unwrap().attr;
        let layout = attr.layout.unwrap_or(Layout::DEFAULT);
        let inode = attr.inode;
        let place = self.cluster.newest_map().place(self.cluster.newest_map().data_shard(inode, 0));
        self.apart_count += usize::from(usize::from(place.server.0) != server_of(inode) + 1);
        let file = File { dir, text, inode, layout, bytes: Vec::new(), changed_ns: 0 };
        self.files.push(file);
    }

    /// One change of a file, or a look at it.
    fn act(&mut self, client: usize, at: usize) {
        let mut file = self.files[at].clone();
        let size = file.bytes.len() as u64;
        let place = self.rng.u64(..size + self.size_max / 6);
        let count = [1, 100, 4096, self.size_max as usize / 3][self.rng.usize(..4)];
        let rolled = self.rng.usize(..16);
        if rolled <= 8 {
            // The metadata shard knows who may change the size.
            self.open(client, &file);
        }
        let end = match rolled {
            0..=3 | 8 => place + count as u64,
            4 | 5 => size + count as u64,
            6 | 7 => place,
            _ => 0,
        };
        self.widen_for(client, &mut file, end);
        let before_ns = self.now_ns();
        let is_change = match rolled {
            0..=3 => self.write(client, &mut file, place, count),
            4 | 5 => self.append(client, &mut file, count),
            6 | 7 => self.truncate(client, &mut file, place),
            8 => self.allocate(client, &mut file, place, count as u64),
            9 => self.seek(client, &file, place),
            10 => self.open(client, &file),
            11 => self.close(client, &file),
            12 => self.sync(client, &file),
            13 => self.size(client, &file),
            _ => self.read(client, &file, place, count),
        };
        if is_change {
            file.changed_ns = before_ns;
        }
        self.files[at] = file;
    }

    fn now_ns(&self) -> u64 {
        self.cluster.servers.iter().map(|server| server.now.wall_ns).min().unwrap()
    }

    fn write(&mut self, client: usize, file: &mut File, place: u64, count: usize) -> bool {
        if place + count as u64 > self.size_max {
            return false;
        }
        let bytes = self.bytes(count);
        for (stripe_index, from, until) in Self::ranges(file, place..place + count as u64) {
            let part = &bytes[(from - place) as usize..(until - place) as usize];
            let (inode, file_offset, append) = (file.inode, from, false);
            let write = Write { inode, file_offset, append, clears: PRIVILEGES };
            let at = (Op::Write, &*file, stripe_index);
            let got = self.ask_part(client, at, &write, Some(part.to_vec()));
            assert_eq!(got.head.status, Status::Ok, "seed {}", self.seed);
        }
        put(&mut file.bytes, place, &bytes);
        true
    }

    fn append(&mut self, client: usize, file: &mut File, count: usize) -> bool {
        let size = file.bytes.len() as u64;
        if size + count as u64 > self.size_max {
            return false;
        }
        let bytes = self.bytes(count);
        if file.layout.is_spread() {
            self.append_to_parts(client, file, &bytes);
            put(&mut file.bytes, size, &bytes);
            return true;
        }
        let (inode, file_offset, append) = (file.inode, 0, true);
        let write = Write { inode, file_offset, append, clears: PRIVILEGES };
        let got = self.ask_data(client, (Op::Write, file), &write, Some(bytes.clone()));
        assert_eq!(got.head.status, Status::Ok, "seed {}", self.seed);
        let written = Written::decode_all(&got.body).unwrap();
        assert_eq!(written.file_offset, size, "seed {}: at the end", self.seed);
        put(&mut file.bytes, size, &bytes);
        true
    }

    /// Reserves the end of a file, or ends that. Returns where the file ends.
    fn reserve(&mut self, client: usize, file: &File, begins: bool) -> u64 {
        let reserve = Reserve { inode: file.inode, begins, again: false };
        let got = self.ask_data(client, (Op::Reserve, file), &reserve, None);
        assert_eq!(got.head.status, Status::Ok, "seed {}", self.seed);
        Glimpsed::decode_all(&got.body).unwrap().contents.size_bytes
    }

    /// Appends as a client does to a file over several data shards.
    fn append_to_parts(&mut self, client: usize, file: &File, bytes: &[u8]) {
        let size = file.bytes.len() as u64;
        // What has to hold over several requests would rarely come to an end otherwise.
        let one_in = self.faults.one_in;
        self.faults.one_in *= 10;
        assert_eq!(self.reserve(client, file, true), size, "seed {}: at the end", self.seed);
        let end = size + bytes.len() as u64;
        for (stripe_index, from, until) in Self::ranges(file, size..end) {
            let part = &bytes[(from - size) as usize..(until - size) as usize];
            let (inode, file_offset, append) = (file.inode, from, true);
            let write = Write { inode, file_offset, append, clears: PRIVILEGES };
            loop {
                let at = (Op::Write, file, stripe_index);
                let got = self.ask_part(client, at, &write, Some(part.to_vec()));
                if got.head.status == Status::Ok {
                    break;
                }
                // Its server, or the home shard's, has lost the other one.
                assert_eq!(got.head.status, Status::Stale, "seed {}", self.seed);
                assert_eq!(self.reserve(client, file, true), from, "seed {}", self.seed);
            }
        }
        self.reserve(client, file, false);
        self.faults.one_in = one_in;
    }

    fn truncate(&mut self, client: usize, file: &mut File, size_bytes: u64) -> bool {
        let truncate = Truncate { inode: file.inode, size_bytes };
        let got = self.ask_data(client, (Op::Truncate, file), &truncate, None);
        assert_eq!(got.head.status, Status::Ok, "seed {}", self.seed);
        file.bytes.resize(size_bytes as usize, 0);
        true
    }

    fn allocate(&mut self, client: usize, file: &mut File, file_offset: u64, count: u64) -> bool {
        let kinds = [Allocation::Reserve, Allocation::Punch, Allocation::Zero];
        let allocation = kinds[self.rng.usize(..3)];
        let keep_size = allocation == Allocation::Punch || self.rng.bool();
        let (inode, clears) = (file.inode, PRIVILEGES);
        let end = file_offset + count;
        // The part that makes the file longer is the last one.
        let mut parts = Self::part_ranges(file, file_offset..end);
        parts.sort_by_key(|(_, _, until)| *until);
        for (part, from, until) in parts {
            let range_bytes = until - from;
            let keep_size = keep_size || until < end;
            let file_offset = from;
            let body = Allocate { inode, file_offset, range_bytes, allocation, keep_size, clears };
            let got = self.ask_part(client, (Op::Allocate, file, part), &body, None);
            assert_eq!(got.head.status, Status::Ok, "seed {}", self.seed);
        }
        let end = end as usize;
        if !keep_size && file.bytes.len() < end {
            file.bytes.resize(end, 0);
        }
        if allocation != Allocation::Reserve {
            let end = end.min(file.bytes.len());
            let start = (file_offset as usize).min(end);
            file.bytes[start..end].fill(0);
        }
        true
    }

    /// Seeks as a client does, in each part of a file.
    fn seek_in_parts(
        &mut self,
        client: usize,
        file: &File,
        (file_offset, hole): (u64, bool),
    ) -> Option<u64> {
        let mut found: Option<u64> = None;
        let all = Self::part_ranges(file, file_offset..file_offset + (1 << 40));
        for (part, file_offset, _) in all {
            let seek = Seek { inode: file.inode, file_offset, hole };
            let got = self.ask_part(client, (Op::Seek, file, part), &seek, None);
            if got.head.status == Status::Ok {
                let at = Sought::decode_all(&got.body).unwrap().file_offset;
                let is_own =
                    !file.layout.is_spread() || file.layout.part(file.layout.stripe(at)) == part;
                assert!(is_own, "seed {}: a place of its own stripes", self.seed);
                found = Some(found.map_or(at, |found| found.min(at)));
            } else {
                assert_eq!(got.head.status, Status::NoDevice, "seed {}", self.seed);
            }
        }
        if hole && file.layout.is_spread() {
            let glimpse = Glimpse { inode: file.inode };
            let got = self.ask_data(client, (Op::Glimpse, file), &glimpse, None);
            let size_bytes = Glimpsed::decode_all(&got.body).unwrap().contents.size_bytes;
            found = found.filter(|_| file_offset < size_bytes).map(|at| at.min(size_bytes));
        }
        found
    }

    /// Data is not passed over, and where a hole is found nothing was written.
    fn seek(&mut self, client: usize, file: &File, file_offset: u64) -> bool {
        let hole = self.rng.bool();
        let found = self.seek_in_parts(client, file, (file_offset, hole));
        let rest = file.bytes.get(file_offset as usize..).unwrap_or_default();
        let data = rest.iter().position(|byte| *byte != 0).map(|at| file_offset + at as u64);
        let Some(found) = found else {
            assert!(rest.is_empty() || !hole && data.is_none(), "seed {}", self.seed);
            return false;
        };
        assert!(found >= file_offset && found <= file.bytes.len() as u64, "seed {}", self.seed);
        if hole {
            let byte = file.bytes.get(found as usize).copied().unwrap_or(0);
            assert_eq!(byte, 0, "seed {}: a hole at {found}", self.seed);
        } else {
            assert!(data.is_none_or(|data| found <= data), "seed {}: data at {data:?}", self.seed);
        }
        false
    }

    fn open(&mut self, client: usize, file: &File) -> bool {
        if self.clients[client].open.contains_key(&file.inode) {
            return false;
        }
        self.name_count += 1;
        let id = HandleId(u64::from(self.name_count));
        let handle = Handle { id, open_for: OpenFor::ReadWrite };
        let open = Open { caller: ROOT, inode: file.inode, handle };
        self.ask_meta(client, Op::Open, file.inode, &open);
        self.clients[client].open.insert(file.inode, handle);
        false
    }

    fn close(&mut self, client: usize, file: &File) -> bool {
        if let Some(handle) = self.clients[client].open.remove(&file.inode) {
            let close = Close { inode: file.inode, handle: handle.id };
            self.ask_meta(client, Op::Close, file.inode, &close);
        }
        false
    }

    fn sync(&mut self, client: usize, file: &File) -> bool {
        for part in 0..u32::from(file.layout.part_count()) {
            let at = (Op::Sync, file, part);
            let got = if file.layout.narrow {
                self.ask_part(client, at, &SyncNarrow { inode: file.inode }, None)
            } else {
                self.ask_part(client, at, &[0_u8; 0], None)
            };
            assert_eq!(got.head.status, Status::Ok, "seed {}", self.seed);
        }
        self.ask_meta(client, Op::Sync, file.inode, &[0_u8; 0]);
        false
    }

    /// The size and the time of the last change, from where they are.
    fn size(&mut self, client: usize, file: &File) -> bool {
        let got = self.ask_meta(client, Op::Getattr, file.inode, &Getattr { inode: file.inode });
        let attr = Entry::decode_all(&got.body).unwrap().attr;
        let (size_bytes, mtime) = (attr.size_bytes, attr.mtime);
        let glimpse = Glimpse { inode: file.inode };
        let got = self.ask_data(client, (Op::Glimpse, file), &glimpse, None);
        let contents = Glimpsed::decode_all(&got.body).unwrap().contents;
        let size = file.bytes.len() as u64;
        assert_eq!(contents.size_bytes, size, "seed {}: {file:?}", self.seed);
        let changed = Timestamp::from_ns(file.changed_ns);
        let is_changed = file.changed_ns > 0;
        assert!(!is_changed || contents.write_time >= Some(changed), "seed {}", self.seed);
        if !attr.is_size_at_data() {
            assert_eq!(size_bytes, size, "seed {}: settled", self.seed);
            assert!(!is_changed || mtime >= changed, "seed {}: settled", self.seed);
        }
        false
    }

    fn read(&mut self, client: usize, file: &File, file_offset: u64, count: usize) -> bool {
        let start = (file_offset as usize).min(file.bytes.len());
        let end = (start + count).min(file.bytes.len());
        let mut found = Vec::new();
        for (stripe_index, from, until) in
            Self::ranges(file, file_offset..file_offset + count as u64)
        {
            let (inode, read_bytes) = (file.inode, (until - from) as u32);
            let read = Read { inode, file_offset: from, read_bytes, accesses: true };
            let got = self.ask_part(client, (Op::Read, file, stripe_index), &read, None);
            assert_eq!(got.head.status, Status::Ok, "seed {}", self.seed);
            // What a part lacks below the end of the file is zeros.
            if !got.bulk.is_empty() {
                put(&mut found, from - file_offset, &got.bulk);
            }
        }
        if file.layout.is_spread() {
            assert!(found.len() <= end - start, "seed {}: behind the end", self.seed);
            found.resize(end - start, 0);
        }
        let is_same = found == file.bytes[start..end];
        assert!(is_same, "seed {}: {} bytes from {file_offset}", self.seed, found.len());
        false
    }

    fn unlink(&mut self, client: usize, at: usize) {
        let file = self.files.swap_remove(at);
        let unlink =
            Unlink { caller: ROOT, parent: file.dir, name: name(&file.text), behind: None };
        self.ask_meta(client, Op::Unlink, file.dir, &unlink);
        for client in 0..self.clients.len() {
            self.close(client, &file);
        }
    }

    fn work(&mut self, act_count: usize) {
        for _ in 0..act_count {
            let client = self.rng.usize(..self.clients.len());
            let at = self.rng.usize(..self.files.len().max(1));
            match self.rng.usize(..20) {
                0 if self.files.len() > 2 => self.unlink(client, at),
                _ if self.files.len() < 3 => self.create(client),
                _ => self.act(client, at),
            }
        }
    }

    /// Everything is there; what is unlinked leaves nothing behind.
    fn end(mut self) -> (usize, usize, usize, usize) {
        self.faults.cease(&mut self.cluster);
        for at in 0..self.files.len() {
            let file = self.files[at].clone();
            for client in 0..self.clients.len() {
                self.close(client, &file);
                self.read(client, &file, 0, self.size_max as usize);
            }
            self.size(0, &file);
        }
        while !self.files.is_empty() {
            self.unlink(0, 0);
        }
        self.cluster.settle();
        let objects = self.cluster.servers.iter().map(TestServer::object_count);
        assert_eq!(objects.sum::<usize>(), 0, "seed {}: objects are left", self.seed);
        let replayed = self.clients.iter().map(|client| client.replay_count).sum();
        (self.faults.crash_count, self.faults.cut_count, replayed, self.apart_count)
    }
}

/// Replaces bytes from a place on; what lies between is zeros.
fn put(to: &mut Vec<u8>, place: u64, bytes: &[u8]) {
    let (start, end) = (place as usize, place as usize + bytes.len());
    if to.len() < end {
        to.resize(end, 0);
    }
    to[start..end].copy_from_slice(bytes);
}

#[test]
fn contents_at_other_servers_equal_a_model() {
    let (mut crashes, mut cuts, mut replays, mut apart) = (0, 0, 0, 0);
    for seed in 1..=5 {
        let mut run = Run::new(seed);
        run.work(80);
        let (crash_count, cut_count, replay_count, apart_count) = run.end();
        crashes += crash_count;
        cuts += cut_count;
        replays += replay_count;
        apart += apart_count;
    }
    assert!(crashes > 10 && cuts > 10, "{crashes} crashes, {cuts} cuts");
    assert!(replays > 10 && apart > 10, "{replays} replays, {apart} files");
}

#[test]
fn files_over_several_servers_equal_a_model() {
    let (mut crashes, mut cuts, mut replays) = (0, 0, 0);
    for seed in 101..=103 {
        let mut run = Run::on(seed, spread(seed), 200_000);
        run.work(45);
        let count = run.cluster.servers.len() as u16;
        let is_spread = run.files.iter().all(|file| file.layout.stripe_count == count);
        assert!(is_spread, "seed {seed}: a stripe at each server");
        let (crash_count, cut_count, replay_count, _) = run.end();
        crashes += crash_count;
        cuts += cut_count;
        replays += replay_count;
    }
    assert!(crashes > 10 && cuts > 10, "{crashes} crashes, {cuts} cuts");
    assert!(replays > 10, "{replays} replays");
}

/// A slot of the file that all clients write to, and a record of the one that all append to.
const SLOT_BYTES: usize = 700;
const SLOTS: u64 = 30;

/// What a client of a concurrent run has under way.
#[derive(Clone, Copy, Debug)]
enum Doing {
    Write { slot: u64, byte: u8 },
    Append { number: u8 },
    Read { slot: u64 },
}

/// Several clients that write to slots of their own in one file, and append to another.
struct Writers {
    run: Run,
    doing: Vec<Option<Doing>>,
    slots: Vec<u8>,
    /// The records that each client has appended.
    appended: Vec<u8>,
}

impl Writers {
    fn new(seed: u64) -> Self {
        let mut run = Run::new(seed);
        let one_in = core::mem::take(&mut run.faults.one_in);
        run.create(0);
        run.create(0);
        run.faults.one_in = one_in;
        let count = run.clients.len();
        let (doing, slots) = (alloc::vec![None; count], alloc::vec![0; SLOTS as usize]);
        Self { run, doing, slots, appended: alloc::vec![0; count] }
    }

    fn begin(&mut self, client: usize) {
        let Self { run, slots, appended, .. } = self;
        let own = run.rng.u64(..SLOTS / 3) * 3 + client as u64;
        let doing = match run.rng.usize(..5) {
            0 | 1 => Doing::Write { slot: own, byte: slots[own as usize].wrapping_add(1).max(1) },
            2 | 3 => Doing::Append { number: appended[client] + 1 },
            _ => Doing::Read { slot: own },
        };
        let (at, op, body, bulk) = match doing {
            Doing::Write { slot, byte } => {
                let (inode, file_offset) = (run.files[0].inode, slot * SLOT_BYTES as u64);
                let write = Write { inode, file_offset, append: false, clears: PRIVILEGES };
                (0, Op::Write, write.to_bytes(), Some(alloc::vec![byte; SLOT_BYTES]))
            }
            Doing::Append { number } => {
                let inode = run.files[1].inode;
                let write = Write { inode, file_offset: 0, append: true, clears: PRIVILEGES };
                let mut record = alloc::vec![number; SLOT_BYTES];
                record[0] = client as u8;
                (1, Op::Write, write.to_bytes(), Some(record))
            }
            Doing::Read { slot } => {
                let (inode, file_offset) = (run.files[0].inode, slot * SLOT_BYTES as u64);
                let read = Read { inode, file_offset, read_bytes: 700, accesses: true };
                (0, Op::Read, read.to_bytes(), None)
            }
        };
        let file = &run.files[at];
        let (shard, layout) = (run.cluster.newest_map().data_shard(file.inode, 0), file.layout);
        run.clients[client].begin(Asked { op, shard, body, bulk, layout: Some(layout) });
        run.clients[client].send_new(&mut run.cluster);
        self.doing[client] = Some(doing);
    }

    fn end(&mut self, client: usize, got: &ReceivedReply) {
        let seed = self.run.seed;
        assert_eq!(got.head.status, Status::Ok, "seed {seed}");
        match self.doing[client].take().unwrap() {
            Doing::Write { slot, byte } => self.slots[slot as usize] = byte,
            Doing::Append { number } => self.appended[client] = number,
            Doing::Read { slot } => {
                let byte = self.slots[slot as usize];
                let is_same = got.bulk.iter().all(|found| *found == byte);
                let is_whole = byte == 0 || got.bulk.len() == SLOT_BYTES;
                assert!(is_same && is_whole, "seed {seed}: slot {slot} of its own");
            }
        }
    }

    fn work(&mut self, count: usize) {
        let (mut left, mut answered) = (count, 0);
        for step in 0..100_000 {
            if step == 5_000 {
                self.run.faults.one_in = 0;
            }
            for client in 0..self.doing.len() {
                if self.doing[client].is_none() && left > 0 {
                    left -= 1;
                    self.begin(client);
                }
            }
            self.run.cluster.step();
            self.run.faults.strike(&mut self.run.cluster);
            for client in 0..self.doing.len() {
                let Run { clients, cluster, .. } = &mut self.run;
                clients[client].advance(cluster);
                if let Some(got) = clients[client].receive(cluster) {
                    self.end(client, &got);
                    answered += 1;
                }
            }
            if answered == count {
                return;
            }
        }
        panic!("seed {}: {answered} of {count} are answered", self.run.seed);
    }

    /// Each slot has what its client wrote last, and each record is there once, in its client's
    /// order.
    fn check(mut self) -> (usize, usize) {
        let Self { run, slots, appended, .. } = &mut self;
        run.faults.cease(&mut run.cluster);
        let (seed, file) = (run.seed, run.files[0].clone());
        let read = |run: &mut Run, file: &File| {
            let inode = file.inode;
            let read = Read { inode, file_offset: 0, read_bytes: 1 << 20, accesses: true };
            run.ask_data(1, (Op::Read, file), &read, None).bulk
        };
        let found = read(run, &file);
        for (slot, byte) in slots.iter().enumerate().filter(|(_, byte)| **byte > 0) {
            let place = slot * SLOT_BYTES;
            let is_same = found[place..place + SLOT_BYTES].iter().all(|found| found == byte);
            assert!(is_same, "seed {seed}: slot {slot}");
        }
        let file = run.files[1].clone();
        let found = read(run, &file);
        let mut numbers = alloc::vec![0; appended.len()];
        for record in found.chunks(SLOT_BYTES) {
            let number = &mut numbers[usize::from(record[0])];
            *number += 1;
            let is_whole = record.len() == SLOT_BYTES && record[1..].iter().all(|at| at == number);
            assert!(is_whole, "seed {seed}: record {number} of client {}", record[0]);
        }
        assert_eq!(&numbers, appended, "seed {seed}: each record once");
        (run.faults.crash_count, run.faults.cut_count)
    }
}

#[test]
fn concurrent_writers_of_files_lose_and_mix_nothing() {
    let (mut crashes, mut cuts) = (0, 0);
    for seed in 41..=46 {
        let mut writers = Writers::new(seed);
        writers.work(150);
        let (crash_count, cut_count) = writers.check();
        crashes += crash_count;
        cuts += cut_count;
    }
    assert!(crashes > 10 && cuts > 10, "{crashes} crashes, {cuts} cuts");
}
