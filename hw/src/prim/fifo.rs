//! A FIFO of `1 << N` entries in LUT RAM.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `fill` | sink | entries |
//! | `drain` | source | the same, in order |
//! | `level` | out | entries held |
//!
//! Latency: one clock. Throughput: one entry every clock, at any level. When full, `fill.ready`
//! is low; no path leads from one port's signals to the other's in the same clock, so a FIFO also
//! cuts long paths.

use rust_hdl::prelude::*;

use super::LutRam;
use crate::bus::{StreamSink, StreamSource};

/// FIFO of `1 << N` entries; `M` must be `N + 1`.
#[derive(LogicBlock)]
pub struct Fifo<T: Synth, const N: usize, const M: usize> {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub fill: StreamSink<T>,
    pub drain: StreamSource<T>,
    pub level: Signal<Out, Bits<M>>,

    ram: LutRam<T, N>,
    write_index: DFF<Bits<M>>,
    read_index: DFF<Bits<M>>,
    is_full: Signal<Local, Bit>,
    is_empty: Signal<Local, Bit>,
    write: Signal<Local, Bit>,
    depth: Constant<Bits<M>>,
}

impl<T: Synth, const N: usize, const M: usize> Default for Fifo<T, N, M> {
    fn default() -> Self {
        assert_eq!(M, N + 1, "the level of a FIFO of 2^{N} entries has {} bits", N + 1);
        Self {
            clock: Default::default(),
            reset: Default::default(),
            fill: Default::default(),
            drain: Default::default(),
            level: Default::default(),
            ram: Default::default(),
            write_index: Default::default(),
            read_index: Default::default(),
            is_full: Default::default(),
            is_empty: Default::default(),
            write: Default::default(),
            depth: Constant::new((1usize << N).to_bits()),
        }
    }
}

impl<T: Synth, const N: usize, const M: usize> Logic for Fifo<T, N, M> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, write_index, read_index);
        clock!(self, clock, ram);

        self.level.next = self.write_index.q.val() - self.read_index.q.val();
        self.is_empty.next = self.write_index.q.val() == self.read_index.q.val();
        self.is_full.next = self.level.val() == self.depth.val();

        self.fill.ready.next = !self.is_full.val();
        self.write.next = self.fill.valid.val() & !self.is_full.val();
        self.ram.write_enable.next = self.write.val();
        self.ram.write_address.next = bit_cast::<N, M>(self.write_index.q.val());
        self.ram.write_data.next = self.fill.data.val();
        self.ram.read_address.next = bit_cast::<N, M>(self.read_index.q.val());
        self.drain.data.next = self.ram.read_data.val();
        self.drain.valid.next = !self.is_empty.val();

        if self.write.val() {
            self.write_index.d.next = self.write_index.q.val() + 1;
        }
        if self.drain.ready.val() & !self.is_empty.val() {
            self.read_index.d.next = self.read_index.q.val() + 1;
        }
        if self.reset.val() {
            self.write_index.d.next = 0.into();
            self.read_index.d.next = 0.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    type Uut = Fifo<Bits<16>, 2, 3>;

    fn bench(name: &str) -> Bench<Uut> {
        Bench::new(name, Uut::default(), |uut| &mut uut.clock)
    }

    #[test]
    fn entries_come_out_in_order_under_random_stalls() {
        let mut bench = bench("fifo");
        let mut driver = Driver::new((0..600u64).map(Bits::from), Stalls::new(1));
        let mut monitor = Monitor::new(Stalls::new(2));
        while monitor.got.len() < 600 {
            driver.before(&mut bench.uut.fill);
            monitor.before(&mut bench.uut.drain);
            bench.settle();
            driver.after(&bench.uut.fill);
            monitor.after(&bench.uut.drain);
            bench.edge();
            assert!(bench.clock_count() < 20_000, "the FIFO hangs");
        }
        assert_eq!(monitor.got, (0..600u64).map(Bits::from).collect::<Vec<_>>());
        bench.finish();
    }

    #[test]
    fn an_entry_goes_through_every_clock_without_stalls() {
        let mut bench = bench("fifo_rate");
        let mut driver = Driver::new((0..100u64).map(Bits::from), Stalls::none());
        let mut monitor = Monitor::new(Stalls::none());
        while monitor.got.len() < 100 {
            driver.before(&mut bench.uut.fill);
            monitor.before(&mut bench.uut.drain);
            bench.settle();
            driver.after(&bench.uut.fill);
            monitor.after(&bench.uut.drain);
            bench.edge();
        }
        assert_eq!(bench.clock_count(), 101);
        bench.finish();
    }

    #[test]
    fn a_full_fifo_holds_its_depth_and_a_reset_empties_it() {
        let mut bench = bench("fifo_full");
        bench.uut.fill.valid.next = true;
        bench.uut.drain.ready.next = false;
        bench.cycles(10);
        assert_eq!(bench.uut.level.val(), 4u64);
        assert!(!bench.uut.fill.ready.val());
        bench.uut.reset.next = true;
        bench.uut.fill.valid.next = false;
        bench.cycles(1);
        bench.uut.reset.next = false;
        bench.cycles(1);
        assert_eq!(bench.uut.level.val(), 0u64);
        bench.finish();
    }
}
