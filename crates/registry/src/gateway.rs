//! The JSON of etcd's gateway: bytes are base64, numbers of 64 bits are text, and zeros are left out.

use crate::RegistryError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

pub(crate) fn bytes(bytes: &[u8]) -> Value {
    Value::String(STANDARD.encode(bytes))
}

pub(crate) fn text_of(value: &Value) -> Result<String, RegistryError> {
    let malformed = || RegistryError::Malformed(format!("{value} is no text"));
    let encoded = if value.is_null() { "" } else { value.as_str().ok_or_else(malformed)? };
    let bytes = STANDARD.decode(encoded).map_err(|_| malformed())?;
    String::from_utf8(bytes).map_err(|_| malformed())
}

/// A number; absent ones are 0.
pub(crate) fn number(value: &Value) -> Result<i64, RegistryError> {
    let absent = value.is_null().then_some(0);
    let written = || value.as_str().and_then(|text| text.parse().ok());
    let parsed = absent.or_else(written).or_else(|| value.as_i64());
    parsed.ok_or_else(|| RegistryError::Malformed(format!("{value} is no number")))
}

/// The first key behind all with this prefix.
pub(crate) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_key() {
        assert_eq!(end_of("/a/"), b"/a0");
        assert_eq!(end_of("b\u{7f}"), b"b\x80");
    }

    #[test]
    fn what_is_left_out_is_zero() {
        let reply: Value = serde_json::from_str(r#"{"a":"17","b":3,"c":"x"}"#).unwrap();
        assert_eq!(number(&reply["a"]).unwrap(), 17);
        assert_eq!(number(&reply["b"]).unwrap(), 3);
        assert_eq!(number(&reply["none"]).unwrap(), 0);
        assert_eq!(text_of(&reply["none"]).unwrap(), "");
        assert!(number(&reply["c"]).is_err());
        assert!(text_of(&reply["b"]).is_err());
    }
}
