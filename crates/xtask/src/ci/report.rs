//! The report at the end of a run: skipped parts, the slowest tests, disk space, minutes of each
//! step, and at the very end what failed, so that the last lines alone say it.

use super::disk_use::DiskUse;
use super::step::{Outcome, TestRun};
use std::time::Duration;

/// How many of the slowest tests are named.
const SLOWEST_COUNT: usize = 10;

/// How many of the failed tests are named.
const FAILED_COUNT: usize = 30;

/// The most disk space that a run may take.
const DISK_GIB_MAX: f64 = 20.0;

/// The most characters of the output of all failed steps together.
const OUTPUT_LENGTH_MAX: usize = 6_000;

/// All outcomes of a run.
pub(crate) struct Report {
    pub(crate) outcomes: Vec<Outcome>,
    /// Parts for which there is no step.
    pub(crate) left_out: Vec<String>,
    pub(crate) roll: u64,
    pub(crate) elapsed: Duration,
}

impl Report {
    /// Steps that failed or were not run.
    pub(crate) fn failed_count(&self) -> usize {
        self.failed().count()
    }

    fn failed(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| outcome.failure.is_some())
    }

    /// Prints it.
    pub(crate) fn print(&self, disk_use: DiskUse) {
        println!();
        self.lines(disk_use.bytes_max()).iter().for_each(|line| println!("{line}"));
    }

    fn lines(&self, disk_bytes: Option<u64>) -> Vec<String> {
        let left_out = self.left_out_lines();
        let mut lines =
            vec![format!("left out: {}", if left_out.is_empty() { "nothing" } else { "" })];
        lines.extend(left_out.iter().map(|line| format!("  {line}")));
        lines.push("slowest tests".to_owned());
        for TestRun { name, seconds, .. } in self.slowest() {
            lines.push(format!("  {seconds:>6.1} s  {name}"));
        }
        lines.extend(disk_bytes.map(disk_line));
        lines.push(
            "steps, in the order of their ends; three tracks run beside each other".to_owned(),
        );
        for Outcome { name, elapsed, failure, closing_line, .. } in &self.outcomes {
            let end = failure.as_deref().or(closing_line.as_deref()).unwrap_or("ok");
            lines.push(format!("  {name:<18} {:>5.1} min  {end}", minutes(*elapsed)));
        }
        lines.extend(self.failed_lines());
        let failed_count = self.tests().filter(|test| !test.passed).count();
        let passed_count = self.tests().count() - failed_count;
        lines.push(format!(
            "{passed_count} passed, {failed_count} failed, {} left out; {} of {} steps failed; roll {}; \
             {:.1} min",
            self.left_out_count(),
            self.failed_count(),
            self.outcomes.len(),
            self.roll,
            minutes(self.elapsed)
        ));
        lines
    }

    /// The failed steps with the ends of their outputs, then the failed tests.
    fn failed_lines(&self) -> Vec<String> {
        let with_output = self.failed().filter(|outcome| !outcome.last_lines.is_empty()).count();
        let length_max = OUTPUT_LENGTH_MAX / with_output.max(1);
        let mut lines = Vec::new();
        for outcome in self.failed() {
            let failure = outcome.failure.as_deref().unwrap_or_default();
            lines.push(format!("failed step: {}: {failure}", outcome.name));
            lines.extend(outcome.end(length_max).map(|line| format!("  | {line}")));
        }
        let names: Vec<&str> =
            self.tests().filter(|test| !test.passed).map(|test| test.name.as_str()).collect();
        lines.extend(names.iter().take(FAILED_COUNT).map(|name| format!("failed: {name}")));
        if let Some(more) = names.len().checked_sub(FAILED_COUNT + 1) {
            lines.push(format!("failed: {} more", more + 1));
        }
        lines
    }

    fn tests(&self) -> impl Iterator<Item = &TestRun> {
        self.outcomes.iter().flat_map(|outcome| &outcome.tests)
    }

    fn slowest(&self) -> Vec<&TestRun> {
        let mut tests: Vec<&TestRun> = self.tests().collect();
        tests.sort_by(|one, two| two.seconds.total_cmp(&one.seconds));
        tests.truncate(SLOWEST_COUNT);
        tests
    }

    fn left_out_count(&self) -> usize {
        let of_steps: usize =
            self.outcomes.iter().map(|outcome| outcome.left_out_once().len()).sum();
        of_steps + self.left_out.len()
    }

    /// What each step skipped, with the parts of one reason in one line.
    fn left_out_lines(&self) -> Vec<String> {
        let of_steps = self.outcomes.iter().flat_map(|outcome| {
            let folded = folded(&outcome.left_out_once());
            folded.into_iter().map(move |line| format!("{}: {line}", outcome.name))
        });
        of_steps.chain(self.left_out.iter().cloned()).collect()
    }
}

/// Lines `WHAT: WHY` with one reason become `WHY: WHAT, WHAT`, each at its first line's place.
fn folded(lines: &[&str]) -> Vec<String> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in lines {
        let (what, why) = line.split_once(": ").unwrap_or((line, ""));
        match groups.iter_mut().find(|(known, _)| *known == why && !why.is_empty()) {
            Some((_, parts)) => parts.push(what),
            None => groups.push((why, vec![what])),
        }
    }
    let line = |(why, parts): (&str, Vec<&str>)| match parts[..] {
        [what] if why.is_empty() => what.to_owned(),
        [what] => format!("{what}: {why}"),
        _ => format!("{why}: {}", parts.join(", ")),
    };
    groups.into_iter().map(line).collect()
}

fn disk_line(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let gib = bytes as f64 / f64::from(1 << 30);
    let judged = if gib < DISK_GIB_MAX { "less" } else { "MORE" };
    format!("disk: {gib:.1} GiB at most, {judged} than {DISK_GIB_MAX} GiB")
}

fn minutes(elapsed: Duration) -> f64 {
    elapsed.as_secs_f64() / 60.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: Vec<Outcome>) -> Report {
        let left_out = vec!["without leases: fsx (long)".to_owned()];
        Report { outcomes, left_out, roll: 7, elapsed: Duration::from_secs(90) }
    }

    fn failed(name: &'static str, output: &[&str]) -> Outcome {
        let mut outcome = Outcome::of_name(name);
        output.iter().for_each(|line| outcome.read_line(line));
        outcome.failure = Some("exit status: 1".to_owned());
        outcome
    }

    #[test]
    fn what_failed_is_said_last() {
        let green = Outcome::of_name("fmt");
        let tests =
            failed("tests", &["FAIL [ 2.0s] (1/2) a b", "PASS [ 1.0s] (2/2) a c", "", "why"]);
        let lines =
            report(vec![green, tests, Outcome::not_run("crash", "build")]).lines(Some(1 << 30));
        let end = [
            "  fmt                  0.0 min  ok",
            "  tests                0.0 min  exit status: 1",
            "  crash                0.0 min  not run, because of \"build\"",
            "failed step: tests: exit status: 1",
            "  | FAIL [ 2.0s] (1/2) a b",
            "  | PASS [ 1.0s] (2/2) a c",
            "  | why",
            "failed step: crash: not run, because of \"build\"",
            "failed: a b",
            "1 passed, 1 failed, 1 left out; 2 of 3 steps failed; roll 7; 1.5 min",
        ];
        assert!(lines.ends_with(&end.map(str::to_owned)), "{lines:#?}");
        assert_eq!(lines[..2], ["left out: ", "  without leases: fsx (long)"]);
    }

    #[test]
    fn what_failed_is_short() {
        let names: Vec<String> =
            (0..500).map(|n| format!("FAIL [ 1.0s] ({n}/500) a {}", "é".repeat(400))).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let steps = ["fsx", "fio", "crash"].map(|name| failed(name, &names));
        let lines = report(steps.into()).failed_lines();
        let output = lines.iter().filter(|line| line.starts_with("  | "));
        let length: usize = output.map(|line| line.chars().count()).sum();
        assert!((5_000..7_000).contains(&length), "{length}");
        let named = lines.iter().filter(|line| line.starts_with("failed: "));
        assert_eq!(named.count(), FAILED_COUNT + 1);
        assert_eq!(lines.last().map(String::as_str), Some("failed: 1470 more"));
    }

    #[test]
    fn every_skipped_part_is_named_and_a_reason_only_once() {
        let mut sim = Outcome::of_name("sim");
        for line in ["a: at 1: x", "b: at 2", "c: at 1: x", "c: at 1: x", "d", "e"] {
            sim.left_out.push(line.to_owned());
        }
        let mut fsx = Outcome::of_name("fsx");
        fsx.left_out.push("a: at 2".to_owned());
        let report = report(vec![sim, fsx]);
        let lines = [
            "sim: at 1: x: a, c",
            "sim: b: at 2",
            "sim: d",
            "sim: e",
            "fsx: a: at 2",
            "without leases: fsx (long)",
        ];
        assert_eq!(report.left_out_lines(), lines);
        assert_eq!(report.left_out_count(), 7);
    }
}
