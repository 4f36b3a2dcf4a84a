//! `lanefs backup`: a copy of a store as it was at one moment, while clients use it.
//!
//! Rounds of copies make the last one short, and only during that changes of clients wait. Copies are compared
//! with the store's checksums behind it.

use crate::online::Hold;
use crate::{args, check as checking, out};
use anyhow::{Result, bail};
use check::{Backup, Finished, Round};
use std::time::Instant;
use store::View;

/// A round that copies less is followed by the last one.
const LITTLE_BYTES: u64 = 8 << 20;
/// Rounds while clients go on.
const ROUND_COUNT_MAX: u32 = 6;
/// Times that changes of clients wait until it is given up.
const FREEZE_COUNT_MAX: u32 = 3;

/// Runs the command.
pub(crate) fn run(args: &args::Backup) -> Result<()> {
    match View::open(&args.store) {
        Ok(view) => {
            let mut backup = Backup::begin(&view.objects_path(), &args.dir)?;
            tell("copied", &backup.round(|| false)?);
            return finish(backup, &view);
        }
        Err(error) if checking::is_served(&args.store, &error) => {}
        Err(error) => return Err(error.into()),
    }
    let mut backup = Backup::begin(&args.store.join("objects"), &args.dir)?;
    for _ in 0..FREEZE_COUNT_MAX {
        for _ in 0..ROUND_COUNT_MAX {
            let round = backup.round(|| false)?;
            tell("copied", &round);
            if round.copied_bytes < LITTLE_BYTES {
                break;
            }
        }
        if let Some(view) = copy_rest(&mut backup, args)? {
            return finish(backup, &view);
        }
    }
    bail!(
        "clients change more than can be copied in {:?}: pass a larger --freeze-max, or try again when \
         they do less; what was copied is used then",
        args.freeze_max
    )
}

/// Copies what is left while changes wait; the metadata of that moment, unless it takes too long.
fn copy_rest(backup: &mut Backup, args: &args::Backup) -> Result<Option<View>> {
    let hold = Hold::begin(&args.serving.of(&args.store))?;
    let began_at = Instant::now();
    let copied = backup.round(|| began_at.elapsed() > args.freeze_max);
    let view = copied.map(|round| (round, View::open_served(&args.store)));
    let frozen = began_at.elapsed();
    checking::end(hold)?;
    let (round, view) = view?;
    tell("copied while changes waited", &round);
    out::complain(&format!("changes of clients waited for {} ms", frozen.as_millis()));
    Ok(if round.ended_early { None } else { Some(view?) })
}

fn finish(backup: Backup, view: &View) -> Result<()> {
    let Finished { line_count, damages } = backup.finish(view)?;
    checking::tell_of(&damages)?;
    let damaged = match damages.count() {
        0 => String::new(),
        count => format!("; {count} files are damaged and marked, see `lanefs check`"),
    };
    out::tell(&format!("the backup is whole: {line_count} lines of metadata{damaged}"));
    checking::end_with_damages(&damages)
}

fn tell(what: &str, round: &Round) {
    out::complain(&format!("{what} {} bytes of {} files", round.copied_bytes, round.copied_count));
}
