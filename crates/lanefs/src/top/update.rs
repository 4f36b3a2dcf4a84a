//! What the threads of `lanefs top` say to the one that draws.

use super::interval::Interval;
use ratatui::crossterm::event::Event;

/// Something that happened.
pub(super) enum Update {
    /// A server can be reached.
    Connected,
    /// This one has answered.
    Sample(usize, Box<Interval>),
    /// It cannot be reached, or not any more.
    Lost(usize, anyhow::Error),
    /// The connection to one has ended in order.
    Left,
    /// A key, or another size of the terminal.
    Input(Event),
    /// A signal wants the end.
    End,
}
