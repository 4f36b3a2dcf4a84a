//! Connections under TLS over real loopback sockets.

use super::support::{
    Diary, ask, echo_server, frame, hello, noise, read_frame, ring_config, turns,
};
use door::{Action, CloseReason, Errno, Event, Ticket};
use ring::{Ring, Sealing};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use wire::{FrameKind, Head, LaneId, Refusal, RefusalReason, Wire as _};

fn client(server: SocketAddr, sealing: Sealing) -> (Ring, Diary) {
    let mut config = ring_config(LaneId(0));
    config.server = Some(server);
    config.sealing = sealing;
    (Ring::new(config).unwrap(), Diary::default())
}

/// Sends a frame with bulk and takes turns until one is there; its bulk.
fn exchange(ring: &mut Ring, diary: &mut Diary, sent: &[u8], bulk: &[u8]) -> Vec<u8> {
    let conn = diary.events.iter().find_map(|event| match event {
        Event::Connected { conn, .. } => Some(*conn),
        _ => None,
    });
    let conn = conn.unwrap();
    let bulk = (!bulk.is_empty()).then(|| ring.bulk_of(bulk).unwrap());
    let known_count = diary.frames.len();
    ring.with(|turn| {
        let frame = turn.arena.put(sent);
        turn.act(Action::Send { conn, frame, bulk });
        bulk.iter().for_each(|bulk| turn.act(Action::Release { buf: bulk.buf }));
    });
    turns(ring, diary, |diary| diary.frames.len() > known_count);
    assert_eq!(diary.frames[known_count], sent);
    ring.with(|turn| turn.act(Action::Admit { conn, writes: true, party: door::Party::STORE }));
    let Some(Event::Frame { bulk, .. }) = diary.events.last().copied() else { panic!("no frame") };
    let bytes = bulk.map_or(Vec::new(), |bulk| ring.bulk_bytes(bulk).to_vec());
    bulk.iter().for_each(|bulk| ring.with(|turn| turn.act(Action::Release { buf: bulk.buf })));
    bytes
}

#[test]
fn frames_come_back_with_bulk_of_every_size_under_tls() {
    let (server, address, _) = echo_server(|config| config.sealing = Sealing::All);
    let (mut ring, mut diary) = client(address, Sealing::All);
    ring.with(|turn| turn.act(Action::Connect { ticket: Ticket(1) }));
    turns(&mut ring, &mut diary, |diary| diary.events.len() == 2);
    let Event::Sealed { conn, channel, holder: None } = diary.events[0] else {
        panic!("{diary:?}")
    };
    assert_ne!(channel, wire::PLAIN);
    assert_eq!(diary.events[1], Event::Connected { ticket: Ticket(1), conn });
    exchange(&mut ring, &mut diary, &hello(b"hi"), &[]);
    let sizes = [0, 1, 4095, 16_000, 16_384, 16_385, 70_000, 245_000, 300_000, 1 << 20];
    for (xid, bulk_bytes) in (1..).zip(sizes) {
        let bulk = noise(xid, bulk_bytes);
        let whole = frame(xid, &bulk);
        let sent = &whole[..whole.len() - bulk_bytes];
        assert!(exchange(&mut ring, &mut diary, sent, &bulk) == bulk, "{bulk_bytes} bytes");
    }
    let counters = server.stop();
    assert_eq!((counters.frame_in_count, counters.breach_count), (11, 0));
    assert_eq!(counters.in_bytes.abs_diff(counters.out_bytes) / 2000, 0, "{counters:?}");
}

#[test]
fn a_handshake_that_does_not_go_on_is_ended_in_time() {
    let (server, address, _) = echo_server(|config| {
        config.sealing = Sealing::All;
        config.limits.greeting_ms_max = 20;
    });
    for said in [&[][..], &[22], &[22, 3, 1, 1, 0, 1, 0]] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(said).unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
    }
    assert_eq!(server.stop().breach_count, 0);
}

#[test]
fn a_client_is_told_when_a_server_does_not_shake_hands() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = ring_config(LaneId(0));
    config.server = Some(listener.local_addr().unwrap());
    config.sealing = Sealing::All;
    config.limits.greeting_ms_max = 20;
    let (mut ring, mut diary) = (Ring::new(config).unwrap(), Diary::default());
    let connect = Action::Connect { ticket: Ticket(2) };
    let timed_out =
        Event::ConnectFailed { ticket: Ticket(2), reason: CloseReason::Failed(Errno(110)) };
    assert_eq!(ask(&mut ring, &mut diary, connect), timed_out);
}

#[test]
fn a_client_is_told_when_a_server_breaks_a_handshake_or_goes() {
    for (said, errno) in [(&[][..], Errno(104)), (&[21, 3, 3, 0, 2, 2, 40], Errno::SEAL)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut ring, mut diary) = client(listener.local_addr().unwrap(), Sealing::All);
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = [0; 4096];
            assert!(stream.read(&mut heard).unwrap() > 5);
            stream.write_all(said).unwrap();
            if !said.is_empty() {
                // Until the client goes.
                assert_eq!(stream.read(&mut heard).unwrap_or(0), 0);
            }
        });
        let connect = Action::Connect { ticket: Ticket(3) };
        let failed = Event::ConnectFailed { ticket: Ticket(3), reason: CloseReason::Failed(errno) };
        assert_eq!(ask(&mut ring, &mut diary, connect), failed);
        assert_eq!(ring.conn_count(), 0);
        server.join().unwrap();
    }
}

#[test]
fn whoever_speaks_another_language_is_told_so_and_nothing_else() {
    let first_record = [&[22, 3, 1, 0, 200][..], &[7; 200]].concat();
    for (sealing, said, reason) in [
        (Sealing::All, hello(b"hi"), RefusalReason::MustSeal),
        (Sealing::Nothing, first_record, RefusalReason::MustNotSeal),
    ] {
        let (server, address, _) = echo_server(move |config| config.sealing = sealing);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&said).unwrap();
        let answer = read_frame(&mut stream).unwrap();
        let (head, body) = Head::decode(&answer).unwrap();
        assert_eq!(head, Head::Greeting(FrameKind::Refusal));
        assert_eq!(Refusal::decode_all(body).unwrap().reason, reason);
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        let counters = server.stop();
        assert_eq!((counters.frame_in_count, counters.refused_count), (0, 1));
    }
    let (server, address, _) = echo_server(|config| config.sealing = Sealing::Nothing);
    let (mut ring, mut diary) = client(address, Sealing::All);
    let event = ask(&mut ring, &mut diary, Action::Connect { ticket: Ticket(4) });
    assert_eq!(
        event,
        Event::ConnectFailed {
            ticket: Ticket(4),
            reason: CloseReason::Failed(Errno::MUST_NOT_SEAL)
        }
    );
    server.stop();
}
