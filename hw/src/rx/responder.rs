//! The responder: what becomes of each packet that the front lets through.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `head` | sink | accepted frames, requests and responses |
//! | `qp_write`, `mr_write` | in | broadcasts to the tables, see [`KeyCheck`]; only while `ready` |
//! | `action` | source | one for each head, in order: what to do with the payload |
//! | `ack` | source | acknowledgements and NAKs, in the order of the packets |
//! | `ack_in` | source | acknowledgements for the requester |
//! | `event_out` | source | a QP has refused a request and is dead |
//! | `entered` | out | heads taken since reset, modulo 2^16 |
//! | `count_*` | out | pulses, one packet each |
//! | `query_qpn`, `query_*` | in, out | a QP's state, one clock later |
//! | `ready` | out | low while tables are cleared after a reset, as many clocks as there are most objects of a kind |
//!
//! Latency: five clocks from a head to what comes of it. Throughput: a head every clock, of
//! one QP every two. The pipeline never stops half-way: a head is taken only while the FIFOs behind
//! have room for all that may be under way, so a full one of any kind stops `head`.
//!
//! To know that nothing uses an old table row any more: broadcast, take `entered` in a later clock,
//! and wait until `finished` of [`super::Scatter`] has come to it (as a 16-bit difference that is not
//! negative). Heads that looked at the old row are among those counted, and each is counted as
//! finished when its payload is in host memory or discarded.

use rust_hdl::prelude::*;

use super::{AckRecord, Decide, KeyCheck, RxAction};
use crate::bus::{AckIn, EventReq, MrWrite, QpWrite, Qpn, RxHead, StreamSink, StreamSource};
use crate::prim::Fifo;

/// Lookup, decision and the queues behind.
#[derive(LogicBlock)]
pub struct Responder {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub ready: Signal<Out, Bit>,
    pub head: StreamSink<RxHead>,
    pub qp_write: Signal<In, QpWrite>,
    pub mr_write: Signal<In, MrWrite>,
    pub action: StreamSource<RxAction>,
    pub ack: StreamSource<AckRecord>,
    pub ack_in: StreamSource<AckIn>,
    pub event_out: StreamSource<EventReq>,
    pub entered: Signal<Out, Bits<16>>,
    pub count_requests: Signal<Out, Bit>,
    pub count_duplicates: Signal<Out, Bit>,
    pub count_out_of_order: Signal<Out, Bit>,
    pub count_no_qp: Signal<Out, Bit>,
    pub count_not_executed: Signal<Out, Bit>,
    pub query_qpn: Signal<In, Qpn>,
    pub query_expected_psn: Signal<Out, Bits<24>>,
    pub query_msn: Signal<Out, Bits<24>>,
    pub query_dead: Signal<Out, Bit>,

    check: KeyCheck,
    decide: Decide,
    actions: Fifo<RxAction, 4, 5>,
    acks: Fifo<AckRecord, 4, 5>,
    acks_in: Fifo<AckIn, 4, 5>,
    events: Fifo<EventReq, 4, 5>,
    go: DFF<Bit>,
    entered_count: DFF<Bits<16>>,
    // Six heads may be on their way when a level is looked at.
    level_to_go: Constant<Bits<5>>,
}

impl Default for Responder {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            ready: Default::default(),
            head: Default::default(),
            qp_write: Default::default(),
            mr_write: Default::default(),
            action: Default::default(),
            ack: Default::default(),
            ack_in: Default::default(),
            event_out: Default::default(),
            entered: Default::default(),
            count_requests: Default::default(),
            count_duplicates: Default::default(),
            count_out_of_order: Default::default(),
            count_no_qp: Default::default(),
            count_not_executed: Default::default(),
            query_qpn: Default::default(),
            query_expected_psn: Default::default(),
            query_msn: Default::default(),
            query_dead: Default::default(),
            check: Default::default(),
            decide: Default::default(),
            actions: Default::default(),
            acks: Default::default(),
            acks_in: Default::default(),
            events: Default::default(),
            go: Default::default(),
            entered_count: Default::default(),
            level_to_go: Constant::new(9u64.to_bits()),
        }
    }
}

impl Logic for Responder {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, go, entered_count);
        clock!(self, clock, check, decide, actions, acks, acks_in, events);
        self.check.reset.next = self.reset.val();
        self.decide.reset.next = self.reset.val();
        self.actions.reset.next = self.reset.val();
        self.acks.reset.next = self.reset.val();
        self.acks_in.reset.next = self.reset.val();
        self.events.reset.next = self.reset.val();
        self.ready.next = self.check.ready.val() & self.decide.ready.val();

        self.go.d.next = (self.actions.level.val() <= self.level_to_go.val())
            & (self.acks.level.val() <= self.level_to_go.val())
            & (self.acks_in.level.val() <= self.level_to_go.val())
            & (self.events.level.val() <= self.level_to_go.val());
        self.check.go.next = self.go.q.val();
        self.check.head.data.next = self.head.data.val();
        self.check.head.valid.next = self.head.valid.val();
        self.head.ready.next = self.check.head.ready.val();
        self.check.qp_write.next = self.qp_write.val();
        self.check.mr_write.next = self.mr_write.val();
        self.decide.mr_write.next = self.mr_write.val();
        self.decide.life.next = self.check.life.val();
        self.decide.checked.next = self.check.checked.val();
        self.decide.checked_valid.next = self.check.checked_valid.val();
        self.decide.peek_qpn.next = self.check.peek_qpn.val();
        if self.check.taken.val() {
            self.entered_count.d.next = self.entered_count.q.val() + 1;
        }
        self.entered.next = self.entered_count.q.val();

        self.actions.fill.data.next = self.decide.action.val();
        self.actions.fill.valid.next = self.decide.action_valid.val();
        self.acks.fill.data.next = self.decide.ack.val();
        self.acks.fill.valid.next = self.decide.ack_valid.val();
        self.acks_in.fill.data.next = self.decide.ack_in.val();
        self.acks_in.fill.valid.next = self.decide.ack_in_valid.val();
        self.events.fill.data.next = self.decide.refusal.val();
        self.events.fill.valid.next = self.decide.refusal_valid.val();
        self.action.data.next = self.actions.drain.data.val();
        self.action.valid.next = self.actions.drain.valid.val();
        self.actions.drain.ready.next = self.action.ready.val();
        self.ack.data.next = self.acks.drain.data.val();
        self.ack.valid.next = self.acks.drain.valid.val();
        self.acks.drain.ready.next = self.ack.ready.val();
        self.ack_in.data.next = self.acks_in.drain.data.val();
        self.ack_in.valid.next = self.acks_in.drain.valid.val();
        self.acks_in.drain.ready.next = self.ack_in.ready.val();
        self.event_out.data.next = self.events.drain.data.val();
        self.event_out.valid.next = self.events.drain.valid.val();
        self.events.drain.ready.next = self.event_out.ready.val();

        self.count_requests.next = self.decide.count_requests.val();
        self.count_duplicates.next = self.decide.count_duplicates.val();
        self.count_out_of_order.next = self.decide.count_out_of_order.val();
        self.count_no_qp.next = self.decide.count_no_qp.val();
        self.count_not_executed.next = self.decide.count_not_executed.val();
        self.decide.query_qpn.next = self.query_qpn.val();
        self.query_expected_psn.next = self.decide.query_expected_psn.val();
        self.query_msn.next = self.decide.query_msn.val();
        self.query_dead.next = self.decide.query_dead.val();

        if self.reset.val() {
            self.go.d.next = false;
            self.entered_count.d.next = 0.into();
        }
    }
}

#[cfg(test)]
#[path = "responder_tests.rs"]
mod tests;
