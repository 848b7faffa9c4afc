//! The responder against the rules of rocev2.md 9, 10 and 13 written down in software.

use std::collections::VecDeque;

use verbena_abi::limits;

use super::*;
use crate::rx::samples::{only, wire, Head, Mr, Qp, MRS, QPS};
use crate::testing::{Bench, Monitor, Stalls};

#[derive(Clone, Copy, Debug, Default)]
struct State {
    expected: u32,
    msn: u32,
    message: Option<Message>,
    nak_sent: bool,
    is_dead: bool,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    cursor: u64,
    left: u32,
    mr: usize,
    life: u64,
}

enum Item {
    Start(u8, u32),
    Head(Head, Qp, Mr),
}

const PSN: u32 = 0xFF_FFFF;
const CLOCKS_TO_DECISION: u64 = KeyCheck::LATENCY as u64;

#[derive(Default)]
struct Model {
    qps: Vec<Qp>,
    mrs: Vec<Mr>,
    lives: u64,
    states: Vec<State>,
    writes: u16,
    under_way: VecDeque<(u64, Item)>,
    actions: Vec<(bool, u64, u32, u8)>,
    acks: Vec<AckRecord>,
    acks_in: Vec<AckIn>,
    events: Vec<EventReq>,
    /// Requests, duplicates, out of order, no QP, not executed.
    counts: [u32; 5],
}

impl Model {
    fn new() -> Self {
        Self {
            qps: vec![Qp::default(); limits::QPS],
            mrs: vec![Mr::default(); limits::MRS],
            states: vec![State::default(); limits::QPS],
            ..Default::default()
        }
    }

    fn take(&mut self, clock: u64, head: Head) {
        let (qp, mr) = (self.qps[head.qpn as usize % limits::QPS], self.mrs[(head.rkey >> 8) as usize % limits::MRS]);
        self.under_way.push_back((clock, Item::Head(head, qp, mr)));
    }

    /// Decides what has come to its turn.
    fn clock(&mut self, clock: u64) {
        while self.under_way.front().is_some_and(|(begin, _)| begin + CLOCKS_TO_DECISION <= clock) {
            match self.under_way.pop_front().unwrap().1 {
                Item::Start(qpn, psn) => self.states[qpn as usize] = State { expected: psn, ..Default::default() },
                Item::Head(head, qp, mr) => {
                    let written = self.decide(&head, &qp, &mr);
                    self.writes = self.writes.wrapping_add(written.is_some() as u16);
                    self.actions.push((written.is_some(), written.unwrap_or(0), head.len, head.offset));
                }
            }
        }
    }

    fn answer(&mut self, head: &Head, psn: u32, syndrome: u8, after: u16, is_weak: bool) {
        let qpn = (head.qpn as u64).to_bits();
        let msn = (self.states[head.qpn as usize].msn as u64).to_bits();
        let (psn, syndrome) = (((psn & PSN) as u64).to_bits(), (syndrome as u64).to_bits());
        self.acks.push(AckRecord { qpn, psn, syndrome, msn, after: (after as u64).to_bits(), is_weak });
    }

    fn refuse(&mut self, head: &Head, syndrome: u8) -> Option<u64> {
        self.answer(head, head.psn, syndrome, self.writes, false);
        self.states[head.qpn as usize].is_dead = true;
        self.events.push(EventReq { number: (head.qpn as u64).to_bits(), kind: 4u64.to_bits(), code: (syndrome as u64).to_bits() });
        None
    }

    /// Returns the bus address to write the payload to, if it is written.
    fn decide(&mut self, head: &Head, qp: &Qp, mr: &Mr) -> Option<u64> {
        let is_ack = head.opcode == 0x11;
        let lives = if is_ack { qp.state == 3 } else { qp.state == 2 || qp.state == 3 };
        if head.qpn as usize >= limits::QPS || !lives || qp.ip != head.ip || qp.ipv6 != head.ipv6 {
            self.counts[3] += 1;
            return None;
        }
        let state = self.states[head.qpn as usize];
        if state.is_dead {
            self.counts[3] += 1;
            return None;
        }
        if is_ack {
            let (qpn, psn) = ((head.qpn as u64).to_bits(), (head.psn as u64).to_bits());
            self.acks_in.push(AckIn { qpn, psn, syndrome: (head.syndrome as u64).to_bits() });
            return None;
        }
        if !matches!(head.opcode, 0x00..=0x0C | 0x13 | 0x14 | 0x16 | 0x17) {
            self.counts[4] += 1;
            return None;
        }
        // As in rocev2.md 7: the sign of the 24-bit difference.
        let distance = (((head.psn.wrapping_sub(state.expected)) << 8) as i32) >> 8;
        if distance > 0 {
            self.counts[2] += 1;
            if !state.nak_sent {
                self.answer(head, state.expected, 0x60, self.writes, false);
                self.states[head.qpn as usize].nak_sent = true;
            }
            return None;
        }
        if distance < 0 {
            self.counts[1] += 1;
            if !matches!(head.opcode, 0x0C | 0x13 | 0x14) {
                self.answer(head, state.expected.wrapping_sub(1), 0x1F, self.writes, state.nak_sent);
            }
            return None;
        }
        let (begins, ends) = match head.opcode {
            0x06 => (true, false),
            0x07 => (false, false),
            0x08 => (false, true),
            0x0A => (true, true),
            _ => return self.refuse(head, 0x61),
        };
        if begins == state.message.is_some() || qp.access & 2 == 0 {
            return self.refuse(head, 0x61);
        }
        let mtu = 128 << qp.mtu;
        let len_fits = match (begins, ends) {
            (_, false) => head.len == mtu,
            (false, true) => (1..=mtu).contains(&head.len),
            (true, true) => head.len <= mtu,
        };
        if !len_fits || (head.len + head.pad as u32) % 4 != 0 {
            return self.refuse(head, 0x61);
        }
        let total = state.message.map_or(head.dma_len, |message| message.left);
        if total > 1 << 31 || (ends && head.len != total) || (!ends && head.len >= total) {
            return self.refuse(head, 0x61);
        }
        let (cursor, index, life) = match state.message {
            None => {
                let is_granted = mr.valid
                    && ((head.rkey >> 8) as usize) < limits::MRS
                    && mr.tag == head.rkey as u8
                    && mr.pd == qp.pd
                    && mr.access & 2 != 0
                    && head.va as u128 >= mr.base as u128
                    && head.va as u128 + head.dma_len as u128 <= mr.base as u128 + mr.len as u128;
                if head.dma_len != 0 && !is_granted {
                    return self.refuse(head, 0x62);
                }
                (head.va.wrapping_add(mr.delta), (head.rkey >> 8) as usize % limits::MRS, mr.life)
            }
            Some(message) => {
                if !self.mrs[message.mr].valid || self.mrs[message.mr].life != message.life {
                    return self.refuse(head, 0x62);
                }
                (message.cursor, message.mr, message.life)
            }
        };
        let new = &mut self.states[head.qpn as usize];
        new.expected = (state.expected + 1) & PSN;
        new.nak_sent = false;
        new.msn = (state.msn + ends as u32) & PSN;
        new.message = (!ends).then_some(Message { cursor: cursor.wrapping_add(head.len as u64), left: total - head.len, mr: index, life });
        self.counts[0] += 1;
        if head.ack_req {
            self.answer(head, head.psn, 0x1F, self.writes.wrapping_add((head.len != 0) as u16), false);
        }
        (head.len != 0).then_some(cursor)
    }
}

/// The responder with its model.
struct Pair {
    bench: Bench<Responder>,
    model: Model,
    actions: Monitor<RxAction>,
    acks: Monitor<AckRecord>,
    acks_in: Monitor<AckIn>,
    events: Monitor<EventReq>,
    counts: [u32; 5],
    entered: u64,
    offered: Option<Head>,
    qp_write: Option<(u8, Qp, bool, bool, u32)>,
    mr_write: Option<(usize, Mr)>,
}

impl Pair {
    fn new(name: &str, mut stalls: impl FnMut() -> Stalls) -> Self {
        let mut pair = Self {
            bench: Bench::new(name, Responder::default(), |uut| &mut uut.clock),
            model: Model::new(),
            actions: Monitor::new(stalls()),
            acks: Monitor::new(stalls()),
            acks_in: Monitor::new(stalls()),
            events: Monitor::new(stalls()),
            counts: [0; 5],
            entered: 0,
            offered: None,
            qp_write: None,
            mr_write: None,
        };
        pair.wait_ready();
        pair
    }

    fn wait_ready(&mut self) {
        let begin = self.bench.clock_count();
        while !self.bench.uut.ready.val() {
            self.bench.edge();
            assert!(self.bench.clock_count() - begin < (1 << limits::LOG_OBJECTS) + 76, "ready does not come");
        }
    }

    fn clock(&mut self) {
        let uut = &mut self.bench.uut;
        uut.head.valid.next = self.offered.is_some();
        uut.head.data.next = self.offered.as_ref().map(wire).unwrap_or_default();
        uut.qp_write.next = QpWrite::default();
        if let Some((qpn, qp, clear, start_rx, psn)) = self.qp_write {
            uut.qp_write.next = qp.broadcast(qpn as usize, clear, start_rx, psn);
        }
        uut.mr_write.next = MrWrite::default();
        if let Some((index, mr)) = self.mr_write {
            uut.mr_write.next = mr.broadcast(index);
        }
        self.actions.before(&mut uut.action);
        self.acks.before(&mut uut.ack);
        self.acks_in.before(&mut uut.ack_in);
        self.events.before(&mut uut.event_out);
        self.bench.settle();
        let uut = &self.bench.uut;
        self.actions.after(&uut.action);
        self.acks.after(&uut.ack);
        self.acks_in.after(&uut.ack_in);
        self.events.after(&uut.event_out);
        let pulses = [&uut.count_requests, &uut.count_duplicates, &uut.count_out_of_order, &uut.count_no_qp, &uut.count_not_executed];
        for (count, pulse) in self.counts.iter_mut().zip(pulses) {
            *count += pulse.val() as u32;
        }

        // The model sees what happens at this edge: decisions first, then lookups, then broadcasts.
        let clock = self.bench.clock_count();
        self.model.clock(clock);
        if let (Some(head), true) = (self.offered, self.bench.uut.head.ready.val()) {
            self.model.take(clock, head);
            self.entered += 1;
            self.offered = None;
        }
        if let Some((index, mr)) = self.mr_write.take() {
            self.model.mrs[index] = Mr { life: self.model.lives, ..mr };
            self.model.lives += 1;
        }
        if let Some((qpn, qp, clear, start_rx, psn)) = self.qp_write.take() {
            self.model.qps[qpn as usize] = qp;
            if clear || start_rx {
                self.model.under_way.push_back((clock, Item::Start(qpn, if start_rx { psn } else { 0 })));
            }
        }
        self.bench.edge();
    }

    fn clocks(&mut self, count: usize) {
        for _ in 0..count {
            self.clock();
        }
    }

    fn write_qp(&mut self, qpn: u8, qp: Qp, psn: u32) {
        self.qp_write = Some((qpn, qp, false, true, psn));
        self.clocks(4);
    }

    fn write_mr(&mut self, index: usize, mr: Mr) {
        self.mr_write = Some((index, mr));
        self.clock();
    }

    /// Lets everything come out and compares it with the model.
    fn compare(&mut self) {
        let begin = self.bench.clock_count();
        while self.offered.is_some() || self.actions.got.len() < self.entered as usize {
            self.clock();
            assert!(self.bench.clock_count() - begin < 4000, "the responder hangs");
        }
        self.clocks(300);
        let got: Vec<_> = self.actions.got.iter().map(plain).collect();
        for (index, (got, expected)) in got.iter().zip(&self.model.actions).enumerate() {
            assert_eq!(got, expected, "action {index}");
        }
        assert_eq!(got.len(), self.model.actions.len());
        for (index, (got, expected)) in self.acks.got.iter().zip(&self.model.acks).enumerate() {
            assert_eq!(got, expected, "acknowledgement {index}");
        }
        assert_eq!(self.acks.got.len(), self.model.acks.len());
        assert_eq!(self.acks_in.got, self.model.acks_in);
        assert_eq!(self.events.got, self.model.events);
        assert_eq!(self.counts, self.model.counts);
        assert_eq!(self.bench.uut.entered.val(), (self.entered % 65536).to_bits::<16>());
        for qpn in 0..8u64 {
            self.bench.uut.query_qpn.next = qpn.to_bits();
            self.bench.edge();
            let state = self.model.states[qpn as usize];
            assert_eq!(self.bench.uut.query_expected_psn.val(), (state.expected as u64).to_bits::<24>());
            assert_eq!(self.bench.uut.query_msn.val(), (state.msn as u64).to_bits::<24>());
            assert_eq!(self.bench.uut.query_dead.val(), state.is_dead);
        }
    }

    fn send(&mut self, head: Head) {
        self.offered = Some(head);
        while self.offered.is_some() {
            self.clock();
        }
    }
}

/// Returns an action without what does not count if nothing is written.
fn plain(action: &RxAction) -> (bool, u64, u32, u8) {
    let addr = if action.write { number(action.addr) } else { 0 };
    (action.write, addr, number(action.len) as u32, number(action.offset) as u8)
}

fn number<const N: usize>(bits: Bits<N>) -> u64 {
    (0..N).fold(0, |value, bit| value | (bits.get_bit(bit) as u64) << bit)
}

/// Makes packets, most of them right, as far as it knows what the responder has seen.
struct Peer {
    random: Stalls,
    /// Next PSN and bytes to come of each QP.
    next: [(u32, u32); 8],
}

impl Peer {
    fn below(&mut self, limit: u64) -> u64 {
        self.random.random() % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn follow(&mut self, model: &Model) {
        for qpn in 0..8 {
            let state = &model.states[qpn];
            self.next[qpn] = (state.expected, state.message.map_or(0, |message| message.left));
        }
    }

    fn head(&mut self, model: &Model) -> Head {
        let qpn = self.pick(&[1, 1, 1, 1, 2, 2, 2, 6, 6, 3, 4, 5, 7][..]);
        let qp = model.qps[qpn];
        let mtu = 128 << qp.mtu;
        let (psn, left) = self.next[qpn];
        let mut head = Head {
            qpn: qpn as u32,
            psn,
            ack_req: self.below(2) == 0,
            offset: self.below(64) as u8,
            ipv6: qp.ipv6,
            ip: qp.ip,
            ..Default::default()
        };
        head.syndrome = self.below(256) as u8;
        let total = if left > 0 {
            left
        } else {
            let any = self.below(5 * mtu as u64) as u32;
            self.pick(&[0, 1, mtu - 1, mtu, mtu + 1, 2 * mtu, any, any, any])
        };
        head.len = total.min(mtu);
        head.opcode = match (left > 0, total > mtu) {
            (false, true) => 0x06,
            (true, true) => 0x07,
            (true, false) => 0x08,
            (false, false) => 0x0A,
        };
        head.pad = (head.len.wrapping_neg() & 3) as u8;
        head.dma_len = total;
        let index = if qpn == 6 { 9 } else { self.pick(&[0, 0, 0, 1, limits::MRS - 1, 5]) };
        let mr = model.mrs[index];
        let slack = mr.len.saturating_sub(total as u64);
        let shift = if slack == 0 { 0 } else { self.below(slack) };
        head.va = mr.base.wrapping_add(self.pick(&[0, shift, slack]));
        head.rkey = (index as u32) << 8 | mr.tag as u32;
        if self.below(3) == 0 {
            self.spoil(&mut head, model);
        } else {
            self.next[qpn] = ((psn + 1) & PSN, total - head.len);
        }
        head
    }

    fn spoil(&mut self, head: &mut Head, model: &Model) {
        match self.below(22) {
            0..=2 => head.psn = head.psn.wrapping_sub(1 + self.below(4) as u32) & PSN,
            3..=5 => head.psn = (head.psn + 1 + self.below(4) as u32) & PSN,
            6 => head.psn = head.psn.wrapping_add(self.pick(&[0x7F_FFFF, 0x80_0000, 0x80_0001])) & PSN,
            7 => head.opcode = self.below(32) as u8,
            8 => head.opcode = self.pick(&[0x0D, 0x0E, 0x0F, 0x10, 0x12, 0x64, 0x81, 0x2A]),
            9 | 10 => head.opcode = 0x11,
            11 => head.rkey ^= 1 << self.below(8),
            12 => head.rkey ^= 1 << (8 + self.below(24)),
            13 => head.va = head.va.wrapping_add(self.pick(&[1, u64::MAX, 0x1000, 1 << 63])),
            14 => head.va = u64::MAX - self.below(300),
            15 => head.len = self.pick(&[0, 1, head.len + 1, head.len.saturating_sub(1), 256, 512, 4096]).min(4096),
            16 => head.pad ^= 1 + self.below(3) as u8,
            17 => head.dma_len = self.pick(&[0, head.len, head.len + 1, 1 << 31, (1 << 31) + 1, u32::MAX]),
            18 => head.ip ^= 1,
            19 => head.qpn |= 1 << (8 + self.below(16)),
            20 => head.ipv6 = !head.ipv6,
            _ => {
                let index = self.pick(&[2, 3, 8, 0, 9]);
                head.rkey = (index as u32) << 8 | model.mrs[index].tag as u32;
                head.va = 0x1_0000;
            }
        }
        if self.below(8) == 0 {
            head.pad = (head.len.wrapping_neg() & 3) as u8;
        }
    }
}

fn set_up(pair: &mut Pair) {
    for (qpn, qp) in QPS {
        pair.write_qp(qpn, qp, 0xFF_FFF0 + qpn as u32);
    }
    for (index, mr) in MRS {
        pair.write_mr(index, mr);
    }
}

fn run_random(name: &str, seed: u64, heads: usize) {
    let mut next = seed;
    let mut pair = Pair::new(name, || {
        next += 1;
        Stalls::new(next)
    });
    set_up(&mut pair);
    let mut peer = Peer { random: Stalls::new(seed + 50), next: [(0, 0); 8] };
    let mut pace = Stalls::new(seed + 60);
    let mut rest = 0;
    let mut sent = 0;
    while sent < heads {
        if pair.model.under_way.is_empty() && pair.offered.is_none() {
            peer.follow(&pair.model);
        }
        if pair.offered.is_none() && pace.go() {
            pair.offered = Some(peer.head(&pair.model));
            sent += 1;
        }
        rest += 1;
        let qpn = peer.pick(&[1u8, 2, 3, 6]);
        if rest > 3 && (peer.below(300) == 0 || (pair.model.states[qpn as usize].is_dead && peer.below(2) == 0)) {
            // To RTR anew, in some cases through RESET.
            let qp = pair.model.qps[qpn as usize];
            let psn = peer.below(1 << 24) as u32;
            pair.qp_write = Some((qpn, qp, peer.below(2) == 0, peer.below(8) != 0, psn));
            rest = 0;
        }
        if peer.below(60) == 0 {
            // A region goes, or comes with another key at another place.
            let (index, mr) = peer.pick(&MRS);
            let valid = peer.below(3) != 0;
            pair.mr_write = Some((index, Mr { valid, tag: peer.below(256) as u8, delta: peer.below(1 << 40), ..mr }));
        }
        pair.clock();
        assert!(pair.bench.clock_count() < 60_000, "the responder hangs");
    }
    pair.compare();
    println!("{name}: {:?}, {} events, {} acks", pair.counts, pair.events.got.len(), pair.acks.got.len());
    assert!(pair.counts.iter().all(|count| *count > 0));
    pair.bench.finish();
}

#[test]
fn random_packets_are_decided_as_the_rules_say() {
    run_random("responder_random", 1000, 1500);
}

#[test]
fn random_packets_of_another_seed_are_decided_as_the_rules_say() {
    run_random("responder_random_2", 2000, 1500);
}

#[test]
fn packets_of_one_qp_are_decided_every_two_clocks() {
    let mut pair = Pair::new("responder_rate", Stalls::none);
    pair.write_qp(1, QPS[0].1, 100);
    pair.write_mr(0, MRS[0].1);
    pair.clocks(4);
    let begin = pair.bench.clock_count();
    for packet in 0..100 {
        // Messages of one packet and of three.
        let opcode = [0x0A, 0x06, 0x07, 0x08][packet % 4];
        let dma_len = if opcode == 0x0A { 256 } else { 768 };
        pair.send(Head { opcode, dma_len, ..only(100 + packet as u32, 256) });
    }
    let clocks = pair.bench.clock_count() - begin;
    assert!(clocks <= 200, "{clocks} clocks for 100 heads");
    pair.compare();
    assert_eq!(pair.counts, [100, 0, 0, 0, 0]);
    pair.bench.finish();
}

#[test]
fn what_comes_of_a_head_is_there_after_five_clocks() {
    let mut pair = Pair::new("responder_latency", Stalls::none);
    pair.write_qp(1, QPS[0].1, 100);
    pair.write_mr(0, MRS[0].1);
    pair.clocks(4);
    let begin = pair.bench.clock_count();
    pair.offered = Some(only(100, 4));
    while pair.actions.got.is_empty() {
        pair.clock();
    }
    // Five clocks, and the one in which it is taken.
    assert_eq!(pair.bench.clock_count() - begin, 6);
    assert_eq!(pair.acks.got.len(), 1);
}

#[test]
fn a_nak_for_a_lost_packet_goes_out_once_until_the_packet_comes() {
    let mut pair = Pair::new("responder_nak_once", Stalls::none);
    pair.write_qp(1, QPS[0].1, 0xFF_FFFF);
    pair.write_mr(0, MRS[0].1);
    for psn in [0, 1, 2, 0xFF_FFFE, 0xFF_FFFF, 0, 2, 3] {
        pair.send(only(psn, 8));
    }
    pair.compare();
    let answers: Vec<_> = pair.acks.got.iter().map(|ack| (number(ack.psn), number(ack.syndrome), ack.is_weak)).collect();
    let expected = [(0xFF_FFFF, 0x60, false), (0xFF_FFFE, 0x1F, true), (0xFF_FFFF, 0x1F, false), (0, 0x1F, false), (1, 0x60, false)];
    assert_eq!(answers, expected);
    pair.bench.finish();
}

#[test]
fn a_region_that_goes_in_the_middle_of_a_message_is_not_written_any_more() {
    let mut pair = Pair::new("responder_mr_gone", Stalls::none);
    pair.write_qp(1, QPS[0].1, 5);
    pair.write_mr(0, MRS[0].1);
    pair.send(Head { opcode: 0x06, dma_len: 768, ..only(5, 256) });
    pair.clocks(4);
    // The same region with the same key again is still another registration.
    pair.write_mr(0, MRS[0].1);
    pair.send(Head { opcode: 0x07, ..only(6, 256) });
    pair.compare();
    assert_eq!(pair.actions.got.iter().map(|action| action.write).collect::<Vec<_>>(), [true, false]);
    assert_eq!(number(pair.acks.got[1].syndrome), 0x62);
    assert_eq!(pair.events.got.len(), 1);
    pair.bench.finish();
}

#[test]
fn a_full_queue_of_any_kind_stops_heads_and_loses_nothing() {
    let mut pair = Pair::new("responder_full", Stalls::none);
    // Three queue pairs, so that a head may come every clock.
    for qpn in 1..4 {
        pair.write_qp(qpn, QPS[0].1, 0);
    }
    pair.write_mr(0, MRS[0].1);
    // Nothing is taken for a while.
    pair.bench.uut.action.ready.next = false;
    pair.bench.uut.ack.ready.next = false;
    pair.bench.uut.ack_in.ready.next = false;
    let mut taken = 0;
    for number in 0..60u32 {
        let head = || Head { qpn: 1 + number % 3, ..only(number / 3, 8) };
        pair.bench.uut.head.data.next = wire(&head());
        pair.bench.uut.head.valid.next = true;
        for _ in 0..2 {
            pair.bench.settle();
            if pair.bench.uut.head.ready.val() {
                taken += 1;
                let clock = pair.bench.clock_count();
                pair.model.take(clock, head());
                pair.bench.edge();
                break;
            }
            pair.bench.edge();
        }
    }
    pair.bench.uut.head.valid.next = false;
    assert!((10..=16).contains(&taken), "{taken} heads for sixteen places");
    pair.entered = taken;
    pair.model.clock(u64::MAX);
    // Pulses of the packets decided meanwhile were not looked at.
    pair.counts = pair.model.counts;
    pair.bench.cycles(10);
    pair.compare();
    pair.bench.finish();
}

#[test]
fn a_reset_in_the_middle_forgets_qps_and_regions() {
    let mut pair = Pair::new("responder_reset", Stalls::none);
    set_up(&mut pair);
    pair.send(Head { opcode: 0x06, dma_len: 768, ..only(0xFF_FFF1, 256) });
    pair.clocks(2);
    pair.bench.uut.reset.next = true;
    pair.bench.edge();
    pair.bench.uut.reset.next = false;
    pair.bench.settle();
    assert!(!pair.bench.uut.ready.val());
    assert!(!pair.bench.uut.action.valid.val() && !pair.bench.uut.ack.valid.val());
    pair.wait_ready();
    let lives = pair.model.lives;
    pair.model = Model { lives, ..Model::new() };
    pair.actions.got.clear();
    pair.acks.got.clear();
    pair.counts = [0; 5];
    pair.entered = 0;
    pair.send(only(0xFF_FFF1, 8));
    pair.clocks(10);
    assert_eq!(pair.counts, [0, 0, 0, 1, 0]);
    set_up(&mut pair);
    pair.send(only(0xFF_FFF1, 8));
    pair.compare();
    assert_eq!(pair.counts, [1, 0, 0, 1, 0]);
    pair.bench.finish();
}
