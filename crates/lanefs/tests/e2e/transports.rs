//! Both ways of carrying the kernel's requests do the same.

use crate::fixture::{Fixture, mounted, must, no_fuse_over_io_uring, program, skip};
use std::fs;

fn works_over(test: &str, how: &str, shown: &str) {
    let Some(fixture) = Fixture::new(test).map(Fixture::mounting_on_io_uring) else { return };
    let kind = fixture.drivers.mount;
    if let Some(why) = no_fuse_over_io_uring(kind).filter(|_| how == "uring") {
        return skip(test, why);
    }
    let up = fixture.up(&["--fuse", how]);
    assert!(mounted(&up.dir).unwrap().is_lanefs());
    let original = fixture.make_dir("original");
    for number in 0..100 {
        let text = format!("{number}").repeat(number * 1000);
        fs::write(original.join(format!("file{number}")), text).unwrap();
    }
    must(program("cp").arg("-a").arg(&original).arg(up.dir.join("copy")));
    must(program("diff").arg("-r").arg(&original).arg(up.dir.join("copy")));
    must(program("rm").arg("-r").arg(up.dir.join("copy")));
    let said = up.stop();
    assert!(said.contains(&format!("over {shown}, driver {}", kind.name())), "{said}");
}

#[test]
fn classic_works() {
    works_over("classic", "classic", "/dev/fuse");
}

#[test]
fn io_uring_works() {
    works_over("uring", "uring", "io_uring");
}
