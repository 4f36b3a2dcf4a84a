//! The plots of the report.

use super::plot::Bars;
use super::rows::Rows;
use crate::Bench;
use crate::row::Row;

const OPS: &str = "operations a second";

/// Bars of rows, labelled by the varying word.
fn bars(
    title: impl Into<String>,
    unit: &'static str,
    rows: &[&Row],
    of: fn(&Row) -> Option<f64>,
) -> Bars {
    let groups = rows.iter().map(|row| (label(row), vec![of(row)])).collect();
    Bars { title: title.into(), unit, series: vec![String::new()], groups }
}

fn label(row: &Row) -> String {
    let lanes = row.lanes.filter(|count| *count > 1);
    let lanes = lanes.map_or_else(String::new, |count| format!(", {count} lanes"));
    match (row.clients, row.depth) {
        (Some(clients), Some(depth)) => format!("{} {clients}x{depth}{lanes}", row.row),
        _ => format!("{}{lanes}", row.row),
    }
}

pub(super) fn timers(rows: &Rows) -> Vec<Bars> {
    let echo: Vec<&Row> = rows.of(Bench::Echo).collect();
    let alone: Vec<&Row> = echo.iter().copied().filter(|row| row.clients == Some(1)).collect();
    let many: Vec<&Row> = echo
        .iter()
        .copied()
        .filter(|row| (row.clients, row.depth) == (Some(64), Some(16)))
        .collect();
    let getattr: Vec<&Row> = rows.of(Bench::Getattr).filter(|row| row.row != "idle").collect();
    vec![
        bars("An exchange, one client: half take at most", "µs", &alone, |row| row.p50_us),
        bars("An exchange, 64 clients with 16 each: the server's CPU", "µs", &many, |row| {
            row.cpu_us_per_op
        }),
        bars("getattr beside echo: the server's CPU", "µs", &getattr, |row| row.cpu_us_per_op),
    ]
}

pub(super) fn affinity(rows: &Rows) -> Vec<Bars> {
    let many: Vec<&Row> =
        rows.of(Bench::Affinity).filter(|row| row.clients.is_some_and(|count| count > 1)).collect();
    let alone: Vec<&Row> = rows.of(Bench::Affinity).filter(|row| row.clients == Some(1)).collect();
    let brw: Vec<&Row> = rows.of(Bench::Brw).collect();
    vec![
        bars("Which lane a request arrives at: many clients", OPS, &many, |row| row.ops_per_s),
        bars("The server's CPU for each", "µs", &many, |row| row.cpu_us_per_op),
        bars("One client: half take at most", "µs", &alone, |row| row.p50_us),
        bars("4 KiB beside a lane that only calls the kernel", OPS, &brw, |row| row.ops_per_s),
    ]
}

pub(super) fn aio(rows: &Rows) -> Vec<Bars> {
    let mut all: Vec<Bars> = Vec::new();
    for depth in [1, 8] {
        for way in ["", " direct"] {
            let of_depth = |row: &&Row| row.depth == Some(depth);
            let shared_end = format!(" shared{way}");
            let groups = rows.of(Bench::SharedFile).filter(of_depth);
            let groups = groups.filter_map(|row| {
                let who = row.row.strip_suffix(&shared_end)?;
                let shape = Some((row.clients?, depth));
                let separate = format!("{who} separate{way}");
                let separate = rows.find(Bench::SharedFile, &separate, shape)?;
                Some((who.to_owned(), vec![row.ops_per_s, separate.ops_per_s]))
            });
            let cache =
                if way.is_empty() { "through the page cache" } else { "past the page cache" };
            all.push(Bars {
                title: format!("Reads of 4 KiB {cache}, 16 clients with {depth} each"),
                unit: OPS,
                series: vec!["one file".to_owned(), "a file each".to_owned()],
                groups: groups.collect(),
            });
        }
    }
    let lists: Vec<&Row> = rows.of(Bench::Lists).collect();
    all.push(bars("64 pieces in one request, and in 64", "MB/s", &lists, |row| row.mb_per_s));
    all
}

pub(super) fn share(rows: &Rows) -> Vec<Bars> {
    let (groups, creates): (Vec<&Row>, Vec<&Row>) =
        rows.of(Bench::Share).partition(|row| row.row.starts_with("groups"));
    let commits: Vec<&Row> =
        rows.of(Bench::Commit).filter(|row| row.commit_turn_max_us.is_some()).collect();
    vec![
        bars("Creates of clients that do not depend on each other", OPS, &creates, |row| {
            row.ops_per_s
        }),
        bars("Changes of clients that do, in groups", OPS, &groups, |row| row.ops_per_s),
        bars("The longest turn that ended a commit", "µs", &commits, |row| row.commit_turn_max_us),
    ]
}

pub(super) fn bottlenecks(rows: &Rows) -> Vec<Bars> {
    let stream: Vec<&Row> = rows.of(Bench::Stream).collect();
    vec![
        bars("Large reads and writes", "MB/s", &stream, |row| row.mb_per_s),
        bars("Context switches of the server", "a MB", &stream, |row| row.switches_per_mb),
        bars("System calls of the server's lanes", "a MB", &stream, |row| row.syscalls_per_mb),
    ]
}
