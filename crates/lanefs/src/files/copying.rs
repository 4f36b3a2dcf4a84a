//! Common parts of copies of files and pipes: the destination and the progress of a source.

use super::side;
use super::target::Target;
use crate::address::Place;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// The destination of a source.
pub(super) fn target_of(dest: &Place, into: bool, source: &Place) -> Result<Target> {
    if into {
        return Target::new(dest, &side::name_of(source)?);
    }
    let name = side::name_of(dest)?;
    Target::new(&side::above(dest), &name)
}

/// Progress on stderr, if that is a terminal.
pub(super) fn progress() -> ProgressBar {
    let progress = ProgressBar::new(0);
    let template = "{bytes}/{total_bytes} {bytes_per_sec} {wide_msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        progress.set_style(style);
    }
    progress.enable_steady_tick(Duration::from_millis(200));
    progress
}
