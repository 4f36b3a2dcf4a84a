//! Modes as of `chmod`: octal, or symbolic changes.

/// What to make of a file's permission bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mode(Vec<Change>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Change {
    op: Op,
    /// Whose bits change; 0: everybody's, as far as the umask lets.
    affected: u32,
    /// The bits that are named.
    bits: u32,
    /// Bits of set-id that a directory may get or lose: those that were named.
    mentioned: u32,
    /// `X`: x for all classes, if it is a directory or any class has it.
    search: bool,
    /// `u`, `g` or `o`: the bits of this class.
    copy_shift: Option<u32>,
}

const ALL: u32 = 0o7777;
const SET_ID: u32 = 0o6000;

impl Mode {
    /// Reads one.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is no mode: octal as 640, or [ugoa][+-=][rwxXst] as u+rw,go-w");
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            let octal = text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
            let bits = u32::from_str_radix(text, 8).ok().filter(|bits| octal && *bits <= ALL);
            let bits = bits.ok_or_else(wrong)?;
            // Set-id bits of directories stay, unless they are named or all digits are written.
            let mentioned = if text.len() > 4 { ALL } else { bits | 0o1777 };
            let change = Change { affected: ALL, bits, mentioned, ..Change::new(Op::Set) };
            return Ok(Self(vec![change]));
        }
        let mut changes = Vec::new();
        for clause in text.split(',') {
            read_clause(clause.as_bytes(), &mut changes).ok_or_else(wrong)?;
        }
        Ok(Self(changes))
    }

    /// Applies the changes to a mode.
    pub(crate) fn apply(&self, mode: u32, directory: bool, umask: u32) -> u32 {
        self.0.iter().fold(mode, |mode, change| change.apply(mode, directory, umask))
    }
}

/// Reads `[ugoa]*([+-=][rwxXst]*|[ugo])+`.
fn read_clause(clause: &[u8], changes: &mut Vec<Change>) -> Option<()> {
    let who_count = clause.iter().position(|byte| matches!(byte, b'+' | b'-' | b'='))?;
    let (who, mut rest) = clause.split_at(who_count);
    let mut affected = 0;
    for class in who {
        affected |= match class {
            b'u' => 0o4700,
            b'g' => 0o2070,
            b'o' => 0o1007,
            b'a' => ALL,
            _ => return None,
        };
    }
    while let [op, behind @ ..] = rest {
        let op = match op {
            b'+' => Op::Add,
            b'-' => Op::Remove,
            b'=' => Op::Set,
            _ => return None,
        };
        let mut change = Change { affected, ..Change::new(op) };
        rest = match behind {
            [class @ (b'u' | b'g' | b'o'), behind @ ..] => {
                change.copy_shift = Some(match class {
                    b'u' => 6,
                    b'g' => 3,
                    _ => 0,
                });
                behind
            }
            _ => change.read_bits(behind),
        };
        change.mentioned = if affected == 0 { change.bits } else { affected & change.bits };
        changes.push(change);
    }
    Some(())
}

impl Change {
    const fn new(op: Op) -> Self {
        Self { op, affected: 0, bits: 0, mentioned: 0, search: false, copy_shift: None }
    }

    /// Reads permission symbols; returns the rest.
    fn read_bits<'t>(&mut self, text: &'t [u8]) -> &'t [u8] {
        let mut rest = text;
        while let [symbol, behind @ ..] = rest {
            match symbol {
                b'r' => self.bits |= 0o444,
                b'w' => self.bits |= 0o222,
                b'x' => self.bits |= 0o111,
                b'X' => self.search = true,
                b's' => self.bits |= SET_ID,
                b't' => self.bits |= 0o1000,
                _ => break,
            }
            rest = behind;
        }
        rest
    }

    fn apply(&self, mode: u32, directory: bool, umask: u32) -> u32 {
        let retained = if directory { SET_ID & !self.mentioned } else { 0 };
        let mut bits = self.bits;
        if let Some(shift) = self.copy_shift {
            bits |= (mode >> shift & 0o7) * 0o111;
        }
        if self.search && (directory || mode & 0o111 != 0) {
            bits |= 0o111;
        }
        bits &= if self.affected == 0 { !umask } else { self.affected };
        bits &= !retained;
        match self.op {
            Op::Add => mode | bits,
            Op::Remove => mode & !bits,
            Op::Set => {
                let others = if self.affected == 0 { 0 } else { ALL & !self.affected };
                mode & (others | retained) | bits
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn file(text: &str, mode: u32) -> u32 {
        Mode::parse(text).unwrap().apply(mode, false, 0o022)
    }

    fn directory(text: &str, mode: u32) -> u32 {
        Mode::parse(text).unwrap().apply(mode, true, 0o022)
    }

    #[test]
    fn octal_sets_all_but_a_directorys_set_id_bits() {
        assert_eq!((file("640", 0o6777), file("4711", 0)), (0o640, 0o4711));
        assert_eq!((directory("755", 0o2700), directory("00755", 0o2700)), (0o2755, 0o755));
    }

    #[test]
    fn symbols_change_what_is_there() {
        assert_eq!(file("u+rw,go-w", 0o466), 0o644);
        assert_eq!(file("a=r,u+x", 0o777), 0o544);
        assert_eq!(file("g=u", 0o750), 0o770);
        assert_eq!(file("o=g-w", 0o660), 0o664);
        assert_eq!(file("+w", 0o444), 0o644);
        assert_eq!(file("u+s,g+s,+t", 0o755), 0o7755);
        assert_eq!(
            (file("a+X", 0o644), file("a+X", 0o744), directory("a+X", 0o644)),
            (0o644, 0o755, 0o755)
        );
        assert_eq!((directory("g=rx", 0o2770), directory("g-s", 0o2770)), (0o2750, 0o770));
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for wrong in ["", "9", "77777", "u", "u+q", "x+r", "u+r,", ",u+r", "u+rg", "0x7"] {
            assert!(Mode::parse(wrong).is_err(), "{wrong}");
        }
    }
}
