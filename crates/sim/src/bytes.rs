//! The bytes of a file as they may be: every byte is explained by a write whose value it carries.
//!
//! Every write of a run has a value of its own, so a byte tells whose it is. Writes that ran at the
//! same time may have overwritten each other in any order, byte by byte; one that ended before
//! another began may not have come after it. Whether a write must have happened (`certain`) or only
//! may have is the caller's to say.

/// What was done to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deed {
    Write {
        from: u64,
        write_bytes: u64,
        value: u8,
    },
    /// An append that was not answered: it may be anywhere.
    Append {
        write_bytes: u64,
        value: u8,
    },
    Cut {
        size_bytes: u64,
    },
}

/// A deed and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Done {
    pub(crate) deed: Deed,
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: Option<u64>,
    pub(crate) certain: bool,
}

impl Done {
    fn is_before(&self, later: &Self) -> bool {
        self.ended_ns.is_some_and(|ended| ended < later.began_ns)
    }

    fn covers(&self, at: u64) -> bool {
        match self.deed {
            Deed::Write { from, write_bytes, .. } => (from..from + write_bytes).contains(&at),
            Deed::Append { .. } | Deed::Cut { .. } => false,
        }
    }

    fn cuts(&self, at: u64) -> bool {
        match self.deed {
            Deed::Cut { size_bytes } => size_bytes <= at,
            Deed::Write { .. } | Deed::Append { .. } => false,
        }
    }

    /// It makes byte `at` exist.
    fn reaches(&self, at: u64) -> bool {
        match self.deed {
            Deed::Write { from, write_bytes, .. } => write_bytes > 0 && from + write_bytes > at,
            Deed::Append { .. } => true,
            Deed::Cut { size_bytes } => size_bytes > at,
        }
    }

    fn may_have_put(&self, at: u64, found: u8) -> bool {
        match self.deed {
            Deed::Write { value, .. } => value == found && self.covers(at),
            Deed::Append { value, .. } => value == found,
            Deed::Cut { .. } => false,
        }
    }
}

/// What was found: bytes from an offset on, and whether the file ends behind them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    pub(crate) from: u64,
    pub(crate) bytes: &'a [u8],
    pub(crate) at_end: bool,
}

/// Explains what was found by what was done, or says what cannot be explained.
pub(crate) fn explain(done: &[Done], found: &Found<'_>) -> Result<(), String> {
    let mut last = None;
    for (at, byte) in (found.from..).zip(found.bytes) {
        // Neighbours of one write have one explanation; edges of deeds are always looked at.
        if last == Some(*byte) && !is_edge(done, at) {
            continue;
        }
        last = Some(*byte);
        explain_byte(done, at, *byte)?;
    }
    let end = found.from + crate::number::wide(found.bytes.len());
    if found.at_end { explain_end(done, end, !found.bytes.is_empty()) } else { Ok(()) }
}

fn is_edge(done: &[Done], at: u64) -> bool {
    done.iter().any(|one| match one.deed {
        Deed::Write { from, write_bytes, .. } => at == from || at == from + write_bytes,
        Deed::Append { .. } => false,
        Deed::Cut { size_bytes } => at == size_bytes,
    })
}

fn explain_byte(done: &[Done], at: u64, byte: u8) -> Result<(), String> {
    if byte == 0 {
        let lost = done.iter().find(|one| one.certain && one.covers(at) && !is_cut(done, one, at));
        return match lost {
            Some(lost) => Err(format!("byte {at} is 0, but {lost:?}")),
            None => Ok(()),
        };
    }
    let mut writers = done.iter().filter(|one| one.may_have_put(at, byte)).peekable();
    if writers.peek().is_none() {
        return Err(format!("byte {at} is {byte}, which nobody wrote there"));
    }
    let mut why = String::new();
    for writer in writers {
        let later = done
            .iter()
            .find(|one| one.certain && (one.covers(at) || one.cuts(at)) && writer.is_before(one));
        match later {
            Some(later) => why = format!("byte {at} is {byte} of {writer:?}, but then {later:?}"),
            None => return Ok(()),
        }
    }
    Err(why)
}

/// Whether something may have cut byte `at` off after (or while) `writer` wrote it.
fn is_cut(done: &[Done], writer: &Done, at: u64) -> bool {
    done.iter().any(|one| one.cuts(at) && !one.is_before(writer))
}

fn explain_end(done: &[Done], end: u64, has_last: bool) -> Result<(), String> {
    let lost = done.iter().find(|one| {
        one.certain
            && !matches!(one.deed, Deed::Append { .. })
            && one.reaches(end)
            && !shortened(done, one, end)
    });
    if let Some(lost) = lost {
        return Err(format!("the file ends at {end}, but {lost:?}"));
    }
    if !has_last || end == 0 {
        return Ok(());
    }
    let reached = done.iter().any(|one| {
        let later = |other: &Done| other.certain && other.cuts(end - 1) && one.is_before(other);
        one.reaches(end - 1) && !done.iter().any(later)
    });
    if reached { Ok(()) } else { Err(format!("the file ends at {end}, which nobody made")) }
}

/// Whether something may have shortened the file to at most `end` after `writer` made it longer.
fn shortened(done: &[Done], writer: &Done, end: u64) -> bool {
    done.iter().any(|one| one.cuts(end) && !one.is_before(writer))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn write(from: u64, value: u8, began_ns: u64, certain: bool) -> Done {
        let deed = Deed::Write { from, write_bytes: 4, value };
        Done { deed, began_ns, ended_ns: Some(began_ns + 5), certain }
    }

    fn whole(bytes: &[u8]) -> Found<'_> {
        Found { from: 0, bytes, at_end: true }
    }

    #[test]
    fn a_later_write_wins() {
        let done = [write(0, 1, 0, true), write(2, 2, 10, true)];
        explain(&done, &whole(&[1, 1, 2, 2, 2, 2])).unwrap();
        explain(&done, &whole(&[1, 1, 1, 1, 2, 2])).unwrap_err();
        explain(&done, &whole(&[1, 1, 2, 2])).unwrap_err();
        explain(&done, &whole(&[1, 1, 2, 2, 2, 2, 0])).unwrap_err();
    }

    #[test]
    fn writes_at_the_same_time_may_mix() {
        let done = [write(0, 1, 0, true), write(2, 2, 3, true)];
        explain(&done, &whole(&[1, 1, 2, 1, 2, 2])).unwrap();
    }

    #[test]
    fn what_may_not_have_happened_may_be_absent() {
        let done = [write(0, 1, 0, true), write(2, 2, 10, false)];
        explain(&done, &whole(&[1, 1, 1, 1])).unwrap();
        explain(&done, &whole(&[1, 1, 1, 2, 2])).unwrap();
        explain(&done, &whole(&[0, 1, 1, 1])).unwrap_err();
    }

    #[test]
    fn a_cut_takes_bytes_away() {
        let cut = Done {
            deed: Deed::Cut { size_bytes: 2 },
            began_ns: 10,
            ended_ns: Some(12),
            certain: true,
        };
        let done = [write(0, 1, 0, true), cut];
        explain(&done, &whole(&[1, 1])).unwrap();
        explain(&done, &whole(&[1, 1, 1])).unwrap_err();
        explain(&done, &whole(&[1, 1, 0])).unwrap_err();
    }

    #[test]
    fn bytes_appear_once() {
        let done = [write(0, 1, 0, true)];
        explain(&done, &whole(&[1, 1, 1, 1, 1])).unwrap_err();
    }
}
