//! An expression of find(1), and the predicate for the server: it holds for every name that is printed or
//! pruned.
//!
//! Invariant: [`implied`] and [`condition_of_action`] are never narrower than the expression. They may be
//! wider: then the server sends more than is needed, and the client drops it.

use library::{FileKind, Kinds, Predicate};

/// A part of an expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Part<'a> {
    Predicate(Predicate<'a>),
    Empty,
    Prune,
    Print,
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
}

impl Part<'_> {
    /// What must all hold.
    pub(super) fn into_all(self) -> Vec<Self> {
        if let Self::All(parts) = self { parts } else { vec![self] }
    }

    /// Whether it needs attributes.
    pub(super) fn asks_attrs(&self) -> bool {
        match self {
            Self::Predicate(predicate) => {
                let of_names =
                    Predicate { name: predicate.name, kinds: predicate.kinds, ..Predicate::ANY };
                *predicate != of_names
            }
            Self::Empty => true,
            Self::Prune | Self::Print => false,
            Self::Not(part) => part.asks_attrs(),
            Self::All(parts) | Self::Any(parts) => parts.iter().any(Self::asks_attrs),
        }
    }

    /// Whether it does more than to hold or not.
    fn acts(&self) -> bool {
        match self {
            Self::Prune | Self::Print => true,
            Self::Predicate(_) | Self::Empty => false,
            Self::Not(part) => part.acts(),
            Self::All(parts) | Self::Any(parts) => parts.iter().any(Self::acts),
        }
    }
}

/// Takes out of what must all hold what the server says for sure, and needs not be asked again.
pub(super) fn without_known(all: Vec<Part<'_>>) -> (Predicate<'_>, Part<'_>) {
    let (mut known, mut left) = (Predicate::ANY, Vec::new());
    let mut acts = false;
    for part in all {
        if let Part::Predicate(predicate) = &part
            && !acts
            && is_whole(&known, predicate)
        {
            known = known.and(predicate);
        } else {
            acts |= part.acts();
            left.push(part);
        }
    }
    (known, Part::All(left))
}

/// Whether [`Together::and`] loses nothing.
fn is_whole(one: &Predicate<'_>, other: &Predicate<'_>) -> bool {
    one.name.is_none() || other.name.is_none()
}

/// The condition for any action of this part; `None`: it has no action.
pub(super) fn condition_of_action<'a>(part: &Part<'a>) -> Option<Predicate<'a>> {
    match part {
        Part::Prune | Part::Print => Some(Predicate::ANY),
        Part::Predicate(_) | Part::Empty => None,
        Part::Not(part) => condition_of_action(part),
        Part::Any(parts) => {
            parts.iter().filter_map(condition_of_action).reduce(|one, other| one.or(&other))
        }
        Part::All(parts) => {
            let (mut found, mut before) = (None, Predicate::ANY);
            for part in parts {
                if let Some(here) = condition_of_action(part).map(|here| before.and(&here)) {
                    found = Some(found.map_or(here, |found: Predicate<'a>| found.or(&here)));
                }
                before = before.and(&implied(part));
            }
            found
        }
    }
}

/// What must hold where a part holds.
fn implied<'a>(part: &Part<'a>) -> Predicate<'a> {
    match part {
        Part::Predicate(predicate) => *predicate,
        Part::Empty => {
            let kinds = Kinds::default().with(FileKind::File).with(FileKind::Directory);
            Predicate { kinds: Some(kinds), ..Predicate::ANY }
        }
        Part::Prune | Part::Print | Part::Not(_) => Predicate::ANY,
        Part::All(parts) => parts.iter().fold(Predicate::ANY, |all, part| all.and(&implied(part))),
        Part::Any(parts) => {
            let each = parts.iter().map(implied);
            each.reduce(|one, other| one.or(&other)).unwrap_or(Predicate::ANY)
        }
    }
}

/// Predicates put together.
pub(super) trait Together<'a> {
    /// What both imply; of two names one.
    fn and(&self, other: &Self) -> Self;
    /// What each of them implies.
    fn or(&self, other: &Self) -> Self;
}

impl<'a> Together<'a> for Predicate<'a> {
    fn and(&self, other: &Self) -> Self {
        Self {
            name: self.name.or(other.name),
            kinds: both(self.kinds, other.kinds, Kinds::and).or(self.kinds).or(other.kinds),
            size_bytes_min: self.size_bytes_min.max(other.size_bytes_min),
            size_bytes_max: both(self.size_bytes_max, other.size_bytes_max, Ord::min)
                .or(self.size_bytes_max)
                .or(other.size_bytes_max),
            mtime_after: self.mtime_after.max(other.mtime_after),
            mtime_before: both(self.mtime_before, other.mtime_before, Ord::min)
                .or(self.mtime_before)
                .or(other.mtime_before),
        }
    }

    fn or(&self, other: &Self) -> Self {
        Self {
            name: self.name.filter(|name| other.name == Some(*name)),
            kinds: both(self.kinds, other.kinds, Kinds::or),
            size_bytes_min: both(self.size_bytes_min, other.size_bytes_min, Ord::min),
            size_bytes_max: both(self.size_bytes_max, other.size_bytes_max, Ord::max),
            mtime_after: both(self.mtime_after, other.mtime_after, Ord::min),
            mtime_before: both(self.mtime_before, other.mtime_before, Ord::max),
        }
    }
}

/// Of two bounds, if there are two.
fn both<T>(one: Option<T>, other: Option<T>, of: impl FnOnce(T, T) -> T) -> Option<T> {
    one.zip(other).map(|(one, other)| of(one, other))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use library::Pattern;

    fn name(text: &str) -> Part<'_> {
        let name = Some(Pattern::new(text.as_bytes()).unwrap());
        Part::Predicate(Predicate { name, ..Predicate::ANY })
    }

    fn at_least(bytes: u64) -> Part<'static> {
        Part::Predicate(Predicate { size_bytes_min: Some(bytes), ..Predicate::ANY })
    }

    fn of(kind: FileKind) -> Part<'static> {
        let kinds = Some(Kinds::default().with(kind));
        Part::Predicate(Predicate { kinds, ..Predicate::ANY })
    }

    #[test]
    fn the_client_does_not_evaluate_what_the_server_decides() {
        let all = vec![name("a"), at_least(5), at_least(7), name("b"), Part::Print, at_least(9)];
        let (known, left) = without_known(all);
        assert_eq!(known.size_bytes_min, Some(7));
        assert_eq!(left, Part::All(vec![name("b"), Part::Print, at_least(9)]));
        assert!(left.asks_attrs() && !Part::All(vec![name("b"), Part::Print]).asks_attrs());
    }

    #[test]
    fn the_server_gets_the_condition_of_all_actions() {
        let file_or_directory = Part::Any(vec![of(FileKind::File), of(FileKind::Directory)]);
        let kinds = Some(Kinds::default().with(FileKind::File).with(FileKind::Directory));
        let done = Part::All(vec![file_or_directory, Part::Print]);
        assert_eq!(condition_of_action(&done), Some(Predicate { kinds, ..Predicate::ANY }));
        let sizes = Part::Any(vec![at_least(5), Part::All(vec![at_least(9), name("a")])]);
        let done = Part::All(vec![sizes, Part::Print]);
        assert_eq!(condition_of_action(&done).unwrap(), predicate(&at_least(5)));
        // `-name a -prune -o -size +8c -print`: whatever is named a is pruned.
        let pruned = Part::All(vec![name("a"), Part::Prune]);
        let printed = Part::All(vec![at_least(9), Part::Print]);
        assert_eq!(condition_of_action(&Part::Any(vec![pruned, printed])), Some(Predicate::ANY));
        let not = Part::All(vec![Part::Not(Box::new(at_least(5))), Part::Print]);
        assert_eq!(condition_of_action(&not), Some(Predicate::ANY));
        assert_eq!(condition_of_action(&at_least(5)), None);
        // What stands behind something that is done does not bound it.
        let behind = Part::All(vec![at_least(1), Part::Print, at_least(9), Part::Print]);
        assert_eq!(condition_of_action(&behind).unwrap(), predicate(&at_least(1)));
    }

    fn predicate<'a>(part: &Part<'a>) -> Predicate<'a> {
        let Part::Predicate(predicate) = part else { panic!("{part:?}") };
        *predicate
    }
}
