//! Clients that use the uuid, the host, the place or a retained token of another client: with another
//! credential or export they are another party, and an ended session stays ended.

use crate::fixture::{Fixture, Up, must};
use crate::idle::secret;
use crate::raw_client::{Answer, Raw, hello};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use wire::*;

const ROOT: Caller<'static> = Caller { uid: 0, gid: 0, groups: Groups::Known(&[]) };
const CLIENT: ClientUuid = ClientUuid([7; 16]);
const HOST: [u8; 16] = [5; 16];
const META: ShardId = ShardId::meta(0);

/// The secret of an export that shows all, of which root is nobody.
fn guests(fixture: &Fixture, up: &Up, more: &[&str]) -> Secret {
    let add = ["export", "add", &up.address, "guests", "/", "--squash", "root"];
    must(fixture.lanefs(add).args(more));
    let shown = must(&mut fixture.lanefs(["export", "secret", &up.address, "guests"]));
    library::secret::of_text(&shown).unwrap()
}

fn of_store(conn_epoch: u32) -> Hello<'static> {
    let (host_id, host_boot_id) = (HOST, HOST);
    Hello { conn_epoch, host_id, host_boot_id, ..hello(Credential::Store, ("up", 0), CLIENT) }
}

fn of_guests(client: ClientUuid) -> Hello<'static> {
    let (host_id, host_boot_id) = (HOST, [6; 16]);
    let (conn_epoch, predecessor) = (u32::MAX, CLIENT);
    let hello = hello(Credential::Export, ("guests", 0), client);
    Hello { conn_epoch, host_id, host_boot_id, predecessor, ..hello }
}

fn create(raw: &mut Raw, name: &str) -> Answer {
    let (parent, name, handle) = (InodeNo::ROOT, Name::new(name.as_bytes()).unwrap(), None);
    let (mode, umask, exclusive) = (0o600, 0, true);
    let create =
        Create { caller: ROOT, parent, name, mode, umask, exclusive, handle, behind: None };
    let answer = raw.answer(Op::Create, META, &create, &[]);
    assert_eq!(answer.reply.status, Status::Ok);
    answer
}

fn is_there(raw: &mut Raw) -> bool {
    let request = raw.request(Op::Ping, META);
    raw.say(request, |_| {}, &[]).is_ok() && raw.answer_to(request.xid).is_ok()
}

/// A replay of what was answered so.
fn replay(raw: &mut Raw, answer: &Answer, bulk: &[u8]) -> std::io::Result<Answer> {
    let Reply { op, shard, slot, xid, transno, .. } = answer.reply;
    let request =
        Request { slot, xid, transno, flags: request_flag::REPLAY, op, ..raw.request(op, shard) };
    let body = Replay { reply: Bytes(&answer.message), token: Bytes(&answer.token) };
    raw.say(request, |to| to.write(&body), bulk)?;
    raw.answer_to(xid)
}

#[test]
fn under_anothers_uuid_nothing_of_his_is_had_and_he_stays() {
    let Some(fixture) = Fixture::new("identity_uuid") else { return };
    let up = fixture.up(&["--lanes", "1"]);
    let file = up.dir.join("private");
    fs::write(&file, "secret").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let inode = InodeNo(fs::metadata(&file).unwrap().ino());
    let (all, guests) = (secret(&fixture), guests(&fixture, &up, &[]));
    let mut owner = Raw::of(&up.address, &all, &of_store(1)).unwrap();
    let handle = Handle { id: HandleId(1), open_for: OpenFor::ReadWrite };
    let open = Open { caller: ROOT, inode, handle };
    assert_eq!(owner.ask(Op::Open, META, &open), Status::Ok);
    let mut thief = Raw::of(&up.address, &guests, &of_guests(CLIENT)).unwrap();
    assert_ne!(thief.session, owner.session);
    let data = thief.map.data_shard(inode, 0);
    let read = Read { inode, file_offset: 0, read_bytes: 6, accesses: false };
    assert_eq!(thief.ask(Op::Read, data, &read), Status::Access, "a handle of another");
    assert!(is_there(&mut owner), "his connection was not taken over");
    Raw::of(&up.address, &guests, &of_guests(ClientUuid([8; 16]))).unwrap();
    assert!(is_there(&mut owner), "nobody has taken his place");
    assert_eq!(owner.answer(Op::Read, data, &read, &[]).bulk, b"secret");
    up.stop();
}

#[test]
fn a_claim_about_another_host_evicts_no_client() {
    let Some(fixture) = Fixture::new("identity_host") else { return };
    let mut up = fixture.up(&["--lanes", "1"]);
    let (all, guests) = (secret(&fixture), guests(&fixture, &up, &[]));
    let mut owner = Raw::of(&up.address, &all, &of_store(1)).unwrap();
    create(&mut owner, "first");
    let first_create = create(&mut owner, "second");
    // The next boot waits for him and for the mount, which is asked for nothing before he is back.
    up.kill_server();
    let thief = of_guests(ClientUuid([8; 16]));
    let thief = Hello { boot_id_last: first_create.reply.boot_id, ..thief };
    Raw::of(&up.address, &guests, &thief).unwrap();
    let mut owner = Raw::of(&up.address, &all, &of_store(2)).unwrap();
    if !first_create.token.is_empty() {
        assert_eq!(replay(&mut owner, &first_create, &[]).unwrap().reply.status, Status::Ok);
    }
    assert_eq!(owner.ask(Op::ReplayDone, META, &ReplayDone { reopen_count: 0 }), Status::Ok);
    assert_eq!(fs::metadata(up.dir.join("second")).unwrap().len(), 0);
    up.stop();
}

#[test]
fn a_request_before_a_goodbye_cannot_be_replayed() {
    let Some(fixture) = Fixture::new("identity_goodbye") else { return };
    let mut up = fixture.up(&["--lanes", "1"]);
    let all = secret(&fixture);
    let mut raw = Raw::of(&up.address, &all, &of_store(1)).unwrap();
    create(&mut raw, "first");
    // Recoveries wait for another client.
    let sleeper = |conn_epoch| Hello { client: ClientUuid([9; 16]), ..of_store(conn_epoch) };
    create(&mut Raw::of(&up.address, &all, &sleeper(1)).unwrap(), "sleeper");
    // One that was answered before it was durable; there is one soon.
    let names = (0..1000).map(|number| format!("second{number}"));
    let (name, first_create) = names
        .map(|name| {
            let answer = create(&mut raw, &name);
            (name, answer)
        })
        .find(|(_, answer)| !answer.token.is_empty())
        .unwrap();
    let goodbye = raw.request(Op::Goodbye, META);
    raw.say(goodbye, |_| {}, &[]).unwrap();
    raw.answer_to(goodbye.xid).unwrap();
    drop(raw);
    let path = up.dir.join(&name);
    fs::remove_file(&path).unwrap();
    for conn_epoch in 2..4 {
        up.kill_server();
        let mut raw = Raw::of(&up.address, &all, &of_store(conn_epoch)).unwrap();
        let answer = replay(&mut raw, &first_create, &[]).unwrap();
        assert_eq!(answer.reply.status, Status::Overflow);
        let mut sleeper = Raw::of(&up.address, &all, &sleeper(conn_epoch)).unwrap();
        let done = ReplayDone { reopen_count: 0 };
        assert_eq!(sleeper.ask(Op::ReplayDone, META, &done), Status::Ok);
        assert!(!path.exists(), "in boot {conn_epoch}");
        assert!(up.dir.join("first").exists());
    }
    up.stop();
}
