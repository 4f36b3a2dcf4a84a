//! Rules on words: metaphors that earlier versions used for the field's terms do not come back.
//!
//! A few lines may have one in its plain meaning. Invariant: every line that has one is named.

use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The words, in lower case.
const WORDS: &str = "letter letters knock knocks knocked dice somebody whoever sister \
     sisters greeting greetings appetite gone neighbour neighbours door doors room rooms";

/// Lines with one of them in all tracked files, this one included.
const LINE_COUNT_MAX: usize = 20;

/// Checks all tracked text files.
pub(super) fn check(root: &Path, faults: &mut Vec<String>) -> Result<()> {
    let mut found = Vec::new();
    for path in tracked(root)? {
        // A file that is not text, or was removed and not committed yet.
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        found.extend(lines(&text).map(|(line_no, word)| format!("{path}:{line_no}: {word}")));
    }
    faults.extend(verdict(&found, LINE_COUNT_MAX));
    Ok(())
}

/// The paths of all tracked files.
pub(super) fn tracked(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git").arg("-C").arg(root).args(["ls-files", "-z"]).output();
    let output = output.context("cannot run git")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let paths = String::from_utf8(output.stdout)?;
    Ok(paths.split_terminator('\0').map(str::to_owned).collect())
}

/// The lines with one of the words, from 1, and the first of the words in each.
fn lines(text: &str) -> impl Iterator<Item = (usize, String)> {
    let of_line = |line: &str| {
        let words = line.split(|at: char| !(at.is_ascii_alphanumeric() || at == '_'));
        let mut words = words.map(str::to_ascii_lowercase);
        words.find(|word| !word.is_empty() && WORDS.split(' ').any(|banned| banned == word))
    };
    text.lines().enumerate().filter_map(move |(index, line)| Some((index + 1, of_line(line)?)))
}

fn verdict(found: &[String], line_count_max: usize) -> Option<String> {
    let is_over = found.len() > line_count_max;
    is_over.then(|| {
        let (count, list) = (found.len(), found.join("\n    "));
        format!("{count} lines with words of STYLE's list, at most {line_count_max}:\n    {list}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_whole_and_in_any_case() {
        let text = "indices\nThe Door, and a room\nmushroom, door_no\n(gone)";
        let found: Vec<_> = lines(text).collect();
        assert_eq!(found, [(2, "door".to_owned()), (4, "gone".to_owned())]);
    }

    #[test]
    fn more_lines_than_the_bound_are_named() {
        let found = ["a.rs:1: gone".to_owned(), "b.md:7: room".to_owned()];
        assert_eq!(verdict(&found, 2), None);
        let fault = verdict(&found, 1).unwrap_or_default();
        assert!(fault.contains("a.rs:1: gone") && fault.contains("b.md:7: room"), "{fault}");
    }
}
