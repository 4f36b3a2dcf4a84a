//! What an etcd has lost that was restored from an older copy, and what a server puts back.
#![allow(clippy::unwrap_used, missing_docs)]

use registry::{
    Alive, Answer, Brought, Call, Cluster, Compared, Founding, Known, LeaseId, MemoryEtcd, News,
    Next, Own, Server, ServerState, Start, Starting, Write,
};
use std::net::SocketAddr;
use wire::{Layout, Map, MapEpoch, ServerId, ShardCounts};

const FS: [u8; 16] = [7; 16];
const COUNTS: ShardCounts = ShardCounts { meta: 4, data: 4 };

/// A registry of three servers in memory.
struct Registry(MemoryEtcd);

impl Registry {
    fn of_three() -> Self {
        let mut registry = Self(MemoryEtcd::default());
        let founding = Founding { layout: Layout::DEFAULT, epoch: MapEpoch(3) };
        registry.make(|none| none.found(&brought(1), &founding).unwrap().1);
        registry.join(2);
        registry.join(3);
        registry
    }

    fn cluster(&self) -> Cluster {
        Cluster::read(FS, &self.0.read()).unwrap()
    }

    fn map(&self) -> Map {
        self.cluster().map().unwrap()
    }

    fn make(&mut self, writes: impl FnOnce(&Cluster) -> Vec<Write>) {
        let writes = writes(&self.cluster());
        assert!(self.0.swap(&writes).unwrap());
    }

    fn join(&mut self, number: u16) {
        self.make(|cluster| cluster.add(&brought(number)).unwrap().1);
    }

    fn drain(&mut self, server: u16) {
        self.make(|cluster| cluster.drain(ServerId(server)).unwrap());
    }

    fn put_back(&mut self, known: &Known) -> String {
        let Compared::Lacks(loss) = self.cluster().compare(known) else {
            panic!("nothing is lost")
        };
        assert!(self.0.swap(&loss.writes).unwrap());
        assert_eq!(self.cluster().compare(known), Compared::HasAll);
        loss.line
    }

    /// The servers that take what is new.
    fn active(&self) -> Vec<u16> {
        let cluster = self.cluster();
        let active = cluster.servers().filter(|(_, server, _)| server.state == ServerState::Active);
        active.map(|(id, ..)| id.0).collect()
    }
}

fn uuid(number: u16) -> String {
    format!("{number:032x}")
}

fn brought(number: u16) -> Brought {
    let address = SocketAddr::from(([10, 0, 0, 1], 7000 + number));
    let (uuid, state) = (uuid(number), ServerState::Active);
    Brought { server: Server { uuid, weight: 100, state, address, lanes: 1 }, counts: COUNTS }
}

#[test]
fn a_drain_and_its_undo_are_put_back_and_the_next_drain_is_another_generation() {
    let mut registry = Registry::of_three();
    let copy = registry.0.clone();
    registry.drain(3);
    let (drained, before) = (registry.cluster().known(), registry.map());
    registry.make(|cluster| cluster.undrain(ServerId(3)).unwrap());
    registry.drain(2);
    let (known, newest) = (registry.cluster().known(), registry.map());
    registry.0.restore(copy);
    assert_eq!(registry.active(), [1, 2, 3]);
    // One server knows less than the other.
    let line = registry.put_back(&drained);
    assert!(line.ends_with("it has lost generation 3"), "{line}");
    assert_eq!(registry.active(), [1, 2]);
    assert!(registry.map().extends(&before) && registry.map().is_newer_than(&newest));
    let line = registry.put_back(&known);
    assert!(line.ends_with("it has lost generation 4, generation 5"), "{line}");
    assert_eq!(registry.active(), [1, 3]);
    assert_eq!(registry.cluster().compare(&drained), Compared::HasAll);
    registry.drain(3);
    let after = registry.map();
    assert!(after.extends(&newest) && after.is_newer_than(&newest));
    assert_eq!((after.generation(), registry.active()), (6, vec![1]));
}

#[test]
fn a_server_that_has_joined_since_is_put_back_with_its_shards() {
    let mut registry = Registry::of_three();
    let copy = registry.0.clone();
    registry.join(4);
    let (known, before) = (registry.cluster().known(), registry.map());
    registry.0.restore(copy);
    assert_eq!(registry.cluster().server_of(&uuid(4)), None);
    let line = registry.put_back(&known);
    assert!(line.ends_with("it has lost generation 3, server 4"), "{line}");
    assert!(registry.map().extends(&before) && registry.map().is_newer_than(&before));
    assert_eq!(registry.active(), [1, 2, 3, 4]);
    // The next one gets other shards.
    registry.join(5);
    let shards = registry.cluster().server_of(&uuid(5)).unwrap().1;
    assert_eq!((shards.metas, shards.datas), ((16, 4), (16, 4)));
}

#[test]
fn another_generation_or_server_in_the_place_of_a_known_one_is_told_from_a_loss() {
    let mut registry = Registry::of_three();
    let (copy, alive) = (registry.0.clone(), Alive { uuid: uuid(1), boot_id: 1 });
    let own = Own { server: ServerId(1), alive: alive.clone() };
    let differs = |registry: &Registry, known: &Known| {
        let judged = own.judge(&registry.cluster(), (known, MapEpoch(0)));
        let News::Differs(line) = judged else { panic!("{judged:?}") };
        line
    };
    registry.drain(3);
    let drained = registry.cluster().known();
    registry.0.restore(copy.clone());
    registry.drain(2);
    let line = differs(&registry, &drained);
    assert!(line.starts_with("generation 3 of the registry is not the one"), "{line}");
    // The same one is none.
    registry.0.restore(copy.clone());
    registry.drain(3);
    assert_eq!(registry.cluster().compare(&drained), Compared::HasAll);
    registry.0.restore(copy.clone());
    registry.join(4);
    let joined = registry.cluster().known();
    registry.0.restore(copy);
    registry.join(5);
    let line = differs(&registry, &joined);
    assert!(line.starts_with("server 4 of the registry is not the one"), "{line}");
}

#[test]
fn a_start_moves_no_file_and_a_drain_may() {
    let mut registry = Registry::of_three();
    let before = registry.cluster().known();
    let alive = Alive { uuid: uuid(2), boot_id: 2 };
    let Ok(Answer::Granted(lease)) = registry.0.perform(0, (FS, &Call::Grant)) else {
        panic!("no lease")
    };
    let at = (SocketAddr::from(([10, 0, 0, 9], 7002)), 3);
    registry.make(|cluster| cluster.start(ServerId(2), &alive, at, lease).unwrap());
    let started = registry.cluster().known();
    assert!(started != before && started.places_as(&before));
    registry.drain(2);
    assert!(!registry.cluster().known().places_as(&started));
}

#[test]
fn a_start_puts_back_what_its_store_knows_before_it_begins() {
    let mut registry = Registry::of_three();
    let copy = registry.0.clone();
    registry.join(4);
    registry.drain(2);
    let (known, before) = (registry.cluster().known(), registry.map());
    registry.0.restore(copy);
    let own = Own { server: ServerId(4), alive: Alive { uuid: uuid(4), boot_id: 2 } };
    let at = (SocketAddr::from(([10, 0, 0, 1], 7004)), 1);
    let starting = |known| {
        let (own, store) = (own.clone(), "store".to_owned());
        Start::new(Starting { own, store, first: (12, 12), at, known })
    };
    let begin = |registry: &mut Registry, mut start: Start| {
        let mut answer = None;
        loop {
            match start.next(0, answer.take())? {
                Next::Call(call) => answer = Some(registry.0.perform(0, (FS, &call))?),
                Next::Pause => panic!("no earlier start is alive"),
                Next::Done(lease) => return Ok((lease, start.loss().map(str::to_owned))),
            }
        }
    };
    let refused: Result<(LeaseId, _), registry::RegistryError> =
        begin(&mut registry, starting(Known::default()));
    assert!(refused.unwrap_err().to_string().contains("foreign store"));
    let (_, line) = begin(&mut registry, starting(known)).unwrap();
    assert!(line.unwrap().ends_with("it has lost generation 3, generation 4, server 4"));
    assert!(registry.map().extends(&before));
    assert_eq!(registry.active(), [1, 3, 4]);
}
