//! `lanefs dump` and `lanefs restore`: all metadata of a store as lines of JSON, and a store of them.

use crate::{args, check as checking, out};
use anyhow::{Context as _, Result};
use check::{Contents, DumpError};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};

/// Runs `lanefs dump`.
pub(crate) fn run(args: &args::Dump) -> Result<()> {
    let view = checking::open(&args.store)?;
    let mut to = BufWriter::new(io::stdout().lock());
    let written = check::dump(&view, &mut to).and_then(|_| Ok(to.flush()?));
    match written {
        // A reader that went away ends the process by SIGPIPE, as it ends `cat`.
        Err(DumpError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGPIPE)?;
            Err(error.into())
        }
        written => Ok(written?),
    }
}

/// Runs `lanefs restore`.
pub(crate) fn restore(args: &args::Restore) -> Result<()> {
    let dump = File::open(&args.dump);
    let dump = dump.with_context(|| format!("cannot open {}", args.dump.display()))?;
    let contents = args.contents.as_deref().map_or(Contents::Zeros, Contents::Objects);
    let restored = check::restore(&mut BufReader::new(dump), &args.store, contents)?;
    out::tell(&format!(
        "{} inodes, {} objects, {} bytes copied",
        restored.inode_count, restored.object_count, restored.copied_bytes
    ));
    Ok(())
}
