//! `SetLock`: locks or unlocks a range of a file, or begins to wait for it.

use crate::Lane;
use crate::file_locks::decoded;
use crate::peers::message::Search;
use crate::request::ReceivedRequest;
use alloc::vec::Vec;
use interface::Turn;
use meta::{LockCaller, LockOwner};
use wire::{HEADER_BYTES, LockKind, LockSet, ProtocolError, SetLock, Status, Writer};

pub(crate) fn execute(
    lane: &mut Lane,
    turn: &mut Turn<'_>,
    received: &ReceivedRequest<'_>,
) -> Result<(), ProtocolError> {
    if lane.refuses_lock(turn, received) {
        return Ok(());
    }
    let (shard, client) = (received.request.shard, received.open.client);
    let body = &turn.arena.get(received.frame)[HEADER_BYTES..];
    let ask: SetLock = decoded(body, shard, |ask: &SetLock| ask.inode)?;
    lane.scratch.begin();
    let mut woken = Vec::new();
    let since_ns = lane.wait_begins_ns(turn);
    lane.drop_expired_locks(shard, client, &ask, &mut woken);
    let caller = LockCaller { client, session: received.request.session, now_ns: since_ns };
    let result = lane.locks_of(shard).set(caller, &ask, &mut woken);
    if let Ok(set) = &result {
        lane.stats.lock_wait_count += u64::from(!set.granted);
        Writer::new(lane.scratch.new_reply()).write(set);
    }
    lane.answer_lock(turn, received, result.map_or_else(|status| status, |_| Status::Ok));
    lane.send_grants(turn, shard, woken);
    if result.is_ok_and(|set| may_deadlock(&set, &ask)) {
        let search = Search {
            lane: lane.me(),
            inode: ask.inode,
            owner: LockOwner { client, owner: ask.owner },
            wait_id: ask.wait_id,
            since_ns,
            is_certain: false,
        };
        lane.on_wait_begun(turn, search);
    }
    Ok(())
}

/// Whether the wait can be part of a deadlock: flock is not checked, as on Linux.
fn may_deadlock(set: &LockSet, ask: &SetLock) -> bool {
    !set.granted && ask.kind == LockKind::Posix
}
