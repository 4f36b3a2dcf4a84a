//! `cargo xtask package`: makes a Debian package, from the metadata that `cargo deb` reads, and
//! tests it on this machine, under an overlay that is discarded.
//!
//! Invariant: only `target/package` changes on this machine.

use crate::run::{cargo, output, root, run, target_dir};
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The script that tests the package in the overlay.
const TEST: &str = include_str!("package/test.sh");

/// The options.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only make it
    #[arg(long)]
    no_test: bool,
}

/// The used part of `cargo metadata`'s output.
#[derive(Deserialize)]
struct Workspace {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    description: Option<String>,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Metadata {
    deb: Option<Deb>,
}

/// `package.metadata.deb`, as `cargo deb` defines it.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Deb {
    name: String,
    maintainer: String,
    section: String,
    priority: String,
    depends: String,
    recommends: String,
    extended_description: String,
    conf_files: Vec<String>,
    maintainer_scripts: PathBuf,
    assets: Vec<(String, String, String)>,
}

/// Runs the chore.
pub(crate) fn run_alone(args: &Args) -> Result<()> {
    let package = make()?;
    if !args.no_test {
        test(&package)?;
    }
    println!("{}", package.display());
    Ok(())
}

fn place() -> PathBuf {
    target_dir().join("package")
}

/// Installs the program as `cargo install` does, and makes the package with it.
pub(crate) fn make() -> Result<PathBuf> {
    let place = place();
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    fs::create_dir_all(&place)?;
    let installed = place.join("installed");
    // Reuses what the workspace has built.
    let mut install = cargo(["install", "--path", "crates/lanefs", "--locked", "--no-track"]);
    install.arg("--root").arg(&installed).arg("--target-dir").arg(target_dir());
    run(&mut install)?;
    let program = installed.join("bin/lanefs");
    let package = described()?;
    write_papers(&program, &package.version, &place)?;
    let deb = package.metadata.as_ref().and_then(|metadata| metadata.deb.as_ref());
    let deb = deb.context("crates/lanefs/Cargo.toml has no package.metadata.deb")?;
    let staged = place.join("root");
    for (from, to, mode) in &deb.assets {
        stage(&program, from, &staged.join(to), mode)?;
    }
    // `cargo deb` writes one of its own.
    stage(&program, "dist/copyright", &staged.join("usr/share/doc/lanefs"), "644")?;
    write_control(&package, deb, &staged)?;
    let file = place.join(format!("{}_{}_{}.deb", deb.name, package.version, architecture()?));
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "--build"]).arg(&staged).arg(&file);
    run(&mut build)?;
    Ok(file)
}

fn described() -> Result<Package> {
    let mut metadata = cargo(["metadata", "--format-version", "1", "--no-deps"]);
    let workspace: Workspace = serde_json::from_str(&output(&mut metadata)?)?;
    let mut packages = workspace.packages.into_iter();
    packages.find(|package| package.name == "lanefs").context("there is no package lanefs")
}

/// The manual pages and completions that the program prints, and the page that it does not.
fn write_papers(program: &Path, version: &str, place: &Path) -> Result<()> {
    let man = place.join("man");
    fs::create_dir_all(&man)?;
    run(Command::new(program).arg("man").arg("--dir").arg(&man))?;
    let page = fs::read_to_string(root().join("crates/lanefs/dist/mount.lanefs.8"))?;
    fs::write(man.join("mount.lanefs.8"), page.replace("VERSION", version))?;
    fs::write(man.join("mount.fuse.lanefs.8"), ".so man8/mount.lanefs.8\n")?;
    let completions = place.join("completions");
    fs::create_dir_all(&completions)?;
    for (shell, file) in [("bash", "lanefs"), ("zsh", "_lanefs"), ("fish", "lanefs.fish")] {
        let script = output(Command::new(program).args(["completions", shell]))?;
        fs::write(completions.join(file), script)?;
    }
    Ok(())
}

/// Copies the files of an asset to their destination.
fn stage(program: &Path, from: &str, to: &Path, mode: &str) -> Result<()> {
    fs::create_dir_all(to)?;
    let mode = u32::from_str_radix(mode, 8).with_context(|| format!("{from}: mode {mode}"))?;
    for file in found(program, from)? {
        let name = file.file_name().with_context(|| format!("{from} names no file"))?;
        let to = to.join(name);
        if file.is_symlink() {
            symlink(fs::read_link(&file)?, &to)?;
            continue;
        }
        fs::copy(&file, &to).with_context(|| format!("cannot copy {}", file.display()))?;
        fs::set_permissions(&to, Permissions::from_mode(mode))?;
        if file == program {
            run(Command::new("strip").arg("--strip-unneeded").arg(&to))?;
        }
        if to.components().any(|part| part.as_os_str() == "man") {
            run(Command::new("gzip").arg("-9n").arg(&to))?;
        }
    }
    Ok(())
}

/// The files of an asset; a star stands for any part of the last name.
fn found(program: &Path, from: &str) -> Result<Vec<PathBuf>> {
    if from == "target/release/lanefs" {
        return Ok(vec![program.to_path_buf()]);
    }
    let from = match from.strip_prefix("../../target/") {
        Some(rest) => target_dir().join(rest),
        None => root().join("crates/lanefs").join(from),
    };
    let name = from.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((start, end)) = name.split_once('*') else { return Ok(vec![from]) };
    let mut files = Vec::new();
    for entry in fs::read_dir(from.parent().unwrap_or(Path::new(".")))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(start) && name.ends_with(end) {
            files.push(entry.path());
        }
    }
    files.sort();
    if files.is_empty() {
        bail!("{} stands for nothing", from.display());
    }
    Ok(files)
}

fn write_control(package: &Package, deb: &Deb, staged: &Path) -> Result<()> {
    let control = staged.join("DEBIAN");
    fs::create_dir_all(&control)?;
    let scripts = root().join("crates/lanefs").join(&deb.maintainer_scripts);
    for script in ["postinst", "prerm", "postrm"] {
        fs::copy(scripts.join(script), control.join(script))?;
        fs::set_permissions(control.join(script), Permissions::from_mode(0o755))?;
    }
    fs::write(control.join("conffiles"), deb.conf_files.join("\n") + "\n")?;
    let long: String = deb.extended_description.trim().lines().map(|l| format!(" {l}\n")).collect();
    let Deb { name, maintainer, section, priority, depends, recommends, .. } = deb;
    let text = format!(
        "Package: {name}\nVersion: {}\nArchitecture: {}\nMaintainer: {maintainer}\nSection: {section}\n\
         Priority: {priority}\nDepends: {depends}\nRecommends: {recommends}\nDescription: {}\n{long}",
        package.version,
        architecture()?,
        package.description.as_deref().unwrap_or("a parallel file system"),
    );
    Ok(fs::write(control.join("control"), text)?)
}

fn architecture() -> Result<String> {
    Ok(output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned())
}

/// Installs it under an overlay of this machine, uses it, removes it, and checks what is left.
fn test(package: &Path) -> Result<()> {
    let over = place().join("overlay");
    fs::create_dir_all(&over)?;
    let script = place().join("test.sh");
    fs::write(&script, TEST)?;
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "--net", "--pid", "--fork"]);
    unshare.args(["--kill-child", "bash"]).arg(&script).arg(&over).arg(package);
    run(&mut unshare)
}
