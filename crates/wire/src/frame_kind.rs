//! The kinds of frames, with who sends them.

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// Client: opens a connection to lane n.
    Hello = 1,
    /// Server: its proof of the secret, and a nonce for the client's.
    Challenge = 2,
    /// Client: its proof.
    Proof = 3,
    /// Server: accepts the client and describes itself.
    Welcome = 4,
    /// Server: refuses the client, with the reason. The connection closes after it.
    Refusal = 5,
    /// Client: a request.
    Request = 6,
    /// Server: its reply.
    Reply = 7,
    /// Server, unsolicited: what has become durable, a [`crate::CommitNotification`].
    CommitNotification = 8,
    /// Server, unsolicited: the outcome of a lock wait, a [`crate::Grant`].
    Grant = 9,
    /// Server, unsolicited: leases end, a [`crate::Recall`].
    Recall = 10,
    /// Client: it has dropped recalled leases, a [`crate::RecallAck`]. There is no reply.
    RecallAck = 11,
    /// Server to server: a lane dials another, a [`crate::PeerHello`].
    PeerHello = 12,
    /// The other lane's proof and nonce, a [`crate::PeerChallenge`].
    PeerChallenge = 13,
    /// The first lane's proof, a [`crate::PeerProof`].
    PeerProof = 14,
    /// Between proven lanes of two servers: one message.
    PeerMessage = 15,
    /// Server, unsolicited: a newer [`crate::Map`].
    MapNote = 16,
    /// Client: which replies its other lanes have received, a [`crate::Received`]. There is no reply.
    Received = 17,
}

impl FrameKind {
    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Hello,
            2 => Self::Challenge,
            3 => Self::Proof,
            4 => Self::Welcome,
            5 => Self::Refusal,
            6 => Self::Request,
            7 => Self::Reply,
            8 => Self::CommitNotification,
            9 => Self::Grant,
            10 => Self::Recall,
            11 => Self::RecallAck,
            12 => Self::PeerHello,
            13 => Self::PeerChallenge,
            14 => Self::PeerProof,
            15 => Self::PeerMessage,
            16 => Self::MapNote,
            17 => Self::Received,
            _ => return None,
        })
    }
}
