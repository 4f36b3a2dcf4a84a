//! Non-resident names are read in bounded steps.

use super::peer::{HelloFields, Peer, ROOT};
use crate::non_resident::READ_COUNT_MAX;
use crate::test_server::TestServer;
use alloc::format;
use alloc::vec::Vec;
use wire::{InodeNo, Listing, Op, Readdir, Status, Wire};

const FILE_COUNT: usize = 300;

/// A listing with attributes needs more units than may be read at once.
#[test]
fn row_reads_in_flight_are_limited() {
    let mut server = TestServer::new(5);
    server.bound_names(1);
    server.start(1);
    let mut peer = Peer::new(&mut server, &HelloFields::new(1));
    for no in 0..FILE_COUNT {
        peer.create(&mut server, &format!("file {no}"));
    }
    server.crash();
    server.start(2);
    let mut peer = Peer::new(&mut server, &HelloFields { conn_epoch: 2, ..HelloFields::new(1) });
    peer.come_back(&mut server, InodeNo::ROOT.shard());
    let (mut names, mut cookie, mut most) = (Vec::new(), 0, (0, 0));
    loop {
        let (inode, listing_bytes_max, attrs) = (InodeNo::ROOT, 131_072, true);
        let (caller, handle) = (ROOT, None);
        let body = Readdir { caller, inode, cookie, listing_bytes_max, attrs, handle };
        let head = peer.head(Op::Readdir, InodeNo::ROOT.shard(), 0);
        peer.send(&mut server, &head, &body.to_bytes(), None);
        while server.step() {
            let (reading_count, wanted_count) = server.lane(0).non_resident.reading_counts();
            assert!(reading_count <= READ_COUNT_MAX);
            most = (most.0.max(reading_count), most.1.max(wanted_count));
        }
        let got = peer.replies(&mut server).remove(0);
        assert_eq!(got.head.status, Status::Ok);
        let listing = Listing::decode_all(&got.body).unwrap();
        for entry in listing.entries.iter() {
            assert_eq!(entry.attr.map(|attr| attr.inode), Some(entry.inode));
            names.push(entry.name.bytes().to_vec());
            cookie = entry.cookie;
        }
        if listing.end {
            break;
        }
    }
    let expected: Vec<Vec<u8>> =
        (0..FILE_COUNT).map(|no| format!("file {no}").into_bytes()).collect();
    assert_eq!(names, expected);
    assert!(most.0 == READ_COUNT_MAX && most.1 > READ_COUNT_MAX, "{most:?}");
}
