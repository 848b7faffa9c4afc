//! Takes frames from the MAC and tells where in the frame each beat is and how the frame is laid out.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `tdata` `tkeep` `tlast` `tuser` `tvalid` | AXI4-Stream sink, always ready | frames without FCS |
//! | `valid` `beat` | out | the same beats as [`RxBeat`]s |
//!
//! Latency: two clocks. Throughput: one beat every clock. `tkeep` must have its ones at the low end,
//! and all of them in every beat but the last; bytes of a last beat without any count as none.
//! A reset in the middle of a frame forgets it: the next beat is taken for the first of a frame.

use rust_hdl::prelude::*;

use super::front_records::RxBeat;
use crate::prim::XorNet;

/// The intake.
#[derive(LogicBlock)]
pub struct RxIntake {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub tdata: Signal<In, Bits<512>>,
    pub tkeep: Signal<In, Bits<64>>,
    pub tlast: Signal<In, Bit>,
    pub tuser: Signal<In, Bit>,
    pub tvalid: Signal<In, Bit>,
    pub valid: Signal<Out, Bit>,
    pub beat: Signal<Out, RxBeat>,

    data1: DFF<Bits<512>>,
    keep1: DFF<Bits<64>>,
    last1: DFF<Bit>,
    bad1: DFF<Bit>,
    valid1: DFF<Bit>,
    in_frame: DFF<Bit>,

    data2: DFF<Bits<512>>,
    bytes2: DFF<Bits<7>>,
    index2: DFF<Bits<8>>,
    first2: DFF<Bit>,
    second2: DFF<Bit>,
    last2: DFF<Bit>,
    bad2: DFF<Bit>,
    vlan2: DFF<Bit>,
    ipv4_2: DFF<Bit>,
    ipv6_2: DFF<Bit>,
    valid2: DFF<Bit>,

    count: XorNet<64, 7>,
    ether_type: Signal<Local, Bits<16>>,
    inner_type: Signal<Local, Bits<16>>,
    is_vlan: Signal<Local, Bit>,
    network: Signal<Local, Bits<16>>,
}

impl Default for RxIntake {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            tdata: Default::default(),
            tkeep: Default::default(),
            tlast: Default::default(),
            tuser: Default::default(),
            tvalid: Default::default(),
            valid: Default::default(),
            beat: Default::default(),
            data1: Default::default(),
            keep1: Default::default(),
            last1: Default::default(),
            bad1: Default::default(),
            valid1: Default::default(),
            in_frame: Default::default(),
            data2: Default::default(),
            bytes2: Default::default(),
            index2: Default::default(),
            first2: Default::default(),
            second2: Default::default(),
            last2: Default::default(),
            bad2: Default::default(),
            vlan2: Default::default(),
            ipv4_2: Default::default(),
            ipv6_2: Default::default(),
            valid2: Default::default(),
            // The number of ones at the low end is the XOR of `i ^ (i + 1)` over all of them: a
            // telescope, three levels deep.
            count: XorNet::new((0..64u64).map(|i| i ^ (i + 1))),
            ether_type: Default::default(),
            inner_type: Default::default(),
            is_vlan: Default::default(),
            network: Default::default(),
        }
    }
}

impl Logic for RxIntake {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, data1, keep1, last1, bad1, valid1, in_frame);
        dff_setup!(self, clock, data2, bytes2, index2, first2, second2, last2, bad2, vlan2, ipv4_2, ipv6_2, valid2);

        self.data1.d.next = self.tdata.val();
        self.keep1.d.next = self.tkeep.val();
        self.last1.d.next = self.tlast.val();
        self.bad1.d.next = self.tuser.val();
        self.valid1.d.next = self.tvalid.val();

        self.count.operand.next = self.keep1.q.val();
        // Types are compared as they lie on the stream: low byte first.
        self.ether_type.next = self.data1.q.val().get_bits::<16>(96);
        self.inner_type.next = self.data1.q.val().get_bits::<16>(128);
        self.is_vlan.next = self.ether_type.val() == 0x0081;
        self.network.next = self.ether_type.val();
        if self.is_vlan.val() {
            self.network.next = self.inner_type.val();
        }

        self.valid2.d.next = self.valid1.q.val();
        if self.valid1.q.val() {
            self.data2.d.next = self.data1.q.val();
            self.bytes2.d.next = self.count.product.val();
            self.last2.d.next = self.last1.q.val();
            self.bad2.d.next = self.bad1.q.val();
            self.first2.d.next = !self.in_frame.q.val();
            self.second2.d.next = self.in_frame.q.val() & self.first2.q.val();
            self.in_frame.d.next = !self.last1.q.val();
            if self.index2.q.val() != 255 {
                self.index2.d.next = self.index2.q.val() + 1;
            }
            if !self.in_frame.q.val() {
                self.index2.d.next = 0.into();
                self.vlan2.d.next = self.is_vlan.val();
                self.ipv4_2.d.next = self.network.val() == 0x0008;
                self.ipv6_2.d.next = self.network.val() == 0xDD86;
            }
        }

        self.valid.next = self.valid2.q.val();
        self.beat.next.data = self.data2.q.val();
        self.beat.next.bytes = self.bytes2.q.val();
        self.beat.next.index = self.index2.q.val();
        self.beat.next.first = self.first2.q.val();
        self.beat.next.second = self.second2.q.val();
        self.beat.next.last = self.last2.q.val();
        self.beat.next.bad = self.bad2.q.val();
        self.beat.next.vlan = self.vlan2.q.val();
        self.beat.next.ipv4 = self.ipv4_2.q.val();
        self.beat.next.ipv6 = self.ipv6_2.q.val();

        if self.reset.val() {
            self.valid1.d.next = false;
            self.valid2.d.next = false;
            self.in_frame.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests;
