//! The options of a server for Prometheus and browsers.

use crate::address;
use clap::Args;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
pub(crate) struct MetricsArg {
    /// Show what the server does: a page at http://HOST:PORT/, the counters for Prometheus at
    /// http://HOST:PORT/metrics. An address that is not loopback needs --metrics-token-file
    #[arg(long, value_name = "HOST:PORT", value_parser = address::read_with_port)]
    pub(crate) metrics: Option<String>,
    /// File with the token that opens them, as `authorization: credentials_file` of Prometheus
    #[arg(long, value_name = "FILE", requires = "metrics")]
    pub(crate) metrics_token_file: Option<PathBuf>,
}

impl MetricsArg {
    /// The same with a path that means the same file from everywhere.
    pub(crate) fn absolute(&self) -> io::Result<Self> {
        let file = self.metrics_token_file.as_ref().map(std::path::absolute).transpose()?;
        Ok(Self { metrics: self.metrics.clone(), metrics_token_file: file })
    }

    /// The same as words of a command line.
    pub(crate) fn texts(&self) -> Vec<OsString> {
        let metrics = self.metrics.iter().flat_map(|at| ["--metrics".into(), at.into()]);
        let file = self.metrics_token_file.iter();
        let token = file.flat_map(|file| ["--metrics-token-file".into(), file.into()]);
        metrics.chain(token).collect()
    }
}
