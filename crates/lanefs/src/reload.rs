//! SIGHUP to a server or mount without a terminal: reloads the reloadable settings and logs it.
//!
//! Each command reloads its secret and certificates; of the configuration the log level is reloaded, and other
//! changes are logged as effective at the next start. Invariant: an invalid file changes nothing.

use crate::config::{Pair, Source};
use crate::log::{self, LogLevel};
use crate::notify;
use anyhow::Result;
use clap::ValueEnum as _;
use std::ffi::OsString;
use tracing::{info, warn};

/// The option that is in effect at once.
const LEVEL: &str = "log-level";

/// What a process reads again.
pub(crate) struct Reload {
    configuration: Option<(Source, Vec<Pair>)>,
    own: Box<dyn FnMut() + Send>,
}

impl Reload {
    /// Reloads the configuration of this process's command line, then calls `own`.
    pub(crate) fn new(own: impl FnMut() + Send + 'static) -> Result<Self> {
        let line: Vec<OsString> = std::env::args_os().collect();
        let source = Source::of(&line)?;
        let configuration = source.map(|source| source.read().map(|pairs| (source, pairs)));
        Ok(Self { configuration: configuration.transpose()?, own: Box::new(own) })
    }

    /// Does so.
    pub(crate) fn run(&mut self) {
        notify::reloading();
        if let Some((source, pairs)) = &mut self.configuration {
            let path = source.path().display();
            match source.read() {
                Ok(found) => {
                    let changed = changed(pairs, &found);
                    if changed.contains(&LEVEL.to_owned()) {
                        set_level(&found);
                    }
                    let later: Vec<&str> =
                        changed.iter().map(String::as_str).filter(|name| *name != LEVEL).collect();
                    if later.is_empty() {
                        info!("read {path} again");
                    } else {
                        warn!("read {path} again; from the next start on: {}", later.join(", "));
                    }
                    *pairs = found;
                }
                Err(error) => warn!("{error:#}; the earlier settings stay in force"),
            }
        }
        (self.own)();
        notify::ready_again();
    }
}

/// Names with changed values, in the order of the files.
fn changed(before: &[Pair], now: &[Pair]) -> Vec<String> {
    let new = now.iter().filter(|pair| !before.iter().any(|it| it.says_the_same(pair)));
    let removed = before.iter().filter(|pair| !now.iter().any(|it| it.name == pair.name));
    new.chain(removed).map(|pair| pair.name.clone()).collect()
}

fn set_level(pairs: &[Pair]) {
    let text = pairs.iter().find(|pair| pair.name == LEVEL).and_then(Pair::value);
    let level = text.and_then(|text| LogLevel::from_str(text, false).ok());
    log::set_level(level);
    match level {
        Some(level) => info!("logging {} and above from here on", level.text()),
        None => info!("logging the usual from here on"),
    }
}
