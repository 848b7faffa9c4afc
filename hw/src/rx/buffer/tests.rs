//! Frames against a queue of lines in software. When exactly a line leaves the ring is the block's affair,
//! so the model says of a frame that it must be kept, that it can't be, or that both are right.

use super::*;
use crate::prim::pack;
use crate::testing::{Bench, Monitor, Stalls};

/// A ring that a frame of 4096 bytes fills.
type Buffer = RxBuffer<6, 7>;
const RING: usize = 64;
/// Lines that can have left the ring without being taken, in the FIFO behind it and on the way there.
const AHEAD: usize = 4;
/// Heads, and frames with payload, that can wait.
const ENTRIES: usize = 128;

#[derive(Clone, Copy)]
struct Frame {
    beats: usize,
    accept: bool,
    skip: bool,
    needed: usize,
}

impl Frame {
    /// Of one beat or more, all of them payload.
    fn whole(beats: usize) -> Self {
        Self { beats, accept: true, skip: false, needed: beats }
    }

    fn empty() -> Self {
        Self { needed: 0, ..Self::whole(1) }
    }
}

/// A frame that was to be kept in the last clock.
struct Judged {
    frame: Frame,
    head: RxHead,
    data: Vec<Bits<512>>,
    must_overflow: bool,
    may_overflow: bool,
}

struct Case {
    bench: Bench<Buffer>,
    heads: Monitor<RxHead>,
    lines: Monitor<Line>,
    /// Nothing is taken.
    are_heads_shut: bool,
    are_lines_shut: bool,
    random: Stalls,
    /// Heads that are kept, with the clock of their last beat.
    kept_heads: Vec<(u64, RxHead)>,
    /// Lines that are kept, with the index in the ring behind each.
    kept_lines: Vec<(Line, usize)>,
    /// Lines up to the end of each frame with payload.
    kept_ends: Vec<usize>,
    base: usize,
    /// The frame that comes: its lines, the first that may have found no room, and the first that surely has.
    data: Vec<Bits<512>>,
    unsure: Option<usize>,
    missing: Option<usize>,
    judged: Option<Judged>,
    overflows: usize,
    /// Clock of each line that was taken.
    line_clocks: Vec<u64>,
}

impl Case {
    fn new(name: &str, mut stalls: impl FnMut() -> Stalls) -> Self {
        Self {
            bench: Bench::new(name, Buffer::default(), |uut| &mut uut.clock),
            heads: Monitor::new(stalls()),
            lines: Monitor::new(stalls()),
            are_heads_shut: false,
            are_lines_shut: false,
            random: Stalls::new(701),
            kept_heads: vec![],
            kept_lines: vec![],
            kept_ends: vec![],
            base: 0,
            data: vec![],
            unsure: None,
            missing: None,
            judged: None,
            overflows: 0,
            line_clocks: vec![],
        }
    }

    /// Index in the ring up to which lines have been read when `count` of them were.
    fn free(&self, count: usize) -> usize {
        count.min(self.kept_lines.len()).checked_sub(1).map_or(0, |last| self.kept_lines[last].1)
    }

    /// One clock, with the beat of a frame or without.
    fn clock(&mut self, beat: Option<(Frame, bool)>) {
        let clock = self.bench.clock_count();
        let random = &mut self.random;
        let data = pack(&core::array::from_fn::<u8, 64, _>(|_| random.random() as u8));
        let head = RxHead { psn: (random.random() % (1 << 24)).to_bits(), va: random.random().to_bits(), ipv6: true, ..Default::default() };
        // What does not count now is noise.
        let noise = Frame { beats: 1, accept: true, skip: random.random() % 2 == 0, needed: (random.random() % 60) as usize };
        let (frame, last) = beat.unwrap_or((noise, random.random() % 2 == 0));
        let shown = if last { frame } else { noise };
        let uut = &mut self.bench.uut;
        uut.beat_valid.next = beat.is_some();
        uut.beat_last.next = last;
        uut.beat_data.next = data;
        uut.accept.next = shown.accept;
        uut.skip.next = shown.skip;
        uut.needed.next = shown.needed.to_bits();
        uut.head.next = head;
        self.heads.before(&mut uut.heads);
        self.lines.before(&mut uut.lines);
        if self.are_heads_shut {
            uut.heads.ready.next = false;
        }
        if self.are_lines_shut {
            uut.lines.ready.next = false;
        }
        self.bench.settle();

        // Whether the frame that ended in the last clock was kept.
        let overflow = self.bench.uut.overflow.val();
        match self.judged.take() {
            None => assert!(!overflow, "clock {clock}: an overflow of nothing"),
            Some(judged) => {
                assert!(judged.may_overflow || !overflow, "clock {clock}: an overflow though there was room");
                assert!(overflow || !judged.must_overflow, "clock {clock}: no overflow though there was no room");
                self.overflows += usize::from(overflow);
                if !overflow {
                    self.keep(clock - 1, judged);
                }
            }
        }
        // Heads come two clocks after their frames.
        let waiting = self.kept_heads[self.heads.got.len()..].iter().filter(|(end, _)| end + 2 <= clock).count();
        assert_eq!(self.bench.uut.heads.valid.val(), waiting > 0, "clock {clock}");
        if let Some((frame, last)) = beat {
            self.beat(frame, last, data, head);
        }
        let (heads, lines) = (self.heads.got.len(), self.lines.got.len());
        self.heads.after(&self.bench.uut.heads);
        self.lines.after(&self.bench.uut.lines);
        for at in heads..self.heads.got.len() {
            assert_eq!(self.heads.got[at], self.kept_heads[at].1, "head {at}");
        }
        for at in lines..self.lines.got.len() {
            assert!(at < self.kept_lines.len(), "a line too many");
            assert_eq!(self.lines.got[at], self.kept_lines[at].0, "line {at}");
            self.line_clocks.push(clock);
        }
        self.bench.edge();
    }

    fn beat(&mut self, frame: Frame, last: bool, data: Bits<512>, head: RxHead) {
        let (taken, at) = (self.lines.got.len(), self.data.len());
        if self.base + at - self.free(taken) >= RING {
            self.unsure = self.unsure.or(Some(at));
        }
        if self.base + at - self.free(taken + AHEAD) >= RING {
            self.missing = self.missing.or(Some(at));
        }
        self.data.push(data);
        if !last {
            return;
        }
        let heads = self.kept_heads.len() - self.heads.got.len();
        // One frame may be on its way out of the queue, and short ones may have left it with all their lines.
        let frames = if frame.needed == 0 { 0 } else { self.kept_ends.iter().filter(|end| **end > taken).count() };
        let lacks = |first: Option<usize>| first.is_some_and(|at| at < frame.needed);
        let must_overflow = lacks(self.missing) || heads == ENTRIES || frames > ENTRIES + AHEAD;
        let may_overflow = lacks(self.unsure) || heads == ENTRIES || frames >= ENTRIES;
        let data = std::mem::take(&mut self.data);
        self.judged = frame.accept.then_some(Judged { frame, head, data, must_overflow, may_overflow });
        (self.unsure, self.missing) = (None, None);
    }

    fn keep(&mut self, end: u64, judged: Judged) {
        let Judged { frame, head, data, .. } = judged;
        self.kept_heads.push((end, head));
        let skip = usize::from(frame.skip);
        for (at, data) in data.into_iter().enumerate().take(frame.needed).skip(skip) {
            self.kept_lines.push((Line { data, last: at + 1 == frame.needed }, self.base + at + 1));
        }
        if frame.needed > 0 {
            self.kept_ends.push(self.kept_lines.len());
        }
        self.base += frame.needed;
    }

    fn idle(&mut self, clocks: usize) {
        for _ in 0..clocks {
            self.clock(None);
        }
    }

    fn send(&mut self, frame: Frame, pace: &mut Stalls) {
        for at in 0..frame.beats {
            while !pace.go() {
                self.clock(None);
            }
            self.clock(Some((frame, at + 1 == frame.beats)));
        }
    }

    fn send_all(&mut self, frames: &[Frame]) {
        frames.iter().for_each(|frame| self.send(*frame, &mut Stalls::none()));
    }

    /// Takes all that is kept, and sees that no more comes.
    fn drain(&mut self) {
        (self.are_heads_shut, self.are_lines_shut) = (false, false);
        let end = self.bench.clock_count() + 1000;
        while self.heads.got.len() < self.kept_heads.len() || self.lines.got.len() < self.kept_lines.len() || self.judged.is_some() {
            self.clock(None);
            assert!(self.bench.clock_count() < end, "a head or a line does not come");
        }
        self.idle(10);
        assert!(!self.bench.uut.heads.valid.val() && !self.bench.uut.lines.valid.val());
    }

    /// Gives a reset, in which a beat comes.
    fn reset(&mut self, last: bool) {
        let uut = &mut self.bench.uut;
        (uut.beat_valid.next, uut.beat_last.next, uut.accept.next) = (true, last, true);
        (uut.skip.next, uut.needed.next) = (false, 1u64.to_bits());
        uut.reset.next = true;
        self.bench.edge();
        self.bench.uut.reset.next = false;
        (self.heads.got, self.lines.got, self.line_clocks) = (vec![], vec![], vec![]);
        self.heads.restart();
        self.lines.restart();
        (self.kept_heads, self.kept_lines, self.kept_ends) = (vec![], vec![], vec![]);
        (self.base, self.data, self.judged, self.overflows) = (0, vec![], None, 0);
        (self.unsure, self.missing) = (None, None);
    }
}

#[test]
fn frames_come_out_whole_and_in_order_and_none_is_lost_without_a_word_under_random_stalls() {
    let mut seed = 710;
    let mut case = Case::new("rx_buffer", || {
        seed += 1;
        Stalls::new(seed)
    });
    let mut random = Stalls::new(720);
    let mut pace = Stalls::new(721);
    let mut accepted = 0;
    for _ in 0..300 {
        let any = 1 + random.random() as usize % 24;
        let beats = [1, 1, 1, 2, any, any, 64 + any % 3][random.random() as usize % 7];
        let needed = if random.random() % 4 == 0 { 0 } else { beats - random.random() as usize % beats.min(3) };
        let frame = Frame { beats, accept: random.random() % 4 != 0, skip: needed > 1 && random.random() % 2 == 0, needed };
        accepted += usize::from(frame.accept);
        case.send(frame, &mut pace);
    }
    case.drain();
    println!("{accepted} accepted, {} without room", case.overflows);
    assert_eq!(case.kept_heads.len() + case.overflows, accepted);
    assert!(case.overflows >= 20 && case.kept_heads.len() >= 100);
    case.bench.finish();
}

#[test]
fn a_frame_and_a_line_pass_every_clock_a_head_after_two_clocks_and_a_line_after_five() {
    let mut case = Case::new("rx_buffer_rate", Stalls::none);
    // `Case::clock` looks at the clock of each head.
    case.send_all(&[Frame::whole(1); 70]);
    case.idle(5);
    assert_eq!(case.line_clocks, Vec::from_iter(5..75));
    // The lines of two longer frames leave without a gap behind the end of the first.
    let begin = case.bench.clock_count();
    case.send_all(&[Frame::whole(30), Frame::whole(30)]);
    case.idle(34);
    assert_eq!(case.line_clocks[70..], Vec::from_iter(begin + 29 + 5..begin + 59 + 5 + 30));
    // A payload that begins in the second beat is no slower.
    let begin = case.bench.clock_count();
    case.send_all(&[Frame { skip: true, ..Frame::whole(2) }; 20]);
    case.idle(5);
    assert_eq!(case.line_clocks[130..], Vec::from_iter((0..20).map(|frame| begin + 2 * frame + 1 + 5)));
    assert_eq!(case.overflows, 0);
    case.drain();
    case.bench.finish();
}

#[test]
fn a_full_ring_turns_frames_away_until_lines_are_taken_and_empty_ones_get_through() {
    let mut case = Case::new("rx_buffer_full", Stalls::none);
    for round in 0..3 {
        case.are_lines_shut = true;
        // Four lines leave the ring, so seven frames of nine leave room for five lines.
        case.send_all(&[Frame::whole(9); 7]);
        case.idle(8);
        case.send_all(&[Frame::whole(6), Frame::empty(), Frame::whole(6), Frame { accept: false, ..Frame::whole(66) }]);
        case.idle(2);
        assert_eq!(case.overflows, 3 * round + 2);
        // What a frame needs counts, not how long it is.
        case.send_all(&[Frame { needed: 5, ..Frame::whole(66) }, Frame::whole(1), Frame::empty()]);
        case.idle(2);
        assert_eq!(case.overflows, 3 * round + 3);
        case.drain();
        assert_eq!(case.kept_heads.len(), 10 * (round + 1));
    }
    // The largest frame fits into an empty ring, and one more line never does.
    for needed in [64, 65, 64] {
        case.send_all(&[Frame { needed, skip: true, ..Frame::whole(66) }]);
        case.drain();
    }
    assert_eq!((case.overflows, case.kept_heads.len()), (10, 32));
    case.bench.finish();
}

#[test]
fn more_heads_than_there_is_room_for_and_more_small_frames_than_the_ring_holds_are_an_overflow() {
    let mut case = Case::new("rx_buffer_entries", Stalls::none);
    case.are_heads_shut = true;
    case.send_all(&[Frame::empty(); 140]);
    case.idle(2);
    assert_eq!((case.kept_heads.len(), case.overflows), (ENTRIES, 140 - ENTRIES));
    case.drain();
    case.are_lines_shut = true;
    case.send_all(&[Frame::whole(1); 80]);
    case.idle(2);
    // Four are with their lines in the FIFO behind the ring.
    assert_eq!(case.kept_heads.len(), ENTRIES + AHEAD + RING);
    case.send_all(&[Frame::empty(); 3]);
    case.idle(2);
    assert_eq!(case.kept_heads.len(), ENTRIES + AHEAD + RING + 3);
    case.drain();
    case.bench.finish();
}

#[test]
fn a_reset_in_the_middle_forgets_all_frames_and_gives_all_room_back() {
    let mut case = Case::new("rx_buffer_reset", Stalls::none);
    for round in 0..8 {
        (case.are_heads_shut, case.are_lines_shut) = (true, round % 2 == 0);
        case.send_all(&[Frame::whole(9); 7]);
        case.send_all(&[Frame::empty(); 20]);
        // Nothing more; a frame that does not end; one whose lines are being read; and one that may have no room.
        match round / 2 {
            0 => case.idle(1),
            1 => (0..8).for_each(|_| case.clock(Some((Frame::whole(9), false)))),
            2 => {
                case.send_all(&[Frame::whole(9)]);
                case.idle(6);
            }
            _ => case.send_all(&[Frame::whole(20)]),
        }
        case.reset(round / 2 != 1);
        (case.are_heads_shut, case.are_lines_shut) = (false, false);
        case.idle(12);
        // A ring full of lines, and as many heads as there is room for.
        (case.are_heads_shut, case.are_lines_shut) = (true, true);
        case.send_all(&[Frame { needed: 64, ..Frame::whole(66) }]);
        case.send_all(&[Frame::empty(); ENTRIES - 1]);
        case.idle(2);
        assert_eq!((case.kept_heads.len(), case.overflows), (ENTRIES, 0));
        case.drain();
    }
    case.bench.finish();
}
