//! The rules and sections of `docs/protocol.md`: each has a number of its own, and every rule that
//! a tracked file names is there.

use super::words::tracked;
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PROTOCOL: &str = "docs/protocol.md";

/// Checks the document, and what all tracked text files name.
pub(super) fn check(root: &Path, faults: &mut Vec<String>) -> Result<()> {
    let text = fs::read_to_string(root.join(PROTOCOL)).context(PROTOCOL)?;
    let rules = numbers(&text, faults);
    for path in tracked(root)? {
        // A file that is not text, or was removed and not committed yet.
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        let unknown = named(&text).filter(|rule| !rules.contains(rule));
        faults.extend(unknown.map(|rule| format!("{path}: {rule} is no rule of {PROTOCOL}")));
    }
    Ok(())
}

/// The numbers of the rules.
fn numbers<'a>(text: &'a str, faults: &mut Vec<String>) -> BTreeSet<&'a str> {
    let (mut rules, mut sections) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        let first = |line: &'a str| line.split([' ', '*']).next().unwrap_or_default();
        let is_new = if let Some(rule) = line.strip_prefix("**R") {
            rules.insert(&line[2..2 + 1 + first(rule).len()])
        } else if line.starts_with('#') {
            let number = first(line.trim_start_matches(['#', ' ']));
            !number.starts_with(|at: char| at.is_ascii_digit()) || sections.insert(number)
        } else {
            true
        };
        if !is_new {
            faults.push(format!("{PROTOCOL}: another one has the number of \"{line}\""));
        }
    }
    rules
}

/// The rules that a text names: R, the section, a point, the number.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|at: char| !(at.is_ascii_alphanumeric() || at == '.' || at == '_'));
    words.map(|word| word.trim_end_matches('.')).filter(|word| {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|at| at.is_ascii_digit());
        let parts = word.strip_prefix('R').and_then(|number| number.split_once('.'));
        parts.is_some_and(|(section, number)| digits(section) && digits(number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_found_in_prose() {
        let text = "as R3.1, (R13.31 to R13.38). It is no rule: R20.x, RR1.2, R3, R_1.2, R1.2.3";
        assert_eq!(named(text).collect::<Vec<_>>(), ["R3.1", "R13.31", "R13.38"]);
    }

    #[test]
    fn a_number_that_is_given_twice_is_found() {
        let mut faults = Vec::new();
        let rules = numbers("## 3 a\n### 3.1 b\n**R3.1 A** R3.9\n**R3.2** c", &mut faults);
        assert_eq!(rules.into_iter().collect::<Vec<_>>(), ["R3.1", "R3.2"]);
        assert_eq!(faults, [""; 0]);
        numbers("### 3.1 b\n**R3.1 A**\n### 3.1 c\n**R3.1** d", &mut faults);
        assert_eq!(faults.len(), 2, "{faults:?}");
    }
}
