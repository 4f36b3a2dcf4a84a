//! Options from a file: `/etc/lanefs/serve.toml` for `serve`, `/etc/lanefs/mount.toml` for `mount`, or
//! the file of `--config`.
//!
//! ```text
//! lanes = 4              lanefs serve  --lanes=4 --seal --export=a --export=b  the command line's own
//! seal = true      ──▶
//! export = ["a", "b"]
//! ```
//! Names and checks are those of the command line: each pair becomes arguments before the command line's
//! own. A pair that the command line repeats or contradicts is ignored, and so is one whose variable is set.
//! Invariant: an invalid pair is an error with file, line and the most similar name.

use crate::args::Cli;
use crate::args::units::renamed;
use crate::exit::Exit;
use anyhow::Result;
use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command, CommandFactory as _};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where a file is looked for when none is named.
const FOLDER: &str = "/etc/lanefs";
/// Commands that have one.
const COMMANDS: [&str; 2] = ["serve", "mount"];
/// Options that a file must not set.
const NOT_HERE: [&str; 2] = ["config", "help"];

/// One line of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pair {
    /// As on the command line, without dashes.
    pub(crate) name: String,
    /// As on the command line.
    arguments: Vec<String>,
    /// From 1.
    line_no: usize,
}

impl Pair {
    /// What it has for its name, if that is one thing.
    pub(crate) fn value(&self) -> Option<&str> {
        match self.arguments.as_slice() {
            [argument] => argument.split_once('=').map(|(_, value)| value),
            _ => None,
        }
    }

    /// Whether it is the same on whichever line.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        self.name == other.name && self.arguments == other.arguments
    }
}

/// The command line with the options of its file inserted before its own arguments.
pub(crate) fn apply(line: Vec<OsString>) -> Result<Vec<OsString>> {
    let Some(source) = Source::of(&line)? else { return Ok(line) };
    let pairs = source.read()?;
    let mut line = line.into_iter();
    let mut applied: Vec<OsString> = line.by_ref().take(2).collect();
    applied.extend(pairs.into_iter().flat_map(|pair| pair.arguments).map(OsString::from));
    applied.extend(line);
    Ok(applied)
}

/// The file of a command line.
#[derive(Debug)]
pub(crate) struct Source {
    line: Vec<OsString>,
    command: Command,
    /// Absolute: a process in the background is elsewhere.
    path: PathBuf,
}

impl Source {
    /// That of `line`, if its command has one and it is there, or is named.
    pub(crate) fn of(line: &[OsString]) -> Result<Option<Self>> {
        let name = line.get(1).and_then(|name| name.to_str());
        let Some(name) = name.filter(|name| COMMANDS.contains(name)) else { return Ok(None) };
        // `up` passes all options to its children.
        let is_child = is_named(line, "parent-pid");
        if is_child || options(line).any(|text| text == "--help" || text == "-h") {
            return Ok(None);
        }
        let path = match value_of(line, "config") {
            Some(named) => std::path::absolute(named)?,
            None => Path::new(FOLDER).join(format!("{name}.toml")),
        };
        if !is_named(line, "config") && !path.exists() {
            return Ok(None);
        }
        let mut cli = Cli::command();
        cli.build();
        let command = cli.find_subcommand(name).cloned();
        Ok(command.map(|command| Self { line: line.to_vec(), command, path }))
    }

    /// Its pairs, except those that the command line overrides.
    pub(crate) fn read(&self) -> Result<Vec<Pair>> {
        let shown = self.path.display();
        let text = std::fs::read_to_string(&self.path)
            .map_err(|error| Exit::usage(format!("cannot read {shown}: {error}")))?;
        let pairs = parse(&text, &self.command)
            .map_err(|Fault { line_no, text }| Exit::usage(format!("{shown}:{line_no}: {text}")))?;
        let own = Own { line: &self.line, command: &self.command };
        Ok(pairs.into_iter().filter(|pair| !own.decides(pair)).collect())
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// What stands before `--`: options.
fn options(line: &[OsString]) -> impl Iterator<Item = &OsStr> {
    line.iter().map(OsString::as_os_str).take_while(|text| *text != "--")
}

/// Whether an option stands on the command line.
fn is_named(line: &[OsString], name: &str) -> bool {
    options(line).any(|text| {
        let text = text.to_str().and_then(|text| text.strip_prefix("--"));
        text.is_some_and(|text| text.split_once('=').map_or(text, |(name, _)| name) == name)
    })
}

fn value_of(line: &[OsString], name: &str) -> Option<PathBuf> {
    let dashed = format!("--{name}");
    let mut options = options(line);
    while let Some(text) = options.next() {
        if text == dashed.as_str() {
            return options.next().map(PathBuf::from);
        }
        let value = text.to_str().and_then(|text| text.strip_prefix(&dashed)?.strip_prefix('='));
        if let Some(value) = value {
            return Some(PathBuf::from(value));
        }
    }
    None
}

/// Options of the command line and the environment.
struct Own<'a> {
    line: &'a [OsString],
    command: &'a Command,
}

impl Own<'_> {
    /// Whether they leave nothing to this pair.
    fn decides(&self, pair: &Pair) -> bool {
        let Some(arg) = find(self.command, &pair.name) else { return false };
        let set = arg.get_env().and_then(std::env::var_os).is_some_and(|value| !value.is_empty());
        let others = self.command.get_arguments().filter(|other| {
            let named = other.get_long().is_some_and(|name| is_named(self.line, name));
            named && (other.get_id() == arg.get_id() || contradict(self.command, arg, other))
        });
        let short = arg.get_short().is_some_and(|short| {
            let dashed = format!("-{short}");
            options(self.line).any(|text| text.to_str().is_some_and(|it| it.starts_with(&dashed)))
        });
        set || short || others.count() > 0
    }
}

fn contradict(command: &Command, one: &Arg, two: &Arg) -> bool {
    let names = |a: &Arg, b: &Arg| {
        command.get_arg_conflicts_with(a).iter().any(|it| it.get_id() == b.get_id())
    };
    names(one, two) || names(two, one)
}

/// What is wrong with a file.
#[derive(PartialEq, Eq, Debug)]
struct Fault {
    line_no: usize,
    text: String,
}

fn parse(text: &str, command: &Command) -> Result<Vec<Pair>, Fault> {
    let line_no_at =
        |offset: usize| text.bytes().take(offset).filter(|it| *it == b'\n').count() + 1;
    let table = DeTable::parse(text).map_err(|error| Fault {
        line_no: line_no_at(error.span().map_or(0, |span| span.start)),
        text: error.message().replace('\n', " "),
    })?;
    let mut pairs = Vec::new();
    for (name, value) in table.get_ref() {
        let line_no = line_no_at(name.span().start);
        let fault = |text| Fault { line_no, text };
        let name = name.get_ref().as_ref();
        let arg = find(command, name).ok_or_else(|| fault(unknown(command, name)))?;
        let arguments = arguments(arg, value).map_err(|text| fault(format!("{name}: {text}")))?;
        check(arg, &arguments).map_err(fault)?;
        pairs.push(Pair { name: name.to_owned(), arguments, line_no });
    }
    pairs.sort_by_key(|pair| pair.line_no);
    for (index, pair) in pairs.iter().enumerate() {
        let arg = |pair: &Pair| find(command, &pair.name);
        let earlier = pairs.iter().take(index).filter(|it| !it.arguments.is_empty());
        for other in earlier.filter(|_| !pair.arguments.is_empty()) {
            if let (Some(one), Some(two)) = (arg(pair), arg(other))
                && contradict(command, one, two)
            {
                let text =
                    format!("{} contradicts {} of line {}", pair.name, other.name, other.line_no);
                return Err(Fault { line_no: pair.line_no, text });
            }
        }
    }
    Ok(pairs)
}

/// The option of that name: the long one, or the short one if there is no long one.
fn find<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    command.get_arguments().find(|arg| {
        let short = || arg.get_short().map(String::from);
        let found = arg.get_long().map(str::to_owned).or_else(short);
        !arg.is_hide_set() && !NOT_HERE.contains(&name) && found.as_deref() == Some(name)
    })
}

/// Suggests a similar name.
fn unknown(command: &Command, name: &str) -> String {
    if let Some(line) = renamed(&format!("--{name}")) {
        return line;
    }
    let tried = command.clone().no_binary_name(true).try_get_matches_from([format!("--{name}")]);
    let suggested = tried.err().and_then(|error| match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(name)) => Some(name.trim_start_matches('-').to_owned()),
        Some(ContextValue::Strings(names)) => {
            names.first().map(|name| name.trim_start_matches('-').to_owned())
        }
        Some(_) | None => None,
    });
    match suggested.filter(|name| find(command, name).is_some()) {
        Some(nearest) => format!("there is no option {name}; {nearest} is the nearest"),
        None => {
            let command = command.get_name();
            format!("there is no option {name}; `lanefs {command} --help` names all")
        }
    }
}

/// A value as arguments.
fn arguments(arg: &Arg, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, String> {
    let dashed = arg.get_long().map_or_else(
        || arg.get_short().map(|short| format!("-{short}")).unwrap_or_default(),
        |long| format!("--{long}="),
    );
    let with = |value: String| format!("{dashed}{value}");
    match (arg.get_action(), value.get_ref()) {
        (ArgAction::SetTrue, DeValue::Boolean(true)) => {
            Ok(vec![with(String::new()).replace('=', "")])
        }
        (ArgAction::SetTrue, DeValue::Boolean(false)) => Ok(Vec::new()),
        (ArgAction::SetTrue, _) => Err("it is true or false".to_owned()),
        (ArgAction::Append, DeValue::Array(values)) => {
            values.iter().map(|value| Ok(with(text_of(value)?))).collect()
        }
        (_, _) => Ok(vec![with(text_of(value)?)]),
    }
}

fn text_of(value: &Spanned<DeValue<'_>>) -> Result<String, String> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => {
            let radix_10 = i128::from_str_radix(number.as_str(), number.radix());
            radix_10.map(|number| number.to_string()).map_err(|error| error.to_string())
        }
        DeValue::Boolean(flag) => Ok(flag.to_string()),
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            Err("it takes one text or one whole number".to_owned())
        }
    }
}

/// Whether the command line would take these values.
fn check(arg: &Arg, arguments: &[String]) -> Result<(), String> {
    let alone = arg.clone().requires(Resettable::Reset).conflicts_with(Resettable::Reset);
    let command = Command::new("check").no_binary_name(true).disable_help_flag(true);
    let checked = command.arg(alone.required(false)).try_get_matches_from(arguments);
    checked.map(drop).map_err(|error| {
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines: Vec<&str> = lines.filter(|line| !line.starts_with("For more")).collect();
        lines.join("; ")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn command(name: &str) -> Command {
        let mut cli = Cli::command();
        cli.build();
        cli.find_subcommand(name).unwrap().clone()
    }

    fn arguments_of(text: &str) -> Vec<String> {
        let pairs = parse(text, &command("serve")).unwrap();
        pairs.into_iter().flat_map(|pair| pair.arguments).collect()
    }

    fn fault(name: &str, text: &str) -> (usize, String) {
        let Fault { line_no, text } = parse(text, &command(name)).unwrap_err();
        (line_no, text)
    }

    #[test]
    fn pairs_become_arguments_in_their_order() {
        let text = "# ours\nstore = \"/srv/a b\"\nlanes = 0x2\nseal = true\nsync = false\n\
                    export = [\"a\", \"b=no-root-squash\"]\n";
        let wanted =
            ["--store=/srv/a b", "--lanes=2", "--seal", "--export=a", "--export=b=no-root-squash"];
        assert_eq!(arguments_of(text), wanted);
        let pairs = parse("o = \"ro,noexec\"\n", &command("mount")).unwrap();
        assert_eq!(pairs[0].arguments, ["-oro,noexec"]);
    }

    /// Its options are comments without a space.
    #[test]
    fn the_example_that_is_installed_is_right() {
        let text = include_str!("../dist/serve.toml.example");
        let option = |line: &str| line.starts_with('#') && !line.starts_with("# ");
        let lines = text.lines().map(|line| if option(line) { &line[1..] } else { line });
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        assert_eq!(parse(&text, &command("serve")).unwrap().len(), 4);
    }

    #[test]
    fn a_name_that_is_unknown_is_named_with_its_line_and_the_nearest() {
        let (line_no, text) = fault("serve", "lanes = 2\n\nlog_level = \"info\"\n");
        assert_eq!(line_no, 3);
        assert!(text.contains("no option log_level") && text.contains("log-level is"), "{text}");
        assert!(fault("serve", "spin-us = 5").1.contains("--spin TIME"));
        for hidden in
            ["fault = \"x\"", "parent-pid = 1", "config = \"x\"", "help = true", "[a]\nb=1"]
        {
            assert!(fault("serve", hidden).1.contains("there is no option"), "{hidden}");
        }
    }

    #[test]
    fn a_value_that_is_wrong_is_named_with_its_line_and_what_is_right() {
        let (line_no, text) = fault("serve", "\nlanes = 99\n");
        assert_eq!(line_no, 2);
        assert!(text.contains("99") && text.contains("1..=64"), "{text}");
        let (_, text) = fault("mount", "driver = \"epol\"\n");
        assert!(text.contains("io-uring") && text.contains("'epoll'"), "{text}");
        assert!(fault("serve", "seal = 1\n").1.contains("true or false"));
        assert!(fault("serve", "lanes = [1, 2]\n").1.contains("one text"));
        assert_eq!(fault("serve", "lanes = 1\nlanes\n").0, 2);
    }

    #[test]
    fn what_contradicts_within_a_file_is_named() {
        let (line_no, text) = fault("serve", "seal = true\nplain = true\n");
        assert_eq!(line_no, 2);
        assert!(text.contains("plain contradicts seal of line 1"), "{text}");
    }

    #[test]
    fn the_command_line_decides_and_so_does_what_contradicts() {
        let command = command("serve");
        let text = "lanes = 2\nseal = true\nlisten = \"a\"\nexport = [\"a\"]\n";
        let left = |line: &[&str]| {
            let line: Vec<OsString> = line.iter().map(OsString::from).collect();
            let own = Own { line: &line, command: &command };
            let pairs = parse(text, &command).unwrap().into_iter();
            pairs.filter(|pair| !own.decides(pair)).map(|pair| pair.name).collect::<Vec<_>>()
        };
        assert_eq!(left(&["lanefs", "serve"]), ["lanes", "seal", "listen", "export"]);
        assert_eq!(left(&["lanefs", "serve", "--lanes=1", "--plain"]), ["listen", "export"]);
        assert_eq!(
            left(&["lanefs", "serve", "--export", "b", "--", "--lanes"]),
            ["lanes", "seal", "listen"]
        );
    }
}
