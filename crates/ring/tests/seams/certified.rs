//! Connections whose two ends show certificates, over real loopback sockets.

use super::support::{Diary, ask, echo_server, frame, hello, read_frame, ring_config, turns};
use interface::{
    Action, BadCertificate, CertificateFlaw, CloseReason, Event, NetAction, NetEvent, Ticket,
};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};
use ring::{ClientSeals, Ring, Sealing, ServerSeals};
use seal::{Certificates, Pem};
use std::net::SocketAddr;
use std::sync::Arc;
use wire::LaneId;

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
        Certificates::of_pem(pem).unwrap()
    }

    /// What a server shows that takes certificates of these roots.
    fn server(&self, roots: &Self) -> ServerSeals {
        let certificates = self.sign(ExtendedKeyUsagePurpose::ServerAuth, roots);
        let server = seal::Server::of_certificates(&certificates).unwrap();
        Arc::new(move || server.clone())
    }

    fn client(&self, roots: &Self) -> ClientSeals {
        let certificates = self.sign(ExtendedKeyUsagePurpose::ClientAuth, roots);
        let client = seal::Client::of_certificates(&certificates, "server").unwrap();
        Arc::new(move || client.clone())
    }
}

fn client(server: SocketAddr, seals: ClientSeals) -> (Ring, Diary) {
    let mut config = ring_config(LaneId(0));
    config.server = Some(server);
    config.sealing = Sealing::All;
    config.client_seals = Some(seals);
    (Ring::new(config).unwrap(), Diary::default())
}

#[test]
fn who_shows_a_certificate_is_known_to_the_brain_before_it_says_anything() {
    let ca = Ca::new();
    let seals = ca.server(&ca);
    let (server, address, told) = echo_server(|config| {
        config.sealing = Sealing::All;
        config.server_seals = Some(seals);
    });
    let (mut ring, mut diary) = client(address, ca.client(&ca));
    ring.with(|turn| turn.act(NetAction::Connect { ticket: Ticket(1) }));
    turns(&mut ring, &mut diary, |diary| diary.events.len() == 2);
    let Event::Net(NetEvent::Sealed { conn, channel, holder: None }) = diary.events[0] else {
        panic!("{diary:?}")
    };
    assert_eq!(diary.events[1], Event::Net(NetEvent::Connected { ticket: Ticket(1), conn }));
    let said = hello(b"hi");
    ring.with(|turn| {
        let frame = turn.arena.put(&said);
        turn.act(NetAction::Send { conn, frame, bulk: None });
    });
    turns(&mut ring, &mut diary, |diary| diary.frames.len() == 1);
    assert_eq!(diary.frames[0], said);
    let Event::Net(NetEvent::Sealed { channel: at_server, holder: Some(_), .. }) =
        told.recv().unwrap()
    else {
        panic!("the server's core knows no holder")
    };
    assert_eq!(at_server, channel);
    assert_eq!(server.stop().protocol_error_count, 0);
}

#[test]
fn a_certificate_that_one_end_refuses_is_told_at_both() {
    let (ca, other) = (Ca::new(), Ca::new());
    let flaw = CertificateFlaw::OtherIssuer;
    let bad = |ours| BadCertificate { ours, flaw };
    for (shows, ours) in [(&ca, false), (&other, true)] {
        // The client's is of another CA than the server takes, or the other way round.
        let seals = shows.server(&ca);
        let (server, address, told) = echo_server(|config| {
            config.sealing = Sealing::All;
            config.server_seals = Some(seals);
        });
        let by = if ours { &ca } else { &other };
        let (mut ring, mut diary) = client(address, by.client(&ca));
        let event =
            ask(&mut ring, &mut diary, Action::Net(NetAction::Connect { ticket: Ticket(2) }));
        let reason = CloseReason::Certificate(bad(!ours));
        if ours {
            assert_eq!(event, Event::Net(NetEvent::ConnectFailed { ticket: Ticket(2), reason }));
        } else {
            // It was open for the client, who hears it behind his last message.
            turns(&mut ring, &mut diary, |diary| diary.events.len() == 3);
            let Event::Net(NetEvent::Closed { reason: found, .. }) = diary.events[2] else {
                panic!("{diary:?}")
            };
            assert_eq!(found, reason);
        }
        // What it has to say leaves, and the server closes.
        while ring.conn_count() > 0 {
            ring.turn(&mut diary).unwrap();
        }
        let Event::Net(NetEvent::CertificateRefused { bad: found, client }) = told.recv().unwrap()
        else {
            panic!("the server's core is not told")
        };
        assert_eq!(found, bad(ours));
        assert!(!client.is_empty(), "whose it was");
        let counters = server.stop();
        assert_eq!((counters.refused_count, counters.protocol_error_count), (1, 0));
    }
}

#[test]
fn who_has_only_a_secret_is_told_that_a_certificate_is_wanted() {
    let ca = Ca::new();
    let seals = ca.server(&ca);
    let (server, address, told) = echo_server(|config| {
        config.sealing = Sealing::All;
        config.server_seals = Some(seals);
    });
    let any = seal::Client::of_any_key().unwrap();
    let (mut ring, mut diary) = client(address, Arc::new(move || any.clone()));
    let event = ask(&mut ring, &mut diary, Action::Net(NetAction::Connect { ticket: Ticket(3) }));
    let bad = BadCertificate { ours: true, flaw: CertificateFlaw::Missing };
    let reason = CloseReason::Certificate(bad);
    assert_eq!(event, Event::Net(NetEvent::ConnectFailed { ticket: Ticket(3), reason }));
    let bad = BadCertificate { ours: false, ..bad };
    let uncertified = |event| matches!(event, Event::Net(NetEvent::CertificateRefused { bad: found, .. }) if found == bad);
    assert!(uncertified(told.recv().unwrap()));
    server.stop();
}

#[test]
fn a_frame_is_answered_in_plain_text_where_certificates_are_wanted() {
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
