//! Names behind in directories that are made at another shard than their parents: their client is
//! granted them when it asks for their attributes, unless another client has named them.

use super::names_behind::{BEHIND, behind, nth};
use super::names_behind_ends::requests;
use super::*;
use crate::tests::exports::export;
use wire::{Export, Mkdir, Purpose, Retry, Unlink};

/// A server of so many lanes, two sessions of a client, and another client.
struct Scene {
    server: TestServer,
    maker: Holder,
    holder: Holder,
    other: Holder,
}

/// Lets a transaction end that is tried again.
fn pass(server: &mut TestServer) {
    for _ in 0..200 {
        server.pass_ms(1);
        server.run();
    }
}

impl Scene {
    fn new(seed: u64, lane_count: u16) -> Self {
        let mut scene = Self::unrecorded(seed, lane_count);
        // The sessions are recorded where they ask.
        let dir = scene.mkdir("first");
        scene.ask(dir, request_flag::LEASES);
        scene.other_asks(dir);
        scene
    }

    /// The sessions at the last lane are not recorded.
    fn unrecorded(seed: u64, lane_count: u16) -> Self {
        let mut server = TestServer::new(seed);
        server.start(lane_count);
        server.run();
        let there = LaneId(lane_count - 1);
        let maker = Holder::new(&mut server, 1);
        let of = |server: &mut TestServer, client| {
            let fields = HelloFields { server_lane: there, ..HelloFields::new(client) };
            Holder::unknown(server, HelloFields { client_lane: LaneId(1), ..fields })
        };
        let (holder, other) = (of(&mut server, 1), of(&mut server, 2));
        Self { server, maker, holder, other }
    }

    /// Makes a directory of the last lane, at another shard than its parent, under this name or one
    /// that begins with it.
    fn mkdir(&mut self, text: &str) -> InodeNo {
        let there = LaneId(self.server.lane_count() - 1);
        let texts = (0..4).map(|number| format!("{text}{number}"));
        for text in core::iter::once(text.to_string()).chain(texts) {
            let (caller, parent) = (ROOT, InodeNo::ROOT);
            let mkdir = Mkdir { caller, parent, name: name(&text), mode: 0o755, umask: 0 };
            self.maker.send_to(&mut self.server, (Op::Mkdir, parent.shard(), 1), BEHIND, &mkdir);
            self.server.run();
            let made = self.maker.reply(&mut self.server);
            assert_eq!(made.head.status, Status::Ok);
            let dir = Entry::decode_all(&made.message).unwrap().attr.inode;
            let is_there = self.server.map.lane(dir.shard()) == there;
            if is_there && dir.shard() != parent.shard() {
                assert_eq!((made.lease, made.new_files), (None, None));
                return dir;
            }
            let rmdir = wire::Rmdir { caller, parent, name: name(&text) };
            assert_eq!(
                self.maker.ask(&mut self.server, Op::Rmdir, 1, &rmdir).head.status,
                Status::Ok
            );
        }
        panic!("directories are spread over the shards")
    }

    /// The client of the directory asks for its attributes.
    fn ask(&mut self, dir: InodeNo, flags: u16) -> Granted {
        let getattr = Getattr { inode: dir };
        self.holder.send_to(&mut self.server, (Op::Getattr, dir.shard(), 0), flags, &getattr);
        self.server.run();
        self.holder.reply(&mut self.server)
    }

    fn other_asks(&mut self, dir: InodeNo) {
        let getattr = Getattr { inode: dir };
        let asked = (Op::Getattr, dir.shard(), 0);
        self.other.send_to(&mut self.server, asked, request_flag::LEASES, &getattr);
        self.server.run();
        self.other.reply(&mut self.server);
    }

    fn is_granted(&mut self, dir: InodeNo) -> bool {
        self.ask(dir, BEHIND).granted() & lease_flag::WRITING != 0
    }
}

#[test]
fn its_client_is_granted_it_once_and_others_wait() {
    for lane_count in [1, 2] {
        let mut scene = Scene::new(201, lane_count);
        let dir = scene.mkdir("d");
        let unasked = scene.ask(dir, request_flag::LEASES);
        assert_eq!((unasked.granted(), unasked.new_files), (lease_flag::ATTRIBUTES, None));
        let made = scene.ask(dir, BEHIND);
        let granted = lease_flag::ATTRIBUTES | lease_flag::WRITING | lease_flag::NEW_FILES;
        assert_eq!(made.granted(), granted);
        let attr = Entry::decode_all(&made.message).unwrap().attr;
        assert!(attr.has_no_xattrs() && attr.flags & wire::attr_flag::EMPTY != 0);
        let files = made.new_files.unwrap();
        assert_eq!(files.first.shard(), dir.shard());
        assert!(!scene.is_granted(dir), "it has it");

        let Scene { server, holder, other, .. } = &mut scene;
        let new = behind(server, nth(files, 0));
        let created = holder.create_behind_in(server, (dir, "f"), new);
        assert_eq!(created.head.status, Status::Ok);
        let getattr = Getattr { inode: dir };
        other.send_to(server, (Op::Getattr, dir.shard(), 0), request_flag::LEASES, &getattr);
        assert!(!other.has_reply(server));
        assert!(holder.recalled(server).contains(&Key::Writing(dir)));
        let new = behind(server, nth(files, 1));
        assert_eq!(holder.create_behind_in(server, (dir, "g"), new).head.status, Status::Ok);
        holder.ack(server);
        let seen = other.reply(server);
        let attr = Entry::decode_all(&seen.message).unwrap().attr;
        assert!(attr.flags & wire::attr_flag::EMPTY == 0, "it sees both");
        let new = behind(server, nth(files, 2));
        assert_eq!(holder.create_behind_in(server, (dir, "h"), new).head.status, Status::Stale);
    }
}

#[test]
fn the_first_directory_at_a_lane_is_granted_as_well() {
    for seed in 210..230 {
        let mut scene = Scene::unrecorded(seed, 2);
        let dir = scene.mkdir("d");
        let made = scene.ask(dir, BEHIND);
        let granted = lease_flag::ATTRIBUTES | lease_flag::WRITING | lease_flag::NEW_FILES;
        assert_eq!(made.granted(), granted, "seed {seed}");
    }
}

#[test]
fn whatever_another_client_does_with_it_ends_that() {
    for lane_count in [1, 2] {
        let count = requests(InodeNo::ROOT, InodeNo::ROOT).len();
        let mut forgotten = 0;
        for index in 0..count {
            let mut scene = Scene::new(202, lane_count);
            let file = scene.maker.create(&mut scene.server, "g");
            let dir = scene.mkdir("d");
            let (op, body) = requests(dir, file).swap_remove(index);
            // A lookup in the parent tells no more than the number.
            if op.inodes(&body)[0] != Some(dir) {
                continue;
            }
            let Scene { server, other, maker, .. } = &mut scene;
            let slot = u16::from(op.row().retry == Retry::Once);
            let head =
                Request { flags: request_flag::LEASES, ..other.peer.head(op, dir.shard(), slot) };
            other.peer.send(server, &head, &body, None);
            server.run();
            pass(server);
            maker.ack(server);
            pass(server);
            assert!(other.has_reply(server), "{op:?}");
            assert!(!scene.is_granted(dir), "{op:?}");
            forgotten += 1;
        }
        assert!(forgotten > 12, "{forgotten}");
    }
}

#[test]
fn what_another_client_moves_it_by_ends_that_at_the_participant() {
    let mut scene = Scene::new(203, 2);
    scene.maker.create(&mut scene.server, "x");
    let dir = scene.mkdir("d");
    let fields = HelloFields::new(2);
    let mut mover = Holder::unknown(&mut scene.server, fields);
    let (caller, parent, how) = (ROOT, InodeNo::ROOT, wire::RenameHow::Exchange);
    let text = {
        let listed = |text: &&str| {
            let lookup = Lookup { caller, parent, name: name(text) };
            let shown = mover.ask(&mut scene.server, Op::Lookup, 0, &lookup);
            shown.head.status == Status::Ok
                && Entry::decode_all(&shown.message).unwrap().attr.inode == dir
        };
        ["d", "d0", "d1", "d2", "d3"].into_iter().find(listed).unwrap()
    };
    let rename = wire::Rename {
        caller,
        parent,
        name: name(text),
        new_parent: parent,
        new_name: name("x"),
        how,
    };
    mover.send(&mut scene.server, Op::Rename, 1, &rename);
    pass(&mut scene.server);
    scene.maker.ack(&mut scene.server);
    pass(&mut scene.server);
    assert_eq!(mover.reply(&mut scene.server).head.status, Status::Ok);
    assert!(!scene.is_granted(dir));
}

#[test]
fn what_its_own_client_does_ends_that_only_if_the_directory_is_not_empty() {
    let mut scene = Scene::new(204, 2);
    let dir = scene.mkdir("d");
    let lookup = Lookup { caller: ROOT, parent: dir, name: name("f") };
    let asked = (Op::Lookup, dir.shard(), 0);
    scene.holder.send_to(&mut scene.server, asked, request_flag::LEASES, &lookup);
    scene.server.run();
    assert_eq!(scene.holder.reply(&mut scene.server).head.status, Status::NotFound);
    assert!(scene.is_granted(dir));

    let dir = scene.mkdir("e");
    let body = wire::Create { parent: dir, ..create("f") };
    let asked = (Op::Create, dir.shard(), 1);
    scene.holder.send_to(&mut scene.server, asked, request_flag::LEASES, &body);
    scene.server.run();
    assert_eq!(scene.holder.reply(&mut scene.server).head.status, Status::Ok);
    assert!(!scene.is_granted(dir), "the file may have other names");
    let unlink = Unlink { caller: ROOT, parent: dir, name: name("f"), behind: None };
    let asked = (Op::Unlink, dir.shard(), 1);
    scene.holder.send_to(&mut scene.server, asked, request_flag::LEASES, &unlink);
    scene.server.run();
    assert_eq!(scene.holder.reply(&mut scene.server).head.status, Status::Ok);
    assert!(!scene.is_granted(dir), "it had one");
}

#[test]
fn it_is_forgotten_after_a_while_and_costs_nothing_then() {
    let mut scene = Scene::new(205, 2);
    let dir = scene.mkdir("d");
    scene.server.pass_ms(9_900);
    assert!(scene.is_granted(dir));
    let dir = scene.mkdir("e");
    scene.server.pass_ms(10_100);
    // The turn of this request forgets it.
    scene.ask(dir, request_flag::LEASES);
    assert!(!scene.is_granted(dir));
}

#[test]
fn without_leases_nothing_is_remembered() {
    let mut server = TestServer::new(206);
    server.limits.lease_term_ms = 0;
    server.start(2);
    server.run();
    let mut maker = Holder::unknown(&mut server, HelloFields::new(1));
    for text in ["a", "b", "c"] {
        let (caller, parent) = (ROOT, InodeNo::ROOT);
        let mkdir = Mkdir { caller, parent, name: name(text), mode: 0o755, umask: 0 };
        maker.send_to(&mut server, (Op::Mkdir, parent.shard(), 1), BEHIND, &mkdir);
        server.run();
        assert_eq!(maker.reply(&mut server).head.status, Status::Ok);
    }
    assert!((0..2).all(|lane| server.lane(lane).leases.is_empty()));
}

#[test]
fn a_client_whose_export_is_read_only_meanwhile_gets_none() {
    for lane_count in [1, 2] {
        let mut scene = Scene::new(211, lane_count);
        let dir = scene.mkdir("d");
        let fields = HelloFields { purpose: Purpose::Administer, ..HelloFields::new(9) };
        let mut admin = Holder::unknown(&mut scene.server, fields);
        let read_only = Export { read_only: true, ..export("default", InodeNo::ROOT) };
        admin.set_export(&mut scene.server, read_only);
        scene.holder.ack(&mut scene.server);
        assert_eq!(scene.ask(dir, BEHIND).granted(), lease_flag::ATTRIBUTES);
    }
}
