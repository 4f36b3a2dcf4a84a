//! pjdfstest (the crate): what each call answers and changes, for root and for others.

use super::outcome::{Results, Verdict};
use super::stand::{self, Stand};
use super::tools;
use anyhow::{Result, bail};
use std::fs;
use std::process::Command;

const SECONDS_MAX: u64 = 300;

/// Two users that every Debian has, all that Linux and we support, and naps longer than the grain of our times.
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

/// Runs all tests on the first mount. The file system of the build is the other one, for EXDEV.
pub(crate) fn run(stand: &mut Stand) -> Result<Results> {
    let (config, other) = (stand.beside("pjdfstest.toml"), stand.beside("other"));
    fs::write(&config, CONFIG)?;
    fs::create_dir_all(&other)?;
    let mut command = Command::new(tools::path("pjdfstest"));
    command.arg("--configuration-file").arg(&config).arg("--secondary-fs").arg(&other);
    command.arg("--path").arg(stand.first());
    let ended = stand::ended(&command, SECONDS_MAX, &stand.beside("pjdfstest.log"))?;
    let results = parse(&ended.said);
    let total = total(&ended.said);
    if total != Some(results.count()) {
        stand::show("pjdfstest", &ended.said);
        bail!("it says {total:?} tests in all, but {} were heard of", results.count());
    }
    for line in ended.said.lines().skip_while(|line| verdict(line).is_none()) {
        let about_failure = line.starts_with(char::is_whitespace) || line.ends_with("FAILED");
        if about_failure && !line.contains("(allow_remount)") {
            println!("{line}");
        }
    }
    Ok(results)
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

fn parse(said: &str) -> Results {
    let mut results = Results::default();
    for (name, verdict) in said.lines().filter_map(verdict) {
        results.add(name, verdict);
    }
    results
}

/// `Summary: 1 failed, 14 skipped, 383 passed, 0 expected failures, 398 total`.
fn total(said: &str) -> Option<usize> {
    let summary = said.lines().rev().find_map(|line| line.strip_prefix("Summary: "))?;
    summary.strip_suffix(" total")?.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
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
        let results = parse(SAID);
        assert_eq!(results.summary(), "3 tests: 1 passed, 1 failed, 1 not run");
        assert_eq!(total(SAID), Some(3));
        let list = "pjdfstest chmod::erofs_named unrun a reason\n\
                    pjdfstest mknod::device_files::block fails a reason";
        let list = Excluded::parse(list).unwrap();
        let lines: Vec<_> = list.of("pjdfstest").collect();
        assert_eq!(faults(&results, &lines), Vec::<String>::new());
    }

    #[test]
    fn a_run_that_was_cut_short_has_no_total() {
        assert_eq!(total("open::x    ok\n"), None);
        assert_eq!(total("Summary: gone\n"), None);
    }
}
