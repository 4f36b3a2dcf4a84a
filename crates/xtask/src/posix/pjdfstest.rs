//! pjdfstest (the crate): the result and the effect of each call, for root and for others.

use super::outcome::{Results, Verdict};
use super::stand::{self, Stand};
use super::tools;
use anyhow::{Context as _, Result, bail};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

const SECONDS_MAX: u64 = 600;

/// Two users of every Debian, all features of Linux, and sleeps longer than the granularity of our
/// timestamps.
const CONFIG: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]

[settings]
naptime = 0.02
"#;

/// The suite remounts with `mount`, which would look for a mount program of ours. FUSE closes files
/// asynchronously: until a removed one is closed, the kernel finds the mount busy.
const REMOUNT: &str = "\
#!/bin/sh
PATH=${PATH#*:}
for _ in 1 2 3 4 5 6 7 8 9; do
  mount --internal-only \"$@\" 2>/dev/null && exit
  sleep 0.1
done
exec mount --internal-only \"$@\"
";

/// The tests of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// All that need no remount.
    Most,
    /// Those that make the file system read-only. They run separately, because others leave files
    /// open, and no file system becomes read-only then.
    ReadOnly,
}

/// Runs all tests on the first mount. The file system of the build is the other one, for EXDEV.
pub(crate) fn run(stand: &mut Stand) -> Result<Results> {
    let (other, programs) = (stand.beside("other"), stand.beside("programs"));
    fs::create_dir_all(&other)?;
    fs::create_dir_all(&programs)?;
    fs::write(programs.join("mount"), REMOUNT)?;
    fs::set_permissions(programs.join("mount"), Permissions::from_mode(0o755))?;
    let mut results = Results::default();
    for part in [Part::Most, Part::ReadOnly] {
        let output = run_part(stand, part)?;
        for (name, verdict) in output.lines().filter_map(verdict) {
            if part == Part::ReadOnly || !needs_remount(name) {
                results.add(name, verdict);
            }
        }
    }
    Ok(results)
}

/// Runs some tests and returns the complete output.
fn run_part(stand: &Stand, part: Part) -> Result<String> {
    let name = format!("pjdfstest-{part:?}");
    let config = stand.beside(&format!("{name}.toml"));
    let remount = part == Part::ReadOnly;
    fs::write(&config, format!("{CONFIG}allow_remount = {remount}\n"))?;
    let mut command = Command::new(tools::path("pjdfstest"));
    command.arg("--configuration-file").arg(&config);
    command.arg("--secondary-fs").arg(stand.beside("other")).arg("--path").arg(stand.first());
    let path = std::env::var("PATH").context("PATH")?;
    command.env("PATH", format!("{}:{path}", stand.beside("programs").display()));
    if remount {
        command.arg("erofs");
    }
    let output = stand::ended(&command, SECONDS_MAX, &stand.beside(&format!("{name}.log")))?.output;
    let (seen, total) = (output.lines().filter_map(verdict).count(), total(&output));
    if total != Some(seen) {
        stand::show(&name, &output);
        bail!("it says {total:?} tests in all, but {seen} were seen of");
    }
    for line in output.lines() {
        if line.starts_with(char::is_whitespace) || line.ends_with("FAILED") {
            println!("{line}");
        }
    }
    Ok(output)
}

fn needs_remount(name: &str) -> bool {
    name.contains("::erofs_")
}

/// `open::enoent   FAILED`.
fn verdict(line: &str) -> Option<(&str, Verdict)> {
    let (name, outcome) = line.split_once(char::is_whitespace)?;
    let verdict = match outcome.trim() {
        "ok" => Verdict::Passed,
        "FAILED" => Verdict::Failed,
        "skipped" => Verdict::Unrun,
        _ => return None,
    };
    name.contains("::").then_some((name, verdict))
}

/// `Summary: 1 failed, 14 skipped, 383 passed, 0 expected failures, 398 total`.
fn total(output: &str) -> Option<usize> {
    let summary = output.lines().rev().find_map(|line| line.strip_prefix("Summary: "))?;
    summary.strip_suffix(" total")?.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::super::excluded::Excluded;
    use super::super::outcome::faults;
    use super::*;

    const SAID: &str = "\
chmod::erofs_named                                                       skipped
\tRemounts (allow_remount) are not allowed in the configuration file
mknod::device_files::block                                                FAILED
\tassertion failed: mknod(&file, argument, Mode::from_bits_truncate(mode),
        makedev(major_num, minor_num)).is_ok()
open::enoent_a_component_when_ocreat_open                                     ok

Summary: 1 failed, 1 skipped, 1 passed, 0 expected failures, 3 total
Error: Some tests have failed
";

    #[test]
    fn its_lines_are_read() {
        let mut results = Results::default();
        for (name, verdict) in SAID.lines().filter_map(verdict) {
            results.add(name, verdict);
        }
        assert_eq!(results.count(), 3);
        assert_eq!(results.summary(), "3 tests: 1 passed, 1 failed, 1 not run");
        assert_eq!(total(SAID), Some(3));
        let list = "pjdfstest chmod::erofs_named unrun a reason\n\
                    pjdfstest mknod::device_files::block fails a reason";
        let list = Excluded::parse(list).unwrap();
        let lines: Vec<_> = list.of("pjdfstest").collect();
        assert_eq!(faults(&results, &lines), Vec::<String>::new());
    }

    #[test]
    fn those_that_need_a_remount_are_known_by_name() {
        assert!(needs_remount("chown::lchown::erofs_named"));
        assert!(!needs_remount("rename::exdev_target_device"));
    }

    #[test]
    fn a_run_that_was_cut_short_has_no_total() {
        assert_eq!(total("open::x    ok\n"), None);
        assert_eq!(total("Summary: none\n"), None);
    }
}
