//! fio: blocks with checksums, written in many ways, read at once and after a restart.

use super::outcome::{Results, Verdict};
use super::stand::{self, Ended, Stand};
use crate::run::root;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

const SECONDS_MAX: u64 = 600;

/// Writes and compares on the first mount; compares again after a restart on the second.
pub(crate) fn run(stand: &mut Stand) -> Result<Results> {
    let mut results = Results::default();
    let written = fio(stand, &stand.first(), "written", &[])?;
    collect("", &written, &mut results)?;
    stand.restart()?;
    let again = fio(stand, &stand.second(), "read-again", &["--verify_only"])?;
    collect("again/", &again, &mut results)?;
    Ok(results)
}

fn fio(stand: &Stand, dir: &Path, name: &str, more: &[&str]) -> Result<Ended> {
    let mut command = Command::new("fio");
    command.args(["--minimal", "--terse-version=3"]).args(more);
    command.arg(format!("--directory={}", dir.display()));
    command.arg(root().join("tests/posix/fio/contents.fio"));
    // fio writes files into its working directory.
    command.current_dir(stand.beside(""));
    stand::ended(&command, SECONDS_MAX, &stand.beside(&format!("{name}.log")))
}

fn collect(prefix: &str, ended: &Ended, results: &mut Results) -> Result<()> {
    let jobs = parse(&ended.output);
    let well = jobs.iter().all(|(_, verdict)| *verdict == Verdict::Passed);
    if ended.code != 0 || !well {
        stand::show("fio", &ended.output);
    }
    if jobs.is_empty() || (ended.code != 0 && well) {
        bail!("fio ended with exit code {} and reported {} jobs", ended.code, jobs.len());
    }
    for (name, verdict) in jobs {
        results.add(&format!("{prefix}{name}"), verdict);
    }
    Ok(())
}

/// `3;fio-3.33;NAME;GROUP;ERROR;...`, a line a job.
fn parse(output: &str) -> Vec<(&str, Verdict)> {
    let mut jobs = Vec::new();
    for line in output.lines() {
        let mut fields = line.split(';');
        let (Some("3"), Some(version)) = (fields.next(), fields.next()) else { continue };
        let (Some(name), Some(_), Some(error)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if version.starts_with("fio-") {
            let verdict = if error == "0" { Verdict::Passed } else { Verdict::Failed };
            jobs.push((name, verdict));
        }
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_s_line_has_its_error() {
        let output = "note: both iodepth >= 1 and synchronous I/O engine are selected\n\
                    3;fio-3.33;mapped-random;0;0;4096;65536\n\
                    verify: bad header rand_seed 1, wanted 2 at file x offset 0, length 4096\n\
                    3;fio-3.33;any-size;1;84;0;0\n";
        let (passed, failed) = (Verdict::Passed, Verdict::Failed);
        assert_eq!(parse(output), [("mapped-random", passed), ("any-size", failed)]);
        assert_eq!(parse("fio: failed parsing\n"), []);
    }
}
