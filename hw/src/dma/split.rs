//! Cuts a range of host memory into bursts that cross no boundary.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `span` | sink | address and length in bytes, 1 to 4096 |
//! | `burst` | source | the lines of the range in order, cut at multiples of `1 << K` lines |
//!
//! Latency: two clocks from a span to its first burst. Throughput: one burst every clock, across
//! spans, so a span inside one block takes one clock. The source is a FIFO of two entries.
//! A length of 0 is against the contract and gives a burst that is wrong.

use rust_hdl::prelude::*;

use super::axi::{Burst, Span};
use crate::bus::{StreamSink, StreamSource};
use crate::prim::Fifo;

/// Cuts at multiples of `1 << K` lines; `K` is at most 6.
#[derive(LogicBlock)]
pub struct Split<const K: usize> {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub span: StreamSink<Span>,
    pub burst: StreamSource<Burst>,

    bursts: Fifo<Burst, 1, 2>,
    is_busy: DFF<Bit>,
    line: DFF<Bits<58>>,
    left: DFF<Bits<7>>,
    head: DFF<Bits<6>>,
    tail: DFF<Bits<6>>,

    addr: Signal<Local, Bits<64>>,
    len: Signal<Local, Bits<13>>,
    offset: Signal<Local, Bits<6>>,
    stop: Signal<Local, Bits<13>>,
    rounded: Signal<Local, Bits<13>>,
    low: Signal<Local, Bits<K>>,
    room: Signal<Local, Bits<7>>,
    beats: Signal<Local, Bits<7>>,
    filled: Signal<Local, Bits<58>>,
    is_final: Signal<Local, Bit>,
    give: Signal<Local, Bit>,
    take: Signal<Local, Bit>,
    block_lines: Constant<Bits<7>>,
    block_mask: Constant<Bits<58>>,
}

impl<const K: usize> Default for Split<K> {
    fn default() -> Self {
        assert!(K <= 6, "a burst has at most 64 lines");
        Self {
            clock: Default::default(),
            reset: Default::default(),
            span: Default::default(),
            burst: Default::default(),
            bursts: Default::default(),
            is_busy: Default::default(),
            line: Default::default(),
            left: Default::default(),
            head: Default::default(),
            tail: Default::default(),
            addr: Default::default(),
            len: Default::default(),
            offset: Default::default(),
            stop: Default::default(),
            rounded: Default::default(),
            low: Default::default(),
            room: Default::default(),
            beats: Default::default(),
            filled: Default::default(),
            is_final: Default::default(),
            give: Default::default(),
            take: Default::default(),
            block_lines: Constant::new((1usize << K).to_bits()),
            block_mask: Constant::new(((1usize << K) - 1).to_bits()),
        }
    }
}

impl<const K: usize> Logic for Split<K> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, is_busy, line, left, head, tail);
        clock!(self, clock, bursts);
        self.bursts.reset.next = self.reset.val();
        StreamSource::<Burst>::link(&mut self.burst, &mut self.bursts.drain);

        // At most 63 + 4096 + 63 bytes, which 13 bits hold: 65 lines.
        self.addr.next = self.span.data.val().addr;
        self.len.next = self.span.data.val().len;
        self.offset.next = self.addr.val().get_bits::<6>(0);
        self.stop.next = self.len.val() + bit_cast::<13, 6>(self.offset.val());
        self.rounded.next = self.stop.val() + 63;

        self.low.next = self.line.q.val().get_bits::<K>(0);
        self.room.next = self.block_lines.val() - bit_cast::<7, K>(self.low.val());
        self.is_final.next = self.left.q.val() <= self.room.val();
        self.beats.next = self.room.val();
        if self.is_final.val() {
            self.beats.next = self.left.q.val();
        }
        self.bursts.fill.valid.next = self.is_busy.q.val();
        self.bursts.fill.data.next.line = self.line.q.val();
        self.bursts.fill.data.next.beats = self.beats.val();
        self.bursts.fill.data.next.head = self.head.q.val();
        self.bursts.fill.data.next.tail = 0.into();
        if self.is_final.val() {
            self.bursts.fill.data.next.tail = self.tail.q.val();
        }
        self.bursts.fill.data.next.last = self.is_final.val();

        self.give.next = self.is_busy.q.val() & self.bursts.fill.ready.val();
        self.take.next = !self.is_busy.q.val() | (self.give.val() & self.is_final.val());
        self.span.ready.next = self.take.val();

        // All bursts but the last end at a boundary, so the next line needs no sum with the beats.
        self.filled.next = self.line.q.val() | self.block_mask.val();
        if self.give.val() {
            self.line.d.next = self.filled.val() + 1;
            self.left.d.next = self.left.q.val() - self.room.val();
            self.head.d.next = 0.into();
        }
        if self.take.val() {
            self.is_busy.d.next = self.span.valid.val();
            self.line.d.next = self.addr.val().get_bits::<58>(6);
            self.left.d.next = self.rounded.val().get_bits::<7>(6);
            self.head.d.next = self.offset.val();
            self.tail.d.next = self.stop.val().get_bits::<6>(0);
        }
        if self.reset.val() {
            self.is_busy.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    /// What the block must make of a range: address in lines, lines, head, tail, last.
    fn model(addr: u64, len: u64, block: u64) -> Vec<(u64, u64, u64, u64, bool)> {
        let (mut line, stop) = (addr / 64, (addr + len).div_ceil(64));
        let mut bursts = vec![];
        while line < stop {
            let next = stop.min((line / block + 1) * block);
            let head = if line == addr / 64 { addr % 64 } else { 0 };
            let tail = if next == stop { (addr + len) % 64 } else { 0 };
            bursts.push((line, next - line, head, tail, next == stop));
            line = next;
        }
        bursts
    }

    fn run<const K: usize>(name: &str, ranges: &[(u64, u64)], stalls: [Stalls; 2]) -> u64 {
        let mut bench = Bench::new(name, Split::<K>::default(), |uut| &mut uut.clock);
        let [input, output] = stalls;
        let spans = ranges.iter().map(|&(addr, len)| Span { addr: addr.into(), len: len.into() });
        let mut driver = Driver::new(spans, input);
        let mut monitor = Monitor::new(output);
        let expected: Vec<_> = ranges.iter().flat_map(|&(addr, len)| model(addr, len, 1 << K)).collect();
        while monitor.got.len() < expected.len() {
            driver.before(&mut bench.uut.span);
            monitor.before(&mut bench.uut.burst);
            bench.settle();
            driver.after(&bench.uut.span);
            monitor.after(&bench.uut.burst);
            bench.edge();
            assert!(bench.clock_count() < 20_000, "{name}: a burst is missing");
        }
        let number = |bits: Bits<7>| u64::from(bits);
        let got: Vec<_> = monitor
            .got
            .iter()
            .map(|b: &Burst| (u64::from(b.line), number(b.beats), u64::from(b.head), u64::from(b.tail), b.last))
            .collect();
        assert_eq!(got, expected);
        let clocks = bench.clock_count();
        bench.finish();
        clocks
    }

    #[test]
    fn ranges_at_every_offset_and_length_are_cut_at_the_boundary() {
        let mut ranges = vec![(0, 1), (63, 1), (0, 4096), (1, 4096), (63, 4096), (4095, 4096), (u64::MAX - 4096, 4096)];
        ranges.extend((0..200).map(|i| (0xFFFF_FFF0_0000 + i * 511, 1 + i * 4095 / 199)));
        ranges.extend((0..130).map(|i| (4096 - i, 2 * i + 1)));
        run::<3>("split_512", &ranges, [Stalls::new(11), Stalls::new(12)]);
        run::<6>("split_4096", &ranges, [Stalls::new(13), Stalls::new(14)]);
    }

    #[test]
    fn a_burst_comes_out_every_clock_without_stalls() {
        let small: Vec<_> = (0..100).map(|i| (i * 64, 64)).collect();
        assert_eq!(run::<3>("split_rate_small", &small, [Stalls::none(), Stalls::none()]), 102);
        let large: Vec<_> = (0..30).map(|i| (i * 4096, 4096)).collect();
        assert_eq!(run::<3>("split_rate_large", &large, [Stalls::none(), Stalls::none()]), 242);
    }

    #[test]
    fn a_reset_drops_what_is_under_way() {
        let mut bench = Bench::new("split_reset", Split::<3>::default(), |uut| &mut uut.clock);
        bench.uut.span.valid.next = true;
        bench.uut.span.data.next = Span { addr: 0u64.into(), len: 4096u64.into() };
        bench.cycles(8);
        assert!(bench.uut.burst.valid.val());
        bench.uut.span.valid.next = false;
        bench.uut.reset.next = true;
        bench.cycles(1);
        bench.uut.reset.next = false;
        bench.uut.burst.ready.next = true;
        for _ in 0..10 {
            bench.settle();
            assert!(!bench.uut.burst.valid.val(), "a burst survived the reset");
            bench.edge();
        }
        bench.finish();
    }
}
