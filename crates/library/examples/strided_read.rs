//! Adds up a column of a matrix of 64-bit numbers that is stored in a file row by row:
//!
//! ```text
//! cargo run --release --example strided_read -- 127.0.0.1:7117 /data/matrix.bin COLUMNS COLUMN
//! ```
//! A column is a stride: eight bytes of each row. Up to 256 rows are read in one exchange, which
//! carries only their eight bytes, however long a row is.

use library::{ConnectOptions, OpenFor, Stride, Volume, secret};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, path, column_count, column] = arguments.as_slice() else {
        return Err("usage: strided_read ADDRESS:PORT FILE COLUMNS COLUMN".into());
    };
    let secret = secret::read(&secret::path(None)?)?;
    let mut volume = Volume::connect(&ConnectOptions::new(address.parse()?, secret))?;
    let file = volume.open(path.as_ref(), OpenFor::Read)?;

    let row_bytes = 8 * column_count.parse::<u64>()?;
    let row_count = usize::try_from(file.attr.size_bytes / row_bytes)?;
    let file_offset = 8 * column.parse::<u64>()?;
    let stride = Stride { file_offset, piece_bytes: 8, step_bytes: row_bytes, count: row_count };
    let read = volume.read_stride(&file, stride)?;
    let mut sum = 0_u64;
    for number in read.pieces() {
        // Shorter if another client truncated the file meanwhile.
        sum = sum.wrapping_add(u64::from_le_bytes(number.try_into()?));
    }
    println!("{row_count} rows, the sum of column {column} is {sum}");
    volume.close(file)?;
    volume.leave()?;
    Ok(())
}
