//! Which inodes the reply to a removal or a rename says to have changed.

use super::*;
use wire::{Link, Mkdir, Rename, RenameHow, Rmdir, Unlink};

fn unlink(text: &str) -> Unlink<'_> {
    Unlink { caller: ROOT, parent: InodeNo::ROOT, name: name(text), behind: None }
}

fn rename<'a>(old: &'a str, new: &'a str, how: RenameHow) -> Rename<'a> {
    let (parent, new_parent) = (InodeNo::ROOT, InodeNo::ROOT);
    Rename { caller: ROOT, parent, name: name(old), new_parent, new_name: name(new), how }
}

fn mkdir(server: &mut TestServer, holder: &mut Holder, text: &str) -> InodeNo {
    let (parent, name) = (InodeNo::ROOT, name(text));
    let mkdir = Mkdir { caller: ROOT, parent, name, mode: 0o755, umask: 0 };
    let made = holder.ask(server, Op::Mkdir, 1, &mkdir);
    Entry::decode_all(&made.message).unwrap().attr.inode
}

/// The inodes that a change has said to have changed.
fn named<'a>(
    (server, holder): (&mut TestServer, &mut Holder),
    op: Op,
    body: &impl Wire<'a>,
) -> Option<BTreeSet<InodeNo>> {
    let reply = holder.ask(server, op, 1, body);
    assert_eq!(reply.head.status, Status::Ok, "{op:?}");
    reply.named.map(|named| named.into_iter().flatten().collect())
}

#[test]
fn a_removal_and_a_rename_name_what_they_have_changed() {
    let mut server = started(1);
    let mut holder = Holder::new(&mut server, 1);
    let at = (&mut server, &mut holder);
    let [a, b, c] = ["a", "b", "c"].map(|text| at.1.create(at.0, text));
    let (parent, name) = (InodeNo::ROOT, name("link"));
    at.1.ask(at.0, Op::Link, 1, &Link { caller: ROOT, inode: a, parent, name });
    let dir = mkdir(at.0, at.1, "d");
    let of = |inodes: &[InodeNo]| Some(inodes.iter().copied().collect());
    let over = |old, new| rename(old, new, RenameHow::Replace);
    assert_eq!(named((at.0, at.1), Op::Rename, &over("a", "link")), of(&[]), "both are left");
    let exchange = rename("a", "d", RenameHow::Exchange);
    assert_eq!(named((at.0, at.1), Op::Rename, &exchange), of(&[a, dir]));
    assert_eq!(named((at.0, at.1), Op::Rename, &exchange), of(&[a, dir]));
    assert_eq!(named((at.0, at.1), Op::Unlink, &unlink("link")), of(&[a]), "it has another name");
    assert_eq!(named((at.0, at.1), Op::Rename, &over("b", "new")), of(&[b]));
    assert_eq!(named((at.0, at.1), Op::Rename, &over("new", "c")), of(&[b, c]));
    assert_eq!(named((at.0, at.1), Op::Unlink, &unlink("c")), of(&[b]));
    let rmdir = Rmdir { caller: ROOT, parent, name: wire::Name::new(b"d").unwrap() };
    assert_eq!(named((at.0, at.1), Op::Rmdir, &rmdir), of(&[dir]));
    let whiteout = rename("a", "marked", RenameHow::Whiteout);
    let found = named((at.0, at.1), Op::Rename, &whiteout).unwrap();
    assert_eq!((found.contains(&a), found.len()), (true, 2), "the whiteout is new");
    at.1.create(at.0, "x");
    let whiteout = rename("x", "marked", RenameHow::Whiteout);
    assert_eq!(named((at.0, at.1), Op::Rename, &whiteout), None, "three are too many");
}

#[test]
fn who_may_be_granted_nothing_hears_all_the_same_what_it_has_removed() {
    let mut server = started(2);
    let mut first = Holder::new(&mut server, 1);
    let file = first.create(&mut server, "f");
    // Its session is not recorded yet.
    let mut unknown = Holder::unknown(&mut server, HelloFields::new(2));
    unknown.send(&mut server, Op::Unlink, 1, &unlink("f"));
    server.run();
    first.ack(&mut server);
    let removed = unknown.reply(&mut server);
    assert_eq!((removed.head.status, removed.named), (Status::Ok, Some([Some(file), None])));
    assert_eq!((removed.granted(), removed.further.len()), (0, 0));
    assert_eq!(removed.lease.map(|lease| lease.lease_no), Some(LeaseNo(0)));
}

#[test]
fn a_reply_that_is_not_asked_for_fails_or_is_repeated_names_nothing() {
    let mut server = started(3);
    let mut holder = Holder::new(&mut server, 1);
    let shard = InodeNo::ROOT.shard();
    let at = (&mut server, &mut holder);
    at.1.create(at.0, "a");
    at.1.create(at.0, "b");
    at.1.send_to(at.0, (Op::Unlink, shard, 1), 0, &unlink("a"));
    at.0.run();
    assert_eq!(at.1.reply(at.0).named, None);
    assert_eq!(at.1.ask(at.0, Op::Unlink, 1, &unlink("a")).named, None);
    assert!(at.1.ask(at.0, Op::Unlink, 1, &unlink("b")).named.is_some());
    at.1.peer.xid -= 1;
    let flags = request_flag::LEASES | request_flag::RESENT;
    at.1.send_to(at.0, (Op::Unlink, shard, 1), flags, &unlink("b"));
    at.0.run();
    let again = at.1.reply(at.0);
    assert!(again.head.flags & reply_flag::FROM_SLOT != 0);
    assert_eq!((again.head.status, again.named), (Status::Ok, None));
}

#[test]
fn a_change_over_several_shards_names_nothing() {
    let mut server = TestServer::new(4);
    server.start(2);
    server.run();
    let mut holder = Holder::new(&mut server, 1);
    let elsewhere = ["d", "e", "f", "g"]
        .into_iter()
        .find(|text| mkdir(&mut server, &mut holder, text).shard() != InodeNo::ROOT.shard());
    let rmdir = Rmdir { caller: ROOT, parent: InodeNo::ROOT, name: name(elsewhere.unwrap()) };
    assert_eq!(named((&mut server, &mut holder), Op::Rmdir, &rmdir), None);
}
