//! A newer map: another server has joined, or restarted under another term or address. Shards do
//! not move, so what this lane has stays.

use crate::Lane;
use crate::config::Config;
use crate::request::ReceivedRequest;
use crate::response::Response;
use alloc::vec::Vec;
use core::cmp::Ordering;
use interface::{ConnId, LogLevel, Mono, NetAction, Span, Turn};
use wire::{Header, Map, Request, Route, ServerId, Status, Wire as _, request_flag};

impl Lane {
    /// The runtime has learnt of a map.
    pub(crate) fn on_map(&mut self, turn: &mut Turn<'_>, map: Span) {
        let Ok(map) = Map::decode_all(turn.arena.get(map)) else {
            return self.log(turn, LogLevel::Alarm, "bug: a map does not decode");
        };
        if !map.is_newer_than(&self.config.map) {
            return;
        }
        if !self.keeps_own(&map) {
            let line = "a map gives this lane other shards or terms than it has: it is not used";
            return self.log(turn, LogLevel::Alarm, line);
        }
        let known = &self.config.map;
        let moved = known.servers().iter().filter(|row| {
            map.lane_count(row.id).is_some_and(|lane_count| lane_count != row.lane_count)
        });
        let moved: Vec<ServerId> = moved.map(|row| row.id).collect();
        self.config.map = map.clone();
        self.lacks_map_since = None;
        self.recovery.on_map(map.epoch(), turn.now.mono);
        if map.generation() > 0 {
            self.metas.iter_mut().for_each(|shard| shard.use_generation(map.generation()));
        }
        let part_counts = map.part_counts();
        self.metas.iter_mut().for_each(|shard| shard.set_part_counts(part_counts.clone()));
        self.data.set_map(map);
        self.run_early_sizings(turn);
        self.run_early_parts(turn);
        self.run_early_removals(turn);
        moved.into_iter().for_each(|server| self.end_links_to(turn, server));
        self.renew_links(turn);
        self.tell_map(turn);
    }

    /// Why a request does not belong here, and the body of the answer: its client has another map,
    /// or another server or lane has the shard.
    pub(crate) fn check_route(&self, request: &Request) -> Option<(Status, Vec<u8>)> {
        let Config { map, server, lane, .. } = &self.config;
        match request.map_epoch.cmp(&map.epoch()) {
            Ordering::Less => return Some((Status::StaleMap, map.to_bytes())),
            // This server will have that map sooner or later.
            Ordering::Greater => return Some((Status::RetryLater, Vec::new())),
            Ordering::Equal => {}
        }
        if request.op.row().route == Route::Lane {
            return None;
        }
        let place = map.place(request.shard);
        if place.server != *server {
            return Some((Status::StaleMap, map.to_bytes()));
        }
        (place.lane != *lane).then_some((Status::WrongLane, Vec::new()))
    }

    /// Answers a request that belongs elsewhere, or that came by another map.
    pub(crate) fn refuse_route(
        &mut self,
        turn: &mut Turn<'_>,
        received: &ReceivedRequest<'_>,
        response: &Response<'_>,
    ) {
        let (conn, request) = (received.conn, received.request);
        let mut response = *response;
        let known = self.config.map.epoch();
        if request.map_epoch != known {
            self.on_other_epoch(turn, received.open.client, request.map_epoch);
        }
        if request.map_epoch > known {
            response.retry_after_ms = self.map_after_ms(turn.now.mono);
        }
        if request.op.row().is_answered_at_once() {
            self.send_reply(turn, conn, &received.header(), &response);
        } else {
            self.send(turn, conn, &received.header(), &response);
        }
        if request.flags & request_flag::REPLAY != 0 {
            // The ReplayDone that follows it may not count without it.
            self.close(turn, conn);
        }
    }

    /// When a request is to be sent again that names a newer map: the longer that is missing, the later.
    fn map_after_ms(&mut self, now: Mono) -> u32 {
        const MS_MAX: u64 = 500;
        let since = *self.lacks_map_since.get_or_insert(now);
        let after_ms = now.since_ns(since) / 1_000_000 / 4;
        u32::try_from(after_ms.min(MS_MAX)).unwrap_or(0)
    }

    /// Whether this server has the same lanes and shards, in the same terms, and files lie where they
    /// did.
    fn keeps_own(&self, map: &Map) -> bool {
        let (known, me) = (&self.config.map, self.config.server);
        let same_lanes = map.lane_count(me) == known.lane_count(me);
        let same_place = |shard| {
            let was = known.has(shard).then(|| known.place(shard));
            let was = was.filter(|was| was.server == me);
            was == Some(map.place(shard)).filter(|is| is.server == me)
        };
        map.extends(known) && same_lanes && map.shard_counts().shards().all(same_place)
    }

    /// Tells all clients, so that those without a request also find a server that has restarted.
    fn tell_map(&self, turn: &mut Turn<'_>) {
        let mut conns: Vec<ConnId> = self.connections.all_open().map(|(conn, _)| conn).collect();
        conns.sort_unstable();
        let map = &self.config.map;
        for conn in conns {
            let encode = |out: &mut Vec<u8>| Header::MapNote.encode(out, None, |to| to.write(map));
            let frame = turn.arena.write(encode);
            turn.act(NetAction::Send { conn, frame, bulk: None });
        }
    }
}
