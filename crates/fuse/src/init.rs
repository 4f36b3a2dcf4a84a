//! INIT: the negotiation of protocol version and features.

use crate::abi::{
    MAJOR, MINOR, MINOR_FORGETS_NAMES, MINOR_MIN, TRANSFER_BYTES_MAX, TRANSFER_PAGES_MAX, init_flag,
};
use crate::args::Args;
use crate::out::{put_u16, put_u32};
use alloc::vec::Vec;
use wire::Status;

/// The most background requests of the kernel (readahead, direct I/O in pieces), and the number
/// from which on it counts as congested.
const BACKGROUND_MAX: u16 = 64;
const CONGESTION_COUNT: u16 = 48;

/// The features used if the kernel offers them. AUTO_INVAL_DATA: the page cache of mappings, splice
/// and sendfile is dropped when the attributes show a change. Left out on purpose:
/// - WRITEBACK_CACHE: the kernel would never again take a file's size and times from the server;
/// - ATOMIC_O_TRUNC: truncation is a separate request;
/// - EXPORT_SUPPORT: `.` and `..` are not looked up by name.
const WANTED: u64 = init_flag::ASYNC_READ
    | init_flag::POSIX_LOCKS
    | init_flag::FLOCK_LOCKS
    | init_flag::BIG_WRITES
    | init_flag::DONT_MASK
    | init_flag::AUTO_INVAL_DATA
    | init_flag::ASYNC_DIO
    | init_flag::PARALLEL_DIROPS
    | init_flag::MAX_PAGES
    | init_flag::HANDLE_KILLPRIV_V2
    | init_flag::INIT_EXT
    | init_flag::DIRECT_IO_ALLOW_MMAP;

/// The result of the negotiation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Negotiated {
    /// The fields of `fuse_init_out`.
    Session {
        max_readahead: u32,
        flags: u64,
        /// The kernel can forget all names at once.
        forgets_names: bool,
    },
    /// The kernel offers a later major version: it sends INIT again after a reply with ours.
    OlderMajor,
}

/// Decodes `fuse_init_in`; `more` are features that this mount wants besides.
pub(crate) fn negotiate(mut args: Args<'_>, more: u64) -> Result<Negotiated, Status> {
    let major = args.u32()?;
    let minor = args.u32()?;
    if major > MAJOR {
        return Ok(Negotiated::OlderMajor);
    }
    if major < MAJOR || minor < MINOR_MIN {
        return Err(Status::Protocol);
    }
    let max_readahead = args.u32()?;
    let mut offered = u64::from(args.u32()?);
    if offered & init_flag::INIT_EXT != 0 {
        offered |= u64::from(args.u32()?) << 32;
    }
    let wanted = WANTED | more;
    let forgets_names = minor >= MINOR_FORGETS_NAMES;
    Ok(Negotiated::Session { max_readahead, flags: offered & wanted, forgets_names })
}

/// `fuse_init_out`.
pub(crate) fn put_init(out: &mut Vec<u8>, negotiated: Negotiated) {
    put_u32(out, MAJOR);
    put_u32(out, MINOR);
    let (max_readahead, flags) = match negotiated {
        Negotiated::Session { max_readahead, flags, .. } => (max_readahead, flags),
        Negotiated::OlderMajor => (0, 0),
    };
    let [low, high] = halves(flags);
    put_u32(out, max_readahead);
    put_u32(out, low);
    put_u16(out, BACKGROUND_MAX);
    put_u16(out, CONGESTION_COUNT);
    put_u32(out, TRANSFER_BYTES_MAX);
    put_u32(out, 1); // time_gran: nanoseconds
    put_u16(out, TRANSFER_PAGES_MAX);
    put_u16(out, 0); // map_alignment
    put_u32(out, high);
    out.extend_from_slice(&[0; 28]); // unused
}

fn halves(flags: u64) -> [u32; 2] {
    let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
    [half(flags), half(flags >> 32)]
}
