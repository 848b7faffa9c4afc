//! The decision against the rules of rocev2.md 9 written down in software.

use std::collections::VecDeque;

use super::*;
use crate::testing::{Bench, Stalls};

/// Clocks for which `ready` is low after a reset.
const CLEAR: usize = 1 << limits::LOG_OBJECTS;
const PSN: u32 = 0xFF_FFFF;
const QPNS: [usize; 5] = [0, 1, 2, 5, limits::QPS - 1];
const MRS: [usize; 4] = [0, 1, 6, limits::MRS - 1];

#[derive(Clone, Copy, Debug)]
struct Message {
    cursor: u64,
    left: u32,
    mr: usize,
    life: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    expected: u32,
    msn: u32,
    message: Option<Message>,
    nak_sent: bool,
    is_dead: bool,
}

/// What comes of a packet. The pulses are requests, duplicates, out of order, no QP, not executed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Outcome {
    action: Option<RxAction>,
    ack: Option<AckRecord>,
    ack_in: Option<AckIn>,
    refusal: Option<EventReq>,
    pulses: [bool; 5],
}

/// The block with its model.
struct Case {
    bench: Bench<Decide>,
    random: Stalls,
    states: Vec<State>,
    /// Whether each region is registered, and the number of its last registration.
    lives: Vec<(bool, u64)>,
    next_life: u64,
    writes: u16,
    due: VecDeque<(u64, Outcome)>,
    /// States as a query sees them, and those that it sees a clock later.
    told: Vec<State>,
    answer: State,
    last: u64,
    /// What comes in the next clock: its QP is told a clock ahead.
    coming: (Option<Checked>, Option<(usize, bool)>),
    /// Clock in which the last packet was made up.
    made: u64,
    made_for: usize,
    counts: [usize; 5],
    /// Acknowledgements by syndrome 0x1F, 0x60, 0x61, 0x62, and weak ones.
    answers: [usize; 5],
}

impl Case {
    fn new(name: &str, seed: u64) -> Self {
        let mut case = Self {
            bench: Bench::new(name, Decide::default(), |uut| &mut uut.clock),
            random: Stalls::new(seed),
            states: vec![State::default(); limits::QPS],
            lives: vec![(false, 0); limits::MRS],
            next_life: 1,
            writes: 0,
            due: VecDeque::new(),
            told: vec![State::default(); limits::QPS],
            answer: State::default(),
            last: 0,
            coming: (None, None),
            made: 0,
            made_for: 0,
            counts: [0; 5],
            answers: [0; 5],
        };
        case.wait_ready();
        case
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.random() % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Sees that nothing comes out while the states are cleared, for as long as the page says.
    fn wait_ready(&mut self) {
        self.bench.uut.query_qpn.next = QPNS[0].to_bits();
        for _ in 0..CLEAR {
            self.bench.settle();
            assert!(!self.bench.uut.ready.val());
            assert_eq!(self.outcome(), Outcome::default());
            self.bench.edge();
        }
        self.bench.settle();
        assert!(self.bench.uut.ready.val());
        self.answer = State::default();
    }

    fn outcome(&self) -> Outcome {
        let uut = &self.bench.uut;
        let action = uut.action.val();
        Outcome {
            action: uut.action_valid.val().then_some(if action.write { action } else { RxAction { addr: 0u64.to_bits(), ..action } }),
            ack: uut.ack_valid.val().then_some(uut.ack.val()),
            ack_in: uut.ack_in_valid.val().then_some(uut.ack_in.val()),
            refusal: uut.refusal_valid.val().then_some(uut.refusal.val()),
            pulses: [
                uut.count_requests.val(),
                uut.count_duplicates.val(),
                uut.count_out_of_order.val(),
                uut.count_no_qp.val(),
                uut.count_not_executed.val(),
            ],
        }
    }

    /// One clock. Packet and registration, or the end of one, come in the clock behind it.
    fn clock(&mut self, packet: Option<Checked>, mr: Option<(usize, bool)>) {
        let clock = self.bench.clock_count();
        if let Some(packet) = &packet {
            (self.made, self.made_for) = (clock, packet.qpn.index());
        }
        let peek = packet.map(|packet| packet.qpn);
        let (packet, mr) = std::mem::replace(&mut self.coming, (packet, mr));
        let qpn = self.pick(&QPNS);
        let noise = self.noise();
        let mr_index = self.pick(&MRS);
        let uut = &mut self.bench.uut;
        uut.query_qpn.next = qpn.to_bits();
        uut.peek_qpn.next = peek.unwrap_or(noise.qpn);
        uut.checked_valid.next = packet.is_some();
        uut.checked.next = packet.unwrap_or(noise);
        let (index, valid) = mr.unwrap_or((mr_index, true));
        uut.mr_write.next =
            MrWrite { valid: mr.is_some(), index: index.to_bits(), entry: MrEntry { valid, tag: noise.syndrome, ..Default::default() } };
        uut.life.next = self.next_life.to_bits();
        self.bench.settle();

        let expected = match self.due.front() {
            Some((due, outcome)) if *due == clock => *outcome,
            _ => Outcome::default(),
        };
        assert_eq!(self.outcome(), expected, "clock {clock}");
        if expected != Outcome::default() {
            self.due.pop_front();
        }
        self.counts.iter_mut().zip(expected.pulses).for_each(|(count, pulse)| *count += usize::from(pulse));
        if let Some(ack) = expected.ack {
            let kinds = [0x1Fu64, 0x60, 0x61, 0x62].map(|syndrome| ack.syndrome == syndrome);
            self.answers.iter_mut().zip(kinds).for_each(|(count, is_it)| *count += usize::from(is_it));
            self.answers[4] += usize::from(ack.is_weak);
        }
        let uut = &self.bench.uut;
        assert_eq!(uut.query_expected_psn.val(), (self.answer.expected as u64).to_bits::<24>(), "clock {clock}");
        assert_eq!(uut.query_msn.val(), (self.answer.msn as u64).to_bits::<24>());
        assert_eq!(uut.query_dead.val(), self.answer.is_dead);

        // A query sees what was decided two clocks ago and answers in the next.
        self.answer = self.told[qpn];
        if self.last + 1 == clock {
            self.told.clone_from(&self.states);
        }
        if let Some(packet) = packet {
            let outcome = self.decide(&packet);
            if outcome != Outcome::default() {
                self.due.push_back((clock + Decide::LATENCY as u64, outcome));
            }
            self.last = clock;
        }
        if let Some((index, valid)) = mr {
            self.lives[index] = (valid, self.next_life);
            self.next_life += 1;
        }
        self.bench.edge();
    }

    fn clocks(&mut self, count: usize) {
        for _ in 0..count {
            self.clock(None, None);
        }
    }

    /// A packet, and a clock without one.
    fn send(&mut self, packet: Checked) {
        self.clock(Some(packet), None);
        self.clock(None, None);
    }

    fn answer(&self, packet: &Checked, psn: u32, syndrome: u64, is_weak: bool) -> Option<AckRecord> {
        let msn = (self.states[packet.qpn.index()].msn as u64).to_bits();
        let psn = ((psn & PSN) as u64).to_bits();
        Some(AckRecord { qpn: packet.qpn, psn, syndrome: syndrome.to_bits(), msn, after: (self.writes as u64).to_bits(), is_weak })
    }

    fn refuse(&mut self, packet: &Checked, syndrome: u64, outcome: Outcome) -> Outcome {
        let ack = self.answer(packet, packet.psn.index() as u32, syndrome, false);
        self.states[packet.qpn.index()].is_dead = true;
        let refusal =
            EventReq { number: packet.qpn.index().to_bits(), kind: (EventKind::QpAccess as u64).to_bits(), code: syndrome.to_bits() };
        Outcome { ack, refusal: Some(refusal), ..outcome }
    }

    /// What must come of a packet.
    fn decide(&mut self, packet: &Checked) -> Outcome {
        let qpn = packet.qpn.index();
        let state = self.states[qpn];
        if packet.is_start {
            self.states[qpn] = State { expected: packet.psn.index() as u32, ..Default::default() };
            return Outcome::default();
        }
        let (len, offset) = (packet.len, packet.offset);
        let mut outcome = Outcome { action: Some(RxAction { len, offset, ..Default::default() }), ..Default::default() };
        if packet.is_stray || state.is_dead {
            outcome.pulses[3] = true;
            return outcome;
        }
        if packet.is_ack {
            outcome.ack_in = Some(AckIn { qpn: packet.qpn, psn: packet.psn, syndrome: packet.syndrome });
            return outcome;
        }
        if packet.is_foreign {
            outcome.pulses[4] = true;
            return outcome;
        }
        // As in rocev2.md 7: the sign of the 24-bit difference.
        let distance = ((packet.psn.index() as u32).wrapping_sub(state.expected) << 8) as i32 >> 8;
        if distance > 0 {
            outcome.pulses[2] = true;
            if !state.nak_sent {
                outcome.ack = self.answer(packet, state.expected, 0x60, false);
                self.states[qpn].nak_sent = true;
            }
            return outcome;
        }
        if distance < 0 {
            outcome.pulses[1] = true;
            if packet.acks_duplicate {
                outcome.ack = self.answer(packet, state.expected.wrapping_sub(1), 0x1F, state.nak_sent);
            }
            return outcome;
        }
        let len = packet.len.index() as u32;
        let (is_next, message, ends) = match state.message {
            None => {
                let cursor = packet.bus.to_u64();
                let (left, mr, life) = (packet.dma_len.index() as u32, packet.mr_index.index(), packet.life.to_u64());
                (packet.is_first || packet.is_only, Message { cursor, left, mr, life }, packet.is_only)
            }
            Some(message) => ((packet.is_middle && len < message.left) || (packet.is_last && len == message.left), message, packet.is_last),
        };
        if !is_next || !packet.is_legal {
            return self.refuse(packet, 0x61, outcome);
        }
        let is_granted = if state.message.is_none() { packet.is_granted } else { self.lives[message.mr] == (true, message.life) };
        if !is_granted {
            return self.refuse(packet, 0x62, outcome);
        }
        outcome.pulses[0] = true;
        if len > 0 {
            outcome.action = Some(RxAction { write: true, addr: message.cursor.to_bits(), len: packet.len, offset });
            self.writes = self.writes.wrapping_add(1);
        }
        let rest = Message { cursor: message.cursor.wrapping_add(len as u64), left: message.left.wrapping_sub(len), ..message };
        self.states[qpn] = State {
            expected: (state.expected + 1) & PSN,
            msn: (state.msn + ends as u32) & PSN,
            message: (!ends).then_some(rest),
            ..Default::default()
        };
        if packet.ack_req {
            outcome.ack = self.answer(packet, packet.psn.index() as u32, 0x1F, false);
        }
        outcome
    }

    /// A record in which everything is random.
    fn noise(&mut self) -> Checked {
        let (qpn, mr) = (self.pick(&QPNS), self.pick(&MRS));
        let bits = self.random.random();
        let bit = |index: u32| bits >> index & 1 == 1;
        Checked {
            is_request: bit(0),
            acks_duplicate: bit(1),
            is_first: bit(2),
            is_middle: bit(3),
            is_last: bit(4),
            is_only: bit(5),
            is_legal: bit(6),
            is_granted: bit(7),
            ack_req: bit(8),
            is_start: bit(9),
            is_stray: bit(10),
            is_ack: bit(11),
            is_foreign: bit(12),
            qpn: qpn.to_bits(),
            psn: (bits >> 13 & PSN as u64).to_bits(),
            syndrome: (bits >> 24 & 0xFF).to_bits(),
            len: (bits >> 20 & 0xFFF).to_bits(),
            offset: (bits >> 30 & 63).to_bits(),
            dma_len: (bits >> 8 & 0xFFFF_FFFF).to_bits(),
            bus: self.random.random().to_bits(),
            mr_index: mr.to_bits(),
            life: (bits >> 10 & 0xFFFF).to_bits(),
        }
    }

    /// A packet of one kind, most of them the next one of a message.
    fn packet(&mut self) -> Checked {
        let noise = self.noise();
        let state = self.states[noise.qpn.index()];
        let mut packet = Checked {
            is_start: false,
            is_stray: false,
            is_ack: false,
            is_foreign: false,
            is_request: false,
            is_first: false,
            is_middle: false,
            is_last: false,
            is_only: false,
            ..noise
        };
        let kind = if state.is_dead && self.below(3) == 0 { 0 } else { self.below(24) };
        match kind {
            0 => packet.is_start = true,
            1 => packet.is_stray = true,
            2 => packet.is_ack = true,
            3 => packet.is_foreign = true,
            _ => packet.is_request = true,
        }
        if !packet.is_request {
            return packet;
        }
        packet.psn = (state.expected as u64).to_bits();
        packet.is_legal = self.below(16) != 0;
        packet.is_granted = self.below(16) != 0;
        packet.acks_duplicate = self.below(4) != 0;
        packet.life = self.lives[packet.mr_index.index()].1.to_bits();
        if self.below(4) == 0 {
            packet.bus = (u64::MAX - self.below(600)).to_bits();
        }
        let left = state.message.map_or(0, |message| message.left);
        let len = match state.message {
            None if self.below(2) == 0 => {
                packet.is_only = true;
                let len = self.pick(&[0, 1, 64, 256]);
                packet.dma_len = (len as u64).to_bits();
                len
            }
            None => {
                packet.is_first = true;
                packet.dma_len = (257 + self.below(700)).to_bits();
                256
            }
            Some(_) if left > 256 => {
                packet.is_middle = true;
                256
            }
            Some(_) => {
                packet.is_last = true;
                left
            }
        };
        packet.len = (len as u64).to_bits();
        match self.below(24) {
            0 | 1 => packet.psn = ((state.expected.wrapping_sub(1 + self.below(3) as u32) & PSN) as u64).to_bits(),
            2 | 3 => packet.psn = (((state.expected + 1 + self.below(3) as u32) & PSN) as u64).to_bits(),
            4 => packet.psn = (((state.expected + self.pick(&[0x7F_FFFF, 0x80_0000, 0x80_0001])) & PSN) as u64).to_bits(),
            5 => (packet.is_first, packet.is_middle) = (packet.is_middle, packet.is_first),
            6 => (packet.is_last, packet.is_only) = (packet.is_only, packet.is_last),
            7 if left > 0 => packet.len = self.pick(&[1, left - 1, left, left + 1].map(|len| len.min(4096) as u64)).to_bits(),
            8 => (packet.is_first, packet.is_middle, packet.is_last, packet.is_only) = (false, false, false, false),
            10..=14 if state.nak_sent => packet.psn = ((state.expected.wrapping_sub(1) & PSN) as u64).to_bits(),
            _ => (),
        }
        packet
    }

    /// Sends `count` packets at random times, while registrations come and go.
    fn traffic(&mut self, count: usize, mut pace: Stalls) {
        let mut sent = 0;
        while sent < count {
            let mr = (self.below(40) == 0).then(|| (self.pick(&MRS), self.below(4) != 0));
            // Of one QP every two clocks.
            let is_rested = self.made + 2 <= self.bench.clock_count();
            let packet = pace.go().then(|| self.packet()).filter(|packet| is_rested || packet.qpn.index() != self.made_for);
            sent += usize::from(packet.is_some());
            self.clock(packet, mr);
        }
    }

    /// Gives a reset and forgets all that it wipes out.
    fn reset(&mut self) {
        self.bench.uut.mr_write.next = MrWrite::default();
        self.bench.uut.reset.next = true;
        self.bench.edge();
        self.bench.uut.reset.next = false;
        self.bench.uut.checked_valid.next = false;
        self.states.fill(State::default());
        self.told.fill(State::default());
        self.lives.fill((false, 0));
        self.writes = 0;
        self.due.clear();
        self.coming = (None, None);
        self.wait_ready();
    }
}

/// A request of QP 1 for region 6, nothing wrong with it.
fn request(psn: u32, len: u64) -> Checked {
    Checked {
        is_request: true,
        acks_duplicate: true,
        is_legal: true,
        is_granted: true,
        ack_req: true,
        qpn: 1u64.to_bits(),
        psn: (psn as u64).to_bits(),
        len: len.to_bits(),
        dma_len: len.to_bits(),
        bus: 0x1000u64.to_bits(),
        mr_index: 6u64.to_bits(),
        ..Default::default()
    }
}

#[test]
fn packets_are_decided_as_the_rules_say_with_pauses_of_any_length() {
    let mut case = Case::new("rx_decide", 901);
    for index in MRS {
        case.clock(None, Some((index, true)));
    }
    case.traffic(1600, Stalls::new(902));
    case.clocks(4);
    println!("{:?} {:?}", case.counts, case.answers);
    assert!(case.due.is_empty());
    assert!(case.counts.iter().chain(&case.answers).all(|count| *count >= 15), "{:?} {:?}", case.counts, case.answers);
    case.bench.finish();
}

#[test]
fn a_packet_of_the_same_qp_is_decided_every_two_clocks() {
    let mut case = Case::new("rx_decide_rate", 911);
    case.clock(None, Some((6, true)));
    case.send(Checked { is_start: true, is_request: false, ..request(0xFF_FFF0, 0) });
    let life = case.lives[6].1.to_bits();
    let begin = case.bench.clock_count();
    for packet in 0..60 {
        let (is_first, is_middle, is_last) = (packet % 3 == 0, packet % 3 == 1, packet % 3 == 2);
        let dma_len = 768u64.to_bits();
        case.send(Checked { is_first, is_middle, is_last, dma_len, life, ..request((0xFF_FFF0 + packet) & PSN, 256) });
    }
    case.clocks(Decide::LATENCY);
    assert_eq!(case.counts, [60, 0, 0, 0, 0]);
    assert_eq!(case.bench.clock_count() - begin, 2 * 60 + Decide::LATENCY as u64);
    case.bench.finish();
}

#[test]
fn a_middle_and_a_last_need_the_registration_that_their_first_was_checked_against() {
    let mut case = Case::new("rx_decide_life", 921);
    let mut psn = 5;
    // In the clock of the packet it is too late to stop it; in the clock before it is not.
    for (ahead, is_late) in [(0, true), (1, false), (2, false)] {
        for (valid, is_last) in [(false, false), (true, false), (false, true), (true, true)] {
            case.clock(None, Some((6, true)));
            case.send(Checked { is_start: true, is_request: false, ..request(psn, 0) });
            let life = case.lives[6].1.to_bits();
            case.send(Checked { is_first: true, ack_req: false, dma_len: 512u64.to_bits(), life, ..request(psn, 256) });
            let len = if is_last { 256 } else { 255 };
            let packet = Checked { is_last, is_middle: !is_last, ..request(psn + 1, len) };
            let answers = case.answers;
            for step in (0..=ahead).rev() {
                case.clock((step == 0).then_some(packet), (step == ahead).then_some((6, valid)));
            }
            case.clocks(3);
            let expected = if is_late { [1, 0, 0, 0, 0] } else { [0, 0, 0, 1, 0] };
            assert_eq!(core::array::from_fn(|kind| case.answers[kind] - answers[kind]), expected, "{ahead} {valid} {is_last}");
            psn += 2;
        }
    }
    case.bench.finish();
}

#[test]
fn a_reset_in_the_middle_forgets_states_registrations_and_the_packet_under_way() {
    let mut case = Case::new("rx_decide_reset", 931);
    for index in MRS {
        case.clock(None, Some((index, true)));
    }
    case.clocks(1);
    let life = case.lives[6].1.to_bits();
    // Packets of every kind in their second clock, and one in its first clock and on its way out.
    let write = Checked { is_only: true, ..request(7, 64) };
    let plain = Checked { is_request: false, ..write };
    let packets = [
        (write, 0),
        (write, 1),
        (write, 2),
        (Checked { is_legal: false, ..write }, 1),
        (Checked { psn: 6u64.to_bits(), ..write }, 1),
        (Checked { psn: 8u64.to_bits(), ..write }, 1),
        (Checked { is_stray: true, ..plain }, 1),
        (Checked { is_ack: true, ..plain }, 1),
        (Checked { is_foreign: true, ..plain }, 1),
    ];
    for (packet, clocks) in packets {
        case.traffic(20, Stalls::none());
        case.clocks(4);
        case.send(Checked { is_start: true, is_request: false, ..request(7, 0) });
        case.clocks(2);
        if clocks == 0 {
            case.bench.uut.checked.next = packet;
            case.bench.uut.checked_valid.next = true;
        } else {
            case.clock(Some(packet), None);
            case.clocks(clocks);
            case.bench.uut.checked_valid.next = false;
        }
        case.reset();
        // A message that begins now with the region of before is refused in its middle.
        case.clocks(1);
        case.send(Checked { is_first: true, dma_len: 512u64.to_bits(), life, ..request(0, 256) });
        case.send(Checked { is_last: true, ..request(1, 256) });
        case.clocks(3);
        assert!(case.states[1].is_dead && case.writes == 1);
        for index in MRS {
            case.clock(None, Some((index, true)));
        }
    }
    case.traffic(200, Stalls::new(932));
    case.clocks(4);
    assert!(case.due.is_empty());
    case.bench.finish();
}
