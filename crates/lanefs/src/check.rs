//! `lanefs check`: what is wrong in a store, in lines for people or for scripts, and an exit code.
//!
//! What is looked at and what is mended is the crate `check`'s; here is how it is told.

use crate::args;
use crate::exit::{Code, Exit};
use crate::export::ADDRESS_FILE;
use crate::online::Hold;
use crate::out;
use anyhow::{Result, bail};
use check::{Damages, Depth, Finding, Kind, Outcome, Remedy, Severity, Watch, rows_findings};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Signal, getpid, kill_process};
use serde::Serialize;
use std::path::Path;
use store::{DamagedRows, StoreError, StoreFault, View};

/// Runs the command.
pub(crate) fn run(args: &args::Check) -> Result<()> {
    let mut progress = Progress::new();
    if args.repair {
        return repair(args, &mut progress);
    }
    let looked = look(args, &mut progress);
    progress.end();
    let outcome = looked.or_else(|error| as_finding(error, &args.store))?;
    tell(&outcome, args.json)?;
    sum_up(&outcome, &[], args.json)?;
    end_with(&outcome)
}

/// What is wrong.
fn look(args: &args::Check, progress: &mut Progress) -> Result<Outcome> {
    let (view, is_served) = open(&args.store, &args.serving)?;
    let depth = if args.skip_contents { Depth::Metadata } else { Depth::Contents };
    view.check_parts()?;
    let mut outcome = check::check(&view, depth, progress)?;
    still_current(&view)?;
    if is_served && check::is_about_objects(&outcome) {
        // Objects went on changing; what was found is looked at while they do not.
        drop(view);
        let hold = Hold::begin(&args.serving.of(&args.store))?;
        let view = View::open_served(&args.store)?;
        outcome = check::recheck_objects(&view, outcome)?;
        end(hold)?;
    }
    Ok(outcome)
}

/// What a store cannot be opened for is a finding, where it is the store's.
fn as_finding(error: anyhow::Error, store: &Path) -> Result<Outcome> {
    let Some(found) = error.downcast_ref::<StoreError>() else { return Err(error) };
    match found.fault() {
        StoreFault::Damage(_) | StoreFault::Missing => {
            if let Some(damaged) = damaged_rows(store, found)? {
                let mut outcome = Outcome::default();
                outcome.findings = rows_findings(&damaged);
                return Ok(outcome);
            }
        }
        StoreFault::RowsGone { .. }
        | StoreFault::LogMissing { .. }
        | StoreFault::LogShort { .. }
        | StoreFault::WentBack { .. } => {}
        StoreFault::NoStore
        | StoreFault::Exists
        | StoreFault::Foreign { .. }
        | StoreFault::Locked { .. }
        | StoreFault::Version { .. }
        | StoreFault::NoFile
        | StoreFault::OtherOwner { .. }
        | StoreFault::OpenToOthers { .. }
        | StoreFault::Io { .. } => return Err(error),
    }
    let mut outcome = Outcome::default();
    let file = found.path().strip_prefix(store).unwrap_or(found.path()).to_owned();
    outcome.findings.push(Finding {
        kind: Kind::StoreDamage,
        severity: Severity::Damage,
        paths: Vec::new(),
        inode: None,
        file: Some(file),
        what: found.to_string(),
    });
    Ok(outcome)
}

/// What can be read of the rows, if an error is about them.
fn damaged_rows(store: &Path, error: &StoreError) -> Result<Option<DamagedRows>> {
    let is_of_rows = error.path().parent().is_some_and(|folder| folder.ends_with("rows"));
    Ok(if is_of_rows { store::damaged_rows(store)? } else { None })
}

/// What was read of a served store is what its server had.
pub(crate) fn still_current(view: &View) -> Result<()> {
    if !view.is_of_same_boot()? {
        bail!("the server was started again meanwhile: try again");
    }
    Ok(())
}

/// The store as it is at one moment, and whether a server has it open.
pub(crate) fn open(store: &Path, serving: &args::AdminLogin) -> Result<(View, bool)> {
    match View::open(store) {
        Ok(view) => Ok((view, false)),
        Err(error) if is_served(store, &error) => {
            let hold = Hold::begin(&serving.of(store))?;
            let view = View::open_served(store)?;
            end(hold)?;
            Ok((view, true))
        }
        Err(error) => Err(error.into()),
    }
}

/// Ends a hold that must have been one moment.
pub(crate) fn end(hold: Hold) -> Result<()> {
    if !hold.end()? {
        bail!("the server was started again, or did not hear from this command: try again");
    }
    Ok(())
}

/// Whether a server that can be asked has the store open.
pub(crate) fn is_served(store: &Path, error: &StoreError) -> bool {
    matches!(error.fault(), StoreFault::Locked { .. }) && store.join(ADDRESS_FILE).exists()
}

/// A repair needs the store alone. What a server would refuse or cut is looked at before anything is touched;
/// damaged rows are what a repair can begin with.
fn look_before(store: &Path) -> Result<()> {
    let error = match View::open(store) {
        Ok(view) => {
            let Some(fault) = view.fault() else { return Ok(()) };
            bail!("{fault}. A log that is damaged cannot be repaired, and nothing was changed");
        }
        Err(error) => error,
    };
    let address = std::fs::read_to_string(store.join(ADDRESS_FILE));
    let is_locked = matches!(error.fault(), StoreFault::Locked { .. });
    if let Some(address) = address.ok().filter(|_| is_locked) {
        bail!("{} is served at {}: stop that server first", store.display(), address.trim());
    }
    match damaged_rows(store, &error)? {
        Some(_) => Ok(()),
        None => Err(error.into()),
    }
}

fn repair(args: &args::Check, progress: &mut Progress) -> Result<()> {
    look_before(&args.store)?;
    let mut step_count = 0;
    let repaired = check::repair(&args.store, progress, |_| {
        step_count += 1;
        match args.kill_after {
            Some(count) if count == step_count => Ok(kill_process(getpid(), Signal::KILL)?),
            Some(_) | None => Ok(()),
        }
    })?;
    progress.end();
    for finding in &repaired.mended {
        put(&Row::of(finding, true), args.json)?;
    }
    tell(&repaired.left, args.json)?;
    sum_up(&repaired.left, &repaired.mended, args.json)?;
    if let Some(report) = &repaired.report {
        out::complain(&format!("what was changed is in {}", report.display()));
    }
    match end_with(&repaired.left) {
        Ok(()) if !repaired.mended.is_empty() => Err(Exit::said(Code::Repaired).into()),
        ended => ended,
    }
}

/// The exit code of what is wrong.
fn end_with(outcome: &Outcome) -> Result<()> {
    let wrong = |finding: &&Finding| finding.severity > Severity::Info;
    let mut wrong = outcome.findings.iter().filter(wrong).peekable();
    if wrong.peek().is_none() {
        return Ok(());
    }
    let all_mendable = wrong.all(Finding::is_mendable);
    Err(Exit::said(if all_mendable { Code::Mendable } else { Code::Damaged }).into())
}

/// Tells of contents that are not what was recorded of them.
pub(crate) fn tell_of(damages: &Damages) -> Result<()> {
    damages.findings.iter().try_for_each(|finding| put(&Row::of(finding, false), false))?;
    if damages.untold_count > 0 {
        out::put(format!("{} more are not listed\n", damages.untold_count).as_bytes())?;
    }
    Ok(())
}

/// The exit code of damaged contents.
pub(crate) fn end_with_damages(damages: &Damages) -> Result<()> {
    if damages.count() > 0 {
        return Err(Exit::said(Code::Damaged).into());
    }
    Ok(())
}

fn tell(outcome: &Outcome, json: bool) -> Result<()> {
    outcome.findings.iter().try_for_each(|finding| put(&Row::of(finding, false), json))
}

/// A finding for scripts.
#[derive(Serialize)]
#[serde(tag = "type", rename = "finding")]
struct Row<'a> {
    severity: Severity,
    kind: &'static str,
    paths: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths_hex: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    what: &'a str,
    remedy: &'static str,
    /// By `--repair`, by a `person`, or nothing is to be done.
    remedy_by: &'static str,
    mended: bool,
}

impl<'a> Row<'a> {
    fn of(finding: &'a Finding, mended: bool) -> Self {
        let texts = finding.paths.iter().map(|path| check::text_and_hex(path));
        let (paths, hex): (Vec<String>, Vec<Option<String>>) = texts.unzip();
        let all_text = hex.iter().all(Option::is_none);
        // Where one is no text, all are in hexadecimal, in the same order.
        let of_path = |path: &Vec<u8>| path.iter().map(|byte| format!("{byte:02x}")).collect();
        let paths_hex =
            if all_text { Vec::new() } else { finding.paths.iter().map(of_path).collect() };
        Self {
            severity: finding.severity,
            kind: finding.kind.id(),
            paths,
            paths_hex,
            inode: finding.inode.map(|inode| inode.0),
            file: finding.file.as_ref().map(|file| file.to_string_lossy().into_owned()),
            what: &finding.what,
            remedy: finding.remedy().text(),
            remedy_by: match finding.remedy() {
                Remedy::Nothing(_) => "nobody",
                Remedy::Repair(_) => "repair",
                Remedy::Person(_) => "person",
            },
            mended,
        }
    }

    /// A line for people.
    fn text(&self) -> String {
        let severity = match (self.mended, self.severity) {
            (true, _) => "mended",
            (false, Severity::Info) => "info",
            (false, Severity::Warning) => "warning",
            (false, Severity::Damage) => "damage",
        };
        let paths: Vec<&str> = self.paths.iter().map(String::as_str).collect();
        let file = self.file.iter().map(String::as_str);
        let at: Vec<&str> = paths.into_iter().chain(file).collect();
        let Self { kind, what, remedy, .. } = self;
        format!("{severity}: {kind}: {}: {what}; {remedy}", at.join(", "))
    }
}

fn put(row: &Row<'_>, json: bool) -> Result<()> {
    if json {
        return crate::files::json::put(row);
    }
    out::put(format!("{}\n", row.text()).as_bytes())
}

/// The last line.
#[derive(Serialize)]
#[serde(tag = "type", rename = "summary")]
struct Sum {
    inode_count: u64,
    name_count: u64,
    object_count: u64,
    info_count: usize,
    warning_count: usize,
    damage_count: usize,
    /// Findings that are in none of the lines: there were too many.
    untold_count: u64,
    mended_count: usize,
}

fn sum_up(outcome: &Outcome, mended: &[Finding], json: bool) -> Result<()> {
    let count = |severity: Severity| {
        outcome.findings.iter().filter(|finding| finding.severity == severity).count()
    };
    let sum = Sum {
        inode_count: outcome.inode_count,
        name_count: outcome.name_count,
        object_count: outcome.object_count,
        info_count: count(Severity::Info),
        warning_count: count(Severity::Warning),
        damage_count: count(Severity::Damage),
        untold_count: outcome.untold_count,
        mended_count: mended.len(),
    };
    if json {
        return crate::files::json::put(&sum);
    }
    let Sum { inode_count, name_count, object_count, damage_count, warning_count, .. } = sum;
    let mended =
        if mended.is_empty() { String::new() } else { format!(", {} mended", mended.len()) };
    let untold = match outcome.untold_count {
        0 => String::new(),
        count => format!(", {count} more findings that are not listed"),
    };
    out::put(
        format!(
            "{inode_count} inodes, {name_count} names, {object_count} objects: {damage_count} damages, \
             {warning_count} warnings{mended}{untold}\n"
        )
        .as_bytes(),
    )
}

/// What is under way, on stderr where that is a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{msg}: {pos}") {
            bar.set_style(style);
        }
        Self { bar }
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Watch for Progress {
    fn pass(&mut self, name: &'static str) {
        self.bar.set_message(name);
        self.bar.set_position(0);
    }

    fn looked(&mut self, count: u64) {
        self.bar.inc(count);
    }
}
