//! Connections over real loopback sockets.

use super::support::{
    Closure, GIVE_UP_AFTER, Recorder, ask, echo, echo_server, frame, hello, noise, only_mailbox,
    read_frame, ring_config, start, taken_but, turns,
};
use interface::{Action, CloseReason, Errno, Event, NetAction, NetEvent, Ticket, Turn};
use ring::{Mesh, Ring};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::mpsc::channel;
use std::time::Instant;
use wire::{LaneId, ProtocolError, ServerAddress};

/// A connection with a small receive buffer.
fn narrow(address: std::net::SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 32 * 1024).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.write_all(&hello(b"hi")).unwrap();
    assert_eq!(read_frame(&mut stream).unwrap(), hello(b"hi"));
    stream
}

/// Sends the first frame, after which the server admits the connection.
fn connect(address: std::net::SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&hello(b"hi")).unwrap();
    assert_eq!(read_frame(&mut stream).unwrap(), hello(b"hi"));
    stream
}

#[test]
fn frames_come_back_with_bulk_of_every_size() {
    let (server, address, _) = echo_server(|_| {});
    let mut stream = connect(address);
    for bulk_bytes in [0, 1, 4095, 4096, 70_000, 1 << 20] {
        let sent = frame(7, &noise(bulk_bytes as u64, bulk_bytes));
        stream.write_all(&sent).unwrap();
        assert_eq!(read_frame(&mut stream).unwrap(), sent, "{bulk_bytes} bytes of bulk");
    }
    let counters = server.stop();
    assert_eq!(counters.frame_in_count, 7);
    assert_eq!(counters.frame_out_count, 7);
    assert_eq!(counters.in_bytes, counters.out_bytes);
    assert_eq!(counters.protocol_error_count, 0);
}

#[test]
fn a_frame_that_arrives_byte_by_byte_is_one_frame() {
    let (server, address, _) = echo_server(|_| {});
    let mut stream = connect(address);
    stream.set_nodelay(true).unwrap();
    let sent = frame(1, &noise(1, 300));
    for byte in &sent {
        stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(read_frame(&mut stream).unwrap(), sent);
    assert_eq!(server.stop().frame_in_count, 2);
}

#[test]
fn many_frames_at_once_come_back_in_order() {
    let (server, address, _) = echo_server(|_| {});
    let mut stream = connect(address);
    let sent: Vec<Vec<u8>> =
        (0..500).map(|xid| frame(xid, &noise(xid, if xid % 50 == 0 { 9000 } else { 0 }))).collect();
    let all = sent.concat();
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&all).unwrap());
    for expected in &sent {
        assert_eq!(&read_frame(&mut stream).unwrap(), expected);
    }
    writing.join().unwrap();
    let counters = server.stop();
    println!("{} sends for 501 frames", counters.send_count);
    assert_eq!(counters.frame_out_count, 501, "{counters:?}");
}

#[test]
fn requests_received_together_are_answered_in_few_sends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut config = ring_config(LaneId(0));
    config.listener = Some(listener.into());
    let mut ring = Ring::new(config).unwrap();
    let (ended, _) = channel();
    let mut echo = echo(ended);
    let mut until = |ring: &mut Ring, frame_count| {
        while ring.counters().frame_out_count < frame_count {
            ring.turn(&mut echo).unwrap();
        }
    };
    stream.write_all(&hello(b"hi")).unwrap();
    until(&mut ring, 1);
    // As much as a socket takes that is not read from.
    let all: Vec<u8> = (0..500).flat_map(|xid| frame(xid, &[])).collect();
    stream.write_all(&all).unwrap();
    taken_but(&stream, 0);
    until(&mut ring, 501);
    let counters = ring.counters();
    assert!(counters.send_count < 50, "{} sends for 501 frames", counters.send_count);
}

#[test]
fn a_busy_connection_leaves_others_their_share_of_each_turn() {
    const FRAMES: u64 = 1000;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = ring_config(LaneId(0));
    config.listener = Some(listener.into());
    let mut ring = Ring::new(config).unwrap();
    let mut recorder = Recorder::default();
    let all: Vec<u8> = (0..FRAMES).flat_map(|xid| frame(xid, &[])).collect();
    let streams: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    for (index, mut stream) in streams.iter().enumerate() {
        stream.write_all(&hello(b"hi")).unwrap();
        turns(&mut ring, &mut recorder, |recorder| recorder.events.len() > index);
        let Event::Net(NetEvent::Frame { conn, .. }) = recorder.events[index] else {
            panic!("no handshake")
        };
        ring.with(|turn| turn.act(NetAction::admit(conn)));
    }
    for mut stream in &streams {
        stream.write_all(&all).unwrap();
        // This part is certainly there, and exceeds a turn's share.
        taken_but(stream, all.len() / 2);
    }
    let mut brought_max = 0;
    let mut total = 0;
    while total < FRAMES * 20 {
        recorder.events.clear();
        ring.turn(&mut recorder).unwrap();
        let mut by_conn = std::collections::HashMap::new();
        for event in &recorder.events {
            let Event::Net(NetEvent::Frame { conn, .. }) = event else { panic!("{event:?}") };
            *by_conn.entry(*conn).or_insert(0_u64) += 1;
            total += 1;
        }
        let brought: u64 = by_conn.values().sum();
        // 64 together, beyond which each may bring 4.
        assert!(brought <= 64 + 4 * 20, "{brought} frames of {} in a turn", by_conn.len());
        brought_max = brought_max.max(brought);
    }
    assert!(brought_max >= 64, "{brought_max} frames at most in a turn");
}

#[test]
fn small_frames_beyond_the_sockets_space_arrive_complete() {
    let (server, address, _) =
        echo_server(|config| config.limits.conn_out_bytes_pause = usize::MAX);
    let mut stream = connect(address);
    // More than both sockets hold, sent before the first is read.
    let all: Vec<u8> = (0..200_000).flat_map(|xid| frame(xid, &[])).collect();
    stream.write_all(&all).unwrap();
    for expected in all.chunks(frame(0, &[]).len()) {
        assert_eq!(read_frame(&mut stream).unwrap(), expected);
    }
    assert_eq!(server.stop().frame_out_count, 200_001);
}

#[test]
fn garbage_closes_that_connection_and_no_other() {
    let (server, address, _) = echo_server(|_| {});
    let mut good = connect(address);
    for seed in 0..50 {
        let mut bad =
            if seed % 2 == 0 { connect(address) } else { TcpStream::connect(address).unwrap() };
        // Either side may find the connection closed already.
        bad.write_all(&noise(seed, 1 + usize::try_from(seed).unwrap() * 97)).ok();
        bad.shutdown(Shutdown::Write).ok();
        let mut rest = Vec::new();
        bad.read_to_end(&mut rest).ok();
        assert!(rest.is_empty(), "garbage is not answered");
        let sent = frame(seed, b"still here");
        good.write_all(&sent).unwrap();
        assert_eq!(read_frame(&mut good).unwrap(), sent);
    }
    // One is too short to be recognised as wrong.
    assert_eq!(server.stop().protocol_error_count, 49);
}

#[test]
fn a_wrong_checksum_of_a_frame_or_its_bulk_is_a_protocol_error() {
    let (server, address, ended) = echo_server(|_| {});
    let without = frame(1, b"").len();
    let with = frame(1, &noise(1, 100_000)).len();
    for (bulk, at) in
        [(vec![], without - 1), (noise(1, 100_000), 90), (noise(1, 100_000), with - 1)]
    {
        let mut stream = connect(address);
        let mut sent = frame(1, &bulk);
        sent[at] ^= 1;
        stream.write_all(&sent).unwrap();
        let event = ended.recv().unwrap();
        assert!(
            matches!(
                event,
                Event::Net(NetEvent::Closed {
                    reason: CloseReason::ProtocolError(ProtocolError::Checksum),
                    ..
                })
            ),
            "{event:?}"
        );
    }
    assert_eq!(server.stop().protocol_error_count, 3);
}

#[test]
fn a_wrong_checksum_before_discarded_bulk_is_a_protocol_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, ended) = channel();
    let lane = start(only_mailbox(), move |config| {
        config.listener = Some(listener.into());
        Closure(move |turn: &mut Turn<'_>, event: Event| match event {
            Event::Net(NetEvent::Frame { conn, frame, .. }) => {
                turn.act(NetAction::Admit { conn, writes: false, party: interface::Party::STORE });
                turn.act(NetAction::Send { conn, frame, bulk: None });
            }
            Event::Net(NetEvent::Closed { .. }) => sender.send(event).unwrap(),
            Event::Stop => turn.act(Action::Stopped),
            _ => {}
        })
    });
    let mut stream = connect(address);
    // By then the lane has sent its reply.
    let _other = connect(address);
    let mut sent = frame(1, &noise(1, 100_000));
    sent[90] ^= 1;
    // The connection may be closed before all is written.
    stream.write_all(&sent).ok();
    let event = ended.recv().unwrap();
    let sums = matches!(
        event,
        Event::Net(NetEvent::Closed {
            reason: CloseReason::ProtocolError(ProtocolError::Checksum),
            ..
        })
    );
    assert!(sums, "{event:?}");
    assert_eq!(lane.stop().protocol_error_count, 1);
}

#[test]
fn unwanted_bulk_is_discarded_and_following_frames_arrive() {
    let (lane, address, _ended) = echo_server(|config| config.discards_bulk = true);
    let mut stream = connect(address);
    let mut sent_bytes = 0;
    for (xid, bulk_bytes) in (1_u64..).zip([1_usize << 20, 0, 100, 70_000, 1 << 20]) {
        let mut request = frame(xid, &noise(xid, bulk_bytes));
        let frame_bytes = request.len() - bulk_bytes;
        // It is not verified either.
        if let Some(last) = request[frame_bytes..].last_mut() {
            *last ^= 1;
        }
        stream.write_all(&request).unwrap();
        sent_bytes += request.len();
        let mut head = vec![0; frame_bytes];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(head, request[..frame_bytes], "frame {xid}");
    }
    drop(stream);
    let counters = lane.stop();
    assert!(counters.in_bytes >= sent_bytes as u64);
    assert_eq!((counters.frame_in_count, counters.protocol_error_count), (6, 0));
}

#[test]
fn bulk_before_admission_is_a_protocol_error_and_takes_no_buffer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut config = ring_config(LaneId(0));
    config.listener = Some(listener.into());
    let mut ring = Ring::new(config).unwrap();
    let mut recorder = Recorder::default();
    stream.write_all(&hello(b"hi")).unwrap();
    turns(&mut ring, &mut recorder, |recorder| recorder.events.len() == 1);
    stream.write_all(&frame(1, b"bulk")).unwrap();
    turns(&mut ring, &mut recorder, |recorder| recorder.events.len() == 2);
    let reason = CloseReason::ProtocolError(ProtocolError::TooLong);
    assert!(
        matches!(recorder.events[1], Event::Net(NetEvent::Closed { reason: found, .. }) if found == reason)
    );
    assert_eq!(ring.buffer_bytes(), 0);
    assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
}

/// Nothing more is received from it, and it is closed when it has read nothing for so long.
#[test]
fn a_client_that_does_not_read_is_closed() {
    let (server, address, ended) = echo_server(|config| {
        config.limits.conn_out_bytes_pause = 8 << 20;
        config.limits.stall_ms_max = 200;
    });
    let mut stream = narrow(address);
    let sent = frame(1, &noise(1, 1 << 20));
    while stream.write_all(&sent).is_ok() {}
    let event = ended.recv().unwrap();
    assert!(
        matches!(event, Event::Net(NetEvent::Closed { reason: CloseReason::TooSlow, .. })),
        "{event:?}"
    );
    let counters = server.stop();
    assert_eq!(counters.protocol_error_count, 0);
    // Much of what both sockets hold was never taken: 8 MiB wait here, and a frame or two that were
    // begun. Bytes of a send that was cut off may be in the kernel and not counted.
    assert!(counters.in_bytes - counters.out_bytes <= 16 << 20, "{counters:?}");
}

/// While buffers are waited for, clients that hold buffers and read nothing are closed sooner.
#[test]
fn a_client_that_reads_nothing_does_not_withhold_buffers() {
    let (server, address, ended) = echo_server(|config| {
        config.limits.buffer_bytes_max = 12 << 20;
        config.limits.starving_stall_ms_max = 400;
    });
    // A client that reads is not closed while no buffer is waited for, which is so once all stalled
    // ones are closed.
    let mut stream = narrow(address);
    let deaf: Vec<_> = (0..4)
        .map(|client| {
            std::thread::spawn(move || {
                let mut stream = narrow(address);
                let sent = frame(client, &noise(client, 1 << 20));
                while stream.write_all(&sent).is_ok() {}
            })
        })
        .collect();
    for event in ended.iter().take(deaf.len()) {
        // The client cannot send more either, once nothing is received from it.
        let Event::Net(NetEvent::Closed { reason, .. }) = event else { panic!("{event:?}") };
        assert!(matches!(reason, CloseReason::TooSlow | CloseReason::Unfinished), "{reason:?}");
    }
    for round in 0..20 {
        let sent = frame(round, &noise(100 + round, 1 << 20));
        let mut writer = stream.try_clone().unwrap();
        let copy = sent.clone();
        let writing = std::thread::spawn(move || writer.write_all(&copy).unwrap());
        assert_eq!(read_frame(&mut stream).unwrap(), sent);
        writing.join().unwrap();
    }
    drop(stream);
    server.stop();
    deaf.into_iter().for_each(|client| client.join().unwrap());
}

/// Silent connections are closed when there are too many; a client that says Hello is served
/// meanwhile.
#[test]
fn silent_connections_are_closed_for_new_ones() {
    // Of 51 that are not admitted, 8 may stay.
    const LET_GO_COUNT: usize = 51 - 8;
    let (server, address, _) = echo_server(|config| config.limits.handshake_count_max = 8);
    let mut served = connect(address);
    let silent: Vec<_> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut late = connect(address);
    for stream in [&mut served, &mut late] {
        let sent = frame(1, b"still here");
        stream.write_all(&sent).unwrap();
        assert_eq!(read_frame(stream).unwrap(), sent);
    }
    let given_up = Instant::now() + GIVE_UP_AFTER;
    let mut ended_count = 0;
    while ended_count < LET_GO_COUNT {
        let mut waited: Vec<PollFd<'_>> =
            silent.iter().map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
        poll(&mut waited, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap();
        ended_count = waited.iter().filter(|waited| !waited.revents().is_empty()).count();
        assert!(Instant::now() < given_up, "only {ended_count} were let go");
    }
    let counters = server.stop();
    assert_eq!((counters.shed_count, ended_count), (LET_GO_COUNT as u64, LET_GO_COUNT));
}

#[test]
fn without_free_buffers_connections_wait_and_then_continue() {
    let (server, address, _) = echo_server(|config| config.limits.buffer_bytes_max = 2 << 20);
    let clients: Vec<_> = (0..8)
        .map(|client| {
            std::thread::spawn(move || {
                let mut stream = connect(address);
                for round in 0..10 {
                    let sent = frame(round, &noise(client * 100 + round, 1 << 20));
                    let mut writer = stream.try_clone().unwrap();
                    let copy = sent.clone();
                    let writing = std::thread::spawn(move || writer.write_all(&copy).unwrap());
                    assert_eq!(read_frame(&mut stream).unwrap(), sent);
                    writing.join().unwrap();
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(server.stop().frame_in_count, 88);
}

#[test]
fn too_many_connections_are_refused_and_freed_slots_reused() {
    let (server, address, ended) = echo_server(|config| config.limits.conn_count_max = 2);
    let first = connect(address);
    let _second = connect(address);
    let mut third = TcpStream::connect(address).unwrap();
    assert_eq!(third.read(&mut [0; 1]).unwrap_or(0), 0);
    drop(first);
    let event = ended.recv().unwrap();
    assert!(
        matches!(event, Event::Net(NetEvent::Closed { reason: CloseReason::Ended, .. })),
        "{event:?}"
    );
    connect(address);
    assert_eq!(server.stop().refused_count, 1);
}

#[test]
fn a_silent_connection_is_closed_at_the_deadline() {
    let (server, address, _) = echo_server(|config| config.limits.handshake_ms_max = 20);
    let mut silent = TcpStream::connect(address).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
    server.stop();
}

#[test]
fn frames_queued_before_a_close_arrive() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = start(only_mailbox(), move |config| {
        config.listener = Some(listener.into());
        Closure(|turn: &mut Turn<'_>, event| match event {
            Event::Net(NetEvent::Frame { conn, frame, .. }) => {
                (0..1000).for_each(|_| turn.act(NetAction::Send { conn, frame, bulk: None }));
                turn.act(NetAction::Close { conn });
            }
            Event::Stop => turn.act(Action::Stopped),
            Event::Tick => {}
            other => panic!("{other:?} after a close"),
        })
    });
    let mut stream = TcpStream::connect(address).unwrap();
    // More than is read: unread bytes would make the kernel reset the connection.
    stream.write_all(&[hello(b"bye"), vec![1; 10_000]].concat()).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 1000 * hello(b"bye").len());
    drop(stream);
    server.stop();
}

/// A bound socket that does not listen.
fn bound() -> (OwnedFd, SocketAddr) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = rustix::net::getsockname(&socket).unwrap();
    (socket, SocketAddr::try_from(address).unwrap())
}

/// The success of a small send ends no wait: bytes queued before it was submitted must not wait for
/// that.
#[test]
fn a_frame_queued_behind_an_unsubmitted_send_is_sent_without_waiting() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = ring_config(LaneId(0));
    config.server = Some(listener.local_addr().unwrap());
    let mut ring = Ring::new(config).unwrap();
    let mut recorder = Recorder::default();
    let event = ask(
        &mut ring,
        &mut recorder,
        Action::Net(NetAction::Connect { ticket: Ticket(5), address: ServerAddress::Initial }),
    );
    let Event::Net(NetEvent::Connected { conn, .. }) = event else { panic!("{event:?}") };
    ring.with(|turn| turn.act(NetAction::admit(conn)));
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(GIVE_UP_AFTER)).unwrap();
    let peer = std::thread::spawn(move || {
        peer.write_all(&frame(1, b"")).unwrap();
        // The peer sends nothing more before it has both.
        for xid in [1, 2] {
            assert_eq!(read_frame(&mut peer).unwrap(), frame(xid, b""));
        }
        peer.write_all(&frame(3, b"")).unwrap();
        peer
    });
    let heard_count = std::cell::Cell::new(0);
    let mut echo = Closure(|turn: &mut Turn<'_>, event: Event| match event {
        Event::Net(NetEvent::Frame { conn, frame, .. }) => {
            heard_count.set(heard_count.get() + 1);
            turn.act(NetAction::Send { conn, frame, bulk: None });
        }
        Event::Net(NetEvent::Closed { .. }) => panic!("the peer has waited in vain"),
        _ => {}
    });
    while heard_count.get() < 1 {
        ring.turn(&mut echo).unwrap();
    }
    ring.with(|turn| {
        let frame = turn.arena.put(&frame(2, b""));
        turn.act(NetAction::Send { conn, frame, bulk: None });
    });
    while heard_count.get() < 2 {
        ring.turn(&mut echo).unwrap();
    }
    peer.join().unwrap();
}

#[test]
fn connecting_works_and_a_refusal_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = ring_config(LaneId(0));
    config.server = Some(address);
    let mut ring = Ring::new(config).unwrap();
    let mut recorder = Recorder::default();
    let event = ask(
        &mut ring,
        &mut recorder,
        Action::Net(NetAction::Connect { ticket: Ticket(5), address: ServerAddress::Initial }),
    );
    let Event::Net(NetEvent::Connected { ticket: Ticket(5), conn }) = event else {
        panic!("{event:?}")
    };
    let (mut peer, _) = listener.accept().unwrap();
    ring.with(|turn| {
        turn.act(NetAction::admit(conn));
        let frame = turn.arena.put(&frame(1, b""));
        turn.act(NetAction::Send { conn, frame, bulk: None });
    });
    peer.write_all(&frame(2, b"answer")).unwrap();
    turns(&mut ring, &mut recorder, |recorder| recorder.events.len() == 2);
    assert_eq!(read_frame(&mut peer).unwrap(), frame(1, b""));
    let Event::Net(NetEvent::Frame { bulk: Some(bulk), .. }) = recorder.events[1] else {
        panic!("a frame")
    };
    assert_eq!(ring.bulk_bytes(bulk), b"answer");
    assert_eq!(bulk.crc32c, Some(wire::crc32c(b"answer")));
    drop(peer);
    turns(&mut ring, &mut recorder, |recorder| recorder.events.len() == 3);
    assert_eq!(
        recorder.events[2],
        Event::Net(NetEvent::Closed { conn, reason: CloseReason::Ended })
    );

    assert_eq!(ring.conn_count(), 0);

    // An address that no other socket can have, with no listener.
    let (_bound, address) = bound();
    let mut config = ring_config(LaneId(0));
    config.server = Some(address);
    let (mut ring, mut recorder) = (Ring::new(config).unwrap(), Recorder::default());
    let event = ask(
        &mut ring,
        &mut recorder,
        Action::Net(NetAction::Connect { ticket: Ticket(6), address: ServerAddress::Initial }),
    );
    assert_eq!(
        event,
        Event::Net(NetEvent::ConnectFailed {
            ticket: Ticket(6),
            reason: CloseReason::Failed(Errno(111))
        })
    );
    assert_eq!(ring.conn_count(), 0);
}

#[test]
fn a_connection_is_handed_over_to_a_peer_lane_with_its_hello() {
    hand_over(0);
}

#[test]
fn a_connection_that_is_being_read_can_be_handed_over_as_well() {
    hand_over(1);
}

/// `delay_ms`: how long the first lane takes; meanwhile it reads.
fn hand_over(delay_ms: u64) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut mailboxes = Mesh::mailboxes(2).unwrap();
    let (sender, adopted) = channel();
    let second = start(mailboxes.pop().unwrap(), move |_| {
        Closure(move |turn: &mut Turn<'_>, event| match event {
            Event::Net(NetEvent::HandedOver { conn, hello }) => {
                sender.send(turn.arena.get(hello).to_vec()).unwrap();
                turn.act(NetAction::admit(conn));
                turn.act(NetAction::Send { conn, frame: hello, bulk: None });
            }
            Event::Net(NetEvent::Frame { conn, frame, bulk }) => {
                turn.act(NetAction::Send { conn, frame, bulk });
                bulk.iter().for_each(|bulk| turn.act(Action::Release { buf: bulk.buf }));
            }
            Event::Stop => turn.act(Action::Stopped),
            _ => {}
        })
    });
    let first = start(mailboxes.pop().unwrap(), move |config| {
        config.listener = Some(listener.into());
        let mut thinking = Vec::new();
        let lane = LaneId(1);
        Closure(move |turn: &mut Turn<'_>, event| match event {
            Event::Net(NetEvent::Frame { conn, frame: hello, .. }) if delay_ms == 0 => {
                turn.act(NetAction::HandOver { conn, lane, hello });
            }
            Event::Net(NetEvent::Frame { conn, frame, .. }) => {
                thinking.push((conn, turn.arena.get(frame).to_vec()));
                turn.act(Action::WakeAt { at: turn.now.mono.after_ms(delay_ms) });
            }
            Event::Tick => {
                for (conn, hello) in thinking.drain(..) {
                    let hello = turn.arena.put(&hello);
                    turn.act(NetAction::HandOver { conn, lane, hello });
                }
            }
            Event::Stop => turn.act(Action::Stopped),
            _ => {}
        })
    });
    for count in 1..20 {
        let said = hello(&noise(count, 30));
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&said).unwrap();
        assert_eq!(adopted.recv().unwrap(), said);
        assert_eq!(read_frame(&mut stream).unwrap(), said);
        let sent = frame(count, &noise(count, 50_000));
        stream.write_all(&sent).unwrap();
        assert_eq!(read_frame(&mut stream).unwrap(), sent);
    }
    if delay_ms > 0 {
        // Whether a second frame is noticed in time is a race.
        first.stop();
        second.stop();
        return;
    }
    // A client that sends more without waiting cannot be handed over.
    let mut hasty = TcpStream::connect(address).unwrap();
    hasty.write_all(&[hello(b"a"), hello(b"b")].concat()).unwrap();
    assert_eq!(hasty.read(&mut [0; 1]).unwrap_or(0), 0);
    assert_eq!(first.stop().protocol_error_count, 1);
    assert_eq!(second.stop().frame_in_count, 19);
}

#[test]
fn stopping_sends_queued_frames() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = start(only_mailbox(), move |config| {
        config.listener = Some(listener.into());
        Closure(|turn: &mut Turn<'_>, event| {
            if let Event::Net(NetEvent::Frame { conn, frame, .. }) = event {
                (0..10_000).for_each(|_| turn.act(NetAction::Send { conn, frame, bulk: None }));
                turn.act(Action::Stopped);
            }
        })
    });
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&hello(b"last")).unwrap();
    for _ in 0..10_000 {
        assert_eq!(read_frame(&mut stream).unwrap(), hello(b"last"));
    }
    assert_eq!(server.thread.join().unwrap().frame_out_count, 10_000);
}

#[test]
fn a_ring_dropped_with_operations_in_flight_leaves_nothing_behind() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for _ in 0..20 {
        let mut config = ring_config(LaneId(0));
        config.listener = Some(listener.try_clone().unwrap().into());
        let mut ring = Ring::new(config).unwrap();
        let mut recorder = Recorder::default();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&hello(b"hi")).unwrap();
        turns(&mut ring, &mut recorder, |recorder| recorder.frames.len() == 1);
        drop(ring);
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0, "the socket is closed");
    }
}

/// A ring that was started with one server's address reaches another server by its own.
#[test]
fn a_connection_leads_to_the_address_that_the_core_names() {
    let (_bound, initial) = bound();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = ring_config(LaneId(0));
    config.server = Some(initial);
    let (mut ring, mut recorder) = (Ring::new(config).unwrap(), Recorder::default());
    let address = ServerAddress::At(other.local_addr().unwrap());
    let connect = NetAction::Connect { ticket: Ticket(7), address };
    let event = ask(&mut ring, &mut recorder, Action::Net(connect));
    let Event::Net(NetEvent::Connected { ticket: Ticket(7), conn }) = event else {
        panic!("{event:?}")
    };
    let (mut peer, _) = other.accept().unwrap();
    ring.with(|turn| turn.act(NetAction::admit(conn)));
    peer.write_all(&frame(2, b"")).unwrap();
    turns(&mut ring, &mut recorder, |recorder| recorder.events.len() == 2);
    assert_eq!(recorder.frames, [frame(2, b"")]);
}

/// A lane of a server, with its own listening socket, dials another server's: frames go both ways
/// over one connection.
#[test]
fn a_lane_that_listens_dials_another_server() {
    let listener = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (mine, other) = (listener(), listener());
    let address = other.local_addr().unwrap();
    let (sender, _receiver) = channel();
    let accepting = start(only_mailbox(), move |config| {
        config.listener = Some(other.into());
        echo(sender)
    });
    let mut config = ring_config(LaneId(0));
    config.mailbox = Some(only_mailbox());
    config.listener = Some(mine.into());
    let mut ring = Ring::new(config).unwrap();
    let mut recorder = Recorder::default();
    let (ticket, to) = (Ticket(7), ServerAddress::At(address));
    let connected =
        ask(&mut ring, &mut recorder, NetAction::Connect { ticket, address: to }.into());
    let Event::Net(NetEvent::Connected { ticket: Ticket(7), conn }) = connected else {
        panic!("{connected:?}")
    };
    let sent = hello(b"peer");
    ring.with(|turn| {
        let frame = turn.arena.put(&sent);
        turn.act(NetAction::Send { conn, frame, bulk: None });
    });
    turns(&mut ring, &mut recorder, |recorder| !recorder.frames.is_empty());
    assert_eq!(recorder.frames, [sent]);
    // It has no address of its own to begin with.
    let initial = NetAction::Connect { ticket: Ticket(8), address: ServerAddress::Initial };
    let failed = ask(&mut ring, &mut recorder, initial.into());
    assert!(matches!(failed, Event::Net(NetEvent::ConnectFailed { ticket: Ticket(8), .. })));
    accepting.stop();
}
