//! Holds a dead queue pair back until nothing of it is under way in the transmitter, so that a
//! flushed request's memory is not read any more when its completion says that it is free.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `put` | in | the oldest queue pair that waits, of a coalescing queue |
//! | `flush` | source | the same, when it may be flushed |
//! | `entered`, `finished` | in | requests asked for, and requests whose payload is on the card, modulo 2^16 |
//!
//! Requests go through the transmitter in order, so what was asked for when the queue pair came is
//! done when `finished` has reached the number that `entered` had then. One queue pair waits at a
//! time; the others wait in the queue in front. A short wait before the count is taken lets the
//! scheduler hear of the death first.

use rust_hdl::prelude::*;

use crate::bus::{StreamSink, StreamSource};

#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum State {
    Idle,
    Settle,
    Drain,
    Offer,
}

#[derive(LogicBlock, Default)]
pub struct FlushGate {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub put: StreamSink<Bits<8>>,
    pub flush: StreamSource<Bits<8>>,
    pub entered: Signal<In, Bits<16>>,
    pub finished: Signal<In, Bits<16>>,

    state: DFF<State>,
    qpn: DFF<Bits<8>>,
    timer: DFF<Bits<5>>,
    goal: DFF<Bits<16>>,
    ahead: Signal<Local, Bits<16>>,
}

impl Logic for FlushGate {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, state, qpn, timer, goal);
        self.put.ready.next = false;
        self.flush.valid.next = false;
        self.flush.data.next = self.qpn.q.val();
        self.ahead.next = self.finished.val() - self.goal.q.val();

        match self.state.q.val() {
            State::Idle => {
                self.put.ready.next = true;
                self.timer.d.next = 0.into();
                if self.put.valid.val() {
                    self.qpn.d.next = self.put.data.val();
                    self.state.d.next = State::Settle;
                }
            }
            State::Settle => {
                self.timer.d.next = self.timer.q.val() + 1;
                self.goal.d.next = self.entered.val();
                if self.timer.q.val().all() {
                    self.state.d.next = State::Drain;
                }
            }
            State::Drain => {
                if !self.ahead.val().get_bit(15) {
                    self.state.d.next = State::Offer;
                }
            }
            State::Offer => {
                self.flush.valid.next = true;
                if self.flush.ready.val() {
                    self.state.d.next = State::Idle;
                }
            }
            _ => {
                self.state.d.next = State::Idle;
            }
        }

        if self.reset.val() {
            self.state.d.next = State::Idle;
        }
    }
}
