//! The AXI4-Lite end of BAR0: turns bus accesses into a stream of writes and a port of reads.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `s_axil_*` | AXI4-Lite slave | address of `BAR0_ADDR_BITS`, 32-bit data |
//! | `write` | source | one BAR0 write: byte offset and value |
//! | `read_valid`, `read_offset` | out | one clock: the answer to this offset is wanted; `read_offset` then holds still |
//! | `read_value` | in | the answer, from three clocks after `read_valid` until the next one |
//!
//! Latency: one clock from the later of address and data to `write.valid`; five clocks from a read address to
//! `rvalid`. Throughput: one write every two clocks, one read every six.
//!
//! Address and data of a write may come in any order. The answer follows when `write` was taken, so a
//! bus master that reads after it meets the effect. A write that is not of all four bytes
//! is answered OKAY and has no effect: no register has bytes of its own. A read never depends on a
//! stream and so never hangs.

use rust_hdl::prelude::*;

use crate::bus::{BarOffset, BarWrite, StreamSource};

/// AXI4-Lite slave.
#[derive(LogicBlock)]
pub struct AxiLite {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub s_axil_awaddr: Signal<In, BarOffset>,
    pub s_axil_awvalid: Signal<In, Bit>,
    pub s_axil_awready: Signal<Out, Bit>,
    pub s_axil_wdata: Signal<In, Bits<32>>,
    pub s_axil_wstrb: Signal<In, Bits<4>>,
    pub s_axil_wvalid: Signal<In, Bit>,
    pub s_axil_wready: Signal<Out, Bit>,
    pub s_axil_bresp: Signal<Out, Bits<2>>,
    pub s_axil_bvalid: Signal<Out, Bit>,
    pub s_axil_bready: Signal<In, Bit>,
    pub s_axil_araddr: Signal<In, BarOffset>,
    pub s_axil_arvalid: Signal<In, Bit>,
    pub s_axil_arready: Signal<Out, Bit>,
    pub s_axil_rdata: Signal<Out, Bits<32>>,
    pub s_axil_rresp: Signal<Out, Bits<2>>,
    pub s_axil_rvalid: Signal<Out, Bit>,
    pub s_axil_rready: Signal<In, Bit>,
    pub write: StreamSource<BarWrite>,
    pub read_valid: Signal<Out, Bit>,
    pub read_offset: Signal<Out, BarOffset>,
    pub read_value: Signal<In, Bits<32>>,

    held: DFF<BarWrite>,
    has_address: DFF<Bit>,
    has_data: DFF<Bit>,
    is_partial: DFF<Bit>,
    is_answering: DFF<Bit>,
    is_complete: Signal<Local, Bit>,

    is_reading: DFF<Bit>,
    clocks: DFF<Bits<3>>,
    offset: DFF<BarOffset>,
    data: DFF<Bits<32>>,
    has_read: DFF<Bit>,
    all_bytes: Constant<Bits<4>>,
    okay: Constant<Bits<2>>,
    answer_clocks: Constant<Bits<3>>,
}

impl Default for AxiLite {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            s_axil_awaddr: Default::default(),
            s_axil_awvalid: Default::default(),
            s_axil_awready: Default::default(),
            s_axil_wdata: Default::default(),
            s_axil_wstrb: Default::default(),
            s_axil_wvalid: Default::default(),
            s_axil_wready: Default::default(),
            s_axil_bresp: Default::default(),
            s_axil_bvalid: Default::default(),
            s_axil_bready: Default::default(),
            s_axil_araddr: Default::default(),
            s_axil_arvalid: Default::default(),
            s_axil_arready: Default::default(),
            s_axil_rdata: Default::default(),
            s_axil_rresp: Default::default(),
            s_axil_rvalid: Default::default(),
            s_axil_rready: Default::default(),
            write: Default::default(),
            read_valid: Default::default(),
            read_offset: Default::default(),
            read_value: Default::default(),
            held: Default::default(),
            has_address: Default::default(),
            has_data: Default::default(),
            is_partial: Default::default(),
            is_answering: Default::default(),
            is_complete: Default::default(),
            is_reading: Default::default(),
            clocks: Default::default(),
            offset: Default::default(),
            data: Default::default(),
            has_read: Default::default(),
            all_bytes: Constant::new(0xFu8.to_bits()),
            okay: Constant::new(0u8.to_bits()),
            answer_clocks: Constant::new(3u8.to_bits()),
        }
    }
}

impl Logic for AxiLite {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, held, has_address, has_data, is_partial, is_answering);
        dff_setup!(self, clock, is_reading, clocks, offset, data, has_read);

        self.s_axil_awready.next = !self.has_address.q.val();
        self.s_axil_wready.next = !self.has_data.q.val();
        self.s_axil_bvalid.next = self.is_answering.q.val();
        self.s_axil_bresp.next = self.okay.val();
        self.is_complete.next = self.has_address.q.val() & self.has_data.q.val() & !self.is_answering.q.val();
        self.write.valid.next = self.has_address.q.val() & self.has_data.q.val() & !self.is_answering.q.val() & !self.is_partial.q.val();
        self.write.data.next = self.held.q.val();

        if self.s_axil_awvalid.val() & !self.has_address.q.val() {
            self.has_address.d.next = true;
            self.held.d.next.offset = self.s_axil_awaddr.val();
        }
        if self.s_axil_wvalid.val() & !self.has_data.q.val() {
            self.has_data.d.next = true;
            self.held.d.next.value = self.s_axil_wdata.val();
            self.is_partial.d.next = self.s_axil_wstrb.val() != self.all_bytes.val();
        }
        if self.s_axil_bready.val() {
            self.is_answering.d.next = false;
        }
        if self.is_complete.val() & (self.write.ready.val() | self.is_partial.q.val()) {
            self.has_address.d.next = false;
            self.has_data.d.next = false;
            self.is_answering.d.next = true;
        }

        self.s_axil_arready.next = !self.is_reading.q.val();
        self.s_axil_rvalid.next = self.has_read.q.val();
        self.s_axil_rdata.next = self.data.q.val();
        self.s_axil_rresp.next = self.okay.val();
        self.read_valid.next = self.is_reading.q.val() & (self.clocks.q.val() == 0) & !self.has_read.q.val();
        self.read_offset.next = self.offset.q.val();
        if self.is_reading.q.val() {
            if !self.has_read.q.val() {
                self.clocks.d.next = self.clocks.q.val() + 1;
                if self.clocks.q.val() == self.answer_clocks.val() {
                    self.data.d.next = self.read_value.val();
                    self.has_read.d.next = true;
                }
            } else if self.s_axil_rready.val() {
                self.has_read.d.next = false;
                self.is_reading.d.next = false;
            }
        } else if self.s_axil_arvalid.val() {
            self.is_reading.d.next = true;
            self.offset.d.next = self.s_axil_araddr.val();
            self.clocks.d.next = 0.into();
        }

        if self.reset.val() {
            self.has_address.d.next = false;
            self.has_data.d.next = false;
            self.is_answering.d.next = false;
            self.is_reading.d.next = false;
            self.has_read.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Monitor, Stalls};

    /// A write as a bus master offers it, and whether it is of all bytes.
    type Access = (u64, u64, bool);

    struct Master {
        bench: Bench<AxiLite>,
        monitor: Monitor<BarWrite>,
        stalls: [Stalls; 5],
        answers: usize,
        reads: Vec<(u64, u64)>,
        /// What the register side answers: kept for three clocks in a pipeline.
        pipe: [u64; 3],
    }

    impl Master {
        fn new(name: &str, stalled: bool) -> Self {
            let stalls = |seed| if stalled { Stalls::new(seed) } else { Stalls::none() };
            Self {
                bench: Bench::new(name, AxiLite::default(), |uut| &mut uut.clock),
                monitor: Monitor::new(stalls(1)),
                stalls: [stalls(2), stalls(3), stalls(4), stalls(5), stalls(6)],
                answers: 0,
                reads: vec![],
                pipe: [0; 3],
            }
        }

        /// Runs writes and reads at once until all are answered.
        fn run(&mut self, writes: &[Access], reads: &[u64]) {
            let (mut aw, mut w, mut ar) = (0, 0, 0);
            let (mut aw_on, mut w_on, mut ar_on) = (false, false, false);
            let limit = self.bench.clock_count() + 8_000;
            while self.answers < writes.len() || self.reads.len() < reads.len() {
                aw_on = aw < writes.len() && (aw_on || self.stalls[0].go());
                w_on = w < writes.len() && (w_on || self.stalls[1].go());
                ar_on = ar < reads.len() && (ar_on || self.stalls[2].go());
                let uut = &mut self.bench.uut;
                uut.s_axil_awvalid.next = aw_on;
                if aw_on {
                    uut.s_axil_awaddr.next = writes[aw].0.into();
                }
                uut.s_axil_wvalid.next = w_on;
                if w_on {
                    uut.s_axil_wdata.next = writes[w].1.into();
                    uut.s_axil_wstrb.next = (if writes[w].2 { 15u64 } else { 7 }).into();
                }
                uut.s_axil_arvalid.next = ar_on;
                if ar_on {
                    uut.s_axil_araddr.next = reads[ar].into();
                }
                uut.s_axil_bready.next = self.stalls[3].go();
                uut.s_axil_rready.next = self.stalls[4].go();
                uut.read_value.next = self.pipe[0].into();
                self.monitor.before(&mut uut.write);
                self.bench.settle();
                let uut = &self.bench.uut;
                self.monitor.after(&uut.write);
                if aw_on && uut.s_axil_awready.val() {
                    (aw, aw_on) = (aw + 1, false);
                }
                if w_on && uut.s_axil_wready.val() {
                    (w, w_on) = (w + 1, false);
                }
                if ar_on && uut.s_axil_arready.val() {
                    (ar, ar_on) = (ar + 1, false);
                }
                if uut.s_axil_bvalid.val() && uut.s_axil_bready.val() {
                    assert_eq!(uut.s_axil_bresp.val(), 0u64);
                    self.answers += 1;
                }
                if uut.s_axil_rvalid.val() && uut.s_axil_rready.val() {
                    self.reads.push((reads[self.reads.len()], uut.s_axil_rdata.val().to_u64()));
                }
                let asked = if uut.read_valid.val() { uut.read_offset.val().to_u64() ^ 0xABCD_0000 } else { self.pipe[2] };
                self.pipe = [self.pipe[1], self.pipe[2], asked];
                self.bench.edge();
                assert!(self.bench.clock_count() < limit, "an access hangs");
            }
        }
    }

    fn accesses(count: u64) -> Vec<Access> {
        (0..count).map(|i| ((i * 0x1_2344) & 0xFF_FFFC, i * 0x0101_0101, i % 5 != 3)).collect()
    }

    fn whole(accesses: &[Access]) -> Vec<(u64, u64)> {
        accesses.iter().filter(|access| access.2).map(|access| (access.0, access.1)).collect()
    }

    fn seen(got: &[BarWrite]) -> Vec<(u64, u64)> {
        got.iter().map(|write| (write.offset.to_u64(), write.value.to_u64())).collect()
    }

    #[test]
    fn writes_and_reads_pass_under_random_stalls_and_partial_writes_have_no_effect() {
        let mut master = Master::new("axil", true);
        let writes = accesses(120);
        let reads: Vec<u64> = (0..60).map(|i| i * 4).collect();
        master.run(&writes, &reads);
        assert_eq!(seen(&master.monitor.got), whole(&writes));
        assert!(master.reads.iter().all(|(offset, value)| *value == offset ^ 0xABCD_0000));
        master.bench.finish();
    }

    #[test]
    fn a_write_takes_two_clocks_and_a_read_six() {
        let mut master = Master::new("axil_rate", false);
        let writes: Vec<Access> = (0..50).map(|i| (i * 4, i, true)).collect();
        master.run(&writes, &[]);
        assert_eq!(master.bench.clock_count(), 2 * 50 + 1);
        let start = master.bench.clock_count();
        master.run(&writes, &(0..20).map(|i| i * 4).collect::<Vec<_>>());
        assert_eq!(master.bench.clock_count() - start, 6 * 20);
        master.bench.finish();
    }

    #[test]
    fn a_read_is_answered_while_a_write_waits_and_a_reset_forgets_both() {
        let mut master = Master::new("axil_reset", false);
        master.bench.uut.s_axil_awvalid.next = true;
        master.bench.uut.s_axil_wvalid.next = true;
        master.bench.uut.s_axil_wstrb.next = 15u64.into();
        master.bench.uut.write.ready.next = false;
        master.bench.uut.s_axil_arvalid.next = true;
        master.bench.uut.s_axil_rready.next = false;
        master.bench.uut.read_value.next = 77u64.into();
        master.bench.cycles(12);
        assert!(master.bench.uut.write.valid.val());
        assert!(!master.bench.uut.s_axil_bvalid.val());
        assert!(master.bench.uut.s_axil_rvalid.val());
        assert_eq!(master.bench.uut.s_axil_rdata.val(), 77u64);
        master.bench.uut.s_axil_awvalid.next = false;
        master.bench.uut.s_axil_wvalid.next = false;
        master.bench.uut.s_axil_arvalid.next = false;
        master.bench.uut.reset.next = true;
        master.bench.cycles(1);
        master.bench.uut.reset.next = false;
        master.bench.cycles(1);
        assert!(!master.bench.uut.write.valid.val() && !master.bench.uut.s_axil_rvalid.val());
        let writes = accesses(5);
        master.run(&writes, &[0x1084]);
        assert_eq!(seen(&master.monitor.got), whole(&writes));
        master.bench.finish();
    }
}
