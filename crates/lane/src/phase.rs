//! The phases of a recovery.

/// The phase of a recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Replays are accepted.
    Replaying,
    /// All replays were executed; clients reopen their open files.
    Reopening,
    /// The replayed changes are being made durable.
    Flushing,
    /// The evictions are being made durable.
    Evicting,
    /// Normal.
    Over,
}
