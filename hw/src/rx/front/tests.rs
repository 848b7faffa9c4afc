//! Frames of other tools and of our own, good and damaged, against a model that parses byte by byte.

use super::*;
use crate::prim::{pack, unpack};
use crate::rx::frames::{build, damage, essence, icrc, model, offsets, random_plan, Plan, IPV4, IPV6, MAC, UNKNOWN};
use crate::testing::{Bench, Monitor, Stalls};
use verbena_abi::wire::RxVerdict;

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

#[test]
fn good_and_damaged_frames_under_random_stalls_are_told_apart_and_lose_no_byte() {
    let mut random = Stalls::new(21);
    let mut frames = vec![];
    for number in 0..160 {
        let mut frame = build(random_plan(&mut random), &mut random);
        let is_bad = damage(&mut frame, &mut random);
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
    for _ in 0..140 {
        let frame = build(Plan { vlan: false, ipv6: false, opcode: 0x11, len: 0 }, &mut random);
        run.beats(&frame, false, usize::MAX, false);
    }
    run.bench.uut.tvalid.next = false;
    for _ in 0..14 {
        run.clock(false);
    }
    run.idle(160);
    let overflows = run.reports.iter().filter(|report| report.verdict.to_u64() == RxVerdict::Overflow as u64).count();
    assert_eq!(overflows + run.heads.got.len(), 140);
    assert_eq!(run.heads.got.len(), 128);
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
