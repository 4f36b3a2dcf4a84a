//! A round of a backup, over all objects.

use crate::backup_error::BackupError;
use store::{ObjectFiles, ObjectName};

/// What a round came to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Round {
    /// Bytes that were copied, holes left out.
    pub copied_bytes: u64,
    /// Files that were copied.
    pub copied_count: u64,
    /// It was ended before it had seen everything.
    pub ended_early: bool,
}

/// A round: gives each object to `take`, which says how many bytes it copied or sent, if any. `ends`
/// says, after each object, whether to end early.
pub(crate) fn each_object(
    files: &ObjectFiles,
    ends: &mut dyn FnMut() -> bool,
    mut take: impl FnMut(ObjectName) -> Result<Option<u64>, BackupError>,
) -> Result<Round, BackupError> {
    let mut round = Round::default();
    let mut failed = None;
    let feed = |file: store::ObjectFile| {
        if failed.is_some() || round.ended_early {
            return Ok(());
        }
        match take(file.name) {
            Ok(None) => {}
            Ok(Some(copied_bytes)) => {
                round.copied_bytes += copied_bytes;
                round.copied_count += 1;
            }
            Err(error) => failed = Some(error),
        }
        round.ended_early = ends();
        Ok(())
    };
    files.each(feed, |_| {})?;
    failed.map_or(Ok(round), Err)
}
