//! What a request waits for before it is sent.

use wire::counters::Metric;
use wire::traces::StepCause;

/// What a request waits for before it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitCause {
    Connection,
    Reopens,
    Recall,
    Credits,
    Slot,
    ReplaySpace,
    Retry,
    Layout,
    FileLock,
}

impl WaitCause {
    pub(crate) const COUNT: usize = 9;

    /// How many have waited, and how many wait.
    pub(crate) const METRICS: [(Metric, Option<Metric>); Self::COUNT] = [
        (Metric::WaitsConnection, Some(Metric::WaitingConnection)),
        (Metric::WaitsReopens, Some(Metric::WaitingReopens)),
        (Metric::WaitsRecall, Some(Metric::WaitingRecall)),
        (Metric::WaitsCredits, Some(Metric::WaitingCredits)),
        (Metric::WaitsSlot, Some(Metric::WaitingSlot)),
        (Metric::WaitsReplaySpace, Some(Metric::WaitingReplaySpace)),
        (Metric::WaitsRetry, Some(Metric::WaitingRetry)),
        (Metric::WaitsLayout, Some(Metric::WaitingLayout)),
        // A frontend knows how many wait.
        (Metric::WaitsFileLock, None),
    ];
}

impl WaitCause {
    pub(crate) const fn shown(self) -> StepCause {
        match self {
            Self::Connection => StepCause::Connection,
            Self::Reopens => StepCause::Reopens,
            Self::Recall => StepCause::Recall,
            Self::Credits => StepCause::Credits,
            Self::Slot => StepCause::Slot,
            Self::ReplaySpace => StepCause::ReplaySpace,
            Self::Retry => StepCause::Retry,
            Self::Layout => StepCause::Layout,
            Self::FileLock => StepCause::FileLock,
        }
    }
}
