//! What `--version` says: the version of the package and, where this is a checkout of git, the commit.
//!
//! It runs again when the commit or a source changes, and nothing but this crate is built again then. Without git,
//! or in a tree that another repository contains, there is the version alone.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the program is built from, from the root of the workspace. Other changes make nothing dirty.
const SOURCES: [&str; 3] = ["Cargo.toml", "Cargo.lock", "crates"];
const COMMIT_DIGITS: &str = "--short=12";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let place = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let root = place.join("../..");
    let version = match commit(&root) {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo::rustc-env=LANEFS_VERSION={version}");
}

/// The commit, with `-dirty` where the sources are not as it has them.
fn commit(root: &Path) -> Option<String> {
    let root = root.canonicalize().ok()?;
    if Path::new(&git(&root, &["rev-parse", "--show-toplevel"])?) != root {
        return None;
    }
    watch(&root);
    let commit = git(&root, &["rev-parse", COMMIT_DIGITS, "HEAD"])?;
    let mut status = vec!["status", "--porcelain", "--untracked-files=no", "--"];
    status.extend(SOURCES);
    let changes = git(&root, &status)?;
    Some(if changes.is_empty() { commit } else { format!("{commit}-dirty") })
}

/// Has cargo run this again when the commit or a source is another.
fn watch(root: &Path) {
    // Git appends to logs/HEAD whenever HEAD moves.
    let heads = ["HEAD", "logs/HEAD"].into_iter();
    let heads = heads.filter_map(|name| git(root, &["rev-parse", "--git-path", name]));
    let crates = std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let crates = crates.flat_map(|one| [one.path().join("src"), one.path().join("Cargo.toml")]);
    let shared = ["Cargo.toml", "Cargo.lock"].map(|name| root.join(name));
    let paths = heads.map(|path| root.join(path)).chain(shared).chain(crates);
    for path in paths.filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    // Looking at the files must not write the index: that could be the only change there is.
    let mut command = Command::new("git");
    command.arg("--no-optional-locks").arg("-C").arg(root).args(arguments);
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
