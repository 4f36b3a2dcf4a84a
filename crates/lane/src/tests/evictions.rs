//! How long evictions are remembered, and that forgotten evicted clients are refused as well.

use super::peer::{HelloFields, Peer, send_handshake};
use crate::test_server::TestServer;
use wire::{LaneId, Refusal, RefusalReason};

const LOSSY: u64 = crate::test_server::Delivery::LOSSY_SEED_MIN;

/// The server's answer to a client with state since a boot, or without state.
fn comes(server: &mut TestServer, client: u8, boot_id_last: u64) -> Result<(), RefusalReason> {
    let mut all = (0..server.lane_count()).map(|lane| {
        let (server_lane, conn_epoch) = (LaneId(lane), 5);
        let fields =
            HelloFields { server_lane, conn_epoch, boot_id_last, ..HelloFields::new(client) };
        let (conn, welcome) = send_handshake(server, &fields);
        server.cut(conn);
        server.run();
        welcome.map(drop).map_err(|Refusal { reason }| reason)
    });
    let first = all.next().unwrap();
    assert!(all.all(|other| other == first), "all lanes say the same");
    first
}

/// The server crashes and starts; no client reconnects in time.
fn restart(server: &mut TestServer, lane_count: u16) {
    server.crash();
    server.start(lane_count);
    server.run();
    server.pass_ms(10_000);
    server.run();
}

#[test]
fn a_forgotten_evicted_client_is_still_refused() {
    let evicted = Err(RefusalReason::Evicted);
    for (is_bounded, seed) in [(false, 91), (true, 91), (false, LOSSY + 91)] {
        for lane_count in 1..=3 {
            let mut server = TestServer::new(seed);
            server.evicted_count_max = 1;
            if is_bounded {
                server.bound_names(1 << 20);
            }
            server.start(lane_count);
            Peer::new(&mut server, &HelloFields::new(1)).create(&mut server, "a");
            restart(&mut server, lane_count);
            assert_eq!(server.counters(0).recovery.evicted_count, 1);
            assert_eq!((comes(&mut server, 1, 1), comes(&mut server, 1, 0)), (evicted, evicted));
            Peer::new(&mut server, &HelloFields::new(2)).create(&mut server, "b");
            restart(&mut server, lane_count);
            assert_eq!(server.counters(0).recovery.known_count, 1, "the evicted is not waited for");
            assert_eq!((comes(&mut server, 1, 1), comes(&mut server, 2, 2)), (evicted, evicted));
            for boot_id in 4..=6 {
                restart(&mut server, lane_count);
                assert_eq!(server.boot_id, boot_id);
                assert_eq!(server.counters(0).recovery.known_count, 0);
                for lane in 0..usize::from(lane_count) {
                    assert_eq!(server.lane(lane).evictions.extent(), (1, 2), "the second");
                }
                assert_eq!(
                    (comes(&mut server, 2, 2), comes(&mut server, 2, 0)),
                    (evicted, evicted)
                );
                for boot_id_last in 1..=2 {
                    assert_eq!(comes(&mut server, 1, boot_id_last), evicted, "by its own word");
                }
                assert_eq!(
                    comes(&mut server, 1, 0),
                    Ok(()),
                    "it has nothing that could be done twice"
                );
                // Its first change was in flight when the server crashed.
                assert_eq!(comes(&mut server, 3, boot_id - 1), Ok(()));
            }
        }
    }
}

/// An eviction is remembered until the client's sessions are removed, which every start does first.
#[test]
fn an_eviction_is_remembered_until_its_sessions_are_removed() {
    let mut server = TestServer::new(92);
    server.evicted_count_max = 0;
    server.start(1);
    Peer::new(&mut server, &HelloFields::new(1)).create(&mut server, "a");
    restart(&mut server, 1);
    for _ in 0..3 {
        // No record of this start becomes durable.
        server.crash_losing_all();
        server.start(1);
        assert_eq!(server.lane(0).evictions.extent().0, 1);
    }
    server.run();
    restart(&mut server, 1);
    assert_eq!(server.lane(0).evictions.extent(), (0, 2));
}
