//! What is granted, and what is not.

use super::*;
use alloc::vec;
use wire::{
    Bytes, Dirent, Link, Listing, Mkdir, Mknod, Readdir, Removexattr, Rename, RenameHow, Rmdir,
    Setxattr, Symlink, Transno, Unlink,
};

const BOTH: u8 = lease_flag::NAME | lease_flag::ATTRIBUTES;

fn listing(server: &mut TestServer, holder: &mut Holder, attrs: bool) -> (Granted, Vec<bool>) {
    let (inode, handle) = (InodeNo::ROOT, None);
    let listing_bytes_max = 4096;
    let readdir = Readdir { caller: ROOT, inode, cookie: 0, listing_bytes_max, attrs, handle };
    let granted = holder.ask(server, Op::Readdir, 0, &readdir);
    let listing = Listing::decode_all(&granted.message).unwrap();
    let marks = listing.entries.iter().map(|Dirent { granted, .. }| granted).collect();
    (granted, marks)
}

#[test]
fn each_operation_grants_what_its_reply_shows() {
    let mut server = started(1);
    let mut holder = Holder::new(&mut server, 1);
    let made = holder.ask(&mut server, Op::Create, 1, &create("f"));
    assert_eq!((made.granted(), made.lease.unwrap().term_ms), (BOTH, 10_000));
    let file = Created::decode_all(&made.message).unwrap().attr.inode;
    let (parent, name_of_link) = (InodeNo::ROOT, name("h"));
    let link = Link { caller: ROOT, inode: file, parent, name: name_of_link };
    assert_eq!(holder.ask(&mut server, Op::Link, 1, &link).granted(), BOTH);
    let mkdir = Mkdir { caller: ROOT, parent, name: name("d"), mode: 0o755, umask: 0 };
    assert_eq!(holder.ask(&mut server, Op::Mkdir, 1, &mkdir).granted(), BOTH);
    let changed = holder.ask(&mut server, Op::Setattr, 1, &chmod(file, 0o600));
    assert_eq!(changed.granted(), lease_flag::ATTRIBUTES);
    let rename = Rename {
        caller: ROOT,
        parent,
        name: name("f"),
        new_parent: parent,
        new_name: name("r"),
        how: RenameHow::Replace,
    };
    let renamed = holder.ask(&mut server, Op::Rename, 1, &rename);
    assert_eq!(renamed.granted(), lease_flag::NAME | lease_flag::NEW_NAME);
    let (listed, marks) = listing(&mut server, &mut holder, true);
    assert_eq!((marks, listed.granted()), (vec![true; 3], 0));
    assert!(listed.further(InodeNo::ROOT).is_some(), "the directory itself");
    let (listed, marks) = listing(&mut server, &mut holder, false);
    assert_eq!((marks, listed.granted()), (vec![false; 3], 0));
    assert!(listed.further(InodeNo::ROOT).is_some());
    let failed = holder.ask(&mut server, Op::Create, 1, &create("r"));
    assert_eq!((failed.head.status, failed.lease), (Status::Exists, None));
}

/// The reply to a change has the attributes of these inodes as a getattr shows them.
fn leaves<'a>(
    (server, holder): (&mut TestServer, &mut Holder),
    (op, body): (Op, &impl Wire<'a>),
    inodes: &[InodeNo],
) -> Granted {
    let reply = holder.ask(server, op, 1, body);
    assert_eq!(reply.head.status, Status::Ok, "{op:?}");
    let found: Vec<InodeNo> = reply.further.iter().map(|attr| attr.inode).collect();
    assert_eq!(found, inodes, "{op:?}");
    for inode in inodes {
        let shown = holder.getattr(server, *inode);
        let attr = Entry::decode_all(&shown.message).unwrap().attr;
        assert_eq!(reply.further(*inode), Some(attr), "{op:?}");
    }
    reply
}

#[test]
fn a_change_of_names_grants_its_directories_and_inodes_as_it_leaves_them() {
    let mut server = started(7);
    let mut holder = Holder::new(&mut server, 1);
    let (parent, caller) = (InodeNo::ROOT, ROOT);
    let mkdir = |text| Mkdir { caller, parent, name: name(text), mode: 0o755, umask: 0 };
    let at = (&mut server, &mut holder);
    let made = leaves((at.0, at.1), (Op::Create, &create("f")), &[parent]);
    let file = Created::decode_all(&made.message).unwrap().attr.inode;
    leaves((at.0, at.1), (Op::Mkdir, &mkdir("d")), &[parent]);
    let dir = Entry::decode_all(&at.1.lookup(at.0, "d").message).unwrap().attr.inode;
    let symlink = Symlink { caller, parent, name: name("s"), target: Bytes(b"x") };
    leaves((at.0, at.1), (Op::Symlink, &symlink), &[parent]);
    let kind = wire::FileKind::Fifo;
    let mknod = Mknod { caller, parent, name: name("p"), kind, mode: 0o600, umask: 0, rdev: 0 };
    leaves((at.0, at.1), (Op::Mknod, &mknod), &[parent]);
    let link = Link { caller, inode: file, parent: dir, name: name("l") };
    leaves((at.0, at.1), (Op::Link, &link), &[dir]);
    let unlink = |parent, text| Unlink { caller, parent, name: name(text), behind: None };
    let unlinked = leaves((at.0, at.1), (Op::Unlink, &unlink(dir, "l")), &[dir, file]);
    assert_eq!(unlinked.granted(), lease_flag::NAME, "it does not exist any more");
    assert_eq!(unlinked.further(dir).map(|attr| attr.is_empty_directory()), Some(true));
    let how = RenameHow::Replace;
    let (f, r) = (name("f"), name("r"));
    let rename = Rename { caller, parent, name: f, new_parent: dir, new_name: r, how };
    leaves((at.0, at.1), (Op::Rename, &rename), &[parent, dir, file]);
    let rename = Rename { caller, parent: dir, name: r, new_parent: dir, new_name: f, how };
    leaves((at.0, at.1), (Op::Rename, &rename), &[dir, file]);
    let (name, value) = (Bytes(b"user.k"), Bytes(b"v"));
    let set = Setxattr { caller, inode: file, name, value, flags: 0 };
    let set = leaves((at.0, at.1), (Op::Setxattr, &set), &[file]);
    assert_eq!(set.further(file).map(|attr| attr.has_no_xattrs()), Some(false));
    let removed = Removexattr { caller, inode: file, name };
    let removed = leaves((at.0, at.1), (Op::Removexattr, &removed), &[file]);
    assert_eq!(removed.further(file).map(|attr| attr.has_no_xattrs()), Some(true));
    let unlinked = leaves((at.0, at.1), (Op::Unlink, &unlink(dir, "f")), &[dir]);
    assert_eq!(unlinked.granted(), lease_flag::NAME);
    let rmdir = Rmdir { caller, parent, name: wire::Name::new(b"d").unwrap() };
    leaves((at.0, at.1), (Op::Rmdir, &rmdir), &[parent]);
}

#[test]
fn a_directory_is_not_granted_while_another_client_waits_to_change_it() {
    let mut server = started(8);
    let (mut first, mut second, _) = two(&mut server);
    second.send(&mut server, Op::Create, 1, &create("x"));
    server.run();
    assert_eq!(first.recalled(&mut server), BTreeSet::from([Key::Attributes(InodeNo::ROOT)]));
    // Its own change goes on meanwhile, and breaks nothing.
    let made = first.ask(&mut server, Op::Create, 1, &create("y"));
    assert_eq!((made.head.status, made.further.len()), (Status::Ok, 0));
    first.ack(&mut server);
    let made = second.reply(&mut server);
    assert!(made.further(InodeNo::ROOT).is_some(), "now it is the other one's");
    assert!(second.recalled(&mut server).is_empty());
}

#[test]
fn who_does_not_ask_gets_nothing_and_a_slot_grants_nothing() {
    let mut server = started(2);
    let mut holder = Holder::new(&mut server, 1);
    let shard = InodeNo::ROOT.shard();
    holder.send_to(&mut server, (Op::Create, shard, 1), 0, &create("f"));
    server.run();
    let made = holder.reply(&mut server);
    assert_eq!((made.head.status, made.lease), (Status::Ok, None));
    holder.send(&mut server, Op::Create, 1, &create("g"));
    server.run();
    assert!(holder.reply(&mut server).lease.is_some());
    holder.peer.xid -= 1;
    let flags = request_flag::LEASES | request_flag::RESENT;
    holder.send_to(&mut server, (Op::Create, shard, 1), flags, &create("g"));
    server.run();
    let again = holder.reply(&mut server);
    assert!(again.head.flags & reply_flag::FROM_SLOT != 0);
    assert_eq!((again.head.status, again.lease), (Status::Ok, None));
}

#[test]
fn a_file_that_another_client_writes_is_not_granted_until_its_size_is_settled() {
    let mut server = started(3);
    let (mut writer, mut reader, file) = two(&mut server);
    let opened = writer.open(&mut server, file, OpenFor::ReadWrite);
    assert_eq!(opened.granted(), lease_flag::ATTRIBUTES, "its own handle is the only one");
    let own = writer.open(&mut server, file, OpenFor::Read);
    assert_eq!(own.granted(), lease_flag::ATTRIBUTES | lease_flag::CONTENTS);
    let (writer_handle, attributes) = (HandleId(writer.handle_count - 1), lease_flag::ATTRIBUTES);
    assert_eq!(reader.open(&mut server, file, OpenFor::Read).granted(), 0);
    assert_eq!(reader.lookup(&mut server, "f").granted(), lease_flag::NAME);
    assert_eq!(reader.getattr(&mut server, file).granted(), 0);
    // With a second writer nobody has it alone.
    reader.send(&mut server, Op::Open, 1, &{
        let handle = Handle { id: HandleId(50), open_for: OpenFor::Write };
        wire::Open { caller: ROOT, inode: file, handle }
    });
    server.run();
    assert_eq!(
        writer.recalled(&mut server),
        BTreeSet::from([Key::Attributes(file), Key::Contents(file)])
    );
    writer.ack(&mut server);
    assert_eq!((reader.reply(&mut server).granted(), reader.lease_no_last > LeaseNo(0)), (0, true));
    assert_eq!(writer.getattr(&mut server, file).granted(), 0);
    for (holder, handle) in [(&mut writer, writer_handle), (&mut reader, HandleId(50))] {
        let close = wire::Close { inode: file, handle };
        assert_eq!(holder.ask(&mut server, Op::Close, 1, &close).head.status, Status::Ok);
    }
    // The data shard has reported the size, as nothing was written.
    server.run();
    assert_eq!(reader.getattr(&mut server, file).granted(), attributes);
    let opened = reader.open(&mut server, file, OpenFor::Read);
    assert_eq!(opened.granted(), attributes | lease_flag::CONTENTS);
}

#[test]
fn a_key_that_is_recalled_again_and_again_gets_hot_and_cools_down() {
    let mut server = started(4);
    let (mut first, mut second, file) = two(&mut server);
    let mut turns = |server: &mut TestServer, slot| {
        let granted = first.getattr(server, file).granted();
        second.send(server, Op::Setattr, slot, &chmod(file, 0o600 + u32::from(slot)));
        server.run();
        first.ack(server);
        assert_eq!(second.reply(server).head.status, Status::Ok);
        // What the change granted goes away as well.
        first.send(server, Op::Setattr, slot, &chmod(file, 0o700));
        server.run();
        second.ack(server);
        assert_eq!(first.reply(server).head.status, Status::Ok);
        granted
    };
    assert_eq!(turns(&mut server, 1), lease_flag::ATTRIBUTES);
    assert_eq!(turns(&mut server, 2), 0, "two recalls within a moment of the grant");
    let recalled_count = server.counters(0).leases.recalled_count;
    assert_eq!((turns(&mut server, 3), turns(&mut server, 4)), (0, 0));
    let counts = server.counters(0).leases;
    assert_eq!(counts.recalled_count, recalled_count, "it costs no recalls any more");
    assert!(counts.refused_hot_count >= 4);
    server.pass_ms(501);
    assert_eq!(turns(&mut server, 5), lease_flag::ATTRIBUTES);
}

/// A server that has few leases to grant.
fn full(seed: u64) -> TestServer {
    let mut server = TestServer::new(seed);
    server.limits.lease_count_max = 8;
    server.limits.spread_depth = 0;
    server.start(1);
    server.run();
    server
}

fn granted(server: &mut TestServer, holder: &mut Holder, number: usize) -> bool {
    holder.lookup(server, &std::format!("absent {number}")).granted() != 0
}

/// Others are refused while the leases last: how often until everything is recalled from a holder.
fn refusals(server: &mut TestServer, asking: &mut Holder, holder: Option<&mut Holder>) -> usize {
    let mut count = 0;
    let mut holder = holder;
    loop {
        assert!(!granted(server, asking, 1_000 + count), "after {count}");
        count += 1;
        let of = holder.as_deref_mut().unwrap_or(asking);
        if of.recalled(server).contains(&Key::All) {
            return count;
        }
    }
}

#[test]
fn from_a_client_with_too_many_leases_everything_is_recalled() {
    let mut server = full(7);
    let mut holder = Holder::new(&mut server, 1);
    assert!((0..8).all(|number| granted(&mut server, &mut holder, number)));
    assert_eq!(refusals(&mut server, &mut holder, None), 256, "the whole table was swept in vain");
    holder.ack(&mut server);
    let tries = (0..600).position(|number| granted(&mut server, &mut holder, 2_000 + number));
    assert!(tries.is_some_and(|tries| tries <= 256), "{tries:?}");
}

#[test]
fn of_all_clients_the_one_with_the_most_leases_makes_space_for_another() {
    let mut server = full(8);
    let (mut large, mut small) = (Holder::new(&mut server, 1), Holder::new(&mut server, 2));
    assert!((0..5).all(|number| granted(&mut server, &mut large, number)));
    assert!((5..8).all(|number| granted(&mut server, &mut small, number)));
    let mut third = Holder::new(&mut server, 3);
    assert!(refusals(&mut server, &mut third, Some(&mut large)) <= 256);
    assert!(small.recalled(&mut server).is_empty());
    large.ack(&mut server);
    let tries = (0..600).position(|number| granted(&mut server, &mut third, 2_000 + number));
    assert!(tries.is_some_and(|tries| tries <= 256), "{tries:?}");
}

#[test]
fn a_client_above_its_share_is_granted_nothing_until_its_leases_expire() {
    let mut server = full(5);
    let mut holder = Holder::new(&mut server, 1);
    assert!((0..8).all(|number| granted(&mut server, &mut holder, number)));
    assert!(!granted(&mut server, &mut holder, 8));
    assert!(granted(&mut server, &mut holder, 7), "what it has is prolonged");
    let counts = server.counters(0).leases;
    assert_eq!((counts.held_count, counts.refused_share_count), (8, 1));
    server.pass_ms(10_001);
    // Each refusal sweeps a part of the table.
    let tries = (0..600).position(|number| granted(&mut server, &mut holder, 1000 + number));
    assert!(tries.is_some_and(|tries| tries <= 256), "{tries:?}");
}

#[test]
fn without_a_term_nothing_is_granted() {
    let mut server = TestServer::new(6);
    server.limits.lease_term_ms = 0;
    server.start(1);
    server.run();
    let mut holder = Holder::new(&mut server, 1);
    let made = holder.ask(&mut server, Op::Create, 1, &create("f"));
    assert_eq!((made.head.status, made.lease), (Status::Ok, None));
    assert!(made.head.transno > Transno(0));
    assert_eq!(server.counters(0).leases, wire::LeaseCounts::default());
}
