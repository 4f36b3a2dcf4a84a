//! Rows of programs that walk, copy, unpack and remove trees of files.

use super::pattern::{bytes_at, compare};
use super::place::Place;
use super::program::run;
use super::setup::Setup;
use super::workload::{Sample, Workload};
use anyhow::{Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const WORKLOADS: [Workload; 7] = [
    Workload::programs("git status", &["git"], |place, _| git_status(place)),
    Workload::programs("find", &["find"], |place, _| {
        let names = entry_count(place.setup.counts.tree_file_count);
        list(place, Command::new("find").arg("."), |_| true, names)
    }),
    Workload::programs("du", &["du"], |place, _| {
        let names = entry_count(place.setup.counts.tree_file_count);
        list(place, Command::new("du").arg("-a"), |_| true, names)
    }),
    Workload::programs("ls -lR", &["ls"], |place, _| {
        let files = place.setup.counts.tree_file_count;
        list(place, Command::new("ls").arg("-lR"), |line| line.starts_with('-'), files)
    }),
    Workload::programs("tar x", &["tar"], |place, _| unpack(place)),
    Workload::programs("cp -r", &["cp"], |place, _| copy(place)),
    Workload::programs("rm -rf", &["rm"], |place, _| remove(place)),
];

const DIR_FILE_COUNT: u64 = 100;
const FILE_BYTES: u64 = 4096;

/// Makes a tree of files.
fn make_tree(setup: &Setup, dir: &Path, file_count: u64) -> Result<()> {
    for index in 0..file_count {
        setup.interrupt.check()?;
        let path = file_in(dir, index);
        if index % DIR_FILE_COUNT == 0 {
            fs::create_dir(path.parent().unwrap_or(dir))?;
        }
        fs::write(path, bytes_at(index * FILE_BYTES, usize::try_from(FILE_BYTES)?))?;
    }
    Ok(())
}

fn file_in(dir: &Path, index: u64) -> PathBuf {
    dir.join(format!("dir-{}", index / DIR_FILE_COUNT)).join(format!("file-{index}"))
}

/// Files and directories of a tree, with the one at the top.
const fn entry_count(file_count: u64) -> u64 {
    1 + file_count.div_ceil(DIR_FILE_COUNT) + file_count
}

/// Compares all names and contents of a tree.
fn compare_tree(dir: &Path, file_count: u64) -> Result<()> {
    for index in 0..file_count {
        compare(index * FILE_BYTES, &fs::read(file_in(dir, index))?)?;
    }
    let mut found = 0;
    for entry in fs::read_dir(dir)? {
        found += fs::read_dir(entry?.path())?.count() as u64;
    }
    ensure!(found == file_count, "{found} files are there, not {file_count}");
    Ok(())
}

/// The tree that is walked.
fn walked(place: &Place<'_>) -> Result<PathBuf> {
    let count = place.setup.counts.tree_file_count;
    place.once("tree", |dir| make_tree(place.setup, dir, count))
}

/// Without changes, after one that filled the caches.
fn git_status(place: &Place<'_>) -> Result<Sample> {
    let tree = walked(place)?;
    let count = place.setup.counts.tree_file_count;
    let repository = place.once("repository", |dir| {
        run(place.setup, git(dir, &tree, place.setup).args(["init", "-q"]))?;
        run(place.setup, git(dir, &tree, place.setup).args(["add", "."]))?;
        let mut commit = git(dir, &tree, place.setup);
        run(place.setup, commit.args(["commit", "-q", "-m", "tree"]))?;
        let listed = run(place.setup, git(dir, &tree, place.setup).arg("ls-files"))?;
        let listed = listed.stdout.lines().count() as u64;
        ensure!(listed == count, "git knows {listed} files, not {count}");
        Ok(())
    })?;
    let status = || {
        let ran =
            run(place.setup, git(&repository, &tree, place.setup).args(["status", "--porcelain"]))?;
        ensure!(ran.stdout.is_empty(), "git sees changes that were not made: {}", ran.stdout);
        anyhow::Ok(ran.elapsed)
    };
    status()?;
    Ok(Sample::new(status()?, 1, "run").names(count))
}

/// Independent of the user's configuration.
fn git(repository: &Path, tree: &Path, setup: &Setup) -> Command {
    let mut command = Command::new("git");
    command.env("HOME", setup.scratch()).env_remove("GIT_INDEX_FILE");
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.env("GIT_DIR", repository.join(".git")).env("GIT_WORK_TREE", tree);
    command.args(["-c", "safe.directory=*", "-c", "user.name=lanefs", "-c", "user.email=lanefs@"]);
    command.args(["-c", "gc.auto=0", "-c", "core.fsync=none"]);
    command.current_dir(tree);
    command
}

/// The time of a program that lists the tree, after one that filled the caches.
fn list(
    place: &Place<'_>,
    command: &mut Command,
    is_name: fn(&&str) -> bool,
    name_count: u64,
) -> Result<Sample> {
    command.current_dir(walked(place)?);
    run(place.setup, command)?;
    let ran = run(place.setup, command)?;
    let found = ran.stdout.lines().filter(is_name).count() as u64;
    ensure!(found == name_count, "{found} names are listed, not {name_count}");
    Ok(Sample::new(ran.elapsed, 1, "run").names(name_count))
}

fn unpack(place: &Place<'_>) -> Result<Sample> {
    let count = place.setup.counts.archive_file_count;
    let local = place.setup.once("archive", |dir| {
        let tree = dir.join("tree");
        fs::create_dir(&tree)?;
        make_tree(place.setup, &tree, count)?;
        let mut tar = Command::new("tar");
        run(place.setup, tar.args(["-cf", "archive.tar", "-C", "tree", "."]).current_dir(dir))?;
        Ok(())
    })?;
    place.fresh(|dir| {
        let mut tar = Command::new("tar");
        tar.arg("-xf").arg(local.join("archive.tar")).arg("-C").arg(dir);
        let ran = run(place.setup, &mut tar)?;
        compare_tree(dir, count)?;
        Ok(Sample::new(ran.elapsed, 1, "run").names(count).bytes(count * FILE_BYTES))
    })
}

/// Within the directory.
fn copy(place: &Place<'_>) -> Result<Sample> {
    let count = place.setup.counts.archive_file_count;
    let source = place.once("source", |dir| make_tree(place.setup, dir, count))?;
    place.fresh(|dir| {
        let copy = dir.join("copy");
        let ran = run(place.setup, Command::new("cp").arg("-r").arg(&source).arg(&copy))?;
        compare_tree(&copy, count)?;
        Ok(Sample::new(ran.elapsed, 1, "run").names(count).bytes(count * FILE_BYTES))
    })
}

fn remove(place: &Place<'_>) -> Result<Sample> {
    let count = place.setup.counts.archive_file_count;
    place.fresh(|dir| {
        let tree = dir.join("tree");
        fs::create_dir(&tree)?;
        make_tree(place.setup, &tree, count)?;
        let ran = run(place.setup, Command::new("rm").arg("-rf").arg(&tree))?;
        ensure!(!tree.exists(), "the tree is still there");
        Ok(Sample::new(ran.elapsed, 1, "run").names(entry_count(count)))
    })
}
