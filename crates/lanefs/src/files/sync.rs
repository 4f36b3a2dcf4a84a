//! `lanefs sync`: waits until all changes are durable whose callers have their results, on any client.

use super::{Session, urls};
use crate::args;
use anyhow::Result;

/// Runs the command.
pub(crate) fn run(args: &args::Sync) -> Result<()> {
    let mut session = Session::new("sync", &args.access);
    for url in urls(&args.paths)? {
        let synced = session.volume(&url)?.sync_server();
        session.report(&format!("lanefs://{}", url.address), synced.map_err(Into::into))?;
    }
    session.end()
}
