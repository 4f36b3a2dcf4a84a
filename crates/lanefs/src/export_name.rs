//! The names of exports on a command line.

use wire::EXPORT_DEFAULT;

/// Who is meant where no export is named.
pub(crate) fn or_default(name: &str) -> &str {
    if name.is_empty() { EXPORT_DEFAULT } else { name }
}
