//! Two mounts see each other's changes at the next call.

use crate::fixture::{Fixture, must, program};
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn changes_of_one_mount_are_seen_at_the_other() {
    let Some(fixture) = Fixture::new("coherence") else { return };
    let up = fixture.up(&[]);
    let second = fixture.mount(&up.address, "second", &["--export", "up"]);
    let (here, there) = (&up.dir, &second.dir);
    for round in 0..20 {
        let name = format!("file{round}");
        fs::write(here.join(&name), "one").unwrap();
        assert_eq!(fs::read_to_string(there.join(&name)).unwrap(), "one");

        let mut reader = fs::File::open(there.join(&name)).unwrap();
        fs::write(here.join(&name), "longer").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "longer", "an open reader sees a later write");

        let mut append = fs::OpenOptions::new().append(true).open(there.join(&name)).unwrap();
        append.write_all(b" still").unwrap();
        assert_eq!(fs::metadata(here.join(&name)).unwrap().len(), 12, "size before the close");
        let mut other = fs::OpenOptions::new().append(true).open(here.join(&name)).unwrap();
        other.write_all(b"!").unwrap();
        append.write_all(b"?").unwrap();
        drop((append, other));
        assert_eq!(fs::read_to_string(here.join(&name)).unwrap(), "longer still!?");

        fs::OpenOptions::new().write(true).open(here.join(&name)).unwrap().set_len(3).unwrap();
        assert_eq!(fs::metadata(there.join(&name)).unwrap().len(), 3);
        reader.seek(SeekFrom::Start(0)).unwrap();
        text.clear();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "lon");

        fs::set_permissions(here.join(&name), fs::Permissions::from_mode(0o640)).unwrap();
        let mode = fs::metadata(there.join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);

        let renamed = format!("renamed{round}");
        fs::rename(there.join(&name), there.join(&renamed)).unwrap();
        assert!(!here.join(&name).exists());
        assert!(here.join(&renamed).exists());

        fs::remove_file(here.join(&renamed)).unwrap();
        assert!(!there.join(&renamed).exists());
        assert!(fs::File::open(there.join(&renamed)).is_err());
    }
    second.stop();
    up.stop();
}

#[test]
fn extended_attributes_are_seen_by_the_other_mount() {
    let Some(fixture) = Fixture::new("coherence_xattr") else { return };
    let up = fixture.up(&[]);
    let second = fixture.mount(&up.address, "second", &["--export", "up"]);
    fs::write(up.dir.join("f"), "").unwrap();
    let (here, there) = (up.dir.join("f"), second.dir.join("f"));
    let name = "user.colour";
    let flags = rustix::fs::XattrFlags::empty();
    for value in ["red", "green"] {
        rustix::fs::setxattr(&here, name, value.as_bytes(), flags).unwrap();
        let mut found = vec![0; 64];
        let found_bytes = rustix::fs::getxattr(&there, name, &mut found).unwrap();
        assert_eq!(&found[..found_bytes], value.as_bytes());
    }
    rustix::fs::removexattr(&there, name).unwrap();
    let mut found = vec![0; 64];
    assert!(rustix::fs::getxattr(&here, name, &mut found).is_err());
    second.stop();
    up.stop();
}

#[test]
fn appends_of_two_mounts_lose_nothing() {
    let Some(fixture) = Fixture::new("coherence_append") else { return };
    let up = fixture.up(&[]);
    let second = fixture.mount(&up.address, "second", &["--export", "up"]);
    let script = "for n in $(seq 200); do echo \"$2 $n\" >>\"$1\"; done";
    let mut writers = Vec::new();
    for (dir, who) in [(&up.dir, "here"), (&second.dir, "there")] {
        let mut command = program("sh");
        command.args(["-c", script, "sh"]).arg(dir.join("log")).arg(who);
        writers.push(command.spawn().unwrap());
    }
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    let text = fs::read_to_string(up.dir.join("log")).unwrap();
    let lines: std::collections::BTreeSet<&str> = text.lines().collect();
    assert_eq!(lines.len(), 400, "every line is there, whole");
    must(program("rm").arg(second.dir.join("log")));
    second.stop();
    up.stop();
}
