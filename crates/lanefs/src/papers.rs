//! `lanefs completions` and `lanefs man`: what shells and `man` read, made from the table of
//! arguments, so that it says what `--help` says.

use crate::args::{Cli, Completions, Man};
use crate::exit::{Code, Exit};
use crate::out;
use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use std::path::Path;

/// Runs `lanefs completions`.
pub(crate) fn completions(args: &Completions) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lanefs", &mut script);
    out::put(&script)
}

/// Runs `lanefs man`.
pub(crate) fn man(args: &Man) -> Result<()> {
    if let Some(dir) = &args.dir {
        return write_all(dir);
    }
    let mut cli = Cli::command();
    cli.build();
    let wanted = args.command.as_deref();
    let command = match wanted {
        None => cli,
        Some(wanted) => {
            let found = cli.get_subcommands().find(|command| command.get_name() == wanted);
            let unknown = || Exit::new(Code::Usage, format!("there is no command '{wanted}'"));
            found.ok_or_else(unknown)?.clone()
        }
    };
    out::put(&text_of(&clap_mangen::Man::new(command.clone()), &command)?)
}

fn write_all(dir: &Path) -> Result<()> {
    let mut cli = Cli::command();
    cli.build();
    let commands: Vec<clap::Command> = cli
        .get_subcommands()
        .filter(|command| !command.is_hide_set() && command.get_name() != "help")
        .cloned()
        .collect();
    for command in std::iter::once(cli).chain(commands) {
        let page = clap_mangen::Man::new(command.clone());
        let path = dir.join(page.get_filename());
        let text = text_of(&page, &command)?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// A page, with what `--help` ends with line by line as it stands there.
fn text_of(page: &clap_mangen::Man, command: &clap::Command) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        page.render_subcommands_section(&mut text)?;
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    for paragraph in after.split("\n\n") {
        let (title, lines) = match paragraph.split_once(":\n") {
            Some((title, lines)) if !title.contains('\n') => (Some(title), lines),
            _ => (None, paragraph),
        };
        let head = title.map_or(".PP".to_owned(), |title| format!(".SH {}", title.to_uppercase()));
        let lines: String = lines.lines().map(|line| format!("{}\n", roff(line))).collect();
        text.extend_from_slice(format!("{head}\n.nf\n{lines}.fi\n").as_bytes());
    }
    Ok(text)
}

/// A line as roff takes it for text.
fn roff(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}
