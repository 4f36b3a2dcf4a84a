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
    toy.pass_ms(10_000);
    toy.run();
}

#[test]
fn who_was_evicted_is_refused_when_he_is_remembered_no_more() {
    let evicted = Err(RefusalReason::Evicted);
    for cold in [false, true] {
        for lane_count in 1..=3 {
            let mut toy = Toy::new(91);
            toy.evicted_count_max = 1;
            if cold {
                toy.bound_names(1 << 20);
            }
            toy.start(lane_count);
            Peer::new(&mut toy, &Who::new(1)).create(&mut toy, "a");
            restart(&mut toy, lane_count);
            assert_eq!(toy.counters(0).recovery.evicted_count, 1);
            assert_eq!((comes(&mut toy, 1, 1), comes(&mut toy, 1, 0)), (evicted, evicted));
            Peer::new(&mut toy, &Who::new(2)).create(&mut toy, "b");
            restart(&mut toy, lane_count);
            assert_eq!(toy.counters(0).recovery.known_count, 1, "the evicted is not waited for");
            assert_eq!((comes(&mut toy, 1, 1), comes(&mut toy, 2, 2)), (evicted, evicted));
            for boot_id in 4..=6 {
                restart(&mut toy, lane_count);
                assert_eq!(toy.boot_id, boot_id);
                assert_eq!(toy.counters(0).recovery.known_count, 0);
                for lane in 0..usize::from(lane_count) {
                    assert_eq!(toy.lane(lane).evicted.len(), 1, "the second");
                    assert_eq!(toy.lane(lane).evicted_last, 2);
                }
                assert_eq!((comes(&mut toy, 2, 2), comes(&mut toy, 2, 0)), (evicted, evicted));
                for boot_id_last in 1..=2 {
                    assert_eq!(comes(&mut toy, 1, boot_id_last), evicted, "by its own word");
                }
                assert_eq!(
                    comes(&mut toy, 1, 0),
                    Ok(()),
                    "it has nothing that could be done twice"
                );
                // Its first change was on its way when the boot died.
                assert_eq!(comes(&mut toy, 3, boot_id - 1), Ok(()));
            }
        }
    }
}

/// While something is left of a client, it is remembered: every start begins by taking that away.
#[test]
fn nobody_is_forgotten_before_his_sessions_are_gone() {
    let mut toy = Toy::new(92);
    toy.evicted_count_max = 0;
    toy.start(1);
    Peer::new(&mut toy, &Who::new(1)).create(&mut toy, "a");
    restart(&mut toy, 1);
    for _ in 0..3 {
        // Nothing that this start records becomes durable.
        toy.crash_losing_all();
        toy.start(1);
        assert_eq!(toy.lane(0).evicted.len(), 1);
    }
    toy.run();
    restart(&mut toy, 1);
    assert_eq!((toy.lane(0).evicted.len(), toy.lane(0).evicted_last), (0, 2));
}
