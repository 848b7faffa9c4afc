//! Decides which send queue is read next, and asks for its requests in batches.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `qp_write` | in | contexts, as the command processor broadcasts them |
//! | `bell` | sink | a send queue's new producer index |
//! | `halt` | sink | a queue pair whose requester has failed: nothing more is fetched |
//! | `read` | source | reads of send queues in host memory |
//! | `fetch` | source | which requests each read brings, in order |
//! | `entered` | out | requests asked for since reset, modulo 2^16 |
//! | `query_*` | in/out | producer and fetch index of one queue pair |
//!
//! A queue pair is in the ready queue once or not at all; it is put there by a doorbell, visited in
//! turn, and put back behind the others when more than one batch ([`FETCH_BATCH`]) is waiting. So
//! the queue can't overflow, and the quantum of a visit is one batch. A visit takes four clocks, a
//! doorbell one; a batch is eight requests, so one busy queue, or many, give two requests a clock.
//! After a reset the states are cleared, one a clock; commands and doorbells wait meanwhile.
//! A doorbell that is more than the queue's depth ahead is dropped and counted, as is one of a
//! queue pair that is not ready to send.
//!
//! [`FETCH_BATCH`]: verbena_abi::limits::FETCH_BATCH

use rust_hdl::prelude::*;
use verbena_abi::{limits, queue};

use crate::bus::{Fetch, QpContext, QpWrite, ReadReq, SqBell, StreamSink, StreamSource};
use crate::prim::{Fifo, LutRam, Ram};

/// What changes while a queue is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct SqState {
    producer: Bits<16>,
    fetched: Bits<16>,
    is_queued: Bit,
    is_active: Bit,
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
    qpn: Bits<8>,
    clear: Bit,
    activate: Bit,
}

#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum State {
    Clear,
    Idle,
    Look,
    Measure,
    Ask,
}

#[derive(LogicBlock)]
pub struct Scheduler {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub qp_write: Signal<In, QpWrite>,
    pub bell: StreamSink<SqBell>,
    pub halt: StreamSink<Bits<8>>,
    pub read: StreamSource<ReadReq>,
    pub fetch: StreamSource<Fetch>,
    pub entered: Signal<Out, Bits<16>>,
    pub bad_bell: Signal<Out, Bit>,
    pub query_qpn: Signal<In, Bits<8>>,
    pub query_producer: Signal<Out, Bits<16>>,
    pub query_fetched: Signal<Out, Bits<16>>,

    state: DFF<State>,
    state_ram: LutRam<SqState, { limits::LOG_QPS }>,
    query_ram: LutRam<SqState, { limits::LOG_QPS }>,
    config_ram: Ram<SqConfig, { limits::LOG_QPS }>,
    depth_ram: LutRam<Bits<4>, { limits::LOG_QPS }>,
    ready_queue: Fifo<Bits<8>, { limits::LOG_QPS }, { limits::LOG_QPS + 1 }>,
    changes: Fifo<Change, 1, 2>,
    reads: Fifo<ReadReq, 1, 2>,
    fetches: Fifo<Fetch, 6, 7>,
    visited: DFF<Bits<8>>,
    waiting: DFF<Bits<16>>,
    slot: DFF<Bits<16>>,
    to_end: DFF<Bits<16>>,
    count: DFF<Bits<4>>,
    total: DFF<Bits<16>>,
    is_bad: DFF<Bit>,

    broadcast: Signal<Local, QpWrite>,
    attributes: Signal<Local, QpContext>,
    context_state: Signal<Local, Bits<3>>,
    context_flags: Signal<Local, Bits<3>>,
    change: Signal<Local, Change>,
    current: Signal<Local, SqState>,
    updated: Signal<Local, SqState>,
    address: Signal<Local, Bits<8>>,
    write: Signal<Local, Bit>,
    new_entries: Signal<Local, Bits<16>>,
    depth: Signal<Local, Bits<16>>,
    mask: Signal<Local, Bits<16>>,
    log_depth: Signal<Local, Bits<4>>,
    config_now: Signal<Local, SqConfig>,
    offset: Signal<Local, Bits<64>>,
    read_len: Signal<Local, Bits<13>>,
    one: Constant<Bits<16>>,
    batch: Constant<Bits<16>>,
    cleared: Constant<SqState>,
    two_units_bit: Constant<Bits<3>>,
    rts: Constant<Bits<3>>,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            qp_write: Default::default(),
            bell: Default::default(),
            halt: Default::default(),
            read: Default::default(),
            fetch: Default::default(),
            entered: Default::default(),
            bad_bell: Default::default(),
            query_qpn: Default::default(),
            query_producer: Default::default(),
            query_fetched: Default::default(),
            state: Default::default(),
            state_ram: Default::default(),
            query_ram: Default::default(),
            config_ram: Default::default(),
            depth_ram: Default::default(),
            ready_queue: Default::default(),
            changes: Default::default(),
            reads: Default::default(),
            fetches: Default::default(),
            visited: Default::default(),
            waiting: Default::default(),
            slot: Default::default(),
            to_end: Default::default(),
            count: Default::default(),
            total: Default::default(),
            is_bad: Default::default(),
            broadcast: Default::default(),
            attributes: Default::default(),
            context_state: Default::default(),
            context_flags: Default::default(),
            change: Default::default(),
            current: Default::default(),
            updated: Default::default(),
            address: Default::default(),
            write: Default::default(),
            new_entries: Default::default(),
            depth: Default::default(),
            mask: Default::default(),
            log_depth: Default::default(),
            config_now: Default::default(),
            offset: Default::default(),
            read_len: Default::default(),
            one: Constant::new(1u16.to_bits()),
            batch: Constant::new(limits::FETCH_BATCH.to_bits()),
            cleared: Constant::new(SqState::default()),
            two_units_bit: Constant::new(queue::qp_flags::TWO_UNITS.to_bits()),
            rts: Constant::new((queue::QpState::Rts as u8).to_bits()),
        }
    }
}

impl Logic for Scheduler {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, state, visited, waiting, slot, to_end, count, total, is_bad);
        clock!(self, clock, state_ram, query_ram, config_ram, depth_ram, ready_queue, changes, reads, fetches);
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
        self.depth_ram.write_enable.next = self.broadcast.val().valid;
        self.depth_ram.write_address.next = self.broadcast.val().qpn;
        self.depth_ram.write_data.next = self.attributes.val().sq_log_depth;
        self.changes.fill.valid.next = self.broadcast.val().valid;
        self.changes.fill.data.next.qpn = self.broadcast.val().qpn;
        self.changes.fill.data.next.clear = self.broadcast.val().clear;
        self.changes.fill.data.next.activate = self.context_state.val() == self.rts.val();

        // One read-modify-write of a queue's state a clock, for whoever is first in this order:
        // a command, a failed requester, the visit that is under way, a doorbell.
        self.changes.drain.ready.next = false;
        self.halt.ready.next = false;
        self.bell.ready.next = false;
        self.change.next = self.changes.drain.data.val();
        self.address.next = self.visited.q.val();
        if self.changes.drain.valid.val() {
            self.address.next = self.change.val().qpn;
        } else if self.halt.valid.val() {
            self.address.next = self.halt.data.val();
        } else if (self.state.q.val() == State::Idle) & self.bell.valid.val() {
            self.address.next = self.bell.data.val().qpn;
        }
        self.state_ram.read_address.next = self.address.val();
        self.depth_ram.read_address.next = self.address.val();
        self.current.next = self.state_ram.read_data.val();
        self.log_depth.next = self.depth_ram.read_data.val();
        self.depth.next = self.one.val() << self.log_depth.val();
        self.mask.next = self.depth.val() - self.one.val();
        self.updated.next = self.current.val();
        self.write.next = false;
        self.new_entries.next = self.bell.data.val().index - self.current.val().fetched;

        self.config_ram.read_address.next = self.visited.q.val();
        self.config_now.next = self.config_ram.read_data.val();
        self.offset.next = bit_cast::<64, 16>(self.slot.q.val()) << 6;
        self.read_len.next = bit_cast::<13, 4>(self.count.q.val()) << 6;
        if self.config_now.val().two_units {
            self.offset.next = bit_cast::<64, 16>(self.slot.q.val()) << 7;
            self.read_len.next = bit_cast::<13, 4>(self.count.q.val()) << 7;
        }
        self.reads.fill.valid.next = false;
        self.reads.fill.data.next.addr = self.config_now.val().address + self.offset.val();
        self.reads.fill.data.next.len = self.read_len.val();
        self.fetches.fill.valid.next = false;
        self.fetches.fill.data.next.qpn = self.visited.q.val();
        self.fetches.fill.data.next.index = self.current.val().fetched;
        self.fetches.fill.data.next.count = self.count.q.val();
        self.fetches.fill.data.next.two_units = self.config_now.val().two_units;
        self.ready_queue.drain.ready.next = false;
        self.ready_queue.fill.valid.next = false;
        self.ready_queue.fill.data.next = self.address.val();

        if self.changes.drain.valid.val() {
            self.changes.drain.ready.next = true;
            self.write.next = true;
            self.updated.next.is_active = self.change.val().activate;
            if self.change.val().clear {
                self.updated.next.producer = 0.into();
                self.updated.next.fetched = 0.into();
            }
        } else if self.halt.valid.val() {
            self.halt.ready.next = true;
            self.write.next = true;
            self.updated.next.is_active = false;
        } else {
            match self.state.q.val() {
                State::Clear => {
                    self.write.next = true;
                    self.updated.next = self.cleared.val();
                    self.visited.d.next = self.visited.q.val() + 1;
                    if self.visited.q.val().all() {
                        self.state.d.next = State::Idle;
                    }
                }
                State::Idle => {
                    if self.bell.valid.val() {
                        self.bell.ready.next = true;
                        if self.current.val().is_active & (self.new_entries.val() <= self.depth.val()) {
                            self.write.next = true;
                            self.updated.next.producer = self.bell.data.val().index;
                            self.updated.next.is_queued = true;
                            self.ready_queue.fill.valid.next = !self.current.val().is_queued;
                        } else {
                            self.is_bad.d.next = true;
                        }
                    } else if self.ready_queue.drain.valid.val() {
                        self.visited.d.next = self.ready_queue.drain.data.val();
                        self.ready_queue.drain.ready.next = true;
                        self.state.d.next = State::Look;
                    }
                }
                State::Look => {
                    self.waiting.d.next = self.current.val().producer - self.current.val().fetched;
                    self.slot.d.next = self.current.val().fetched & self.mask.val();
                    self.to_end.d.next = self.depth.val() - (self.current.val().fetched & self.mask.val());
                    self.state.d.next = State::Measure;
                }
                State::Measure => {
                    // A batch ends where the ring ends, so that one read brings it.
                    self.count.d.next = bit_cast::<4, 16>(self.batch.val());
                    if (self.waiting.q.val() < self.batch.val()) & (self.waiting.q.val() <= self.to_end.q.val()) {
                        self.count.d.next = bit_cast::<4, 16>(self.waiting.q.val());
                    } else if self.to_end.q.val() < self.batch.val() {
                        self.count.d.next = bit_cast::<4, 16>(self.to_end.q.val());
                    }
                    self.state.d.next = State::Ask;
                }
                State::Ask => {
                    if !self.current.val().is_active | !self.count.q.val().any() {
                        self.write.next = true;
                        self.updated.next.is_queued = false;
                        self.state.d.next = State::Idle;
                    } else if self.reads.fill.ready.val() & self.fetches.fill.ready.val() {
                        self.reads.fill.valid.next = true;
                        self.fetches.fill.valid.next = true;
                        self.total.d.next = self.total.q.val() + bit_cast::<16, 4>(self.count.q.val());
                        self.write.next = true;
                        self.updated.next.fetched = self.current.val().fetched + bit_cast::<16, 4>(self.count.q.val());
                        if self.waiting.q.val() == bit_cast::<16, 4>(self.count.q.val()) {
                            self.updated.next.is_queued = false;
                        } else {
                            self.ready_queue.fill.valid.next = true;
                        }
                        self.state.d.next = State::Idle;
                    } else if self.bell.valid.val() {
                        // The visit waits for room, so a doorbell may go first; the visit then
                        // starts anew, since the doorbell took the state's port.
                        self.ready_queue.fill.valid.next = true;
                        self.state.d.next = State::Idle;
                    }
                }
                _ => {
                    self.state.d.next = State::Idle;
                }
            }
        }
        self.state_ram.write_enable.next = self.write.val();
        self.state_ram.write_address.next = self.address.val();
        self.state_ram.write_data.next = self.updated.val();
        self.query_ram.write_enable.next = self.write.val();
        self.query_ram.write_address.next = self.address.val();
        self.query_ram.write_data.next = self.updated.val();
        self.query_ram.read_address.next = self.query_qpn.val();
        self.query_producer.next = self.query_ram.read_data.val().producer;
        self.query_fetched.next = self.query_ram.read_data.val().fetched;

        if self.reset.val() {
            self.state.d.next = State::Clear;
            self.visited.d.next = 0.into();
            self.total.d.next = 0.into();
        }
    }
}
