//! TLS configuration of servers and clients.
//!
//! TLS 1.3 only, no tickets, no early data. By default a server presents a raw public key (RFC
//! 7250) that it generated at its start, and a client accepts any key; with certificates each end
//! presents one and verifies the other's.

use crate::certificates::Certificates;
use crate::client_hello::Acceptable;
use crate::client_verifier::ClientVerifier;
use crate::fault::{Fault, Flaw, SetupError};
use crypto::rand::SystemRandom;
use crypto::signature::Ed25519KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring as suites, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::{
    AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme, version::TLS13,
};
use std::sync::Arc;

/// A server's TLS configuration, for clients that have a secret, a certificate, or either; cheap to
/// clone.
#[derive(Clone, Debug)]
pub struct Server {
    /// For clients with a secret.
    pub(crate) raw_key: Option<Arc<ServerConfig>>,
    /// For clients with a certificate.
    pub(crate) certified: Option<Arc<ServerConfig>>,
}

/// A client's TLS configuration; cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
    /// It presents a certificate and requires one.
    pub(crate) certified: bool,
}

impl Server {
    /// A server with a raw key that is generated now and stored nowhere: client and server prove
    /// the shared secret to each other, bound to this connection ([`crate::ChannelBinding`]).
    ///
    /// # Errors
    /// When the system provides no random numbers.
    pub fn with_new_key() -> Result<Self, SetupError> {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        let made = made.map_err(|_| SetupError::new("no random numbers for a key".to_owned()))?;
        let provider = provider();
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.as_ref().to_vec()));
        let key = provider.key_provider.load_private_key(der)?;
        let Some(public) = key.public_key().map(|public| public.as_ref().to_vec()) else {
            return Err(SetupError::new("a new key has no public half".to_owned()));
        };
        let shown = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key));
        let builder = ServerConfig::builder_with_provider(Arc::new(provider));
        let config = builder.with_protocol_versions(&[&TLS13])?.with_no_client_auth();
        let resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(shown));
        let config = Self::config(config.with_cert_resolver(resolver));
        Ok(Self { raw_key: Some(config), certified: None })
    }

    /// A server with a certificate, which requires one of each client; no secret is needed then.
    ///
    /// # Errors
    /// When the key does not belong to the certificate, or is of an unknown kind.
    pub fn with_certificates(certificates: &Certificates) -> Result<Self, SetupError> {
        let provider = Arc::new(provider());
        let roots = Arc::clone(&certificates.roots);
        let clients = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
        // Strangers need not learn the roots, and the list could be long.
        let clients = clients.clear_root_hint_subjects().build();
        let clients = clients.map_err(|error| SetupError::new(error.to_string()))?;
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[&TLS13])?;
        let builder = builder.with_client_cert_verifier(Arc::new(ClientVerifier(clients)));
        let (chain, key) = (certificates.chain.clone(), certificates.key.clone_key());
        let config = Self::config(builder.with_single_cert(chain, key)?);
        Ok(Self { raw_key: None, certified: Some(config) })
    }

    /// The same, and also serves clients that have a secret, with a raw key as in
    /// [`Self::with_new_key`].
    ///
    /// # Errors
    /// When the system provides no random numbers.
    pub fn and_new_key(self) -> Result<Self, SetupError> {
        Ok(Self { raw_key: Self::with_new_key()?.raw_key, ..self })
    }

    fn config(mut config: ServerConfig) -> Arc<ServerConfig> {
        config.enable_secret_extraction = true;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Arc::new(config)
    }

    /// The configuration for a client whose first record is this.
    pub(crate) fn config_for(&self, record: &[u8]) -> Result<Arc<ServerConfig>, Fault> {
        let takes = Acceptable::of(record);
        let any = Acceptable { certificate: true, raw_key: true };
        let Acceptable { certificate, raw_key } = takes.unwrap_or(any);
        let certified = self.certified.as_ref().filter(|_| certificate);
        let config = certified.or_else(|| self.raw_key.as_ref().filter(|_| raw_key));
        let missing = if certificate {
            Fault::OwnCertificate(Flaw::Missing)
        } else {
            Fault::Certificate(Flaw::Missing)
        };
        config.cloned().ok_or(missing)
    }
}

impl Client {
    /// A client that accepts any server key; [`AnyKey`] says why that is sound.
    ///
    /// # Errors
    /// When the library has no TLS 1.3.
    pub fn with_any_key() -> Result<Self, SetupError> {
        let provider = provider();
        let algorithms = provider.signature_verification_algorithms;
        let builder = ClientConfig::builder_with_provider(Arc::new(provider));
        let builder = builder.with_protocol_versions(&[&TLS13])?.dangerous();
        let builder = builder.with_custom_certificate_verifier(Arc::new(AnyKey { algorithms }));
        let name = ServerName::try_from("lanefs");
        let name = name.map_err(|error| SetupError::new(error.to_string()))?;
        Ok(Self { certified: false, ..Self::of(builder.with_no_client_auth(), name) })
    }

    /// A client that presents a certificate and requires one of the server for this name or
    /// address.
    ///
    /// # Errors
    /// When the key does not belong to the certificate or is of an unknown kind, or the name is
    /// invalid.
    pub fn with_certificates(
        certificates: &Certificates,
        server: &str,
    ) -> Result<Self, SetupError> {
        let name = ServerName::try_from(server.to_owned());
        let name =
            name.map_err(|_| SetupError::new(format!("\"{server}\" is no name or address")))?;
        let provider = Arc::new(provider());
        let roots = Arc::clone(&certificates.roots);
        let servers = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let servers = servers.build().map_err(|error| SetupError::new(error.to_string()))?;
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[&TLS13])?.with_webpki_verifier(servers);
        let (chain, key) = (certificates.chain.clone(), certificates.key.clone_key());
        Ok(Self::of(builder.with_client_auth_cert(chain, key)?, name))
    }

    fn of(mut config: ClientConfig, name: ServerName<'static>) -> Self {
        config.enable_secret_extraction = true;
        config.enable_sni = false;
        config.resumption = Resumption::disabled();
        Self { config: Arc::new(config), name, certified: true }
    }
}

/// The ciphers, the faster first. Both hash with SHA-256, which [`crate::channel_binding`] relies
/// on.
fn provider() -> CryptoProvider {
    let aes = suites::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let chacha = suites::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
    let cipher_suites = if has_aes() { vec![aes, chacha] } else { vec![chacha, aes] };
    CryptoProvider { cipher_suites, ..suites::default_provider() }
}

/// Whether the processor has instructions for AES.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// Accepts every server key. That is sound because the TLS handshake is followed only by our own
/// handshake, in which both ends prove the shared secret together with the connection's
/// [`crate::ChannelBinding`]: a man in the middle may present a key, but a proof made for his
/// connection is worthless on any other. Possession of the presented key is still verified, as the
/// TLS handshake requires.
#[derive(Debug)]
struct AnyKey {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
