//! A client without a valid secret learns nothing about exports.

use crate::fixture::{Fixture, must};
use crate::raw_client::{Raw, Refused, hello, refused};
use std::fs;
use wire::*;

/// Greets for an export, with a proof by this secret.
fn refused_by(address: &str, (export, by): (&str, &Secret)) -> Refused {
    let client = ClientUuid(library::random().unwrap());
    refused(address, by, &hello(Credential::Export, (export, 0), client))
}

#[test]
fn without_a_secret_existing_and_missing_exports_look_the_same() {
    let Some(fixture) = Fixture::new("exports_unseen") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let all = fixture.mount(&server.address, "all", &["--export", "up"]);
    fs::create_dir(all.dir.join("a")).unwrap();
    let address = server.address.as_str();
    must(&mut fixture.lanefs(["export", "add", address, "known", "/a"]));
    let of_known = must(&mut fixture.lanefs(["export", "secret", address, "known"]));
    let of_known = library::secret::of_text(&of_known).unwrap();
    let guess = Secret::of_one_export([7; 32]);
    let zeros = Secret::of_one_export([0; 32]);
    for by in [&guess, &zeros] {
        let mut nonces = Vec::new();
        for export in ["known", "nothing", "up", "", "default", "known "] {
            let Refused { challenge, server_proven, reason } = refused_by(address, (export, by));
            assert!(!server_proven, "{export:?}");
            assert_eq!(reason, RefusalReason::WrongSecret, "{export:?}");
            assert!(!nonces.contains(&challenge.nonce), "each is new");
            nonces.extend([challenge.nonce, challenge.proof]);
        }
    }
    // Nor does the secret of one export say which others there are.
    for export in ["nothing", "up", ""] {
        let Refused { server_proven, reason, .. } = refused_by(address, (export, &of_known));
        assert!(!server_proven && reason == RefusalReason::WrongSecret, "{export:?}");
    }
    // A client that has proven the store's secret gets the exact reason.
    let secret = library::secret::read(&fixture.path("config/lanefs/secret")).unwrap();
    let client = ClientUuid(library::random().unwrap());
    let with = |export| Raw::of(address, &secret, &hello(Credential::Store, (export, 0), client));
    assert_eq!(with("nothing").err(), Some(RefusalReason::NoSuchExport));
    assert!(with("known").is_ok());
    let wrong = Secret::new([7; 32]);
    let refused = refused(address, &wrong, &hello(Credential::Store, ("nothing", 0), client));
    assert_eq!(refused.reason, RefusalReason::WrongSecret, "before the proof it is all the same");
    // A mount says what it can know.
    let file = fixture.path("known.secret");
    fs::write(&file, library::secret::text_of(&of_known)).unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let dir = fixture.make_dir("none");
    let source = format!("{address}/nothing");
    let mount = ["mount", &source, dir.to_str().unwrap(), "--secret-file", file.to_str().unwrap()];
    let (code, line) = crate::fixture::failure(&fixture.run(mount));
    assert!(code == 4 && line.contains("no such export, or another secret"), "{code} {line}");
    all.stop();
}
