//! `echo`: a getattr's frames through a lane without a file system, beside a bare loop; with an
//! option also through servers with a thread for each layer.

use crate::limit::Limit;
use crate::load::Work;
use crate::race::Race;
use crate::report::Progress;
use crate::row::Row;
use crate::samples::Compare;
use crate::server::{Home, Server};
use anyhow::Result;
use ring::{DriverChoice, DriverKind};
use wire::InodeNo;

pub(crate) const NAME: &str = "echo";
/// Connections, and requests under way on each.
const SHAPES: [(u32, u32); 3] = [(1, 1), (64, 1), (64, 16)];

/// The operation whose frames are exchanged.
pub(crate) const GETATTR: Work = Work::Getattr { inode: InodeNo::ROOT };

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let options = &home.options;
    // The bare loop needs io_uring.
    let has_ring = DriverChoice::Only(DriverKind::IoUring).find().is_ok();
    let bare = has_ring.then(|| home.start_limit(&Limit::Bare)).transpose()?;
    let echo = home.start_limit(&Limit::Echo(options.driver))?;
    let layers: Result<Vec<(u8, Server)>> = (options.hops.iter())
        .map(|hop_count| Ok((*hop_count, home.start_limit(&Limit::Layers(*hop_count))?)))
        .collect();
    let layers = layers?;
    let mut race = Race::new(home);
    for shape in options.shapes(&SHAPES) {
        let limit = match &bare {
            Some(bare) => Some(race.enter(bare, Row::new(NAME, "bare"), shape, |_| Ok(GETATTR))?),
            None => None,
        };
        let mut row = Row::new(NAME, "lane");
        row.note = (!has_ring).then(|| "no bare loop: io_uring cannot be used here".to_owned());
        let ours = race.enter(&echo, row, shape, |_| Ok(GETATTR))?;
        if let Some(limit) = limit {
            race.hold(ours, limit, Compare::ops(shape.0));
        }
        for (hop_count, server) in &layers {
            let row = Row::new(NAME, format!("layers, {hop_count} hops"));
            let entrant = race.enter(server, row, shape, |_| Ok(GETATTR))?;
            race.hold(entrant, ours, Compare::ops(shape.0));
        }
    }
    race.run(&Progress::new(NAME))
}
