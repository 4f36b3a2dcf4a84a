//! Whether something keeps the kernel's clock.

use std::io;
use std::mem::MaybeUninit;

/// What the kernel was told by what sets its clock, as NTP does. Anybody may ask.
///
/// # Errors
/// When the kernel refuses, as in some containers.
pub fn is_clock_synchronised() -> io::Result<bool> {
    let mut state = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: it reads and writes one `timex`, which is there; `modes` is 0, so it sets nothing.
    match unsafe { libc::adjtimex(state.as_mut_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        status => Ok(status != libc::TIME_ERROR),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    #[test]
    fn anybody_may_ask_unless_it_is_forbidden() {
        if let Err(error) = super::is_clock_synchronised() {
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        }
    }
}
