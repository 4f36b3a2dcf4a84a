//! Conversions between number widths, for values that always fit in a simulation.

/// A count or index as 64 bits.
pub(crate) fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// 64 bits as a count or index.
pub(crate) fn narrow(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A count as 32 bits.
pub(crate) fn narrow_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// An index as 16 bits.
pub(crate) fn narrow_u16(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// The lowest 16 bits.
pub(crate) fn low_u16(number: u64) -> u16 {
    u16::try_from(number & 0xffff).unwrap_or(u16::MAX)
}

pub(crate) const fn low_u8(number: u64) -> u8 {
    number.to_le_bytes()[0]
}
