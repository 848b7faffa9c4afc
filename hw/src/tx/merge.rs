//! Joins headers and payload into frames.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `header` | sink | finished headers |
//! | `line` | sink | payload lines, aligned to the end of the headers |
//! | `beat` | source | frames with room for the ICRC, and where it belongs |
//!
//! Latency: one clock. Throughput: one beat a clock, across frames. A frame has as many beats as
//! its bytes need, with pad and ICRC; the last may hold nothing but a part of the ICRC.

use rust_hdl::prelude::*;
use verbena_abi::wire;

use crate::bus::{FrameBeat, Header, Line, StreamSink, StreamSource};
use crate::prim::Fifo;

#[derive(LogicBlock)]
pub struct Merge {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub header: StreamSink<Header>,
    pub line: StreamSink<Line>,
    pub beat: StreamSource<FrameBeat>,

    beats: Fifo<FrameBeat, 1, 2>,
    is_first: DFF<Bit>,
    is_second: DFF<Bit>,
    sent: DFF<Bits<13>>,
    payload_done: DFF<Bit>,

    now: Signal<Local, Header>,
    bytes: Signal<Local, Bits<752>>,
    low: Signal<Local, Bits<512>>,
    high: Signal<Local, Bits<240>>,
    covered: Signal<Local, Bits<13>>,
    covered_left: Signal<Local, Bits<13>>,
    frame_left: Signal<Local, Bits<13>>,
    needs_line: Signal<Local, Bit>,
    begins_here: Signal<Local, Bit>,
    has_payload: Signal<Local, Bit>,
    go: Signal<Local, Bit>,
    is_last: Signal<Local, Bit>,
    payload: Signal<Local, Bits<512>>,
    beat_bytes: Constant<Bits<13>>,
    short_header: Constant<Bits<7>>,
    icrc_bytes: Constant<Bits<13>>,
    zero: Constant<Bits<13>>,
}

impl Default for Merge {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            header: Default::default(),
            line: Default::default(),
            beat: Default::default(),
            beats: Default::default(),
            is_first: Default::default(),
            is_second: Default::default(),
            sent: Default::default(),
            payload_done: Default::default(),
            now: Default::default(),
            bytes: Default::default(),
            low: Default::default(),
            high: Default::default(),
            covered: Default::default(),
            covered_left: Default::default(),
            frame_left: Default::default(),
            needs_line: Default::default(),
            begins_here: Default::default(),
            has_payload: Default::default(),
            go: Default::default(),
            is_last: Default::default(),
            payload: Default::default(),
            beat_bytes: Constant::new(64u32.to_bits()),
            short_header: Constant::new(64u32.to_bits()),
            icrc_bytes: Constant::new(wire::ICRC_BYTES.to_bits()),
            zero: Constant::new(0u32.to_bits()),
        }
    }
}

impl Logic for Merge {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, is_first, is_second, sent, payload_done);
        clock!(self, clock, beats);
        self.beats.reset.next = self.reset.val();
        StreamSource::<FrameBeat>::link(&mut self.beat, &mut self.beats.drain);

        self.now.next = self.header.data.val();
        self.bytes.next = self.now.val().bytes;
        self.low.next = self.bytes.val().get_bits::<512>(0);
        self.high.next = self.bytes.val().get_bits::<240>(512);
        self.has_payload.next = self.now.val().payload.any();
        self.covered.next = bit_cast::<13, 7>(self.now.val().len) + self.now.val().payload + bit_cast::<13, 2>(self.now.val().pad);
        self.covered_left.next = self.covered.val() - self.sent.q.val();
        self.frame_left.next = self.covered_left.val() + self.icrc_bytes.val();
        self.is_last.next = self.frame_left.val() <= self.beat_bytes.val();

        // Headers of more than one beat begin the payload in the second.
        self.begins_here.next = !self.is_first.q.val() | (self.now.val().len < self.short_header.val());
        self.needs_line.next = self.has_payload.val() & self.begins_here.val() & !self.payload_done.q.val();
        self.go.next = self.header.valid.val() & self.beats.fill.ready.val() & (self.line.valid.val() | !self.needs_line.val());
        self.line.ready.next = self.needs_line.val() & self.header.valid.val() & self.beats.fill.ready.val();
        self.header.ready.next = self.go.val() & self.is_last.val();
        self.payload.next = 0.into();
        if self.needs_line.val() {
            self.payload.next = self.line.data.val().data;
        }
        self.beats.fill.valid.next = self.go.val();
        self.beats.fill.data.next.data = self.payload.val();
        if self.is_first.q.val() {
            self.beats.fill.data.next.data = self.low.val() | self.payload.val();
        } else if self.is_second.q.val() {
            self.beats.fill.data.next.data = bit_cast::<512, 240>(self.high.val()) | self.payload.val();
        }
        self.beats.fill.data.next.bytes = bit_cast::<7, 13>(self.beat_bytes.val());
        if self.is_last.val() {
            self.beats.fill.data.next.bytes = bit_cast::<7, 13>(self.frame_left.val());
        }
        self.beats.fill.data.next.last = self.is_last.val();
        self.beats.fill.data.next.first = self.is_first.q.val();
        self.beats.fill.data.next.second = self.is_second.q.val();
        // In a beat behind the last covered byte `covered_left` is below 0, which reads as more than any beat.
        self.beats.fill.data.next.ends_icrc =
            (self.covered_left.val() <= self.beat_bytes.val()) & (self.covered_left.val() != self.zero.val());
        self.beats.fill.data.next.covered = bit_cast::<6, 13>(self.covered_left.val());
        self.beats.fill.data.next.ipv6 = self.now.val().ipv6;
        self.beats.fill.data.next.vlan = self.now.val().vlan;
        if self.go.val() {
            self.is_first.d.next = false;
            self.is_second.d.next = self.is_first.q.val();
            self.sent.d.next = self.sent.q.val() + self.beat_bytes.val();
            self.payload_done.d.next = self.payload_done.q.val() | (self.needs_line.val() & self.line.data.val().last);
            if self.is_last.val() {
                self.is_first.d.next = true;
                self.is_second.d.next = false;
                self.sent.d.next = 0.into();
                self.payload_done.d.next = false;
            }
        }

        if self.reset.val() {
            self.is_first.d.next = true;
            self.is_second.d.next = false;
            self.sent.d.next = 0.into();
            self.payload_done.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::pack;
    use crate::testing::{Bench, Driver, Monitor, Stalls};
    use crate::tx::headers::header_bytes;
    use crate::tx::icrc::tests::{frame_beats, LAYOUTS};

    /// Headers, payload lines and the beats that they are to become.
    #[derive(Default)]
    struct Work {
        headers: Vec<Header>,
        lines: Vec<Line>,
        beats: Vec<FrameBeat>,
    }

    impl Work {
        fn add(&mut self, random: &mut Stalls, (ipv6, vlan): (bool, bool), extension: usize, payload: usize) {
            let base = header_bytes(ipv6, vlan) + extension;
            let pad = (4 - payload % 4) % 4;
            let mut frame: Vec<u8> = (0..base + payload).map(|_| random.random() as u8).collect();
            self.headers.push(Header {
                bytes: pack(&frame[..base]),
                len: (base as u64).into(),
                payload: (payload as u64).into(),
                pad: (pad as u64).into(),
                ipv6,
                vlan,
            });
            let mut placed = vec![0; base % 64];
            placed.extend(&frame[base..]);
            let count = if payload == 0 { 0 } else { placed.len().div_ceil(64) };
            self.lines
                .extend((0..count).map(|i| Line { data: pack(&placed[64 * i..placed.len().min(64 * i + 64)]), last: i == count - 1 }));
            frame.resize(base + payload + pad, 0);
            self.beats.extend(frame_beats(&frame, ipv6, vlan));
        }

        /// Every layout and extension with payloads around the borders of a beat, and random ones.
        fn new(seed: u64, count: usize) -> Self {
            let mut random = Stalls::new(seed);
            let mut work = Self::default();
            for i in 0..count {
                let payload = match i % 3 {
                    0 => 0,
                    1 => random.random() % 80,
                    _ => random.random() % 260,
                };
                let layout = LAYOUTS[random.random() as usize % 4];
                let extension = [0, 4, 16][random.random() as usize % 3];
                work.add(&mut random, layout, extension, payload as usize);
            }
            work
        }
    }

    /// Sends all, until it is out or for `limit` clocks; returns what came and the clocks that it took.
    fn run(bench: &mut Bench<Merge>, work: &Work, stalls: [Stalls; 3], limit: usize) -> (Vec<FrameBeat>, usize) {
        let [header, line, beat] = stalls;
        let mut header = Driver::new(work.headers.iter().copied(), header);
        let mut line = Driver::new(work.lines.iter().copied(), line);
        let mut beat = Monitor::new(beat);
        let mut clock = 0;
        while clock < limit && beat.got.len() < work.beats.len() {
            header.before(&mut bench.uut.header);
            line.before(&mut bench.uut.line);
            beat.before(&mut bench.uut.beat);
            bench.settle();
            header.after(&bench.uut.header);
            line.after(&bench.uut.line);
            beat.after(&bench.uut.beat);
            bench.edge();
            clock += 1;
        }
        (beat.got, clock)
    }

    fn reset(bench: &mut Bench<Merge>) {
        bench.uut.header.valid.next = false;
        bench.uut.line.valid.next = false;
        bench.uut.reset.next = true;
        bench.cycles(2);
        bench.uut.reset.next = false;
    }

    #[test]
    fn headers_and_payload_become_frames_under_random_stalls_and_after_a_reset() {
        let mut bench = Bench::new("tx_merge", Merge::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        for seed in 1..4 {
            let work = Work::new(seed, 50);
            run(&mut bench, &work, [10, 20, 30].map(|n| Stalls::new(seed + n)), 50 + seed as usize);
            reset(&mut bench);
            let (got, _) = run(&mut bench, &work, [40, 50, 60].map(|n| Stalls::new(seed + n)), 4000);
            assert!(got == work.beats);
        }
        bench.finish();
    }

    #[test]
    fn a_beat_leaves_every_clock_across_frames_of_every_length() {
        let mut bench = Bench::new("tx_merge_rate", Merge::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        let (mut work, mut random) = (Work::default(), Stalls::new(1));
        for layout in LAYOUTS {
            for extension in [0, 4, 16] {
                for payload in (0..140).step_by(3) {
                    work.add(&mut random, layout, extension, payload);
                }
            }
        }
        let (got, clocks) = run(&mut bench, &work, [Stalls::none(), Stalls::none(), Stalls::none()], 4000);
        assert!(got == work.beats);
        assert_eq!(clocks, work.beats.len() + 1);
        bench.finish();
    }
}
