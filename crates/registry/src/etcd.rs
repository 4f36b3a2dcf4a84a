//! `Etcd`: calls of etcd over its JSON gateway, each to the first endpoint that answers.
//!
//! Reads are linearizable. A call that fails as [`RegistryError::Away`] may have been made.

use crate::RegistryError;
use crate::gateway::{bytes, end_of, number, text_of};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::time::Duration;

/// How long an endpoint has for an answer.
const CALL_TIME: Duration = Duration::from_secs(5);
/// How long a watch runs before it begins anew: so one whose machine is off ends.
const WATCH_TIME: Duration = Duration::from_secs(30);

/// A value and its version, the revision of etcd that wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Versioned {
    /// The key.
    pub key: String,
    /// The value; `None` if the key was removed.
    pub value: Option<String>,
    /// The revision.
    pub version: i64,
}

/// All keys below a prefix at one revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The revision.
    pub revision: i64,
    /// In the order of the keys.
    pub entries: Vec<Versioned>,
}

/// A lease: keys that were written under it are removed when it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseId(pub i64);

/// One write of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// The key.
    pub key: String,
    /// The version that it must have, 0 for none.
    pub version: i64,
    /// What it becomes; `None`: it is removed.
    pub value: Option<String>,
    /// What it lives as long as.
    pub lease: Option<LeaseId>,
}

/// An etcd.
#[derive(Debug)]
pub struct Etcd {
    agent: ureq::Agent,
    endpoints: Vec<String>,
}

impl Etcd {
    /// The etcd with these endpoints, `http://HOST:PORT` separated by commas.
    ///
    /// # Errors
    /// [`RegistryError::State`] for a text that names none.
    pub fn new(endpoints: &str) -> Result<Self, RegistryError> {
        let endpoints: Vec<String> =
            endpoints.split(',').map(|one| one.trim().trim_end_matches('/').to_owned()).collect();
        if let Some(wrong) = endpoints.iter().find(|one| !is_endpoint(one)) {
            let line = format!(
                "\"{wrong}\" is no address of etcd: http://HOST:PORT, as http://127.0.0.1:2379"
            );
            return Err(RegistryError::State(line));
        }
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(CALL_TIME))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        Ok(Self { agent: config.into(), endpoints })
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

    fn call(&self, path: &str, asked: &Value) -> Result<Value, RegistryError> {
        let (endpoint, response) = self.post(path, asked, CALL_TIME)?;
        let text = response.into_body().read_to_string();
        parsed(&text.map_err(|error| RegistryError::away(&endpoint, &error))?)
    }

    /// Asks the endpoints in turn, until one answers; which one did.
    fn post(
        &self,
        path: &str,
        asked: &Value,
        time: Duration,
    ) -> Result<(String, ureq::http::Response<ureq::Body>), RegistryError> {
        let body = asked.to_string();
        let mut away = RegistryError::State("etcd has no address".to_owned());
        for endpoint in &self.endpoints {
            let request = self.agent.post(format!("{endpoint}{path}"));
            let request = request.config().timeout_global(Some(time)).build();
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
        Err(away)
    }
}

fn is_endpoint(text: &str) -> bool {
    text.strip_prefix("http://").is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
}

/// A reply, unless it says why there is none.
fn parsed(text: &str) -> Result<Value, RegistryError> {
    let reply: Value = serde_json::from_str(text)
        .map_err(|error| RegistryError::Malformed(format!("{error} in {text:?}")))?;
    let error = &reply["error"];
    if error.is_null() {
        return Ok(reply);
    }
    // That of a stream is an object.
    let why = error.as_str().or_else(|| error["message"].as_str()).map(str::to_owned);
    Err(RegistryError::Refused(why.unwrap_or_else(|| error.to_string())))
}

fn entry_of(kv: &Value) -> Result<Versioned, RegistryError> {
    let (key, value) = (text_of(&kv["key"])?, text_of(&kv["value"])?);
    Ok(Versioned { key, value: Some(value), version: number(&kv["mod_revision"])? })
}
