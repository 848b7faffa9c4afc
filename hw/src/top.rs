//! The whole core, with flat and plainly named ports.
//!
//! | port | protocol | use |
//! |---|---|---|
//! | `clk`, `rst` | 250 MHz, synchronous reset, active high | all of the core |
//! | `s_axil_*` | AXI4-Lite | BAR0, see [`verbena_abi::regs`] |
//! | `m_axi_*` | AXI4, 512 bits, IDs 0 to 255 | host memory |
//! | `irq_*` | valid/ready with a vector | MSI-X requests |
//! | `m_axis_tx_*`, `s_axis_rx_*` | AXI4-Stream, 512 bits | the MAC; frames without FCS |
//!
//! `docs/architecture.md` walks one write through it. This block only wires.

use rust_hdl::prelude::*;
use verbena_abi::limits::LOG_QPS;
use verbena_abi::wire::RxVerdict;

use crate::bus::*;
use crate::cq::{CqeWriter, EventWriter, Moderator, ProgressWriter};
use crate::csr::ControlPlane;
use crate::dma::DmaEngine;
use crate::qp::Requester;
use crate::rx::{RxFront, RxPath, RxReport};
use crate::tx::{MacOut, TxPath};

/// One bit for each counter, in the order of [`verbena_abi::regs::Counter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Pulses {
    rx_frames: Bit,
    rx_accepted: Bit,
    rx_bad_frame: Bit,
    rx_not_ours: Bit,
    rx_malformed: Bit,
    rx_unsupported: Bit,
    rx_bad_icrc: Bit,
    rx_overflow: Bit,
    rx_no_qp: Bit,
    rx_not_executed: Bit,
    rx_requests: Bit,
    rx_duplicates: Bit,
    rx_out_of_order: Bit,
    rx_acks: Bit,
    rx_naks: Bit,
    rx_ghost_acks: Bit,
    tx_packets: Bit,
    tx_acks: Bit,
    tx_naks: Bit,
    wqes_fetched: Bit,
    wqes_refused: Bit,
    cqes: Bit,
    eqes: Bit,
    queue_overruns: Bit,
    bad_doorbells: Bit,
    bad_commands: Bit,
    dma_errors: Bit,
    ack_timeouts: Bit,
}

/// One bit for each stream that is a stage, in the order of [`verbena_abi::stages::Stage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Stages {
    bells: Bit,
    fetch_requests: Bit,
    fetched_lines: Bit,
    items: Bit,
    request_heads: Bit,
    packet_descs: Bit,
    gather_parts: Bit,
    issues: Bit,
    payload_requests: Bit,
    read_bursts: Bit,
    read_beats: Bit,
    payload_lines: Bit,
    gathered_lines: Bit,
    packets: Bit,
    headers: Bit,
    merge_lines: Bit,
    frame_beats: Bit,
    sealed_beats: Bit,
    tx_beats: Bit,
    rx_beats: Bit,
    rx_heads: Bit,
    rx_lines: Bit,
    scatter_requests: Bit,
    scatter_lines: Bit,
    write_bursts: Bit,
    write_beats: Bit,
    answers: Bit,
    acks: Bit,
    completions: Bit,
    cq_writes: Bit,
}

#[derive(LogicBlock)]
pub struct Core {
    pub clk: Signal<In, Clock>,
    pub rst: Signal<In, Bit>,
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
    pub m_axi_arid: Signal<Out, Bits<8>>,
    pub m_axi_araddr: Signal<Out, Bits<64>>,
    pub m_axi_arlen: Signal<Out, Bits<8>>,
    pub m_axi_arsize: Signal<Out, Bits<3>>,
    pub m_axi_arburst: Signal<Out, Bits<2>>,
    pub m_axi_arvalid: Signal<Out, Bit>,
    pub m_axi_arready: Signal<In, Bit>,
    pub m_axi_rid: Signal<In, Bits<8>>,
    pub m_axi_rdata: Signal<In, Bits<512>>,
    pub m_axi_rresp: Signal<In, Bits<2>>,
    pub m_axi_rlast: Signal<In, Bit>,
    pub m_axi_rvalid: Signal<In, Bit>,
    pub m_axi_rready: Signal<Out, Bit>,
    pub m_axi_awid: Signal<Out, Bits<8>>,
    pub m_axi_awaddr: Signal<Out, Bits<64>>,
    pub m_axi_awlen: Signal<Out, Bits<8>>,
    pub m_axi_awsize: Signal<Out, Bits<3>>,
    pub m_axi_awburst: Signal<Out, Bits<2>>,
    pub m_axi_awvalid: Signal<Out, Bit>,
    pub m_axi_awready: Signal<In, Bit>,
    pub m_axi_wdata: Signal<Out, Bits<512>>,
    pub m_axi_wstrb: Signal<Out, Bits<64>>,
    pub m_axi_wlast: Signal<Out, Bit>,
    pub m_axi_wvalid: Signal<Out, Bit>,
    pub m_axi_wready: Signal<In, Bit>,
    pub m_axi_bid: Signal<In, Bits<8>>,
    pub m_axi_bresp: Signal<In, Bits<2>>,
    pub m_axi_bvalid: Signal<In, Bit>,
    pub m_axi_bready: Signal<Out, Bit>,
    pub irq_valid: Signal<Out, Bit>,
    pub irq_ready: Signal<In, Bit>,
    pub irq_vector: Signal<Out, Bits<5>>,
    pub m_axis_tx_tdata: Signal<Out, Bits<512>>,
    pub m_axis_tx_tkeep: Signal<Out, Bits<64>>,
    pub m_axis_tx_tlast: Signal<Out, Bit>,
    pub m_axis_tx_tuser: Signal<Out, Bit>,
    pub m_axis_tx_tvalid: Signal<Out, Bit>,
    pub m_axis_tx_tready: Signal<In, Bit>,
    pub s_axis_rx_tdata: Signal<In, Bits<512>>,
    pub s_axis_rx_tkeep: Signal<In, Bits<64>>,
    pub s_axis_rx_tlast: Signal<In, Bit>,
    pub s_axis_rx_tuser: Signal<In, Bit>,
    pub s_axis_rx_tvalid: Signal<In, Bit>,
    pub s_axis_rx_tready: Signal<Out, Bit>,

    control: ControlPlane,
    tx: TxPath,
    mac_out: MacOut,
    front: RxFront<10, 11>,
    rx: RxPath,
    requester: Requester,
    cqes: CqeWriter,
    moderator: Moderator,
    events: EventWriter,
    progress: ProgressWriter,
    dma: DmaEngine,
    qp_write: DFF<QpWrite>,
    mr_write: DFF<MrWrite>,

    refusal: Signal<Local, EventReq>,
    refusal_qpn: Signal<Local, Bits<16>>,
    both_take: Signal<Local, Bit>,
    report: Signal<Local, RxReport>,
    verdict: Signal<Local, Bits<3>>,
    sent: Signal<Local, Beat>,
    pulses: Signal<Local, Pulses>,
    stage_valid: Signal<Local, Stages>,
    stage_ready: Signal<Local, Stages>,
    full_beat: Constant<Bits<3>>,
    incrementing: Constant<Bits<2>>,
    accepted: Constant<Bits<3>>,
    bad_frame: Constant<Bits<3>>,
    not_ours: Constant<Bits<3>>,
    malformed: Constant<Bits<3>>,
    unsupported: Constant<Bits<3>>,
    bad_icrc: Constant<Bits<3>>,
    overflow: Constant<Bits<3>>,
}

impl Default for Core {
    fn default() -> Self {
        let verdict = |verdict: RxVerdict| Constant::new((verdict as u8).to_bits());
        Self {
            clk: Default::default(),
            rst: Default::default(),
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
            m_axi_arid: Default::default(),
            m_axi_araddr: Default::default(),
            m_axi_arlen: Default::default(),
            m_axi_arsize: Default::default(),
            m_axi_arburst: Default::default(),
            m_axi_arvalid: Default::default(),
            m_axi_arready: Default::default(),
            m_axi_rid: Default::default(),
            m_axi_rdata: Default::default(),
            m_axi_rresp: Default::default(),
            m_axi_rlast: Default::default(),
            m_axi_rvalid: Default::default(),
            m_axi_rready: Default::default(),
            m_axi_awid: Default::default(),
            m_axi_awaddr: Default::default(),
            m_axi_awlen: Default::default(),
            m_axi_awsize: Default::default(),
            m_axi_awburst: Default::default(),
            m_axi_awvalid: Default::default(),
            m_axi_awready: Default::default(),
            m_axi_wdata: Default::default(),
            m_axi_wstrb: Default::default(),
            m_axi_wlast: Default::default(),
            m_axi_wvalid: Default::default(),
            m_axi_wready: Default::default(),
            m_axi_bid: Default::default(),
            m_axi_bresp: Default::default(),
            m_axi_bvalid: Default::default(),
            m_axi_bready: Default::default(),
            irq_valid: Default::default(),
            irq_ready: Default::default(),
            irq_vector: Default::default(),
            m_axis_tx_tdata: Default::default(),
            m_axis_tx_tkeep: Default::default(),
            m_axis_tx_tlast: Default::default(),
            m_axis_tx_tuser: Default::default(),
            m_axis_tx_tvalid: Default::default(),
            m_axis_tx_tready: Default::default(),
            s_axis_rx_tdata: Default::default(),
            s_axis_rx_tkeep: Default::default(),
            s_axis_rx_tlast: Default::default(),
            s_axis_rx_tuser: Default::default(),
            s_axis_rx_tvalid: Default::default(),
            s_axis_rx_tready: Default::default(),
            control: Default::default(),
            tx: Default::default(),
            mac_out: Default::default(),
            front: Default::default(),
            rx: Default::default(),
            requester: Default::default(),
            cqes: Default::default(),
            moderator: Default::default(),
            events: Default::default(),
            progress: Default::default(),
            dma: Default::default(),
            qp_write: Default::default(),
            mr_write: Default::default(),
            refusal: Default::default(),
            refusal_qpn: Default::default(),
            both_take: Default::default(),
            report: Default::default(),
            verdict: Default::default(),
            sent: Default::default(),
            pulses: Default::default(),
            stage_valid: Default::default(),
            stage_ready: Default::default(),
            full_beat: Constant::new(6u8.to_bits()),
            incrementing: Constant::new(1u8.to_bits()),
            accepted: verdict(RxVerdict::Accepted),
            bad_frame: verdict(RxVerdict::BadFrame),
            not_ours: verdict(RxVerdict::NotOurs),
            malformed: verdict(RxVerdict::Malformed),
            unsupported: verdict(RxVerdict::Unsupported),
            bad_icrc: verdict(RxVerdict::BadIcrc),
            overflow: verdict(RxVerdict::Overflow),
        }
    }
}

impl Logic for Core {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clk, qp_write, mr_write);
        clock!(self, clk, control, tx, mac_out, front, rx, requester, cqes, moderator, events, progress, dma);
        self.control.reset.next = self.rst.val();
        self.tx.reset.next = self.rst.val();
        self.mac_out.reset.next = self.rst.val();
        self.front.reset.next = self.rst.val();
        self.rx.reset.next = self.rst.val();
        self.requester.reset.next = self.rst.val();
        self.cqes.reset.next = self.rst.val();
        self.moderator.reset.next = self.rst.val();
        self.events.reset.next = self.rst.val();
        self.progress.reset.next = self.rst.val();
        self.dma.reset.next = self.rst.val();

        // BAR0 and what commands broadcast.
        self.control.s_axil_awaddr.next = self.s_axil_awaddr.val();
        self.control.s_axil_awvalid.next = self.s_axil_awvalid.val();
        self.s_axil_awready.next = self.control.s_axil_awready.val();
        self.control.s_axil_wdata.next = self.s_axil_wdata.val();
        self.control.s_axil_wstrb.next = self.s_axil_wstrb.val();
        self.control.s_axil_wvalid.next = self.s_axil_wvalid.val();
        self.s_axil_wready.next = self.control.s_axil_wready.val();
        self.s_axil_bresp.next = self.control.s_axil_bresp.val();
        self.s_axil_bvalid.next = self.control.s_axil_bvalid.val();
        self.control.s_axil_bready.next = self.s_axil_bready.val();
        self.control.s_axil_araddr.next = self.s_axil_araddr.val();
        self.control.s_axil_arvalid.next = self.s_axil_arvalid.val();
        self.s_axil_arready.next = self.control.s_axil_arready.val();
        self.s_axil_rdata.next = self.control.s_axil_rdata.val();
        self.s_axil_rresp.next = self.control.s_axil_rresp.val();
        self.s_axil_rvalid.next = self.control.s_axil_rvalid.val();
        self.control.s_axil_rready.next = self.s_axil_rready.val();
        self.qp_write.d.next = self.control.qp_write.val();
        self.mr_write.d.next = self.control.mr_write.val();
        self.tx.qp_write.next = self.qp_write.q.val();
        self.tx.mr_write.next = self.mr_write.q.val();
        self.rx.qp_write.next = self.qp_write.q.val();
        self.rx.mr_write.next = self.mr_write.q.val();
        self.requester.qp_write.next = self.qp_write.q.val();
        self.cqes.cq_write.next = self.control.cq_write.val();
        self.moderator.cq_write.next = self.control.cq_write.val();
        self.control.tables_ready.next = self.rx.ready.val() & self.events.ready.val();
        self.control.tx_entered.next = self.tx.entered.val();
        self.control.tx_finished.next = self.tx.finished.val();
        self.control.rx_entered.next = self.rx.entered.val();
        self.control.rx_finished.next = self.rx.finished.val();
        self.control.cq_entered.next = self.cqes.entered.val();
        self.control.cq_finished.next = self.cqes.finished.val();
        self.control.flush_pending.next = self.requester.flush_pending.val();
        self.tx.query_qpn.next = self.control.query_qpn.val();
        self.rx.query_qpn.next = self.control.query_qpn.val();
        self.requester.query_qpn.next = self.control.query_qpn.val();
        self.cqes.query_cqn.next = self.control.query_cqn.val();
        self.control.q_next_psn.next = self.tx.query_next_psn.val();
        self.control.q_producer.next = self.tx.query_producer.val();
        self.control.q_fetched.next = self.tx.query_fetched.val();
        self.control.q_unacked_psn.next = self.requester.query_unacked.val();
        self.control.q_consumer.next = self.requester.query_consumer.val();
        self.control.q_tx_dead.next = self.requester.query_dead.val();
        self.control.q_expected_psn.next = self.rx.query_expected_psn.val();
        self.control.q_msn.next = self.rx.query_msn.val();
        self.control.q_rx_dead.next = self.rx.query_dead.val();
        self.control.q_cq_producer.next = self.cqes.q_producer.val();
        self.control.q_cq_consumer.next = self.cqes.q_consumer.val();
        self.control.q_cq_overrun.next = self.cqes.q_overrun.val();

        // Doorbells, requests, frames.
        StreamSource::<SqBell>::join(&mut self.control.sq_bell, &mut self.requester.bell_in);
        StreamSource::<SqBell>::join(&mut self.requester.bell, &mut self.tx.bell);
        StreamSource::<Qpn>::join(&mut self.requester.halt, &mut self.tx.halt);
        StreamSource::<Issue>::join(&mut self.tx.issue, &mut self.requester.issue);
        StreamSource::<Restart>::join(&mut self.requester.restart, &mut self.tx.restart);
        self.tx.retired.next = self.requester.retired.val();
        self.requester.asked.next = self.tx.asked.val();
        self.requester.entered.next = self.tx.entered.val();
        self.requester.finished.next = self.tx.finished.val();
        self.tx.mac.next = self.control.mac.val();
        self.tx.ipv4.next = self.control.ipv4.val();
        self.tx.ipv6.next = self.control.ipv6.val();
        StreamSource::<Beat>::join(&mut self.tx.beat, &mut self.mac_out.beat);
        self.m_axis_tx_tdata.next = self.mac_out.tdata.val();
        self.m_axis_tx_tkeep.next = self.mac_out.tkeep.val();
        self.m_axis_tx_tlast.next = self.mac_out.tlast.val();
        self.m_axis_tx_tuser.next = false;
        self.m_axis_tx_tvalid.next = self.mac_out.tvalid.val();
        self.mac_out.tready.next = self.m_axis_tx_tready.val();

        // Frames that arrive.
        self.front.tdata.next = self.s_axis_rx_tdata.val();
        self.front.tkeep.next = self.s_axis_rx_tkeep.val();
        self.front.tlast.next = self.s_axis_rx_tlast.val();
        self.front.tuser.next = self.s_axis_rx_tuser.val();
        self.front.tvalid.next = self.s_axis_rx_tvalid.val();
        self.s_axis_rx_tready.next = self.front.tready.val();
        self.front.mac.next = self.control.mac.val();
        self.front.ipv4.next = self.control.ipv4.val();
        self.front.ipv6.next = self.control.ipv6.val();
        self.front.promiscuous.next = false;
        StreamSource::<RxHead>::join(&mut self.front.head, &mut self.rx.head);
        StreamSource::<Line>::join(&mut self.front.line, &mut self.rx.line);
        StreamSource::<AckReq>::join(&mut self.rx.ack, &mut self.tx.ack);
        StreamSource::<AckIn>::join(&mut self.rx.ack_in, &mut self.requester.ack);

        // Completions and events.
        StreamSource::<CqeReq>::join(&mut self.requester.cqe, &mut self.cqes.cqe);
        StreamSource::<CqBell>::join(&mut self.control.cq_bell, &mut self.cqes.bell);
        StreamSource::<EventReq>::join(&mut self.control.event_out, &mut self.events.command);
        StreamSource::<CqEvent>::join(&mut self.cqes.event_out, &mut self.moderator.event_in);
        self.moderator.visible.next = self.cqes.visible.val();
        self.moderator.moderation.next = self.cqes.moderation.val();
        StreamSource::<EventReq>::join(&mut self.moderator.event, &mut self.events.cq);
        // A refusal goes to the event queue and to the other half of its queue pair.
        self.refusal.next = self.rx.event_out.data.val();
        self.refusal_qpn.next = self.refusal.val().number;
        self.both_take.next = self.events.responder.ready.val() & self.requester.kill.ready.val();
        self.rx.event_out.ready.next = self.both_take.val();
        self.events.responder.valid.next = self.rx.event_out.valid.val() & self.requester.kill.ready.val();
        self.events.responder.data.next = self.refusal.val();
        self.requester.kill.valid.next = self.rx.event_out.valid.val() & self.events.responder.ready.val();
        self.requester.kill.data.next = bit_cast::<LOG_QPS, 16>(self.refusal_qpn.val());
        StreamSource::<EventReq>::join(&mut self.requester.fatal, &mut self.events.requester);
        self.events.eq_base.next = self.control.eq_base.val();
        self.events.eq_log_depth.next = self.control.eq_log_depth.val();
        self.events.eq_vector.next = self.control.eq_vector.val();
        self.events.eq_enable.next = self.control.eq_enable.val();
        self.events.eq_restart.next = self.control.eq_restart.val();
        self.events.eq_consumer.next = self.control.eq_consumer.val();
        self.irq_vector.next = self.events.irq.data.val();
        self.irq_valid.next = self.events.irq.valid.val();
        self.events.irq.ready.next = self.irq_ready.val();
        StreamSource::<Progress>::join(&mut self.requester.progress, &mut self.progress.progress);
        StreamSource::<WriteReq>::join(&mut self.events.req, &mut self.progress.event_req);
        StreamSource::<Line>::join(&mut self.events.line, &mut self.progress.event_line);
        self.events.done.next = self.progress.event_done.val();

        // Host memory.
        StreamSource::<ReadReq>::join(&mut self.tx.fetch_req, &mut self.dma.fetch_req);
        StreamSource::<Line>::join(&mut self.dma.fetch_line, &mut self.tx.fetch_line);
        StreamSource::<ReadReq>::join(&mut self.tx.payload_req, &mut self.dma.payload_req);
        StreamSource::<Line>::join(&mut self.dma.payload_line, &mut self.tx.payload_line);
        StreamSource::<WriteReq>::join(&mut self.cqes.req, &mut self.dma.cqe_req);
        StreamSource::<Line>::join(&mut self.cqes.line, &mut self.dma.cqe_line);
        self.cqes.done.next = self.dma.cqe_done.val();
        StreamSource::<WriteReq>::join(&mut self.progress.req, &mut self.dma.event_req);
        StreamSource::<Line>::join(&mut self.progress.line, &mut self.dma.event_line);
        self.progress.done.next = self.dma.event_done.val();
        StreamSource::<WriteReq>::join(&mut self.rx.req, &mut self.dma.scatter_req);
        StreamSource::<Line>::join(&mut self.rx.out, &mut self.dma.scatter_line);
        self.rx.done.next = self.dma.scatter_done.val();
        self.m_axi_arid.next = self.dma.ar.data.val().id;
        self.m_axi_araddr.next = self.dma.ar.data.val().addr;
        self.m_axi_arlen.next = self.dma.ar.data.val().len;
        self.m_axi_arsize.next = self.dma.ar.data.val().size;
        self.m_axi_arburst.next = self.incrementing.val();
        self.m_axi_arvalid.next = self.dma.ar.valid.val();
        self.dma.ar.ready.next = self.m_axi_arready.val();
        self.dma.r.data.next.id = self.m_axi_rid.val();
        self.dma.r.data.next.data = self.m_axi_rdata.val();
        self.dma.r.data.next.resp = self.m_axi_rresp.val();
        self.dma.r.data.next.last = self.m_axi_rlast.val();
        self.dma.r.valid.next = self.m_axi_rvalid.val();
        self.m_axi_rready.next = self.dma.r.ready.val();
        self.m_axi_awid.next = self.dma.aw.data.val().id;
        self.m_axi_awaddr.next = self.dma.aw.data.val().addr;
        self.m_axi_awlen.next = self.dma.aw.data.val().len;
        self.m_axi_awsize.next = self.full_beat.val();
        self.m_axi_awburst.next = self.incrementing.val();
        self.m_axi_awvalid.next = self.dma.aw.valid.val();
        self.dma.aw.ready.next = self.m_axi_awready.val();
        self.m_axi_wdata.next = self.dma.w.data.val().data;
        self.m_axi_wstrb.next = self.dma.w.data.val().strb;
        self.m_axi_wlast.next = self.dma.w.data.val().last;
        self.m_axi_wvalid.next = self.dma.w.valid.val();
        self.dma.w.ready.next = self.m_axi_wready.val();
        self.dma.b.data.next.id = self.m_axi_bid.val();
        self.dma.b.data.next.resp = self.m_axi_bresp.val();
        self.dma.b.valid.next = self.m_axi_bvalid.val();
        self.m_axi_bready.next = self.dma.b.ready.val();

        // Counters.
        self.report.next = self.front.report.val();
        self.verdict.next = self.report.val().verdict;
        self.pulses.next.rx_frames = self.front.report_valid.val();
        self.pulses.next.rx_accepted = self.front.report_valid.val() & (self.verdict.val() == self.accepted.val());
        self.pulses.next.rx_bad_frame = self.front.report_valid.val() & (self.verdict.val() == self.bad_frame.val());
        self.pulses.next.rx_not_ours = self.front.report_valid.val() & (self.verdict.val() == self.not_ours.val());
        self.pulses.next.rx_malformed = self.front.report_valid.val() & (self.verdict.val() == self.malformed.val());
        self.pulses.next.rx_unsupported = self.front.report_valid.val() & (self.verdict.val() == self.unsupported.val());
        self.pulses.next.rx_bad_icrc = self.front.report_valid.val() & (self.verdict.val() == self.bad_icrc.val());
        self.pulses.next.rx_overflow = self.front.report_valid.val() & (self.verdict.val() == self.overflow.val());
        self.pulses.next.rx_no_qp = self.rx.count_no_qp.val();
        self.pulses.next.rx_not_executed = self.rx.count_not_executed.val();
        self.pulses.next.rx_requests = self.rx.count_requests.val();
        self.pulses.next.rx_duplicates = self.rx.count_duplicates.val();
        self.pulses.next.rx_out_of_order = self.rx.count_out_of_order.val();
        self.pulses.next.rx_acks = self.requester.count_ack.val();
        self.pulses.next.rx_naks = self.requester.count_nak.val();
        self.pulses.next.rx_ghost_acks = self.requester.count_ghost.val();
        self.pulses.next.tx_packets = self.tx.sent.val();
        self.pulses.next.tx_acks = self.tx.sent_ack.val();
        self.pulses.next.tx_naks = self.tx.sent_nak.val();
        self.pulses.next.wqes_fetched = self.tx.fetched.val();
        self.pulses.next.wqes_refused = self.tx.refused.val();
        self.pulses.next.cqes = self.cqes.count_cqe.val();
        self.pulses.next.eqes = self.events.count_eqe.val();
        self.pulses.next.queue_overruns = self.cqes.count_overrun.val() | self.events.count_overrun.val();
        self.pulses.next.bad_doorbells = self.tx.bad_bell.val() | self.cqes.count_bad_bell.val();
        self.pulses.next.bad_commands = false;
        self.pulses.next.dma_errors = self.dma.read_error.val() | self.dma.write_error.val();
        self.pulses.next.ack_timeouts = self.requester.count_restart.val();
        self.control.pulses.next = self.pulses.val().into();
        self.control.rx_bytes.next = 0.into();
        if self.front.report_valid.val() & (self.verdict.val() == self.accepted.val()) {
            self.control.rx_bytes.next = self.report.val().frame_len;
        }
        self.sent.next = self.tx.beat.data.val();
        self.control.tx_last.next = self.sent.val().last;
        self.control.tx_bytes.next = 0.into();
        if self.tx.beat.valid.val() & self.mac_out.beat.ready.val() {
            self.control.tx_bytes.next = self.sent.val().bytes;
        }
        self.control.dma_error.next = self.dma.read_error.val() | self.dma.write_error.val();

        // Stages: the source's valid, the sink's ready.
        self.stage_valid.next.bells = self.requester.bell.valid.val();
        self.stage_valid.next.fetch_requests = self.tx.fetch_req.valid.val();
        self.stage_valid.next.fetched_lines = self.dma.fetch_line.valid.val();
        self.stage_valid.next.items = self.tx.stage_valid.val().items;
        self.stage_valid.next.request_heads = self.tx.stage_valid.val().request_heads;
        self.stage_valid.next.packet_descs = self.tx.stage_valid.val().packet_descs;
        self.stage_valid.next.gather_parts = self.tx.stage_valid.val().gather_parts;
        self.stage_valid.next.issues = self.tx.issue.valid.val();
        self.stage_valid.next.payload_requests = self.tx.payload_req.valid.val();
        self.stage_valid.next.read_bursts = self.dma.ar.valid.val();
        self.stage_valid.next.read_beats = self.m_axi_rvalid.val();
        self.stage_valid.next.payload_lines = self.dma.payload_line.valid.val();
        self.stage_valid.next.gathered_lines = self.tx.stage_valid.val().gathered_lines;
        self.stage_valid.next.packets = self.tx.stage_valid.val().packets;
        self.stage_valid.next.headers = self.tx.stage_valid.val().headers;
        self.stage_valid.next.merge_lines = self.tx.stage_valid.val().merge_lines;
        self.stage_valid.next.frame_beats = self.tx.stage_valid.val().frame_beats;
        self.stage_valid.next.sealed_beats = self.tx.beat.valid.val();
        self.stage_valid.next.tx_beats = self.mac_out.tvalid.val();
        self.stage_valid.next.rx_beats = self.s_axis_rx_tvalid.val();
        self.stage_valid.next.rx_heads = self.front.head.valid.val();
        self.stage_valid.next.rx_lines = self.front.line.valid.val();
        self.stage_valid.next.scatter_requests = self.rx.req.valid.val();
        self.stage_valid.next.scatter_lines = self.rx.out.valid.val();
        self.stage_valid.next.write_bursts = self.dma.aw.valid.val();
        self.stage_valid.next.write_beats = self.dma.w.valid.val();
        self.stage_valid.next.answers = self.rx.ack.valid.val();
        self.stage_valid.next.acks = self.rx.ack_in.valid.val();
        self.stage_valid.next.completions = self.requester.cqe.valid.val();
        self.stage_valid.next.cq_writes = self.cqes.req.valid.val();
        self.stage_ready.next.bells = self.tx.bell.ready.val();
        self.stage_ready.next.fetch_requests = self.dma.fetch_req.ready.val();
        self.stage_ready.next.fetched_lines = self.tx.fetch_line.ready.val();
        self.stage_ready.next.items = self.tx.stage_ready.val().items;
        self.stage_ready.next.request_heads = self.tx.stage_ready.val().request_heads;
        self.stage_ready.next.packet_descs = self.tx.stage_ready.val().packet_descs;
        self.stage_ready.next.gather_parts = self.tx.stage_ready.val().gather_parts;
        self.stage_ready.next.issues = self.requester.issue.ready.val();
        self.stage_ready.next.payload_requests = self.dma.payload_req.ready.val();
        self.stage_ready.next.read_bursts = self.m_axi_arready.val();
        self.stage_ready.next.read_beats = self.dma.r.ready.val();
        self.stage_ready.next.payload_lines = self.tx.payload_line.ready.val();
        self.stage_ready.next.gathered_lines = self.tx.stage_ready.val().gathered_lines;
        self.stage_ready.next.packets = self.tx.stage_ready.val().packets;
        self.stage_ready.next.headers = self.tx.stage_ready.val().headers;
        self.stage_ready.next.merge_lines = self.tx.stage_ready.val().merge_lines;
        self.stage_ready.next.frame_beats = self.tx.stage_ready.val().frame_beats;
        self.stage_ready.next.sealed_beats = self.mac_out.beat.ready.val();
        self.stage_ready.next.tx_beats = self.m_axis_tx_tready.val();
        self.stage_ready.next.rx_beats = self.front.tready.val();
        self.stage_ready.next.rx_heads = self.rx.head.ready.val();
        self.stage_ready.next.rx_lines = self.rx.line.ready.val();
        self.stage_ready.next.scatter_requests = self.dma.scatter_req.ready.val();
        self.stage_ready.next.scatter_lines = self.dma.scatter_line.ready.val();
        self.stage_ready.next.write_bursts = self.m_axi_awready.val();
        self.stage_ready.next.write_beats = self.m_axi_wready.val();
        self.stage_ready.next.answers = self.tx.ack.ready.val();
        self.stage_ready.next.acks = self.requester.ack.ready.val();
        self.stage_ready.next.completions = self.cqes.cqe.ready.val();
        self.stage_ready.next.cq_writes = self.dma.cqe_req.ready.val();
        self.control.stage_valid.next = self.stage_valid.val().into();
        self.control.stage_ready.next = self.stage_ready.val().into();
    }
}
