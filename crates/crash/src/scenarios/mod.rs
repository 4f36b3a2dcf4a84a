//! The scenarios of docs/protocol.md appendix A by name, and those without a number: torture, the test of the
//! disk, injected faults.
//!
//! Invariant: the table has every scenario. One that is not run says where it is tested, or what it
//! waits for.

mod cases;
mod clients;
mod damage;
mod length;
mod resend;
mod restart;
mod storage;
mod torn;
mod torture;

use crate::run_folder::Setup;
use crate::stores;
use anyhow::{Result, bail};
pub(crate) use length::Length;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How a scenario is tested.
#[derive(Clone, Copy)]
pub(crate) enum Shown {
    /// Here; the function returns a summary.
    Here(fn(&Setup, Length) -> Result<String>),
    /// Not here, and why.
    Not(&'static str),
}

/// A row of the table.
pub(crate) struct Scenario {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// The fault, and the required result.
    pub(crate) what: &'static str,
    /// It is part of the short form.
    pub(crate) short: bool,
    /// Alarms that servers and mounts may log here; any other alarm is a failure.
    allowed: &'static [&'static str],
    /// Its stores are damaged at its end: on purpose, or by a lying disk.
    leaves_damage: bool,
    /// All its clients come back: every object that is left has an inode.
    keeps_clients: bool,
    pub(crate) shown: Shown,
}

const fn row(name: &'static str, what: &'static str, shown: Shown) -> Scenario {
    let (leaves_damage, keeps_clients) = (false, false);
    Scenario { name, what, short: true, allowed: &[], leaves_damage, keeps_clients, shown }
}

const fn here(
    name: &'static str,
    what: &'static str,
    run: fn(&Setup, Length) -> Result<String>,
) -> Scenario {
    row(name, what, Shown::Here(run))
}

const fn long(
    name: &'static str,
    what: &'static str,
    run: fn(&Setup, Length) -> Result<String>,
) -> Scenario {
    Scenario { short: false, ..here(name, what, run) }
}

impl Scenario {
    /// Servers and mounts may log these alarms.
    const fn allowed(self, allowed: &'static [&'static str]) -> Self {
        Self { allowed, ..self }
    }

    /// All its clients come back.
    const fn keeping_clients(self) -> Self {
        Self { keeps_clients: true, ..self }
    }

    /// Its stores are damaged at its end.
    const fn leaving_damage(self) -> Self {
        Self { leaves_damage: true, ..self }
    }
}

/// A lane whose disk failed before its server was killed.
const FENCED: &str = "This lane changes nothing more";
/// An acknowledged change of a client is lost.
const ACKNOWLEDGED_LOST: &str = "a reply said that";

/// A finding that takes space for ever.
const OBJECT_LEFT: &str = "object-without-inode";
/// Reports of damage.
const DAMAGE: &[&str] = &["damaged", "went back"];

const fn not(name: &'static str, what: &'static str, why: &'static str) -> Scenario {
    row(name, what, Shown::Not(why))
}

/// All of them.
pub(crate) const TABLE: &[Scenario] = &[
    here("torture", "kill -9 of server, clients, programs and both at random", torture::kills),
    here("sync", "the same, and the server answers only what is durable", torture::kills_sync),
    long("strict", "the same, and it shows only what is durable", torture::kills_strict),
    here("power", "power cuts below the store: unsynced sectors lost or torn", torture::power)
        .allowed(&[FENCED]),
    here("torn", "server and client die in a write: no page is mixed, no record torn", torn::torn)
        .allowed(&[FENCED]),
    here("disk", "control: the disk loses what was not synced, keeps what was", storage::disk),
    here("lying-disk", "control: a disk that lies about flushes is noticed", torture::lying_disk)
        .allowed(&[FENCED, ACKNOWLEDGED_LOST])
        .leaving_damage(),
    here(
        "injected",
        "control: an old copy, a doubled record, a stray name are found",
        storage::injected,
    )
    .allowed(&[ACKNOWLEDGED_LOST]),
    here("damage-rows", "rows damaged at rest: refused by name, or all is there", damage::rows)
        .allowed(DAMAGE)
        .leaving_damage(),
    here("damage-log", "logs damaged at rest: refused by name, or all is there", damage::logs)
        .allowed(DAMAGE)
        .leaving_damage(),
    here(
        "damage-objects",
        "contents damaged at rest: EIO and the object's name, or all is there",
        damage::objects,
    )
    .allowed(DAMAGE)
    .leaving_damage(),
    long(
        "damage-others",
        "other files of a store damaged at rest: refused by name, or all is there",
        damage::others,
    )
    .allowed(DAMAGE)
    .leaving_damage(),
    here("S1", "server killed, all clients live: all acknowledged is there", restart::s1)
        .keeping_clients(),
    here("S2", "server and a client killed: the others lose nothing", restart::s2),
    here(
        "S3",
        "a client with a nameless open file dies: it is purged, nobody else loses",
        restart::s3,
    ),
    here("S4", "a client dies, the server lives: nobody else notices", restart::s4),
    here("S5", "reply lost: each op takes effect once", resend::s5),
    here("S6", "server killed before an op is durable: it is done once, afresh", resend::s6),
    here("S7", "reply lost, server killed after durability: answered, not done again", resend::s7),
    here("S8", "reply lost, another client undoes it: still answered well", resend::s8),
    here("S9", "a late duplicate of a write arrives after a newer one: dropped", resend::s9),
    here("S10", "16 ops in flight: requests or replies lost, with and without kill", resend::s10),
    here("S11", "a partition shorter than any limit: all goes on", resend::s11),
    here("S12", "server killed again while it starts and recovers", restart::s12),
    here("S13", "server killed at each step of the end of recovery", restart::s13),
    here("S14", "a client dies while it replays: the others finish", restart::s14),
    here("S15", "the network fails again and again while clients come back", restart::s15),
    not(
        "S16",
        "own dependency on an op without reply",
        "the kernel holds the directory's lock while the mkdir is out, and a volume has one call \
         at a time; shown by the simulator",
    ),
    here("S17", "create, foreign rename, rename back; both kinds of loss", clients::s17)
        .allowed(&[FENCED]),
    not("S18", "independent clients are never held back", "shown by `lanefs bench create`"),
    here("S19", "exclusive creates race, names are used again, then a kill", clients::s19),
    here("S20", "foreign chmod of the parent beside creates, then a kill", clients::s20),
    here("S21", "a disk whose durability froze: the lost words are noticed", storage::s21)
        .allowed(&[ACKNOWLEDGED_LOST, "is damaged"])
        .leaving_damage(),
    here("S22", "torn tail cut; damage in the middle refused with its offset", storage::s22)
        .allowed(&["is damaged"])
        .leaving_damage(),
    here("S23", "a new client while the server is away and recovering", restart::s23),
    here("S24", "all clients dead: the server serves again", restart::s24),
    here("S25", "server ended in order under load: clients notice nothing", restart::s25),
    long("S26", "flushes hang: back-pressure, bounded memory, then all goes on", storage::s26),
    not("S27", "forged redo tokens", "shown by the lane's own tests"),
    not("S28", "rolling upgrade", "there is one format version"),
    not("S29", "clocks jump", "a process's clock cannot be set alone; shown by the simulator"),
    here("S30", "renames across directories, killed at every step", restart::s30),
    here("S31", "disk full at the kill: recovery needs no space it has not", storage::s31),
    here("S32", "open files without a name over a kill, 16 cases", clients::s32).keeping_clients(),
    not(
        "S33",
        "flock and fcntl locks over a kill",
        "shown by `e2e/locks.rs`, with a server killed under them",
    ),
    not("S34", "write-back data under leases", "clients do not write back"),
    here("S35", "two clients append, one writes directly, over kills", clients::s35),
];

/// The result of a scenario.
pub(crate) struct Row {
    name: &'static str,
    outcome: Result<String>,
    elapsed_s: f64,
}

impl Row {
    /// Whether it succeeded.
    pub(crate) const fn is_ok(&self) -> bool {
        self.outcome.is_ok()
    }
}

/// Runs a scenario in a folder of its own.
pub(crate) fn run(setup: &Setup, scenario: &Scenario, length: Length) -> Row {
    let start = Instant::now();
    let outcome = match scenario.shown {
        Shown::Here(run) => setup.part(scenario.name).and_then(|part| {
            let mut seen = run(&part, length)?;
            check_logs(&part.folder, scenario.allowed)?;
            if !scenario.leaves_damage {
                for line in stores::check_below(&part.lanefs, &part.folder)? {
                    // A file whose creation is lost with its client may leave one.
                    if scenario.keeps_clients && line.contains(OBJECT_LEFT) {
                        bail!("all clients came back, and there is {line}");
                    }
                    // Writing to a string cannot fail.
                    let _infallible = write!(seen, "; {line}");
                }
            }
            Ok(seen)
        }),
        Shown::Not(why) => Ok(format!("left out: {why}")),
    };
    let row = Row { name: scenario.name, outcome, elapsed_s: start.elapsed().as_secs_f64() };
    println!("{row}");
    row
}

/// Alarms: no log may have one.
const ALARMS: [&str; 4] = ["ALARM", "damaged", "panicked", "went back"];

/// Searches the logs in a scenario's folder, and in those of its parts, for alarms.
fn check_logs(folder: &Path, allowed: &[&str]) -> Result<()> {
    let mut paths = paths_in(folder);
    let parts: Vec<_> = paths.iter().flat_map(|path| paths_in(path)).collect();
    paths.extend(parts);
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    for path in paths {
        let bytes = fs::read(&path)?;
        let output = String::from_utf8_lossy(&bytes);
        let has = |line: &str, parts: &[&str]| parts.iter().any(|part| line.contains(part));
        if let Some(line) = output.lines().find(|line| has(line, &ALARMS) && !has(line, allowed)) {
            bail!("{} has: {line}", path.display());
        }
    }
    Ok(())
}

/// The paths in a folder; none if it is no folder.
fn paths_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.outcome {
            Ok(seen) => write!(f, "ok    {:<11} {:>5.1} s  {seen}", self.name, self.elapsed_s),
            Err(error) => {
                write!(f, "FAIL  {:<11} {:>5.1} s  {error:#}", self.name, self.elapsed_s)
            }
        }
    }
}

/// The table as markdown.
pub(crate) fn listing() -> String {
    let mut text = String::from("| scenario | what goes wrong, what must come of it | how |\n");
    text += "| --- | --- | --- |\n";
    for Scenario { name, what, short, shown, allowed: _, leaves_damage: _, keeps_clients: _ } in
        TABLE
    {
        let how = match shown {
            Shown::Here(_) => {
                let long = if *short { "" } else { " (not in the short form)" };
                format!("`cargo xtask crash --scenario {name}`{long}")
            }
            Shown::Not(why) => format!("not here: {why}"),
        };
        // Writing to a string cannot fail.
        let _infallible = writeln!(text, "| {name} | {what} | {how} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_of_the_protocol_is_in_the_table_once() {
        for number in 1..=35 {
            let name = format!("S{number}");
            let count = TABLE.iter().filter(|scenario| scenario.name == name).count();
            assert_eq!(count, 1, "{name}");
        }
        assert_eq!(listing().lines().count(), TABLE.len() + 2);
    }

    #[test]
    fn the_document_shows_the_table() {
        let document = include_str!("../../../../docs/recovery.md");
        assert!(
            document.contains(&listing()),
            "docs/recovery.md has another table than `cargo xtask crash --list` prints"
        );
    }
}
