//! Good and damaged frames against the model that parses byte by byte.

use std::collections::VecDeque;

use super::*;
use crate::prim::{pack, unpack};
use crate::rx::frames::{self, beats, build, damage, essence, model, noise_beat, offsets, random_plan, Plan, IPV4, IPV6, MAC, UNKNOWN};
use crate::rx::RxReport;
use crate::testing::{Bench, Stalls};
use verbena_abi::wire::RxVerdict;

struct Case {
    bench: Bench<RxParse>,
    noise: Stalls,
    due: VecDeque<(u64, Vec<u8>)>,
    promiscuous: bool,
    /// Frames by verdict.
    verdicts: [usize; 8],
}

/// What the judge would report, with an ICRC that is right or not.
fn report(fields: &RxFields, checks: &RxChecks, icrc_ok: bool) -> RxReport {
    let verdict = match () {
        _ if !checks.is_ours => RxVerdict::NotOurs,
        _ if checks.is_malformed => RxVerdict::Malformed,
        _ if checks.is_unsupported => RxVerdict::Unsupported,
        _ if !icrc_ok => RxVerdict::BadIcrc,
        _ => RxVerdict::Accepted,
    };
    frames::report(verdict, fields, checks, icrc_ok)
}

impl Case {
    fn new(name: &str, promiscuous: bool) -> Self {
        let mut bench = Bench::new(name, RxParse::default(), |uut| &mut uut.clock);
        bench.uut.mac.next = pack(&MAC);
        bench.uut.ipv4.next = pack(&IPV4);
        bench.uut.ipv6.next = pack(&IPV6);
        bench.uut.promiscuous.next = promiscuous;
        Self { bench, noise: Stalls::new(401), due: VecDeque::new(), promiscuous, verdicts: [0; 8] }
    }

    /// One clock, with a beat or without.
    fn clock(&mut self, beat: Option<RxBeat>) {
        let clock = self.bench.clock_count();
        self.bench.uut.valid.next = beat.is_some();
        self.bench.uut.beat.next = beat.unwrap_or(noise_beat(&mut self.noise));
        self.bench.settle();
        if self.due.front().is_some_and(|(due, _)| *due == clock) {
            let (_, frame) = self.due.pop_front().expect("it is due");
            self.check(&frame);
        }
        self.bench.edge();
    }

    fn check(&mut self, frame: &[u8]) {
        let (fields, checks) = (self.bench.uut.fields.val(), self.bench.uut.checks.val());
        let (expected, start, len) = model(frame, false, self.promiscuous);
        let mut told = report(&fields, &checks, expected.icrc_ok);
        if expected.payload_len == UNKNOWN {
            told.payload_len = expected.payload_len;
        }
        assert_eq!(essence(told), essence(expected), "{frame:02x?}");
        self.verdicts[expected.verdict.index()] += 1;
        if expected.verdict.index() != RxVerdict::Accepted as usize {
            return;
        }
        assert_eq!(checks.needed.index(), if len == 0 { 0 } else { (start + len).div_ceil(64) }, "{frame:02x?}");
        if len > 0 {
            assert_eq!((checks.offset.index(), checks.skip), (start % 64, start / 64 == 1), "{frame:02x?}");
        }
        let (_, ipv6, l3, _) = offsets(frame).expect("an IP frame");
        let source = if ipv6 { frame[l3 + 8..l3 + 24].to_vec() } else { [&[0; 12], &frame[l3 + 12..l3 + 16]].concat() };
        assert_eq!(unpack(fields.source_ip), source);
    }

    fn idle(&mut self, clocks: usize) {
        for _ in 0..clocks {
            self.clock(None);
        }
    }

    fn send(&mut self, frame: Vec<u8>, pace: &mut Stalls) {
        let sent = beats(&frame, false, &mut self.noise);
        for beat in &sent {
            while !pace.go() {
                self.clock(None);
            }
            self.clock(Some(*beat));
        }
        self.due.push_back((self.bench.clock_count() - 1 + LATENCY as u64, frame));
    }

    fn finish(mut self) -> [usize; 8] {
        self.idle(LATENCY + 1);
        assert!(self.due.is_empty());
        self.bench.finish();
        self.verdicts
    }
}

#[test]
fn good_and_damaged_frames_are_parsed_whatever_the_pauses() {
    let mut random = Stalls::new(402);
    let mut pace = Stalls::new(403);
    let mut case = Case::new("rx_parse", false);
    for _ in 0..240 {
        let mut frame = build(random_plan(&mut random), &mut random);
        damage(&mut frame, &mut random);
        if random.random() % 16 == 0 {
            // For another station: one bit of an address.
            let at = if random.random() % 2 == 0 { random.random() as usize % 6 } else { offsets(&frame).map_or(0, |layout| layout.3 - 1) };
            frame[at] ^= 1 << (random.random() % 8);
        }
        case.send(frame, &mut pace);
    }
    let verdicts = case.finish();
    println!("{verdicts:?}");
    assert!([0, 2, 3, 4, 5].iter().all(|verdict| verdicts[*verdict] >= 8), "{verdicts:?}");
}

#[test]
fn frames_without_a_gap_of_every_layout_and_length_are_known_seven_clocks_after_their_end() {
    let mut random = Stalls::new(404);
    let mut case = Case::new("rx_parse_rate", false);
    let mut count = 0;
    for layout in 0..4 {
        for opcode in [0x04, 0x0A, 0x0B, 0x11, 0x13, 0x65] {
            for len in [0, 1, 2, 5, 10, 26, 50, 63, 66] {
                let plan = Plan { vlan: layout & 1 == 1, ipv6: layout & 2 == 2, opcode, len };
                case.send(build(plan, &mut random), &mut Stalls::none());
                count += 1;
            }
        }
    }
    assert_eq!(case.finish()[0], count);
}

#[test]
fn the_largest_payload_and_a_trailer_of_any_length_are_good_and_lengths_that_lie_are_not() {
    let mut random = Stalls::new(405);
    let mut case = Case::new("rx_parse_limits", true);
    let mut none = Stalls::none();
    for len in [4095, 4096, 4097, 4100] {
        case.send(build(Plan { vlan: true, ipv6: true, opcode: 0x0B, len }, &mut random), &mut none);
    }
    let plan = Plan { vlan: false, ipv6: false, opcode: 0x0A, len: 40 };
    let mut frame = build(plan, &mut random);
    frame.extend((0..290 * 64).map(|_| random.random() as u8));
    case.send(frame, &mut none);
    // For others, which a promiscuous station takes.
    let mut frame = build(plan, &mut random);
    frame[0] ^= 4;
    case.send(frame, &mut none);
    // UDP lengths around what headers, pad and ICRC need, with an IP length that fits; and one that does not.
    for ipv6 in [false, true] {
        for udp_len in [0usize, 7, 8, 19, 20, 23, 24, 39, 40, 41, 42, 43, 44, 79, 80, 81, 84, 0xFFEB, 0xFFEC, 0xFFFF] {
            for error in [0, 1] {
                let mut frame = build(Plan { ipv6, ..plan }, &mut random);
                let (_, _, l3, l4) = offsets(&frame).expect("an IP frame");
                let ip_len = (udp_len + if ipv6 { 0 } else { 20 } + error) as u16;
                let at = if ipv6 { l3 + 4 } else { l3 + 2 };
                frame[l4 + 4..l4 + 6].copy_from_slice(&(udp_len as u16).to_be_bytes());
                frame[at..at + 2].copy_from_slice(&ip_len.to_be_bytes());
                case.send(frame, &mut none);
            }
        }
    }
    // Version and length of the header, fragments, protocol, port; transport version, P_Key, and QP 0.
    for (ipv6, at, byte) in [
        (false, 14, 0x55),
        (false, 14, 0x46),
        (false, 20, 0x60),
        (false, 20, 0x41),
        (false, 21, 0x01),
        (false, 23, 6),
        (false, 36, 0x13),
        (false, 37, 0xB6),
        (false, 43, 0x81),
        (false, 44, 0x00),
        (false, 45, 0xFE),
        (true, 14, 0x45),
        (true, 20, 6),
    ] {
        let mut frame = build(Plan { ipv6, ..plan }, &mut random);
        frame[at] = byte;
        case.send(frame, &mut none);
    }
    let mut frame = build(plan, &mut random);
    frame[47..50].fill(0);
    case.send(frame, &mut none);
    let verdicts = case.finish();
    assert_eq!(verdicts[RxVerdict::Accepted as usize], 4 + 2, "{verdicts:?}");
    assert_eq!(verdicts[RxVerdict::NotOurs as usize], 10, "{verdicts:?}");
    assert_eq!(verdicts[RxVerdict::Unsupported as usize], 4, "{verdicts:?}");
}
