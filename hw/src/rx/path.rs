//! The receive path behind the front: responder, scatter and acknowledgement gate.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `head`, `line` | sinks | accepted frames, and their payload lines |
//! | `qp_write`, `mr_write` | in | broadcasts to the tables |
//! | `req`, `out`, `done` | sources, in | writes to host memory, see [`Scatter`] |
//! | `ack` | source | acknowledgements and NAKs to send |
//! | `ack_in` | source | acknowledgements for the requester |
//! | `event_out` | source | a QP has refused a request and is dead |
//! | `entered`, `finished` | out | see [`Responder`] |
//! | `count_*`, `query_*` | | see [`Responder`] |
//! | `ready` | out | low while tables are cleared after a reset |

use rust_hdl::prelude::*;

use super::{AckGate, Responder, Scatter};
use crate::bus::{AckIn, AckReq, EventReq, Line, MrWrite, QpWrite, Qpn, RxHead, StreamSink, StreamSource, WriteReq};

/// Responder, scatter and acknowledgement gate.
#[derive(LogicBlock, Default)]
pub struct RxPath {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub ready: Signal<Out, Bit>,
    pub head: StreamSink<RxHead>,
    pub line: StreamSink<Line>,
    pub qp_write: Signal<In, QpWrite>,
    pub mr_write: Signal<In, MrWrite>,
    pub req: StreamSource<WriteReq>,
    pub out: StreamSource<Line>,
    pub done: Signal<In, Bit>,
    pub ack: StreamSource<AckReq>,
    pub ack_in: StreamSource<AckIn>,
    pub event_out: StreamSource<EventReq>,
    pub entered: Signal<Out, Bits<16>>,
    pub finished: Signal<Out, Bits<16>>,
    pub count_requests: Signal<Out, Bit>,
    pub count_duplicates: Signal<Out, Bit>,
    pub count_out_of_order: Signal<Out, Bit>,
    pub count_no_qp: Signal<Out, Bit>,
    pub count_not_executed: Signal<Out, Bit>,
    pub query_qpn: Signal<In, Qpn>,
    pub query_expected_psn: Signal<Out, Bits<24>>,
    pub query_msn: Signal<Out, Bits<24>>,
    pub query_dead: Signal<Out, Bit>,

    responder: Responder,
    scatter: Scatter,
    gate: AckGate,
}

impl Logic for RxPath {
    #[hdl_gen]
    fn update(&mut self) {
        clock!(self, clock, responder, scatter, gate);
        self.responder.reset.next = self.reset.val();
        self.scatter.reset.next = self.reset.val();
        self.gate.reset.next = self.reset.val();
        self.ready.next = self.responder.ready.val() & self.gate.ready.val();

        self.responder.head.data.next = self.head.data.val();
        self.responder.head.valid.next = self.head.valid.val();
        self.head.ready.next = self.responder.head.ready.val();
        self.responder.qp_write.next = self.qp_write.val();
        self.responder.mr_write.next = self.mr_write.val();
        self.scatter.action.data.next = self.responder.action.data.val();
        self.scatter.action.valid.next = self.responder.action.valid.val();
        self.responder.action.ready.next = self.scatter.action.ready.val();
        self.gate.record.data.next = self.responder.ack.data.val();
        self.gate.record.valid.next = self.responder.ack.valid.val();
        self.responder.ack.ready.next = self.gate.record.ready.val();

        self.scatter.line.data.next = self.line.data.val();
        self.scatter.line.valid.next = self.line.valid.val();
        self.line.ready.next = self.scatter.line.ready.val();
        self.req.data.next = self.scatter.req.data.val();
        self.req.valid.next = self.scatter.req.valid.val();
        self.scatter.req.ready.next = self.req.ready.val();
        self.out.data.next = self.scatter.out.data.val();
        self.out.valid.next = self.scatter.out.valid.val();
        self.scatter.out.ready.next = self.out.ready.val();
        self.scatter.done.next = self.done.val();
        self.gate.done.next = self.done.val();

        self.ack.data.next = self.gate.ack.data.val();
        self.ack.valid.next = self.gate.ack.valid.val();
        self.gate.ack.ready.next = self.ack.ready.val();
        self.ack_in.data.next = self.responder.ack_in.data.val();
        self.ack_in.valid.next = self.responder.ack_in.valid.val();
        self.responder.ack_in.ready.next = self.ack_in.ready.val();
        self.event_out.data.next = self.responder.event_out.data.val();
        self.event_out.valid.next = self.responder.event_out.valid.val();
        self.responder.event_out.ready.next = self.event_out.ready.val();

        self.entered.next = self.responder.entered.val();
        self.finished.next = self.scatter.finished.val();
        self.count_requests.next = self.responder.count_requests.val();
        self.count_duplicates.next = self.responder.count_duplicates.val();
        self.count_out_of_order.next = self.responder.count_out_of_order.val();
        self.count_no_qp.next = self.responder.count_no_qp.val();
        self.count_not_executed.next = self.responder.count_not_executed.val();
        self.responder.query_qpn.next = self.query_qpn.val();
        self.query_expected_psn.next = self.responder.query_expected_psn.val();
        self.query_msn.next = self.responder.query_msn.val();
        self.query_dead.next = self.responder.query_dead.val();
    }
}

#[cfg(test)]
mod tests;
