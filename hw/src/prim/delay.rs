//! A delay line in LUT RAM: what goes in comes out a fixed number of clocks later.
//!
//! | port | carries |
//! |---|---|
//! | `fill` | something every clock |
//! | `drain` | the same, so many clocks later |
//!
//! For data beside a pipeline of fixed latency. It has no reset and no valid bit: those stay in
//! flops beside it, so that a reset clears them. Until it has gone round once, it gives zeros.

use rust_hdl::prelude::*;

use super::LutRam;

/// Delay line of up to 16 clocks.
#[derive(LogicBlock)]
pub struct Delay<T: Synth> {
    pub clock: Signal<In, Clock>,
    pub fill: Signal<In, T>,
    pub drain: Signal<Out, T>,

    ram: LutRam<T, 4>,
    index: DFF<Bits<4>>,
    held: DFF<T>,
    back: Constant<Bits<4>>,
}

impl<T: Synth> Delay<T> {
    /// Returns a line of `clocks` clocks, 2 to 16.
    pub fn new(clocks: usize) -> Self {
        assert!((2..=16).contains(&clocks), "a delay line has 2 to 16 clocks, not {clocks}");
        Self {
            clock: Default::default(),
            fill: Default::default(),
            drain: Default::default(),
            ram: Default::default(),
            index: Default::default(),
            held: Default::default(),
            back: Constant::new((clocks - 1).to_bits()),
        }
    }
}

impl<T: Synth> Logic for Delay<T> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, index, held);
        clock!(self, clock, ram);
        self.ram.write_enable.next = true;
        self.ram.write_address.next = self.index.q.val();
        self.ram.write_data.next = self.fill.val();
        self.ram.read_address.next = self.index.q.val() - self.back.val();
        self.index.d.next = self.index.q.val() + 1;
        self.held.d.next = self.ram.read_data.val();
        self.drain.next = self.held.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    #[test]
    fn every_length_delays_by_as_many_clocks() {
        for clocks in 2..=16usize {
            let mut bench = Bench::new(&format!("delay{clocks}"), Delay::<Bits<8>>::new(clocks), |uut| &mut uut.clock);
            for clock in 0..60usize {
                bench.uut.fill.next = (clock + 1).to_bits();
                bench.settle();
                assert_eq!(bench.uut.drain.val().to_u64() as usize, (clock + 1).saturating_sub(clocks));
                bench.edge();
            }
            // The lines differ in one constant; a lockstep run of some covers all.
            if clocks % 7 == 2 {
                bench.finish();
            }
        }
    }
}
