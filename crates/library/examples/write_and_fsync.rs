//! Writes a checkpoint atomically: under another name, synced, then renamed:
//!
//! ```text
//! some-program | cargo run --release --example write_and_fsync -- 127.0.0.1:7117 /run/checkpoint
//! ```

use library::{ConnectOptions, Volume, secret};
use std::error::Error;
use std::io::{Read as _, stdin};
use std::path::PathBuf;

/// Bytes read from the input at a time: several pieces, which are sent together.
const STEP_BYTES: u64 = 8 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(address), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: write_and_fsync ADDRESS:PORT FILE < INPUT".into());
    };
    let address = address.to_str().ok_or("the address is no text")?.parse()?;
    let secret = secret::read(&secret::path(None)?)?;
    let mut volume = Volume::connect(&ConnectOptions::new(address, secret))?;

    let path = PathBuf::from(path);
    let draft = path.with_extension("draft");
    let file = volume.create(&draft, 0o644, false)?;
    volume.truncate(&file, 0)?;
    let mut written_bytes = 0;
    loop {
        let mut bytes = Vec::new();
        stdin().lock().take(STEP_BYTES).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            break;
        }
        volume.write_at(&file, written_bytes, &bytes)?;
        written_bytes += u64::try_from(bytes.len())?;
    }
    // The contents first: a durable name must not refer to contents that are not durable.
    volume.sync_file(&file)?;
    volume.close(file)?;
    volume.rename(&draft, &path)?;
    // Now the name.
    volume.sync()?;
    println!("{written_bytes} bytes are on disk");
    volume.leave()?;
    Ok(())
}
