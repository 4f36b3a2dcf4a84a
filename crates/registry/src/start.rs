//! `Start`: how a server begins a start in its cluster.
//!
//! ```text
//! Looking ─ no earlier start is alive ─▶ Granting ─▶ Beginning ─ transaction made ─▶ begun
//!   ▲ │ one is, for EARLIER_START_MS at most          ▲ │ another change came between
//!   └─┘                                               └─┘
//! ```
//! Before either looks, what the registry has lost of what the store knows is put back. Invariant:
//! no start begins unless the registry and the store say the same of the server.

use crate::call::not_asked;
use crate::{
    Answer, Call, Cluster, Compared, Known, LeaseId, Next, Own, RegistryError, Shards, TTL_S,
};
use std::net::SocketAddr;

/// When an earlier start is still alive after this time, it is another process. An etcd that has
/// itself just started gives leases some seconds more.
const EARLIER_START_MS: u64 = TTL_S as u64 * 3_000;

/// What a store says of its server, for its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Starting {
    /// The server, and this start.
    pub own: Own,
    /// What messages call the store: its path.
    pub store: String,
    /// The first metadata and data shard.
    pub first: (u16, u16),
    /// Where it is reached, and its lanes.
    pub at: (SocketAddr, u16),
    /// What it has used of the registry.
    pub known: Known,
}

/// A server that begins a start.
#[derive(Clone, Debug)]
pub struct Start {
    starting: Starting,
    state: State,
    /// The earlier start that is alive, and since when it is waited for.
    earlier: Option<(u64, u64)>,
    /// What the registry had lost, in a sentence.
    loss: Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Looking,
    Granting,
    Beginning(LeaseId),
    /// What is lost is put back. The lease, if there is one.
    PuttingBack(Option<LeaseId>),
}

impl Start {
    /// A start that has asked nothing yet.
    #[must_use]
    pub const fn new(starting: Starting) -> Self {
        Self { starting, state: State::Looking, earlier: None, loss: None }
    }

    /// The server that starts.
    #[must_use]
    pub const fn own(&self) -> &Own {
        &self.starting.own
    }

    /// Whether it waits for an earlier start of the same store to end.
    #[must_use]
    pub const fn awaits_earlier(&self) -> bool {
        self.earlier.is_some()
    }

    /// What the registry had lost and this start has put back, in a sentence.
    #[must_use]
    pub fn loss(&self) -> Option<&str> {
        self.loss.as_deref()
    }

    /// What is next. `answer`: to the last call; none at first and after a pause. It is done when the
    /// start has begun, under a lease.
    ///
    /// # Errors
    /// [`RegistryError::State`] for a foreign store, and as of [`Cluster::start`].
    pub fn next(
        &mut self,
        now_ms: u64,
        answer: Option<Answer>,
    ) -> Result<Next<LeaseId>, RegistryError> {
        if let Some(Answer::Entries(cluster)) = &answer
            && let Some(call) = self.put_back(cluster)?
        {
            return Ok(Next::Call(call));
        }
        match (self.state, answer) {
            (State::PuttingBack(lease), answer) => {
                self.state = lease.map_or(State::Looking, State::Beginning);
                match answer {
                    None | Some(Answer::Swapped(_)) => Ok(Next::Call(Call::Read)),
                    Some(_) => not_asked(),
                }
            }
            (_, None) => Ok(Next::Call(Call::Read)),
            (State::Looking, Some(Answer::Entries(cluster))) => {
                self.check(&cluster)?;
                if self.must_wait(&cluster, now_ms) {
                    return Ok(Next::Pause);
                }
                self.state = State::Granting;
                Ok(Next::Call(Call::Grant))
            }
            (State::Granting, Some(Answer::Granted(lease))) => {
                self.state = State::Beginning(lease);
                Ok(Next::Call(Call::Read))
            }
            (State::Beginning(lease), Some(Answer::Entries(cluster))) => {
                let Starting { own: Own { server, alive }, at, .. } = &self.starting;
                Ok(Next::Call(Call::Swap(cluster.start(*server, alive, *at, lease)?)))
            }
            (State::Beginning(_), Some(Answer::Swapped(false))) => Ok(Next::Call(Call::Read)),
            (State::Beginning(lease), Some(Answer::Swapped(true))) => Ok(Next::Done(lease)),
            (State::Looking | State::Granting | State::Beginning(_), Some(_)) => not_asked(),
        }
    }

    /// What puts back what the registry has lost; none if it has all.
    fn put_back(&mut self, cluster: &Cluster) -> Result<Option<Call>, RegistryError> {
        match cluster.compare(&self.starting.known) {
            Compared::HasAll => Ok(None),
            Compared::Lacks(loss) => {
                let lease = match self.state {
                    State::Beginning(lease) => Some(lease),
                    State::Looking | State::Granting | State::PuttingBack(_) => None,
                };
                self.state = State::PuttingBack(lease);
                self.loss = Some(loss.line);
                Ok(Some(Call::Swap(loss.writes)))
            }
            Compared::Differs(line) => {
                self.check(cluster)?;
                let line =
                    format!("{line}. It does not start: files would be looked for elsewhere");
                Err(RegistryError::State(line))
            }
        }
    }

    /// The registry and the store must say the same of the server.
    fn check(&self, cluster: &Cluster) -> Result<(), RegistryError> {
        let Starting { own: Own { server, alive }, store, first, .. } = &self.starting;
        let is_own =
            |(id, shards): (_, Shards)| id == *server && (shards.metas.0, shards.datas.0) == *first;
        if cluster.server_of(&alive.uuid).is_some_and(is_own) {
            return Ok(());
        }
        let line = format!(
            "{store} is a foreign store: it is that of server {server} with uuid {}, which the cluster \
             does not have",
            alive.uuid
        );
        Err(RegistryError::State(line))
    }

    /// A server that was killed is alive until its lease ends. If it is another process after all,
    /// the transaction is refused.
    fn must_wait(&mut self, cluster: &Cluster, now_ms: u64) -> bool {
        let Own { server, alive } = &self.starting.own;
        let earlier = cluster.alive(*server).filter(|earlier| earlier.uuid == alive.uuid);
        let Some(earlier) = earlier else { return false };
        let (first, since_ms) = *self.earlier.get_or_insert((earlier.boot_id, now_ms));
        first == earlier.boot_id && now_ms <= since_ms + EARLIER_START_MS
    }
}
