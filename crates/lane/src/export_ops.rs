//! Definition and removal of exports by administrators, at the lane of the first metadata shard,
//! which records each change and sends it to the other lanes. Clients of a removed export lose
//! their connections, locks and handles; connections to a changed export are bound to its new
//! definition.

use crate::Lane;
use crate::export::{Binding, EXPORTS_BYTES_MAX};
use crate::leases::is_behind;
use crate::limits::Limit;
use crate::peers::message::{ExportDefinition, PeerBody};
use crate::request::ReceivedRequest;
use crate::session::Basis;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use disk::{Change, ExportChange};
use interface::{Party, Turn};
use wire::{
    ClientUuid, EXPORT_DEFAULT, SetExport, ShardId, Squash, Status, Wire as _, is_export_name,
};

impl Lane {
    /// The change to record; `None`: a resent request that is done already.
    pub(crate) fn judge_export<'a>(
        &self,
        received: &ReceivedRequest<'_>,
        ask: &SetExport<'a>,
        resent: bool,
    ) -> Result<Option<ExportChange<'a>>, Status> {
        if !received.open.binding.administers {
            return Err(Status::NotPermitted);
        }
        if received.request.shard != ShardId::meta(0) || !is_export_name(ask.export.name.0) {
            return Err(Status::Invalid);
        }
        let Squash { anon_uid, anon_gid, .. } = ask.export.squash;
        if [anon_uid, anon_gid].contains(&u32::MAX) {
            return Err(Status::Invalid); // No file can have such an owner.
        }
        if self.commit.has_failed() {
            return Err(Status::ReadOnly);
        }
        if !self.space_for_own() {
            return Err(Status::NoSpace);
        }
        let (name, is_default) = (ask.export.name, ask.export.name.0 == EXPORT_DEFAULT.as_bytes());
        let known = self.exports.find(name.0);
        if ask.export.closed {
            return match known {
                None if resent => Ok(None),
                None => Err(Status::NotFound),
                // An export of the command line would be back at the next start.
                Some(known) if !known.stored && !is_default => Err(Status::Busy),
                Some(_) if is_default => Ok(Some(ExportChange::Put(ask.export))),
                Some(_) => Ok(Some(ExportChange::Removed { name })),
            };
        }
        match known {
            Some(known) if known.stored && known.id == ask.export.id && !ask.replace => Ok(None),
            Some(known) if !known.stored && !is_default => Err(Status::Busy),
            Some(known) if known.stored && !ask.replace => Err(Status::Exists),
            Some(known) if known.stored => {
                let export = wire::Export { id: known.id, ..ask.export };
                self.fits_exports(export)
            }
            Some(_) | None => self.fits_exports(ask.export),
        }
    }

    fn fits_exports<'a>(
        &self,
        export: wire::Export<'a>,
    ) -> Result<Option<ExportChange<'a>>, Status> {
        let mut all = Vec::new();
        self.exports.encode(&mut all);
        let fits = all.len() + export.to_bytes().len() < EXPORTS_BYTES_MAX;
        if fits { Ok(Some(ExportChange::Put(export))) } else { Err(Status::NoSpace) }
    }

    /// Records a change, applies it, and sends it to the other lanes.
    pub(crate) fn record_export(&mut self, turn: &mut Turn<'_>, change: &ExportChange<'_>) {
        let shard = ShardId::meta(0);
        let index = self.meta_index(shard);
        let transno = self.metas[index].take_transno();
        self.record_own_change(shard, transno, &Change::Export(*change));
        self.send_to_peer_lanes(turn, &PeerBody::Export { change: ExportDefinition(*change) });
        self.take_export(turn, change);
    }

    /// Lets replies wait until all lanes of other servers have what they were told. An earlier start
    /// may have told them, and not have heard of it.
    pub(crate) fn await_peers(&mut self, turn: &mut Turn<'_>) {
        self.send_to_remote_lanes(turn, &PeerBody::Barrier {});
    }

    /// Applies a change of an export, of this lane or of the lane that records exports.
    pub(crate) fn take_export(&mut self, turn: &mut Turn<'_>, change: &ExportChange<'_>) {
        match change {
            ExportChange::Put(export) => {
                self.exports.put(export, self.leases.behind_until(turn.now.mono));
            }
            ExportChange::Removed { name } => self.exports.remove(name.0),
        }
        self.recall_export(turn, change);
        self.containment.forget_uses();
        // Whose export is over learns the reason when it reconnects.
        let (changed, mut over) = self.connections.rebind(|binding| {
            let known = self.exports.numbered(binding.export_no);
            known.map(|known| known.binding(binding.own_host))
        });
        self.readmit(turn, changed);
        over.sort_unstable();
        over.into_iter().for_each(|conn| self.close(turn, conn));
        self.end_unexported(turn);
        // Waiting requests are checked against the new definition.
        self.containment.due = true;
    }

    /// What clients of an export cache was granted by its earlier definition.
    fn recall_export(&mut self, turn: &Turn<'_>, change: &ExportChange<'_>) {
        let name = match change {
            ExportChange::Put(export) => export.name.0,
            ExportChange::Removed { name } => name.0,
        };
        let is_bound = |basis: &Basis| {
            // A removed export is not found any more.
            let known = self.exports.numbered(basis.export_no);
            basis.export_no != 0 && known.is_none_or(|known| known.name == name)
        };
        let bound = self.sessions.all().filter(|(_, session)| is_bound(&session.basis));
        let bound: BTreeSet<ClientUuid> = bound.map(|(_, session)| session.row.client).collect();
        let bound: Vec<ClientUuid> = bound.into_iter().collect();
        if matches!(change, ExportChange::Put(export) if export.read_only) {
            self.recall_writing_from(&bound, turn.now.mono);
        }
        self.recall_from(&bound);
    }

    /// Whether a change through a read-only export may have been answered early, before the export
    /// was read-only.
    pub(crate) fn was_answered_early(&self, received: &ReceivedRequest<'_>, body: &[u8]) -> bool {
        let export_no = received.open.binding.export_no;
        is_behind(received.request, body)
            && self.exports.executes_behind(export_no, received.times.arrived)
    }

    /// Ends the sessions of an export that was removed or has another root: no client can resume
    /// them, because a later definition has another id.
    fn end_unexported(&mut self, turn: &mut Turn<'_>) {
        let is_over = |basis: &Basis| {
            let now = self.exports.numbered(basis.export_no);
            basis.export_no != 0 && now.is_none_or(|now| now.binding(false).root() != basis.root)
        };
        let over = self.sessions.all().filter(|(_, session)| is_over(&session.basis));
        let clients: BTreeSet<ClientUuid> = over.map(|(_, session)| session.row.client).collect();
        for client in clients {
            let line = "a client's export was taken away: its session has ended";
            self.report_limit(turn, (Limit::Unexported, Party::NONE), line);
            self.end_client(turn, client);
        }
    }
}

const _: () = assert!(Binding::ADMINISTERS.export_no == 0, "no export has this number");
