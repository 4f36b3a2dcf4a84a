//! The panels of the screen as tables of text: columns from the most important one on, of which a narrow
//! screen shows the first.

use super::interval::{self, Interval, errors, id_text, mean_us, shown};
use super::text;
use library::counters::{By, Kind, Label, Metric, Row};

/// A panel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Panel {
    Lanes,
    Operations,
    Clients,
    Exports,
    Jobs,
    Waits,
    Servers,
    Exchanges,
    Hot,
}

impl Panel {
    /// All.
    pub(super) const ALL: [Self; 9] = [
        Self::Lanes,
        Self::Operations,
        Self::Clients,
        Self::Exports,
        Self::Jobs,
        Self::Waits,
        Self::Servers,
        Self::Exchanges,
        Self::Hot,
    ];
    /// Of a server, in the order of their keys.
    pub(super) const OF_SERVER: &[Self] = &[
        Self::Lanes,
        Self::Operations,
        Self::Clients,
        Self::Exports,
        Self::Jobs,
        Self::Waits,
        Self::Servers,
        Self::Hot,
    ];
    /// Of a mount.
    pub(super) const OF_MOUNT: &[Self] = &[
        Self::Lanes,
        Self::Operations,
        Self::Exchanges,
        Self::Waits,
        Self::Hot,
        Self::Jobs,
        Self::Servers,
    ];

    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Lanes => "lanes",
            Self::Operations => "operations",
            Self::Clients => "clients",
            Self::Exports => "exports",
            Self::Jobs => "jobs",
            Self::Waits => "waits",
            Self::Servers => "servers",
            Self::Exchanges => "exchanges",
            Self::Hot => "hot",
        }
    }

    /// The column that it is sorted by at first, and whether the largest is first.
    pub(super) const fn first_order(self) -> (usize, bool) {
        match self {
            Self::Lanes | Self::Servers => (0, false),
            Self::Operations
            | Self::Exports
            | Self::Jobs
            | Self::Waits
            | Self::Exchanges
            | Self::Hot => (1, true),
            Self::Clients => (3, true),
        }
    }
}

/// A place in a table: what is shown, and what it is sorted by.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Cell {
    pub(super) text: String,
    /// Names are sorted by their text, below this.
    pub(super) order: f64,
}

/// A table: the names of its columns, and rows with a cell for each.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Table {
    pub(super) columns: Vec<&'static str>,
    /// So many columns are names; the others are numbers.
    pub(super) name_count: usize,
    pub(super) rows: Vec<Vec<Cell>>,
}

impl Table {
    /// The rows that have a text in one of their names, in the order of a column.
    pub(super) fn selected(
        &self,
        filter: &str,
        (column, is_descending): (usize, bool),
    ) -> Vec<&Vec<Cell>> {
        let filter = filter.to_lowercase();
        let has = |row: &&Vec<Cell>| {
            let mut names = row.iter().take(self.name_count);
            filter.is_empty() || names.any(|name| name.text.to_lowercase().contains(&filter))
        };
        let mut rows: Vec<&Vec<Cell>> = self.rows.iter().filter(has).collect();
        let Some(column) = column.checked_rem(self.columns.len()) else { return rows };
        rows.sort_by(|one, other| {
            let (one, other) = (&one[column], &other[column]);
            let ordering = one.order.total_cmp(&other.order).then(one.text.cmp(&other.text));
            if is_descending { ordering.reverse() } else { ordering }
        });
        rows
    }
}

pub(super) fn name(text: &str) -> Cell {
    let text = if text.is_empty() { "-".to_owned() } else { shown(text) };
    Cell { text, order: 0.0 }
}

/// What a server does not count is a dash.
pub(super) fn cell(number: Option<f64>, text: impl Fn(f64) -> String) -> Cell {
    number.map_or_else(
        || Cell { text: "-".to_owned(), order: -1.0 },
        |number| Cell { text: text(number), order: number },
    )
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(super) fn float(number: u64) -> f64 {
    number as f64
}

pub(super) fn count(number: Option<u64>) -> Cell {
    Cell {
        text: number.map_or_else(|| "-".to_owned(), text::count),
        order: number.map_or(-1.0, float),
    }
}

pub(super) fn time(us: Option<u64>) -> Cell {
    Cell { text: us.map_or_else(|| "-".to_owned(), text::time_us), order: us.map_or(-1.0, float) }
}

fn bytes(number: Option<u64>) -> Cell {
    cell(number.map(float), text::bytes)
}

pub(super) fn p(row: &Row, metric: Metric, part: u64) -> Cell {
    time(row.histogram(metric).and_then(|times| times.quantile_us(part, 100)))
}

impl Interval {
    pub(super) fn count_rate(&self, row: &Row, metric: Metric) -> Cell {
        cell(self.rate(row, metric), text::number)
    }

    pub(super) fn byte_rate(&self, row: &Row, metric: Metric) -> Cell {
        cell(self.rate(row, metric), text::bytes)
    }

    pub(super) fn rate_of(&self, number: Option<u64>) -> Cell {
        cell(number.map(|number| self.per_s(number)), text::number)
    }

    /// The table of a panel that is about one server.
    pub(super) fn table(&self, panel: Panel) -> Table {
        match panel {
            Panel::Lanes if self.is_mount => self.mount_lanes(),
            Panel::Lanes => self.lanes(),
            Panel::Operations if self.is_mount => self.requests_of_mount(By::Op),
            Panel::Operations => self.operations(),
            Panel::Exchanges => self.requests_of_mount(By::Exchange),
            Panel::Hot => self.hot_table(),
            Panel::Clients => self.clients(),
            Panel::Exports => self.names((By::Export, Label::Export), "export"),
            Panel::Jobs => self.names((By::Job, Label::Job), "job"),
            Panel::Waits => self.waits(),
            // It is about all of them.
            Panel::Servers => Table { columns: Vec::new(), name_count: 0, rows: Vec::new() },
        }
    }

    fn lanes(&self) -> Table {
        const DEFERRED: [Metric; 4] = [
            Metric::DeferredOwn,
            Metric::DeferredForeign,
            Metric::DeferredStrict,
            Metric::DeferredItself,
        ];
        let columns = vec![
            "lane",
            "busy %",
            "requests/s",
            "waiting now",
            "mean time",
            "flush p99",
            "reply p99",
            "flushes/s",
            "waits/s",
            "deferred/s",
            "read/s",
            "written/s",
            "leases",
            "recalls/s",
            "connections",
            "log free",
        ];
        let line = |row: &Row| {
            let lane_no = row.label(Label::Lane).unwrap_or("?");
            let order = lane_no.parse().unwrap_or(0.0);
            vec![
                Cell { text: lane_no.to_owned(), order },
                cell(self.busy_percent(row), |percent| format!("{percent:.0}")),
                self.count_rate(row, Metric::Requests),
                count(interval::waiting(row)),
                time(mean_us(row)),
                p(row, Metric::FlushTime, 99),
                p(row, Metric::SendTime, 99),
                self.count_rate(row, Metric::Batches),
                self.rate_of(interval::waits(row)),
                self.rate_of(interval::sum(row, &DEFERRED)),
                self.byte_rate(row, Metric::ReadBytes),
                self.byte_rate(row, Metric::WrittenBytes),
                count(row.number(Metric::LeasesHeld)),
                self.count_rate(row, Metric::LeasesRecalled),
                count(row.number(Metric::Connections)),
                bytes(row.number(Metric::LogFreeBytes)),
            ]
        };
        Table { columns, name_count: 1, rows: self.lane_rows().map(line).collect() }
    }

    fn operations(&self) -> Table {
        let columns = vec![
            "operation",
            "requests/s",
            "errors/s",
            "mean time",
            "queue p99",
            "work p99",
            "commit p99",
            "received/s",
            "sent/s",
            "queue p50",
            "work p50",
            "commit p50",
        ];
        let line = |row: &Row| {
            vec![
                name(row.label(Label::Op).unwrap_or_default()),
                self.count_rate(row, Metric::Requests),
                self.rate_of(errors(row)),
                time(mean_us(row)),
                p(row, Metric::QueueTime, 99),
                p(row, Metric::ExecutionTime, 99),
                p(row, Metric::CommitTime, 99),
                self.byte_rate(row, Metric::InBytes),
                self.byte_rate(row, Metric::OutBytes),
                p(row, Metric::QueueTime, 50),
                p(row, Metric::ExecutionTime, 50),
                p(row, Metric::CommitTime, 50),
            ]
        };
        // Others were not asked for in this interval.
        let happened = |row: &&Row| row.number(Metric::Requests) > Some(0);
        let rows = self.total.rows(By::Op).iter().filter(happened).map(line).collect();
        Table { columns, name_count: 1, rows }
    }

    fn clients(&self) -> Table {
        let columns = vec![
            "client",
            "job",
            "export",
            "requests/s",
            "share %",
            "errors/s",
            "mean time",
            "received/s",
            "sent/s",
            "recall unanswered",
            "locks held up",
            "id",
        ];
        let rows = self.total.rows(By::Client);
        let all: u64 = rows.iter().filter_map(|row| row.number(Metric::Requests)).sum();
        let line = |row: &Row| {
            let label = |label| row.label(label).unwrap_or_default();
            let host = if label(Label::Host).is_empty() {
                label(Label::Client)
            } else {
                label(Label::Host)
            };
            let export =
                if label(Label::Export).is_empty() { "(admin)" } else { label(Label::Export) };
            let share =
                row.number(Metric::Requests).map(|own| float(own * 100) / float(all.max(1)));
            let held_up = row.number(Metric::WaitingFileLock).unwrap_or(0);
            vec![
                name(host),
                name(label(Label::Job)),
                name(export),
                self.count_rate(row, Metric::Requests),
                cell(share, |percent| format!("{percent:.0}")),
                self.rate_of(errors(row)),
                time(mean_us(row)),
                self.byte_rate(row, Metric::InBytes),
                self.byte_rate(row, Metric::OutBytes),
                time(row.number(Metric::RecallAge).filter(|age_us| *age_us > 0)),
                count(Some(held_up)),
                name(id_text(label(Label::Client))),
            ]
        };
        Table { columns, name_count: 3, rows: rows.iter().map(line).collect() }
    }

    fn names(&self, (by, label): (By, Label), title: &'static str) -> Table {
        let columns = vec![title, "requests/s", "errors/s", "mean time", "received/s", "sent/s"];
        let none = if by == By::Export { "(admin)" } else { "(none)" };
        let line = |row: &Row| {
            let text = row.label(label).filter(|text| !text.is_empty()).unwrap_or(none);
            vec![
                name(text),
                self.count_rate(row, Metric::Requests),
                self.rate_of(errors(row)),
                time(mean_us(row)),
                self.byte_rate(row, Metric::InBytes),
                self.byte_rate(row, Metric::OutBytes),
            ]
        };
        Table { columns, name_count: 1, rows: self.total.rows(by).iter().map(line).collect() }
    }

    /// A line for each cause of waits, and for each reason of deferred replies.
    fn waits(&self) -> Table {
        let all = self.all();
        let labelled = |name: &str| {
            let name = name.to_owned();
            Metric::ALL.iter().copied().filter(move |metric| metric.row().name == name)
        };
        let text = |metric: Metric| metric.row().label.map_or("", |(_, text)| text);
        let waiting = labelled("waiting").map(|metric| {
            let rate = labelled("waits").find(|waits| text(*waits) == text(metric));
            (text(metric), rate, Some(metric))
        });
        let deferred = labelled("deferred").map(|metric| (text(metric), Some(metric), None));
        let line = |(cause, rate, now): (&'static str, Option<Metric>, Option<Metric>)| {
            let shown = now.or(rate);
            let help = shown.map_or("", |metric| metric.row().help);
            debug_assert!(rate.is_none_or(|metric| metric.row().kind == Kind::Counter));
            vec![
                name(&if now.is_some() { cause.to_owned() } else { format!("deferred: {cause}") }),
                rate.map_or_else(|| cell(None, text::number), |rate| self.count_rate(&all, rate)),
                now.map_or_else(|| count(None), |now| count(all.number(now))),
                name(help),
            ]
        };
        // A server and a mount wait for different things.
        let is_its_own = |(_, rate, now): &(&str, Option<Metric>, Option<Metric>)| {
            let is_counted =
                |metric: &Option<Metric>| metric.is_some_and(|it| all.number(it).is_some());
            !self.is_mount || is_counted(rate) || is_counted(now)
        };
        let rows = waiting.chain(deferred).filter(is_its_own).map(line).collect();
        Table {
            columns: vec!["cause", "waits/s", "waiting now", "what waits"],
            name_count: 1,
            rows,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::top::interval::Hot;
    use library::Snapshot;
    use library::counters::{Histogram, Value};
    use std::time::Duration;

    fn row(labels: &[(Label, &str)], numbers: &[(Metric, u64)]) -> Row {
        let labels = labels.iter().map(|(label, text)| (*label, (*text).to_owned())).collect();
        let mut row = Row { labels, values: Vec::new() };
        numbers.iter().for_each(|(metric, number)| row.set(*metric, Value::Number(*number)));
        row
    }

    fn interval(by: By, rows: Vec<Row>) -> Interval {
        let mut now = Snapshot::default();
        now.section_mut(by).rows = rows;
        Interval::between(&[Snapshot::default()], &[now], Duration::from_secs(2))
    }

    fn texts(row: &[Cell]) -> Vec<&str> {
        row.iter().map(|cell| cell.text.as_str()).collect()
    }

    #[test]
    fn what_is_hot_at_a_server_has_rates_by_its_share_of_the_samples() {
        let hot = |path: &str, requests| Hot {
            path: path.to_owned(),
            requests,
            time_us: 10 * requests,
            most: "read".to_owned(),
            who: "web1".to_owned(),
        };
        let lane = row(&[(Label::Lane, "0")], &[(Metric::Requests, 3000)]);
        let found =
            Interval { hot: vec![hot("/a", 3), hot("/b", 1)], ..interval(By::Lane, vec![lane]) };
        let table = found.table(Panel::Hot);
        assert_eq!(texts(&table.rows[0])[..4], ["/a", "75", "~1,125", "10 us"]);
        assert_eq!(texts(&table.rows[1])[..3], ["/b", "25", "~375"]);
        let of_mount = Interval { is_mount: true, ..found };
        assert_eq!(texts(&of_mount.table(Panel::Hot).rows[0])[2], "1.5");
    }

    #[test]
    fn an_operation_has_rates_and_times_and_one_without_requests_no_line() {
        let mut read = row(
            &[(Label::Op, "read")],
            &[(Metric::Requests, 3000), (Metric::RequestTime, 600_000), (Metric::ErrorsDenied, 4)],
        );
        let mut times = Histogram::default();
        times.record(20_000);
        read.set(Metric::CommitTime, Value::Histogram(times));
        let idle = row(&[(Label::Op, "write")], &[(Metric::Requests, 0)]);
        let table = interval(By::Op, vec![idle, read]).table(Panel::Operations);
        assert_eq!(table.rows.len(), 1);
        assert_eq!(
            texts(&table.rows[0])[..7],
            ["read", "1,500", "2.0", "200 us", "-", "-", "20 ms"]
        );
        assert_eq!(table.columns.len(), table.rows[0].len());
    }

    #[test]
    fn rows_are_filtered_by_name_and_sorted_by_any_column() {
        let client = |host: &str, requests: u64| {
            row(&[(Label::Client, host), (Label::Host, host)], &[(Metric::Requests, requests)])
        };
        let rows = vec![client("web1", 20), client("Web2", 60), client("db", 20)];
        let table = interval(By::Client, rows).table(Panel::Clients);
        let shown = |filter, order| -> Vec<String> {
            table.selected(filter, order).iter().map(|row| row[0].text.clone()).collect()
        };
        assert_eq!(shown("", Panel::Clients.first_order()), ["Web2", "web1", "db"]);
        assert_eq!(shown("WEB", (0, false)), ["Web2", "web1"]);
        assert_eq!(shown("none", (0, false)), [""; 0]);
        assert_eq!(table.rows[1][4].text, "60");
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    }

    #[test]
    fn a_cause_of_waits_has_a_line() {
        let lane = row(
            &[(Label::Lane, "0")],
            &[(Metric::WaitsLease, 8), (Metric::WaitingLease, 3), (Metric::DeferredOwn, 2)],
        );
        let table = interval(By::Lane, vec![lane]).table(Panel::Waits);
        let line = |name: &str| texts(table.rows.iter().find(|row| row[0].text == name).unwrap());
        assert_eq!(line("lease")[..3], ["lease", "4.0", "3"]);
        assert_eq!(line("deferred: own")[..3], ["deferred: own", "1.0", "-"]);
        assert_eq!(line("file_lock")[..3], ["file_lock", "-", "-"]);
    }
}
