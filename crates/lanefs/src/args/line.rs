//! Parsing of the command line.

use super::{Cli, Command, expression, units};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser as _};
use std::ffi::OsString;

/// Reads a command line, the program's name first.
///
/// # Errors
/// The error, or the output of `--help` and `--version`.
pub(crate) fn parse(line: Vec<OsString>) -> Result<Cli, clap::Error> {
    let is_find = line.get(1).is_some_and(|command| command == "find");
    if !is_find {
        return Cli::try_parse_from(line).map_err(explained);
    }
    let (start, words) = line.split_at(2);
    let (left, expression) = expression::take(words.to_vec())
        .map_err(|why| Cli::command().error(ErrorKind::InvalidValue, why))?;
    let mut cli = Cli::try_parse_from(start.iter().chain(&left)).map_err(explained)?;
    if let Command::Find(find) = &mut cli.command {
        find.expression = expression;
    }
    Ok(cli)
}

/// The error for a renamed option names the new one.
fn explained(error: clap::Error) -> clap::Error {
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(unknown)) if error.kind() == ErrorKind::UnknownArgument => {
            unknown
        }
        _ => return error,
    };
    match units::renamed(unknown) {
        Some(line) => Cli::command().error(ErrorKind::UnknownArgument, line),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &[&str]) -> String {
        let line = std::iter::once("lanefs").chain(words.iter().copied()).map(OsString::from);
        parse(line.collect()).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn an_old_name_of_an_option_is_refused_with_the_new_one() {
        for (words, says) in [
            (
                "serve --store s --recovery-soft-ms 5",
                "there is no --recovery-soft-ms: it is --recovery-soft TIME",
            ),
            ("serve --store s --recovery-hard-ms=5", "it is --recovery-hard TIME"),
            ("serve --store s --log-bytes-max 5", "it is --log-max SIZE"),
            ("serve --store s --collect-ms 5", "it is --collect TIME"),
            ("serve --store s --segment-bytes 5", "it is --segment SIZE"),
            ("up d --spin-us 5", "it is --spin TIME"),
            ("bench echo --seconds 5", "it is --time TIME"),
            ("bench echo --piece-kib 5", "it is --piece SIZE"),
            ("cert ca d --days 5", "it is --valid TIME"),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            let line = said(&words);
            assert!(line.contains(says), "{words:?}: {line}");
        }
        assert!(said(&["serve", "--store", "s", "--frob"]).contains("--frob"));
    }

    #[test]
    fn sizes_and_times_need_what_they_need() {
        for (words, says) in [
            ("serve --store s --recovery-soft 5", "'5' has no unit"),
            ("mount h d --spin 50", "'50' has no unit"),
            ("ls lanefs://h --connect-timeout 5", "'5' has no unit"),
            ("export list h --connect-timeout 5", "'5' has no unit"),
            ("bench echo --time 0.5", "'0.5' is no time"),
            ("cert client d n --valid 7", "'7' has no unit"),
            ("mount h d --spin 2ms", "2ms is not from 0s to 1ms"),
            ("serve --store s --log-max 1M", "1M is not from 16MiB to 1TiB"),
            ("serve --store s --meta-memory 1.5M", "'1.5M' is no size"),
            ("serve --store s --listen 80", "names no host"),
            ("up d --listen :7998", "names no host"),
            ("bench echo --server 80", "names no host"),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            let line = said(&words);
            assert!(line.contains(says), "{words:?}: {line}");
        }
    }

    /// For every option: a number whose unit is in its option's name has no unit in its value.
    #[test]
    fn no_option_is_named_after_a_unit() {
        let units = ["ns", "us", "ms", "s", "seconds", "days", "bytes", "kib", "mib"];
        let mut commands = vec![Cli::command()];
        while let Some(command) = commands.pop() {
            for option in command.get_arguments().filter_map(clap::Arg::get_long) {
                let named = option.rsplit('-').next().is_some_and(|last| units.contains(&last));
                assert!(!named, "{} --{option}", command.get_name());
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }
}
