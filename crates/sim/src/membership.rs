//! Servers in their cluster: the product's state machines (`registry::Start`, `Keep`, `Following`, `Own`)
//! whose calls the simulated etcd executes, sooner or later. A server joins by a process of its own,
//! and an administrator drains others.

use crate::cluster::{address_of, id_of};
use crate::due::{Due, Place};
use crate::etcd::{away, now_ms};
use crate::number::narrow_u16;
use crate::plan::MS;
use crate::simulation::Simulation;
use interface::{Event, Span};
use registry::{
    Alive, Answer, Brought, Call, Cluster, Compared, Following, Founding, KEEP_MS, Keep, Known,
    LeaseId, News, Next, Own, RegistryError, Retry, Server, ServerState, Start, Starting, Write,
};
use test_runtime::Incoming;
use wire::{Map, MapEpoch, ShardCounts, Wire as _};

/// The pause of a start that waits for an earlier one.
const LOOK_NS: u64 = 100 * MS;
/// The pause before etcd is asked again that did not answer.
const PAUSE_NS: u64 = 500 * MS;
/// A server sees a change after this time at the latest, if etcd is there.
const WATCH_NS_MAX: u64 = 60_000 * MS;
/// A process whose start has failed is started again after this time, on average.
const RESTART_NS: u64 = 1_000 * MS;
/// The epoch of the first server's last map alone.
const EPOCH_ALONE: MapEpoch = MapEpoch(3);

/// What a process has begun to do in the registry.
#[derive(Default)]
enum Task {
    #[default]
    Nothing,
    /// The server begins a start.
    Start(Box<Start>),
    /// It reads its first map, under a lease.
    FirstMap(LeaseId),
    /// It keeps its lease.
    Keep,
    /// The server joins.
    Join,
    /// The administrator drains a server, or lets it take what is new again.
    Drain(u64),
}

/// A process in the registry.
#[derive(Default)]
pub(crate) struct Member {
    task: Task,
    keep: Option<Keep>,
    following: Option<Following>,
    /// The epoch of the latest map that the lanes have.
    epoch: MapEpoch,
    /// It is about to see what has changed.
    watch_is_due: bool,
    /// What the server's store remembers of the registry.
    known: Known,
}

impl Member {
    /// The process has ended.
    fn end(&mut self) -> Option<LeaseId> {
        let ended = std::mem::take(self);
        self.known = ended.known;
        ended.keep.map(|keep| keep.lease())
    }

    const fn is_busy(&self) -> bool {
        !matches!(self.task, Task::Nothing)
    }
}

impl Simulation {
    /// The first servers are a cluster, and each has begun a start.
    pub(crate) fn begin_cluster(&mut self) {
        let joined = 0..self.joined_count;
        for server in joined.clone() {
            self.begin_start(server);
            let Ok(writes) = self.joined(&self.cluster(), server) else { continue };
            let _made = self.execute_etcd_call(&Call::Swap(writes));
        }
        for server in joined.clone() {
            let mut start = Start::new(self.starting(server));
            let mut answer = None;
            let lease = loop {
                match start.next(0, answer.take()) {
                    Ok(Next::Call(call)) => answer = self.execute_etcd_call(&call).ok(),
                    Ok(Next::Done(lease)) => break lease,
                    Ok(Next::Pause) | Err(_) => {
                        return self.violates(format!("server {server} cannot start first"));
                    }
                }
            };
            self.members[server].keep = Some(Keep::new(self.own(server), lease));
        }
        let cluster = self.cluster();
        joined.for_each(|server| self.begin_life(server, &cluster));
    }

    /// The registry as it is.
    pub(crate) fn cluster(&self) -> Cluster {
        let read = Cluster::read(self.fs_key(), &self.etcd.keys.read());
        #[expect(clippy::expect_used, reason = "all entries are of this version")]
        read.expect("entries of a cluster")
    }

    /// A server's process begins a start in the registry.
    pub(crate) fn begin_in_registry(&mut self, server: usize) {
        let start = Start::new(self.starting(server));
        self.members[server].task = Task::Start(Box::new(start));
        self.go_on(server, None);
    }

    /// Whether a process of a server that is not up is at work.
    pub(crate) fn is_at_work(&self, server: usize) -> bool {
        self.members[server].is_busy()
    }

    /// A server that is not in the cluster begins to join.
    pub(crate) fn begin_join(&mut self, server: usize) {
        if self.plan.etcd.fault_count > 0 {
            self.etcd.copy_before_change();
        }
        self.members[server].task = Task::Join;
        self.go_on(server, None);
    }

    /// The administrator drains a server, if the last command has ended.
    pub(crate) fn begin_drain(&mut self) {
        let administrator = self.servers.len();
        if !self.members[administrator].is_busy() {
            let number = self.etcd.prng.number();
            self.members[administrator].task = Task::Drain(number);
            if self.plan.etcd.fault_count > 0 {
                self.etcd.copy_before_change();
            }
            self.go_on(administrator, None);
        }
    }

    /// A server's process has ended. Its lease may end with it.
    pub(crate) fn end_in_registry(&mut self, server: usize) {
        let lease = self.members[server].end().filter(|_| self.plan.etcd.lease_ends);
        if let Some(lease) = lease {
            self.etcd.keys.end_lease(lease);
            self.on_registry_changed();
        }
    }

    fn own(&self, server: usize) -> Own {
        let boot_id = self.servers[server].boot_id;
        Own { server: id_of(server), alive: Alive { uuid: uuid_of(server), boot_id } }
    }

    fn starting(&self, server: usize) -> Starting {
        let counts = self.counts_of_each();
        let index = narrow_u16(server);
        let first = (index * counts.meta, index * counts.data);
        let at = (address_of(server), self.servers[server].lane_count);
        let (store, known) = (format!("store {server}"), self.members[server].known.clone());
        Starting { own: self.own(server), store, first, at, known }
    }

    /// How many shards each server has.
    fn counts_of_each(&self) -> ShardCounts {
        let count = narrow_u16(self.servers.len());
        let (meta, data) = (self.plan.meta_shard_count, self.plan.data_shard_count);
        ShardCounts { meta: meta / count, data: data / count }
    }

    /// The writes with which a server joins.
    fn joined(&self, cluster: &Cluster, server: usize) -> Result<Vec<Write>, RegistryError> {
        let entry = Server {
            uuid: uuid_of(server),
            weight: 100,
            state: ServerState::Active,
            address: address_of(server),
            lanes: self.servers[server].lane_count,
        };
        let brought = Brought { server: entry, counts: self.counts_of_each() };
        let founding = Founding { layout: self.plan.layout(), epoch: EPOCH_ALONE };
        let made = if cluster.exists() {
            cluster.add(&brought)
        } else {
            cluster.found(&brought, &founding)
        };
        made.map(|(_, writes)| writes)
    }

    /// etcd has answered a process, or has not.
    pub(crate) fn on_etcd_answer(&mut self, by: usize, answer: Result<Answer, RegistryError>) {
        match answer {
            Ok(answer) => self.go_on(by, Some(answer)),
            Err(error) => self.on_task_failed(by, &error),
        }
    }

    /// What a process has begun goes on.
    pub(crate) fn go_on(&mut self, by: usize, answer: Option<Answer>) {
        let now_ms = now_ms(self.now_ns);
        match std::mem::take(&mut self.members[by].task) {
            Task::Nothing => {}
            Task::Start(mut start) => {
                let next = start.next(now_ms, answer);
                self.members[by].task = Task::Start(start);
                match next {
                    Ok(Next::Call(call)) => self.call_as(by, call),
                    Ok(Next::Pause) => self.schedule_member(by, LOOK_NS),
                    Ok(Next::Done(lease)) => {
                        self.members[by].task = Task::FirstMap(lease);
                        self.call_as(by, Call::Read);
                    }
                    Err(error) => self.on_task_failed(by, &error),
                }
            }
            Task::FirstMap(lease) => self.first_map(by, lease, answer),
            Task::Keep => self.keep(by, answer),
            Task::Join => self.join(by, answer),
            Task::Drain(number) => self.drain(by, number, answer),
        }
    }

    fn call_as(&mut self, by: usize, call: Call) {
        let life = self.life_of_caller(by);
        self.call_etcd((by, life), call);
    }

    fn schedule_member(&mut self, by: usize, delay_ns: u64) {
        let life = self.life_of_caller(by);
        self.schedule_at(self.now_ns + delay_ns, Due::Member(by, life));
    }

    /// A pause of a process is over: a start looks again, a lease is to be kept, or a command is
    /// repeated.
    pub(crate) fn on_member_due(&mut self, by: usize, life: u64) {
        if life != self.life_of_caller(by) {
            return;
        }
        if self.members[by].keep.is_some() && !self.members[by].is_busy() {
            self.members[by].task = Task::Keep;
        }
        self.go_on(by, None);
    }

    fn on_task_failed(&mut self, by: usize, error: &RegistryError) {
        self.log_line(|| format!("process {by} in the registry: {error}"));
        match self.members[by].task {
            Task::Nothing => {}
            // etcd has lost a server that nobody knows, as it has not started yet: it joins again.
            Task::Start(_) if self.is_foreign(by) => {
                self.members[by].task = Task::Join;
                self.schedule_member(by, RESTART_NS);
            }
            Task::Start(_) | Task::FirstMap(_) => {
                self.members[by].end();
                self.servers[by].life += 1;
                let delay_ns = self.etcd.prng.span_ns(RESTART_NS);
                self.schedule_at(self.now_ns + delay_ns, Due::StartServer(by));
            }
            Task::Keep => {
                self.members[by].task = Task::Nothing;
                self.schedule_member(by, KEEP_MS * MS);
            }
            Task::Join | Task::Drain(_) => self.schedule_member(by, RESTART_NS),
        }
    }

    /// Whether neither the registry nor its own store knows a server.
    fn is_foreign(&self, server: usize) -> bool {
        self.members[server].known == Known::default()
            && self.cluster().server_of(&uuid_of(server)).is_none()
    }

    /// A start has begun: its first map is read, when what the registry has lost is put back.
    fn first_map(&mut self, server: usize, lease: LeaseId, answer: Option<Answer>) {
        let cluster = match answer {
            Some(Answer::Entries(cluster)) => cluster,
            Some(Answer::Swapped(_)) => {
                self.members[server].task = Task::FirstMap(lease);
                return self.call_as(server, Call::Read);
            }
            _ => return self.violates(format!("a read is answered {answer:?}")),
        };
        if let Compared::Lacks(loss) = cluster.compare(&self.members[server].known) {
            self.members[server].task = Task::FirstMap(lease);
            return self.call_as(server, Call::Swap(loss.writes));
        }
        self.members[server].keep = Some(Keep::new(self.own(server), lease));
        self.begin_life(server, &cluster);
    }

    /// A start has begun: the lanes start with the map that has it.
    fn begin_life(&mut self, server: usize, cluster: &Cluster) {
        match self.own(server).judge(cluster, (&self.members[server].known, MapEpoch(0))) {
            News::Newer(map) => {
                let member = &mut self.members[server];
                (member.epoch, member.known) = (map.epoch(), cluster.known());
                member.following = Some(Following::new(self.fs.0));
                self.launch(server, &map);
                self.schedule_member(server, KEEP_MS * MS);
                self.schedule_watch(server, 0);
            }
            News::Overtaken(line) => {
                self.members[server].task = Task::FirstMap(LeaseId(0));
                self.on_task_failed(server, &RegistryError::State(line));
            }
            News::Nothing | News::NoMap | News::Lacks(_) | News::Differs(_) => {
                self.violates(format!("the entries are no map that server {server} may use"));
            }
        }
    }

    fn keep(&mut self, server: usize, answer: Option<Answer>) {
        let Some(keep) = &mut self.members[server].keep else { return };
        match keep.next(answer) {
            Ok(Next::Call(call)) => {
                self.members[server].task = Task::Keep;
                self.call_as(server, call);
            }
            Ok(Next::Pause | Next::Done(())) => self.schedule_member(server, KEEP_MS * MS),
            Err(RegistryError::State(line)) => self.end_overtaken(server, &line),
            Err(error) => {
                self.members[server].task = Task::Keep;
                self.on_task_failed(server, &error);
            }
        }
    }

    fn end_overtaken(&mut self, server: usize, line: &str) {
        self.log_line(|| format!("server {server}: {line}"));
        self.crash_server(server);
    }

    fn join(&mut self, server: usize, answer: Option<Answer>) {
        self.members[server].task = Task::Join;
        match answer {
            None | Some(Answer::Swapped(_)) => self.call_as(server, Call::Read),
            Some(Answer::Entries(cluster)) => {
                if cluster.server_of(&uuid_of(server)).is_some() {
                    self.members[server].end();
                    return self.schedule_at(self.now_ns, Due::StartServer(server));
                }
                match self.joined(&cluster, server) {
                    Ok(writes) => self.call_as(server, Call::Swap(writes)),
                    Err(error) => self.violates(format!("server {server} cannot join: {error}")),
                }
            }
            Some(other) => self.violates(format!("a join is answered {other:?}")),
        }
    }

    fn drain(&mut self, administrator: usize, number: u64, answer: Option<Answer>) {
        match answer {
            None | Some(Answer::Swapped(false)) => {
                self.members[administrator].task = Task::Drain(number);
                self.call_as(administrator, Call::Read);
            }
            Some(Answer::Entries(cluster)) => {
                let count = cluster.servers().count();
                let id = id_of(crate::number::narrow(number) % count.max(1));
                if let Ok(writes) = cluster.drain(id).or_else(|_| cluster.undrain(id)) {
                    self.members[administrator].task = Task::Drain(number);
                    self.call_as(administrator, Call::Swap(writes));
                }
            }
            Some(Answer::Swapped(true) | Answer::Granted(_) | Answer::Kept(_)) => {}
        }
    }

    /// Whether servers are drained and added now: when the registry has all that servers know
    /// (docs/operations.md, "etcd restored").
    pub(crate) fn is_whole(&self) -> bool {
        let cluster = self.cluster();
        let has_all = |member: &Member| cluster.compare(&member.known) == Compared::HasAll;
        self.members.iter().all(has_all)
    }

    /// Whether a call drains or adds a server; that of a start puts back what is lost.
    pub(crate) fn is_change(&self, by: usize, call: &Call) -> bool {
        let Call::Swap(writes) = call else { return false };
        let is_start = matches!(self.members[by].task, Task::Start(_) | Task::FirstMap(_));
        !is_start && writes.iter().any(|write| write.key.ends_with("/fs"))
    }

    // ---- the map ----

    /// The registry has changed: the servers see it, each at its own time.
    pub(crate) fn on_registry_changed(&mut self) {
        let cluster = self.cluster();
        let count = cluster.servers().count();
        self.joined_count = self.joined_count.max(count);
        for server in 0..self.servers.len() {
            self.schedule_watch(server, 0);
        }
    }

    /// A running server sees a change after a while, but not before a time.
    fn schedule_watch(&mut self, server: usize, from_ns: u64) {
        let member = &mut self.members[server];
        if member.following.is_none() || std::mem::replace(&mut member.watch_is_due, true) {
            return;
        }
        let delay_ns = self.etcd.prng.span_ns(self.plan.etcd.watch_ns).min(WATCH_NS_MAX);
        let life = self.life_of_caller(server);
        self.schedule_at(self.now_ns.max(from_ns) + delay_ns, Due::Watch(server, life));
    }

    /// A server sees some of what has changed, or reads everything.
    pub(crate) fn watch(&mut self, server: usize, life: u64) {
        if life != self.life_of_caller(server) {
            return;
        }
        self.members[server].watch_is_due = false;
        let Some(mut following) = self.members[server].following.take() else { return };
        if let Some(until_ns) = self.etcd.away_until_ns(self.now_ns) {
            while following.on_failure(&away()) == Retry::Now {}
            self.members[server].following = Some(following);
            return self.schedule_watch(server, until_ns.max(self.now_ns + PAUSE_NS));
        }
        let reads = following.cluster().is_none() || self.etcd.prng.one_in(4);
        let taken = match self.etcd.keys.behind(following.revision()) {
            Ok(changes) if !reads => {
                let changes = self.some_of(changes);
                following.on_changes(&changes).map(drop)
            }
            Ok(_) | Err(_) => following.on_read(&self.etcd.keys.read()).map(drop),
        };
        let is_behind = following.revision() != self.etcd.keys.revision();
        let cluster = following.cluster().cloned();
        self.members[server].following = Some(following);
        if is_behind {
            self.schedule_watch(server, 0);
        }
        match (taken, cluster) {
            (Ok(()), Some(cluster)) => self.on_news(server, &cluster),
            (Err(error), _) => self.violates(format!("server {server} follows: {error}")),
            (Ok(()), None) => {}
        }
    }

    fn on_news(&mut self, server: usize, cluster: &Cluster) {
        let member = &mut self.members[server];
        let (known, epoch) = (member.known.clone(), member.epoch);
        match self.own(server).judge(cluster, (&known, epoch)) {
            News::Nothing => {}
            News::Newer(map) => {
                let member = &mut self.members[server];
                (member.epoch, member.known) = (map.epoch(), cluster.known());
                self.learn_map(server, &map);
            }
            News::Lacks(loss) => {
                let made = self.execute_etcd_call(&Call::Swap(loss.writes));
                self.log_line(|| format!("server {server}: {}: {made:?}", loss.line));
                // A transaction that was refused is made again by what comes instead.
                if made.is_err() {
                    self.schedule_watch(server, self.now_ns + PAUSE_NS);
                }
            }
            News::Differs(line) => self.violates(format!("server {server}: {line}")),
            News::NoMap => self.violates(format!("the entries are no map: {cluster:?}")),
            News::Overtaken(line) => self.end_overtaken(server, &line),
        }
    }

    /// The lanes of a server learn of a map.
    fn learn_map(&mut self, server: usize, map: &Map) {
        self.log_line(|| format!("server {server}: map {:?}", map.epoch()));
        for lane in 0..self.servers[server].lanes.len() {
            let event = Incoming::new(Event::Map(Span::default()), map.to_bytes());
            self.deliver(Place::Server(server, lane), event);
        }
    }
}

/// The uuid of a server's store.
fn uuid_of(server: usize) -> String {
    format!("{:032x}", server + 1)
}
