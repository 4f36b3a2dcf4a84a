//! Writing to stdout and stderr without dying of a closed pipe in the wrong way.

use anyhow::Result;
use std::io::{self, Write as _};

/// Writes bytes to stdout. A reader that went away ends the process by SIGPIPE, as it ends `cat`.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGPIPE)?;
            Err(error.into())
        }
        written => Ok(written?),
    }
}

/// Writes a line to stdout; a closed pipe is no error.
pub(crate) fn print_line(line: &str) {
    let mut stdout = io::stdout().lock();
    // A closed stdout is no error: the work continues.
    let _unread = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// Writes a line to stderr; a closed pipe is no error.
pub(crate) fn print_error_line(line: &str) {
    // There is no place left to say that stderr is closed.
    let _unread = writeln!(io::stderr().lock(), "{line}");
}
