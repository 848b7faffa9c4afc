//! Block memory: one write port, one read port with a registered output.
//!
//! | port | carries |
//! |---|---|
//! | `write_*` | `write_data` goes to `write_address` when `write_enable` |
//! | `read_address` | what to read |
//! | `read_data` | its contents, one clock later |
//!
//! A read of the address written in the same clock gives the old contents. Contents start at zero
//! when the device is configured; a reset does not clear them. Written by hand in Verilog, since a
//! kernel has no array: this is the template that maps to BRAM or URAM.

use rust_hdl::prelude::*;

/// Memory of `1 << N` entries.
#[derive(LogicBlock, Default)]
pub struct Ram<T: Synth, const N: usize> {
    pub clock: Signal<In, Clock>,
    pub write_enable: Signal<In, Bit>,
    pub write_address: Signal<In, Bits<N>>,
    pub write_data: Signal<In, T>,
    pub read_address: Signal<In, Bits<N>>,
    pub read_data: Signal<Out, T>,
    _memory: Vec<T>,
}

impl<T: Synth, const N: usize> Logic for Ram<T, N> {
    fn update(&mut self) {
        if self._memory.is_empty() {
            self._memory = vec![T::default(); 1 << N];
        }
        if self.clock.pos_edge() {
            self.read_data.next = self._memory[self.read_address.val().index()];
            if self.write_enable.val() {
                self._memory[self.write_address.val().index()] = self.write_data.val();
            }
        }
    }

    fn connect(&mut self) {
        self.read_data.connect();
    }

    fn hdl(&self) -> Verilog {
        Verilog::Custom(format!(
            "\
reg [{top}:0] mem [0:{last}];
integer i;
initial begin
  for (i = 0; i <= {last}; i = i + 1) mem[i] = {width}'h0;
  read_data = {width}'h0;
end
always @(posedge clock) begin
  read_data <= mem[read_address];
  if (write_enable) mem[write_address] <= write_data;
end
",
            top = T::BITS - 1,
            last = (1usize << N) - 1,
            width = T::BITS,
        ))
    }

    fn timing(&self) -> Vec<TimingInfo> {
        vec![TimingInfo {
            name: "ram".into(),
            clock: "clock".into(),
            inputs: vec!["write_enable".into(), "write_address".into(), "write_data".into(), "read_address".into()],
            outputs: vec!["read_data".into()],
        }]
    }
}
