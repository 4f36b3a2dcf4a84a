//! What the clients of an export had answered early when it became read-only.

use super::names_behind::{behind, now, nth};
use super::*;
use crate::tests::exports::export;
use wire::{ClearPrivileges, Export, Freeze, Mkdir, Purpose, SetExport, Widen, Write};

const BEHIND: u16 = request_flag::LEASES | request_flag::BEHIND;
/// Behind this time nothing that was answered early is executed any more.
const TWO_TERMS_MS: u64 = 20_000;

impl Holder {
    fn status_of<'a>(
        &mut self,
        server: &mut TestServer,
        (op, shard, flags): (Op, ShardId, u16),
        (body, bulk): (&impl Wire<'a>, Option<&[u8]>),
    ) -> Status {
        let slot = u16::from(op.row().retry == wire::Retry::Once);
        let head = Request { flags, ..self.peer.head(op, shard, slot) };
        self.peer.send(server, &head, &body.to_bytes(), bulk);
        assert!(self.has_reply(server), "{op:?}");
        self.reply(server).head.status
    }

    /// Appends four bytes where the file ends.
    fn appends(
        &mut self,
        server: &mut TestServer,
        file: InodeNo,
        (end, flags): (u64, u16),
    ) -> Status {
        let (append, clears) = (true, ClearPrivileges::Nothing);
        let write = Write { inode: file, file_offset: end, append, clears };
        let shard = server.map.data_shard(file, 0);
        self.status_of(server, (Op::Write, shard, flags), (&write, Some(b"abcd")))
    }

    /// Changes the mode.
    fn sets(&mut self, server: &mut TestServer, file: InodeNo, flags: u16) -> Status {
        self.status_of(server, (Op::Setattr, file.shard(), flags), (&chmod(file, 0o600), None))
    }

    pub(super) fn set_export(&mut self, server: &mut TestServer, export: Export<'static>) {
        let set = SetExport { export, replace: true };
        let status = self.status_of(server, (Op::SetExport, ShardId::meta(0), 0), (&set, None));
        assert_eq!(status, Status::Ok);
    }
}

/// A client of an export that writes a file behind, and changes the names of a directory behind.
struct Bound {
    server: TestServer,
    admin: Holder,
    holder: Holder,
    dir: InodeNo,
    files: NewFiles,
    /// Made before the directory.
    file: InodeNo,
}

const WRITABLE: fn() -> Export<'static> = || export("in", InodeNo::ROOT);

fn read_only() -> Export<'static> {
    Export { read_only: true, ..WRITABLE() }
}

fn bound(seed: u64) -> Bound {
    let mut server = started(seed);
    let purpose = Purpose::Administer;
    let mut admin = Holder::unknown(&mut server, HelloFields { purpose, ..HelloFields::new(3) });
    admin.set_export(&mut server, WRITABLE());
    let mut holder =
        Holder::unknown(&mut server, HelloFields { export: "in", ..HelloFields::new(1) });
    holder.open(&mut server, InodeNo::ROOT, OpenFor::Read);
    // The first one asks for the free space.
    holder.mkdir_behind(&mut server, (InodeNo::ROOT, "first"));
    let (dir, made) = holder.mkdir_behind(&mut server, (InodeNo::ROOT, "d"));
    let files = made.new_files.unwrap();
    let handle = Some(Handle { id: HandleId(900), open_for: OpenFor::Write });
    let body = wire::Create { handle, ..create("f") };
    holder.send_to(&mut server, (Op::Create, InodeNo::ROOT.shard(), 1), BEHIND, &body);
    server.run();
    let created = holder.reply(&mut server);
    assert_ne!(created.granted() & lease_flag::WRITING, 0);
    let file = Created::decode_all(&created.message).unwrap().attr.inode;
    Bound { server, admin, holder, dir, files, file }
}

#[test]
fn what_was_answered_early_is_executed_when_its_export_is_read_only_and_nothing_else_is() {
    let Bound { mut server, mut admin, mut holder, dir, files, file } = bound(401);
    admin.set_export(&mut server, read_only());
    let recalled = holder.recalled(&mut server);
    assert!(recalled.is_superset(&[Key::Writing(dir), Key::Writing(file)].into()), "{recalled:?}");
    let server = &mut server;
    let early = request_flag::BEHIND;
    assert_eq!(holder.appends(server, file, (0, early)), Status::Ok);
    assert_eq!(holder.appends(server, file, (4, 0)), Status::ReadOnly);
    assert_eq!(holder.appends(server, file, (0, early)), Status::Stale, "the file ends elsewhere");
    assert_eq!(holder.sets(server, file, early), Status::Ok);
    assert_eq!(holder.sets(server, file, 0), Status::ReadOnly);
    // A file that is made behind, and what is written behind that. It is granted nothing.
    let made = behind(server, nth(files, 0));
    let created = holder.create_behind_in(server, (dir, "early"), made);
    assert_eq!(created.head.status, Status::Ok);
    assert_eq!(created.granted() & lease_flag::WRITING, 0);
    assert_eq!(holder.appends(server, nth(files, 0), (0, early)), Status::Ok);
    // Who holds the directory has shown it to nobody.
    assert_eq!(holder.sets(server, nth(files, 0), early), Status::Ok);
    assert_eq!(holder.sets(server, nth(files, 0), 0), Status::ReadOnly);
    let at = now(server);
    assert_eq!(holder.unlink_behind(server, (dir, "early"), at), Status::Ok);
    // The flag asks for a lease here.
    let (caller, name) = (ROOT, name("new"));
    let mkdir = Mkdir { caller, parent: dir, name, mode: 0o755, umask: 0 };
    let status = holder.status_of(server, (Op::Mkdir, dir.shard(), BEHIND), (&mkdir, None));
    assert_eq!(status, Status::ReadOnly);
    let new = wire::Create { parent: dir, ..create("new") };
    let status = holder.status_of(server, (Op::Create, dir.shard(), BEHIND), (&new, None));
    assert_eq!(status, Status::ReadOnly);
    // Its callers have the answers of nothing further.
    let made = behind(server, nth(files, 2));
    assert_eq!(holder.create_behind_in(server, (dir, "kept"), made).head.status, Status::Ok);
    holder.ack(server);
    assert_eq!(holder.sets(server, nth(files, 2), early), Status::Stale);
    let made = behind(server, nth(files, 1));
    assert_eq!(holder.create_behind_in(server, (dir, "late"), made).head.status, Status::Stale);
    assert_eq!(holder.sets(server, file, early), Status::Stale);
}

#[test]
fn the_time_for_what_was_answered_early_is_over_after_two_terms_also_for_who_reconnects() {
    let Bound { mut server, mut admin, mut holder, file, .. } = bound(402);
    admin.set_export(&mut server, read_only());
    holder.ack(&mut server);
    let server = &mut server;
    assert!(server.may_write(holder.peer.conn));
    holder.reconnect(server);
    assert!(server.may_write(holder.peer.conn));
    assert_eq!(holder.appends(server, file, (0, request_flag::BEHIND)), Status::Ok);
    server.pass_ms(TWO_TERMS_MS - 10);
    assert_eq!(holder.appends(server, file, (4, request_flag::BEHIND)), Status::Ok);
    server.pass_ms(20);
    assert_eq!(holder.appends(server, file, (8, request_flag::BEHIND)), Status::ReadOnly);
    assert!(!server.may_write(holder.peer.conn), "what it brings further is discarded");
    let widen = Widen { inode: file };
    let shard = server.map.data_shard(file, 0);
    assert_eq!(holder.status_of(server, (Op::Widen, shard, 0), (&widen, None)), Status::ReadOnly);
    // Another definition that is read-only as well does not begin it again.
    admin.set_export(server, Export { squash: wire::Squash::ROOT, ..read_only() });
    assert_eq!(holder.appends(server, file, (8, request_flag::BEHIND)), Status::ReadOnly);
}

#[test]
fn the_time_for_what_was_answered_early_is_longer_by_a_freeze() {
    let Bound { mut server, mut admin, mut holder, file, .. } = bound(403);
    admin.set_export(&mut server, read_only());
    holder.ack(&mut server);
    let server = &mut server;
    let freeze = |admin: &mut Holder, server: &mut TestServer, lease_ms| {
        let freeze = Freeze { lease_ms };
        let status = admin.status_of(server, (Op::Freeze, ShardId::meta(0), 0), (&freeze, None));
        assert_eq!(status, Status::Ok);
    };
    freeze(&mut admin, server, 30_000);
    server.pass_ms(TWO_TERMS_MS + 10);
    freeze(&mut admin, server, 0);
    assert_eq!(holder.appends(server, file, (0, request_flag::BEHIND)), Status::Ok);
}

#[test]
fn a_sync_of_an_export_that_is_read_only_waits_until_nothing_of_it_is_answered_early() {
    let Bound { mut server, mut admin, mut holder, dir, file, .. } = bound(405);
    admin.set_export(&mut server, read_only());
    let fields = HelloFields { export: "in", ..HelloFields::new(5) };
    let mut other = Holder::unknown(&mut server, fields);
    let shard = dir.shard();
    let head = Request { flags: request_flag::BEHIND, ..other.peer.head(Op::Sync, shard, 0) };
    other.peer.send(&mut server, &head, &[], None);
    assert!(!other.has_reply(&mut server));
    assert_eq!(holder.appends(&mut server, file, (0, request_flag::BEHIND)), Status::Ok);
    assert!(!other.has_reply(&mut server));
    holder.ack(&mut server);
    assert!(other.has_reply(&mut server));
    assert_eq!(other.reply(&mut server).head.status, Status::Ok);
}
