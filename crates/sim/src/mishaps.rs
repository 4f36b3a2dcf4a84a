//! What goes wrong, and the workload that it meets.

use crate::net::{End, Parcel};
use crate::number::{low_u8, wide};
use crate::plan::Planted;
use crate::work::{Asked, Kind, Stride, Wish};
use crate::world::{Due, Mishap, Place, World};
use interface::ConnId;
use wire::{FileKind, InodeNo, OpenFor};

/// So many reads, and writes that are no appends, are about one of several places.
const LIST_ONE_IN: u64 = 3;

impl World {
    /// Puts all faults of the plan on the agenda.
    pub(crate) fn plan_mishaps(&mut self) {
        let faults = &self.plan.faults;
        let counts = [
            (Mishap::ServerCrash, faults.server_crash_count),
            (Mishap::ClientCrash, faults.client_crash_count),
            (Mishap::Cut, faults.cut_count),
            (Mishap::Partition, faults.partition_count),
            (Mishap::Pause, faults.pause_count),
            (Mishap::Clock, faults.clock_count),
            (Mishap::Interrupt, faults.interrupt_count),
        ];
        for (mishap, count) in counts {
            for _ in 0..count {
                let at_ns = self.now_ns + self.dice.throw() % (self.plan.faults_ns * 2);
                self.put(at_ns, Due::Mishap(mishap));
            }
        }
    }

    pub(crate) fn mishap(&mut self, mishap: Mishap) {
        if self.calm {
            return;
        }
        match mishap {
            Mishap::ServerCrash => {
                let alive_count = self.mounts.iter().filter(|mount| mount.alive).count();
                if self.plan.dies_along && alive_count > 1 {
                    let client = self.choose(self.mounts.len());
                    self.crash_client(client);
                }
                self.crash_server();
            }
            Mishap::ClientCrash => {
                let client = self.choose(self.mounts.len());
                self.crash_client(client);
            }
            Mishap::Cut => {
                let busy = |conn: &crate::net::Conn| !conn.cut && conn.in_flight_count() > 0;
                let all: Vec<ConnId> = self.conns.keys().copied().collect();
                let mut open: Vec<ConnId> =
                    self.conns.iter().filter(|(_, conn)| busy(conn)).map(|(id, _)| *id).collect();
                if open.is_empty() {
                    open = all;
                }
                if let Some(conn) = self.dice.pick(&open) {
                    self.tell(|| format!("cut of {conn:?}"));
                    self.cut(conn);
                }
            }
            Mishap::Partition => self.part(),
            Mishap::Pause => self.pause(),
            Mishap::Clock => {
                let jump_ns = self.dice.span_ns(50_000_000_000);
                let back = self.dice.one_in(2);
                self.wall_skew_ns = if back {
                    self.wall_skew_ns.saturating_sub(jump_ns)
                } else {
                    self.wall_skew_ns + jump_ns
                };
            }
            Mishap::Interrupt => self.interrupt_some(),
        }
    }

    /// A client process dies and never comes back.
    pub(crate) fn crash_client(&mut self, client: usize) {
        let mount = &mut self.mounts[client];
        if !std::mem::replace(&mut mount.alive, false) {
            return;
        }
        self.tell(|| format!("client {client}: crash"));
        for conn in self.conns_of(client) {
            self.end_gone(conn, End::Client);
        }
    }

    fn conns_of(&self, client: usize) -> Vec<ConnId> {
        let ours = self.conns.iter().filter(|(_, conn)| conn.client == client);
        ours.map(|(id, _)| *id).collect()
    }

    /// A client and the server cannot reach each other for a while.
    fn part(&mut self) {
        const LONG_NS: u64 = 90_000_000_000;
        let client = self.choose(self.mounts.len());
        let span_ns = match self.dice.throw() % 3 {
            0 => self.dice.throw() % LONG_NS,
            _ => self.dice.throw() % (self.plan.faults_ns + 1),
        };
        self.keep_away(Some(client), span_ns);
        self.mounts[client].parted_until_ns = self.now_ns + span_ns;
        self.tell(|| format!("client {client}: partition of {} us", span_ns / 1000));
        for conn in self.conns_of(client) {
            self.cut(conn);
        }
    }

    /// A lane does not get to run for a while.
    fn pause(&mut self) {
        const LONG_NS: u64 = 20_000_000_000;
        let span_ns = match self.dice.throw() % 4 {
            0 => self.dice.throw() % LONG_NS,
            _ => self.dice.throw() % (self.plan.faults_ns + 1),
        };
        let lanes = self.server.seats.len();
        let place = if self.dice.one_in(2) && lanes > 0 {
            Place::Server(self.choose(lanes))
        } else {
            let client = self.choose(self.mounts.len());
            Place::Client(client, self.dice.below(self.mounts[client].seats.len()))
        };
        let client = if let Place::Client(client, _) = place { Some(client) } else { None };
        self.keep_away(client, span_ns);
        self.tell(|| format!("{place:?}: pause of {} us", span_ns / 1000));
        let until_ns = self.now_ns + span_ns;
        if let Some(desk) = self.desk(place) {
            desk.paused_until_ns = until_ns;
        }
    }

    fn interrupt_some(&mut self) {
        let client = self.choose(self.mounts.len());
        let lane = self.dice.below(self.mounts[client].seats.len());
        let seat = &mut self.mounts[client].seats[lane];
        let tags: Vec<u32> = seat.outstanding.keys().copied().collect();
        if let Some(tag) = self.dice.pick(&tags) {
            self.asked[crate::number::narrow(u64::from(tag)) - 1].interrupted = true;
            self.mounts[client].seats[lane].interrupts.push(tag);
            self.call(Place::Client(client, lane));
        }
    }

    /// A client's frame sets out, or meets a fault planted into this world.
    pub(crate) fn send_up(&mut self, conn: ConnId, parcel: Parcel) {
        let resent = matches!(
            wire::Header::decode(&parcel.frame),
            Ok((wire::Header::Request(request), _))
                if request.flags & wire::request_flag::RESENT != 0
        );
        if resent && self.plan.planted == Some(Planted::LostResend) {
            return;
        }
        self.send(conn, End::Server, parcel);
    }

    // ---- the workload ----

    /// A client lane may ask for something.
    pub(crate) fn think(&mut self, client: usize, lane: usize) {
        let asked_count = wide(self.asked.len());
        let alive = self.mounts[client].alive;
        let busy = self.mounts[client].seats[lane].outstanding.len() >= self.plan.depth;
        if !alive || self.calm || asked_count >= self.plan.call_count || busy {
            return;
        }
        let Some(wish) = self.wish(client) else {
            return self.put_in(self.plan.speeds.think_ns, Due::Think { client, lane });
        };
        if let Wish::Close { handle } = wish {
            self.mounts[client].handles.retain(|(open, ..)| *open != handle);
        }
        let tag = self.ask(client, lane, wish);
        let asked: Asked = self.asked[self.asked.len() - 1].clone();
        self.note_deed(tag, &asked);
        self.put_in(self.plan.speeds.think_ns, Due::Think { client, lane });
    }

    fn wish(&mut self, client: usize) -> Option<Wish> {
        let total: u64 = self.plan.mix.iter().map(|(_, weight)| weight).sum();
        let mut at = self.dice.throw() % total.max(1);
        let mix = self.plan.mix.clone();
        let (kind, _) = mix.iter().find(|(_, weight)| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        })?;
        self.wish_of_names(*kind).or_else(|| self.wish_of_inode(*kind, client))
    }

    fn wish_of_names(&mut self, kind: Kind) -> Option<Wish> {
        let parent = self.some_directory();
        let name = self.choose(self.plan.name_count);
        let mode = self.some_mode();
        match kind {
            Kind::Create => {
                let open_for = self.some_open_for();
                let open = self.dice.one_in(2).then_some(open_for);
                let exclusive = self.dice.one_in(2);
                Some(Wish::Create { parent, name, mode, exclusive, open })
            }
            Kind::Mkdir => Some(Wish::Mkdir { parent, name, mode: mode | 0o100 }),
            Kind::Symlink => Some(Wish::Symlink { parent, name }),
            Kind::Unlink => Some(Wish::Unlink { parent, name }),
            Kind::Rmdir => Some(Wish::Rmdir { parent, name }),
            Kind::Rename => {
                let to = (self.some_directory(), self.choose(self.plan.name_count));
                let no_replace = self.dice.one_in(4);
                Some(Wish::Rename { from: (parent, name), to, no_replace })
            }
            Kind::Lookup => Some(Wish::Lookup { parent, name }),
            Kind::Link => {
                let inode = self.some_inode();
                Some(Wish::Link { inode, parent, name })
            }
            Kind::Readdir => Some(Wish::Readdir { inode: parent, cookie: 0 }),
            Kind::Setattr
            | Kind::Resize
            | Kind::Setxattr
            | Kind::Removexattr
            | Kind::Getattr
            | Kind::Readlink
            | Kind::Open
            | Kind::Close
            | Kind::Read
            | Kind::Write
            | Kind::Sync
            | Kind::Getxattr => None,
        }
    }

    fn wish_of_inode(&mut self, kind: Kind, client: usize) -> Option<Wish> {
        let inode = self.some_inode();
        let name = self.dice.below(2);
        let handle = self.dice.pick(&self.mounts[client].handles);
        let most = self.plan.write_bytes_max;
        match kind {
            Kind::Setattr => {
                let mode = self.some_mode();
                Some(Wish::Setattr { inode, mode })
            }
            Kind::Setxattr => Some(Wish::Setxattr { inode, name }),
            Kind::Removexattr => Some(Wish::Removexattr { inode, name }),
            Kind::Getattr => Some(Wish::Getattr { inode }),
            Kind::Readlink => Some(Wish::Readlink { inode }),
            Kind::Getxattr => Some(Wish::Getxattr { inode, name }),
            Kind::Open => {
                let open_for = self.some_open_for();
                self.some_file().map(|inode| Wish::Open { inode, open_for })
            }
            Kind::Close => {
                let (handle, inode, _) = handle?;
                (!self.is_in_use(client, inode)).then_some(Wish::Close { handle })
            }
            Kind::Sync => {
                let (inode, kind) = self.dice.pick(&self.seen)?;
                Some(Wish::Sync { inode, contents: kind == FileKind::File })
            }
            Kind::Resize => {
                let size_bytes = self.dice.throw() % (most + 1);
                let inode = self.some_file()?;
                Some(Wish::Resize { inode, size_bytes, open_for_write: false })
            }
            Kind::Read => {
                let (_, inode, _) = handle?;
                let (file_offset, read_bytes) = (self.dice.throw() % (most + 1), 4096);
                if file_offset.is_multiple_of(LIST_ONE_IN) {
                    let stride = Stride::of(file_offset / 4, file_offset.max(8));
                    return Some(Wish::ReadList { inode, stride });
                }
                Some(Wish::Read { inode, file_offset, read_bytes })
            }
            Kind::Write => {
                let (_, inode, _) = handle.filter(|(_, _, write)| *write)?;
                self.write_count += 1;
                let file_offset = self.dice.throw() % (most + 1);
                let append = self.dice.one_in(2);
                let write_bytes = 1 + self.dice.throw() % most;
                let value = low_u8(1 + (self.write_count - 1) % 255);
                let sync = self.dice.one_in(8);
                if !append && file_offset.is_multiple_of(LIST_ONE_IN) {
                    let stride = Stride::of(file_offset, write_bytes);
                    return Some(Wish::WriteList { inode, stride, value, sync });
                }
                Some(Wish::Write { inode, file_offset, append, write_bytes, value, sync })
            }
            Kind::Create
            | Kind::Mkdir
            | Kind::Symlink
            | Kind::Link
            | Kind::Unlink
            | Kind::Rmdir
            | Kind::Rename
            | Kind::Lookup
            | Kind::Readdir => None,
        }
    }

    /// Whether calls about a file's bytes are under way; a face closes only behind them.
    fn is_in_use(&self, client: usize, file: InodeNo) -> bool {
        let seats = self.mounts[client].seats.iter();
        let tags = seats.flat_map(|seat| seat.outstanding.keys());
        tags.filter_map(|tag| self.asked(*tag)).any(|asked| match asked.wish {
            Wish::Write { inode, .. }
            | Wish::Read { inode, .. }
            | Wish::ReadList { inode, .. }
            | Wish::WriteList { inode, .. } => inode == file,
            _ => false,
        })
    }

    /// Permission bits; root may do everything anyway.
    fn some_mode(&mut self) -> u32 {
        0o600 | u32::from(low_u8(self.dice.throw() % 64))
    }

    fn some_open_for(&mut self) -> OpenFor {
        if self.dice.one_in(2) { OpenFor::ReadWrite } else { OpenFor::Read }
    }

    fn some_directory(&mut self) -> InodeNo {
        let kinds = [FileKind::Directory];
        if self.dice.one_in(2) { InodeNo::ROOT } else { self.some(&kinds).unwrap_or(InodeNo::ROOT) }
    }

    fn some_file(&mut self) -> Option<InodeNo> {
        self.some(&[FileKind::File])
    }

    fn some_inode(&mut self) -> InodeNo {
        let kinds = [FileKind::File, FileKind::Directory, FileKind::Symlink];
        self.some(&kinds).unwrap_or(InodeNo::ROOT)
    }

    /// One of the latest inodes of these kinds that anybody saw.
    fn some(&mut self, kinds: &[FileKind]) -> Option<InodeNo> {
        let fitting = self.seen.iter().rev().filter(|(_, kind)| kinds.contains(kind));
        let latest: Vec<InodeNo> =
            fitting.take(self.plan.choice_count).map(|(inode, _)| *inode).collect();
        self.dice.pick(&latest)
    }
}
