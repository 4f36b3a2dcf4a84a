//! The arena of one turn: encoded frames, records and other small byte strings.

use alloc::vec::Vec;

/// A byte range of the turn's arena. Invalid after the turn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Span {
    start: u32,
    span_bytes: u32,
}

impl Span {
    /// How many bytes.
    #[must_use]
    pub const fn bytes_count(self) -> usize {
        self.span_bytes as usize
    }

    /// A sub-range: `bytes_count` bytes from `from` on; `None` when it leaves the span.
    #[must_use]
    pub fn part(self, from: usize, bytes_count: usize) -> Option<Self> {
        let end = from.checked_add(bytes_count)?;
        if end > self.bytes_count() {
            return None;
        }
        let from = u32::try_from(from).ok()?;
        let span_bytes = u32::try_from(bytes_count).ok()?;
        Some(Self { start: self.start + from, span_bytes })
    }

    /// Whether the span has no bytes.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.span_bytes == 0
    }
}

/// One growing byte vector. It is emptied between turns and retains its memory.
#[derive(Debug, Default)]
pub struct Arena {
    bytes: Vec<u8>,
}

impl Arena {
    /// An empty arena.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Appends a copy of these bytes.
    pub fn put(&mut self, bytes: &[u8]) -> Span {
        self.write(|out| out.extend_from_slice(bytes))
    }

    /// Lets `fill` append to the arena; the span covers what it appended. `fill` must not shorten
    /// the arena.
    pub fn write(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> Span {
        let start = self.bytes.len();
        fill(&mut self.bytes);
        assert!(self.bytes.len() >= start, "an arena only grows within a turn");
        let span_bytes = self.bytes.len() - start;
        #[expect(clippy::expect_used, reason = "a turn's small bytes are bounded far below 4 GiB")]
        let to_u32 = |count: usize| u32::try_from(count).expect("an arena stays below 4 GiB");
        Span { start: to_u32(start), span_bytes: to_u32(span_bytes) }
    }

    /// The bytes of a span.
    #[must_use]
    pub fn get(&self, span: Span) -> &[u8] {
        let start = span.start as usize;
        &self.bytes[start..start + span.bytes_count()]
    }

    /// Empties the arena; earlier spans become invalid.
    pub fn reset(&mut self) {
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::Arena;

    #[test]
    fn a_part_lies_within_its_span() {
        let mut arena = Arena::new();
        arena.put(b"before");
        let whole = arena.put(b"0123456789");
        let part = |from, count| whole.part(from, count).map(|part| arena.get(part));
        assert_eq!(part(0, 10), Some(&b"0123456789"[..]));
        assert_eq!(part(3, 2), Some(&b"34"[..]));
        assert_eq!(part(10, 0), Some(&b""[..]));
        assert_eq!(part(10, 1), None);
        assert_eq!(part(0, 11), None);
        assert_eq!(part(usize::MAX, 2), None);
    }
}
