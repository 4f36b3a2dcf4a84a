//! Operations that concern several objects of a file.

use super::support::{Recorder, ask, noise, ring_config, tempdir, turns, write};
use interface::{
    Action, Event, Object, ObjectAction, ObjectEvent, ObjectPiece, ObjectStat, Ticket,
};
use ring::Ring;
use std::fs::File;
use std::path::Path;
use wire::{Allocation, InodeNo, LaneId, Wire as _};

const FIRST: Object = Object { shard_index: 3, stripe_index: 0, inode: InodeNo(7) };
const TICKET: Ticket = Ticket(1);

struct Fixture {
    ring: Ring,
    recorder: Recorder,
}

impl Fixture {
    fn open(dir: &Path) -> Self {
        let mut config = ring_config(LaneId(0));
        config.store = Some(File::open(dir).unwrap().into());
        Self { ring: Ring::new(config).unwrap(), recorder: Recorder::default() }
    }

    fn done(&mut self, action: ObjectAction) {
        let done = ask(&mut self.ring, &mut self.recorder, Action::Object(action));
        assert_eq!(done, Event::Object(ObjectEvent::Done { ticket: TICKET, result: Ok(()) }));
    }

    fn write(&mut self, object: Object, object_offset: u64, bytes: &[u8]) {
        let at = (TICKET, object, object_offset);
        let written = write(&mut self.ring, &mut self.recorder, at, 0, bytes);
        let done = Event::Object(ObjectEvent::Done { ticket: TICKET, result: Ok(()) });
        assert_eq!(written, done);
    }

    fn read_list(&mut self, pieces: &[ObjectPiece]) -> Vec<u8> {
        let known_count = self.recorder.events.len();
        self.ring.with(|turn| {
            let encoded: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_bytes()).collect();
            let pieces = turn.arena.put(&encoded);
            let (ticket, object, only_cached) = (TICKET, FIRST, false);
            turn.act(ObjectAction::ReadList { ticket, object, pieces, only_cached });
        });
        turns(&mut self.ring, &mut self.recorder, |recorder| recorder.events.len() > known_count);
        match self.recorder.events[known_count] {
            Event::Object(ObjectEvent::Read { ticket: TICKET, result }) => {
                let bulk = result.unwrap().unwrap();
                let bytes = self.ring.bulk_bytes(bulk).to_vec();
                self.ring.with(|turn| turn.act(Action::Release { buf: bulk.buf }));
                bytes
            }
            other => panic!("{other:?}"),
        }
    }

    fn stat(&mut self, object: Object) -> ObjectStat {
        let stat = Action::Object(ObjectAction::Stat { ticket: TICKET, object, may_make: false });
        match ask(&mut self.ring, &mut self.recorder, stat) {
            Event::Object(ObjectEvent::Stat { result, .. }) => result.unwrap().unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

const fn piece(stripe_index: u32, object_offset: u64, piece_bytes: u32) -> ObjectPiece {
    ObjectPiece { stripe_index, object_offset, piece_bytes }
}

#[test]
fn a_list_has_pieces_of_several_objects_and_zeros_where_one_has_no_bytes() {
    let dir = tempdir();
    let mut fixture = Fixture::open(dir.path());
    let (first, third) = (noise(1, 5_000), noise(2, 300));
    fixture.write(FIRST, 0, &first);
    fixture.write(Object { stripe_index: 2, ..FIRST }, 100, &third);
    let all = [piece(0, 4_000, 2_000), piece(1, 0, 10), piece(2, 0, 150), piece(0, 1, 3)];
    let wanted = [&first[4_000..], &[0; 1_110], &third[..50], &first[1..4]].concat();
    assert!(fixture.read_list(&all) == wanted);
}

#[test]
fn space_is_freed_and_bytes_stay() {
    let dir = tempdir();
    let mut fixture = Fixture::open(dir.path());
    let bytes = noise(3, 4_096);
    fixture.write(FIRST, 8_192, &bytes);
    fixture.done(ObjectAction::Sync { ticket: TICKET, object: FIRST });
    let before = fixture.stat(FIRST);
    let (ticket, object, object_offset, range_bytes) = (TICKET, FIRST, 0, 1 << 20);
    let (allocation, keep_size) = (Allocation::Reserve, false);
    fixture.done(ObjectAction::Allocate {
        ticket,
        object,
        object_offset,
        range_bytes,
        allocation,
        keep_size,
    });
    assert!(fixture.stat(FIRST).allocated_bytes >= 1 << 20);
    let size_bytes = before.size_bytes;
    fixture.done(ObjectAction::GiveBack { ticket, object, object_offset, range_bytes, size_bytes });
    let after = fixture.stat(FIRST);
    assert_eq!(after.size_bytes, before.size_bytes);
    // ext4 may have added a block of extents.
    assert!(after.allocated_bytes <= before.allocated_bytes + 4_096, "{after:?} {before:?}");
    assert!(fixture.read_list(&[piece(0, 8_192, 4_096)]) == bytes);
}
