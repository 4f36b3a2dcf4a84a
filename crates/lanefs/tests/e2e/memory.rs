//! More names than the memory for them holds.

use crate::stage::{Stage, Up, must, program};
use std::fs;
use std::path::Path;

/// Of what the names below take, less than a tenth.
const LITTLE: [&str; 2] = ["--meta-memory", "65536"];
const DIRECTORY_COUNT: usize = 20;
const FILE_COUNT: usize = 50;
/// In one directory.
const MANY_COUNT: usize = 1000;

/// 2000 files and some links.
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
        fs::write(many.join(format!("a file with a longer name {number}")), "").unwrap();
    }
}

fn compare(origin: &Path, up: &Up) {
    let copy = up.dir.join("tree");
    must(program("diff").args(["-r", "--no-dereference"]).arg(origin).arg(&copy));
    assert_eq!(fs::read_dir(copy.join("many")).unwrap().count(), MANY_COUNT);
    let listed = must(program("ls").arg("-l").arg(copy.join("many")));
    assert_eq!(listed.lines().count(), MANY_COUNT + 1);
    let linked = fs::read_to_string(copy.join("directory3/link")).unwrap();
    assert_eq!(linked, "3 7\n");
}

#[test]
fn a_tree_that_does_not_fit_into_memory_is_what_it_was() {
    let Some(stage) = Stage::new("memory") else { return };
    let origin = stage.make_dir("tree");
    furnish(&origin);
    let archive = stage.path("tree.tar");
    let parent = origin.parent().unwrap();
    must(program("tar").arg("-C").arg(parent).arg("-cf").arg(&archive).arg("tree"));
    let mut up = stage.up(&LITTLE);
    must(program("tar").arg("-C").arg(&up.dir).arg("-xf").arg(&archive));
    compare(&origin, &up);
    up.kill_server();
    compare(&origin, &up);
    up.stop();
    let up = stage.up(&LITTLE);
    compare(&origin, &up);
    let moved = up.dir.join("moved");
    must(program("mv").arg(up.dir.join("tree/many")).arg(&moved));
    must(program("rm").arg("-r").arg(up.dir.join("tree")));
    assert_eq!(fs::read_dir(&moved).unwrap().count(), MANY_COUNT);
    up.stop();
    let up = stage.up(&[]);
    must(program("diff").arg("-r").arg(origin.join("many")).arg(up.dir.join("moved")));
    assert_eq!(fs::read_dir(&up.dir).unwrap().count(), 1);
    up.stop();
}
