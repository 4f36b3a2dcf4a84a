//! What is scheduled: events with a simulated time, and the lanes that they are for.

use crate::net::End;
use interface::{ConnId, Ticket};

/// The rate of a clock that is right: so many steps while 1,000 pass.
pub(crate) const CLOCK_RATE: u64 = 1000;

/// A client and its lane.
pub(crate) type ClientLaneId = (usize, usize);

/// A step of the rotation of the secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RotationStep {
    Rotate,
    Distribute,
    Retire,
}

/// A lane of the server, or of a client process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    Server(usize),
    Client(usize, usize),
}

/// A fault that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScheduledFault {
    ServerCrash,
    ClientCrash,
    Cut,
    Partition,
    Pause,
    Clock,
    Interrupt,
}

/// An event that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    Turn(Place, u64),
    Wake(Place, u64),
    Arrive(ConnId, End),
    CloseEnd(ConnId, End),
    Connect { client: usize, lane: usize, life: u64, ticket: Ticket },
    Complete { lane: usize, life: u64, operation_no: u64 },
    NextCall { client: usize, lane: usize },
    Recall { client: usize, lane: usize },
    Fault(ScheduledFault),
    StartServer,
    ApplyBatch,
    TraceStep,
    MaliciousFrame,
    Rotation(RotationStep),
    PeerMessage { life: u64, number: u64 },
}

/// The result of a check: an error names the violated invariant.
pub(crate) type Verdict = Result<(), String>;
