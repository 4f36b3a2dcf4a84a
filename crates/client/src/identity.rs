//! Who this client is, as which file system's client: the secrets, the export's root, random
//! numbers, the channel of a connection under TLS, and why the client has stopped.

use crate::refused::Refused;
use interface::{Action, ConnId, Mono, Turn};
use wire::{Channel, ClientUuid, FsUuid, InodeNo, Nonce, PLAIN, Secret, Secrets};

/// A number that names a client lane in trace ids. Others see it, and learn nothing of the seed: a keyed
/// hash, of a count that nonces do not reach.
pub(crate) fn trace_tag(seed: &[u8; 32]) -> u32 {
    let [a, b, c, d, ..] = Secret::new(*seed).draw(u64::MAX);
    u32::from_le_bytes([a, b, c, d])
}

#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) secrets: HeldSecrets,
    seed: [u8; 32],
    random_count: u64,
    fs: Option<FsUuid>,
    /// The inode that frontends call [`InodeNo::ROOT`].
    root: Option<InodeNo>,
    /// The channel of a TLS connection whose `Connected` event follows.
    sealed: Option<(ConnId, Channel)>,
    refused: Option<Refused>,
    /// The certificate problem that was last reported.
    certificate_refusal: Option<Refused>,
}

impl Identity {
    pub(crate) const fn new(secrets: Secrets, seed: [u8; 32], root: Option<InodeNo>) -> Self {
        Self {
            secrets: HeldSecrets::new(secrets),
            seed,
            random_count: 0,
            fs: None,
            root,
            sealed: None,
            refused: None,
            certificate_refusal: None,
        }
    }

    pub(crate) const fn fs(&self) -> Option<FsUuid> {
        self.fs
    }

    pub(crate) const fn root(&self) -> Option<InodeNo> {
        self.root
    }

    /// A server welcomed this client.
    pub(crate) const fn welcomed(&mut self, fs: FsUuid, root: InodeNo) {
        self.fs = Some(fs);
        self.root = Some(root);
    }

    /// 32 unique bytes: a keyed hash of a counter under the seed.
    pub(crate) fn nonce(&mut self) -> Nonce {
        self.random_count += 1;
        Secret::new(self.seed).draw(self.random_count)
    }

    /// A random number from the same source.
    pub(crate) fn random(&mut self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.nonce();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// TLS protects this connection.
    pub(crate) const fn set_channel(&mut self, conn: ConnId, channel: Channel) {
        self.sealed = Some((conn, channel));
    }

    /// The channel of a connection that was made now.
    pub(crate) fn take_channel(&mut self, conn: ConnId) -> Channel {
        let sealed = self.sealed.take().filter(|(sealed, _)| *sealed == conn);
        sealed.map_or(PLAIN, |(_, channel)| channel)
    }

    /// Why the client has stopped.
    pub(crate) const fn refused(&self) -> Option<Refused> {
        self.refused
    }

    pub(crate) const fn set_refused(&mut self, refused: Option<Refused>) {
        self.refused = refused;
    }

    /// Why calls are refused at once, if they are.
    pub(crate) fn stopped(&self) -> Option<Refused> {
        self.refused.filter(|_| !self.secrets.is_reading())
    }

    pub(crate) const fn certificate_refusal(&self) -> Option<Refused> {
        self.certificate_refusal
    }

    /// Notes a certificate problem; true if it was not the last one.
    pub(crate) fn refuse_certificate(&mut self, refused: Refused) -> bool {
        self.certificate_refusal.replace(refused) != Some(refused)
    }

    /// The certificates were accepted.
    pub(crate) const fn accept_certificate(&mut self) {
        self.certificate_refusal = None;
    }
}

/// The secrets of this client lane. `secrets.rs` chooses which one is proven.
#[derive(Debug)]
pub(crate) struct HeldSecrets {
    secrets: Secrets,
    /// The current secret was refused.
    uses_earlier: bool,
    /// The file is being read.
    reading: bool,
    /// When the last read began.
    read_at: Option<Mono>,
    /// This client's uuid when it was refused.
    refused_as: ClientUuid,
}

impl HeldSecrets {
    const fn new(secrets: Secrets) -> Self {
        let (read_at, refused_as) = (None, ClientUuid::NONE);
        Self { secrets, uses_earlier: false, reading: false, read_at, refused_as }
    }

    /// The secret for the next connection.
    pub(crate) const fn secret(&self) -> &Secret {
        match &self.secrets.earlier {
            Some(earlier) if self.uses_earlier => earlier,
            Some(_) | None => &self.secrets.current,
        }
    }

    /// Whether the file is being read.
    pub(crate) const fn is_reading(&self) -> bool {
        self.reading
    }

    /// The server refused the present secret: tries the earlier one, or has the file read again.
    pub(crate) fn try_next(&mut self, turn: &mut Turn<'_>) {
        if self.secrets.earlier.is_some() && !self.uses_earlier {
            self.uses_earlier = true;
        } else {
            self.read_again(turn);
        }
    }

    /// Has the file read again, if it is not being read.
    pub(crate) fn read_again(&mut self, turn: &mut Turn<'_>) {
        if !self.reading {
            self.reading = true;
            self.read_at = Some(turn.now.mono);
            turn.act(Action::ReadSecrets);
        }
    }

    /// The file was read; true: it has other secrets.
    pub(crate) fn replace(&mut self, found: Option<Secrets>) -> bool {
        self.reading = false;
        self.uses_earlier = false;
        let found = found.filter(|found| *found != self.secrets);
        found.map(|found| self.secrets = found).is_some()
    }

    /// Whether the last read began at least this long ago.
    pub(crate) fn was_read_before(&self, now: Mono, pause_ms: u64) -> bool {
        self.read_at.is_none_or(|at| at.after_ms(pause_ms) <= now)
    }

    /// The client has stopped under this uuid.
    pub(crate) const fn set_refused_as(&mut self, client: ClientUuid) {
        self.refused_as = client;
    }

    /// The uuid under which the client has stopped last.
    pub(crate) const fn refused_as(&self) -> ClientUuid {
        self.refused_as
    }
}
