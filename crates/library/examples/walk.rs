//! Walks a tree without a mount and prints its entries, with the sum of their sizes:
//!
//! ```text
//! cargo run --example walk -- 127.0.0.1:7117 /some/directory
//! ```
//! The secret is found as the command line finds it (`library::secret::path` says where).

use library::{ConnectOptions, FileKind, Volume, secret};
use std::error::Error;
use std::io::{Write as _, stdout};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(address), Some(root)) = (arguments.next(), arguments.next()) else {
        return Err("usage: walk ADDRESS:PORT DIRECTORY".into());
    };
    let address = address.to_str().ok_or("the address is no text")?.parse()?;
    let secret = secret::read(&secret::path(None)?)?;
    let mut volume = Volume::connect(&ConnectOptions::new(address, secret))?;

    let mut out = stdout().lock();
    let (mut file_count, mut sum_bytes) = (0_u64, 0_u64);
    let mut waiting = vec![PathBuf::from(root)];
    while let Some(path) = waiting.pop() {
        let mut dir = volume.read_dir(&path)?;
        loop {
            // The entries of one exchange; none at the end.
            let entries = volume.next_entries(&mut dir)?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                let path = path.join(&entry.name);
                writeln!(out, "{:>12} {}", entry.attr.size_bytes, path.display())?;
                if entry.attr.kind == FileKind::Directory {
                    waiting.push(path);
                } else {
                    file_count += 1;
                    sum_bytes += entry.attr.size_bytes;
                }
            }
        }
    }
    writeln!(out, "{file_count} files, {sum_bytes} bytes")?;
    volume.leave()?;
    Ok(())
}
