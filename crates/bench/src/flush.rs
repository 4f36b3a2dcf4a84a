//! This disk's flush: small appends, each made durable before the next, as a log without concurrent
//! requests makes them.

use crate::load::latencies;
use crate::number::number;
use crate::row::Row;
use crate::server::Home;
use anyhow::{Context as _, Result};
use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

const APPEND_BYTES: usize = 512;
/// Reserved beforehand, as the log does, so that a flush writes no metadata.
const RESERVED_BYTES: u64 = 8 << 20;

pub(crate) fn run(home: &Home, bench: &'static str) -> Result<Row> {
    let file = File::create(home.path().join("flush")).context("cannot make a file to flush")?;
    fallocate(&file, FallocateFlags::empty(), 0, RESERVED_BYTES).with_context(|| {
        format!("cannot reserve 8 MiB in {}: see --dir", home.options.dir.display())
    })?;
    let mut took = latencies()?;
    let start = Instant::now();
    let mut offset = 0;
    // At least one.
    while took.is_empty() || start.elapsed().as_secs_f64() < home.options.seconds {
        home.options.interrupt.check()?;
        let begin = Instant::now();
        file.write_all_at(&[0x5a; APPEND_BYTES], offset)?;
        fdatasync(&file).context("the disk cannot flush")?;
        took.saturating_record(u64::try_from(begin.elapsed().as_nanos())?);
        offset = (offset + APPEND_BYTES as u64) % RESERVED_BYTES;
    }
    let mut row = Row::new(bench, "flush");
    row.ops_per_s = Some(number(took.len()) / start.elapsed().as_secs_f64());
    row.mean_us = Some(took.mean() / 1e3);
    row.p50_us = Some(number(took.value_at_quantile(0.5)) / 1e3);
    row.p99_us = Some(number(took.value_at_quantile(0.99)) / 1e3);
    row.p999_us = Some(number(took.value_at_quantile(0.999)) / 1e3);
    Ok(row)
}
