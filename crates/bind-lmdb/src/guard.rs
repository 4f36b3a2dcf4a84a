//! Reading a mapped file that was cut short, or pages that lead outside it, ends a process with a
//! signal. This makes that an end with a message which names the file.
//!
//! It is the last resort: the file is looked through before it is mapped, and what changes under a
//! server is noticed here. Invariant: a fault anywhere else goes to whoever took the signal before.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::OnceLock;

/// What a process that ends this way returns.
const EXIT_CODE: i32 = 1;
const SIGNALS: [i32; 2] = [libc::SIGBUS, libc::SIGSEGV];

/// Where the file is mapped, what to say, and who took the signals before.
struct Guarded {
    start: usize,
    end: usize,
    message: Box<[u8]>,
    before: [libc::sigaction; 2],
}

static GUARDED: OnceLock<Guarded> = OnceLock::new();

/// Guards the mapping that `inside` lies in, for as long as the process lives. Only the first of a
/// process is.
pub(crate) fn guard(path: &Path, inside: *const u8) -> io::Result<()> {
    let (start, end) = mapping(inside as usize)?;
    let message = format!(
        "{} was damaged while it was in use: it was cut short, or leads outside itself. What was \
         acknowledged as durable is in the logs; bring the file back from a copy\n",
        path.display()
    );
    let taken = SIGNALS.map(|signal| {
        let mut before = MaybeUninit::uninit();
        // SAFETY: a null action only asks; the place for the answer is as large as it must be.
        let asked = unsafe { libc::sigaction(signal, std::ptr::null(), before.as_mut_ptr()) };
        if asked != 0 {
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
        // SAFETY: the handler calls only what may be called in one, and what it reads was set before
        // and never changes.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The range of addresses that an address is mapped in.
fn mapping(inside: usize) -> io::Result<(usize, usize)> {
    let range = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let (start, end) =
            (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        (start..end).contains(&inside).then_some((start, end))
    };
    let maps = fs::read_to_string("/proc/self/maps")?;
    maps.lines().find_map(range).ok_or_else(|| io::ErrorKind::NotFound.into())
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let Some(guarded) = GUARDED.get() else { return };
    // SAFETY: the kernel gives a handler of this kind a siginfo, which lives until it returns.
    let info = unsafe { &*info };
    // SAFETY: of these signals the kernel fills in the address.
    let at = unsafe { info.si_addr() } as usize;
    if (guarded.start..guarded.end).contains(&at) {
        let message = &guarded.message;
        // SAFETY: it may be called in a handler, and the message lives as long as the process.
        unsafe { libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len()) };
        // SAFETY: it may be called in a handler.
        unsafe { libc::_exit(EXIT_CODE) };
    }
    let before = &guarded.before[usize::from(signal != SIGNALS[0])];
    // SAFETY: it is what the kernel said was there before. The fault comes again when this returns, and
    // goes there.
    unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
}
