//! Connections under TLS over real loopback sockets.

use super::support::{
    Recorder, ask, echo_server, frame, hello, noise, read_frame, ring_config, turns,
};
use interface::{Action, CloseReason, Errno, Event, NetAction, NetEvent, Ticket};
use ring::{Ring, Sealing};
use seal::{Content, Seal};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use wire::{
    FrameKind, Header, LaneId, ProtocolError, Refusal, RefusalReason, ServerAddress, Wire as _,
};

fn client(server: SocketAddr, sealing: Sealing) -> (Ring, Recorder) {
    let mut config = ring_config(LaneId(0));
    config.server = Some(server);
    config.sealing = sealing;
    (Ring::new(config).unwrap(), Recorder::default())
}

/// Sends a frame with bulk, takes turns until the reply is there, and returns its bulk.
fn exchange(ring: &mut Ring, recorder: &mut Recorder, sent: &[u8], bulk: &[u8]) -> Vec<u8> {
    let conn = recorder.events.iter().find_map(|event| match event {
        Event::Net(NetEvent::Connected { conn, .. }) => Some(*conn),
        _ => None,
    });
    let conn = conn.unwrap();
    let bulk = (!bulk.is_empty()).then(|| ring.bulk_of(bulk).unwrap());
    let known_count = recorder.frames.len();
    ring.with(|turn| {
        let frame = turn.arena.put(sent);
        turn.act(NetAction::Send { conn, frame, bulk });
        bulk.iter().for_each(|bulk| turn.act(Action::Release { buf: bulk.buf }));
    });
    turns(ring, recorder, |recorder| recorder.frames.len() > known_count);
    assert_eq!(recorder.frames[known_count], sent);
    ring.with(|turn| {
        turn.act(NetAction::Admit { conn, writes: true, party: interface::Party::STORE })
    });
    let Some(Event::Net(NetEvent::Frame { bulk, .. })) = recorder.events.last().copied() else {
        panic!("no frame")
    };
    let bytes = bulk.map_or(Vec::new(), |bulk| ring.bulk_bytes(bulk).to_vec());
    bulk.iter().for_each(|bulk| ring.with(|turn| turn.act(Action::Release { buf: bulk.buf })));
    bytes
}

#[test]
fn frames_come_back_with_bulk_of_every_size_under_tls() {
    let (server, address, _) = echo_server(|config| config.sealing = Sealing::All);
    let (mut ring, mut recorder) = client(address, Sealing::All);
    ring.with(|turn| {
        turn.act(NetAction::Connect { ticket: Ticket(1), address: ServerAddress::Initial })
    });
    turns(&mut ring, &mut recorder, |recorder| recorder.events.len() == 2);
    let Event::Net(NetEvent::Sealed { conn, channel, holder: None }) = recorder.events[0] else {
        panic!("{recorder:?}")
    };
    assert_ne!(channel, wire::PLAIN);
    assert_eq!(recorder.events[1], Event::Net(NetEvent::Connected { ticket: Ticket(1), conn }));
    exchange(&mut ring, &mut recorder, &hello(b"hi"), &[]);
    let sizes = [0, 1, 4095, 16_000, 16_384, 16_385, 70_000, 245_000, 300_000, 1 << 20];
    for (xid, bulk_bytes) in (1..).zip(sizes) {
        let bulk = noise(xid, bulk_bytes);
        let mut whole = frame(xid, &bulk);
        // Under TLS checksums are neither written nor verified.
        whole[16..24].fill(7);
        let sent = &whole[..whole.len() - bulk_bytes];
        assert!(exchange(&mut ring, &mut recorder, sent, &bulk) == bulk, "{bulk_bytes} bytes");
    }
    let counters = server.stop();
    assert_eq!((counters.frame_in_count, counters.protocol_error_count), (11, 0));
    assert_eq!(counters.in_bytes.abs_diff(counters.out_bytes) / 2000, 0, "{counters:?}");
}

/// A client's end without a ring, after its handshake.
fn shaken(address: SocketAddr) -> (TcpStream, Seal) {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut said = Vec::new();
    let mut seal = Seal::client(&seal::Client::with_any_key().unwrap(), &mut said).unwrap();
    while !seal.is_open() {
        stream.write_all(&said).unwrap();
        said.clear();
        let mut received = [0; 4096];
        let count = stream.read(&mut received).unwrap();
        assert!(count > 0, "the server goes on");
        seal.push_received(&received[..count]);
        seal.advance_handshake(&mut said).unwrap();
    }
    stream.write_all(&said).unwrap();
    (stream, seal)
}

#[test]
fn bulk_arrives_complete_with_any_record_sizes_and_pauses() {
    let (server, address, _) = echo_server(|config| config.sealing = Sealing::All);
    for (round, lengths) in (0..).zip([&[97][..], &[16_384], &[5000, 1, 16_384], &[12_345, 0]]) {
        let (mut stream, mut seal) = shaken(address);
        let mut plain = hello(b"hi");
        for (xid, bulk_bytes) in [(1, 1 << 20), (2, 1 << 19), (3, 0), (4, 200_001), (5, 1 << 20)] {
            plain.extend(frame(xid, &noise(round * 10 + xid, bulk_bytes)));
        }
        let mut records = Vec::new();
        let (mut rest, mut lengths) = (&plain[..], lengths.iter().cycle());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(*lengths.next().unwrap()));
            let start = records.len();
            records.resize(start + now.len() + seal::RECORD_OVERHEAD_BYTES, 0);
            let fill = |to: &mut [u8]| -> Result<(), ()> {
                to.copy_from_slice(now);
                Ok(())
            };
            seal.seal(&mut records[start..], now.len(), fill).unwrap();
            rest = later;
        }
        let mut writer = stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || {
            // Pieces end within records.
            records.chunks(300_007).for_each(|piece| writer.write_all(piece).unwrap());
        });
        let (mut found, mut received) = (Vec::new(), vec![0; 1 << 16]);
        while found.len() < plain.len() {
            let count = stream.read(&mut received).unwrap();
            assert!(count > 0, "{} of {} bytes came back", found.len(), plain.len());
            seal.push_received(&received[..count]);
            while let Some(Content::Bytes(bytes)) = seal.open().unwrap() {
                found.extend_from_slice(bytes);
            }
        }
        writing.join().unwrap();
        assert!(found == plain, "round {round}");
    }
    assert_eq!(server.stop().protocol_error_count, 0);
}

#[test]
fn a_modified_record_of_a_bulk_is_a_protocol_error() {
    let (server, address, ended) = echo_server(|config| config.sealing = Sealing::All);
    let (mut stream, mut seal) = shaken(address);
    let plain = [hello(b"hi"), frame(1, &noise(1, 1 << 20))].concat();
    let mut records = Vec::new();
    for bytes in plain.chunks(seal::RECORD_BYTES_MAX) {
        let start = records.len();
        records.resize(start + bytes.len() + seal::RECORD_OVERHEAD_BYTES, 0);
        let fill = |to: &mut [u8]| -> Result<(), ()> {
            to.copy_from_slice(bytes);
            Ok(())
        };
        seal.seal(&mut records[start..], bytes.len(), fill).unwrap();
    }
    records[500_000] ^= 1;
    // The connection may be closed before all is written.
    stream.write_all(&records).ok();
    let event = ended.recv().unwrap();
    let seals = matches!(
        event,
        Event::Net(NetEvent::Closed {
            reason: CloseReason::ProtocolError(ProtocolError::Seal),
            ..
        })
    );
    assert!(seals, "{event:?}");
    assert_eq!(server.stop().protocol_error_count, 1);
}

#[test]
fn a_stalled_handshake_is_ended_in_time() {
    let (server, address, _) = echo_server(|config| {
        config.sealing = Sealing::All;
        config.limits.handshake_ms_max = 20;
    });
    for said in [&[][..], &[22], &[22, 3, 1, 1, 0, 1, 0]] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(said).unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
    }
    assert_eq!(server.stop().protocol_error_count, 0);
}

#[test]
fn a_client_reports_a_server_without_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = ring_config(LaneId(0));
    config.server = Some(listener.local_addr().unwrap());
    config.sealing = Sealing::All;
    config.limits.handshake_ms_max = 20;
    let (mut ring, mut recorder) = (Ring::new(config).unwrap(), Recorder::default());
    let connect =
        Action::Net(NetAction::Connect { ticket: Ticket(2), address: ServerAddress::Initial });
    let timed_out = Event::Net(NetEvent::ConnectFailed {
        ticket: Ticket(2),
        reason: CloseReason::Failed(Errno(110)),
    });
    assert_eq!(ask(&mut ring, &mut recorder, connect), timed_out);
}

#[test]
fn a_client_reports_a_broken_or_closed_handshake() {
    for (said, errno) in [(&[][..], Errno(104)), (&[21, 3, 3, 0, 2, 2, 40], Errno::SEAL)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut ring, mut recorder) = client(listener.local_addr().unwrap(), Sealing::All);
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut received = [0; 4096];
            assert!(stream.read(&mut received).unwrap() > 5);
            stream.write_all(said).unwrap();
            if !said.is_empty() {
                // Until the client closes.
                assert_eq!(stream.read(&mut received).unwrap_or(0), 0);
            }
        });
        let connect =
            Action::Net(NetAction::Connect { ticket: Ticket(3), address: ServerAddress::Initial });
        let failed = Event::Net(NetEvent::ConnectFailed {
            ticket: Ticket(3),
            reason: CloseReason::Failed(errno),
        });
        assert_eq!(ask(&mut ring, &mut recorder, connect), failed);
        assert_eq!(ring.conn_count(), 0);
        server.join().unwrap();
    }
}

#[test]
fn a_client_that_mixes_up_tls_and_plain_text_gets_only_a_refusal() {
    let first_record = [&[22, 3, 1, 0, 200][..], &[7; 200]].concat();
    for (sealing, said, reason) in [
        (Sealing::All, hello(b"hi"), RefusalReason::MustSeal),
        (Sealing::Nothing, first_record, RefusalReason::MustNotSeal),
    ] {
        let (server, address, _) = echo_server(move |config| config.sealing = sealing);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&said).unwrap();
        let answer = read_frame(&mut stream).unwrap();
        assert_eq!(Header::check_sum(&answer), Ok(()));
        let (head, body) = Header::decode(&answer).unwrap();
        assert_eq!(head, Header::Handshake(FrameKind::Refusal));
        assert_eq!(Refusal::decode_all(body).unwrap().reason, reason);
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        let counters = server.stop();
        assert_eq!((counters.frame_in_count, counters.refused_count), (0, 1));
    }
    let (server, address, _) = echo_server(|config| config.sealing = Sealing::Nothing);
    let (mut ring, mut recorder) = client(address, Sealing::All);
    let event = ask(
        &mut ring,
        &mut recorder,
        Action::Net(NetAction::Connect { ticket: Ticket(4), address: ServerAddress::Initial }),
    );
    assert_eq!(
        event,
        Event::Net(NetEvent::ConnectFailed {
            ticket: Ticket(4),
            reason: CloseReason::Failed(Errno::MUST_NOT_SEAL)
        })
    );
    server.stop();
}
