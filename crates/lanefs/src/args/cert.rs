//! The arguments of `lanefs cert`.

use super::EXIT_CODES;
use super::units::{UNITS, time_in};
use clap::{Args, Subcommand};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

const DAY: Duration = Duration::from_hours(24);
/// How long a certificate may be valid.
const VALID: RangeInclusive<Duration> = DAY..=DAY.saturating_mul(36_500);

#[derive(Args, Clone, Debug)]
#[command(after_help = format!("Examples:
  lanefs cert ca certs                            once, on a machine that is kept safe
  lanefs cert server certs files.example 10.0.0.5
  lanefs cert client certs alice                  opens all that the store's secret opens
  lanefs cert client certs bob --export projects  opens that export and nothing else
  lanefs cert client certs bob --export projects --renew   before it expires, for the same key

{UNITS}

{EXIT_CODES}"))]
pub(crate) struct Cert {
    #[command(subcommand)]
    pub(crate) command: CertCommand,
}

#[derive(Subcommand, Clone, Debug)]
pub(crate) enum CertCommand {
    /// Create a CA: the key that signs certificates, and its certificate
    #[command(after_help = EXIT_CODES)]
    Ca(CertCa),
    /// Create a key and a certificate for a server
    #[command(after_help = EXIT_CODES)]
    Server(CertServer),
    /// Create a key and a certificate for a client
    #[command(after_help = EXIT_CODES)]
    Client(CertClient),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CertCa {
    /// Directory for ca.crt and ca.key; created if missing
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Validity, from 1d to 36500d
    #[arg(long, value_name = "TIME", default_value = "3650d", value_parser = time_in(VALID))]
    pub(crate) valid: Duration,
    /// Replace the certificate by one for the same key: certificates signed by it stay valid
    #[arg(long)]
    pub(crate) renew: bool,
}

/// The validity of a certificate, and whether it replaces one.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Validity {
    /// Validity, from 1d to 36500d
    #[arg(long, value_name = "TIME", default_value = "365d", value_parser = time_in(VALID))]
    pub(crate) valid: Duration,
    /// Replace a certificate by one for the same key, with the names of this command. A running process
    /// uses it from its next connection on
    #[arg(long)]
    pub(crate) renew: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CertServer {
    /// Directory of ca.crt and ca.key, and for NAME.crt and NAME.key of the first name
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Every name and address by which clients reach the server. localhost, 127.0.0.1 and ::1 are added
    #[arg(value_name = "NAME_OR_IP", required = true)]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) validity: Validity,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CertClient {
    /// Directory of ca.crt and ca.key, and for NAME.crt and NAME.key
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The holder: a machine or a user. Each client should have its own certificate
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Permits this export only; repeatable [default: permits every export and administration]
    #[arg(long = "export", value_name = "NAME")]
    pub(crate) exports: Vec<String>,
    #[command(flatten)]
    pub(crate) validity: Validity,
}
