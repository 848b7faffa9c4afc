//! The local ACK timeout: what is lost is sent again, what arrived is not written twice, each request completes once and in order, and a
//! peer that is gone is given up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use verbena_abi::limits::{FIRST_QPN, QPS};
use verbena_abi::regs::Counter;
use verbena_host::cq::CompletionStatus;
use verbena_host::{Completion, CqeStatus, Qp, QpOptions, QpState, WriteFlags};
use verbena_sim::rng::Rng;
use verbena_sim::LinkConfig;
use verbena_tests::capture::{decode, Packet};
use verbena_tests::pair::{check_done, Connection, Link, Options, Pair, Write, WRITABLE};
use verbena_tests::region::{Region, CANARY};

/// Clocks of a timeout with exponent 0.
const TICK: u64 = 1024;
/// Clocks in which the card's walker visits each queue pair once.
const LAP: u64 = QPS as u64;
/// A timeout of 8.2 us, the shortest there is.
const SHORT: u8 = 1;

fn quick() -> Link {
    Link { timeout: Some(SHORT), retry_count: Some(7), ..Link::default() }
}

fn count(pair: &Pair, end: usize, counter: Counter) -> u32 {
    pair.ends[end].adapter.read_counter(counter)
}

/// Returns the request packet in a frame.
fn request(frame: &[u8]) -> Option<Packet> {
    decode(frame).expect("a frame of a card").filter(|packet| packet.aeth.is_none())
}

/// Loses the frames of card `from` with these numbers, counting requests and acknowledgements apart. Returns how many there were of either.
fn lose(pair: &Pair, from: usize, requests: &[u64], answers: &[u64]) -> Arc<[AtomicU64; 2]> {
    let seen = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let (counted, lost) = (Arc::clone(&seen), [requests.to_vec(), answers.to_vec()]);
    pair.world.lose(from, move |frame| {
        let kind = usize::from(request(frame).is_none());
        let number = counted[kind].fetch_add(1, Ordering::Relaxed);
        lost[kind].contains(&number)
    });
    seen
}

/// Checks that whatever was sent more than once was the same each time.
fn check_repeats(packets: &[Packet]) -> usize {
    let mut repeats = 0;
    let requests: Vec<_> = packets.iter().filter(|packet| packet.aeth.is_none()).collect();
    let mut first = std::collections::HashMap::new();
    for packet in requests {
        let of = first.entry((packet.from, packet.qpn, packet.psn)).or_insert(packet);
        repeats += usize::from(!std::ptr::eq(*of, packet));
        assert_eq!((packet.opcode, packet.reth, packet.pad), (of.opcode, of.reth, of.pad), "PSN {:#x}", packet.psn);
        assert!(packet.payload == of.payload, "the payload of PSN {:#x} changed", packet.psn);
        assert!(packet.is_icrc_right);
    }
    repeats
}

#[test]
fn a_message_goes_on_with_the_packet_that_was_lost() {
    for mtu in [256, 1024, 4096] {
        let mut pair = Pair::new(Options { mtu, capture: true, ..Options::default() });
        let mut connection = pair.connect(&Link { psn: [0xFF_FFF0, 5], ..quick() });
        let (mut to, mut again) = (1, 0);
        for packets in 1..=4 {
            for lost in 0..packets {
                // The request behind it is lost with it, and comes again too.
                let seen = lose(&pair, 0, &[lost], &[]);
                let len = packets as u32 * mtu - 3;
                pair.post(&mut connection, 0, 1, &Write::new(600_000 + to, to, len), WriteFlags::NONE).unwrap();
                to += len as usize + 1;
                pair.post(&mut connection, 0, 2, &Write::new(800_000 + to, to, 77), WriteFlags::NONE).unwrap();
                to += 78;
                check_done(&pair.reap(0, 2, "messages of which a packet is lost"), [1, 2]);
                let sent = seen[0].load(Ordering::Relaxed);
                assert_eq!(sent, packets + 1 + packets + 1 - lost, "{packets} packets of {mtu} bytes, number {lost} lost");
                again += 1;
            }
        }
        assert_eq!(count(&pair, 0, Counter::AckTimeouts), again);
        pair.settle("messages of which a packet was lost");
        let outcome = pair.close([connection]);
        assert!(check_repeats(&outcome.packets) > 10);
    }
}

#[test]
fn what_arrived_is_not_written_again_when_its_acknowledgement_is_lost() {
    let mut pair = Pair::new(Options { mtu: 1024, ..Options::default() });
    let mut connection = pair.connect(&quick());
    lose(&pair, 1, &[], &[0]);
    pair.post(&mut connection, 0, 1, &Write::new(600_000, 100, 3_000), WriteFlags::NONE).unwrap();
    pair.wait_for("the write", || (count(&pair, 1, Counter::RxRequests) == 3).then_some(()));
    pair.run(1_000);
    pair.ends[1].region.check("the first time");
    // The consumer of the other end uses the memory for something else.
    pair.ends[1].region.set(100, &[0xA5; 3_000]);
    assert_eq!(count(&pair, 0, Counter::AckTimeouts), 0);
    check_done(&pair.reap(0, 1, "a write whose acknowledgement is lost"), [1]);
    assert_eq!((count(&pair, 0, Counter::AckTimeouts), count(&pair, 1, Counter::RxDuplicates)), (1, 3));
    pair.settle("a write whose acknowledgement was lost");
    pair.close([connection]);
}

#[test]
fn a_peer_that_is_gone_is_given_up_after_the_last_retry() {
    for (timeout, retries) in [(1, 0), (2, 1), (1, 2), (1, 7), (4, 2)] {
        let mut pair = Pair::new(Options { mtu: 256, ..Options::default() });
        let mut connection = pair.connect(&Link { timeout: Some(timeout), retry_count: Some(retries), ..Link::default() });
        let mut other = pair.connect(&quick());
        pair.post(&mut other, 0, 7, &Write::new(600_000, 9_000, 500), WriteFlags::NONE).unwrap();
        check_done(&pair.reap(0, 1, "before"), [7]);

        let qpn = connection.qps[1].qpn();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&sent);
        pair.world.lose(0, move |frame| {
            let packet = request(frame).expect("card 0 has nothing to answer");
            if packet.qpn == qpn {
                seen.lock().unwrap().push(packet.psn);
            }
            packet.qpn == qpn
        });
        // Two packets that are lost, a silent request and one more behind them.
        let start = pair.world.clock();
        let target = pair.ends[1].region.key();
        let source = pair.ends[0].region.sge(700_000, 300);
        for (context, flags) in [(1, WriteFlags::NONE), (2, WriteFlags::SILENT_SUCCESS), (3, WriteFlags::NONE)] {
            connection.queues[0].write(context, &[source], pair.ends[1].region.va(100), target, flags).unwrap();
        }
        let found = pair.reap(0, 3, "requests to a peer that is gone");
        let took = pair.world.clock() - start;
        let status = |done: &Completion| (done.context, done.status);
        let flushed = CompletionStatus::Card(CqeStatus::Flushed);
        let expected = [(1, CompletionStatus::Card(CqeStatus::RetryExceeded)), (2, flushed), (3, flushed)];
        assert_eq!(found.iter().map(status).collect::<Vec<_>>(), expected);
        assert!(found.iter().all(|done| done.syndrome == 0));
        let (times, period) = (u64::from(retries) + 1, TICK << timeout);
        // All six packets, each time from the first one on.
        let sent = sent.lock().unwrap().clone();
        let once: Vec<u32> = (0..6).map(|n| 0x12_3456 + n).collect();
        assert_eq!(sent, once.repeat(times as usize), "exponent {timeout}, {retries} retries");
        assert!(took > times * period, "{took} clocks for {times} times {period}");
        // Beside the timer: the way of the first packets, the last look at the queue.
        let latest = times * (period + 2 * LAP + 2 * TICK) + 2_000;
        assert!(took < latest, "{took} clocks for {times} times {period}, {latest} at most");
        assert_eq!(count(&pair, 0, Counter::AckTimeouts), u32::from(retries));
        pair.wait_for("the event", || (connection.qps[0].state() == QpState::Error).then_some(()));

        // Everybody else goes on.
        pair.post(&mut other, 0, 8, &Write::new(600_000, 9_600, 500), WriteFlags::NONE).unwrap();
        check_done(&pair.reap(0, 1, "behind"), [8]);
        pair.settle("a peer that was gone");
        pair.close([connection, other]);
    }
}

#[test]
fn a_peer_that_is_gone_is_given_up_though_others_take_long_turns() {
    // The walker comes by many times between a restart and the packet that asks again, and must not take that for progress.
    let mut pair = Pair::new(Options { region_bytes: 8 << 20, ..Options::default() });
    let mut connection = pair.connect(&Link { timeout: Some(SHORT), retry_count: Some(2), ..Link::default() });
    let mut others: Vec<_> = (0..8).map(|_| pair.connect(&quick())).collect();
    let qpn = connection.qps[1].qpn();
    pair.world.lose(0, move |frame| request(frame).is_some_and(|packet| packet.qpn == qpn));
    let target = pair.ends[1].region.key();
    for (number, other) in others.iter_mut().enumerate() {
        for context in 0..4 {
            let write = Write::new((4 << 20) + 4096 * number, (1 << 20) + 65_536 * (4 * number + context as usize) / 2, 32_768);
            pair.post(other, 0, context, &write, WriteFlags::NONE).unwrap();
            let write = Write { to: write.to, ..Write::new((5 << 20) + 4096 * number, 0, 32_768) };
            pair.post(other, 0, 100 + context, &write, WriteFlags::NONE).unwrap();
        }
    }
    let source = pair.ends[0].region.sge(700_000, 300);
    connection.queues[0].write(1, &[source], pair.ends[1].region.va(100), target, WriteFlags::NONE).unwrap();
    let found = pair.reap(0, 65, "a request to a peer that is gone, among others");
    let (lost, fine): (Vec<Completion>, Vec<Completion>) = found.into_iter().partition(|done| done.qpn == connection.qps[0].qpn());
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].status, CompletionStatus::Card(CqeStatus::RetryExceeded));
    assert!(fine.iter().all(|done| done.status.is_success()));
    assert_eq!(count(&pair, 0, Counter::AckTimeouts), 2);
    pair.settle("a peer that was gone, among others");
    pair.close(others.into_iter().chain([connection]));
}

#[test]
fn what_is_in_front_of_a_request_that_the_own_card_refuses_completes_also_if_it_is_lost_or_silent() {
    // How many are in front, whether they are silent, which packet of them is lost.
    for (front, is_silent, lost) in
        [(1, false, None), (1, true, None), (5, true, None), (3, false, Some(0)), (3, true, Some(1)), (70, true, None), (70, true, Some(3))]
    {
        let mut pair = Pair::new(Options { mtu: 256, region_bytes: 2 << 20, ..Options::default() });
        let mut connection = pair.connect(&Link { depth: 128, ..quick() });
        lose(&pair, 0, &lost.into_iter().collect::<Vec<_>>(), &[]);
        let flags = if is_silent { WriteFlags::SILENT_SUCCESS } else { WriteFlags::NONE };
        for context in 0..front {
            let at = 400 * context as usize;
            pair.post(&mut connection, 0, context, &Write::new((1 << 20) + at, at, 300), flags | WriteFlags::DEFER).unwrap();
        }
        let bad = verbena_host::Sge { lkey: 0xBAD, ..pair.ends[0].region.sge(0, 10) };
        let (to, key) = (pair.ends[1].region.va(0), pair.ends[1].region.key());
        connection.queues[0].write(1000, &[bad], to, key, WriteFlags::SILENT_SUCCESS | WriteFlags::DEFER).unwrap();
        connection.queues[0].write(1001, &[], to, key, WriteFlags::NONE).unwrap();
        let what = format!("{front} in front, silent {is_silent}, lost {lost:?}");
        let signaled = if is_silent { 0 } else { front };
        let found = pair.reap(0, signaled as usize + 2, &what);
        check_done(&found[..signaled as usize], 0..signaled);
        let rest: Vec<_> = found[signaled as usize..].iter().map(|done| (done.context, done.status)).collect();
        let expected = [CqeStatus::LocalProtection, CqeStatus::Flushed].map(CompletionStatus::Card);
        assert_eq!(rest, [(1000, expected[0]), (1001, expected[1])], "{what}");
        // Silent ones are sent again anyway, since nobody has asked for them.
        assert_eq!(count(&pair, 0, Counter::AckTimeouts) != 0, lost.is_some() && !is_silent, "{what}");
        pair.settle(&what);
        pair.close([connection]);
    }
}

#[test]
fn a_region_that_is_taken_away_from_an_outstanding_request_keeps_it_from_being_sent_again() {
    let mut pair = Pair::new(Options { mtu: 256, ..Options::default() });
    let mut connection = pair.connect(&Link { timeout: Some(3), retry_count: Some(2), ..Link::default() });
    let end = &pair.ends[0];
    let region = Region::new(Arc::clone(&end.device) as _, &end.pd, 4096, 0x5000_0000, WRITABLE);
    let (to, key) = (pair.ends[1].region.va(pair.ends[1].region.len() / 2), pair.ends[1].region.key());
    // The first request arrives, and of the second one two packets of four.
    pair.world.lose(0, |frame| request(frame).is_some_and(|packet| packet.psn >= 0x12_3456 + 4));
    connection.queues[0].write(1, &[end.region.sge(0, 300)], to, key, WriteFlags::NONE).unwrap();
    connection.queues[0].write(2, &[region.sge(0, 900)], to, key, WriteFlags::NONE).unwrap();
    connection.queues[0].write(3, &[end.region.sge(0, 300)], to, key, WriteFlags::NONE).unwrap();
    pair.run(3_000);
    region.close();
    let found = pair.reap(0, 3, "requests of which one has lost its region");
    let statuses: Vec<_> = found.iter().map(|done| (done.context, done.status)).collect();
    let expected = [CqeStatus::Success, CqeStatus::RetryExceeded, CqeStatus::Flushed].map(CompletionStatus::Card);
    assert_eq!(statuses, [(1, expected[0]), (2, expected[1]), (3, expected[2])]);
    // The second one's first half lies over what the first one wrote.
    let half = pair.ends[1].region.len() / 2;
    pair.ends[1].region.expect(half, &[CANARY; 512]);
    pair.settle("a request that has lost its region");
    pair.close([connection]);
}

#[test]
fn with_a_timeout_of_0_nothing_is_sent_again() {
    let mut pair = Pair::new(Options::default());
    let mut connection = pair.connect(&Link { timeout: Some(0), ..quick() });
    let seen = lose(&pair, 0, &[0], &[]);
    pair.post(&mut connection, 0, 1, &Write::new(600_000, 100, 3_000), WriteFlags::NONE).unwrap();
    pair.run(60_000);
    assert_eq!(seen[0].load(Ordering::Relaxed), 1);
    assert_eq!(count(&pair, 0, Counter::AckTimeouts), 0);
    // The next request shows the gap to the peer, but what is behind it is nobody's business here.
    pair.ends[1].region.clear(100, 3_000);
    pair.settle("a write that was lost");
    connection.qps[0].flush();
    let found = pair.reap(0, 1, "the flushed write");
    assert_eq!(found[0].status, CompletionStatus::Card(CqeStatus::Flushed));
    pair.close([connection]);
}

#[test]
fn a_new_timer_starts_with_each_progress() {
    // Of each message the first packet is lost, when all before it have arrived: more losses than retries.
    let mut pair = Pair::new(Options { mtu: 256, ..Options::default() });
    let mut connection = pair.connect(&Link { timeout: Some(SHORT), retry_count: Some(1), ..Link::default() });
    let mut seen = std::collections::BTreeMap::new();
    pair.world.lose(0, move |frame| {
        let Some(Packet { psn, reth: Some(_), .. }) = request(frame) else { return false };
        let times = seen.entry(psn).or_insert(0);
        *times += 1;
        let times = *times;
        seen.keys().position(|other| *other == psn) == Some(times - 1)
    });
    for context in 0..6 {
        let at = 400 * context as usize;
        pair.post(&mut connection, 0, context, &Write::new(600_000 + at, at, 399), WriteFlags::NONE).unwrap();
    }
    check_done(&pair.reap(0, 6, "messages that each lose a packet"), 0..6);
    assert_eq!(count(&pair, 0, Counter::AckTimeouts), 6);
    pair.settle("messages that each lost a packet");
    pair.close([connection]);
}

/// A consumer that posts writes of all kinds from both ends of several QPs, and reaps them.
struct Traffic {
    rng: Rng,
    connections: Vec<Connection>,
    /// Of each QP at either end: next context, next one to complete, silent ones behind that.
    posted: Vec<[u64; 2]>,
    done: Vec<[Vec<u64>; 2]>,
    to: [usize; 2],
    longest: u64,
}

const HALF: usize = 4 << 20;

impl Traffic {
    fn new(pair: &mut Pair, qps: usize, link: &Link, longest: u64) -> Self {
        for end in &mut pair.ends {
            end.region.randomise(pair.options.seed);
            end.region.clear(0, HALF);
        }
        let connections: Vec<_> = (0..qps as u32)
            .map(|n| pair.connect(&Link { psn: [0xFF_FFF0 + n, 64 * n], sges: 6, inline_bytes: 96, ..link.clone() }))
            .collect();
        let posted = vec![[0; 2]; qps];
        let done = (0..qps).map(|_| [vec![], vec![]]).collect();
        Self { rng: Rng::new(pair.options.seed, 77), connections, posted, done, to: [0; 2], longest }
    }

    fn len(&mut self) -> u64 {
        match self.rng.below(4) {
            0 => self.rng.below(8),
            1 => self.rng.below(self.longest),
            _ => self.rng.below(600),
        }
    }

    /// Posts `count` writes on either end of each QP, of which the last is signalled, and waits for them.
    fn run(&mut self, pair: &mut Pair, count: u64) {
        for context in 0..count {
            for which in 0..self.connections.len() {
                for from in [0, 1] {
                    let number = self.posted[which][from];
                    // A queue of which all are silent has room again when the card says so.
                    let mut waited = 0;
                    while self.connections[which].queues[from].free_slots() == 0 {
                        self.reap(pair, from);
                        pair.run(100);
                        waited += 1;
                        assert!(waited < 3_000, "no slot of QP {which} of card {from} becomes free; {}", pair.describe());
                    }
                    let flags = if context + 1 != count && self.rng.percent(40) { WriteFlags::SILENT_SUCCESS } else { WriteFlags::NONE };
                    // Who defers the last one that there is room for waits for ever.
                    let defer = context + 1 != count && self.connections[which].queues[from].free_slots() > 1 && self.rng.percent(30);
                    let flags = if defer { flags | WriteFlags::DEFER } else { flags };
                    let to = self.to[from];
                    if self.rng.percent(20) {
                        let bytes: Vec<u8> = (0..self.rng.below(97)).map(|_| self.rng.below(200) as u8).collect();
                        pair.post_inline(&mut self.connections[which], from, number, &bytes, to, flags).unwrap();
                        self.to[from] += bytes.len() + 1;
                    } else {
                        let pieces: Vec<_> = (0..1 + self.rng.below(6))
                            .map(|_| {
                                let len = self.len();
                                (HALF + self.rng.below((HALF as u64) - len) as usize, len as u32)
                            })
                            .collect();
                        let len: u32 = pieces.iter().map(|piece| piece.1).sum();
                        pair.post(&mut self.connections[which], from, number, &Write { pieces, to }, flags).unwrap();
                        self.to[from] += len as usize + 1;
                    }
                    assert!(self.to[from] < HALF, "more is written than there is room for");
                    if !flags.contains(WriteFlags::SILENT_SUCCESS) {
                        self.done[which][from].push(number);
                    }
                    self.posted[which][from] += 1;
                }
            }
        }
        let start = pair.world.clock();
        while self.done.iter().flatten().any(|waiting| !waiting.is_empty()) {
            for from in [0, 1] {
                self.reap(pair, from);
            }
            pair.run(100);
            assert!(pair.world.clock() - start < 4_000_000, "still waiting; {}", pair.describe());
        }
    }

    /// Takes what is there: each QP's in the order in which they were posted.
    fn reap(&mut self, pair: &Pair, from: usize) {
        let mut room = [Completion::default(); 64];
        let found = pair.ends[from].cq.poll(&mut room);
        for done in &room[..found] {
            let which = self.connections.iter().position(|connection| connection.qps[from].qpn() == done.qpn).expect("a QP of ours");
            assert!(done.status.is_success(), "{done:?}; {}", pair.describe());
            assert!(!self.done[which][from].is_empty(), "{done:?} is one too many");
            assert_eq!(done.context, self.done[which][from].remove(0), "QP {which} of card {from}");
        }
    }
}

/// Runs traffic over a link that loses, and returns how often the cards sent again.
fn over(link: LinkConfig, options: Options, qps: usize, kind: &Link, longest: u64, count: u64) -> u32 {
    let mut pair = Pair::new(Options { link, region_bytes: 2 * HALF, ..options });
    let mut traffic = Traffic::new(&mut pair, qps, kind, longest);
    traffic.run(&mut pair, count);
    let again = count_again(&pair);
    pair.settle("what was written over a link that loses");
    pair.close(traffic.connections);
    again
}

fn count_again(pair: &Pair) -> u32 {
    [0, 1].map(|end| count(pair, end, Counter::AckTimeouts)).iter().sum()
}

#[test]
fn every_write_arrives_once_over_a_link_that_loses() {
    for (seed, loss_ppm, qps) in [(1, 10_000, 1), (2, 50_000, 4), (3, 100_000, 2), (4, 3_000, 16)] {
        let link = LinkConfig { loss_ppm, ..LinkConfig::default() };
        let again = over(link, Options { seed, mtu: 1024, ..Options::default() }, qps, &quick(), 9_000, 60);
        assert!(again > 2, "seed {seed}: {again} times sent again");
    }
}

#[test]
fn every_write_arrives_once_over_a_link_that_loses_repeats_reorders_and_corrupts() {
    for (seed, stalls, mtu) in [(11, 0, 4096), (12, 30, 256), (13, 60, 512)] {
        let link =
            LinkConfig { loss_ppm: 10_000, duplicate_ppm: 20_000, reorder_ppm: 10_000, corrupt_ppm: 10_000, ..LinkConfig::default() };
        let again = over(link, Options { seed, mtu, stalls, ..Options::default() }, 3, &Link { depth: 8, ..quick() }, 5_000, 60);
        assert!(again > 2, "seed {seed}: {again} times sent again");
    }
}

#[test]
fn long_messages_take_turns_and_lose_packets() {
    let link = LinkConfig { loss_ppm: 20_000, ..LinkConfig::default() };
    let again = over(link, Options { seed: 21, ..Options::default() }, 3, &Link { depth: 4, ..quick() }, 150_000, 5);
    assert!(again > 2, "{again} times sent again");
}

#[test]
fn an_acknowledgement_that_comes_late_retires_what_is_sent_again() {
    // A round trip takes three timeouts, so that everything is sent again before its acknowledgement is there, and slots are used anew while
    // the card goes back to them.
    for (seed, depth) in [(31, 4), (32, 16), (33, 64)] {
        let link = LinkConfig { latency: 3_000, ..LinkConfig::default() };
        let again = over(link, Options { seed, mtu: 256, ..Options::default() }, 2, &Link { depth, ..quick() }, 2_000, 120);
        assert!(again > 5, "seed {seed}: {again} times sent again");
    }
    let link = LinkConfig { latency: 2_900, loss_ppm: 20_000, ..LinkConfig::default() };
    over(link, Options { seed: 34, mtu: 256, ..Options::default() }, 4, &Link { depth: 16, ..quick() }, 2_000, 60);
}

#[test]
fn a_queue_pair_that_sends_again_can_be_closed_and_its_number_used_anew() {
    let mut pair = Pair::new(Options { mtu: 256, ..Options::default() });
    // A number is used anew when there is no other.
    let end = &pair.ends[0];
    let all: Vec<_> = (FIRST_QPN + 1..QPS as u32)
        .map(|_| Qp::create_blocking(&end.pd, &end.cq, &end.cq, QpOptions::sender(1)).expect("one more QP"))
        .collect();
    for round in 0..3 {
        let mut connection = pair.connect(&Link { psn: [1_000 * round, 7], ..quick() });
        pair.world.lose(0, |_| true);
        let target = pair.ends[1].region.key();
        for context in 0..40 {
            let source = pair.ends[0].region.sge(700_000, 3_000);
            connection.queues[0].write(context, &[source], pair.ends[1].region.va(100), target, WriteFlags::NONE).unwrap();
        }
        let before = count(&pair, 0, Counter::AckTimeouts);
        pair.wait_for("a retry", || (count(&pair, 0, Counter::AckTimeouts) != before).then_some(()));
        pair.run(u64::from(round) * 150);
        let old = connection.qps[0].qpn();
        connection.qps[0].flush();
        let flushed = pair.reap(0, 40, "requests of a QP that is closed");
        assert!(flushed.iter().all(|done| done.status == CompletionStatus::Card(CqeStatus::Flushed)));
        connection.close();
        pair.world.lose_none(0);

        let mut connection = pair.connect(&Link { psn: [1_000 * round + 10, 7], ..quick() });
        assert_eq!(connection.qps[0].qpn(), old, "the number is used anew");
        let at = 5_000 * round as usize;
        pair.post(&mut connection, 0, 99, &Write::new(600_000 + at, 10_000 + at, 3_000), WriteFlags::NONE).unwrap();
        check_done(&pair.reap(0, 1, "a write of the new QP"), [99]);
        let after = count(&pair, 0, Counter::AckTimeouts);
        pair.settle("a number used anew");
        pair.run(20_000);
        assert_eq!(count(&pair, 0, Counter::AckTimeouts), after);
        connection.close();
    }
    for qp in all {
        qp.close_blocking().expect("an idle QP is closed");
    }
    pair.close([]);
}
