//! More names than the memory for them holds.

use crate::fixture::{Fixture, Up, must, program, texts};
use std::fs;
use std::path::Path;

/// Of what the names below take, a tenth or less; of what those in one directory take as well.
const LITTLE: [&str; 2] = ["--meta-memory", "16384"];
const DIRECTORY_COUNT: usize = 6;
const FILE_COUNT: usize = 12;
/// In one directory: more than one listing has.
const MANY_COUNT: usize = 200;

/// Some hundred files and some links.
fn furnish(dir: &Path) {
    for number in 0..DIRECTORY_COUNT {
        let sub = dir.join(format!("directory{number}/below"));
        fs::create_dir_all(&sub).unwrap();
        for file in 0..FILE_COUNT {
            fs::write(sub.join(format!("file{file}")), format!("{number} {file}\n")).unwrap();
        }
        std::os::unix::fs::symlink("below/file7", sub.join("../link")).unwrap();
        fs::hard_link(sub.join("file9"), sub.join("../again")).unwrap();
    }
    let many = dir.join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..MANY_COUNT {
        fs::write(many.join(format!("a file with a longer name {number}")), "x").unwrap();
    }
}

/// Names with their attributes, apart from times and sizes of directories.
fn listed(dir: &Path) -> Vec<String> {
    let text = must(program("ls").args(["-lR", "--time-style=+"]).current_dir(dir));
    let lines = text.lines().filter(|line| !line.starts_with("total "));
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines = lines.map(line).filter(|line| !line.starts_with('d'));
    lines.collect()
}

fn compare(origin: &Path, fixture: &Fixture, up: &Up) {
    let copy = up.dir.join("tree");
    must(program("diff").args(["-r", "--no-dereference"]).arg(origin).arg(&copy));
    assert!(listed(&copy) == listed(origin), "as ls shows it");
    let linked = fs::read_to_string(copy.join("directory3/link")).unwrap();
    assert_eq!(linked, "3 7\n");
    let long = texts(&fixture.run(["ls", "-l", &up.url("/tree/many")])).0;
    let is_file = |line: &&str| line.starts_with("-rw") && line.contains(" 1 ");
    assert_eq!(long.lines().filter(is_file).count(), MANY_COUNT, "{long}");
}

#[test]
fn a_tree_that_does_not_fit_into_memory_is_what_it_was() {
    let Some(fixture) = Fixture::new("memory") else { return };
    let origin = fixture.make_dir("tree");
    furnish(&origin);
    let archive = fixture.path("tree.tar");
    let parent = origin.parent().unwrap();
    must(program("tar").arg("-C").arg(parent).arg("-cf").arg(&archive).arg("tree"));
    let mut up = fixture.up(&LITTLE);
    must(program("tar").arg("-C").arg(&up.dir).arg("-xf").arg(&archive));
    compare(&origin, &fixture, &up);
    up.kill_server();
    compare(&origin, &fixture, &up);
    up.stop();
    // The least there can be: nothing stays that nobody is at work with.
    let up = fixture.up(&["--meta-memory", "0"]);
    compare(&origin, &fixture, &up);
    let moved = up.dir.join("moved");
    must(program("mv").arg(up.dir.join("tree/many")).arg(&moved));
    must(program("rm").arg("-r").arg(up.dir.join("tree")));
    assert_eq!(fs::read_dir(&moved).unwrap().count(), MANY_COUNT);
    up.stop();
    let up = fixture.up(&[]);
    must(program("diff").arg("-r").arg(origin.join("many")).arg(up.dir.join("moved")));
    assert_eq!(fs::read_dir(&up.dir).unwrap().count(), 1);
    up.stop();
}
