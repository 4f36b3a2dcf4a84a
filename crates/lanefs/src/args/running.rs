//! The arguments of `lanefs down`, `lanefs umount` and `lanefs status`.

use super::{AdminLogin, EXIT_CODES};
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs status                   all that you run here
  lanefs status ./mnt
  lanefs status 127.0.0.1:7117 --json
  lanefs status --leases          asks each server what its clients cache

{EXIT_CODES}"))]
pub(crate) struct Status {
    /// The directory of a mount or a store, or the address of a server [default: all that the calling user
    /// runs on this machine]
    #[arg(value_name = "DIR|ADDR")]
    pub(crate) target: Option<String>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Ask the servers how many leases they have granted and recalled
    #[arg(long)]
    pub(crate) leases: bool,
    #[command(flatten)]
    pub(crate) login: AdminLogin,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs down ./mnt               what `lanefs up ./mnt` keeps running
  lanefs down 127.0.0.1:7117

{EXIT_CODES}"))]
pub(crate) struct Down {
    /// The directory of a mount or a store, or the address of a server
    #[arg(value_name = "DIR|ADDR")]
    pub(crate) target: String,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Umount {
    /// What to unmount
    pub(crate) dir: PathBuf,
    /// Detach a mount that is in use; processes keep it until they close their files
    #[arg(short, long)]
    pub(crate) lazy: bool,
}
