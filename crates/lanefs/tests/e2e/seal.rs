//! Connections under TLS: real work over them, nothing to be read on the way, nothing for a man in the
//! middle, and a clear word where the two ends disagree.

use crate::fixture::{Fixture, PATIENCE, Server, failure, must, program};
use seal::{Client, Content, HandshakeProgress, RECORD_OVERHEAD_BYTES, Seal};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Nothing else says this.
const CONTENTS: &str = "what nobody on the way may read";
const NAME: &str = "a-name-that-nobody-on-the-way-may-read";

/// Files of many sizes, some of several MiB.
fn fill(dir: &Path) {
    for number in 0..60_usize {
        let folder = dir.join(format!("folder{}", number % 7));
        fs::create_dir_all(&folder).unwrap();
        let text = format!("{CONTENTS} {number}\n").repeat(number * number * 7);
        fs::write(folder.join(format!("{NAME}{number}")), text).unwrap();
    }
    let byte = |index: u32| index.wrapping_mul(2_654_435_761).to_be_bytes()[0];
    let large: Vec<u8> = (0..9_000_001).map(byte).collect();
    fs::write(dir.join("large"), large).unwrap();
}

#[track_caller]
fn same(one: &Path, other: &Path) {
    must(program("diff").arg("-r").arg(one).arg(other));
}

#[test]
fn a_tree_is_copied_over_tls_and_a_killed_server_is_come_back_to() {
    let Some(fixture) = Fixture::new("seal_tree") else { return };
    for (round, more) in
        [&["--seal"][..], &["--seal", "--lanes=2", "--affinity=random"]].iter().enumerate()
    {
        let store = fixture.path(&format!("store{round}"));
        let more = [more, &["--store", store.to_str().unwrap()][..]].concat();
        let mut up = fixture.up(&more);
        let original = fixture.make_dir(&format!("original{round}"));
        fill(&original);
        let mut copy = program("cp");
        let mut copy = copy.arg("-r").arg(&original).arg(up.dir.join("copy")).spawn().unwrap();
        up.kill_server();
        assert!(copy.wait().unwrap().success());
        same(&original, &up.dir.join("copy"));
        up.kill_server();
        // Cold pages of the mount: all of it is read again.
        must(program("sh").args(["-c", "echo 3 > /proc/sys/vm/drop_caches"]));
        same(&original, &up.dir.join("copy"));
        let back = fixture.path(&format!("back{round}"));
        let url = up.url("/copy");
        let copied = ["cp", "--seal", "--export", "up", "-r", &url, back.to_str().unwrap()];
        must(&mut fixture.lanefs(copied));
        same(&original, &back);
        up.stop();
    }
}

/// Both directions of all connections through a relay. While it is locked, nothing passes.
pub(crate) type Seen = Arc<Mutex<Vec<u8>>>;

fn has(seen: &Seen, what: &str) -> bool {
    count_of(seen, what) > 0
}

fn count_of(seen: &Seen, what: &str) -> usize {
    let seen = seen.lock().unwrap();
    seen.windows(what.len()).filter(|bytes| *bytes == what.as_bytes()).count()
}

/// A relay on the way to a server; its address, and what it sees.
pub(crate) fn relay(server: &Server, both: fn(TcpStream, TcpStream, &Seen)) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (server, seen) = (server.address.clone(), Seen::default());
    let to = Arc::clone(&seen);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, seen) = (client.unwrap(), Arc::clone(&to));
            let Ok(server) = TcpStream::connect(&server) else { continue };
            std::thread::spawn(move || both(client, server, &seen));
        }
    });
    (address, seen)
}

/// Passes on what comes, as it is.
pub(crate) fn pass_on(client: TcpStream, server: TcpStream, seen: &Seen) {
    let seen = Arc::clone(seen);
    pass_through(client, server, move |bytes| seen.lock().unwrap().extend_from_slice(bytes));
}

/// Passes on what comes, as it is, behind a call with it.
pub(crate) fn pass_through(
    client: TcpStream,
    server: TcpStream,
    before: impl Fn(&[u8]) + Clone + Send + 'static,
) {
    let pass = |mut from: TcpStream, mut to: TcpStream, before: &dyn Fn(&[u8])| {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            before(&bytes[..count]);
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // The other thread may have done so.
        to.shutdown(std::net::Shutdown::Write).ok();
    };
    let (from, to, its) =
        (server.try_clone().unwrap(), client.try_clone().unwrap(), before.clone());
    let back = std::thread::spawn(move || pass(from, to, &its));
    pass(client, server, &before);
    back.join().unwrap();
}

#[test]
fn nothing_is_readable_on_the_way() {
    let Some(fixture) = Fixture::new("seal_capture") else { return };
    let original = fixture.make_dir("original");
    fill(&original);
    for (sealing, readable) in [("--plain", true), ("--seal", false)] {
        let server = fixture.serve_with("127.0.0.1:0", &[sealing]);
        let (address, seen) = relay(&server, pass_on);
        let mount = fixture.mount(&address, &format!("mnt{sealing}"), &[sealing, "--export", "up"]);
        let copy = format!("copy{sealing}");
        must(program("cp").arg("-r").arg(&original).arg(mount.dir.join(&copy)));
        same(&original, &mount.dir.join(&copy));
        let url = format!("lanefs://{address}/{copy}/folder0");
        must(&mut fixture.lanefs(["ls", sealing, "--export", "up", &url]));
        mount.stop();
        // Each frame has this, and sealed bytes may have any four of them by chance.
        let has_frames = count_of(&seen, "LNFS") > 4;
        let found = (has(&seen, CONTENTS), has(&seen, NAME), has_frames);
        assert_eq!(found, (readable, readable, readable), "{sealing}");
    }
}

/// One end of a connection whose TLS a man in the middle has ended.
struct End {
    stream: TcpStream,
    seal: Arc<Mutex<Seal>>,
}

/// Shakes hands, after `said`.
fn shake(mut stream: TcpStream, mut seal: Seal, mut said: Vec<u8>) -> Option<End> {
    let mut bytes = [0; 4096];
    loop {
        stream.write_all(&said).ok()?;
        said.clear();
        let count = stream.read(&mut bytes).ok().filter(|count| *count > 0)?;
        seal.push_received(&bytes[..count]);
        if let HandshakeProgress::Open(_) = seal.advance_handshake(&mut said).ok()? {
            stream.write_all(&said).ok()?;
            return Some(End { stream, seal: Arc::new(Mutex::new(seal)) });
        }
    }
}

fn seal_up(seal: &mut Seal, plain: &[u8]) -> Vec<u8> {
    let mut record = vec![0; plain.len() + RECORD_OVERHEAD_BYTES];
    let fill = |to: &mut [u8]| {
        to.copy_from_slice(plain);
        Ok::<(), ()>(())
    };
    seal.seal(&mut record, plain.len(), fill).unwrap();
    record
}

/// What lies there, opened.
fn open_all(seal: &mut Seal) -> Option<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    while let Some(content) = seal.open().ok()? {
        if let Content::Bytes(bytes) = content {
            all.push(bytes.to_vec());
        }
    }
    Some(all)
}

/// Ends TLS with both, and passes on what each says.
fn end_tls(client: TcpStream, server: TcpStream, seen: &Seen) {
    let own = seal::Server::with_new_key().unwrap();
    let client = shake(client, Seal::server(&own), Vec::new());
    let mut said = Vec::new();
    let seal = Seal::client(&Client::with_any_key().unwrap(), &mut said).unwrap();
    let server = shake(server, seal, said);
    let (Some(client), Some(server)) = (client, server) else { return };
    let pass = |mut from: TcpStream, opens: Arc<Mutex<Seal>>, to: &End, seen: Seen| {
        let mut to_stream = to.stream.try_clone().unwrap();
        let seals = Arc::clone(&to.seal);
        std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            loop {
                let Some(plain) = open_all(&mut opens.lock().unwrap()) else { break };
                for plain in plain {
                    seen.lock().unwrap().extend_from_slice(&plain);
                    let record = seal_up(&mut seals.lock().unwrap(), &plain);
                    to_stream.write_all(&record).ok();
                }
                let Ok(count @ 1..) = from.read(&mut bytes) else { break };
                opens.lock().unwrap().push_received(&bytes[..count]);
            }
            to_stream.shutdown(std::net::Shutdown::Both).ok();
        })
    };
    let from = |end: &End| (end.stream.try_clone().unwrap(), Arc::clone(&end.seal));
    let (stream, seal) = from(&client);
    let there = pass(stream, seal, &server, Arc::clone(seen));
    let (stream, seal) = from(&server);
    let back = pass(stream, seal, &client, Arc::clone(seen));
    there.join().unwrap();
    back.join().unwrap();
}

#[test]
fn a_man_in_the_middle_gets_nothing() {
    let Some(fixture) = Fixture::new("seal_middle") else { return };
    let server = fixture.serve_with("127.0.0.1:0", &["--seal"]);
    let file = fixture.path(NAME);
    fs::write(&file, CONTENTS).unwrap();
    let there = format!("lanefs://{}/", server.address);
    let put = ["cp", "--seal", "--export", "up", file.to_str().unwrap(), &there];
    must(&mut fixture.lanefs(put));
    let (address, seen) = relay(&server, end_tls);
    let through = format!("lanefs://{address}/");
    for command in [
        &["ls", "--seal", "--export", "up", &through][..],
        &["cat", "--seal", "--export", "up", &format!("{through}{NAME}")],
        &["export", "list", "--seal", &address],
    ] {
        let (code, line) = failure(&fixture.run(command));
        assert_eq!(code, 4, "{line}");
        assert!(line.contains("another secret"), "{line}");
    }
    // It was in the middle, and saw handshakes.
    assert!(has(&seen, "LNFS"));
    assert!(!has(&seen, NAME) && !has(&seen, CONTENTS));
    let dir = fixture.make_dir("mnt");
    let mut mount = fixture.lanefs(["mount", "--seal", "--export", "up", &address]);
    let (code, line) = failure(&crate::fixture::run(mount.arg(&dir)));
    assert_eq!(code, 4, "{line}");
    // Without it all is well.
    must(&mut fixture.lanefs(["ls", "--seal", "--export", "up", &there]));
}

#[test]
fn if_the_ends_disagree_about_tls_both_report_it_and_nothing_is_sent() {
    let Some(fixture) = Fixture::new("seal_disagree") else { return };
    for (server_says, client_says, message) in [
        (&["--seal"][..], &["--plain"][..], "TLS only"),
        // The default for loopback.
        (&["--seal"], &[], "TLS only"),
        (&["--plain"], &["--seal"], "plain text"),
        (&[], &["--seal"], "plain text"),
    ] {
        let server = fixture.serve_with("127.0.0.1:0", server_says);
        let url = format!("lanefs://{}/", server.address);
        let listed = [&["ls", "--export", "up"], client_says, &[url.as_str()]].concat();
        let (code, line) = failure(&fixture.run(listed));
        assert_eq!(code, 1, "{line}");
        assert!(line.contains(message), "{line}");
        let dir = fixture.make_dir("mnt");
        let mounted =
            [&["mount", "--export", "up"], client_says, &[server.address.as_str()]].concat();
        let (code, line) = failure(&crate::fixture::run(fixture.lanefs(mounted).arg(&dir)));
        assert_eq!(code, 1, "{line}");
        assert!(line.contains(message), "{line}");
        let agreed = [&["ls", "--export", "up"], server_says, &[url.as_str()]].concat();
        must(&mut fixture.lanefs(agreed));
    }
}

#[test]
fn broken_handshakes_end_their_connection_and_no_other() {
    let Some(fixture) = Fixture::new("seal_garbage") else { return };
    let up = fixture.up(&["--seal"]);
    let original = fixture.make_dir("original");
    fill(&original);
    let mut copy = program("cp");
    let mut copy = copy.arg("-r").arg(&original).arg(up.dir.join("copy")).spawn().unwrap();
    let begun = || {
        let mut said = Vec::new();
        let seal = Seal::client(&Client::with_any_key().unwrap(), &mut said).unwrap();
        let stream = TcpStream::connect(&up.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        (stream, seal, said)
    };
    let shaken = || {
        let (stream, seal, said) = begun();
        shake(stream, seal, said).unwrap()
    };
    let ends = |mut stream: TcpStream, bytes: &[u8], what: &str| {
        // The server may close before it has read everything.
        stream.write_all(bytes).ok();
        let mut rest = Vec::new();
        let read = stream.read_to_end(&mut rest);
        let timed_out = read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!timed_out, "{what}: it is still there");
    };
    let garbage: Vec<u8> =
        (0..5000_u32).map(|index| ((index * 7919) >> 3).to_le_bytes()[0]).collect();
    for round in 0..40 {
        let (stream, _, said) = begun();
        ends(stream, &garbage, "no TLS");
        let (stream, ..) = begun();
        ends(stream, &[&[22, 3, 1, 1, 0][..], &garbage].concat(), "a record of nonsense");
        let (stream, ..) = begun();
        ends(stream, &[22, 3, 1, 0xff, 0xff, 1], "a record too long");
        let mut changed = said.clone();
        changed[5 + round % 40] ^= 0x5a;
        let (stream, ..) = begun();
        ends(stream, &[changed, garbage.clone()].concat(), "a changed hello");
        let (stream, ..) = begun();
        ends(stream, &[said.clone(), said].concat(), "two hellos");
        let end = shaken();
        ends(end.stream, &[&[23, 3, 3, 1, 0][..], &garbage].concat(), "a record of another key");
        let end = shaken();
        let record = seal_up(&mut end.seal.lock().unwrap(), &garbage);
        ends(end.stream, &record, "no frame");
        let end = shaken();
        ends(
            end.stream,
            b"LNFS in plain text, and more than a record's head",
            "a plain frame behind",
        );
    }
    assert!(copy.wait().unwrap().success());
    same(&original, &up.dir.join("copy"));
    up.stop();
}
