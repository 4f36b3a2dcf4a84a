//! How a cluster's etcd is reached, on the command line.

use anyhow::Result;
use clap::Args;
use registry::Access;
use std::path::PathBuf;

/// What an etcd asks for beside its addresses. Of secrets the files are named.
#[derive(Args, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct EtcdArg {
    /// For an etcd whose addresses begin with https://: the authority that has signed its certificate
    /// (PEM). The store of a server remembers this and the other --etcd options
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_ca: Option<PathBuf>,
    /// Certificate to show to etcd (PEM)
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    pub(crate) etcd_cert: Option<PathBuf>,
    /// Its private key (PEM, mode 0600)
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    pub(crate) etcd_key: Option<PathBuf>,
    /// User of etcd, with readwrite on /lanefs/
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    pub(crate) etcd_user: Option<String>,
    /// File with the user's password (mode 0600)
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    pub(crate) etcd_password_file: Option<PathBuf>,
}

impl EtcdArg {
    /// Access to these addresses.
    pub(crate) fn access(&self, urls: &str) -> Result<Access> {
        // A process in the background is elsewhere.
        let full = |path: &Option<PathBuf>| path.as_ref().map(std::path::absolute).transpose();
        Ok(Access {
            ca: full(&self.etcd_ca)?,
            cert: full(&self.etcd_cert)?,
            key: full(&self.etcd_key)?,
            user: self.etcd_user.clone(),
            password: full(&self.etcd_password_file)?,
            ..Access::to_endpoints(urls)
        })
    }
}
