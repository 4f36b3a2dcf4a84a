//! How long scenarios run.

/// How long scenarios run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    /// Kills in the torture.
    pub(crate) round_count: u64,
    /// Power cuts in the torture.
    pub(crate) cut_count: u64,
    /// How often scenarios repeat their random parts.
    pub(crate) repeat_count: u64,
    /// Whether scenarios with many steps run all of them.
    pub(crate) every_step: bool,
}
