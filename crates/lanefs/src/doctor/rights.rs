//! What this user may do here: mount, open files, lock memory.

use super::finding::Finding;
use crate::{args::units, fuse_device};
use rustix::process::{Resource, geteuid, getrlimit};

/// Fewer open files than this, and neither a server nor a mount gets far.
const FILE_COUNT_MIN: u64 = 256;
/// A server has one for each connection and each file that is being read or written.
const FILE_COUNT_GOOD: u64 = 4096;

const FUSE_CONF: &str = "/etc/fuse.conf";
const NAMESPACES: &str = "/proc/sys/user/max_user_namespaces";

/// What this process has.
pub(super) fn look() -> Vec<Finding> {
    let mut findings = vec![
        mounting(fuse_device::obstacle()),
        open_files(getrlimit(Resource::Nofile).maximum),
        locked_memory(getrlimit(Resource::Memlock).current),
    ];
    if !geteuid().is_root() {
        findings.push(other_users(std::fs::read_to_string(FUSE_CONF).ok().as_deref()));
        findings.push(namespaces(std::fs::read_to_string(NAMESPACES).ok().as_deref()));
    }
    findings
}

fn mounting(obstacle: Option<String>) -> Finding {
    match obstacle {
        None => Finding::ok("mounting", "this user can mount"),
        Some(obstacle) => Finding::warning(
            "mounting",
            "this machine or user cannot mount; servers and file commands work",
            obstacle,
        ),
    }
}

/// By the hard limit, to which lanefs raises its own. `None`: there is none.
fn open_files(limit: Option<u64>) -> Finding {
    let Some(limit) = limit else {
        return Finding::ok("open-files", "without a limit");
    };
    let found = format!("a process may have {limit} files open");
    let remedy = "raise the hard limit: `ulimit -Hn 65536` as root, LimitNOFILE= of a unit, or `nofile` in \
                  /etc/security/limits.conf";
    let finding = match limit {
        ..FILE_COUNT_MIN => Finding::error("open-files", found, remedy),
        FILE_COUNT_MIN..FILE_COUNT_GOOD => Finding::warning("open-files", found, remedy),
        _ => Finding::ok("open-files", found),
    };
    finding.value("limit_count", limit)
}

fn locked_memory(limit: Option<u64>) -> Finding {
    let limit = limit.map_or("any amount".to_owned(), units::size_text);
    Finding::ok("locked-memory", format!("{limit} may be locked; lanefs locks none"))
}

/// Whether an ordinary user's mount may be used by others.
fn other_users(fuse_conf: Option<&str>) -> Finding {
    let mut lines = fuse_conf.unwrap_or_default().lines();
    if lines.any(|line| line.trim() == "user_allow_other") {
        return Finding::ok("allow-other", "mounts of this user can be opened to others");
    }
    let remedy = format!("for `-o allow_other`: the line user_allow_other in {FUSE_CONF}");
    Finding::note("allow-other", "mounts of this user are for this user alone").remedy(remedy)
}

fn namespaces(max: Option<&str>) -> Finding {
    match max.and_then(|text| text.trim_end().parse::<u64>().ok()) {
        Some(0) => Finding::note("user-namespaces", "there are none for this user")
            .remedy("only for rootless containers: `sysctl user.max_user_namespaces=15000`"),
        Some(count) => Finding::ok("user-namespaces", format!("up to {count} are allowed")),
        None => Finding::note("user-namespaces", format!("{NAMESPACES} cannot be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn a_small_limit_of_open_files_is_named_with_its_remedy() {
        for (limit, severity) in [
            (Some(64), Severity::Error),
            (Some(1024), Severity::Warning),
            (Some(20_000), Severity::Ok),
            (None, Severity::Ok),
        ] {
            let finding = open_files(limit);
            assert_eq!(finding.severity, severity, "{finding}");
            let has_remedy = finding.remedy.is_some_and(|remedy| remedy.contains("ulimit"));
            assert_eq!(has_remedy, severity > Severity::Note);
        }
        assert!(open_files(Some(64)).found.contains("64 files"));
    }

    #[test]
    fn an_obstacle_to_mounting_is_the_remedy() {
        let finding = mounting(Some("no /dev/fuse: load it".to_owned()));
        assert_eq!(
            (finding.severity, finding.remedy.as_deref()),
            (Severity::Warning, Some("no /dev/fuse: load it"))
        );
        assert_eq!(mounting(None).severity, Severity::Ok);
    }

    #[test]
    fn fuse_conf_counts_only_outside_comments() {
        assert_eq!(other_users(Some("# user_allow_other\n")).severity, Severity::Note);
        assert_eq!(other_users(Some("mount_max = 9\nuser_allow_other\n")).severity, Severity::Ok);
        assert_eq!(other_users(None).severity, Severity::Note);
    }

    #[test]
    fn namespaces_are_counted() {
        assert_eq!(namespaces(Some("0\n")).severity, Severity::Note);
        assert_eq!(namespaces(Some("7866\n")).severity, Severity::Ok);
        assert_eq!(namespaces(None).severity, Severity::Note);
    }
}
