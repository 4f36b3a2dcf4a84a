//! `lanefs backup`: a copy of a store as it was at one moment, while clients use it.
//!
//! Several rounds of copies make the last one short; changes of clients are frozen during the last one only. Copies are compared
//! with the store's checksums behind it, where they lie.

use crate::address::StorePlace;
use crate::inspect::remote;
use crate::online::{FreezeControl, LocalServer};
use crate::{args, check as checking, out};
use anyhow::{Result, bail};
use check::{Backup, Finished, Round};
use std::path::Path;
use std::time::{Duration, Instant};
use store::View;

/// A round that copies less is followed by the last one.
const LITTLE_BYTES: u64 = 8 << 20;
/// Most rounds without a freeze.
const ROUND_COUNT_MAX: u32 = 6;
/// Most freezes per backup.
const FREEZE_COUNT_MAX: u32 = 3;

/// Where rounds of copies go.
pub(crate) trait Copies<B> {
    /// Copies what has changed. `ends` says, after each file, whether to end early.
    fn round(&mut self, control: &mut B, ends: &mut dyn FnMut() -> bool) -> Result<Round>;
}

impl<B> Copies<B> for Backup {
    fn round(&mut self, _control: &mut B, ends: &mut dyn FnMut() -> bool) -> Result<Round> {
        Ok(Self::round(self, ends)?)
    }
}

/// Runs the command.
pub(crate) fn run(args: &args::Backup) -> Result<()> {
    let store = match StorePlace::read(&args.store)? {
        StorePlace::Dir(store) => store,
        StorePlace::Server(server) => {
            let server = args::Server { server, login: args.serving.clone() };
            let freeze_ms_max = u64::try_from(args.freeze_max.as_millis()).unwrap_or(u64::MAX);
            return is_whole(&remote::backup(&server, &args.dir, freeze_ms_max)?);
        }
    };
    let mut server = LocalServer::new(&store, &args.serving);
    match View::open(&store) {
        Ok(view) => {
            let mut backup = Backup::begin(&view.objects_path(), &args.dir)?;
            let round = backup.round(|| false)?;
            server.report_line(&text("copied", &round))?;
            return is_whole(&backup.finish(view)?);
        }
        Err(error) if checking::is_served(&store, &error) => {}
        Err(error) => return Err(error.into()),
    }
    let mut backup = Backup::begin(&store.join("objects"), &args.dir)?;
    let view = copy_served(&mut backup, (&store, args.freeze_max), &mut server)?;
    is_whole(&backup.finish(view)?)
}

/// Copies the objects of a store that a server has open, in rounds; returns the metadata as of the last one.
pub(crate) fn copy_served<B: FreezeControl>(
    copies: &mut impl Copies<B>,
    (store, freeze_max): (&Path, Duration),
    control: &mut B,
) -> Result<View> {
    for _ in 0..FREEZE_COUNT_MAX {
        for _ in 0..ROUND_COUNT_MAX {
            let round = copies.round(control, &mut || false)?;
            control.report_line(&text("copied", &round))?;
            if round.copied_bytes < LITTLE_BYTES {
                break;
            }
        }
        if let Some(view) = copy_rest(copies, (store, freeze_max), control)? {
            return Ok(view);
        }
    }
    bail!(
        "clients change more than can be copied in {freeze_max:?}: pass a larger --freeze-max, or try again \
         when they do less; the copies are used then"
    )
}

/// Copies the rest while changes are frozen; returns the metadata of that moment, `None` if it takes too long.
fn copy_rest<B: FreezeControl>(
    copies: &mut impl Copies<B>,
    (store, freeze_max): (&Path, Duration),
    control: &mut B,
) -> Result<Option<View>> {
    control.freeze()?;
    let began_at = Instant::now();
    let copied = copies.round(control, &mut || began_at.elapsed() > freeze_max);
    let view = copied.map(|round| (round, View::open_served(store)));
    let frozen = began_at.elapsed();
    control.thaw()?;
    let (round, view) = view?;
    control.report_line(&text("copied while changes waited", &round))?;
    control.report_line(&format!("changes of clients waited for {} ms", frozen.as_millis()))?;
    Ok(if round.ended_early { None } else { Some(view?) })
}

fn is_whole(finished: &Finished) -> Result<()> {
    let Finished { line_count, damages } = finished;
    checking::tell_of(damages)?;
    let damaged = match damages.count() {
        0 => String::new(),
        count => format!("; {count} files are damaged and marked, see `lanefs check`"),
    };
    out::print_line(&format!("the backup is whole: {line_count} lines of metadata{damaged}"));
    checking::end_with_damages(damages)
}

fn text(what: &str, round: &Round) -> String {
    format!("{what} {} bytes of {} files", round.copied_bytes, round.copied_count)
}
