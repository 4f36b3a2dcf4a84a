//! The secret's file: made once, refused when open to others.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::atomic_file;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

#[test]
fn a_secret_is_made_once_with_mode_0600() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep").join("secret");
    let first = read_or_make(&path).unwrap();
    let again = read_or_make(&path).unwrap();
    assert!(first == again, "the second start finds the first one's secret");
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.mode() & 0o7777, 0o600);
    assert_eq!(metadata.len(), 65);
    let names = std::fs::read_dir(path.parent().unwrap()).unwrap();
    assert_eq!(names.count(), 1, "no draft is left behind");
}

#[test]
fn two_secrets_differ() {
    let folder = tempfile::tempdir().unwrap();
    let one = read_or_make(&folder.path().join("one")).unwrap();
    let two = read_or_make(&folder.path().join("two")).unwrap();
    assert!(one != two);
}

#[test]
fn a_secret_open_to_others_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    read_or_make(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let line = read(&path).unwrap_err().to_string();
    assert!(line.contains("chmod 600"), "{line}");
    assert!(line.contains("0640"), "{line}");
}

#[test]
fn a_missing_secret_is_not_made_by_a_mount() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    assert!(read(&path).unwrap_err().to_string().contains("no secret at"));
    assert!(!path.exists());
}

#[test]
fn what_is_no_secret_is_refused_and_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    atomic_file::create(&path, "hunter2", MODE).unwrap();
    let line = format!("{:#}", read(&path).unwrap_err());
    assert!(line.contains("64 hexadecimal digits"), "{line}");
    assert!(!line.contains("hunter2"), "{line}");
}

#[test]
fn the_secret_of_an_export_has_a_prefix_and_differs_from_the_stores() {
    let folder = tempfile::tempdir().unwrap();
    let (store, export) = (folder.path().join("store"), folder.path().join("export"));
    let of_store = read_or_make(&store).unwrap().current;
    let of_export = of_store.of_export(b"a", 1);
    atomic_file::create(&export, &text_of(&of_export), MODE).unwrap();
    assert!(read(&export).unwrap() == of_export && of_export != of_store.of_export(b"a", 2));
    assert_eq!(std::fs::read_to_string(&store).unwrap(), text_of(&of_store));
    let line = read_or_make(&export).unwrap_err().to_string();
    assert!(line.contains("not the store's"), "{line}");
}
