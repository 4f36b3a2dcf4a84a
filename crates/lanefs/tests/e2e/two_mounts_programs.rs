//! Programs that share one server through two mounts, and a random walk over both with a model.

use crate::fixture::{must, program};
use crate::programs::git;
use crate::two_mounts::over_each;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// One repository, worked on from both sides in turn, with a worktree and a collection.
#[test]
fn git_works_on_one_repository_from_both_mounts() {
    over_each("two_git", |pair| {
        let (here, there) = pair.dirs(0);
        git(here, &["init", "-q", "-b", "main", "origin"]);
        for round in 0..4 {
            let (here, _) = pair.dirs(round);
            let origin = here.join("origin");
            assert_eq!(git(&origin, &["status", "--porcelain"]), "");
            for file in 0..20 {
                let text = format!("{round} {file}\n").repeat(50);
                fs::write(origin.join(format!("f{file}")), text).unwrap();
            }
            git(&origin, &["add", "."]);
            git(&origin, &["commit", "-q", "-m", &format!("round {round}")]);
            if round == 2 {
                git(&origin, &["gc", "-q"]);
            }
        }
        git(there, &["clone", "-q", "origin", "clone"]);
        git(&here.join("clone"), &["worktree", "add", "-q", "-b", "side", "../side"]);
        fs::write(there.join("side/new"), "x").unwrap();
        assert_eq!(git(&here.join("side"), &["status", "--porcelain"]), "?? new\n");
        git(&here.join("side"), &["add", "new"]);
        git(&here.join("side"), &["commit", "-q", "-m", "side"]);
        git(&there.join("clone"), &["merge", "-q", "side"]);
        git(&there.join("clone"), &["push", "-q", "origin", "HEAD:pushed"]);
        assert_eq!(git(&here.join("origin"), &["rev-list", "--count", "pushed"]), "5\n");
        for dir in [here.join("origin"), there.join("origin"), here.join("clone")] {
            git(&dir, &["fsck", "--full", "--strict"]);
        }
    });
}

/// Four processes, two at each mount, count in one database; its locks are the server's. (Not with
/// a write-ahead log: its index is shared memory, which two machines do not have.)
#[test]
fn sqlite_counts_from_both_mounts() {
    over_each("two_sqlite", |pair| {
        let (here, there) = pair.dirs(0);
        for journal in ["delete", "truncate", "persist"] {
            let name = format!("{journal}.db");
            let sql = |dir: &Path, text: &str| {
                let mut command = program("sqlite3");
                must(
                    command
                        .args(["-bail", "-cmd", ".timeout 1800000"])
                        .arg(dir.join(&name))
                        .arg(text),
                )
            };
            sql(
                here,
                &format!(
                    "pragma journal_mode={journal}; create table t(n); \
                                insert into t values(0);"
                ),
            );
            let script = format!("pragma journal_mode={journal};\n")
                + &"begin immediate; update t set n = n + 1; commit;\n".repeat(25);
            std::thread::scope(|scope| {
                for dir in [here, there, here, there] {
                    let (script, sql) = (&script, &sql);
                    scope.spawn(move || sql(dir, script));
                }
            });
            assert_eq!(sql(here, "select n from t; pragma integrity_check;"), "100\nok\n");
            assert_eq!(sql(there, "select n from t; pragma integrity_check;"), "100\nok\n");
        }
    });
}

#[test]
fn what_one_mount_builds_the_other_runs() {
    over_each("two_build", |pair| {
        for round in 0..4 {
            let (here, there) = pair.dirs(round);
            let source = format!("#include <stdio.h>\nint main() {{ puts(\"{round}\"); }}\n");
            fs::write(here.join("hello.c"), source).unwrap();
            must(program("cc").arg(there.join("hello.c")).arg("-o").arg(here.join("hello")));
            assert_eq!(
                must(&mut program(there.join("hello").to_str().unwrap())),
                format!("{round}\n")
            );
        }
    });
}

/// What a file of the model has.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Modelled {
    bytes: Vec<u8>,
    mode: u32,
}

struct Prng(fastrand::Rng);

impl Prng {
    fn roll(&mut self, below: u64) -> u64 {
        self.0.u64(..below)
    }

    fn name(&mut self) -> String {
        format!("f{}", self.roll(6))
    }
}

/// A change at `dir`; the same to the model.
fn change(prng: &mut Prng, dir: &Path, files: &mut BTreeMap<String, Modelled>) -> String {
    let (name, other) = (prng.name(), prng.name());
    let path = dir.join(&name);
    let have = files.contains_key(&name);
    let (offset, fill) = (prng.roll(9000), u8::try_from(prng.roll(256)).unwrap());
    let count = usize::try_from(prng.roll(9000)).unwrap();
    let open = || File::options().write(true).open(&path);
    match prng.roll(7) {
        0 => {
            let made = File::options().write(true).create_new(true).open(&path);
            assert_eq!(made.is_err(), have, "create {name}");
            if !have {
                let mode = fs::metadata(&path).unwrap().mode();
                files.insert(name.clone(), Modelled { bytes: Vec::new(), mode });
            }
            format!("create {name}")
        }
        1 => {
            assert_eq!(fs::remove_file(&path).is_ok(), files.remove(&name).is_some());
            format!("unlink {name}")
        }
        2 => {
            assert_eq!(fs::rename(&path, dir.join(&other)).is_ok(), have, "rename {name} {other}");
            if let Some(file) = files.remove(&name) {
                files.insert(other.clone(), file);
            }
            format!("rename {name} {other}")
        }
        3 => {
            assert_eq!(open().is_ok(), have);
            if let Some(file) = files.get_mut(&name) {
                open().unwrap().write_all_at(&vec![fill; count], offset).unwrap();
                let offset = usize::try_from(offset).unwrap();
                if count > 0 {
                    let end = file.bytes.len().max(offset + count);
                    file.bytes.resize(end, 0);
                    file.bytes[offset..offset + count].fill(fill);
                }
            }
            format!("write {name} {offset} {count}")
        }
        4 => {
            if let Some(file) = files.get_mut(&name) {
                open().unwrap().set_len(offset).unwrap();
                file.bytes.resize(usize::try_from(offset).unwrap(), 0);
            }
            format!("truncate {name} {offset}")
        }
        5 => {
            let mut append = File::options();
            if let Some(file) = files.get_mut(&name) {
                let mut log = append.append(true).open(&path).unwrap();
                std::io::Write::write_all(&mut log, &vec![fill; count]).unwrap();
                file.bytes.resize(file.bytes.len() + count, fill);
            }
            format!("append {name} {count}")
        }
        _ => {
            let mode = 0o600 + u32::try_from(offset % 64).unwrap();
            let set = fs::set_permissions(&path, fs::Permissions::from_mode(mode));
            assert_eq!(set.is_ok(), have);
            if let Some(file) = files.get_mut(&name) {
                file.mode = 0o100_000 | mode;
            }
            format!("chmod {name}")
        }
    }
}

/// All of the model, as `dir` shows it: by name, and through files that were opened long ago.
fn compare(dir: &Path, files: &BTreeMap<String, Modelled>, open: &mut BTreeMap<u64, File>) {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        names.push(entry.unwrap().file_name().into_string().unwrap());
    }
    names.sort();
    assert!(names.iter().eq(files.keys()), "{names:?}");
    for (name, file) in files {
        let meta = fs::metadata(dir.join(name)).unwrap();
        assert_eq!((meta.len(), meta.mode()), (file.bytes.len() as u64, file.mode), "{name}");
        let held = open.entry(meta.ino()).or_insert_with(|| File::open(dir.join(name)).unwrap());
        assert_eq!(held.metadata().unwrap().len(), meta.len());
        let mut bytes = vec![0; file.bytes.len() + 10];
        assert_eq!(held.read_at(&mut bytes, 0).unwrap(), file.bytes.len(), "{name}");
        assert!(bytes[..file.bytes.len()] == file.bytes, "{name} by an open file");
    }
}

/// `LANEFS_WALK_SEED` repeats one, `LANEFS_WALK_COUNT` makes it longer.
#[test]
fn a_random_walk_over_both_mounts_follows_its_model() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap())
    };
    let (seed, count) = (number("LANEFS_WALK_SEED", 1), number("LANEFS_WALK_COUNT", 400));
    over_each("two_walk", |pair| {
        let mut prng = Prng(fastrand::Rng::with_seed(seed));
        let mut files = BTreeMap::new();
        let mut open = [BTreeMap::new(), BTreeMap::new()];
        for step in 0..count {
            let side = usize::try_from(prng.roll(2)).unwrap();
            let (here, there) = pair.dirs(side);
            let done = change(&mut prng, here, &mut files);
            println!("seed {seed} step {step} at {side}: {done}");
            compare(there, &files, &mut open[side]);
        }
    });
}
