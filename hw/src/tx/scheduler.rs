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
mod tests {
    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};
    use queue::QpState;

    fn write(qpn: u64, state: QpState, log_depth: u64, two_units: bool, clear: bool) -> QpWrite {
        let flags = if two_units { queue::qp_flags::TWO_UNITS } else { 0 };
        QpWrite {
            valid: true,
            qpn: qpn.into(),
            clear,
            context: QpContext {
                state: (state as u64).into(),
                flags: u64::from(flags).into(),
                sq_address: address(qpn).into(),
                sq_log_depth: log_depth.into(),
                ..Default::default()
            },
            ..Default::default()
        }
    }

    fn address(qpn: u64) -> u64 {
        0x1_0000_0000 * qpn + 0x4000
    }

    fn set(bench: &mut Bench<Scheduler>, change: QpWrite) {
        bench.uut.qp_write.next = change;
        bench.cycles(1);
        bench.uut.qp_write.next = QpWrite::default();
        bench.cycles(5);
    }

    fn reset(bench: &mut Bench<Scheduler>) {
        bench.uut.bell.valid.next = false;
        bench.uut.halt.valid.next = false;
        bench.uut.rewind.valid.next = false;
        bench.uut.begun.next = false;
        bench.uut.qp_write.next = QpWrite::default();
        bench.uut.reset.next = true;
        bench.cycles(2);
        bench.uut.reset.next = false;
    }

    /// The segmenter's side: it begins a request every clock.
    #[derive(Default)]
    struct Segmenter {
        waiting: u64,
    }

    impl Segmenter {
        fn before(&mut self, bench: &mut Bench<Scheduler>) {
            bench.uut.begun.next = self.waiting > 0;
            self.waiting = self.waiting.saturating_sub(1);
        }

        /// Takes note of what is fetched in this clock, if it is taken; returns it.
        fn after(&mut self, bench: &Bench<Scheduler>) -> Option<Fetch> {
            let port = &bench.uut.fetch;
            let fetch = (port.valid.val() && port.ready.val()).then(|| port.data.val());
            self.waiting += fetch.map_or(0, |fetch| fetch.count.to_u64());
            fetch
        }
    }

    /// A send queue: log2 of its depth, its units, and how far it was fetched.
    #[derive(Clone, Copy)]
    struct Queue {
        log_depth: u64,
        two_units: bool,
        fetched: u64,
        posted: u64,
    }

    /// Checks fetches and reads against the queues, and moves them on.
    fn follow(queues: &mut [Queue], fetches: &[Fetch], reads: &[ReadReq]) -> u64 {
        let mut total = 0;
        for (fetch, read) in fetches.iter().zip(reads) {
            let queue = &mut queues[fetch.qpn.index()];
            let (count, depth) = (fetch.count.to_u64(), 1 << queue.log_depth);
            let unit = if queue.two_units { 128 } else { 64 };
            assert!((1..=8).contains(&count));
            assert_eq!(fetch.index, queue.fetched % 0x1_0000, "requests are fetched in order, each once");
            assert_eq!(fetch.two_units, queue.two_units);
            let slot = queue.fetched % depth;
            assert!(slot + count <= depth, "a batch ends where the ring ends");
            assert_eq!(read.addr, address(fetch.qpn.to_u64()) + slot * unit);
            assert_eq!(read.len, count * unit);
            queue.fetched += count;
            if queue.fetched == queue.posted {
                assert!(fetch.is_tail, "the last request posted is told");
            }
            assert!(queue.fetched <= queue.posted, "nothing is fetched that was not posted");
            total += count;
        }
        total
    }

    #[test]
    fn every_posted_request_is_fetched_once_and_in_order_under_random_stalls() {
        let mut bench = Bench::new("tx_scheduler", Scheduler::default(), |uut| &mut uut.clock);
        let shapes = [(0, false), (1, true), (3, false), (4, true), (5, false), (9, true)];
        for (seed, limit) in [(1, 150), (1, 6000), (2, 220), (2, 6000), (3, 6000)] {
            reset(&mut bench);
            let mut queues: Vec<_> = shapes
                .iter()
                .map(|(log_depth, two_units)| Queue { log_depth: *log_depth, two_units: *two_units, fetched: 0, posted: 0 })
                .collect();
            // Commands right behind the reset wait until the states are cleared.
            for (qpn, (log_depth, two_units)) in shapes.into_iter().enumerate().skip(4) {
                bench.uut.qp_write.next = write(qpn as u64, QpState::Rts, log_depth, two_units, true);
                bench.cycles(1);
                bench.uut.qp_write.next = QpWrite::default();
            }
            bench.cycles(limits::QPS + 4);
            for (qpn, (log_depth, two_units)) in shapes.into_iter().enumerate().take(4) {
                set(&mut bench, write(qpn as u64, QpState::Rts, log_depth, two_units, true));
            }
            let mut random = Stalls::new(seed);
            let mut bell = Driver::new([], Stalls::new(seed + 10));
            let mut read = Monitor::new(Stalls::new(seed + 20));
            let mut fetch = Monitor::new(Stalls::new(seed + 30));
            let (mut rung, mut bad, mut expected_bad, mut seen, mut total) = (0, 0, 0, 0, 0);
            let mut clock = 0;
            let mut segmenter = Segmenter::default();
            while clock < limit && !(rung == 150 && bell.is_done() && queues.iter().all(|queue| queue.fetched == queue.posted)) {
                // The host rings within the depth behind what is known to be fetched; sometimes it does not.
                if bell.is_done() && rung < 150 {
                    rung += 1;
                    let qpn = random.random() as usize % 7;
                    if qpn == 6 {
                        bell.queue.push_back(SqBell { qpn: 77u64.into(), index: 1u64.into() });
                        expected_bad += 1;
                    } else if random.random() % 12 == 0 {
                        // Ahead by more than the depth, however much was fetched meanwhile.
                        let index = queues[qpn].posted + (1 << queues[qpn].log_depth) + 1;
                        bell.queue.push_back(SqBell { qpn: (qpn as u64).into(), index: index.into() });
                        expected_bad += 1;
                    } else {
                        let queue = &mut queues[qpn];
                        let room = (1 << queue.log_depth) - (queue.posted - queue.fetched);
                        queue.posted += random.random() % (room.min(40) + 1);
                        bell.queue.push_back(SqBell { qpn: (qpn as u64).into(), index: queue.posted.into() });
                    }
                }
                segmenter.before(&mut bench);
                bell.before(&mut bench.uut.bell);
                read.before(&mut bench.uut.read);
                fetch.before(&mut bench.uut.fetch);
                bench.settle();
                bell.after(&bench.uut.bell);
                read.after(&bench.uut.read);
                fetch.after(&bench.uut.fetch);
                bad += usize::from(bench.uut.bad_bell.val());
                segmenter.after(&bench);
                bench.edge();
                let until = read.got.len().min(fetch.got.len());
                total += follow(&mut queues, &fetch.got[seen..until], &read.got[seen..until]);
                seen = until;
                clock += 1;
            }
            if limit == 6000 {
                assert!(clock < limit, "a request hangs");
                for _ in 0..6 {
                    bench.cycles(1);
                    bad += usize::from(bench.uut.bad_bell.val());
                }
                assert_eq!(bad, expected_bad);
                assert_eq!(bench.uut.entered.val(), total % 0x1_0000);
                for (qpn, queue) in queues.iter().enumerate() {
                    bench.uut.query_qpn.next = (qpn as u64).into();
                    bench.cycles(1);
                    assert_eq!(
                        (bench.uut.query_producer.val(), bench.uut.query_fetched.val()),
                        (queue.posted.into(), queue.fetched.into())
                    );
                }
            }
        }
        bench.finish();
    }

    fn ring(bench: &mut Bench<Scheduler>, qpn: u64, index: u64) {
        bench.uut.bell.data.next = SqBell { qpn: qpn.into(), index: (index % 0x1_0000).into() };
        bench.uut.bell.valid.next = true;
        bench.settle();
        while !bench.uut.bell.ready.val() {
            bench.cycles(1);
        }
        bench.cycles(1);
        bench.uut.bell.valid.next = false;
    }

    /// Rings, and tells whether the doorbell is refused.
    fn is_refused(bench: &mut Bench<Scheduler>, qpn: u64, index: u64) -> bool {
        ring(bench, qpn, index);
        let mut count = 0;
        for _ in 0..5 {
            bench.settle();
            count += usize::from(bench.uut.bad_bell.val());
            bench.cycles(1);
        }
        assert!(count <= 1, "a doorbell is counted once");
        count == 1
    }

    #[test]
    fn a_busy_queue_gives_eight_requests_in_six_clocks_and_busy_queues_in_four_by_turns() {
        let mut bench = Bench::new("tx_scheduler_rate", Scheduler::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        bench.cycles(limits::QPS);
        for qpn in 0..3 {
            set(&mut bench, write(qpn, QpState::Rts, 6, false, true));
        }
        bench.uut.read.ready.next = true;
        bench.uut.fetch.ready.next = true;
        for (busy, posted) in [(1, 64), (3, 48)] {
            let base = if busy == 1 { 0 } else { 64 };
            // Nothing leaves before all have rung.
            bench.uut.read.ready.next = false;
            bench.uut.fetch.ready.next = false;
            for qpn in 0..busy {
                ring(&mut bench, qpn, posted + if qpn == 0 { base } else { 0 });
            }
            bench.uut.read.ready.next = true;
            bench.uut.fetch.ready.next = true;
            let (mut order, mut clocks) = (vec![], vec![]);
            let mut segmenter = Segmenter::default();
            for _ in 0..240 {
                segmenter.before(&mut bench);
                bench.settle();
                if let Some(fetch) = segmenter.after(&bench) {
                    order.push(fetch.qpn.to_u64());
                    clocks.push(bench.clock_count());
                }
                bench.edge();
            }
            assert_eq!(order.len() as u64, busy * posted / 8);
            let gap = if busy == 1 { 6 } else { 4 };
            assert!(clocks[4..].windows(2).all(|pair| pair[1] - pair[0] == gap), "{clocks:?}");
            // The first one may be fetched twice before all have rung, and the last alone at the end.
            assert!(order[3..order.len() - 3].windows(busy as usize).all(|turn| turn[1..].iter().all(|qpn| *qpn != turn[0])), "{order:?}");
        }
        bench.finish();
    }

    #[test]
    fn nothing_more_is_fetched_of_a_halted_queue_pair_and_a_waiting_visit_lets_doorbells_pass() {
        let mut bench = Bench::new("tx_scheduler_halt", Scheduler::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        bench.cycles(limits::QPS);
        for qpn in 0..2 {
            set(&mut bench, write(qpn, QpState::Rts, 9, false, true));
        }
        // Nobody reads: two reads wait, and the visit of the third. Doorbells are still taken.
        ring(&mut bench, 0, 100);
        bench.cycles(30);
        ring(&mut bench, 1, 20);
        ring(&mut bench, 1, 30);
        bench.cycles(10);
        bench.uut.halt.data.next = 0u64.into();
        bench.uut.halt.valid.next = true;
        bench.cycles(1);
        bench.uut.halt.valid.next = false;
        bench.uut.read.ready.next = true;
        bench.uut.fetch.ready.next = true;
        let mut counts = [0, 0];
        for _ in 0..80 {
            bench.settle();
            if bench.uut.fetch.valid.val() {
                counts[bench.uut.fetch.data.val().qpn.index()] += bench.uut.fetch.data.val().count.index();
            }
            bench.edge();
        }
        assert_eq!(counts, [16, 30]);
        // A doorbell of the halted queue pair is dropped and counted.
        assert!(is_refused(&mut bench, 0, 101));
        // As deep as the queue is allowed, one more is not.
        assert!(is_refused(&mut bench, 1, 30 + 513));
        assert!(!is_refused(&mut bench, 1, 30 + 512));
        let mut segmenter = Segmenter::default();
        for _ in 0..900 {
            segmenter.before(&mut bench);
            bench.settle();
            segmenter.after(&bench);
            bench.edge();
        }
        bench.uut.query_qpn.next = 1u64.into();
        bench.cycles(1);
        assert_eq!(bench.uut.query_fetched.val(), 542u64);
        bench.finish();
    }

    fn rewind(bench: &mut Bench<Scheduler>, qpn: u64, index: u64, is_long: bool) {
        bench.uut.rewind.data.next = Rewind { qpn: qpn.into(), index: index.into(), is_long };
        bench.uut.rewind.valid.next = true;
        bench.settle();
        while !bench.uut.rewind.ready.val() {
            bench.cycles(1);
        }
        bench.cycles(1);
        bench.uut.rewind.valid.next = false;
    }

    /// Returns queue pair, index and count of what is fetched in `clocks` clocks.
    fn fetched(bench: &mut Bench<Scheduler>, clocks: usize) -> Vec<(u64, u64, u64)> {
        let mut got = vec![];
        for _ in 0..clocks {
            bench.settle();
            if bench.uut.fetch.valid.val() {
                let fetch = bench.uut.fetch.data.val();
                got.push((fetch.qpn.to_u64(), fetch.index.to_u64(), fetch.count.to_u64()));
            }
            bench.edge();
        }
        got
    }

    #[test]
    fn a_turn_that_ended_goes_on_where_it_says_and_a_long_one_asks_for_one_request_at_a_time() {
        let mut bench = Bench::new("tx_scheduler_rewind", Scheduler::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        bench.cycles(limits::QPS);
        for qpn in 0..2 {
            set(&mut bench, write(qpn, QpState::Rts, 6, false, true));
        }
        bench.uut.read.ready.next = true;
        bench.uut.fetch.ready.next = true;
        ring(&mut bench, 0, 20);
        assert_eq!(fetched(&mut bench, 60), [(0, 0, 8), (0, 8, 8), (0, 16, 4)]);
        // Behind what was fetched already, in the middle of request 3: this one alone, and no more however often it rings.
        rewind(&mut bench, 0, 3, true);
        assert_eq!(fetched(&mut bench, 40), [(0, 3, 1)]);
        ring(&mut bench, 0, 21);
        assert_eq!(fetched(&mut bench, 40), []);
        rewind(&mut bench, 0, 3, true);
        assert_eq!(fetched(&mut bench, 40), [(0, 3, 1)]);
        // It is done.
        rewind(&mut bench, 0, 4, false);
        assert_eq!(fetched(&mut bench, 60), [(0, 4, 8), (0, 12, 8), (0, 20, 1)]);
        // A turn that ended between two requests.
        rewind(&mut bench, 0, 18, false);
        assert_eq!(fetched(&mut bench, 60), [(0, 18, 3)]);
        rewind(&mut bench, 0, 21, false);
        assert_eq!(fetched(&mut bench, 40), [], "there is nothing behind the last one");

        // The report of a queue pair that died meanwhile comes to nothing, and one that starts anew is not parked.
        ring(&mut bench, 0, 25);
        assert_eq!(fetched(&mut bench, 40), [(0, 21, 4)]);
        rewind(&mut bench, 0, 21, true);
        assert_eq!(fetched(&mut bench, 40), [(0, 21, 1)]);
        set(&mut bench, write(0, QpState::Error, 6, false, false));
        rewind(&mut bench, 0, 21, true);
        assert_eq!(fetched(&mut bench, 40), []);
        set(&mut bench, write(0, QpState::Reset, 6, false, true));
        set(&mut bench, write(0, QpState::Rts, 6, false, false));
        ring(&mut bench, 0, 1);
        assert_eq!(fetched(&mut bench, 40), [(0, 0, 1)]);
        ring(&mut bench, 0, 3);
        assert_eq!(fetched(&mut bench, 40), [(0, 1, 2)]);
        bench.finish();
    }

    #[test]
    fn doorbells_are_measured_from_the_last_request_ever_fetched_while_a_queue_pair_sends_again() {
        let mut bench = Bench::new("tx_scheduler_again", Scheduler::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        bench.cycles(limits::QPS);
        set(&mut bench, write(0, QpState::Rts, 3, false, true));
        set(&mut bench, write(1, QpState::Rts, 3, false, true));
        bench.uut.read.ready.next = true;
        bench.uut.fetch.ready.next = true;
        ring(&mut bench, 0, 8);
        assert_eq!(fetched(&mut bench, 40), [(0, 0, 8)]);
        // Back to the first request, and nothing is fetched yet. All eight are done by now, and eight more are posted.
        bench.uut.read.ready.next = false;
        for index in 1..4 {
            ring(&mut bench, 1, index);
            bench.cycles(5);
        }
        assert!(!bench.uut.reads.fill.ready.val());
        rewind(&mut bench, 0, 0, false);
        assert!(!is_refused(&mut bench, 0, 16), "sixteen wait, but eight of them were fetched");
        assert!(is_refused(&mut bench, 0, 17));
        bench.uut.read.ready.next = true;
        let got: Vec<_> = fetched(&mut bench, 100).into_iter().filter(|fetch| fetch.0 == 0).collect();
        assert_eq!(got, [(0, 0, 8), (0, 8, 8)]);
        // As far as the last one ever fetched and no farther, also when it goes there in two steps.
        rewind(&mut bench, 0, 13, false);
        assert_eq!(fetched(&mut bench, 40), [(0, 13, 3)]);
        assert!(is_refused(&mut bench, 0, 25));
        ring(&mut bench, 0, 18);
        assert_eq!(fetched(&mut bench, 40), [(0, 16, 2)]);
        rewind(&mut bench, 0, 17, false);
        assert_eq!(fetched(&mut bench, 40), [(0, 17, 1)]);
        assert!(!is_refused(&mut bench, 0, 26));
        bench.finish();
    }

    #[test]
    fn a_rewind_between_doorbells_neither_loses_nor_repeats_a_request_under_random_stalls() {
        let mut bench = Bench::new("tx_scheduler_rewinds", Scheduler::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        bench.cycles(limits::QPS);
        const PAIRS: usize = 4;
        for qpn in 0..PAIRS as u64 {
            set(&mut bench, write(qpn, QpState::Rts, 6, qpn % 2 == 1, true));
        }
        let mut random = Stalls::new(5);
        let mut bell = Driver::new([], Stalls::new(6));
        let mut reports = Driver::new([], Stalls::new(7));
        let mut read = Monitor::new(Stalls::new(8));
        let mut fetch = Monitor::new(Stalls::new(9));
        // The segmenter's side: what comes next of each queue pair, and whether the scheduler waits for a report.
        let (mut posted, mut due, mut is_long) = ([0u64; PAIRS], [0u64; PAIRS], [false; PAIRS]);
        let (mut seen, mut stale, mut turns, mut segmenter) = (0, 0, 0, Segmenter::default());
        let mut clock = 0;
        while due != [600; PAIRS] {
            clock += 1;
            assert!(clock < 40_000, "a request hangs; {due:?} of {posted:?} are sent");
            if bell.is_done() && random.random() % 4 == 0 {
                let qpn = random.random() as usize % PAIRS;
                posted[qpn] = (posted[qpn] + random.random() % 12).min(due[qpn] + 64).min(600);
                bell.queue.push_back(SqBell { qpn: (qpn as u64).into(), index: posted[qpn].into() });
            }
            segmenter.before(&mut bench);
            bell.before(&mut bench.uut.bell);
            reports.before(&mut bench.uut.rewind);
            read.before(&mut bench.uut.read);
            fetch.before(&mut bench.uut.fetch);
            bench.settle();
            bell.after(&bench.uut.bell);
            reports.after(&bench.uut.rewind);
            read.after(&bench.uut.read);
            fetch.after(&bench.uut.fetch);
            segmenter.after(&bench);
            assert!(!bench.uut.bad_bell.val());
            bench.edge();
            for fetch in &fetch.got[seen..] {
                let (qpn, count) = (fetch.qpn.index(), fetch.count.to_u64());
                for index in fetch.index.to_u64()..fetch.index.to_u64() + count {
                    if index != due[qpn] {
                        stale += 1;
                        continue;
                    }
                    assert!(!is_long[qpn] || count == 1, "of a long one, one request");
                    let mut report = |index, long| {
                        reports.queue.push_back(Rewind { qpn: (qpn as u64).into(), index: u64::into(index), is_long: long });
                    };
                    match random.random() % 8 {
                        // In its middle.
                        0 => {
                            report(index, true);
                            is_long[qpn] = true;
                            turns += 1;
                        }
                        // In front of it.
                        1 if !is_long[qpn] => {
                            report(index, false);
                            turns += 1;
                        }
                        _ => {
                            due[qpn] += 1;
                            if std::mem::take(&mut is_long[qpn]) {
                                report(index + 1, false);
                            }
                        }
                    }
                    if index == due[qpn] {
                        // What follows in this batch is stale, also if it is this one again.
                        stale += fetch.index.to_u64() + count - (index + 1);
                        break;
                    }
                }
            }
            seen = fetch.got.len();
        }
        assert!(turns > 300 && stale > 300, "{turns} turns end, {stale} requests are fetched in vain");
        bench.finish();
    }

    #[test]
    fn no_more_is_fetched_ahead_than_the_limit_says() {
        let mut bench = Bench::new("tx_scheduler_ahead", Scheduler::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        bench.cycles(limits::QPS);
        bench.uut.read.ready.next = true;
        bench.uut.fetch.ready.next = true;
        for qpn in 0..2 {
            set(&mut bench, write(qpn, QpState::Rts, 9, false, true));
            ring(&mut bench, qpn, 300);
        }
        bench.cycles(400);
        let most = limits::FETCH_AHEAD as u64;
        let ahead = bench.uut.entered.val().to_u64();
        assert!((most - 15..=most).contains(&ahead), "{ahead} requests are fetched ahead");
        bench.uut.begun.next = true;
        bench.cycles(100);
        bench.uut.begun.next = false;
        bench.cycles(100);
        let after = bench.uut.entered.val().to_u64();
        assert!((most - 15 + 100..=most + 100).contains(&after), "{after} requests are fetched");
        bench.finish();
    }

    #[test]
    fn others_wait_if_they_are_queued_or_were_fetched_last() {
        let mut bench = Bench::new("tx_scheduler_others", Scheduler::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        bench.cycles(limits::QPS);
        for qpn in 0..3 {
            set(&mut bench, write(qpn, QpState::Rts, 6, false, true));
        }
        bench.uut.read.ready.next = true;
        bench.uut.fetch.ready.next = true;
        let waits = |bench: &mut Bench<Scheduler>, qpn: u64| {
            bench.uut.sending_qpn.next = qpn.into();
            bench.cycles(2);
            bench.uut.others_wait.val()
        };
        ring(&mut bench, 1, 64);
        bench.cycles(100);
        assert!(!waits(&mut bench, 1), "it is the only one");
        assert!(waits(&mut bench, 2), "it was fetched last");
        // Nobody reads any more: one in front of the queue, then one behind it.
        bench.uut.read.ready.next = false;
        ring(&mut bench, 1, 80);
        bench.cycles(30);
        ring(&mut bench, 1, 100);
        bench.cycles(30);
        assert!(!waits(&mut bench, 1));
        ring(&mut bench, 2, 1);
        bench.cycles(10);
        assert!(waits(&mut bench, 1));
        bench.finish();
    }
}
