//! Output of rows: a table of text, or one JSON object per line.

use crate::row::Row;
use anyhow::{Result, bail, ensure};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::Write;

/// A column: its title, its decimals, its number in a row.
type Column = (&'static str, usize, fn(&Row) -> Option<f64>);

const COLUMNS: [Column; 39] = [
    ("clients", 0, |row| row.clients.map(f64::from)),
    ("depth", 0, |row| row.depth.map(f64::from)),
    ("ops/s", 0, |row| row.ops_per_s),
    ("MB/s", 0, |row| row.mb_per_s),
    ("mean µs", 3, |row| row.mean_us),
    ("p50", 3, |row| row.p50_us),
    ("p99", 2, |row| row.p99_us),
    ("p99.9", 2, |row| row.p999_us),
    ("CPU µs/op", 3, |row| row.cpu_us_per_op.filter(|_| row.cpu_s_per_gb.is_none())),
    ("lane µs/op", 3, |row| row.lane_cpu_us_per_op),
    ("applier µs/op", 3, |row| row.applier_cpu_us_per_op),
    ("CPU s/GB", 3, |row| row.cpu_s_per_gb),
    ("switches/op", 3, |row| row.switches_per_op.filter(|_| row.switches_per_mb.is_none())),
    ("switches/MB", 2, |row| row.switches_per_mb),
    ("calls/op", 3, |row| row.syscalls_per_op.filter(|_| row.syscalls_per_mb.is_none())),
    ("calls/MB", 2, |row| row.syscalls_per_mb),
    ("clock/turn", 2, |row| row.clock_reads_per_turn),
    ("held", 0, |row| row.held_replies),
    ("touched", 0, |row| row.touched_replies),
    ("commits", 0, |row| row.commits),
    ("turn p99.9", 1, |row| row.turn_p999_us),
    ("turn max", 1, |row| row.turn_max_us),
    ("commit p50", 1, |row| row.commit_turn_p50_us),
    ("commit max", 1, |row| row.commit_turn_max_us),
    ("ops/flush", 1, |row| row.ops_per_flush),
    ("requests/op", 2, |row| row.exchanges_per_op),
    ("in the way", 2, |row| row.exchanges_in_way),
    ("behind", 2, |row| row.exchanges_behind),
    ("hops/op", 3, |row| row.hops_per_op),
    ("handed/op", 2, |row| row.handed_per_op),
    ("started/op", 2, |row| row.started_per_op),
    ("threads", 0, |row| row.threads),
    ("under way", 0, |row| row.under_way),
    ("of one file", 0, |row| row.under_way_one),
    ("server", 2, |row| row.server_busy),
    ("load", 2, |row| row.generator_busy),
    ("to limit", 2, |row| row.ratio_to_limit),
    ("to best", 2, |row| row.ratio_to_best),
    ("spread", 2, |row| row.spread),
];

/// Columns of a table in a report, with the row's name and its note.
const REPORT_COLUMN_COUNT_MAX: usize = 8;

/// The columns of reports, the most important first. `clients` and `depth` tell rows apart.
const REPORT_ORDER: [&str; 17] = [
    "clients",
    "depth",
    "to limit",
    "ops/s",
    "MB/s",
    "commit max",
    "in the way",
    "behind",
    "under way",
    "CPU s/GB",
    "CPU µs/op",
    "touched",
    "p99",
    "p50",
    "held",
    "mean µs",
    "spread",
];

/// Rows as a table in Markdown, without the columns that no row uses.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    table_of(rows, &used(rows))
}

/// Rows as a table of a report: the most important columns. Their other numbers are in the raw rows.
#[must_use]
pub fn report_table(rows: &[Row]) -> String {
    let note_columns = usize::from(rows.iter().any(|row| row.note.is_some()));
    let mut columns = used(rows);
    // A column with one number tells no rows apart.
    let varies = |of: fn(&Row) -> Option<f64>| {
        let mut numbers = rows.iter().filter_map(of);
        let first = numbers.next();
        numbers.any(|number| Some(number) != first)
    };
    columns.retain(|(.., of)| varies(*of));
    let mut by_order: Vec<(usize, &str)> = columns
        .iter()
        .filter_map(|(title, ..)| Some((REPORT_ORDER.iter().position(|at| at == title)?, *title)))
        .collect();
    by_order.sort_unstable();
    by_order.truncate(REPORT_COLUMN_COUNT_MAX - 1 - note_columns);
    columns.retain(|(title, ..)| by_order.iter().any(|(_, chosen)| chosen == title));
    table_of(rows, &columns)
}

fn used(rows: &[Row]) -> Vec<&'static Column> {
    COLUMNS.iter().filter(|(.., of)| rows.iter().any(|row| of(row).is_some())).collect()
}

fn table_of(rows: &[Row], used: &[&Column]) -> String {
    let has_note = rows.iter().any(|row| row.note.is_some());
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    let mut header = vec!["row".to_owned()];
    header.extend(used.iter().map(|(title, ..)| (*title).to_owned()));
    if has_note {
        header.push("note".to_owned());
    }
    table.set_header(header);
    for row in rows {
        let mut cells = vec![row.row.clone()];
        cells.extend(used.iter().map(|(_, digits, of)| {
            of(row).map_or_else(String::new, |value| format!("{value:.digits$}"))
        }));
        if has_note {
            cells.push(row.note.clone().unwrap_or_default());
        }
        table.add_row(cells);
    }
    for index in 1..=used.len() {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.to_string()
}

/// Fills in a template: `{{NAME}}` becomes the tables of that name.
///
/// # Errors When the template names an unknown table, or does not use one.
pub fn fill_in(template: &str, tables: &[(String, String)]) -> Result<String> {
    let mut text = template.to_owned();
    for (name, table) in tables {
        let place = format!("{{{{{name}}}}}");
        ensure!(text.contains(&place), "the template has no place for {place}");
        text = text.replace(&place, table);
    }
    if let Some((_, rest)) = text.split_once("{{") {
        let name = rest.split_once("}}").map_or(rest, |(name, _)| name);
        bail!("the template asks for {{{{{name}}}}}, which was not measured");
    }
    Ok(text)
}

/// One JSON object per row and line.
///
/// # Errors
/// When they cannot be written.
pub fn write_json(rows: &[impl Serialize], to: &mut impl Write) -> Result<()> {
    for row in rows {
        serde_json::to_writer(&mut *to, row)?;
        to.write_all(b"\n")?;
    }
    Ok(())
}

/// A bar on stderr while a race runs, if that is a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// For one benchmark.
    pub(crate) fn new(bench: &'static str) -> Self {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} {msg}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(bench);
        Self { bar }
    }

    /// Begins so many measurements.
    pub(crate) fn begin(&self, count: usize) {
        self.bar.set_position(0);
        self.bar.set_length(count as u64);
    }

    /// Begins the next one.
    pub(crate) fn step(&self, row: &str) {
        self.bar.set_message(row.to_owned());
        self.bar.inc(1);
    }

    /// Ends.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_table_has_the_columns_that_are_used() {
        let mut row = Row::new("echo", "lane");
        row.ops_per_s = Some(1_234_567.8);
        row.ratio_to_limit = Some(1.149);
        let text = table(&[row]);
        assert!(text.contains("ops/s") && text.contains("to limit"), "{text}");
        assert!(text.contains("1234568") && text.contains("1.15"), "{text}");
        assert!(!text.contains("MB/s"), "{text}");
    }

    #[test]
    fn a_table_of_a_report_has_eight_columns_at_most() {
        let row = |clients| Row {
            clients: Some(clients),
            depth: Some(1),
            ops_per_s: Some(f64::from(clients)),
            p50_us: Some(f64::from(clients) + 1.0),
            p99_us: Some(f64::from(clients) + 2.0),
            mean_us: Some(f64::from(clients) + 3.0),
            cpu_us_per_op: Some(f64::from(clients) + 4.0),
            touched_replies: Some(0.0),
            ratio_to_limit: Some(f64::from(clients) + 5.0),
            spread: Some(f64::from(clients) + 6.0),
            note: Some("a note".to_owned()),
            ..Row::new("create", "own")
        };
        let text = report_table(&[row(1), row(64)]);
        let header: Vec<&str> = text.lines().next().unwrap().split('|').map(str::trim).collect();
        let expected =
            ["", "row", "clients", "ops/s", "p50", "p99", "CPU µs/op", "to limit", "note", ""];
        assert_eq!(header, expected);
    }

    #[test]
    fn the_measurements_have_eight_columns_at_most() {
        let document = include_str!("../../../docs/measurements.md");
        for line in document.lines().filter(|line| line.starts_with('|')) {
            assert!(line.matches('|').count() <= REPORT_COLUMN_COUNT_MAX + 1, "{line}");
        }
    }

    #[test]
    fn a_template_is_filled_in_or_refused() {
        let tables = [("echo".to_owned(), "T".to_owned())];
        assert_eq!(fill_in("a {{echo}} b", &tables).unwrap(), "a T b");
        assert!(fill_in("a", &tables).is_err());
        let error = fill_in("{{echo}} {{clock}}", &tables).unwrap_err().to_string();
        assert!(error.contains("{{clock}}"), "{error}");
    }

    #[test]
    fn a_line_of_json_has_the_keys_that_apply() {
        let mut row = Row::new("echo", "lane");
        row.clients = Some(64);
        let mut out = Vec::new();
        write_json(&[row], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "{\"bench\":\"echo\",\"row\":\"lane\",\"clients\":64}\n");
    }
}
