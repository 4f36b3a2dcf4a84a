//! The encoding, other versions of it, and its bounds.
#![allow(clippy::unwrap_used)]

use super::*;
use alloc::vec;

/// A small generator of numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % end
    }

    fn text(&mut self) -> String {
        (0..self.next(12))
            .map(|_| char::from(b'a' + u8::try_from(self.next(26)).unwrap()))
            .collect()
    }

    fn party(&mut self) -> Party {
        let client = ClientUuid([u8::try_from(self.next(256)).unwrap(); 16]);
        let pid = u32::try_from(self.next(1 << 22)).unwrap();
        Party { client, host: self.text(), job: self.text(), pid }
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.next(u64::try_from(all.len()).unwrap())).unwrap()]
    }

    fn wait(&mut self) -> Wait {
        Wait {
            cause: self.pick(&WaitCause::ALL),
            begun_us: self.next(1 << 30),
            took_us: self.next(1 << 30),
            is_now: self.next(2) == 0,
            whom: (0..self.next(4)).map(|_| self.party()).collect(),
        }
    }

    fn trace(&mut self) -> RequestTrace {
        let inode = Some(InodeNo(self.next(1 << 30))).filter(|inode| inode.0 > 0);
        RequestTrace {
            kept: self.pick(&Kept::ALL),
            op: Some(self.pick(Op::ALL)),
            client: self.party(),
            export: self.text(),
            inode,
            name: self.text().into_bytes(),
            session: SessionId(self.next(1 << 30)),
            xid: Xid(self.next(1 << 30)),
            trace_id: self.next(1 << 30),
            age_us: self.next(1 << 30),
            queue_us: self.next(1 << 30),
            execution_us: self.next(3),
            commit_us: self.next(3),
            reply_us: self.next(3),
            flush_us: self.next(3),
            ahead_count: self.next(100),
            status: self.pick(&[None, Some(Status::Ok), Some(Status::Io)]),
            waits: (0..self.next(5)).map(|_| self.wait()).collect(),
        }
    }

    fn traces(&mut self) -> Traces {
        Traces { lane: 3, requests: (0..self.next(6)).map(|_| self.trace()).collect() }
    }
}

#[test]
fn what_is_encoded_is_decoded() {
    let mut numbers = Numbers(1);
    for _ in 0..500 {
        let traces = numbers.traces();
        assert_eq!(Traces::decode(&traces.encode()), Ok(traces));
    }
}

#[test]
fn no_cut_and_no_changed_byte_makes_the_decoder_panic() {
    let mut numbers = Numbers(2);
    let bytes = loop {
        let traces = numbers.traces();
        if traces.requests.iter().any(|trace| !trace.waits.is_empty()) {
            break traces.encode();
        }
    };
    for end in 0..bytes.len() {
        if let Ok(found) = Traces::decode(&bytes[..end]) {
            // Traces may end anywhere between two.
            assert_eq!(found.encode(), bytes[..end]);
        }
    }
    for index in 0..bytes.len() {
        for change in [1, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[index] ^= change;
            if let Ok(found) = Traces::decode(&changed) {
                assert_eq!(Traces::decode(&found.encode()), Ok(found));
            }
        }
    }
}

#[test]
fn what_a_newer_server_adds_is_skipped() {
    let mut numbers = Numbers(3);
    let known = Traces { lane: 1, requests: vec![numbers.trace()] };
    let mut bytes = known.encode();
    // A field of a trace.
    let mut body = bytes.split_off(4).split_off(4);
    body.extend_from_slice(&[200, 3, 0, 1, 2, 3]);
    bytes.extend_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
    bytes.extend_from_slice(&body);
    // A trace that is kept for an unknown reason.
    bytes.extend_from_slice(&[11, 0, 0, 0, 1, 8, 0, 77, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Traces::decode(&bytes), Ok(known));
}

#[test]
fn a_field_twice_is_refused() {
    let mut numbers = Numbers(4);
    let traces = Traces { lane: 1, requests: vec![numbers.trace()] };
    let mut bytes = traces.encode();
    let mut body = bytes.split_off(4).split_off(4);
    body.extend_from_slice(&[1, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
    bytes.extend_from_slice(&body);
    assert!(Traces::decode(&bytes).is_err());
}

#[test]
fn a_reply_fits_into_a_frame_and_what_comes_first_is_in_it() {
    let mut numbers = Numbers(5);
    let requests: Vec<RequestTrace> = (0..4000).map(|_| numbers.trace()).collect();
    let traces = Traces { lane: 1, requests };
    let bytes = traces.encode();
    assert!(bytes.len() <= crate::BODY_BYTES_MAX as usize);
    let found = Traces::decode(&bytes).unwrap();
    assert!(found.requests.len() > 500);
    assert!(traces.requests.starts_with(&found.requests));
}

#[test]
fn long_names_are_cut() {
    let mut numbers = Numbers(6);
    let long = RequestTrace { name: vec![b'x'; 1000], export: "é".repeat(500), ..numbers.trace() };
    let traces = Traces { lane: 1, requests: vec![long] };
    let found = Traces::decode(&traces.encode()).unwrap();
    assert_eq!(found.requests[0].name, vec![b'x'; NAME_BYTES_SHOWN]);
    assert_eq!(found.requests[0].export, "é".repeat(127));
}
