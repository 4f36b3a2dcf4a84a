//! `lanefs mv`: renames within one server.

use super::{Session, urls};
use crate::address::Url;
use crate::args;
use crate::exit::{Code, Exit};
use anyhow::Result;
use library::FileKind;

/// Runs the command.
pub(crate) fn run(args: &args::Mv) -> Result<()> {
    let mut session = Session::new("mv", &args.access);
    let mut sources = urls(&args.paths)?;
    let Some(dest) = sources.pop() else { return session.end() };
    let into = session.volume(&dest)?.stat(&dest.path);
    let into = into.is_ok_and(|attr| attr.kind == FileKind::Directory);
    if !into && sources.len() > 1 {
        let line = format!("target '{}' is not a directory", dest.text());
        return Err(Exit::new(Code::Failed, line).into());
    }
    for source in sources {
        if source.address != dest.address {
            session.report_error(&format!(
                "cannot move '{}' to another server: copy it with `lanefs cp`, then remove it",
                source.text()
            ));
            continue;
        }
        let target = target(&source, &dest, into);
        let what = format!("cannot move '{}' to '{}'", source.text(), target.text());
        let moved = session.volume(&source)?.rename(&source.path, &target.path);
        session.report(&what, moved.map_err(Into::into))?;
    }
    session.end()
}

fn target(source: &Url, dest: &Url, into: bool) -> Url {
    match source.path.file_name() {
        Some(name) if into => dest.at(dest.path.join(name)),
        Some(_) | None => dest.clone(),
    }
}
