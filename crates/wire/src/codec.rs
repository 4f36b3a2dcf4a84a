//! Little-endian encoding of message bodies: a reader that cannot overrun and a writer.

use crate::{
    ClientUuid, FsUuid, HandleId, InodeNo, LaneId, LeaseNo, MapEpoch, ProtocolError, RecallNo,
    ServerId, SessionId, ShardId, Status, Term, Transno, Xid,
};
use alloc::vec::Vec;

/// Why a body did not decode: the peer broke the protocol, or the request gets an errno (an
/// over-long name is the user's mistake, not the peer's).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// Close the connection.
    ProtocolError(ProtocolError),
    /// Answer the request.
    Status(Status),
}

/// Reads fields off the front of a body.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader over all of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// [`ProtocolError::Malformed`] when fewer are left.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(DecodeError::ProtocolError(ProtocolError::Malformed))?;
        self.rest = rest;
        Ok(head)
    }

    /// The next `N` bytes as an array.
    ///
    /// # Errors
    /// [`ProtocolError::Malformed`] when fewer are left.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(DecodeError::ProtocolError(ProtocolError::Malformed))?;
        self.rest = rest;
        Ok(*head)
    }

    /// The next field.
    ///
    /// # Errors
    /// As the field's type says.
    #[inline]
    pub fn read<T: Wire<'a>>(&mut self) -> Result<T, DecodeError> {
        T::decode(self)
    }

    /// Number of bytes left.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.rest.len()
    }

    /// Ends the decoding: no bytes may be left.
    ///
    /// # Errors
    /// [`ProtocolError::Malformed`] when bytes are left over.
    pub const fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::ProtocolError(ProtocolError::Malformed))
        }
    }
}

/// Appends fields to a byte vector.
#[derive(Debug)]
pub struct Writer<'v> {
    out: &'v mut Vec<u8>,
}

impl<'v> Writer<'v> {
    /// A writer that appends to `out`.
    #[inline]
    pub const fn new(out: &'v mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Appends raw bytes.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends one field.
    #[inline]
    pub fn write<'a, T: Wire<'a>>(&mut self, field: &T) {
        field.encode(self);
    }
}

/// Fields of known lengths, `N` bytes in total, assembled before they are appended in one piece.
#[derive(Debug)]
pub struct Fixed<const N: usize> {
    bytes: [u8; N],
    put_bytes: usize,
}

impl<const N: usize> Fixed<N> {
    /// An empty one.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self { bytes: [0; N], put_bytes: 0 }
    }

    /// Adds a field.
    #[inline]
    pub fn put<const M: usize>(&mut self, field: [u8; M]) {
        self.bytes[self.put_bytes..self.put_bytes + M].copy_from_slice(&field);
        self.put_bytes += M;
    }

    /// Appends all fields.
    #[inline]
    pub fn append(&self, to: &mut Writer<'_>) {
        assert!(self.put_bytes == N, "all fields are there");
        to.put(&self.bytes);
    }
}

impl<const N: usize> Default for Fixed<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// A field or message with one encoding. `decode(encode(x)) == x`, and the reverse.
pub trait Wire<'a>: Sized {
    /// Appends the encoding.
    fn encode(&self, to: &mut Writer<'_>);
    /// Reads one.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes are not one.
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// Decodes a whole body: nothing may be left over.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes are not exactly one.
    fn decode_all(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let value = Self::decode(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }

    /// The encoding as a fresh vector; for tests and rare messages.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut Writer::new(&mut out));
        out
    }
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl Wire<'_> for $int {
            #[inline]
            fn encode(&self, to: &mut Writer<'_>) {
                to.put(&self.to_le_bytes());
            }
            #[inline]
            fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(Self::from_le_bytes(from.array()?))
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, i64);

macro_rules! newtypes {
    ($($name:ident($inner:ty)),*) => {$(
        impl<'a> Wire<'a> for $name {
            #[inline]
            fn encode(&self, to: &mut Writer<'_>) {
                self.0.encode(to);
            }
            #[inline]
            fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
                <$inner>::decode(from).map(Self)
            }
        }
    )*};
}
newtypes!(
    InodeNo(u64),
    Transno(u64),
    SessionId(u64),
    Xid(u64),
    LaneId(u16),
    HandleId(u64),
    ShardId(u16),
    MapEpoch(u64),
    ServerId(u16),
    Term(u32),
    LeaseNo(u64),
    RecallNo(u64),
    ClientUuid([u8; 16]),
    FsUuid([u8; 16])
);

impl<const N: usize> Wire<'_> for [u8; N] {
    fn encode(&self, to: &mut Writer<'_>) {
        to.put(self);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        from.array()
    }
}

impl Wire<'_> for bool {
    #[inline]
    fn encode(&self, to: &mut Writer<'_>) {
        u8::from(*self).encode(to);
    }
    #[inline]
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::ProtocolError(ProtocolError::Malformed)),
        }
    }
}

impl Wire<'_> for Status {
    fn encode(&self, to: &mut Writer<'_>) {
        self.number().encode(to);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::from_number(u16::decode(from)?)
            .ok_or(DecodeError::ProtocolError(ProtocolError::Malformed))
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    fn encode(&self, to: &mut Writer<'_>) {
        self.is_some().encode(to);
        if let Some(value) = self {
            value.encode(to);
        }
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        if bool::decode(from)? { T::decode(from).map(Some) } else { Ok(None) }
    }
}

/// A byte string preceded by a 32-bit length; the frame's limit bounds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Wire<'a> for Bytes<'a> {
    fn encode(&self, to: &mut Writer<'_>) {
        let bytes_count = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        bytes_count.encode(to);
        to.put(self.0);
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let bytes_count = u32::decode(from)?;
        let bytes_count = usize::try_from(bytes_count)
            .map_err(|_| DecodeError::ProtocolError(ProtocolError::Malformed))?;
        from.take(bytes_count).map(Self)
    }
}

/// A list that stays encoded: `count` items of one type, checked when decoded, read by iterating.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct List<'a, T> {
    count: u32,
    bytes: &'a [u8],
    item: core::marker::PhantomData<T>,
}

impl<'a, T: Wire<'a>> List<'a, T> {
    /// A list of `count` items whose encodings stand one after the other in `bytes`.
    #[must_use]
    pub const fn new(count: u32, bytes: &'a [u8]) -> Self {
        Self { count, bytes, item: core::marker::PhantomData }
    }

    /// Number of items.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The items in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let mut reader = Reader::new(self.bytes);
        // Checked when the list was decoded, so no item is ever left out here.
        (0..self.count).map_while(move |_| T::decode(&mut reader).ok())
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for List<'a, T> {
    fn encode(&self, to: &mut Writer<'_>) {
        self.count.encode(to);
        to.put(self.bytes);
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = u32::decode(from)?;
        let start = from.rest;
        for _ in 0..count {
            T::decode(from)?;
        }
        let bytes = &start[..start.len() - from.rest.len()];
        Ok(Self::new(count, bytes))
    }
}
