//! Random operations of three clients that answer from their caches as long as their leases last.
//! Each answer is compared with the server's state at that moment.

use super::*;
use fastrand::Rng;
use wire::{Attr, Close, Mkdir, Rename, RenameHow, Rules, Unlink};

const CLIENT_COUNT: usize = 3;
const FILE_NAMES: [&str; 4] = ["a", "b", "c", "e"];

/// What a client caches of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    Names(Option<InodeNo>),
    Attributes(Attr),
    Contents,
}

/// A value, and until when the client may answer from it.
#[derive(Clone, Copy, Debug)]
struct Cached {
    value: Value,
    until: Mono,
}

/// A request that is not answered, with what is needed to send it again.
#[derive(Clone, Debug)]
struct Asked {
    op: Op,
    shard: ShardId,
    slot: u16,
    xid: u64,
    body: Vec<u8>,
    name: Option<(InodeNo, &'static str)>,
    /// The new name of a rename.
    new_name: Option<(InodeNo, &'static str)>,
    inode: Option<InodeNo>,
    open_for: Option<OpenFor>,
}

/// All names of a directory, known since it was empty, as long as its attributes are held.
#[derive(Clone, Debug)]
struct AllNames {
    names: BTreeSet<&'static str>,
    until: Mono,
}

struct Client {
    holder: Holder,
    cache: BTreeMap<Key, Cached>,
    all_names: BTreeMap<InodeNo, AllNames>,
    asked: Option<Asked>,
    /// Recalls whose keys are dropped, and which are not acknowledged.
    dropped: Vec<RecallNo>,
    /// Files open for writing, with the handle.
    writing: BTreeMap<InodeNo, HandleId>,
    is_cut: bool,
}

struct World {
    server: TestServer,
    rng: Rng,
    clients: Vec<Client>,
    dirs: Vec<InodeNo>,
    /// Answers from caches.
    hit_count: usize,
}

impl World {
    fn new(seed: u64, rules: Rules) -> Self {
        let mut server = TestServer::new(seed);
        server.rules = rules;
        server.start(1);
        server.run();
        let mut clients: Vec<Client> = (0..CLIENT_COUNT)
            .map(|number| Client {
                holder: Holder::new(&mut server, number as u8 + 1),
                cache: BTreeMap::new(),
                all_names: BTreeMap::new(),
                asked: None,
                dropped: Vec::new(),
                writing: BTreeMap::new(),
                is_cut: false,
            })
            .collect();
        // One at each of the lane's two shards.
        let dirs = ["d0", "d1"].map(|text| {
            let (parent, name) = (InodeNo::ROOT, name(text));
            let mkdir = Mkdir { caller: ROOT, parent, name, mode: 0o777, umask: 0 };
            let made = clients[0].holder.ask(&mut server, Op::Mkdir, 1, &mkdir);
            Entry::decode_all(&made.message).unwrap().attr.inode
        });
        assert_ne!(dirs[0].shard(), dirs[1].shard());
        let rng = Rng::with_seed(seed);
        Self { server, rng, clients, dirs: dirs.to_vec(), hit_count: 0 }
    }

    fn dir(&mut self) -> InodeNo {
        self.dirs[self.rng.usize(..self.dirs.len())]
    }

    fn file_name(&mut self) -> &'static str {
        FILE_NAMES[self.rng.usize(..FILE_NAMES.len())]
    }

    /// The server's state, without a request.
    fn peek<'a>(&mut self, op: Op, shard: ShardId, body: &impl Wire<'a>) -> Result<Attr, Status> {
        let body = body.to_bytes();
        let ask = meta::MetaRequest {
            op,
            body: &body,
            client: wire::ClientUuid([9; 16]),
            squash: wire::Squash::NONE,
            export_root: None,
            now: wire::Timestamp::default(),
            records_reads: false,
            changed_behind: None,
        };
        let (mut reply, mut changes) = (Vec::new(), Vec::new());
        let lane = self.server.lane_mut(0);
        let index = lane.meta_index(shard);
        let effect = lane.metas[index].execute(&ask, &mut reply, &mut changes).unwrap();
        assert_ne!(effect.status, Status::Busy, "what is locked is cached by nobody");
        match effect.status {
            Status::Ok => Ok(Entry::decode_all(&reply).unwrap().attr),
            status => Err(status),
        }
    }

    /// A client answers from its cache, if it may.
    fn use_cache(&mut self, number: usize, key: &Key) -> bool {
        let now = self.server.now.mono;
        let Some(cached) = self.clients[number].cache.get(key).copied() else { return false };
        if now >= cached.until {
            self.clients[number].cache.remove(key);
            return false;
        }
        self.hit_count += 1;
        let value = match key {
            Key::Name(dir, text) => {
                let lookup = Lookup { caller: ROOT, parent: *dir, name: name(text) };
                let found = self.peek(Op::Lookup, dir.shard(), &lookup);
                Value::Names(found.map(|attr| attr.inode).ok())
            }
            Key::Attributes(inode) => {
                let found = self.peek(Op::Getattr, inode.shard(), &Getattr { inode: *inode });
                Value::Attributes(shown(found.expect("what has attributes is there")))
            }
            Key::Contents(inode) => {
                let mut others = self.clients.iter().enumerate();
                let writer =
                    others.find(|(other, it)| *other != number && it.writing.contains_key(inode));
                assert!(writer.is_none(), "nobody writes what client {number} has cached");
                Value::Contents
            }
            Key::Pages(_) | Key::Writing(_) | Key::All => panic!("no key of a cache"),
        };
        assert_eq!(cached.value, value, "client {number} answers {key:?} from its cache");
        true
    }

    /// A client that knows all names of a directory answers that others do not exist.
    fn use_all_names(&mut self, number: usize, dir: InodeNo) {
        let client = &self.clients[number];
        let Some(all) = client.all_names.get(&dir) else { return };
        if self.server.now.mono >= all.until {
            return;
        }
        let changed = client.asked.iter().flat_map(|asked| [asked.name, asked.new_name]);
        let changed: Vec<_> = changed.flatten().collect();
        let absent = FILE_NAMES.into_iter().filter(|text| !all.names.contains(text));
        let absent: Vec<_> = absent.filter(|text| !changed.contains(&(dir, *text))).collect();
        for text in absent {
            self.hit_count += 1;
            let lookup = Lookup { caller: ROOT, parent: dir, name: name(text) };
            let found = self.peek(Op::Lookup, dir.shard(), &lookup);
            assert_eq!(found, Err(Status::NotFound), "client {number} knows all of {dir}");
        }
    }

    fn send<'a>(&mut self, number: usize, asked: Asked, body: &impl Wire<'a>) {
        let Self { server, clients, .. } = self;
        let client = &mut clients[number];
        let Asked { op, shard, slot, .. } = asked;
        client.holder.send_to(server, (op, shard, slot), request_flag::LEASES, body);
        let (xid, body) = (client.holder.peer.xid, body.to_bytes());
        client.asked = Some(Asked { xid, body, ..asked });
    }

    /// Begins a random operation of a client.
    fn begin(&mut self, number: usize) {
        let (dir, text) = (self.dir(), self.file_name());
        let name_key = Key::Name(dir, text.to_string());
        let asked = |op: Op, shard, slot| Asked {
            op,
            shard,
            slot,
            xid: 0,
            body: Vec::new(),
            name: None,
            new_name: None,
            inode: None,
            open_for: None,
        };
        let reads = self.rng.usize(..4) > 0;
        if reads && self.use_cache(number, &name_key) {
            return;
        }
        let known = self.clients[number].cache.get(&name_key).map(|cached| cached.value);
        let file = if let Some(Value::Names(file)) = known { file } else { None };
        let named = |asked| Asked { name: Some((dir, text)), ..asked };
        let (caller, parent) = (ROOT, dir);
        match (self.rng.usize(..12), file) {
            (0, _) => {
                self.forget(number, &[name_key]);
                let create = wire::Create { parent: dir, ..create(text) };
                self.send(number, named(asked(Op::Create, dir.shard(), 1)), &create);
            }
            (1, _) => {
                self.forget(number, &[name_key]);
                let unlink = Unlink { caller, parent, name: name(text), behind: None };
                self.send(number, named(asked(Op::Unlink, dir.shard(), 1)), &unlink);
            }
            (2, _) => {
                let (new_parent, new_text) = (self.dir(), self.file_name());
                self.forget(number, &[name_key, Key::Name(new_parent, new_text.to_string())]);
                let (name, new_name, how) = (name(text), name(new_text), RenameHow::Replace);
                let rename = Rename { caller, parent, name, new_parent, new_name, how };
                let asked = named(asked(Op::Rename, dir.shard(), 1));
                let asked = Asked { new_name: Some((new_parent, new_text)), ..asked };
                self.send(number, asked, &rename);
            }
            (3, Some(file)) => {
                self.forget(number, &[]);
                let mode = self.rng.u32(..0o1000);
                self.send(number, asked(Op::Setattr, file.shard(), 1), &chmod(file, mode));
            }
            (4, Some(file)) => {
                let handle = self.clients[number].writing.remove(&file);
                self.forget(number, &[]);
                if let Some(handle) = handle {
                    let close = Close { inode: file, handle };
                    return self.send(number, asked(Op::Close, file.shard(), 1), &close);
                }
                let reads = self.rng.usize(..2) == 0;
                let open_for = if reads { OpenFor::Read } else { OpenFor::ReadWrite };
                let client = &mut self.clients[number];
                client.holder.handle_count += 1;
                let handle = Handle { id: HandleId(client.holder.handle_count), open_for };
                let open = wire::Open { caller, inode: file, handle };
                let opened = asked(Op::Open, file.shard(), 1);
                let opened = Asked { inode: Some(file), open_for: Some(open_for), ..opened };
                self.send(number, opened, &open);
            }
            (5, Some(file)) => {
                self.use_cache(number, &Key::Contents(file));
                if !self.use_cache(number, &Key::Attributes(file)) {
                    let asked = asked(Op::Getattr, file.shard(), 0);
                    self.send(number, asked, &Getattr { inode: file });
                }
            }
            (6, _) => {
                if !self.use_cache(number, &Key::Attributes(dir)) {
                    let asked = asked(Op::Getattr, dir.shard(), 0);
                    self.send(number, asked, &Getattr { inode: dir });
                }
            }
            _ => {
                let lookup = Lookup { caller, parent, name: name(text) };
                self.send(number, named(asked(Op::Lookup, dir.shard(), 0)), &lookup);
            }
        }
    }

    /// A client changes something: what it shows itself of that meanwhile is its kernel's matter.
    fn forget(&mut self, number: usize, names: &[Key]) {
        let cache = &mut self.clients[number].cache;
        cache.retain(|key, _| matches!(key, Key::Name(..)) && !names.contains(key));
    }

    /// A client reads what has arrived.
    fn collect(&mut self, number: usize) {
        let Self { server, clients, .. } = self;
        let (client, now) = (&mut clients[number], server.now.mono);
        client.holder.collect(server);
        for recall in client.holder.recalls.drain(..) {
            client.cache.retain(|key, _| !recall.keys.contains(key));
            client.all_names.retain(|dir, _| !recall.keys.contains(&Key::Attributes(*dir)));
            client.dropped.push(recall.recall_no);
        }
        for reply in core::mem::take(&mut client.holder.replies) {
            let Some(asked) = client.asked.take() else { panic!("a reply to nothing") };
            assert_eq!(reply.head.xid.0, asked.xid);
            client.renew(&asked, now);
            client.take_reply(&asked, &reply, now);
        }
    }

    fn step(&mut self) {
        let number = self.rng.usize(..CLIENT_COUNT);
        match self.rng.usize(..24) {
            0 => {
                // Often enough for keys that get hot to cool down.
                let ms = [40, 400, 2_000, 9_500][self.rng.usize(..4)];
                let ms = self.rng.u64(..ms);
                self.server.pass_ms(ms);
            }
            1 if !self.clients[number].is_cut && self.rng.usize(..4) == 0 => {
                self.server.cut(self.clients[number].holder.peer.conn);
                self.clients[number].is_cut = true;
            }
            2 | 3 if self.clients[number].is_cut => self.reconnect(number),
            4..=9 => {
                for _ in 0..self.rng.usize(..30) {
                    self.server.step();
                }
            }
            10 | 11 => {
                self.collect(number);
                let client = &mut self.clients[number];
                let nos = core::mem::take(&mut client.dropped);
                client.holder.send_ack(&mut self.server, &nos, LeaseNo(0));
            }
            12..=14 => self.collect(number),
            _ if self.clients[number].asked.is_none() && !self.clients[number].is_cut => {
                self.begin(number)
            }
            _ => {
                // Also while its request is not answered, or without a connection.
                let keys: Vec<Key> = self.clients[number].cache.keys().cloned().collect();
                keys.iter().for_each(|key| {
                    self.use_cache(number, key);
                });
                for index in 0..self.dirs.len() {
                    self.use_all_names(number, self.dirs[index]);
                }
            }
        }
    }

    /// A client that connects anew drops everything, says so, and sends its request again.
    fn reconnect(&mut self, number: usize) {
        self.server.run();
        let Self { server, clients, .. } = self;
        let client = &mut clients[number];
        client.is_cut = false;
        client.cache.clear();
        client.all_names.clear();
        client.dropped.clear();
        client.holder.recalls.clear();
        client.holder.reconnect(server);
        let last = client.holder.lease_no_last;
        client.holder.send_ack(server, &[], last);
        if let Some(asked) = &client.asked {
            let flags = request_flag::LEASES | request_flag::RESENT;
            let Asked { op, shard, slot, xid, ref body, .. } = *asked;
            let head = client.holder.peer.head(op, shard, slot);
            client.holder.peer.xid = xid;
            let head = Request { flags, xid: wire::Xid(xid), ..head };
            client.holder.peer.send(server, &head, body, None);
        }
    }
}

impl Client {
    /// A reply renews what has not ended.
    fn renew(&mut self, asked: &Asked, now: Mono) {
        let until = self.holder.sent_at[&asked.xid].after_ms(9_000);
        let cached = self.cache.values_mut().map(|cached| &mut cached.until);
        let names = self.all_names.values_mut().map(|all| &mut all.until);
        cached.chain(names).filter(|ends| now < **ends).for_each(|ends| *ends = until.max(*ends));
    }

    /// Caches what a reply grants.
    fn take_reply(&mut self, asked: &Asked, reply: &Granted, now: Mono) {
        let is_ok = reply.head.status == Status::Ok;
        if let (Some(inode), Some(open_for), true) = (asked.inode, asked.open_for, is_ok)
            && open_for.writes()
        {
            self.writing.insert(inode, HandleId(self.holder.handle_count));
        }
        if is_ok {
            self.change_names(asked);
        }
        let Some(lease) = reply.lease else { return };
        if lease.lease_no <= self.holder.lease_no_max {
            return; // Recalled before it arrived.
        }
        let sent_at = self.holder.sent_at[&asked.xid];
        let until = sent_at.after_ms(u64::from(lease.term_ms) * 9 / 10);
        for attr in &reply.further {
            self.put_attributes(*attr, until, now);
        }
        let cache = &mut self.cache;
        let mut put = |key, value| cache.insert(key, Cached { value, until });
        let attr = match asked.op {
            Op::Lookup | Op::Getattr | Op::Setattr | Op::Open if is_ok => {
                Some(Entry::decode_all(&reply.message).unwrap().attr)
            }
            Op::Create if is_ok => Some(Created::decode_all(&reply.message).unwrap().attr),
            _ => None,
        };
        if let Some((dir, text)) = asked.name
            && lease.granted & lease_flag::NAME != 0
            && asked.op != Op::Rename
        {
            let names = Value::Names(attr.map(|attr| attr.inode));
            put(Key::Name(dir, text.to_string()), names);
        }
        let Some(attr) = attr else { return };
        if lease.granted & lease_flag::ATTRIBUTES != 0 {
            self.put_attributes(attr, until, now);
        }
        let cache = &mut self.cache;
        let mut put = |key, value| cache.insert(key, Cached { value, until });
        if lease.granted & lease_flag::CONTENTS != 0 {
            put(Key::Contents(attr.inode), Value::Contents);
        }
    }

    /// Caches attributes. Those of a directory are the lease of all of its names.
    fn put_attributes(&mut self, attr: Attr, until: Mono, now: Mono) {
        // What it writes itself is at the data shards.
        if !self.writing.contains_key(&attr.inode) {
            let value = Value::Attributes(shown(attr));
            self.cache.insert(Key::Attributes(attr.inode), Cached { value, until });
        }
        match self.all_names.get_mut(&attr.inode).filter(|all| now < all.until) {
            Some(all) => all.until = until,
            None if attr.is_empty_directory() => {
                self.all_names.insert(attr.inode, AllNames { names: BTreeSet::new(), until });
            }
            None => {}
        }
    }

    /// Its own change was executed.
    fn change_names(&mut self, asked: &Asked) {
        let Some((dir, text)) = asked.name else { return };
        let mut set = |dir, text, exists: bool| {
            let Some(all) = self.all_names.get_mut(&dir) else { return };
            if exists {
                all.names.insert(text);
            } else {
                all.names.remove(text);
            }
        };
        match (asked.op, asked.new_name) {
            (Op::Create, _) => set(dir, text, true),
            (Op::Unlink, _) => set(dir, text, false),
            (Op::Rename, Some(new)) if new != (dir, text) => {
                set(dir, text, false);
                set(new.0, new.1, true);
            }
            _ => {}
        }
    }
}

/// Reads by other clients are not told.
fn shown(attr: Attr) -> Attr {
    Attr { atime: wire::Timestamp::default(), ..attr }
}

fn run(seed: u64, rules: Rules) -> usize {
    let mut world = World::new(seed, rules);
    for _ in 0..1500 {
        world.step();
    }
    // Everything that was begun ends.
    for number in 0..CLIENT_COUNT {
        if world.clients[number].is_cut {
            world.reconnect(number);
        }
    }
    for _ in 0..300 {
        world.server.run();
        for number in 0..CLIENT_COUNT {
            world.collect(number);
            let client = &mut world.clients[number];
            let nos = core::mem::take(&mut client.dropped);
            client.holder.send_ack(&mut world.server, &nos, LeaseNo(0));
        }
        world.server.pass_ms(50);
    }
    assert!(world.clients.iter().all(|client| client.asked.is_none()), "all are answered");
    world.hit_count
}

#[test]
fn no_client_ever_answers_from_a_stale_cache() {
    let hit_count: usize = (0..40).map(|seed| run(seed, Rules::default())).sum();
    assert!(hit_count > 2_000, "only {hit_count} answers came from caches");
}

#[cfg(feature = "removable-rules")]
#[test]
fn without_a_rule_a_stale_answer_is_noticed() {
    use std::panic::catch_unwind;
    use wire::Rule;
    for rule in [Rule::LeaseRecall, Rule::LeaseTerm, Rule::LeaseReconnect] {
        let is_noticed = |seed| catch_unwind(|| run(seed, Rules::default().without(rule))).is_err();
        assert!((0..200).any(is_noticed), "{rule:?}");
    }
}
