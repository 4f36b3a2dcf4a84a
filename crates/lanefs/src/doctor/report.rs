//! A report to attach to a bug report: versions, findings, mounts, processes and the ends of their logs.
//!
//! Invariant: no file of a secret or key is read for it, and what could be one is taken out of the text: long
//! hexadecimal numbers and PEM blocks. The home directory is `~`.

use super::finding::{Finding, Summary};
use super::leftovers::dead_ones;
use crate::args;
use crate::running::Registered;
use jiff::Timestamp;
use ring::Mounted;
use rustix::fs::{Mode, OFlags, open};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;

/// The end of each log that is shown.
const LOG_BYTES: u64 = 16 << 10;
const LOG_LINE_COUNT: usize = 60;
/// So many hexadecimal digits in a row may be a secret or a key.
const DIGIT_COUNT_MIN: usize = 32;

/// What goes into a report.
pub(super) struct Report<'a> {
    pub(super) findings: &'a [Finding],
    pub(super) table: &'a [Mounted],
    pub(super) registered: &'a [Registered],
}

impl Report<'_> {
    /// Its text, in Markdown.
    pub(super) fn text(&self) -> String {
        let home = std::env::home_dir().map(|home| home.display().to_string());
        let text = self.write().unwrap_or_else(|_| "a report cannot be written".to_owned());
        redacted(&text, home.as_deref().filter(|home| home.len() > 1))
    }

    fn write(&self) -> Result<String, std::fmt::Error> {
        let mut to = String::new();
        writeln!(to, "# lanefs doctor\n")?;
        writeln!(to, "- lanefs {}", args::VERSION)?;
        writeln!(to, "- Linux {}, {}", super::text::release(), std::env::consts::ARCH)?;
        writeln!(to, "- {}", Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC"))?;
        writeln!(to, "- {}\n\n## Findings\n```", Summary::of(self.findings))?;
        for finding in self.findings {
            writeln!(to, "{finding}")?;
        }
        writeln!(to, "```\n\n## Mounts\n```")?;
        for mounted in self.table.iter().filter(|mounted| mounted.is_lanefs()) {
            writeln!(to, "{} {} {}", mounted.fs_type, mounted.point.display(), mounted.options)?;
        }
        writeln!(to, "```\n\n## Processes\n```")?;
        let living = self.registered.iter().filter(|it| !it.is_dead);
        let shown: Vec<&Registered> = living.chain(dead_ones(self.registered).0).collect();
        for Registered { entry, is_dead, .. } in &shown {
            let state = if *is_dead { "dead" } else { "running" };
            let entry = serde_json::to_string(entry).unwrap_or_default();
            writeln!(to, "{state} {entry}")?;
        }
        writeln!(to, "```")?;
        for Registered { entry, owner_id, .. } in shown {
            let Some(log) = &entry.log else { continue };
            writeln!(to, "\n## The end of {log}\n```")?;
            match tail(log, *owner_id) {
                Ok(lines) => write!(to, "{lines}")?,
                Err(error) => writeln!(to, "it cannot be read: {error}")?,
            }
            writeln!(to, "```")?;
        }
        Ok(to)
    }
}

/// The last lines of a log. A file of another user than its process's is none.
fn tail(log: &str, owner_id: u32) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(open(log, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != owner_id {
        return Err(io::Error::other("it is not a file of the process's user"));
    }
    file.seek(SeekFrom::Start(metadata.len().saturating_sub(LOG_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LOG_LINE_COUNT)..];
    Ok(last.iter().map(|line| format!("{line}\n")).collect())
}

/// A text without what may be secret.
fn redacted(text: &str, home: Option<&str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_block = false;
    for line in text.lines() {
        let begins = line.contains("-----BEGIN ");
        if begins {
            out.push_str("[PEM block]\n");
        }
        in_block = (in_block || begins) && !line.contains("-----END ");
        if in_block || line.contains("-----END ") {
            continue;
        }
        let line = home.map_or_else(|| line.to_owned(), |home| line.replace(home, "~"));
        without_digits(&line, &mut out);
        out.push('\n');
    }
    out
}

/// Long hexadecimal numbers, also as parts of words, become `[hex]`.
fn without_digits(line: &str, out: &mut String) {
    let mut rest = line;
    while let Some(start) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let digits = &rest[start..];
        let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        out.push_str(&rest[..start]);
        out.push_str(if end < DIGIT_COUNT_MIN { &digits[..end] } else { "[hex]" });
        rest = &digits[end..];
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::running::{Entry, Kind};

    #[test]
    fn what_may_be_a_secret_is_taken_out() {
        let secret = "0123456789abcdefABCDEF0123456789".repeat(2);
        let text = format!(
            "key={secret}, and export:{secret}\n\
             -----BEGIN PRIVATE KEY-----\nMC4CAQAw\n-----END PRIVATE KEY-----\n\
             /home/me/store has 1234 files, commit 88e5475cabcd\nx -----BEGIN A----- {secret} -----END A-----"
        );
        assert_eq!(
            redacted(&text, Some("/home/me")),
            "key=[hex], and export:[hex]\n[PEM block]\n~/store has 1234 files, commit 88e5475cabcd\n\
             [PEM block]\n"
        );
        assert_eq!(redacted("café 7\n", None), "café 7\n");
    }

    #[test]
    fn the_end_of_a_log_is_shown_if_it_is_the_user_s_own() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let lines: String = (0..5000).map(|count| format!("line {count}\n")).collect();
        std::fs::write(&log, lines).unwrap();
        let owner_id = log.metadata().unwrap().uid();
        let shown = tail(log.to_str().unwrap(), owner_id).unwrap();
        assert_eq!(shown.lines().count(), LOG_LINE_COUNT);
        assert!(shown.ends_with("line 4999\n"));
        assert!(tail(log.to_str().unwrap(), owner_id + 1).is_err());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&log, &link).unwrap();
        assert!(tail(link.to_str().unwrap(), owner_id).is_err());
        assert!(tail("/dev/null", 0).is_err());
    }

    #[test]
    fn a_report_has_versions_findings_mounts_and_processes() {
        let findings = [Finding::warning("flush", "takes 30 ms", "another disk")];
        let table = [Mounted {
            point: "/mnt".into(),
            device: "0:9".to_owned(),
            fs_type: "fuse.lanefs".to_owned(),
            options: "rw,nosuid".to_owned(),
        }];
        let entry =
            Entry { address: Some("127.0.0.1:7117".to_owned()), ..Entry::of(Kind::Serve, None) };
        let changed = std::time::SystemTime::UNIX_EPOCH;
        let registered = [Registered { entry, is_dead: true, owner_id: 0, changed }];
        let text = Report { findings: &findings, table: &table, registered: &registered }.text();
        for part in [
            args::VERSION,
            "1 warnings",
            "takes 30 ms\n         remedy: another disk",
            "fuse.lanefs /mnt rw,nosuid",
            "dead {\"kind\":\"serve\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
