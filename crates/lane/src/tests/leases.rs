//! Leases: what conflicts with them, how they are recalled, and how they end.

mod barriers;
mod conflicts;
mod ends;
mod grants;
mod made;
mod named;
mod names_behind;
mod names_behind_ends;
mod opened;
mod pages;
mod participants;
mod random;
mod read_only;
mod records;
mod restarts;
mod settling;
mod traces;
mod writing;

use crate::test_server::TestServer;
use crate::tests::peer::{HelloFields, Peer, ROOT, create, name};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use interface::Mono;
use wire::{
    Attr, Created, Entry, Getattr, Handle, HandleId, Header, InodeNo, LaneId, Layout, LeaseGrant,
    LeaseKey, LeaseNo, List, Lookup, NewFiles, Op, OpenFor, Recall, RecallAck, RecallNo, Reply,
    ReplyParts, Request, Setattr, ShardId, Status, Wire, lease_flag, reply_flag, request_flag,
};

/// A key in the words of the tests.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Key {
    Attributes(InodeNo),
    Name(InodeNo, String),
    Contents(InodeNo),
    Pages(InodeNo),
    Writing(InodeNo),
    All,
}

impl From<LeaseKey<'_>> for Key {
    fn from(key: LeaseKey<'_>) -> Self {
        match key {
            LeaseKey::Attributes(inode) => Self::Attributes(inode),
            LeaseKey::Contents(inode) => Self::Contents(inode),
            LeaseKey::Name(dir, name) => {
                Self::Name(dir, String::from_utf8(name.bytes().to_vec()).unwrap())
            }
            LeaseKey::Writing(inode) => Self::Writing(inode),
            LeaseKey::Pages(inode) => Self::Pages(inode),
            LeaseKey::All => Self::All,
        }
    }
}

fn root_name(text: &str) -> Key {
    Key::Name(InodeNo::ROOT, text.to_string())
}

/// A recall that has reached a client.
#[derive(Clone, Debug)]
struct Recalled {
    recall_no: RecallNo,
    lease_no_max: LeaseNo,
    keys: BTreeSet<Key>,
}

/// A reply with what it grants.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    pub(super) head: Reply,
    pub(super) message: Vec<u8>,
    lease: Option<LeaseGrant>,
    further: Vec<Attr>,
    new_files: Option<NewFiles>,
    named: Option<[Option<InodeNo>; 2]>,
}

impl Granted {
    /// What is granted; named inodes grant nothing.
    pub(super) fn granted(&self) -> u8 {
        self.lease.map_or(0, |lease| lease.granted & !lease_flag::NAMED_INODES)
    }

    /// The attributes of this inode, if they are granted beside the message.
    fn further(&self, inode: InodeNo) -> Option<Attr> {
        self.further.iter().copied().find(|attr| attr.inode == inode)
    }
}

/// A client lane that asks for leases.
pub(super) struct Holder {
    fields: HelloFields,
    pub(super) peer: Peer,
    /// When each request was sent.
    sent_at: BTreeMap<u64, Mono>,
    recalls: Vec<Recalled>,
    pub(super) replies: Vec<Granted>,
    /// What its requests state.
    pub(super) layout: Layout,
    lease_no_max: LeaseNo,
    lease_no_last: LeaseNo,
    handle_count: u64,
}

impl Holder {
    /// Connects to lane 0, unless the fields name another, without opening anything.
    pub(super) fn unknown(server: &mut TestServer, fields: HelloFields) -> Self {
        let peer = Peer::new(server, &fields);
        Self {
            fields,
            peer,
            sent_at: BTreeMap::new(),
            recalls: Vec::new(),
            replies: Vec::new(),
            layout: Layout::DEFAULT,
            lease_no_max: LeaseNo(0),
            lease_no_last: LeaseNo(0),
            handle_count: 0,
        }
    }

    /// A client that the next recovery will await.
    fn new(server: &mut TestServer, client: u8) -> Self {
        let mut holder = Self::unknown(server, HelloFields::new(client));
        let opened = holder.open(server, InodeNo::ROOT, OpenFor::Read);
        assert_eq!(opened.head.status, Status::Ok);
        holder
    }

    fn send<'a>(&mut self, server: &mut TestServer, op: Op, slot: u16, body: &impl Wire<'a>) {
        self.send_to(server, (op, InodeNo::ROOT.shard(), slot), request_flag::LEASES, body);
    }

    pub(super) fn send_to<'a>(
        &mut self,
        server: &mut TestServer,
        (op, shard, slot): (Op, ShardId, u16),
        flags: u16,
        body: &impl Wire<'a>,
    ) {
        let head = self.peer.head(op, shard, slot);
        let layout = head.layout.map(|_| self.layout);
        let head = Request { flags, layout, ..head };
        self.sent_at.insert(head.xid.0, server.now.mono);
        self.peer.send(server, &head, &body.to_bytes(), None);
    }

    /// Takes what has arrived.
    pub(super) fn collect(&mut self, server: &mut TestServer) {
        for received in server.take(self.peer.conn) {
            let (head, body) = Header::decode(&received.frame).unwrap();
            match head {
                Header::Recall => {
                    let recall = Recall::decode_all(body).unwrap();
                    self.lease_no_max = self.lease_no_max.max(recall.lease_no_max);
                    let keys = recall.keys.iter().map(Key::from).collect();
                    let Recall { recall_no, lease_no_max, .. } = recall;
                    self.recalls.push(Recalled { recall_no, lease_no_max, keys });
                }
                Header::Reply(head) => {
                    let parts = ReplyParts::split(&head, body).unwrap();
                    let further = parts.further_attributes().unwrap();
                    let ReplyParts { message, lease, new_files, .. } = parts;
                    if let Some(lease) = lease.filter(|lease| lease.lease_no > LeaseNo(0)) {
                        assert!(lease.lease_no > self.lease_no_last, "numbers rise");
                        self.lease_no_last = lease.lease_no;
                    }
                    let (message, named) = (message.to_vec(), parts.named.map(|named| named.0));
                    self.replies.push(Granted { head, message, lease, further, new_files, named });
                }
                _ => {}
            }
        }
    }

    /// Sends a request and waits for its reply, which must come.
    fn ask<'a>(
        &mut self,
        server: &mut TestServer,
        op: Op,
        slot: u16,
        body: &impl Wire<'a>,
    ) -> Granted {
        self.send(server, op, slot, body);
        server.run();
        self.reply(server)
    }

    #[track_caller]
    pub(super) fn reply(&mut self, server: &mut TestServer) -> Granted {
        self.collect(server);
        assert_eq!(self.replies.len(), 1, "one reply");
        self.replies.remove(0)
    }

    pub(super) fn has_reply(&mut self, server: &mut TestServer) -> bool {
        server.run();
        self.collect(server);
        !self.replies.is_empty()
    }

    /// The keys of all recalls that are not acknowledged.
    pub(super) fn recalled(&mut self, server: &mut TestServer) -> BTreeSet<Key> {
        self.collect(server);
        self.recalls.iter().flat_map(|recall| recall.keys.iter().cloned()).collect()
    }

    /// Acknowledges all recalls, with one frame.
    pub(super) fn ack(&mut self, server: &mut TestServer) {
        self.collect(server);
        let nos: Vec<RecallNo> = self.recalls.drain(..).map(|recall| recall.recall_no).collect();
        self.send_ack(server, &nos, LeaseNo(0));
        server.run();
    }

    fn send_ack(&self, server: &mut TestServer, nos: &[RecallNo], dropped_until: LeaseNo) {
        let bytes: Vec<u8> = nos.iter().flat_map(|no| no.to_bytes()).collect();
        let recall_nos = List::new(nos.len() as u32, &bytes);
        let mut frame = Vec::new();
        let ack = RecallAck { recall_nos, dropped_until, written: List::new(0, &[]) };
        Header::RecallAck.encode(&mut frame, None, |to| to.write(&ack));
        server.send(self.peer.conn, frame, None);
    }

    /// Connects anew.
    fn reconnect(&mut self, server: &mut TestServer) {
        self.fields.conn_epoch += 1;
        let xid = self.peer.xid;
        self.peer = Peer::new(server, &self.fields);
        self.peer.xid = xid;
    }

    fn ping(&mut self, server: &mut TestServer) {
        let head = self.peer.head(Op::Ping, InodeNo::ROOT.shard(), 0);
        self.peer.send(server, &head, &[], None);
        server.run();
        self.reply(server);
    }

    fn lookup(&mut self, server: &mut TestServer, text: &str) -> Granted {
        let lookup = Lookup { caller: ROOT, parent: InodeNo::ROOT, name: name(text) };
        self.ask(server, Op::Lookup, 0, &lookup)
    }

    fn getattr(&mut self, server: &mut TestServer, inode: InodeNo) -> Granted {
        self.ask(server, Op::Getattr, 0, &Getattr { inode })
    }

    fn open(&mut self, server: &mut TestServer, inode: InodeNo, open_for: OpenFor) -> Granted {
        self.handle_count += 1;
        let handle = Handle { id: HandleId(self.handle_count), open_for };
        self.ask(server, Op::Open, 1, &wire::Open { caller: ROOT, inode, handle })
    }

    fn create(&mut self, server: &mut TestServer, text: &str) -> InodeNo {
        let made = self.ask(server, Op::Create, 1, &create(text));
        assert_eq!(made.head.status, Status::Ok);
        Created::decode_all(&made.message).unwrap().attr.inode
    }
}

fn chmod(inode: InodeNo, mode: u32) -> Setattr<'static> {
    Setattr {
        caller: ROOT,
        inode,
        mode: Some(mode),
        uid: None,
        gid: None,
        atime: wire::SetTime::Keep,
        mtime: wire::SetTime::Keep,
        clears: wire::ClearPrivileges::Nothing,
    }
}

fn mode_of(granted: &Granted) -> u32 {
    Entry::decode_all(&granted.message).unwrap().attr.mode
}

/// A server of one lane that leaves new directories where they are made.
fn started(seed: u64) -> TestServer {
    let mut server = TestServer::new(seed);
    server.limits.spread_depth = 0;
    server.start(1);
    server.run();
    server
}

/// A file of the first client, and both clients.
fn two(server: &mut TestServer) -> (Holder, Holder, InodeNo) {
    let mut first = Holder::new(server, 1);
    let file = first.create(server, "f");
    let second = Holder::new(server, 2);
    (first, second, file)
}
