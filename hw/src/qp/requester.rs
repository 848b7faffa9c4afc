//! The requester, wired: doorbells, outstanding requests, completions.
//!
//! Acknowledgements come through a coalescing queue, so they never wait for one another, whatever
//! the speed of the completer: a queue pair is in it once, with its newest. A refused request puts
//! its queue pair there too, weakly: an acknowledgement that is queued already will find it.

use rust_hdl::prelude::*;

use super::{Completer, FlushGate, Posted};
use crate::bus::*;
use crate::prim::{Coalesce, Fifo};

#[derive(LogicBlock)]
pub struct Requester {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub qp_write: Signal<In, QpWrite>,
    pub bell_in: StreamSink<SqBell>,
    pub bell: StreamSource<SqBell>,
    pub issue: StreamSink<Issue>,
    pub ack: StreamSink<AckIn>,
    pub entered: Signal<In, Bits<16>>,
    pub finished: Signal<In, Bits<16>>,
    pub cqe: StreamSource<CqeReq>,
    pub progress: StreamSource<Progress>,
    pub halt: StreamSource<Bits<8>>,
    pub fatal: StreamSource<EventReq>,
    pub count_ack: Signal<Out, Bit>,
    pub count_nak: Signal<Out, Bit>,
    pub count_ghost: Signal<Out, Bit>,
    pub query_qpn: Signal<In, Bits<8>>,
    pub query_unacked: Signal<Out, Bits<24>>,
    pub query_consumer: Signal<Out, Bits<16>>,
    pub query_dead: Signal<Out, Bit>,

    posted: Posted,
    completer: Completer,
    gate: FlushGate,
    acks: Coalesce<AckIn, 8, 9>,
    flushes: Coalesce<Bit, 8, 9>,
    halt_posted: Fifo<Bits<8>, 1, 2>,
    halt_others: Fifo<Bits<8>, 1, 2>,
    both_take: Signal<Local, Bit>,
    issued: Signal<Local, Issue>,
    refused: Signal<Local, Bit>,
    arrived: Signal<Local, AckIn>,
    look_again: Constant<Bits<8>>,
}

impl Default for Requester {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            qp_write: Default::default(),
            bell_in: Default::default(),
            bell: Default::default(),
            issue: Default::default(),
            ack: Default::default(),
            entered: Default::default(),
            finished: Default::default(),
            cqe: Default::default(),
            progress: Default::default(),
            halt: Default::default(),
            fatal: Default::default(),
            count_ack: Default::default(),
            count_nak: Default::default(),
            count_ghost: Default::default(),
            query_qpn: Default::default(),
            query_unacked: Default::default(),
            query_consumer: Default::default(),
            query_dead: Default::default(),
            posted: Default::default(),
            completer: Default::default(),
            gate: Default::default(),
            acks: Default::default(),
            flushes: Default::default(),
            halt_posted: Default::default(),
            halt_others: Default::default(),
            both_take: Default::default(),
            issued: Default::default(),
            refused: Default::default(),
            arrived: Default::default(),
            look_again: Constant::new(super::completer::LOOK_AGAIN.to_bits()),
        }
    }
}

impl Logic for Requester {
    #[hdl_gen]
    fn update(&mut self) {
        clock!(self, clock, posted, completer, gate, acks, flushes, halt_posted, halt_others);
        self.posted.reset.next = self.reset.val();
        self.completer.reset.next = self.reset.val();
        self.gate.reset.next = self.reset.val();
        self.acks.reset.next = self.reset.val();
        self.flushes.reset.next = self.reset.val();
        self.halt_posted.reset.next = self.reset.val();
        self.halt_others.reset.next = self.reset.val();
        self.posted.qp_write.next = self.qp_write.val();
        self.completer.qp_write.next = self.qp_write.val();

        StreamSink::<SqBell>::link(&mut self.bell_in, &mut self.posted.bell_in);
        StreamSource::<SqBell>::link(&mut self.bell, &mut self.posted.bell);
        self.posted.look_qpn.next = self.completer.look_qpn.val();
        self.completer.producer.next = self.posted.producer.val();
        self.completer.is_dead.next = self.posted.is_dead.val();

        // A flush: through its queue, then the gate.
        self.flushes.put_valid.next = self.posted.flush.valid.val() & self.flushes.ready.val();
        self.flushes.put_weak.next = false;
        self.flushes.put_key.next = self.posted.flush.data.val();
        self.flushes.put_data.next = false;
        self.posted.flush.ready.next = self.flushes.ready.val();
        self.gate.put.valid.next = self.flushes.get_valid.val();
        self.gate.put.data.next = self.flushes.get_key.val();
        self.flushes.get_ready.next = self.gate.put.ready.val();
        self.gate.entered.next = self.entered.val();
        self.gate.finished.next = self.finished.val();
        StreamSource::<Bits<8>>::join(&mut self.gate.flush, &mut self.completer.flush);

        // Issues go straight on; one that was refused takes the queue of acknowledgements for a clock.
        self.issued.next = self.issue.data.val();
        self.refused.next = self.issue.valid.val() & self.completer.issue.ready.val() & self.issued.val().status.any();
        self.completer.issue.data.next = self.issue.data.val();
        self.completer.issue.valid.next = self.issue.valid.val() & self.acks.ready.val();
        self.issue.ready.next = self.completer.issue.ready.val() & self.acks.ready.val();
        self.arrived.next = self.ack.data.val();
        self.ack.ready.next = self.acks.ready.val() & !self.refused.val();
        self.acks.put_valid.next = self.acks.ready.val() & (self.refused.val() | self.ack.valid.val());
        self.acks.put_weak.next = self.refused.val();
        self.acks.put_key.next = self.arrived.val().qpn;
        self.acks.put_data.next = self.arrived.val();
        if self.refused.val() {
            self.acks.put_key.next = self.issued.val().qpn;
            self.acks.put_data.next.qpn = self.issued.val().qpn;
            self.acks.put_data.next.syndrome = self.look_again.val();
        }
        self.completer.ack.valid.next = self.acks.get_valid.val();
        self.completer.ack.data.next = self.acks.get_data.val();
        self.acks.get_ready.next = self.completer.ack.ready.val();

        // A death is told here and to the transmitter.
        self.both_take.next = self.halt_posted.fill.ready.val() & self.halt_others.fill.ready.val();
        self.completer.halt.ready.next = self.both_take.val();
        self.halt_posted.fill.valid.next = self.completer.halt.valid.val() & self.both_take.val();
        self.halt_others.fill.valid.next = self.completer.halt.valid.val() & self.both_take.val();
        self.halt_posted.fill.data.next = self.completer.halt.data.val();
        self.halt_others.fill.data.next = self.completer.halt.data.val();
        StreamSource::<Bits<8>>::join(&mut self.halt_posted.drain, &mut self.posted.halt);
        StreamSource::<Bits<8>>::link(&mut self.halt, &mut self.halt_others.drain);

        StreamSource::<CqeReq>::link(&mut self.cqe, &mut self.completer.cqe);
        StreamSource::<Progress>::link(&mut self.progress, &mut self.completer.progress);
        StreamSource::<EventReq>::link(&mut self.fatal, &mut self.completer.fatal);
        self.count_ack.next = self.completer.count_ack.val();
        self.count_nak.next = self.completer.count_nak.val();
        self.count_ghost.next = self.completer.count_ghost.val();
        self.completer.query_qpn.next = self.query_qpn.val();
        self.query_unacked.next = self.completer.query_unacked.val();
        self.query_consumer.next = self.completer.query_consumer.val();
        self.query_dead.next = self.completer.query_dead.val();
    }
}
