//! What a server keeps for itself has the mode it should have, whatever the umask says.

use crate::fixture::{Fixture, Process, binary};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

#[test]
fn secrets_are_for_their_owner_whatever_the_umask() {
    let Some(fixture) = Fixture::new("modes") else { return };
    for umask in ["0000", "0277", "0077"] {
        let (store, secret) =
            (fixture.path(&format!("{umask}/store")), fixture.path(&format!("{umask}.secret")));
        fs::create_dir(fixture.path(umask)).unwrap();
        let mut command = Command::new("sh");
        let script = format!("umask {umask}; exec \"$0\" \"$@\"");
        command.arg("-c").arg(script).arg(binary()).stdin(Stdio::null());
        command.args(["serve", "--listen", "127.0.0.1:0", "--lanes", "1", "--store"]).arg(&store);
        command.arg("--secret-file").arg(&secret);
        let mut process = Process::start(&mut command);
        process.line_with("listening on ");
        process.signal(Signal::TERM);
        assert!(process.end().success(), "{}", process.said());
        let mode =
            |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&secret), 0o600, "{umask}");
        for name in ["fs-key", "superblock", "boot", "lock"] {
            assert_eq!(mode(&store.join(name)), 0o600, "{umask} {name}");
        }
        for name in ["", "log", "objects", "rows"] {
            assert_eq!(mode(&store.join(name)), 0o700, "{umask} {name}");
        }
        // What it has made it takes again.
        let mut process = Process::start(&mut command);
        process.line_with("listening on ");
        process.signal(Signal::TERM);
        assert!(process.end().success(), "{}", process.said());
    }
}

#[test]
fn a_store_that_others_can_change_is_not_served() {
    let Some(fixture) = Fixture::new("store_of_others") else { return };
    let mut server = fixture.serve("127.0.0.1:0");
    server.process.signal(Signal::TERM);
    assert!(server.process.end().success());
    let store = fixture.path("store");
    let serve = || {
        let output =
            fixture.run(["serve", "--listen", "127.0.0.1:0", "--store", store.to_str().unwrap()]);
        crate::fixture::failure(&output)
    };
    fs::set_permissions(store.join("log"), fs::Permissions::from_mode(0o777)).unwrap();
    let (code, line) = serve();
    assert!(code == 1 && line.contains("chmod go-w"), "{code} {line}");
    fs::set_permissions(store.join("log"), fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(store.join("fs-key"), Some(4711), None).unwrap();
    let (code, line) = serve();
    assert!(code == 1 && line.contains("belongs to user 4711"), "{code} {line}");
    std::os::unix::fs::chown(store.join("fs-key"), Some(0), None).unwrap();
    drop(fixture.serve("127.0.0.1:0"));
}
