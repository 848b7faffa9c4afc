//! Counts pulses on up to 31 wires, with the sums in LUT RAM.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `pulses` | in | bit n adds 1 to sum n |
//! | `read_address`, `read_data` | in, out | a sum, in the same clock; sums from `N` on are 0 |
//! | `ready` | out | the sums are cleared |
//!
//! For 32 clocks after reset `ready` is low and the sums are cleared; `read_data` means nothing then. Pulses count from the first of these clocks on.
//!
//! A wire collects its pulses in six bits, and every `N` clocks its turn comes to have them added to its sum: one adder of 32 bits instead
//! of `N`. So a sum is at most `N + 2` clocks old. The six bits can't overflow: the first turn of the last wire comes after 32 + `N` - 1 clocks. Sums wrap at 32 bits.

use std::array::from_fn;

use rust_hdl::prelude::*;

use crate::prim::LutRam;

/// `N` counters; `N` is at most 31.
#[derive(LogicBlock)]
pub struct Tally<const N: usize> {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub pulses: Signal<In, Bits<N>>,
    pub read_address: Signal<In, Bits<5>>,
    pub read_data: Signal<Out, Bits<32>>,
    pub ready: Signal<Out, Bit>,

    clear_index: DFF<Bits<6>>,
    is_clear: Signal<Local, Bit>,
    held: [DFF<Bits<6>>; N],
    turn: DFF<Bits<N>>,
    turn_index: DFF<Bits<5>>,
    amount: DFF<Bits<6>>,
    slot: DFF<Bits<5>>,
    is_counting: DFF<Bit>,
    sum: Signal<Local, Bits<32>>,
    sums: LutRam<Bits<32>, 5>,
    sums_copy: LutRam<Bits<32>, 5>,
    first_turn: Constant<Bits<N>>,
    last_index: Constant<Bits<5>>,
}

impl<const N: usize> Default for Tally<N> {
    fn default() -> Self {
        assert!((1..32).contains(&N), "a tally has 1 to 31 counters, not {N}");
        Self {
            clock: Default::default(),
            reset: Default::default(),
            pulses: Default::default(),
            read_address: Default::default(),
            read_data: Default::default(),
            ready: Default::default(),
            clear_index: Default::default(),
            is_clear: Default::default(),
            held: from_fn(|_| Default::default()),
            turn: Default::default(),
            turn_index: Default::default(),
            amount: Default::default(),
            slot: Default::default(),
            is_counting: Default::default(),
            sum: Default::default(),
            sums: Default::default(),
            sums_copy: Default::default(),
            first_turn: Constant::new(1u32.to_bits()),
            last_index: Constant::new((N - 1).to_bits()),
        }
    }
}

impl<const N: usize> Logic for Tally<N> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, clear_index, turn, turn_index, amount, slot, is_counting);
        clock!(self, clock, sums, sums_copy);
        for i in 0_usize..N {
            self.held[i].clock.next = self.clock.val();
            self.held[i].d.next = self.held[i].q.val();
        }

        self.is_clear.next = self.clear_index.q.val().get_bit(5);
        self.ready.next = self.clear_index.q.val().get_bit(5);
        if !self.is_clear.val() {
            self.clear_index.d.next = self.clear_index.q.val() + 1;
        }

        // A wire's turn takes what it holds; a pulse of that very clock stays for the next turn.
        self.amount.d.next = 0.into();
        for i in 0_usize..N {
            if self.turn.q.val().get_bit(i) & self.is_clear.val() {
                self.amount.d.next = self.held[i].q.val();
                self.held[i].d.next = 0.into();
                if self.pulses.val().get_bit(i) {
                    self.held[i].d.next = 1.into();
                }
            } else if self.pulses.val().get_bit(i) {
                self.held[i].d.next = self.held[i].q.val() + 1;
            }
        }
        self.slot.d.next = self.turn_index.q.val();
        self.is_counting.d.next = self.is_clear.val();
        self.turn.d.next = self.turn.q.val() << 1;
        self.turn_index.d.next = self.turn_index.q.val() + 1;
        if !self.is_clear.val() | (self.turn_index.q.val() == self.last_index.val()) {
            self.turn.d.next = self.first_turn.val();
            self.turn_index.d.next = 0.into();
        }
        self.sums.read_address.next = self.slot.q.val();
        self.sum.next = self.sums.read_data.val() + bit_cast::<32, 6>(self.amount.q.val());
        self.sums.write_enable.next = self.is_counting.q.val();
        self.sums.write_address.next = self.slot.q.val();
        self.sums.write_data.next = self.sum.val();
        if !self.is_clear.val() {
            self.sums.write_enable.next = true;
            self.sums.write_address.next = self.clear_index.q.val().get_bits::<5>(0);
            self.sums.write_data.next = 0.into();
        }
        self.sums_copy.write_enable.next = self.sums.write_enable.val();
        self.sums_copy.write_address.next = self.sums.write_address.val();
        self.sums_copy.write_data.next = self.sums.write_data.val();
        self.sums_copy.read_address.next = self.read_address.val();
        self.read_data.next = self.sums_copy.read_data.val();

        if self.reset.val() {
            for i in 0_usize..N {
                self.held[i].d.next = 0.into();
            }
            self.clear_index.d.next = 0.into();
            self.is_counting.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Stalls};

    /// The most wires that six bits are enough for.
    const WIRES: usize = 31;
    const ALL: u64 = (1 << WIRES) - 1;

    struct Run {
        bench: Bench<Tally<WIRES>>,
        expected: [u64; WIRES],
    }

    impl Run {
        fn new(name: &str) -> Self {
            Self { bench: Bench::new(name, Tally::default(), |uut| &mut uut.clock), expected: [0; WIRES] }
        }

        fn clock(&mut self, pulses: u64) {
            self.bench.uut.pulses.next = pulses.into();
            for (wire, count) in self.expected.iter_mut().enumerate() {
                *count += pulses >> wire & 1;
            }
            self.bench.edge();
        }

        /// Lets the sums become current, and compares.
        fn check(&mut self, what: &str) {
            for _ in 0..WIRES + 2 {
                self.clock(0);
            }
            for wire in 0..32 {
                self.bench.uut.read_address.next = (wire as u64).into();
                self.bench.settle();
                let expected = self.expected.get(wire).copied().unwrap_or(0);
                assert_eq!(self.bench.uut.read_data.val().to_u64(), expected, "{what}: sum {wire}");
            }
        }

        fn reset(&mut self) {
            self.bench.uut.reset.next = true;
            self.bench.edge();
            self.bench.uut.reset.next = false;
            self.expected = [0; WIRES];
        }
    }

    #[test]
    fn every_wire_is_counted_whenever_its_pulses_come() {
        let mut run = Run::new("tally");
        let mut random = Stalls::new(31);
        for clock in 0..600 {
            // All at once for a while, so that the six bits are filled as far as they can be between two turns.
            let pulses = if clock < 150 { ALL } else { random.random() & random.random() & ALL };
            run.clock(pulses);
        }
        run.check("after random pulses");
        run.bench.finish();
    }

    #[test]
    fn the_first_turn_comes_before_six_bits_are_full() {
        let mut run = Run::new("tally_first");
        for clock in 0..100 {
            run.bench.settle();
            assert_eq!(run.bench.uut.ready.val(), clock >= 32, "ready {clock} clocks after the start");
            run.clock(ALL);
        }
        run.check("after pulses from the first clock on");
        run.bench.finish();
    }

    #[test]
    fn a_reset_in_the_middle_forgets_the_sums_and_what_was_collected() {
        let mut run = Run::new("tally_reset");
        for _ in 0..77 {
            run.clock(ALL);
        }
        run.bench.uut.pulses.next = ALL.into();
        run.reset();
        for _ in 0..32 {
            run.bench.settle();
            assert!(!run.bench.uut.ready.val());
            run.clock(0);
        }
        assert!(run.bench.uut.ready.val());
        run.check("after the reset");
        run.clock(0x55);
        run.check("after a pulse");
        run.bench.finish();
    }
}
