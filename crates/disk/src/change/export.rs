//! What a record says of what can be mounted: tags 25 and 26.

use wire::{Bytes, Export, Flaw, Reader, Writer};

/// An effect on what can be mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExportChange<'a> {
    /// The export of this name is this.
    Put(Export<'a>),
    /// There is no export of this name.
    Gone {
        /// Its name.
        name: Bytes<'a>,
    },
}

impl<'a> ExportChange<'a> {
    pub(super) const fn tag(&self) -> u8 {
        match self {
            Self::Put(_) => 25,
            Self::Gone { .. } => 26,
        }
    }

    pub(super) fn encode_fields(&self, to: &mut Writer<'_>) {
        match self {
            Self::Put(export) => to.write(export),
            Self::Gone { name } => to.write(name),
        }
    }

    /// `None` for a tag that is none of these.
    pub(super) fn decode_fields(tag: u8, from: &mut Reader<'a>) -> Result<Option<Self>, Flaw> {
        Ok(Some(match tag {
            25 => Self::Put(from.read()?),
            26 => Self::Gone { name: from.read()? },
            _ => return Ok(None),
        }))
    }
}
