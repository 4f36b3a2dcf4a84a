//! The trace of a request that waits for leases names who has them.

use super::*;
use crate::tests::traces::{admin, one_of, traces};
use wire::ClientUuid;
use wire::traces::{Kept, WaitCause};

#[test]
fn who_has_the_lease_that_is_waited_for_is_named() {
    let mut server = started(80);
    let mut admin = admin(&mut server);
    let (mut holder, mut other, file) = two(&mut server);
    assert_ne!(holder.getattr(&mut server, file).granted(), 0);
    other.send(&mut server, Op::Setattr, 1, &chmod(file, 0o600));
    server.run();
    server.pass_ms(1800);
    let found = traces(&mut server, &mut admin);
    let waiting = one_of(&found, Op::Setattr);
    assert_eq!((waiting.kept, waiting.inode), (Kept::Waiting, Some(file)));
    assert_eq!(waiting.client.client, ClientUuid([2; 16]));
    let wait = &waiting.waits[0];
    assert_eq!((wait.cause, wait.is_now), (WaitCause::Lease, true));
    let whom: Vec<ClientUuid> = wait.whom.iter().map(|party| party.client).collect();
    assert_eq!(whom, [ClientUuid([1; 16])]);
    holder.ack(&mut server);
    assert!(other.has_reply(&mut server));
    let found = traces(&mut server, &mut admin);
    let slow = one_of(&found, Op::Setattr);
    let wait = &slow.waits[0];
    assert_eq!((slow.kept, wait.cause, wait.is_now), (Kept::Slow, WaitCause::Lease, false));
    assert!((1_800_000..1_900_000).contains(&wait.took_us), "{wait:?}");
    assert_eq!(wait.whom[0].client, ClientUuid([1; 16]));
    assert_eq!(server.lane(0).traces.open_count(), 0);
}
