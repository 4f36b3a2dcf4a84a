//! `lanefs tree`: directories with all that is in them, names in byte order.

use super::json::{self, FileRow};
use super::show::shown;
use super::{Session, urls};
use crate::address::Url;
use crate::{args, out};
use anyhow::Result;
use library::{Attr, DirEntry, FileKind};
use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;

struct Tree<'a> {
    session: Session,
    args: &'a args::Tree,
    terminal: bool,
    directory_count: u64,
    file_count: u64,
}

/// Runs the command.
pub(crate) fn run(args: &args::Tree) -> Result<()> {
    let urls = urls(&args.paths)?;
    let session = Session::new("tree", &args.access);
    let terminal = std::io::stdout().is_terminal();
    let mut tree = Tree { session, args, terminal, directory_count: 0, file_count: 0 };
    let mut shown_count = 0;
    for url in urls {
        shown_count += u64::from(tree.whole(&url)?);
    }
    if shown_count > 0 && !args.json.json {
        let directories = counted(tree.directory_count, "directory", "directories");
        let line = match args.directories {
            true => format!("\n{directories}\n"),
            false => format!("\n{directories}, {}\n", counted(tree.file_count, "file", "files")),
        };
        out::print_bytes(line.as_bytes())?;
    }
    tree.session.end()
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

impl Tree<'_> {
    /// The tree below one URL; whether there was one.
    fn whole(&mut self, url: &Url) -> Result<bool> {
        let found = self.session.volume(url)?.stat(&url.path);
        let what = format!("cannot access '{}'", url.text());
        let found = self.session.report(&what, found.map_err(Into::into))?;
        let Some(attr) = found else { return Ok(false) };
        self.line(url, &attr, "", OsStr::from_bytes(&url.bytes()), 0)?;
        if attr.kind == FileKind::Directory {
            self.below(url, "", 1)?;
        }
        Ok(true)
    }

    fn below(&mut self, url: &Url, indent: &str, depth: u32) -> Result<()> {
        if self.args.level.is_some_and(|level| depth > level) {
            return Ok(());
        }
        let listed = self.session.list(url);
        let what = format!("cannot read directory '{}'", url.text());
        let Some(mut entries) = self.session.report(&what, listed)? else { return Ok(()) };
        entries.retain(|entry| self.is_shown(entry));
        entries.sort_by(|one, two| one.name.cmp(&two.name));
        let last = entries.len().saturating_sub(1);
        for (index, entry) in entries.into_iter().enumerate() {
            let (branch, below) = match index == last {
                true => ("\u{2514}\u{2500}\u{2500} ", "    "),
                false => ("\u{251c}\u{2500}\u{2500} ", "\u{2502}   "),
            };
            let entry_url = url.at(url.path.join(&entry.name));
            let front = format!("{indent}{branch}");
            self.line(&entry_url, &entry.attr, &front, &entry.name, depth)?;
            if entry.attr.kind == FileKind::Directory {
                self.directory_count += 1;
                self.below(&entry_url, &format!("{indent}{below}"), depth + 1)?;
            } else {
                self.file_count += 1;
            }
        }
        Ok(())
    }

    fn is_shown(&self, entry: &DirEntry) -> bool {
        let hidden = entry.name.as_bytes().starts_with(b".");
        let directory = entry.attr.kind == FileKind::Directory;
        (self.args.all || !hidden) && (directory || !self.args.directories)
    }

    fn line(
        &mut self,
        url: &Url,
        attr: &Attr,
        front: &str,
        name: &OsStr,
        depth: u32,
    ) -> Result<()> {
        let target = self.session.link_target(url, attr);
        if self.args.json.json {
            let row = FileRow::new(url, attr, target.as_ref().map(|to| to.as_bytes()));
            return json::put(&row.at_depth(depth));
        }
        let mut line = front.as_bytes().to_vec();
        line.extend(shown(name, self.terminal));
        if let Some(target) = &target {
            line.extend_from_slice(b" -> ");
            line.extend(shown(target, self.terminal));
        }
        line.push(b'\n');
        out::print_bytes(&line)
    }
}
