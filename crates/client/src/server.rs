//! One server of the file system, for its clients.

use alloc::vec::Vec;
use wire::{LaneId, ServerAddress, ServerId, SessionId, Welcome, welcome_flag};

/// One server, as its last Welcome described it.
#[derive(Debug)]
pub(crate) struct Server {
    /// Known from the first map on.
    pub(crate) id: Option<ServerId>,
    pub(crate) address: ServerAddress,
    /// Where it is since a newer map has come, if `address` is the one that the client was started with.
    pub(crate) moved_to: Option<ServerAddress>,
    /// 0: it has sent no Welcome yet.
    boot_id: u64,
    session: SessionId,
    slot_count: u16,
    root_trusted: bool,
    read_only: bool,
    ids_replaced: bool,
    /// Handles and locks being registered after a restart; while there are any, no other request is
    /// sent to this server.
    pub(crate) registering_count: usize,
    /// The links to its lanes, by lane.
    links: Vec<Option<usize>>,
}

impl Server {
    pub(crate) const fn new(id: Option<ServerId>, address: ServerAddress) -> Self {
        Self {
            id,
            address,
            moved_to: None,
            boot_id: 0,
            session: SessionId(0),
            slot_count: 1,
            root_trusted: false,
            read_only: false,
            ids_replaced: false,
            registering_count: 0,
            links: Vec::new(),
        }
    }

    /// Where to connect to after so many failures.
    pub(crate) const fn address_for(&self, failure_count: u32) -> ServerAddress {
        match self.moved_to {
            Some(address) if failure_count.is_multiple_of(2) => address,
            Some(_) | None => self.address,
        }
    }

    pub(crate) fn link(&self, lane: LaneId) -> Option<usize> {
        self.links.get(usize::from(lane.0)).copied().flatten()
    }

    pub(crate) fn set_link(&mut self, lane: LaneId, link_index: usize) {
        let at = usize::from(lane.0);
        self.links.resize(self.links.len().max(at + 1), None);
        self.links[at] = Some(link_index);
    }

    pub(crate) const fn boot_id(&self) -> u64 {
        self.boot_id
    }

    pub(crate) const fn session(&self) -> SessionId {
        self.session
    }

    pub(crate) const fn slot_count(&self) -> u16 {
        self.slot_count
    }

    pub(crate) const fn is_root_trusted(&self) -> bool {
        self.root_trusted
    }

    pub(crate) const fn are_ids_replaced(&self) -> bool {
        self.ids_replaced
    }

    pub(crate) const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether handles or locks are being registered.
    pub(crate) const fn is_registering(&self) -> bool {
        self.registering_count > 0
    }

    /// Applies a Welcome's fields about the server; true if it has restarted since the last one.
    pub(crate) fn welcomed(&mut self, welcome: &Welcome) -> bool {
        let restarted = self.boot_id != 0 && self.boot_id != welcome.boot_id;
        self.boot_id = welcome.boot_id;
        self.session = welcome.session;
        self.slot_count = welcome.slot_count;
        self.root_trusted = welcome.flags & welcome_flag::ROOT_TRUSTED != 0;
        self.read_only = welcome.flags & welcome_flag::READ_ONLY != 0;
        self.ids_replaced = welcome.flags & welcome_flag::IDS_REPLACED != 0;
        restarted
    }
}
