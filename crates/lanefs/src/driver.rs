//! Which driver the lanes of this process are on: found out once, said to people.

use crate::args::Driver;
use crate::log;
use anyhow::Result;
use ring::{DriverChoice, DriverFound, DriverKind};

/// What was asked for, as lanes take it.
pub(crate) const fn choice(asked: Driver) -> DriverChoice {
    match asked {
        Driver::Auto => DriverChoice::Auto,
        Driver::IoUring => DriverChoice::Only(DriverKind::IoUring),
        Driver::Epoll => DriverChoice::Only(DriverKind::Epoll),
    }
}

/// The driver; where it is not the usual one, a line on stderr says why.
///
/// # Errors
/// When io_uring was asked for and is not to be had.
pub(crate) fn choose(asked: Driver) -> Result<DriverKind> {
    let found = choice(asked).find()?;
    if found.why.is_some() {
        log::report(&format!("driver {}", text(&found)));
    }
    Ok(found.kind)
}

/// The driver, and why it is not the usual one.
pub(crate) fn text(found: &DriverFound) -> String {
    let name = found.kind.name();
    found.why.as_ref().map_or_else(|| name.to_owned(), |why| format!("{name}: {why}"))
}
