//! The receive front alone as an outermost block with flat ports, for `verbena replay` and other simulators.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `clk` `rst` | in | clock, synchronous active-high reset |
//! | `s_axis_rx_*` | AXI4-Stream sink | frames without FCS, as in [`super::front::RxFront`] |
//! | `cfg_*` | in | addresses of this station |
//! | `rep_*` | out | [`super::front_records::RxReport`] without the length of the frame, one for each, in the one clock that `rep_valid` is high |
//!
//! Heads and payload lines are taken and dropped inside, so nothing overflows. Throughput: one beat every clock; a
//! report comes 12 clocks after the last beat.

use rust_hdl::prelude::*;

use super::front::RxFront;
use super::front_records::RxReport;

/// The receive front with flat ports.
#[derive(LogicBlock, Default)]
pub struct RxFrontTop {
    pub clk: Signal<In, Clock>,
    pub rst: Signal<In, Bit>,
    pub s_axis_rx_tdata: Signal<In, Bits<512>>,
    pub s_axis_rx_tkeep: Signal<In, Bits<64>>,
    pub s_axis_rx_tlast: Signal<In, Bit>,
    pub s_axis_rx_tuser: Signal<In, Bit>,
    pub s_axis_rx_tvalid: Signal<In, Bit>,
    pub s_axis_rx_tready: Signal<Out, Bit>,
    pub cfg_mac: Signal<In, Bits<48>>,
    pub cfg_ipv4: Signal<In, Bits<32>>,
    pub cfg_ipv6: Signal<In, Bits<128>>,
    pub cfg_promiscuous: Signal<In, Bit>,
    pub rep_valid: Signal<Out, Bit>,
    pub rep_verdict: Signal<Out, Bits<3>>,
    pub rep_icrc_ok: Signal<Out, Bit>,
    pub rep_is_roce: Signal<Out, Bit>,
    pub rep_opcode: Signal<Out, Bits<8>>,
    pub rep_se: Signal<Out, Bit>,
    pub rep_migreq: Signal<Out, Bit>,
    pub rep_pad: Signal<Out, Bits<2>>,
    pub rep_tver: Signal<Out, Bits<4>>,
    pub rep_pkey: Signal<Out, Bits<16>>,
    pub rep_fecn: Signal<Out, Bit>,
    pub rep_becn: Signal<Out, Bit>,
    pub rep_dqpn: Signal<Out, Bits<24>>,
    pub rep_ackreq: Signal<Out, Bit>,
    pub rep_psn: Signal<Out, Bits<24>>,
    pub rep_has_reth: Signal<Out, Bit>,
    pub rep_reth_va: Signal<Out, Bits<64>>,
    pub rep_reth_rkey: Signal<Out, Bits<32>>,
    pub rep_reth_len: Signal<Out, Bits<32>>,
    pub rep_has_aeth: Signal<Out, Bit>,
    pub rep_aeth_syndrome: Signal<Out, Bits<8>>,
    pub rep_aeth_msn: Signal<Out, Bits<24>>,
    pub rep_has_imm: Signal<Out, Bit>,
    pub rep_imm: Signal<Out, Bits<32>>,
    pub rep_payload_len: Signal<Out, Bits<16>>,
    pub rep_ipv6: Signal<Out, Bit>,
    pub rep_vlan: Signal<Out, Bit>,
    pub rep_sport: Signal<Out, Bits<16>>,

    front: RxFront<10, 11>,
    report: Signal<Local, RxReport>,
}

impl Logic for RxFrontTop {
    #[hdl_gen]
    fn update(&mut self) {
        self.front.clock.next = self.clk.val();
        self.front.reset.next = self.rst.val();
        self.front.tdata.next = self.s_axis_rx_tdata.val();
        self.front.tkeep.next = self.s_axis_rx_tkeep.val();
        self.front.tlast.next = self.s_axis_rx_tlast.val();
        self.front.tuser.next = self.s_axis_rx_tuser.val();
        self.front.tvalid.next = self.s_axis_rx_tvalid.val();
        self.s_axis_rx_tready.next = self.front.tready.val();
        self.front.mac.next = self.cfg_mac.val();
        self.front.ipv4.next = self.cfg_ipv4.val();
        self.front.ipv6.next = self.cfg_ipv6.val();
        self.front.promiscuous.next = self.cfg_promiscuous.val();
        self.front.head.ready.next = true;
        self.front.line.ready.next = true;
        self.report.next = self.front.report.val();
        self.rep_valid.next = self.front.report_valid.val();
        self.rep_verdict.next = self.report.val().verdict;
        self.rep_icrc_ok.next = self.report.val().icrc_ok;
        self.rep_is_roce.next = self.report.val().is_roce;
        self.rep_opcode.next = self.report.val().opcode;
        self.rep_se.next = self.report.val().se;
        self.rep_migreq.next = self.report.val().migreq;
        self.rep_pad.next = self.report.val().pad;
        self.rep_tver.next = self.report.val().tver;
        self.rep_pkey.next = self.report.val().pkey;
        self.rep_fecn.next = self.report.val().fecn;
        self.rep_becn.next = self.report.val().becn;
        self.rep_dqpn.next = self.report.val().dqpn;
        self.rep_ackreq.next = self.report.val().ackreq;
        self.rep_psn.next = self.report.val().psn;
        self.rep_has_reth.next = self.report.val().has_reth;
        self.rep_reth_va.next = self.report.val().va;
        self.rep_reth_rkey.next = self.report.val().rkey;
        self.rep_reth_len.next = self.report.val().dma_len;
        self.rep_has_aeth.next = self.report.val().has_aeth;
        self.rep_aeth_syndrome.next = self.report.val().syndrome;
        self.rep_aeth_msn.next = self.report.val().msn;
        self.rep_has_imm.next = self.report.val().has_imm;
        self.rep_imm.next = self.report.val().imm;
        self.rep_payload_len.next = self.report.val().payload_len;
        self.rep_ipv6.next = self.report.val().ipv6;
        self.rep_vlan.next = self.report.val().vlan;
        self.rep_sport.next = self.report.val().sport;
    }
}
