//! Real programs on the mount.

use crate::fixture::{Fixture, must, program};
use std::fs;
use std::path::Path;

/// Runs git in a folder, with nobody's configuration.
pub(crate) fn git(dir: &Path, arguments: &[&str]) -> String {
    let mut command = program("git");
    command.arg("-C").arg(dir).args(arguments);
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.env("GIT_AUTHOR_NAME", "a").env("GIT_AUTHOR_EMAIL", "a@example.org");
    command.env("GIT_COMMITTER_NAME", "a").env("GIT_COMMITTER_EMAIL", "a@example.org");
    must(&mut command)
}

#[test]
fn git_clones_commits_and_checks() {
    let Some(fixture) = Fixture::new("git") else { return };
    let origin = fixture.make_dir("origin");
    git(&origin, &["init", "-q", "-b", "main"]);
    for number in 0..200 {
        fs::write(origin.join(format!("file{number}")), format!("{number}\n").repeat(100)).unwrap();
    }
    git(&origin, &["add", "."]);
    git(&origin, &["commit", "-q", "-m", "first"]);
    let up = fixture.up(&[]);
    let clone = up.dir.join("clone");
    let url = format!("file://{}", origin.display());
    git(&up.dir, &["clone", "-q", &url, "clone"]);
    fs::write(clone.join("file7"), "changed").unwrap();
    assert_eq!(git(&clone, &["status", "--porcelain"]), " M file7\n");
    git(&clone, &["commit", "-q", "-a", "-m", "second"]);
    git(&clone, &["gc", "-q"]);
    git(&clone, &["fsck", "--full", "--strict"]);
    up.stop();
    let up = fixture.up(&[]);
    git(&up.dir.join("clone"), &["fsck", "--full", "--strict"]);
    assert_eq!(git(&up.dir.join("clone"), &["status", "--porcelain"]), "");
    up.stop();
}

#[test]
fn cargo_builds_and_runs_a_crate() {
    let Some(fixture) = Fixture::new("cargo") else { return };
    let up = fixture.up(&[]);
    let home = up.dir.join("hello");
    fs::create_dir_all(home.join("src")).unwrap();
    let manifest =
        "[package]\nname = \"hello\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    fs::write(home.join("Cargo.toml"), manifest).unwrap();
    fs::write(home.join("src/main.rs"), "fn main() { println!(\"from the mount\"); }").unwrap();
    let mut cargo = program("cargo");
    cargo.args(["run", "--quiet", "--offline"]).current_dir(&home).env_remove("CARGO_TARGET_DIR");
    cargo.env_remove("RUSTFLAGS").env("CARGO_INCREMENTAL", "1");
    assert_eq!(must(&mut cargo), "from the mount\n");
    fs::write(home.join("src/main.rs"), "fn main() { println!(\"again\"); }").unwrap();
    assert_eq!(must(&mut cargo), "again\n");
    let tested = "fn main() {}\n#[test]\nfn sums() { assert_eq!(1 + 1, 2); }\n";
    fs::write(home.join("src/main.rs"), tested).unwrap();
    let mut cargo = program("cargo");
    cargo.args(["test", "--offline"]).current_dir(&home).env_remove("CARGO_TARGET_DIR");
    assert!(must(cargo.env_remove("RUSTFLAGS")).contains("1 passed"));
    up.stop();
}

#[test]
fn a_sqlite_database_survives_a_kill_of_the_server() {
    let Some(fixture) = Fixture::new("sqlite") else { return };
    let mut up = fixture.up(&[]);
    let sql = |up: &crate::fixture::Up, text: &str| {
        let mut command = program("sqlite3");
        must(command.arg(up.dir.join("base.db")).arg(text))
    };
    sql(&up, "create table t(n integer primary key, text); pragma journal_mode=delete;");
    for batch in 0..10 {
        let values: Vec<String> =
            (0..50).map(|n| format!("({}, 'row {n}')", batch * 50 + n)).collect();
        sql(&up, &format!("begin; insert into t values {}; commit;", values.join(",")));
        if batch == 4 {
            up.kill_server();
        }
    }
    assert_eq!(sql(&up, "select count(*) from t; pragma integrity_check;"), "500\nok\n");
    up.stop();
    let up = fixture.up(&[]);
    assert_eq!(sql(&up, "select count(*), sum(n) from t;"), "500|124750\n");
    assert_eq!(sql(&up, "pragma integrity_check;"), "ok\n");
    up.stop();
}

#[test]
fn holes_and_large_files_are_preserved() {
    let Some(fixture) = Fixture::new("holes") else { return };
    let up = fixture.up(&[]);
    let path = up.dir.join("holes");
    let file = fs::OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    use std::os::unix::fs::FileExt as _;
    let offset = (1_u64 << 40) + 12_345;
    file.write_all_at(b"end", offset).unwrap();
    file.write_all_at(b"start", 0).unwrap();
    drop(file);
    assert_eq!(fs::metadata(&path).unwrap().len(), offset + 3);
    let file = fs::File::open(&path).unwrap();
    let mut bytes = [1; 16];
    file.read_exact_at(&mut bytes, offset - 13).unwrap();
    assert_eq!(&bytes, b"\0\0\0\0\0\0\0\0\0\0\0\0\0end");
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"start\0\0\0\0\0\0\0\0\0\0\0");
    up.stop();
}
