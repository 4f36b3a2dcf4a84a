//! Requests as lines for a person.

use super::explain;
use super::shown::Shown;
use library::traces::RequestTrace;
use std::fmt::Write as _;

/// Cells of a bar.
const BAR_CELLS: u64 = 20;

/// Writes a line and the sentences of each request.
pub(super) fn put(out: &mut String, all: &[Shown], left_out: usize) {
    if all.is_empty() {
        out.push_str("No such request waits, and none was slow lately.\n");
        return;
    }
    out.push_str(
        "  TOTAL   QUEUE   EXEC.  COMMIT  (ms)                  WHEN        CLIENT: REQUEST\n",
    );
    for shown in all {
        let trace = &shown.trace;
        let columns = [trace.total_us(), trace.queue_us, trace.execution_us, trace.commit_us];
        let [total, queue, execution, commit] = columns.map(ms);
        let (bar, when) = (bar(trace), explain::kept(trace));
        let (client, request) = (explain::client(&trace.client), explain::request(trace));
        // A string can be written to.
        let _infallible = writeln!(
            out,
            "{total:>7} {queue:>7} {execution:>7} {commit:>7}  {bar}  {when:<10}  {client}: {request}"
        );
        for sentence in explain::sentences(shown) {
            out.push_str("        ");
            out.push_str(&sentence);
            out.push('\n');
        }
    }
    out.push_str("Bars: q queue, e execution, c commit. ");
    if left_out > 0 {
        // The same.
        let _infallible = write!(out, "{left_out} more: `--count` shows them. ");
    }
    out.push_str("These are the server's times: what its clients add is not in them.\n");
}

/// Milliseconds in a few digits.
fn ms(us: u64) -> String {
    match us {
        0 => "0".to_owned(),
        1..10_000 => format!("{}.{:02}", us / 1_000, us / 10 % 100),
        10_000..100_000 => format!("{}.{}", us / 1_000, us / 100 % 10),
        _ => (us / 1_000).to_string(),
    }
}

/// The parts of a request's time.
fn bar(trace: &RequestTrace) -> String {
    let total_us = trace.total_us();
    let mut bar = String::new();
    let mut until_us = 0;
    for (part_us, cell) in
        [(trace.queue_us, 'q'), (trace.execution_us, 'e'), (trace.commit_us, 'c')]
    {
        until_us += part_us;
        let cells = (until_us * BAR_CELLS).checked_div(total_us).unwrap_or(0);
        while bar.len() < usize::try_from(cells).unwrap_or(0) {
            bar.push(cell);
        }
    }
    format!("{bar:·<width$}", width = usize::try_from(BAR_CELLS).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_the_parts_of_the_time() {
        let trace = RequestTrace {
            queue_us: 500,
            execution_us: 250,
            commit_us: 250,
            ..RequestTrace::default()
        };
        assert_eq!(bar(&trace), "qqqqqqqqqqeeeeeccccc");
        assert_eq!(bar(&RequestTrace::default()), "·".repeat(20));
        assert_eq!(
            [0, 20, 9_999, 12_345, 1_800_400].map(ms),
            ["0", "0.02", "9.99", "12.3", "1800"]
        );
    }
}
