//! Sizes, times and addresses that are none end a command with 2, before it does anything, and say what to write.

use crate::fixture::{Fixture, failure};

#[test]
fn a_wrong_address_is_refused_by_every_command() {
    let Some(fixture) = Fixture::new("usage_address") else { return };
    let (store, dir) = (fixture.path("store"), fixture.make_dir("dir"));
    let (store, dir) = (store.to_str().unwrap(), dir.to_str().unwrap());
    let host = "names no host: HOST:";
    for (arguments, says) in [
        (&["serve", "--store", store, "--listen", "80"][..], "127.0.0.1:80"),
        (&["serve", "--store", store, "--listen", ":7998"], "0.0.0.0:7998"),
        (&["up", dir, "--store", store, "--listen", "80"], "127.0.0.1:80"),
        (&["up", "-d", dir, "--store", store, "--listen", ":7998"], "[::]:7998"),
        (&["mount", "80", dir], host),
        (&["mount", ":7998/data", dir], host),
        (&["mount", "-d", "lanefs://:7998/data", dir], host),
        (&["mount", "[::1", dir], "is no address"),
        (&["mount", "host:", dir], "a port that is no number"),
        (&["export", "list", "80"], host),
        (&["export", "list", "lanefs://:7998/"], host),
        (&["export", "add", "host:99999", "a", "/"], "a port that is no number"),
        (&["bench", "echo", "--server", ":7998"], host),
        (&["ls", "lanefs://80/"], host),
        (&["cat", "lanefs://[::1]:x/file"], "a port that is no number"),
        (&["cp", "lanefs://:7998/file", dir], host),
        (&["find", "lanefs://a:b:c/"], "is no address"),
        (&["sync", "lanefs:///"], "names no host"),
    ] {
        let (code, line) = failure(&fixture.run(arguments));
        assert!(code == 2 && line.contains(says), "{arguments:?}: {code} {line}");
    }
    assert!(!fixture.path("store").exists(), "nothing was begun");
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0);
}

#[test]
fn an_address_of_version_6_is_served_and_reached_in_all_spellings() {
    let Some(fixture) = Fixture::new("usage_v6") else { return };
    let server = fixture.serve("[::1]:0");
    let address = &server.address;
    for place in [format!("lanefs://{address}"), format!("lanefs://{address}/")] {
        crate::fixture::must(&mut fixture.lanefs(["ls", "-a", &place]));
    }
    crate::fixture::must(&mut fixture.lanefs(["export", "list", &format!("lanefs://{address}/")]));
}

#[test]
fn old_option_names_with_a_unit_are_refused_with_the_new_ones() {
    let Some(fixture) = Fixture::new("usage_renamed") else { return };
    let (store, dir) = (fixture.path("store"), fixture.make_dir("dir"));
    let (store, dir) = (store.to_str().unwrap(), dir.to_str().unwrap());
    for (arguments, says) in [
        (&["serve", "--store", store, "--recovery-soft-ms", "5"][..], "it is --recovery-soft TIME"),
        (&["serve", "--store", store, "--recovery-soft", "5"], "'5' has no unit: 5s, 5ms"),
        (&["serve", "--store", store, "--log-max", "1M"], "1M is not from 16MiB to 1TiB"),
        (&["serve", "--store", store, "--meta-memory", "1.5G"], "is no size"),
        (&["mount", "host", dir, "-o", "spin_us=50"], "it is spin=TIME, as spin=50us"),
        (&["mount", "host", dir, "-o", "spin=50"], "'50' has no unit"),
        (&["ls", "lanefs://host", "--connect-timeout", "5"], "'5' has no unit"),
    ] {
        let (code, line) = failure(&fixture.run(arguments));
        assert!(code == 2 && line.contains(says), "{arguments:?}: {code} {line}");
    }
    assert!(!fixture.path("store").exists(), "nothing was begun");
}
