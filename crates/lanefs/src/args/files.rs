//! The arguments of the commands that speak to a server without a mount.

use super::{
    CertArg, EXIT_CODES, SealArg, SecretFile,
    units::{self, UNITS},
};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What a command's `--help` ends with.
pub(super) fn help(examples: &str) -> String {
    // The compiler takes the first line's indent away.
    format!("Examples:\n  {examples}\n\n{UNITS}\n\n{EXIT_CODES}")
}

/// As whom and where to.
#[derive(Args, Clone, Debug)]
pub(crate) struct Access {
    #[command(flatten)]
    pub(crate) secret: SecretFile,
    #[command(flatten)]
    pub(crate) seal: SealArg,
    #[command(flatten)]
    pub(crate) certificates: CertArg,
    /// Which export to use [default: the one that is called default]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) export: String,
    /// How long to wait for the server before giving up
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::time)]
    pub(crate) connect_timeout: Duration,
}

/// For scripts.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Json {
    /// One JSON object per file and line. Sizes are in bytes (size_bytes), times in nanoseconds
    /// since 1970 (mtime_ns), modes octal text. If a name is not UTF-8, name has U+FFFD for its
    /// invalid bytes and name_hex all bytes in hexadecimal; likewise path and target
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = help("\
  lanefs ls lanefs://10.0.0.5/            names in the root of the server at 10.0.0.5, port 7117
  lanefs ls -la lanefs://host:7118/home   all of them, with mode, owner, size and time
  lanefs ls --json lanefs://host/a | jq -r 'select(.size_bytes > 1000) | .name'"))]
pub(crate) struct Ls {
    /// lanefs://HOST:PORT/path
    #[arg(required = true, value_name = "URL")]
    pub(crate) paths: Vec<OsString>,
    /// One line each, with mode, owner, size and time
    #[arg(short = 'l')]
    pub(crate) long: bool,
    /// Names that begin with a dot, too
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
    /// Directories themselves, not their entries
    #[arg(short = 'd', long)]
    pub(crate) directory: bool,
    #[command(flatten)]
    pub(crate) json: Json,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = help("\
  lanefs cat lanefs://host/notes lanefs://host/more | less"))]
pub(crate) struct Cat {
    /// lanefs://HOST:PORT/path
    #[arg(required = true, value_name = "URL")]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = help("\
  lanefs stat lanefs://host/a/file
  lanefs stat --json lanefs://host/a/file | jq .mtime_ns"))]
pub(crate) struct Stat {
    /// lanefs://HOST:PORT/path
    #[arg(required = true, value_name = "URL")]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) json: Json,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = help("\
  lanefs cp -r photos lanefs://host/            from here into a server's root
  lanefs cp -rp lanefs://host/photos .          and back, with modes, owners and times
  lanefs cp -rp lanefs://one/a lanefs://two/b   from server to server, through this machine's memory
  lanefs cp --to-export up -rp lanefs://one/a lanefs://two/b   where the second serves another export
  tar -c src | lanefs cp - lanefs://host/src.tar   what comes through a pipe, or goes into one:
  lanefs cp lanefs://host/src.tar - | tar -x       - is standard input or output"))]
pub(crate) struct Cp {
    /// Sources, then the destination: paths or lanefs://HOST:PORT/path; one of two may be -
    #[arg(required = true, num_args = 2.., value_name = "SOURCE... DEST")]
    pub(crate) paths: Vec<OsString>,
    /// Recursively
    #[arg(short = 'r', short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// Keep mode, owner and times
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// Which export of DEST's server to use, where that is not a source's server [default: --export]
    #[arg(long, value_name = "NAME")]
    pub(crate) to_export: Option<String>,
    /// File with the secret of DEST's server, likewise [default: --secret-file]
    #[arg(long, value_name = "FILE")]
    pub(crate) to_secret_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = help("\
  lanefs tree lanefs://host/
  lanefs tree -d -L 2 lanefs://host/home   directories only, two levels of them"))]
pub(crate) struct Tree {
    /// lanefs://HOST:PORT/path
    #[arg(required = true, value_name = "URL")]
    pub(crate) paths: Vec<OsString>,
    /// Names that begin with a dot, too
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
    /// Directories only
    #[arg(short = 'd', long)]
    pub(crate) directories: bool,
    /// How many levels to go down
    #[arg(short = 'L', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) level: Option<u32>,
    #[command(flatten)]
    pub(crate) json: Json,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = help("\
  lanefs du -sh lanefs://host/home          one sum
  lanefs du -h -d 1 lanefs://host/home      a sum for each of its directories
  lanefs du --json lanefs://host/ | jq -r 'select(.allocated_bytes > 1e9) | .path'"))]
pub(crate) struct Du {
    /// lanefs://HOST:PORT/path
    #[arg(required = true, value_name = "URL")]
    pub(crate) paths: Vec<OsString>,
    /// Only the total of each URL
    #[arg(short = 's', long, conflicts_with_all = ["all", "max_depth"])]
    pub(crate) summarize: bool,
    /// Files, too, not only directories
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
    /// Print lines down to this level only; totals include everything
    #[arg(short = 'd', long, value_name = "N")]
    pub(crate) max_depth: Option<u32>,
    /// Sizes with a unit, in powers of 1024, instead of KiB
    #[arg(short = 'h', long = "human-readable")]
    pub(crate) human: bool,
    /// Sizes of the contents instead of the space they occupy
    #[arg(long)]
    pub(crate) apparent_size: bool,
    #[command(flatten)]
    pub(crate) json: Json,
    /// Print help (-h is taken)
    #[arg(long, action = clap::ArgAction::Help)]
    pub(crate) help: Option<bool>,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = help("\
  lanefs mkdir -p lanefs://host/a/b/c
  lanefs mkdir -m 1777 lanefs://host/scratch   for everybody, as /tmp is"))]
pub(crate) struct Mkdir {
    /// lanefs://HOST:PORT/path
    #[arg(required = true, value_name = "URL")]
    pub(crate) paths: Vec<OsString>,
    /// Parents too, and no error if it exists
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Mode of the new directory, octal or symbolic as of chmod, regardless of the umask; parents get the default
    #[arg(short, long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = help("\
  lanefs rm lanefs://host/a/file
  lanefs rm -rf lanefs://host/a"))]
pub(crate) struct Rm {
    /// lanefs://HOST:PORT/path
    #[arg(value_name = "URL", required_unless_present = "force")]
    pub(crate) paths: Vec<OsString>,
    /// Recursively
    #[arg(short = 'r', short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// No error if it does not exist
    #[arg(short, long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = help("\
  lanefs mv lanefs://host/old lanefs://host/new
  lanefs mv lanefs://host/a lanefs://host/b lanefs://host/dir"))]
pub(crate) struct Mv {
    /// Sources, then the destination: lanefs://HOST:PORT/path, all on one server
    #[arg(required = true, num_args = 2.., value_name = "SOURCE... DEST")]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = help("\
  lanefs ln lanefs://host/a/file lanefs://host/b/name    one more name for the same file
  lanefs ln -s ../a/file lanefs://host/b/link            the text of a symbolic link is free"))]
pub(crate) struct Ln {
    /// The target: lanefs://HOST:PORT/path, with -s the text of the link
    #[arg(value_name = "TARGET")]
    pub(crate) target: OsString,
    /// The new name, or the directory to make it in: lanefs://HOST:PORT/path
    #[arg(value_name = "LINK")]
    pub(crate) link: OsString,
    /// A symbolic link
    #[arg(short = 's', long)]
    pub(crate) symbolic: bool,
    /// Replace an existing entry of this name
    #[arg(short, long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = help("\
  lanefs chmod 640 lanefs://host/a/file
  lanefs chmod -R u+rw,go-w lanefs://host/a
  lanefs chmod -R a+rX lanefs://host/a       x only for directories and executables
  lanefs chmod -- -w lanefs://host/a/file    what begins with a minus stands behind --"))]
pub(crate) struct Chmod {
    /// Octal (755), or symbolic: [ugoa][+-=][rwxXst], u, g or o to copy from, several with commas
    #[arg(value_name = "MODE")]
    pub(crate) mode: String,
    /// lanefs://HOST:PORT/path; symbolic links are followed, but not those found by -R
    #[arg(required = true, value_name = "URL")]
    pub(crate) paths: Vec<OsString>,
    /// Recursively
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = help("\
  lanefs chown --export up alice lanefs://host/a/file
  lanefs chown --export up -R alice:staff lanefs://host/a
  lanefs chown :100 lanefs://host/a/file                  the group alone, by its number"))]
pub(crate) struct Chown {
    /// USER, USER:GROUP or :GROUP; names are resolved on this machine, numbers are used as they are
    #[arg(value_name = "OWNER")]
    pub(crate) owner: String,
    /// lanefs://HOST:PORT/path; symbolic links are followed, but not those found by -R
    #[arg(required = true, value_name = "URL")]
    pub(crate) paths: Vec<OsString>,
    /// Recursively; symbolic links themselves
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Symbolic links themselves, not their targets
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    /// Print help (-h is taken)
    #[arg(long, action = clap::ArgAction::Help)]
    pub(crate) help: Option<bool>,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = help("\
  lanefs cp data lanefs://host/ && lanefs sync lanefs://host"))]
pub(crate) struct Sync {
    /// lanefs://HOST:PORT; a path is ignored, the command applies to all files of the server
    #[arg(required = true, value_name = "URL")]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) access: Access,
}

#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = help("\
  lanefs df -h lanefs://host
  lanefs df --json lanefs://host | jq .available_bytes"))]
pub(crate) struct Df {
    /// lanefs://HOST:PORT
    #[arg(required = true, value_name = "URL")]
    pub(crate) paths: Vec<OsString>,
    /// Sizes with a unit, in powers of 1024
    #[arg(short = 'h', long = "human-readable")]
    pub(crate) human: bool,
    #[command(flatten)]
    pub(crate) json: Json,
    /// Print help (-h is taken)
    #[arg(long, action = clap::ArgAction::Help)]
    pub(crate) help: Option<bool>,
    #[command(flatten)]
    pub(crate) access: Access,
}
