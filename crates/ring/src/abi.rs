//! The few structs of the kernel's FUSE interface that the transport itself needs.
//!
//! Everything behind `fuse_in_header` is decoded by the core. Sources: `include/uapi/linux/fuse.h`
//! of Linux 6.14; sizes are asserted here.

/// `FUSE_WRITE`.
pub(crate) const OP_WRITE: u32 = 16;
/// `FUSE_FORGET`.
pub(crate) const OP_FORGET: u32 = 2;
/// `FUSE_RELEASE`.
pub(crate) const OP_RELEASE: u32 = 18;
/// `FUSE_RELEASEDIR`.
pub(crate) const OP_RELEASEDIR: u32 = 29;
/// `FUSE_INIT`.
pub(crate) const OP_INIT: u32 = 26;
/// `FUSE_INTERRUPT`.
pub(crate) const OP_INTERRUPT: u32 = 36;
/// `FUSE_BATCH_FORGET`.
pub(crate) const OP_BATCH_FORGET: u32 = 42;

/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
pub(crate) const IOC_CLONE: u32 = 0x8004_e500;

/// `FUSE_IO_URING_CMD_REGISTER`.
pub(crate) const COMMAND_REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
pub(crate) const COMMAND_COMMIT_AND_FETCH: u32 = 2;

/// `FUSE_NOTIFY_INVAL_INODE`.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
/// `FUSE_NOTIFY_INVAL_ENTRY`.
pub(crate) const NOTIFY_INVAL_ENTRY: i32 = 3;
/// `FUSE_NOTIFY_INC_EPOCH`, Linux 6.16 and later.
pub(crate) const NOTIFY_INC_EPOCH: i32 = 8;

/// Bytes of `struct fuse_in_header`.
pub(crate) const IN_HEADER_BYTES: usize = 40;
/// Bytes of `struct fuse_out_header`.
pub(crate) const OUT_HEADER_BYTES: usize = 16;
/// Bytes of `struct fuse_write_in`.
pub(crate) const WRITE_IN_BYTES: usize = 40;
/// Largest data of one request, in bytes; what the mount must announce as `max_write`.
pub const KERNEL_DATA_BYTES_MAX: usize = 1 << 20;

/// The front of `struct fuse_in_header`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InHeader {
    pub(crate) request_bytes: u32,
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
}

impl InHeader {
    /// Reads a request's front; `None` when it is too short.
    pub(crate) fn read(request: &[u8]) -> Option<Self> {
        let (header, _) = request.split_first_chunk::<IN_HEADER_BYTES>()?;
        let [a, b, c, d, e, f, g, h, unique @ ..] = header;
        let (unique, _) = unique.split_first_chunk::<8>()?;
        Some(Self {
            request_bytes: u32::from_ne_bytes([*a, *b, *c, *d]),
            opcode: u32::from_ne_bytes([*e, *f, *g, *h]),
            unique: u64::from_ne_bytes(*unique),
        })
    }

    /// Whether the kernel wants no answer.
    pub(crate) const fn is_unanswered(self) -> bool {
        matches!(self.opcode, OP_FORGET | OP_BATCH_FORGET | OP_INTERRUPT)
    }

    /// Whether a caller waits for the reply.
    pub(crate) const fn is_awaited(self) -> bool {
        !self.is_unanswered() && !matches!(self.opcode, OP_RELEASE | OP_RELEASEDIR)
    }
}

/// `struct fuse_out_header`.
pub(crate) fn out_header(
    unique: u64,
    status: wire::Status,
    payload_bytes: u32,
) -> [u8; OUT_HEADER_BYTES] {
    /// Our own numbers are no errno.
    const OWN_STATUS_MIN: u16 = 1000;
    const EIO: u16 = 5;
    let number = status.number();
    let errno = if number < OWN_STATUS_MIN { number } else { EIO };
    let header_bytes = const { 16_u32 };
    let mut header = [0; OUT_HEADER_BYTES];
    header[..4].copy_from_slice(&(header_bytes + payload_bytes).to_ne_bytes());
    header[4..8].copy_from_slice(&(-i32::from(errno)).to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// `struct fuse_uring_req_header`: what a queue entry's first iovec points to.
#[repr(C)]
pub(crate) struct EntryHeader {
    /// `fuse_in_header` or `fuse_out_header`.
    pub(crate) in_out: [u8; 128],
    /// The op's own struct.
    pub(crate) op_in: [u8; 128],
    pub(crate) flags: u64,
    /// Names the request when it is answered.
    pub(crate) commit_id: u64,
    /// Bytes of the entry's payload, in either direction.
    pub(crate) payload_bytes: u32,
    pub(crate) padding: u32,
    pub(crate) reserved: u64,
}

const _: () = assert!(size_of::<EntryHeader>() == 288, "struct fuse_uring_req_header");

/// `struct fuse_uring_cmd_req`.
pub(crate) fn command_body(commit_id: u64, queue_index: u16) -> [u8; 24] {
    let mut body = [0; 24];
    body[8..16].copy_from_slice(&commit_id.to_ne_bytes());
    body[16..18].copy_from_slice(&queue_index.to_ne_bytes());
    body
}
