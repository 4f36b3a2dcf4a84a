//! The words of find(1) on the command line of `lanefs find`: `-name '*.c' ! -size +1M`.
//!
//! They are taken out of the line, and what is left is read like that of any command. All tests must hold;
//! there is no `-o`. Invariant: they mean here what they mean to GNU find.

use super::{Cli, FindKind};
use crate::files::bounds::{Age, Size};
use clap::{CommandFactory as _, ValueEnum as _};
use std::ffi::{OsStr, OsString};

/// What is understood, for the message about what is not.
const KNOWN: &str = "-name PATTERN, -type f,d,l,p,s,c,b, -size [+-]N[cwbkMG], -mtime [+-]N, -mmin [+-]N, \
    -newer FILE, -newermt TIME, -empty, ! or -not before one of them, -maxdepth N, -mindepth N, -print \
    and -print0";

/// One test, and whether it must not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Test {
    pub(crate) not: bool,
    pub(crate) what: What,
}

/// What is asked of a file.
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

/// Takes the tests out of the words behind `find`; their options become ours.
pub(crate) fn take(words: Vec<OsString>) -> Result<(Vec<OsString>, Vec<Test>), String> {
    let mut reader = Reader { words: words.into_iter(), left: Vec::new(), tests: Vec::new() };
    let cli = Cli::command();
    let with_values: Vec<String> = cli
        .find_subcommand("find")
        .into_iter()
        .flat_map(clap::Command::get_arguments)
        .filter(|option| option.get_action().takes_values())
        .filter_map(|option| option.get_long().map(|name| format!("--{name}")))
        .collect();
    let mut not = false;
    while let Some(word) = reader.words.next() {
        if word == "--" {
            reader.left.push(word);
            reader.left.extend(reader.words.by_ref());
        } else if word == "!" || word == "-not" {
            not = !not;
            continue;
        } else if is_word_of_find(&word) {
            reader.word(&word, not)?;
            not = false;
        } else {
            let with_value =
                word.to_str().is_some_and(|word| with_values.iter().any(|one| one == word));
            reader.left.push(word);
            if with_value {
                reader.left.extend(reader.words.next());
            }
        }
        if not {
            return Err("! stands before no test".to_owned());
        }
    }
    if not {
        return Err("! stands before no test".to_owned());
    }
    Ok((reader.left, reader.tests))
}

/// A dash and more than a letter; ours have two dashes, or a letter.
fn is_word_of_find(word: &OsStr) -> bool {
    let bytes = word.as_encoded_bytes();
    let long = bytes.len() > 2 && bytes[0] == b'-' && bytes[1].is_ascii_alphabetic();
    long || ["-a", "-o", "(", ")", ","].iter().any(|one| word == *one)
}

struct Reader {
    words: std::vec::IntoIter<OsString>,
    left: Vec<OsString>,
    tests: Vec<Test>,
}

impl Reader {
    fn word(&mut self, word: &OsStr, not: bool) -> Result<(), String> {
        let name = word.to_str().unwrap_or_default();
        let what = match name {
            "-name" => What::Name(self.value(name)?),
            "-type" => What::Kinds(kinds(&self.text(name)?)?),
            "-size" => What::Size(Size::of_find(&self.text(name)?)?),
            "-mtime" => What::Age(Age::of_find(&self.text(name)?, Age::DAY)?),
            "-mmin" => What::Age(Age::of_find(&self.text(name)?, Age::MINUTE)?),
            "-newer" => What::Newer(self.value(name)?),
            "-newermt" => What::NewerThan(self.value(name)?),
            "-empty" => What::Empty,
            "-a" | "-and" | "-print" | "-print0" | "-maxdepth" | "-mindepth" if not => {
                return Err(format!("! stands before {name}, which is no test"));
            }
            // All must hold, and what fits is printed, anyway.
            "-a" | "-and" | "-print" => return Ok(()),
            "-print0" => {
                self.left.push("--print0".into());
                return Ok(());
            }
            "-maxdepth" | "-mindepth" => {
                let levels = self.text(name)?;
                self.left.push(format!("-{name}={levels}").into());
                return Ok(());
            }
            _ => {
                let shown = word.display();
                return Err(format!(
                    "there is no {shown} here; of find(1)'s words there are {KNOWN}"
                ));
            }
        };
        self.tests.push(Test { not, what });
        Ok(())
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
    let wrong =
        |_| format!("-type {text}: letters of f, d, l, p, s, c and b with commas between them");
    text.split(',').map(|letter| FindKind::from_str(letter, false).map_err(wrong)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn taken(line: &str) -> Result<(Vec<OsString>, Vec<Test>), String> {
        take(line.split_whitespace().map(OsString::from).collect())
    }

    fn test(not: bool, what: What) -> Test {
        Test { not, what }
    }

    #[test]
    fn words_of_find_are_taken_and_others_left() {
        let name = |text: &str| What::Name(text.into());
        let (left, tests) = taken("lanefs://h/ -name *.c --size +1M ! -type d,l -0").unwrap();
        assert_eq!(left, ["lanefs://h/", "--size", "+1M", "-0"]);
        assert_eq!(
            tests,
            [test(false, name("*.c")), test(true, What::Kinds(vec![FindKind::D, FindKind::L]))]
        );
        let (left, tests) =
            taken("u -maxdepth 2 -mindepth 1 -print0 -a -not -empty -print").unwrap();
        assert_eq!(left, ["u", "--maxdepth=2", "--mindepth=1", "--print0"]);
        assert_eq!(tests, [test(true, What::Empty)]);
        let (_, tests) = taken("u ! ! -name -type").unwrap();
        assert_eq!(tests, [test(false, name("-type"))]);
        let (left, tests) = taken("--name -name u -- -type").unwrap();
        assert_eq!((left.len(), tests.len()), (5, 0), "values are left alone");
    }

    #[test]
    fn what_is_not_there_is_told_what_is() {
        for (line, says) in [
            ("u -perm 644", "there is no -perm here; of find(1)'s words there are -name PATTERN"),
            ("u -name a -o -name b", "there is no -o here"),
            ("u ( -name a )", "there is no ( here"),
            ("u -delete", "there is no -delete here"),
            ("u -name", "-name needs a value"),
            ("u -type x", "-type x: letters of"),
            ("u -size 1X", "is no size of find(1)"),
            ("u -mtime x", "is no number of find(1)"),
            ("u !", "! stands before no test"),
            ("u ! lanefs://h", "! stands before no test"),
            ("u ! -print", "! stands before -print"),
        ] {
            let line_said = taken(line).unwrap_err();
            assert!(line_said.contains(says), "{line}: {line_said}");
        }
    }
}
