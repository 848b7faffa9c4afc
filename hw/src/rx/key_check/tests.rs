//! The key check against the rules of rocev2.md 9, 10 and 13, in arithmetic that can't overflow.

use std::collections::VecDeque;

use super::*;
use crate::prim::pack;
use crate::rx::samples::{only, wire, Head, Mr, Qp, MRS, QPS};
use crate::testing::{Bench, Stalls};

/// Clocks for which `ready` is low after a reset.
const CLEAR: usize = 1 << limits::LOG_OBJECTS;

/// A head, and the bit of its source address that is wrong, if one is.
type Plan = (Head, Option<usize>);

#[derive(Clone)]
struct Tables {
    qps: Vec<Qp>,
    mrs: Vec<Mr>,
}

impl Tables {
    fn new() -> Self {
        Self { qps: vec![Qp::default(); limits::QPS], mrs: vec![Mr::default(); limits::MRS] }
    }

    /// What must be said of a head that is looked up now.
    fn check(&self, (head, wrong_bit): &Plan) -> Checked {
        let qp = &self.qps[head.qpn as usize % limits::QPS];
        let index = (head.rkey >> 8) as usize;
        let mr = &self.mrs[index % limits::MRS];
        let is_ack = head.opcode == 0x11;
        let is_request = matches!(head.opcode, 0x00..=0x0C | 0x13 | 0x14 | 0x16 | 0x17);
        let is_up = qp.state == 3 || (qp.state == 2 && !is_ack);
        let is_peer = qp.ip == head.ip && qp.ipv6 == head.ipv6 && wrong_bit.is_none();
        let is_known = (head.qpn as usize) < limits::QPS && is_up && is_peer;
        let mtu = 128 << qp.mtu;
        let fits = match head.opcode {
            0x06 => head.len == mtu && (mtu + 1..=1 << 31).contains(&head.dma_len),
            0x07 => head.len == mtu,
            0x08 => (1..=mtu).contains(&head.len),
            0x0A => head.len == head.dma_len && head.len <= mtu,
            _ => false,
        };
        let (first, last) = (mr.base as u128, mr.base as u128 + mr.len as u128);
        let is_in_range = head.va as u128 >= first && head.va as u128 + head.dma_len as u128 <= last;
        let has_key = mr.valid && index < limits::MRS && mr.tag == head.rkey as u8 && mr.pd == qp.pd && mr.access & 2 != 0;
        Checked {
            is_start: false,
            is_stray: !is_known,
            is_ack: is_known && is_ack,
            is_foreign: is_known && !is_ack && !is_request,
            is_request: is_known && is_request,
            acks_duplicate: matches!(head.opcode, 0x00..=0x0B | 0x16 | 0x17),
            is_first: head.opcode == 0x06,
            is_middle: head.opcode == 0x07,
            is_last: head.opcode == 0x08,
            is_only: head.opcode == 0x0A,
            is_legal: fits && qp.access & 2 != 0 && (head.len + head.pad as u32) % 4 == 0,
            is_granted: head.dma_len == 0 || (has_key && is_in_range),
            ack_req: head.ack_req,
            qpn: (head.qpn as usize % limits::QPS).to_bits(),
            psn: (head.psn as u64).to_bits(),
            syndrome: (head.syndrome as u64).to_bits(),
            len: (head.len as u64).to_bits(),
            offset: (head.offset as u64).to_bits(),
            dma_len: (head.dma_len as u64).to_bits(),
            bus: head.va.wrapping_add(mr.delta).to_bits(),
            mr_index: (index % limits::MRS).to_bits(),
            life: mr.life.to_bits(),
        }
    }
}

/// Blanks what does not count.
fn essence(checked: Checked) -> Checked {
    let Checked { is_start, is_stray, is_ack, is_foreign, is_request, qpn, psn, syndrome, len, offset, .. } = checked;
    let kind = Checked { is_start, is_stray, is_ack, is_foreign, is_request, ..Default::default() };
    if is_start {
        return Checked { qpn, psn, ..kind };
    }
    // Payload comes with every head, and must go somewhere.
    let kind = Checked { len, offset, ..kind };
    if is_stray {
        return kind;
    }
    if is_foreign {
        return Checked { qpn, ..kind };
    }
    if is_ack {
        return Checked { qpn, psn, syndrome, ..kind };
    }
    let mut request = Checked { syndrome: Default::default(), ..checked };
    if !checked.is_first && !checked.is_only {
        (request.is_granted, request.dma_len) = Default::default();
    }
    if !request.is_granted || request.dma_len == 0u64 {
        (request.bus, request.mr_index, request.life) = Default::default();
    }
    request
}

/// The block with its model.
struct Case {
    bench: Bench<KeyCheck>,
    tables: Tables,
    heads: VecDeque<Plan>,
    pace: Stalls,
    go: Stalls,
    is_offered: bool,
    /// A start that waits to go behind the heads already taken.
    start: Option<Checked>,
    /// QP of the head that was taken in the last clock, or of none for a start.
    resting: Option<Option<u64>>,
    due: VecDeque<(u64, Checked)>,
    lives: u64,
    /// Clocks in which a head was taken.
    taken: Vec<u64>,
    /// Starts, strays, acknowledgements, foreign, requests, legal writes, granted ones.
    counts: [usize; 7],
}

impl Case {
    fn new(name: &str, pace: Stalls, go: Stalls) -> Self {
        let mut case = Self {
            bench: Bench::new(name, KeyCheck::default(), |uut| &mut uut.clock),
            tables: Tables::new(),
            heads: VecDeque::new(),
            pace,
            go,
            is_offered: false,
            start: None,
            resting: None,
            due: VecDeque::new(),
            lives: 0,
            taken: vec![],
            counts: [0; 7],
        };
        case.wait_ready();
        case
    }

    /// Sees that nothing is taken and nothing comes out while tables are cleared, for as long as the page says.
    fn wait_ready(&mut self) {
        self.bench.uut.head.valid.next = true;
        self.bench.uut.head.data.next = wire(&only(0, 8));
        self.bench.uut.go.next = true;
        for _ in 0..CLEAR {
            self.bench.settle();
            let uut = &self.bench.uut;
            assert!(!uut.ready.val() && !uut.head.ready.val() && !uut.taken.val() && !uut.checked_valid.val());
            self.bench.edge();
        }
        self.bench.uut.head.valid.next = false;
        self.bench.settle();
        assert!(self.bench.uut.ready.val());
    }

    fn clock(&mut self, qp: Option<(usize, Qp, bool, bool, u32)>, mr: Option<(usize, Mr)>) {
        let clock = self.bench.clock_count();
        self.is_offered |= !self.heads.is_empty() && self.pace.go();
        let go = self.go.go();
        let uut = &mut self.bench.uut;
        uut.go.next = go;
        uut.head.valid.next = self.is_offered;
        if self.is_offered {
            let (head, wrong_bit) = &self.heads[0];
            let mut source_ip = [head.ip; 16];
            wrong_bit.iter().for_each(|bit| source_ip[bit / 8] ^= 1 << (bit % 8));
            uut.head.data.next = RxHead { source_ip: pack(&source_ip), ..wire(head) };
        }
        uut.qp_write.next = qp.map(|(qpn, qp, clear, start_rx, psn)| qp.broadcast(qpn, clear, start_rx, psn)).unwrap_or_default();
        uut.mr_write.next = mr.map(|(index, mr)| mr.broadcast(index)).unwrap_or_default();
        self.bench.settle();

        let uut = &self.bench.uut;
        let offered = uut.head.data.val().qpn.to_u64() % limits::QPS as u64;
        let must_rest = self.resting.is_some_and(|last| last.is_none_or(|qpn| qpn == offered));
        assert_eq!(uut.head.ready.val(), go && !must_rest && self.start.is_none(), "clock {clock}");
        let takes = self.is_offered && uut.head.ready.val();
        assert_eq!(uut.taken.val(), takes);
        let is_due = self.due.front().is_some_and(|(due, _)| *due == clock);
        assert_eq!(uut.checked_valid.val(), is_due, "clock {clock}");
        if is_due {
            let (_, expected) = self.due.pop_front().expect("it is due");
            let got = uut.checked.val();
            assert_eq!(essence(got), essence(expected), "clock {clock}");
            let is_write = got.is_request && (got.is_first || got.is_middle || got.is_last || got.is_only);
            let is_legal = is_write && got.is_legal;
            let is_granted = is_legal && got.is_granted && !got.is_middle && !got.is_last;
            let kinds = [got.is_start, got.is_stray, got.is_ack, got.is_foreign, got.is_request, is_legal, is_granted];
            self.counts.iter_mut().zip(kinds).for_each(|(count, kind)| *count += usize::from(kind));
        }

        // What happens at this edge: lookup of the old rows, then the broadcasts.
        let due = clock + KeyCheck::LATENCY as u64;
        let starts = self.start.filter(|_| self.resting.is_none());
        self.resting = if takes { Some(Some(offered)) } else { starts.map(|_| None) };
        if let Some(start) = starts {
            self.due.push_back((due, start));
            self.start = None;
        }
        if takes {
            let plan = self.heads.pop_front().expect("a head is offered");
            self.due.push_back((due, self.tables.check(&plan)));
            self.taken.push(clock);
            self.is_offered = false;
        }
        if let Some((index, mr)) = mr {
            assert_eq!(uut.life.val(), self.lives.to_bits::<40>());
            self.tables.mrs[index] = Mr { life: self.lives, ..mr };
            self.lives += 1;
        }
        if let Some((qpn, qp, clear, start_rx, psn)) = qp {
            self.tables.qps[qpn] = qp;
            if clear || start_rx {
                let psn = if start_rx { (psn as u64).to_bits() } else { 0u64.to_bits() };
                self.start = Some(Checked { is_start: true, qpn: qpn.to_bits(), psn, ..Default::default() });
            }
        }
        self.bench.edge();
    }

    fn clocks(&mut self, count: usize) {
        for _ in 0..count {
            self.clock(None, None);
        }
    }

    /// Writes all of the sample tables, three clocks apart.
    fn set_up(&mut self) {
        for (qpn, qp) in QPS {
            self.clock(Some((qpn as usize, qp, qpn == 1, qpn != 4, 0xFF_FFF0 + qpn as u32)), None);
            self.clocks(2);
        }
        self.clock(Some((limits::QPS - 1, QPS[0].1, false, true, 77)), None);
        for (index, mr) in MRS {
            self.clock(None, Some((index, mr)));
        }
        self.clocks(3);
    }

    /// Sends `count` heads while now and then a table row changes.
    fn traffic(&mut self, peer: &mut Peer, count: usize) {
        let end = self.taken.len() + count;
        let mut rest = 0;
        while self.taken.len() < end {
            if self.heads.is_empty() {
                self.heads.push_back(peer.plan(&self.tables));
            }
            rest += 1;
            let (mut qp, mut mr) = (None, None);
            if rest >= 3 && peer.below(12) == 0 {
                let (qpn, context) = peer.pick(&QPS);
                let context = Qp { ip: context.ip ^ (peer.below(4) == 0) as u8, state: peer.pick(&[2, 3, 3, context.state]), ..context };
                qp = Some((qpn as usize, context, peer.below(2) == 0, peer.below(3) != 0, peer.below(1 << 24) as u32));
                rest = 0;
            }
            if peer.below(12) == 0 {
                let (index, region) = peer.pick(&MRS);
                mr = Some((
                    index,
                    Mr { valid: peer.below(5) != 0, tag: peer.below(256) as u8, delta: peer.random.random() << 20, ..region },
                ));
            }
            self.clock(qp, mr);
            assert!(self.bench.clock_count() < 20_000, "the block hangs");
        }
        self.heads.clear();
        self.is_offered = false;
    }

    /// Gives a reset while a head is offered: everything is forgotten but the number of registrations.
    fn reset(&mut self) {
        let uut = &mut self.bench.uut;
        uut.head.valid.next = true;
        uut.qp_write.next = QpWrite::default();
        uut.mr_write.next = MrWrite::default();
        uut.reset.next = true;
        self.bench.edge();
        self.bench.uut.reset.next = false;
        self.tables = Tables::new();
        self.due.clear();
        self.start = None;
        self.resting = None;
        self.wait_ready();
    }
}

/// Makes heads, half of them right, the others at some limit.
struct Peer {
    random: Stalls,
}

impl Peer {
    fn below(&mut self, limit: u64) -> u64 {
        self.random.random() % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn plan(&mut self, tables: &Tables) -> Plan {
        let qpn = self.pick(&[1, 1, 1, 2, 2, 6, 3, 4, 7, 5, limits::QPS - 1]);
        let qp = tables.qps[qpn];
        let mtu = 128 << qp.mtu;
        let index = if qpn == 6 { 9 } else { self.pick(&[0, 0, 1, 1, 2, 3, limits::MRS - 1, 5, 8]) };
        let mr = tables.mrs[index];
        let opcode = self.pick(&[0x06, 0x07, 0x08, 0x0A]);
        let len = if opcode == 0x08 || opcode == 0x0A { 1 + self.below(mtu as u64) as u32 } else { mtu };
        let dma_len = if opcode == 0x06 { mtu + 1 + self.below(mtu as u64) as u32 } else { len };
        let mut head = Head {
            opcode,
            ack_req: self.below(2) == 0,
            pad: (len.wrapping_neg() & 3) as u8,
            qpn: qpn as u32,
            psn: self.below(1 << 24) as u32,
            va: 0,
            rkey: (index as u32) << 8 | mr.tag as u32,
            dma_len,
            syndrome: self.below(256) as u8,
            len,
            offset: self.below(64) as u8,
            ipv6: qp.ipv6,
            ip: qp.ip,
        };
        let mut wrong_bit = None;
        let is_right = self.below(2) == 0;
        let any = self.below(256) as u8;
        match if is_right { 99 } else { self.below(11) } {
            0 => head.opcode = self.pick(&[0x05, 0x06, 0x0C, 0x0D, 0x10, 0x11, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x64, 0x81]),
            1 => head.opcode = any,
            10 => head.opcode = 0x11,
            2 => {
                head.len = self.pick(&[0, 1, mtu - 1, mtu + 1, mtu + 4, 4096]).min(4096);
                head.pad = (head.len.wrapping_neg() & 3) as u8;
                head.dma_len = self.pick(&[head.len, head.dma_len]);
            }
            3 => head.dma_len = self.pick(&[0, head.len, mtu, mtu + 1, 1 << 31, (1 << 31) + 1, u32::MAX]),
            4 => head.pad = self.below(4) as u8,
            5 => head.rkey ^= 1 << self.below(32),
            6 => head.qpn ^= 1 << self.below(24),
            7 => wrong_bit = Some(self.below(128) as usize),
            8 => head.ipv6 = !head.ipv6,
            _ => (),
        }
        if head.opcode == 0x0A && self.below(8) == 0 {
            (head.len, head.dma_len, head.pad) = (0, 0, 0);
        }
        // Within the region, at its ends, or just beyond them.
        let slack = mr.len.wrapping_sub(head.dma_len as u64);
        let inside = if mr.len > head.dma_len as u64 { self.below(slack) } else { 0 };
        let shifts = [0, slack, inside, inside, slack.wrapping_add(1), u64::MAX, mr.len, self.random.random() << 16];
        let shift = if is_right { self.pick(&shifts[..4]) } else { self.pick(&shifts) };
        head.va = mr.base.wrapping_add(shift);
        (head, wrong_bit)
    }
}

#[test]
fn heads_are_checked_as_the_rules_say_while_tables_change() {
    let mut case = Case::new("rx_key_check", Stalls::new(801), Stalls::new(802));
    case.set_up();
    case.traffic(&mut Peer { random: Stalls::new(803) }, 1000);
    case.clocks(8);
    assert!(case.due.is_empty());
    println!("{:?}", case.counts);
    assert!(case.counts.iter().all(|count| *count >= 20), "{:?}", case.counts);
    case.bench.finish();
}

#[test]
fn every_limit_of_a_region_holds_to_the_byte() {
    let mut case = Case::new("rx_key_check_limits", Stalls::none(), Stalls::none());
    case.set_up();
    for (index, mr) in MRS.into_iter().filter(|(_, mr)| mr.pd == 7 && mr.access & 2 != 0) {
        for len in [1, 4, 256] {
            let last = mr.base.wrapping_add(mr.len).wrapping_sub(len);
            let top = len.wrapping_neg();
            for va in [mr.base, mr.base.wrapping_sub(1), last, last.wrapping_add(1), top, top.wrapping_add(1), u64::MAX, 0] {
                let rkey = (index as u32) << 8 | mr.tag as u32;
                case.heads.push_back((Head { va, rkey, ..only(0, len as u32) }, None));
            }
        }
    }
    let count = case.heads.len();
    case.clocks(2 * count + 4);
    assert_eq!(case.taken.len(), count);
    let refused = case.counts[5] - case.counts[6];
    assert!(case.counts[5] == count && refused > 0 && case.counts[6] > refused / 4, "{:?}", case.counts);
    case.bench.finish();
}

#[test]
fn a_head_of_one_qp_is_taken_every_two_clocks_and_a_start_costs_two() {
    let mut case = Case::new("rx_key_check_rate", Stalls::none(), Stalls::none());
    case.set_up();
    case.heads.extend((0..60).map(|psn| (only(psn, 256), None)));
    let begin = case.bench.clock_count();
    case.clocks(60);
    // In the clock of a head, and in the clock between two.
    case.clock(Some((2, QPS[1].1, false, true, 9)), None);
    case.clocks(20);
    case.clock(Some((2, QPS[1].1, true, false, 9)), None);
    case.clocks(60);
    let mut expected = Vec::from_iter((0..60).map(|i| begin + 2 * i));
    expected[31..].iter_mut().for_each(|clock| *clock += 2);
    expected[40..].iter_mut().for_each(|clock| *clock += 2);
    assert_eq!(case.taken, expected);
    assert_eq!(case.counts, [8, 0, 0, 0, 60, 60, 60]);
    case.bench.finish();
}

#[test]
fn heads_of_different_qps_are_taken_every_clock() {
    let mut case = Case::new("rx_key_check_mixed", Stalls::none(), Stalls::none());
    case.set_up();
    case.heads.extend((0..60).map(|psn| (Head { qpn: 1 + psn % 3, ..only(psn, 256) }, None)));
    let begin = case.bench.clock_count();
    case.clocks(64);
    assert_eq!(case.taken, Vec::from_iter(begin..begin + 60));
    case.bench.finish();
}

#[test]
fn a_reset_in_the_middle_forgets_what_is_under_way_and_all_tables() {
    let mut case = Case::new("rx_key_check_reset", Stalls::new(811), Stalls::new(812));
    let mut peer = Peer { random: Stalls::new(813) };
    case.set_up();
    case.traffic(&mut peer, 40);
    let before = case.tables.clone();
    (case.pace, case.go) = (Stalls::none(), Stalls::none());
    // Heads at full rate in every stage, and a start that has just been asked for.
    for clocks in [5, 7] {
        case.heads.extend((0..9).map(|psn| (only(psn, 256), None)));
        case.clocks(clocks);
        case.clock(Some((2, QPS[1].1, false, true, 9)), None);
        assert!(case.start.is_some() && !case.due.is_empty());
        case.reset();
        case.heads.clear();
        case.is_offered = false;
        case.clocks(6);
    }
    // What was good before is of no QP now.
    case.counts = [0; 7];
    for _ in 0..40 {
        case.heads.push_back(peer.plan(&before));
        case.clocks(3);
    }
    case.clocks(6);
    assert_eq!(case.counts, [0, 40, 0, 0, 0, 0, 0]);
    // A QP alone finds no region, and a region gets a number that was not there before.
    case.clock(Some((1, QPS[0].1, false, true, 5)), None);
    case.heads.extend((0..3).map(|i| (Head { rkey: before.mrs[i].tag as u32 | (i as u32) << 8, ..only(5, 256) }, None)));
    case.clocks(16);
    assert_eq!(case.counts, [1, 40, 0, 0, 3, 3, 0]);
    case.set_up();
    (case.pace, case.go) = (Stalls::new(814), Stalls::new(815));
    case.traffic(&mut peer, 200);
    case.clocks(8);
    assert!(case.due.is_empty() && case.counts[6] >= 8, "{:?}", case.counts);
    case.bench.finish();
}
