//! Patterns of names, as `fnmatch` has them: `*`, `?`, `[a-z]`, `[!a-z]`, `[[:digit:]]` and `\`.
//!
//! A `?` or `[...]` matches one character where the name is UTF-8, else one byte. A `[` without its
//! `]` is literal. Invariant: a match takes at most as many steps as the product of the lengths of
//! name and pattern, and reports its steps so that a lane can bound their sum.

use crate::codec::{Bytes, DecodeError, Reader, Wire, Writer};
use crate::{ProtocolError, Status};

/// Longest pattern.
pub const PATTERN_BYTES_MAX: usize = 255;

/// A pattern for names: 1 to 255 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern<'a>(&'a [u8]);

/// One part of a pattern.
enum Part<'a> {
    /// `*`.
    Any,
    /// `?`.
    One,
    /// `[...]`, without the brackets.
    Set(&'a [u8]),
    /// This character.
    Char(u32),
}

impl<'a> Pattern<'a> {
    /// Checks the length; every text is a valid pattern.
    ///
    /// # Errors
    /// [`Status::NameTooLong`] beyond 255 bytes, [`Status::Invalid`] when empty.
    pub const fn new(bytes: &'a [u8]) -> Result<Self, Status> {
        match bytes.len() {
            0 => Err(Status::Invalid),
            1..=PATTERN_BYTES_MAX => Ok(Self(bytes)),
            _ => Err(Status::NameTooLong),
        }
    }

    /// The text.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Whether `name` matches as a whole; each step is counted into `step_count`.
    #[must_use]
    pub fn fits(self, name: &[u8], step_count: &mut usize) -> bool {
        let (mut name, mut pattern) = (name, self.0);
        // The backtracking point of the last `*`: the pattern behind it, and the rest of the name
        // not tried yet.
        let mut retry: Option<(&[u8], &[u8])> = None;
        loop {
            *step_count += 1;
            if let Some((part, behind)) = next_part(pattern) {
                if let Part::Any = part {
                    retry = Some((behind, name));
                    pattern = behind;
                    continue;
                }
                if let Some((char, rest)) = next_char(name)
                    && part.has(char, step_count)
                {
                    (name, pattern) = (rest, behind);
                    continue;
                }
            } else if name.is_empty() {
                return true;
            }
            // No match: the last `*` takes one more character.
            let Some((behind, taken)) = retry else { return false };
            let Some((_, rest)) = next_char(taken) else { return false };
            retry = Some((behind, rest));
            (name, pattern) = (rest, behind);
        }
    }
}

impl Part<'_> {
    fn has(&self, char: u32, step_count: &mut usize) -> bool {
        match self {
            Self::Any => false,
            Self::One => true,
            Self::Char(own) => *own == char,
            Self::Set(set) => {
                *step_count += set.len();
                set_has(set, char)
            }
        }
    }
}

fn next_part(pattern: &[u8]) -> Option<(Part<'_>, &[u8])> {
    let (first, rest) = pattern.split_first()?;
    Some(match first {
        b'*' => (Part::Any, rest),
        b'?' => (Part::One, rest),
        b'[' => match set_end(rest) {
            Some(end) => (Part::Set(&rest[..end]), &rest[end + 1..]),
            None => (Part::Char(u32::from(b'[')), rest),
        },
        // A backslash at the end is literal.
        b'\\' if !rest.is_empty() => {
            let (char, rest) = next_char(rest)?;
            (Part::Char(char), rest)
        }
        _ => {
            let (char, rest) = next_char(pattern)?;
            (Part::Char(char), rest)
        }
    })
}

/// The index of the `]` that ends a set; it is never the first character.
fn set_end(set: &[u8]) -> Option<usize> {
    let mut at = usize::from(is_negated(set));
    let mut first = true;
    loop {
        match set.get(at)? {
            b']' if !first => return Some(at),
            b'\\' => at += 2,
            b'[' if set.get(at + 1) == Some(&b':') => at = class_end(set, at).unwrap_or(at + 1),
            _ => at += 1,
        }
        first = false;
    }
}

fn is_negated(set: &[u8]) -> bool {
    matches!(set.first(), Some(b'!' | b'^'))
}

/// The index behind the `:]` of a class whose `[:` is at `at`.
fn class_end(set: &[u8], at: usize) -> Option<usize> {
    let name = &set[at + 2..];
    let length = name.iter().position(|byte| !byte.is_ascii_lowercase())?;
    name[length..].starts_with(b":]").then_some(at + 2 + length + 2)
}

fn set_has(set: &[u8], char: u32) -> bool {
    let negated = is_negated(set);
    let mut rest = &set[usize::from(negated)..];
    while !rest.is_empty() {
        if rest.starts_with(b"[:")
            && let Some(end) = class_end(rest, 0)
        {
            if class_has(&rest[2..end - 2], char) {
                return !negated;
            }
            rest = &rest[end..];
            continue;
        }
        let Some((low, behind)) = set_char(rest) else { break };
        rest = behind;
        let mut high = low;
        // A `-` at the end is literal.
        if let Some(behind) = rest.strip_prefix(b"-")
            && let Some((last, behind)) = set_char(behind)
        {
            (high, rest) = (last, behind);
        }
        if (low..=high).contains(&char) {
            return !negated;
        }
    }
    negated
}

fn set_char(set: &[u8]) -> Option<(u32, &[u8])> {
    match set {
        [b'\\', rest @ ..] if !rest.is_empty() => next_char(rest),
        _ => next_char(set),
    }
}

/// Classes contain ASCII characters only.
fn class_has(class: &[u8], char: u32) -> bool {
    let Ok(byte) = u8::try_from(char) else { return false };
    match class {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => matches!(byte, b' ' | b'\t'),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte.is_ascii_graphic() || byte == b' ',
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => byte.is_ascii_whitespace() || byte == 0x0b,
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => false,
    }
}

/// The first character, or the first byte as a number beyond all characters.
fn next_char(bytes: &[u8]) -> Option<(u32, &[u8])> {
    const NO_CHAR: u32 = 0x11_0000;
    let first = *bytes.first()?;
    if first.is_ascii() {
        return Some((u32::from(first), &bytes[1..]));
    }
    let head = &bytes[..bytes.len().min(4)];
    let valid = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    Some(match valid.chars().next() {
        Some(char) => (u32::from(char), &bytes[char.len_utf8()..]),
        None => (NO_CHAR + u32::from(first), &bytes[1..]),
    })
}

impl<'a> Wire<'a> for Pattern<'a> {
    fn encode(&self, to: &mut Writer<'_>) {
        to.write(&Bytes(self.0));
    }
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let Bytes(bytes) = from.read()?;
        // Clients create patterns with `new`.
        Self::new(bytes).map_err(|_| DecodeError::ProtocolError(ProtocolError::Malformed))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn fits(pattern: &str, name: &[u8]) -> bool {
        let mut step_count = 0;
        let fits = Pattern::new(pattern.as_bytes()).unwrap().fits(name, &mut step_count);
        assert!(step_count <= 2 * (pattern.len() + 2) * (name.len() + 2), "{pattern}");
        fits
    }

    #[test]
    fn a_star_matches_any_number_of_characters() {
        for (pattern, name) in [
            ("*", ""),
            ("*", ".hidden"),
            ("*.c", "a.c"),
            ("*.c", ".c.c"),
            ("a*b*c", "a-b-b-c"),
            ("**", "x"),
            ("a*", "a"),
        ] {
            assert!(fits(pattern, name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [("*.c", "a.h"), ("a*b", "a-b-"), ("a", "ab"), ("ab", "a")] {
            assert!(!fits(pattern, name.as_bytes()), "{pattern} {name}");
        }
    }

    #[test]
    fn a_question_mark_matches_a_character_or_an_invalid_byte() {
        assert!(fits("?", "\u{e4}".as_bytes()) && fits("?x", b"\xe4x") && !fits("?", b"\xc3\x28"));
        assert!(fits("\u{e4}?", "\u{e4}\u{1f980}".as_bytes()) && !fits("?", b""));
    }

    #[test]
    fn sets_have_ranges_classes_and_negation() {
        for (pattern, yes, no) in [
            ("[abc]", "b", "d"),
            ("[a-c]", "b", "d"),
            ("[!a-c]", "d", "b"),
            ("[^a-c]", "d", "b"),
            ("[]x]", "]", "a"),
            ("[!]]", "x", "]"),
            ("[a-]", "-", "b"),
            ("[[:digit:]a]", "7", "b"),
            ("[\\]]", "]", "\\"),
            ("[[:nonsense:]]", "[[:nonsense:", "7"),
            ("[\u{e0}-\u{ef}]", "\u{e4}", "a"),
        ] {
            if pattern != "[[:nonsense:]]" {
                assert!(fits(pattern, yes.as_bytes()), "{pattern} {yes}");
            }
            assert!(!fits(pattern, no.as_bytes()), "{pattern} {no}");
        }
    }

    #[test]
    fn an_unterminated_set_is_literal() {
        assert!(fits("[a", b"[a") && fits("a]", b"a]") && fits("[", b"[") && fits("[]", b"[]"));
        assert!(fits("\\*", b"*") && !fits("\\*", b"x") && fits("a\\", b"a\\"));
        assert!(fits("{a,b}", b"{a,b}"), "braces are the shell's");
    }

    #[test]
    fn the_steps_of_the_worst_pattern_are_bounded() {
        for part in ["*a", "a", "[a-b]"] {
            let pattern = alloc::format!("*{}b", part.repeat(126 / part.len()));
            let name = [b'a'; 255];
            let mut step_count = 0;
            assert!(!Pattern::new(pattern.as_bytes()).unwrap().fits(&name, &mut step_count));
            assert!(step_count < 255 * 255, "{step_count}");
        }
    }

    #[test]
    fn lengths_are_checked() {
        assert_eq!(Pattern::new(b""), Err(Status::Invalid));
        assert_eq!(Pattern::new(&[b'x'; 256]), Err(Status::NameTooLong));
        let mut body = Pattern::new(b"x").unwrap().to_bytes();
        assert_eq!(Pattern::decode_all(&body), Pattern::new(b"x").map_err(DecodeError::Status));
        body = Bytes(&[b'x'; 256]).to_bytes();
        assert_eq!(
            Pattern::decode_all(&body),
            Err(DecodeError::ProtocolError(ProtocolError::Malformed))
        );
    }
}
