//! Commands of README, for those who do what it says: a test on this machine, and `cargo xtask debian` in a fresh
//! system.

/// The fenced blocks of a section, line by line; `None` if there is no such section.
pub(crate) fn blocks(text: &str, section: &str) -> Option<Vec<Vec<String>>> {
    let (_, section) = text.split_once(&format!("\n## {section}\n"))?;
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let blocks = section.split("```\n").skip(1).step_by(2);
    Some(blocks.map(|block| block.lines().map(str::to_owned).collect()).collect())
}
