//! `lanefs cat`: the bytes of files to stdout, several pieces on their way at once.

use super::side::READ_AHEAD_COUNT;
use super::{Session, urls};
use crate::address::Url;
use crate::{args, out};
use anyhow::Result;
use library::{BULK_BYTES_MAX, OpenFor, Piece};

/// Runs the command.
pub(crate) fn run(args: &args::Cat) -> Result<()> {
    let mut session = Session::new("cat", &args.access);
    for url in urls(&args.paths)? {
        let printed = print(&mut session, &url);
        session.report(&url.text(), printed)?;
    }
    session.end()
}

/// Prints one file.
pub(super) fn print(session: &mut Session, url: &Url) -> Result<()> {
    let volume = session.volume(url)?;
    let file = volume.open(&url.path, OpenFor::Read)?;
    let piece_bytes = u64::from(BULK_BYTES_MAX);
    let mut file_offset = 0;
    // A small file is one small read; pieces behind the end are empty.
    let mut piece_count = file.attr.size_bytes.div_ceil(piece_bytes).max(1);
    'file: loop {
        let count = piece_count.clamp(1, READ_AHEAD_COUNT);
        let pieces: Vec<Piece> = (0..count)
            .map(|index| Piece {
                file_offset: file_offset + index * piece_bytes,
                piece_bytes: BULK_BYTES_MAX,
            })
            .collect();
        for bytes in volume.read_pieces(&file, &pieces)? {
            out::print_bytes(&bytes)?;
            // The end may have moved since the file was opened, so only a short piece is the end.
            if (bytes.len() as u64) < piece_bytes {
                break 'file;
            }
        }
        file_offset += count * piece_bytes;
        piece_count = piece_count.saturating_sub(count);
    }
    volume.close(file)?;
    Ok(())
}
