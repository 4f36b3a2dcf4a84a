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
    /// Make a CA: the key that signs certificates, and its certificate
    #[command(after_help = EXIT_CODES)]
    Ca(CertCa),
    /// Make a key and a certificate for a server
    #[command(after_help = EXIT_CODES)]
    Server(CertServer),
    /// Make a key and a certificate for a client
    #[command(after_help = EXIT_CODES)]
    Client(CertClient),
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CertCa {
    /// Where ca.crt and ca.key are made; made if missing
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// For how long it is valid, from 1d to 36500d
    #[arg(long, value_name = "TIME", default_value = "3650d", value_parser = time_in(VALID))]
    pub(crate) valid: Duration,
    /// Replace the certificate by one for the same key: what it has signed stays valid
    #[arg(long)]
    pub(crate) renew: bool,
}

/// For how long a certificate is made, and over what.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Validity {
    /// For how long it is valid, from 1d to 36500d
    #[arg(long, value_name = "TIME", default_value = "365d", value_parser = time_in(VALID))]
    pub(crate) valid: Duration,
    /// Replace a certificate by one for the same key, with the names that are given now. Who uses it shows
    /// the new one from his next connection on
    #[arg(long)]
    pub(crate) renew: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CertServer {
    /// Where ca.crt and ca.key are, and where NAME.crt and NAME.key are made, of the first name
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// How clients reach it: every name and address that stands in their commands. localhost, 127.0.0.1
    /// and ::1 are added
    #[arg(value_name = "NAME_OR_IP", required = true)]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) validity: Validity,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct CertClient {
    /// Where ca.crt and ca.key are, and where NAME.crt and NAME.key are made
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Who or what it is for: a machine, a user. Each client should have its own
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// It opens this export and nothing else; may be given several times [default: it opens every export,
    /// and administers]
    #[arg(long = "export", value_name = "NAME")]
    pub(crate) exports: Vec<String>,
    #[command(flatten)]
    pub(crate) validity: Validity,
}
