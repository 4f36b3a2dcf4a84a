//! Bytes in JSON: a name that is not UTF-8 stands there with U+FFFD for what is none, and a second key has all
//! its bytes in hexadecimal.

/// Bytes as text, and in hexadecimal if that is not all they are.
#[must_use]
pub fn text_and_hex(bytes: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (String::from_utf8_lossy(bytes).into_owned(), Some(hex(bytes))),
    }
}

/// The bytes of what [`text_and_hex`] made; `None` if the hexadecimal is none.
pub(crate) fn bytes_of(text: &str, hex: Option<&str>) -> Option<Vec<u8>> {
    match hex {
        Some(hex) => from_hex(hex),
        None => Some(text.as_bytes().to_vec()),
    }
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hexadecimal as bytes.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).ok();
    (0..text.len()).step_by(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn all_bytes_come_back() {
        for bytes in [b"plain".as_slice(), "\u{e4}".as_bytes(), b"a\xff\x00b", b""] {
            let (text, hex) = text_and_hex(bytes);
            assert_eq!(bytes_of(&text, hex.as_deref()).unwrap(), bytes);
        }
        assert_eq!(from_hex("0g"), None);
        assert_eq!(from_hex("abc"), None);
    }
}
