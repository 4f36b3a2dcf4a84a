//! What is scheduled: events with a simulated time, and the lanes that they are for.

use interface::{ConnId, Ticket};

/// The rate of a clock that is right: so many steps while 1,000 pass.
pub(crate) const CLOCK_RATE: u64 = 1000;

/// A client and its lane.
pub(crate) type ClientLaneId = (usize, usize);

/// A server and its lane.
pub(crate) type ServerLaneId = (usize, usize);

/// A step of the rotation of the secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RotationStep {
    Rotate,
    Distribute,
    Retire,
}

/// A lane of a server, by the server and its lane, or of a client process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    Server(usize, usize),
    Client(usize, usize),
}

/// An end of a connection: who dials is a client's lane or a server's, who listens a server's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Dialler,
    Listener,
}

impl End {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Dialler => Self::Listener,
            Self::Listener => Self::Dialler,
        }
    }
}

/// A fault that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScheduledFault {
    ServerCrash,
    ClientCrash,
    Cut,
    Partition,
    /// The last server joins.
    Join,
    /// Another set of servers takes what is new.
    Drain,
    Pause,
    Clock,
    Interrupt,
    /// Something goes wrong with etcd.
    Etcd,
}

/// An event that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    Turn(Place, u64),
    Wake(Place, u64),
    Arrive(ConnId, End),
    CloseEnd(ConnId, End),
    Connect {
        by: Place,
        life: u64,
        ticket: Ticket,
        to: usize,
    },
    Complete {
        at: ServerLaneId,
        life: u64,
        operation_no: u64,
    },
    NextCall {
        client: usize,
        lane: usize,
    },
    Recall {
        client: usize,
        lane: usize,
    },
    Fault(ScheduledFault),
    StartServer(usize),
    ApplyBatch(usize),
    /// A call of etcd arrives, or its answer.
    Etcd(u64),
    /// A process in the registry goes on, by its number and life.
    Member(usize, u64),
    /// A server sees what has changed in the registry.
    Watch(usize, u64),
    TraceStep,
    MaliciousFrame,
    Rotation(RotationStep),
    PeerMessage {
        server: usize,
        life: u64,
        number: u64,
    },
}

/// The result of a check: an error names the violated invariant.
pub(crate) type Verdict = Result<(), String>;
