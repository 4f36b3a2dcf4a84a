//! Reading a mapped file that was truncated, or pages that point outside it, kills a process by a
//! signal. This module ends the process with a message that names the file instead.
//!
//! It is the last resort: the file is checked before it is mapped, and later changes are detected
//! here. Invariant: a fault at any other address goes to the previous signal handler.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::OnceLock;

/// The exit code of such a process.
const EXIT_CODE: i32 = 1;
const SIGNALS: [i32; 2] = [libc::SIGBUS, libc::SIGSEGV];

/// The range of the mapping, the message, and the previous signal handlers.
struct Guarded {
    start: usize,
    end: usize,
    message: Box<[u8]>,
    before: [libc::sigaction; 2],
}

static GUARDED: OnceLock<Guarded> = OnceLock::new();

/// Guards the mapping that contains `inside`, for the life of the process. Only the first call of a
/// process has an effect.
pub(crate) fn guard(path: &Path, inside: *const u8) -> io::Result<()> {
    let (start, end) = mapping(inside as usize)?;
    let message = format!(
        "{} was damaged while it was in use: it was truncated, or points outside itself. Changes \
         acknowledged as durable are in the logs; restore the file from a copy\n",
        path.display()
    );
    let taken = SIGNALS.map(|signal| {
        let mut before = MaybeUninit::uninit();
        // SAFETY: a null action only queries; the buffer has the required size.
        let failed = unsafe { libc::sigaction(signal, std::ptr::null(), before.as_mut_ptr()) };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has filled it in.
        Ok(unsafe { before.assume_init() })
    });
    let [bus, segment] = taken;
    let guarded =
        Guarded { start, end, message: message.into_bytes().into(), before: [bus?, segment?] };
    if GUARDED.set(guarded).is_err() {
        return Ok(());
    }
    for signal in SIGNALS {
        // SAFETY: all zeros is an action without a handler and with an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler calls only what may be called in one, and what it reads was set
        // before and never changes.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The range of the mapping that contains an address.
fn mapping(inside: usize) -> io::Result<(usize, usize)> {
    let range = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let (start, end) =
            (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        (start..end).contains(&inside).then_some((start, end))
    };
    // Names of files need not be UTF-8.
    let maps = fs::read("/proc/self/maps")?;
    String::from_utf8_lossy(&maps)
        .lines()
        .find_map(range)
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let Some(guarded) = GUARDED.get() else { return };
    // SAFETY: the kernel passes such a handler a siginfo that lives until the handler returns.
    let info = unsafe { &*info };
    // SAFETY: for these signals the kernel sets the address.
    let at = unsafe { info.si_addr() } as usize;
    if (guarded.start..guarded.end).contains(&at) {
        let message = &guarded.message;
        // SAFETY: write is async-signal-safe, and the message lives as long as the process.
        unsafe { libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len()) };
        // SAFETY: _exit is async-signal-safe.
        unsafe { libc::_exit(EXIT_CODE) };
    }
    let before = &guarded.before[usize::from(signal != SIGNALS[0])];
    // SAFETY: the kernel returned this action earlier. The fault is raised again when this function
    // returns, and goes to that action.
    unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
}
