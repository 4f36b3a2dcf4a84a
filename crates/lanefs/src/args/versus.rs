//! The arguments of `lanefs bench versus`.

use super::EXIT_CODES;
use bench::Named;
use clap::Args;

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs bench versus --dir ext4=/srv/test --dir lanefs=/mnt/lanefs
  lanefs bench versus --dir nfs=/mnt/nfs --dir lanefs=/mnt/lanefs --peer lanefs=/mnt/lanefs2 --json
  lanefs bench versus --dir here=. --quick --row stat --row \'git status\'

Times are of one operation or one program, medians over the rounds. A ratio above 1 is slower than
the baseline. Programs that are not installed are reported in their rows. Everything is made in a
folder of its own in each directory, which is removed at the end, also after Ctrl-C.

{EXIT_CODES}"))]
pub(crate) struct BenchVersus {
    /// A directory of a file system to compare, with a name for it. It needs about 1 GiB
    #[arg(long = "dir", value_name = "NAME=PATH", required = true, value_parser = named)]
    pub(crate) dirs: Vec<Named>,
    /// The same directory through a second mount of the file system NAME: adds rows that look for stale
    /// reads, lost appends and ESTALE
    #[arg(long = "peer", value_name = "NAME=PATH", value_parser = named)]
    pub(crate) peers: Vec<Named>,
    /// The directory that the others are compared with [default: the first]
    #[arg(long, value_name = "NAME")]
    pub(crate) baseline: Option<String>,
    /// Rounds; in each every directory does every row once, and their order changes
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: u16,
    /// Only this row; may be repeated [default: all]
    #[arg(long = "row", value_name = "ROW")]
    pub(crate) rows: Vec<String>,
    /// Little work, and no caches dropped as root: only to try the benchmark
    #[arg(long)]
    pub(crate) quick: bool,
    /// One JSON object per row and directory, as soon as the row is finished, instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

fn named(text: &str) -> Result<Named, String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), path.into()))
        }
        _ => Err("not NAME=PATH".to_owned()),
    }
}
