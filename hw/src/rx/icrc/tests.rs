//! ICRCs against the definition.

use std::collections::VecDeque;

use super::*;
use crate::rx::frames::{beats, build, damage, icrc, noise_beat, number, offsets, random_plan, Plan};
use crate::testing::{Bench, Stalls};

/// Returns whether a frame's ICRC is right; nothing if the check need not say.
fn is_right(frame: &[u8]) -> Option<bool> {
    let (_, ipv6, l3, l4) = offsets(frame)?;
    let udp_len = number(&frame[l4 + 4..l4 + 6]) as usize;
    let end = l4 + udp_len;
    // Without room for headers and ICRC there is none that could be right.
    Some(udp_len >= 24 && frame.len() >= end && frame[end - 4..end] == icrc(frame, ipv6, l3, l4, end - 4))
}

struct Case {
    bench: Bench<IcrcCheck>,
    noise: Stalls,
    due: VecDeque<(u64, Option<bool>)>,
    /// Wrong ones and right ones.
    counts: [usize; 2],
}

impl Case {
    fn new(name: &str) -> Self {
        let bench = Bench::new(name, IcrcCheck::default(), |uut| &mut uut.clock);
        Self { bench, noise: Stalls::new(501), due: VecDeque::new(), counts: [0; 2] }
    }

    fn clock(&mut self, beat: Option<RxBeat>) {
        let clock = self.bench.clock_count();
        self.bench.uut.valid.next = beat.is_some();
        self.bench.uut.beat.next = beat.unwrap_or(noise_beat(&mut self.noise));
        self.bench.settle();
        if self.due.front().is_some_and(|(due, _)| *due == clock) {
            let (_, expected) = self.due.pop_front().expect("it is due");
            if let Some(expected) = expected {
                assert_eq!(self.bench.uut.ok.val(), expected, "clock {clock}");
                self.counts[usize::from(expected)] += 1;
            }
        }
        self.bench.edge();
    }

    fn beats(&mut self, beats: &[RxBeat], pace: &mut Stalls) {
        for beat in beats {
            while !pace.go() {
                self.clock(None);
            }
            self.clock(Some(*beat));
        }
    }

    fn send(&mut self, frame: &[u8], pace: &mut Stalls) {
        let sent = beats(frame, false, &mut self.noise);
        self.beats(&sent, pace);
        self.due.push_back((self.bench.clock_count() - 1 + LATENCY as u64, is_right(frame)));
    }

    fn finish(mut self) -> [usize; 2] {
        for _ in 0..=LATENCY {
            self.clock(None);
        }
        assert!(self.due.is_empty());
        self.bench.finish();
        self.counts
    }
}

#[test]
fn right_and_wrong_icrcs_are_told_apart_whatever_the_pauses() {
    let mut random = Stalls::new(502);
    let mut pace = Stalls::new(503);
    let mut case = Case::new("rx_icrc");
    for _ in 0..200 {
        let mut frame = build(random_plan(&mut random), &mut random);
        damage(&mut frame, &mut random);
        case.send(&frame, &mut pace);
    }
    let counts = case.finish();
    assert!(counts[0] >= 20 && counts[1] >= 100, "{counts:?}");
}

#[test]
fn frames_without_a_gap_are_known_seven_clocks_after_their_end_wherever_it_lies_in_a_beat() {
    let mut random = Stalls::new(504);
    let mut none = Stalls::none();
    let mut case = Case::new("rx_icrc_rate");
    for layout in 0..4 {
        for len in (0..72).step_by(3 + layout % 2).chain([300, 1024]) {
            let plan = Plan { vlan: layout & 1 == 1, ipv6: layout & 2 == 2, opcode: 0x04, len };
            let mut frame = build(plan, &mut random);
            case.send(&frame, &mut none);
            // The last bit that counts, and the first.
            let (_, _, l3, _) = offsets(&frame).expect("an IP frame");
            let at = if len % 2 == 0 { frame.len() - 1 } else { l3 };
            frame[at] ^= 0x80;
            case.send(&frame, &mut none);
        }
    }
    // Lengths that no pad makes, up to the beat's last byte.
    for layout in 0..4 {
        let plan = Plan { vlan: layout & 1 == 1, ipv6: layout & 2 == 2, opcode: 0x04, len: 0 };
        for extra in 0..70u16 {
            let mut frame = build(plan, &mut random);
            let (_, ipv6, l3, l4) = offsets(&frame).expect("an IP frame");
            let udp_len = number(&frame[l4 + 4..l4 + 6]) as u16 + extra;
            frame[l4 + 4..l4 + 6].copy_from_slice(&udp_len.to_be_bytes());
            frame.extend((0..extra).map(|_| random.random() as u8));
            let end = frame.len() - 4;
            let icrc = icrc(&frame, ipv6, l3, l4, end);
            frame[end..].copy_from_slice(&icrc);
            case.send(&frame, &mut none);
            frame[end] ^= 1;
            case.send(&frame, &mut none);
        }
    }
    let counts = case.finish();
    assert!(counts[0] == counts[1] && counts[1] > 80 + 280, "{counts:?}");
}

#[test]
fn fields_that_change_on_the_way_and_bytes_behind_do_not_count_and_all_others_do() {
    let mut random = Stalls::new(505);
    let mut none = Stalls::none();
    let mut case = Case::new("rx_icrc_mask");
    for layout in 0..4 {
        let plan = Plan { vlan: layout & 1 == 1, ipv6: layout & 2 == 2, opcode: 0x0A, len: 20 };
        let frame = build(plan, &mut random);
        let (_, _, l3, l4) = offsets(&frame).expect("an IP frame");
        // Every byte of the headers, one bit of each; not the types, from which the layout is known, nor the UDP length.
        let skipped = |at: usize| (12..l3).contains(&at) || (l4 + 4..l4 + 6).contains(&at);
        for at in (0..l4 + 40).filter(|at| !skipped(*at)) {
            let mut wrong = frame.clone();
            wrong[at] ^= 1 << (random.random() % 8);
            case.send(&wrong, &mut none);
        }
        // A trailer that fills the beat, that takes one more, and several more.
        for extra in [1, 64 - frame.len() % 64, 65 - frame.len() % 64, 200] {
            let mut long = frame.clone();
            long.extend((0..extra).map(|_| random.random() as u8));
            case.send(&long, &mut none);
        }
        // Cut before the ICRC's end, down to the headers.
        for len in [frame.len() - 1, frame.len() - 4, 128, 65, 64] {
            case.send(&frame[..len.min(frame.len() - 1)], &mut none);
        }
    }
    let counts = case.finish();
    assert!(counts[0] >= 200 && counts[1] >= 40, "{counts:?}");
}

#[test]
fn a_reset_in_the_middle_of_a_frame_does_not_disturb_the_next() {
    let mut random = Stalls::new(506);
    let mut none = Stalls::none();
    let mut case = Case::new("rx_icrc_reset");
    let plan = Plan { vlan: true, ipv6: false, opcode: 0x07, len: 256 };
    for (before, pause) in [(1, 0), (2, 0), (3, 1), (4, 2), (5, 3), (6, 0), (6, 1), (6, 2), (6, 3), (6, 4)] {
        let frame = build(plan, &mut random);
        let sent = beats(&frame, false, &mut random);
        case.beats(&sent[..before.min(sent.len())], &mut none);
        for _ in 0..pause {
            case.clock(None);
        }
        case.bench.uut.reset.next = true;
        case.clock(None);
        case.bench.uut.reset.next = false;
        for len in [0, 256] {
            let mut frame = build(Plan { len, ..plan }, &mut random);
            if len == 0 && before % 2 == 0 {
                frame[40] ^= 1;
            }
            case.send(&frame, &mut none);
        }
        for _ in 0..LATENCY {
            case.clock(None);
        }
    }
    assert_eq!(case.finish(), [7, 13]);
}
