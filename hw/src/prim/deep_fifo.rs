//! A FIFO of `1 << N` entries in block memory, for payload.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `fill` | sink | entries |
//! | `drain` | source | the same, in order |
//! | `level` | out | entries accepted and not yet taken |
//!
//! Latency: three clocks. Throughput: one entry every clock, at any level. When full, `fill.ready`
//! is low. The block memory answers one clock late, so a small FIFO behind it takes what was asked
//! for before the output stalled; reads are asked for only while that has room.

use rust_hdl::prelude::*;

use super::{Fifo, Ram};
use crate::bus::{StreamSink, StreamSource};

/// FIFO of `1 << N` entries; `M` must be `N + 1`.
#[derive(LogicBlock)]
pub struct DeepFifo<T: Synth, const N: usize, const M: usize> {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub fill: StreamSink<T>,
    pub drain: StreamSource<T>,
    pub level: Signal<Out, Bits<M>>,

    ram: Ram<T, N>,
    front: Fifo<T, 2, 3>,
    write_index: DFF<Bits<M>>,
    read_index: DFF<Bits<M>>,
    taken: DFF<Bits<M>>,
    is_reading: DFF<Bit>,
    write: Signal<Local, Bit>,
    read: Signal<Local, Bit>,
    is_full: Signal<Local, Bit>,
    held: Signal<Local, Bits<3>>,
    depth: Constant<Bits<M>>,
    room: Constant<Bits<3>>,
}

impl<T: Synth, const N: usize, const M: usize> Default for DeepFifo<T, N, M> {
    fn default() -> Self {
        assert_eq!(M, N + 1, "the level of a FIFO of 2^{N} entries has {} bits", N + 1);
        Self {
            clock: Default::default(),
            reset: Default::default(),
            fill: Default::default(),
            drain: Default::default(),
            level: Default::default(),
            ram: Default::default(),
            front: Default::default(),
            write_index: Default::default(),
            read_index: Default::default(),
            taken: Default::default(),
            is_reading: Default::default(),
            write: Default::default(),
            read: Default::default(),
            is_full: Default::default(),
            held: Default::default(),
            depth: Constant::new((1usize << N).to_bits()),
            room: Constant::new(3u8.to_bits()),
        }
    }
}

impl<T: Synth, const N: usize, const M: usize> Logic for DeepFifo<T, N, M> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, write_index, read_index, taken, is_reading);
        clock!(self, clock, ram, front);
        self.front.reset.next = self.reset.val();

        self.level.next = self.write_index.q.val() - self.taken.q.val();
        self.is_full.next = self.level.val() == self.depth.val();
        self.fill.ready.next = !self.is_full.val();
        self.write.next = self.fill.valid.val() & !self.is_full.val();
        self.ram.write_enable.next = self.write.val();
        self.ram.write_address.next = bit_cast::<N, M>(self.write_index.q.val());
        self.ram.write_data.next = self.fill.data.val();

        self.held.next = self.front.level.val() + bit_cast::<3, 1>(self.is_reading.q.val().into());
        self.read.next = (self.write_index.q.val() != self.read_index.q.val()) & (self.held.val() <= self.room.val());
        self.ram.read_address.next = bit_cast::<N, M>(self.read_index.q.val());
        self.is_reading.d.next = self.read.val();
        self.front.fill.valid.next = self.is_reading.q.val();
        self.front.fill.data.next = self.ram.read_data.val();
        self.drain.data.next = self.front.drain.data.val();
        self.drain.valid.next = self.front.drain.valid.val();
        self.front.drain.ready.next = self.drain.ready.val();

        if self.write.val() {
            self.write_index.d.next = self.write_index.q.val() + 1;
        }
        if self.read.val() {
            self.read_index.d.next = self.read_index.q.val() + 1;
        }
        if self.front.drain.valid.val() & self.drain.ready.val() {
            self.taken.d.next = self.taken.q.val() + 1;
        }
        if self.reset.val() {
            self.write_index.d.next = 0.into();
            self.read_index.d.next = 0.into();
            self.taken.d.next = 0.into();
            self.is_reading.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    type Uut = DeepFifo<Bits<16>, 4, 5>;

    fn run(name: &str, input: Stalls, output: Stalls, count: u64) -> u64 {
        let mut bench = Bench::new(name, Uut::default(), |uut| &mut uut.clock);
        let mut driver = Driver::new((0..count).map(Bits::from), input);
        let mut monitor = Monitor::new(output);
        while monitor.got.len() < count as usize {
            driver.before(&mut bench.uut.fill);
            monitor.before(&mut bench.uut.drain);
            bench.settle();
            driver.after(&bench.uut.fill);
            monitor.after(&bench.uut.drain);
            assert!(bench.uut.level.val() <= 16u64);
            bench.edge();
            assert!(bench.clock_count() < 20_000, "the FIFO hangs");
        }
        assert_eq!(monitor.got, (0..count).map(Bits::from).collect::<Vec<_>>());
        let clocks = bench.clock_count();
        bench.finish();
        clocks
    }

    #[test]
    fn entries_come_out_in_order_under_random_stalls() {
        run("deep_fifo", Stalls::new(3), Stalls::new(4), 800);
    }

    #[test]
    fn an_entry_goes_through_every_clock_without_stalls() {
        assert_eq!(run("deep_fifo_rate", Stalls::none(), Stalls::none(), 100), 103);
    }

    #[test]
    fn a_reset_at_any_level_empties_it_and_what_comes_later_is_whole() {
        let mut bench = Bench::new("deep_fifo_reset", Uut::default(), |uut| &mut uut.clock);
        let mut stalls = Stalls::new(11);
        for (round, clocks) in (0u64..).zip([1, 3, 7, 25, 40]) {
            let mut driver = Driver::new((0..40).map(|i| Bits::from(1000 * round + i)), Stalls::new(20 + round));
            for _ in 0..clocks {
                driver.before(&mut bench.uut.fill);
                bench.uut.drain.ready.next = stalls.go() && round > 2;
                bench.settle();
                driver.after(&bench.uut.fill);
                bench.edge();
            }
            bench.uut.fill.valid.next = false;
            bench.uut.reset.next = true;
            bench.cycles(1);
            bench.uut.reset.next = false;
            bench.settle();
            assert!(bench.uut.level.val() == 0u64 && !bench.uut.drain.valid.val(), "nothing is left after {clocks} clocks");
            let mut driver = Driver::new((0..30).map(|i| Bits::from(500 + i)), Stalls::new(30 + round));
            let mut monitor = Monitor::new(Stalls::new(40 + round));
            let start = bench.clock_count();
            while monitor.got.len() < 30 {
                driver.before(&mut bench.uut.fill);
                monitor.before(&mut bench.uut.drain);
                bench.settle();
                driver.after(&bench.uut.fill);
                monitor.after(&bench.uut.drain);
                bench.edge();
                assert!(bench.clock_count() - start < 1_000, "the FIFO hangs");
            }
            assert_eq!(monitor.got, (0..30u64).map(|i| Bits::from(500 + i)).collect::<Vec<_>>());
        }
        bench.finish();
    }
}
