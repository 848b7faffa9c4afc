//! Counts the frames of RDMA that come and go, and their bytes, in 64 bits.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `rx_bytes` | in | bytes of a frame that is let through, in one clock; 0: none |
//! | `tx_bytes`, `tx_last` | in | bytes of a beat that is sent, and whether it is the last of its frame; 0: none |
//! | `read_address`, `read_value` | in, out | a word of `WideCounters`, one clock later |
//!
//! Throughput: a frame and a beat every clock, a read every clock. Latency: what comes in is in the low word of its sum two clocks later, and what
//! that carries in the high word one clock behind it. So a reader that finds the same high word before and behind the low one, a clock or more
//! from it, has what the sum was.
//!
//! All inputs end in a flop. A reset clears the sums at once.

use rust_hdl::prelude::*;
use verbena_abi::regs::WideCounter;

const SUMS: usize = 4;
const _: () = assert!(WideCounter::COUNT == SUMS);

/// One sum.
#[derive(LogicBlock, Default)]
struct WideSum {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub amount: Signal<In, Bits<15>>,
    pub low: Signal<Out, Bits<32>>,
    pub high: Signal<Out, Bits<32>>,

    added: DFF<Bits<15>>,
    sum: Signal<Local, Bits<33>>,
    low_sum: DFF<Bits<32>>,
    carry: DFF<Bit>,
    high_sum: DFF<Bits<32>>,
}

impl Logic for WideSum {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, added, low_sum, carry, high_sum);
        self.added.d.next = self.amount.val();
        self.sum.next = bit_cast::<33, 32>(self.low_sum.q.val()) + bit_cast::<33, 15>(self.added.q.val());
        self.low_sum.d.next = self.sum.val().get_bits::<32>(0);
        self.carry.d.next = self.sum.val().get_bit(32);
        self.high_sum.d.next = self.high_sum.q.val() + bit_cast::<32, 1>(self.carry.q.val().into());
        self.low.next = self.low_sum.q.val();
        self.high.next = self.high_sum.q.val();

        if self.reset.val() {
            self.added.d.next = 0.into();
            self.low_sum.d.next = 0.into();
            self.carry.d.next = false;
            self.high_sum.d.next = 0.into();
        }
    }
}

/// The sums of [`WideCounter`].
#[derive(LogicBlock, Default)]
pub struct TrafficCounters {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub rx_bytes: Signal<In, Bits<15>>,
    pub tx_bytes: Signal<In, Bits<7>>,
    pub tx_last: Signal<In, Bit>,
    pub read_address: Signal<In, Bits<3>>,
    pub read_value: Signal<Out, Bits<32>>,

    rx_octets: WideSum,
    tx_octets: WideSum,
    rx_frames: WideSum,
    tx_frames: WideSum,
    value: DFF<Bits<32>>,
}

impl Logic for TrafficCounters {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, value);
        clock!(self, clock, rx_octets, tx_octets, rx_frames, tx_frames);
        self.rx_octets.reset.next = self.reset.val();
        self.tx_octets.reset.next = self.reset.val();
        self.rx_frames.reset.next = self.reset.val();
        self.tx_frames.reset.next = self.reset.val();

        self.rx_octets.amount.next = self.rx_bytes.val();
        self.tx_octets.amount.next = bit_cast::<15, 7>(self.tx_bytes.val());
        self.rx_frames.amount.next = 0.into();
        if self.rx_bytes.val().any() {
            self.rx_frames.amount.next = 1.into();
        }
        self.tx_frames.amount.next = 0.into();
        if self.tx_bytes.val().any() & self.tx_last.val() {
            self.tx_frames.amount.next = 1.into();
        }

        self.value.d.next = self.rx_octets.low.val();
        if self.read_address.val() == 1 {
            self.value.d.next = self.rx_octets.high.val();
        }
        if self.read_address.val() == 2 {
            self.value.d.next = self.tx_octets.low.val();
        }
        if self.read_address.val() == 3 {
            self.value.d.next = self.tx_octets.high.val();
        }
        if self.read_address.val() == 4 {
            self.value.d.next = self.rx_frames.low.val();
        }
        if self.read_address.val() == 5 {
            self.value.d.next = self.rx_frames.high.val();
        }
        if self.read_address.val() == 6 {
            self.value.d.next = self.tx_frames.low.val();
        }
        if self.read_address.val() == 7 {
            self.value.d.next = self.tx_frames.high.val();
        }
        self.read_value.next = self.value.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Stalls};

    /// Clocks from an input to the low word of its sum, and to the high one.
    const SETTLED: usize = 3;

    struct Run {
        bench: Bench<TrafficCounters>,
        /// What should be counted, in the order of [`WideCounter`].
        expected: [u64; SUMS],
    }

    impl Run {
        fn new(name: &str) -> Self {
            Self { bench: Bench::new(name, TrafficCounters::default(), |uut| &mut uut.clock), expected: [0; SUMS] }
        }

        fn clock(&mut self, rx_bytes: u64, tx_bytes: u64, tx_last: bool) {
            let uut = &mut self.bench.uut;
            (uut.rx_bytes.next, uut.tx_bytes.next, uut.tx_last.next) = (rx_bytes.into(), tx_bytes.into(), tx_last);
            self.expected[WideCounter::RdmaInOctets as usize] += rx_bytes;
            self.expected[WideCounter::RdmaInFrames as usize] += u64::from(rx_bytes > 0);
            self.expected[WideCounter::RdmaOutOctets as usize] += tx_bytes;
            self.expected[WideCounter::RdmaOutFrames as usize] += u64::from(tx_bytes > 0 && tx_last);
            self.bench.edge();
        }

        /// Returns what a read gives one clock after its address, and sees that it does not give it before.
        fn read(&mut self, address: usize) -> u64 {
            self.bench.settle();
            let before = self.bench.uut.read_value.val();
            self.bench.uut.read_address.next = (address as u64).into();
            self.bench.settle();
            assert_eq!(self.bench.uut.read_value.val(), before, "an answer in the clock of its address");
            self.clock(0, 0, true);
            self.bench.uut.read_value.val().to_u64()
        }

        /// Lets the sums become current, and compares.
        fn check(&mut self, what: &str) {
            for _ in 0..SETTLED {
                self.clock(0, 0, true);
            }
            for (counter, name, _) in WideCounter::ALL {
                let place = *counter as usize;
                let found = self.read(2 * place) | self.read(2 * place + 1) << 32;
                assert_eq!(found, self.expected[place], "{what}: {name}");
            }
        }
    }

    #[test]
    fn frames_and_beats_of_random_sizes_are_counted_in_both_directions() {
        let mut run = Run::new("traffic");
        let mut random = Stalls::new(91);
        for clock in 0..700 {
            // First a frame and a beat in each clock, as large as they can be.
            let bits = random.random();
            let size = |choice: u64, size: u64| {
                if clock < 100 {
                    size
                } else {
                    [0, 1 + size * (choice >> 8 & 255) / 256, size][choice as usize % 3]
                }
            };
            run.clock(size(bits, 16_384), size(bits >> 16, 64), bits >> 40 & 1 == 1);
        }
        run.check("after random frames");
        run.clock(0, 64, false);
        run.clock(0, 1, true);
        run.clock(62, 0, true);
        run.check("after one frame more each way");
        run.bench.finish();
    }

    #[test]
    fn a_low_word_between_two_equal_high_ones_is_the_sum_that_was() {
        let mut run = Run::new("traffic_wrap");
        let most = (1 << 15) - 1;
        while run.expected[0] + 40 * most < 1 << 32 {
            run.clock(most, 0, false);
        }
        // Past the wrap, with what stands in the sum at every clock.
        let mut history = vec![];
        while run.expected[0] < (1 << 32) + 40 * most {
            history.push((run.bench.uut.rx_octets.low.val().to_u64(), run.bench.uut.rx_octets.high.val().to_u64(), run.expected[0]));
            run.clock(most, 0, false);
        }
        let mut refused = 0;
        for (at, (low, ..)) in history.iter().enumerate() {
            for distance in 1..12 {
                let Some((before, after)) = at.checked_sub(distance).zip(history.get(at + distance)) else { continue };
                if history[before].1 == after.1 {
                    // An amount is in the sum at the second edge.
                    assert_eq!(after.1 << 32 | low, history[at - 1].2, "{at}, {distance} clocks apart");
                } else {
                    refused += 1;
                }
            }
        }
        // What the high words around it refuse: all in which the wrap, or the clock of its carry, lies between them.
        assert_eq!(refused, (1..12).map(|distance| 2 * distance).sum::<usize>());
        run.check("after the wrap");
        // A reset clears both words, and the carry between them.
        run.bench.uut.reset.next = true;
        run.clock(most, 0, false);
        run.bench.uut.reset.next = false;
        run.expected = [0; SUMS];
        run.check("after the reset");
        run.bench.finish();
    }

    #[test]
    fn each_address_has_its_word() {
        let mut run = Run::new("traffic_words");
        run.clock(0, 0, false);
        // Sums that would take hours, so there is no Verilog to repeat them.
        let uut = &mut run.bench.uut;
        for (number, sum) in [&mut uut.rx_octets, &mut uut.tx_octets, &mut uut.rx_frames, &mut uut.tx_frames].into_iter().enumerate() {
            sum.low_sum.q.next = (0x1000 + number as u64).into();
            sum.high_sum.q.next = (0x2000 + number as u64).into();
            run.expected[number] = 0x2000_0000_1000 + (number as u64) * 0x1_0000_0001;
        }
        run.check("words that were put there");
    }

    #[test]
    fn a_reset_in_the_middle_leaves_no_count_and_none_is_lost_after_it() {
        let mut run = Run::new("traffic_reset");
        for _ in 0..77 {
            run.clock(4_200, 64, true);
        }
        run.bench.uut.reset.next = true;
        run.clock(4_200, 64, true);
        run.bench.uut.reset.next = false;
        run.expected = [0; SUMS];
        run.clock(70, 62, true);
        run.clock(71, 64, false);
        run.check("after the reset");
        assert_eq!(run.expected, [141, 126, 2, 1]);
        run.bench.finish();
    }
}
