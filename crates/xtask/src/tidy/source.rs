//! Rules on source text: the head of a file, its length, names, and the places of `unsafe`.
//!
//! It reads lines, not syntax: comments and string contents are blanked first.

use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};

/// Crates without the standard library.
pub(crate) const CORES: [&str; 8] =
    ["wire", "disk", "interface", "meta", "data", "lane", "client", "fuse"];

/// Lines of a file without its tests.
const FILE_LINE_COUNT_MAX: usize = 600;

/// Names that describe no job.
const BANNED: [&str; 14] = [
    "manager", "managers", "helper", "helpers", "util", "utils", "common", "misc", "base", "impl",
    "info", "service", "handler", "handlers",
];

/// Verbs that describe nothing.
const BANNED_VERBS: [&str; 3] = ["handle", "process", "do"];

/// Functions whose `handle` is the noun, a file handle.
const NOUNS: [&str; 2] = ["handle", "handle_lane"];

/// Crates that may contain unsafe code.
fn may_be_unsafe(folder: &str) -> bool {
    folder == "ring" || folder.starts_with("bind-")
}

/// Checks all sources of `crates/<folder>`.
pub(crate) fn check_crate(root: &Path, folder: &str, faults: &mut Vec<String>) -> Result<()> {
    let home = root.join("crates").join(folder);
    let mut files = Vec::new();
    rust_files(&home, &mut files)?;
    for path in &files {
        let text = fs::read_to_string(path)?;
        let shown = path.strip_prefix(root).unwrap_or(path).display().to_string();
        check_file(&shown, &text, may_be_unsafe(folder), faults);
    }
    let lib = fs::read_to_string(home.join("src/lib.rs")).unwrap_or_default();
    if CORES.contains(&folder) {
        for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            if !lib.lines().any(|line| line == attribute) {
                faults.push(format!("crates/{folder}/src/lib.rs: a core has {attribute}"));
            }
        }
    }
    Ok(())
}

pub(super) fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

fn check_file(shown: &str, text: &str, unsafe_allowed: bool, faults: &mut Vec<String>) {
    if !text.starts_with("//!") {
        faults.push(format!("{shown}: does not open with `//!`"));
    }
    let is_test = shown.contains("/tests/") || shown.ends_with("/tests.rs");
    let line_count = lines_without_tests(text);
    if !is_test && line_count > FILE_LINE_COUNT_MAX {
        faults.push(format!("{shown}: {line_count} lines, at most {FILE_LINE_COUNT_MAX}"));
    }
    let stem = shown.rsplit('/').next().unwrap_or(shown).trim_end_matches(".rs");
    if let Some(word) = banned_word(stem) {
        faults.push(format!("{shown}: a file named {word} names no job"));
    }
    let code = blanked(text);
    for (index, line) in code.lines().enumerate() {
        let line_no = index + 1;
        for name in declared(line) {
            if let Some(word) = banned_word(name) {
                faults.push(format!("{shown}:{line_no}: {name}: {word} names no job"));
            }
        }
        if let Some(name) = after_word(line, "fn").and_then(first_name)
            && is_empty_verb(name)
        {
            faults.push(format!("{shown}:{line_no}: fn {name}: say what it does"));
        }
        if !unsafe_allowed && after_word(line, "unsafe").is_some() {
            faults.push(format!("{shown}:{line_no}: unsafe outside ring and bind-*"));
        }
    }
}

fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| {
        pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    });
    tests.unwrap_or(lines.len())
}

/// The text with comments and string contents replaced by spaces, line by line.
pub(super) fn blanked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if character == '"' {
            string_end(rest)
        } else if let Some(raw) = raw_string_end(rest) {
            raw
        } else if rest.starts_with("'\"'") {
            3
        } else {
            out.push(character);
            rest = &rest[character.len_utf8()..];
            continue;
        };
        out.extend(rest[..skipped].chars().map(|one| if one == '\n' { '\n' } else { ' ' }));
        rest = &rest[skipped..];
    }
    out
}

fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (index, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return index + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw_string_end(text: &str) -> Option<usize> {
    let behind = text.strip_prefix("r").or_else(|| text.strip_prefix("br"))?;
    let hashes = behind.len() - behind.trim_start_matches('#').len();
    if !behind[hashes..].starts_with('"') {
        return None;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let open_bytes = text.len() - behind.len() + hashes + 1;
    let end = text[open_bytes..].find(&close)?;
    Some(open_bytes + end + close.len())
}

/// Names that a line declares.
fn declared(line: &str) -> impl Iterator<Item = &str> {
    let words = ["fn", "struct", "enum", "trait", "mod", "type", "const", "static"];
    words.into_iter().filter_map(|word| after_word(line, word).and_then(first_name))
}

/// The text behind `word`, if that is a whole word.
fn after_word<'l>(line: &'l str, word: &str) -> Option<&'l str> {
    let mut from = 0;
    while let Some(found) = line[from..].find(word) {
        let start = from + found;
        let end = start + word.len();
        let free = |character: Option<char>| {
            character.is_none_or(|one| !one.is_alphanumeric() && one != '_')
        };
        if free(line[..start].chars().next_back()) && free(line[end..].chars().next()) {
            return Some(&line[end..]);
        }
        from = end;
    }
    None
}

fn first_name(text: &str) -> Option<&str> {
    let text = text.strip_prefix(' ')?;
    let end = text.find(|character: char| !character.is_alphanumeric() && character != '_');
    let name = &text[..end.unwrap_or(text.len())];
    (!name.is_empty()).then_some(name)
}

/// The first banned word of a name in snake or camel case.
fn banned_word(name: &str) -> Option<&'static str> {
    let mut words = vec![String::new()];
    for character in name.chars() {
        if character == '_' || character == '-' || character.is_uppercase() {
            words.push(String::new());
        }
        if character.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(character.to_lowercase());
        }
    }
    let whole = name.to_lowercase();
    words.extend(whole.split('_').map(ToOwned::to_owned));
    BANNED.into_iter().find(|banned| words.iter().any(|word| word == banned))
}

fn is_empty_verb(name: &str) -> bool {
    let first = name.split('_').next().unwrap_or(name);
    BANNED_VERBS.contains(&first) && !NOUNS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check_file("crates/x/src/y.rs", text, false, &mut faults);
        faults
    }

    #[test]
    fn a_clean_file_has_no_faults() {
        let text = "//! Its job.\nimpl X { fn apply(&self) { let s = \"unsafe { }\"; } }\n";
        assert_eq!(faults(text), Vec::<String>::new());
    }

    #[test]
    fn each_rule_is_found() {
        assert!(faults("fn a() {}\n")[0].contains("open with"));
        assert!(faults("//! x\nfn x() { unsafe { y() } }\n")[0].contains("unsafe"));
        assert!(faults("//! x\nstruct LaneManager;\n")[0].contains("manager"));
        assert!(faults("//! x\nfn process_frame() {}\n")[0].contains("say what it does"));
        assert!(faults(&format!("//! x\n{}", "\n".repeat(600)))[0].contains("601 lines"));
    }

    #[test]
    fn comments_strings_and_raw_strings_are_blanked() {
        let text = "a // unsafe\n\"fn \\\" handle\" b r#\"fn do\"x\"# c";
        let rest: String = blanked(text).split_whitespace().collect();
        assert_eq!(rest, "abc");
    }

    #[test]
    fn tests_do_not_count_as_lines() {
        let text = "//! x\n#[cfg(test)]\nmod tests {\n\n\n}\n";
        assert_eq!(lines_without_tests(text), 1);
    }
}
