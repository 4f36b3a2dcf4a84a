//! `echo`: a getattr's frames through a lane without a file system, beside a bare loop.

use crate::limit::Limit;
use crate::load::Work;
use crate::race::Race;
use crate::report::Progress;
use crate::row::Row;
use crate::samples::Compare;
use crate::server::Home;
use anyhow::Result;
use wire::InodeNo;

pub(crate) const NAME: &str = "echo";
/// Connections, and requests under way on each.
const SHAPES: [(u32, u32); 3] = [(1, 1), (64, 1), (64, 16)];

/// The operation whose frames are exchanged.
pub(crate) const GETATTR: Work = Work::Getattr { inode: InodeNo::ROOT };

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let options = &home.options;
    if options.remote.is_some() {
        return Err(anyhow::anyhow!("echo starts its own servers: leave --server out"));
    }
    let bare = home.start_limit(&Limit::Bare)?;
    let echo = home.start_limit(&Limit::Echo)?;
    let mut race = Race::new(home);
    for shape in options.shapes(&SHAPES) {
        let limit = race.enter(&bare, Row::new(NAME, "bare"), shape, |_| Ok(GETATTR))?;
        let ours = race.enter(&echo, Row::new(NAME, "lane"), shape, |_| Ok(GETATTR))?;
        race.hold(ours, limit, Compare::ops(shape.0));
    }
    race.run(&Progress::new(NAME))
}
