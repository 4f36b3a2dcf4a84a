//! Join tokens: what a new server needs lies in etcd, sealed by a key that only the token has.
//!
//! ```text
//! token                 lanefs-join-ID-KEY, 16 and 64 hexadecimal digits
//! /lanefs/join/ID       {"fs": uuid, "sealed": base64}, under a lease that is as long as it is valid
//! sealed                {"key": the file system's, "secret": that of clients, if there is one}
//! ```
//! The change of the registry that adds the server removes the entry: a token is used once. A reader of
//! etcd without the token learns nothing (docs/decisions/join-tokens.md).

use super::ask::failed;
use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use registry::{Etcd, RegistryError, Versioned, Write};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use wire::{FsUuid, Secret};

const PREFIX: &str = "lanefs-join-";

/// A token.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token {
    id: [u8; 8],
    key: [u8; seal::MESSAGE_KEY_BYTES],
}

/// What it opens.
#[derive(Clone)]
pub(super) struct Package {
    /// The file system.
    pub(super) fs: FsUuid,
    /// Its key.
    pub(super) key: [u8; 32],
    /// The secret that clients of its servers have.
    pub(super) secret: Option<Secret>,
}

#[derive(Serialize, Deserialize)]
struct Offered {
    fs: String,
    sealed: String,
}

#[derive(Serialize, Deserialize)]
struct Contents {
    key: String,
    secret: Option<String>,
}

impl Token {
    /// A new one.
    pub(super) fn new() -> Result<Self> {
        Ok(Self { id: library::random()?, key: library::random()? })
    }

    /// Reads one as it was printed.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let read = || {
            let (id, key) = text.trim().strip_prefix(PREFIX)?.split_once('-')?;
            let mut token = Self { id: [0; 8], key: [0; 32] };
            hex::decode_to_slice(id, &mut token.id).ok()?;
            hex::decode_to_slice(key, &mut token.key).ok()?;
            Some(token)
        };
        read().context(
            "--join: this is no token, which is lanefs-join- and 80 hexadecimal digits: `lanefs cluster \
             token` on the host of a server prints one",
        )
    }

    /// Puts what it opens into etcd, for as long as it is valid.
    pub(super) fn offer(
        &self,
        etcd: &Etcd,
        package: &Package,
        valid: Duration,
    ) -> Result<(), RegistryError> {
        let Package { fs, key, secret } = package;
        let secret = secret.as_ref().map(library::secret::text_of);
        let contents = text_of(&Contents { key: hex::encode(key), secret });
        let sealed = seal::seal_message(&self.key, &self.context(*fs), contents.as_bytes());
        let offered = Offered { fs: fs.to_string(), sealed: STANDARD.encode(sealed) };
        let lease = etcd.grant(u32::try_from(valid.as_secs()).unwrap_or(u32::MAX))?;
        let value = Some(text_of(&offered));
        let write = Write { key: self.entry(), version: 0, value, lease: Some(lease) };
        match etcd.swap(&[write])? {
            Some(_) => Ok(()),
            None => Err(RegistryError::State("another token has this number".to_owned())),
        }
    }

    /// What it opens, as long as it is valid.
    pub(super) fn open(&self, etcd: &Etcd) -> Result<Package> {
        let entry = self.look(etcd).map_err(failed)?;
        let Some(package) = self.opened(entry.value.as_deref().unwrap_or_default()) else {
            bail!(
                "--join: the token is wrong: its first digits are those of one that is valid, others not"
            );
        };
        Ok(package)
    }

    fn opened(&self, offered: &str) -> Option<Package> {
        let Offered { fs, sealed } = serde_json::from_str(offered).ok()?;
        let mut uuid = [0; 16];
        hex::decode_to_slice(fs, &mut uuid).ok()?;
        let fs = FsUuid(uuid);
        let sealed = STANDARD.decode(sealed).ok()?;
        let contents = seal::open_message(&self.key, &self.context(fs), sealed)?;
        let Contents { key: digits, secret } = serde_json::from_slice(&contents).ok()?;
        let mut key = [0; 32];
        hex::decode_to_slice(digits, &mut key).ok()?;
        let secret = match secret {
            Some(text) => Some(library::secret::of_text(&text)?),
            None => None,
        };
        Some(Package { fs, key, secret })
    }

    /// The write that uses it up.
    pub(super) fn consume(&self, etcd: &Etcd) -> Result<Write, RegistryError> {
        let Versioned { key, version, value: _ } = self.look(etcd)?;
        Ok(Write { key, version, value: None, lease: None })
    }

    fn look(&self, etcd: &Etcd) -> Result<Versioned, RegistryError> {
        let entry = etcd.read(&self.entry())?.entries.into_iter().next();
        entry.ok_or_else(|| {
            let line = "--join: the token is not valid: it was used, its time is over, or it is of a \
                        cluster with another etcd; `lanefs cluster token` makes a new one";
            RegistryError::State(line.to_owned())
        })
    }

    fn entry(&self) -> String {
        registry::join_key(self.id)
    }

    /// What the sealed bytes belong to.
    fn context(&self, fs: FsUuid) -> Vec<u8> {
        [b"lanefs join 1".as_slice(), &fs.0, &self.id].concat()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}-{}", hex::encode(self.id), hex::encode(self.key))
    }
}

fn text_of(value: &impl Serialize) -> String {
    serde_json::to_value(value).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_reads_as_it_was_printed() {
        let token = Token { id: [0x1a; 8], key: [0xb2; 32] };
        let text = token.to_string();
        assert_eq!(text.len(), PREFIX.len() + 16 + 1 + 64);
        assert!(Token::parse(&text).unwrap() == token);
        assert!(Token::parse(&format!("{text}\n")).unwrap() == token);
        for wrong in ["", "lanefs-join-", &text[1..], &text[..text.len() - 1], "lanefs-join-1-2"] {
            let refused = Token::parse(wrong).err().unwrap().to_string();
            assert!(refused.contains("no token"), "{wrong}: {refused}");
        }
    }
}
