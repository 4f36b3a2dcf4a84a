//! `Layout`: how a file's contents are spread over stripe objects.
//!
//! ```text
//! file offset   0 .......... unit .......... 2 unit .......... 3 unit
//! stripe          0               1                 2                   object (inode, stripe)
//! data shard      of stripe 0     of stripe 1 mod count ...             ShardCounts::stripe_shard
//! ```
//! The metadata shard records a layout in the inode's row. It travels with attributes to the
//! client, which routes by it and states it in its data requests ([`Layout::to_bits`]).

use crate::codec::{DecodeError, Reader, Wire, Writer};
use crate::{FILE_BYTES_MAX, ProtocolError};
use alloc::format;
use alloc::string::String;

/// The layout of a file, fixed when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Bytes of a stripe; a power of two.
    pub stripe_unit_bytes: u64,
    /// The data shards that the stripes are spread over. With 1 all stripes are at the data shard
    /// of stripe 0, which orders them.
    pub stripe_count: u16,
    /// The file is at the data shard of stripe 0 alone until it needs a second stripe (R13.39). In
    /// a request: its client takes it for such a file.
    pub narrow: bool,
}

/// A part of one stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripePart {
    /// The stripe.
    pub stripe_index: u32,
    /// The beginning of the part in the stripe's object.
    pub object_offset: u64,
    /// Its length.
    pub part_bytes: u64,
}

impl Layout {
    /// Stripes of the largest length that every file system below a store can hold in one file, an
    /// ext4 of small blocks included.
    pub const DEFAULT: Self = Self { stripe_unit_bytes: 1 << 41, stripe_count: 1, narrow: false };

    /// What a new cluster gives to files: up to 4 MiB at one server, and from there on at eight. So
    /// nearly all files are as those of one server, and what is under way of a stream is at several
    /// (docs/decisions/growing-files.md).
    pub const GROWING: Self = Self { stripe_unit_bytes: 4 << 20, stripe_count: 8, narrow: true };

    /// All of a file in its first object.
    pub const ONE_OBJECT: Self =
        Self { stripe_unit_bytes: 1 << 62, stripe_count: 1, narrow: false };

    /// The most data shards that the stripes of a file are spread over.
    pub const STRIPE_COUNT_MAX: u16 = 64;

    /// The smallest stripe of a file over several data shards.
    pub const SPREAD_UNIT_BYTES_MIN: u64 = 1 << 16;

    /// The largest.
    pub const SPREAD_UNIT_BYTES_MAX: u64 = 1 << 30;

    /// Set in an encoded count of a layout that begins at one data shard.
    const NARROW_BIT: u16 = 1 << 15;

    /// The most stripes that one allocation may add at a data shard.
    pub const ALLOCATED_COUNT_MAX: u16 = 1_024;

    /// The extended attribute of a file or directory that has a layout as text.
    pub const XATTR: &'static [u8] = b"lanefs.layout";

    /// Whether a file can have it. A file over several data shards has stripes of a size that is
    /// worth a request to a shard of its own, and that lets a large file use all of them.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        let unit_bytes = self.stripe_unit_bytes;
        let fits = if self.may_spread() {
            unit_bytes >= Self::SPREAD_UNIT_BYTES_MIN
                && unit_bytes <= Self::SPREAD_UNIT_BYTES_MAX
                && self.stripe_count <= Self::STRIPE_COUNT_MAX
        } else {
            unit_bytes <= FILE_BYTES_MAX && self.stripe_count == 1 && !self.narrow
        };
        unit_bytes.is_power_of_two() && fits
    }

    /// Whether the stripes are spread over several data shards.
    #[must_use]
    pub const fn is_spread(&self) -> bool {
        self.may_spread() && !self.narrow
    }

    /// Whether they are, or will be once there are two.
    #[must_use]
    pub const fn may_spread(&self) -> bool {
        self.stripe_count > 1
    }

    /// The layout of a file that was widened.
    #[must_use]
    pub const fn widened(self) -> Self {
        Self { narrow: false, ..self }
    }

    /// Whether bytes up to this end are more than a narrow file can have.
    #[must_use]
    pub const fn must_widen(&self, end: u64) -> bool {
        self.narrow && end > self.stripe_unit_bytes
    }

    /// The parts that the file has now.
    #[must_use]
    pub const fn part_count(&self) -> u16 {
        if self.narrow || self.stripe_count == 0 { 1 } else { self.stripe_count }
    }

    /// The count as it is encoded.
    #[must_use]
    pub const fn count_bits(&self) -> u16 {
        if self.narrow { self.stripe_count | Self::NARROW_BIT } else { self.stripe_count }
    }

    /// The layout with a count that was encoded by [`Layout::count_bits`]. It may not be valid.
    #[must_use]
    pub const fn of_count_bits(stripe_unit_bytes: u64, count_bits: u16) -> Self {
        let narrow = count_bits & Self::NARROW_BIT != 0;
        Self { stripe_unit_bytes, stripe_count: count_bits & !Self::NARROW_BIT, narrow }
    }

    /// The layout that is written as `unit=1048576,count=4`. A unit may end with K, M or G; without
    /// one it is 1 MiB, without a count this is 1. Count 0 stands for as many as possible. `grows=1`:
    /// from the second stripe on. `None` if it is no layout of new files.
    #[must_use]
    pub fn from_text(text: &[u8]) -> Option<Self> {
        let mut layout = Self { stripe_unit_bytes: 1 << 20, stripe_count: 1, narrow: false };
        for word in core::str::from_utf8(text).ok()?.trim_ascii().split(',') {
            match word.split_once('=')? {
                ("unit", value) => {
                    let digits = value.trim_end_matches(['K', 'M', 'G']);
                    let shift = match &value[digits.len()..] {
                        "" => 0,
                        "K" => 10,
                        "M" => 20,
                        "G" => 30,
                        _ => return None,
                    };
                    let count: u64 = digits.parse().ok()?;
                    layout.stripe_unit_bytes = count.checked_mul(1 << shift)?;
                }
                ("count", value) => layout.stripe_count = value.parse().ok()?,
                ("grows", "0") => layout.narrow = false,
                ("grows", "1") => layout.narrow = true,
                _ => return None,
            }
        }
        if layout.stripe_count == 0 {
            layout.stripe_count = Self::STRIPE_COUNT_MAX;
        }
        layout.narrow &= layout.stripe_count > 1;
        let several = Self { stripe_count: layout.stripe_count.max(2), ..layout };
        several.is_valid().then_some(layout)
    }

    /// Its text, as [`Layout::from_text`] reads it.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { stripe_unit_bytes, stripe_count, narrow } = *self;
        let is_all = stripe_count == Self::STRIPE_COUNT_MAX;
        let count = if is_all { 0 } else { stripe_count };
        let grows = if narrow { ",grows=1" } else { "" };
        format!("unit={stripe_unit_bytes},count={count}{grows}")
    }

    /// The layout in a head or in attributes: the exponent of the unit below, the count above. It
    /// is never 0, which stands for none.
    #[must_use]
    pub const fn to_bits(self) -> u32 {
        (self.count_bits() as u32) << 16 | self.stripe_unit_bytes.trailing_zeros()
    }

    /// The layout that [`Layout::to_bits`] gives these bits of; 0 is none.
    ///
    /// # Errors
    /// [`ProtocolError::Malformed`] if no file can have it.
    pub fn from_bits(bits: u32) -> Result<Option<Self>, ProtocolError> {
        if bits == 0 {
            return Ok(None);
        }
        let [exponent, spare, count @ ..] = bits.to_le_bytes();
        let stripe_unit_bytes = 1_u64.checked_shl(u32::from(exponent)).unwrap_or(0);
        let layout = Self::of_count_bits(stripe_unit_bytes, u16::from_le_bytes(count));
        let is_valid = spare == 0 && layout.is_valid();
        if is_valid { Ok(Some(layout)) } else { Err(ProtocolError::Malformed) }
    }

    /// The largest size of a file: a stripe's index has 32 bits.
    #[must_use]
    pub const fn file_bytes_max(&self) -> u64 {
        let stripes_bytes = self.stripe_unit_bytes.saturating_mul(1 << 32);
        if stripes_bytes < FILE_BYTES_MAX { stripes_bytes } else { FILE_BYTES_MAX }
    }

    /// The stripe of a byte of a file.
    #[must_use]
    pub fn stripe(&self, file_offset: u64) -> u32 {
        u32::try_from(file_offset / self.stripe_unit_bytes).unwrap_or(u32::MAX)
    }

    /// The first byte of a stripe.
    #[must_use]
    pub fn start(&self, stripe_index: u32) -> u64 {
        u64::from(stripe_index).saturating_mul(self.stripe_unit_bytes)
    }

    /// The stripe that holds the last byte of a file of this size, and the length of that stripe;
    /// for an empty file 0 bytes of the first.
    #[must_use]
    pub fn last(&self, size_bytes: u64) -> (u32, u64) {
        let stripe_index = self.stripe(size_bytes.saturating_sub(1));
        (stripe_index, size_bytes - self.start(stripe_index))
    }

    /// The part of a file's contents that has a stripe: those of one part are at one data shard.
    #[must_use]
    pub fn part(&self, stripe_index: u32) -> u32 {
        stripe_index % u32::from(self.part_count())
    }

    /// Where the last byte of a part ends in a file of this size; 0 if the part has none.
    #[must_use]
    pub fn part_end(&self, part_index: u32, size_bytes: u64) -> u64 {
        if size_bytes == 0 {
            return 0;
        }
        let (last, _) = self.last(size_bytes);
        let count = u32::from(self.part_count());
        let behind = (last % count + count - part_index % count) % count;
        match last.checked_sub(behind) {
            None => 0,
            Some(_) if behind == 0 => size_bytes,
            Some(stripe_index) => self.start(stripe_index + 1),
        }
    }

    /// The first byte of a part at or behind an offset; `None` if no file can have one.
    #[must_use]
    pub fn next_of_part(&self, part_index: u32, file_offset: u64) -> Option<u64> {
        if file_offset >= self.file_bytes_max() {
            return None;
        }
        let stripe_index = self.stripe(file_offset);
        let count = u32::from(self.part_count());
        let ahead = (part_index % count + count - stripe_index % count) % count;
        if ahead == 0 {
            return Some(file_offset);
        }
        let start = self.start(stripe_index.checked_add(ahead)?);
        Some(start).filter(|start| *start < self.file_bytes_max())
    }

    /// The stripes of a range of a file, in rising order, as far as a file can reach.
    pub fn parts(self, range: core::ops::Range<u64>) -> impl Iterator<Item = StripePart> {
        let mut at = range.start;
        let range_end = range.end.min(self.file_bytes_max());
        core::iter::from_fn(move || {
            if at >= range_end {
                return None;
            }
            let stripe_index = self.stripe(at);
            let start = self.start(stripe_index);
            let until = range_end.min(start.saturating_add(self.stripe_unit_bytes));
            let part =
                StripePart { stripe_index, object_offset: at - start, part_bytes: until - at };
            at = until;
            Some(part)
        })
    }
}

impl Wire<'_> for Layout {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&self.stripe_unit_bytes);
        to.write(&self.count_bits());
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let layout = Self::of_count_bits(from.read()?, from.read()?);
        if !layout.is_valid() {
            return Err(DecodeError::ProtocolError(ProtocolError::Malformed));
        }
        Ok(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const SMALL: Layout = Layout { stripe_unit_bytes: 1 << 16, stripe_count: 1, narrow: false };

    #[test]
    fn a_range_is_cut_at_the_ends_of_stripes() {
        let parts: Vec<_> = SMALL.parts(65_530..196_608).collect();
        let part = |stripe_index, object_offset, part_bytes| StripePart {
            stripe_index,
            object_offset,
            part_bytes,
        };
        assert_eq!(parts, [part(0, 65_530, 6), part(1, 0, 65_536), part(2, 0, 65_536)]);
        assert_eq!(SMALL.parts(7..7).next(), None);
        let last = part(u32::MAX, 65_530, 6);
        assert_eq!(SMALL.parts((1 << 48) - 6..u64::MAX).collect::<Vec<_>>(), [last]);
        assert_eq!(SMALL.parts(1 << 50..u64::MAX).next(), None);
    }

    #[test]
    fn the_last_stripe_holds_the_last_byte() {
        let last = |size_bytes| SMALL.last(size_bytes);
        assert_eq!(
            [last(0), last(1), last(65_536), last(65_537)],
            [(0, 0), (0, 1), (0, 65_536), (1, 1)]
        );
    }

    #[test]
    fn a_text_is_a_layout_of_new_files_or_none() {
        let read = |text: &str| Layout::from_text(text.as_bytes());
        let layout = |exponent: u32, stripe_count| {
            Some(Layout { stripe_unit_bytes: 1_u64 << exponent, stripe_count, narrow: false })
        };
        assert_eq!(read("unit=1048576,count=4"), layout(20, 4));
        assert_eq!(read("count=2,unit=64K\n"), layout(16, 2));
        assert_eq!([read("unit=1G"), read("count=3")], [layout(30, 1), layout(20, 3)]);
        assert_eq!(read("count=0"), layout(20, 64));
        for text in ["", "unit", "unit=", "unit=3M", "unit=32K", "unit=2G", "count=65", "size=1"] {
            assert_eq!(read(text), None, "{text}");
        }
        let texts = ["unit=1048576,count=4", "unit=65536,count=0", "unit=65536,count=3,grows=1"];
        for text in texts {
            assert_eq!(read(text).map(|layout| layout.text()).as_deref(), Some(text));
        }
        assert_eq!(read("count=1,grows=1"), layout(20, 1), "one shard has all of it anyway");
        assert_eq!(read("count=2,grows=2"), None);
    }

    #[test]
    fn a_part_ends_with_its_last_stripe_or_with_the_file() {
        let three = Layout { stripe_unit_bytes: 10, stripe_count: 3, narrow: false };
        let ends = |size_bytes| [0, 1, 2].map(|part| three.part_end(part, size_bytes));
        assert_eq!(ends(0), [0, 0, 0]);
        assert_eq!(ends(10), [10, 0, 0]);
        assert_eq!(ends(11), [10, 11, 0]);
        assert_eq!(ends(45), [40, 45, 30]);
        assert_eq!(SMALL.part_end(0, 77), 77);
    }

    #[test]
    fn a_part_goes_on_with_its_next_stripe() {
        let three = Layout { stripe_unit_bytes: 1 << 16, stripe_count: 3, narrow: false };
        let next = |file_offset| [0, 1, 2].map(|part| three.next_of_part(part, file_offset));
        let unit = three.stripe_unit_bytes;
        assert_eq!(next(0), [Some(0), Some(unit), Some(2 * unit)]);
        assert_eq!(next(unit + 5), [Some(3 * unit), Some(unit + 5), Some(2 * unit)]);
        let last = three.file_bytes_max() - 1;
        assert_eq!(three.stripe(last) % 3, 0);
        assert_eq!(next(last), [Some(last), None, None]);
        assert_eq!(next(last + 1), [None; 3]);
        assert_eq!(SMALL.next_of_part(0, 77), Some(77));
    }

    #[test]
    fn a_narrow_file_has_one_part() {
        let wide = Layout { stripe_unit_bytes: 1 << 16, stripe_count: 3, narrow: false };
        let narrow = Layout { narrow: true, ..wide };
        assert_eq!([narrow, wide].map(|layout| layout.is_spread()), [false, true]);
        assert_eq!([narrow, wide].map(|layout| layout.part(4)), [0, 1]);
        assert_eq!(narrow.widened(), wide);
        assert_eq!([65_536, 65_537].map(|end| narrow.must_widen(end)), [false, true]);
        assert!(!wide.must_widen(u64::MAX));
    }

    #[test]
    fn bits_are_a_layout_or_malformed() {
        for layout in [SMALL, Layout::DEFAULT, Layout { stripe_unit_bytes: 1 << 62, ..SMALL }] {
            assert_eq!(Layout::from_bits(layout.to_bits()), Ok(Some(layout)));
        }
        assert_eq!(SMALL.to_bits(), 0x0001_0010);
        assert_eq!(Layout::from_bits(0), Ok(None));
        for layout in [(16, 2), (30, 64)].map(|(exponent, stripe_count)| Layout {
            stripe_unit_bytes: 1 << exponent,
            stripe_count,
            narrow: stripe_count == 64,
        }) {
            assert_eq!(Layout::from_bits(layout.to_bits()), Ok(Some(layout)));
        }
        let spread = [0x0002_000f, 0x0002_001f, 0x0041_0010, 0x8001_0010, 0x8041_0010];
        for bits in [16, 0x0001_003f, 0x0001_0040, 0x0001_0110].into_iter().chain(spread) {
            assert_eq!(Layout::from_bits(bits), Err(ProtocolError::Malformed), "{bits:x}");
        }
    }

    #[test]
    fn the_largest_file_has_stripes_of_the_default_layout() {
        assert_eq!(Layout::DEFAULT.file_bytes_max(), FILE_BYTES_MAX);
        assert_eq!(Layout::DEFAULT.last(FILE_BYTES_MAX).0, (1 << 22) - 1);
        assert_eq!(SMALL.file_bytes_max(), 1 << 48);
    }
}
