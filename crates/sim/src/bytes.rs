//! The possible contents of a file: every byte must be explained by a write of its value.
//!
//! Every write of a run has its own value, so a byte shows which write put it there. Concurrent
//! writes may overwrite each other in any order, byte by byte; a write that ended before another
//! began cannot come after it. The caller decides whether a write must have happened (`certain`) or
//! may have.

use core::ops::Range;

/// The bytes of a page of the simulated disk.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// A change of a file's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileChange {
    Write {
        from: u64,
        write_bytes: u64,
        value: u8,
    },
    /// An unanswered append: it may be at any offset.
    Append {
        write_bytes: u64,
        value: u8,
    },
    Truncate {
        size_bytes: u64,
    },
    /// Bytes become zeros.
    Clear {
        from: u64,
        until: u64,
    },
    /// The file becomes longer, unless it is.
    Extend {
        size_bytes: u64,
    },
}

/// A change with its times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimedChange {
    pub(crate) change: FileChange,
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: Option<u64>,
    /// It must have happened before what it explains began.
    pub(crate) certain: bool,
    /// It has ended, and is not lost.
    pub(crate) kept: bool,
    /// It was to be written behind the end of the file.
    pub(crate) appends: bool,
}

impl TimedChange {
    pub(crate) fn is_before(&self, later: &Self) -> bool {
        self.ended_ns.is_some_and(|ended| ended < later.began_ns)
    }

    pub(crate) fn covers(&self, at: u64) -> bool {
        match self.change {
            FileChange::Write { from, write_bytes, .. } => (from..from + write_bytes).contains(&at),
            FileChange::Append { .. }
            | FileChange::Truncate { .. }
            | FileChange::Clear { .. }
            | FileChange::Extend { .. } => false,
        }
    }

    fn truncates(&self, at: u64) -> bool {
        matches!(self.change, FileChange::Truncate { size_bytes } if size_bytes <= at)
    }

    /// Byte `at` is 0 or missing by this change.
    pub(crate) fn clears(&self, at: u64) -> bool {
        match self.change {
            FileChange::Clear { from, until } => (from..until).contains(&at),
            FileChange::Truncate { .. } => self.truncates(at),
            FileChange::Write { .. } | FileChange::Append { .. } | FileChange::Extend { .. } => {
                false
            }
        }
    }

    /// The file has byte `at` by this change.
    fn reaches(&self, at: u64) -> bool {
        match self.change {
            FileChange::Write { from, write_bytes, .. } => {
                write_bytes > 0 && from + write_bytes > at
            }
            FileChange::Append { .. } => true,
            FileChange::Truncate { size_bytes } | FileChange::Extend { size_bytes } => {
                size_bytes > at
            }
            FileChange::Clear { .. } => false,
        }
    }

    pub(crate) fn may_have_put(&self, at: u64, found: u8) -> bool {
        match self.change {
            FileChange::Write { value, .. } => value == found && self.covers(at),
            FileChange::Append { value, .. } => value == found,
            FileChange::Truncate { .. } | FileChange::Clear { .. } | FileChange::Extend { .. } => {
                false
            }
        }
    }

    /// It may have put bytes into a range.
    fn may_fill(&self, range: &Range<u64>) -> bool {
        match self.change {
            FileChange::Write { from, write_bytes, .. } => {
                from < range.end && from + write_bytes > range.start
            }
            FileChange::Append { .. } => true,
            FileChange::Truncate { .. } | FileChange::Clear { .. } | FileChange::Extend { .. } => {
                false
            }
        }
    }
}

/// The changes that a write is. Of a file over several servers each stripe is one: until the write is
/// answered, the bytes of a later stripe may be seen before those of an earlier one (R13.35). Those
/// of an append may not.
pub(crate) fn by_stripe(
    unit_bytes: u64,
    from: u64,
    write_bytes: u64,
    value: u8,
) -> Vec<FileChange> {
    let until = from + write_bytes;
    let piece = |stripe: u64| {
        let start = from.max(stripe * unit_bytes);
        let end = until.min((stripe + 1).saturating_mul(unit_bytes));
        FileChange::Write { from: start, write_bytes: end - start, value }
    };
    let last = until.saturating_sub(1).max(from) / unit_bytes;
    (from / unit_bytes..=last).map(piece).collect()
}

/// The bytes that a read returned, and whether the file ends behind them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    pub(crate) from: u64,
    pub(crate) bytes: &'a [u8],
    pub(crate) at_end: bool,
}

/// Explains all parts of a read's result.
pub(crate) fn explain_all(changes: &[TimedChange], found: &[Found<'_>]) -> Result<(), String> {
    found.iter().try_for_each(|found| explain(changes, found))
}

/// The same changes, none of which must have happened.
pub(crate) fn uncertain(changes: &[TimedChange]) -> Vec<TimedChange> {
    changes.iter().map(|change| TimedChange { certain: false, kept: false, ..*change }).collect()
}

/// Explains the bytes that a read returned by the changes, or describes what cannot be explained.
pub(crate) fn explain(changes: &[TimedChange], found: &Found<'_>) -> Result<(), String> {
    let mut last = None;
    for (at, byte) in (found.from..).zip(found.bytes) {
        // Equal bytes between the edges of changes have the same explanation.
        if last == Some(*byte) && !is_edge(changes, at) {
            continue;
        }
        last = Some(*byte);
        explain_byte(changes, at, *byte)?;
        if let Some(missed) = missed_growth(changes, at).filter(|_| *byte == 0) {
            return Err(format!("byte {at} is 0 in front of the end, but {missed:?}"));
        }
    }
    let end = found.from + crate::number::wide(found.bytes.len());
    if found.at_end { explain_end(changes, end, !found.bytes.is_empty()) } else { Ok(()) }
}

fn is_edge(changes: &[TimedChange], at: u64) -> bool {
    changes.iter().any(|change| match change.change {
        FileChange::Write { from, write_bytes, .. } => at == from || at == from + write_bytes,
        FileChange::Append { .. } => false,
        FileChange::Truncate { size_bytes } | FileChange::Extend { size_bytes } => at == size_bytes,
        FileChange::Clear { from, until } => at == from || at == until,
    })
}

fn explain_byte(changes: &[TimedChange], at: u64, byte: u8) -> Result<(), String> {
    if byte == 0 {
        let lost = changes
            .iter()
            .find(|change| change.certain && change.covers(at) && !is_cleared(changes, change, at));
        return match lost {
            Some(lost) => Err(format!("byte {at} is 0, but {lost:?}")),
            None => Ok(()),
        };
    }
    if let Some(below) = overwritten_end(changes, at, byte) {
        return Err(format!("byte {at} is {byte}, which was appended on {below:?}"));
    }
    let mut writers = changes.iter().filter(|change| change.may_have_put(at, byte)).peekable();
    if writers.peek().is_none() {
        return Err(format!("byte {at} is {byte}, which no write put there"));
    }
    let mut why = String::new();
    for writer in writers {
        let later = changes.iter().find(|change| {
            change.certain && (change.covers(at) || change.clears(at)) && writer.is_before(change)
        });
        match later {
            Some(later) => why = format!("byte {at} is {byte} of {writer:?}, but then {later:?}"),
            None => return Ok(()),
        }
    }
    Err(why)
}

/// Whether byte `at` may have been removed or cleared after (or while) `writer` wrote it.
fn is_cleared(changes: &[TimedChange], writer: &TimedChange, at: u64) -> bool {
    changes.iter().any(|change| change.clears(at) && !change.is_before(writer))
}

/// A byte of an append lies where another write has put one: the append was not behind the end of the
/// file, or was overwritten. Returns the other write, unless a truncation may have been between both.
fn overwritten_end(changes: &[TimedChange], at: u64, byte: u8) -> Option<&TimedChange> {
    let mut writers = changes.iter().filter(|change| change.may_have_put(at, byte));
    let only = writers.next().filter(|writer| writer.appends && writer.kept)?;
    if writers.next().is_some() {
        return None;
    }
    let is_other = |change: &&TimedChange| !change.appends && change.certain && change.covers(at);
    let other = changes.iter().find(|change| is_other(change) && change.change != only.change)?;
    let is_between = |change: &TimedChange| change.clears(at) && !change.is_before(other);
    (!changes.iter().any(is_between)).then_some(other)
}

/// A byte in front of the end that a read has found is 0, and nothing but a write that put another
/// one there, and what followed it, has made the file so long. Returns the write.
fn missed_growth(changes: &[TimedChange], at: u64) -> Option<&TimedChange> {
    changes.iter().find(|change| {
        let is_first =
            |other: &TimedChange| other == *change || !other.reaches(at) || change.is_before(other);
        change.kept
            && change.covers(at)
            && !is_cleared(changes, change, at)
            && changes.iter().all(is_first)
    })
}

/// Explains that a seek from an offset on has found data or a hole, or neither. Data and holes are
/// whole pages of the simulated disk.
pub(crate) fn explain_seek(
    changes: &[TimedChange],
    (from, hole): (u64, bool),
    found: Option<u64>,
) -> Result<(), String> {
    let page = |at: u64| at / PAGE_BYTES * PAGE_BYTES..(at / PAGE_BYTES + 1) * PAGE_BYTES;
    let may_be_data = |at: u64| changes.iter().any(|change| change.may_fill(&page(at)));
    match found {
        None if hole => explain_end(changes, from, false),
        Some(at) if hole => {
            let pages = from / PAGE_BYTES..at.div_ceil(PAGE_BYTES);
            let mut passed = pages.filter(|_| from < at).map(|no| no * PAGE_BYTES);
            if let Some(passed) = passed.find(|at| !may_be_data(*at)) {
                return Err(format!("a hole at {at}, behind one at {passed}"));
            }
            let is_zero = explain_byte(changes, at, 0);
            is_zero.or_else(|_| explain_end(changes, at, false))
        }
        _ => {
            let until = found.unwrap_or(u64::MAX);
            if found.is_some_and(|at| !may_be_data(at)) {
                return Err(format!("data at {until}, which no write put there"));
            }
            let edges = changes.iter().flat_map(|change| match change.change {
                FileChange::Write { from, write_bytes, .. } => [from, from + write_bytes],
                FileChange::Clear { from, until } => [from, until],
                FileChange::Truncate { size_bytes } | FileChange::Extend { size_bytes } => {
                    [size_bytes; 2]
                }
                FileChange::Append { .. } => [0; 2],
            });
            let places = core::iter::once(from).chain(edges);
            let mut passed = places.filter(|at| (from..until).contains(at));
            passed.try_for_each(|at| explain_byte(changes, at, 0))
        }
    }
}

fn explain_end(changes: &[TimedChange], end: u64, has_last: bool) -> Result<(), String> {
    let lost = changes.iter().find(|change| {
        change.certain
            && !matches!(change.change, FileChange::Append { .. })
            && change.reaches(end)
            && !shortened(changes, change, end)
    });
    if let Some(lost) = lost {
        return Err(format!("the file ends at {end}, but {lost:?}"));
    }
    if !has_last || end == 0 {
        return Ok(());
    }
    let reached = changes.iter().any(|change| {
        let later = |other: &TimedChange| {
            other.certain && other.truncates(end - 1) && change.is_before(other)
        };
        change.reaches(end - 1) && !changes.iter().any(later)
    });
    if reached { Ok(()) } else { Err(format!("the file ends at {end}, which no call caused")) }
}

/// Explains that a file had this size at one moment.
pub(crate) fn explain_size(changes: &[TimedChange], size_bytes: u64) -> Result<(), String> {
    explain_end(changes, size_bytes, true)?;
    let is_longer = |change: &&TimedChange| {
        let is_placed = !matches!(change.change, FileChange::Append { .. });
        change.certain && is_placed && change.reaches(size_bytes)
    };
    let Some(longer) = changes.iter().find(is_longer).filter(|_| size_bytes > 0) else {
        return Ok(());
    };
    // A truncation came behind it, and what has made the file so long did not come before that.
    let explains = |truncation: &TimedChange| {
        let follows =
            |change: &TimedChange| change.reaches(size_bytes - 1) && !change.is_before(truncation);
        truncation.truncates(size_bytes)
            && !truncation.is_before(longer)
            && changes.iter().any(follows)
    };
    if changes.iter().any(explains) {
        return Ok(());
    }
    Err(format!("the file never had {size_bytes} bytes behind {longer:?}"))
}

/// Whether a truncation may have shortened the file to at most `end` after `writer` extended it.
fn shortened(changes: &[TimedChange], writer: &TimedChange, end: u64) -> bool {
    changes.iter().any(|change| change.truncates(end) && !change.is_before(writer))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn write(from: u64, value: u8, began_ns: u64, certain: bool) -> TimedChange {
        let change = FileChange::Write { from, write_bytes: 4, value };
        timed(change, began_ns, certain)
    }

    fn timed(change: FileChange, began_ns: u64, certain: bool) -> TimedChange {
        let (ended_ns, kept, appends) = (Some(began_ns + 5), certain, false);
        TimedChange { change, began_ns, ended_ns, certain, kept, appends }
    }

    fn whole(bytes: &[u8]) -> Found<'_> {
        Found { from: 0, bytes, at_end: true }
    }

    #[test]
    fn a_later_write_wins() {
        let changes = [write(0, 1, 0, true), write(2, 2, 10, true)];
        explain(&changes, &whole(&[1, 1, 2, 2, 2, 2])).unwrap();
        explain(&changes, &whole(&[1, 1, 1, 1, 2, 2])).unwrap_err();
        explain(&changes, &whole(&[1, 1, 2, 2])).unwrap_err();
        explain(&changes, &whole(&[1, 1, 2, 2, 2, 2, 0])).unwrap_err();
    }

    #[test]
    fn writes_at_the_same_time_may_mix() {
        let changes = [write(0, 1, 0, true), write(2, 2, 3, true)];
        explain(&changes, &whole(&[1, 1, 2, 1, 2, 2])).unwrap();
    }

    #[test]
    fn an_uncertain_write_may_be_absent() {
        let changes = [write(0, 1, 0, true), write(2, 2, 10, false)];
        explain(&changes, &whole(&[1, 1, 1, 1])).unwrap();
        explain(&changes, &whole(&[1, 1, 1, 2, 2])).unwrap();
        explain(&changes, &whole(&[0, 1, 1, 1])).unwrap_err();
    }

    #[test]
    fn a_truncation_removes_bytes() {
        let truncate = timed(FileChange::Truncate { size_bytes: 2 }, 10, true);
        let changes = [write(0, 1, 0, true), truncate];
        explain(&changes, &whole(&[1, 1])).unwrap();
        explain(&changes, &whole(&[1, 1, 1])).unwrap_err();
        explain(&changes, &whole(&[1, 1, 0])).unwrap_err();
    }

    #[test]
    fn a_file_never_has_the_size_that_it_had_before_it_was_longer() {
        let truncate = timed(FileChange::Truncate { size_bytes: 1 }, 20, true);
        let changes = [write(0, 1, 0, true), write(6, 2, 10, true), truncate];
        explain_size(&changes, 1).unwrap();
        explain_size(&changes, 4).unwrap_err();
        let changes = [&changes[..], &[write(0, 3, 18, true)]].concat();
        explain_size(&changes, 4).unwrap();
    }

    #[test]
    fn growth_is_shown_with_the_write_that_made_it() {
        let missed = TimedChange { certain: false, ..write(0, 1, 0, true) };
        let changes = [missed, write(6, 2, 10, false)];
        explain(&changes, &whole(&[1, 1, 1, 1, 0, 0, 2, 2, 2, 2])).unwrap();
        explain(&changes, &whole(&[0, 0, 0, 0, 0, 0, 2, 2, 2, 2])).unwrap_err();
    }

    #[test]
    fn growth_by_a_later_stripe_may_be_seen_first() {
        let timed = |stripes: &[FileChange]| -> Vec<TimedChange> {
            let all = stripes.iter();
            all.map(|change| TimedChange { certain: false, ..timed(*change, 0, true) }).collect()
        };
        let found = |bytes| Found { from: 2, ..whole(bytes) };
        let spread = timed(&by_stripe(4, 2, 5, 1));
        assert_eq!(spread.len(), 2);
        explain(&spread, &found(&[0, 0, 1, 1, 1])).unwrap();
        explain(&spread, &found(&[1, 1, 0, 1, 1])).unwrap_err();
        let whole = timed(&by_stripe(u64::MAX, 2, 5, 1));
        assert_eq!(whole.len(), 1);
        explain(&whole, &found(&[0, 0, 1, 1, 1])).unwrap_err();
    }

    #[test]
    fn an_append_is_on_no_byte_of_another_write() {
        let appended = TimedChange { appends: true, ..write(2, 2, 3, true) };
        let changes = [write(0, 1, 0, true), appended];
        explain(&changes, &whole(&[1, 1, 1, 1, 2, 2])).unwrap();
        explain(&changes, &whole(&[1, 1, 2, 2, 2, 2])).unwrap_err();
    }

    #[test]
    fn a_cleared_range_is_zeros_and_ends_no_file() {
        let clear = timed(FileChange::Clear { from: 2, until: 4 }, 10, true);
        let extend = timed(FileChange::Extend { size_bytes: 6 }, 10, true);
        let changes = [write(0, 1, 0, true), clear];
        explain(&changes, &whole(&[1, 1, 0, 0])).unwrap();
        explain(&changes, &whole(&[1, 1, 1, 0])).unwrap_err();
        explain(&changes, &whole(&[1, 1])).unwrap_err();
        let changes = [write(0, 1, 0, true), extend];
        explain(&changes, &whole(&[1, 1, 1, 1, 0, 0])).unwrap();
        explain(&changes, &whole(&[1, 1, 1, 1])).unwrap_err();
    }

    #[test]
    fn seeks_pass_over_nothing() {
        let page = |no: u64, value, began_ns| {
            let (from, write_bytes) = (no * PAGE_BYTES, PAGE_BYTES);
            let change = FileChange::Write { from, write_bytes, value };
            timed(change, began_ns, true)
        };
        let changes = [page(1, 1, 0), page(2, 2, 10)];
        let seek = |from, hole, found: Option<u64>| {
            explain_seek(&changes, (from * PAGE_BYTES, hole), found.map(|at| at * PAGE_BYTES))
        };
        seek(0, false, Some(1)).unwrap();
        seek(0, false, Some(2)).unwrap_err();
        seek(0, false, Some(0)).unwrap_err();
        seek(0, false, None).unwrap_err();
        seek(3, false, None).unwrap();
        seek(1, true, Some(3)).unwrap();
        seek(1, true, Some(2)).unwrap_err();
        seek(0, true, Some(0)).unwrap();
        explain_seek(&changes, (7, true), Some(7)).unwrap();
        seek(0, true, Some(3)).unwrap_err();
        seek(1, true, None).unwrap_err();
        seek(3, true, None).unwrap();
    }

    #[test]
    fn an_empty_file_is_explained_only_if_all_its_writes_may_be_lost() {
        let changes = [write(0, 1, 0, true)];
        explain_all(&changes, &[whole(&[])]).unwrap_err();
        explain_all(&uncertain(&changes), &[whole(&[])]).unwrap();
        explain_all(&uncertain(&changes), &[whole(&[2])]).unwrap_err();
    }

    #[test]
    fn bytes_that_no_write_put_there_are_found() {
        let changes = [write(0, 1, 0, true)];
        explain(&changes, &whole(&[1, 1, 1, 1, 1])).unwrap_err();
    }
}
