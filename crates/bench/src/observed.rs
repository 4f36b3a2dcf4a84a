//! `observed`: requests of a server that counts and traces them, as every server does, beside the same
//! requests of one that does neither.

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
    let (plain, observed) = (home.unobserved("unobserved")?, home.server("observed")?);
    let (in_plain, in_observed) = (make_file(&plain)?, make_file(&observed)?);
    let mut race = Race::new(home);
    for shape in home.options.shapes(&SHAPES) {
        let row = Row::new(NAME, "getattr unobserved");
        let beside = race.enter(&plain, row, shape, |_| Ok(Work::Getattr { inode: in_plain }))?;
        let row = Row::new(NAME, "getattr observed");
        let ours = race.enter(&observed, row, shape, |_| Ok(Work::Getattr { inode: in_observed }))?;
        race.hold(ours, beside, Compare::ops(shape.0));
    }
    let rows = race.run(&Progress::new(NAME))?;
    refuse_hops(&rows)?;
    Ok(rows)
}
