//! Bytes in the opposite order: wires only.
//!
//! A header as it lies on a stream has its first byte in the lowest bits, while its fields are
//! big-endian. Behind this block every field of the header is one slice. Written by hand in
//! Verilog, since a kernel would need a statement for each byte.

use rust_hdl::prelude::*;

use super::{pack, unpack};

/// Reverses the bytes of `N` bits; `N` is a multiple of 8.
#[derive(LogicBlock, Default)]
pub struct ByteReverse<const N: usize> {
    pub operand: Signal<In, Bits<N>>,
    pub result: Signal<Out, Bits<N>>,
}

impl<const N: usize> Logic for ByteReverse<N> {
    fn update(&mut self) {
        let mut bytes = unpack(self.operand.val());
        bytes.reverse();
        self.result.next = pack(&bytes);
    }

    fn connect(&mut self) {
        self.result.connect();
    }

    fn hdl(&self) -> Verilog {
        let bytes = Vec::from_iter((0..N / 8).map(|byte| format!("operand[{}:{}]", 8 * byte + 7, 8 * byte)));
        Verilog::Custom(format!("always @(*) result = {{{}}};\n", bytes.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Stalls};

    /// A flop behind the block, since a bench needs a clock.
    #[derive(LogicBlock, Default)]
    struct Uut {
        clock: Signal<In, Clock>,
        operand: Signal<In, Bits<72>>,
        result: Signal<Out, Bits<72>>,
        reverse: ByteReverse<72>,
        held: DFF<Bits<72>>,
    }

    impl Logic for Uut {
        #[hdl_gen]
        fn update(&mut self) {
            dff_setup!(self, clock, held);
            self.reverse.operand.next = self.operand.val();
            self.held.d.next = self.reverse.result.val();
            self.result.next = self.held.q.val();
        }
    }

    #[test]
    fn the_first_byte_becomes_the_last() {
        let mut bench = Bench::new("byte_reverse", Uut::default(), |uut| &mut uut.clock);
        let mut random = Stalls::new(6);
        for _ in 0..50 {
            let mut bytes = Vec::from_iter((0..9).map(|_| random.random() as u8));
            bench.uut.operand.next = pack(&bytes);
            bench.edge();
            bytes.reverse();
            assert_eq!(unpack(bench.uut.result.val()), bytes);
        }
        bench.finish();
    }
}
