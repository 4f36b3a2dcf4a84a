//! Client processes: their lanes' turns, the calls they make and the answers they get.

use crate::bytes::{Deed, Done, Found, explain};
use crate::desk::Desk;
use crate::net::{End, Parcel};
use crate::number::{narrow, narrow_u16, narrow_u32, wide};
use crate::work::{Asked, Brought, Ended, Tag, Wish};
use crate::world::{Due, Place, World};
use client::{Answer, CallId, Client, Config};
use interface::{Action, Bulk, Event, NetAction, NetEvent, PeerAction, PeerEvent, Turn};
use std::collections::BTreeMap;
use wire::{ClientUuid, HandleId, InodeNo, LaneId, Listing, OpenFor, Piece, Status, Wire};

/// A client lane.
pub(crate) struct ClientSeat {
    pub(crate) core: Client,
    pub(crate) desk: Desk,
    /// Calls without an answer, with the buffer of a write.
    pub(crate) outstanding: BTreeMap<Tag, Option<Bulk>>,
    /// Calls to begin with the next turn.
    pub(crate) wishes: Vec<Tag>,
    pub(crate) interrupts: Vec<Tag>,
    /// The server's process that the frames of this turn came from, the oldest.
    heard_life: u64,
}

/// A client process.
pub(crate) struct Mount {
    pub(crate) uuid: ClientUuid,
    pub(crate) alive: bool,
    pub(crate) parted_until_ns: u64,
    /// When the server last said that it went on without it.
    pub(crate) evicted_ns: Option<u64>,
    /// It was kept away for longer than a server waits, and may not have heard yet that others went
    /// on without it.
    pub(crate) was_late: bool,
    pub(crate) seats: Vec<ClientSeat>,
    /// Handles open and not being closed: which, of what, for writing.
    pub(crate) handles: Vec<(HandleId, InodeNo, bool)>,
    /// What it reads is the audit's, not the workload's.
    pub(crate) audits: bool,
}

/// What an answer carried beside its numbers.
#[derive(Clone, Default, Debug)]
pub(crate) struct Carried {
    pub(crate) bytes: Vec<u8>,
    /// Of a list: how long its file was.
    pub(crate) size_bytes: u64,
}

impl World {
    /// A new client process.
    pub(crate) fn mount(
        &mut self,
        lane_count: usize,
        audits: bool,
        predecessor: ClientUuid,
    ) -> usize {
        let client = self.mounts.len();
        let uuid = ClientUuid(self.dice.bytes());
        let seats = (0..lane_count)
            .map(|lane| {
                let config = Config {
                    client: uuid,
                    lane: LaneId(narrow_u16(lane)),
                    lane_count: narrow_u16(lane_count),
                    secrets: self.rotation.given,
                    export: Vec::new(),
                    purpose: wire::Purpose::Use,
                    root: None,
                    host_id: uuid.0,
                    host_boot_id: uuid.0,
                    predecessor,
                    seed: self.dice.bytes(),
                    calls_max: 64,
                    handles_max: 64,
                    replay_bytes_max: 64 << 20,
                    rules: crate::rules::of_run(self.plan.planted),
                };
                ClientSeat {
                    core: Client::new(config),
                    desk: Desk::default(),
                    outstanding: BTreeMap::new(),
                    wishes: Vec::new(),
                    interrupts: Vec::new(),
                    heard_life: 0,
                }
            })
            .collect();
        self.mounts.push(Mount {
            uuid,
            alive: true,
            parted_until_ns: 0,
            evicted_ns: None,
            was_late: false,
            seats,
            handles: Vec::new(),
            audits,
        });
        client
    }

    /// A client lane asks for something.
    pub(crate) fn ask(&mut self, client: usize, lane: usize, wish: Wish) -> Tag {
        let tag = narrow_u32(self.asked.len() + 1);
        self.tell(|| format!("client {client}.{lane}: {tag} {wish:?}"));
        self.asked.push(Asked {
            client,
            wish,
            began_ns: self.now_ns,
            began_life: self.server.life,
            ended_life: 0,
            ended_ns: None,
            ended: Ended::Open,
            interrupted: false,
        });
        let seat = &mut self.mounts[client].seats[lane];
        seat.outstanding.insert(tag, None);
        seat.wishes.push(tag);
        self.call(Place::Client(client, lane));
        tag
    }

    /// A client lane takes a turn.
    pub(crate) fn client_turn(&mut self, client: usize, lane: usize, events: Vec<Event>) {
        let now = self.now();
        self.mounts[client].seats[lane].heard_life = self.server.life;
        for event in &events {
            if let Event::Net(NetEvent::Frame { conn, frame, .. }) = event {
                let life = self.conns.get(conn).map_or(0, |conn| conn.server_life);
                let seat = &mut self.mounts[client].seats[lane];
                seat.heard_life = seat.heard_life.min(life);
                let frame = seat.desk.arena.get(*frame).to_vec();
                self.tap.on_reply(&frame, self.now_ns);
                if let Err(line) = self.lies.on_frame((client, lane), &frame) {
                    self.breaks(line);
                }
            }
        }
        let seat = &mut self.mounts[client].seats[lane];
        let mut actions = Vec::new();
        let mut arena = std::mem::take(&mut seat.desk.arena);
        let mut turn = Turn { now, arena: &mut arena, actions: &mut actions };
        for event in events {
            seat.core.apply(&mut turn, event);
        }
        for tag in std::mem::take(&mut seat.interrupts) {
            seat.core.interrupt(&mut turn, CallId(u64::from(tag)));
        }
        for tag in std::mem::take(&mut seat.wishes) {
            let wish = self.asked[narrow(u64::from(tag)) - 1].wish;
            let bulk = written(&wish).map(|bytes| seat.desk.bufs.put(bytes));
            seat.outstanding.insert(tag, bulk);
            wish.with(tag, bulk, |id, call| seat.core.call(&mut turn, id, call));
        }
        let mut came = Vec::new();
        loop {
            let before = came.len();
            seat.core.settle(&mut turn);
            while let Some((id, result)) = seat.core.next_answer() {
                let carried = carried(&result, &turn, &mut seat.desk);
                came.push((id, result, carried));
            }
            if came.len() == before {
                break;
            }
        }
        let reports = seat.core.take_reports();
        for action in actions {
            self.client_acts(client, lane, action, &arena);
        }
        for report in &reports {
            self.on_report((client, lane), report);
        }
        self.mounts[client].seats[lane].desk.arena = arena;
        for (id, result, carried) in came {
            self.answered(client, lane, id, (&result, carried));
        }
    }

    fn client_acts(
        &mut self,
        client: usize,
        lane: usize,
        action: Action,
        arena: &interface::Arena,
    ) {
        let place = Place::Client(client, lane);
        let seat = &mut self.mounts[client].seats[lane];
        match action {
            Action::Net(NetAction::Connect { ticket }) => {
                let (mean_ns, life) = (self.plan.speeds.request_ns, self.life(place));
                self.put_in(mean_ns, Due::Connect { client, lane, life, ticket });
            }
            Action::Net(NetAction::Send { conn, frame, bulk }) => {
                let frame = arena.get(frame).to_vec();
                let bulk = bulk.and_then(|bulk| seat.desk.bufs.get(bulk));
                self.tap.on_request(&frame, self.now_ns);
                if let Err(line) = self.lies.on_request((client, lane), &frame) {
                    self.breaks(line);
                }
                self.send_up(conn, Parcel { frame, bulk });
            }
            Action::Net(NetAction::Close { conn }) => self.close(conn, End::Client),
            Action::Peer(PeerAction::Message { to, message }) => {
                let to = usize::from(to.0);
                let event =
                    Event::Peer(PeerEvent::Message { from: LaneId(narrow_u16(lane)), message });
                if to < self.mounts[client].seats.len() {
                    self.bring(Place::Client(client, to), crate::desk::Coming::Plain(event));
                }
            }
            Action::Release { buf } => {
                if !seat.desk.bufs.release(buf) {
                    self.breaks(format!("client {client}.{lane}: a buffer is released twice"));
                }
            }
            Action::ReadSecrets => self.read_secrets(place),
            Action::WakeAt { at } => self.ask_wake(place, at),
            Action::Log { line, .. } => {
                let line = String::from_utf8_lossy(arena.get(line)).into_owned();
                self.tell(|| format!("client {client}.{lane} says {line}"));
            }
            Action::Retain { as_buf, bulk } => {
                if !seat.desk.bufs.keep(as_buf, bulk) {
                    self.breaks(format!("client {client}.{lane}: a buffer cannot be kept"));
                }
            }
            Action::Net(NetAction::Admit { .. }) | Action::Point(_) => {}
            Action::Net(NetAction::HandOver { .. } | NetAction::Proxy { .. })
            | Action::Peer(PeerAction::Encoded { .. })
            | Action::Store(_)
            | Action::Recovered
            | Action::Object(_)
            | Action::Usage { .. }
            | Action::Kernel(_)
            | Action::Stopped => {
                self.breaks(format!("a client does not do this: {action:?}"));
            }
        }
    }

    /// A call is answered.
    fn answered(
        &mut self,
        client: usize,
        lane: usize,
        id: CallId,
        (result, carried): (&Result<Answer, Status>, Carried),
    ) {
        let tag = narrow_u32(narrow(id.0));
        self.trace.note(id.0);
        let seat = &mut self.mounts[client].seats[lane];
        let Some(bulk) = seat.outstanding.remove(&tag) else {
            return self.breaks(format!("call {tag} is answered twice"));
        };
        if let Some(bulk) = bulk {
            seat.desk.bufs.release(bulk.buf);
        }
        self.tell(|| format!("client {client}.{lane}: {tag} came to {result:?}"));
        let ended = match result {
            Ok(answer) => Ended::Done(brought(answer)),
            Err(status) => Ended::Failed(*status),
        };
        let now_ns = self.now_ns;
        let life = self.mounts[client].seats[lane].heard_life;
        let asked = &mut self.asked[narrow(u64::from(tag)) - 1];
        asked.ended = ended;
        asked.ended_life = life;
        asked.ended_ns = Some(now_ns);
        let asked = asked.clone();
        self.note_seen(&asked);
        self.note_deed(tag, &asked);
        self.note_sync(&asked);
        self.check_read(&asked, &carried);
        if self.mounts[client].audits {
            self.audited(tag, &asked, &carried);
        } else {
            self.put_in(self.plan.speeds.think_ns, Due::Think { client, lane });
        }
    }

    /// What the answer tells the workload of inodes and handles.
    fn note_seen(&mut self, asked: &Asked) {
        let Some(brought) = asked.brought() else { return };
        if let (Some(inode), Some(kind)) = (brought.inode, brought.kind)
            && self.seen.last() != Some(&(inode, kind))
        {
            self.seen.retain(|(seen, _)| *seen != inode || *seen == InodeNo::ROOT);
            self.seen.push((inode, kind));
        }
        if let (Some(inode), Some(handle)) = (brought.inode, brought.handle) {
            let write = match asked.wish {
                Wish::Create { open, .. } => open.is_some_and(OpenFor::writes),
                Wish::Open { open_for, .. } => open_for.writes(),
                _ => false,
            };
            self.mounts[asked.client].handles.push((handle, inode, write));
        }
    }

    /// What a call does to a file's bytes; noted when it begins and again when it ends.
    pub(crate) fn note_deed(&mut self, tag: Tag, asked: &Asked) {
        let (inode, deeds) =
            match asked.wish {
                Wish::WriteList { inode, value, .. } => {
                    let deed = |piece: Piece| Deed::Write {
                        from: piece.file_offset,
                        write_bytes: u64::from(piece.piece_bytes),
                        value,
                    };
                    (inode, asked.wish.pieces().iter().map(deed).collect())
                }
                Wish::Write { inode, file_offset, append, write_bytes, value, .. } => {
                    let told = asked.brought().and_then(|brought| brought.file_offset);
                    let from = if append { told } else { Some(file_offset) };
                    let deed = from.map_or(Deed::Append { write_bytes, value }, |from| {
                        Deed::Write { from, write_bytes, value }
                    });
                    (inode, vec![deed])
                }
                Wish::Resize { inode, size_bytes, .. } => (inode, vec![Deed::Cut { size_bytes }]),
                _ => return,
            };
        let noted = self.deeds.entry(inode).or_default();
        noted.retain(|(other, _)| *other != tag);
        if !asked.may_have_happened() {
            return;
        }
        // What was interrupted, or failed half-way, may come later than its answer.
        let certain = asked.brought().is_some();
        let ended_ns = asked.ended_ns.filter(|_| certain);
        let began_ns = asked.began_ns;
        noted.extend(
            deeds.into_iter().map(|deed: Deed| (tag, Done { deed, began_ns, ended_ns, certain })),
        );
    }

    /// Bytes that were read are explained by writes, as far as those had ended.
    fn check_read(&mut self, asked: &Asked, carried: &Carried) {
        if asked.brought().is_none() {
            return;
        }
        if let Wish::ReadList { inode, .. } = asked.wish {
            return self.check_list(inode, asked, carried);
        }
        let Wish::Read { inode, file_offset, read_bytes } = asked.wish else { return };
        let deeds: Vec<Done> = self.deeds_of(inode, asked.began_ns);
        let at_end = wide(carried.bytes.len()) < u64::from(read_bytes);
        // Behind the end nothing is known of where the file ends.
        let at_end = at_end && (!carried.bytes.is_empty() || file_offset == 0);
        let found = Found { from: file_offset, bytes: &carried.bytes, at_end };
        if let Err(line) = explain(&deeds, &found)
            && !self.lies.is_any()
            && !self.unprotected.contains(&inode)
        {
            self.breaks(format!("read of inode {inode}: {line}"));
        }
    }

    /// What every piece of a list got, and where the file ended, is explained by writes.
    fn check_list(&mut self, inode: InodeNo, asked: &Asked, carried: &Carried) {
        let deeds: Vec<Done> = self.deeds_of(inode, asked.began_ns);
        let mut rest = &carried.bytes[..];
        let mut explained =
            explain(&deeds, &Found { from: carried.size_bytes, bytes: &[], at_end: true });
        for piece in asked.wish.pieces().iter() {
            let got_bytes = narrow(u64::from(piece.within(carried.size_bytes)));
            let (bytes, behind) = rest.split_at(got_bytes.min(rest.len()));
            rest = behind;
            let found = Found { from: piece.file_offset, bytes, at_end: false };
            explained = explained.and_then(|()| explain(&deeds, &found));
        }
        if let Err(line) = explained
            && !self.lies.is_any()
            && !self.unprotected.contains(&inode)
        {
            self.breaks(format!("list of inode {inode}: {line}"));
        }
    }

    /// The lanes that wait for answers, in full.
    pub(crate) fn describe_waiting(&self) -> String {
        let mut text = String::new();
        for mount in self.mounts.iter().filter(|mount| mount.alive) {
            for seat in mount.seats.iter().filter(|seat| !seat.outstanding.is_empty()) {
                text.push_str(&format!("{:?} {:#?}\n", seat.desk, seat.core));
            }
        }
        text
    }
}

/// The bytes of a write: all of its value.
fn written(wish: &Wish) -> Option<Vec<u8>> {
    match *wish {
        Wish::Write { write_bytes, value, .. } => Some(vec![value; narrow(write_bytes)]),
        Wish::WriteList { value, .. } => {
            Some(vec![value; narrow(u64::from(wish.pieces().total_bytes()))])
        }
        _ => None,
    }
}

/// Takes an answer's bytes out of its turn, and gives buffers back.
fn carried(result: &Result<Answer, Status>, turn: &Turn<'_>, desk: &mut Desk) -> Carried {
    match result {
        Ok(
            Answer::Target(span)
            | Answer::Listing(span)
            | Answer::Found(span)
            | Answer::Value(span),
        ) => Carried { bytes: turn.arena.get(*span).to_vec(), ..Carried::default() },
        Ok(Answer::Bytes(Some(bulk))) => {
            let bytes = desk.bufs.get(*bulk).unwrap_or_default();
            desk.bufs.release(bulk.buf);
            Carried { bytes, ..Carried::default() }
        }
        Ok(Answer::List { bulk, size_bytes }) => {
            let bytes = bulk.and_then(|bulk| desk.bufs.get(bulk)).unwrap_or_default();
            if let Some(bulk) = bulk {
                desk.bufs.release(bulk.buf);
            }
            Carried { bytes, size_bytes: *size_bytes }
        }
        Ok(
            Answer::Done
            | Answer::Entry(_)
            | Answer::Created { .. }
            | Answer::Opened { .. }
            | Answer::Space(_)
            | Answer::Bytes(None)
            | Answer::Written(_)
            | Answer::Sought(_)
            | Answer::Renamed(_)
            | Answer::LockFound(_)
            | Answer::Stats(_)
            | Answer::Exports(_)
            | Answer::Frozen(_)
            | Answer::Inspected(_),
        )
        | Err(_) => Carried::default(),
    }
}

fn brought(answer: &Answer) -> Brought {
    let none = Brought::default();
    match answer {
        Answer::Entry(attr) => {
            Brought { inode: Some(attr.inode), kind: Some(attr.kind), attr: Some(*attr), ..none }
        }
        Answer::Created { attr, made, handle } => Brought {
            inode: Some(attr.inode),
            kind: Some(attr.kind),
            attr: Some(*attr),
            made: *made,
            handle: *handle,
            ..none
        },
        Answer::Opened { attr, handle } => Brought {
            inode: Some(attr.inode),
            kind: Some(attr.kind),
            attr: Some(*attr),
            handle: Some(*handle),
            ..none
        },
        Answer::Written(written) => Brought { file_offset: Some(written.file_offset), ..none },
        Answer::Done
        | Answer::Target(_)
        | Answer::Listing(_)
        | Answer::Found(_)
        | Answer::Value(_)
        | Answer::Space(_)
        | Answer::Bytes(_)
        | Answer::List { .. }
        | Answer::Sought(_)
        | Answer::Renamed(_)
        | Answer::LockFound(_)
        | Answer::Stats(_)
        | Answer::Exports(_)
        | Answer::Frozen(_)
        | Answer::Inspected(_) => none,
    }
}

/// An entry of a listing: cookie, inode, name.
pub(crate) type Listed = (u64, InodeNo, Vec<u8>);

/// Whether a listing is at its end, and its entries.
pub(crate) fn entries_of(bytes: &[u8]) -> Option<(bool, Vec<Listed>)> {
    let listing = Listing::decode_all(bytes).ok()?;
    let entries = listing.entries.iter();
    let list = entries.map(|entry| (entry.cookie, entry.inode, entry.name.bytes().to_vec()));
    Some((listing.end, list.collect()))
}
