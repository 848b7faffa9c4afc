//! Rotates a line towards higher bytes.
//!
//! | port | carries |
//! |---|---|
//! | `data` | 64 bytes, byte 0 in bits 7:0 |
//! | `amount` | how many bytes up, 0 to 63 |
//! | `result` | the line, whose byte `i` went to byte `(i + amount) % 64` |
//!
//! Latency: [`Rotate::LATENCY`] clocks. Throughput: a line every clock, each with its own amount.
//! It is a pure pipeline: it knows no stall and no `valid`, both are its user's business, who
//! delays what belongs to a line by the same number of clocks. Six conditional constant rotations,
//! three before each register, so no more than three multiplexers lie between flops.

use rust_hdl::prelude::*;

/// Rotation of 512 bits by whole bytes.
#[derive(LogicBlock, Default)]
pub struct Rotate {
    pub clock: Signal<In, Clock>,
    pub data: Signal<In, Bits<512>>,
    pub amount: Signal<In, Bits<6>>,
    pub result: Signal<Out, Bits<512>>,

    coarse: DFF<Bits<6>>,
    half: DFF<Bits<512>>,
    whole: DFF<Bits<512>>,
    by_one: Signal<Local, Bits<512>>,
    by_two: Signal<Local, Bits<512>>,
    by_four: Signal<Local, Bits<512>>,
    by_eight: Signal<Local, Bits<512>>,
    by_sixteen: Signal<Local, Bits<512>>,
    by_thirty_two: Signal<Local, Bits<512>>,
}

impl Rotate {
    /// Clocks from `data` and `amount` to `result`.
    pub const LATENCY: usize = 2;
}

impl Logic for Rotate {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, coarse, half, whole);

        self.by_one.next = self.data.val();
        if self.amount.val().get_bit(0) {
            self.by_one.next = (self.data.val() << 8) | (self.data.val() >> 504);
        }
        self.by_two.next = self.by_one.val();
        if self.amount.val().get_bit(1) {
            self.by_two.next = (self.by_one.val() << 16) | (self.by_one.val() >> 496);
        }
        self.by_four.next = self.by_two.val();
        if self.amount.val().get_bit(2) {
            self.by_four.next = (self.by_two.val() << 32) | (self.by_two.val() >> 480);
        }
        self.half.d.next = self.by_four.val();
        self.coarse.d.next = self.amount.val();

        self.by_eight.next = self.half.q.val();
        if self.coarse.q.val().get_bit(3) {
            self.by_eight.next = (self.half.q.val() << 64) | (self.half.q.val() >> 448);
        }
        self.by_sixteen.next = self.by_eight.val();
        if self.coarse.q.val().get_bit(4) {
            self.by_sixteen.next = (self.by_eight.val() << 128) | (self.by_eight.val() >> 384);
        }
        self.by_thirty_two.next = self.by_sixteen.val();
        if self.coarse.q.val().get_bit(5) {
            self.by_thirty_two.next = (self.by_sixteen.val() << 256) | (self.by_sixteen.val() >> 256);
        }
        self.whole.d.next = self.by_thirty_two.val();
        self.result.next = self.whole.q.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::pack;
    use crate::testing::{Bench, Stalls};

    #[test]
    fn every_byte_goes_up_by_the_amount_and_around() {
        let mut bench = Bench::new("rotate", Rotate::default(), |uut| &mut uut.clock);
        let mut random = Stalls::new(7);
        let mut expected = vec![];
        for step in 0..256 {
            // All amounts first, then any.
            let amount = if step < 64 { step } else { random.random() as usize % 64 };
            let bytes: Vec<u8> = (0..64).map(|_| random.random() as u8).collect();
            bench.uut.data.next = pack(&bytes);
            bench.uut.amount.next = amount.to_bits();
            let rotated: Vec<u8> = (0..64).map(|i| bytes[(i + 64 - amount) % 64]).collect();
            expected.push(pack::<512>(&rotated));
            bench.edge();
            if expected.len() >= Rotate::LATENCY {
                assert_eq!(bench.uut.result.val(), expected[expected.len() - Rotate::LATENCY], "step {step}");
            }
        }
        bench.finish();
    }
}
