//! The arguments of `lanefs find`.

use super::expression::Expression;
use super::files::{Access, Json, help};
use super::find_kind::FindKind;
use crate::files::bounds::{Age, Size};
use clap::Args;
use std::ffi::OsString;

#[derive(Args, Clone, Debug)]
#[command(after_help = help("\
  lanefs find lanefs://host/src --name '*.rs' --type f
  lanefs find lanefs://host/ --size +100M --mtime +30d    large, and not changed for 30 days
  lanefs find lanefs://host/ --newer 2026-01-31T12:00     changed since then, local time
  lanefs find lanefs://host/log -name '*.old' ! -newer keep -print0 | xargs -0 -r lanefs rm
  lanefs find lanefs://host/src -name .git -prune -o '(' -name '*.c' -o -name '*.h' ')' -print

Words of find(1), which mean what they mean there:
  -name PATTERN, -type KIND,..., -size [+-]N[cwbkMG], -mtime [+-]N, -mmin [+-]N,
  -newer FILE|URL, -newermt TIME, -empty; ! and -not, -a, -o and parentheses; -prune,
  -print, -print0; -maxdepth N, -mindepth N

All that options ask for must hold besides. Where a directory may not be read, that is said, and the rest is
found all the same."))]
pub(crate) struct Find {
    /// Start of the search: lanefs://HOST:PORT/path; it and everything below it is searched
    #[arg(required = true, value_name = "URL")]
    pub(crate) paths: Vec<OsString>,
    /// The name matches this pattern as a whole: * ? [a-z] [!a-z] [[:digit:]] and \ to escape;
    /// up to 255 bytes. Quote it
    #[arg(long, value_name = "PATTERN")]
    pub(crate) name: Option<OsString>,
    /// It is a file (f), directory (d), symbolic link (l), fifo (p), socket (s), character (c) or
    /// block device (b); several with commas
    #[arg(
        long = "type",
        value_name = "KIND",
        value_enum,
        value_delimiter = ',',
        hide_possible_values = true
    )]
    pub(crate) kinds: Vec<FindKind>,
    /// Larger (+) or smaller (-) than this size, or exactly as large; nothing is rounded. Twice for a
    /// range
    #[arg(long, value_name = "[+-]SIZE", allow_hyphen_values = true, value_parser = Size::parse)]
    pub(crate) size: Vec<Size>,
    /// Contents changed longer (+) or less long (-) ago than this time (days if it has no unit), by this
    /// machine's clock. Twice for a range
    #[arg(long, value_name = "+-TIME", allow_hyphen_values = true, value_parser = Age::parse)]
    pub(crate) mtime: Vec<Age>,
    /// Contents changed after this time (2026-01-31, 2026-01-31T12:00, 2026-01-31T12:00Z, or @
    /// and seconds since 1970), or after those of this file, here or at a lanefs:// URL
    #[arg(long, value_name = "TIME|FILE|URL")]
    pub(crate) newer: Option<OsString>,
    /// How many levels to descend; 0 examines each URL only
    #[arg(long, value_name = "N")]
    pub(crate) maxdepth: Option<u32>,
    /// Print only entries at this level or below; 1 omits each URL itself
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) mindepth: u32,
    /// Empty files and directories
    #[arg(long)]
    pub(crate) empty: bool,
    /// What words of find(1) ask for.
    #[arg(skip = Expression::All(Vec::new()))]
    pub(crate) expression: Expression,
    /// End each path with NUL instead of a newline
    #[arg(short = '0', long = "print0", conflicts_with = "json")]
    pub(crate) print0: bool,
    #[command(flatten)]
    pub(crate) json: Json,
    #[command(flatten)]
    pub(crate) access: Access,
}
