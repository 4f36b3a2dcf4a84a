//! Enums of messages with one encoding: a byte for the variant, then its fields in order.

/// Declares such an enum: for each variant its byte, and its fields.
macro_rules! tagged {
    ($(#[$doc:meta])* $name:ident $(<$life:lifetime>)? {
        $($(#[$variant_doc:meta])* $tag:literal $variant:ident {
            $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)?
        })*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum $name $(<$life>)? {
            $($(#[$variant_doc])* $variant { $($(#[$field_doc])* $field: $type),* },)*
        }

        tagged!(@codec ($($life)?) $name $(<$life>)? {
            $($tag $variant { $($field),* })*
        });
    };
    (@codec () $name:ident { $($tag:literal $variant:ident { $($field:ident),* })* }) => {
        impl wire::Wire<'_> for $name {
            tagged!(@functions '_, { $($tag $variant { $($field),* })* });
        }
    };
    (@codec ($life:lifetime) $name:ident <$_:lifetime> {
        $($tag:literal $variant:ident { $($field:ident),* })*
    }) => {
        impl<$life> wire::Wire<$life> for $name<$life> {
            tagged!(@functions $life, { $($tag $variant { $($field),* })* });
        }
    };
    (@functions $life:lifetime, { $($tag:literal $variant:ident { $($field:ident),* })* }) => {
        fn encode(&self, to: &mut wire::Writer<'_>) {
            match self {
                $(Self::$variant { $($field),* } => {
                    to.put(&[$tag]);
                    $(to.write($field);)*
                })*
            }
        }
        fn decode(from: &mut wire::Reader<$life>) -> Result<Self, wire::DecodeError> {
            match from.read::<u8>()? {
                $($tag => Ok(Self::$variant { $($field: from.read()?),* }),)*
                _ => Err(wire::DecodeError::ProtocolError(wire::ProtocolError::Malformed)),
            }
        }
    };
}

pub(crate) use tagged;
