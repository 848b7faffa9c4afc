//! Writes events to the event queue and raises the interrupt behind them.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `command`, `cq`, `responder`, `requester` | sink | events; always ready |
//! | `eq_*` | in | registers of the event queue; `eq_restart` for one clock with the first value of `EqConfig` |
//! | `req`, `line` | source | one write of 32 bytes for every event |
//! | `done` | in | one clock for every such write that is visible to the host |
//! | `irq` | source | interrupt vector |
//! | `ready` | out | the table of waiting completions is cleared: 256 clocks after reset |
//! | `count_eqe`, `count_overrun` | out | one clock for an event written, an event lost |
//!
//! Latency: three to eight clocks from a source to `req`. Throughput: one event every three to six clocks, since
//! the sources are asked in turn, one a clock.
//!
//! **Nothing here ever blocks a source.** While the queue is full, events wait in a FIFO for each source: 64, and
//! an event that finds it full is lost and counted. A completion event can't be lost: it is dropped only while
//! another one of the same CQ waits, which tells the driver the same, so 256 places hold all there can be. The
//! FIFO of the CQ source has 512, of which overrun events leave 256 free.
//!
//! While the queue is disabled, events are taken and dropped in silence. Writing `EqConfig` starts it
//! at index 0; a driver that changes the base disables it first, since a write that is on its way still
//! goes to the old ring. A queue is full when a consumer index says so, also one that cannot be.
//!
//! **Interrupt.** `irq` is offered once the newest event's write is done. Events that become visible while it waits
//! raise it once more when it was taken, not once each. The vector is that of the clock in which it was raised.

use rust_hdl::prelude::*;
use verbena_abi::limits::{self, LOG_CQS};
use verbena_abi::queue::{EventKind, PHASE};

use crate::bus::{EventReq, Line, StreamSink, StreamSource, WriteReq};
use crate::prim::{DeepFifo, Fifo, LutRam};

#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum State {
    Pick,
    Emit,
    Settle,
}

/// Event queue writer.
#[derive(LogicBlock)]
pub struct EventWriter {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub command: StreamSink<EventReq>,
    pub cq: StreamSink<EventReq>,
    pub responder: StreamSink<EventReq>,
    pub requester: StreamSink<EventReq>,
    pub eq_base: Signal<In, Bits<64>>,
    pub eq_log_depth: Signal<In, Bits<5>>,
    pub eq_vector: Signal<In, Bits<8>>,
    pub eq_enable: Signal<In, Bit>,
    pub eq_restart: Signal<In, Bit>,
    pub eq_consumer: Signal<In, Bits<32>>,
    pub req: StreamSource<WriteReq>,
    pub line: StreamSource<Line>,
    pub done: Signal<In, Bit>,
    pub irq: StreamSource<Bits<5>>,
    pub ready: Signal<Out, Bit>,
    pub count_eqe: Signal<Out, Bit>,
    pub count_overrun: Signal<Out, Bit>,

    commands: Fifo<EventReq, 6, 7>,
    responders: Fifo<EventReq, 6, 7>,
    requesters: Fifo<EventReq, 6, 7>,
    cqs: DeepFifo<EventReq, { limits::LOG_CQS + 1 }, { limits::LOG_CQS + 2 }>,
    is_lost_command: DFF<Bit>,
    is_lost_responder: DFF<Bit>,
    is_lost_requester: DFF<Bit>,
    is_lost_cq: DFF<Bit>,
    lost: DFF<Bits<8>>,
    lost_now: Signal<Local, Bits<8>>,

    // A completion of a CQ waits while the toggle of its push differs from that of its pop.
    pushed: LutRam<Bit, { limits::LOG_CQS }>,
    popped: LutRam<Bit, { limits::LOG_CQS }>,
    pushed_pop: LutRam<Bit, { limits::LOG_CQS }>,
    clear_index: DFF<Bits<{ limits::LOG_CQS + 1 }>>,
    is_clear: Signal<Local, Bit>,
    cqn: Signal<Local, Bits<16>>,
    cqn_read: Signal<Local, Bits<16>>,
    has_room_others: DFF<Bit>,
    is_completion: Signal<Local, Bit>,
    is_waiting: Signal<Local, Bit>,
    pushes: Signal<Local, Bit>,

    state: DFF<State>,
    turn: DFF<Bits<2>>,
    held: DFF<EventReq>,
    held_number: Signal<Local, Bits<16>>,
    held_number_read: Signal<Local, Bits<16>>,
    is_from_cq: DFF<Bit>,
    producer: DFF<Bits<32>>,
    mask: DFF<Bits<32>>,
    shifted: Signal<Local, Bits<32>>,
    depth: Signal<Local, Bits<32>>,
    slot: Signal<Local, Bits<32>>,
    used: Signal<Local, Bits<32>>,
    is_full: DFF<Bit>,
    address: DFF<Bits<64>>,
    phase: DFF<Bit>,
    has_room: DFF<Bit>,
    emits: Signal<Local, Bit>,
    reqs: Fifo<WriteReq, 1, 2>,
    lines: Fifo<Line, 1, 2>,
    words: Signal<Local, Bits<64>>,
    half: Signal<Local, Bits<256>>,

    is_seen: DFF<Bit>,
    is_raised: DFF<Bit>,
    vector: DFF<Bits<5>>,
    is_written: DFF<Bit>,

    ones: Constant<Bits<32>>,
    entry_bytes: Constant<Bits<13>>,
    phase_bit: Constant<Bits<256>>,
    completion: Constant<Bits<8>>,
    depth_small: Constant<Bits<7>>,
    room_others: Constant<Bits<{ limits::LOG_CQS + 2 }>>,
    cq_count: Constant<Bits<{ limits::LOG_CQS + 1 }>>,
    no_line: Constant<Line>,
}

impl Default for EventWriter {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            command: Default::default(),
            cq: Default::default(),
            responder: Default::default(),
            requester: Default::default(),
            eq_base: Default::default(),
            eq_log_depth: Default::default(),
            eq_vector: Default::default(),
            eq_enable: Default::default(),
            eq_restart: Default::default(),
            eq_consumer: Default::default(),
            req: Default::default(),
            line: Default::default(),
            done: Default::default(),
            irq: Default::default(),
            ready: Default::default(),
            count_eqe: Default::default(),
            count_overrun: Default::default(),
            commands: Default::default(),
            responders: Default::default(),
            requesters: Default::default(),
            cqs: Default::default(),
            is_lost_command: Default::default(),
            is_lost_responder: Default::default(),
            is_lost_requester: Default::default(),
            is_lost_cq: Default::default(),
            lost: Default::default(),
            lost_now: Default::default(),
            pushed: Default::default(),
            popped: Default::default(),
            pushed_pop: Default::default(),
            clear_index: Default::default(),
            is_clear: Default::default(),
            cqn: Default::default(),
            cqn_read: Default::default(),
            has_room_others: Default::default(),
            is_completion: Default::default(),
            is_waiting: Default::default(),
            pushes: Default::default(),
            state: Default::default(),
            turn: Default::default(),
            held: Default::default(),
            held_number: Default::default(),
            held_number_read: Default::default(),
            is_from_cq: Default::default(),
            producer: Default::default(),
            mask: Default::default(),
            shifted: Default::default(),
            depth: Default::default(),
            slot: Default::default(),
            used: Default::default(),
            is_full: Default::default(),
            address: Default::default(),
            phase: Default::default(),
            has_room: Default::default(),
            emits: Default::default(),
            reqs: Default::default(),
            lines: Default::default(),
            words: Default::default(),
            half: Default::default(),
            is_seen: Default::default(),
            is_raised: Default::default(),
            vector: Default::default(),
            is_written: Default::default(),
            ones: Constant::new(u32::MAX.to_bits()),
            entry_bytes: Constant::new(32u32.to_bits()),
            phase_bit: Constant::new(Bits::<256>::from(u64::from(PHASE)) << 248),
            completion: Constant::new((EventKind::Completion as u8).to_bits()),
            depth_small: Constant::new(64u32.to_bits()),
            room_others: Constant::new((limits::CQS - 1).to_bits()),
            cq_count: Constant::new(limits::CQS.to_bits()),
            no_line: Constant::new(Line::default()),
        }
    }
}

impl Logic for EventWriter {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, is_lost_command, is_lost_responder, is_lost_requester, is_lost_cq, lost, clear_index, has_room_others);
        dff_setup!(self, clock, state, turn, held, is_from_cq, producer, mask, is_full, address, phase, has_room);
        dff_setup!(self, clock, is_seen, is_raised, vector, is_written);
        clock!(self, clock, commands, responders, requesters, cqs, pushed, popped, pushed_pop, reqs, lines);
        self.commands.reset.next = self.reset.val();
        self.responders.reset.next = self.reset.val();
        self.requesters.reset.next = self.reset.val();
        self.cqs.reset.next = self.reset.val();
        self.reqs.reset.next = self.reset.val();
        self.lines.reset.next = self.reset.val();

        self.is_clear.next = self.clear_index.q.val() == self.cq_count.val();
        self.ready.next = self.is_clear.val();
        if !self.is_clear.val() {
            self.clear_index.d.next = self.clear_index.q.val() + 1;
        }

        // The sources. A FIFO that is full does not take what is offered.
        self.command.ready.next = true;
        self.commands.fill.valid.next = self.command.valid.val();
        self.commands.fill.data.next = self.command.data.val();
        self.is_lost_command.d.next = self.command.valid.val() & (self.commands.level.val() == self.depth_small.val());
        self.responder.ready.next = true;
        self.responders.fill.valid.next = self.responder.valid.val();
        self.responders.fill.data.next = self.responder.data.val();
        self.is_lost_responder.d.next = self.responder.valid.val() & (self.responders.level.val() == self.depth_small.val());
        self.requester.ready.next = true;
        self.requesters.fill.valid.next = self.requester.valid.val();
        self.requesters.fill.data.next = self.requester.data.val();
        self.is_lost_requester.d.next = self.requester.valid.val() & (self.requesters.level.val() == self.depth_small.val());

        self.cq.ready.next = true;
        self.cqn.next = self.cq.data.val().number;
        self.is_completion.next = self.cq.data.val().kind == self.completion.val();
        // Of its own, so that no signal joins the way to a memory with the way from it.
        self.cqn_read.next = self.cq.data.val().number;
        self.pushed.read_address.next = self.cqn_read.val().get_bits::<LOG_CQS>(0);
        self.popped.read_address.next = self.cqn_read.val().get_bits::<LOG_CQS>(0);
        self.has_room_others.d.next = self.cqs.level.val() < self.room_others.val();
        self.is_waiting.next = self.pushed.read_data.val() ^ self.popped.read_data.val();
        self.pushes.next = false;
        self.is_lost_cq.d.next = false;
        if self.cq.valid.val() {
            if self.is_completion.val() {
                self.pushes.next = !self.is_waiting.val();
            } else if self.has_room_others.q.val() {
                self.pushes.next = true;
            } else {
                self.is_lost_cq.d.next = true;
            }
        }
        self.cqs.fill.valid.next = self.pushes.val();
        self.cqs.fill.data.next = self.cq.data.val();
        self.pushed.write_enable.next = self.pushes.val() & self.is_completion.val();
        self.pushed.write_address.next = self.cqn.val().get_bits::<LOG_CQS>(0);
        self.pushed.write_data.next = !self.popped.read_data.val();
        if !self.is_clear.val() {
            self.pushed.write_enable.next = true;
            self.pushed.write_address.next = self.clear_index.q.val().get_bits::<LOG_CQS>(0);
            self.pushed.write_data.next = false;
        }
        self.pushed_pop.write_enable.next = self.pushed.write_enable.val();
        self.pushed_pop.write_address.next = self.pushed.write_address.val();
        self.pushed_pop.write_data.next = self.pushed.write_data.val();

        self.lost_now.next = bit_cast::<8, 1>(self.is_lost_command.q.val().into())
            + bit_cast::<8, 1>(self.is_lost_responder.q.val().into())
            + bit_cast::<8, 1>(self.is_lost_requester.q.val().into())
            + bit_cast::<8, 1>(self.is_lost_cq.q.val().into());
        self.count_overrun.next = self.lost.q.val() != 0;
        self.lost.d.next = self.lost.q.val() + self.lost_now.val();
        if self.lost.q.val() != 0 {
            self.lost.d.next = self.lost.q.val() + self.lost_now.val() - 1;
        }

        // The ring, two clocks behind its registers; a restart counts as full until they have arrived.
        self.shifted.next = self.ones.val() << self.eq_log_depth.val();
        self.mask.d.next = !self.shifted.val();
        self.depth.next = self.mask.q.val() + 1;
        self.slot.next = self.producer.q.val() & self.mask.q.val();
        self.used.next = self.producer.q.val() - self.eq_consumer.val();
        self.is_full.d.next = self.used.val() > self.mask.q.val();
        self.address.d.next = self.eq_base.val() + (bit_cast::<64, 32>(self.slot.val()) << 5);
        self.phase.d.next = (self.producer.q.val() & self.depth.val()) == 0;
        self.has_room.d.next = (self.reqs.level.val() == 0) & (self.lines.level.val() == 0);

        self.words.next = bit_cast::<64, 16>(self.held.q.val().number)
            | (bit_cast::<64, 8>(self.held.q.val().kind) << 32)
            | (bit_cast::<64, 8>(self.held.q.val().code) << 40);
        self.half.next = bit_cast::<256, 64>(self.words.val());
        if self.phase.q.val() {
            self.half.next = bit_cast::<256, 64>(self.words.val()) | self.phase_bit.val();
        }
        self.emits.next = false;
        self.commands.drain.ready.next = false;
        self.cqs.drain.ready.next = false;
        self.responders.drain.ready.next = false;
        self.requesters.drain.ready.next = false;
        self.held_number.next = self.held.q.val().number;
        self.held_number_read.next = self.held.q.val().number;
        self.pushed_pop.read_address.next = self.held_number_read.val().get_bits::<LOG_CQS>(0);
        self.popped.write_enable.next = false;
        self.popped.write_address.next = self.held_number.val().get_bits::<LOG_CQS>(0);
        self.popped.write_data.next = self.pushed_pop.read_data.val();

        match self.state.q.val() {
            State::Pick => {
                self.turn.d.next = self.turn.q.val() + 1;
                self.is_from_cq.d.next = false;
                if self.turn.q.val() == 0 {
                    self.commands.drain.ready.next = true;
                    self.held.d.next = self.commands.drain.data.val();
                    if self.commands.drain.valid.val() {
                        self.state.d.next = State::Emit;
                    }
                } else if self.turn.q.val() == 1 {
                    self.cqs.drain.ready.next = true;
                    self.held.d.next = self.cqs.drain.data.val();
                    self.is_from_cq.d.next = true;
                    if self.cqs.drain.valid.val() {
                        self.state.d.next = State::Emit;
                    }
                } else if self.turn.q.val() == 2 {
                    self.responders.drain.ready.next = true;
                    self.held.d.next = self.responders.drain.data.val();
                    if self.responders.drain.valid.val() {
                        self.state.d.next = State::Emit;
                    }
                } else {
                    self.requesters.drain.ready.next = true;
                    self.held.d.next = self.requesters.drain.data.val();
                    if self.requesters.drain.valid.val() {
                        self.state.d.next = State::Emit;
                    }
                }
            }
            State::Emit => {
                // A completion that comes from now on is told by an event of its own.
                self.popped.write_enable.next = self.is_from_cq.q.val() & (self.held.q.val().kind == self.completion.val());
                self.is_from_cq.d.next = false;
                if !self.eq_enable.val() {
                    self.state.d.next = State::Settle;
                } else if !self.is_full.q.val() & self.has_room.q.val() & !self.eq_restart.val() {
                    self.emits.next = true;
                    self.producer.d.next = self.producer.q.val() + 1;
                    self.state.d.next = State::Settle;
                }
            }
            State::Settle => {
                self.state.d.next = State::Pick;
            }
            _ => {
                self.state.d.next = State::Pick;
            }
        }
        if self.eq_restart.val() {
            self.producer.d.next = 0.into();
            self.is_full.d.next = true;
        }
        if !self.is_clear.val() {
            self.popped.write_enable.next = true;
            self.popped.write_address.next = self.clear_index.q.val().get_bits::<LOG_CQS>(0);
            self.popped.write_data.next = false;
        }

        self.reqs.fill.valid.next = self.emits.val();
        self.reqs.fill.data.next.addr = self.address.q.val();
        self.reqs.fill.data.next.len = self.entry_bytes.val();
        // Both halves of the line hold the entry: the range of the request says which one is written.
        self.lines.fill.valid.next = self.emits.val();
        self.lines.fill.data.next = self.no_line.val();
        self.lines.fill.data.next.data = bit_cast::<512, 256>(self.half.val()) | (bit_cast::<512, 256>(self.half.val()) << 256);
        self.lines.fill.data.next.last = true;
        self.req.data.next = self.reqs.drain.data.val();
        self.req.valid.next = self.reqs.drain.valid.val();
        self.reqs.drain.ready.next = self.req.ready.val();
        self.line.data.next = self.lines.drain.data.val();
        self.line.valid.next = self.lines.drain.valid.val();
        self.lines.drain.ready.next = self.line.ready.val();
        self.is_written.d.next = self.emits.val();
        self.count_eqe.next = self.is_written.q.val();

        self.irq.valid.next = self.is_raised.q.val();
        self.irq.data.next = self.vector.q.val();
        if !self.is_raised.q.val() & self.is_seen.q.val() {
            self.is_raised.d.next = true;
            self.vector.d.next = self.eq_vector.val().get_bits::<5>(0);
            self.is_seen.d.next = false;
        }
        if self.is_raised.q.val() & self.irq.ready.val() {
            self.is_raised.d.next = false;
        }
        if self.done.val() {
            self.is_seen.d.next = true;
        }

        if self.reset.val() {
            self.state.d.next = State::Settle;
            self.turn.d.next = 0.into();
            self.clear_index.d.next = 0.into();
            self.producer.d.next = 0.into();
            self.is_full.d.next = true;
            self.has_room.d.next = false;
            self.has_room_others.d.next = false;
            self.lost.d.next = 0.into();
            self.is_seen.d.next = false;
            self.is_raised.d.next = false;
            self.is_written.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests;
