//! Certificates that open nothing: of another CA, out of their time, for another name or end, for another
//! export, and those of a man in the middle. Each is refused by name, at both ends.

use crate::certificates::{Authority, shown, sign};
use crate::fixture::{Fixture, PATIENCE, failure, must, run};
use crate::raw_client::hello;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, SanType, date_time_ymd};
use seal::{Certificates, Client, HandshakeProgress, Pem, Seal};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use wire::{ClientUuid, Credential, FrameKind, Header, Refusal, RefusalReason, Wire as _};

const CLIENT: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ClientAuth;
const SERVER: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ServerAuth;

fn expired(params: &mut CertificateParams) {
    params.not_after = date_time_ymd(2021, 1, 1);
}

fn not_yet(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2099, 1, 1);
}

fn same(_: &mut CertificateParams) {}

#[test]
fn a_client_without_a_valid_certificate_is_refused_and_both_ends_report_it() {
    let Some(fixture) = Fixture::new("certificates_clients") else { return };
    let authority = Authority::new(&fixture, "certs");
    let other = Authority::new(&fixture, "other");
    // His own CA, with which he would get in elsewhere; he knows ours.
    sign(&other, "mallory", CLIENT, same);
    for end in ["crt", "key"] {
        fs::copy(other.file(&format!("mallory.{end}")), authority.file(&format!("other.{end}")))
            .unwrap();
    }
    sign(&authority, "expired", CLIENT, expired);
    sign(&authority, "early", CLIENT, not_yet);
    sign(&authority, "server-only", SERVER, same);
    // What strangers say of the server's is said too, so each refusal is heard by a server of its own.
    for (name, client, message) in [
        ("other", "it is not of the CA that the server takes", "is not of the CA that --ca names"),
        ("expired", "it has expired", "its certificate has expired"),
        ("early", "is not valid yet", "its certificate is not valid yet"),
        ("server-only", "it is not for clients", "its certificate is not for clients"),
    ] {
        let mut server = authority.serve(&fixture, &[]);
        let show = authority.show(name);
        let url = format!("lanefs://{}/", server.address);
        let (code, line) =
            failure(&run(&mut shown(&fixture, &show, &["ls", "--export", "up", &url])));
        assert_eq!(code, 4, "{name}: {line}");
        assert!(line.contains("the server refused our certificate"), "{name}: {line}");
        assert!(line.contains(client), "{name}: {line}");
        let dir = fixture.make_dir("mnt");
        let mut mount = shown(&fixture, &show, &["mount", "--export", "up", &server.address]);
        let (code, line) = failure(&run(mount.arg(&dir)));
        assert_eq!(code, 4, "{name}: {line}");
        assert!(line.contains(client), "{name}: {line}");
        let line = server.process.line_with("was refused");
        assert!(line.contains("a client (127.") && line.contains(message), "{name}: {line}");
    }
    // Without one, with the secret or with nothing.
    let mut server = authority.serve(&fixture, &[]);
    let url = format!("lanefs://{}/", server.address);
    let secret = fixture.path("secret");
    fs::write(&secret, "0".repeat(64)).unwrap();
    must(crate::fixture::program("chmod").arg("600").arg(&secret));
    let ls = ["ls", "--seal", "--secret-file", secret.to_str().unwrap(), &url];
    let (code, line) = failure(&fixture.run(ls));
    assert_eq!(code, 4, "{line}");
    assert!(line.contains("the server takes certificates only: pass --cert"), "{line}");
    server.process.line_with("it shows no certificate");
}

#[test]
fn a_server_without_a_valid_certificate_is_refused_and_both_ends_report_it() {
    let Some(fixture) = Fixture::new("certificates_servers") else { return };
    let authority = Authority::new(&fixture, "certs");
    authority.make(&fixture, &["client"], &["alice"]);
    let other = Authority::new(&fixture, "other");
    sign(&other, "other", SERVER, same);
    for end in ["crt", "key"] {
        fs::copy(other.file(&format!("other.{end}")), authority.file(&format!("other.{end}")))
            .unwrap();
    }
    sign(&authority, "expired", SERVER, expired);
    sign(&authority, "early", SERVER, not_yet);
    sign(&authority, "elsewhere", SERVER, |params| {
        params.subject_alt_names = vec![SanType::DnsName("elsewhere".try_into().unwrap())];
    });
    // A client's, by its holder, who would be the server.
    sign(&authority, "client-only", CLIENT, same);
    let alice = authority.show("alice");
    for (name, client, message) in [
        ("other", "is not of the CA that --ca names", "it is not of the CA that the client takes"),
        ("expired", "certificate has expired", "it has expired"),
        ("early", "is not valid yet", "or is not valid yet by the client's clock"),
        ("elsewhere", "is not for the name in this address", "it is not for the name"),
        ("client-only", "that is not for servers", "it is not for servers"),
    ] {
        let served = authority.show(name);
        let served: Vec<&str> = served.iter().map(String::as_str).collect();
        let mut server = fixture.serve_with(&authority.listen, &served);
        let url = format!("lanefs://{}/", server.address);
        let (code, line) = failure(&run(&mut shown(&fixture, &alice, &["ls", &url])));
        assert_eq!(code, 4, "{name}: {line}");
        assert!(line.contains("the server") && line.contains(client), "{name}: {line}");
        let line = server.process.line_with("refused this server's certificate");
        assert!(line.contains(message), "{name}: {line}");
    }
    // One that has none.
    let mut server = fixture.serve_with(&authority.listen, &["--seal"]);
    let url = format!("lanefs://{}/", server.address);
    let (code, line) = failure(&run(&mut shown(&fixture, &alice, &["ls", &url])));
    assert_eq!(code, 4, "{line}");
    assert!(line.contains("the server has no certificate"), "{line}");
    server.process.line_with("which has none");
    // One that speaks plain text.
    drop(server);
    let server = fixture.serve_with(&authority.listen, &[]);
    let url = format!("lanefs://{}/", server.address);
    let (code, line) = failure(&run(&mut shown(&fixture, &alice, &["ls", &url])));
    assert_eq!(code, 1, "{line}");
    assert!(line.contains("the server speaks plain text"), "{line}");
}

#[test]
fn a_certificate_for_one_export_opens_nothing_else() {
    let Some(fixture) = Fixture::new("certificates_exports") else { return };
    let authority = Authority::new(&fixture, "certs");
    authority.make(&fixture, &["client"], &["alice"]);
    authority.make(&fixture, &["client"], &["bob", "--export", "inside"]);
    sign(&authority, "nothing", CLIENT, |params| {
        params.subject_alt_names = vec![SanType::URI("https://lanefs:store/".try_into().unwrap())];
    });
    let mut server = authority.serve(&fixture, &[]);
    let address = server.address.clone();
    let [alice, bob, nothing] = ["alice", "bob", "nothing"].map(|name| authority.show(name));
    let url = |path: &str| format!("lanefs://{address}{path}");
    let file = fixture.path("file");
    fs::write(&file, "shared").unwrap();
    let alone = |command: &[&str]| must(fixture.lanefs(command).args(&alice));
    alone(&["mkdir", "--export", "up", &url("/inside"), &url("/outside")]);
    for folder in ["/inside/", "/outside/"] {
        alone(&["cp", "--export", "up", file.to_str().unwrap(), &url(folder)]);
    }
    alone(&["export", "add", &address, "inside", "/inside"]);
    alone(&["export", "add", &address, "outside", "/outside"]);
    let read = ["cat", "--export", "inside", &url("/file")];
    assert_eq!(must(&mut shown(&fixture, &bob, &read)), "shared");
    for (show, command) in [
        (&bob, &["cat", "--export", "outside", &url("/file")][..]),
        (&bob, &["ls", "--export", "up", &url("/")]),
        (&bob, &["ls", &url("/")]),
        // The reply does not show whether there is one.
        (&bob, &["ls", "--export", "no-such", &url("/")]),
        (&bob, &["export", "list", &address]),
        (&bob, &["export", "add", &address, "mine", "/outside"]),
        (&bob, &["export", "remove", &address, "outside"]),
        (&nothing, &["ls", &url("/")]),
        (&nothing, &["ls", "--export", "inside", &url("/")]),
    ] {
        let (code, line) = failure(&run(fixture.lanefs(command).args(show)));
        assert_eq!(code, 4, "{command:?}: {line}");
        assert!(line.contains("the certificate does not open that"), "{command:?}: {line}");
    }
    server.process.line_with("its certificate does not open what it asked for");
    assert_eq!(alone(&["cat", "--export", "outside", &url("/file")]), "shared");
}

/// Shakes hands as a server; what the client says behind it, if it does.
fn pretend(mut stream: TcpStream, server: &seal::Server) -> Option<Vec<u8>> {
    let (mut seal, mut said) = (Seal::server(server), Vec::new());
    let mut bytes = [0; 4096];
    loop {
        let count = stream.read(&mut bytes).ok().filter(|count| *count > 0)?;
        seal.recv_space(0)[..count].copy_from_slice(&bytes[..count]);
        seal.received(count);
        let shaken = seal.advance_handshake(&mut said);
        stream.write_all(&said).ok()?;
        said.clear();
        if let HandshakeProgress::Open(_) = shaken.ok()? {
            return Some(seal.unopened().to_vec());
        }
    }
}

#[test]
fn a_man_in_the_middle_with_a_certificate_of_his_own_gets_nothing() {
    let Some(fixture) = Fixture::new("certificates_middle") else { return };
    let authority = Authority::new(&fixture, "certs");
    authority.make(&fixture, &["client"], &["alice"]);
    authority.make(&fixture, &["client"], &["bob", "--export", "inside"]);
    // Of his own CA for the very address, and of ours for a client.
    let other = Authority { dir: fixture.path("other"), listen: authority.listen.clone() };
    other.make(&fixture, &["ca"], &[]);
    other.make(&fixture, &["server"], &["server", "127.0.0.1"]);
    let own = |authority: &Authority, name: &str| {
        let [chain, key] =
            ["crt", "key"].map(|end| fs::read(authority.file(&format!("{name}.{end}"))));
        // He takes every client of ours.
        let roots = fs::read(fixture.path("certs").join("ca.crt")).unwrap();
        let pem = Pem { chain: &chain.unwrap(), key: &key.unwrap(), roots: &roots };
        Certificates::from_pem(pem).unwrap()
    };
    let alice = authority.show("alice");
    for shows in [own(&other, "server"), own(&authority, "bob")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("lanefs://{}/", listener.local_addr().unwrap());
        let server = seal::Server::with_certificates(&shows).unwrap().and_new_key().unwrap();
        let heard = std::thread::spawn(move || pretend(listener.accept().unwrap().0, &server));
        let (code, line) = failure(&run(&mut shown(&fixture, &alice, &["ls", &url])));
        assert_eq!(code, 4, "{line}");
        assert_eq!(heard.join().unwrap(), None, "the client says nothing to him");
    }
    // He holds a good certificate of a client: it is his, and opens for him what it names. A key made
    // now is no certificate, whatever the Hello behind it says.
    let server =
        authority.serve(&fixture, &["--secret-file", fixture.path("secret").to_str().unwrap()]);
    let mut said = Vec::new();
    let mut seal = Seal::client(&Client::with_any_key().unwrap(), &mut said).unwrap();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let channel = loop {
        stream.write_all(&said).unwrap();
        said.clear();
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).unwrap();
        seal.recv_space(0)[..count].copy_from_slice(&bytes[..count]);
        seal.received(count);
        if let HandshakeProgress::Open(channel) = seal.advance_handshake(&mut said).unwrap() {
            break channel;
        }
    };
    assert_ne!(channel, [0; 32]);
    stream.write_all(&said).unwrap();
    let hello = hello(Credential::Certificate, ("up", 0), ClientUuid([1; 16]));
    let mut frame = Vec::new();
    Header::Handshake(FrameKind::Hello).encode(&mut frame, None, |to| to.write(&hello));
    let mut record = vec![0; frame.len() + seal::RECORD_OVERHEAD_BYTES];
    let fill = |to: &mut [u8]| {
        to.copy_from_slice(&frame);
        Ok::<(), ()>(())
    };
    seal.seal(&mut record, frame.len(), fill).unwrap();
    stream.write_all(&record).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    for piece in rest.chunks(1024) {
        seal.recv_space(0)[..piece.len()].copy_from_slice(piece);
        seal.received(piece.len());
    }
    let Some(seal::Content::Bytes(answer)) = seal.open().unwrap() else { panic!("no answer") };
    let (head, body) = Header::decode(answer).unwrap();
    assert_eq!(head, Header::Handshake(FrameKind::Refusal));
    assert_eq!(Refusal::decode_all(body).unwrap().reason, RefusalReason::NotCertified);
}
