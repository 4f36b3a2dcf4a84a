//! Syncs that wait for what others have answered early.

use super::names_behind::{Scene, behind, nth, scene};
use super::*;
use crate::test_server::Kind;
use crate::tests::exports::export;
use crate::tests::traces::{admin, one_of, traces};
use interface::Errno;
use wire::traces::WaitCause;
use wire::{ClientUuid, Purpose, SetExport};

const BEHIND: u16 = request_flag::LEASES | request_flag::BEHIND;

impl Holder {
    fn sync(&mut self, server: &mut TestServer, shard: ShardId, flags: u16) {
        let head = Request { flags, ..self.peer.head(Op::Sync, shard, 0) };
        self.peer.send(server, &head, &[], None);
    }

    /// Begins to write a new file behind. Returns whether it may.
    fn opens_new(&mut self, server: &mut TestServer, text: &str) -> bool {
        let handle = Some(Handle { id: HandleId(900), open_for: OpenFor::Write });
        let body = wire::Create { handle, ..create(text) };
        self.send_to(server, (Op::Create, InodeNo::ROOT.shard(), 1), BEHIND, &body);
        server.run();
        self.reply(server).granted() & lease_flag::WRITING != 0
    }
}

#[test]
fn a_sync_waits_for_what_another_client_has_answered_and_for_nothing_later() {
    let Scene { mut server, mut holder, mut other, dir, files } = scene(301);
    let shard = dir.shard();
    // Without the flag, for what the server has.
    other.sync(&mut server, shard, 0);
    assert!(other.has_reply(&mut server));
    other.replies.clear();
    assert!(holder.opens_new(&mut server, "f"));
    let file = holder.lookup(&mut server, "f");
    let file = Entry::decode_all(&file.message).unwrap().attr.inode;
    other.sync(&mut server, shard, request_flag::BEHIND);
    assert!(!other.has_reply(&mut server));
    let recalled = holder.recalled(&mut server);
    assert_eq!(recalled, [Key::Writing(dir), Key::Writing(file)].into());
    // What its programs have the answer of.
    let number = nth(files, 0);
    let made = behind(&server, number);
    let made = holder.create_behind_in(&mut server, (dir, "early"), made);
    assert_eq!(made.head.status, Status::Ok);
    assert!(holder.opens_new(&mut server, "later"), "another file, which it does not wait for");
    holder.ack(&mut server);
    assert!(other.has_reply(&mut server));
    assert_eq!(other.reply(&mut server).head.status, Status::Ok);
    // The file that was created early is written behind still: the next one waits for it.
    other.sync(&mut server, shard, request_flag::BEHIND);
    assert!(!other.has_reply(&mut server));
    assert!(holder.recalled(&mut server).contains(&Key::Writing(number)));
    holder.ack(&mut server);
    assert!(other.has_reply(&mut server));
}

#[test]
fn a_sync_waits_until_what_was_answered_is_durable() {
    let Scene { mut server, mut holder, mut other, dir, files } = scene(302);
    other.sync(&mut server, dir.shard(), request_flag::BEHIND);
    assert!(!other.has_reply(&mut server));
    let made = behind(&server, nth(files, 0));
    let handle = Some(Handle { id: HandleId(901), open_for: OpenFor::Write });
    let body = wire::Create { parent: dir, handle, behind: Some(made), ..create("early") };
    holder.send_to(&mut server, (Op::Create, dir.shard(), 1), BEHIND, &body);
    server.run_turns_only(0);
    holder.collect(&mut server);
    assert_eq!(holder.reply(&mut server).head.status, Status::Ok);
    let nos: Vec<RecallNo> = holder.recalls.drain(..).map(|recall| recall.recall_no).collect();
    holder.send_ack(&mut server, &nos, LeaseNo(0));
    server.run_turns_only(0);
    other.collect(&mut server);
    assert!(other.replies.is_empty(), "its record is on its way to the log");
    assert!(other.has_reply(&mut server));
}

#[test]
fn a_sync_waits_for_a_silent_client_no_longer_than_for_its_term_and_names_it() {
    let Scene { mut server, holder: _holder, mut other, dir, .. } = scene(303);
    let mut admin = admin(&mut server);
    other.sync(&mut server, dir.shard(), request_flag::BEHIND);
    assert!(!other.has_reply(&mut server));
    server.pass_ms(9_990);
    assert!(!other.has_reply(&mut server));
    let found = traces(&mut server, &mut admin);
    let waiting = one_of(&found, Op::Sync);
    let whom: Vec<ClientUuid> = waiting.waits[0].whom.iter().map(|party| party.client).collect();
    assert_eq!((waiting.waits.len(), whom), (1, Vec::from([ClientUuid([1; 16])])));
    assert_eq!((waiting.waits[0].cause, waiting.waits[0].is_now), (WaitCause::Lease, true));
    server.pass_ms(20);
    assert!(other.has_reply(&mut server));
}

#[test]
fn a_sync_does_not_wait_for_its_own_client() {
    let Scene { mut server, mut holder, dir, .. } = scene(304);
    holder.sync(&mut server, dir.shard(), request_flag::BEHIND);
    assert!(holder.has_reply(&mut server));
    assert_eq!(holder.recalled(&mut server), BTreeSet::new());
}

#[test]
fn a_sync_that_is_confined_to_an_export_recalls_nothing_of_other_clients() {
    let Scene { mut server, mut holder, dir, .. } = scene(305);
    let purpose = Purpose::Administer;
    let fields = HelloFields { purpose, ..HelloFields::new(3) };
    let mut admin = Holder::unknown(&mut server, fields);
    let set = SetExport { export: export("in", dir), replace: false };
    admin.send_to(&mut server, (Op::SetExport, ShardId::meta(0), 0), 0, &set);
    server.run();
    assert_eq!(admin.reply(&mut server).head.status, Status::Ok);
    assert!(holder.opens_new(&mut server, "f"));
    let fields = HelloFields { export: "in", ..HelloFields::new(4) };
    let mut confined = Holder::unknown(&mut server, fields);
    confined.sync(&mut server, dir.shard(), request_flag::BEHIND);
    assert!(confined.has_reply(&mut server));
    assert_eq!(holder.recalled(&mut server), BTreeSet::new());
    // One of its own export. It looks into the directory, which the holder changes behind.
    let fields = HelloFields { export: "in", ..HelloFields::new(5) };
    let mut third = Holder::unknown(&mut server, fields);
    let handle = Handle { id: HandleId(1), open_for: OpenFor::Read };
    let open = wire::Open { caller: ROOT, inode: dir, handle };
    third.send(&mut server, Op::Open, 1, &open);
    server.run();
    holder.ack(&mut server);
    assert_eq!(third.reply(&mut server).head.status, Status::Ok);
    let handle = Some(Handle { id: HandleId(900), open_for: OpenFor::Write });
    let body = wire::Create { parent: dir, handle, ..create("g") };
    third.send_to(&mut server, (Op::Create, dir.shard(), 1), BEHIND, &body);
    server.run();
    holder.ack(&mut server);
    assert_ne!(third.reply(&mut server).granted() & lease_flag::WRITING, 0);
    confined.replies.clear();
    confined.sync(&mut server, dir.shard(), request_flag::BEHIND);
    assert!(!confined.has_reply(&mut server));
    third.ack(&mut server);
    assert!(confined.has_reply(&mut server));
}

#[test]
fn a_sync_fails_when_the_log_does_and_ends_with_what_it_waited_for() {
    let Scene { mut server, mut holder, mut other, dir, .. } = scene(306);
    assert!(holder.opens_new(&mut server, "f"));
    other.sync(&mut server, dir.shard(), request_flag::BEHIND);
    assert!(!other.has_reply(&mut server));
    server.failing.push((Kind::Log, Errno(5)));
    holder.send(&mut server, Op::Create, 2, &create("g"));
    assert!(other.has_reply(&mut server));
    let of_sync = other.replies.iter().find(|reply| reply.head.op == Op::Sync).unwrap();
    assert_eq!(of_sync.head.status, Status::Io);
    other.replies.clear();
    holder.ack(&mut server);
    assert!(!other.has_reply(&mut server));
}
