//! The plan of `up`: addresses, paths and options of its server and mount.

use super::place::Place;
use super::servers::Cluster;
use crate::args::{self, Pin, Transport};
use library::certificates::Files;
use ring::{DriverFound, DriverKind};
use std::path::PathBuf;
use std::time::Duration;

/// The export of `up`'s own mount.
pub(crate) const EXPORT: &str = "up";

/// Everything checked, no server and no mount started.
pub(crate) struct Plan {
    /// Absolute.
    pub(crate) dir: PathBuf,
    /// The only server, or the first one of a cluster.
    pub(crate) first: Place,
    /// The others, where there are several.
    pub(crate) cluster: Option<Cluster>,
    /// Absolute.
    pub(crate) secret_file: PathBuf,
    /// Lanes asked for.
    pub(crate) lanes: Option<u16>,
    /// How long lanes look out for more work before they sleep.
    pub(crate) spin: Duration,
    /// Whether lanes stay on their cores.
    pub(crate) pin: Pin,
    /// What the server reaches the kernel through.
    pub(crate) driver: DriverFound,
    /// The same of the mount.
    pub(crate) mount_driver: DriverKind,
    /// How the server serves.
    pub(crate) serving: args::Serving,
    /// Where the server shows what it does.
    pub(crate) metrics: args::MetricsArg,
    /// Whether connections are under TLS.
    pub(crate) seal: args::SealArg,
    /// What others may show instead of the secret, which our own mount proves.
    pub(crate) certificates: Option<Files>,
    /// How the mount talks to the kernel.
    pub(crate) fuse: Transport,
    /// What programs may do through the mount.
    pub(crate) powers: args::Powers,
    /// Why there is no mount.
    pub(crate) obstacle: Option<String>,
    /// What the log has.
    pub(crate) log_level: args::LogArg,
    /// In the background: where output goes once everything runs.
    pub(crate) log: Option<PathBuf>,
}

impl Plan {
    /// The servers in order.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Place> {
        let further = self.cluster.iter().flat_map(|cluster| &cluster.further);
        std::iter::once(&self.first).chain(further)
    }
}
