//! `lanefs completions` and `lanefs man`: shell completions and man pages, generated from the table of
//! arguments, like `--help`.

use crate::args::{Cli, Completions, Man};
use crate::exit::Exit;
use crate::out;
use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use std::path::Path;

/// Runs `lanefs completions`.
pub(crate) fn completions(args: &Completions) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut without_hidden(&Cli::command()),
        "lanefs",
        &mut script,
    );
    out::print_bytes(&script)
}

/// A command without its hidden parts: shells would offer those, too.
fn without_hidden(command: &clap::Command) -> clap::Command {
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    clap::Command::new(command.get_name().to_owned())
        .about(command.get_about().cloned().unwrap_or_default())
        .disable_help_flag(command.is_disable_help_flag_set())
        .args(arguments.cloned())
        .subcommands(commands.map(without_hidden))
}

/// Runs `lanefs man`.
pub(crate) fn man(args: &Man) -> Result<()> {
    if let Some(dir) = &args.dir {
        return write_all(dir);
    }
    let cli = table();
    let wanted = args.command.as_deref();
    let command = match wanted {
        None => cli,
        Some(wanted) => {
            // `export-add` is that of `lanefs export add`.
            let file = format!("lanefs-{wanted}.1");
            let found = all_of(&cli).into_iter().find(|one| page_of(one).get_filename() == file);
            let unknown = || Exit::usage(format!("there is no command '{wanted}'"));
            found.ok_or_else(unknown)?
        }
    };
    out::print_bytes(&text_of(&page_of(&command), &command)?)
}

/// All commands that have pages. `lanefs help` has none.
fn table() -> clap::Command {
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    cli
}

fn page_of(command: &clap::Command) -> clap_mangen::Man {
    let version = concat!("lanefs ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(command.clone()).source(version).manual("lanefs")
}

fn write_all(dir: &Path) -> Result<()> {
    let cli = table();
    for command in all_of(&cli) {
        let page = page_of(&command);
        let path = dir.join(page.get_filename());
        let text = text_of(&page, &command)?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// A command and all below it that are shown.
fn all_of(command: &clap::Command) -> Vec<clap::Command> {
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    std::iter::once(command.clone()).chain(below.flat_map(all_of)).collect()
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
