//! Mounts with lanes on either driver, client and server alike, over `/dev/fuse`.

use super::caller::Place;
use super::side::Real;
use super::{Op, fill_ops, measure};
use crate::report::Progress;
use crate::rounds::alternate;
use crate::row::Row;
use crate::samples::{Compare, compare};
use crate::server::Home;
use anyhow::{Context as _, Result};
use ring::{DriverKind, Transport};

const OPS: [Op; 4] = [Op::Stat, Op::Create, Op::ReadAt(4096), Op::WriteAt(4096)];

/// Rows of `bench`, each operation on io_uring and on epoll.
///
/// # Errors
/// When something cannot be mounted, or an operation fails.
pub(crate) fn run(home: &Home, bench: &'static str) -> Result<Vec<Row>> {
    let start = |driver: DriverKind| {
        let name = format!("mount-{}", driver.text());
        let real = Real::start(home, &name, (driver, Transport::Classic))?;
        Place::furnish(&real.dir, 1, &home.options)
            .with_context(|| format!("cannot use {}", real.dir.display()))?;
        anyhow::Ok(real)
    };
    let [io_uring, epoll] = DriverKind::ALL.map(start);
    let mut sides = [io_uring?, epoll?];
    let progress = Progress::new(bench);
    let contender_count = OPS.len() * sides.len();
    progress.begin(contender_count * home.options.round_count);
    let samples = alternate(contender_count, home.options.round_count, |index, _| {
        let (op, side) = (OPS[index / 2], &mut sides[index % 2]);
        progress.step(&op.text());
        let dir = side.dir.clone();
        measure(home, (&dir, op, 1), || side.usage().map(Some)).with_context(|| op.text())
    });
    home.cores.go_to_generator()?;
    progress.end();
    let samples = samples?;
    let mut rows = Vec::new();
    for (index, own) in samples.iter().enumerate() {
        let driver = DriverKind::ALL[index % 2];
        let mut row = Row::new(bench, format!("mount {} {}", OPS[index / 2].text(), driver.text()));
        row.clients = Some(1);
        fill_ops(&mut row, own);
        if driver == DriverKind::Epoll {
            let limit = format!("mount {} {}", OPS[index / 2].text(), DriverKind::IoUring.text());
            compare(&mut row, own, (&limit, &samples[index - 1]), Compare::Latency);
        }
        rows.push(row);
    }
    Ok(rows)
}
