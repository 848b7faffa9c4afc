//! Gives frames to the MAC as AXI4-Stream.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `beat` | sink | finished frames |
//! | `tdata`, `tkeep`, `tlast`, `tvalid`, `tready` | AXI4-Stream source | the same |
//!
//! Latency: one clock. Throughput: one beat a clock. Between frames `tvalid` may fall; inside one
//! it does not, since the stages before give a frame without gaps and the FIFO here holds eight
//! beats against the clock that a refill takes.

use rust_hdl::prelude::*;

use crate::bus::{Beat, StreamSink};
use crate::prim::Fifo;

/// A beat as the MAC wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct MacBeat {
    data: Bits<512>,
    keep: Bits<64>,
    last: Bit,
}

#[derive(LogicBlock)]
pub struct MacOut {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub beat: StreamSink<Beat>,
    pub tdata: Signal<Out, Bits<512>>,
    pub tkeep: Signal<Out, Bits<64>>,
    pub tlast: Signal<Out, Bit>,
    pub tvalid: Signal<Out, Bit>,
    pub tready: Signal<In, Bit>,

    beats: Fifo<MacBeat, 3, 4>,
    incoming: Signal<Local, Beat>,
    bytes: Signal<Local, Bits<7>>,
    is_full: Signal<Local, Bit>,
    all: Constant<Bits<64>>,
}

impl Default for MacOut {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            beat: Default::default(),
            tdata: Default::default(),
            tkeep: Default::default(),
            tlast: Default::default(),
            tvalid: Default::default(),
            tready: Default::default(),
            beats: Default::default(),
            incoming: Default::default(),
            bytes: Default::default(),
            is_full: Default::default(),
            all: Constant::new(u64::MAX.to_bits()),
        }
    }
}

impl Logic for MacOut {
    #[hdl_gen]
    fn update(&mut self) {
        clock!(self, clock, beats);
        self.beats.reset.next = self.reset.val();
        self.incoming.next = self.beat.data.val();
        self.bytes.next = self.incoming.val().bytes;
        self.is_full.next = self.bytes.val().get_bit(6);
        self.beat.ready.next = self.beats.fill.ready.val();
        self.beats.fill.valid.next = self.beat.valid.val();
        self.beats.fill.data.next.data = self.incoming.val().data;
        self.beats.fill.data.next.keep = self.all.val();
        if !self.is_full.val() {
            self.beats.fill.data.next.keep = self.all.val() ^ (self.all.val() << self.bytes.val());
        }
        self.beats.fill.data.next.last = self.incoming.val().last;
        self.tdata.next = self.beats.drain.data.val().data;
        self.tkeep.next = self.beats.drain.data.val().keep;
        self.tlast.next = self.beats.drain.data.val().last;
        self.tvalid.next = self.beats.drain.valid.val();
        self.beats.drain.ready.next = self.tready.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::{Header, Line, StreamSource};
    use crate::prim::{pack, unpack};
    use crate::testing::{Bench, Driver, Stalls};
    use crate::tx::icrc::tests::{icrc, LAYOUTS};
    use crate::tx::{Icrc, Merge};

    /// Watches an AXI4-Stream: an offer holds still, and the bytes that `tkeep` names are taken.
    #[derive(Default)]
    struct Mac {
        frames: Vec<Vec<u8>>,
        frame: Vec<u8>,
        pending: Option<(Bits<512>, u64, bool)>,
        beats: usize,
    }

    impl Mac {
        /// Takes note of a clock; returns whether a frame is under way.
        fn note(&mut self, valid: bool, ready: bool, data: Bits<512>, keep: u64, last: bool) -> bool {
            if let Some(pending) = self.pending.take() {
                assert!(valid && pending == (data, keep, last), "an offer changed before it was taken");
            }
            if valid && ready {
                assert!((keep & keep.wrapping_add(1)) == 0 && keep & 1 == 1, "the bytes that count are the first");
                assert!(last || keep == u64::MAX, "a beat inside a frame is full");
                self.frame.extend(&unpack(data)[..keep.count_ones() as usize]);
                self.beats += 1;
                if last {
                    self.frames.push(std::mem::take(&mut self.frame));
                }
            } else if valid {
                self.pending = Some((data, keep, last));
            }
            !self.frame.is_empty()
        }
    }

    fn random_frames(seed: u64, count: usize) -> Vec<Vec<u8>> {
        let mut random = Stalls::new(seed);
        (0..count).map(|_| (0..1 + random.random() % 200).map(|_| random.random() as u8).collect()).collect()
    }

    fn beats(frames: &[Vec<u8>]) -> Vec<Beat> {
        let of = |frame: &Vec<u8>| {
            let count = frame.len().div_ceil(64);
            frame
                .chunks(64)
                .enumerate()
                .map(|(i, bytes)| Beat { data: pack(bytes), bytes: (bytes.len() as u64).into(), last: i == count - 1 })
                .collect::<Vec<_>>()
        };
        frames.iter().flat_map(of).collect()
    }

    /// Sends frames, until all are out or for `limit` clocks; returns what came and the clocks that it took.
    fn run(bench: &mut Bench<MacOut>, frames: &[Vec<u8>], fill: Stalls, mut drain: Stalls, limit: usize) -> (Vec<Vec<u8>>, usize) {
        let mut driver = Driver::new(beats(frames), fill);
        let mut mac = Mac::default();
        for clock in 0..limit {
            driver.before(&mut bench.uut.beat);
            bench.uut.tready.next = drain.go();
            bench.settle();
            driver.after(&bench.uut.beat);
            let uut = &bench.uut;
            mac.note(uut.tvalid.val(), uut.tready.val(), uut.tdata.val(), uut.tkeep.val().to_u64(), uut.tlast.val());
            bench.edge();
            if mac.frames.len() == frames.len() {
                return (mac.frames, clock + 1);
            }
        }
        (mac.frames, limit)
    }

    #[test]
    fn frames_come_out_as_they_are_under_random_stalls_and_after_a_reset() {
        let mut bench = Bench::new("mac_out", MacOut::default(), |uut| &mut uut.clock);
        for seed in 1..4 {
            let frames = random_frames(seed, 40);
            run(&mut bench, &frames, Stalls::new(seed + 10), Stalls::new(seed + 20), 40 + seed as usize);
            bench.uut.reset.next = true;
            bench.uut.beat.valid.next = false;
            bench.cycles(1);
            bench.uut.reset.next = false;
            assert!(run(&mut bench, &frames, Stalls::new(seed + 30), Stalls::new(seed + 40), 3000).0 == frames);
        }
        // All fills of the last beat, a beat a clock behind the clock of the FIFO.
        let frames: Vec<Vec<u8>> = (1..=130).map(|len| (0..len).collect()).collect();
        let (got, clocks) = run(&mut bench, &frames, Stalls::none(), Stalls::none(), 3000);
        assert!(got == frames);
        assert_eq!(clocks, beats(&frames).len() + 1);
        // A MAC that takes nothing: eight beats wait here, and the next one outside.
        bench.uut.beat.valid.next = true;
        bench.uut.tready.next = false;
        bench.cycles(12);
        assert!(!bench.uut.beat.ready.val());
        assert_eq!(bench.uut.beats.level.val(), 8u64);
        bench.finish();
    }

    /// The end of the transmit path: what gives the MAC its frames.
    #[derive(LogicBlock, Default)]
    struct Tail {
        pub clock: Signal<In, Clock>,
        pub reset: Signal<In, Bit>,
        pub header: StreamSink<Header>,
        pub line: StreamSink<Line>,
        pub tdata: Signal<Out, Bits<512>>,
        pub tkeep: Signal<Out, Bits<64>>,
        pub tlast: Signal<Out, Bit>,
        pub tvalid: Signal<Out, Bit>,
        pub tready: Signal<In, Bit>,
        merge: Merge,
        icrc: Icrc,
        mac_out: MacOut,
    }

    impl Logic for Tail {
        #[hdl_gen]
        fn update(&mut self) {
            clock!(self, clock, merge, icrc, mac_out);
            self.merge.reset.next = self.reset.val();
            self.icrc.reset.next = self.reset.val();
            self.mac_out.reset.next = self.reset.val();
            StreamSink::<Header>::link(&mut self.header, &mut self.merge.header);
            StreamSink::<Line>::link(&mut self.line, &mut self.merge.line);
            StreamSource::<crate::bus::FrameBeat>::join(&mut self.merge.beat, &mut self.icrc.beat_in);
            StreamSource::<Beat>::join(&mut self.icrc.beat, &mut self.mac_out.beat);
            self.tdata.next = self.mac_out.tdata.val();
            self.tkeep.next = self.mac_out.tkeep.val();
            self.tlast.next = self.mac_out.tlast.val();
            self.tvalid.next = self.mac_out.tvalid.val();
            self.mac_out.tready.next = self.tready.val();
        }
    }

    /// When the MAC takes a beat.
    enum Ready {
        Always,
        Randomly(Stalls),
        /// For so many clocks not at all, then always.
        After(usize),
    }

    #[test]
    fn no_frame_has_a_gap_on_the_wire_after_whatever_stalls() {
        let mut bench = Bench::new("tx_tail", Tail::default(), |uut| &mut uut.clock);
        bench.uut.reset.next = true;
        bench.cycles(10);
        bench.uut.reset.next = false;
        let cases = [
            (1, Stalls::none(), Ready::Always),
            (2, Stalls::new(5), Ready::Always),
            (3, Stalls::none(), Ready::After(100)),
            (4, Stalls::none(), Ready::After(31)),
            (5, Stalls::new(6), Ready::Randomly(Stalls::new(7))),
            (6, Stalls::none(), Ready::Randomly(Stalls::new(8))),
        ];
        for (seed, headers, mut ready) in cases {
            let mut random = Stalls::new(seed);
            let (mut expected, mut sent, mut lines) = (vec![], vec![], vec![]);
            for i in 0..30 {
                let (ipv6, vlan) = LAYOUTS[i % 4];
                let base = super::super::headers::header_bytes(ipv6, vlan) + [0, 4, 16][random.random() as usize % 3];
                let payload = if i % 7 == 6 { 0 } else { random.random() % 300 } as usize;
                let mut frame: Vec<u8> = (0..base + payload).map(|_| random.random() as u8).collect();
                let pad = (4 - payload % 4) % 4;
                sent.push(Header {
                    bytes: pack(&frame[..base]),
                    len: (base as u64).into(),
                    payload: (payload as u64).into(),
                    pad: (pad as u64).into(),
                    ipv6,
                    vlan,
                });
                // The payload as it lies in the frame: the first line begins where the headers end.
                let mut placed = vec![0; base % 64];
                placed.extend(&frame[base..]);
                let count = if payload == 0 { 0 } else { placed.len().div_ceil(64) };
                lines.extend((0..count).map(|i| Line { data: pack(&placed[64 * i..placed.len().min(64 * i + 64)]), last: i == count - 1 }));
                frame.resize(base + payload + pad, 0);
                frame.extend(icrc(&frame, ipv6, vlan));
                expected.push(frame);
            }
            // A header comes when its payload is there, so lines never stall.
            let mut header = Driver::new(sent, headers);
            let mut line = Driver::new(lines, Stalls::none());
            let mut mac = Mac::default();
            let (mut in_frame, mut first, mut clock) = (false, None, 0);
            while mac.frames.len() < expected.len() {
                header.before(&mut bench.uut.header);
                line.before(&mut bench.uut.line);
                bench.uut.tready.next = match &mut ready {
                    Ready::Always => true,
                    Ready::Randomly(stalls) => stalls.go(),
                    Ready::After(clocks) => clock >= *clocks,
                };
                bench.settle();
                header.after(&bench.uut.header);
                line.after(&bench.uut.line);
                let uut = &bench.uut;
                let (valid, last) = (uut.tvalid.val(), uut.tlast.val());
                assert!(valid || !in_frame, "a gap inside frame {} of case {seed}", mac.frames.len());
                first = first.or(valid.then_some(clock));
                in_frame = mac.note(valid, uut.tready.val(), uut.tdata.val(), uut.tkeep.val().to_u64(), last);
                bench.edge();
                clock += 1;
                assert!(clock < 3000, "a frame hangs");
            }
            assert!(mac.frames == expected);
            if seed == 1 {
                assert_eq!(first, Some(Icrc::LATENCY + 2), "one clock in the merger, one here");
                assert_eq!(clock, Icrc::LATENCY + 2 + mac.beats, "a beat a clock, across frames");
            }
        }
        bench.finish();
    }
}
