//! `lanefs chown [-R] [-h] USER[:GROUP]`.

use super::show::Names;
use super::{Session, urls};
use crate::address::Url;
use crate::args;
use crate::exit::Exit;
use anyhow::Result;
use library::{Attr, SetAttr};

/// Runs the command.
pub(crate) fn run(args: &args::Chown) -> Result<()> {
    let set = owner(&args.owner).map_err(Exit::usage)?;
    let mut session = Session::new("chown", &args.access);
    for url in urls(&args.paths)? {
        let volume = session.volume(&url)?;
        let itself = args.no_dereference || args.recursive;
        let found = if itself { volume.lstat(&url.path) } else { volume.stat(&url.path) };
        let what = format!("cannot access '{}'", url.text());
        let found = session.report(&what, found.map_err(Into::into))?;
        let Some(attr) = found else { continue };
        let mut change = |session: &mut Session, url: &Url, attr: &Attr| {
            let changed = session.volume(url)?.set_attr(attr.inode, &url.path, &set);
            let what = format!("cannot change owner of '{}'", url.text());
            session.report(&what, changed.map_err(Into::into)).map(drop)
        };
        session.each(&url, &attr, args.recursive, &mut change)?;
    }
    session.end()
}

/// Reads `USER`, `USER:GROUP` or `:GROUP`.
fn owner(text: &str) -> Result<SetAttr, String> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    if group == Some("") || (user.is_empty() && group.is_none()) {
        return Err(format!("'{text}' is no owner: USER, USER:GROUP or :GROUP"));
    }
    let uid = (!user.is_empty()).then(|| id("user", user, &Names::users())).transpose()?;
    let gid = group.map(|group| id("group", group, &Names::groups())).transpose()?;
    Ok(SetAttr { uid, gid, ..SetAttr::default() })
}

/// A name first, as a name may be a number.
fn id(what: &str, text: &str, names: &Names) -> Result<u32, String> {
    let number = || text.parse().ok().filter(|id| *id != u32::MAX);
    let unknown = || format!("this machine knows no {what} '{text}', and it is no number");
    names.id(text).or_else(number).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_have_names_and_numbers() {
        let set = |uid, gid| Ok(SetAttr { uid, gid, ..SetAttr::default() });
        assert_eq!(owner("root"), set(Some(0), None));
        assert_eq!(owner("root:77"), set(Some(0), Some(77)));
        assert_eq!(owner(":root"), set(None, Some(0)));
        for wrong in ["", ":", "root:", "no one at all", "4294967295", "-1"] {
            assert!(owner(wrong).is_err(), "{wrong}");
        }
    }
}
