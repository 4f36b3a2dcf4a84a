//! Two ends with certificates.

use super::*;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SanType, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

const CLIENT: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ClientAuth;
const SERVER: ExtendedKeyUsagePurpose = ExtendedKeyUsagePurpose::ServerAuth;

/// A CA and its chain.
struct Ca {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    /// Intermediates between this CA and a root.
    between: String,
}

fn ca_params(name: &str, comment_bytes: usize) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    // Makes the certificate longer.
    let comment = "x".repeat(comment_bytes);
    params.subject_alt_names = vec![SanType::URI(comment.try_into().unwrap())];
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

impl Ca {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = ca_params(name, 0);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key), between: String::new() }
    }

    /// An intermediate CA signed by this one.
    fn below(&self, name: &str, comment_bytes: usize) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = ca_params(name, comment_bytes);
        let signed = params.signed_by(&key, &self.issuer).unwrap().pem();
        let between = signed + &self.between;
        Self { pem: self.pem.clone(), issuer: Issuer::new(params, key), between }
    }

    /// A certificate by this CA, for an end that trusts `roots`.
    fn sign(
        &self,
        purpose: ExtendedKeyUsagePurpose,
        roots: &Self,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Certificates {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![purpose];
        params.subject_alt_names = vec![
            SanType::DnsName("server".try_into().unwrap()),
            SanType::URI("lanefs:store".try_into().unwrap()),
        ];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem() + &self.between;
        let key = key.serialize_pem();
        let (chain, key) = (chain.as_bytes(), key.as_bytes());
        Certificates::from_pem(Pem { chain, key, roots: roots.pem.as_bytes() }).unwrap()
    }
}

fn same(_: &mut CertificateParams) {}

fn expired(params: &mut CertificateParams) {
    params.not_after = date_time_ymd(2021, 1, 1);
}

fn early(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2999, 1, 1);
}

/// An end, and how its handshake ended.
type Ended = (Seal, Result<(), Fault>);

fn take<'a>(
    seal: &mut Seal,
    end: &mut Result<(), Fault>,
    pieces: impl Iterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) {
    for piece in pieces {
        if end.is_ok() {
            seal.push_received(piece);
            *end = if seal.is_open() {
                seal.open().map(drop)
            } else {
                seal.advance_handshake(out).map(drop)
            };
        }
    }
}

/// Runs a handshake, `step_bytes` at a time, until neither end sends; both ends with their results.
fn shake(client: &Client, server: &Server, step_bytes: usize) -> (Ended, Ended) {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut client = Seal::client(client, &mut to_server).unwrap();
    let mut server = Seal::server(server);
    let (mut at_client, mut at_server) = (Ok(()), Ok(()));
    while !to_server.is_empty() || !to_client.is_empty() {
        let sent = std::mem::take(&mut to_server);
        take(&mut server, &mut at_server, sent.chunks(step_bytes), &mut to_client);
        let sent = std::mem::take(&mut to_client);
        take(&mut client, &mut at_client, sent.chunks(step_bytes), &mut to_server);
    }
    ((client, at_client), (server, at_server))
}

fn ends(client: &Certificates, server: &Certificates) -> (Client, Server) {
    let client = Client::with_certificates(client, "server").unwrap();
    (client, Server::with_certificates(server).unwrap())
}

#[test]
fn both_ends_present_certificates_and_the_server_learns_the_identity() {
    let ca = Ca::new("root");
    let (alice, server) = (ca.sign(CLIENT, &ca, same), ca.sign(SERVER, &ca, same));
    let mut keys = Vec::new();
    for step_bytes in [1, 100, usize::MAX] {
        let (client, server) = ends(&alice, &server);
        let ((client, at_client), (server, at_server)) = shake(&client, &server, step_bytes);
        assert_eq!((at_client, at_server), (Ok(()), Ok(())));
        assert!(
            client.channel_binding().is_some()
                && client.channel_binding() == server.channel_binding()
        );
        assert_eq!(client.peer(), None);
        let peer = server.peer().unwrap();
        assert_eq!(peer.uris, ["lanefs:store"]);
        keys.push(peer.key);
    }
    assert!(keys.windows(2).all(|two| two[0] == two[1]), "one key, one holder");
    let (client, server) = ends(&ca.sign(CLIENT, &ca, same), &server);
    let (_, (server, _)) = shake(&client, &server, usize::MAX);
    assert_ne!(server.peer().unwrap().key, keys[0]);
}

#[test]
fn chains_of_maximum_length_fit_a_flight_and_longer_ones_are_refused() {
    let root = Ca::new("root");
    let below = |comment_bytes| {
        let mut ca = root.below("1", comment_bytes);
        for name in ["2", "3", "4"] {
            ca = ca.below(name, comment_bytes);
        }
        ca
    };
    // Five certificates, in more than one record.
    let ca = below(3500);
    assert!(ca.between.len() > RECORD_BYTES_MAX);
    let (client, server) = (ca.sign(CLIENT, &root, same), ca.sign(SERVER, &root, same));
    let (client, server) = ends(&client, &server);
    let ((_, at_client), (_, at_server)) = shake(&client, &server, 1000);
    assert_eq!((at_client, at_server), (Ok(()), Ok(())));
    for ca in [below(0).below("5", 0), below(4500)] {
        let key = KeyPair::generate().unwrap();
        let chain = CertificateParams::default().signed_by(&key, &ca.issuer).unwrap().pem();
        let (chain, key) = (chain + &ca.between, key.serialize_pem());
        let (chain, key) = (chain.as_bytes(), key.as_bytes());
        let (part, error) =
            Certificates::from_pem(Pem { chain, key, roots: root.pem.as_bytes() }).unwrap_err();
        assert_eq!(part, PemPart::Chain);
        assert!(error.to_string().contains("at most 5"), "{error}");
        // A peer may send such a chain all the same.
        let mut long = root.sign(CLIENT, &root, same);
        long.chain.extend(CertificateDer::pem_slice_iter(chain).skip(1).map(Result::unwrap));
        let (client, server) = ends(&long, &root.sign(SERVER, &root, same));
        let ((_, at_client), (server, at_server)) = shake(&client, &server, usize::MAX);
        assert!(at_server.is_err() && !server.is_open(), "{at_client:?}");
    }
}

#[test]
fn invalid_certificates_are_refused_with_the_reason_at_both_ends() {
    let (ca, other, twin) = (Ca::new("root"), Ca::new("other"), Ca::new("root"));
    let good = |purpose| ca.sign(purpose, &ca, same);
    let named = |params: &mut CertificateParams| {
        params.subject_alt_names = vec![SanType::DnsName("elsewhere".try_into().unwrap())];
    };
    for (bad, flaw, received) in [
        (other.sign(CLIENT, &ca, same), Flaw::OtherIssuer, Flaw::OtherIssuer),
        (twin.sign(CLIENT, &ca, same), Flaw::OtherIssuer, Flaw::OtherIssuer),
        (ca.sign(CLIENT, &ca, expired), Flaw::Expired, Flaw::Expired),
        (ca.sign(CLIENT, &ca, early), Flaw::NotYetValid, Flaw::Expired),
        (ca.sign(SERVER, &ca, same), Flaw::OtherUse, Flaw::OtherUse),
    ] {
        let (client, server) = ends(&bad, &good(SERVER));
        let ((_, at_client), (server, at_server)) = shake(&client, &server, usize::MAX);
        assert_eq!(at_server, Err(Fault::Certificate(flaw)));
        assert_eq!(at_client, Err(Fault::OwnCertificate(received)));
        assert!(server.peer().is_none() && server.channel_binding().is_none());
    }
    for (bad, flaw, received) in [
        (other.sign(SERVER, &ca, same), Flaw::OtherIssuer, Flaw::OtherIssuer),
        (twin.sign(SERVER, &ca, same), Flaw::OtherIssuer, Flaw::OtherIssuer),
        (ca.sign(SERVER, &ca, expired), Flaw::Expired, Flaw::Expired),
        (ca.sign(SERVER, &ca, early), Flaw::NotYetValid, Flaw::Expired),
        (ca.sign(SERVER, &ca, named), Flaw::OtherName, Flaw::OtherName),
        (ca.sign(CLIENT, &ca, same), Flaw::OtherUse, Flaw::OtherUse),
    ] {
        let (client, server) = ends(&good(CLIENT), &bad);
        let ((client, at_client), (_, at_server)) = shake(&client, &server, usize::MAX);
        assert_eq!(at_client, Err(Fault::Certificate(flaw)));
        assert_eq!(at_server, Err(Fault::OwnCertificate(received)));
        assert!(client.channel_binding().is_none());
    }
}

#[test]
fn each_kind_of_client_is_served_or_gets_an_alert() {
    let ca = Ca::new("root");
    let certificates = ca.sign(SERVER, &ca, same);
    let (certified, of_certificates) = ends(&ca.sign(CLIENT, &ca, same), &certificates);
    let secret = Client::with_any_key().unwrap();
    let both = of_certificates.clone().and_new_key().unwrap();
    let of_key = Server::with_new_key().unwrap();
    for (client, server, known) in
        [(&certified, &both, true), (&secret, &both, false), (&certified, &of_certificates, true)]
    {
        let ((_, at_client), (server, at_server)) = shake(client, server, 7);
        assert_eq!((at_client, at_server), (Ok(()), Ok(())));
        assert_eq!(server.peer().is_some(), known);
    }
    let missing = Flaw::Missing;
    let ((_, at_client), (_, at_server)) = shake(&secret, &of_certificates, 7);
    assert_eq!(at_server, Err(Fault::Certificate(missing)));
    assert_eq!(at_client, Err(Fault::OwnCertificate(missing)));
    let ((_, at_client), (_, at_server)) = shake(&certified, &of_key, 7);
    assert_eq!(at_server, Err(Fault::OwnCertificate(missing)));
    assert_eq!(at_client, Err(Fault::Certificate(missing)));
}

#[test]
fn garbage_anywhere_in_a_certificate_handshake_never_opens_a_connection() {
    let ca = Ca::new("root");
    let (client, server) = ends(&ca.sign(CLIENT, &ca, same), &ca.sign(SERVER, &ca, same));
    let mut number = 7_u64;
    let mut roll = move || {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(number >> 33).unwrap()
    };
    for round in 0..600 {
        let mut first = Vec::new();
        let mut client = Seal::client(&client, &mut first).unwrap();
        let mut server = Seal::server(&server);
        let mut flight = first;
        let mut seal = &mut server;
        // Changes the client's hello, the server's flight, or the client's last flight.
        for step in 0..round % 3 {
            let mut answer = Vec::new();
            seal.push_received(&flight);
            seal.advance_handshake(&mut answer).unwrap();
            flight = answer;
            seal = if step == 0 { &mut client } else { &mut server };
        }
        let whole = flight.clone();
        for _ in 0..1 + roll() % 4 {
            let index = roll() % flight.len();
            flight[index] = roll().to_le_bytes()[0];
        }
        flight.truncate(1 + roll() % (2 * flight.len()));
        let mut out = Vec::new();
        seal.push_received(&flight);
        let progress = seal.advance_handshake(&mut out);
        let is_open = matches!(progress, Ok(HandshakeProgress::Open(_)));
        // The version in a record's header is ignored by TLS 1.3.
        let heads_only = whole.iter().zip(&flight).filter(|(one, other)| one != other).count() < 3;
        assert!(!is_open || flight.starts_with(&whole) || heads_only, "round {round}");
        assert!(out.len() < 8192 && seal.recv_space(0).len() <= 64 * 1024);
    }
}
