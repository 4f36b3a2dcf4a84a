//! How a mount ends: no request is begun that needs the server, those in flight are answered, what was
//! changed is made durable, and the server is told.
//!
//! A lane that says Goodbye gives up the leases under which any lane of the mount changes names and files
//! behind. So none does before all lanes have ended what they have under way.
//!
//! ```text
//! serving ─ stop ─▶ ending ─ all answered, or 5 s ─▶ syncing ─ durable, or lost ─▶ goodbye ─▶ stopped
//! ```

use crate::call_ids::{GOODBYE_CALL, SYNC_CALL, call_id};
use crate::lane::{MountLane, MountState, log};
use alloc::vec::Vec;
use client::{Answer, Call};
use interface::{Action, LogLevel, Span, Turn};
use wire::Status;

/// The time limit for requests in flight after a stop.
const END_MS_MAX: u64 = 5_000;

/// How long a stop waits for a server that is away, to make answered changes durable.
const AWAY_NS_MAX: u64 = 60_000_000_000;
/// The time limit of the Goodbye.
const GOODBYE_MS_MAX: u64 = 2_000;
/// How often a lane looks whether the others have ended.
const LANES_MS: u64 = 5;
/// How often a stop checks whether the server is still away.
const CHECK_MS: u64 = 1_000;

impl MountLane {
    /// A stop was requested, or the mount was removed.
    pub(crate) fn on_stop(&mut self, turn: &mut Turn<'_>) {
        if self.state == MountState::Serving {
            let until = turn.now.mono.after_ms(END_MS_MAX);
            self.state = MountState::Ending { until };
            self.client.forget_all_kept();
            // The locks that they wait for may never be released.
            for pending_id in self.pendings.lock_waits().collect::<Vec<_>>() {
                self.abandon(turn, pending_id);
            }
        }
    }

    /// Ends when all requests are answered and all handles closed, or at the time limit.
    pub(crate) fn try_to_end(&mut self, turn: &mut Turn<'_>) {
        let MountState::Ending { until } = self.state else { return };
        let idle =
            self.pendings.count() == 0 && self.client.busy_count() == 0 && self.behind.is_idle();
        let lane_count = self.client.lane_count();
        let are_others_idle = self.behind.table.as_ref().is_none_or(|table| {
            if idle {
                table.note_idle(self.client.lane());
            }
            table.are_all_idle(lane_count)
        });
        if !(idle && are_others_idle) && turn.now.mono < until {
            let at = if idle { until.min(turn.now.mono.after_ms(LANES_MS)) } else { until };
            turn.act(Action::WakeAt { at });
            return;
        }
        for pending_id in self.pendings.all() {
            // The data of a WRITE end with the reply.
            self.client.give_up(turn, call_id(pending_id));
            self.ahead.end_wait_of(pending_id);
            self.reply(turn, pending_id, Status::NotConnected, Span::default(), None);
        }
        self.state = MountState::Syncing;
        self.client.call(turn, SYNC_CALL, Call::SyncAll);
    }

    /// The SyncAll was answered: changes are durable, or lost.
    pub(crate) fn on_synced(&mut self, turn: &mut Turn<'_>, result: Result<Answer, Status>) {
        if self.state != MountState::Syncing {
            return;
        }
        if result.is_err() {
            log(turn, LogLevel::Alarm, "something that was written is lost with the server");
        }
        if !self.client.is_connected() {
            self.stop(turn);
            return;
        }
        self.state = MountState::Goodbye { until: turn.now.mono.after_ms(GOODBYE_MS_MAX) };
        self.client.call(turn, GOODBYE_CALL, Call::Goodbye);
    }

    /// Applies the time limits of the last steps.
    pub(crate) fn check_end(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.mono;
        match self.state {
            MountState::Serving | MountState::Ending { .. } | MountState::Stopped => {}
            MountState::Syncing => {
                let away_ns = self.client.waiting_since().map_or(0, |since| now.since_ns(since));
                if away_ns < AWAY_NS_MAX {
                    turn.act(Action::WakeAt { at: now.after_ms(CHECK_MS) });
                    return;
                }
                let line = "the server stays away: what it had not yet made durable may be lost";
                log(turn, LogLevel::Alarm, line);
                self.stop(turn);
            }
            MountState::Goodbye { until } if now < until => turn.act(Action::WakeAt { at: until }),
            MountState::Goodbye { .. } => self.stop(turn),
        }
    }

    /// The lane ends.
    pub(crate) fn stop(&mut self, turn: &mut Turn<'_>) {
        self.state = MountState::Stopped;
        turn.act(Action::Stopped);
    }
}
