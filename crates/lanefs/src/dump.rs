//! `lanefs dump` and `lanefs restore`: all metadata of a store as lines of JSON, and a store of them.

use crate::address::StorePlace;
use crate::exit::{Code, Exit};
use crate::inspect::remote;
use crate::online::LocalServer;
use crate::{args, check as checking, out};
use anyhow::{Context as _, Result};
use check::{Backup, Contents, DumpError, RestoreError, Source};
use library::Inspection;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};

/// Runs `lanefs dump`.
pub(crate) fn run(args: &args::Dump) -> Result<()> {
    let store = match StorePlace::read(&args.store)? {
        StorePlace::Dir(store) => store,
        StorePlace::Server(server) => {
            let server = args::Server { server, login: args.serving.clone() };
            return remote::print(&server, Inspection::Dump);
        }
    };
    let (view, _) = checking::open(&store, &mut LocalServer::new(&store, &args.serving))?;
    let mut to = BufWriter::new(io::stdout().lock());
    let written = check::dump(&view, &mut to).and_then(|_| Ok(to.flush()?));
    checking::still_current(&view)?;
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
    let mut dump = args.dump.clone();
    let mut contents = args.contents.clone();
    if dump.is_dir() {
        let objects;
        (dump, objects) = Backup::parts(&args.dump)?;
        contents = contents.or(Some(objects));
    }
    let contents = match &contents {
        _ if args.zeros => Contents::Zeros,
        Some(folder) => Contents::Objects(Source { folder, takes_damage: args.accept_damage }),
        None => {
            let line = "this is no folder of a backup: where its contents are says --contents DIR; \
                        --zeros does without";
            return Err(Exit::new(Code::Usage, line).into());
        }
    };
    let lines = File::open(&dump).with_context(|| format!("cannot open {}", dump.display()))?;
    let restored = match check::restore(&mut BufReader::new(lines), &args.store, contents) {
        Ok(restored) => restored,
        Err(RestoreError::Damaged(damages)) => {
            checking::tell_of(&damages)?;
            return Err(RestoreError::Damaged(damages).into());
        }
        Err(error) => return Err(error.into()),
    };
    checking::tell_of(&restored.damages)?;
    out::print_line(&format!(
        "{} inodes, {} objects, {} bytes copied",
        restored.inode_count, restored.object_count, restored.copied_bytes
    ));
    checking::end_with_damages(&restored.damages)
}
