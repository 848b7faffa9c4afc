//! Whole messages through responder, scatter and gate, against host memory.

use super::*;
use crate::prim::{pack, unpack};
use crate::rx::samples::{wire, Head, Mr, Qp};
use crate::testing::{Bench, Driver, Monitor, Stalls};
use verbena_abi::limits;

const BASE: u64 = 0x4000;
const DELTA: u64 = 0x1_0000_0040;
const QPN: u32 = 17;
const RKEY: u32 = 700 << 8 | 0xAB;
const PSN: u32 = 0xFF_FFFF;
/// Expected PSN of a QP that is set up first.
const FIRST: u32 = 0xFF_FFFE;

fn number<const N: usize>(bits: Bits<N>) -> u64 {
    (0..N).fold(0, |value, bit| value | (bits.get_bit(bit) as u64) << bit)
}

fn open(name: &str) -> Bench<RxPath> {
    let mut bench = Bench::new(name, RxPath::default(), |uut| &mut uut.clock);
    wait_ready(&mut bench);
    bench
}

/// Waits for `ready`, and sees that nothing comes out meanwhile.
fn wait_ready(bench: &mut Bench<RxPath>) {
    let end = bench.clock_count() + (1 << limits::LOG_OBJECTS) + 50;
    bench.settle();
    while !bench.uut.ready.val() {
        assert!(is_silent(&bench.uut), "something comes out");
        bench.edge();
        assert!(bench.clock_count() < end, "ready does not come");
    }
}

/// Nothing is offered, counted or under way.
fn is_silent(uut: &RxPath) -> bool {
    let offers = uut.req.valid.val() | uut.out.valid.val() | uut.ack.valid.val() | uut.ack_in.valid.val() | uut.event_out.valid.val();
    let counts = uut.count_requests.val() | uut.count_duplicates.val() | uut.count_out_of_order.val() | uut.count_not_executed.val();
    !offers && !counts && !uut.count_no_qp.val() && uut.entered.val() == 0u64 && uut.finished.val() == 0u64
}

/// One QP at an MTU of 256, and one region.
fn set_up(bench: &mut Bench<RxPath>, psn: u32) {
    let qp = Qp { state: 3, access: 2, mtu: 1, pd: 5, ipv6: false, ip: 3 };
    let mr = Mr { valid: true, tag: 0xAB, pd: 5, access: 3, base: BASE, len: 0x4000, delta: DELTA, life: 0 };
    bench.uut.qp_write.next = qp.broadcast(QPN as usize, false, true, psn);
    bench.uut.mr_write.next = mr.broadcast(700);
    bench.edge();
    bench.uut.qp_write.next = QpWrite::default();
    bench.uut.mr_write.next = MrWrite::default();
}

/// What one side sends, and what must become of it.
struct Traffic {
    heads: Vec<RxHead>,
    lines: Vec<Line>,
    memory: Vec<u8>,
    /// PSN and MSN of the end of each message, and the writes that must be done before it is answered.
    ends: Vec<(u64, u64, usize)>,
}

/// Cuts messages, each of an address and a length, into packets from `psn` on.
fn packets(messages: &[(u64, usize)], mut psn: u32, random: &mut Stalls) -> Traffic {
    let mut traffic = Traffic { heads: vec![], lines: vec![], memory: vec![0xA5; 0x4000], ends: vec![] };
    for (va, len) in messages {
        let packets = len.div_ceil(256).max(1);
        for i in 0..packets {
            let bytes = (len - 256 * i).min(256);
            let opcode = [[0x07, 0x08], [0x06, 0x0A]][(i == 0) as usize][(i + 1 == packets) as usize];
            let offset = if i == 0 { 6 } else { 54 };
            let payload: Vec<u8> = (0..bytes).map(|_| random.random() as u8).collect();
            let at = (va - BASE) as usize + 256 * i;
            traffic.memory[at..at + bytes].copy_from_slice(&payload);
            let count = if bytes == 0 { 0 } else { (offset + bytes).div_ceil(64) };
            let mut frame: Vec<u8> = (0..64 * count).map(|_| random.random() as u8).collect();
            if bytes > 0 {
                frame[offset..offset + bytes].copy_from_slice(&payload);
            }
            traffic.lines.extend(frame.chunks(64).enumerate().map(|(j, chunk)| Line { data: pack(chunk), last: j + 1 == count }));
            traffic.heads.push(wire(&Head {
                opcode,
                ack_req: i + 1 == packets,
                pad: (bytes.wrapping_neg() & 3) as u8,
                qpn: QPN,
                psn,
                va: *va,
                rkey: RKEY,
                dma_len: *len as u32,
                len: bytes as u32,
                offset: offset as u8,
                ip: 3,
                ..Default::default()
            }));
            psn = (psn + 1) & PSN;
        }
        let writes = traffic.heads.iter().filter(|head| head.len != 0u64).count();
        traffic.ends.push(((psn.wrapping_sub(1) & PSN) as u64, traffic.ends.len() as u64 + 1, writes));
    }
    traffic
}

struct Run {
    bench: Bench<RxPath>,
    answers: Vec<AckReq>,
    clocks: u64,
}

/// Sends messages to the QP. Looks at all of memory, at the order of writes and answers, and at the drain probe.
fn run(mut bench: Bench<RxPath>, messages: &[(u64, usize)], psn: u32, mut stalls: impl FnMut() -> Stalls) -> Run {
    let mut random = Stalls::new(61 + psn as u64);
    let Traffic { heads, lines, memory: expected, ends } = packets(messages, psn, &mut random);
    let first = number(bench.uut.finished.val());
    let total = first + heads.len() as u64;
    // Writes up to each head.
    let writes = Vec::from_iter(heads.iter().scan(0, |writes, head| {
        *writes += usize::from(head.len != 0u64);
        Some(*writes)
    }));
    let mut memory = vec![0xA5u8; 0x4000];
    let mut heads = Driver::new(heads, stalls());
    let mut lines = Driver::new(lines, stalls());
    let mut reqs = Monitor::new(stalls());
    let mut out = Monitor::new(stalls());
    let mut acks = Monitor::new(stalls());
    let (mut written, mut first_line, mut dones) = (0, 0, 0);
    let mut host = Stalls::new(62);
    let mut left = ends.iter();
    let begin = bench.clock_count();
    let mut idle = 0;
    let mut clocks = 0;
    while idle < 100 {
        heads.before(&mut bench.uut.head);
        lines.before(&mut bench.uut.line);
        reqs.before(&mut bench.uut.req);
        out.before(&mut bench.uut.out);
        acks.before(&mut bench.uut.ack);
        let is_done = dones < written && host.go();
        bench.uut.done.next = is_done;
        bench.settle();
        assert!(!bench.uut.event_out.valid.val() && !bench.uut.ack_in.valid.val(), "nothing is refused, and nothing is for the requester");
        heads.after(&bench.uut.head);
        lines.after(&bench.uut.line);
        reqs.after(&bench.uut.req);
        out.after(&bench.uut.out);
        let got = acks.got.len();
        acks.after(&bench.uut.ack);
        // Newer answers replace older ones, so some ends are missing.
        for ack in &acks.got[got..] {
            let end = left.find(|end| (end.0, end.1) == (number(ack.psn), number(ack.msn)));
            assert!(number(ack.syndrome) == 0x1F && end.is_some_and(|end| dones >= end.2), "an early answer, or to nothing: {ack:?}");
        }
        let finished = (number(bench.uut.finished.val()) - first) as usize;
        assert!(finished == 0 || writes[finished - 1] <= dones, "a head is finished before its write is done");
        dones += is_done as usize;
        if let Some(req) = reqs.got.get(written) {
            let (addr, len) = (number(req.addr).wrapping_sub(DELTA + BASE) as usize, number(req.len) as usize);
            let count = (addr % 64 + len).div_ceil(64);
            if out.got.len() >= first_line + count {
                let bytes: Vec<u8> = out.got[first_line..first_line + count].iter().flat_map(|line| unpack(line.data)).collect();
                memory[addr..addr + len].copy_from_slice(&bytes[addr % 64..addr % 64 + len]);
                first_line += count;
                written += 1;
                clocks = bench.clock_count() + 1 - begin;
            }
        }
        let is_idle = heads.is_done() && bench.uut.entered.val() == bench.uut.finished.val();
        idle = if is_idle { idle + 1 } else { 0 };
        bench.edge();
        assert!(bench.clock_count() - begin < 20_000, "the path hangs");
    }
    assert!(lines.is_done());
    assert!(memory == expected, "memory differs");
    assert_eq!(number(bench.uut.finished.val()), total);
    assert_eq!(dones, reqs.got.len());
    assert!(!acks.got.is_empty() && left.next().is_none(), "the last message is answered");
    Run { bench, answers: acks.got, clocks }
}

const LENGTHS: [usize; 17] = [0, 1, 63, 64, 65, 255, 256, 257, 511, 512, 513, 700, 3, 1024, 31, 0, 100];

fn messages() -> Vec<(u64, usize)> {
    let mut addr = BASE + 1;
    let place = |len| {
        let message = (addr, len);
        addr += len as u64 + 13;
        message
    };
    LENGTHS.into_iter().map(place).collect()
}

fn seeded(mut seed: u64) -> impl FnMut() -> Stalls {
    move || {
        seed += 1;
        Stalls::new(seed)
    }
}

#[test]
fn messages_of_all_sizes_come_to_memory_and_are_acknowledged() {
    let mut bench = open("rx_path");
    set_up(&mut bench, FIRST);
    let run = run(bench, &messages(), FIRST, seeded(700));
    assert!(run.answers.len() <= LENGTHS.len());
    run.bench.finish();
}

#[test]
fn a_message_of_64_bytes_takes_two_clocks() {
    let messages: Vec<(u64, usize)> = (0..120).map(|i| (BASE + 64 * i, 64)).collect();
    let mut bench = open("rx_path_rate");
    set_up(&mut bench, FIRST);
    let run = run(bench, &messages, FIRST, Stalls::none);
    assert!(run.clocks <= 2 * 120 + 24, "{} clocks", run.clocks);
    run.bench.finish();
}

/// Gives a reset after some clocks of traffic, for the last of which nothing is taken. Sees that nothing is left,
/// and that all works anew.
fn reset_in_the_middle(clocks: usize, shut: usize, mut stalls: impl FnMut() -> Stalls) {
    let mut bench = open("rx_path_reset");
    set_up(&mut bench, FIRST);
    let Traffic { heads, lines, .. } = packets(&messages(), FIRST, &mut Stalls::new(711));
    let mut heads = Driver::new(heads, stalls());
    let mut lines = Driver::new(lines, stalls());
    let (mut reqs, mut out, mut acks) = (Monitor::new(stalls()), Monitor::new(stalls()), Monitor::new(stalls()));
    let mut dones = 0;
    for clock in 0..clocks {
        heads.before(&mut bench.uut.head);
        lines.before(&mut bench.uut.line);
        reqs.before(&mut bench.uut.req);
        out.before(&mut bench.uut.out);
        acks.before(&mut bench.uut.ack);
        if clock >= shut {
            bench.uut.req.ready.next = false;
            bench.uut.out.ready.next = false;
            bench.uut.ack.ready.next = false;
        }
        let is_done = dones + 2 < reqs.got.len();
        bench.uut.done.next = is_done;
        dones += usize::from(is_done);
        bench.settle();
        heads.after(&bench.uut.head);
        lines.after(&bench.uut.line);
        reqs.after(&bench.uut.req);
        out.after(&bench.uut.out);
        acks.after(&bench.uut.ack);
        bench.edge();
    }
    assert_ne!(bench.uut.entered.val(), bench.uut.finished.val(), "traffic is under way");
    let uut = &mut bench.uut;
    uut.done.next = true;
    uut.reset.next = true;
    bench.edge();
    let uut = &mut bench.uut;
    (uut.reset.next, uut.done.next) = (false, false);
    uut.head.valid.next = false;
    uut.line.valid.next = false;
    // From now on everything would be taken.
    uut.req.ready.next = true;
    uut.out.ready.next = true;
    uut.ack.ready.next = true;
    bench.settle();
    assert!(!bench.uut.ready.val(), "tables are cleared");
    wait_ready(&mut bench);
    for _ in 0..100 {
        bench.settle();
        assert!(is_silent(&bench.uut), "something comes out");
        bench.edge();
    }
    // The QP is not there any more: its packet is counted, and its payload discarded.
    let Traffic { heads, lines, .. } = packets(&[(BASE, 100)], FIRST, &mut Stalls::new(711));
    let (mut heads, mut lines) = (Driver::new(heads, Stalls::none()), Driver::new(lines, Stalls::none()));
    let mut strays = 0;
    for _ in 0..30 {
        heads.before(&mut bench.uut.head);
        lines.before(&mut bench.uut.line);
        bench.settle();
        heads.after(&bench.uut.head);
        lines.after(&bench.uut.line);
        strays += usize::from(bench.uut.count_no_qp.val());
        assert!(!bench.uut.req.valid.val() && !bench.uut.out.valid.val() && !bench.uut.ack.valid.val());
        bench.edge();
    }
    assert_eq!((strays, lines.is_done()), (1, true));
    assert_eq!((number(bench.uut.entered.val()), number(bench.uut.finished.val())), (1, 1));
    // Another PSN, other bytes.
    set_up(&mut bench, 100);
    let run = run(bench, &messages(), 100, seeded(730));
    run.bench.finish();
}

#[test]
fn a_reset_in_the_middle_of_traffic_leaves_nothing_behind_and_all_works_anew() {
    reset_in_the_middle(66, usize::MAX, Stalls::none);
}

#[test]
fn a_reset_of_a_full_path_leaves_nothing_behind_and_all_works_anew() {
    reset_in_the_middle(260, 200, seeded(710));
}
