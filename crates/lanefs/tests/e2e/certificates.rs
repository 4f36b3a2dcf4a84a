//! Certificates instead of the secret: made by `lanefs cert` or by others, used by servers, mounts and
//! commands, and renewed under them.

use crate::fixture::{Fixture, Server, failure, kill, must, own_address, program, run, skip};
use library::certificates::Files;
use library::{Certificates, ConnectOptions, OpenFor, Piece, Volume};
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
    date_time_ymd,
};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A CA's directory, and where the server that it certifies listens.
pub(crate) struct Authority {
    pub(crate) dir: PathBuf,
    pub(crate) listen: String,
}

impl Authority {
    /// One with a certificate `server` for a server on an address of its own.
    pub(crate) fn new(fixture: &Fixture, name: &str) -> Self {
        let authority = Self { dir: fixture.path(name), listen: own_address() };
        authority.make(fixture, &["ca"], &[]);
        let host = authority.host().to_owned();
        authority.make(fixture, &["server"], &["server", &host]);
        authority
    }

    pub(crate) fn host(&self) -> &str {
        self.listen.split(':').next().unwrap()
    }

    /// `lanefs cert`.
    pub(crate) fn make(&self, fixture: &Fixture, command: &[&str], more: &[&str]) -> String {
        let mut cert = fixture.lanefs(["cert"]);
        must(cert.args(command).arg(&self.dir).args(more))
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.dir.join(name).to_str().unwrap().to_owned()
    }

    /// What shows this certificate.
    pub(crate) fn show(&self, name: &str) -> Vec<String> {
        let (cert, key) = (self.file(&format!("{name}.crt")), self.file(&format!("{name}.key")));
        let ca = self.file("ca.crt");
        [("--cert", cert), ("--key", key), ("--ca", ca)]
            .into_iter()
            .flat_map(|(option, file)| [option.to_owned(), file])
            .collect()
    }

    pub(crate) fn serve(&self, fixture: &Fixture, more: &[&str]) -> Server {
        self.serve_at(fixture, &self.listen, more)
    }

    fn serve_at(&self, fixture: &Fixture, listen: &str, more: &[&str]) -> Server {
        let shown = self.show("server");
        let shown: Vec<&str> =
            shown.iter().map(String::as_str).chain(more.iter().copied()).collect();
        fixture.serve_with(listen, &shown)
    }
}

/// A command that shows a certificate.
pub(crate) fn shown(fixture: &Fixture, show: &[String], arguments: &[&str]) -> Command {
    let mut command = fixture.lanefs(&arguments[..1]);
    command.args(show).args(&arguments[1..]);
    command
}

fn mode_of(path: &str) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn certificates_are_made_for_their_owner_alone_and_never_overwritten() {
    let Some(fixture) = Fixture::new("certificates_made") else { return };
    let dir = fixture.path("certs");
    let binary = crate::fixture::binary();
    // Whatever the umask, keys are their owner's.
    let made = |umask: &str, arguments: &str| {
        let line = format!("umask {umask}; exec {} cert {arguments}", binary.display());
        must(program("sh").args(["-c", &line]))
    };
    let said = made("000", &format!("ca {}", dir.display()));
    assert!(said.contains("next: lanefs cert server"), "{said}");
    let said = made("077", &format!("server {} files.example 10.1.2.3", dir.display()));
    assert!(said.contains("lanefs serve") && said.contains("10.1.2.3"), "{said}");
    let said = made("000", &format!("client {} bob --export projects --valid 7d", dir.display()));
    assert!(said.contains("lanefs mount SERVER/projects"), "{said}");
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    for name in ["ca", "files.example", "bob"] {
        let path = |end: &str| dir.join(format!("{name}.{end}")).to_str().unwrap().to_owned();
        assert_eq!((mode_of(&path("key")), mode_of(&path("crt"))), (0o600, 0o644), "{name}");
    }
    let before = fs::read(dir.join("bob.key")).unwrap();
    for again in [&["ca"][..], &["server", "files.example"], &["client", "bob"]] {
        let mut command = fixture.lanefs(["cert", again[0]]);
        let (code, line) = failure(&run(command.arg(&dir).args(&again[1..])));
        assert_eq!(code, 1, "{line}");
        assert!(line.contains("is there already: --renew"), "{line}");
    }
    // A new certificate, the same key.
    let old = fs::read(dir.join("bob.crt")).unwrap();
    must(fixture.lanefs(["cert", "client", "--renew"]).arg(&dir).arg("bob"));
    assert_eq!(fs::read(dir.join("bob.key")).unwrap(), before);
    assert_ne!(fs::read(dir.join("bob.crt")).unwrap(), old);
    for (arguments, code, part) in [
        (&["client", "a/b"][..], 2, "cannot be a certificate's name"),
        (&["client", "../b"], 2, "cannot be a certificate's name"),
        (&["client", "b", "--export", "a/b"], 2, "no export can be called this"),
        (&["server", "a b"], 2, "cannot be a certificate's name"),
        (&["server", "host:7117"], 2, "cannot be a certificate's name"),
        (&["client", "--renew", "nobody"], 1, "cannot read the key"),
    ] {
        let mut command = fixture.lanefs(["cert", arguments[0]]);
        let (found, line) = failure(&run(command.arg(&dir).args(&arguments[1..])));
        assert_eq!(found, code, "{arguments:?}: {line}");
        assert!(line.contains(part), "{arguments:?}: {line}");
    }
    let (_, line) =
        failure(&fixture.run(["cert", "client", fixture.path("no").to_str().unwrap(), "b"]));
    assert!(line.contains("there is no CA"), "{line}");
}

#[test]
fn a_mount_and_commands_get_in_by_certificate_and_come_back_to_a_killed_server() {
    let Some(fixture) = Fixture::new("certificates_work") else { return };
    for lanes in ["1", "2"] {
        let authority = Authority::new(&fixture, &format!("certs{lanes}"));
        authority.make(&fixture, &["client"], &["alice"]);
        let alice = authority.show("alice");
        // Of two lanes one relays to the other, too.
        let more = ["--lanes", lanes, "--affinity=random"];
        let server = authority.serve(&fixture, &more);
        let address = server.address.clone();
        let [_, cert, _, key, _, ca] = alice.as_slice() else { panic!("{alice:?}") };
        let options = format!("export=up,cert={cert},key={key},ca={ca}");
        let mount = fixture.mount(&address, &format!("mnt{lanes}"), &["-o", &options]);
        fs::write(mount.dir.join("file"), "by certificate").unwrap();
        let open = fs::File::open(mount.dir.join("file")).unwrap();
        kill(server.process.pid());
        drop(server);
        let writing = std::thread::spawn({
            let file = mount.dir.join("later");
            move || fs::write(file, "after the kill")
        });
        let _again = authority.serve_at(&fixture, &address, &more);
        writing.join().unwrap().unwrap();
        assert_eq!(std::io::read_to_string(&open).unwrap(), "by certificate");
        drop(open);
        let url = |path: &str| format!("lanefs://{address}{path}");
        let listed = must(&mut shown(&fixture, &alice, &["ls", "--export", "up", &url("/")]));
        assert_eq!(listed.lines().collect::<Vec<_>>(), ["file", "later"]);
        let copy = fixture.path(&format!("copy{lanes}"));
        let copied = ["cp", "--export", "up", &url("/later"), copy.to_str().unwrap()];
        must(&mut shown(&fixture, &alice, &copied));
        assert_eq!(fs::read_to_string(&copy).unwrap(), "after the kill");
        // Administers, by the store's directory too.
        let (store, name) = (fixture.path("store"), format!("data{lanes}"));
        let added = ["export", "add", store.to_str().unwrap(), &name, "/"];
        must(fixture.lanefs(added).args(&alice));
        let listed = must(fixture.lanefs(["export", "list", &address]).args(&alice));
        assert!(listed.contains(&name), "{listed}");
        mount.stop();
    }
    assert!(!fixture.path("config").exists(), "no secret was needed, and none was made");
}

#[test]
fn programs_get_in_by_certificate() {
    let Some(fixture) = Fixture::new("certificates_library") else { return };
    let authority = Authority::new(&fixture, "certs");
    let server = authority.serve(&fixture, &[]);
    let address = server.address.parse().unwrap();
    let volume = |name: &str| {
        authority.make(&fixture, &["client"], &[name]);
        let file = |end: &str| PathBuf::from(authority.file(&format!("{name}.{end}")));
        let files =
            Files { cert: file("crt"), key: file("key"), ca: authority.file("ca.crt").into() };
        let warn = Arc::new(|line: &str| panic!("{line}"));
        let certificates = Certificates::read(files, authority.host(), warn).unwrap();
        let options = ConnectOptions::certified(address, certificates);
        Volume::connect(&ConnectOptions { export: "up".to_owned(), ..options }).unwrap()
    };
    let (mut alice, mut bob) = (volume("alice"), volume("bob"));
    let file = alice.create("/file".as_ref(), 0o644, false).unwrap();
    alice.write_at(&file, 0, b"hello").unwrap();
    let found = bob.open("/file".as_ref(), OpenFor::Read).unwrap();
    let piece = Piece { file_offset: 0, piece_bytes: 16 };
    assert_eq!(bob.read_at(&found, piece).unwrap(), b"hello"[..]);
    bob.close(found).unwrap();
    alice.close(file).unwrap();
    alice.leave().unwrap();
    bob.leave().unwrap();
}

#[test]
fn the_secret_opens_beside_certificates_only_where_it_is_named() {
    let Some(fixture) = Fixture::new("certificates_beside") else { return };
    let authority = Authority::new(&fixture, "certs");
    authority.make(&fixture, &["client"], &["alice"]);
    let alice = authority.show("alice");
    let secret = fixture.path("secret");
    let secret = secret.to_str().unwrap();
    let server = authority.serve(&fixture, &["--secret-file", secret]);
    let url = format!("lanefs://{}/", server.address);
    let file = fixture.path("file");
    fs::write(&file, "one file").unwrap();
    let put = ["cp", "--seal", "--secret-file", secret, "--export", "up"];
    must(fixture.lanefs(put).arg(&file).arg(&url));
    let read = format!("{url}file");
    assert_eq!(must(&mut shown(&fixture, &alice, &["cat", "--export", "up", &read])), "one file");
    // Both at once are a contradiction.
    let mut both = shown(&fixture, &alice, &["ls", "--secret-file", secret, &url]);
    assert_eq!(failure(&run(&mut both)).0, 2);
    drop(server);
    let server = authority.serve(&fixture, &[]);
    let url = format!("lanefs://{}/", server.address);
    must(&mut shown(&fixture, &alice, &["ls", "--export", "up", &url]));
    let (code, line) = failure(&fixture.run(["ls", "--seal", "--secret-file", secret, &url]));
    assert_eq!(code, 4, "{line}");
    assert!(line.contains("the server takes certificates only"), "{line}");
}

#[test]
fn up_serves_clients_with_certificates_beside_its_own_mount() {
    let Some(fixture) = Fixture::new("certificates_up") else { return };
    let authority = Authority::new(&fixture, "certs");
    authority.make(&fixture, &["client"], &["alice"]);
    let served = authority.show("server");
    let more: Vec<&str> = served.iter().map(String::as_str).collect();
    let mut up = fixture.up(&more);
    fs::write(up.dir.join("file"), "seen").unwrap();
    let alice = authority.show("alice");
    let read = |up: &crate::fixture::Up| {
        must(&mut shown(&fixture, &alice, &["cat", "--export", "up", &up.url("/file")]))
    };
    assert_eq!(read(&up), "seen");
    up.kill_server();
    assert_eq!(read(&up), "seen");
    up.stop();
}

/// Signs by the CA of a directory, what `change` makes of a certificate for this end.
pub(crate) fn sign(
    authority: &Authority,
    name: &str,
    purpose: ExtendedKeyUsagePurpose,
    change: impl FnOnce(&mut CertificateParams),
) {
    let der = library::certificates::read_key(authority.file("ca.key").as_ref()).unwrap();
    let ca_key = KeyPair::try_from(der).unwrap();
    let mut ca = CertificateParams::default();
    let id = ca.key_identifier(&ca_key);
    let id: String = id[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    ca.distinguished_name.remove(DnType::CommonName);
    ca.distinguished_name.push(DnType::CommonName, format!("lanefs CA {id}"));
    let issuer = Issuer::new(ca, ca_key);
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::NoCa;
    params.extended_key_usages = vec![purpose];
    let host = authority.host().parse().unwrap();
    params.subject_alt_names =
        vec![SanType::URI("lanefs:store".try_into().unwrap()), SanType::IpAddress(host)];
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2100, 1, 1));
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    fs::write(authority.file(&format!("{name}.crt")), certificate.pem()).unwrap();
    let key_file = authority.file(&format!("{name}.key"));
    fs::write(&key_file, key.serialize_pem()).unwrap();
    fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn renewed_certificates_are_shown_without_a_restart() {
    let Some(fixture) = Fixture::new("certificates_renewed") else { return };
    let authority = Authority::new(&fixture, "certs");
    authority.make(&fixture, &["client"], &["alice"]);
    let alice = authority.show("alice");
    let mut server = authority.serve(&fixture, &[]);
    let address = server.address.clone();
    let url = format!("lanefs://{address}/");
    let mount = [&["--export".to_owned(), "up".to_owned()][..], &alice].concat();
    let mount: Vec<&str> = mount.iter().map(String::as_str).collect();
    let mut mount = fixture.mount(&address, "mnt", &mount);
    let list = || run(&mut shown(&fixture, &alice, &["ls", "--export", "up", &url]));
    fs::write(mount.dir.join("file"), "kept").unwrap();
    let open = fs::File::open(mount.dir.join("file")).unwrap();
    // The server's is for another name from the next handshake on, and then for this one again.
    authority.make(&fixture, &["server", "--renew"], &["server", "elsewhere.example"]);
    let (code, line) = failure(&list());
    assert_eq!(code, 4, "{line}");
    authority.make(&fixture, &["server", "--renew"], &["server", authority.host()]);
    assert!(list().status.success());
    // What cannot be read changes nothing.
    let cert = authority.file("server.crt");
    let good = fs::read(&cert).unwrap();
    fs::write(&cert, "half a certific").unwrap();
    assert!(list().status.success());
    server.process.line_with("stay in use");
    // A mount waits while the server's is no good, says so, and goes on with its open files.
    fs::write(&cert, &good).unwrap();
    authority.make(&fixture, &["server", "--renew"], &["server", "elsewhere.example"]);
    kill(server.process.pid());
    drop(server);
    let _again = authority.serve_at(&fixture, &address, &[]);
    mount.process.line_with("calls wait");
    authority.make(&fixture, &["server", "--renew"], &["server", authority.host()]);
    // Ours is renewed with the same key: the server knows us again.
    authority.make(&fixture, &["client", "--renew"], &["alice"]);
    fs::write(mount.dir.join("later"), "came back").unwrap();
    assert_eq!(std::io::read_to_string(&open).unwrap(), "kept");
    drop(open);
    mount.stop();
}

#[test]
fn certificates_of_openssl_are_as_good_and_its_client_gets_in() {
    let Some(fixture) = Fixture::new("certificates_openssl") else { return };
    if Command::new("openssl").arg("version").output().is_err() {
        return skip("certificates_openssl", "needs openssl");
    }
    let authority = Authority { dir: fixture.make_dir("certs"), listen: own_address() };
    let openssl =
        |line: String| must(program("sh").arg("-ec").arg(line).current_dir(&authority.dir));
    let key = "-newkey rsa:2048 -nodes";
    openssl(format!("openssl req -x509 {key} -days 2 -subj /CN=Root -keyout root.key -out ca.crt"));
    // A CA between, in the chain that is shown, on another kind of key.
    openssl(
        "openssl ecparam -genkey -name prime256v1 -out between.key
         openssl req -new -key between.key -subj /CN=Between -out between.csr
         printf 'basicConstraints=critical,CA:TRUE\n' > between.ext
         openssl x509 -req -in between.csr -CA ca.crt -CAkey root.key -CAcreateserial -days 2 \
             -extfile between.ext -out between.crt"
            .to_owned(),
    );
    let host = authority.host().to_owned();
    for (name, purpose, names) in [
        ("server", "serverAuth", format!("IP:{host}")),
        ("alice", "clientAuth", "URI:lanefs:store".to_owned()),
    ] {
        openssl(format!(
            "openssl req -new {key} -subj /CN={name} -keyout {name}.key -out {name}.csr
             printf 'subjectAltName={names}\nextendedKeyUsage={purpose}\n' > {name}.ext
             openssl x509 -req -in {name}.csr -CA between.crt -CAkey between.key -CAcreateserial \
                 -days 2 -extfile {name}.ext -out {name}.one
             cat {name}.one between.crt > {name}.crt; chmod 600 {name}.key"
        ));
    }
    let mut server = authority.serve(&fixture, &[]);
    let url = format!("lanefs://{}/", server.address);
    let alice = authority.show("alice");
    must(&mut shown(&fixture, &alice, &["ls", "--export", "up", &url]));
    // Its client, on both sides of the handshake.
    let connect = format!("openssl s_client -connect {} -CAfile ca.crt", server.address);
    let connect = format!("{connect} -verify_return_error -verify_ip {host} </dev/null 2>&1");
    let with = connect
        .replace("</dev/null", "-cert alice.one -cert_chain between.crt -key alice.key </dev/null");
    let said = openssl(with);
    assert!(said.contains("Verify return code: 0 (ok)") && said.contains("TLSv1.3"), "{said}");
    // Without a certificate the server ends it, and says why.
    let said = openssl(format!("{} || true", connect.replace("</dev/null", "</dev/zero")));
    assert!(said.contains("certificate required"), "{said}");
    server.process.line_with("it shows no certificate");
    // Signing needs a CA that `lanefs cert` has made.
    fs::copy(authority.file("root.key"), authority.file("ca.key")).unwrap();
    let mut cert = fixture.lanefs(["cert", "client"]);
    let (code, line) = failure(&run(cert.arg(&authority.dir).arg("bob")));
    assert_eq!(code, 1, "{line}");
    assert!(!Path::new(&authority.file("bob.key")).exists(), "{line}");
}

#[test]
fn a_key_that_others_may_read_and_options_that_contradict_are_refused() {
    let Some(fixture) = Fixture::new("certificates_options") else { return };
    let authority = Authority::new(&fixture, "certs");
    authority.make(&fixture, &["client"], &["alice"]);
    authority.make(&fixture, &["client"], &["bob"]);
    let alice = authority.show("alice");
    let url = "lanefs://127.0.0.1:1/";
    let [_, cert, _, key, _, ca] = alice.as_slice() else { panic!("{alice:?}") };
    let bob_key = authority.file("bob.key");
    let no_key = authority.file("no.key");
    fs::copy(cert, &no_key).unwrap();
    fs::set_permissions(&no_key, fs::Permissions::from_mode(0o600)).unwrap();
    let dir = fixture.make_dir("mnt");
    let dir = dir.to_str().unwrap();
    let store = fixture.path("store");
    let store = store.to_str().unwrap();
    for (arguments, code, part) in [
        (&["ls", "--cert", cert, "--key", key, url][..], 2, "--ca"),
        (&["ls", "--ca", ca, url], 2, "--cert"),
        (&["ls", "--plain", "--cert", cert, "--key", key, "--ca", ca, url], 2, "--plain"),
        (&["mount", "h", dir, "-o", &format!("cert={cert},key={key}")], 2, "needed together"),
        (
            &["mount", "h", dir, "-o", &format!("plain,cert={cert},key={key},ca={ca}")],
            2,
            "leave plain away",
        ),
        (&["ls", "--cert", cert, "--key", &bob_key, "--ca", ca, url], 1, "cannot be used together"),
        (&["ls", "--cert", key, "--key", key, "--ca", ca, url], 1, "no certificate in it"),
        (&["ls", "--cert", cert, "--key", &no_key, "--ca", ca, url], 1, "no private key in it"),
        (
            &["ls", "--cert", cert, "--key", key, "--ca", "/no", url],
            1,
            "cannot read the certificate of",
        ),
        (
            &["export", "secret", "h", "x", "--cert", cert, "--key", key, "--ca", ca],
            2,
            "an export's secret follows from the store's",
        ),
    ] {
        let (found, line) = failure(&fixture.run(arguments));
        assert_eq!(found, code, "{arguments:?}: {line}");
        assert!(line.contains(part), "{arguments:?}: {line}");
    }
    fs::set_permissions(key, fs::Permissions::from_mode(0o640)).unwrap();
    let at_store = ["serve", "--store", store];
    for arguments in [&["ls", url][..], &at_store, &["mount", "127.0.0.1:1", dir], &["up", dir]] {
        let (code, line) = failure(&run(&mut shown(&fixture, &alice, arguments)));
        assert_eq!(code, 1, "{arguments:?}: {line}");
        assert!(line.contains("is open to others (mode 0640): chmod 600"), "{line}");
    }
}
