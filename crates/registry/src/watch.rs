//! `follow`: the state of the registry and every change of it, from a real etcd, as [`Following`] decides.

use crate::{Cluster, Etcd, Following, RegistryError, Retry};
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
    let mut following = Following::new(fs);
    loop {
        let followed = (|| -> Result<(), RegistryError> {
            let snapshot = etcd.read(&prefix)?;
            if let Some(cluster) = following.on_read(&snapshot)?
                && take(Step::Is(cluster)).is_break()
            {
                return Ok(());
            }
            let mut fault = None;
            let watched = etcd.watch(&prefix, snapshot.revision, |changes| {
                match following.on_changes(&changes) {
                    Ok(Some(cluster)) => take(Step::Is(cluster)),
                    Ok(None) => ControlFlow::Continue(()),
                    Err(error) => {
                        fault = Some(error);
                        ControlFlow::Break(())
                    }
                }
            });
            fault.map_or(watched, Err)
        })();
        let Err(error) = followed else { return };
        match following.on_failure(&error) {
            Retry::Now => {}
            Retry::Later { is_first } => {
                if is_first && take(Step::Fails(&error)).is_break() {
                    return;
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
}
