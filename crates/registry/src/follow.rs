//! `follow`: the state of the registry and every change of it, over failures of etcd.
//!
//! It reads everything, watches from that revision, and reads anew when the watch breaks or its revision
//! was compacted. While etcd is away what is known stays.

use crate::{Cluster, Etcd, RegistryError};
use std::ops::ControlFlow;
use std::time::Duration;

/// The pause before etcd is asked again that did not answer.
const PAUSE: Duration = Duration::from_millis(500);

/// What has happened.
#[derive(Debug)]
pub enum Step<'a> {
    /// The registry is like this now.
    Is(&'a Cluster),
    /// etcd does not answer, for the first time since it did; or an entry cannot be understood.
    Fails(&'a RegistryError),
}

/// Gives `take` each state of the registry of `fs` until it says that it is enough. States that are
/// overtaken before they are read may be left out.
pub fn follow(etcd: &Etcd, fs: [u8; 16], mut take: impl FnMut(Step<'_>) -> ControlFlow<()>) {
    let prefix = crate::prefix(fs);
    let mut has_failed = false;
    let mut known = None;
    loop {
        let followed = (|| -> Result<(), RegistryError> {
            let snapshot = etcd.read(&prefix)?;
            let mut cluster = Cluster::read(fs, &snapshot)?;
            if (has_failed || known != Some(cluster.clone())) && take(Step::Is(&cluster)).is_break()
            {
                return Ok(());
            }
            (has_failed, known) = (false, Some(cluster.clone()));
            let mut fault = None;
            let watched = etcd.watch(&prefix, snapshot.revision, |changes| {
                if let Err(error) = cluster.apply(&changes) {
                    fault = Some(error);
                    return ControlFlow::Break(());
                }
                known = Some(cluster.clone());
                take(Step::Is(&cluster))
            });
            fault.map_or(watched, Err)
        })();
        match followed {
            Ok(()) => return,
            Err(RegistryError::Compacted) => {}
            // A watch that saw nothing for a while: only reading again says whether etcd answers.
            Err(RegistryError::Away { .. }) if !has_failed && etcd.read(&prefix).is_ok() => {}
            Err(error) => {
                if !has_failed && take(Step::Fails(&error)).is_break() {
                    return;
                }
                has_failed = true;
                std::thread::sleep(PAUSE);
            }
        }
    }
}
