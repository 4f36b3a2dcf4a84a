//! Requests as lines for a person.

use super::story::Story;
use super::{explain, said};
use library::traces::RequestTrace;
use std::fmt::Write as _;

/// Cells of a bar.
const BAR_CELLS: u64 = 20;

/// Writes a line and the sentences of each request.
pub(super) fn put(out: &mut String, all: &[Story], left_out: usize) {
    if all.is_empty() {
        out.push_str("No such request waits, and none was slow lately.\n");
        return;
    }
    out.push_str(
        "  TOTAL   QUEUE   EXEC.  COMMIT   REPLY  (ms)                  WHEN        WHO: REQUEST\n",
    );
    for story in all {
        let trace = at_servers(story);
        let phases = [trace.queue_us, trace.execution_us, trace.commit_us, trace.reply_us];
        let [queue, execution, commit, reply] = phases.map(ms);
        let total = ms(story.total_us());
        let (bar, when) = (bar(&trace, story.total_us()), when(story));
        // A string can be written to.
        let _infallible = writeln!(
            out,
            "{total:>7} {queue:>7} {execution:>7} {commit:>7} {reply:>7}  {bar}  {when:<10}  {}",
            head(story)
        );
        for sentence in said::sentences(story) {
            out.push_str("        ");
            out.push_str(&sentence);
            out.push('\n');
        }
    }
    out.push_str("Bars: q queue, e execution, c commit, r reply, at the server. ");
    if left_out > 0 {
        // The same.
        let _infallible = write!(out, "{left_out} more: `--count` shows them. ");
    }
    out.push('\n');
    if all.iter().any(|story| story.call.is_some()) {
        out.push_str(
            "A request of a process begins where the mount takes it: how long it was in the kernel's queue before, \
             the kernel does not say.\n",
        );
    }
    if all.iter().any(|story| story.call.is_none()) {
        out.push_str("Of a client without a mount here these are the server's times alone.\n");
    }
}

fn head(story: &Story) -> String {
    match (&story.call, story.shown.first()) {
        (Some(call), _) => said::head(call),
        (None, Some(shown)) => {
            let trace = &shown.trace;
            format!("{}: {}", explain::client(&trace.client), explain::request(trace))
        }
        (None, None) => String::new(),
    }
}

fn when(story: &Story) -> String {
    let age_us = match (&story.call, story.shown.first()) {
        (Some(call), _) => call.trace.age_us,
        (None, shown) => shown.map_or(0, |shown| shown.trace.age_us),
    };
    explain::when(story.kept(), age_us.saturating_sub(story.total_us()))
}

/// The phases at all servers together.
fn at_servers(story: &Story) -> RequestTrace {
    let mut sum = RequestTrace::default();
    for shown in &story.shown {
        sum.queue_us += shown.trace.queue_us;
        sum.execution_us += shown.trace.execution_us;
        sum.commit_us += shown.trace.commit_us;
        sum.reply_us += shown.trace.reply_us;
    }
    sum
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
fn bar(trace: &RequestTrace, total_us: u64) -> String {
    let mut bar = String::new();
    let mut until_us = 0;
    let parts = [
        (trace.queue_us, 'q'),
        (trace.execution_us, 'e'),
        (trace.commit_us, 'c'),
        (trace.reply_us, 'r'),
    ];
    for (part_us, cell) in parts {
        until_us += part_us;
        let cells = (until_us * BAR_CELLS).checked_div(total_us).unwrap_or(0);
        // Several exchanges at once take more than the whole.
        while bar.len() < usize::try_from(cells.min(BAR_CELLS)).unwrap_or(0) {
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
        assert_eq!(bar(&trace, 1000), "qqqqqqqqqqeeeeeccccc");
        assert_eq!(bar(&trace, 2000), format!("qqqqqeeccc{}", "·".repeat(10)));
        assert_eq!(bar(&RequestTrace::default(), 0), "·".repeat(20));
        assert_eq!(
            [0, 20, 9_999, 12_345, 1_800_400].map(ms),
            ["0", "0.02", "9.99", "12.3", "1800"]
        );
    }
}
