//! Entrants that run in turn, each a load on a server, and their rows.

use crate::generator::Generator;
use crate::load::Work;
use crate::number::number;
use crate::plan::Options;
use crate::report::Progress;
use crate::rounds::alternate;
use crate::row::Row;
use crate::samples::Sample;
use crate::samples::{Compare, compare, fill};
use crate::server::{Home, Server};
use anyhow::{Context as _, Result};
use ring::Ring;

/// A contender.
pub(crate) struct Entrant {
    row: Row,
    generator: Generator,
    limit: Option<(usize, Compare)>,
}

/// All that run in one race.
pub(crate) struct Race<'a> {
    home: &'a Home,
    entrants: Vec<Entrant>,
}

impl<'a> Race<'a> {
    pub(crate) const fn new(home: &'a Home) -> Self {
        Self { home, entrants: Vec::new() }
    }

    /// Connects a load; returns its index.
    ///
    /// # Errors When it cannot connect.
    pub(crate) fn enter(
        &mut self,
        server: &Server,
        mut row: Row,
        shape: (u32, u32),
        work: impl FnOnce(&mut Ring) -> Result<Work>,
    ) -> Result<usize> {
        let options = &self.home.options;
        let generator = Generator::connect(server, shape, options, work)
            .with_context(|| format!("{}: {}, {} clients", row.bench, row.row, shape.0))?;
        (row.clients, row.depth) = (Some(shape.0), Some(shape.1));
        row.lanes = server.lane_count.map(u32::from);
        self.entrants.push(Entrant { row, generator, limit: None });
        Ok(self.entrants.len() - 1)
    }

    /// A trial of an entrant for so long.
    ///
    /// # Errors When it fails.
    pub(crate) fn try_once(&mut self, entrant: usize, seconds: f64) -> Result<Sample> {
        let options = Options { seconds, ..self.home.options.clone() };
        self.entrants[entrant].generator.measure(&options)
    }

    /// Removes the last entrant.
    pub(crate) fn leave(&mut self) {
        self.entrants.pop();
    }

    /// Compares an entrant with another one.
    pub(crate) fn hold(&mut self, entrant: usize, limit: usize, by: Compare) {
        self.entrants[entrant].limit = Some((limit, by));
    }

    /// Sets the rate of an entrant's operations.
    pub(crate) fn set_rate(&mut self, entrant: usize, ops_per_s: f64) {
        let entrant = &mut self.entrants[entrant];
        entrant.generator.core().set_rate(Some(ops_per_s));
        entrant.row.note = Some(format!("{ops_per_s:.0} operations a second are begun"));
    }

    /// The highest rate of an entrant.
    ///
    /// # Errors When it fails.
    pub(crate) fn rate_of(&mut self, entrant: usize) -> Result<f64> {
        let sample = self.try_once(entrant, self.home.options.seconds)?;
        Ok(number(sample.tally.op_count) / sample.seconds())
    }

    /// Runs all rounds.
    ///
    /// # Errors
    /// The first that goes wrong.
    pub(crate) fn run(mut self, progress: &Progress) -> Result<Vec<Row>> {
        let options = &self.home.options;
        let entrants = &mut self.entrants;
        let round_count = options.round_count;
        progress.begin(entrants.len() * round_count);
        let samples = alternate(entrants.len(), round_count, |index, _| {
            let Entrant { row, generator, .. } = &mut entrants[index];
            let clients = row.clients.unwrap_or(0);
            let what = format!("{}, {clients} clients", row.row);
            progress.step(&what);
            generator.measure(options).with_context(|| format!("{}: {what}", row.bench))
        })?;
        progress.end();
        for (index, entrant) in entrants.iter_mut().enumerate() {
            fill(&mut entrant.row, &samples[index]);
            if entrant.row.note.is_none() {
                report_busy(&mut entrant.row);
            }
        }
        for index in 0..entrants.len() {
            if let Some((limit, by)) = entrants[index].limit {
                let name = entrants[limit].row.row.clone();
                let limit = (name.as_str(), samples[limit].as_slice());
                compare(&mut entrants[index].row, &samples[index], limit, by);
            }
        }
        Ok(self.entrants.into_iter().map(|entrant| entrant.row).collect())
    }
}

/// A row whose load was busy all the time does not show the server's rate.
fn report_busy(row: &mut Row) {
    const BUSY: f64 = 0.95;
    let load = row.generator_busy.is_some_and(|busy| busy > BUSY);
    let server = row.server_busy.is_some_and(|busy| busy > BUSY);
    let changes = row.commits.is_some_and(|count| count > 0.0);
    let note = match (load, server) {
        (true, false) => "the load was the limit",
        (false, true) if changes => "the server's core was the limit",
        // The disk, or other programs on its CPU.
        (false, false) if changes => "neither load nor server was busy all the time",
        (false | true, _) => return,
    };
    row.note = Some(note.to_owned());
}

/// Compares rates with the best of those with at most 64 clients.
pub(crate) fn hold_against_best(rows: &mut [Row], of: impl Fn(&Row) -> Option<f64>) {
    const CLIENT_COUNT_MAX: u32 = 64;
    let few = |row: &&Row| row.clients.is_some_and(|count| count <= CLIENT_COUNT_MAX);
    let best = rows.iter().filter(few).filter_map(&of).fold(0.0, f64::max);
    for row in rows {
        row.ratio_to_best = of(row).filter(|_| best > 0.0).map(|rate| rate / best);
    }
}
