//! The options of a server for Prometheus.

use crate::address;
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
pub(crate) struct MetricsArg {
    /// Address for Prometheus: the counters are at http://HOST:PORT/metrics. One that is not loopback
    /// needs --metrics-token-file
    #[arg(long, value_name = "HOST:PORT", value_parser = address::read)]
    pub(crate) metrics: Option<String>,
    /// File with the token that opens the metrics, as `authorization: credentials_file` of Prometheus
    #[arg(long, value_name = "FILE", requires = "metrics")]
    pub(crate) metrics_token_file: Option<PathBuf>,
}
