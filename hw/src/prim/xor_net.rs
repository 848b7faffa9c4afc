//! A matrix over GF(2): every bit of the product is the parity of some bits of the operand.
//!
//! | port | carries |
//! |---|---|
//! | `operand` | `N` bits |
//! | `product` | `M` bits, in the same clock |
//!
//! No register: the user puts one where the depth of the tree (`log6` of the widest row) asks for
//! it. Written by hand in Verilog, since a kernel has neither a reduction operator nor a matrix
//! that Rust computes.

use rust_hdl::prelude::*;

/// Network of `M` parities over `N` bits; `N` and `M` are at most 64.
#[derive(LogicBlock)]
pub struct XorNet<const N: usize, const M: usize> {
    pub operand: Signal<In, Bits<N>>,
    pub product: Signal<Out, Bits<M>>,
    _columns: Vec<u64>,
}

impl<const N: usize, const M: usize> XorNet<N, M> {
    /// Returns the network whose product is the XOR of the columns that the operand selects.
    pub fn new(columns: impl IntoIterator<Item = u64>) -> Self {
        let columns = Vec::from_iter(columns);
        assert!(columns.len() == N && N <= 64 && M <= 64, "one column for each of {N} bits");
        Self { operand: Default::default(), product: Default::default(), _columns: columns }
    }
}

impl<const N: usize, const M: usize> Logic for XorNet<N, M> {
    fn update(&mut self) {
        let operand = self.operand.val().to_u64();
        let selected = self._columns.iter().enumerate().filter(|(bit, _)| operand >> bit & 1 == 1);
        self.product.next = selected.fold(0, |sum, (_, column)| sum ^ column).to_bits();
    }

    fn connect(&mut self) {
        self.product.connect();
    }

    fn hdl(&self) -> Verilog {
        let mask = |row: usize| self._columns.iter().enumerate().fold(0u64, |mask, (bit, column)| mask | (column >> row & 1) << bit);
        let rows = Vec::from_iter((0..M).rev().map(|row| format!("^(operand & {N}'h{:x})", mask(row))));
        Verilog::Custom(format!("always @(*) product = {{{}}};\n", rows.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Stalls};

    /// A flop on each side, since a bench needs a clock.
    #[derive(LogicBlock)]
    struct Uut {
        clock: Signal<In, Clock>,
        operand: Signal<In, Bits<40>>,
        product: Signal<Out, Bits<17>>,
        net: XorNet<40, 17>,
        held: DFF<Bits<17>>,
    }

    impl Logic for Uut {
        #[hdl_gen]
        fn update(&mut self) {
            dff_setup!(self, clock, held);
            self.net.operand.next = self.operand.val();
            self.held.d.next = self.net.product.val();
            self.product.next = self.held.q.val();
        }
    }

    #[test]
    fn the_product_is_the_sum_of_the_selected_columns() {
        let mut random = Stalls::new(5);
        let columns = Vec::from_iter((0..40).map(|_| random.random() & 0x1FFFF));
        let uut = Uut {
            clock: Default::default(),
            operand: Default::default(),
            product: Default::default(),
            net: XorNet::new(columns.clone()),
            held: Default::default(),
        };
        let mut bench = Bench::new("xor_net", uut, |uut| &mut uut.clock);
        for _ in 0..200 {
            let operand = random.random() & 0xFF_FFFF_FFFF;
            bench.uut.operand.next = operand.to_bits();
            bench.edge();
            let expected = (0..40).filter(|bit| operand >> bit & 1 == 1).fold(0, |sum, bit| sum ^ columns[bit]);
            assert_eq!(bench.uut.product.val().to_u64(), expected);
        }
        bench.finish();
    }
}
