//! `lanefs doctor`: looks at what lanefs needs of this machine, of stores and of servers, and names remedies.
//!
//! Each check is a file of its own: it reads something, and judges it in a function that tests give other
//! input. Invariant: it changes nothing and leaves nothing, however it ends.

mod clock;
mod disk;
mod finding;
mod kernel;
mod leftovers;
mod machine;
mod report;
mod rights;
mod server;
mod space;
mod text;
mod wakeups;

use crate::address::{self, StorePlace};
use crate::exit::{Code, Exit};
use crate::export::ADDRESS_FILE;
use crate::files::json;
use crate::running::{self, Entry, Registered};
use crate::{args, out};
use anyhow::{Context as _, Result, bail};
use finding::{Finding, Severity, Summary, worst};
use report::Report;
use ring::Mounted;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Runs the command.
pub(crate) fn run(args: &args::Doctor) -> Result<()> {
    let is_report_printed = args.report.as_deref() == Some(Path::new("-"));
    if is_report_printed && args.json {
        bail!(Exit::usage("--json and --report - both mean standard output: name a file"));
    }
    let table = ring::mount_table(None).context("cannot read /proc/self/mountinfo")?;
    let registered = running::registered();
    let mut doctor = Doctor { args, registered: &registered, table: &table, findings: Vec::new() };
    let targets = doctor.targets()?;
    let shown = if is_report_printed {
        Shown::Nothing
    } else if args.json {
        Shown::Json
    } else {
        Shown::Text
    };
    doctor.look_at_machine(shown)?;
    for target in &targets {
        let found = match target {
            StorePlace::Dir(dir) => doctor.look_at_dir(dir),
            StorePlace::Server(address) => doctor.look_at_server(address),
        };
        doctor.add(found, shown)?;
    }
    doctor.end(shown)
}

/// What goes to standard output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shown {
    Text,
    Json,
    /// The report is printed.
    Nothing,
}

struct Doctor<'a> {
    args: &'a args::Doctor,
    registered: &'a [Registered],
    table: &'a [Mounted],
    findings: Vec<Finding>,
}

impl Doctor<'_> {
    /// What is named, else the stores that are served here and the servers of what is mounted here.
    fn targets(&self) -> Result<Vec<StorePlace>> {
        if !self.args.targets.is_empty() {
            return self.args.targets.iter().map(|target| self.target(target)).collect();
        }
        // A store that is served leads to its server.
        let stores = self.living().filter_map(|entry| Some((entry.store.as_ref()?, entry)));
        let (stores, served): (Vec<_>, Vec<_>) =
            stores.map(|(store, entry)| (store, address_of(entry))).unzip();
        let servers = self.living().filter_map(address_of);
        let servers = servers.filter(|address| !served.iter().flatten().any(|it| it == address));
        let stores = stores.into_iter().map(|store| StorePlace::Dir(PathBuf::from(store)));
        let mut targets: Vec<StorePlace> = Vec::new();
        for target in stores.chain(servers.map(StorePlace::Server)) {
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        Ok(targets)
    }

    /// A directory or a server. What lies on a mount of ours is a directory, and not asked.
    fn target(&self, argument: &Path) -> Result<StorePlace> {
        match self.mount_above(argument) {
            Some(_) => Ok(StorePlace::Dir(argument.to_owned())),
            None => StorePlace::read(argument),
        }
    }

    /// The mount of lanefs that a path lies on, by its text alone.
    fn mount_above(&self, path: &Path) -> Option<&Mounted> {
        let lexical = std::path::absolute(path).ok()?;
        self.table.iter().rfind(|it| it.is_lanefs() && lexical.starts_with(&it.point))
    }

    fn living(&self) -> impl Iterator<Item = &Entry> {
        self.registered.iter().filter(|it| !it.is_dead).map(|it| &it.entry)
    }

    fn look_at_machine(&mut self, shown: Shown) -> Result<()> {
        let version = Finding::ok("version", format!("lanefs {}", args::VERSION));
        self.add(vec![version], shown)?;
        self.add(kernel::look(), shown)?;
        self.add(rights::look(), shown)?;
        self.add(machine::look(), shown)?;
        self.add(clock::look(), shown)?;
        self.add(vec![wakeups::look()], shown)?;
        let patience = self.args.access.connect_timeout;
        self.add(leftovers::look(self.table, self.registered, patience), shown)
    }

    /// A store, a directory for one, or a mount.
    fn look_at_dir(&self, dir: &Path) -> Vec<Finding> {
        if let Some(mounted) = self.mount_above(dir) {
            // Whether it answers was looked at with all mounts.
            let point = running::text_of(&mounted.point);
            let of_mount = self.living().find(|entry| entry.dir.as_ref() == Some(&point));
            return match of_mount.and_then(address_of) {
                Some(address) => self.look_at_server(&address),
                None => vec![
                    Finding::note(
                        "server",
                        "which server it is mounted from is not known to this user",
                    )
                    .about(point)
                    .remedy("name the server, as in `lanefs doctor HOST`"),
                ],
            };
        }
        let shown = dir.display().to_string();
        let Some(there) =
            dir.ancestors().find(|above| above.is_dir() || above.as_os_str().is_empty())
        else {
            let remedy = "look at the spelling";
            return vec![Finding::error("directory", "there is none", remedy).about(shown)];
        };
        let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
        let mut findings = Vec::new();
        if there != dir {
            let found = format!("it does not exist yet; {} is looked at", there.display());
            findings.push(Finding::note("directory", found));
        }
        findings.extend(space::look(there));
        findings.extend(disk::look(there, self.table));
        let mut findings: Vec<Finding> =
            findings.into_iter().map(|finding| finding.about(shown.clone())).collect();
        // While it is served, its address stands in it.
        if let Ok(address) = std::fs::read_to_string(dir.join(ADDRESS_FILE)) {
            findings.extend(self.look_at_server(&reached(address.trim_end())));
        }
        findings
    }

    fn look_at_server(&self, address: &str) -> Vec<Finding> {
        let running: Vec<&Entry> = self.living().collect();
        server::look(address, &self.args.access, &running)
    }

    fn add(&mut self, found: Vec<Finding>, shown: Shown) -> Result<()> {
        for finding in &found {
            match shown {
                Shown::Text => out::print_bytes(format!("{finding}\n").as_bytes())?,
                Shown::Json => json::put(finding)?,
                Shown::Nothing => {}
            }
        }
        self.findings.extend(found);
        Ok(())
    }

    /// The last line, the report, and the exit code.
    fn end(&self, shown: Shown) -> Result<()> {
        let (findings, table, registered) = (&self.findings, self.table, self.registered);
        let report = Report { findings, table, registered };
        let summary = Summary::of(findings);
        match shown {
            Shown::Text => out::print_bytes(format!("{summary}\n").as_bytes())?,
            Shown::Json => json::put(&summary)?,
            Shown::Nothing => out::print_bytes(report.text().as_bytes())?,
        }
        if let Some(path) = self.args.report.as_ref().filter(|_| shown != Shown::Nothing) {
            write_report(path, &report.text())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        match worst(findings) {
            Severity::Ok | Severity::Note => Ok(()),
            Severity::Warning => Err(Exit::said(Code::Warnings).into()),
            Severity::Error => Err(Exit::said(Code::Errors).into()),
        }
    }
}

/// The address at which this machine reaches the server of a process.
fn address_of(entry: &Entry) -> Option<String> {
    entry.address.as_deref().map(reached)
}

/// The address at which this machine reaches what listens there.
fn reached(listens: &str) -> String {
    let at = listens.parse().map(address::loopback_if_unspecified);
    at.map_or_else(|_| listens.to_owned(), |at| at.to_string())
}

/// For its writer alone to read, who passes it on.
fn write_report(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(text.as_bytes())
}
