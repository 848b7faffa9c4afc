//! Frames of every length, with pauses anywhere.

use std::collections::VecDeque;

use super::*;
use crate::rx::frames::{beats, build, noise_beat, random_plan, Plan};
use crate::testing::{Bench, Stalls};

/// Clocks from a beat to the same beat at the output.
const LATENCY: u64 = 2;

struct Case {
    bench: Bench<RxIntake>,
    noise: Stalls,
    due: VecDeque<(u64, RxBeat)>,
    seen: usize,
}

impl Case {
    fn new(name: &str) -> Self {
        let bench = Bench::new(name, RxIntake::default(), |uut| &mut uut.clock);
        Self { bench, noise: Stalls::new(301), due: VecDeque::new(), seen: 0 }
    }

    /// One clock, with a beat or without; without one the other inputs are noise.
    fn clock(&mut self, beat: Option<RxBeat>) {
        let clock = self.bench.clock_count();
        let shown = beat.unwrap_or(noise_beat(&mut self.noise));
        let uut = &mut self.bench.uut;
        uut.tvalid.next = beat.is_some();
        uut.tdata.next = shown.data;
        uut.tkeep.next = (((1u128 << shown.bytes.index()) - 1) as u64).to_bits();
        uut.tlast.next = shown.last;
        uut.tuser.next = shown.bad;
        self.bench.settle();
        let is_due = self.due.front().is_some_and(|(due, _)| *due == clock);
        assert_eq!(self.bench.uut.valid.val(), is_due, "clock {clock}");
        if is_due {
            let (_, expected) = self.due.pop_front().expect("it is due");
            assert_eq!(self.bench.uut.beat.val(), expected, "clock {clock}");
            self.seen += 1;
        }
        self.due.extend(beat.map(|beat| (clock + LATENCY, beat)));
        self.bench.edge();
    }

    fn idle(&mut self, clocks: usize) {
        for _ in 0..clocks {
            self.clock(None);
        }
    }

    fn send(&mut self, beats: &[RxBeat], pace: &mut Stalls) {
        for beat in beats {
            while !pace.go() {
                self.clock(None);
            }
            self.clock(Some(*beat));
        }
    }
}

#[test]
fn each_beat_comes_two_clocks_later_with_its_place_and_layout_whatever_the_pauses() {
    let mut random = Stalls::new(302);
    let mut case = Case::new("rx_intake");
    let mut pace = Stalls::new(303);
    for length in (1..=66).chain([127, 128, 129, 191, 192, 193, 1500]) {
        let mut frame = build(Plan { len: length, ..random_plan(&mut random) }, &mut random);
        frame.truncate(length);
        if length > 18 && length % 5 == 0 {
            // Of no IP, or with a second tag.
            let at = if length % 2 == 0 { 12 } else { 16 };
            frame[at..at + 2].copy_from_slice(&[[0x81, 0x00], [0x08, 0x06], [0x00, 0x08], [0x86, 0xDE]][length / 5 % 4]);
        }
        let mut sent = beats(&frame, false, &mut random);
        // `tuser` goes through as it is, and a last beat may have no byte.
        sent.iter_mut().for_each(|beat| beat.bad = random.random() % 2 == 0);
        if length % 11 == 0 {
            sent.last_mut().expect("a beat").bytes = 0u64.to_bits();
        }
        case.send(&sent, &mut pace);
    }
    case.idle(4);
    assert!(case.due.is_empty());
    case.bench.finish();
}

#[test]
fn beats_without_a_gap_come_every_clock_and_the_number_of_a_beat_stays_at_255() {
    let mut random = Stalls::new(304);
    let mut case = Case::new("rx_intake_rate");
    let mut none = Stalls::none();
    let long: Vec<u8> = (0..300 * 64 - 1).map(|_| random.random() as u8).collect();
    for frame in [&long[..50], &long[..], &long[..64], &long[..65]] {
        case.send(&beats(frame, false, &mut random), &mut none);
    }
    case.idle(LATENCY as usize);
    assert_eq!(case.seen as u64, case.bench.clock_count() - LATENCY);
    case.bench.finish();
}

#[test]
fn a_reset_in_the_middle_makes_the_next_beat_the_first_of_a_frame() {
    let mut random = Stalls::new(305);
    let mut case = Case::new("rx_intake_reset");
    let mut none = Stalls::none();
    let plan = Plan { vlan: true, ipv6: true, opcode: 0x0A, len: 300 };
    for (before, pause) in [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (2, 2), (0, 0)] {
        let frame = build(plan, &mut random);
        let sent = beats(&frame, false, &mut random);
        case.send(&sent[..before], &mut none);
        case.idle(pause);
        // A beat in the clock of the reset is lost too.
        let uut = &mut case.bench.uut;
        (uut.tdata.next, uut.tlast.next, uut.tvalid.next, uut.reset.next) = (sent[before].data, false, true, true);
        case.bench.edge();
        case.bench.uut.reset.next = false;
        case.due.clear();
        // What is left of the frame counts as a frame of its own, of whatever layout its bytes say.
        let rest = beats(&frame[64 * (before + 1)..], false, &mut random);
        case.send(&rest, &mut none);
        case.send(&beats(&build(Plan { vlan: false, ..plan }, &mut random), true, &mut random), &mut none);
    }
    case.idle(4);
    assert!(case.due.is_empty());
    case.bench.finish();
}
