//! Decides which send queue is read next, and asks for its requests in batches.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `qp_write` | in | contexts, as the command processor broadcasts them |
//! | `bell` | sink | a send queue's new producer index |
//! | `halt` | sink | a queue pair whose requester has failed: nothing more is fetched |
//! | `rewind` | sink | turns that ended early, and restarts: where to fetch on |
//! | `read` | source | reads of send queues in host memory |
//! | `fetch` | source | which requests each read brings, in order |
//! | `begun` | in | pulse: a request has come to the segmenter |
//! | `entered` | out | requests asked for since reset, modulo 2^16 |
//! | `sending_qpn`, `others_wait` | in, out | another queue pair than this one has requests to send; one clock later |
//! | `query_*` | in/out | producer and fetch index of one queue pair, one clock later |
//!
//! A queue pair is in the ready queue once or not at all; it is put there by a doorbell, visited in
//! turn, and put back behind the others when more than one batch ([`FETCH_BATCH`]) is waiting. So
//! the queue can't overflow, and a visit is one batch. A doorbell of a queue pair that is not queued, while nobody is, is a visit too.
//!
//! The segmenter ends a turn when [`TURN_BYTES`] are sent and others wait, and tells where to fetch on. If that is in the
//! middle of a message, its queue pair is *long*: a visit fetches this one request and leaves the queue pair
//! *parked*, in no queue, until the next report. So nothing is fetched in vain that the next end of a turn would throw away.
//!
//! Everything is a read-modify-write of one queue's state and takes four clocks: read, differences,
//! batch, write. A visit brings eight requests, so one busy queue, or many, give two a clock. Doorbells and visits take
//! turns, so neither starves; a visit is begun only while there is room for what it asks, and no more than
//! [`FETCH_AHEAD`] requests are fetched that the segmenter has not begun.
//! Latency: four clocks from a doorbell to `read` and `fetch`, when nobody waits. After a reset the states are cleared, one a
//! clock; commands and doorbells wait meanwhile.
//! A doorbell that is more than the queue's depth ahead of the last request ever fetched is dropped and counted, as is one of a
//! queue pair that is not ready to send. After a restart more than the depth may wait to be fetched: what is
//! read from slots that are in use anew is thrown away by the segmenter, which knows what is done.
//!
//! [`FETCH_BATCH`]: verbena_abi::limits::FETCH_BATCH
//! [`FETCH_AHEAD`]: verbena_abi::limits::FETCH_AHEAD
//! [`TURN_BYTES`]: verbena_abi::limits::TURN_BYTES

use rust_hdl::prelude::*;
use verbena_abi::{limits, queue};

use crate::bus::{Fetch, QpContext, QpWrite, Qpn, ReadReq, Rewind, SqBell, StreamSink, StreamSource};
use crate::prim::{DeepFifo, Fifo, Ram};

/// What changes while a queue is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct SqState {
    producer: Bits<16>,
    fetched: Bits<16>,
    /// Index behind the last request ever fetched; ahead of `fetched` after a restart.
    top: Bits<16>,
    is_queued: Bit,
    is_active: Bit,
    is_long: Bit,
    is_parked: Bit,
}

/// Where a queue lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct SqConfig {
    address: Bits<64>,
    log_depth: Bits<4>,
    two_units: Bit,
}

/// A change that a command makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Change {
    qpn: Qpn,
    clear: Bit,
    activate: Bit,
}

#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum State {
    Clear,
    Idle,
    Look,
    Measure,
    Act,
}

#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum Work {
    Change,
    Halt,
    Rewind,
    Bell,
    Visit,
}

#[derive(LogicBlock)]
pub struct Scheduler {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub qp_write: Signal<In, QpWrite>,
    pub bell: StreamSink<SqBell>,
    pub halt: StreamSink<Qpn>,
    pub rewind: StreamSink<Rewind>,
    pub read: StreamSource<ReadReq>,
    pub fetch: StreamSource<Fetch>,
    pub begun: Signal<In, Bit>,
    pub entered: Signal<Out, Bits<16>>,
    pub bad_bell: Signal<Out, Bit>,
    pub sending_qpn: Signal<In, Qpn>,
    pub others_wait: Signal<Out, Bit>,
    pub query_qpn: Signal<In, Qpn>,
    pub query_producer: Signal<Out, Bits<16>>,
    pub query_fetched: Signal<Out, Bits<16>>,

    state: DFF<State>,
    work: DFF<Work>,
    state_ram: Ram<SqState, { limits::LOG_QPS }>,
    query_ram: Ram<SqState, { limits::LOG_QPS }>,
    config_ram: Ram<SqConfig, { limits::LOG_QPS }>,
    ready_queue: DeepFifo<Qpn, { limits::LOG_QPS }, { limits::LOG_QPS + 1 }>,
    changes: Fifo<Change, 1, 2>,
    reads: Fifo<ReadReq, 1, 2>,
    fetches: Fifo<Fetch, 6, 7>,
    // What is being worked on.
    qpn: DFF<Qpn>,
    index: DFF<Bits<16>>,
    flags: DFF<Bits<2>>,
    may_visit: DFF<Bit>,
    // Look: the state, and how much is waiting.
    held: DFF<SqState>,
    waiting: DFF<Bits<16>>,
    slot: DFF<Bits<16>>,
    // Measure: the batch.
    count: DFF<Bits<4>>,
    read_addr: DFF<Bits<64>>,
    fits: DFF<Bit>,
    lead: DFF<Bits<16>>,
    total: DFF<Bits<16>>,
    begun_count: DFF<Bits<16>>,
    is_ahead: DFF<Bit>,
    is_bad: DFF<Bit>,
    newest: DFF<Qpn>,
    others: DFF<Bit>,

    broadcast: Signal<Local, QpWrite>,
    attributes: Signal<Local, QpContext>,
    context_state: Signal<Local, Bits<3>>,
    context_flags: Signal<Local, Bits<3>>,
    change: Signal<Local, Change>,
    rewound: Signal<Local, Rewind>,
    current: Signal<Local, SqState>,
    updated: Signal<Local, SqState>,
    address: Signal<Local, Qpn>,
    write: Signal<Local, Bit>,
    ahead: Signal<Local, Bits<16>>,
    has_room: Signal<Local, Bit>,
    nobody_queued: Signal<Local, Bit>,
    target: Signal<Local, Bits<16>>,
    from: Signal<Local, Bits<16>>,
    config_now: Signal<Local, SqConfig>,
    log_depth: Signal<Local, Bits<4>>,
    depth: Signal<Local, Bits<16>>,
    mask: Signal<Local, Bits<16>>,
    behind_slot: Signal<Local, Bits<16>>,
    to_end: Signal<Local, Bits<16>>,
    largest: Signal<Local, Bits<16>>,
    offset: Signal<Local, Bits<64>>,
    kept: Signal<Local, SqState>,
    batch_bits: Signal<Local, Bits<16>>,
    is_tail: Signal<Local, Bit>,
    visit: Signal<Local, Bit>,
    push: Signal<Local, Bit>,
    one: Constant<Bits<16>>,
    batch: Constant<Bits<16>>,
    most_ahead: Constant<Bits<16>>,
    cleared: Constant<SqState>,
    two_units_bit: Constant<Bits<3>>,
    rts: Constant<Bits<3>>,
    one_queued: Constant<Bits<{ limits::LOG_QPS + 1 }>>,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            qp_write: Default::default(),
            bell: Default::default(),
            halt: Default::default(),
            rewind: Default::default(),
            read: Default::default(),
            fetch: Default::default(),
            begun: Default::default(),
            entered: Default::default(),
            bad_bell: Default::default(),
            sending_qpn: Default::default(),
            others_wait: Default::default(),
            query_qpn: Default::default(),
            query_producer: Default::default(),
            query_fetched: Default::default(),
            state: Default::default(),
            work: Default::default(),
            state_ram: Default::default(),
            query_ram: Default::default(),
            config_ram: Default::default(),
            ready_queue: Default::default(),
            changes: Default::default(),
            reads: Default::default(),
            fetches: Default::default(),
            qpn: Default::default(),
            index: Default::default(),
            flags: Default::default(),
            may_visit: Default::default(),
            held: Default::default(),
            waiting: Default::default(),
            slot: Default::default(),
            count: Default::default(),
            read_addr: Default::default(),
            fits: Default::default(),
            lead: Default::default(),
            total: Default::default(),
            begun_count: Default::default(),
            is_ahead: Default::default(),
            is_bad: Default::default(),
            newest: Default::default(),
            others: Default::default(),
            broadcast: Default::default(),
            attributes: Default::default(),
            context_state: Default::default(),
            context_flags: Default::default(),
            change: Default::default(),
            rewound: Default::default(),
            current: Default::default(),
            updated: Default::default(),
            address: Default::default(),
            write: Default::default(),
            ahead: Default::default(),
            has_room: Default::default(),
            nobody_queued: Default::default(),
            target: Default::default(),
            from: Default::default(),
            config_now: Default::default(),
            log_depth: Default::default(),
            depth: Default::default(),
            mask: Default::default(),
            behind_slot: Default::default(),
            to_end: Default::default(),
            largest: Default::default(),
            offset: Default::default(),
            kept: Default::default(),
            batch_bits: Default::default(),
            is_tail: Default::default(),
            visit: Default::default(),
            push: Default::default(),
            one: Constant::new(1u16.to_bits()),
            batch: Constant::new(limits::FETCH_BATCH.to_bits()),
            most_ahead: Constant::new((limits::FETCH_AHEAD - 2 * limits::FETCH_BATCH).to_bits()),
            cleared: Constant::new(SqState::default()),
            two_units_bit: Constant::new(queue::qp_flags::TWO_UNITS.to_bits()),
            rts: Constant::new((queue::QpState::Rts as u8).to_bits()),
            one_queued: Constant::new(1u8.to_bits()),
        }
    }
}

impl Logic for Scheduler {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, state, work, qpn, index, flags, may_visit, held, waiting, slot, count, read_addr, fits, lead);
        dff_setup!(self, clock, total, begun_count, is_ahead, is_bad, newest, others);
        clock!(self, clock, state_ram, query_ram, config_ram, ready_queue, changes, reads, fetches);
        self.ready_queue.reset.next = self.reset.val();
        self.changes.reset.next = self.reset.val();
        self.reads.reset.next = self.reset.val();
        self.fetches.reset.next = self.reset.val();
        StreamSource::<ReadReq>::link(&mut self.read, &mut self.reads.drain);
        StreamSource::<Fetch>::link(&mut self.fetch, &mut self.fetches.drain);
        self.entered.next = self.total.q.val();
        self.bad_bell.next = self.is_bad.q.val();
        self.is_bad.d.next = false;

        // Commands come far apart, so two entries are room enough for their changes.
        self.broadcast.next = self.qp_write.val();
        self.attributes.next = self.broadcast.val().context;
        self.context_state.next = self.attributes.val().state;
        self.context_flags.next = self.attributes.val().flags;
        self.config_ram.write_enable.next = self.broadcast.val().valid;
        self.config_ram.write_address.next = self.broadcast.val().qpn;
        self.config_ram.write_data.next.address = self.attributes.val().sq_address;
        self.config_ram.write_data.next.log_depth = self.attributes.val().sq_log_depth;
        self.config_ram.write_data.next.two_units = (self.context_flags.val() & self.two_units_bit.val()).any();
        self.changes.fill.valid.next = self.broadcast.val().valid;
        self.changes.fill.data.next.qpn = self.broadcast.val().qpn;
        self.changes.fill.data.next.clear = self.broadcast.val().clear;
        self.changes.fill.data.next.activate = self.context_state.val() == self.rts.val();
        self.change.next = self.changes.drain.data.val();
        self.rewound.next = self.rewind.data.val();

        // Who is next: a command, a failed requester, the end of a turn, then doorbells and visits by turns.
        self.changes.drain.ready.next = false;
        self.halt.ready.next = false;
        self.rewind.ready.next = false;
        self.bell.ready.next = false;
        self.ready_queue.drain.ready.next = false;
        if self.begun.val() {
            self.begun_count.d.next = self.begun_count.q.val() + 1;
        }
        // A visit is counted when the next one may have begun already, so room is kept for two.
        self.ahead.next = self.total.q.val() - self.begun_count.q.val();
        self.is_ahead.d.next = self.ahead.val() > self.most_ahead.val();
        self.has_room.next = self.reads.fill.ready.val() & self.fetches.fill.ready.val() & !self.is_ahead.q.val();
        self.nobody_queued.next = !self.ready_queue.level.val().any();
        self.address.next = self.qpn.q.val();
        if self.state.q.val() == State::Idle {
            self.state.d.next = State::Look;
            self.may_visit.d.next = self.has_room.val() & self.nobody_queued.val();
            if self.changes.drain.valid.val() {
                self.changes.drain.ready.next = true;
                self.work.d.next = Work::Change;
                self.address.next = self.change.val().qpn;
                self.flags.d.next =
                    bit_cast::<2, 1>(self.change.val().clear.into()) | (bit_cast::<2, 1>(self.change.val().activate.into()) << 1);
            } else if self.halt.valid.val() {
                self.halt.ready.next = true;
                self.work.d.next = Work::Halt;
                self.address.next = self.halt.data.val();
            } else if self.rewind.valid.val() {
                self.rewind.ready.next = true;
                self.work.d.next = Work::Rewind;
                self.address.next = self.rewound.val().qpn;
                self.index.d.next = self.rewound.val().index;
                self.flags.d.next = bit_cast::<2, 1>(self.rewound.val().is_long.into());
            } else if self.bell.valid.val()
                & ((self.work.q.val() != Work::Bell) | !self.ready_queue.drain.valid.val() | !self.has_room.val())
            {
                self.bell.ready.next = true;
                self.work.d.next = Work::Bell;
                self.address.next = self.bell.data.val().qpn;
                self.index.d.next = self.bell.data.val().index;
            } else if self.ready_queue.drain.valid.val() & self.has_room.val() {
                self.ready_queue.drain.ready.next = true;
                self.work.d.next = Work::Visit;
                self.address.next = self.ready_queue.drain.data.val();
            } else {
                self.state.d.next = State::Idle;
            }
        }
        self.qpn.d.next = self.address.val();
        self.state_ram.read_address.next = self.address.val();
        self.config_ram.read_address.next = self.address.val();

        // Look.
        self.current.next = self.state_ram.read_data.val();
        self.config_now.next = self.config_ram.read_data.val();
        self.log_depth.next = self.config_now.val().log_depth;
        self.depth.next = self.one.val() << self.log_depth.val();
        self.mask.next = self.depth.val() - self.one.val();
        self.target.next = self.current.val().producer;
        self.from.next = self.current.val().fetched;
        if self.work.q.val() == Work::Bell {
            self.target.next = self.index.q.val();
            self.from.next = self.current.val().top;
        }
        if self.work.q.val() == Work::Rewind {
            self.from.next = self.index.q.val();
        }

        // Measure. A batch ends where the ring ends, so that one read brings it.
        self.kept.next = self.held.q.val();
        self.behind_slot.next = self.mask.val() - self.slot.q.val();
        self.to_end.next = self.behind_slot.val() + self.one.val();
        self.largest.next = self.batch.val();
        if self.kept.val().is_long {
            self.largest.next = self.one.val();
        }
        self.offset.next = bit_cast::<64, 16>(self.slot.q.val()) << 6;
        if self.config_now.val().two_units {
            self.offset.next = bit_cast::<64, 16>(self.slot.q.val()) << 7;
        }

        // Act.
        self.updated.next = self.held.q.val();
        self.write.next = false;
        self.visit.next = false;
        self.push.next = false;
        self.batch_bits.next = bit_cast::<16, 4>(self.count.q.val());
        self.is_tail.next = self.waiting.q.val() == self.batch_bits.val();
        self.reads.fill.data.next.addr = self.read_addr.q.val();
        self.reads.fill.data.next.len = bit_cast::<13, 4>(self.count.q.val()) << 6;
        if self.config_now.val().two_units {
            self.reads.fill.data.next.len = bit_cast::<13, 4>(self.count.q.val()) << 7;
        }
        self.fetches.fill.data.next.qpn = self.qpn.q.val();
        self.fetches.fill.data.next.index = self.kept.val().fetched;
        self.fetches.fill.data.next.count = self.count.q.val();
        self.fetches.fill.data.next.two_units = self.config_now.val().two_units;
        self.fetches.fill.data.next.is_tail = self.is_tail.val();

        match self.state.q.val() {
            State::Clear => {
                self.write.next = true;
                self.updated.next = self.cleared.val();
                self.qpn.d.next = self.qpn.q.val() + 1;
                if self.qpn.q.val().all() {
                    self.state.d.next = State::Idle;
                }
            }
            State::Look => {
                self.held.d.next = self.current.val();
                self.waiting.d.next = self.target.val() - self.from.val();
                self.slot.d.next = self.current.val().fetched & self.mask.val();
                self.lead.d.next = self.current.val().top - self.current.val().fetched;
                self.state.d.next = State::Measure;
            }
            State::Measure => {
                self.fits.d.next = self.kept.val().is_active & (self.waiting.q.val() <= self.depth.val());
                self.count.d.next = bit_cast::<4, 16>(self.largest.val());
                if (self.waiting.q.val() < self.largest.val()) & (self.waiting.q.val() <= self.to_end.val()) {
                    self.count.d.next = bit_cast::<4, 16>(self.waiting.q.val());
                } else if self.to_end.val() < self.largest.val() {
                    self.count.d.next = bit_cast::<4, 16>(self.to_end.val());
                }
                self.read_addr.d.next = self.config_now.val().address + self.offset.val();
                self.state.d.next = State::Act;
            }
            State::Act => {
                self.state.d.next = State::Idle;
                self.write.next = true;
                match self.work.q.val() {
                    Work::Change => {
                        self.updated.next.is_active = self.flags.q.val().get_bit(1);
                        if self.flags.q.val().get_bit(0) {
                            self.updated.next.producer = 0.into();
                            self.updated.next.fetched = 0.into();
                            self.updated.next.top = 0.into();
                            self.updated.next.is_long = false;
                            self.updated.next.is_parked = false;
                        }
                    }
                    Work::Halt => {
                        self.updated.next.is_active = false;
                    }
                    Work::Rewind => {
                        self.updated.next.is_parked = false;
                        if self.kept.val().is_active {
                            self.updated.next.fetched = self.index.q.val();
                            self.updated.next.is_long = self.flags.q.val().get_bit(0);
                            if self.waiting.q.val().any() & !self.kept.val().is_queued {
                                self.updated.next.is_queued = true;
                                self.push.next = true;
                            }
                        }
                    }
                    Work::Bell => {
                        if self.fits.q.val() {
                            self.updated.next.producer = self.index.q.val();
                            if self.waiting.q.val().any() & !self.kept.val().is_queued & !self.kept.val().is_parked {
                                self.visit.next = self.may_visit.q.val() & !self.lead.q.val().any();
                                if !self.may_visit.q.val() | self.lead.q.val().any() {
                                    self.updated.next.is_queued = true;
                                    self.push.next = true;
                                }
                            }
                        } else {
                            self.is_bad.d.next = true;
                        }
                    }
                    Work::Visit => {
                        self.updated.next.is_queued = false;
                        self.visit.next = self.kept.val().is_active & self.count.q.val().any();
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        if self.visit.val() {
            self.total.d.next = self.total.q.val() + self.batch_bits.val();
            self.newest.d.next = self.qpn.q.val();
            self.updated.next.fetched = self.kept.val().fetched + self.batch_bits.val();
            if self.lead.q.val() < self.batch_bits.val() {
                self.updated.next.top = self.kept.val().fetched + self.batch_bits.val();
            }
            self.updated.next.is_parked = self.kept.val().is_long;
            self.updated.next.is_queued = !self.kept.val().is_long & !self.is_tail.val();
            self.push.next = !self.kept.val().is_long & !self.is_tail.val();
        }
        self.reads.fill.valid.next = self.visit.val();
        self.fetches.fill.valid.next = self.visit.val();
        self.ready_queue.fill.valid.next = self.push.val();
        self.ready_queue.fill.data.next = self.qpn.q.val();

        // Somebody else is behind in the queue, or was fetched last.
        self.others.d.next = (self.newest.q.val() != self.sending_qpn.val())
            | (self.ready_queue.level.val() > self.one_queued.val())
            | (self.ready_queue.drain.valid.val() & (self.ready_queue.drain.data.val() != self.sending_qpn.val()));
        self.others_wait.next = self.others.q.val();

        self.state_ram.write_enable.next = self.write.val();
        self.state_ram.write_address.next = self.qpn.q.val();
        self.state_ram.write_data.next = self.updated.val();
        self.query_ram.write_enable.next = self.write.val();
        self.query_ram.write_address.next = self.qpn.q.val();
        self.query_ram.write_data.next = self.updated.val();
        self.query_ram.read_address.next = self.query_qpn.val();
        self.query_producer.next = self.query_ram.read_data.val().producer;
        self.query_fetched.next = self.query_ram.read_data.val().fetched;

        if self.reset.val() {
            self.state.d.next = State::Clear;
            self.work.d.next = Work::Visit;
            self.qpn.d.next = 0.into();
            self.total.d.next = 0.into();
            self.begun_count.d.next = 0.into();
            self.is_ahead.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests;
