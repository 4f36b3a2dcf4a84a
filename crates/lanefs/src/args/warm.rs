//! The arguments of `lanefs warm`.

use super::EXIT_CODES;
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs warm ./mnt/projects           names, attributes and contents
  lanefs warm --names-only ./mnt       names and attributes alone: fast, and all that `ls -lR` asks for
  lanefs warm --jobs 32 ./mnt/data     more at a time, for a server that is far away

{EXIT_CODES}"))]
pub(crate) struct Warm {
    /// Files and directories on a mount. Symbolic links are not followed, and what is mounted below is
    /// left alone
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// How many directories and files are read at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) jobs: u16,
    /// Names and attributes only, no contents
    #[arg(long)]
    pub(crate) names_only: bool,
}
