//! The arguments of `lanefs down` and `lanefs status`.

use clap::Args;

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  lanefs status                   all that you run here
  lanefs status ./mnt
  lanefs status 127.0.0.1:7117 --json")]
pub(crate) struct Status {
    /// The directory of a mount or a store, or the address of a server [default: all that the calling user
    /// runs on this machine]
    #[arg(value_name = "DIR|ADDR")]
    pub(crate) target: Option<String>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Down {
    /// The directory of a mount or a store, or the address of a server
    #[arg(value_name = "DIR|ADDR")]
    pub(crate) target: String,
}
