//! Changes of the exports: tags 25 and 26.

use wire::{Bytes, DecodeError, Export, Reader, Writer};

/// A change of the exports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExportChange<'a> {
    /// Sets the export of its name.
    Put(Export<'a>),
    /// Removes the export of this name.
    Removed {
        /// Its name.
        name: Bytes<'a>,
    },
}

impl<'a> ExportChange<'a> {
    pub(super) const fn tag(&self) -> u8 {
        match self {
            Self::Put(_) => 25,
            Self::Removed { .. } => 26,
        }
    }

    pub(super) fn encode_fields(&self, to: &mut Writer<'_>) {
        match self {
            Self::Put(export) => to.write(export),
            Self::Removed { name } => to.write(name),
        }
    }

    /// `None` for another tag.
    pub(super) fn decode_fields(
        tag: u8,
        from: &mut Reader<'a>,
    ) -> Result<Option<Self>, DecodeError> {
        Ok(Some(match tag {
            25 => Self::Put(from.read()?),
            26 => Self::Removed { name: from.read()? },
            _ => return Ok(None),
        }))
    }
}
