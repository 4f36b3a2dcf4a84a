//! `observed`: getattrs at a server that counts and traces its requests, as all do, beside one that
//! does neither.
//!
//! Two servers under loads of the same shape in turn.

use crate::getattr::{make_file, refuse_hops};
use crate::load::Work;
use crate::race::Race;
use crate::report::Progress;
use crate::row::Row;
use crate::samples::Compare;
use crate::server::Home;
use anyhow::Result;

pub(crate) const NAME: &str = "observed";
const SHAPES: [(u32, u32); 3] = [(1, 1), (64, 1), (64, 16)];

pub(crate) fn run(home: &Home) -> Result<Vec<Row>> {
    let (off, on) = (home.unobserved("unobserved")?, home.server(NAME)?);
    let (in_off, in_on) = (make_file(&off)?, make_file(&on)?);
    let mut race = Race::new(home);
    for shape in home.options.shapes(&SHAPES) {
        let row = Row::new(NAME, "getattr unobserved");
        let beside = race.enter(&off, row, shape, |_| Ok(Work::Getattr { inode: in_off }))?;
        let row = Row::new(NAME, "getattr observed");
        let ours = race.enter(&on, row, shape, |_| Ok(Work::Getattr { inode: in_on }))?;
        race.hold(ours, beside, Compare::ops(shape.0));
    }
    let rows = race.run(&Progress::new(NAME))?;
    refuse_hops(&rows)?;
    Ok(rows)
}
