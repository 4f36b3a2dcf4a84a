//! The results of a suite's tests, compared with the list of those that may not pass.

use super::excluded::{Excuse, Line};
use std::collections::BTreeMap;

/// The result of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It ran without a failure.
    Passed,
    /// It ran with a failure.
    Failed,
    /// It did not run, or reported that it cannot run.
    Unrun,
}

/// All tests of a suite by name.
#[derive(Default, Debug)]
pub(crate) struct Results {
    verdicts: BTreeMap<String, Verdict>,
}

impl Results {
    /// If a test is reported twice, the worse result counts.
    pub(crate) fn add(&mut self, name: &str, verdict: Verdict) {
        let known = self.verdicts.entry(name.to_owned()).or_insert(verdict);
        if verdict != Verdict::Passed && *known != Verdict::Failed {
            *known = verdict;
        }
    }

    /// How many tests there are.
    pub(crate) fn count(&self) -> usize {
        self.verdicts.len()
    }

    /// One line.
    pub(crate) fn summary(&self) -> String {
        let count = |wanted| self.verdicts.values().filter(|verdict| **verdict == wanted).count();
        format!(
            "{} tests: {} passed, {} failed, {} not run",
            self.count(),
            count(Verdict::Passed),
            count(Verdict::Failed),
            count(Verdict::Unrun)
        )
    }
}

/// Tests that did not pass and are not listed, listed tests with another result, and listed tests
/// that do not exist.
pub(crate) fn faults(results: &Results, lines: &[&Line]) -> Vec<String> {
    let excuse = |name: &str| lines.iter().find(|line| line.name == name).map(|line| line.excuse);
    let mut faults = Vec::new();
    for (name, verdict) in &results.verdicts {
        let fault = match (verdict, excuse(name)) {
            (Verdict::Passed, None)
            | (Verdict::Failed, Some(Excuse::Fails))
            | (Verdict::Unrun, Some(Excuse::Unrun)) => continue,
            (Verdict::Failed, None) => "failed",
            (Verdict::Unrun, None) => "was not run",
            (Verdict::Passed, Some(_)) => "passed, but is excluded",
            (Verdict::Failed, Some(Excuse::Unrun)) => "failed, but is excluded as unrun",
            (Verdict::Unrun, Some(Excuse::Fails)) => "was not run, but is excluded as failing",
        };
        faults.push(format!("{name} {fault}"));
    }
    for line in lines {
        if !results.verdicts.contains_key(&line.name) {
            faults.push(format!("{} is excluded, but there is no such test", line.name));
        }
    }
    faults
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::super::excluded::Excluded;
    use super::*;

    fn found(list: &str, verdicts: &[(&str, Verdict)]) -> Vec<String> {
        let list = Excluded::parse(list).unwrap();
        let mut results = Results::default();
        for (name, verdict) in verdicts {
            results.add(name, *verdict);
        }
        faults(&results, &list.of("fsx").collect::<Vec<_>>())
    }

    #[test]
    fn only_listed_tests_may_fail() {
        let list =
            "fsx b fails reason enough\nfsx c unrun reason enough\nfio a fails of no concern";
        let (passed, failed, unrun) = (Verdict::Passed, Verdict::Failed, Verdict::Unrun);
        let as_listed = [("a", passed), ("b", failed), ("c", unrun)];
        assert_eq!(found(list, &as_listed), Vec::<String>::new());
        let otherwise = found(list, &[("a", failed), ("b", unrun), ("c", failed), ("d", unrun)]);
        assert_eq!(
            otherwise,
            [
                "a failed",
                "b was not run, but is excluded as failing",
                "c failed, but is excluded as unrun",
                "d was not run"
            ]
        );
    }

    #[test]
    fn passing_or_unknown_tests_must_leave_the_list() {
        let list = "fsx b fails reason enough\nfsx c unrun reason enough";
        assert_eq!(
            found(list, &[("b", Verdict::Passed)]),
            ["b passed, but is excluded", "c is excluded, but there is no such test"]
        );
    }

    #[test]
    fn a_test_that_failed_once_failed() {
        let mut results = Results::default();
        for verdict in [Verdict::Passed, Verdict::Failed, Verdict::Passed, Verdict::Unrun] {
            results.add("a", verdict);
        }
        assert_eq!(results.summary(), "1 tests: 0 passed, 1 failed, 0 not run");
    }
}
