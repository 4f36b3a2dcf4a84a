//! What keeps running: `up -d`, a second `up`, `down`, and `status`.

use crate::fixture::{
    Fixture, Mount, failure, is_alive, is_mounted, kill, must, run, texts, until,
    without_right_to_mount, wrap,
};
use std::fs;
use std::path::Path;
use std::process::Command;

/// `lanefs up -d` of `dir`.
fn up_detached(fixture: &Fixture, dir: &Path) -> Command {
    let mut command = fixture.lanefs(["up", "-d", "--listen", "127.0.0.1:0"]);
    command.arg(dir);
    command
}

/// The number behind `process ` in what a command has said.
fn pid_in(said: &str) -> u32 {
    let behind = said.split_once("process ").unwrap_or_else(|| panic!("{said}")).1;
    let digits = behind.split(|character: char| !character.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap_or_else(|_| panic!("{said}"))
}

/// What `status --json` says, with one object a line.
fn status(fixture: &Fixture, target: &[&str]) -> Vec<serde_json::Value> {
    let said = must(fixture.lanefs(["status", "--json"]).args(target));
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn up_in_the_background_is_found_by_a_second_up_and_ended_by_down() {
    let Some(fixture) = Fixture::new("up_down") else { return };
    let dir = fixture.path("mnt");
    let said = must(&mut up_detached(&fixture, &dir));
    let pid = pid_in(&said);
    let log = fixture.path("mnt.lanefs.log");
    assert!(said.contains(&format!("log {}", log.display())), "{said}");
    let stop = format!("stop with `lanefs down {}` or `kill {pid}`", dir.display());
    assert!(said.contains(&stop), "{said}");
    let address = said.lines().next().unwrap();
    assert!(address.starts_with("address 127.0.0.1:"), "{said}");
    fs::write(dir.join("kept"), "x").unwrap();
    for more in [&[][..], &["-d"]] {
        let second = must(fixture.lanefs(["up"]).args(more).arg(&dir));
        assert_eq!(second.lines().next(), Some(address), "{second}");
        assert_eq!(pid_in(&second), pid);
        assert!(second.contains(&log.display().to_string()), "{second}");
    }
    let other = fixture.path("other-store");
    let output = run(fixture.lanefs(["up", "--store"]).arg(&other).arg(&dir));
    let (code, stderr) = failure(&output);
    assert!(code == 1 && stderr.contains("lanefs down"), "{code} {stderr}");
    let said = must(fixture.lanefs(["down"]).arg(&dir));
    assert_eq!(pid_in(&said), pid);
    assert!(!is_alive(pid) && !is_mounted(&dir));
    let (code, stderr) = failure(&run(fixture.lanefs(["down"]).arg(&dir)));
    assert!(code == 1 && stderr.contains("lanefs status"), "{code} {stderr}");
    // Nothing of it is in the way of the next.
    must(&mut up_detached(&fixture, &dir));
    assert_eq!(fs::read_to_string(dir.join("kept")).unwrap(), "x");
    must(fixture.lanefs(["down"]).arg(&dir));
}

#[test]
fn up_that_cannot_mount_serves_and_ends_its_command_with_code_3() {
    let Some(fixture) = Fixture::new("up_code_3") else { return };
    let dir = fixture.path("mnt");
    let output = run(&mut wrap(without_right_to_mount(), up_detached(&fixture, &dir)));
    let (said, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(3), "{said}{stderr}");
    assert!(said.contains("mounted nowhere"), "{said}");
    let address = said.lines().next().unwrap().replace("address ", "");
    must(&mut fixture.lanefs(["ls", &format!("lanefs://{address}/")]));
    let second = run(fixture.lanefs(["up"]).arg(&dir));
    assert_eq!(second.status.code(), Some(3), "{:?}", texts(&second));
    must(&mut fixture.lanefs(["down", &address]));
    assert!(!is_alive(pid_in(&said)));
}

#[test]
fn status_names_servers_and_mounts_with_their_processes_and_places() {
    let Some(fixture) = Fixture::new("status") else { return };
    assert!(status(&fixture, &[]).is_empty());
    let mut up = fixture.up(&[]);
    let server = fixture.serve("127.0.0.1:0");
    let other = fixture.mount(&server.address, "other", &["--export", "up"]);
    let all = status(&fixture, &[]);
    let kinds: Vec<&str> = all.iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["up", "serve", "serve", "mount", "mount"]);
    let of = |target: &str| status(&fixture, &[target]);
    let family = of(up.dir.to_str().unwrap());
    assert_eq!(family, of(&up.address));
    assert_eq!(family, of(fixture.path("mnt.lanefs").to_str().unwrap()));
    let [first, serve, mount] = family.as_slice() else { panic!("{family:?}") };
    assert_eq!(first["pid"], up.process.pid());
    assert_eq!(first["address"], up.address.as_str());
    assert_eq!(first["store"], fixture.path("mnt.lanefs").to_str().unwrap());
    assert_eq!((&first["mounted"], &serve["parent_pid"]), (&true.into(), &first["pid"]));
    assert_eq!(serve["pid"], up.child("serve"));
    assert_eq!(serve["driver"], fixture.drivers.server.name());
    assert_eq!(serve["map_epoch"], 1, "of its first start");
    let run = |kind| serde_json::json!({ "kind": kind, "first": 0, "shard_count": 64, "term": 1 });
    assert_eq!(serve["terms"], serde_json::json!([run("metadata"), run("data")]));
    assert_eq!((&mount["map_epoch"], &mount["terms"]), (&().into(), &().into()));
    assert_eq!(mount["pid"], up.child("mount"));
    assert_eq!(mount["driver"], fixture.drivers.mount.name());
    assert_eq!(mount["dir"], up.dir.to_str().unwrap());
    let said = must(&mut fixture.lanefs(["status"]));
    let name = format!("mount process {}", other.process.pid());
    let terms = "metadata 0-63 term 1, data 0-63 term 1";
    for part in [&name, &server.address, other.dir.to_str().unwrap(), "(mounted)", terms] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // One that was killed is not named any more.
    kill(other.process.pid());
    until("its lock is free", || status(&fixture, &[]).len() == 4);
    // A mount that comes back is.
    kill(up.child("mount"));
    up.process.line_with("mount running again");
    let family = of(up.dir.to_str().unwrap());
    assert_eq!(
        (&family[0]["mounted"], &family[2]["pid"]),
        (&true.into(), &up.child("mount").into())
    );
    must(&mut fixture.lanefs(["down", &server.address]));
    assert_eq!(of(&up.address).len(), 3, "another server is left alone");
    up.stop();
    assert!(status(&fixture, &[]).is_empty());
    let (code, stderr) = failure(&fixture.run(["status", "127.0.0.1:1"]));
    assert!(code == 1 && stderr.contains("127.0.0.1:1"), "{code} {stderr}");
}

#[test]
fn status_shows_the_leases_of_a_server() {
    let Some(fixture) = Fixture::new("status_leases") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let caching = ["--export", "up", "--leases", "on"];
    let mounts = ["a", "b"].map(|name| fixture.mount(&server.address, name, &caching));
    let counts = || {
        let all = status(&fixture, &["--leases", &server.address]);
        assert!(all.iter().all(|it| it["lease_counts"].is_object() == (it["kind"] == "serve")));
        let serve = all.into_iter().find(|it| it["kind"] == "serve").unwrap();
        ["held", "granted", "recalled", "expired", "refused_hot"]
            .map(|name| serve["lease_counts"][name].as_u64().unwrap())
    };
    let file = mounts[0].dir.join("f");
    fs::write(&file, "one").unwrap();
    // The server grants once it has recorded the session.
    until("something is leased", || {
        fs::read(&file).unwrap();
        counts()[0] > 0
    });
    let before = counts();
    fs::write(mounts[1].dir.join("f"), "two").unwrap();
    let [_, granted, recalled, ..] = counts();
    assert!(recalled > before[2] && granted >= recalled);
    let said = must(fixture.lanefs(["status", "--leases"]).arg(&server.address));
    assert!(said.contains(" recalled, 0 expired, "), "{said}");
    let plain = status(&fixture, &[&server.address]);
    assert!(plain.iter().all(|it| it.get("lease_counts").is_none()));
    mounts.into_iter().for_each(Mount::stop);
}
