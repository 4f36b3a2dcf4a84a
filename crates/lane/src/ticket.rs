//! Tickets: their first byte names the module of the lane that receives the answer.

/// The bits of a ticket that name its owner.
pub(crate) const TICKET_TAG: u64 = 0xff << 56;
/// The data shards' tickets.
pub(crate) const DATA_TICKET: u64 = 1 << 56;
/// Queries of the space under the store.
pub(crate) const SPACE_TICKET: u64 = 2 << 56;
/// Queries of the space that is promised with write leases.
pub(crate) const FREE_SPACE_TICKET: u64 = 7 << 56;
/// Queries of the resource usage.
pub(crate) const USAGE_TICKET: u64 = 4 << 56;
/// The same, for other threads of the process.
pub(crate) const ASKED_TICKET: u64 = 7 << 56;
/// Log appends.
pub(crate) const LOG_TICKET: u64 = 3 << 56;
/// Tickets of the row reads for a path.
pub(crate) const PATH_TICKET: u64 = 6 << 56;
/// Tickets of the row reads.
pub(crate) const ROWS_TICKET: u64 = 5 << 56;
