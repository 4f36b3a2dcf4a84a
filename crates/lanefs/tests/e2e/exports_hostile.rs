//! A client that speaks the protocol and keeps to none of its manners: bound to an export by the secret
//! of that, it asks by number for all there may be.

use crate::fixture::{Fixture, must};
use crate::raw_client::Raw;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use wire::*;

#[test]
fn numbers_of_what_lies_outside_are_worth_nothing() {
    let Some(fixture) = Fixture::new("export_hostile") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--lanes", "2"]);
    let all = fixture.mount(&server.address, "all", &["--export", "up"]);
    let mut outside = vec![InodeNo::ROOT];
    for dir in ["a", "b", "c", "c/d"] {
        let path = all.dir.join(dir);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), "secret").unwrap();
        fs::set_permissions(path.join("file"), fs::Permissions::from_mode(0o666)).unwrap();
    }
    for path in ["b", "b/file", "c", "c/file", "c/d", "c/d/file"] {
        outside.push(InodeNo(fs::metadata(all.dir.join(path)).unwrap().ino()));
    }
    let inside = InodeNo(fs::metadata(all.dir.join("a/file")).unwrap().ino());
    let address = server.address.as_str();
    must(&mut fixture.lanefs(["export", "add", address, "a", "/a", "--squash", "all"]));
    let secret = must(&mut fixture.lanefs(["export", "secret", address, "a"]));
    let secret = library::secret::of_text(&secret).unwrap();
    assert_eq!(secret.credential(), Credential::Export);
    let client = ClientUuid([7; 16]);
    let mut lanes = [0, 1].map(|lane| Raw::new(address, &secret, ("a", lane), client));
    assert_eq!(lanes[0].root, InodeNo(fs::metadata(all.dir.join("a")).unwrap().ino()));
    let map = lanes[0].map.clone();
    let caller = Caller { uid: 0, gid: 0, groups: Groups::Known(&[]) };
    let mut ask = |op: Op, inode: InodeNo, first: &dyn Fn(&mut Raw, ShardId) -> Status| {
        let data = op.row().route == Route::Data;
        let shard = if data { map.data_shard(inode, 0) } else { inode.shard() };
        first(&mut lanes[usize::from(map.lane(shard).0)], shard)
    };
    let mut statuses = |inode: InodeNo| {
        let (file_offset, read_bytes, accesses) = (0, 6, true);
        let name = Name::new(b"file").unwrap();
        let handle = Handle { id: HandleId(1), open_for: OpenFor::Read };
        [
            ask(Op::Getattr, inode, &|raw, at| raw.ask(Op::Getattr, at, &Getattr { inode })),
            ask(Op::Lookup, inode, &|raw, at| {
                raw.ask(Op::Lookup, at, &Lookup { caller, parent: inode, name })
            }),
            ask(Op::Read, inode, &|raw, at| {
                raw.ask(Op::Read, at, &Read { inode, file_offset, read_bytes, accesses })
            }),
            ask(Op::Truncate, inode, &|raw, at| {
                raw.ask(Op::Truncate, at, &Truncate { inode, size_bytes: 0 })
            }),
            ask(Op::Reopen, inode, &|raw, at| raw.ask(Op::Reopen, at, &Reopen { inode, handle })),
            ask(Op::Unlink, inode, &|raw, at| {
                raw.ask(Op::Unlink, at, &Unlink { caller, parent: inode, name, behind: None })
            }),
        ]
    };
    for inode in outside {
        assert_eq!(statuses(inode), [Status::Stale; 6], "{inode}");
    }
    assert_eq!(statuses(inside)[..3], [Status::Ok, Status::NotDirectory, Status::Ok]);
    for path in ["b/file", "c/file", "c/d/file"] {
        assert_eq!(fs::read_to_string(all.dir.join(path)).unwrap(), "secret");
    }
    all.stop();
}
