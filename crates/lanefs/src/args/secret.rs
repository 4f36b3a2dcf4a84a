//! The arguments of `lanefs secret`.

use super::{EXIT_CODES, SecretFile};
use clap::{Args, Subcommand};

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs secret rotate       a new secret; the earlier one stays valid
                             then copy the file to every client, in the place of its own
  lanefs secret retire       the earlier one is valid no more
  lanefs secret show --secret-file /var/lib/lanefs/main/secret

Call them where the server runs. A running server takes each step up at once, and what is mounted goes on.

{EXIT_CODES}"))]
pub(crate) struct Secret {
    #[command(subcommand)]
    pub(crate) command: SecretCommand,
}

#[derive(Subcommand, Clone, Debug)]
pub(crate) enum SecretCommand {
    /// Make a new secret for the store; the earlier one stays valid until it is retired
    #[command(after_help = EXIT_CODES)]
    Rotate(SecretFile),
    /// Remove the earlier secret: clients that have only that are cut off, and lose locks and open files
    #[command(after_help = EXIT_CODES)]
    Retire(SecretFile),
    /// Say how many secrets a file has; the secrets are not shown
    #[command(after_help = EXIT_CODES)]
    Show(SecretFile),
}
