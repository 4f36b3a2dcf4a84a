//! The words of find(1) on the command line of `lanefs find`: `-name '*.c' ! -size +1M`.
//!
//! They are removed from the command line before the rest is parsed. Invariant: they have the meaning of GNU
//! find.
//!
//! ```text
//! any = all { -o all }      all = one { [-a] one }      one = ! one | ( any ) | test | -prune | -print | -print0
//! ```

use super::{Cli, FindKind};
use crate::files::bounds::{Age, Size};
use clap::{CommandFactory as _, ValueEnum as _};
use std::ffi::{OsStr, OsString};
use std::iter::Peekable;

/// The supported words, for the error message about others.
const KNOWN: &str = "-name PATTERN, -type f,d,l,p,s,c,b, -size [+-]N[cwbkMG], -mtime [+-]N, -mmin [+-]N, \
    -newer FILE, -newermt TIME, -empty, ! or -not, -a, -o, parentheses, -prune, -maxdepth N, -mindepth N, \
    -print and -print0";

/// Parentheses and `!` in each other.
const DEPTH_MAX: usize = 100;

/// An expression over a file, evaluated from left to right with short circuits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Expression {
    Test(What),
    /// Do not go down into this directory; holds.
    Prune,
    /// Print the path; holds.
    Print,
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
}

/// A test of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Name(OsString),
    Kinds(Vec<FindKind>),
    Size(Size),
    Age(Age),
    /// Changed after this file.
    Newer(OsString),
    /// Changed after this time.
    NewerThan(OsString),
    Empty,
}

impl Expression {
    /// Whether the expression has an explicit print action.
    pub(crate) fn prints(&self) -> bool {
        match self {
            Self::Print => true,
            Self::Test(_) | Self::Prune => false,
            Self::Not(part) => part.prints(),
            Self::All(parts) | Self::Any(parts) => parts.iter().any(Self::prints),
        }
    }

    /// What must all hold.
    fn into_all(self) -> Vec<Self> {
        if let Self::All(parts) = self { parts } else { vec![self] }
    }
}

/// Splits find(1)'s words from the arguments of `find`; its options become ours. Without words, all files match.
pub(crate) fn take(words: Vec<OsString>) -> Result<(Vec<OsString>, Expression), String> {
    let mut reader = Reader {
        words: words.into_iter(),
        left: Vec::new(),
        tokens: Vec::new(),
        printed: Vec::new(),
    };
    let cli = Cli::command();
    let with_values: Vec<String> = cli
        .find_subcommand("find")
        .into_iter()
        .flat_map(clap::Command::get_arguments)
        .filter(|option| option.get_action().takes_values())
        .filter_map(|option| option.get_long().map(|name| format!("--{name}")))
        .collect();
    while let Some(word) = reader.words.next() {
        if is_word_of_find(&word) {
            reader.word(&word)?;
            continue;
        }
        if reader.tokens.last() == Some(&Token::Not) {
            return Err("! stands before no test".to_owned());
        }
        if word == "--" {
            reader.left.push(word);
            reader.left.extend(reader.words.by_ref());
        } else {
            let with_value =
                word.to_str().is_some_and(|word| with_values.iter().any(|one| one == word));
            reader.left.push(word);
            if with_value {
                reader.left.extend(reader.words.next());
            }
        }
    }
    let ends = |name: &str| reader.printed.contains(&name);
    if ends("-print") && ends("-print0") {
        return Err("-print and -print0 are in one line: paths end in one way".to_owned());
    }
    if reader.tokens.is_empty() {
        return Ok((reader.left, Expression::All(Vec::new())));
    }
    let mut tokens = reader.tokens.into_iter().peekable();
    let expression = any(&mut tokens, 0)?;
    if tokens.next().is_some() {
        return Err(") stands behind no (".to_owned());
    }
    Ok((reader.left, expression))
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Open,
    Close,
    Not,
    And,
    Or,
    /// An option, which is no test and holds.
    Option(&'static str),
    Part(Expression),
}

type Tokens = Peekable<std::vec::IntoIter<Token>>;

fn any(tokens: &mut Tokens, depth: usize) -> Result<Expression, String> {
    let mut parts = vec![all(tokens, depth)?];
    while tokens.next_if_eq(&Token::Or).is_some() {
        parts.push(all(tokens, depth)?);
    }
    Ok(one_or(parts, Expression::Any))
}

fn all(tokens: &mut Tokens, depth: usize) -> Result<Expression, String> {
    let mut parts = Vec::new();
    loop {
        parts.extend(one(tokens, depth)?.into_all());
        let is_more = tokens.next_if_eq(&Token::And).is_some()
            || tokens.peek().is_some_and(|next| !matches!(next, Token::Or | Token::Close));
        if !is_more {
            return Ok(one_or(parts, Expression::All));
        }
    }
}

fn one(tokens: &mut Tokens, depth: usize) -> Result<Expression, String> {
    if depth > DEPTH_MAX {
        return Err(format!("more than {DEPTH_MAX} parentheses and ! lie in each other"));
    }
    let lacks = |what: &str| Err(format!("{what} stands before no test"));
    match tokens.next() {
        Some(Token::Part(part)) => Ok(part),
        Some(Token::Option(_)) => Ok(Expression::All(Vec::new())),
        Some(Token::Not) => match tokens.peek() {
            Some(Token::Option(name)) => Err(format!("! stands before {name}, which is no test")),
            Some(Token::Part(_) | Token::Open | Token::Not) => {
                Ok(Expression::Not(Box::new(one(tokens, depth + 1)?)))
            }
            Some(Token::Close | Token::And | Token::Or) | None => lacks("!"),
        },
        Some(Token::Open) => {
            if tokens.peek() == Some(&Token::Close) {
                return Err("there is nothing between ( and )".to_owned());
            }
            let inside = any(tokens, depth + 1)?;
            let closed = tokens.next_if_eq(&Token::Close);
            closed.map(|_| inside).ok_or_else(|| "( has no )".to_owned())
        }
        Some(Token::And) => Err("-a stands behind no test".to_owned()),
        Some(Token::Or) => Err("-o stands behind no test".to_owned()),
        Some(Token::Close) => Err(") stands behind no test".to_owned()),
        None => lacks("-a or -o"),
    }
}

/// What is alone stands for itself.
fn one_or(mut parts: Vec<Expression>, of: fn(Vec<Expression>) -> Expression) -> Expression {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            of(parts)
        }
    }
}

/// A dash and more than one character; lanefs's own options have two dashes or one character.
fn is_word_of_find(word: &OsStr) -> bool {
    let bytes = word.as_encoded_bytes();
    let long = bytes.len() > 2 && bytes[0] == b'-' && bytes[1].is_ascii_alphabetic();
    long || ["-a", "-o", "!", "(", ")", ","].iter().any(|one| word == *one)
}

struct Reader {
    words: std::vec::IntoIter<OsString>,
    left: Vec<OsString>,
    tokens: Vec<Token>,
    /// How paths are to be printed.
    printed: Vec<&'static str>,
}

impl Reader {
    fn word(&mut self, word: &OsStr) -> Result<(), String> {
        let name = word.to_str().unwrap_or_default();
        let test = |what| Token::Part(Expression::Test(what));
        let token = match name {
            "-name" => test(What::Name(self.value(name)?)),
            "-type" => test(What::Kinds(kinds(&self.text(name)?)?)),
            "-size" => test(What::Size(Size::of_find(&self.text(name)?)?)),
            "-mtime" => test(What::Age(Age::of_find(&self.text(name)?, Age::DAY)?)),
            "-mmin" => test(What::Age(Age::of_find(&self.text(name)?, Age::MINUTE)?)),
            "-newer" => test(What::Newer(self.value(name)?)),
            "-newermt" => test(What::NewerThan(self.value(name)?)),
            "-empty" => test(What::Empty),
            "!" | "-not" => Token::Not,
            "-a" | "-and" => Token::And,
            "-o" | "-or" => Token::Or,
            "(" => Token::Open,
            ")" => Token::Close,
            "-prune" => Token::Part(Expression::Prune),
            "-print" => {
                self.printed.push("-print");
                Token::Part(Expression::Print)
            }
            "-print0" => {
                self.printed.push("-print0");
                self.left.push("--print0".into());
                Token::Part(Expression::Print)
            }
            "-maxdepth" => self.depth("-maxdepth")?,
            "-mindepth" => self.depth("-mindepth")?,
            _ => {
                let shown = word.display();
                return Err(format!(
                    "there is no {shown} here; of find(1)'s words there are {KNOWN}"
                ));
            }
        };
        self.tokens.push(token);
        Ok(())
    }

    fn depth(&mut self, name: &'static str) -> Result<Token, String> {
        let levels = self.text(name)?;
        self.left.push(format!("-{name}={levels}").into());
        Ok(Token::Option(name))
    }

    fn value(&mut self, name: &str) -> Result<OsString, String> {
        self.words.next().ok_or_else(|| format!("{name} needs a value"))
    }

    fn text(&mut self, name: &str) -> Result<String, String> {
        let value = self.value(name)?;
        value.into_string().map_err(|value| format!("{name}: '{}' is no text", value.display()))
    }
}

fn kinds(text: &str) -> Result<Vec<FindKind>, String> {
    let wrong = |_| {
        format!("-type {text}: one of f, d, l, p, s, c and b, or several with commas between them")
    };
    text.split(',').map(|kind| FindKind::from_str(kind, false).map_err(wrong)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    use Expression::{All, Any, Not, Print, Prune};

    fn taken(line: &str) -> Result<(Vec<OsString>, Expression), String> {
        take(line.split_whitespace().map(OsString::from).collect())
    }

    fn name(text: &str) -> Expression {
        Expression::Test(What::Name(text.into()))
    }

    fn not(part: Expression) -> Expression {
        Not(Box::new(part))
    }

    #[test]
    fn words_of_find_are_taken_and_others_left() {
        let kinds = |kinds: &[FindKind]| Expression::Test(What::Kinds(kinds.to_vec()));
        let empty = || Expression::Test(What::Empty);
        let (left, asked) = taken("lanefs://h/ -name *.c --size +1M ! -type d,l -0").unwrap();
        assert_eq!(left, ["lanefs://h/", "--size", "+1M", "-0"]);
        assert_eq!(asked, All(vec![name("*.c"), not(kinds(&[FindKind::D, FindKind::L]))]));
        let (left, asked) = taken("u -maxdepth 2 -mindepth 1 -print0 -a -not -empty").unwrap();
        assert_eq!(left, ["u", "--maxdepth=2", "--mindepth=1", "--print0"]);
        assert_eq!(asked, All(vec![Print, not(empty())]));
        assert_eq!(taken("u ! ! -name -type").unwrap().1, not(not(name("-type"))));
        let (left, asked) = taken("--name -name u -- -type").unwrap();
        assert_eq!((left.len(), asked), (5, All(Vec::new())), "values are left alone");
    }

    #[test]
    fn all_binds_closer_than_any_and_not_closest() {
        let (a, b, c) = (|| name("a"), || name("b"), || name("c"));
        for (line, expected) in [
            ("-name a -o -name b -name c", Any(vec![a(), All(vec![b(), c()])])),
            ("( -name a -o -name b ) -name c", All(vec![Any(vec![a(), b()]), c()])),
            ("! -name a -o -name b", Any(vec![not(a()), b()])),
            ("! ( -name a -or -name b )", not(Any(vec![a(), b()]))),
            ("( ( -name a ) -and -name b )", All(vec![a(), b()])),
            ("-name a -prune -o -print", Any(vec![All(vec![a(), Prune]), Print])),
            ("-maxdepth 1 -name a", a()),
        ] {
            assert_eq!(taken(line).unwrap().1, expected, "{line}");
        }
    }

    #[test]
    fn an_unknown_word_is_refused_with_the_known_ones() {
        for (line, says) in [
            ("u -perm 644", "there is no -perm here; of find(1)'s words there are -name PATTERN"),
            ("u -name a , -name b", "there is no , here"),
            ("u -delete", "there is no -delete here"),
            ("u -name", "-name needs a value"),
            ("u -type x", "-type x: one of"),
            ("u -size 1X", "is no size of find(1)"),
            ("u -mtime x", "is no number of find(1)"),
            ("u !", "! stands before no test"),
            ("u ! lanefs://h", "! stands before no test"),
            ("u ! -o -empty", "! stands before no test"),
            ("u ! -maxdepth 1", "! stands before -maxdepth"),
            ("u -o -empty", "-o stands behind no test"),
            ("u -empty -o", "-a or -o stands before no test"),
            ("u -empty -a", "-a or -o stands before no test"),
            ("u -empty -a -o -empty", "-o stands behind no test"),
            ("u ( )", "nothing between ( and )"),
            ("u ( -empty", "( has no )"),
            ("u -print -print0", "-print and -print0 are in one line"),
            ("u -empty )", ") stands behind no ("),
        ] {
            let line_said = taken(line).unwrap_err();
            assert!(line_said.contains(says), "{line}: {line_said}");
        }
        let deep = "! ".repeat(300) + "-empty";
        assert!(taken(&deep).unwrap_err().contains("lie in each other"));
    }
}
