//! Reads a large file with many pieces in flight at once, and prints its CRC-32C:
//!
//! ```text
//! cargo run --release --example parallel_read -- 127.0.0.1:7117 /data/set.bin
//! ```
//! It uses the non-blocking API: every piece is a future, and eight of them wait together. Any
//! executor can drive them; here it is that of `futures`.

use crc_fast::{CrcAlgorithm, Digest};
use futures::executor::block_on;
use futures::stream::{self, StreamExt as _};
use library::nonblocking::Volume;
use library::{BULK_BYTES_MAX, ConnectOptions, OpenFor, Piece, secret};
use std::error::Error;

/// Pieces in flight at once.
const PARALLEL_COUNT: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(address), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: parallel_read ADDRESS:PORT FILE".into());
    };
    let address = address.to_str().ok_or("the address is no text")?.parse()?;
    let secret = secret::read(&secret::path(None)?)?;
    let options = ConnectOptions::new(address, secret);

    block_on(async {
        let volume = Volume::connect(&options).await?;
        let file = volume.open(&path, OpenFor::Read).await?;
        let piece_count = file.attr.size_bytes.div_ceil(BULK_BYTES_MAX.into());
        let (volume_here, file_here) = (&volume, &file);
        let mut pieces = stream::iter(0..piece_count)
            .map(|index| {
                let file_offset = index * u64::from(BULK_BYTES_MAX);
                let piece = Piece { file_offset, piece_bytes: BULK_BYTES_MAX };
                volume_here.read_at(file_here, piece)
            })
            .buffered(PARALLEL_COUNT);
        let (mut read_bytes, mut sum) = (0_u64, Digest::new(CrcAlgorithm::Crc32Iscsi));
        while let Some(bytes) = pieces.next().await {
            let bytes = bytes?;
            sum.update(&bytes);
            read_bytes += u64::try_from(bytes.len())?;
        }
        println!("{read_bytes} bytes, CRC-32C {:08x}", sum.finalize());
        drop(pieces);
        volume.close(file).await?;
        volume.leave().await?;
        Ok(())
    })
}
