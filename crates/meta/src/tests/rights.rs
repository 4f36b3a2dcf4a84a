//! Rights of handles: each operation that opens or uses a handle, for every mode, permission bits
//! and caller, against an independent model of permissions.

use super::{ALICE, BOB, Harness, ROOT, name, root, setattr};
use crate::Rights;
use alloc::vec::Vec;
use wire::{
    Bytes, Caller, ClearPrivileges, Close, Create, FileKind, Find, Groups, Handle, HandleId,
    InodeNo, Mkdir, Mknod, Op, Open, OpenFor, Predicate, Readdir, Reopen, Setattr, Setxattr,
    Squash, SquashedIds, Status, Symlink, Tmpfile,
};

/// A caller: user, group, and supplementary groups.
#[derive(Clone, Copy, Debug)]
struct Claim {
    uid: u32,
    gid: u32,
    groups: &'static [u32],
}

const CLAIMS: [Claim; 10] = [
    Claim { uid: 0, gid: 0, groups: &[] },
    Claim { uid: 5, gid: 9, groups: &[] },
    Claim { uid: 7, gid: 6, groups: &[] },
    Claim { uid: 7, gid: 9, groups: &[6, 20] },
    Claim { uid: 7, gid: 9, groups: &[0] },
    Claim { uid: 7, gid: 0, groups: &[] },
    Claim { uid: 7, gid: 9, groups: &[] },
    Claim { uid: 8, gid: 9, groups: &[] },
    Claim { uid: 9, gid: 20, groups: &[] },
    Claim { uid: 99, gid: 98, groups: &[] },
];

const SQUASHES: [Squash; 4] = [
    Squash::NONE,
    Squash { ids: SquashedIds::Root, anon_uid: 99, anon_gid: 98 },
    Squash { ids: SquashedIds::All, anon_uid: 99, anon_gid: 98 },
    Squash { ids: SquashedIds::All, anon_uid: 5, anon_gid: 6 },
];

/// A tag, an id and permissions.
type Entries = &'static [(u16, u32, u16)];

const ANY: u32 = u32::MAX;
const OWNER: u16 = 1;
const USER: u16 = 2;
const FILE_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHERS: u16 = 32;

const LISTS: [Entries; 3] = [
    // The mask has more than any entry.
    &[(OWNER, ANY, 6), (FILE_GROUP, ANY, 0), (MASK, ANY, 7), (OTHERS, ANY, 0)],
    &[
        (OWNER, ANY, 7),
        (USER, 7, 4),
        (USER, 8, 2),
        (FILE_GROUP, ANY, 1),
        (GROUP, 0, 6),
        (GROUP, 20, 2),
        (MASK, ANY, 6),
        (OTHERS, ANY, 1),
    ],
    &[(OWNER, ANY, 7), (USER, 0, 7), (FILE_GROUP, ANY, 0), (MASK, ANY, 7), (OTHERS, ANY, 0)],
];

/// An inode as the model knows it.
#[derive(Clone, Copy)]
struct ModelInode {
    kind: FileKind,
    mode: u32,
    uid: u32,
    gid: u32,
    list: Option<Entries>,
}

/// A caller's ids after squashing.
fn squashed(claim: Claim, squash: Squash) -> (u32, Vec<u32>) {
    let Squash { ids, anon_uid, anon_gid } = squash;
    let replaced = ids == SquashedIds::All || (ids == SquashedIds::Root && claim.uid == 0);
    if replaced {
        return (anon_uid, Vec::from([anon_gid]));
    }
    let mut groups = Vec::from([claim.gid]);
    groups.extend(claim.groups);
    if ids == SquashedIds::Root {
        if claim.gid == 0 {
            groups[0] = anon_gid;
        }
        groups.retain(|gid| *gid != 0);
    }
    (claim.uid, groups)
}

impl ModelInode {
    fn owned_by(&self, uid: u32) -> bool {
        uid == 0 || uid == self.uid
    }

    /// POSIX 1003.1-2017, 4.5, and with a list 1003.1e, 23.1.5.
    fn permits(&self, claim: Claim, squash: Squash, want: u32) -> bool {
        let (uid, groups) = squashed(claim, squash);
        let all = |bits: u32| bits & want == want;
        if uid == 0 {
            return want & 1 == 0 || self.kind == FileKind::Directory || self.mode & 0o111 != 0;
        }
        if uid == self.uid {
            return all(self.mode >> 6);
        }
        let Some(list) = self.list else {
            let shift = if groups.contains(&self.gid) { 3 } else { 0 };
            return all(self.mode >> shift);
        };
        let of = |tag: u16| list.iter().filter(move |entry| entry.0 == tag);
        let mask = of(MASK).map(|entry| u32::from(entry.2)).next().unwrap_or(7);
        if let Some(entry) = of(USER).find(|entry| entry.1 == uid) {
            return all(u32::from(entry.2) & mask);
        }
        let in_file_group = |gid: &u32| *gid == self.gid;
        let mut group_bits = Vec::new();
        if groups.iter().any(in_file_group) {
            group_bits.extend(of(FILE_GROUP).map(|entry| u32::from(entry.2)));
        }
        let named = of(GROUP).filter(|entry| groups.contains(&entry.1));
        group_bits.extend(named.map(|entry| u32::from(entry.2)));
        if !group_bits.is_empty() {
            return group_bits.into_iter().any(|bits| all(bits & mask));
        }
        of(OTHERS).any(|entry| all(entry.2.into()))
    }

    /// The modes in which the most privileged caller can open it; an owner can change the
    /// permission bits first.
    fn rights(&self, squash: Squash) -> Rights {
        let mut rights = Rights::default();
        for claim in CLAIMS {
            let owns = self.owned_by(squashed(claim, squash).0);
            rights.read |= owns || self.permits(claim, squash, 4);
            rights.write |= owns || self.permits(claim, squash, 2);
            rights.execute |= owns || self.permits(claim, squash, 1);
        }
        rights
    }
}

const fn bits(open_for: OpenFor) -> u32 {
    match open_for {
        OpenFor::Read => 4,
        OpenFor::Write => 2,
        OpenFor::ReadWrite => 6,
        OpenFor::Execute => 1,
    }
}

fn with_caller<R>(claim: Claim, request: impl FnOnce(Caller<'_>) -> R) -> R {
    let groups: Vec<u8> = claim.groups.iter().flat_map(|gid| gid.to_le_bytes()).collect();
    request(Caller { uid: claim.uid, gid: claim.gid, groups: Groups::Known(&groups) })
}

fn readdir(caller: Caller<'_>, inode: InodeNo) -> Readdir<'_> {
    let handle = Some(HandleId(1));
    Readdir { caller, inode, cookie: 0, listing_bytes_max: 512, attrs: false, handle }
}

fn find(caller: Caller<'_>, inode: InodeNo) -> Find<'_> {
    let (attrs, directories, predicate) = (false, false, Predicate::ANY);
    Find { caller, inode, cookie: 0, listing_bytes_max: 512, attrs, directories, predicate }
}

fn clears(caller: Caller<'_>, inode: InodeNo) -> Setattr<'_> {
    Setattr { caller, clears: ClearPrivileges::Capability, ..setattr(inode) }
}

/// Nobody to every model here but a directory's or file's own mode for all others.
const STRANGER: Claim = Claim { uid: 77, gid: 77, groups: &[] };

const FILE: &str = "file";
const DIR: &str = "dir";

/// A file and a directory with this owner.
fn scene(owner: (u32, u32)) -> (Harness, [(InodeNo, FileKind); 2]) {
    let mut harness = Harness::new();
    let file = harness.file(ROOT, FILE, 0o644);
    let dir = harness.mkdir(ROOT, DIR, 0o755);
    for inode in [file, dir] {
        harness.set(inode, 0, owner.0, owner.1);
    }
    (harness, [(file, FileKind::File), (dir, FileKind::Directory)])
}

/// Opens, uses the handle for every operation it may permit, and closes it.
fn check_open(
    harness: &mut Harness,
    inode: InodeNo,
    model: &ModelInode,
    claim: Claim,
    open_for: OpenFor,
) {
    let squash = harness.squash;
    let handle = Handle { id: HandleId(1), open_for };
    let opened = with_caller(claim, |caller| {
        let open = Open { caller, inode, handle };
        if model.kind == FileKind::File {
            // Create opens an existing file for a caller with access to the directory.
            let (parent, name, exclusive, handle) = (ROOT, name(FILE), false, Some(handle));
            let create = Create {
                caller,
                parent,
                name,
                mode: 0o777,
                umask: 0,
                exclusive,
                handle,
                behind: None,
            };
            let created = harness.status(Op::Create, &create);
            harness.status(Op::Close, &Close { inode, handle: HandleId(1) });
            assert_eq!(created, harness.status(Op::Open, &open), "{claim:?}");
            created
        } else {
            harness.status(Op::Open, &open)
        }
    });
    let what = alloc::format!("{open_for:?} {:o} {claim:?} {squash:?}", model.mode);
    let expected = if model.kind == FileKind::Directory && open_for.writes() {
        Status::IsDirectory
    } else if model.permits(claim, squash, bits(open_for)) {
        Status::Ok
    } else {
        Status::Access
    };
    assert_eq!(opened, expected, "{what}");
    let held = |permits: bool| permits && expected == Status::Ok;
    let handles = &harness.shard.handles;
    assert_eq!(handles.has_open(inode, ALICE), expected == Status::Ok, "{what}");
    assert_eq!(handles.reads(inode, ALICE), held(bits(open_for) & 4 != 0), "{what}");
    assert_eq!(handles.writes(inode, ALICE), held(bits(open_for) & 2 != 0), "{what}");
    assert_eq!(handles.executes(inode, ALICE), held(bits(open_for) & 1 != 0), "{what}");
    for open_for in OpenFor::ALL {
        assert!(!handles.has_open(inode, BOB), "{what} {open_for:?}");
    }
    // The caller has no permission by itself, so the handle permitted it.
    let may = |granted: bool| if granted { Status::Ok } else { Status::Access };
    with_caller(STRANGER, |caller| {
        let by_mode = |want| model.permits(STRANGER, squash, want);
        let owns = model.owned_by(squashed(STRANGER, squash).0);
        if model.kind == FileKind::Directory {
            let lists = may(held(open_for.reads()) || by_mode(4));
            assert_eq!(harness.status(Op::Readdir, &readdir(caller, inode)), lists, "{what}");
            assert_eq!(harness.status(Op::Find, &find(caller, inode)), lists, "{what}");
        } else {
            let changes = may(owns || held(open_for.writes()) || by_mode(2));
            assert_eq!(harness.status(Op::Setattr, &clears(caller, inode)), changes, "{what}");
        }
    });
    let everybody = model.rights(squash);
    let rights = harness.shard.rights(inode, ALICE, squash);
    assert_eq!(rights.read, everybody.read || held(open_for.reads()), "{what}");
    assert_eq!(rights.write, everybody.write || held(open_for.writes()), "{what}");
    assert_eq!(rights.execute, everybody.execute || held(open_for.executes()), "{what}");
    assert_eq!(harness.shard.rights(inode, BOB, squash), everybody, "{what}");
    harness.status(Op::Close, &Close { inode, handle: HandleId(1) });
    assert!(!harness.shard.handles.has_any(inode), "{what}");
}

fn check_all(harness: &mut Harness, inode: InodeNo, model: &ModelInode) {
    for squash in SQUASHES {
        harness.squash = squash;
        for claim in CLAIMS {
            for open_for in OpenFor::ALL {
                check_open(harness, inode, model, claim, open_for);
            }
        }
    }
}

#[test]
fn a_handle_permits_what_its_open_was_permitted_and_no_more() {
    for owner in [(0, 0), (5, 6), (0, 6)] {
        let (mut harness, things) = scene(owner);
        for (inode, kind) in things {
            // Each class with every bit, and the other two with the opposite.
            for (class, bits) in (0..24).map(|number| (number / 8, number % 8)) {
                let shift = 3 * class;
                let mode = (0o111 * (7 - bits)) & !(7 << shift) | bits << shift;
                harness.squash = Squash::NONE;
                harness.set(inode, mode, owner.0, owner.1);
                let model = ModelInode { kind, mode, uid: owner.0, gid: owner.1, list: None };
                check_all(&mut harness, inode, &model);
            }
        }
    }
}

#[test]
fn a_handle_permits_what_the_access_list_permits() {
    for owner in [(0, 0), (5, 6), (0, 6)] {
        for list in LISTS {
            let (mut harness, things) = scene(owner);
            for (inode, kind) in things {
                let mut value = 2_u32.to_le_bytes().to_vec();
                for (tag, id, bits) in list {
                    value.extend(tag.to_le_bytes());
                    value.extend(bits.to_le_bytes());
                    value.extend(id.to_le_bytes());
                }
                let name = Bytes(b"system.posix_acl_access");
                let value = Bytes(&value);
                let set = Setxattr { caller: root(), inode, name, value, flags: 0 };
                assert_eq!(harness.status(Op::Setxattr, &set), Status::Ok);
                let mode = harness.attr(inode).mode;
                let model = ModelInode { kind, mode, uid: owner.0, gid: owner.1, list: Some(list) };
                check_all(&mut harness, inode, &model);
                harness.squash = Squash::NONE;
            }
        }
    }
}

#[test]
fn an_open_for_nothing_is_refused() {
    let (mut harness, things) = scene((0, 0));
    for (inode, _) in things {
        let handle = Handle { id: HandleId(1), open_for: OpenFor::Read };
        with_caller(STRANGER, |caller| {
            let bodies = [
                (Op::Open, wire::Wire::to_bytes(&Open { caller, inode, handle })),
                (Op::Reopen, wire::Wire::to_bytes(&Reopen { inode, handle })),
            ];
            for (op, mut body) in bodies {
                for nothing in [0, 3, 5, 7, 8, 255] {
                    *body.last_mut().unwrap() = nothing;
                    let effect = harness.execute_bytes(op, &body).unwrap();
                    assert_eq!(effect.status, Status::Invalid, "{op:?} {nothing}");
                }
            }
            assert_eq!(harness.status(Op::Readdir, &readdir(caller, things[1].0)), Status::Access);
        });
        assert!(!harness.shard.handles.has_any(inode));
    }
}

#[test]
fn a_creator_may_open_its_file_in_any_mode_and_has_that_mode_only() {
    let mut harness = Harness::new();
    let dir = harness.mkdir(ROOT, DIR, 0o777);
    let claim = Claim { uid: 5, gid: 6, groups: &[] };
    for (number, open_for) in (1..).zip(OpenFor::ALL) {
        let handle = Handle { id: HandleId(number), open_for };
        let made = with_caller(claim, |caller| {
            let text = alloc::format!("f{number}");
            let (mode, umask, exclusive) = (0, 0, true);
            let (parent, name, handle) = (dir, name(&text), Some(handle));
            let create =
                Create { caller, parent, name, mode, umask, exclusive, handle, behind: None };
            let created: wire::Created = harness.answer(Op::Create, &create);
            let handle = Handle { id: HandleId(number + 10), open_for };
            let tmpfile = Tmpfile { caller, parent, mode, umask, linkable: true, handle };
            let nameless: wire::Created = harness.answer(Op::Tmpfile, &tmpfile);
            [created.attr.inode, nameless.attr.inode]
        });
        for inode in made {
            let handles = &harness.shard.handles;
            assert_eq!(handles.reads(inode, ALICE), open_for.reads());
            assert_eq!(handles.writes(inode, ALICE), open_for.writes());
            assert_eq!(handles.executes(inode, ALICE), open_for.executes());
        }
    }
}

#[test]
fn a_reopened_handle_permits_its_stated_mode() {
    for open_for in OpenFor::ALL {
        let (mut harness, things) = scene((0, 0));
        harness.restart();
        for (inode, kind) in things {
            let handle = Handle { id: HandleId(1), open_for };
            let reopened = harness.status(Op::Reopen, &Reopen { inode, handle });
            let refused = kind == FileKind::Directory && open_for.writes();
            assert_eq!(reopened, if refused { Status::Invalid } else { Status::Ok });
            let handles = &harness.shard.handles;
            assert_eq!(handles.reads(inode, ALICE), !refused && open_for.reads());
            assert_eq!(handles.writes(inode, ALICE), !refused && open_for.writes());
            assert_eq!(handles.executes(inode, ALICE), !refused && open_for.executes());
        }
        let listed = with_caller(STRANGER, |caller| {
            harness.status(Op::Readdir, &readdir(caller, things[1].0))
        });
        let expected = if open_for == OpenFor::Read { Status::Ok } else { Status::Access };
        assert_eq!(listed, expected, "{open_for:?}");
    }
}

#[test]
fn no_inode_is_created_for_an_owner_that_chown_would_refuse() {
    let mut harness = Harness::new();
    let dir = harness.mkdir(ROOT, DIR, 0o777);
    let handle = Handle { id: HandleId(1), open_for: OpenFor::ReadWrite };
    for (uid, gid) in [(u32::MAX, 5), (5, u32::MAX), (u32::MAX, u32::MAX)] {
        let caller = Caller { uid, gid, groups: Groups::Known(&[]) };
        let (parent, name, mode, umask) = (dir, name("new"), 0o666, 0);
        let (kind, rdev, exclusive) = (FileKind::Fifo, 0, true);
        let statuses = [
            harness.status(
                Op::Create,
                &Create {
                    caller,
                    parent,
                    name,
                    mode,
                    umask,
                    exclusive,
                    handle: Some(handle),
                    behind: None,
                },
            ),
            harness.status(Op::Mkdir, &Mkdir { caller, parent, name, mode, umask }),
            harness.status(Op::Mknod, &Mknod { caller, parent, name, kind, mode, umask, rdev }),
            harness.status(Op::Symlink, &Symlink { caller, parent, name, target: Bytes(b"x") }),
            harness.status(
                Op::Tmpfile,
                &Tmpfile { caller, parent, mode, umask, linkable: true, handle },
            ),
        ];
        assert_eq!(statuses, [Status::Invalid; 5], "{uid} {gid}");
    }
    assert_eq!(harness.lookup(dir, "new"), None);
}
