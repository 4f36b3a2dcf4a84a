//! `Etcd`: calls of etcd over its JSON gateway, each to the first endpoint that answers.
//!
//! Reads are linearizable. A call that fails as [`RegistryError::Away`] may have been made.

use crate::gateway::{bytes, end_of, number, text_of};
use crate::{
    Access, Answer, Call, Cluster, LeaseId, RegistryError, Snapshot, TTL_S, Versioned, Write,
    prefix,
};
use serde_json::{Value, json};
use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long an endpoint has for an answer.
const CALL_TIME: Duration = Duration::from_secs(5);
/// How long a watch runs before it begins anew: so one whose machine is off ends.
const WATCH_TIME: Duration = Duration::from_secs(30);

/// An etcd.
pub struct Etcd {
    access: Access,
    agent: Mutex<ureq::Agent>,
    /// What etcd has given for the user's password.
    token: Mutex<Option<String>>,
}

impl Etcd {
    /// The etcd that is reached like this. Nothing is asked yet.
    ///
    /// # Errors
    /// [`RegistryError::State`] if the access does not fit together, or one of its files cannot be used.
    pub fn new(access: &Access) -> Result<Self, RegistryError> {
        access.check()?;
        access.user()?;
        let agent = Mutex::new(agent(access)?);
        Ok(Self { access: access.clone(), agent, token: Mutex::new(None) })
    }

    /// How it is reached.
    #[must_use]
    pub const fn access(&self) -> &Access {
        &self.access
    }

    /// All keys below a prefix.
    ///
    /// # Errors
    /// [`RegistryError`] of the call.
    pub fn read(&self, prefix: &str) -> Result<Snapshot, RegistryError> {
        let asked = json!({ "key": bytes(prefix.as_bytes()), "range_end": bytes(&end_of(prefix)) });
        let reply = self.call("/v3/kv/range", &asked)?;
        let entries = reply["kvs"].as_array().into_iter().flatten().map(entry_of);
        let entries: Result<Vec<Versioned>, RegistryError> = entries.collect();
        Ok(Snapshot { revision: number(&reply["header"]["revision"])?, entries: entries? })
    }

    /// Writes all of these, or nothing and `None` if a key has another version; the new revision.
    ///
    /// # Errors
    /// [`RegistryError`] of the call.
    pub fn swap(&self, writes: &[Write]) -> Result<Option<i64>, RegistryError> {
        let compare = |write: &Write| {
            json!({ "target": "MOD", "result": "EQUAL", "key": bytes(write.key.as_bytes()),
                    "mod_revision": write.version.to_string() })
        };
        let put = |write: &Write| {
            let (key, lease) =
                (bytes(write.key.as_bytes()), write.lease.map_or(0, |lease| lease.0));
            match &write.value {
                Some(value) => json!({ "request_put": { "key": key,
                    "value": bytes(value.as_bytes()), "lease": lease.to_string() } }),
                None => json!({ "request_delete_range": { "key": key } }),
            }
        };
        let compares: Vec<Value> = writes.iter().map(compare).collect();
        let puts: Vec<Value> = writes.iter().map(put).collect();
        let reply = self.call("/v3/kv/txn", &json!({ "compare": compares, "success": puts }))?;
        let revision = number(&reply["header"]["revision"])?;
        Ok((reply["succeeded"] == Value::Bool(true)).then_some(revision))
    }

    /// Begins a lease.
    ///
    /// # Errors
    /// [`RegistryError`] of the call.
    pub fn grant(&self, ttl_s: u32) -> Result<LeaseId, RegistryError> {
        let reply = self.call("/v3/lease/grant", &json!({ "TTL": ttl_s.to_string() }))?;
        Ok(LeaseId(number(&reply["ID"])?))
    }

    /// Keeps a lease for its whole time from now; false if it has ended.
    ///
    /// # Errors
    /// [`RegistryError`] of the call.
    pub fn keep(&self, lease: LeaseId) -> Result<bool, RegistryError> {
        let reply = self.call("/v3/lease/keepalive", &json!({ "ID": lease.0.to_string() }))?;
        Ok(number(&reply["result"]["TTL"])? > 0)
    }

    /// Ends a lease.
    ///
    /// # Errors
    /// [`RegistryError`] of the call.
    pub fn revoke(&self, lease: LeaseId) -> Result<(), RegistryError> {
        self.call("/v3/lease/revoke", &json!({ "ID": lease.0.to_string() })).map(drop)
    }

    /// Gives `take` each change below a prefix behind a revision. Ends when `take`
    /// says so; else with the error that broke it, also after a while in which nothing changed.
    ///
    /// # Errors
    /// [`RegistryError::Compacted`] if the changes are not there any more.
    pub fn watch(
        &self,
        prefix: &str,
        behind: i64,
        mut take: impl FnMut(Vec<Versioned>) -> ControlFlow<()>,
    ) -> Result<(), RegistryError> {
        let create = json!({ "create_request": { "key": bytes(prefix.as_bytes()),
            "range_end": bytes(&end_of(prefix)), "start_revision": (behind + 1).to_string() } });
        let (endpoint, response) = self.post("/v3/watch", &create, WATCH_TIME)?;
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            let line = line.map_err(|error| RegistryError::read(&endpoint, &error))?;
            let reply = &parsed(&line)?["result"];
            if reply["canceled"] == Value::Bool(true) {
                // It may be the token's end.
                *self.known_token() = None;
                return Err(match number(&reply["compact_revision"])? {
                    0 => RegistryError::Refused(reply["cancel_reason"].to_string()),
                    _ => RegistryError::Compacted,
                });
            }
            let changes = reply["events"].as_array().into_iter().flatten().map(|event| {
                let mut entry = entry_of(&event["kv"])?;
                entry.value = entry.value.filter(|_| event["type"] != "DELETE");
                Ok(entry)
            });
            let changes: Result<Vec<Versioned>, RegistryError> = changes.collect();
            let changes = changes?;
            if !changes.is_empty() && take(changes).is_break() {
                return Ok(());
            }
        }
        Err(RegistryError::Away { endpoint, why: "the watch ended".to_owned() })
    }

    /// Performs a call for a file system.
    ///
    /// # Errors
    /// [`RegistryError`] of the call. A write may have been made nevertheless.
    pub fn perform(&self, fs: [u8; 16], call: &Call) -> Result<Answer, RegistryError> {
        Ok(match call {
            Call::Read => Answer::Entries(Cluster::read(fs, &self.read(&prefix(fs))?)?),
            Call::Grant => Answer::Granted(self.grant(TTL_S)?),
            Call::Swap(writes) => Answer::Swapped(self.swap(writes)?.is_some()),
            Call::Keep(lease) => Answer::Kept(self.keep(*lease)?),
        })
    }

    fn call(&self, path: &str, asked: &Value) -> Result<Value, RegistryError> {
        let (endpoint, response) = self.post(path, asked, CALL_TIME)?;
        text_in(&endpoint, response)
    }

    /// Asks as the user, if there is one. A token that etcd does not know any more is replaced once.
    fn post(&self, path: &str, asked: &Value, time: Duration) -> Result<Posted, RegistryError> {
        let posted = self.post_with(path, asked, (time, self.token()?))?;
        if self.access.user.is_none() || posted.1.status() != 401 {
            return Ok(posted);
        }
        *self.known_token() = None;
        self.post_with(path, asked, (time, self.token()?))
    }

    /// Asks the endpoints in turn, until one answers; which one did.
    fn post_with(
        &self,
        path: &str,
        asked: &Value,
        (time, token): (Duration, Option<String>),
    ) -> Result<Posted, RegistryError> {
        let body = asked.to_string();
        let agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut away = RegistryError::State("etcd has no address".to_owned());
        for endpoint in &self.access.endpoints {
            let request = agent.post(format!("{endpoint}{path}"));
            let mut request = request.config().timeout_global(Some(time)).build();
            if let Some(token) = &token {
                request = request.header("Authorization", token);
            }
            match request.content_type("application/json").send(&body) {
                // Of an endpoint without a majority.
                Ok(response) if response.status() == 503 => {
                    let why = "it has no leader".to_owned();
                    away = RegistryError::Away { endpoint: endpoint.clone(), why };
                }
                Ok(response) => return Ok((endpoint.clone(), response)),
                Err(error) => away = RegistryError::away(endpoint, &error),
            }
        }
        self.read_certificates();
        Err(away)
    }

    /// The certificates may have been renewed: the next call uses what the files have now.
    fn read_certificates(&self) {
        if self.access.ca.is_some()
            && let Ok(agent) = agent(&self.access)
        {
            *self.agent.lock().unwrap_or_else(PoisonError::into_inner) = agent;
        }
    }

    fn known_token(&self) -> MutexGuard<'_, Option<String>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What etcd gives for the password; `None` without users.
    fn token(&self) -> Result<Option<String>, RegistryError> {
        if let Some(token) = &*self.known_token() {
            return Ok(Some(token.clone()));
        }
        let Some((name, password)) = self.access.user()? else { return Ok(None) };
        let asked = json!({ "name": name, "password": password });
        let posted = self.post_with("/v3/auth/authenticate", &asked, (CALL_TIME, None))?;
        let reply = text_in(&posted.0, posted.1)?;
        let token = reply["token"].as_str().map(str::to_owned);
        let token = token.ok_or_else(|| RegistryError::Malformed("no token".to_owned()))?;
        *self.known_token() = Some(token.clone());
        Ok(Some(token))
    }
}

/// The file systems that have an entry `fs` in etcd, in the order of their uuids.
///
/// # Errors
/// [`RegistryError`] of etcd.
pub fn file_systems(etcd: &Etcd) -> Result<Vec<[u8; 16]>, RegistryError> {
    let fs_of = |key: &str| {
        let digits = key.strip_prefix("/lanefs/")?.strip_suffix("/fs")?;
        let mut fs = [0; 16];
        hex::decode_to_slice(digits, &mut fs).ok().map(|()| fs)
    };
    let entries = etcd.read("/lanefs/")?.entries;
    Ok(entries.iter().filter_map(|entry| fs_of(&entry.key)).collect())
}

/// Makes a change of the present state, again and again until no other change comes between; what
/// `change` returned with it.
///
/// # Errors
/// [`RegistryError`] of etcd, or of `change`.
pub fn change<T>(
    etcd: &Etcd,
    fs: [u8; 16],
    mut make: impl FnMut(&Cluster) -> Result<(T, Vec<Write>), RegistryError>,
) -> Result<T, RegistryError> {
    loop {
        let cluster = Cluster::read(fs, &etcd.read(&prefix(fs))?)?;
        let (made, writes) = make(&cluster)?;
        if etcd.swap(&writes)?.is_some() {
            return Ok(made);
        }
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("access", &self.access).finish_non_exhaustive()
    }
}

/// The endpoint that answered, and its answer.
type Posted = (String, ureq::http::Response<ureq::Body>);

fn agent(access: &Access) -> Result<ureq::Agent, RegistryError> {
    let config = ureq::Agent::config_builder()
        .timeout_connect(Some(CALL_TIME))
        .http_status_as_error(false)
        .proxy(None);
    let config = match access.tls()? {
        Some(tls) => config.tls_config(tls),
        None => config,
    };
    Ok(config.build().into())
}

fn text_in(
    endpoint: &str,
    response: ureq::http::Response<ureq::Body>,
) -> Result<Value, RegistryError> {
    let text = response.into_body().read_to_string();
    parsed(&text.map_err(|error| RegistryError::away(endpoint, &error))?)
}

/// A reply, unless it says why there is none.
fn parsed(text: &str) -> Result<Value, RegistryError> {
    let reply: Value = serde_json::from_str(text).map_err(|error| match remedy(text) {
        Some(remedy) => RegistryError::Refused(remedy.to_owned()),
        None => RegistryError::Malformed(format!("{error} in {text:?}")),
    })?;
    let error = &reply["error"];
    if error.is_null() {
        return Ok(reply);
    }
    // That of a stream is an object.
    let why = error.as_str().or_else(|| error["message"].as_str());
    let why = why.map_or_else(|| error.to_string(), |why| remedy(why).unwrap_or(why).to_owned());
    Err(RegistryError::Refused(why))
}

/// What to do about a refusal, where etcd's words do not say it.
fn remedy(why: &str) -> Option<&'static str> {
    if why.starts_with("CommonName of client") {
        return Some(
            "beside users it takes a certificate without a common name (CN) only: name such a one by \
             --etcd-cert, or none",
        );
    }
    why.contains("user name is empty").then_some(
        "it has users: name one by --etcd-user and --etcd-password-file; it needs readwrite on /lanefs/",
    )
}

fn entry_of(kv: &Value) -> Result<Versioned, RegistryError> {
    let (key, value) = (text_of(&kv["key"])?, text_of(&kv["value"])?);
    Ok(Versioned { key, value: Some(value), version: number(&kv["mod_revision"])? })
}
