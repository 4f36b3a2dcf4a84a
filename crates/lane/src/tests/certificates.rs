//! Clients that have shown a certificate instead of proving a secret.

use super::peer::{HelloFields, handshake, handshake_frame};
use crate::test_server::TestServer;
use wire::{
    Challenge, Channel, Credential, FrameKind, PLAIN, Proof, Proven, Purpose, Refusal,
    RefusalReason, Secret, SessionId, Welcome, Wire as _,
};

const CHANNEL: Channel = [9; 32];

/// A client certificate: its key, and the URI that says what it opens.
type Shown<'a> = Option<(u8, &'a str)>;

/// Connects with a certificate; returns the server's last frame.
fn send_handshake(
    server: &mut TestServer,
    fields: &HelloFields,
    shown: Shown<'_>,
) -> Result<SessionId, RefusalReason> {
    let conn = server.connect();
    match shown {
        Some(shown) => server.certify(conn, CHANNEL, shown),
        None => server.seal(conn, CHANNEL),
    }
    prove(server, conn, fields, &CHANNEL)
}

fn prove(
    server: &mut TestServer,
    conn: interface::ConnId,
    fields: &HelloFields,
    channel: &Channel,
) -> Result<SessionId, RefusalReason> {
    let hello = fields.hello(&Secret::certified());
    server.send(conn, handshake(FrameKind::Hello, &hello), None);
    server.run();
    let (kind, body) = handshake_frame(&server.take(conn));
    let refused = |body: &[u8]| Refusal::decode_all(body).unwrap().reason;
    if kind == FrameKind::Refusal {
        assert!(server.is_closed(conn) && !server.is_admitted(conn));
        return Err(refused(&body));
    }
    let challenge = Challenge::decode_all(&body).unwrap();
    let proven = Proven { hello: &hello, nonce: &challenge.nonce, channel };
    let secret = Secret::certified().on(channel);
    assert!(secret.server_proven(proven, &challenge.proof));
    let proof = Proof { proof: secret.client_proof(proven) };
    server.send(conn, handshake(FrameKind::Proof, &proof.to_bytes()), None);
    server.run();
    let (kind, body) = handshake_frame(&server.take(conn));
    match kind {
        FrameKind::Welcome => Ok(Welcome::decode_all(&body).unwrap().session),
        _ => Err(refused(&body)),
    }
}

fn fields(export: &'static str, purpose: Purpose) -> HelloFields {
    HelloFields { export, purpose, credential: Credential::Certificate, ..HelloFields::new(1) }
}

#[test]
fn a_certificate_opens_what_it_names() {
    let mut server = TestServer::started(2, 1);
    let no = Err(RefusalReason::NotCertified);
    for (key, (uri, export, purpose, answer)) in (1..).zip([
        ("lanefs:store", "guests", Purpose::Use, Ok(())),
        ("lanefs:store", "", Purpose::Use, Ok(())),
        ("lanefs:store", "", Purpose::Administer, Ok(())),
        ("lanefs:store", "nothing", Purpose::Use, Err(RefusalReason::NoSuchExport)),
        ("lanefs:export/guests", "guests", Purpose::Use, Ok(())),
        ("lanefs:export/guests", "own", Purpose::Use, no),
        ("lanefs:export/guests", "", Purpose::Use, no),
        // Nor can it find out whether the export exists.
        ("lanefs:export/guests", "nothing", Purpose::Use, no),
        ("lanefs:export/guests", "", Purpose::Administer, no),
        ("lanefs:export/guests", "guests", Purpose::Administer, no),
        ("https://guests/", "guests", Purpose::Use, no),
    ]) {
        let found = send_handshake(&mut server, &fields(export, purpose), Some((key, uri)));
        assert_eq!(found.map(drop), answer, "{uri} for {export:?}, {purpose:?}");
    }
}

#[test]
fn a_hello_that_claims_a_certificate_without_one_is_refused() {
    let mut server = TestServer::started(3, 1);
    let fields = fields("guests", Purpose::Use);
    assert_eq!(send_handshake(&mut server, &fields, None), Err(RefusalReason::NotCertified));
    // The channel of a plain connection is public.
    let conn = server.connect();
    assert_eq!(prove(&mut server, conn, &fields, &PLAIN), Err(RefusalReason::NotCertified));
}

#[test]
fn a_certificate_does_not_replace_the_secret() {
    let mut server = TestServer::started(4, 1);
    let conn = server.connect();
    server.certify(conn, CHANNEL, (1, "lanefs:store"));
    let fields = HelloFields { export: "guests", ..HelloFields::new(1) };
    let hello = fields.hello(&server.secret);
    server.send(conn, handshake(FrameKind::Hello, &hello), None);
    server.run();
    let (_, body) = handshake_frame(&server.take(conn));
    let nonce = Challenge::decode_all(&body).unwrap().nonce;
    let proven = Proven { hello: &hello, nonce: &nonce, channel: &CHANNEL };
    let proof = Secret::of_channel(&CHANNEL).client_proof(proven);
    server.send(conn, handshake(FrameKind::Proof, &Proof { proof }.to_bytes()), None);
    server.run();
    assert_eq!(handshake_frame(&server.take(conn)).0, FrameKind::Refusal);
}

#[test]
fn two_certificates_are_two_clients_and_a_renewed_one_is_the_same_client() {
    let mut server = TestServer::started(5, 1);
    let fields = |conn_epoch| HelloFields { conn_epoch, ..fields("guests", Purpose::Use) };
    let first = send_handshake(&mut server, &fields(1), Some((1, "lanefs:export/guests"))).unwrap();
    // The same uuid and URI, another key.
    let second =
        send_handshake(&mut server, &fields(1), Some((2, "lanefs:export/guests"))).unwrap();
    assert_ne!(first, second);
    let renewed = send_handshake(&mut server, &fields(2), Some((1, "lanefs:store"))).unwrap();
    assert_eq!(first, renewed);
}
