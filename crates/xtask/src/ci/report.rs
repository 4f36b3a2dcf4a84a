//! The report at the end of a run: minutes of each step, the slowest tests, disk space, skipped
//! parts.

use super::disk_use::DiskUse;
use super::step::{Outcome, TestRun};
use std::time::Duration;

/// How many of the slowest tests are named.
const SLOWEST_COUNT: usize = 10;

/// The most disk space that a run may take.
const DISK_GIB_MAX: f64 = 20.0;

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
        self.outcomes.iter().filter(|outcome| outcome.failure.is_some()).count()
    }

    /// Prints it.
    pub(crate) fn print(&self, disk_use: DiskUse) {
        println!("\nsteps, in the order of their ends; three tracks run beside each other");
        for Outcome { name, elapsed, failure, closing_line, .. } in &self.outcomes {
            let end = failure.as_deref().or(closing_line.as_deref()).unwrap_or("ok");
            println!("  {name:<18} {:>5.1} min  {end}", minutes(*elapsed));
        }
        println!("slowest tests");
        for TestRun { name, seconds, .. } in self.slowest() {
            println!("  {seconds:>6.1} s  {name}");
        }
        self.print_disk_use(disk_use);
        let left_out = self.all_left_out();
        println!("left out: {}", if left_out.is_empty() { "nothing" } else { "" });
        left_out.iter().for_each(|line| println!("  {line}"));
        for test in self.tests().filter(|test| !test.passed) {
            println!("failed: {}", test.name);
        }
        let failed_count = self.tests().filter(|test| !test.passed).count();
        let passed_count = self.tests().count() - failed_count;
        println!(
            "{passed_count} passed, {failed_count} failed, {} left out; {} of {} steps failed; roll {}; \
             {:.1} min",
            left_out.len(),
            self.failed_count(),
            self.outcomes.len(),
            self.roll,
            minutes(self.elapsed)
        );
    }

    fn print_disk_use(&self, disk_use: DiskUse) {
        let Some(bytes) = disk_use.bytes_max() else { return };
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let gib = bytes as f64 / f64::from(1 << 30);
        let judged = if gib < DISK_GIB_MAX { "less" } else { "MORE" };
        println!("disk: {gib:.1} GiB at most, {judged} than {DISK_GIB_MAX} GiB");
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

    /// Each line once: several tests may skip the same thing.
    fn all_left_out(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let of_steps = self.outcomes.iter().flat_map(|outcome| {
            outcome.left_out.iter().map(move |line| format!("{}: {line}", outcome.name))
        });
        for line in of_steps.chain(self.left_out.iter().cloned()) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }
}

fn minutes(elapsed: Duration) -> f64 {
    elapsed.as_secs_f64() / 60.0
}
