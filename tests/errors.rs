//! Requests that are refused: by the peer's card with a NAK, or by the own card before anything is sent. Nothing is written,
//! the requester learns why, what was posted behind is flushed, and all other QPs of both cards go on.

use std::sync::Arc;

use verbena_abi::queue::{Key, SqWqe, SQ_UNIT};
use verbena_abi::regs::Counter;
use verbena_host::cq::CompletionStatus;
use verbena_host::qp::QpFault;
use verbena_host::{access, Completion, CqeStatus, Error, Pd, QpState, Sge, WriteFlags};
use verbena_tests::capture::Packet;
use verbena_tests::pair::{Connection, Link, Options, Outcome, Pair, Write, WRITABLE};
use verbena_tests::region::Region;

/// First PSN of the QP that fails.
const PSN: u32 = 0xFF_FFFD;
/// Length of the write that is refused: three packets, so that there is more than one chance to write something.
const LEN: u32 = 2500;
const MTU: u32 = 1024;
/// Where the failing QP's data is: where nobody writes.
const SOURCE: usize = 200_000;

/// How a request ends.
#[derive(Clone, Copy)]
struct Refusal {
    status: CqeStatus,
    /// Of the peer's NAK; 0: the own card refuses, and sends nothing.
    syndrome: u8,
}

const ACCESS: Refusal = Refusal { status: CqeStatus::RemoteAccess, syndrome: 0x62 };
const INVALID: Refusal = Refusal { status: CqeStatus::RemoteInvalidRequest, syndrome: 0x61 };
const LOCAL: Refusal = Refusal { status: CqeStatus::LocalProtection, syndrome: 0 };
const MALFORMED: Refusal = Refusal { status: CqeStatus::LocalOperation, syndrome: 0 };

/// A request that is to be refused, and what it needs.
struct Bad {
    link: Link,
    sges: Vec<Sge>,
    va: u64,
    rkey: u32,
    /// Regions to be closed at the end. Nothing may have been written into them.
    regions: Vec<Region>,
    /// The QP would take a request that is right.
    is_link_good: bool,
    /// Changes the entry in the send queue.
    spoil: Option<fn(&mut SqWqe)>,
}

impl Bad {
    /// Returns a write that is right, to be spoiled.
    fn new(pair: &Pair) -> Self {
        let target = &pair.ends[1].region;
        Self {
            link: Link { psn: [PSN, 77], ..Link::default() },
            sges: vec![pair.ends[0].region.sge(SOURCE + 4321, LEN)],
            va: target.va(100_001),
            rkey: target.key(),
            regions: Vec::new(),
            is_link_good: true,
            spoil: None,
        }
    }
}

/// Writes of QPs that have nothing to do with the one that fails, in both directions.
struct Bystanders {
    connections: [Connection; 2],
    next: u64,
}

impl Bystanders {
    const EACH: usize = 6;

    fn new(pair: &Pair) -> Self {
        let link = |psn| Link { psn: [psn, psn + 1], ..Link::default() };
        Self { connections: [pair.connect(&link(5000)), pair.connect(&link(0xFF_FFFE))], next: 0 }
    }

    /// Posts writes from both ends.
    fn post(&mut self, pair: &mut Pair) {
        for _ in 0..Self::EACH {
            let (which, number) = ((self.next & 1) as usize, self.next as usize);
            // From the upper half of each end's memory into the lower half of the other's.
            let write = Write::new(131_072 + 61 * number, 1_000 + 3_001 * number, 2_900);
            for from in [0, 1] {
                pair.post(&mut self.connections[which], from, 1_000_000 + self.next, &write, WriteFlags::NONE)
                    .expect("a bystander is well");
            }
            self.next += 1;
        }
    }

    /// Checks the completions of one end since the last call, each once and in order.
    fn check(&self, found: &[Completion], from: usize) {
        assert_eq!(found.len(), Self::EACH, "completions of bystanders");
        for (which, connection) in self.connections.iter().enumerate() {
            let qpn = connection.qps[from].qpn();
            let contexts: Vec<u64> = found.iter().filter(|done| done.qpn == qpn).map(|done| done.context).collect();
            let expected: Vec<u64> =
                (self.next - Self::EACH as u64..self.next).filter(|n| n & 1 == which as u64).map(|n| 1_000_000 + n).collect();
            assert_eq!(contexts, expected, "completions of bystander {which}");
        }
        assert!(found.iter().all(|done| done.status.is_success()), "a bystander failed: {found:?}");
    }

    fn round(&mut self, pair: &mut Pair, when: &str) {
        self.post(pair);
        for from in [0, 1] {
            self.check(&pair.reap(from, Self::EACH, &format!("bystanders {when}")), from);
        }
    }
}

/// Runs a request that is refused among others that are not.
fn is_refused(refusal: Refusal, make: impl Fn(&Pair) -> Bad) {
    let is_spied = refusal.status == CqeStatus::LocalOperation;
    let mut pair = Pair::new(Options { mtu: MTU, region_bytes: 256 << 10, capture: true, spy: is_spied, ..Options::default() });
    pair.ends[1].region.randomise(99);
    pair.ends[0].region.clear(0, 128 << 10);
    pair.ends[1].region.clear(0, 128 << 10);
    let mut bystanders = Bystanders::new(&pair);
    bystanders.round(&mut pair, "before");

    let bad = make(&pair);
    if let Some(spy) = &pair.ends[0].spy {
        spy.watch();
    }
    let mut victim = pair.connect(&bad.link);
    let ring = pair.ends[0].spy.as_ref().map(|spy| spy.take().remove(0));
    let qpns = [victim.qps[0].qpn(), victim.qps[1].qpn()];

    // Some that are right, the wrong one, and some behind it, shown to the card at once.
    let good: u64 = if bad.is_link_good { 2 } else { 0 };
    for context in 0..good {
        let write = Write::new(SOURCE + 100 * context as usize, 90_001 + 500 * context as usize, 300);
        pair.post(&mut victim, 0, context, &write, WriteFlags::DEFER).unwrap();
    }
    victim.queues[0].write(good, &bad.sges, bad.va, bad.rkey, WriteFlags::DEFER).unwrap();
    if let (Some(ring), Some(spoil)) = (&ring, bad.spoil) {
        let mut entry: SqWqe = ring.read(good as usize * SQ_UNIT).unwrap();
        spoil(&mut entry);
        ring.write(good as usize * SQ_UNIT, &entry).unwrap();
    }
    drop(ring);
    let right = &pair.ends[1].region;
    let later = |context: u64| (context, [pair.ends[0].region.sge(SOURCE, 1_500)], right.va(96_000), right.key());
    for (context, sges, va, rkey) in (good + 1..good + 4).map(later) {
        // A silent one among them: it must complete as well.
        let flags = if context == good + 2 { WriteFlags::SILENT_SUCCESS } else { WriteFlags::NONE };
        victim.queues[0].write(context, &sges, va, rkey, flags | WriteFlags::DEFER).unwrap();
    }
    victim.queues[0].ring_doorbell();
    bystanders.post(&mut pair);

    // All of these come without the driver looking at events, so it does not know yet that the QP has failed.
    let ours = good as usize + 4;
    let found = pair.reap(0, ours + Bystanders::EACH, "the refused request, and those behind it");
    let (mut mine, others): (Vec<Completion>, Vec<Completion>) = found.into_iter().partition(|done| done.qpn == qpns[0]);
    bystanders.check(&others, 0);
    bystanders.check(&pair.reap(1, Bystanders::EACH, "bystanders during"), 1);
    let right = &pair.ends[1].region;
    for context in good + 4..good + 6 {
        victim.queues[0]
            .write(context, &[pair.ends[0].region.sge(SOURCE, 1_500)], right.va(96_000), right.key(), WriteFlags::NONE)
            .unwrap();
    }
    mine.extend(pair.reap(0, 2, "requests posted to a QP that has failed"));
    let ends: Vec<_> = mine.iter().map(|done| (done.context, done.status, done.syndrome)).collect();
    let expected: Vec<_> = (0..good + 6)
        .map(|context| match context {
            _ if context < good => (context, CompletionStatus::Card(CqeStatus::Success), None),
            _ if context == good => (context, CompletionStatus::Card(refusal.status), Some(refusal.syndrome)),
            _ => (context, CompletionStatus::Card(CqeStatus::Flushed), None),
        })
        .collect();
    assert_eq!(ends.len(), expected.len());
    for (found, expected) in ends.iter().zip(&expected) {
        assert_eq!((found.0, found.1), (expected.0, expected.1), "context and status; all: {ends:?}");
        assert!(expected.2.is_none_or(|syndrome| syndrome == found.2), "syndrome {:#04x} of the completion", found.2);
    }

    check_faults(&pair, &victim, refusal);
    pair.settle("after the refusal");
    for region in &bad.regions {
        region.check("a region that may not be written");
    }
    bystanders.round(&mut pair, "after");

    // The QP's numbers can be used again.
    victim.close();
    let mut fresh = pair.connect(&Link { psn: [123, 456], ..Link::default() });
    for context in 0..3 {
        let write = Write::new(SOURCE + 3_000, 110_000 + 5_000 * context as usize, 4_000);
        pair.post(&mut fresh, 0, context, &write, WriteFlags::NONE).unwrap();
    }
    verbena_tests::pair::check_done(&pair.reap(0, 3, "writes of a new QP"), 0..3);
    bystanders.round(&mut pair, "at the end");
    pair.settle("at the end");

    let adapters = [0, 1].map(|number| Arc::clone(&pair.ends[number].adapter));
    let naks = (adapters[1].read_counter(Counter::TxNaks), adapters[0].read_counter(Counter::RxNaks));
    drop(adapters);
    let Bad { link, regions, va, .. } = bad;
    drop(link);
    for region in regions {
        region.close();
    }
    let [first, second] = bystanders.connections;
    let outcome = pair.close([fresh, first, second]);
    let count = u32::from(refusal.syndrome != 0);
    assert_eq!(naks, (count, count), "NAKs sent by B and taken by A, as counted");
    check_wire(&outcome, refusal, qpns, good as u32, va);
}

/// Checks what the driver learns of a failure, on both ends.
fn check_faults(pair: &Pair, victim: &Connection, refusal: Refusal) {
    let fault = pair.wait_for("the event of the failed requester", || victim.qps[0].fault());
    assert_eq!(fault, QpFault::Requester { code: refusal.status as u8, status: Some(refusal.status) });
    assert_eq!(victim.qps[0].query_blocking().unwrap().state, QpState::Error);
    let other = &victim.qps[1];
    if refusal.syndrome == 0 {
        assert_eq!((other.state(), other.fault()), (QpState::Rts, None), "the peer saw nothing");
        assert_eq!(other.query_blocking().unwrap().state, QpState::Rts);
    } else {
        let fault = pair.wait_for("the event of the peer that refused", || other.fault());
        assert_eq!(fault, QpFault::Access { syndrome: refusal.syndrome });
        assert_eq!(other.query_blocking().unwrap().state, QpState::Error);
    }
    assert_eq!(victim.qps[0].state(), QpState::Error);
}

/// Checks the frames: one NAK with the right code and PSN, or nothing of the request at all.
fn check_wire(outcome: &Outcome, refusal: Refusal, qpns: [u32; 2], good: u32, va: u64) {
    let packets = &outcome.packets;
    assert!(packets.iter().all(|packet| packet.is_icrc_right), "an ICRC is wrong");
    let naks: Vec<&Packet> = packets.iter().filter(|packet| packet.is_nak()).collect();
    let sent: Vec<&Packet> =
        packets.iter().filter(|packet| packet.reth.is_some_and(|reth| reth.va == va && packet.qpn == qpns[1])).collect();
    if refusal.syndrome == 0 {
        assert!(naks.is_empty(), "a NAK: {naks:?}");
        assert!(sent.is_empty(), "the request was sent");
        return;
    }
    assert_eq!(sent.len(), 1, "the request was sent once");
    assert_eq!(naks.len(), 1, "one NAK");
    let (nak, aeth) = (naks[0], naks[0].aeth.expect("a NAK has an AETH"));
    assert_eq!((nak.from, nak.qpn, nak.opcode), (1, qpns[0], 0x11));
    assert_eq!(aeth.syndrome, refusal.syndrome, "syndrome of the NAK");
    assert_eq!(nak.psn, (PSN + good) & 0xFF_FFFF, "the NAK names the packet that was refused");
    assert_eq!(nak.psn, sent[0].psn);
    assert_eq!(aeth.msn, good, "messages that were done before");
}

#[test]
fn a_key_with_a_wrong_tag_is_refused() {
    is_refused(ACCESS, |pair| {
        let bad = Bad::new(pair);
        Bad { rkey: bad.rkey ^ 0x80, ..bad }
    });
}

#[test]
fn a_key_that_was_closed_is_refused() {
    is_refused(ACCESS, |pair| {
        let end = &pair.ends[1];
        let region = Region::new(end.device.clone(), &end.pd, 8192, 0x5000, WRITABLE);
        let (va, rkey) = (region.va(0), region.key());
        region.close();
        Bad { va, rkey, ..Bad::new(pair) }
    });
}

#[test]
fn a_key_of_no_region_is_refused() {
    is_refused(ACCESS, |pair| {
        let bad = Bad::new(pair);
        Bad { rkey: Key::new(Key(bad.rkey).index() + 1, Key(bad.rkey).tag()).0, ..bad }
    });
}

#[test]
fn a_key_of_index_zero_is_refused() {
    is_refused(ACCESS, |pair| Bad { rkey: 0, ..Bad::new(pair) });
}

#[test]
fn a_key_beyond_all_regions_is_refused() {
    is_refused(ACCESS, |pair| {
        let bad = Bad::new(pair);
        // The low bits of the index are those of the region.
        Bad { rkey: bad.rkey | 1 << 31, ..bad }
    });
}

#[test]
fn a_range_that_is_one_byte_too_long_is_refused() {
    is_refused(ACCESS, |pair| {
        let region = &pair.ends[1].region;
        Bad { va: region.va(region.len() - LEN as usize + 1), ..Bad::new(pair) }
    });
}

#[test]
fn a_range_that_begins_one_byte_early_is_refused() {
    is_refused(ACCESS, |pair| Bad { va: pair.ends[1].region.va(0) - 1, ..Bad::new(pair) });
}

#[test]
fn a_region_without_remote_write_is_refused() {
    is_refused(ACCESS, |pair| {
        let end = &pair.ends[1];
        let region = Region::new(end.device.clone(), &end.pd, 8192, 0x5000, access::LOCAL_WRITE | access::REMOTE_READ);
        Bad { va: region.va(0), rkey: region.key(), regions: vec![region], ..Bad::new(pair) }
    });
}

#[test]
fn a_region_of_another_domain_is_refused() {
    is_refused(ACCESS, |pair| {
        let end = &pair.ends[1];
        let pd = Pd::create(&end.adapter).unwrap();
        let region = Region::new(end.device.clone(), &pd, 8192, 0x5000, WRITABLE);
        Bad { va: region.va(0), rkey: region.key(), regions: vec![region], ..Bad::new(pair) }
    });
}

#[test]
fn a_queue_pair_of_another_domain_refuses() {
    is_refused(ACCESS, |pair| {
        let bad = Bad::new(pair);
        let pd = Pd::create(&pair.ends[1].adapter).unwrap();
        Bad { link: Link { pd: [None, Some(pd)], ..bad.link.clone() }, is_link_good: false, ..bad }
    });
}

#[test]
fn a_queue_pair_without_remote_write_refuses_as_invalid() {
    is_refused(INVALID, |pair| {
        let bad = Bad::new(pair);
        Bad { link: Link { access: [access::REMOTE_WRITE, access::REMOTE_READ], ..bad.link.clone() }, is_link_good: false, ..bad }
    });
}

#[test]
fn a_remote_address_that_wraps_is_refused() {
    is_refused(ACCESS, |pair| {
        let end = &pair.ends[1];
        let region = Region::new(end.device.clone(), &end.pd, 8192, u64::MAX - 8255, WRITABLE);
        Bad { va: u64::MAX - 99, rkey: region.key(), regions: vec![region], ..Bad::new(pair) }
    });
}

#[test]
fn a_remote_address_that_wraps_into_a_region_at_zero_is_refused() {
    is_refused(ACCESS, |pair| {
        let end = &pair.ends[1];
        let region = Region::new(end.device.clone(), &end.pd, 8192, 0, WRITABLE);
        Bad { va: u64::MAX - 99, rkey: region.key(), regions: vec![region], ..Bad::new(pair) }
    });
}

#[test]
fn a_local_key_with_a_wrong_tag_is_refused() {
    is_refused(LOCAL, |pair| spoil_sge(pair, |sge| sge.lkey ^= 1));
}

#[test]
fn a_local_key_of_no_region_is_refused() {
    is_refused(LOCAL, |pair| spoil_sge(pair, |sge| sge.lkey = Key::new(900, 1).0));
}

#[test]
fn a_local_key_beyond_all_regions_is_refused() {
    is_refused(LOCAL, |pair| spoil_sge(pair, |sge| sge.lkey |= 1 << 31));
}

#[test]
fn a_local_range_that_is_one_byte_too_long_is_refused() {
    is_refused(LOCAL, |pair| {
        let region = &pair.ends[0].region;
        let last = region.va(region.len() - LEN as usize + 1);
        Bad { sges: vec![Sge { va: last, ..region.sge(0, LEN) }], ..Bad::new(pair) }
    });
}

#[test]
fn a_local_range_that_begins_one_byte_early_is_refused() {
    is_refused(LOCAL, |pair| spoil_sge(pair, |sge| sge.va -= SOURCE as u64 + 4322));
}

#[test]
fn a_local_address_that_wraps_is_refused() {
    is_refused(LOCAL, |pair| spoil_sge(pair, |sge| sge.va = u64::MAX - 99));
}

#[test]
fn a_local_region_of_another_domain_is_refused() {
    is_refused(LOCAL, |pair| {
        let end = &pair.ends[0];
        let pd = Pd::create(&end.adapter).unwrap();
        let region = Region::new(end.device.clone(), &pd, 8192, 0x5000, WRITABLE);
        Bad { sges: vec![region.sge(0, LEN)], regions: vec![region], ..Bad::new(pair) }
    });
}

#[test]
fn a_second_entry_that_is_wrong_keeps_the_first_from_being_sent() {
    is_refused(LOCAL, |pair| {
        let region = &pair.ends[0].region;
        let wrong = Sge { lkey: region.mr.lkey() ^ 2, ..region.sge(9_000, 1) };
        Bad { sges: vec![region.sge(0, LEN - 1), wrong], ..Bad::new(pair) }
    });
}

/// Returns a write whose only entry is changed.
fn spoil_sge(pair: &Pair, spoil: impl Fn(&mut Sge)) -> Bad {
    let mut bad = Bad::new(pair);
    spoil(&mut bad.sges[0]);
    bad
}

/// Returns a write whose entry in the send queue is changed.
fn spoil_entry(pair: &Pair, spoil: fn(&mut SqWqe)) -> Bad {
    Bad { spoil: Some(spoil), ..Bad::new(pair) }
}

#[test]
fn an_entry_with_an_unknown_opcode_is_refused() {
    is_refused(MALFORMED, |pair| spoil_entry(pair, |entry| entry.opcode = 0));
}

#[test]
fn an_entry_with_an_unknown_flag_is_refused() {
    is_refused(MALFORMED, |pair| spoil_entry(pair, |entry| entry.flags |= 0x80));
}

#[test]
fn an_entry_with_more_sges_than_it_holds_is_refused() {
    is_refused(MALFORMED, |pair| spoil_entry(pair, |entry| entry.sges = 3));
}

#[test]
fn an_entry_with_a_wild_number_of_sges_is_refused() {
    is_refused(MALFORMED, |pair| spoil_entry(pair, |entry| entry.sges = 255));
}

#[test]
fn an_entry_with_more_inline_data_than_it_holds_is_refused() {
    is_refused(MALFORMED, |pair| {
        spoil_entry(pair, |entry| {
            (entry.sges, entry.inline_bytes) = (0, 33);
        })
    });
}

#[test]
fn an_entry_with_inline_data_and_sges_is_refused() {
    is_refused(MALFORMED, |pair| spoil_entry(pair, |entry| entry.inline_bytes = 1));
}

#[test]
fn inline_data_behind_a_request_that_is_refused_is_flushed_and_disturbs_nobody() {
    let mut pair = Pair::new(Options::default());
    let mut bad = pair.connect(&Link { inline_bytes: 96, ..Link::default() });
    let mut good = pair.connect(&Link { inline_bytes: 96, psn: [5, 6], ..Link::default() });
    let target = (pair.ends[1].region.va(100), pair.ends[1].region.key());
    let wrong = Sge { va: 0, len_bytes: 8, lkey: 0xDEAD };
    bad.queues[0].write(0, &[wrong], target.0, target.1, WriteFlags::DEFER).unwrap();
    for context in 1..30 {
        let bytes = [context as u8; 90];
        bad.queues[0].write_inline(context, &[&bytes], target.0, target.1, WriteFlags::DEFER).unwrap();
        pair.post_inline(&mut good, 0, 100 + context, &bytes, 300 * context as usize, WriteFlags::DEFER).unwrap();
    }
    bad.queues[0].ring_doorbell();
    good.queues[0].ring_doorbell();
    let completions = pair.reap(0, 59, "59 requests");
    for (name, from, first, rest) in
        [("bad", 0, CqeStatus::LocalProtection, CqeStatus::Flushed), ("good", 101, CqeStatus::Success, CqeStatus::Success)]
    {
        let of: Vec<_> = completions.iter().filter(|one| (one.context < 100) == (from == 0)).collect();
        for (index, completion) in of.iter().enumerate() {
            let status = if index == 0 { first } else { rest };
            assert_eq!((completion.context, completion.status.raw()), (from + index as u64, status as u8), "{name}");
        }
    }
    pair.settle("59 requests");
    pair.close([bad, good]);
}

#[test]
fn a_write_of_no_bytes_needs_no_key() {
    let mut pair = Pair::new(Options { capture: true, ..Options::default() });
    let mut connection = pair.connect(&Link::default());
    let sge = Sge { va: 1, len_bytes: 0, lkey: 0xDEAD_BEEF };
    connection.queues[0].write(0, &[], 0x1234, 0xDEAD_BEEF, WriteFlags::NONE).unwrap();
    connection.queues[0].write(1, &[sge, sge], u64::MAX, 0, WriteFlags::NONE).unwrap();
    // An empty entry beside one with bytes takes part in nothing.
    let target = &pair.ends[1].region;
    connection.queues[0].write(2, &[sge, pair.ends[0].region.sge(10, 5)], target.va(20), target.key(), WriteFlags::NONE).unwrap();
    let bytes = pair.ends[0].region.expected(10, 5).to_vec();
    pair.ends[1].region.expect(20, &bytes);
    verbena_tests::pair::check_done(&pair.reap(0, 3, "three writes"), 0..3);
    pair.settle("three writes");
    assert!(pair.close([connection]).packets.iter().all(|packet| !packet.is_nak()));
}

#[test]
fn a_source_needs_no_right_and_a_range_may_end_near_the_last_address() {
    let pair = Pair::new(Options::default());
    let mut connection = pair.connect(&Link::default());
    let [a, b] = &pair.ends;
    let mut from = Region::new(a.device.clone(), &a.pd, 4096, u64::MAX - 4096, 0);
    from.randomise(3);
    let mut to = Region::new(b.device.clone(), &b.pd, 4096, u64::MAX - 4096, WRITABLE);
    for (context, len) in (0..).zip([1usize, 64, 4096]) {
        let at = 4096 - len;
        connection.queues[0].write(context, &[from.sge(at, len as u32)], to.va(at), to.key(), WriteFlags::NONE).unwrap();
        to.expect(at, from.expected(at, len));
    }
    verbena_tests::pair::check_done(&pair.reap(0, 3, "three writes"), 0..3);
    pair.settle("three writes");
    to.check("the region at the end of all addresses");
    from.close();
    to.close();
    pair.close([connection]);
}

#[test]
fn a_queue_pair_that_failed_takes_nothing_more_and_both_ends_learn_why() {
    let pair = Pair::new(Options::default());
    let mut connection = pair.connect(&Link::default());
    let va = pair.ends[1].region.va(0);
    connection.queues[0].write(5, &[pair.ends[0].region.sge(0, 8)], va, 0, WriteFlags::NONE).unwrap();
    let found = pair.reap(0, 1, "a refused write");
    assert_eq!((found[0].context, found[0].status), (5, CompletionStatus::Card(CqeStatus::RemoteAccess)));
    check_faults(&pair, &connection, ACCESS);
    for (from, qpn) in [0, 1].map(|from| (from, connection.qps[from].qpn())) {
        let outcome = connection.queues[from].write(6, &[], va, 0, WriteFlags::NONE);
        assert!(matches!(outcome, Err(Error::NotConnected { qpn: found, state: QpState::Error }) if found == qpn), "{outcome:?}");
    }
    pair.settle("after the refusal");
    pair.close([connection]);
}

#[test]
fn requests_of_the_refusing_end_are_flushed_too() {
    // The peer's QP is in error for both directions: what it has under way, and what it posts, ends as flushed.
    let mut pair = Pair::new(Options::default());
    let mut connection = pair.connect(&Link::default());
    let va = pair.ends[1].region.va(0);
    connection.queues[0].write(1, &[pair.ends[0].region.sge(0, 8)], va, 0, WriteFlags::NONE).unwrap();
    let found = pair.reap(0, 1, "a refused write");
    assert_eq!(found[0].status, CompletionStatus::Card(CqeStatus::RemoteAccess));
    // Its driver has not looked at events yet, so it takes the requests.
    let back = &pair.ends[0].region;
    for context in [8, 9] {
        connection.queues[1].write(context, &[pair.ends[1].region.sge(0, 8)], back.va(0), back.key(), WriteFlags::NONE).unwrap();
    }
    // The responder died by itself; the driver hears of it by an event, and then flushes.
    pair.run(3_000);
    pair.process_events();
    let found = pair.reap(1, 2, "writes of the end that refused");
    let ends: Vec<_> = found.iter().map(|done| (done.context, done.status)).collect();
    assert_eq!(ends, [8, 9].map(|context| (context, CompletionStatus::Card(CqeStatus::Flushed))));
    // A request that was flushed may have been executed.
    let bytes = pair.ends[1].region.expected(0, 8).to_vec();
    pair.ends[0].region.adopt(0, &bytes);
    pair.settle("after the refusal");
    pair.close([connection]);
}

#[test]
fn a_queue_pair_whose_request_failed_is_not_written_through_any_more() {
    // In ERROR, requests of the peer are dropped (specification sheet 11): at the latest when the driver knows of the error.
    let pair = Pair::new(Options::default());
    let mut connection = pair.connect(&Link::default());
    connection.queues[0].write(1, &[Sge { lkey: 0, ..pair.ends[0].region.sge(0, 8) }], 0, 0, WriteFlags::NONE).unwrap();
    let found = pair.reap(0, 1, "a write with a wrong local key");
    assert_eq!(found[0].status, CompletionStatus::Card(CqeStatus::LocalProtection));
    pair.wait_for("the event of the failed requester", || connection.qps[0].fault());
    pair.settle("the driver knows of the error");
    let target = &pair.ends[0].region;
    connection.queues[1].write(2, &[pair.ends[1].region.sge(0, 64)], target.va(0), target.key(), WriteFlags::NONE).unwrap();
    pair.settle("a write to a QP in error");
    connection.qps[1].flush();
    let found = pair.reap(1, 1, "the write that nobody answers");
    assert_eq!((found[0].context, found[0].status), (2, CompletionStatus::Card(CqeStatus::Flushed)));
    pair.settle("at the end");
    pair.close([connection]);
}

#[test]
fn a_queue_pair_that_has_refused_sends_nothing_more() {
    // In ERROR nothing is sent (specification sheet 11), also before the driver has looked at the event.
    let mut pair = Pair::new(Options { capture: true, ..Options::default() });
    let mut connection = pair.connect(&Link::default());
    let va = pair.ends[1].region.va(0);
    connection.queues[0].write(1, &[pair.ends[0].region.sge(0, 8)], va, 0, WriteFlags::NONE).unwrap();
    assert_eq!(pair.reap(0, 1, "a refused write")[0].status, CompletionStatus::Card(CqeStatus::RemoteAccess));
    let back = &pair.ends[0].region;
    connection.queues[1].write(8, &[pair.ends[1].region.sge(0, 8)], back.va(0), back.key(), WriteFlags::NONE).unwrap();
    pair.run(5_000);
    let fault = pair.wait_for("the event of the end that refused", || connection.qps[1].fault());
    assert_eq!(fault, QpFault::Access { syndrome: 0x62 });
    assert_eq!(pair.reap(1, 1, "the write of the end that refused")[0].status, CompletionStatus::Card(CqeStatus::Flushed));
    let bytes = pair.ends[1].region.expected(0, 8).to_vec();
    pair.ends[0].region.adopt(0, &bytes);
    let packets = pair.close([connection]).packets;
    let sent = packets.iter().filter(|packet| packet.from == 1 && packet.opcode != 0x11).count();
    assert_eq!(sent, 0, "requests of a QP that has refused one");
}
