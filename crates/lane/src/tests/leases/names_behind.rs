//! Names behind: a client changes the names of a directory that it has made before the server has
//! executed that, with inode numbers and times of its own. Who is granted that, and what is executed.

use super::*;
use wire::{
    Bytes, CreateBehind, FileKind, Layout, Mkdir, Readdir, Removexattr, Setxattr, Timestamp, Unlink,
};

pub(super) const BEHIND: u16 = request_flag::LEASES | request_flag::BEHIND;

impl Holder {
    /// Makes a directory, and asks to change its names behind.
    pub(super) fn mkdir_behind(
        &mut self,
        server: &mut TestServer,
        (parent, text): (InodeNo, &str),
    ) -> (InodeNo, Granted) {
        let name = name(text);
        let mkdir = Mkdir { caller: ROOT, parent, name, mode: 0o755, umask: 0 };
        self.send_to(server, (Op::Mkdir, parent.shard(), 1), BEHIND, &mkdir);
        server.run();
        let made = self.reply(server);
        assert_eq!(made.head.status, Status::Ok);
        (Entry::decode_all(&made.message).unwrap().attr.inode, made)
    }

    /// The same beside another client, which caches what the directory is made in.
    pub(super) fn mkdir_beside(
        &mut self,
        server: &mut TestServer,
        other: &mut Self,
        text: &str,
    ) -> (InodeNo, Granted) {
        let (parent, name) = (InodeNo::ROOT, name(text));
        let mkdir = Mkdir { caller: ROOT, parent, name, mode: 0o755, umask: 0 };
        self.send_to(server, (Op::Mkdir, parent.shard(), 1), BEHIND, &mkdir);
        server.run();
        other.ack(server);
        let made = self.reply(server);
        assert_eq!(made.head.status, Status::Ok);
        (Entry::decode_all(&made.message).unwrap().attr.inode, made)
    }

    /// Creates a file behind, and opens it for writing.
    pub(super) fn create_behind_in(
        &mut self,
        server: &mut TestServer,
        (dir, text): (InodeNo, &str),
        behind: CreateBehind,
    ) -> Granted {
        let handle = Some(Handle { id: HandleId(behind.inode.0), open_for: OpenFor::Write });
        let body = wire::Create { parent: dir, handle, behind: Some(behind), ..create(text) };
        self.send_to(server, (Op::Create, dir.shard(), 1), BEHIND, &body);
        server.run();
        self.reply(server)
    }

    pub(super) fn unlink_behind(
        &mut self,
        server: &mut TestServer,
        (dir, text): (InodeNo, &str),
        at: Timestamp,
    ) -> Status {
        let unlink = Unlink { caller: ROOT, parent: dir, name: name(text), behind: Some(at) };
        self.send_to(server, (Op::Unlink, dir.shard(), 1), BEHIND, &unlink);
        server.run();
        self.reply(server).head.status
    }

    fn attr(&mut self, server: &mut TestServer, inode: InodeNo) -> Attr {
        let shown = self.getattr(server, inode);
        Entry::decode_all(&shown.message).unwrap().attr
    }
}

pub(super) fn now(server: &TestServer) -> Timestamp {
    Timestamp::from_ns(server.now.wall_ns)
}

pub(super) fn behind(server: &TestServer, inode: InodeNo) -> CreateBehind {
    CreateBehind { inode, at: now(server) }
}

/// A number behind this one.
pub(super) fn nth(files: NewFiles, index: u64) -> InodeNo {
    InodeNo(files.first.0 + index)
}

/// A directory whose names the first client may change behind, numbers for its files, and another
/// client.
pub(super) struct Scene {
    pub(super) server: TestServer,
    pub(super) holder: Holder,
    pub(super) other: Holder,
    pub(super) dir: InodeNo,
    pub(super) files: NewFiles,
}

pub(super) fn scene(seed: u64) -> Scene {
    scene_on(started(seed))
}

pub(super) fn scene_on(mut server: TestServer) -> Scene {
    let mut holder = Holder::new(&mut server, 1);
    // The first one asks for the free space.
    let (_, made) = holder.mkdir_behind(&mut server, (InodeNo::ROOT, "first"));
    assert_eq!((made.granted() & lease_flag::WRITING, made.new_files), (0, None));
    let (dir, made) = holder.mkdir_behind(&mut server, (InodeNo::ROOT, "d"));
    assert_ne!(made.granted() & lease_flag::WRITING, 0);
    let files = made.new_files.unwrap();
    let other = Holder::new(&mut server, 2);
    Scene { server, holder, other, dir, files }
}

#[test]
fn a_new_directory_is_granted_with_numbers_of_its_shard_once() {
    let Scene { mut server, mut holder, mut other, dir, files } = scene(101);
    assert_eq!((files.first.shard(), files.count), (dir.shard(), 1024));
    assert_eq!(files.layout, Layout::DEFAULT);
    let counts = server.counters(0).leases;
    // Another one of the same session has the same numbers, one of another client others.
    let (_, made) = holder.mkdir_behind(&mut server, (InodeNo::ROOT, "e"));
    assert_ne!(made.granted() & lease_flag::WRITING, 0);
    assert_eq!(made.new_files, None);
    let after = server.counters(0).leases;
    assert!(after.held_count > counts.held_count && after.granted_count > counts.granted_count);
    let (_, made) = other.mkdir_beside(&mut server, &mut holder, "o");
    let others = made.new_files.unwrap();
    assert!(others.first > nth(files, 1023));
    // What the server numbers itself is none of them.
    let made = other.create(&mut server, "own");
    assert!(made >= nth(others, 1024));
}

#[test]
fn a_directory_is_not_granted_unasked_or_without_room() {
    let mut server = started(102);
    server.limits.credits = 80;
    let mut holder = Holder::new(&mut server, 1);
    holder.mkdir_behind(&mut server, (InodeNo::ROOT, "first"));
    let mkdir =
        Mkdir { caller: ROOT, parent: InodeNo::ROOT, name: name("u"), mode: 0o755, umask: 0 };
    let unasked = holder.ask(&mut server, Op::Mkdir, 1, &mkdir);
    assert_eq!((unasked.granted() & lease_flag::WRITING, unasked.new_files), (0, None));
    for number in 0..4096 {
        let (_, made) = holder.mkdir_behind(&mut server, (InodeNo::ROOT, &format!("d{number}")));
        assert_ne!(made.granted() & lease_flag::WRITING, 0, "{number}");
    }
    let (_, made) = holder.mkdir_behind(&mut server, (InodeNo::ROOT, "full"));
    assert_eq!(made.granted() & lease_flag::WRITING, 0);
}

#[test]
fn a_directory_with_extended_attributes_or_spread_files_is_not_granted() {
    let Scene { mut server, mut holder, dir, .. } = scene(103);
    let layout = Setxattr {
        caller: ROOT,
        inode: dir,
        name: Bytes(Layout::XATTR),
        value: Bytes(b"unit=1M,count=1"),
        flags: 0,
    };
    assert_eq!(holder.ask(&mut server, Op::Setxattr, 1, &layout).head.status, Status::Ok);
    let (_, made) = holder.mkdir_behind(&mut server, (dir, "inherits"));
    assert_eq!(made.granted() & lease_flag::WRITING, 0);
    let (_, made) = holder.mkdir_behind(&mut server, (InodeNo::ROOT, "does not"));
    assert_ne!(made.granted() & lease_flag::WRITING, 0);

    let mut server = TestServer::new(104);
    server.limits.spread_depth = 0;
    server.layout = Layout { stripe_unit_bytes: 1 << 20, stripe_count: 4, narrow: false };
    server.start(1);
    server.lane_mut(0).metas.iter_mut().for_each(|shard| shard.set_part_counts(Vec::from([4])));
    server.run();
    let mut holder = Holder::new(&mut server, 1);
    holder.mkdir_behind(&mut server, (InodeNo::ROOT, "first"));
    let (_, made) = holder.mkdir_behind(&mut server, (InodeNo::ROOT, "d"));
    assert_eq!((made.granted() & lease_flag::WRITING, made.new_files), (0, None));
}

#[test]
fn files_get_the_number_and_the_time_of_the_answer() {
    let Scene { mut server, mut holder, dir, files, .. } = scene(105);
    server.pass_ms(2000);
    let later = CreateBehind { inode: nth(files, 1), at: now(&server) };
    let earlier = CreateBehind { inode: nth(files, 0), at: Timestamp { nanos: 7, ..later.at } };
    server.pass_ms(2000);
    let made = holder.create_behind_in(&mut server, (dir, "b"), later);
    let granted = lease_flag::WRITING | lease_flag::NAME | lease_flag::ATTRIBUTES;
    assert_eq!((made.head.status, made.granted()), (Status::Ok, granted));
    let attr = Created::decode_all(&made.message).unwrap().attr;
    assert_eq!((attr.inode, attr.atime, attr.mtime, attr.ctime), {
        (later.inode, later.at, later.at, later.at)
    });
    let shown = made.further(dir).unwrap();
    assert_eq!((shown.mtime, shown.ctime), (later.at, later.at));
    // One that was answered before it is executed behind it.
    let made = holder.create_behind_in(&mut server, (dir, "a"), earlier);
    assert_eq!(Created::decode_all(&made.message).unwrap().attr.mtime, earlier.at);
    let shown = made.further(dir).unwrap();
    assert_eq!((shown.mtime, shown.ctime), (later.at, later.at), "no time is lowered");
    // The future is no time of an answer.
    let at = Timestamp { secs: later.at.secs + 1_000_000, nanos: 0 };
    let early = CreateBehind { inode: nth(files, 2), at };
    let before = now(&server);
    let made = holder.create_behind_in(&mut server, (dir, "c"), early);
    let attr = Created::decode_all(&made.message).unwrap().attr;
    assert!((before..=now(&server)).contains(&attr.mtime));
    assert_eq!(made.further(dir).unwrap().mtime, attr.mtime);
    // But one that was set to the future ends with the next change, as ever.
    let set = Setattr { mtime: wire::SetTime::At(at), ..chmod(dir, 0o755) };
    assert_eq!(holder.ask(&mut server, Op::Setattr, 1, &set).head.status, Status::Ok);
    assert_eq!(holder.attr(&mut server, dir).mtime, at);
    let (last, inode) = (now(&server), nth(files, 3));
    holder.create_behind_in(&mut server, (dir, "e"), CreateBehind { inode, at: last });
    assert_eq!(holder.attr(&mut server, dir).mtime, last);
}

#[test]
fn a_removal_has_the_time_of_the_answer() {
    let Scene { mut server, mut holder, dir, files, .. } = scene(106);
    let (first, file) = (behind(&server, nth(files, 0)), nth(files, 0));
    holder.create_behind_in(&mut server, (dir, "a"), first);
    server.pass_ms(3000);
    let at = now(&server);
    server.pass_ms(3000);
    assert_eq!(holder.unlink_behind(&mut server, (dir, "a"), at), Status::Ok);
    let (shown, kept) = (holder.attr(&mut server, dir), holder.attr(&mut server, file));
    assert_eq!((shown.mtime, shown.ctime), (at, at));
    assert_eq!((kept.nlink, kept.ctime), (0, at), "it is open still");
    assert_eq!(holder.unlink_behind(&mut server, (dir, "a"), at), Status::NotFound);
    // One that was answered before lowers nothing.
    let (second, file) = (behind(&server, nth(files, 1)), nth(files, 1));
    holder.create_behind_in(&mut server, (dir, "b"), second);
    assert_eq!(holder.unlink_behind(&mut server, (dir, "b"), at), Status::Ok);
    assert_eq!(holder.attr(&mut server, file).ctime, second.at);
    assert_eq!(holder.attr(&mut server, dir).mtime, second.at);
}

#[test]
fn a_number_is_chosen_once_by_the_client_that_has_it() {
    let Scene { mut server, mut holder, mut other, dir, files } = scene(107);
    let create = |holder: &mut Holder, server: &mut TestServer, at: (InodeNo, &str), inode| {
        let behind = behind(server, inode);
        holder.create_behind_in(server, at, behind).head.status
    };
    let (theirs, made) = other.mkdir_beside(&mut server, &mut holder, "o");
    let others = made.new_files.unwrap();
    let (h, s) = (&mut holder, &mut server);
    let foreign = [nth(others, 0), dir, InodeNo::ROOT, InodeNo(0), InodeNo(u64::MAX)];
    for inode in foreign.into_iter().chain([nth(others, 1024), InodeNo(files.first.0 - 1)]) {
        assert_eq!(create(h, s, (dir, "f"), inode), Status::Stale, "{inode}");
    }
    assert_eq!(create(h, s, (dir, "f"), nth(files, 5)), Status::Ok);
    assert_eq!(create(h, s, (dir, "g"), nth(files, 5)), Status::Stale, "it is used");
    assert_eq!(create(h, s, (dir, "f"), nth(files, 6)), Status::Stale, "the name exists");
    assert_eq!(create(h, s, (dir, "g"), nth(files, 6)), Status::Stale, "and the number was used");
    let at = now(s);
    assert_eq!(h.unlink_behind(s, (dir, "f"), at), Status::Ok);
    let close = wire::Close { inode: nth(files, 5), handle: HandleId(nth(files, 5).0) };
    assert_eq!(h.ask(s, Op::Close, 1, &close).head.status, Status::Ok);
    assert_eq!(create(h, s, (dir, "f"), nth(files, 5)), Status::Stale, "never again");
    assert_eq!(create(h, s, (dir, "f"), nth(files, 4)), Status::Ok, "in any order");
    // Nobody's directory is another one's.
    assert_eq!(create(h, s, (theirs, "f"), nth(files, 7)), Status::Stale);
    assert_eq!(create(h, s, (InodeNo::ROOT, "f"), nth(files, 8)), Status::Stale);
    assert_eq!(other.lookup(s, "f").head.status, Status::NotFound);
    assert_eq!(create(&mut other, s, (theirs, "f"), nth(others, 1)), Status::Ok);
}

#[test]
fn further_numbers_come_when_half_are_used_and_the_oldest_end() {
    let Scene { mut server, mut holder, dir, files, .. } = scene(108);
    let mut all = Vec::from([files]);
    for round in 0..4 {
        let files = *all.last().unwrap();
        for index in [0, 511, 512, 513] {
            let text = format!("{round}-{index}");
            let behind = behind(&server, nth(files, index));
            let made = holder.create_behind_in(&mut server, (dir, &text), behind);
            assert_eq!(made.head.status, Status::Ok);
            assert_eq!(made.new_files.is_some(), index == 512, "{round} {index}");
            all.extend(made.new_files);
        }
    }
    let firsts: BTreeSet<InodeNo> = all.iter().map(|files| files.first).collect();
    assert_eq!((all.len(), firsts.len()), (5, 5));
    let mut create = |text, inode| {
        let behind = behind(&server, inode);
        holder.create_behind_in(&mut server, (dir, text), behind).head.status
    };
    assert_eq!(create("late", nth(all[0], 7)), Status::Stale, "four are valid");
    assert_eq!(create("old", nth(all[1], 7)), Status::Ok);
    assert_eq!(create("new", nth(all[4], 7)), Status::Ok);
}

#[test]
fn numbers_are_given_again_to_a_session_that_may_not_have_them() {
    let Scene { mut server, mut holder, dir, files, .. } = scene(109);
    holder.reconnect(&mut server);
    let (_, made) = holder.mkdir_behind(&mut server, (InodeNo::ROOT, "e"));
    assert_eq!(made.new_files, Some(files));
    let (_, made) = holder.mkdir_behind(&mut server, (InodeNo::ROOT, "g"));
    assert_eq!(made.new_files, None);
    let behind = behind(&server, nth(files, 0));
    assert_eq!(holder.create_behind_in(&mut server, (dir, "f"), behind).head.status, Status::Ok);
}

#[test]
fn another_session_of_the_client_gets_numbers_where_it_creates() {
    let Scene { mut server, dir, files, .. } = scene(113);
    let fields = HelloFields { client_lane: LaneId(1), ..HelloFields::new(1) };
    let mut second = Holder::unknown(&mut server, fields);
    second.open(&mut server, InodeNo::ROOT, OpenFor::Read);
    let ask = |second: &mut Holder, server: &mut TestServer, parent, text| {
        let body = wire::Create { parent, ..create(text) };
        second.send_to(server, (Op::Create, parent.shard(), 1), BEHIND, &body);
        server.run();
        second.reply(server)
    };
    let made = ask(&mut second, &mut server, InodeNo::ROOT, "elsewhere");
    assert_eq!((made.head.status, made.new_files), (Status::Ok, None));
    let made = ask(&mut second, &mut server, dir, "a");
    let theirs = made.new_files.unwrap();
    assert_ne!(theirs.first, files.first);
    assert_eq!(ask(&mut second, &mut server, dir, "b").new_files, None);
    let behind = behind(&server, nth(theirs, 0));
    assert_eq!(second.create_behind_in(&mut server, (dir, "f"), behind).head.status, Status::Ok);
}

#[test]
fn at_most_half_an_epoch_of_numbers_is_unused() {
    let Scene { mut server, mut holder, mut other, files, .. } = scene(110);
    let shard = InodeNo::ROOT.shard();
    let lane = server.lane_mut(0);
    let index = lane.meta_index(shard);
    let mut last = files.first;
    let mut count = 1;
    while let Some(first) = lane.metas[index].reserve_inodes(1024) {
        (last, count) = (first, count + 1);
    }
    assert_eq!(count, 512);
    let (_, made) = other.mkdir_beside(&mut server, &mut holder, "o");
    // Its own number is behind all of them, so they were used up.
    assert_ne!(made.granted() & lease_flag::WRITING, 0);
    assert!(made.new_files.unwrap().first > last);
}

#[test]
fn a_directory_that_is_changed_behind_has_no_attributes_in_others_listings() {
    let Scene { mut server, mut holder, mut other, dir, .. } = scene(111);
    let readdir = Readdir {
        caller: ROOT,
        inode: InodeNo::ROOT,
        cookie: 0,
        listing_bytes_max: 65_536,
        attrs: true,
        handle: None,
    };
    let shown = |client: &mut Holder, server: &mut TestServer| {
        let listed = client.ask(server, Op::Readdir, 0, &readdir);
        let listing = wire::Listing::decode_all(&listed.message).unwrap();
        let entry = listing.entries.iter().find(|entry| entry.inode == dir).unwrap();
        assert_eq!(entry.kind, FileKind::Directory);
        (entry.attr.is_some(), entry.granted)
    };
    assert_eq!(shown(&mut other, &mut server), (false, false));
    assert_eq!(shown(&mut holder, &mut server), (true, true));
    let find = wire::Find {
        caller: ROOT,
        inode: InodeNo::ROOT,
        cookie: 0,
        listing_bytes_max: 65_536,
        attrs: true,
        directories: false,
        predicate: wire::Predicate {
            name: None,
            kinds: None,
            size_bytes_min: None,
            size_bytes_max: None,
            mtime_after: Some(Timestamp { secs: i64::MAX, nanos: 0 }),
            mtime_before: None,
        },
    };
    let found = other.ask(&mut server, Op::Find, 0, &find);
    let found = wire::Found::decode_all(&found.message).unwrap();
    let verdicts: Vec<_> = found.entries.iter().map(|entry| (entry.inode, entry.verdict)).collect();
    assert_eq!(verdicts.last(), Some(&(dir, wire::Verdict::Undecided)));
    assert!(holder.recalled(&mut server).is_empty(), "a listing of its parent waits for nobody");
    // When it is given back, it is shown.
    holder.send_written(&mut server, &[dir]);
    assert!(shown(&mut other, &mut server).0);
}

#[test]
fn extended_attributes_end_what_their_client_cannot_know_any_more() {
    for op in [Op::Setxattr, Op::Removexattr] {
        let Scene { mut server, mut holder, mut other, dir, files } = scene(112);
        let (caller, inode, name) = (ROOT, dir, Bytes(b"user.k"));
        if op == Op::Removexattr {
            let absent = holder.ask(&mut server, op, 1, &Removexattr { caller, inode, name });
            assert_eq!(absent.head.status, Status::NoData);
            let behind = behind(&server, nth(files, 0));
            let made = holder.create_behind_in(&mut server, (dir, "f"), behind);
            assert_eq!(made.head.status, Status::Ok, "nothing has changed");
            continue;
        }
        let set = Setxattr { caller, inode, name, value: Bytes(b"v"), flags: 0 };
        assert_eq!(holder.ask(&mut server, op, 1, &set).head.status, Status::Ok);
        let behind = behind(&server, nth(files, 0));
        let made = holder.create_behind_in(&mut server, (dir, "f"), behind);
        assert_eq!(made.head.status, Status::Stale);
        assert!(other.getattr(&mut server, dir).granted() != 0, "nobody is waited for");
    }
}
