//! A listing ends, whatever happens to the names in it meanwhile.

use crate::fixture::Fixture;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

const COUNT: usize = 1200;
/// Names seen before the server is killed: in the middle of a listing that takes several requests.
const SEEN_BEFORE_KILL: usize = COUNT / 2;

fn furnish(dir: &Path) -> BTreeSet<String> {
    fs::create_dir(dir).unwrap();
    let names: BTreeSet<String> = (0..COUNT).map(|number| format!("{number:0>40}")).collect();
    names.iter().for_each(|name| drop(File::create(dir.join(name)).unwrap()));
    names
}

/// Lists `dir` to its end, and renames in `through` (the same directory) each name that it shows away
/// and back.
fn list_renaming(dir: &Path, through: &Path) -> BTreeSet<String> {
    let away = through.join("away");
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        fs::rename(through.join(&name), &away).unwrap();
        fs::rename(&away, through.join(&name)).unwrap();
        assert!(seen.insert(name), "shown twice");
    }
    seen
}

/// Renaming makes this mount's kernel look names up, so that it asks for attributes as well
/// (READDIRPLUS); renaming at another mount does not.
#[test]
fn every_name_is_shown_once_though_it_is_renamed_away_and_back() {
    let Some(fixture) = Fixture::new("renamed_in_listing") else { return };
    let up = fixture.up(&["--lanes", "2"]);
    let other = fixture.mount(&up.address, "other", &["--export", "up"]);
    let (here, there) = (up.dir.join("d"), other.dir.join("d"));
    let names = furnish(&here);
    for through in [&here, &there] {
        assert_eq!(list_renaming(&here, through), names);
    }
    other.stop();
    up.stop();
}

#[test]
fn a_listing_ends_over_a_kill_of_the_server() {
    let Some(fixture) = Fixture::new("listing_kill") else { return };
    let mut up = fixture.up(&["--lanes", "2"]);
    let dir = up.dir.join("d");
    let names = furnish(&dir);
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(&dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        fs::rename(dir.join(&name), dir.join("away")).unwrap();
        fs::rename(dir.join("away"), dir.join(&name)).unwrap();
        seen.insert(name);
        if seen.len() == SEEN_BEFORE_KILL {
            up.kill_server();
        }
    }
    // What was renamed before the kill has a place behind the one where the listing goes on.
    assert_eq!(seen, names);
    assert_eq!(list_renaming(&dir, &dir), names);
    up.stop();
}

#[test]
fn later_names_are_listed_after_rewinddir() {
    let Some(fixture) = Fixture::new("listing_rewind") else { return };
    let up = fixture.up(&[]);
    let dir = up.dir.join("d");
    let names = furnish(&dir);
    let mut listing = rustix::fs::Dir::read_from(File::open(&dir).unwrap()).unwrap();
    let mut shown = 0;
    while let Some(entry) = listing.read() {
        entry.unwrap();
        shown += 1;
        if shown == SEEN_BEFORE_KILL {
            fs::write(dir.join("new"), "").unwrap();
        }
    }
    assert_eq!(shown, names.len() + 2, "with . and ..");
    listing.rewind();
    assert_eq!(std::iter::from_fn(|| listing.read()).count(), names.len() + 3);
    up.stop();
}
