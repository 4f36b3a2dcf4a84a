//! Connections whose two ends show certificates, over real loopback sockets.

use super::support::{Recorder, ask, echo_server, frame, hello, read_frame, ring_config, turns};
use interface::{
    Action, BadCertificate, CertificateFlaw, CloseReason, Event, NetAction, NetEvent, Ticket,
};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};
use ring::{ClientSeals, Ring, Sealing, ServerSeals};
use seal::{Certificates, Pem};
use std::net::SocketAddr;
use std::sync::Arc;
use wire::{LaneId, ServerAddress};

struct Ca {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn sign(&self, purpose: ExtendedKeyUsagePurpose, roots: &Self) -> Certificates {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![purpose];
        params.subject_alt_names = vec![
            SanType::DnsName("server".try_into().unwrap()),
            SanType::URI("lanefs:store".try_into().unwrap()),
        ];
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        let (chain, key) = (chain.as_bytes(), key.serialize_pem());
        let pem = Pem { chain, key: key.as_bytes(), roots: roots.pem.as_bytes() };
        Certificates::from_pem(pem).unwrap()
    }

    /// The configuration of a server that accepts certificates of these roots.
    fn server(&self, roots: &Self) -> ServerSeals {
        let certificates = self.sign(ExtendedKeyUsagePurpose::ServerAuth, roots);
        let server = seal::Server::with_certificates(&certificates).unwrap();
        Arc::new(move || server.clone())
    }

    fn client(&self, roots: &Self) -> ClientSeals {
        let certificates = self.sign(ExtendedKeyUsagePurpose::ClientAuth, roots);
        let client = seal::Client::with_certificates(&certificates, "server").unwrap();
        Arc::new(move || client.clone())
    }
}

fn client(server: SocketAddr, seals: ClientSeals) -> (Ring, Recorder) {
    let mut config = ring_config(LaneId(0));
    config.server = Some(server);
    config.sealing = Sealing::All;
    config.client_seals = Some(seals);
    (Ring::new(config).unwrap(), Recorder::default())
}

#[test]
fn the_core_gets_a_certificates_identity_before_the_first_frame() {
    let ca = Ca::new();
    let seals = ca.server(&ca);
    let (server, address, events) = echo_server(|config| {
        config.sealing = Sealing::All;
        config.server_seals = Some(seals);
    });
    let (mut ring, mut recorder) = client(address, ca.client(&ca));
    ring.with(|turn| {
        turn.act(NetAction::Connect { ticket: Ticket(1), address: ServerAddress::Initial })
    });
    turns(&mut ring, &mut recorder, |recorder| recorder.events.len() == 2);
    let Event::Net(NetEvent::Sealed { conn, channel, holder: None }) = recorder.events[0] else {
        panic!("{recorder:?}")
    };
    assert_eq!(recorder.events[1], Event::Net(NetEvent::Connected { ticket: Ticket(1), conn }));
    let sent = hello(b"hi");
    ring.with(|turn| {
        let frame = turn.arena.put(&sent);
        turn.act(NetAction::Send { conn, frame, bulk: None });
    });
    turns(&mut ring, &mut recorder, |recorder| recorder.frames.len() == 1);
    assert_eq!(recorder.frames[0], sent);
    let Event::Net(NetEvent::Sealed { channel: at_server, holder: Some(_), .. }) =
        events.recv().unwrap()
    else {
        panic!("the server's core knows no holder")
    };
    assert_eq!(at_server, channel);
    assert_eq!(server.stop().protocol_error_count, 0);
}

#[test]
fn both_ends_report_a_rejected_certificate() {
    let (ca, other) = (Ca::new(), Ca::new());
    let flaw = CertificateFlaw::OtherIssuer;
    let bad = |ours| BadCertificate { ours, flaw };
    for (shows, ours) in [(&ca, false), (&other, true)] {
        // The client's certificate is of another CA than the server accepts, or the reverse.
        let seals = shows.server(&ca);
        let (server, address, events) = echo_server(|config| {
            config.sealing = Sealing::All;
            config.server_seals = Some(seals);
        });
        let by = if ours { &ca } else { &other };
        let (mut ring, mut recorder) = client(address, by.client(&ca));
        let event = ask(
            &mut ring,
            &mut recorder,
            Action::Net(NetAction::Connect { ticket: Ticket(2), address: ServerAddress::Initial }),
        );
        let reason = CloseReason::Certificate(bad(!ours));
        if ours {
            assert_eq!(event, Event::Net(NetEvent::ConnectFailed { ticket: Ticket(2), reason }));
        } else {
            // The client had completed its handshake; it gets the alert after its last flight.
            turns(&mut ring, &mut recorder, |recorder| recorder.events.len() == 3);
            let Event::Net(NetEvent::Closed { reason: found, .. }) = recorder.events[2] else {
                panic!("{recorder:?}")
            };
            assert_eq!(found, reason);
        }
        // The alert is sent, then the server closes.
        while ring.conn_count() > 0 {
            ring.turn(&mut recorder).unwrap();
        }
        let Event::Net(NetEvent::CertificateRefused { bad: found, client }) =
            events.recv().unwrap()
        else {
            panic!("the server's core gets no event")
        };
        assert_eq!(found, bad(ours));
        assert!(!client.is_empty(), "the client's address");
        let counters = server.stop();
        assert_eq!((counters.refused_count, counters.protocol_error_count), (1, 0));
    }
}

#[test]
fn a_client_with_only_a_secret_is_refused_for_lack_of_a_certificate() {
    let ca = Ca::new();
    let seals = ca.server(&ca);
    let (server, address, events) = echo_server(|config| {
        config.sealing = Sealing::All;
        config.server_seals = Some(seals);
    });
    let any = seal::Client::with_any_key().unwrap();
    let (mut ring, mut recorder) = client(address, Arc::new(move || any.clone()));
    let event = ask(
        &mut ring,
        &mut recorder,
        Action::Net(NetAction::Connect { ticket: Ticket(3), address: ServerAddress::Initial }),
    );
    let bad = BadCertificate { ours: true, flaw: CertificateFlaw::Missing };
    let reason = CloseReason::Certificate(bad);
    assert_eq!(event, Event::Net(NetEvent::ConnectFailed { ticket: Ticket(3), reason }));
    let bad = BadCertificate { ours: false, ..bad };
    let uncertified = |event| matches!(event, Event::Net(NetEvent::CertificateRefused { bad: found, .. }) if found == bad);
    assert!(uncertified(events.recv().unwrap()));
    server.stop();
}

#[test]
fn a_plain_text_frame_gets_a_plain_refusal_where_certificates_are_required() {
    let ca = Ca::new();
    let seals = ca.server(&ca);
    let (server, address, _told) = echo_server(|config| {
        config.sealing = Sealing::All;
        config.server_seals = Some(seals);
    });
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    std::io::Write::write_all(&mut stream, &frame(1, b"")).unwrap();
    let answer = read_frame(&mut stream).unwrap();
    let (_, body) = wire::Header::decode(&answer).unwrap();
    let refusal = <wire::Refusal as wire::Wire>::decode_all(body).unwrap();
    assert_eq!(refusal.reason, wire::RefusalReason::MustSeal);
    server.stop();
}
