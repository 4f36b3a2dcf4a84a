//! Leases: what may be cached of an answer, and until when; recalls; lost connections.

use super::harness::{Harness, ReceivedRequest, config};
use super::{CALLER, FILE, attr};
use crate::{Answer, Call, Client, Create, Granted, GrantedAttributes, RecalledKey, Term};
use alloc::vec;
use alloc::vec::Vec;
use interface::Mono;
use wire::{
    Attr, Contents, Created, Entry, Getattr, Glimpse, Glimpsed, Header, InodeNo, Layout,
    LeaseGrant, LeaseKey, LeaseNo, List, Lookup, Name, NamedInodes, Op, OpenFor, Recall, RecallNo,
    Reply, ReplyParts, Status, Unlink, Wire, Writer, attr_flag, lease_flag, request_flag,
};

const GETATTR: Call<'static> = Call::Getattr(Getattr { inode: FILE });
const TERM_MS: u32 = 10_000;
/// A directory of the same shard.
const PARENT: InodeNo = InodeNo((2 << 48) | 5);

fn a() -> Name<'static> {
    Name::new(b"a").unwrap()
}

fn lookup() -> Call<'static> {
    Call::Lookup(Lookup { caller: CALLER, parent: PARENT, name: a() })
}

fn harness() -> Harness {
    let mut harness = Harness::new(1);
    harness.client = Client::new(config()).with_leases();
    harness
}

fn ms(ms: u64) -> Option<Mono> {
    Some(Mono(ms * 1_000_000))
}

fn attributes(until: Option<Mono>, lease_no: u64) -> Granted {
    let attributes_no = LeaseNo(lease_no);
    Granted { attributes: until, attributes_no, ..Granted::default() }
}

impl Harness {
    /// Answers and grants.
    pub(super) fn grant(
        &mut self,
        request: &ReceivedRequest,
        message: &[u8],
        lease_no: u64,
        granted: u8,
    ) {
        self.grant_with(request, Status::Ok, message, (lease_no, granted));
    }

    fn grant_with(
        &mut self,
        request: &ReceivedRequest,
        status: Status,
        message: &[u8],
        (lease_no, granted): (u64, u8),
    ) {
        assert_ne!(request.head.flags & request_flag::LEASES, 0, "the client asks for leases");
        let lease_no = LeaseNo(lease_no);
        let lease = LeaseGrant { lease_no, term_ms: TERM_MS, granted, further_count: 0 };
        let parts = ReplyParts { lease: Some(lease), ..ReplyParts::plain(message) };
        let mut body = Vec::new();
        parts.put(&mut Writer::new(&mut body));
        let reply = Reply { status, flags: parts.flags(), ..self.reply(request) };
        self.send(request.conn, reply, &body, None);
    }

    pub(super) fn recall(
        &mut self,
        request: &ReceivedRequest,
        (recall_no, max): (u64, u64),
        key: LeaseKey,
    ) {
        let keys = key.to_bytes();
        let keys = List::new(1, &keys);
        let recall = Recall { recall_no: RecallNo(recall_no), lease_no_max: LeaseNo(max), keys };
        let mut frame = Vec::new();
        Header::Recall.encode(&mut frame, None, |to| to.write(&recall));
        self.frame(request.conn, frame, None);
    }

    pub(super) fn granted(&mut self) -> Granted {
        assert_eq!(self.granted.len(), 1);
        self.granted.remove(0)
    }

    /// Calls, and answers with a grant of the attributes.
    fn getattr(&mut self, lease_no: u64) -> ReceivedRequest {
        self.call(1, GETATTR);
        let request = self.take();
        let entry = Entry { attr: attr(FILE, 0) }.to_bytes();
        self.grant(&request, &entry, lease_no, lease_flag::ATTRIBUTES);
        assert_eq!(self.outcome(), Ok(Answer::Entry(attr(FILE, 0))));
        request
    }
}

#[test]
fn a_client_without_leases_asks_for_none() {
    let mut harness = Harness::new(1);
    harness.call(1, GETATTR);
    let request = harness.take();
    assert_eq!(request.head.flags & request_flag::LEASES, 0);
    harness.recall(&request, (1, 1), LeaseKey::Attributes(FILE));
    assert_eq!(harness.client.counters().protocol_error_count, 1, "and takes no recalls");
}

#[test]
fn a_lease_counts_from_the_first_sending_less_a_tenth() {
    let mut harness = harness();
    harness.call(1, GETATTR);
    harness.take();
    harness.wait_ms(1_500);
    harness.hang_up();
    let request = harness.take();
    assert_ne!(request.head.flags & request_flag::RESENT, 0);
    harness.wait_ms(500);
    let entry = Entry { attr: attr(FILE, 0) }.to_bytes();
    harness.grant(&request, &entry, 1, lease_flag::ATTRIBUTES);
    assert_eq!(harness.granted(), attributes(ms(10_000), 1));

    harness.call(2, GETATTR);
    let request = harness.take();
    harness.wait_ms(9_000);
    harness.grant(&request, &entry, 2, lease_flag::ATTRIBUTES);
    assert_eq!(harness.granted(), attributes(None, 2), "it has expired on the way");
}

#[test]
fn an_absent_name_is_granted_with_its_error() {
    let mut harness = harness();
    harness.call(1, lookup());
    let request = harness.take();
    harness.grant_with(&request, Status::NotFound, &[], (1, lease_flag::NAME));
    assert_eq!(harness.outcome(), Err(Status::NotFound));
    assert_eq!(harness.granted(), Granted { name: ms(10_000), ..Granted::default() });
}

#[test]
fn what_was_recalled_while_its_plan_went_on_is_not_granted() {
    for recalled in [false, true] {
        let mut harness = harness();
        harness.call(1, lookup());
        let request = harness.take();
        let entry = Entry { attr: attr(FILE, attr_flag::SIZE_AT_DATA) }.to_bytes();
        harness.grant(&request, &entry, 7, lease_flag::NAME | lease_flag::ATTRIBUTES);
        let glimpse = harness.take();
        assert_eq!(glimpse.head.op, Op::Glimpse);
        assert_eq!(glimpse.body, Glimpse { inode: FILE }.to_bytes());
        if recalled {
            // The recall is about another key, and yet it may have been this reply's turn.
            harness.recall(&request, (1, 7), LeaseKey::Attributes(PARENT));
        }
        let contents = Contents { size_bytes: 9, allocated_bytes: 512, write_time: None };
        harness.answer(&glimpse, &Glimpsed { contents }.to_bytes());
        let until = ms(10_000).filter(|_| !recalled);
        let granted = Granted { name: until, ..attributes(until, 7) };
        assert_eq!(harness.granted(), granted);
    }
}

#[test]
fn the_size_of_a_file_is_asked_for_with_the_lease_of_its_contents() {
    let mut harness = harness();
    let open_for = wire::OpenFor::Read;
    let call = || Call::Open(crate::Open { caller: CALLER, inode: FILE, open_for, sizes: false });
    let unsettled = Entry { attr: attr(FILE, attr_flag::SIZE_AT_DATA) }.to_bytes();
    harness.call(1, call());
    let request = harness.take();
    harness.grant(&request, &unsettled, 1, lease_flag::ATTRIBUTES | lease_flag::CONTENTS);
    let glimpse = harness.take();
    assert_eq!(glimpse.head.op, Op::Glimpse);
    let contents = Contents { size_bytes: 7, allocated_bytes: 512, write_time: None };
    harness.answer(&glimpse, &Glimpsed { contents }.to_bytes());
    let Ok(Answer::Opened { attr: opened, .. }) = harness.outcome() else { panic!("no file") };
    assert_eq!((opened.size_bytes, opened.is_size_at_data()), (7, false));
    assert_eq!(harness.granted().contents, ms(10_000));
    // Its first read goes to the data shard.
    harness.call(2, call());
    let request = harness.take();
    harness.grant(&request, &unsettled, 2, lease_flag::ATTRIBUTES);
    assert!(matches!(harness.outcome(), Ok(Answer::Opened { .. })));
}

#[test]
fn a_size_of_before_a_grant_of_attributes_is_not_cached() {
    let mut harness = harness();
    let unsettled = Entry { attr: attr(FILE, attr_flag::SIZE_AT_DATA) }.to_bytes();
    let sized = |size_bytes| {
        let contents = Contents { size_bytes, allocated_bytes: 512, write_time: None };
        Glimpsed { contents }.to_bytes()
    };
    let open_for = wire::OpenFor::ReadWrite;
    harness.call(1, Call::Open(crate::Open { caller: CALLER, inode: FILE, open_for, sizes: true }));
    let (open, glimpse) = (harness.take(), harness.take());
    harness.answer(&glimpse, &sized(7));
    harness.grant(&open, &unsettled, 1, lease_flag::ATTRIBUTES);
    assert!(matches!(harness.outcome(), Ok(Answer::Opened { attr, .. }) if attr.size_bytes == 7));
    assert_eq!(harness.granted().attributes, None);
    harness.call(2, GETATTR);
    let getattr = harness.take();
    assert!(harness.requests.is_empty(), "the size is asked for later");
    harness.grant(&getattr, &unsettled, 2, lease_flag::ATTRIBUTES);
    let glimpse = harness.take();
    assert_eq!(glimpse.head.op, Op::Glimpse);
    harness.answer(&glimpse, &sized(9));
    assert!(matches!(harness.outcome(), Ok(Answer::Entry(attr)) if attr.size_bytes == 9));
    assert_eq!(harness.granted().attributes, ms(10_000));
}

#[test]
fn a_grant_that_arrives_after_its_recall_is_ignored_and_later_ones_are_not() {
    let mut harness = harness();
    let first = harness.getattr(5);
    assert!(harness.granted().attributes.is_some());
    harness.recall(&first, (3, 9), LeaseKey::Contents(FILE));
    harness.getattr(9);
    assert_eq!(harness.granted(), attributes(None, 9));
    harness.getattr(10);
    assert!(harness.granted().attributes.is_some());
}

/// Answers a request, behind a recall or not.
fn answer_behind(
    harness: &mut Harness,
    request: &ReceivedRequest,
    (parts, recalled): (&ReplyParts<'_>, bool),
) {
    let mut body = Vec::new();
    parts.put(&mut Writer::new(&mut body));
    let reply = Reply { flags: parts.flags(), ..harness.reply(request) };
    if recalled {
        harness.recall(request, (1, 7), LeaseKey::Contents(FILE));
    }
    harness.send(request.conn, reply, &body, None);
}

#[test]
fn attributes_of_further_inodes_are_granted_like_all_others() {
    for recalled in [false, true] {
        let mut harness = harness();
        harness.call(
            1,
            Call::Unlink(Unlink { caller: CALLER, parent: PARENT, name: a(), behind: None }),
        );
        let request = harness.take();
        assert_ne!(request.head.flags & request_flag::LEASES, 0);
        let dir = attr(PARENT, 0);
        let (lease_no, granted) = (LeaseNo(7), lease_flag::NAME);
        let lease = LeaseGrant { lease_no, term_ms: TERM_MS, granted, further_count: 1 };
        let further = &dir.to_bytes();
        let lease = Some(lease);
        let parts = ReplyParts { lease, further, ..ReplyParts::plain(&[]) };
        answer_behind(&mut harness, &request, (&parts, recalled));
        let until = ms(10_000).filter(|_| !recalled);
        assert_eq!(harness.granted(), Granted { name: until, ..Granted::default() });
        let further = until.map(|until| GrantedAttributes { attr: dir, until, lease_no });
        assert_eq!(harness.further, further.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn what_a_reply_names_is_no_grant() {
    // It is told of a request that was granted nothing, and whatever was recalled.
    for (lease_no, recalled) in [(0, false), (7, false), (7, true)] {
        let mut harness = harness();
        let (caller, parent, name) = (CALLER, PARENT, a());
        harness.call(1, Call::Unlink(Unlink { caller, parent, name, behind: None }));
        let request = harness.take();
        let (lease_no, named) = (LeaseNo(lease_no), NamedInodes([Some(FILE), None]));
        let name = if lease_no > LeaseNo(0) { lease_flag::NAME } else { 0 };
        let granted = name | lease_flag::NAMED_INODES;
        let lease = LeaseGrant { lease_no, term_ms: TERM_MS, granted, further_count: 0 };
        let (lease, named) = (Some(lease), Some(named));
        let parts = ReplyParts { lease, named, ..ReplyParts::plain(&[]) };
        answer_behind(&mut harness, &request, (&parts, recalled));
        let until = ms(10_000).filter(|_| lease_no > LeaseNo(0) && !recalled);
        assert_eq!(harness.granted(), Granted { name: until, named, ..Granted::default() });
        let has_term = harness.client.term().until > Mono(0);
        assert_eq!(has_term, lease_no > LeaseNo(0), "there are no leases to renew");
    }
}

#[test]
fn a_recall_is_acknowledged_when_the_frontend_is_done() {
    let mut harness = harness();
    let request = harness.getattr(5);
    harness.recall(&request, (3, 5), LeaseKey::Name(PARENT, Name::new(b"a").unwrap()));
    harness.recall(&request, (4, 5), LeaseKey::Attributes(InodeNo::ROOT));
    assert!(harness.acknowledged.is_empty(), "the kernel may still answer from its cache");
    let recalls = core::mem::take(&mut harness.recalls);
    let keys: Vec<_> = recalls.iter().flat_map(|(_, keys)| keys.clone()).collect();
    let name = RecalledKey::Name(PARENT, b"a".to_vec());
    assert_eq!(keys, [name, RecalledKey::Attributes(InodeNo::ROOT)]);
    harness.act(|client| recalls.iter().for_each(|(id, _)| client.acknowledge(*id)));
    assert_eq!(harness.acknowledged, [(vec![3, 4], 0)]);
}

#[test]
fn after_a_lost_connection_everything_is_dropped_before_anything_is_sent() {
    let mut harness = harness();
    let request = harness.getattr(5);
    harness.recall(&request, (3, 5), LeaseKey::Attributes(FILE));
    let lost_recall = harness.recalls.remove(0).0;
    harness.call(2, GETATTR);
    harness.hang_up();
    assert_eq!(harness.drop_count, 1);
    harness.wait_ms(1_000);
    assert!(harness.client.is_connected());
    assert!(harness.requests.is_empty(), "the kernel still has leases of before");
    assert!(harness.acknowledged.is_empty());
    harness.act(|client| {
        client.acknowledge(lost_recall);
        client.dropped();
    });
    assert_eq!(harness.acknowledged, [(vec![], 5)], "the recall was of the lost connection");
    let resent = harness.take();
    assert_ne!(resent.head.flags & request_flag::RESENT, 0);
    harness.granted.clear();
    let entry = Entry { attr: attr(FILE, 0) }.to_bytes();
    harness.grant(&resent, &entry, 5, lease_flag::ATTRIBUTES);
    assert!(harness.outcome().is_ok());
    assert_eq!(harness.granted(), attributes(None, 5), "a late reply has what was dropped");
    harness.getattr(6);
    assert!(harness.granted().attributes.is_some());
}

#[test]
fn a_restarted_server_hears_nothing_before_everything_is_dropped() {
    let mut harness = harness();
    harness.getattr(500);
    harness.call(2, lookup());
    harness.restart();
    harness.wait_ms(1_000);
    assert!(harness.requests.is_empty());
    harness.act(Client::dropped);
    assert!(harness.acknowledged.is_empty(), "the numbers of another boot mean nothing");
    let request = harness.take();
    let entry = Entry { attr: attr(FILE, 0) }.to_bytes();
    harness.granted.clear();
    harness.grant(&request, &entry, 1, lease_flag::NAME);
    assert!(harness.granted().name.is_some(), "its numbers begin anew");
}

#[test]
fn leases_that_have_expired_need_no_drop() {
    let mut harness = harness();
    harness.getattr(5);
    harness.wait_ms(9_000);
    harness.hang_up();
    harness.call(2, GETATTR);
    assert_eq!(harness.drop_count, 0);
    assert_eq!(harness.requests.len(), 1);
}

#[test]
fn an_evicted_client_drops_everything() {
    let mut harness = harness();
    harness.getattr(5);
    harness.call(2, GETATTR);
    harness.shape.refuse = Some(wire::RefusalReason::Evicted);
    harness.hang_up();
    assert_eq!(harness.drop_count, 1);
    harness.shape.refuse = None;
    harness.wait_ms(5_000);
    assert!(harness.requests.is_empty());
    harness.act(Client::dropped);
    harness.wait_ms(5_000);
    harness.call(3, GETATTR);
    assert_eq!(harness.take().head.op, Op::Getattr);
}

impl Harness {
    /// Takes a Ping and answers it.
    fn pong(&mut self) {
        let ping = self.take();
        assert_eq!(ping.head.op, Op::Ping);
        self.answer(&ping, &[]);
    }
}

#[test]
fn a_ping_in_each_third_of_the_term_renews_it() {
    let mut harness = harness();
    harness.getattr(1);
    let began = harness.now().mono;
    for _ in 0..20 {
        harness.wait_ms(3_332);
        assert!(harness.requests.is_empty());
        harness.wait_ms(1);
        harness.pong();
        let now = harness.now().mono;
        assert_eq!(harness.client.term(), Term { no: 1, until: now.after_ms(9_000) });
    }
    assert_eq!(harness.now().mono.since_ns(began), 20 * 3_333_000_000);
    assert_eq!((harness.drop_count, harness.answered.len()), (0, 0), "nobody else hears of them");
}

#[test]
fn each_reply_renews_the_term_as_of_its_request() {
    let mut harness = harness();
    harness.getattr(1);
    harness.call(2, GETATTR);
    let request = harness.take();
    let asked_at = harness.now().mono;
    harness.wait_ms(3_000);
    let entry = Entry { attr: attr(FILE, 0) }.to_bytes();
    harness.answer(&request, &entry);
    assert_eq!(harness.client.term().until, asked_at.after_ms(9_000));
    harness.granted.clear();
    harness.answered.clear();
    harness.call(3, GETATTR);
    let request = harness.take();
    let asked_at = harness.now().mono;
    harness.grant(&request, &entry, 2, lease_flag::ATTRIBUTES);
    let until = Some(asked_at.after_ms(9_000));
    assert_eq!(harness.granted(), attributes(until, 2), "of all leases");
}

#[test]
fn a_client_without_leases_or_without_use_sends_no_pings() {
    let mut harness = harness();
    harness.call(1, GETATTR);
    let request = harness.take();
    harness.answer(&request, &Entry { attr: attr(FILE, 0) }.to_bytes());
    harness.wait_ms(10_000);
    assert!(harness.requests.is_empty(), "it holds nothing");
    harness.answered.clear();
    harness.granted.clear();
    harness.getattr(1);
    let used_at = harness.now().mono;
    let mut ping_count = 0;
    while harness.client.term().until > harness.now().mono {
        harness.wait_ms(1_000);
        if !harness.requests.is_empty() {
            harness.pong();
            ping_count += 1;
        }
    }
    let held_ns = harness.now().mono.since_ns(used_at);
    assert!((300..310).contains(&(held_ns / 1_000_000_000)), "{held_ns}");
    assert_eq!(ping_count, 74, "each four seconds");
    harness.wait_ms(100_000);
    assert!(harness.requests.is_empty());
    assert_eq!(harness.drop_count, 0, "the kernel's validity has ended as well");
}

#[test]
fn a_use_without_a_call_keeps_the_leases() {
    let mut harness = harness();
    harness.getattr(1);
    for _ in 0..200 {
        harness.wait_ms(4_000);
        let now = harness.now().mono;
        harness.act(|client| client.note_use(now));
        harness.pong();
    }
    assert_eq!(harness.client.term().no, 1);
}

#[test]
fn nothing_of_a_term_that_is_over_comes_back_with_the_next_one() {
    let mut harness = harness();
    harness.getattr(1);
    harness.granted.clear();
    // Sent in the first term, and executed in it, for all that is known.
    harness.call(2, GETATTR);
    let early = harness.take();
    harness.wait_ms(4_000);
    let ping = harness.take();
    harness.wait_ms(5_000);
    harness.call(3, GETATTR);
    let next = harness.take();
    harness.answer(&ping, &[]);
    assert_eq!(harness.client.term().no, 2);
    let entry = Entry { attr: attr(FILE, 0) }.to_bytes();
    harness.grant(&next, &entry, 3, lease_flag::ATTRIBUTES);
    assert!(harness.granted().attributes.is_some());
    harness.grant(&early, &entry, 2, lease_flag::ATTRIBUTES);
    assert_eq!(harness.granted(), attributes(None, 2), "the server may have ended it since");
}

#[test]
fn a_term_that_is_over_when_its_connection_ends_takes_all_lanes_with_it() {
    let mut harness = Harness::new(2);
    harness.client = Client::new(config()).with_leases();
    let first = harness.getattr(1);
    harness.wait_ms(4_000);
    assert_eq!(harness.take().head.op, Op::Ping);
    let other = InodeNo(FILE.0 ^ (1 << 48));
    harness.call(2, Call::Getattr(Getattr { inode: other }));
    let second = harness.take();
    assert_ne!(second.conn, first.conn);
    harness.grant(&second, &Entry { attr: attr(other, 0) }.to_bytes(), 1, lease_flag::ATTRIBUTES);
    let until = harness.client.term().until;
    harness.now_ms += 5_000;
    harness.server.close(first.conn);
    harness.run();
    assert_eq!(harness.drop_count, 0);
    let term = harness.client.term();
    assert_eq!(
        term.no, 2,
        "what the first lane has granted is not used with the second one's term"
    );
    assert!(term.until > until, "{term:?}");
}

#[test]
fn no_reply_renews_the_term_before_the_frontend_has_taken_a_recall() {
    let mut harness = harness();
    let request = harness.getattr(5);
    let until = harness.client.term().until;
    harness.wait_ms(4_000);
    let ping = harness.take();
    let keys = LeaseKey::Attributes(FILE).to_bytes();
    let keys = List::new(1, &keys);
    let recall = Recall { recall_no: RecallNo(1), lease_no_max: LeaseNo(5), keys };
    let mut frame = Vec::new();
    Header::Recall.encode(&mut frame, None, |to| to.write(&recall));
    // Both arrive in one turn.
    harness.put_frame(request.conn, frame, None);
    harness.answer(&ping, &[]);
    assert_eq!(harness.recalls.len(), 1);
    assert_eq!(harness.client.term().until, until);
}

#[test]
fn a_new_file_over_several_shards_may_be_written_behind() {
    let mut harness = harness();
    harness.client = Client::new(config()).with_leases().with_writes_behind();
    let (parent, name, open) = (PARENT, a(), Some(OpenFor::Write));
    let (caller, mode, umask, exclusive) = (CALLER, 0o644, 0, false);
    harness.call(1, Call::Create(Create { caller, parent, name, mode, umask, exclusive, open }));
    let request = harness.take();
    let layout = Some(Layout { stripe_unit_bytes: 1 << 16, stripe_count: 2, narrow: false });
    let attr = Attr { layout, ..attr(FILE, 0) };
    let created = Created { attr, made: true }.to_bytes();
    harness.grant(&request, &created, 1, lease_flag::WRITING);
    let granted = harness.granted();
    assert!(granted.writing);
    assert_eq!(granted.contents, None);
}
