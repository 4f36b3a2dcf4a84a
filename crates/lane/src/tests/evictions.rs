//! How long it is remembered who was evicted, and that he is refused after that as well.

use super::peer::{Peer, Who, greet};
use crate::toy::Toy;
use wire::{LaneId, Refusal, RefusalReason};

/// What the server says to a client that has something there since a boot, or since none.
fn comes(toy: &mut Toy, client: u8, boot_id_last: u64) -> Result<(), RefusalReason> {
    let mut all = (0..toy.map.lane_count).map(|lane| {
        let (server_lane, conn_epoch) = (LaneId(lane), 5);
        let who = Who { server_lane, conn_epoch, boot_id_last, ..Who::new(client) };
        let (conn, welcome) = greet(toy, &who);
        toy.cut(conn);
        toy.run();
        welcome.map(drop).map_err(|Refusal { reason }| reason)
    });
    let first = all.next().unwrap();
    assert!(all.all(|other| other == first), "all lanes say the same");
    first
}

/// The server dies and starts; nobody comes back in time.
fn restart(toy: &mut Toy, lane_count: u16) {
    toy.crash();
    toy.start(lane_count);
    toy.run();
    toy.pass_ms(20_000);
    toy.run();
    assert_eq!(toy.recovered_before, toy.boot_id);
}

#[test]
fn an_eviction_is_remembered_until_the_second_recovery_and_holds_for_ever() {
    let evicted = Err(RefusalReason::Evicted);
    for cold in [false, true] {
        for lane_count in 1..=3 {
            let mut toy = Toy::new(91);
            if cold {
                toy.bound_names(1 << 20);
            }
            toy.start(lane_count);
            Peer::new(&mut toy, &Who::new(1)).create(&mut toy, "a");
            restart(&mut toy, lane_count);
            assert_eq!(toy.counters(0).recovery.evicted_count, 1);
            for boot_id in 2..=3 {
                assert_eq!(toy.boot_id, boot_id);
                for lane in 0..usize::from(lane_count) {
                    assert_eq!(toy.lane(lane).evicted.len(), 1);
                }
                assert_eq!(comes(&mut toy, 1, 1), evicted);
                assert_eq!(comes(&mut toy, 1, 0), evicted);
                restart(&mut toy, lane_count);
                assert_eq!(toy.counters(0).recovery.known_count, 0, "nobody is waited for");
            }
            for boot_id in 4..=6 {
                assert_eq!(toy.boot_id, boot_id);
                for lane in 0..usize::from(lane_count) {
                    assert!(toy.lane(lane).evicted.is_empty(), "boot {boot_id}");
                }
                assert_eq!(comes(&mut toy, 1, 1), evicted, "it says itself what it missed");
                assert_eq!(comes(&mut toy, 1, 0), Ok(()), "nothing of it can be mistaken");
                // Its first change was on its way when the last boot died.
                assert_eq!(comes(&mut toy, 3, boot_id - 1), Ok(()));
                restart(&mut toy, lane_count);
            }
        }
    }
}

/// What was evicted by a boot that did not complete its recovery is remembered by the next.
#[test]
fn a_recovery_that_was_not_completed_does_not_count() {
    let mut toy = Toy::started(92, 1);
    Peer::new(&mut toy, &Who::new(1)).create(&mut toy, "a");
    restart(&mut toy, 1);
    // Somebody is known, so that recoveries take their time.
    Peer::new(&mut toy, &Who::new(2)).create(&mut toy, "b");
    for _ in 0..4 {
        toy.crash();
        toy.start(1);
        toy.run();
        assert_eq!(toy.recovered_before, 2);
        assert_eq!(toy.lane(0).evicted.len(), 1);
        assert_eq!(comes(&mut toy, 1, 1), Err(RefusalReason::Evicted));
    }
}
