//! Bytes in JSON: in a name that is not UTF-8, U+FFFD replaces invalid bytes, and a second key has all bytes
//! in hexadecimal.

/// Bytes as text, and in hexadecimal if that is not all they are.
#[must_use]
pub fn text_and_hex(bytes: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (String::from_utf8_lossy(bytes).into_owned(), Some(hex::encode(bytes))),
    }
}

/// The bytes of what [`text_and_hex`] made; `None` if the hexadecimal is none.
pub(crate) fn bytes_of(text: &str, digits: Option<&str>) -> Option<Vec<u8>> {
    match digits {
        Some(digits) => hex::decode(digits).ok(),
        None => Some(text.as_bytes().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn all_bytes_come_back() {
        for bytes in [b"plain".as_slice(), "\u{e4}".as_bytes(), b"a\xff\x00b", b""] {
            let (text, digits) = text_and_hex(bytes);
            assert_eq!(bytes_of(&text, digits.as_deref()).unwrap(), bytes);
        }
        assert_eq!(bytes_of("", Some("0g")), None);
        assert_eq!(bytes_of("", Some("abc")), None);
    }
}
