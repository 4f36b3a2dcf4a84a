//! `Access`: where an etcd is, and by which certificates, name and password it is reached.

use crate::RegistryError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// How to reach an etcd. Of secrets it has the files only.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// `http://HOST:PORT`, or all `https://HOST:PORT`.
    pub endpoints: Vec<String>,
    /// The certificate authority of etcd's certificate (PEM), for `https://`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The certificate that is shown to etcd (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// Its private key (PEM). Nobody else may read the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The name of a user of etcd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The file with the user's password. Nobody else may read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<PathBuf>,
}

impl Access {
    /// Access without certificates and user to these endpoints, separated by commas.
    #[must_use]
    pub fn to_endpoints(text: &str) -> Self {
        let endpoints = text.split(',').map(|one| one.trim().trim_end_matches('/').to_owned());
        Self { endpoints: endpoints.collect(), ..Self::default() }
    }

    /// Whether all of it fits together.
    ///
    /// # Errors
    /// [`RegistryError::State`] with a sentence.
    pub(crate) fn check(&self) -> Result<(), RegistryError> {
        let refused = |line: String| Err(RegistryError::State(line));
        if let Some(wrong) = self.endpoints.iter().find(|one| host_of(one).is_none()) {
            return refused(format!(
                "\"{wrong}\" is no address of etcd: http://HOST:PORT or https://HOST:PORT, as \
                 http://127.0.0.1:2379"
            ));
        }
        let is_sealed = |one: &&String| one.starts_with("https://");
        let sealed_count = self.endpoints.iter().filter(is_sealed).count();
        if sealed_count != 0 && sealed_count != self.endpoints.len() {
            return refused("etcd's addresses are all http:// or all https://".to_owned());
        }
        let files = [&self.ca, &self.cert, &self.key];
        if sealed_count == 0 && files.iter().any(|file| file.is_some()) {
            return refused(
                "certificates are for an etcd whose addresses begin with https://".to_owned(),
            );
        }
        if sealed_count > 0 && self.ca.is_none() {
            return refused(
                "an etcd with https:// needs the file of its certificate authority: --etcd-ca FILE"
                    .to_owned(),
            );
        }
        if self.cert.is_some() != self.key.is_some() {
            return refused("--etcd-cert and --etcd-key are needed together".to_owned());
        }
        if self.user.is_some() != self.password.is_some() {
            return refused("--etcd-user and --etcd-password-file are needed together".to_owned());
        }
        let is_open = |one: &String| !is_loopback(host_of(one).unwrap_or_default());
        if sealed_count == 0 && self.user.is_some() && self.endpoints.iter().any(is_open) {
            return refused(
                "a password is not sent in plain text: an etcd with users needs https://, unless it is \
                 on this machine"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// The settings of connections; `None` without TLS. Reads the files.
    pub(crate) fn tls(&self) -> Result<Option<TlsConfig>, RegistryError> {
        let Some(ca) = &self.ca else { return Ok(None) };
        let roots = certificates(ca, &fs::read(ca).map_err(|error| unread(ca, &error))?)?;
        let client = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let chain = fs::read(cert).map_err(|error| unread(cert, &error))?;
                let chain = certificates(cert, &chain)?;
                let key_bytes = private(key)?;
                let parsed = PrivateKey::from_pem(&key_bytes);
                let parsed = parsed.map_err(|error| unread(key, &error))?;
                Some(ClientCert::new_with_certs(&chain, parsed))
            }
            (_, _) => None,
        };
        let crypto = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&roots))
            .client_cert(client)
            .unversioned_rustls_crypto_provider(crypto);
        Ok(Some(tls.build()))
    }

    /// Name and password; `None` without users. Reads the file.
    pub(crate) fn user(&self) -> Result<Option<(String, String)>, RegistryError> {
        let (Some(user), Some(file)) = (&self.user, &self.password) else { return Ok(None) };
        let password = String::from_utf8(private(file)?);
        let password = password.map_err(|error| unread(file, &error.utf8_error()))?;
        Ok(Some((user.clone(), password.trim_end_matches(['\r', '\n']).to_owned())))
    }
}

impl fmt::Display for Access {
    /// The endpoints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.endpoints.join(","))
    }
}

/// Host and port of an endpoint.
fn host_of(endpoint: &str) -> Option<&str> {
    let rest = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"))?;
    Some(rest).filter(|rest| !rest.is_empty() && !rest.contains(['/', '@']))
}

fn is_loopback(host: &str) -> bool {
    host.starts_with("127.") || host.starts_with("localhost:") || host.starts_with("[::1]")
}

/// A file that only its owner may read.
fn private(path: &Path) -> Result<Vec<u8>, RegistryError> {
    let read = || -> std::io::Result<(u32, Vec<u8>)> {
        Ok((fs::metadata(path)?.permissions().mode(), fs::read(path)?))
    };
    let (mode, bytes) = read().map_err(|error| unread(path, &error))?;
    if mode & 0o077 == 0 {
        return Ok(bytes);
    }
    let shown = path.display();
    Err(RegistryError::State(format!(
        "others than its owner may read {shown}: `chmod 600 {shown}` mends that"
    )))
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<Certificate<'static>>, RegistryError> {
    let mut found = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(one) = item.map_err(|error| unread(path, &error))? {
            found.push(one);
        }
    }
    if found.is_empty() {
        return Err(unread(path, &"there is no certificate in it"));
    }
    Ok(found)
}

fn unread(path: &Path, why: &dyn fmt::Display) -> RegistryError {
    RegistryError::State(format!("cannot use {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn refused(access: &Access) -> String {
        access.check().unwrap_err().to_string()
    }

    #[test]
    fn what_does_not_fit_together_is_refused_with_a_sentence() {
        let plain = Access::to_endpoints("http://127.0.0.1:2379, http://[::1]:2379/");
        assert_eq!(plain.to_string(), "http://127.0.0.1:2379,http://[::1]:2379");
        plain.check().unwrap();
        for text in ["", "etcd:2379", "ftp://h:1", "http://", "http://h:1/x", "http://h:1,"] {
            assert!(
                refused(&Access::to_endpoints(text)).contains("is no address of etcd"),
                "{text}"
            );
        }
        // Nothing secret is in an address.
        assert!(refused(&Access::to_endpoints("http://me:secret@h:1")).contains("no address"));
        assert!(refused(&Access::to_endpoints("http://h:1,https://h:1")).contains("all http"));
        let file = Some(PathBuf::from("/f"));
        let sealed = Access::to_endpoints("https://h:1");
        assert!(refused(&sealed).contains("--etcd-ca FILE"));
        let sealed = Access { ca: file.clone(), ..sealed };
        sealed.check().unwrap();
        let half = Access { cert: file.clone(), ..sealed.clone() };
        assert!(refused(&half).contains("--etcd-cert and --etcd-key"));
        let half = Access { user: Some("lanefs".to_owned()), ..sealed };
        assert!(refused(&half).contains("--etcd-user and --etcd-password-file"));
        let unsealed = Access { ca: file.clone(), ..plain.clone() };
        assert!(refused(&unsealed).contains("https://"));
        let user = Access { password: file, user: Some("lanefs".to_owned()), ..plain };
        user.check().unwrap();
        let far = Access { endpoints: vec!["http://10.0.0.1:2379".to_owned()], ..user };
        assert!(refused(&far).contains("plain text"));
    }

    #[test]
    fn a_password_that_others_may_read_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        fs::write(&file, "correct horse\n").unwrap();
        let mut access = Access::to_endpoints("http://127.0.0.1:2379");
        access.user = Some("lanefs".to_owned());
        access.password = Some(file.clone());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let line = access.user().unwrap_err().to_string();
        assert!(line.contains("chmod 600") && !line.contains("horse"), "{line}");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let user = access.user().unwrap();
        assert_eq!(user, Some(("lanefs".to_owned(), "correct horse".to_owned())));
    }
}
