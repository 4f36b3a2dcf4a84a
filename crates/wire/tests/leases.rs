//! Leases on the wire: the parts of a reply's body, and what a receiver refuses.
#![allow(clippy::unwrap_used, missing_docs)]

use wire::*;

fn lease(granted: u8) -> LeaseGrant {
    let lease_no = LeaseNo(0x0102_0304_0506_0708);
    LeaseGrant { lease_no, term_ms: 10_000, granted, further_count: 0 }
}

fn attr(number: u64) -> Attr {
    Attr { flags: 0, version: Transno(number), ..Attr::elsewhere(InodeNo(number), FileKind::Fifo) }
}

fn new_files(number: u64) -> NewFiles {
    NewFiles { first: InodeNo(number), count: 7, layout: Layout::DEFAULT }
}

fn body_of(parts: &ReplyParts<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    parts.put(&mut Writer::new(&mut body));
    body
}

#[test]
fn a_reply_splits_into_the_parts_it_was_made_of() {
    let mut rng = fastrand::Rng::with_seed(0x1ea5e);
    for _ in 0..10_000 {
        let (mut message, mut token) = ([0; 40], [0; 40]);
        rng.fill(&mut message);
        rng.fill(&mut token);
        let message = &message[..rng.usize(..=40)];
        let token = &token[..rng.usize(..=40)];
        let further_count = rng.u8(..=LeaseGrant::FURTHER_COUNT_MAX);
        let attrs: Vec<Attr> = (0..further_count).map(|_| attr(rng.u64(..))).collect();
        let further = attrs.iter().flat_map(Wire::to_bytes).collect::<Vec<_>>();
        let lease =
            rng.bool().then(|| LeaseGrant { further_count, ..lease(rng.u8(..=lease_flag::ALL)) });
        let further = if lease.is_some() { &further[..] } else { &[] };
        let has = |flag: u8| lease.is_some_and(|it| it.granted & flag != 0);
        let new_files = has(lease_flag::NEW_FILES).then(|| new_files(rng.u64(..)));
        let named = has(lease_flag::NAMED_INODES)
            .then(|| NamedInodes([(); 2].map(|()| rng.bool().then(|| InodeNo(rng.u64(1..))))));
        let token = rng.bool().then_some(token);
        let parts = ReplyParts { message, lease, further, new_files, named, token };
        let reply = Reply { flags: parts.flags(), ..Reply::of(Op::Lookup) };
        let body = body_of(&parts);
        assert_eq!(ReplyParts::split(&reply, &body), Ok(parts));
        let shown = if lease.is_some() { attrs } else { Vec::new() };
        assert_eq!(parts.further_attributes(), Ok(shown));
        let suffix_bytes = body.len() - message.len();
        if suffix_bytes > 0 {
            let short = &body[body.len() - rng.usize(..suffix_bytes)..];
            assert!(ReplyParts::split(&reply, short) != Ok(parts), "a cut body is another one");
        }
    }
}

#[test]
fn a_lease_with_unknown_bits_or_from_a_slot_is_refused() {
    let lease = Some(lease(lease_flag::NAME));
    let parts = ReplyParts { lease, ..ReplyParts::plain(b"m") };
    let mut body = body_of(&parts);
    let reply = Reply { flags: reply_flag::LEASES, ..Reply::of(Op::Lookup) };
    assert_eq!(ReplyParts::split(&reply, &body), Ok(parts));
    let from_slot = Reply { flags: reply_flag::LEASES | reply_flag::FROM_SLOT, ..reply };
    assert_eq!(ReplyParts::split(&from_slot, &body), Err(ProtocolError::Malformed));
    assert_eq!(ReplyParts::split(&reply, &body[..12]), Err(ProtocolError::Malformed));
    let last = body.len() - 1;
    for further_count in [1, LeaseGrant::FURTHER_COUNT_MAX + 1] {
        body[last] = further_count;
        assert_eq!(ReplyParts::split(&reply, &body), Err(ProtocolError::Malformed));
    }
    body[last] = 0;
    for granted in [lease_flag::NAMED_INODES, lease_flag::ALL + 1] {
        body[last - 1] = granted;
        assert_eq!(ReplyParts::split(&reply, &body), Err(ProtocolError::Malformed), "{granted}");
    }
}

#[test]
fn new_files_that_are_cut_or_have_no_layout_are_refused() {
    let (lease, files) = (Some(lease(lease_flag::NEW_FILES)), Some(new_files(9)));
    let parts = ReplyParts { lease, new_files: files, ..ReplyParts::plain(&[]) };
    let mut body = body_of(&parts);
    let reply = Reply { flags: reply_flag::LEASES, ..Reply::of(Op::Mkdir) };
    assert_eq!(ReplyParts::split(&reply, &body), Ok(parts));
    assert_eq!(ReplyParts::split(&reply, &body[1..]), Err(ProtocolError::Malformed));
    body[12..22].fill(0);
    assert_eq!(ReplyParts::split(&reply, &body), Err(ProtocolError::Malformed));
}

#[test]
fn further_attributes_that_are_none_are_refused() {
    let mut further = attr(7).to_bytes();
    further[8] = 0; // No kind.
    let lease = Some(LeaseGrant { further_count: 1, ..lease(0) });
    let parts = ReplyParts { lease, further: &further, ..ReplyParts::plain(b"m") };
    let body = body_of(&parts);
    let reply = Reply { flags: reply_flag::LEASES, ..Reply::of(Op::Unlink) };
    let split = ReplyParts::split(&reply, &body).unwrap();
    assert_eq!(split.further_attributes(), Err(ProtocolError::Malformed));
}

#[test]
fn ops_that_show_or_change_names_and_attributes_grant_and_reads_of_bytes() {
    for &op in Op::ALL {
        let row = op.row();
        let grants = row.grants != Grants::Nothing;
        assert!(!grants || row.executor == Executor::Metadata || op == Op::Read, "{op:?}");
        let shows = matches!(row.reply, ReplyBody::Entry | ReplyBody::Created);
        // A file without a name has nobody to share it with.
        let silent = matches!(op, Op::Tmpfile);
        assert!(grants || silent || !shows, "{op:?} shows attributes");
    }
}
