//! Mounts that do not answer, and processes that ended without order.
//!
//! Invariant: a mount that does not answer stops nothing: a thread of its own asks it, which the end of this
//! process ends.

use super::finding::Finding;
use super::text::time_text;
use crate::running::{Entry, Kind, Registered};
use ring::Mounted;
use rustix::fs::statfs;
use rustix::io::Errno;
use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Dead processes that are named.
const DEAD_COUNT_MAX: usize = 4;

/// All mounts of lanefs that this process sees, and the files of dead processes.
pub(super) fn look(
    table: &[Mounted],
    registered: &[Registered],
    patience: Duration,
) -> Vec<Finding> {
    let ours: Vec<&Mounted> = table.iter().filter(|mounted| mounted.is_lanefs()).collect();
    let mut findings: Vec<Finding> = ours
        .iter()
        .map(|mounted| {
            let shown = mounted.point.display().to_string();
            judge(&shown, ask(&mounted.point, patience), patience).about(shown)
        })
        .collect();
    if findings.is_empty() {
        findings.push(Finding::ok("mount", "nothing of lanefs is mounted here"));
    }
    let (named, more_count) = dead_ones(registered);
    findings.extend(named.iter().map(|it| dead(&it.entry)));
    if more_count > 0 {
        let found = format!("{more_count} more processes were killed, or they crashed, earlier");
        findings.push(Finding::note("dead-process", found).remedy("`lanefs status` forgets them"));
    }
    findings
}

/// The latest dead process of each place that nothing else has taken over, newest first; how many there are
/// besides.
pub(super) fn dead_ones(registered: &[Registered]) -> (Vec<&Registered>, usize) {
    let place = |it: &Registered| it.entry.store.clone().or_else(|| it.entry.dir.clone());
    let living: Vec<_> = registered.iter().filter(|it| !it.is_dead).map(place).collect();
    let mut dead: Vec<&Registered> = registered.iter().filter(|it| it.is_dead).collect();
    dead.sort_by_key(|it| Reverse(it.changed));
    let mut places = Vec::new();
    let mut named = Vec::new();
    for it in &dead {
        let place = place(it);
        if named.len() < DEAD_COUNT_MAX && !living.contains(&place) && !places.contains(&place) {
            places.push(place);
            named.push(*it);
        }
    }
    let more_count = dead.len() - named.len();
    (named, more_count)
}

/// Whether a mount answers; `None`: not in time.
fn ask(point: &Path, patience: Duration) -> Option<Result<(), Errno>> {
    let (sender, answers) = channel();
    let point = PathBuf::from(point);
    let asked = thread::Builder::new().name("ask".to_owned()).spawn(move || {
        // Nobody listens any more when it took too long.
        let _unheard = sender.send(statfs(&point).map(drop));
    });
    asked.ok()?;
    answers.recv_timeout(patience).ok()
}

fn judge(shown: &str, answer: Option<Result<(), Errno>>, patience: Duration) -> Finding {
    const CHECK: &str = "mount";
    match answer {
        Some(Ok(())) => Finding::ok(CHECK, "mounted, and it answers"),
        Some(Err(Errno::NOTCONN | Errno::CONNABORTED)) => Finding::error(
            CHECK,
            "its process has ended: each call there fails with ENOTCONN",
            format!("`lanefs umount --lazy {shown}`, then mount again"),
        ),
        Some(Err(Errno::ACCESS)) => {
            Finding::note(CHECK, "another user's: whether it answers cannot be looked at")
        }
        Some(Err(errno)) => Finding::error(
            CHECK,
            format!("it answers with an error: {errno}"),
            format!("look at its log (`lanefs status {shown}`)"),
        ),
        None => Finding::error(
            CHECK,
            format!("no answer within {}: calls there wait for the server", time_text(patience)),
            "start its server again, or look at the network: `lanefs status` has the address, for `lanefs \
             doctor ADDR`",
        ),
    }
}

fn dead(entry: &Entry) -> Finding {
    let Entry { kind, pid, store, dir, log, .. } = entry;
    let of = store.as_ref().or(dir.as_ref()).map(|path| format!(" of {path}")).unwrap_or_default();
    let found = format!("{} process {pid}{of} was killed, or it crashed", kind.text());
    let look = match (kind, log) {
        (_, Some(log)) => format!("look at the end of {log} and at `dmesg`"),
        (Kind::Mount, None) => "look at its stderr or the journal, and at `dmesg`; mount again".to_owned(),
        (Kind::Up | Kind::Serve, None) => {
            "look at its stderr or the journal, and at `dmesg`; start it again, nothing acknowledged is \
             lost"
                .to_owned()
        }
    };
    Finding::note("dead-process", found).remedy(look)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
    use std::time::UNIX_EPOCH;

    #[test]
    fn a_mount_is_judged_by_its_answer() {
        let of = |answer| judge("/mnt", answer, Duration::from_secs(5));
        assert_eq!(of(Some(Ok(()))).severity, Severity::Ok);
        let dead = of(Some(Err(Errno::NOTCONN)));
        assert!(dead.remedy.is_some_and(|remedy| remedy.contains("umount --lazy /mnt")));
        assert_eq!(of(Some(Err(Errno::ACCESS))).severity, Severity::Note);
        assert_eq!(of(Some(Err(Errno::IO))).severity, Severity::Error);
        let silent = of(None);
        assert!(
            silent.severity == Severity::Error && silent.found.contains("within 5.0 s"),
            "{silent}"
        );
    }

    #[test]
    fn a_dead_process_is_named_with_what_it_was_of() {
        let entry = Entry {
            store: Some("/srv/store".to_owned()),
            log: Some("/srv/log".to_owned()),
            pid: 12,
            ..Entry::of(Kind::Serve, None)
        };
        let finding = dead(&entry);
        assert!(finding.found.contains("serve process 12 of /srv/store was killed"), "{finding}");
        assert!(finding.remedy.is_some_and(|remedy| remedy.contains("/srv/log")));
    }

    #[test]
    fn of_each_place_the_latest_dead_process_is_named_unless_one_lives() {
        let registered = |dir: &str, is_dead: bool, secs: u64| Registered {
            entry: Entry { dir: Some(dir.to_owned()), ..Entry::of(Kind::Mount, None) },
            is_dead,
            owner_id: 0,
            changed: UNIX_EPOCH + Duration::from_secs(secs),
        };
        let mut all =
            vec![registered("/a", true, 1), registered("/a", true, 3), registered("/b", true, 2)];
        let named = |all: &[Registered]| {
            let (named, more_count) = dead_ones(all);
            let dirs = named.iter().filter_map(|it| it.entry.dir.clone()).collect::<Vec<_>>();
            (dirs, named.first().map(|it| it.changed), more_count)
        };
        let at = |secs| Some(UNIX_EPOCH + Duration::from_secs(secs));
        assert_eq!(named(&all), (vec!["/a".to_owned(), "/b".to_owned()], at(3), 1));
        all.push(registered("/a", false, 0));
        assert_eq!(named(&all), (vec!["/b".to_owned()], at(2), 2));
        all.extend((0..10).map(|place| registered(&format!("/c{place}"), true, 9)));
        assert_eq!((named(&all).0.len(), named(&all).2), (DEAD_COUNT_MAX, 9));
    }

    #[test]
    fn a_directory_that_answers_is_no_error() {
        assert_eq!(ask(Path::new("/"), Duration::from_secs(60)), Some(Ok(())));
    }
}
