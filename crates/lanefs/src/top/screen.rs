//! The screen as lines of text, and their colours.
//!
//! ```text
//! server, up time, rates, log and cache     as many lines as the width needs
//! alerts                                    the cause of each, or that there are none
//! 1 lanes  2 operations ...                 the chosen panel is highlighted
//! a table                                   two of them on a tall screen
//! keys, the filter, or that it is frozen
//! ```

use super::app::{App, Server};
use super::interval::Interval;
use super::tables::{Cell, Panel, Table};
use super::text;
use library::counters::{By, Label, Metric, Row};
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};
use std::time::{Duration, Instant};

/// From so many lines on there is a second table.
const TALL_LINE_COUNT: usize = 36;
/// Most lines of alerts.
const ALERT_LINE_COUNT_MAX: usize = 8;
/// Names are cut off behind this many characters on a narrow and on a wide screen.
const NAME_CHARS_MAX: [usize; 2] = [18, 40];
const WIDE_COLUMN_COUNT: usize = 120;
/// A server is late when it has not answered for this long beyond the interval.
const LATE: Duration = Duration::from_secs(2);

const KEYS: &str = "tab panel  s sort  r turn  / filter  space freeze  ? help  q quit";
const HELP: &[&str] = &[
    "Keys",
    "  tab, shift-tab, 1 to 8   another panel",
    "  s, r                     sort by the next column, turn the order around",
    "  /                        only rows with this text in their name; escape: all",
    "  up, down, page up/down   scroll",
    "  left, right              another server",
    "  space                    freeze the screen, and go on",
    "  q, ctrl-c                quit",
    "",
    "Words",
    "  busy %       time in which the lane's thread worked, or had more work waiting",
    "  queue        from the arrival of a request to its execution",
    "  work         from there to its outcome: contents at the disk, other shards",
    "  commit       from the outcome to the reply: durability of what it depends on",
    "  p50, p99     half of the requests, or 99 of 100, took no longer",
    "  deferred     replies that waited for a change to be on disk",
    "  alone %      requests that a mount answered without its server",
    "  hot          directories and files: of a mount all requests, of a server samples",
    "  recall       a client is asked to give back leases, which others need",
    "  -            the server does not count this",
    "",
    "Alerts stay for 10 s. Their thresholds: `lanefs top --help`. Any key goes back.",
];

/// A line of the screen.
type Line = (String, Style);

const PLAIN: Style = Style::new();
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const HEAD: Style = Style::new().add_modifier(Modifier::REVERSED);
const ALERT: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const PAST: Style = Style::new().fg(Color::Red);

/// Draws everything.
pub(super) fn draw(app: &App, buffer: &mut Buffer, (now, clock): (Instant, &str)) {
    let area = buffer.area;
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let now = app.frozen_at().map_or(now, |(at, _)| at);
    if app.has_help {
        for (y, line) in (area.top()..area.bottom()).zip(HELP) {
            buffer.set_stringn(area.left(), y, line, width, PLAIN);
        }
        return;
    }
    let mut lines = head(app, (width, now), clock);
    lines.extend(alerts(app, (width, now)));
    lines.push((tabs(app, width), PLAIN));
    let table_height = height.saturating_sub(lines.len() + 1);
    lines.extend(body(app, (width, table_height)));
    lines.truncate(height.saturating_sub(1));
    lines.resize(height.saturating_sub(1), (String::new(), PLAIN));
    lines.push(bottom(app));
    for (y, (line, style)) in (area.top()..area.bottom()).zip(&lines) {
        buffer.set_stringn(area.left(), y, line, width, *style);
    }
    highlight(app, buffer, &lines);
}

/// Everything as text, one panel below another.
pub(super) fn text_of(app: &App, width: usize, (now, clock): (Instant, &str)) -> String {
    let mut lines = head(app, (width, now), clock);
    lines.extend(alerts(app, (width, now)));
    for panel in app.panels().iter().copied() {
        if panel == Panel::Servers && app.servers().len() < 2 {
            continue;
        }
        lines.push((String::new(), PLAIN));
        lines.push((panel.name().to_uppercase(), PLAIN));
        lines.extend(table_lines(app, panel, (width, usize::MAX)));
    }
    lines.iter().map(|(line, _)| format!("{}\n", line.trim_end())).collect()
}

/// The chosen panel among the tabs.
fn highlight(app: &App, buffer: &mut Buffer, lines: &[Line]) {
    let tab = tab_text(app, app.panel);
    let found = lines.iter().position(|(line, _)| line.starts_with(&tab_text(app, Panel::Lanes)));
    let Some((y, x)) = found.and_then(|y| Some((y, lines[y].0.find(&tab)?))) else { return };
    let place = (u16::try_from(x), u16::try_from(y));
    if let (Ok(x), Ok(y)) = place
        && x < buffer.area.width
        && y < buffer.area.height
    {
        let width = usize::from(buffer.area.width - x);
        buffer.set_stringn(x, y, &tab, width, HEAD);
    }
}

fn tab_text(app: &App, panel: Panel) -> String {
    format!("{} {}", key(app, panel), panel.name())
}

/// The key of a panel.
fn key(app: &App, panel: Panel) -> usize {
    app.panels().iter().position(|it| *it == panel).map_or(0, |at| at + 1)
}

fn tabs(app: &App, width: usize) -> String {
    let tabs: Vec<String> = app.panels().iter().map(|panel| tab_text(app, *panel)).collect();
    let line = tabs.join("  ");
    if app.filter.is_empty() || app.is_typing {
        return line;
    }
    let filter = format!("only \"{}\"", app.filter);
    let is_wide = line.chars().count() + filter.chars().count() + 2 <= width;
    if is_wide { format!("{line}  {filter}") } else { line }
}

/// Parts with some space between them, on as many lines as they need.
fn flowed(parts: Vec<String>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.chars().count() + part.chars().count() + 3 <= width => {
                line.push_str("   ");
                line.push_str(&part);
            }
            Some(_) | None => lines.push(part),
        }
    }
    lines
}

/// Words on as many lines as they need; those behind the first are indented.
fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if !line.is_empty() && line.chars().count() + word.chars().count() + 1 > width {
            lines.push(format!("      {word}"));
        } else {
            let gap = if line.is_empty() { "" } else { " " };
            line.push_str(&format!("{gap}{word}"));
        }
    }
    lines
}

fn head(app: &App, (width, now): (usize, Instant), clock: &str) -> Vec<Line> {
    let Some(server) = app.servers().get(app.selected) else { return Vec::new() };
    let mut first = vec![format!("lanefs top  {}", server.address)];
    if app.servers().len() > 1 {
        first.push(format!("server {} of {} (left, right)", app.selected + 1, app.servers().len()));
    }
    let mut second = Vec::new();
    if let Some(interval) = &server.interval {
        let all = interval.all();
        first.extend(all.number(Metric::UpTime).map(|ms| format!("up {}", text::long(ms / 1000))));
        let number = server.version.as_ref().and_then(|version| version.split(' ').next());
        first.extend(number.map(|number| format!("version {number}")));
        let count = interval.lanes.len();
        first.push(if count == 1 { "1 lane".to_owned() } else { format!("{count} lanes") });
        second = rates(interval, &all);
    } else if server.lost.is_none() && now < server.answered_at + app.interval + LATE {
        second.push("waiting for the first interval to end".to_owned());
    }
    let clock =
        app.frozen_at().map_or_else(|| clock.to_owned(), |(_, at)| format!("FROZEN at {at}"));
    first.push(clock);
    let first = flowed(first, width).into_iter().map(|line| (line, BOLD));
    first.chain(flowed(second, width).into_iter().map(|line| (line, PLAIN))).collect()
}

fn rates(interval: &Interval, all: &Row) -> Vec<String> {
    let rate = |metric| interval.rate(all, metric);
    let count = |metric: Metric, name: &str| {
        all.number(metric).map(|number| format!("{} {name}", text::count(number)))
    };
    let bytes_of = |metric: Metric| all.number(metric).map(bytes);
    let active = interval.total.rows(By::Client).iter();
    let is_user = |row: &&Row| row.label(Label::Export).is_some_and(|name| !name.is_empty());
    let active = active.filter(is_user).filter(|row| row.number(Metric::Requests) > Some(0));
    let active_count = active.count();
    let errors = super::interval::errors(all).map(|errors| interval.per_s(errors));
    let cpu = rate(Metric::CpuTime).map(|ns| format!("CPU {:.0} % of a core", ns / 1e7));
    let flush = all.histogram(Metric::FlushTime).and_then(|times| times.quantile_us(99, 100));
    let flush = flush.map_or_else(String::new, |us| format!(", flush p99 {}", text::time_us(us)));
    let recalled = rate(Metric::LeasesRecalled).unwrap_or(0.0);
    [
        rate(Metric::Requests).map(|it| format!("{} requests/s", text::number(it))),
        errors.map(|it| format!("{} errors/s", text::number(it))),
        rate(Metric::ReadBytes).map(|it| format!("read {}/s", text::bytes(it))),
        rate(Metric::WrittenBytes).map(|it| format!("written {}/s", text::bytes(it))),
        cpu,
        bytes_of(Metric::ResidentBytes).map(|it| format!("memory {it}")),
        (!interval.is_mount).then(|| {
            let active = u64::try_from(active_count).unwrap_or(0);
            format!("{} clients active", text::count(active))
        }),
        count(Metric::Sessions, "sessions"),
        count(Metric::Connections, "connections"),
        count(Metric::LeasesHeld, &format!("leases ({} recalls/s)", text::number(recalled))),
        bytes_of(Metric::LogFreeBytes).map(|free| format!("log {free} free{flush}")),
        bytes_of(Metric::NamesBytes).map(|it| format!("names in memory {it}")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn bytes(number: u64) -> String {
    text::bytes(number as f64)
}

/// The sentence about a server that does not answer.
fn lost(server: &Server, (now, interval): (Instant, Duration)) -> Option<String> {
    let silent = now.saturating_duration_since(server.answered_at);
    if server.lost.is_none() && silent < interval + LATE {
        return None;
    }
    let why = server.lost.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    let address = &server.address;
    let time = text::long(silent.as_secs());
    let kind = if server.is_mount { "mount" } else { "server" };
    Some(format!("{kind}: {address} has not answered for {time}{why}; still trying"))
}

/// The alerts of all servers, those of the chosen one first.
fn alerts(app: &App, (width, now): (usize, Instant)) -> Vec<Line> {
    let servers = app.servers();
    let chosen_first = servers.iter().cycle().skip(app.selected).take(servers.len());
    let mut lines = Vec::new();
    for server in chosen_first {
        let mut add = |sentence: String, style| {
            let text = format!("ALERT {sentence}");
            lines.extend(folded(&text, width).into_iter().map(|line| (line, style)));
        };
        if let Some(sentence) = lost(server, (now, app.interval)) {
            add(sentence, ALERT);
        }
        let prefix = if servers.len() > 1 { format!("{} ", server.address) } else { String::new() };
        for alert in &server.alerts {
            let sentence = format!("{prefix}{}", alert.finding.sentence);
            if alert.seen_at >= server.answered_at {
                add(sentence, ALERT);
            } else {
                let age = now.saturating_duration_since(alert.seen_at).as_secs();
                add(format!("{sentence} ({age} s ago)"), PAST);
            }
        }
    }
    if lines.is_empty() && servers.iter().any(|server| server.interval.is_some()) {
        lines.push(("no alerts".to_owned(), PLAIN));
    }
    if lines.len() > ALERT_LINE_COUNT_MAX {
        lines.truncate(ALERT_LINE_COUNT_MAX - 1);
        lines.push(("... and more alerts".to_owned(), ALERT));
    }
    lines
}

fn body(app: &App, (width, height): (usize, usize)) -> Vec<Line> {
    if height < TALL_LINE_COUNT - 10 {
        return table_lines(app, app.panel, (width, height));
    }
    let second = if app.panel == Panel::Lanes { Panel::Operations } else { Panel::Lanes };
    let mut lines = table_lines(app, app.panel, (width, height / 2));
    lines.push((String::new(), PLAIN));
    let title = format!("{} (key {})", second.name(), key(app, second));
    lines.push((title, PLAIN));
    let rest = height.saturating_sub(lines.len());
    lines.extend(table_lines(app, second, (width, rest)));
    lines
}

fn bottom(app: &App) -> Line {
    if app.is_typing {
        let line = format!("filter: {}_   (enter keeps it, escape clears it)", app.filter);
        return (line, BOLD);
    }
    if app.frozen_at().is_some() {
        return ("FROZEN: space goes on  ? help  q quit".to_owned(), BOLD);
    }
    (KEYS.to_owned(), PLAIN)
}

/// A panel's table with at most this many lines.
fn table_lines(app: &App, panel: Panel, (width, height): (usize, usize)) -> Vec<Line> {
    let table = if panel == Panel::Servers {
        servers(app.servers())
    } else {
        let server = app.servers().get(app.selected);
        let Some(interval) = server.and_then(|server| server.interval.as_ref()) else {
            return Vec::new();
        };
        interval.table(panel)
    };
    let is_chosen = panel == app.panel;
    let filter = if is_chosen { app.filter.as_str() } else { "" };
    let mut order = app.order(panel);
    let widths = widths(&table, width);
    order.0 %= widths.len().max(1);
    let rows = table.selected(filter, order);
    if rows.is_empty() {
        let line = if filter.is_empty() {
            "nothing in this interval".to_owned()
        } else {
            format!("no {} with \"{filter}\" in the name; / and escape show all", panel.name())
        };
        return vec![(line, PLAIN)];
    }
    let row_count_max = height.saturating_sub(1);
    let scroll =
        if is_chosen { app.scroll.min(rows.len().saturating_sub(row_count_max)) } else { 0 };
    let mut lines = laid_out(&table, &rows, (&widths, order));
    let head = lines.remove(0);
    let shown = lines.into_iter().skip(scroll).take(row_count_max).map(|line| (line, PLAIN));
    std::iter::once((head, BOLD)).chain(shown).collect()
}

fn servers(servers: &[Server]) -> Table {
    let columns = vec!["server", "state", "requests/s", "errors/s", "CPU %", "memory", "alerts"];
    let name = |text: &str| Cell { text: text.to_owned(), order: 0.0 };
    let dash = || Cell { text: "-".to_owned(), order: -1.0 };
    let line = |server: &Server| {
        let number = |number: Option<f64>, text: &dyn Fn(f64) -> String| {
            number.map_or_else(dash, |order| Cell { text: text(order), order })
        };
        let interval = server.interval.as_ref().map(|interval| (interval, interval.all()));
        let rate = |metric| interval.as_ref().and_then(|(it, all)| it.rate(all, metric));
        let errors = interval
            .as_ref()
            .and_then(|(it, all)| super::interval::errors(all).map(|errors| it.per_s(errors)));
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let memory = interval
            .as_ref()
            .and_then(|(_, all)| all.number(Metric::ResidentBytes))
            .map(|number| number as f64);
        let alert_count = u32::try_from(server.alerts.len()).unwrap_or(u32::MAX);
        vec![
            name(&server.address),
            name(if server.lost.is_some() { "lost" } else { "answers" }),
            number(rate(Metric::Requests), &text::number),
            number(errors, &text::number),
            number(rate(Metric::CpuTime).map(|ns| ns / 1e7), &|percent| format!("{percent:.0}")),
            number(memory, &text::bytes),
            Cell { text: alert_count.to_string(), order: alert_count.into() },
        ]
    };
    Table { columns, name_count: 2, rows: servers.iter().map(line).collect() }
}

/// Whether a column is aligned to the left.
fn is_text(table: &Table, column: usize) -> bool {
    column < table.name_count
        || matches!(table.columns[column], "id" | "what waits" | "most" | "who")
}

/// The widths of the columns that fit, whatever rows are selected.
fn widths(table: &Table, width: usize) -> Vec<usize> {
    let name_chars_max = NAME_CHARS_MAX[usize::from(width >= WIDE_COLUMN_COUNT)];
    let longest = |column: usize| {
        let cells =
            table.rows.iter().map(|row| row[column].text.chars().count()).max().unwrap_or(0);
        let limit = if column < table.name_count { name_chars_max } else { usize::MAX };
        // Space for the mark, so that columns stay where they are.
        cells.min(limit).max(table.columns[column].chars().count() + 1)
    };
    let mut widths = Vec::new();
    let mut used = 0;
    for column in 0..table.columns.len() {
        let mut wanted = longest(column);
        let left = width.saturating_sub(used);
        // A text at the end may be cut off.
        if wanted > left && is_text(table, column) && left >= 20 {
            wanted = left;
        }
        if wanted > left {
            break;
        }
        used += wanted + 2;
        widths.push(wanted);
    }
    widths
}

/// A table's head and rows: names to the left, numbers to the right, and only the columns that fit.
fn laid_out(
    table: &Table,
    rows: &[&Vec<Cell>],
    (widths, (order_column, is_descending)): (&[usize], (usize, bool)),
) -> Vec<String> {
    let title = |column: usize| {
        let mark = if column != order_column {
            ""
        } else if is_descending {
            "▼"
        } else {
            "▲"
        };
        format!("{}{mark}", table.columns[column])
    };
    let line = |text: &dyn Fn(usize) -> String| {
        let mut line = String::new();
        for (column, width) in widths.iter().enumerate() {
            let text: String = text(column).chars().take(*width).collect();
            let gap = if column == 0 { "" } else { "  " };
            line.push_str(&if is_text(table, column) {
                format!("{gap}{text:<width$}")
            } else {
                format!("{gap}{text:>width$}")
            });
        }
        line
    };
    let head = line(&title);
    let rows = rows.iter().map(|row| line(&|column| row[column].text.clone()));
    std::iter::once(head).chain(rows).collect()
}
