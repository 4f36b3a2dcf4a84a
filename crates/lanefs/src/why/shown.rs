//! A request as it is shown, and the names of parties.

use library::traces::{Party, RequestTrace};

/// A request, and the lane of the server that remembers it.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) lane: u16,
    pub(super) trace: RequestTrace,
}

/// The name of this machine, as its clients report it.
pub(super) fn this_host() -> String {
    String::from_utf8_lossy(&library::host_name()).into_owned()
}

pub(super) fn uuid(party: &Party) -> String {
    hex::encode(party.client.0)
}
