//! Two ends of one connection, without sockets.

#![allow(clippy::unwrap_used)]
mod certificates;

use super::*;
use std::io::Read as _;

/// Both ends, and what each has sent that the other has not received.
struct Pair {
    client: Seal,
    server: Seal,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

fn pair() -> Pair {
    let mut to_server = Vec::new();
    let client = Seal::client(&Client::with_any_key().unwrap(), &mut to_server).unwrap();
    let server = Seal::server(&Server::with_new_key().unwrap());
    Pair { client, server, to_server, to_client: Vec::new() }
}

/// Completes a handshake, `step_bytes` at a time.
fn progress(step_bytes: usize) -> (Pair, ChannelBinding, ChannelBinding) {
    let Pair { mut client, mut server, mut to_server, mut to_client } = pair();
    let (mut at_client, mut at_server) = (None, None);
    while at_client.is_none() || at_server.is_none() {
        for piece in std::mem::take(&mut to_server).chunks(step_bytes) {
            server.push_received(piece);
            if let HandshakeProgress::Open(channel) =
                server.advance_handshake(&mut to_client).unwrap()
            {
                at_server = Some(channel);
            }
        }
        for piece in std::mem::take(&mut to_client).chunks(step_bytes) {
            client.push_received(piece);
            if let HandshakeProgress::Open(channel) =
                client.advance_handshake(&mut to_server).unwrap()
            {
                at_client = Some(channel);
            }
        }
    }
    assert!(to_server.is_empty() && to_client.is_empty());
    let pair = Pair { client, server, to_server, to_client };
    (pair, at_client.unwrap(), at_server.unwrap())
}

fn sealed(seal: &mut Seal, plain: &[u8]) -> Vec<u8> {
    let mut out = vec![0; plain.len() + RECORD_OVERHEAD_BYTES];
    let fill = |recv_space: &mut [u8]| {
        recv_space.copy_from_slice(plain);
        Ok::<(), ()>(())
    };
    let record_bytes = seal.seal(&mut out, plain.len(), fill).unwrap();
    assert_eq!(record_bytes, out.len());
    out
}

fn opened(seal: &mut Seal) -> Result<Option<Vec<u8>>, Fault> {
    Ok(seal.open()?.map(|content| match content {
        Content::Bytes(bytes) => bytes.to_vec(),
        Content::End => b"END".to_vec(),
        Content::Nothing => Vec::new(),
    }))
}

#[test]
fn both_ends_have_one_channel_binding_unique_to_the_handshake() {
    let mut seen = Vec::new();
    for step_bytes in [1, 7, 100, usize::MAX] {
        let (_, at_client, at_server) = progress(step_bytes);
        assert_eq!(at_client, at_server, "in steps of {step_bytes}");
        assert!(!seen.contains(&at_client) && at_client != [0; 32]);
        seen.push(at_client);
    }
}

#[test]
fn the_channel_binding_is_the_exporter_of_rfc_9266() {
    let config = Server::with_new_key().unwrap().raw_key.unwrap();
    let mut server = rustls::ServerConnection::new(config).unwrap();
    let mut sent = Vec::new();
    let mut client = Seal::client(&Client::with_any_key().unwrap(), &mut sent).unwrap();
    let mut progress = HandshakeProgress::NeedsMore;
    while progress == HandshakeProgress::NeedsMore || server.is_handshaking() {
        let mut rest = sent.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().unwrap();
        }
        sent.clear();
        let mut answer = Vec::new();
        server.write_tls(&mut answer).unwrap();
        client.push_received(&answer);
        if progress == HandshakeProgress::NeedsMore {
            progress = client.advance_handshake(&mut sent).unwrap();
        }
    }
    let exported = server.export_keying_material([0; 32], b"EXPORTER-ChannelBinding-Binding", None);
    assert_eq!(progress, HandshakeProgress::Open(exported.unwrap()));
    // Its records are the library's own, also those after a key update.
    let mut plain = [0; 5];
    let mut record = vec![0; KEY_UPDATE_BYTES_MAX];
    for wears in [false, true, false] {
        if wears {
            client.keys().wear();
            let renewal_bytes = client.update_key(&mut record).unwrap();
            assert_eq!(server.read_tls(&mut &record[..renewal_bytes]).unwrap(), renewal_bytes);
        }
        server.read_tls(&mut sealed(&mut client, b"hello").as_slice()).unwrap();
        server.process_new_packets().unwrap();
        server.reader().read_exact(&mut plain).unwrap();
        assert_eq!(&plain, b"hello");
    }
}

#[test]
fn records_are_decrypted_from_any_pieces_across_key_updates() {
    let (mut pair, ..) = progress(usize::MAX);
    let plain: Vec<u8> =
        (0..RECORD_BYTES_MAX).map(|index| (index % 251).to_le_bytes()[0]).collect();
    for (round, plain_bytes) in
        [0, 1, 100, RECORD_BYTES_MAX - 1, RECORD_BYTES_MAX].into_iter().enumerate()
    {
        let mut out = vec![0; KEY_UPDATE_BYTES_MAX];
        if round % 2 == 1 {
            pair.server.keys().wear();
        }
        let renewal_bytes = pair.server.update_key(&mut out).unwrap();
        assert_eq!(renewal_bytes > 0, round % 2 == 1);
        out.truncate(renewal_bytes);
        out.extend(sealed(&mut pair.server, &plain[..plain_bytes]));
        let mut found = Vec::new();
        for piece in out.chunks(1000) {
            pair.client.push_received(piece);
            while let Some(bytes) = opened(&mut pair.client).unwrap() {
                found.extend(bytes);
            }
        }
        assert_eq!(found, plain[..plain_bytes]);
        assert!(pair.client.is_empty());
    }
}

#[test]
fn a_hello_received_with_the_last_handshake_message_is_retained() {
    let Pair { mut client, mut server, to_server, mut to_client } = pair();
    server.push_received(&to_server);
    assert_eq!(server.advance_handshake(&mut to_client), Ok(HandshakeProgress::NeedsMore));
    client.push_received(&to_client);
    let mut last = Vec::new();
    assert!(matches!(client.advance_handshake(&mut last), Ok(HandshakeProgress::Open(_))));
    last.extend(sealed(&mut client, b"hello"));
    server.push_received(&last);
    assert!(matches!(server.advance_handshake(&mut to_client), Ok(HandshakeProgress::Open(_))));
    assert_eq!(opened(&mut server), Ok(Some(b"hello".to_vec())));
}

#[test]
fn modified_missing_repeated_and_reflected_records_are_rejected() {
    type Change<'a> = &'a dyn Fn(&mut Seal, Vec<u8>, Vec<u8>) -> Vec<u8>;
    let change = |change: Change<'_>| {
        let (mut pair, ..) = progress(usize::MAX);
        let first = sealed(&mut pair.server, b"first");
        let second = sealed(&mut pair.server, b"second");
        let received = change(&mut pair.client, first, second);
        pair.client.push_received(&received);
        loop {
            match opened(&mut pair.client) {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(fault) => return Some(fault),
            }
        }
    };
    assert_eq!(change(&|_, first, second| [first, second].concat()), None);
    assert_eq!(change(&|_, _, second| second), Some(Fault::Broken));
    assert_eq!(change(&|_, first, _| [first.clone(), first].concat()), Some(Fault::Broken));
    assert_eq!(change(&|_, first, second| [second, first].concat()), Some(Fault::Broken));
    assert_eq!(change(&|client, _, _| sealed(client, b"mirror")), Some(Fault::Broken));
    for index in 0..5 + 5 + 1 + 16 {
        let flip = |_: &mut Seal, mut first: Vec<u8>, _| {
            first[index] ^= 1;
            first.extend([0; 512]);
            first
        };
        assert_eq!(change(&flip), Some(Fault::Broken), "byte {index}");
    }
}

#[test]
fn plain_frames_are_foreign_and_stay_readable() {
    let Pair { mut client, mut server, .. } = pair();
    for seal in [&mut client, &mut server] {
        seal.push_received(b"LNFS\x06");
        assert_eq!(seal.advance_handshake(&mut Vec::new()), Err(Fault::Foreign));
        assert_eq!(seal.unopened(), b"LNFS\x06");
    }
}

#[test]
fn earlier_tls_versions_are_refused() {
    let mut record = pair().to_server;
    // Replaces TLS 1.3 by 1.2 in the extension that offers versions (43).
    let offered = [0, 43, 0, 3, 2, 3, 4];
    let at = record.windows(offered.len()).position(|bytes| bytes == offered).unwrap();
    record[at + 6] = 3;
    let mut server = pair().server;
    server.push_received(&record);
    assert_eq!(server.advance_handshake(&mut Vec::new()), Err(Fault::Broken));
}

#[test]
fn garbage_anywhere_in_a_handshake_ends_it_within_bounded_memory() {
    let mut number = 1_u64;
    let mut roll = move || {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(number >> 33).unwrap()
    };
    let mut broken_count = 0;
    for _ in 0..2000 {
        let Pair { mut client, mut server, to_server: mut flight, .. } = pair();
        let mut to_client = Vec::new();
        let ends = roll() % 2 == 0;
        if ends {
            // The server's flight, or the client's last one.
            server.push_received(&flight);
            server.advance_handshake(&mut to_client).unwrap();
            flight = to_client;
        }
        for _ in 0..1 + roll() % 4 {
            let index = roll() % flight.len();
            flight[index] = roll().to_le_bytes()[0];
        }
        flight.truncate(1 + roll() % (2 * flight.len()));
        let seal = if ends { &mut client } else { &mut server };
        let mut out = Vec::new();
        seal.push_received(&flight);
        broken_count += usize::from(seal.advance_handshake(&mut out).is_err());
        assert!(out.len() < 4096 && seal.recv_space(0).len() <= 64 * 1024);
    }
    assert!(broken_count > 500, "{broken_count}");
}

#[test]
fn records_received_elsewhere_are_decrypted_in_place() {
    let mut pair = progress(usize::MAX).0;
    let mut records = Vec::new();
    let mut plain = Vec::new();
    for (number, plain_bytes) in (0..).zip([100, 0, RECORD_BYTES_MAX, 1]) {
        let bytes = vec![number; plain_bytes];
        records.extend(sealed(&mut pair.client, &bytes));
        plain.extend(bytes);
        if plain_bytes == 100 {
            pair.client.keys().wear();
        }
    }
    let (mut at, mut start) = (0, 0);
    for end in [3, 50, 200, 9000, records.len()] {
        let there = &mut records[..end];
        while let Some((record_bytes, content)) =
            pair.server.open_to(&mut there[at..], start - at).unwrap()
        {
            start += record_bytes;
            if let Content::Bytes(bytes) = content {
                at += bytes.len();
            }
        }
    }
    assert_eq!(start, records.len());
    assert!(records[..at] == plain);
}
