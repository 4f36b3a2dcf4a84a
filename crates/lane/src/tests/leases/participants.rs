//! Leases at the participants of changes over several shards.

use super::*;
use wire::{Mkdir, Rename, RenameHow};

/// A directory of the second lane's shard, and a file in the root directory.
fn scene(seed: u64) -> (TestServer, Holder, InodeNo, InodeNo) {
    let mut server = TestServer::new(seed);
    server.start(2);
    server.run();
    let mut other = Holder::new(&mut server, 2);
    let file = other.create(&mut server, "f");
    for text in ["d", "e"] {
        let (parent, name) = (InodeNo::ROOT, name(text));
        let mkdir = Mkdir { caller: ROOT, parent, name, mode: 0o777, umask: 0 };
        let made = other.ask(&mut server, Op::Mkdir, 1, &mkdir);
        let dir = Entry::decode_all(&made.message).unwrap().attr.inode;
        if dir.shard() != InodeNo::ROOT.shard() {
            assert_ne!(server.map.lane(dir.shard()), LaneId(0));
            return (server, other, file, dir);
        }
    }
    panic!("directories are spread over the shards")
}

fn rename(new_parent: InodeNo) -> Rename<'static> {
    let (name, new_name, how) = (name("f"), name("t"), RenameHow::NoReplace);
    Rename { caller: ROOT, parent: InodeNo::ROOT, name, new_parent, new_name, how }
}

/// A client of the second lane that knows the new name to be absent.
fn holder_of(server: &mut TestServer, dir: InodeNo) -> Holder {
    let fields = HelloFields { server_lane: server.map.lane(dir.shard()), ..HelloFields::new(1) };
    let mut holder = Holder::unknown(server, fields);
    let handle = Handle { id: HandleId(1), open_for: OpenFor::Read };
    let open = wire::Open { caller: ROOT, inode: dir, handle };
    let shard = dir.shard();
    holder.send_to(server, (Op::Open, shard, 1), request_flag::LEASES, &open);
    server.run();
    assert_eq!(holder.reply(server).head.status, Status::Ok);
    let lookup = Lookup { caller: ROOT, parent: dir, name: name("t") };
    holder.send_to(server, (Op::Lookup, shard, 0), request_flag::LEASES, &lookup);
    server.run();
    assert_eq!(holder.reply(server).granted(), lease_flag::NAME);
    let getattr = Getattr { inode: dir };
    holder.send_to(server, (Op::Getattr, shard, 0), request_flag::LEASES, &getattr);
    server.run();
    assert_eq!(holder.reply(server).granted(), lease_flag::ATTRIBUTES);
    holder
}

/// Lets the coordinator retry.
fn pass(server: &mut TestServer, ms: u64) {
    for _ in 0..ms {
        server.pass_ms(1);
        server.run();
    }
}

#[test]
fn a_participant_recalls_and_the_coordinator_retries_until_it_may() {
    for seed in 0..5 {
        let (mut server, mut other, _, dir) = scene(seed);
        let mut holder = holder_of(&mut server, dir);
        other.send(&mut server, Op::Rename, 1, &rename(dir));
        server.run();
        pass(&mut server, 100);
        let keys = [Key::Name(dir, "t".to_string()), Key::Attributes(dir)];
        assert_eq!(holder.recalled(&mut server), BTreeSet::from(keys), "recalled once");
        assert_eq!(holder.recalls.len(), 1);
        assert!(!other.has_reply(&mut server));
        // It asks again and again, and is granted nothing while the coordinator retries.
        let lookup = Lookup { caller: ROOT, parent: dir, name: name("t") };
        holder.ack(&mut server);
        holder.send_to(&mut server, (Op::Lookup, dir.shard(), 0), request_flag::LEASES, &lookup);
        server.run();
        assert_eq!(holder.reply(&mut server).granted(), 0);
        pass(&mut server, 100);
        assert!(other.has_reply(&mut server));
        assert_eq!(other.replies[0].head.status, Status::Ok);
        holder.send_to(&mut server, (Op::Lookup, dir.shard(), 0), request_flag::LEASES, &lookup);
        server.run();
        let found = holder.reply(&mut server);
        assert_eq!(found.head.status, Status::Ok, "the new name is there");
    }
}

#[test]
fn a_silent_holder_at_a_participant_delays_by_the_term() {
    let (mut server, mut other, _, dir) = scene(7);
    let _holder = holder_of(&mut server, dir);
    other.send(&mut server, Op::Rename, 1, &rename(dir));
    server.run();
    pass(&mut server, 9_900);
    assert!(!other.has_reply(&mut server));
    pass(&mut server, 200);
    assert!(other.has_reply(&mut server));
}

#[test]
fn leases_of_the_coordinators_client_do_not_conflict() {
    let (mut server, mut other, file, dir) = scene(8);
    let fields = HelloFields { server_lane: LaneId(1), ..HelloFields::new(2) };
    let mut elsewhere = Holder::unknown(&mut server, fields);
    elsewhere.fields.client_lane = LaneId(1);
    elsewhere.reconnect(&mut server);
    let handle = Handle { id: HandleId(99), open_for: OpenFor::Read };
    let open = wire::Open { caller: ROOT, inode: dir, handle };
    let shard = dir.shard();
    elsewhere.send_to(&mut server, (Op::Open, shard, 1), request_flag::LEASES, &open);
    server.run();
    elsewhere.reply(&mut server);
    let lookup = Lookup { caller: ROOT, parent: dir, name: name("t") };
    elsewhere.send_to(&mut server, (Op::Lookup, shard, 0), request_flag::LEASES, &lookup);
    server.run();
    assert_eq!(elsewhere.reply(&mut server).granted(), lease_flag::NAME);
    assert!(other.getattr(&mut server, file).granted() != 0);
    other.send(&mut server, Op::Rename, 1, &rename(dir));
    assert!(other.has_reply(&mut server));
    assert!(elsewhere.recalled(&mut server).is_empty());
}

#[test]
fn the_coordinators_own_keys_are_recalled_before_it_begins() {
    let (mut server, mut other, file, dir) = scene(9);
    let mut holder = Holder::new(&mut server, 1);
    assert!(holder.lookup(&mut server, "f").granted() != 0);
    holder.replies.clear();
    other.send(&mut server, Op::Rename, 1, &rename(dir));
    server.run();
    let recalled = holder.recalled(&mut server);
    assert!(recalled.contains(&root_name("f")) && recalled.contains(&Key::Attributes(file)));
    assert!(!other.has_reply(&mut server));
    holder.ack(&mut server);
    pass(&mut server, 100);
    assert!(other.has_reply(&mut server));
    assert_eq!(holder.lookup(&mut server, "f").head.status, Status::NotFound);
}
