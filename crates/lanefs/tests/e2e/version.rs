//! What `--version` says, from a checkout and from a tree without git.

use crate::fixture::{binary, must, program};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The build script, as a program.
fn build_script(place: &Path) -> std::path::PathBuf {
    let out = place.join("build-script");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    must(Command::new(rustc).args(["--edition", "2024", "-o"]).arg(&out).arg(source));
    out
}

/// What it says of a workspace.
fn version_of(script: &Path, root: &Path) -> String {
    let mut command = Command::new(script);
    command.env("CARGO_PKG_VERSION", "1.2.3").env_remove("GIT_DIR");
    let said = must(command.env("CARGO_MANIFEST_DIR", root.join("crates/lanefs")));
    let line = said.lines().find_map(|line| line.strip_prefix("cargo::rustc-env=LANEFS_VERSION="));
    line.unwrap_or_else(|| panic!("{said}")).to_owned()
}

fn git(root: &Path, arguments: &[&str]) -> String {
    let mut command = program("git");
    command.arg("-C").arg(root).env_remove("GIT_DIR");
    command.args(["-c", "user.name=test", "-c", "user.email=test@localhost"]);
    must(command.args(arguments)).trim().to_owned()
}

#[test]
fn the_version_has_the_commit_where_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let script = build_script(folder.path());
    let root = folder.path().join("tree");
    fs::create_dir_all(root.join("crates/lanefs/src")).unwrap();
    for file in ["Cargo.toml", "crates/lanefs/Cargo.toml", "crates/lanefs/src/main.rs", "notes"] {
        fs::write(root.join(file), "").unwrap();
    }
    assert_eq!(version_of(&script, &root), "1.2.3", "no git");
    // An archive that was unpacked within another repository.
    git(folder.path(), &["init", "--quiet"]);
    git(folder.path(), &["add", "tree"]);
    git(folder.path(), &["commit", "--quiet", "-m", "around"]);
    assert_eq!(version_of(&script, &root), "1.2.3", "another repository");
    git(&root, &["init", "--quiet"]);
    git(&root, &["add", "."]);
    git(&root, &["commit", "--quiet", "-m", "first"]);
    let commit = git(&root, &["rev-parse", "--short=12", "HEAD"]);
    assert_eq!(version_of(&script, &root), format!("1.2.3 ({commit})"));
    fs::write(root.join("notes"), "x").unwrap();
    assert_eq!(version_of(&script, &root), format!("1.2.3 ({commit})"), "notes are not built");
    fs::write(root.join("crates/lanefs/src/main.rs"), "x").unwrap();
    assert_eq!(version_of(&script, &root), format!("1.2.3 ({commit}-dirty)"));
    git(&root, &["commit", "--quiet", "-a", "-m", "second"]);
    let second = git(&root, &["rev-parse", "--short=12", "HEAD"]);
    assert_ne!(second, commit);
    assert_eq!(version_of(&script, &root), format!("1.2.3 ({second})"));
}

#[test]
fn the_binary_prints_its_version() {
    let said = must(Command::new(binary()).arg("--version"));
    let (name, rest) = said.trim().split_once(' ').unwrap();
    assert_eq!(name, "lanefs");
    let (version, commit) = rest.split_once(' ').map_or((rest, None), |(it, at)| (it, Some(at)));
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    let is_commit = |text: &str| {
        let digits = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or("");
        let digits = digits.strip_suffix("-dirty").unwrap_or(digits);
        digits.len() >= 12 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    assert!(commit.is_none_or(is_commit), "{said}");
}
