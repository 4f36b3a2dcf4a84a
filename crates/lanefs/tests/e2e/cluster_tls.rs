//! A cluster whose etcd is under TLS and has users.

#[path = "../../../registry/tests/support/tls.rs"]
mod tls;

use crate::fixture::{Fixture, Process, Server, failure, must, own_address, run, skip};
use registry::LocalError;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tls::{TlsEtcd, put};

/// A server on a store, with these options more.
fn serve(fixture: &Fixture, store: &Path, more: &[&str]) -> Server {
    let mut command = fixture.lanefs(["serve", "--export", "up=no-root-squash"]);
    command.args(["--lanes", "1", "--listen", &own_address()]).args(more);
    let mut process = Process::start(command.arg("--store").arg(store));
    let line = process.line_with("listening on ");
    let address = line.trim_start_matches("listening on ").split(',').next().unwrap();
    Server { address: address.to_owned(), process }
}

#[test]
fn a_cluster_lives_by_an_etcd_with_certificates_and_users() {
    const NAME: &str = "a_cluster_lives_by_an_etcd_with_certificates_and_users";
    let Some(fixture) = Fixture::new(NAME) else { return };
    let own: SocketAddr = own_address().parse().unwrap();
    let at = [2379, 2380].map(|port| SocketAddr::new(own.ip(), port));
    let dir = fixture.path("etcd");
    fs::create_dir(&dir).unwrap();
    let etcd = match TlsEtcd::start(&dir, "own", at) {
        Err(LocalError::NotInstalled) => return skip(NAME, "needs etcd (Debian's etcd-server)"),
        started => started.unwrap(),
    };
    let access = etcd.with_users();
    let text = |path: &Option<PathBuf>| path.clone().unwrap().to_str().unwrap().to_owned();
    let (ca, cert, key) = (text(&access.ca), text(&access.cert), text(&access.key));
    let (url, password) = (access.to_string(), text(&access.password));
    let certificates = ["--etcd-ca", &ca, "--etcd-cert", &cert, "--etcd-key", &key];
    let user = ["--etcd-user", "lanefs", "--etcd-password-file", &password];
    let options = [&certificates[..], &user].concat();
    let [one, two] = ["one", "two"].map(|name| fixture.path(name));

    // Each option that lacks is named.
    let init = |more: &[&str]| {
        let mut command = fixture.lanefs(["cluster", "init", "--etcd", &url]);
        run(command.args(more).arg("--store").arg(&one))
    };
    let (_, line) = failure(&init(&[]));
    assert!(line.contains("--etcd-ca FILE"), "{line}");
    let (_, line) = failure(&init(&certificates));
    assert!(line.contains("--etcd-user"), "{line}");
    assert!(!one.exists(), "no store is made for nothing");
    let made = init(&options);
    let said = String::from_utf8(made.stdout).unwrap();
    assert!(made.status.success() && said.contains("--etcd-user lanefs --etcd-ca FILE"), "{said}");

    // The store remembers them; a joining server is told.
    let first = serve(&fixture, &one, &[]);
    let token = must(fixture.lanefs(["cluster", "token", "--store"]).arg(&one));
    let join = [&["--cluster", &url, "--join", token.trim()][..], &options].concat();
    let second = serve(&fixture, &two, &join);
    let mount = fixture.mount(&first.address, "mnt", &["--export", "up"]);
    for number in 0..8 {
        fs::create_dir(mount.dir.join(number.to_string())).unwrap();
    }
    let up = |command: &mut std::process::Command| must(command).matches("\"up\":true").count();
    assert_eq!(up(fixture.lanefs(["servers", "--json"]).arg(&two)), 2);
    assert_eq!(up(fixture.lanefs(["servers", &url, "--json"]).args(&options)), 2);
    let status = must(fixture.lanefs(["cluster", "status"]).arg(&one));
    assert!(status.contains("2 of 2 servers up") && !status.contains("horse"), "{status}");

    // A wrong password, a file that others may read.
    drop(second);
    let wrong = put(dir.join("wrong"), "wrong horse");
    let refused = ["--etcd-user", "lanefs", "--etcd-password-file", wrong.to_str().unwrap()];
    let mut command = fixture.lanefs(["servers", &url]);
    let (_, line) = failure(&run(command.args(certificates).args(refused)));
    assert!(line.contains("authentication failed") && !line.contains("horse"), "{line}");
    let (code, line) = failure(&run(fixture.lanefs(["servers"]).args(user).arg(&one)));
    assert!(code == 2 && line.contains("addresses of etcd"), "{line}");
    let second = serve(&fixture, &two, &[]);
    assert_eq!(fs::read_dir(&mount.dir).unwrap().count(), 8);
    drop(second);
}
