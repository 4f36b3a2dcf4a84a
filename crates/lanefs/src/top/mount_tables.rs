//! The panels of a mount: what the kernel asks of it, and what it asks of servers.

use super::interval::{Interval, errors, mean_us};
use super::tables::{Cell, Table, cell, count, float, name, p, time};
use library::counters::{By, Label, Metric, Row};

impl Interval {
    pub(super) fn mount_lanes(&self) -> Table {
        let columns = vec![
            "lane",
            "requests/s",
            "alone %",
            "exchanges/s",
            "unanswered",
            "mean time",
            "connections",
            "read/s",
            "written/s",
            "leases/s",
            "recalls/s",
            "names",
            "attributes",
            "open files",
        ];
        let line = |row: &Row| {
            let lane_no = row.label(Label::Lane).unwrap_or("?");
            let order = lane_no.parse().unwrap_or(0.0);
            vec![
                Cell { text: lane_no.to_owned(), order },
                self.count_rate(row, Metric::Requests),
                alone(row),
                self.count_rate(row, Metric::Exchanges),
                count(row.number(Metric::Unanswered)),
                time(mean_us(row)),
                count(row.number(Metric::Connections)),
                self.byte_rate(row, Metric::ReadBytes),
                self.byte_rate(row, Metric::WrittenBytes),
                self.count_rate(row, Metric::LeasesGranted),
                self.count_rate(row, Metric::Recalls),
                count(row.number(Metric::CachedNames)),
                count(row.number(Metric::CachedAttributes)),
                count(row.number(Metric::OpenFiles)),
            ]
        };
        Table { columns, name_count: 1, rows: self.lane_rows().map(line).collect() }
    }

    /// Requests of the kernel, or exchanges with servers.
    pub(super) fn requests_of_mount(&self, by: By) -> Table {
        let (title, times) = match by {
            By::Exchange => ("exchange", Metric::ExchangeTime),
            By::Lane | By::Op | By::Client | By::Export | By::Job | By::Call => {
                ("operation", Metric::ReplyTime)
            }
        };
        let columns = vec![
            title,
            "requests/s",
            "errors/s",
            "mean time",
            "p50",
            "p99",
            "alone %",
            "received/s",
            "sent/s",
        ];
        let line = |row: &Row| {
            vec![
                name(row.label(Label::Op).unwrap_or_default()),
                self.count_rate(row, Metric::Requests),
                self.rate_of(errors(row)),
                time(mean_us(row)),
                p(row, times, 50),
                p(row, times, 99),
                alone(row),
                self.byte_rate(row, Metric::InBytes),
                self.byte_rate(row, Metric::OutBytes),
            ]
        };
        let happened = |row: &&Row| row.number(Metric::Requests) > Some(0);
        let rows = self.total.rows(by).iter().filter(happened).map(line).collect();
        Table { columns, name_count: 1, rows }
    }

    /// Hot directories and files.
    pub(super) fn hot_table(&self) -> Table {
        let columns = vec!["path", "share %", "requests/s", "mean time", "most", "who"];
        let all: u64 = self.hot.iter().map(|hot| hot.requests).sum();
        let line = |hot: &super::interval::Hot| {
            let share = float(hot.requests * 100) / float(all.max(1));
            // Of samples it is estimated: their share of all requests.
            let sampled = self.rate(&self.all(), Metric::Requests).map(|all| all * share / 100.0);
            let rate = if self.is_mount { Some(self.per_s(hot.requests)) } else { sampled };
            let mark = if self.is_mount { "" } else { "~" };
            vec![
                name(&hot.path),
                cell(Some(share), |percent| format!("{percent:.0}")),
                cell(rate, |rate| format!("{mark}{}", super::text::number(rate))),
                time(hot.time_us.checked_div(hot.requests)),
                name(&hot.most),
                name(&hot.who),
            ]
        };
        Table { columns, name_count: 1, rows: self.hot.iter().map(line).collect() }
    }
}

/// The part of requests that waited for no server.
fn alone(row: &Row) -> Cell {
    let (alone, all) = (row.number(Metric::AnsweredAlone), row.number(Metric::Requests));
    let share = alone.zip(all).filter(|(_, all)| *all > 0);
    cell(share.map(|(alone, all)| float(alone * 100) / float(all)), |percent| {
        format!("{percent:.0}")
    })
}
