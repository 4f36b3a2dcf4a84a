//! One step: a program, its output, and its end.
//!
//! Every line of output is printed with the step's name, because two steps print at the same time,
//! and is stored in `target/ci/STEP.log`.

use crate::run::{ended_after, ended_with_us, target_dir};
use anyhow::{Context as _, Result, bail};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Limit of a step: one that never ends must not hide the results of the others.
const SECONDS_MAX: u64 = 75 * 60;

/// The file to which tests append a line for each skipped part.
const SKIPPED_FILE: &str = "LANEFS_SKIPPED_FILE";

/// How many of the last lines of output a step remembers, and how many characters of each.
const LINE_COUNT: usize = 40;
const LINE_LENGTH_MAX: usize = 300;

/// A program, and the steps that must succeed before it.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// Names of steps of any track.
    pub(crate) after: &'static [&'static str],
    command: Command,
}

/// The result of a step.
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) elapsed: Duration,
    /// Why it failed.
    pub(crate) failure: Option<String>,
    /// What it skipped, and why.
    pub(crate) left_out: Vec<String>,
    /// The tests that it ran.
    pub(crate) tests: Vec<TestRun>,
    /// The last line of the test runner.
    pub(crate) closing_line: Option<String>,
    /// The last lines of output.
    pub(crate) last_lines: VecDeque<String>,
}

/// A test and its duration.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TestRun {
    pub(crate) name: String,
    pub(crate) seconds: f64,
    pub(crate) passed: bool,
}

impl Step {
    /// A step that needs no other one.
    pub(crate) const fn new(name: &'static str, command: Command) -> Self {
        Self { name, after: &[], command }
    }

    /// The same, to be run only after these have succeeded.
    pub(crate) const fn after(mut self, names: &'static [&'static str]) -> Self {
        self.after = names;
        self
    }

    /// The same with the lowest priority: a computing step leaves the CPUs to a step that waits for
    /// a file system, whose waits would become longer otherwise.
    pub(crate) fn at_low_priority(mut self) -> Self {
        let mut nice = Command::new("nice");
        nice.args(["-n", "19"]).arg(self.command.get_program()).args(self.command.get_args());
        if let Some(dir) = self.command.get_current_dir() {
            nice.current_dir(dir);
        }
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => nice.env(name, value),
                None => nice.env_remove(name),
            };
        }
        self.command = nice;
        self
    }

    /// One more argument for its program.
    pub(crate) fn argument(&mut self, text: &str) {
        self.command.arg(text);
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Outcome {
        let started = Instant::now();
        let mut outcome = Outcome::of_name(self.name);
        if let Err(error) = self.run_into(&mut outcome) {
            outcome.failure = Some(format!("{error:#}"));
        }
        outcome.elapsed = started.elapsed();
        outcome
    }

    fn run_into(&self, outcome: &mut Outcome) -> Result<()> {
        let (log_path, skipped_path) = (self.file("log")?, self.file("skipped")?);
        let mut log = File::create(&log_path).with_context(|| log_path.display().to_string())?;
        File::create(&skipped_path).with_context(|| skipped_path.display().to_string())?;
        let mut command = ended_with_us(&ended_after(SECONDS_MAX, &self.command));
        command.env(SKIPPED_FILE, &skipped_path);
        let (reader, writer) = io::pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        // The pipe ends when no process has its writing end open.
        drop(command);
        for line in BufReader::new(reader).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            writeln!(log, "{line}")?;
            writeln!(io::stdout().lock(), "{} | {line}", self.name)?;
            outcome.read_line(&line);
        }
        let status = child.wait()?;
        let skipped = fs::read_to_string(&skipped_path)?;
        outcome.left_out.extend(skipped.lines().map(ToOwned::to_owned));
        if !status.success() {
            bail!("{status}, see {}", log_path.display());
        }
        Ok(())
    }

    fn file(&self, extension: &str) -> Result<PathBuf> {
        let folder = target_dir().join("ci");
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(folder.join(self.name.replace([' ', ','], "-")).with_extension(extension))
    }
}

impl Outcome {
    /// A step that has said nothing yet.
    pub(crate) fn of_name(name: &'static str) -> Self {
        Self {
            name,
            elapsed: Duration::ZERO,
            failure: None,
            left_out: Vec::new(),
            tests: Vec::new(),
            closing_line: None,
            last_lines: VecDeque::new(),
        }
    }

    /// A step that was not run, because another one failed.
    pub(crate) fn not_run(name: &'static str, after: &str) -> Self {
        Self { failure: Some(format!("not run, because of {after:?}")), ..Self::of_name(name) }
    }

    /// The last lines of output that have, together, no more characters than this; at least one.
    pub(crate) fn end(&self, length_max: usize) -> impl Iterator<Item = &String> {
        let mut length = 0;
        let fits = |line: &&String| {
            length += line.chars().count();
            length <= length_max
        };
        let count = self.last_lines.iter().rev().take_while(fits).count().max(1);
        self.last_lines.iter().skip(self.last_lines.len().saturating_sub(count))
    }

    /// What it skipped, each line once: several tests may skip the same thing.
    pub(crate) fn left_out_once(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = Vec::new();
        for line in &self.left_out {
            if !lines.contains(&line.as_str()) {
                lines.push(line);
            }
        }
        lines
    }

    /// Takes in a line of output.
    pub(crate) fn read_line(&mut self, line: &str) {
        self.remember(line);
        let line = line.trim();
        if let Some((row, why)) = line.split_once("left out: ") {
            // A row of the crash tests: `ok    S16           0.0 s  left out: ...`.
            let name = row.split_whitespace().nth(1).map(|name| format!("{name}: "));
            self.left_out.push(format!("{}{why}", name.unwrap_or_default()));
        } else if line.starts_with("Summary [") {
            self.closing_line = Some(line.to_owned());
        } else if self.closing_line.is_none()
            && let Some(test) = TestRun::parse(line)
        {
            // Behind the summary, the test runner repeats what it has said.
            self.tests.push(test);
        }
    }

    fn remember(&mut self, line: &str) {
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        if self.last_lines.len() == LINE_COUNT {
            self.last_lines.pop_front();
        }
        self.last_lines.push_back(line.chars().take(LINE_LENGTH_MAX).collect());
    }
}

impl TestRun {
    /// A line of cargo-nextest: `PASS [   0.012s] ( 3/14) lanefs-wire::golden frames`.
    /// A verdict that is not known to be good is taken as bad: `FAIL`, `LEAK-FAIL`, `SIGBUS`, `XFAIL`.
    fn parse(line: &str) -> Option<Self> {
        let (verdict, rest) = line.split_once(" [")?;
        let is_verdict =
            |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || " +-/".contains(c);
        if !verdict.chars().all(is_verdict) {
            return None;
        }
        let passed = matches!(verdict, "PASS" | "LEAK" | "TIMEOUT-PASS");
        let (seconds, name) = rest.split_once("s] ")?;
        let name = name.split_once(") ").map_or(name, |(_, name)| name);
        // A test that is still running has `> 60.000` here.
        Some(Self { name: name.to_owned(), seconds: seconds.trim().parse().ok()?, passed })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_test_runner_has_name_time_and_verdict() {
        let run = TestRun::parse("PASS [   0.012s] ( 3/14) lanefs-wire::golden frames").unwrap();
        let name = "lanefs-wire::golden frames".to_owned();
        assert_eq!(run, TestRun { name, seconds: 0.012, passed: true });
        let run = TestRun::parse("FAIL [  12.500s] (14/14) lanefs::e2e idle::sleeps").unwrap();
        assert_eq!((run.passed, run.seconds), (false, 12.5));
        for verdict in ["LEAK-FAIL", "FAIL + LEAK", "TIMEOUT", "SIGBUS", "ABORT SIG 34", "XFAIL"] {
            let run = TestRun::parse(&format!("{verdict} [ 1.0s] (1/1) a b")).unwrap();
            assert!(!run.passed, "{verdict}");
        }
        assert!(TestRun::parse("LEAK [ 1.0s] (1/1) a b").unwrap().passed);
        assert_eq!(TestRun::parse("SLOW [> 60.000s] lanefs::e2e idle::sleeps"), None);
        assert_eq!(TestRun::parse("Summary [ 3.1s] 14 tests run: 14 passed, 2 skipped"), None);
    }

    #[test]
    fn a_step_reports_its_end_and_its_skipped_parts() {
        let script = |text: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", text]);
            command
        };
        let text = "echo 'left out: a: b'; echo 'ok  S3  0.0 s  left out: c'; \
                    echo d >>$LANEFS_SKIPPED_FILE";
        let outcome = Step::new("step test, green", script(text)).run();
        assert_eq!(outcome.failure, None);
        assert_eq!(outcome.left_out, ["a: b", "S3: c", "d"]);
        let outcome = Step::new("step test, red", script("echo x >&2; exit 3")).run();
        assert!(outcome.failure.unwrap().contains("exit status: 3"));
        assert_eq!(outcome.last_lines, ["x"]);
    }

    #[test]
    fn a_test_is_counted_once() {
        let mut outcome = Outcome::of_name("tests");
        let lines =
            ["  FAIL [ 1.0s] (1/1) a b", "Summary [ 1.0s] 1 failed", "  FAIL [ 1.0s] (1/1) a b"];
        lines.iter().for_each(|line| outcome.read_line(line));
        assert_eq!(outcome.tests.len(), 1);
    }

    #[test]
    fn the_last_lines_are_remembered_and_cut() {
        let mut outcome = Outcome::of_name("tests");
        (0..100).for_each(|n| outcome.read_line(&format!("{n} {}", "é".repeat(1_000))));
        let end: Vec<&String> = outcome.end(usize::MAX).collect();
        assert_eq!((end.len(), end[0].chars().count()), (LINE_COUNT, LINE_LENGTH_MAX));
        assert_eq!(outcome.end(2 * LINE_LENGTH_MAX + 1).count(), 2);
        assert!(outcome.end(0).all(|line| line.starts_with("99 ")));
    }
}
