//! The report's answers to the threads' questions. A sentence needs its rows: without them it is
//! absent.

use super::plot::digits;
use super::rows::Rows;
use crate::Bench;
use crate::row::Row;

const ALONE: Option<(u32, u32)> = Some((1, 1));
const MANY: Option<(u32, u32)> = Some((64, 16));
/// A smaller difference from 1 is noise on our machines.
const SAME: f64 = 0.1;

/// The sentences for which there are numbers.
struct Sentences(Vec<String>);

impl Sentences {
    fn push(&mut self, line: Option<String>) {
        self.0.extend(line);
    }
}

/// The costs of a row as text.
fn costs(row: &Row) -> String {
    let of = |value: Option<f64>, what: &str| {
        value.map_or_else(String::new, |value| format!(", {} {what}", digits(value)))
    };
    format!(
        "{} µs{}{}{}{}{}",
        row.cpu_us_per_op.map_or_else(|| "?".to_owned(), digits),
        of(row.switches_per_op, "switches"),
        of(row.syscalls_per_op, "calls"),
        of(row.hops_per_op.filter(|count| *count > 0.0), "messages"),
        of(row.handed_per_op.filter(|count| *count > 0.0), "handed over"),
        of(row.started_per_op.filter(|count| *count > 0.0), "threads started"),
    )
}

/// The ratio as text, with its spread; and whether the spread includes 1, the distance from the
/// median being half of the range.
fn ratio_text(row: &Row) -> Option<String> {
    let ratio = row.ratio_to_limit?;
    let spread = row.spread.unwrap_or(0.0);
    let within = (ratio - 1.0).abs() <= (spread * ratio / 2.0).max(SAME);
    let note = if within { ", which is within the spread of 1" } else { "" };
    Some(format!("{} (spread {}{note})", digits(ratio), digits(spread)))
}

pub(super) fn timers(rows: &Rows) -> Vec<String> {
    let mut sentences = Sentences(Vec::new());
    let layers = |hops: u8, shape| rows.find(Bench::Echo, &format!("layers, {hops} hops"), shape);
    let lane = |shape| rows.find(Bench::Echo, "lane", shape);
    for (shape, who) in [(ALONE, "one client"), (MANY, "64 clients with 16 requests each")] {
        let line = || {
            let (none, four) = (layers(0, shape)?, layers(4, shape)?);
            let (from, to) = (none.p50_us?, four.p50_us?);
            Some(format!(
                "**What do four hops cost?** With {who}: half of the exchanges take {} µs through four \
                 queues, {} µs through none, so {} µs a hop; the server's CPU for each: {}, without: {}. \
                 A lane, for comparison: {} µs; {}.",
                digits(to),
                digits(from),
                digits((to - from) / 4.0),
                costs(four),
                costs(none),
                lane(shape)?.p50_us.map(digits)?,
                costs(lane(shape)?),
            ))
        };
        sentences.push(line());
    }
    let line = || {
        let row = rows.find(Bench::Getattr, "getattr", ALONE)?;
        Some(format!(
            "**Threads and locks on the way of a getattr:** none; half of them take {} µs with one client, \
             {} of echo's. The server's CPU: {}.",
            digits(row.p50_us?),
            ratio_text(row)?,
            costs(row)
        ))
    };
    sentences.push(line());
    let line = || {
        let row = rows.find(Bench::Getattr, "getattr", MANY)?;
        let readings = row.clock_reads_per_turn?;
        let clock = rows.of(Bench::Clock).next()?;
        Some(format!(
            "**The clock** is read {} times a turn, whatever a turn has to do; a reading ({}) takes {} µs \
             here.",
            digits(readings),
            clock.row,
            digits(clock.mean_us.or(clock.p50_us)?)
        ))
    };
    sentences.push(line());
    let line = || {
        let row = rows.find(Bench::Create, "create own", Some((64, 1)))?;
        Some(format!(
            "**A create was four requests** and four times a getattr; it is {} here, and with 64 clients \
             costs the server {} times a getattr's CPU.",
            digits(row.exchanges_per_op?),
            digits(row.ratio_to_limit?)
        ))
    };
    sentences.push(line());
    sentences.0
}

pub(super) fn affinity(rows: &Rows) -> Vec<String> {
    let mut sentences = Sentences(Vec::new());
    let find = |work: &str, side: &str, lanes: u32, shape: Option<(u32, u32)>| {
        let name = format!("{work} {side}");
        let fits = |row: &&Row| {
            let shape = shape.is_none_or(|(clients, depth)| {
                (row.clients, row.depth) == (Some(clients), Some(depth))
            });
            row.row == name && row.lanes == Some(lanes) && shape
        };
        rows.of(Bench::Affinity).find(fits)
    };
    let most = rows.of(Bench::Affinity).filter_map(|row| row.lanes).max().unwrap_or(1);
    for work in ["getattr", "read-4KiB"] {
        for side in ["client", "random"] {
            let line = || {
                let (object, other) =
                    (find(work, "object", most, MANY)?, find(work, side, most, MANY)?);
                let rate = other.ops_per_s? / object.ops_per_s?;
                Some(format!(
                    "**Does object affinity trump {side} affinity?** {work} with {most} lanes: {} of the \
                     rate; the server's CPU {} of `object`'s: {} instead of {}{}.",
                    digits(rate),
                    ratio_text(other)?,
                    costs(other),
                    costs(object),
                    other.note.as_deref().map_or_else(String::new, |note| format!(" ({note})")),
                ))
            };
            sentences.push(line());
        }
        let line = || {
            let (object, client) =
                (find(work, "object", most, ALONE)?, find(work, "client", most, ALONE)?);
            Some(format!(
                "The wrong core, one client, {work}: half take {} µs instead of {}.",
                digits(client.p50_us?),
                digits(object.p50_us?)
            ))
        };
        sentences.push(line());
    }
    sentences.push(model(&find));
    let line = || {
        let row = rows.find(Bench::Brw, "read", Some((64, 1)))?;
        let write = rows.find(Bench::Brw, "write", Some((64, 1)))?;
        Some(format!(
            "**BRW, 64 clients:** reads of 4 KiB cost {} times the CPU of a lane that only calls pread, \
             writes {} times that of one that only calls pwrite and makes nothing durable.",
            ratio_text(row)?,
            ratio_text(write)?
        ))
    };
    sentences.push(line());
    sentences.0
}

/// The model for more lanes, from the costs with one and two: the cost of a request at its own
/// lane, and the cost of the crossing as often as a random lane is another one.
fn model<'a>(
    find: &impl Fn(&str, &str, u32, Option<(u32, u32)>) -> Option<&'a Row>,
) -> Option<String> {
    let one = find("getattr", "object", 1, MANY)?.cpu_us_per_op?;
    let two = find("getattr", "object", 2, MANY)?.cpu_us_per_op?;
    let client = find("getattr", "client", 2, MANY)?;
    // Two messages for each request that crosses.
    let crossed = client.hops_per_op.filter(|messages| *messages > 0.0)? / 2.0;
    let crossing = (client.cpu_us_per_op? - two).max(0.0) / crossed;
    let of = |lanes: f64| {
        let wrong = 1.0 - 1.0 / lanes;
        format!("{lanes:.0}: {}", digits(two / (two + wrong * crossing)))
    };
    let parts: Vec<String> = [2.0, 4.0, 8.0, 16.0].map(of).to_vec();
    Some(format!(
        "**A model of more lanes** (not measured): a getattr costs {} µs with one lane and {} with two at \
         its own lane, and a crossing {} µs more. With hashing by client 1 - 1/N of the requests cross, so \
         N lanes would do of what they do by object: {}. What it leaves out: caches and memory that lanes \
         share, and cores that halt.",
        digits(one),
        digits(two),
        digits(crossing),
        parts.join(", ")
    ))
}

pub(super) fn aio(rows: &Rows) -> Vec<String> {
    let mut sentences = Sentences(Vec::new());
    for way in ["", " direct"] {
        let cache = if way.is_empty() { "through the page cache" } else { "past the page cache" };
        for depth in [1, 8] {
            let shape = Some((16, depth));
            let find = |who: &str, files: &str| {
                rows.find(Bench::SharedFile, &format!("{who} {files}{way}"), shape)
            };
            let engines = ["uring", "pool", "thread-per-op", "inline"];
            let ratio = |who: &&str| Some(format!("`{who}` {}", ratio_text(find(who, "shared")?)?));
            let parts: Vec<String> = engines.iter().filter_map(ratio).collect();
            if !parts.is_empty() {
                sentences.push(Some(format!(
                    "**One file by 16 clients with {depth} requests each, beside a file for each, {cache}:** \
                     rates {}.",
                    parts.join(", ")
                )));
            }
            let line = || {
                let (shared, separate) =
                    (find("posix-aio", "shared")?, find("posix-aio", "separate")?);
                let pool = find("pool", "shared")?;
                Some(format!(
                    "`posix-aio` there: {} of the rate of separate files; {} reads a second of one file, \
                     {} by `pool`. Threads: {} with one file, {} with several; under way at a time on one \
                     object: {}, so the queue is glibc's, not ours.",
                    ratio_text(shared)?,
                    digits(shared.ops_per_s?),
                    digits(pool.ops_per_s?),
                    shared.threads.map_or_else(|| "?".to_owned(), digits),
                    separate.threads.map_or_else(|| "?".to_owned(), digits),
                    shared.under_way_one.map_or_else(|| "?".to_owned(), digits),
                ))
            };
            sentences.push(line());
            let line = || {
                let (new, pool) = (find("thread-per-op", "shared")?, find("pool", "shared")?);
                let ratio = new.ops_per_s? / pool.ops_per_s?;
                let (verdict, cost) = if ratio > 1.0 + SAME {
                    ("yes", "more")
                } else if ratio < 1.0 - SAME {
                    ("no", "less")
                } else {
                    ("they are alike", "the same within a tenth")
                };
                Some(format!(
                    "**Is a new thread for each operation still cheaper than a pool?** {cache}, depth \
                     {depth}: {verdict}: {} reads a second against {} ({cost}); the server's CPU {} against \
                     {}.",
                    digits(new.ops_per_s?),
                    digits(pool.ops_per_s?),
                    costs(new),
                    costs(pool)
                ))
            };
            sentences.push(line());
        }
    }
    for way in ["read", "write"] {
        let line = || {
            let list = rows.find(Bench::Lists, &format!("{way} list"), Some((1, 1)))?;
            let single = rows.find(Bench::Lists, &format!("{way} 4 KiB"), Some((1, 1)))?;
            Some(format!(
                "**List I/O:** one {way} of 64 pieces of 4 KiB moves {} MB/s where 64 requests move {}; \
                 CPU a byte {}.",
                digits(list.mb_per_s?),
                digits(single.mb_per_s?),
                ratio_text(list)?
            ))
        };
        sentences.push(line());
    }
    sentences.0
}

pub(super) fn share(rows: &Rows) -> Vec<String> {
    let mut sentences = Sentences(Vec::new());
    let of = |start: &str, mode: &str| -> Vec<String> {
        let fits = |row: &&Row| row.row.starts_with(start) && row.row.ends_with(mode);
        let text = |row: &Row| {
            let shape = format!("{}x{}", row.clients?, row.depth?);
            let name = row.row.strip_suffix(mode)?.trim_end().to_owned();
            let held = row.held_replies.map_or_else(|| "?".to_owned(), digits);
            Some(format!("{name} {shape} {}, {held} held", ratio_text(row)?))
        };
        rows.of(Bench::Share).filter(fits).filter_map(text).collect()
    };
    for mode in ["share=write", "share=strict"] {
        let creates: Vec<String> =
            ["own", "shared"].iter().flat_map(|dirs| of(dirs, mode)).collect();
        if !creates.is_empty() {
            sentences.push(Some(format!(
                "**What is left of commit-on-share's price?** Creates of independent clients with \
                 `{mode}`, by the rate of `off`: {}.",
                creates.join("; ")
            )));
        }
        let groups = of("groups", mode);
        if !groups.is_empty() {
            sentences.push(Some(format!(
                "Clients that do depend on each other pay, with `{mode}`: {}.",
                groups.join("; ")
            )));
        }
    }
    for row in rows.of(Bench::Commit) {
        let line = || {
            Some(format!(
                "A commit, {}: {} replies held, {} looked at; the longest turn that ended one took {} µs, \
                 half of them at most {}.",
                row.row,
                digits(row.held_replies?),
                digits(row.touched_replies?),
                digits(row.commit_turn_max_us?),
                digits(row.commit_turn_p50_us?)
            ))
        };
        sentences.push(line());
    }
    sentences.0
}

pub(super) fn bottlenecks(rows: &Rows) -> Vec<String> {
    let mut sentences = Sentences(Vec::new());
    let getattr = rows.find(Bench::Getattr, "getattr", MANY);
    sentences.push(getattr.and_then(|row| {
        Some(format!(
            "**1, a thread for each call:** {} context switches an operation with 64 clients.",
            digits(row.switches_per_op?)
        ))
    }));
    sentences.push(getattr.and_then(|row| {
        Some(format!(
            "**2 and 3, one receiver, a system call for each datagram:** every lane receives its own \
             connections; {} calls of any kind an operation.",
            digits(row.syscalls_per_op?)
        ))
    }));
    for (way, what) in [("read", "reads"), ("write", "durable writes")] {
        let row = rows.of(Bench::Stream).filter(|row| row.row == way);
        let row = row.max_by_key(|row| row.clients);
        sentences.push(row.and_then(|row| {
            Some(format!(
                "**4 and 5, blocking I/O, many calls a megabyte:** {what} with {} clients: {} MB/s, {} \
                 calls and {} switches a MB, CPU {} of the limit's ({}).",
                row.clients?,
                digits(row.mb_per_s?),
                digits(row.syscalls_per_mb?),
                digits(row.switches_per_mb?),
                ratio_text(row)?,
                row.limit.as_deref()?
            ))
        }));
    }
    sentences.0
}
