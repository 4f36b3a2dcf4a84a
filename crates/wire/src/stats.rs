//! The counters of a lane, as they travel.

use crate::codec::{Flaw, Reader, Wire, Writer};
use crate::message::message;

message! {
    /// Reply of [`crate::Op::Stats`], which has an empty body.
    Stats {
        /// Requests answered since the start.
        request_count: u64,
        /// Of them, those that changed something.
        change_count: u64,
        /// Batches made durable.
        batch_count: u64,
        /// Replies that waited for a batch.
        held_count: u64,
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
        /// Processor time of the whole process, in user space and in the kernel: every lane of a
        /// server says the same, and so with the next two.
        cpu_ns: u64,
        /// Times that a thread of the process went to sleep.
        voluntary_switch_count: u64,
        /// Times that a thread of the process had to give its core to others.
        involuntary_switch_count: u64,
        /// System calls that this lane made.
        syscall_count: u64,
        /// Clock readings of this lane.
        clock_read_count: u64,
        /// Letters from this lane to its peer lanes.
        message_out_count: u64,
        /// Sends of this lane, each of all that a turn had for a connection.
        send_count: u64,
        /// Times that this lane looked out for more work before it would have slept.
        spin_count: u64,
        /// Of them, those that found some.
        spin_hit_count: u64,
        /// The longest turn of this lane behind which something waited, in nanoseconds.
        turn_ns_max: u64,
        /// Replies that waited, by reason, and what was told instead of waiting.
        gates: GateCounts,
        /// The recovery of this boot and what came of it.
        recovery: RecoveryCounts,
        /// Reads and writes of files' contents, and who did them.
        objects: ObjectCounts,
    }
}
message! {
    /// Replies and the log (PROTOCOL.md §1, §6).
    #[derive(Default)]
    GateCounts {
        /// Waited for a change of the same client whose reply it may not have.
        held_own_count: u64,
        /// Waited for another client's change.
        held_foreign_count: u64,
        /// Waited because of what they show ([`crate::Op::Stats`]: `--share strict`).
        held_strict_count: u64,
        /// Waited for their own change: asked for, or of a kind that is never told before.
        held_self_count: u64,
        /// Looked at when batches became durable: as many as waited.
        released_count: u64,
        /// Left with a redo token.
        token_count: u64,
        /// Notes sent.
        note_count: u64,
    }
}
message! {
    /// Reads and writes of files' contents at the disk (`serve --io-engine`).
    #[derive(Default)]
    ObjectCounts {
        /// Given to another thread of the process.
        handed_count: u64,
        /// Threads that were started for it.
        thread_count: u64,
        /// Most that were under way at a time, whoever did them.
        under_way_max: u64,
        /// The same, of one file.
        under_way_one_max: u64,
        /// Times that contents were not as they were recorded.
        damage_count: u64,
    }
}
message! {
    /// Recovery (PROTOCOL.md §11).
    #[derive(Default)]
    RecoveryCounts {
        /// Clients that were waited for.
        known_count: u64,
        /// Of them, those that came and replayed everything.
        back_count: u64,
        /// Clients evicted, in recovery or later.
        evicted_count: u64,
        /// Replays executed.
        replayed_count: u64,
        /// Replays that were durable before.
        already_count: u64,
        /// Replays that did not fit.
        unfit_count: u64,
        /// Replays that this store never signed.
        forged_count: u64,
        /// Clients that were told of changes as durable which are not there.
        went_back_count: u64,
        /// How long it took, in milliseconds.
        recovery_ms: u64,
    }
}
