//! `lanefs check`: prints the findings of a check as text or JSON, and chooses the exit code.
//!
//! The crate `check` checks and repairs; this file has the output only.

use crate::address::StorePlace;
use crate::exit::{Code, Exit};
use crate::export::ADDRESS_FILE;
use crate::files::json;
use crate::inspect::remote;
use crate::online::{FreezeControl, LocalServer};
use crate::progress::Progress;
use crate::terms::{self, TermRun};
use crate::{args, out};
use anyhow::{Result, bail};
use check::{Damages, Depth, Finding, Kind, Outcome, Remedy, Severity, Watch, rows_findings};
use library::Inspection;
use rustix::process::{Signal, getpid, kill_process};
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;
use store::{DamagedRows, StoreError, StoreFault, View};
use wire::MapEpoch;

/// Runs the command.
pub(crate) fn run(args: &args::Check) -> Result<()> {
    let store = match StorePlace::read(&args.store)? {
        StorePlace::Dir(store) => store,
        StorePlace::Server(address) => return run_at(args, address),
    };
    let mut local =
        Local { progress: Progress::new(), server: LocalServer::new(&store, &args.serving) };
    if args.repair {
        return repair((args, &store), &mut local.progress);
    }
    let depth = if args.skip_contents { Depth::Metadata } else { Depth::Contents };
    let looked = open(&store, &mut local.server)
        .and_then(|(view, is_served)| look((&store, is_served), view, depth, &mut local));
    local.progress.end();
    let outcome = looked.or_else(|error| as_finding(error, &store))?;
    let mut out = Stdout;
    print_outcome(&outcome, args.json, &mut out)?;
    sum_up(&outcome, &[], args.json, &mut out)?;
    end_with(&outcome)
}

/// Checks the store of a server, which its own host does.
fn run_at(args: &args::Check, address: String) -> Result<()> {
    if args.repair {
        let line = format!(
            "{address} serves its store, and a repair needs a store that nobody serves: stop the server, then \
             run `lanefs check STORE --repair` on its host"
        );
        bail!(Exit::usage(line));
    }
    let (json, skip_contents) = (args.json, args.skip_contents);
    let server = args::Server { server: address, login: args.serving.clone() };
    remote::print(&server, Inspection::Check { json, skip_contents })
}

/// A check of a store on this machine.
struct Local {
    progress: Progress,
    server: LocalServer,
}

impl Watch for Local {
    fn pass(&mut self, name: &'static str) {
        self.progress.pass(name);
    }

    fn looked(&mut self, count: u64) {
        self.progress.looked(count);
    }
}

impl FreezeControl for Local {
    fn freeze(&mut self) -> Result<()> {
        self.server.freeze()
    }

    fn thaw(&mut self) -> Result<()> {
        self.server.thaw()
    }

    fn report_line(&mut self, line: &str) -> Result<()> {
        self.server.report_line(line)
    }
}

/// Checks a view of a store; `is_served`: a server has it open.
pub(crate) fn look<B: FreezeControl + Watch>(
    (store, is_served): (&Path, bool),
    view: View,
    depth: Depth,
    control: &mut B,
) -> Result<Outcome> {
    view.check_parts()?;
    let mut outcome = check::check(&view, depth, control)?;
    still_current(&view)?;
    if is_served && check::is_about_objects(&outcome) {
        // Objects have changed meanwhile: findings about them are checked again while changes are frozen.
        drop(view);
        control.freeze()?;
        let rechecked = View::open_served(store)
            .map_err(anyhow::Error::from)
            .and_then(|view| Ok(check::recheck_objects(&view, outcome)?));
        control.thaw()?;
        outcome = rechecked?;
    }
    Ok(outcome)
}

/// The reason why a store cannot be opened is a finding, if it is damage of the store.
pub(crate) fn as_finding(error: anyhow::Error, store: &Path) -> Result<Outcome> {
    let Some(found) = error.downcast_ref::<StoreError>() else { return Err(error) };
    match found.fault() {
        StoreFault::Damage(_) | StoreFault::Missing => {
            if let Some(damaged) = damaged_rows(store, found)? {
                let mut outcome = Outcome::default();
                outcome.findings = rows_findings(&damaged);
                return Ok(outcome);
            }
        }
        StoreFault::RowsUnreadable { .. }
        | StoreFault::LogMissing { .. }
        | StoreFault::LogShort { .. }
        | StoreFault::RolledBack { .. } => {}
        StoreFault::NoStore
        | StoreFault::Exists
        | StoreFault::Foreign { .. }
        | StoreFault::Locked { .. }
        | StoreFault::Version { .. }
        | StoreFault::OfCluster { .. }
        | StoreFault::NotRegular
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

/// The readable rows, if the error is about the rows.
fn damaged_rows(store: &Path, error: &StoreError) -> Result<Option<DamagedRows>> {
    let is_of_rows = error.path().parent().is_some_and(|folder| folder.ends_with("rows"));
    Ok(if is_of_rows { store::damaged_rows(store)? } else { None })
}

/// Checks that the server was not restarted since the view was opened.
pub(crate) fn still_current(view: &View) -> Result<()> {
    if !view.is_of_same_boot()? {
        bail!("the server was started again meanwhile: try again");
    }
    Ok(())
}

/// A view of the store at one moment, and whether a server has it open.
pub(crate) fn open(store: &Path, control: &mut impl FreezeControl) -> Result<(View, bool)> {
    match View::open(store) {
        Ok(view) => Ok((view, false)),
        Err(error) if is_served(store, &error) => Ok((open_served(store, control)?, true)),
        Err(error) => Err(error.into()),
    }
}

/// A view at one moment of a store that a server has open.
pub(crate) fn open_served(store: &Path, control: &mut impl FreezeControl) -> Result<View> {
    control.freeze()?;
    let view = View::open_served(store);
    control.thaw()?;
    Ok(view?)
}

/// Whether a reachable server has the store open.
pub(crate) fn is_served(store: &Path, error: &StoreError) -> bool {
    matches!(error.fault(), StoreFault::Locked { .. }) && store.join(ADDRESS_FILE).exists()
}

/// Checks, before anything is changed, that no server has the store open and that its logs are intact. Damaged
/// rows can be repaired.
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

fn repair((args, store): (&args::Check, &Path), progress: &mut Progress) -> Result<()> {
    look_before(store)?;
    let mut step_count = 0;
    let repaired = check::repair(store, progress, |_| {
        step_count += 1;
        match args.kill_after {
            Some(count) if count == step_count => Ok(kill_process(getpid(), Signal::KILL)?),
            Some(_) | None => Ok(()),
        }
    })?;
    progress.end();
    let mut out = Stdout;
    for finding in &repaired.mended {
        put(&Row::of(finding, true), args.json, &mut out)?;
    }
    print_outcome(&repaired.left, args.json, &mut out)?;
    sum_up(&repaired.left, &repaired.mended, args.json, &mut out)?;
    if let Some(report) = &repaired.report {
        out::print_error_line(&format!("the changes are recorded in {}", report.display()));
    }
    match end_with(&repaired.left) {
        Ok(()) if !repaired.mended.is_empty() => Err(Exit::said(Code::Repaired).into()),
        ended => ended,
    }
}

/// The exit code of what is wrong.
pub(crate) fn end_with(outcome: &Outcome) -> Result<()> {
    let wrong = |finding: &&Finding| finding.severity > Severity::Info;
    let mut wrong = outcome.findings.iter().filter(wrong).peekable();
    if wrong.peek().is_none() {
        return Ok(());
    }
    let all_mendable = wrong.all(Finding::is_mendable);
    Err(Exit::said(if all_mendable { Code::Mendable } else { Code::Damaged }).into())
}

/// Reports contents that do not match their recorded checksums.
pub(crate) fn tell_of(damages: &Damages) -> Result<()> {
    damages
        .findings
        .iter()
        .try_for_each(|finding| put(&Row::of(finding, false), false, &mut Stdout))?;
    if damages.unlisted_count > 0 {
        out::print_bytes(format!("{} more are not listed\n", damages.unlisted_count).as_bytes())?;
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

/// The map of the last start, and the terms of the last records.
#[derive(Serialize)]
#[serde(tag = "type", rename = "map")]
struct MapRow {
    epoch: u64,
    terms: Vec<TermRun>,
}

/// What the store says of its map, and all findings.
pub(crate) fn print_outcome(outcome: &Outcome, json: bool, out: &mut impl Write) -> Result<()> {
    if let Some(MapEpoch(epoch)) = outcome.map_epoch {
        let row = MapRow { epoch, terms: terms::runs_of(outcome.terms.iter().copied()) };
        let text = || format!("map epoch {epoch}; last records: {}\n", terms::text(&row.terms));
        out.write_all(&if json { json::line(&row)? } else { text().into_bytes() })?;
    }
    outcome.findings.iter().try_for_each(|finding| put(&Row::of(finding, false), json, out))
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

fn put(row: &Row<'_>, json: bool, out: &mut impl Write) -> Result<()> {
    let line = if json { json::line(row)? } else { format!("{}\n", row.text()).into_bytes() };
    Ok(out.write_all(&line)?)
}

/// This process's stdout.
pub(crate) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        out::print_bytes(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
    unlisted_count: u64,
    mended_count: usize,
}

/// What there was, in a line.
pub(crate) fn sum_up(
    outcome: &Outcome,
    mended: &[Finding],
    json: bool,
    out: &mut impl Write,
) -> Result<()> {
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
        unlisted_count: outcome.unlisted_count,
        mended_count: mended.len(),
    };
    if json {
        return Ok(out.write_all(&json::line(&sum)?)?);
    }
    let Sum { inode_count, name_count, object_count, damage_count, warning_count, .. } = sum;
    let mended =
        if mended.is_empty() { String::new() } else { format!(", {} mended", mended.len()) };
    let unlisted = match outcome.unlisted_count {
        0 => String::new(),
        count => format!(", {count} more findings that are not listed"),
    };
    let line = format!(
        "{inode_count} inodes, {name_count} names, {object_count} objects: {damage_count} damages, \
         {warning_count} warnings{mended}{unlisted}\n"
    );
    Ok(out.write_all(line.as_bytes())?)
}
