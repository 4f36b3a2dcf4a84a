//! The counters of a lane as a message.

use crate::codec::{DecodeError, Reader, Wire, Writer};
use crate::message::message;

message! {
    /// Reply of [`crate::Op::Stats`], which has an empty body.
    Stats {
        /// Requests answered since the start.
        request_count: u64,
        /// Requests among them that changed something.
        change_count: u64,
        /// Batches made durable.
        batch_count: u64,
        /// Replies deferred until a batch was durable.
        deferred_count: u64,
        /// Requests answered from a slot.
        from_slot_count: u64,
        /// Turns taken.
        turn_count: u64,
        /// Bytes read from files.
        read_bytes: u64,
        /// Bytes written to files.
        written_bytes: u64,
        /// Connections open.
        conn_count: u64,
        /// Connections closed for a protocol error.
        protocol_error_count: u64,
        /// Inodes in this lane's metadata shards.
        inode_count: u64,
        /// Processor time of the whole process, in user space and in the kernel. Like the next two
        /// it is the same for every lane of a server.
        cpu_ns: u64,
        /// Times that a thread of the process went to sleep.
        voluntary_switch_count: u64,
        /// Times that a thread of the process had to give its core to others.
        involuntary_switch_count: u64,
        /// System calls that this lane made.
        syscall_count: u64,
        /// Clock readings of this lane.
        clock_read_count: u64,
        /// Messages from this lane to its peer lanes.
        message_out_count: u64,
        /// Sends of this lane; each has all that a turn had for a connection.
        send_count: u64,
        /// Times that this lane polled for more work before it would have slept.
        spin_count: u64,
        /// Polls among them that found work.
        spin_hit_count: u64,
        /// The longest turn of this lane that delayed waiting work, in nanoseconds.
        turn_ns_max: u64,
        /// Deferred replies by reason, redo tokens and commit notifications.
        reply_gating: ReplyGatingCounts,
        /// The recovery of this boot.
        recovery: RecoveryCounts,
        /// Reads and writes of files' contents.
        objects: ObjectCounts,
        /// Messages to and from peer lanes.
        peers: PeerCounts,
        /// Leases granted to clients.
        leases: LeaseCounts,
    }
}
message! {
    /// Leases (docs/protocol.md §20).
    #[derive(Default)]
    LeaseCounts {
        /// Leases held by clients now, expired ones that were not removed yet included.
        held_count: u64,
        /// Leases granted.
        granted_count: u64,
        /// Leases recalled.
        recalled_count: u64,
        /// Recalls of a key that ended by the term.
        expired_count: u64,
        /// Leases not granted because their key was recalled too often.
        refused_hot_count: u64,
        /// Leases not granted because the client, or all clients together, had too many.
        refused_share_count: u64,
        /// Suspensions of requests until leases ended.
        wait_count: u64,
        /// Pings, by which idle clients keep their leases.
        ping_count: u64,
    }
}
message! {
    /// Messages between the lanes of the server (docs/protocol.md §12.2).
    #[derive(Default)]
    PeerCounts {
        /// Messages sent, acknowledgements and repetitions apart.
        sent_count: u64,
        /// Messages sent again because they were not acknowledged in time.
        resent_count: u64,
        /// Messages received again, and dropped.
        repeated_count: u64,
        /// Messages refused because they, or an earlier one of their sender, did not decode: a bug.
        refused_count: u64,
    }
}
message! {
    /// Reply gating: deferred replies and the log (docs/protocol.md §6, §7).
    #[derive(Default)]
    ReplyGatingCounts {
        /// Deferred for a change of the same client whose reply it may not have.
        deferred_own_count: u64,
        /// Deferred for another client's change.
        deferred_foreign_count: u64,
        /// Deferred because of the data they show ([`crate::Op::Stats`]: `--share strict`).
        deferred_strict_count: u64,
        /// Deferred for their own change: requested, or of a kind that is never acknowledged early.
        deferred_self_count: u64,
        /// Deferred replies examined when batches became durable: equal to the number of deferred
        /// ones.
        released_count: u64,
        /// Replies sent with a redo token.
        token_count: u64,
        /// Commit notifications sent.
        commit_notification_count: u64,
    }
}
message! {
    /// Reads and writes of files' contents at the disk (`serve --io-engine`).
    #[derive(Default)]
    ObjectCounts {
        /// Executed by another thread of the process.
        handed_count: u64,
        /// Threads started for them.
        thread_count: u64,
        /// Most operations in flight at a time, on any thread.
        under_way_max: u64,
        /// Most operations in flight on one file.
        under_way_one_max: u64,
        /// Times that contents did not match what was recorded.
        damage_count: u64,
    }
}
message! {
    /// Recovery (docs/protocol.md §9).
    #[derive(Default)]
    RecoveryCounts {
        /// Clients that the recovery waited for.
        known_count: u64,
        /// Clients among them that returned and replayed everything.
        returned_count: u64,
        /// Clients evicted, in recovery or later.
        evicted_count: u64,
        /// Replays executed.
        replayed_count: u64,
        /// Replays of changes that were already durable.
        already_durable_count: u64,
        /// Replays whose versions did not match.
        rejected_count: u64,
        /// Replays with a token that this store never signed.
        forged_count: u64,
        /// Clients with changes that were acknowledged as durable and are missing.
        lost_durable_count: u64,
        /// Its duration, in milliseconds.
        recovery_ms: u64,
    }
}
