//! Segmentation against a model, in turns, with keys that go away, and sending again from any packet.

use super::*;
use crate::testing::{Bench, Driver, Monitor, Stalls};
use queue::{CqeStatus, QpState};

fn write(qpn: u64, start_tx: bool, state: QpState, psn: u64) -> QpWrite {
    let context = QpContext { state: (state as u64).into(), sq_psn: psn.into(), ..Default::default() };
    QpWrite { valid: true, qpn: qpn.into(), start_tx, context, ..Default::default() }
}

fn set(bench: &mut Bench<Segment>, change: QpWrite) {
    bench.uut.qp_write.next = change;
    bench.cycles(1);
    bench.uut.qp_write.next = QpWrite::default();
}

fn reset(bench: &mut Bench<Segment>) {
    bench.uut.head.valid.next = false;
    bench.uut.piece.valid.next = false;
    bench.uut.halt.valid.next = false;
    bench.uut.restart.valid.next = false;
    bench.uut.retired.next = Retired::default();
    bench.uut.reset.next = true;
    bench.cycles(2);
    bench.uut.reset.next = false;
}

/// In this model the upper bits of an address tell whether the piece is inline data.
fn is_inline(addr: u64) -> bool {
    addr >> 62 == 3
}

fn piece((addr, len): (u64, u64)) -> Piece {
    Piece { is_inline: is_inline(addr), addr: addr.into(), len: len.into() }
}

/// Requests, and what they are to become.
struct Work {
    heads: Vec<WqeHead>,
    pieces: Vec<Piece>,
    descs: Vec<PacketDesc>,
    gathers: Vec<GatherReq>,
    issues: Vec<Issue>,
    psn: [u64; 4],
    index: [u64; 4],
    is_dead: [bool; 4],
    /// The last request asked for an acknowledgement.
    asked: [bool; 4],
    /// Clocks that the requests take.
    clocks: usize,
}

impl Work {
    fn new(psn: [u64; 4]) -> Self {
        Self {
            heads: vec![],
            pieces: vec![],
            descs: vec![],
            gathers: vec![],
            issues: vec![],
            psn,
            index: [0; 4],
            is_dead: [false; 4],
            asked: [true; 4],
            clocks: 0,
        }
    }

    fn add(&mut self, qpn: usize, mtu_code: u64, header_len: u64, status: CqeStatus, pieces: &[(u64, u64)]) {
        let len: u64 = pieces.iter().map(|piece| piece.1).sum();
        let i = self.heads.len() as u64;
        let head = WqeHead {
            qpn: (qpn as u64).into(),
            index: self.index[qpn].into(),
            signaled: i % 2 == 0,
            asks_ack: i % 4 < 3,
            solicited: i % 3 == 0,
            status: (status as u64).into(),
            pieces: (pieces.len() as u64).into(),
            len: (len & 0xFFFF_FFFF).into(),
            remote_va: (i << 33 | 5).into(),
            rkey: (i * 99).into(),
            mtu: mtu_code.into(),
            header_len: header_len.into(),
        };
        self.index[qpn] += 1;
        self.heads.push(head);
        self.pieces.extend(pieces.iter().copied().map(piece));
        self.clocks += 1;
        let issue = |last_psn: u64| Issue {
            qpn: head.qpn,
            index: head.index,
            last_psn: (last_psn & 0xFF_FFFF).into(),
            signaled: head.signaled,
            status: head.status,
            is_unasked: false,
        };
        if self.is_dead[qpn] || head.status.any() {
            if !self.is_dead[qpn] {
                self.issues.push(Issue { is_unasked: !self.asked[qpn], ..issue(self.psn[qpn] + 0xFF_FFFF) });
            }
            self.is_dead[qpn] = true;
            for (addr, len) in pieces.iter().copied().filter(|(addr, _)| is_inline(*addr)) {
                let (addr, len) = (addr.into(), (len % 8192).into());
                self.gathers.push(GatherReq { is_inline: true, is_void: true, addr, len, ..Default::default() });
            }
            self.descs.push(PacketDesc { qpn: head.qpn, is_void: true, ends_request: true, ..Default::default() });
            return;
        }
        self.asked[qpn] = head.asks_ack;
        let mtu = 128 << mtu_code;
        let count = len.div_ceil(mtu).max(1);
        self.issues.push(issue(self.psn[qpn] + count - 1));
        let mut pieces = pieces.iter().copied();
        let mut piece = (0, 0);
        for packet in 0..count {
            let (is_first, is_last) = (packet == 0, packet == count - 1);
            let packet_len = (len - packet * mtu).min(mtu);
            let psn = self.psn[qpn];
            self.psn[qpn] = (psn + 1) & 0xFF_FFFF;
            let opcode = match (is_first, is_last) {
                (true, true) => wire::Opcode::WriteOnly,
                (true, false) => wire::Opcode::WriteFirst,
                (false, true) => wire::Opcode::WriteLast,
                _ => wire::Opcode::WriteMiddle,
            };
            self.descs.push(PacketDesc {
                qpn: head.qpn,
                opcode: (opcode as u64).into(),
                solicited: head.solicited && is_last,
                ack_req: is_last && head.asks_ack || psn % 64 == 63,
                psn: psn.into(),
                va: head.remote_va,
                rkey: head.rkey,
                dma_len: head.len,
                has_reth: is_first,
                has_aeth: false,
                len: packet_len.into(),
                is_void: false,
                ends_request: is_last,
            });
            let (mut left, mut is_first_part) = (packet_len, true);
            while left > 0 {
                if piece.1 == 0 {
                    piece = pieces.next().unwrap();
                }
                let part = left.min(piece.1);
                left -= part;
                self.gathers.push(GatherReq {
                    is_inline: is_inline(piece.0),
                    is_void: false,
                    addr: piece.0.into(),
                    len: part.into(),
                    first: is_first_part,
                    offset: ((header_len + if is_first { 16 } else { 0 }) % 64).into(),
                    last: left == 0,
                });
                piece = (piece.0 + part, piece.1 - part);
                is_first_part = false;
                self.clocks += 1;
            }
            self.clocks += usize::from(packet_len == 0);
        }
    }

    /// Requests of four queue pairs, with pieces shorter, as long, and longer than a packet.
    fn random(seed: u64, count: usize, psn: [u64; 4]) -> Self {
        let mut random = Stalls::new(seed);
        let mut work = Self::new(psn);
        for _ in 0..count {
            let mtu_code = 1 + random.random() % 2;
            let mtu = 128 << mtu_code;
            let pieces: Vec<_> = (0..random.random() % 7)
                .map(|_| {
                    let len = match random.random() % 5 {
                        0 => mtu,
                        1 => mtu + 1 - random.random() % 3,
                        2 => 1 + random.random() % 3,
                        3 => 2 * mtu + random.random() % mtu,
                        _ => 1 + random.random() % mtu,
                    };
                    (random.random() << 10, len)
                })
                .collect();
            let status = [CqeStatus::LocalProtection, CqeStatus::LocalOperation, CqeStatus::LocalLength][random.random() as usize % 3];
            let status = if random.random() % 16 == 0 { status } else { CqeStatus::Success };
            work.add(random.random() as usize % 4, mtu_code, [54, 58, 74, 78][random.random() as usize % 4], status, &pieces);
        }
        work
    }
}

/// What stands on the streams of the block.
struct Sides {
    head: Driver<WqeHead>,
    piece: Driver<Piece>,
    desc: Monitor<PacketDesc>,
    gather: Monitor<GatherReq>,
    issue: Monitor<Issue>,
    rewind: Monitor<Rewind>,
    refused: usize,
    first: Option<u64>,
}

impl Sides {
    fn new(work: &Work, stalls: impl Fn(u64) -> Stalls) -> Self {
        Self {
            head: Driver::new(work.heads.iter().copied(), stalls(10)),
            piece: Driver::new(work.pieces.iter().copied(), stalls(20)),
            desc: Monitor::new(stalls(30)),
            gather: Monitor::new(stalls(40)),
            issue: Monitor::new(stalls(50)),
            rewind: Monitor::new(stalls(60)),
            refused: 0,
            first: None,
        }
    }

    fn clock(&mut self, bench: &mut Bench<Segment>) {
        self.head.before(&mut bench.uut.head);
        self.piece.before(&mut bench.uut.piece);
        self.desc.before(&mut bench.uut.desc);
        self.gather.before(&mut bench.uut.gather);
        self.issue.before(&mut bench.uut.issue);
        self.rewind.before(&mut bench.uut.rewind);
        bench.settle();
        self.head.after(&bench.uut.head);
        self.piece.after(&bench.uut.piece);
        self.desc.after(&bench.uut.desc);
        self.gather.after(&bench.uut.gather);
        self.issue.after(&bench.uut.issue);
        self.rewind.after(&bench.uut.rewind);
        self.refused += usize::from(bench.uut.refused.val());
        self.first = self.first.or(bench.uut.desc.valid.val().then_some(bench.clock_count()));
        bench.edge();
    }

    fn is_done(&self, work: &Work) -> bool {
        self.desc.got.len() == work.descs.len() && self.gather.got.len() == work.gathers.len() && self.issue.got.len() == work.issues.len()
    }

    fn check(&self, work: &Work) {
        assert!(self.head.is_done() && self.piece.is_done(), "pieces of refused requests are thrown away");
        for (got, expected) in self.desc.got.iter().zip(&work.descs) {
            if expected.is_void {
                assert_eq!((got.is_void, got.ends_request, got.len, got.qpn), (true, true, 0u64.into(), expected.qpn));
            } else {
                assert_eq!(got, expected);
            }
        }
        assert_eq!(self.gather.got.len(), work.gathers.len());
        for (got, expected) in self.gather.got.iter().zip(&work.gathers) {
            if expected.is_void {
                assert_eq!((got.is_void, got.is_inline, got.len, got.last), (true, true, expected.len, false));
            } else {
                assert_eq!(got, expected);
            }
        }
        assert_eq!(self.issue.got, work.issues);
        assert_eq!(self.rewind.got, [], "no turn ends while nobody waits");
    }
}

#[test]
fn requests_become_packets_parts_and_issues_as_a_model_says_under_random_stalls() {
    let mut bench = Bench::new("tx_segment", Segment::default(), |uut| &mut uut.clock);
    reset(&mut bench);
    for seed in 1..5 {
        let psn = [0xFF_FFFC, 0xFF_FFFF, 0x3D, 0];
        let work = Work::random(seed, 70, psn);
        let refused = work.issues.iter().filter(|issue| issue.status.any()).count();
        assert!(refused > 0, "some queue pair dies");
        for limit in [100 + seed, 6000] {
            // A start gives a dead queue pair its life back.
            for (qpn, psn) in psn.iter().enumerate() {
                set(&mut bench, write(qpn as u64, true, QpState::Rts, *psn));
                bench.cycles(1);
            }
            let mut sides = Sides::new(&work, |n| Stalls::new(seed + n + limit));
            let stop = bench.clock_count() + limit;
            while bench.clock_count() < stop && !sides.is_done(&work) {
                sides.clock(&mut bench);
            }
            if limit == 6000 {
                assert!(bench.clock_count() < stop, "a request hangs");
                (0..3).for_each(|_| sides.clock(&mut bench));
                sides.check(&work);
                assert_eq!(sides.refused, refused);
                for qpn in 0..4u64 {
                    bench.uut.query_qpn.next = qpn.into();
                    bench.cycles(1);
                    assert_eq!(bench.uut.query_next_psn.val(), work.psn[qpn as usize]);
                }
            }
            reset(&mut bench);
        }
    }
    bench.finish();
}

#[test]
fn a_request_of_one_part_takes_two_clocks_and_every_other_part_one_more() {
    let mut bench = Bench::new("tx_segment_rate", Segment::default(), |uut| &mut uut.clock);
    for pieces in [vec![(0, 64)], vec![], vec![(0, 256)], vec![(0, 10), (99, 20)], vec![(0, 257)], vec![(0, 100), (500, 600), (2000, 1)]] {
        reset(&mut bench);
        set(&mut bench, write(2, true, QpState::Rts, 0));
        bench.cycles(1);
        let mut work = Work::new([0; 4]);
        (0..30).for_each(|_| work.add(2, 1, 54, CqeStatus::Success, &pieces));
        let mut sides = Sides::new(&work, |_| Stalls::none());
        let start = bench.clock_count();
        while !sides.is_done(&work) {
            sides.clock(&mut bench);
            assert!(bench.clock_count() < start + 1000, "a request hangs");
        }
        sides.check(&work);
        assert_eq!((bench.clock_count() - start) as usize, work.clocks + 2);
        if pieces.len() == 1 && pieces[0].1 == 64 {
            assert_eq!(work.clocks, 60);
            assert_eq!(sides.first, Some(start + 3));
        }
    }
    bench.finish();
}

#[test]
fn a_halted_or_stopped_queue_pair_sends_nothing_more_until_it_starts_again() {
    let mut bench = Bench::new("tx_segment_halt", Segment::default(), |uut| &mut uut.clock);
    reset(&mut bench);
    for is_command in [false, true] {
        for qpn in 0..4 {
            set(&mut bench, write(qpn, true, QpState::Rts, 0x20 + qpn));
            bench.cycles(1);
        }
        let mut work = Work::new([0x20, 0x21, 0x22, 0x23]);
        let requests = |work: &mut Work| {
            for i in 0..8 {
                work.add(i % 4, 1, 54, CqeStatus::Success, &[(64 * i as u64, 300), (9000, 3)]);
            }
        };
        requests(&mut work);
        let mut sides = Sides::new(&work, |_| Stalls::none());
        while !sides.is_done(&work) {
            sides.clock(&mut bench);
        }
        sides.check(&work);
        // The death comes in the clock in which the first request would be taken, and is taken before it.
        let mut work = Work {
            heads: vec![],
            pieces: vec![],
            descs: vec![],
            gathers: vec![],
            issues: vec![],
            is_dead: [true, false, false, false],
            ..work
        };
        requests(&mut work);
        let mut sides = Sides::new(&work, |_| Stalls::none());
        if is_command {
            set(&mut bench, write(0, false, QpState::Error, 0));
        } else {
            bench.uut.halt.data.next = 0u64.into();
            bench.uut.halt.valid.next = true;
        }
        sides.clock(&mut bench);
        bench.uut.halt.valid.next = false;
        while !sides.is_done(&work) {
            sides.clock(&mut bench);
        }
        (0..3).for_each(|_| sides.clock(&mut bench));
        sides.check(&work);
    }
    bench.finish();
}

#[test]
fn commands_and_deaths_are_taken_while_a_request_waits_for_its_pieces() {
    let mut bench = Bench::new("tx_segment_wait", Segment::default(), |uut| &mut uut.clock);
    reset(&mut bench);
    set(&mut bench, write(3, true, QpState::Rts, 7));
    bench.cycles(1);
    // A request of two packets, the piece of the second late.
    let mut work = Work::new([0, 0, 0, 7]);
    work.add(3, 1, 54, CqeStatus::Success, &[(0, 256), (0x1000, 10)]);
    let mut sides = Sides::new(&work, |_| Stalls::none());
    let late = sides.piece.queue.pop_back().unwrap();
    (0..10).for_each(|_| sides.clock(&mut bench));
    assert_eq!(sides.desc.got.len(), 1);
    for qpn in 0..8u64 {
        set(&mut bench, write(10 + qpn, true, QpState::Rts, 0x100 + qpn));
        bench.cycles(1);
    }
    bench.uut.halt.data.next = 0u64.into();
    bench.uut.halt.valid.next = true;
    bench.settle();
    assert!(bench.uut.halt.ready.val(), "a death does not wait for host memory");
    bench.cycles(1);
    bench.uut.halt.valid.next = false;
    for qpn in 0..8u64 {
        bench.uut.query_qpn.next = (10 + qpn).into();
        bench.cycles(1);
        assert_eq!(bench.uut.query_next_psn.val(), 0x100 + qpn);
    }
    sides.piece.queue.push_back(late);
    (0..10).for_each(|_| sides.clock(&mut bench));
    sides.check(&work);
    bench.finish();
}

/// A queue pair with long messages against the scheduler's side of the contract.
struct Sender {
    /// Pieces of each request.
    requests: Vec<Vec<(u64, u64)>>,
    mtu_code: u64,
}

impl Sender {
    fn head(&self, qpn: u64, index: usize, status: CqeStatus) -> WqeHead {
        let pieces = &self.requests[index];
        WqeHead {
            qpn: qpn.into(),
            index: (index as u64).into(),
            signaled: true,
            asks_ack: true,
            status: (status as u64).into(),
            pieces: (pieces.len() as u64).into(),
            len: pieces.iter().map(|piece| piece.1).sum::<u64>().into(),
            remote_va: (qpn << 40 | index as u64).into(),
            mtu: self.mtu_code.into(),
            header_len: 54u64.into(),
            ..Default::default()
        }
    }
}

/// Lets senders take turns as the scheduler does: what a rewind names comes behind what is fetched already. A resumed
/// request of queue pair `spoilt` fails. Returns descriptors, parts, issues, and rewinds.
fn take_turns(
    bench: &mut Bench<Segment>,
    senders: &[Sender],
    seed: u64,
    spoilt: Option<u64>,
) -> (Vec<PacketDesc>, Vec<GatherReq>, Vec<Issue>, Vec<Rewind>) {
    reset(bench);
    for qpn in 0..senders.len() as u64 {
        set(bench, write(qpn, true, QpState::Rts, 0xFF_FFF0 + qpn));
    }
    bench.uut.others_wait.next = true;
    let empty = Work::new([0; 4]);
    let mut sides = Sides::new(&empty, |n| if seed == 0 { Stalls::none() } else { Stalls::new(seed + n) });
    let fetch = |sides: &mut Sides, qpn: u64, indices: std::ops::Range<usize>, is_again: bool| {
        for index in indices {
            let is_spoilt = is_again && spoilt == Some(qpn);
            let status = if is_spoilt { CqeStatus::LocalProtection } else { CqeStatus::Success };
            let sender = &senders[qpn as usize];
            sides.head.queue.push_back(sender.head(qpn, index, status));
            sides.piece.queue.extend(sender.requests[index].iter().copied().map(piece));
        }
    };
    for (qpn, sender) in senders.iter().enumerate() {
        fetch(&mut sides, qpn as u64, 0..sender.requests.len(), false);
    }
    let (mut seen, mut quiet, mut count) = (0, 0, 0);
    while quiet < 200 {
        sides.clock(bench);
        let events = sides.desc.got.len() + sides.gather.got.len() + sides.rewind.got.len();
        quiet = if events == count { quiet + 1 } else { 0 };
        count = events;
        while let Some(rewind) = sides.rewind.got.get(seen).copied() {
            let (qpn, index) = (rewind.qpn.to_u64(), rewind.index.index());
            let all = senders[qpn as usize].requests.len();
            fetch(&mut sides, qpn, index..if rewind.is_long { index + 1 } else { all }, rewind.is_long);
            seen += 1;
        }
    }
    assert!(sides.head.is_done() && sides.piece.is_done());
    (sides.desc.got, sides.gather.got, sides.issue.got, sides.rewind.got)
}

/// Requests of 0 to 200 KiB in up to six pieces, long and short mixed.
fn senders(seed: u64) -> Vec<Sender> {
    let mut random = Stalls::new(seed);
    (0..3)
        .map(|_| {
            let requests = (0..5)
                .map(|_| {
                    let longest = [64, 5_000, 40_000][random.random() as usize % 3];
                    (0..random.random() % 7).map(|_| ((random.random() >> 2) & !0xF_FFFF, 1 + random.random() % longest)).collect()
                })
                .collect();
            Sender { requests, mtu_code: 3 + random.random() % 3 }
        })
        .collect()
}

#[test]
fn turns_end_when_others_wait_and_every_message_goes_on_where_it_stopped() {
    let mut bench = Bench::new("tx_segment_turns", Segment::default(), |uut| &mut uut.clock);
    let mut long = 0;
    for seed in 0..3 {
        let senders = senders(seed);
        let (descs, gathers, issues, rewinds) = take_turns(&mut bench, &senders, seed, None);
        long += rewinds.iter().filter(|rewind| rewind.is_long).count();
        for (qpn, sender) in senders.iter().enumerate() {
            let qpn = qpn as u64;
            // As without turns: a model that sends this queue pair alone.
            let mut model = Work::new([0; 4]);
            model.psn[qpn as usize] = 0xFF_FFF0 + qpn;
            for pieces in &sender.requests {
                model.add(qpn as usize, sender.mtu_code, 54, CqeStatus::Success, pieces);
            }
            let key = |desc: &PacketDesc| (desc.psn, desc.opcode, desc.len, desc.dma_len, desc.has_reth, desc.ends_request);
            let sent: Vec<_> = descs.iter().filter(|desc| desc.qpn == qpn && !desc.is_void).map(key).collect();
            assert_eq!(sent, model.descs.iter().map(key).collect::<Vec<_>>(), "seed {seed}, QP {qpn}");
            let issued: Vec<_> = issues.iter().filter(|issue| issue.qpn == qpn).map(|issue| (issue.index, issue.last_psn)).collect();
            assert_eq!(issued, model.issues.iter().map(|issue| (issue.index, issue.last_psn)).collect::<Vec<_>>());
            let places = |parts: &[GatherReq]| parts.iter().map(|part| (part.addr, part.len, part.first, part.offset, part.last)).collect();
            let wanted: Vec<_> = places(&model.gathers);
            let all: Vec<_> = places(&gathers);
            // Each queue pair has addresses of its own, so its parts can be told apart.
            let mine: Vec<_> = all.into_iter().filter(|part| wanted.contains(part)).collect();
            assert_eq!(mine, wanted);
        }
        // Nobody sends more than a turn in a row, but for the packet that fills it.
        let (mut last, mut row) = (99, 0);
        for desc in &descs {
            let qpn = desc.qpn.to_u64();
            row = if qpn == last && !desc.is_void { row } else { 0 };
            last = qpn;
            assert!(desc.is_void || row < limits::TURN_BYTES, "a turn of {row} bytes goes on");
            row += desc.len.index();
        }
        // Every request that was fetched comes out once as done or void.
        let ends = descs.iter().filter(|desc| desc.ends_request).count();
        let again: usize = rewinds
            .iter()
            .map(|rewind| {
                let all = senders[rewind.qpn.index()].requests.len();
                if rewind.is_long {
                    1
                } else {
                    all - rewind.index.index()
                }
            })
            .sum();
        assert_eq!(ends, 15 + again);
    }
    assert!(long > 10, "messages are interrupted, {long} times");
    bench.finish();
}

#[test]
fn a_message_whose_key_is_taken_away_in_its_middle_fails_behind_what_was_sent() {
    let mut bench = Bench::new("tx_segment_spoilt", Segment::default(), |uut| &mut uut.clock);
    let long = || vec![vec![(0, 50_000)], vec![(0, 64)]];
    let senders = [Sender { requests: long(), mtu_code: 5 }, Sender { requests: long(), mtu_code: 5 }];
    let (descs, _, issues, _) = take_turns(&mut bench, &senders, 0, Some(0));
    let sent = descs.iter().filter(|desc| desc.qpn == 0u64 && !desc.is_void).count();
    assert_eq!(sent, limits::TURN_BYTES / 4096);
    let of_first: Vec<_> = issues.iter().filter(|issue| issue.qpn == 0u64).map(|issue| (issue.index, issue.status.to_u64())).collect();
    assert_eq!(of_first, [(0u64.into(), 0), (0u64.into(), CqeStatus::LocalProtection as u64)]);
    let last = issues.iter().rfind(|issue| issue.qpn == 0u64).unwrap();
    assert_eq!(last.last_psn, 0xFF_FFF0 + sent as u64 - 1, "the PSN of the last packet that was sent");
    assert_eq!(descs.iter().filter(|desc| desc.qpn == 1u64 && desc.ends_request && !desc.is_void).count(), 2, "the other goes on");
    bench.finish();
}

/// What became of a queue pair's packets, by what a peer would have taken.
struct Peer {
    first_psn: u64,
    /// What it is to get: packets with the parts of their payload.
    packets: Vec<(PacketDesc, Vec<GatherReq>)>,
    /// Last PSNs of the requests, from the first PSN on.
    ends: Vec<u64>,
    taken: u64,
    /// Of `taken`, so many are acknowledged.
    unacked: u64,
}

impl Peer {
    fn new(qpn: usize, sender: &Sender, first_psn: u64) -> Self {
        let mut model = Work::new([0; 4]);
        model.psn[qpn] = first_psn;
        let (mut packets, mut ends) = (vec![], vec![]);
        for (index, pieces) in sender.requests.iter().enumerate() {
            model.add(qpn, sender.mtu_code, 54, CqeStatus::Success, pieces);
            let head = sender.head(qpn as u64, index, CqeStatus::Success);
            let mut parts = model.gathers.drain(..);
            for desc in model.descs.drain(..) {
                let desc = PacketDesc { va: head.remote_va, rkey: head.rkey, ..desc };
                let mut of_packet = vec![];
                while desc.len.any() && of_packet.last().is_none_or(|part: &GatherReq| !part.last) {
                    of_packet.push(parts.next().unwrap());
                }
                packets.push((desc, of_packet));
            }
            ends.push(packets.len() as u64 - 1);
        }
        Self { first_psn, packets, ends, taken: 0, unacked: 0 }
    }

    /// Takes a packet, unless it is lost, and checks it either way.
    fn take(&mut self, desc: &PacketDesc, parts: &[GatherReq], is_lost: bool) {
        let at = (desc.psn.to_u64().wrapping_sub(self.first_psn) & 0xFF_FFFF) as usize;
        let (wanted, wanted_parts) = &self.packets[at];
        let key = |desc: &PacketDesc| (desc.psn, desc.opcode, desc.va, desc.rkey, desc.dma_len, desc.has_reth, desc.len, desc.ends_request);
        assert_eq!(key(desc), key(wanted));
        assert_eq!(parts, wanted_parts, "the parts of PSN {:?}", desc.psn);
        self.taken += u64::from(at as u64 == self.taken && !is_lost);
    }

    /// Returns the index of the oldest request that is not done.
    fn oldest(&self) -> usize {
        self.ends.iter().take_while(|end| **end < self.unacked).count()
    }

    fn psn(&self, at: u64) -> Bits<24> {
        ((self.first_psn + at) & 0xFF_FFFF).into()
    }
}

#[test]
fn lost_packets_are_sent_again_from_where_it_is_said_and_slots_of_done_requests_may_hold_anything() {
    let mut bench = Bench::new("tx_segment_restart", Segment::default(), |uut| &mut uut.clock);
    let (mut restarts, mut early, mut stale) = (0, 0, 0);
    for seed in 1..19 {
        let senders = senders(seed);
        reset(&mut bench);
        let mut random = Stalls::new(100 + seed);
        let psn = |qpn: u64| 0xFF_FFE0 + qpn;
        for qpn in 0..senders.len() as u64 {
            bench.uut.retired.next = Retired { valid: true, qpn: qpn.into(), index: 0u64.into(), psn: psn(qpn).into() };
            set(&mut bench, write(qpn, true, QpState::Rts, psn(qpn)));
        }
        bench.uut.others_wait.next = seed % 2 == 0;
        let mut peers: Vec<_> = senders.iter().enumerate().map(|(qpn, sender)| Peer::new(qpn, sender, psn(qpn as u64))).collect();
        let empty = Work::new([0; 4]);
        let mut sides = Sides::new(&empty, |n| if seed % 3 == 0 { Stalls::new(seed + n) } else { Stalls::none() });
        let mut restart = Driver::new([], Stalls::none());
        let mut retired = std::collections::VecDeque::new();
        // Slots of requests before these may be in use anew.
        let mut told = [0; 3];
        let (mut descs, mut parts, mut rewinds, mut quiet, mut count) = (0, 0, 0, 0, 0);
        let mut to_fetch: Vec<(u64, usize, usize)> = senders.iter().enumerate().map(|(qpn, s)| (qpn as u64, 0, s.requests.len())).collect();
        let start = bench.clock_count();
        while peers.iter().any(|peer| peer.unacked as usize != peer.packets.len()) {
            assert!(bench.clock_count() < start + 200_000, "a packet never comes");
            // The host: a slot whose request is done holds another one.
            let arrives = random.random() % 16 == 0;
            for (qpn, from, to) in to_fetch.drain(..if arrives { to_fetch.len() } else { 0 }) {
                for index in from..to {
                    let is_stale = index < told[qpn as usize];
                    let mut head = senders[qpn as usize].head(qpn, index, CqeStatus::Success);
                    let mut pieces = senders[qpn as usize].requests[index].clone();
                    stale += usize::from(is_stale);
                    if is_stale {
                        pieces = (0..random.random() % 7).map(|n| (n << 20, 1 + random.random() % 20_000)).collect();
                        head.pieces = (pieces.len() as u64).into();
                        head.len = pieces.iter().map(|piece| piece.1).sum::<u64>().into();
                        head.remote_va = random.random().into();
                        head.status = (random.random() % 2 * CqeStatus::LocalProtection as u64).into();
                    }
                    sides.head.queue.push_back(head);
                    sides.piece.queue.extend(pieces.into_iter().map(piece));
                }
            }
            let done: Retired = retired.pop_front().unwrap_or_default();
            told[done.qpn.index()] = told[done.qpn.index()].max(done.index.index());
            bench.uut.retired.next = done;
            restart.before(&mut bench.uut.restart);
            bench.settle();
            restart.after(&bench.uut.restart);
            sides.clock(&mut bench);
            // The peer.
            while let Some(desc) = sides.desc.got.get(descs).copied() {
                let sent: Vec<_> = sides.gather.got[parts..].iter().take_while(|part| !part.last).copied().collect();
                let all = parts + sent.len();
                if !desc.is_void && desc.len.any() {
                    let Some(last) = sides.gather.got.get(all).copied() else { break };
                    let of_packet: Vec<_> = sent.into_iter().chain([last]).collect();
                    parts = all + 1;
                    peers[desc.qpn.index()].take(&desc, &of_packet, random.random() % 12 == 0);
                } else if !desc.is_void {
                    peers[desc.qpn.index()].take(&desc, &[], random.random() % 12 == 0);
                }
                descs += 1;
            }
            // The scheduler.
            while let Some(rewind) = sides.rewind.got.get(rewinds).copied() {
                let (qpn, index) = (rewind.qpn.to_u64(), rewind.index.index());
                let all = senders[qpn as usize].requests.len();
                to_fetch.push((qpn, index, if rewind.is_long { index + 1 } else { all }));
                rewinds += 1;
            }
            // The requester: acknowledgements by chance, at any time; restarts when it is quiet, and sometimes too early.
            let events = sides.desc.got.len() + sides.rewind.got.len();
            quiet = if events == count { quiet + 1 } else { 0 };
            count = events;
            let is_quiet = quiet > 60;
            if random.random() % 20 == 0 || is_quiet {
                for (qpn, peer) in peers.iter_mut().enumerate() {
                    let issued = sides.issue.got.iter().filter(|issue| issue.qpn == qpn as u64).count();
                    let is_early = random.random() % 8 == 0;
                    // Late acknowledgements come behind the restart, the others in front of it.
                    for is_late in [false, true] {
                        let (before, news) = (peer.oldest(), peer.taken - peer.unacked);
                        peer.unacked += if is_quiet { news } else { random.random() % (news + 1) };
                        for index in before..peer.oldest() {
                            let (psn, index) = (peer.psn(peer.ends[index] + 1), (index as u64 + 1).into());
                            retired.push_back(Retired { valid: true, qpn: (qpn as u64).into(), index, psn });
                        }
                        let oldest = peer.oldest();
                        if !is_late && (is_quiet || is_early) && restart.is_done() && oldest < issued {
                            restart.queue.push_back(Restart {
                                qpn: (qpn as u64).into(),
                                index: (oldest as u64).into(),
                                psn: peer.psn(peer.unacked),
                                end_psn: peer.psn(peer.ends[oldest] + 1),
                            });
                            restarts += 1;
                            early += usize::from(is_early);
                        }
                    }
                }
                quiet = 0;
            }
        }
        (0..400).for_each(|_| sides.clock(&mut bench));
        for (qpn, peer) in peers.iter().enumerate() {
            let issued: Vec<_> = sides.issue.got.iter().filter(|issue| issue.qpn == qpn as u64).collect();
            assert_eq!(issued.len(), peer.ends.len(), "each request is issued once");
            for (index, (issue, end)) in issued.iter().zip(&peer.ends).enumerate() {
                assert_eq!((issue.index.index(), issue.last_psn, issue.status.any()), (index, peer.psn(*end), false));
            }
        }
    }
    assert!(restarts > 30 && early > 10 && stale > 5, "{restarts} restarts, {early} of them early, {stale} slots used anew");
    bench.finish();
}

/// Gives one restart, as soon as it is taken.
fn restart(bench: &mut Bench<Segment>, sides: &mut Sides, again: Restart) {
    bench.uut.restart.data.next = again;
    bench.uut.restart.valid.next = true;
    loop {
        bench.settle();
        let is_taken = bench.uut.restart.ready.val();
        sides.clock(bench);
        if is_taken {
            break;
        }
    }
    bench.uut.restart.valid.next = false;
}

#[test]
fn what_is_before_a_refused_request_is_sent_again_asks_and_the_refused_one_stays_refused() {
    let mut bench = Bench::new("tx_segment_before", Segment::default(), |uut| &mut uut.clock);
    reset(&mut bench);
    set(&mut bench, write(2, true, QpState::Rts, 10));
    let mut work = Work::new([10; 4]);
    // Requests 0 to 2, of which the last does not ask; 3 is refused, 4 is not due any more.
    for (len, status) in [(300, CqeStatus::Success), (5, CqeStatus::Success), (6, CqeStatus::Success)] {
        work.add(2, 1, 54, status, &[(0, len)]);
    }
    work.heads.iter_mut().for_each(|head| head.asks_ack = false);
    work.descs.iter_mut().for_each(|desc| desc.ack_req = false);
    work.asked[2] = false;
    work.add(2, 1, 54, CqeStatus::LocalProtection, &[]);
    work.add(2, 1, 54, CqeStatus::Success, &[(0, 8)]);
    let mut sides = Sides::new(&work, |_| Stalls::none());
    let mut asked = vec![];
    while !sides.is_done(&work) {
        sides.clock(&mut bench);
        asked.extend(bench.uut.asked.val().valid.then(|| bench.uut.asked.val().psn.to_u64()));
    }
    sides.check(&work);
    assert_eq!(asked.last(), Some(&15), "what was sent is waited for, though no packet has asked");
    assert!(work.issues.last().unwrap().is_unasked);
    // From the middle of request 0 on. The slot of the refused one may hold a good request by now.
    let before = (sides.desc.got.len(), sides.issue.got.len(), sides.rewind.got.len());
    restart(&mut bench, &mut sides, Restart { qpn: 2u64.into(), index: 0u64.into(), psn: 11u64.into(), end_psn: 12u64.into() });
    for (index, head) in work.heads.iter().enumerate() {
        let head = WqeHead { status: 0u64.into(), pieces: 1u64.into(), len: work.heads[index].len.to_u64().max(3).into(), ..*head };
        sides.head.queue.push_back(head);
        sides.piece.queue.push_back(piece((0, head.len.to_u64())));
    }
    (0..60).for_each(|_| sides.clock(&mut bench));
    let again: Vec<_> = sides.desc.got[before.0..].iter().filter(|desc| !desc.is_void).collect();
    assert_eq!(again.iter().map(|desc| (desc.psn.to_u64(), desc.ack_req)).collect::<Vec<_>>(), [(11, true), (12, true), (13, true)]);
    assert_eq!(sides.desc.got.len() - before.0, 5, "each request comes out once");
    assert_eq!((sides.issue.got.len(), sides.rewind.got.len()), (before.1, before.2 + 1));
    bench.uut.query_qpn.next = 2u64.into();
    bench.cycles(1);
    assert_eq!(bench.uut.query_next_psn.val(), 14u64);
    bench.finish();
}

#[test]
fn a_request_that_can_not_be_sent_again_is_looked_at_until_it_is_done() {
    let mut bench = Bench::new("tx_segment_taken", Segment::default(), |uut| &mut uut.clock);
    reset(&mut bench);
    set(&mut bench, write(2, true, QpState::Rts, 10));
    let mut work = Work::new([10; 4]);
    // The second one has three packets.
    let lens = [100, 600, 100];
    lens.iter().for_each(|len| work.add(2, 1, 54, CqeStatus::Success, &[(0, *len)]));
    let mut sides = Sides::new(&work, |_| Stalls::none());
    while !sides.is_done(&work) {
        sides.clock(&mut bench);
    }
    sides.check(&work);
    restart(&mut bench, &mut sides, Restart { qpn: 2u64.into(), index: 0u64.into(), psn: 10u64.into(), end_psn: 11u64.into() });
    // The key of request 1 was taken away.
    let bad = WqeHead { status: (CqeStatus::LocalProtection as u64).into(), pieces: 0u64.into(), ..work.heads[1] };
    let (sent, rewound) = (sides.desc.got.len(), sides.rewind.got.len());
    for head in [work.heads[0], bad, work.heads[2], bad, work.heads[2], bad] {
        sides.head.queue.push_back(head);
        sides.piece.queue.extend((0..head.pieces.to_u64()).map(|_| piece((0, head.len.to_u64()))));
    }
    let mut asked = vec![];
    for _ in 0..80 {
        sides.clock(&mut bench);
        asked.extend(bench.uut.asked.val().valid.then(|| bench.uut.asked.val().psn.to_u64()));
    }
    let psns =
        |sides: &Sides| -> Vec<u64> { sides.desc.got[sent..].iter().filter(|desc| !desc.is_void).map(|desc| desc.psn.to_u64()).collect() };
    assert_eq!(psns(&sides), [10]);
    assert_eq!((sides.issue.got.len(), sides.refused), (3, 0), "it is issued already, and nobody is told anything else");
    let looks: Vec<_> = sides.rewind.got[rewound..].iter().map(|rewind| (rewind.index.to_u64(), rewind.is_long)).collect();
    assert_eq!(looks, [(0, false), (1, false), (1, false), (1, false)]);
    assert_eq!(asked, [11, 14, 14, 14], "the timer goes on until all of it is acknowledged");
    // A late acknowledgement of it: what is behind goes on.
    bench.uut.retired.next = Retired { valid: true, qpn: 2u64.into(), index: 2u64.into(), psn: 14u64.into() };
    sides.clock(&mut bench);
    bench.uut.retired.next = Retired::default();
    for head in [bad, work.heads[2]] {
        sides.head.queue.push_back(head);
        sides.piece.queue.extend((0..head.pieces.to_u64()).map(|_| piece((0, head.len.to_u64()))));
    }
    (0..40).for_each(|_| sides.clock(&mut bench));
    assert_eq!(psns(&sides), [10, 14]);
    bench.finish();
}

#[test]
fn a_request_that_is_done_while_it_is_sent_again_ends_with_the_packet() {
    let mut bench = Bench::new("tx_segment_ended", Segment::default(), |uut| &mut uut.clock);
    reset(&mut bench);
    set(&mut bench, write(2, true, QpState::Rts, 10));
    let mut work = Work::new([10; 4]);
    work.add(2, 1, 54, CqeStatus::Success, &[(0, 25_600)]);
    work.add(2, 1, 54, CqeStatus::Success, &[(0, 7)]);
    let mut sides = Sides::new(&work, |_| Stalls::none());
    while !sides.is_done(&work) {
        sides.clock(&mut bench);
    }
    sides.check(&work);
    let sent = sides.desc.got.len();
    restart(&mut bench, &mut sides, Restart { qpn: 2u64.into(), index: 0u64.into(), psn: 10u64.into(), end_psn: 110u64.into() });
    for (head, len) in work.heads.iter().zip([25_600, 7]) {
        sides.head.queue.push_back(*head);
        sides.piece.queue.push_back(piece((0, len)));
    }
    (0..20).for_each(|_| sides.clock(&mut bench));
    bench.uut.retired.next = Retired { valid: true, qpn: 2u64.into(), index: 1u64.into(), psn: 110u64.into() };
    sides.clock(&mut bench);
    bench.uut.retired.next = Retired::default();
    (0..20).for_each(|_| sides.clock(&mut bench));
    let again: Vec<_> = sides.desc.got[sent..].iter().filter(|desc| !desc.is_void).map(|desc| desc.psn.to_u64()).collect();
    assert!(again.len() < 25 && again[..3] == [10, 11, 12], "{again:?}");
    assert_eq!(again.last(), Some(&110), "the one behind has its PSN");
    bench.finish();
}

#[test]
fn an_acknowledgement_is_waited_for_from_the_packet_that_asks_and_no_longer_at_a_restart() {
    let mut bench = Bench::new("tx_segment_asked", Segment::default(), |uut| &mut uut.clock);
    reset(&mut bench);
    set(&mut bench, write(2, true, QpState::Rts, 0x3E));
    let mut asked = vec![];
    let mut watch = |bench: &mut Bench<Segment>| {
        let told = bench.uut.asked.val();
        asked.extend(told.valid.then(|| (told.qpn.to_u64(), told.psn.to_u64())));
    };
    // Every 64th PSN asks, and the last packet of three requests in four.
    let mut work = Work::new([0; 4]);
    work.psn[2] = 0x3E;
    for len in [256, 512, 10, 700] {
        work.add(2, 1, 54, CqeStatus::Success, &[(0, len)]);
    }
    let mut sides = Sides::new(&work, |_| Stalls::none());
    while !sides.is_done(&work) {
        watch(&mut bench);
        sides.clock(&mut bench);
    }
    let again = Restart { qpn: 2u64.into(), index: 1u64.into(), psn: 0x3Fu64.into(), end_psn: 0x41u64.into() };
    bench.uut.restart.data.next = again;
    bench.uut.restart.valid.next = true;
    watch(&mut bench);
    bench.cycles(1);
    bench.uut.restart.valid.next = false;
    for _ in 0..3 {
        watch(&mut bench);
        bench.cycles(1);
    }
    let wanted: Vec<_> = work.descs.iter().filter(|desc| desc.ack_req).map(|desc| (2, desc.psn.to_u64() + 1)).collect();
    assert_eq!(wanted.len(), 4);
    assert_eq!(asked, [vec![(2, 0x3E)], wanted, vec![(2, 0x3F)]].concat());
    // In its slot there is a shorter request by now, though it is not done: nobody knows what to send, but nothing hangs.
    sides.head.queue.push_back(WqeHead { index: 1u64.into(), ..work.heads[2] });
    sides.piece.queue.push_back(work.pieces[2]);
    let before = sides.desc.got.len();
    (0..20).for_each(|_| sides.clock(&mut bench));
    let again = &sides.desc.got[before..];
    assert_eq!((again.len(), again[0].psn.to_u64(), again[0].len.to_u64(), again[0].ends_request), (1, 0x3F, 10, true));
    bench.finish();
}

#[test]
fn without_others_a_turn_has_no_end() {
    let mut bench = Bench::new("tx_segment_alone", Segment::default(), |uut| &mut uut.clock);
    reset(&mut bench);
    set(&mut bench, write(2, true, QpState::Rts, 0));
    let mut work = Work::new([0; 4]);
    (0..4).for_each(|_| work.add(2, 5, 54, CqeStatus::Success, &[(0, 100_000)]));
    let mut sides = Sides::new(&work, |_| Stalls::none());
    while !sides.is_done(&work) {
        sides.clock(&mut bench);
        assert!(bench.clock_count() < 1000, "a request hangs");
    }
    sides.check(&work);
    bench.finish();
}
