//! Rights of handles, asked for by a client that keeps to nothing: what an export's squash leaves of a
//! caller decides what it opens, and a handle gives what it was opened for and nothing else.

use crate::fixture::{Fixture, Mount, Server, must};
use crate::raw_client::{Answer, Raw};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use wire::*;

const SECRET: &[u8] = b"secret";
const HANDLE: HandleId = HandleId(7);
const MODES: [u32; 8] = [0o600, 0o640, 0o604, 0o622, 0o711, 0o700, 0o755, 0o066];
const OWNERS: [(u32, u32); 3] = [(0, 0), (0, 6), (5, 6)];
const CALLERS: [(u32, u32); 5] = [(0, 0), (5, 9), (7, 6), (7, 0), (7, 9)];
const NOBODY: u32 = 65_534;

/// Connections of one client to both lanes of a server, bound to an export.
struct Bound {
    lanes: [Raw; 2],
    root: InodeNo,
}

impl Bound {
    fn new(fixture: &Fixture, server: &Server, name: &str) -> Self {
        let address = server.address.as_str();
        let secret = must(&mut fixture.lanefs(["export", "secret", address, name]));
        let secret = library::secret::of_text(&secret).unwrap();
        let client = ClientUuid(library::random().unwrap());
        let lanes = [0, 1].map(|lane| Raw::new(address, &secret, (name, lane), client));
        let root = lanes[0].root;
        Self { lanes, root }
    }

    /// The lane that an op on an inode goes to, and the shard.
    fn at(&mut self, op: Op, inode: InodeNo) -> (&mut Raw, ShardId) {
        let map = self.lanes[0].map.clone();
        let data = op.row().route == Route::Data;
        let shard = if data { map.data_shard(inode, 0) } else { inode.shard() };
        (&mut self.lanes[usize::from(map.lane(shard).0)], shard)
    }

    fn ask<'a>(&mut self, op: Op, inode: InodeNo, message: &impl Wire<'a>, bulk: &[u8]) -> Answer {
        let (raw, shard) = self.at(op, inode);
        raw.answer(op, shard, message, bulk)
    }

    fn status<'a>(&mut self, op: Op, inode: InodeNo, message: &impl Wire<'a>) -> Status {
        self.ask(op, inode, message, &[]).reply.status
    }

    fn close(&mut self, inode: InodeNo) {
        assert_eq!(self.status(Op::Close, inode, &Close { inode, handle: HANDLE }), Status::Ok);
    }

    fn read(&mut self, inode: InodeNo) -> Status {
        let read = Read { inode, file_offset: 0, read_bytes: 6, accesses: true };
        let answer = self.ask(Op::Read, inode, &read, &[]);
        let expected_bytes = if answer.reply.status == Status::Ok { SECRET } else { &[] };
        assert_eq!(answer.bulk, expected_bytes);
        answer.reply.status
    }

    fn write(&mut self, inode: InodeNo) -> Status {
        let write =
            Write { inode, file_offset: 0, append: false, clears: ClearPrivileges::Nothing };
        self.ask(Op::Write, inode, &write, SECRET).reply.status
    }

    fn list(&mut self, inode: InodeNo, (uid, gid): (u32, u32)) -> Status {
        let (cookie, listing_bytes_max, attrs, handle) = (0, 4096, false, Some(HANDLE));
        let caller = caller(uid, gid);
        let list = Readdir { caller, inode, cookie, listing_bytes_max, attrs, handle };
        self.status(Op::Readdir, inode, &list)
    }
}

const fn caller(uid: u32, gid: u32) -> Caller<'static> {
    Caller { uid, gid, groups: Groups::Known(&[]) }
}

/// Files and directories of every owner and mode; what `chown` and `chmod` of a mount made of them.
struct Thing {
    inode: InodeNo,
    directory: bool,
    owner: (u32, u32),
    mode: u32,
}

fn things(dir: &Path) -> Vec<Thing> {
    let mut things = Vec::new();
    for (uid, gid) in OWNERS {
        for mode in MODES {
            for directory in [false, true] {
                let path = dir.join(format!("{uid}.{gid}.{mode:o}.{directory}"));
                if directory {
                    fs::create_dir(&path).unwrap();
                } else {
                    fs::write(&path, SECRET).unwrap();
                }
                chown(&path, Some(uid), Some(gid)).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                let inode = InodeNo(fs::metadata(&path).unwrap().ino());
                things.push(Thing { inode, directory, owner: (uid, gid), mode });
            }
        }
    }
    things
}

/// The bits that a caller has of a thing, by the classes of POSIX.
fn permitted(thing: &Thing, squash: &str, (uid, gid): (u32, u32)) -> u32 {
    let squashed = squash == "all" || uid == 0;
    let (uid, gid) = if squashed { (NOBODY, NOBODY) } else { (uid, gid) };
    let gid = if gid == 0 { NOBODY } else { gid };
    let shift = if uid == thing.owner.0 {
        6
    } else if gid == thing.owner.1 {
        3
    } else {
        0
    };
    thing.mode >> shift & 7
}

/// The bits that some caller has, or can give himself.
fn permitted_to_anybody(thing: &Thing, squash: &str) -> u32 {
    if squash == "root" && thing.owner.0 != 0 {
        return 7;
    }
    let group = if squash == "root" && thing.owner.1 != 0 { thing.mode >> 3 } else { 0 };
    (thing.mode | group) & 7
}

const fn bits(open_for: OpenFor) -> u32 {
    match open_for {
        OpenFor::Read => 4,
        OpenFor::Write => 2,
        OpenFor::ReadWrite => 6,
        OpenFor::Execute => 1,
    }
}

fn ok_or(granted: bool, no: Status) -> Status {
    if granted { Status::Ok } else { no }
}

/// What a client can do with a thing that it has open for this much, `held`.
fn check_use(bound: &mut Bound, thing: &Thing, squash: &str, held: u32, what: &str) {
    let anybody = permitted_to_anybody(thing, squash);
    if thing.directory {
        let stranger = (77, 77);
        let lists = held & 4 != 0 || permitted(thing, squash, stranger) & 4 != 0;
        assert_eq!(bound.list(thing.inode, stranger), ok_or(lists, Status::Access), "{what}");
        return;
    }
    let reads = (held | anybody) & 5 != 0;
    assert_eq!(bound.read(thing.inode), ok_or(reads, Status::Access), "{what}");
    let writes = (held | anybody) & 2 != 0;
    assert_eq!(bound.write(thing.inode), ok_or(writes, Status::Access), "{what}");
}

fn check_open(bound: &mut Bound, thing: &Thing, squash: &str, who: (u32, u32), open_for: OpenFor) {
    let Thing { inode, directory, owner, mode } = *thing;
    let what = format!("{squash} {owner:?} {mode:o} dir {directory} {who:?} {open_for:?}");
    let open =
        Open { caller: caller(who.0, who.1), inode, handle: Handle { id: HANDLE, open_for } };
    let want = bits(open_for);
    let expected = if directory && open_for.writes() {
        Status::IsDirectory
    } else {
        ok_or(permitted(thing, squash, who) & want == want, Status::Access)
    };
    assert_eq!(bound.status(Op::Open, inode, &open), expected, "{what}");
    let held = if expected == Status::Ok { want } else { 0 };
    check_use(bound, thing, squash, held, &what);
    bound.close(inode);
    check_use(bound, thing, squash, 0, &format!("{what}, closed"));
}

/// Who says that it had something open is believed as far as it could have had.
fn check_reopen(bound: &mut Bound, thing: &Thing, squash: &str, open_for: OpenFor) {
    let Thing { inode, directory, owner, mode } = *thing;
    let what = format!("{squash} {owner:?} {mode:o} dir {directory} again {open_for:?}");
    let want = bits(open_for);
    let may = permitted_to_anybody(thing, squash) & want == want;
    let expected = match directory && open_for.writes() {
        true if may => Status::Invalid,
        _ => ok_or(may, Status::Stale),
    };
    let reopen = Reopen { inode, handle: Handle { id: HANDLE, open_for } };
    assert_eq!(bound.status(Op::Reopen, inode, &reopen), expected, "{what}");
    check_use(bound, thing, squash, if expected == Status::Ok { want } else { 0 }, &what);
    bound.close(inode);
}

fn exported(test: &str) -> Option<(Fixture, Server, Mount)> {
    let fixture = Fixture::new(test)?;
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let all = fixture.mount(&server.address, "all", &["--export", "up"]);
    let dir = all.dir.join("a");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    for squash in ["root", "all"] {
        let add = ["export", "add", &server.address, squash, "/a", "--squash", squash];
        must(&mut fixture.lanefs(add));
    }
    Some((fixture, server, all))
}

#[test]
fn a_handle_permits_only_the_access_of_its_open() {
    let Some((fixture, server, all)) = exported("rights_hostile") else { return };
    let things = things(&all.dir.join("a"));
    for squash in ["root", "all"] {
        let mut bound = Bound::new(&fixture, &server, squash);
        for thing in &things {
            for open_for in OpenFor::ALL {
                for who in CALLERS {
                    check_open(&mut bound, thing, squash, who, open_for);
                }
                check_reopen(&mut bound, thing, squash, open_for);
            }
        }
    }
    all.stop();
}

#[test]
fn an_open_for_nothing_opens_nothing() {
    let Some((fixture, server, all)) = exported("open_nothing") else { return };
    let dir = all.dir.join("a");
    let (file, private) = (dir.join("file"), dir.join("private"));
    fs::write(&file, SECRET).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    let [file, private] = [&file, &private].map(|path| InodeNo(fs::metadata(path).unwrap().ino()));
    for squash in ["root", "all"] {
        let mut bound = Bound::new(&fixture, &server, squash);
        let handle = Handle { id: HANDLE, open_for: OpenFor::Read };
        for inode in [file, private] {
            for uid in [0, 12_345] {
                let open = Open { caller: caller(uid, uid), inode, handle };
                for (op, body) in
                    [(Op::Open, open.to_bytes()), (Op::Reopen, Reopen { inode, handle }.to_bytes())]
                {
                    for open_for in [0, 3, 5, 7, 255] {
                        let mut body = body.clone();
                        *body.last_mut().unwrap() = open_for;
                        let (raw, shard) = bound.at(op, inode);
                        let request = raw.request(op, shard);
                        raw.say(request, |to| to.put(&body), &[]).unwrap();
                        let answer = raw.answer_to(request.xid).unwrap();
                        assert_eq!(answer.reply.status, Status::Invalid, "{op:?} {open_for}");
                    }
                }
            }
        }
        assert_eq!(bound.read(file), Status::Access, "{squash}");
        assert_eq!(bound.list(private, (0, 0)), Status::Access, "{squash}");
        assert_eq!(bound.list(private, (12_345, 12_345)), Status::Access, "{squash}");
    }
    all.stop();
}

#[test]
fn nothing_is_made_for_an_owner_that_there_cannot_be() {
    let Some((fixture, server, all)) = exported("no_owner") else { return };
    let mut bound = Bound::new(&fixture, &server, "root");
    let (parent, mode, umask) = (bound.root, 0o666, 0);
    let name = Name::new(b"new").unwrap();
    let handle = Handle { id: HANDLE, open_for: OpenFor::ReadWrite };
    for (uid, gid) in [(u32::MAX, 5), (5, u32::MAX)] {
        let caller = caller(uid, gid);
        let create = Create {
            caller,
            parent,
            name,
            mode,
            umask,
            exclusive: true,
            handle: Some(handle),
            behind: None,
        };
        let (kind, rdev, target) = (FileKind::Fifo, 0, Bytes(b"x"));
        let tmpfile = Tmpfile { caller, parent, mode, umask, linkable: true, handle };
        let mkdir = Mkdir { caller, parent, name, mode, umask };
        let mknod = Mknod { caller, parent, name, kind, mode, umask, rdev };
        let statuses = [
            bound.status(Op::Create, parent, &create),
            bound.status(Op::Tmpfile, parent, &tmpfile),
            bound.status(Op::Mkdir, parent, &mkdir),
            bound.status(Op::Mknod, parent, &mknod),
            bound.status(Op::Symlink, parent, &Symlink { caller, parent, name, target }),
        ];
        assert_eq!(statuses, [Status::Invalid; 5], "{uid} {gid}");
    }
    assert_eq!(fs::read_dir(all.dir.join("a")).unwrap().count(), 0);
    all.stop();
}
