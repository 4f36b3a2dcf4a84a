//! `cargo xtask tidy`: this repository's rules that no compiler checks.
//!
//! The rules on manifests and documents are here, those on source text in [`source`], those on words
//! in [`words`], those on the numbers of the protocol's rules in [`rule_numbers`]. Invariant: one run finds all violations, each with its file.

mod circles;
mod manifest;
mod rule_numbers;
mod source;
mod words;

use crate::run::{cargo, find, root, run};
use anyhow::{Context as _, Result, bail};
use manifest::Manifest;
pub(crate) use source::CORES;
use std::fs;
use std::path::{Path, PathBuf};

/// Which crate may depend on which of ours; DESIGN.md §2 gives the reasons.
const EDGES: [(&str, &[&str]); 21] = [
    ("wire", &[]),
    ("disk", &["wire"]),
    ("interface", &["wire"]),
    ("meta", &["wire", "disk", "interface"]),
    ("data", &["wire", "disk", "interface"]),
    ("lane", &["wire", "disk", "interface", "meta", "data"]),
    ("client", &["wire", "interface"]),
    ("fuse", &["wire", "interface", "client"]),
    ("seal", &[]),
    ("ring", &["wire", "disk", "interface", "seal"]),
    ("bind-lmdb", &["wire"]),
    ("registry", &["wire"]),
    ("store", &["wire", "disk", "interface", "ring", "bind-lmdb"]),
    ("check", &["wire", "disk", "store"]),
    ("test-runtime", &["wire", "disk", "interface"]),
    ("sim", &["wire", "disk", "interface", "meta", "lane", "client", "registry", "test-runtime"]),
    ("library", &["wire", "interface", "client", "ring", "seal"]),
    ("bench", &["wire", "disk", "interface", "lane", "ring", "library", "registry", "seal"]),
    (
        "lanefs",
        &[
            "wire",
            "disk",
            "interface",
            "lane",
            "client",
            "fuse",
            "ring",
            "store",
            "check",
            "library",
            "bench",
            "registry",
            "seal",
        ],
    ),
    ("crash", &["wire", "disk", "library", "ring"]),
    ("xtask", &["ring"]),
];

/// External dependencies that only this crate may have: they are never shipped.
const TEST_ONLY: [(&str, &str); 1] = [("fuser", "crash")];

/// The external dependencies of core crates.
const CORE_DEPENDENCIES: [&str; 8] =
    ["hashbrown", "foldhash", "hex", "crc", "crc-fast", "hmac", "sha2", "slab"];

/// Runs the chore alone.
pub(crate) fn run_alone() -> Result<()> {
    let mut skipped = Vec::new();
    let checked = check(&mut skipped);
    for line in skipped {
        println!("left out: {line}");
    }
    checked
}

/// Checks everything. Checks that could not be made are added to `skipped`.
pub(crate) fn check(skipped: &mut Vec<String>) -> Result<()> {
    let root = root();
    let mut faults = Vec::new();
    let crates = crates(&root)?;
    check_edges(&crates, &mut faults);
    for (folder, _) in &crates {
        source::check_crate(&root, folder, &mut faults)?;
        circles::check_crate(&root, folder, &mut faults)?;
    }
    check_architecture(&root, &crates, &mut faults)?;
    check_decisions(&root, &mut faults)?;
    words::check(&root, &mut faults)?;
    rule_numbers::check(&root, &mut faults)?;
    check_licences(&root, skipped, &mut faults)?;
    if !faults.is_empty() {
        bail!("{} rules broken:\n  {}", faults.len(), faults.join("\n  "));
    }
    println!("tidy: {} crates, no rule broken", crates.len());
    Ok(())
}

fn crates(root: &Path) -> Result<Vec<(String, Manifest)>> {
    let mut crates = Vec::new();
    for entry in fs::read_dir(root.join("crates"))? {
        let folder = entry?.file_name().to_string_lossy().into_owned();
        let path = root.join("crates").join(&folder).join("Cargo.toml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        crates.push((folder, Manifest::parse(&text)));
    }
    crates.sort_by(|one, two| one.0.cmp(&two.0));
    Ok(crates)
}

fn check_edges(crates: &[(String, Manifest)], faults: &mut Vec<String>) {
    let folders: Vec<&str> = EDGES.iter().map(|(folder, _)| *folder).collect();
    for (folder, manifest) in crates {
        let Some((_, allowed)) = EDGES.iter().find(|(known, _)| known == folder) else {
            faults.push(format!("crates/{folder}: not in the table of crates"));
            continue;
        };
        for name in &manifest.dependencies {
            let is_ours = folders.contains(&name.as_str());
            if is_ours && !allowed.contains(&name.as_str()) {
                faults.push(format!("crates/{folder}: may not depend on {name}"));
            }
            if TEST_ONLY.iter().any(|(only, user)| only == name && user != folder) {
                faults.push(format!("crates/{folder}: {name} is for tests of crashes only"));
            }
            let core = CORES.contains(&folder.as_str());
            if core && !is_ours && !CORE_DEPENDENCIES.contains(&name.as_str()) {
                faults.push(format!("crates/{folder}: a core may not depend on {name}"));
            }
        }
    }
    for (folder, _) in EDGES {
        if !crates.iter().any(|(found, _)| found == folder) {
            faults.push(format!("crates/{folder}: in the table of crates, but not there"));
        }
    }
}

/// ARCHITECTURE.md names every crate, and every path in it exists.
fn check_architecture(
    root: &Path,
    crates: &[(String, Manifest)],
    faults: &mut Vec<String>,
) -> Result<()> {
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).context("ARCHITECTURE.md")?;
    for (folder, _) in crates {
        if !text.contains(&format!("`crates/{folder}`")) {
            faults.push(format!("ARCHITECTURE.md: does not name `crates/{folder}`"));
        }
    }
    for paper in papers(root)? {
        let text = fs::read_to_string(&paper)?;
        let shown = paper.strip_prefix(root).unwrap_or(&paper).display().to_string();
        for path in named_paths(&text) {
            if !root.join(path).exists() {
                faults.push(format!("{shown}: names `{path}`, which does not exist"));
            }
        }
    }
    Ok(())
}

fn papers(root: &Path) -> Result<Vec<PathBuf>> {
    let mut papers = vec![root.join("README.md"), root.join("ARCHITECTURE.md")];
    for folder in ["docs", "docs/decisions"] {
        for entry in fs::read_dir(root.join(folder)).with_context(|| folder.to_owned())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                papers.push(path);
            }
        }
    }
    Ok(papers)
}

/// Paths in backticks that begin in a folder of the repository.
fn named_paths(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|path| {
        let ours = ["crates/", "docs/", ".ci/"].iter().any(|folder| path.starts_with(folder));
        ours && !path.contains([' ', '*', '<'])
    })
}

/// Every external dependency is in the title of a record, and whatever is in backticks there is
/// one.
fn check_decisions(root: &Path, faults: &mut Vec<String>) -> Result<()> {
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let dependencies = Manifest::parse(&manifest).outside_dependencies;
    let mut recorded = Vec::new();
    for entry in fs::read_dir(root.join("docs/decisions")).context("docs/decisions")? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        let title = text.lines().next().unwrap_or_default();
        recorded.extend(title.split_whitespace().map(|word| word.replace('`', "")));
        for name in title.split('`').skip(1).step_by(2) {
            if !dependencies.iter().any(|dependency| dependency == name) {
                faults.push(format!("{}: {name} is no dependency", path.display()));
            }
        }
    }
    for name in dependencies {
        if !recorded.contains(&name) {
            faults.push(format!(
                "Cargo.toml: {name} has no record in docs/decisions titled with `{name}`"
            ));
        }
    }
    Ok(())
}

fn check_licences(root: &Path, skipped: &mut Vec<String>, faults: &mut Vec<String>) -> Result<()> {
    for paper in ["deny.toml", "LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
        if !root.join(paper).exists() {
            faults.push(format!("{paper} is missing"));
        }
    }
    if find("cargo-deny").is_none() {
        skipped.push(
            "licences and advisories of dependencies (deny.toml): cargo-deny is not installed \
             (cargo install cargo-deny)"
                .to_owned(),
        );
        return Ok(());
    }
    run(&mut cargo(["deny", "--offline", "check", "licenses", "bans", "sources"]))?;
    // The advisories come from a git repository, not from a crates registry.
    if !has_advisories() {
        skipped.push(
            "advisories about dependencies: their database is not on this machine (`cargo deny \
             fetch` where github.com can be reached)"
                .to_owned(),
        );
        return Ok(());
    }
    run(&mut cargo(["deny", "--offline", "check", "advisories"]))
}

/// Whether cargo-deny has a database of advisories.
fn has_advisories() -> bool {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let listed = home.and_then(|home| fs::read_dir(home.join("advisory-dbs")).ok());
    listed.is_some_and(|mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_backticks_only() {
        let text = "see `crates/wire/src/op.rs`, crates/none, `cargo test`, `docs/*.md`";
        assert_eq!(named_paths(text).collect::<Vec<_>>(), ["crates/wire/src/op.rs"]);
    }

    #[test]
    fn an_edge_that_is_not_allowed_is_found() {
        let manifest =
            Manifest::parse("[dependencies]\nmeta = { workspace = true }\nlibc = \"1\"\n");
        let mut faults = Vec::new();
        check_edges(&[("data".to_owned(), manifest)], &mut faults);
        assert!(faults.iter().any(|fault| fault.contains("may not depend on meta")), "{faults:?}");
        let shipped = Manifest::parse("[dependencies]\nfuser = { workspace = true }\n");
        check_edges(&[("lanefs".to_owned(), shipped)], &mut faults);
        assert!(faults.iter().any(|fault| fault.contains("for tests of crashes only")));
        assert!(faults.iter().any(|fault| fault.contains("a core may not depend on libc")));
    }
}
