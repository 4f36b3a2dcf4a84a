//! An etcd under TLS that knows its clients by certificate, and users by password.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "support/tls.rs"]
mod tls;

use registry::{Access, Etcd, RegistryError, Write};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tempfile::TempDir;
use tls::{Files, TlsEtcd, put};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn start(name: &str) -> (TempDir, TlsEtcd) {
    let dir = tempfile::tempdir().unwrap();
    let at = [port(), port()].map(|port| SocketAddr::new(HOST, port));
    let etcd = TlsEtcd::start(dir.path(), name, at).unwrap();
    (dir, etcd)
}

fn port() -> u16 {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

fn write(etcd: &Etcd, key: &str) -> Result<Option<i64>, RegistryError> {
    let value = Some("x".to_owned());
    etcd.swap(&[Write { key: key.to_owned(), version: 0, value, lease: None }])
}

#[test]
fn certificates_prove_both_ends() {
    let (dir, tls) = start("own");
    let etcd = Etcd::new(&tls.access()).unwrap();
    assert!(write(&etcd, "/lanefs/a").unwrap().is_some());
    assert_eq!(etcd.read("/lanefs/").unwrap().entries.len(), 1);
    // A certificate of another authority, on either side, and none.
    let others = Files::make(dir.path(), "other", HOST);
    let foreign = Access { ca: Some(others.ca), ..tls.access() };
    let line = Etcd::new(&foreign).unwrap().read("/").unwrap_err().to_string();
    assert!(line.contains("certificate"), "{line}");
    let foreign = Access { cert: Some(others.cert), key: Some(others.key), ..tls.access() };
    Etcd::new(&foreign).unwrap().read("/").unwrap_err();
    let without = Access { cert: None, key: None, ..tls.access() };
    Etcd::new(&without).unwrap().read("/").unwrap_err();
    let missing = Access { ca: Some(dir.path().join("none")), ..tls.access() };
    let line = Etcd::new(&missing).unwrap_err().to_string();
    assert!(line.contains("none") && line.contains("No such file"), "{line}");
}

#[test]
fn a_renewed_certificate_is_used_once_the_old_one_fails() {
    let (dir, tls) = start("own");
    let own = [&tls.files.cert, &tls.files.key].map(|file| fs::read(file).unwrap());
    let others = Files::make(dir.path(), "other", HOST);
    let access =
        Access { cert: Some(others.cert.clone()), key: Some(others.key.clone()), ..tls.access() };
    let etcd = Etcd::new(&access).unwrap();
    etcd.read("/").unwrap_err();
    fs::write(&others.cert, &own[0]).unwrap();
    fs::write(&others.key, &own[1]).unwrap();
    // The first call that fails reads the files again.
    let second = etcd.read("/");
    assert!(second.is_ok() || etcd.read("/").is_ok());
}

#[test]
fn a_user_has_its_keys_and_no_others() {
    let (_dir, tls) = start("own");
    let access = tls.with_users();
    let password = access.password.clone().unwrap();
    let etcd = Etcd::new(&access).unwrap();
    assert!(write(&etcd, "/lanefs/a").unwrap().is_some());
    assert_eq!(etcd.read("/lanefs/").unwrap().entries.len(), 1);
    let line = write(&etcd, "/other").unwrap_err().to_string();
    assert!(line.contains("permission denied"), "{line}");
    // Leases need no permission of their own.
    let lease = etcd.grant(60).unwrap();
    assert!(etcd.keep(lease).unwrap());
    let seen = etcd.watch("/lanefs/", 0, |_| std::ops::ControlFlow::Break(()));
    assert!(seen.is_ok(), "{seen:?}");
    let without = Access { user: None, password: None, ..access.clone() };
    let line = Etcd::new(&without).unwrap().read("/lanefs/").unwrap_err().to_string();
    assert!(line.contains("--etcd-user"), "{line}");
    put(password, "wrong horse\n");
    let line = write(&Etcd::new(&access).unwrap(), "/lanefs/b").unwrap_err().to_string();
    assert!(line.contains("authentication failed") && !line.contains("horse"), "{line}");
}

#[test]
fn beside_users_a_certificate_must_not_name_its_owner() {
    let (_dir, tls) = start("named");
    let access = tls.with_users();
    let line = Etcd::new(&access).unwrap().read("/lanefs/").unwrap_err().to_string();
    assert!(line.contains("without a common name"), "{line}");
}
