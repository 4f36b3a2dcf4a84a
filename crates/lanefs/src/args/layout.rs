//! The arguments of `lanefs layout`.

use super::files::{Access, help};
use super::{EXIT_CODES, size};
use clap::{Args, Subcommand};
use std::ffi::OsString;
use wire::Layout as FileLayout;

#[derive(Args, Clone, Debug)]
#[command(after_help = help("\
  lanefs layout set ./mnt/wide --count all --unit 256KiB   new files below it go to all servers
  lanefs layout set ./mnt/data --count all --grows         the same, but only once they are large
  lanefs layout get ./mnt/wide lanefs://host/wide/file     what a directory gives, what a file has
  lanefs layout check --json ./mnt/wide/file               which servers have which of its bytes
  getfattr -n lanefs.layout ./mnt/wide                     the same without this command"))]
pub(crate) struct Layout {
    #[command(subcommand)]
    pub(crate) command: LayoutCommand,
}

#[derive(Subcommand, Clone, Debug)]
pub(crate) enum LayoutCommand {
    /// Show over how many servers files are spread, and what directories give to new files
    #[command(after_help = EXIT_CODES)]
    Get(LayoutGet),
    /// Set what directories give to new files and directories in them; files keep the layout that they
    /// were made with
    #[command(after_help = EXIT_CODES)]
    Set(LayoutSet),
    /// Show which servers have the stripes of files
    #[command(after_help = EXIT_CODES)]
    Check(LayoutCheck),
}

/// Which files, and how to print.
#[derive(Args, Clone, Debug)]
pub(crate) struct LayoutGet {
    /// A path on a mount, or lanefs://HOST:PORT/path
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Print JSON: an object for each path
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct LayoutSet {
    /// A directory on a mount, or lanefs://HOST:PORT/path
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// How many servers a new file is spread over, up to 64; 0 or all: as many as there are when it is
    /// made
    #[arg(long, value_name = "N|all", value_parser = count)]
    pub(crate) count: u16,
    /// How many bytes in a row are at one server: a power of two from 64KiB to 1GiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = unit)]
    pub(crate) unit: u64,
    /// A new file is at one server until it is longer than a stripe
    #[arg(long)]
    pub(crate) grows: bool,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct LayoutCheck {
    /// A file on a mount, or lanefs://HOST:PORT/path
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Print JSON: an object for each server of each file
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) access: Access,
}

fn count(text: &str) -> Result<u16, String> {
    let most = FileLayout::STRIPE_COUNT_MAX;
    let number = if text == "all" { Some(0) } else { text.parse().ok() };
    number
        .filter(|count| *count <= most)
        .ok_or_else(|| format!("a number of servers from 0 to {most}, or all"))
}

fn unit(text: &str) -> Result<u64, String> {
    let unit_bytes = size(text)?;
    let range = FileLayout::SPREAD_UNIT_BYTES_MIN..=FileLayout::SPREAD_UNIT_BYTES_MAX;
    if unit_bytes.is_power_of_two() && range.contains(&unit_bytes) {
        Ok(unit_bytes)
    } else {
        Err("a power of two from 64KiB to 1GiB".to_owned())
    }
}
