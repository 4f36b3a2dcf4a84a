//! The driver of this process's lanes: determined once and reported on stderr.

use crate::args::Driver;
use crate::log;
use anyhow::Result;
use ring::{DriverChoice, DriverFound, DriverKind};

/// The requested driver, as a lane option.
pub(crate) const fn choice(asked: Driver) -> DriverChoice {
    match asked {
        Driver::Auto => DriverChoice::Auto,
        Driver::IoUring => DriverChoice::Only(DriverKind::IoUring),
        Driver::Epoll => DriverChoice::Only(DriverKind::Epoll),
    }
}

/// The driver; if it is not the default one, a line on stderr gives the reason.
///
/// # Errors
/// When io_uring was requested and is not permitted.
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
