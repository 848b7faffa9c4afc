//! Distributed memory: one write port, one read port without a register.
//!
//! The contents of `read_address` are on `read_data` in the same clock, so a read-modify-write of
//! one entry takes one clock and needs no forwarding. Reading the address being written gives the
//! old contents until the edge. Contents start at zero. Written by hand in Verilog, since a kernel
//! has no array: this is the template that maps to LUT RAM.

use rust_hdl::prelude::*;

/// Memory of `1 << N` entries.
#[derive(LogicBlock, Default)]
pub struct LutRam<T: Synth, const N: usize> {
    pub clock: Signal<In, Clock>,
    pub write_enable: Signal<In, Bit>,
    pub write_address: Signal<In, Bits<N>>,
    pub write_data: Signal<In, T>,
    pub read_address: Signal<In, Bits<N>>,
    pub read_data: Signal<Out, T>,
    _memory: Vec<T>,
}

impl<T: Synth, const N: usize> Logic for LutRam<T, N> {
    fn update(&mut self) {
        if self._memory.is_empty() {
            self._memory = vec![T::default(); 1 << N];
        }
        if self.clock.pos_edge() && self.write_enable.val() {
            self._memory[self.write_address.val().index()] = self.write_data.val();
        }
        self.read_data.next = self._memory[self.read_address.val().index()];
    }

    fn connect(&mut self) {
        self.read_data.connect();
    }

    fn hdl(&self) -> Verilog {
        Verilog::Custom(format!(
            "\
(* ram_style = \"distributed\" *) reg [{top}:0] mem [0:{last}];
integer i;
initial for (i = 0; i <= {last}; i = i + 1) mem[i] = {width}'h0;
always @(posedge clock) if (write_enable) mem[write_address] <= write_data;
always @(*) read_data = mem[read_address];
",
            top = T::BITS - 1,
            last = (1usize << N) - 1,
            width = T::BITS,
        ))
    }

    fn timing(&self) -> Vec<TimingInfo> {
        vec![TimingInfo {
            name: "lut_ram".into(),
            clock: "clock".into(),
            inputs: vec!["write_enable".into(), "write_address".into(), "write_data".into()],
            outputs: vec![],
        }]
    }
}
