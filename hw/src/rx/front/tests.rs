//! Frames of other tools and of our own, good and damaged, against a model that parses byte by byte.

use super::*;
use crate::prim::{crc32_step, pack, unpack};
use crate::testing::{Bench, Monitor, Stalls};
use verbena_abi::wire::{RxVerdict, ICRC_SEED};

const MAC: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
const IPV4: [u8; 4] = [192, 0, 2, 77];
const IPV6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

/// A frame to build; everything else is random.
#[derive(Clone, Copy, Debug)]
struct Plan {
    vlan: bool,
    ipv6: bool,
    opcode: u8,
    len: usize,
}

/// Bytes between BTH and payload, or nothing for opcodes that are not let through.
fn extension(opcode: u8) -> Option<usize> {
    Some(match opcode {
        0x00 | 0x01 | 0x02 | 0x04 | 0x07 | 0x08 | 0x0E | 0x81 => 0,
        0x03 | 0x05 | 0x09 | 0x16 | 0x17 | 0x0D | 0x0F | 0x10 | 0x11 => 4,
        0x64 => 8,
        0x12 | 0x65 => 12,
        0x06 | 0x0A | 0x0C => 16,
        0x0B => 20,
        0x13 | 0x14 => 28,
        _ => return None,
    })
}

/// Where the parts of a frame begin, by its types; nothing if it is no IP frame.
fn offsets(frame: &[u8]) -> Option<(bool, bool, usize, usize)> {
    let vlan = frame[12..14] == [0x81, 0x00];
    let l3 = if vlan { 18 } else { 14 };
    match frame[l3 - 2..l3] {
        [0x08, 0x00] => Some((vlan, false, l3, l3 + 20)),
        [0x86, 0xDD] => Some((vlan, true, l3, l3 + 40)),
        _ => None,
    }
}

/// The ICRC of `frame[l3..end]`, from the definition: masked copy, eight bytes of ones in front.
fn icrc(frame: &[u8], ipv6: bool, l3: usize, l4: usize, end: usize) -> [u8; 4] {
    let mut copy = frame[..end].to_vec();
    if ipv6 {
        copy[l3] |= 0x0F;
        copy[l3 + 1..l3 + 4].fill(0xFF);
        copy[l3 + 7] = 0xFF;
    } else {
        copy[l3 + 1] = 0xFF;
        copy[l3 + 8] = 0xFF;
        copy[l3 + 10..l3 + 12].fill(0xFF);
    }
    copy[l4 + 6..l4 + 8].fill(0xFF);
    copy[l4 + 12] = 0xFF;
    assert_eq!(crc32_step(!0, &[0xFF; 8]), ICRC_SEED);
    (!crc32_step(ICRC_SEED, &copy[l3..])).to_le_bytes()
}

fn build(plan: Plan, random: &mut Stalls) -> Vec<u8> {
    let mut byte = || random.random() as u8;
    let mut frame = MAC.to_vec();
    frame.extend((0..6).map(|_| byte()));
    if plan.vlan {
        frame.extend([0x81, 0x00, byte(), byte()]);
    }
    frame.extend(if plan.ipv6 { [0x86, 0xDD] } else { [0x08, 0x00] });
    let pad = plan.len.wrapping_neg() % 4;
    let extension = extension(plan.opcode).unwrap_or(0);
    let udp_len = 8 + 12 + extension + plan.len + pad + 4;
    let l3 = frame.len();
    if plan.ipv6 {
        frame.extend([0x60 | byte() >> 4, byte(), byte(), byte()]);
        frame.extend((udp_len as u16).to_be_bytes());
        frame.extend([17, byte()]);
        frame.extend((0..16).map(|_| byte()));
        frame.extend(IPV6);
    } else {
        frame.extend([0x45, byte()]);
        frame.extend((udp_len as u16 + 20).to_be_bytes());
        frame.extend([byte(), byte(), 0x40, 0, byte(), 17, byte(), byte()]);
        frame.extend((0..4).map(|_| byte()));
        frame.extend(IPV4);
    }
    let l4 = frame.len();
    frame.extend([byte(), byte(), 0x12, 0xB7]);
    frame.extend((udp_len as u16).to_be_bytes());
    frame.extend([byte(), byte()]);
    frame.extend([plan.opcode, byte() & 0xC0 | (pad as u8) << 4, 0x7F | byte(), 0xFF, byte(), byte(), byte(), byte() | 1]);
    frame.extend((0..4 + extension + plan.len + pad).map(|_| byte()));
    let icrc = icrc(&frame, plan.ipv6, l3, l4, frame.len());
    frame.extend(icrc);
    frame
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Payload length that the model gives where none can be told; no frame has it.
const UNKNOWN: u64 = 0xFFFF;

/// What the front must report of a frame; also where the payload of an accepted one lies.
fn model(frame: &[u8], is_bad: bool, promiscuous: bool) -> (RxReport, usize, usize) {
    let mut report = RxReport::default();
    let verdict = |report: RxReport, verdict: RxVerdict| (RxReport { verdict: (verdict as u8).to_bits(), ..report }, 0, 0);
    let mut padded = frame.to_vec();
    padded.resize(frame.len().max(128), 0);
    let header = offsets(&padded).filter(|(_, ipv6, l3, l4)| {
        let ip = &padded[*l3..];
        let is_udp = if *ipv6 { ip[0] >> 4 == 6 && ip[6] == 17 } else { ip[0] == 0x45 && number(&ip[6..8]) & 0x3FFF == 0 && ip[9] == 17 };
        is_udp && number(&padded[l4 + 2..l4 + 4]) == 4791
    });
    report.is_roce = header.is_some();
    let Some((vlan, ipv6, l3, l4)) = header.filter(|_| !is_bad) else {
        return verdict(report, if is_bad { RxVerdict::BadFrame } else { RxVerdict::NotOurs });
    };
    let address = if ipv6 { padded[l3 + 24..l3 + 40] == IPV6 } else { padded[l3 + 16..l3 + 20] == IPV4 };
    if !promiscuous && (padded[..6] != MAC || !address) {
        return verdict(report, RxVerdict::NotOurs);
    }
    let udp_len = number(&padded[l4 + 4..l4 + 6]) as usize;
    let ip_len = number(&if ipv6 { [padded[l3 + 4], padded[l3 + 5]] } else { [padded[l3 + 2], padded[l3 + 3]] }) as usize;
    let bth = l4 + 8;
    let opcode = padded[bth];
    let flags = padded[bth + 1];
    let pad = usize::from(flags >> 4 & 3);
    let used = 24 + extension(opcode).unwrap_or(0) + pad;
    let payload = udp_len.saturating_sub(used);
    let has_bth = frame.len() >= bth + 12;
    let extension_end = 12 + extension(opcode).unwrap_or(0);
    let has_extension = udp_len >= 12 + extension_end && frame.len() >= bth + extension_end;
    report.has_reth = has_extension && matches!(opcode, 0x06 | 0x0A | 0x0B | 0x0C);
    report.has_aeth = has_extension && matches!(opcode, 0x0D | 0x0F..=0x12);
    report.has_imm = has_extension && matches!(opcode, 0x03 | 0x05 | 0x09 | 0x0B | 0x16 | 0x17 | 0x65);
    // Without its BTH a frame has no opcode, so nobody knows where its payload would begin.
    report.payload_len = if has_bth { payload.to_bits() } else { UNKNOWN.to_bits() };
    if ip_len != udp_len + if ipv6 { 0 } else { 20 } || frame.len() < l4 + udp_len || udp_len < used || payload > 4096 {
        return verdict(report, RxVerdict::Malformed);
    }
    let behind = &padded[bth + 12..];
    report.opcode = opcode.to_bits();
    report.se = flags >> 7 == 1;
    report.migreq = flags >> 6 & 1 == 1;
    report.pad = pad.to_bits();
    report.tver = (flags & 15).to_bits();
    report.pkey = number(&padded[bth + 2..bth + 4]).to_bits();
    report.fecn = padded[bth + 4] >> 7 == 1;
    report.becn = padded[bth + 4] >> 6 & 1 == 1;
    report.dqpn = number(&padded[bth + 5..bth + 8]).to_bits();
    report.ackreq = padded[bth + 8] >> 7 == 1;
    report.psn = number(&padded[bth + 9..bth + 12]).to_bits();
    if report.has_reth {
        report.va = number(&behind[..8]).to_bits();
        report.rkey = number(&behind[8..12]).to_bits();
        report.dma_len = number(&behind[12..16]).to_bits();
    }
    if report.has_aeth {
        report.syndrome = behind[0].to_bits();
        report.msn = number(&behind[1..4]).to_bits();
    }
    let imm = match opcode {
        0x03 | 0x05 | 0x09 | 0x16 | 0x17 => Some(0),
        0x0B => Some(16),
        0x65 => Some(8),
        _ => None,
    };
    report.imm = imm.map_or(0, |at| number(&behind[at..at + 4])).to_bits();
    report.ipv6 = ipv6;
    report.vlan = vlan;
    report.sport = number(&padded[l4..l4 + 2]).to_bits();
    let end = l4 + udp_len - 4;
    report.icrc_ok = frame[end..end + 4] == icrc(frame, ipv6, l3, l4, end);
    let (dqpn, pkey) = (report.dqpn.to_u64(), report.pkey.to_u64());
    if extension(opcode).is_none() || flags & 15 != 0 || pkey & 0x7FFF != 0x7FFF || dqpn == 0 {
        return verdict(report, RxVerdict::Unsupported);
    }
    if !report.icrc_ok {
        return verdict(report, RxVerdict::BadIcrc);
    }
    (report, end - pad - payload, payload)
}

/// Makes fields that do not count equal, so that reports can be compared as a whole.
fn essence(mut report: RxReport) -> RxReport {
    let verdict = report.verdict.to_u64();
    if verdict == 3 {
        // Header fields may lie behind the frame's end, but what is there and how long is told.
        let RxReport { verdict, is_roce, has_reth, has_aeth, has_imm, payload_len, .. } = report;
        return RxReport { verdict, is_roce, has_reth, has_aeth, has_imm, payload_len, ..Default::default() };
    }
    if verdict == 1 || verdict == 2 {
        return RxReport { verdict: report.verdict, is_roce: report.is_roce, ..Default::default() };
    }
    if !report.has_reth {
        (report.va, report.rkey, report.dma_len) = Default::default();
    }
    if !report.has_aeth {
        (report.syndrome, report.msn) = Default::default();
    }
    if !report.has_imm {
        report.imm = Default::default();
    }
    report
}

type Front = RxFront<7, 8>;

/// The front with what came out of it.
struct Run {
    bench: Bench<Front>,
    input: Stalls,
    noise: Stalls,
    reports: Vec<RxReport>,
    heads: Monitor<RxHead>,
    lines: Monitor<Line>,
}

impl Run {
    fn new(name: &str, seed: Option<u64>) -> Self {
        let stalls = |n| seed.map_or(Stalls::none(), |seed| Stalls::new(seed + n));
        let mut bench = Bench::new(name, Front::default(), |uut| &mut uut.clock);
        bench.uut.mac.next = pack(&MAC);
        bench.uut.ipv4.next = pack(&IPV4);
        bench.uut.ipv6.next = pack(&IPV6);
        Self {
            bench,
            input: stalls(1),
            noise: Stalls::new(99),
            reports: vec![],
            heads: Monitor::new(stalls(2)),
            lines: Monitor::new(stalls(3)),
        }
    }

    /// One clock; `is_taking` lets the consumer take.
    fn clock(&mut self, is_taking: bool) {
        let uut = &mut self.bench.uut;
        self.heads.before(&mut uut.head);
        self.lines.before(&mut uut.line);
        if !is_taking {
            uut.head.ready.next = false;
            uut.line.ready.next = false;
        }
        self.bench.settle();
        let uut = &self.bench.uut;
        assert!(uut.tready.val());
        self.heads.after(&uut.head);
        self.lines.after(&uut.line);
        if uut.report_valid.val() {
            self.reports.push(uut.report.val());
        }
        self.bench.edge();
    }

    fn idle(&mut self, clocks: usize) {
        self.bench.uut.tvalid.next = false;
        for _ in 0..clocks {
            self.clock(true);
        }
    }

    /// Sends up to `beats` beats of a frame. What lies behind its end in the last beat is noise.
    fn beats(&mut self, frame: &[u8], is_bad: bool, beats: usize, is_taking: bool) {
        let count = frame.len().div_ceil(64);
        for (index, chunk) in frame.chunks(64).enumerate().take(beats) {
            while !self.input.go() {
                self.bench.uut.tvalid.next = false;
                self.clock(is_taking);
            }
            let mut bytes = chunk.to_vec();
            bytes.resize_with(64, || self.noise.random() as u8);
            let uut = &mut self.bench.uut;
            uut.tvalid.next = true;
            uut.tdata.next = pack(&bytes);
            uut.tkeep.next = (u64::MAX >> (64 - chunk.len())).to_bits();
            uut.tlast.next = index + 1 == count;
            uut.tuser.next = index + 1 == count && is_bad;
            self.clock(is_taking);
        }
    }

    fn send(&mut self, frame: &[u8], is_bad: bool) {
        self.beats(frame, is_bad, usize::MAX, true);
    }

    /// Checks reports, heads and lines against the model, frame by frame.
    fn check(self, frames: &[(Vec<u8>, bool)], promiscuous: bool) {
        assert_eq!(self.reports.len(), frames.len());
        let (mut heads, mut lines) = (self.heads.got.iter(), self.lines.got.iter());
        for (number, ((frame, is_bad), report)) in frames.iter().zip(&self.reports).enumerate() {
            let (expected, start, len) = model(frame, *is_bad, promiscuous);
            let mut told = *report;
            if expected.payload_len == UNKNOWN {
                told.payload_len = expected.payload_len;
            }
            assert!(essence(told) == essence(expected), "frame {number}: {frame:02x?}\n{report:x?}\n{expected:x?}");
            if report.verdict.to_u64() != RxVerdict::Accepted as u64 {
                continue;
            }
            let head = heads.next().expect("an accepted frame has a head");
            assert_eq!((head.opcode, head.qpn, head.psn, head.ack_req), (report.opcode, report.dqpn, report.psn, report.ackreq));
            assert_eq!((head.solicited, head.pad, head.va, head.rkey), (report.se, report.pad, report.va, report.rkey));
            assert_eq!((head.dma_len, head.syndrome, head.msn, head.imm), (report.dma_len, report.syndrome, report.msn, report.imm));
            assert_eq!((head.len.to_u64(), head.ipv6), (len as u64, report.ipv6));
            let (_, ipv6, l3, _) = offsets(frame).unwrap();
            let source = if ipv6 { frame[l3 + 8..l3 + 24].to_vec() } else { [&[0; 12], &frame[l3 + 12..l3 + 16]].concat() };
            assert_eq!(unpack(head.source_ip), source);
            if len > 0 {
                assert_eq!(head.offset.to_u64() as usize, start % 64);
                let count = (start % 64 + len).div_ceil(64);
                let mut bytes = vec![];
                for index in 0..count {
                    let line = lines.next().expect("a payload has its lines");
                    assert_eq!(line.last, index + 1 == count);
                    bytes.extend(unpack(line.data));
                }
                assert_eq!(bytes[start % 64..][..len], frame[start..start + len], "payload of frame {number}");
            }
        }
        assert!(heads.next().is_none() && lines.next().is_none());
        self.bench.finish();
    }
}

fn random_plan(random: &mut Stalls) -> Plan {
    const OPCODES: [u8; 28] = [
        0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x0E, 0x0F, 0x10, 0x11, 0x12, 0x13, 0x14, 0x16,
        0x17, 0x64, 0x65, 0x81, 0x15, 0x2A,
    ];
    let bits = random.random();
    Plan {
        vlan: bits & 1 == 1,
        ipv6: bits & 2 == 2,
        opcode: OPCODES[(bits >> 8) as usize % OPCODES.len()],
        len: if bits & 4 == 4 { 0 } else { (bits >> 16) as usize % 150 },
    }
}

#[test]
fn good_and_damaged_frames_under_random_stalls_are_told_apart_and_lose_no_byte() {
    let mut random = Stalls::new(21);
    let mut frames = vec![];
    for number in 0..160 {
        let mut frame = build(random_plan(&mut random), &mut random);
        let mut is_bad = false;
        let bits = random.random();
        match bits % 12 {
            // One bit anywhere; half of them in the headers.
            0 | 1 => {
                let span = if bits & 64 == 64 { frame.len() } else { 60 };
                frame[(bits >> 16) as usize % span] ^= 1 << (bits >> 8 & 7);
            }
            // Cut short, but not within the headers up to UDP.
            2 => frame.truncate(62 + (bits >> 16) as usize % (frame.len() - 57)),
            // Ethernet padding or a trailer.
            3 | 4 => frame.extend((0..(bits >> 16) % 130).map(|_| random.random() as u8)),
            5 => is_bad = bits & 64 == 64,
            // A random byte in the BTH.
            6 => {
                let at = offsets(&frame).unwrap().3 + 8 + (bits >> 16) as usize % 12;
                frame[at] = bits as u8;
            }
            _ => (),
        }
        assert!(frame.len() >= 58, "frame {number}");
        frames.push((frame, is_bad));
    }
    let mut run = Run::new("rx_front", Some(40));
    for (frame, is_bad) in &frames {
        run.send(frame, *is_bad);
    }
    run.idle(300);
    run.check(&frames, false);
}

#[test]
fn every_layout_and_payload_length_around_a_line_goes_through_without_a_gap() {
    let mut random = Stalls::new(22);
    let mut frames = vec![];
    for (layout, opcode) in [(0, 0x04), (1, 0x0A), (2, 0x0B), (3, 0x0B), (3, 0x02), (2, 0x07)] {
        for len in [0, 1, 2, 3, 4, 5, 9, 10, 11, 50, 63, 64, 65, 66] {
            frames.push((build(Plan { vlan: layout & 1 == 1, ipv6: layout & 2 == 2, opcode, len }, &mut random), false));
        }
    }
    let mut run = Run::new("rx_front", None);
    let beats: usize = frames.iter().map(|(frame, _)| frame.len().div_ceil(64)).sum();
    for (frame, is_bad) in &frames {
        run.send(frame, *is_bad);
    }
    assert_eq!(run.bench.clock_count(), beats as u64);
    // The last report, head and line leave a fixed time behind the last beat.
    run.idle(16);
    assert!(run.reports.iter().all(|report| report.verdict.to_u64() == 0));
    run.check(&frames, false);
}

#[test]
fn frames_of_one_beat_are_reported_and_delivered_every_clock() {
    let mut random = Stalls::new(23);
    let frames = Vec::from_iter((0..100).map(|i| (build(Plan { vlan: false, ipv6: false, opcode: 0x04, len: i % 7 }, &mut random), false)));
    assert!(frames.iter().all(|(frame, _)| frame.len() <= 64 + 2));
    let short = Vec::from_iter(frames.into_iter().filter(|(frame, _)| frame.len() <= 64));
    let mut run = Run::new("rx_front", None);
    for (frame, is_bad) in &short {
        run.send(frame, *is_bad);
    }
    run.idle(12);
    assert_eq!(run.reports.len() as u64, run.bench.clock_count() - 12, "one report every clock, the last 12 clocks behind");
    run.idle(4);
    run.check(&short, false);
}

#[test]
fn what_finds_no_room_is_an_overflow_and_acknowledgements_need_none() {
    let mut random = Stalls::new(24);
    let data = Plan { vlan: false, ipv6: false, opcode: 0x07, len: 512 };
    let ack = Plan { vlan: false, ipv6: false, opcode: 0x11, len: 0 };
    let mut run = Run::new("rx_front", None);
    let mut kept = vec![];
    // 128 lines; a frame of 512 bytes behind 54 of headers takes nine, so the fifteenth has no room
    // until the first is read.
    for number in 0..24 {
        let frame = build(if number % 4 == 3 { ack } else { data }, &mut random);
        run.beats(&frame, false, usize::MAX, false);
        if number % 4 == 3 || kept.iter().filter(|frame: &&Vec<u8>| frame.len() > 100).count() < 14 {
            kept.push(frame);
        }
    }
    run.bench.uut.tvalid.next = false;
    for _ in 0..14 {
        run.clock(false);
    }
    let overflows = run.reports.iter().filter(|report| report.verdict.to_u64() == RxVerdict::Overflow as u64).count();
    assert_eq!((run.reports.len(), overflows), (24, 24 - kept.len()));
    // When the consumer wakes up, all that was promised is there, and there is room again.
    run.idle(140);
    let frame = build(data, &mut random);
    run.send(&frame, false);
    kept.push(frame);
    run.idle(40);
    run.reports.retain(|report| report.verdict.to_u64() != RxVerdict::Overflow as u64);
    let frames = Vec::from_iter(kept.into_iter().map(|frame| (frame, false)));
    run.check(&frames, false);
}

#[test]
fn more_heads_than_fit_are_an_overflow() {
    let mut random = Stalls::new(25);
    let mut run = Run::new("rx_front", None);
    for _ in 0..40 {
        let frame = build(Plan { vlan: false, ipv6: false, opcode: 0x11, len: 0 }, &mut random);
        run.beats(&frame, false, usize::MAX, false);
    }
    run.bench.uut.tvalid.next = false;
    for _ in 0..14 {
        run.clock(false);
    }
    run.idle(60);
    let overflows = run.reports.iter().filter(|report| report.verdict.to_u64() == RxVerdict::Overflow as u64).count();
    assert_eq!(overflows + run.heads.got.len(), 40);
    assert_eq!(run.heads.got.len(), 32);
    run.bench.finish();
}

#[test]
fn a_reset_in_the_middle_of_a_frame_forgets_it_and_what_was_stored() {
    let mut random = Stalls::new(26);
    let mut run = Run::new("rx_front", None);
    let plan = Plan { vlan: true, ipv6: true, opcode: 0x0A, len: 100 };
    for beats in 1..4 {
        let whole = build(plan, &mut random);
        run.beats(&whole, false, usize::MAX, false);
        run.beats(&build(plan, &mut random), false, beats.min(3), false);
        run.bench.uut.tvalid.next = false;
        run.bench.uut.reset.next = true;
        run.clock(false);
        run.bench.uut.reset.next = false;
        run.heads.restart();
        run.lines.restart();
        run.reports.clear();
        run.heads.got.clear();
        run.lines.got.clear();
        run.idle(5);
        assert!(run.reports.is_empty() && run.heads.got.is_empty() && run.lines.got.is_empty());
    }
    let frames = [(build(plan, &mut random), false), (build(plan, &mut random), false)];
    for (frame, _) in &frames {
        run.send(frame, false);
    }
    run.idle(20);
    run.check(&frames, false);
}

#[test]
fn a_promiscuous_station_takes_frames_for_others_and_the_largest_payload_fits() {
    let mut random = Stalls::new(27);
    let mut frames = vec![];
    for layout in 0..4 {
        let plan = Plan { vlan: layout & 1 == 1, ipv6: layout & 2 == 2, opcode: 0x0A, len: 30 };
        let mut frame = build(plan, &mut random);
        frame[3] ^= 4;
        frames.push((frame, false));
        let mut frame = build(plan, &mut random);
        let (_, ipv6, l3, l4) = offsets(&frame).unwrap();
        frame[l4 - 1] ^= 1;
        let end = frame.len() - 4;
        let icrc = icrc(&frame, ipv6, l3, l4, end);
        frame[end..].copy_from_slice(&icrc);
        frames.push((frame, false));
    }
    for promiscuous in [false, true] {
        let mut run = Run::new("rx_front", None);
        run.bench.uut.promiscuous.next = promiscuous;
        for (frame, _) in &frames {
            run.send(frame, false);
        }
        run.idle(30);
        let accepted = run.reports.iter().filter(|report| report.verdict.to_u64() == 0).count();
        assert_eq!(accepted, if promiscuous { 8 } else { 0 });
        run.check(&frames, promiscuous);
    }
}

#[test]
fn payloads_of_4096_bytes_pass_and_longer_ones_are_malformed() {
    let mut random = Stalls::new(28);
    let mut run = Run::new("rx_front", None);
    let frames = Vec::from_iter(
        [4095, 4096, 4097, 4100, 64].map(|len| (build(Plan { vlan: true, ipv6: true, opcode: 0x0B, len }, &mut random), false)),
    );
    for (frame, _) in &frames {
        run.send(frame, false);
    }
    run.idle(90);
    let verdicts = Vec::from_iter(run.reports.iter().map(|report| report.verdict.to_u64()));
    assert_eq!(verdicts, [0, 0, 3, 3, 0]);
    run.check(&frames, false);
}
