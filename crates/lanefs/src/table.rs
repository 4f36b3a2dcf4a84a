//! Tables on the terminal: columns as wide as their widest text.

use std::fmt::Write as _;

/// What a column has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Column {
    /// To the left.
    Text,
    /// To the right.
    Number,
}

/// Writes lines of texts; the first line is the head.
pub(crate) fn put(out: &mut String, lines: &[Vec<String>], column_of: impl Fn(usize) -> Column) {
    let column_count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|text| text.chars().count()).max()
    };
    let widths: Vec<usize> = (0..column_count).map(|column| width(column).unwrap_or(0)).collect();
    for line in lines {
        let mut shown = String::new();
        for (column, text) in line.iter().enumerate() {
            let width = widths[column];
            let gap = if column == 0 { "" } else { "  " };
            // A string can be written to.
            let _infallible = match column_of(column) {
                Column::Text => write!(shown, "{gap}{text:<width$}"),
                Column::Number => write!(shown, "{gap}{text:>width$}"),
            };
        }
        out.push_str(shown.trim_end());
        out.push('\n');
    }
}

/// A time in microseconds, in a few digits.
pub(crate) fn time(us: u64) -> String {
    match us {
        0..10_000 => format!("{us}us"),
        10_000..10_000_000 => format!("{}ms", us / 1000),
        _ => format!("{}s", us / 1_000_000),
    }
}
