//! What a check has under way.

use check::Watch;
use indicatif::{ProgressBar, ProgressStyle};

/// What is under way, on stderr where that is a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{msg}: {pos}") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// A pass begins.
    pub(crate) fn begin(&self, name: &str) {
        self.bar.set_message(name.to_owned());
        self.bar.set_position(0);
    }

    /// So many more were looked at.
    pub(crate) fn add(&self, count: u64) {
        self.bar.inc(count);
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Watch for Progress {
    fn pass(&mut self, name: &'static str) {
        self.begin(name);
    }

    fn looked(&mut self, count: u64) {
        self.add(count);
    }
}
