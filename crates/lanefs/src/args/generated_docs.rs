//! The arguments of the commands that print shell completions and man pages.

use super::EXIT_CODES;
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs completions bash > ~/.local/share/bash-completion/completions/lanefs
  lanefs completions zsh > ~/.zfunc/_lanefs      with ~/.zfunc in fpath
  lanefs completions fish > ~/.config/fish/completions/lanefs.fish

{EXIT_CODES}"))]
pub(crate) struct Completions {
    /// Which shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs man find | man -l -                         one page, shown
  lanefs man --dir /usr/local/share/man/man1         all pages, installed

{EXIT_CODES}"))]
pub(crate) struct Man {
    /// Whose page to print [default: that of lanefs itself]
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    pub(crate) command: Option<String>,
    /// Write all pages into this directory, which must exist
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
