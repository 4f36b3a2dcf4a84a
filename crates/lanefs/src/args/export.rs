//! The arguments of `lanefs export`.

use super::{
    CertArg, EXIT_CODES, SealArg, SecretFile,
    files::Json,
    units::{self, UNITS},
};
use clap::{Args, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs export add host projects /srv/projects --create
  lanefs export add host alice /home/alice --squash all --anon-uid 1000 --anon-gid 1000
  lanefs export secret host alice > alice.secret     for those who may mount that and nothing else
  lanefs mount host/alice /mnt -o secret_file=alice.secret
  lanefs export add host default / --read-only       what is mounted where no export is named
  lanefs export remove host default                  then an export has to be named

SERVER is HOST or HOST:PORT, or the store's directory on the machine that serves it.

{UNITS}

{EXIT_CODES}"))]
pub(crate) struct Export {
    #[command(subcommand)]
    pub(crate) command: ExportCommand,
}

#[derive(Subcommand, Clone, Debug)]
pub(crate) enum ExportCommand {
    /// Let clients mount a directory under a name
    #[command(after_help = EXIT_CODES)]
    Add(ExportAdd),
    /// Show what can be mounted
    #[command(after_help = EXIT_CODES)]
    List(ExportList),
    /// Take an export away; who has it mounted is refused from then on
    #[command(after_help = EXIT_CODES)]
    Remove(ExportName),
    /// Print the secret of one export, for a client that may mount that and nothing else
    #[command(after_help = EXIT_CODES)]
    Secret(ExportName),
}

/// The server, and who may administer it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Server {
    /// HOST or HOST:PORT, or the directory of the store
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) login: AdminLogin,
}

/// How who administers a server gets in.
#[derive(Args, Clone, Debug)]
pub(crate) struct AdminLogin {
    /// It must be the store's secret, or a certificate with lanefs:store
    #[command(flatten)]
    pub(crate) secret: SecretFile,
    #[command(flatten)]
    pub(crate) seal: SealArg,
    #[command(flatten)]
    pub(crate) certificates: CertArg,
    /// How long to wait for the server before giving up
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::time)]
    pub(crate) connect_timeout: Duration,
}

impl AdminLogin {
    /// The server that has a store open.
    pub(crate) fn of(&self, store: &Path) -> Server {
        Server { server: store.to_string_lossy().into_owned(), login: self.clone() }
    }
}

/// Whose ids are not taken from a client.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Squash {
    /// Nobody's: a client's root is root
    None,
    /// Root's
    Root,
    /// Every user's: all users act as one user
    All,
}

impl Squash {
    /// As it is written on a command line.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Root => "root",
            Self::All => "all",
        }
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ExportAdd {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Its name: at most 64 of a-z, A-Z, 0-9, '.', '-' and '_'
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The directory, as a path of the file system
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Make the directory, and those above it, if it is missing; they are root's, with mode 0755
    #[arg(long)]
    pub(crate) create: bool,
    /// Nothing is changed through it
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Whose user and group ids are not taken from a client
    #[arg(long, value_name = "WHO", value_enum, default_value_t = Squash::Root)]
    pub(crate) squash: Squash,
    /// As which user those act
    #[arg(long, value_name = "UID", default_value_t = library::Squash::NOBODY)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=i64::from(u32::MAX - 1)))]
    pub(crate) anon_uid: u32,
    /// As which group those act
    #[arg(long, value_name = "GID", default_value_t = library::Squash::NOBODY)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=i64::from(u32::MAX - 1)))]
    pub(crate) anon_gid: u32,
    /// Replace an export of that name: its secret stays, and who has it mounted goes on with what it
    /// is then, if it is the same directory
    #[arg(long)]
    pub(crate) replace: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ExportList {
    #[command(flatten)]
    pub(crate) server: Server,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct ExportName {
    #[command(flatten)]
    pub(crate) server: Server,
    /// The export
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}
