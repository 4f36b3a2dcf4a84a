//! Requests that ask for what their client may change behind wait until their session is durably
//! recorded: for one flush, once, and never where nothing would be granted.

use super::names_behind::BEHIND;
use super::*;
use crate::test_server::Kind;
use interface::Errno;
use wire::{Mkdir, attr_flag};

/// A client of a lane that has not recorded it.
struct Scene {
    server: TestServer,
    holder: Holder,
}

fn scene(mut server: TestServer) -> Scene {
    let holder = Holder::unknown(&mut server, HelloFields::new(1));
    Scene { server, holder }
}

impl Scene {
    /// Sends requests that the lane executes without its log.
    fn mkdir(&mut self, text: &str) {
        let Self { server, holder } = self;
        let (caller, parent, name) = (ROOT, InodeNo::ROOT, name(text));
        let mkdir = Mkdir { caller, parent, name, mode: 0o755, umask: 0 };
        holder.send_to(server, (Op::Mkdir, parent.shard(), 1), BEHIND, &mkdir);
        server.run_turns_only(0);
    }

    fn getattr(&mut self) {
        let Self { server, holder } = self;
        let getattr = Getattr { inode: InodeNo::ROOT };
        holder.send_to(server, (Op::Getattr, getattr.inode.shard(), 0), BEHIND, &getattr);
        server.run_turns_only(0);
    }

    /// What has been answered so far.
    fn answered(&mut self) -> Vec<Granted> {
        self.holder.collect(&mut self.server);
        self.holder.replies.drain(..).collect()
    }

    /// The reply that was sent with nothing durable grants nothing.
    #[track_caller]
    fn is_answered_without_a_grant(&mut self) {
        let answered = self.answered();
        assert_eq!(answered.len(), 1, "it does not wait");
        assert_eq!((answered[0].head.status, answered[0].granted()), (Status::Ok, 0));
    }
}

#[test]
fn the_first_directory_of_a_session_is_granted_after_one_flush() {
    let Scene { mut server, mut holder } = {
        let mut scene = scene(started(301));
        scene.mkdir("first");
        assert!(scene.answered().is_empty(), "the session is not durably recorded");
        scene.server.land_objects(0);
        scene.server.land_log(0);
        scene.server.run_turns_only(0);
        scene
    };
    let first = holder.reply(&mut server);
    let granted =
        lease_flag::NAME | lease_flag::ATTRIBUTES | lease_flag::WRITING | lease_flag::NEW_FILES;
    assert_eq!(first.granted(), granted);
    let attr = Entry::decode_all(&first.message).unwrap().attr;
    assert!(attr.flags & attr_flag::EMPTY != 0, "its names are known");
    assert_eq!(server.counters(0).batch_count, 1, "its own record is in a later batch");

    let mut scene = Scene { server, holder };
    scene.mkdir("second");
    scene.getattr();
    assert_eq!(scene.answered().len(), 2, "nothing waits again");
}

#[test]
fn files_are_granted_to_their_first_writers() {
    for op in [Op::Create, Op::Open] {
        let mut server = started(302);
        let mut other = Holder::new(&mut server, 2);
        let file = other.create(&mut server, "old");
        let mut holder = Holder::unknown(&mut server, HelloFields::new(1));
        let handle = Handle { id: HandleId(1), open_for: OpenFor::Write };
        let asked = (op, InodeNo::ROOT.shard(), 1);
        if op == Op::Create {
            let body = wire::Create { handle: Some(handle), ..create("new") };
            holder.send_to(&mut server, asked, BEHIND, &body);
        } else {
            let body = wire::Open { caller: ROOT, inode: file, handle };
            holder.send_to(&mut server, asked, BEHIND, &body);
        }
        server.run();
        other.ack(&mut server);
        server.run();
        let made = holder.reply(&mut server);
        assert_eq!(made.head.status, Status::Ok);
        assert_ne!(made.granted(), 0, "{op:?}");
    }
}

#[test]
fn a_look_waits_only_if_it_asks_for_a_directory() {
    let mut scene = scene(started(303));
    let Scene { server, holder } = &mut scene;
    let getattr = Getattr { inode: InodeNo::ROOT };
    holder.send(server, Op::Getattr, 0, &getattr);
    server.run_turns_only(0);
    scene.is_answered_without_a_grant();
    scene.getattr();
    assert!(scene.answered().is_empty(), "the record is under way");
    scene.server.run();
    let answered = scene.answered();
    assert_eq!(answered[0].granted(), lease_flag::ATTRIBUTES);
}

#[test]
fn nothing_waits_where_nothing_would_be_granted() {
    let mut off = TestServer::new(304);
    off.limits.lease_term_ms = 0;
    off.start(1);
    off.run();
    let mut full = started(305);
    full.set_space(1000);
    full.run();
    for server in [off, full] {
        let mut scene = scene(server);
        scene.getattr();
        scene.is_answered_without_a_grant();
    }
}

#[test]
fn behind_a_log_that_fails_they_go_on_without_a_grant() {
    for makes in [false, true] {
        let mut scene = scene(started(306));
        if makes {
            scene.mkdir("d")
        } else {
            scene.getattr()
        }
        assert!(scene.answered().is_empty());
        scene.server.failing.push((Kind::Log, Errno(5)));
        scene.server.run();
        assert!(scene.server.failing.is_empty());
        let answered = scene.answered();
        let status = if makes { Status::ReadOnly } else { Status::Ok };
        assert_eq!(answered.len(), 1);
        assert_eq!((answered[0].head.status, answered[0].granted()), (status, 0));
        // None waits from now on.
        scene.getattr();
        scene.is_answered_without_a_grant();
    }
}

#[test]
fn a_request_whose_connection_ends_meanwhile_is_executed_once() {
    let mut scene = scene(started(307));
    scene.mkdir("d");
    assert!(scene.answered().is_empty());
    let xid = scene.holder.peer.xid - 1;
    let Scene { server, holder } = &mut scene;
    server.cut(holder.peer.conn);
    holder.reconnect(server);
    holder.peer.xid = xid;
    scene.mkdir("d");
    scene.server.run();
    let answered = scene.answered();
    assert_eq!(answered.len(), 1);
    assert_eq!(answered[0].head.status, Status::Ok, "it did not exist before");
    assert_ne!(answered[0].head.flags & reply_flag::FROM_SLOT, 0);
}

#[test]
fn what_waits_for_a_session_that_ends_is_dropped() {
    let mut scene = scene(started(308));
    scene.mkdir("d");
    assert!(scene.answered().is_empty());
    assert!(scene.server.lane(0).change_count() > 0, "a freeze waits for it");
    let Scene { server, holder } = &mut scene;
    let head = holder.peer.head(Op::Goodbye, InodeNo::ROOT.shard(), 0);
    holder.peer.send(server, &head, &[], None);
    server.run();
    assert_eq!(server.lane(0).change_count(), 0);
    let mut other = Holder::new(server, 2);
    assert_eq!(other.lookup(server, "d").head.status, Status::NotFound);
}
