//! Names behind: what another client's request waits for, and how it goes on.

use super::names_behind::{Scene, behind, now, nth, scene};
use super::*;
use wire::{
    Access, Bytes, Claim, Getxattr, Link, Listxattr, Mkdir, Mknod, Readdir, Rename, RenameHow,
    ReplayDone, Rmdir, SetExport, Setxattr, Squash, SquashedIds, Symlink, Tmpfile, Unlink,
};

impl Holder {
    /// Gives directories back.
    pub(super) fn send_written(&mut self, server: &mut TestServer, inodes: &[InodeNo]) {
        let bytes: Vec<u8> = inodes.iter().flat_map(|inode| inode.to_bytes()).collect();
        let written = List::new(inodes.len() as u32, &bytes);
        let ack = RecallAck { recall_nos: List::new(0, &[]), dropped_until: LeaseNo(0), written };
        let mut frame = Vec::new();
        Header::RecallAck.encode(&mut frame, None, |to| to.write(&ack));
        server.send(self.peer.conn, frame, None);
        server.run();
    }

    fn creates(&mut self, server: &mut TestServer, at: (InodeNo, &str), inode: InodeNo) -> Status {
        let behind = behind(server, inode);
        self.create_behind_in(server, at, behind).head.status
    }
}

/// Each request of another client that names the directory, or something in it.
pub(super) fn requests(dir: InodeNo, file: InodeNo) -> Vec<(Op, Vec<u8>)> {
    let (caller, parent, top) = (ROOT, dir, InodeNo::ROOT);
    let (f, new, d) = (name("f"), name("new"), name("d"));
    let handle = Handle { id: HandleId(77), open_for: OpenFor::Read };
    let (mode, umask, inode) = (0o755, 0, dir);
    let how = RenameHow::Replace;
    let kind = wire::FileKind::Fifo;
    let xattr = Bytes(b"user.k");
    let moves = |parent, name, new_parent, new_name| {
        Rename { caller, parent, name, new_parent, new_name, how }.to_bytes()
    };
    Vec::from([
        (Op::Lookup, Lookup { caller, parent: top, name: d }.to_bytes()),
        (Op::Lookup, Lookup { caller, parent, name: f }.to_bytes()),
        (Op::Getattr, Getattr { inode }.to_bytes()),
        (Op::Setattr, chmod(inode, 0o700).to_bytes()),
        (Op::Create, wire::Create { parent, ..create("new") }.to_bytes()),
        (Op::Mkdir, Mkdir { caller, parent, name: new, mode, umask }.to_bytes()),
        (Op::Symlink, Symlink { caller, parent, name: new, target: Bytes(b"x") }.to_bytes()),
        (Op::Mknod, Mknod { caller, parent, name: new, kind, mode, umask, rdev: 0 }.to_bytes()),
        (Op::Link, Link { caller, inode: file, parent, name: new }.to_bytes()),
        (Op::Unlink, Unlink { caller, parent, name: f, behind: None }.to_bytes()),
        (Op::Rmdir, Rmdir { caller, parent: top, name: d }.to_bytes()),
        (Op::Rmdir, Rmdir { caller, parent, name: f }.to_bytes()),
        (Op::Rename, moves(parent, f, top, new)),
        (Op::Rename, moves(top, name("g"), parent, new)),
        (Op::Rename, moves(top, d, top, new)),
        (Op::Readdir, {
            let listing_bytes_max = 4096;
            Readdir { caller, inode, cookie: 0, listing_bytes_max, attrs: true, handle: None }
                .to_bytes()
        }),
        (Op::Open, wire::Open { caller, inode, handle }.to_bytes()),
        (Op::Access, Access { caller, inode, mask: 1 }.to_bytes()),
        (Op::Getxattr, Getxattr { caller, inode, name: xattr }.to_bytes()),
        (Op::Listxattr, Listxattr { caller, inode }.to_bytes()),
        (Op::Setxattr, Setxattr { caller, inode, name: xattr, value: xattr, flags: 0 }.to_bytes()),
        (Op::Tmpfile, Tmpfile { caller, parent, mode, umask, linkable: true, handle }.to_bytes()),
    ])
}

#[test]
fn whatever_names_the_directory_waits_until_nothing_is_under_way() {
    let count = requests(InodeNo::ROOT, InodeNo::ROOT).len();
    for index in 0..count {
        let Scene { mut server, mut holder, mut other, dir, files } = scene(121);
        other.send(&mut server, Op::Create, 1, &create("g"));
        server.run();
        holder.ack(&mut server);
        let made = other.reply(&mut server);
        let file = Created::decode_all(&made.message).unwrap().attr.inode;
        let (op, body) = requests(dir, file).swap_remove(index);
        let slot = u16::from(op.row().retry == wire::Retry::Once);
        let head =
            Request { flags: request_flag::LEASES, ..other.peer.head(op, dir.shard(), slot) };
        other.peer.send(&mut server, &head, &body, None);
        assert!(!other.has_reply(&mut server), "{op:?} waits");
        assert!(holder.recalled(&mut server).contains(&Key::Writing(dir)), "{op:?}");
        // What was under way is executed first.
        assert_eq!(holder.creates(&mut server, (dir, "f"), nth(files, 0)), Status::Ok, "{op:?}");
        assert!(!other.has_reply(&mut server), "{op:?}");
        holder.ack(&mut server);
        assert_eq!(holder.creates(&mut server, (dir, "g"), nth(files, 1)), Status::Stale);
        if !other.has_reply(&mut server) {
            // It waits for what the create was granted.
            assert!(!holder.recalled(&mut server).is_empty(), "{op:?}");
            holder.ack(&mut server);
            assert!(other.has_reply(&mut server), "{op:?}");
        }
        let reply = other.reply(&mut server);
        assert_eq!(reply.head.op, op);
        let is_seen = matches!(op, Op::Lookup | Op::Unlink);
        assert!(!is_seen || reply.head.status == Status::Ok, "{:?}", reply.head);
    }
}

#[test]
fn its_own_client_waits_for_nothing() {
    let Scene { mut server, mut holder, mut other, dir, .. } = scene(122);
    let file = holder.create(&mut server, "g");
    for (op, body) in requests(dir, file) {
        let slot = u16::from(op.row().retry == wire::Retry::Once);
        let head =
            Request { flags: request_flag::LEASES, ..holder.peer.head(op, dir.shard(), slot) };
        holder.peer.send(&mut server, &head, &body, None);
        assert!(holder.has_reply(&mut server), "{op:?}");
        holder.reply(&mut server);
        assert!(holder.recalled(&mut server).is_empty());
    }
    assert!(other.getattr(&mut server, InodeNo::ROOT).head.status == Status::Ok);
}

#[test]
fn a_change_over_two_shards_waits_for_it() {
    for is_named in [false, true] {
        let mut server = TestServer::new(123);
        server.start(2);
        server.run();
        let mut maker = Holder::new(&mut server, 3);
        let file = maker.create(&mut server, "f");
        // A directory at the other lane's shard, and one in it, which is changed behind.
        let mut dirs = ["p", "q", "r"].map(|text| {
            let parent = InodeNo::ROOT;
            let mkdir = Mkdir { caller: ROOT, parent, name: name(text), mode: 0o777, umask: 0 };
            let made = maker.ask(&mut server, Op::Mkdir, 1, &mkdir);
            Entry::decode_all(&made.message).unwrap().attr.inode
        });
        dirs.sort_by_key(|dir| dir.shard() == InodeNo::ROOT.shard());
        let parent = dirs[0];
        assert_ne!(parent.shard(), InodeNo::ROOT.shard());
        let lane = server.map.lane(parent.shard());
        let fields = HelloFields { server_lane: lane, ..HelloFields::new(1) };
        let mut holder = Holder::unknown(&mut server, fields);
        let handle = Handle { id: HandleId(1), open_for: OpenFor::Read };
        let open = wire::Open { caller: ROOT, inode: parent, handle };
        holder.send_to(&mut server, (Op::Open, parent.shard(), 1), request_flag::LEASES, &open);
        server.run();
        assert_eq!(holder.reply(&mut server).head.status, Status::Ok);
        let mut held = None;
        for text in ["a", "b", "c", "d", "e"] {
            let (dir, made) = holder.mkdir_behind(&mut server, (parent, text));
            if made.granted() & lease_flag::WRITING != 0 {
                assert_eq!(dir.shard(), parent.shard(), "not over several shards");
                held = Some((dir, text, made.new_files.unwrap()));
                break;
            }
        }
        let (dir, text, files) = held.unwrap();
        // Another client moves a file there, or the directory away.
        let mut other = Holder::new(&mut server, 2);
        let (caller, how, top) = (ROOT, RenameHow::NoReplace, InodeNo::ROOT);
        let rename = if is_named {
            let (name, new_name) = (name(text), name("moved"));
            Rename { caller, parent, name, new_parent: top, new_name, how }
        } else {
            let (name, new_name) = (name("f"), name("t"));
            Rename { caller, parent: top, name, new_parent: dir, new_name, how }
        };
        if is_named {
            let fields = HelloFields { server_lane: lane, ..HelloFields::new(2) };
            other = Holder::unknown(&mut server, HelloFields { client_lane: LaneId(1), ..fields });
        }
        let shard = rename.parent.shard();
        other.send_to(&mut server, (Op::Rename, shard, 1), request_flag::LEASES, &rename);
        server.run();
        for _ in 0..200 {
            server.pass_ms(1);
            server.run();
            maker.ack(&mut server);
        }
        assert!(!other.has_reply(&mut server), "{is_named}");
        assert!(holder.recalled(&mut server).contains(&Key::Writing(dir)), "{is_named}");
        assert_eq!(holder.creates(&mut server, (dir, "x"), nth(files, 0)), Status::Ok);
        holder.ack(&mut server);
        for _ in 0..400 {
            server.pass_ms(1);
            server.run();
            holder.ack(&mut server);
            maker.ack(&mut server);
        }
        assert!(other.has_reply(&mut server), "{is_named} {file}");
        assert_eq!(other.reply(&mut server).head.status, Status::Ok);
        assert_eq!(holder.creates(&mut server, (dir, "y"), nth(files, 1)), Status::Stale);
    }
}

#[test]
fn a_silent_holder_loses_its_directories() {
    let Scene { mut server, mut holder, mut other, dir, files } = scene(124);
    let (second, _) = holder.mkdir_behind(&mut server, (InodeNo::ROOT, "e"));
    let seek = |other: &mut Holder, server: &mut TestServer, inode| {
        other.send(server, Op::Getattr, 0, &Getattr { inode });
        other.has_reply(server)
    };
    assert!(!seek(&mut other, &mut server, dir));
    server.pass_ms(9_900);
    assert!(!other.has_reply(&mut server));
    server.pass_ms(200);
    assert_eq!(other.reply(&mut server).head.status, Status::Ok);
    assert_eq!(holder.creates(&mut server, (dir, "f"), nth(files, 0)), Status::Stale);
    let at = now(&server);
    assert_eq!(holder.unlink_behind(&mut server, (dir, "f"), at), Status::Stale);
    // The other one was recalled with the first, and ends a term later.
    let keys = BTreeSet::from([Key::Writing(dir), Key::Writing(second)]);
    assert_eq!(holder.recalled(&mut server), keys);
    assert_eq!(holder.creates(&mut server, (second, "f"), nth(files, 1)), Status::Ok);
    server.pass_ms(9_700);
    assert!(!seek(&mut other, &mut server, second));
    server.pass_ms(400);
    assert!(other.has_reply(&mut server));
    assert_eq!(holder.creates(&mut server, (second, "g"), nth(files, 2)), Status::Stale);
}

#[test]
fn what_is_given_back_needs_no_recall() {
    let Scene { mut server, mut holder, mut other, dir, files } = scene(125);
    holder.send_written(&mut server, &[dir]);
    assert!(other.getattr(&mut server, dir).granted() != 0);
    assert!(holder.recalled(&mut server).is_empty());
    assert_eq!(holder.creates(&mut server, (dir, "f"), nth(files, 0)), Status::Stale);
}

#[test]
fn a_goodbye_ends_it_and_the_numbers() {
    let Scene { mut server, mut holder, mut other, dir, files } = scene(126);
    let head = holder.peer.head(Op::Goodbye, InodeNo::ROOT.shard(), 0);
    holder.peer.send(&mut server, &head, &[], None);
    server.run();
    assert_eq!(holder.reply(&mut server).head.status, Status::Ok);
    assert!(other.getattr(&mut server, dir).granted() != 0);
    holder.reconnect(&mut server);
    holder.open(&mut server, InodeNo::ROOT, OpenFor::Read);
    let (again, made) = holder.mkdir_behind(&mut server, (InodeNo::ROOT, "e"));
    assert_ne!(made.granted() & lease_flag::WRITING, 0);
    let new = made.new_files.unwrap();
    assert_ne!(new.first, files.first);
    assert_eq!(holder.creates(&mut server, (again, "f"), nth(files, 0)), Status::Stale);
    assert_eq!(holder.creates(&mut server, (again, "f"), nth(new, 0)), Status::Ok);
}

#[test]
fn a_removed_directory_is_held_no_more() {
    let Scene { mut server, mut holder, dir, .. } = scene(127);
    let before = server.counters(0).leases.held_count;
    let rmdir = Rmdir { caller: ROOT, parent: InodeNo::ROOT, name: name("d") };
    assert_eq!(holder.ask(&mut server, Op::Rmdir, 1, &rmdir).head.status, Status::Ok);
    assert!(server.lane(0).leases.changed_behind().is_none());
    assert!(server.counters(0).leases.held_count <= before, "{dir}");
    // Also one that another one is moved over.
    let (_, made) = holder.mkdir_behind(&mut server, (InodeNo::ROOT, "from"));
    assert_ne!(made.granted() & lease_flag::WRITING, 0);
    let (kept, _) = holder.mkdir_behind(&mut server, (InodeNo::ROOT, "to"));
    let how = RenameHow::Replace;
    let (parent, new_parent) = (InodeNo::ROOT, InodeNo::ROOT);
    let (name, new_name) = (name("to"), name("from"));
    let rename = Rename { caller: ROOT, parent, name, new_parent, new_name, how };
    assert_eq!(holder.ask(&mut server, Op::Rename, 1, &rename).head.status, Status::Ok);
    let held = server.lane(0).leases.changed_behind().unwrap();
    assert_eq!(held.keys().copied().collect::<Vec<_>>(), [kept]);
}

#[test]
fn an_export_that_replaces_ids_is_granted_nothing() {
    let mut server = started(128);
    let administers = HelloFields { purpose: wire::Purpose::Administer, ..HelloFields::new(9) };
    let mut administrator = Holder::unknown(&mut server, administers);
    let export = wire::Export {
        id: 7,
        name: Bytes(b"part"),
        root: InodeNo::ROOT,
        path: Bytes(b"/"),
        read_only: false,
        squash: Squash { ids: SquashedIds::All, anon_uid: 0, anon_gid: 0 },
        closed: false,
    };
    let set = SetExport { export, replace: true };
    assert_eq!(administrator.ask(&mut server, Op::SetExport, 0, &set).head.status, Status::Ok);
    let fields = HelloFields { export: "part", ..HelloFields::new(1) };
    let mut bound = Holder::unknown(&mut server, fields);
    bound.open(&mut server, InodeNo::ROOT, OpenFor::Read);
    for text in ["first", "second"] {
        let (_, made) = bound.mkdir_behind(&mut server, (InodeNo::ROOT, text));
        assert_eq!((made.lease, made.new_files), (None, None));
    }
}

/// Ends the replays of a client at all shards of its lane.
fn come_back(server: &mut TestServer, holder: &mut Holder, claim_count: u32) {
    holder.reconnect(server);
    let counts = server.map.shard_counts();
    let metas = (0..counts.meta).map(ShardId::meta);
    for shard in metas.chain((0..counts.data).map(ShardId::data)) {
        let is_first = shard == InodeNo::ROOT.shard();
        let done = ReplayDone { reopen_count: if is_first { claim_count } else { 0 } };
        holder.send_to(server, (Op::ReplayDone, shard, 0), 0, &done);
    }
    server.run();
    holder.collect(server);
    holder.replies.clear();
    holder.lease_no_last = LeaseNo(0);
}

fn claims(server: &mut TestServer, holder: &mut Holder, claim: Claim) -> Status {
    holder.send_to(server, (Op::Claim, claim.inode.shard(), 0), 0, &claim);
    assert!(holder.has_reply(server));
    let mut replies = holder.replies.drain(..);
    replies.find(|reply| reply.head.op == Op::Claim).unwrap().head.status
}

/// The server has been started anew, and both clients have something to say.
fn restarted(seed: u64) -> Scene {
    restarted_with(seed, |_| {})
}

/// The same, with other limits.
fn restarted_with(seed: u64, change: impl FnOnce(&mut TestServer)) -> Scene {
    let mut scene = scene(seed);
    let Scene { server, holder, other, dir, files } = &mut scene;
    assert_eq!(holder.creates(server, (*dir, "before"), nth(*files, 0)), Status::Ok);
    server.pass_ms(1000);
    server.run();
    assert!(other.getattr(server, InodeNo::ROOT).head.status == Status::Ok);
    server.crash();
    change(server);
    server.start(1);
    server.run();
    scene
}

#[test]
fn a_directory_is_claimed_before_recovery_is_over() {
    let Scene { mut server, mut holder, mut other, dir, files } = restarted(129);
    come_back(&mut server, &mut other, 0);
    come_back(&mut server, &mut holder, 1);
    other.send(&mut server, Op::Getattr, 0, &Getattr { inode: dir });
    assert!(!other.has_reply(&mut server), "recovery waits for the claim");
    let claim = Claim { inode: dir, first: nth(files, 3), count: 4 };
    assert_eq!(claims(&mut server, &mut holder, claim), Status::Ok);
    assert!(!other.has_reply(&mut server), "creates may be under way");
    assert_eq!(holder.recalled(&mut server), BTreeSet::from([Key::Writing(dir)]));
    assert_eq!(claims(&mut server, &mut holder, claim), Status::Ok, "it is asked again");
    assert_eq!(holder.creates(&mut server, (dir, "f"), nth(files, 6)), Status::Ok);
    assert_eq!(holder.creates(&mut server, (dir, "g"), nth(files, 3)), Status::Ok);
    assert_eq!(holder.creates(&mut server, (dir, "h"), nth(files, 3)), Status::Stale);
    assert_eq!(holder.creates(&mut server, (dir, "h"), nth(files, 7)), Status::Stale);
    let at = now(&server);
    assert_eq!(holder.unlink_behind(&mut server, (dir, "f"), at), Status::Ok);
    holder.ack(&mut server);
    assert!(other.has_reply(&mut server));
    assert_eq!(claims(&mut server, &mut holder, claim), Status::Stale, "it is not held any more");
}

#[test]
fn a_claim_is_refused_of_what_cannot_be_the_clients() {
    let Scene { mut server, mut holder, mut other, dir, files } = restarted(130);
    come_back(&mut server, &mut holder, 8);
    let file = nth(files, 0);
    let next = InodeNo::new(0, 1 << 39);
    let other_shard = InodeNo::new(1, 5);
    for (inode, first, count) in [
        (file, file, 1),
        (dir, next, 1),
        (dir, other_shard, 1),
        (dir, InodeNo(0), 1),
        (dir, InodeNo(u64::MAX), u32::MAX),
        (dir, nth(files, 0), 65_537),
    ] {
        let claim = Claim { inode, first, count };
        assert_eq!(claims(&mut server, &mut holder, claim), Status::Stale, "{claim:?}");
    }
    let claim = Claim { inode: dir, first: InodeNo(0), count: 0 };
    assert_eq!(claims(&mut server, &mut holder, claim), Status::Ok, "removals alone");
    come_back(&mut server, &mut other, 0);
    assert_eq!(claims(&mut server, &mut other, claim), Status::Stale, "another client has it");
}

#[test]
fn nothing_is_claimed_after_recovery_and_no_number_is_given_twice() {
    let Scene { mut server, mut holder, mut other, dir, files } = restarted(131);
    come_back(&mut server, &mut other, 0);
    come_back(&mut server, &mut holder, 0);
    assert!(other.getattr(&mut server, dir).head.status == Status::Ok);
    let claim = Claim { inode: dir, first: nth(files, 3), count: 4 };
    assert_eq!(claims(&mut server, &mut holder, claim), Status::Stale);
    assert_eq!(holder.creates(&mut server, (dir, "f"), nth(files, 3)), Status::Stale);
    let mut firsts = BTreeSet::from([files.first]);
    let mut last = nth(files, 1024);
    for round in 0..3 {
        // Numbers that were given and not used, and ones that were lost.
        holder.mkdir_behind(&mut server, (InodeNo::ROOT, &format!("a{round}")));
        let (dir, made) = holder.mkdir_behind(&mut server, (InodeNo::ROOT, &format!("b{round}")));
        let files = made.new_files.unwrap();
        assert!(files.first > last);
        last = nth(files, 1024);
        assert!(firsts.insert(files.first));
        assert_eq!(holder.creates(&mut server, (dir, "f"), nth(files, 1023)), Status::Ok);
        server.crash_losing_all();
        server.start(1);
        server.run();
        come_back(&mut server, &mut other, 0);
        come_back(&mut server, &mut holder, 0);
    }
}

#[test]
fn a_silent_claimant_is_fenced_as_any_holder() {
    let Scene { mut server, mut holder, mut other, dir, files } = restarted(132);
    come_back(&mut server, &mut other, 0);
    come_back(&mut server, &mut holder, 1);
    let claim = Claim { inode: dir, first: nth(files, 3), count: 4 };
    assert_eq!(claims(&mut server, &mut holder, claim), Status::Ok);
    other.send(&mut server, Op::Getattr, 0, &Getattr { inode: dir });
    assert!(!other.has_reply(&mut server));
    server.pass_ms(10_100);
    assert!(other.has_reply(&mut server));
    assert_eq!(holder.creates(&mut server, (dir, "f"), nth(files, 3)), Status::Stale);
}

#[test]
fn without_leases_a_silent_claimant_is_fenced_after_a_while() {
    let Scene { mut server, mut holder, mut other, dir, files } =
        restarted_with(135, |server| server.limits.lease_term_ms = 0);
    come_back(&mut server, &mut other, 0);
    come_back(&mut server, &mut holder, 1);
    let claim = Claim { inode: dir, first: nth(files, 3), count: 4 };
    assert_eq!(claims(&mut server, &mut holder, claim), Status::Ok);
    other.send(&mut server, Op::Getattr, 0, &Getattr { inode: dir });
    server.pass_ms(9_000);
    assert!(!other.has_reply(&mut server));
    assert_eq!(holder.creates(&mut server, (dir, "f"), nth(files, 3)), Status::Ok);
    server.pass_ms(10_100);
    assert!(other.has_reply(&mut server));
    assert_eq!(holder.creates(&mut server, (dir, "g"), nth(files, 4)), Status::Stale);
}

#[test]
fn a_directory_that_its_client_opens_and_closes_stays_its_own() {
    let Scene { mut server, mut holder, dir, files, .. } = scene(133);
    let handle = Handle { id: HandleId(71), open_for: OpenFor::Read };
    let open = wire::Open { caller: ROOT, inode: dir, handle };
    assert_eq!(holder.ask(&mut server, Op::Open, 1, &open).head.status, Status::Ok);
    let close = wire::Close { inode: dir, handle: handle.id };
    assert_eq!(holder.ask(&mut server, Op::Close, 1, &close).head.status, Status::Ok);
    assert_eq!(holder.creates(&mut server, (dir, "f"), nth(files, 0)), Status::Ok);
}

#[test]
fn a_holder_is_not_fenced_for_what_a_freeze_holds_up() {
    let Scene { mut server, mut holder, mut other, dir, files } = scene(134);
    let fields = HelloFields { purpose: wire::Purpose::Administer, ..HelloFields::new(9) };
    let mut admin = Peer::new(&mut server, &fields);
    let freeze = |server: &mut TestServer, admin: &mut Peer, lease_ms| {
        let frozen = admin.ask(server, Op::Freeze, 0, &wire::Freeze { lease_ms });
        assert_eq!(frozen.head.status, Status::Ok);
    };
    freeze(&mut server, &mut admin, wire::FREEZE_MS_MAX);
    let behind = Some(behind(&server, nth(files, 0)));
    let body = wire::Create { parent: dir, behind, ..create("f") };
    let flags = request_flag::LEASES | request_flag::BEHIND;
    holder.send_to(&mut server, (Op::Create, dir.shard(), 1), flags, &body);
    other.send(&mut server, Op::Getattr, 0, &Getattr { inode: dir });
    server.pass_ms(25_000);
    server.run();
    assert!(!other.has_reply(&mut server), "the holder is waited for");
    freeze(&mut server, &mut admin, 0);
    server.run();
    assert_eq!(holder.reply(&mut server).head.status, Status::Ok);
    assert!(!other.has_reply(&mut server));
    holder.send_written(&mut server, &[dir]);
    assert!(other.has_reply(&mut server));
}
