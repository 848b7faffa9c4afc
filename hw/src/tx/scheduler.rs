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

use crate::bus::{Fetch, QpContext, QpWrite, Qpn, ReadReq, SqBell, StreamSink, StreamSource};
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
    Ask,
}

#[derive(LogicBlock)]
pub struct Scheduler {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub qp_write: Signal<In, QpWrite>,
    pub bell: StreamSink<SqBell>,
    pub halt: StreamSink<Qpn>,
    pub read: StreamSource<ReadReq>,
    pub fetch: StreamSource<Fetch>,
    pub entered: Signal<Out, Bits<16>>,
    pub bad_bell: Signal<Out, Bit>,
    pub query_qpn: Signal<In, Qpn>,
    pub query_producer: Signal<Out, Bits<16>>,
    pub query_fetched: Signal<Out, Bits<16>>,

    state: DFF<State>,
    state_ram: LutRam<SqState, { limits::LOG_QPS }>,
    query_ram: LutRam<SqState, { limits::LOG_QPS }>,
    config_ram: Ram<SqConfig, { limits::LOG_QPS }>,
    depth_ram: LutRam<Bits<4>, { limits::LOG_QPS }>,
    ready_queue: Fifo<Qpn, { limits::LOG_QPS }, { limits::LOG_QPS + 1 }>,
    changes: Fifo<Change, 1, 2>,
    reads: Fifo<ReadReq, 1, 2>,
    fetches: Fifo<Fetch, 6, 7>,
    visited: DFF<Qpn>,
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
    address: Signal<Local, Qpn>,
    write: Signal<Local, Bit>,
    take_change: Signal<Local, Bit>,
    take_halt: Signal<Local, Bit>,
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
            take_change: Default::default(),
            take_halt: Default::default(),
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
        self.take_change.next = (self.state.q.val() != State::Clear) & self.changes.drain.valid.val();
        self.take_halt.next = (self.state.q.val() != State::Clear) & self.halt.valid.val() & !self.changes.drain.valid.val();
        if self.take_change.val() {
            self.address.next = self.change.val().qpn;
        } else if self.take_halt.val() {
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
        self.fetches.fill.data.next.is_tail = self.waiting.q.val() == bit_cast::<16, 4>(self.count.q.val());
        self.ready_queue.drain.ready.next = false;
        self.ready_queue.fill.valid.next = false;
        self.ready_queue.fill.data.next = self.address.val();

        if self.take_change.val() {
            self.changes.drain.ready.next = true;
            self.write.next = true;
            self.updated.next.is_active = self.change.val().activate;
            if self.change.val().clear {
                self.updated.next.producer = 0.into();
                self.updated.next.fetched = 0.into();
            }
        } else if self.take_halt.val() {
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
        bench.cycles(1);
    }

    fn reset(bench: &mut Bench<Scheduler>) {
        bench.uut.bell.valid.next = false;
        bench.uut.halt.valid.next = false;
        bench.uut.qp_write.next = QpWrite::default();
        bench.uut.reset.next = true;
        bench.cycles(2);
        bench.uut.reset.next = false;
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
                bell.before(&mut bench.uut.bell);
                read.before(&mut bench.uut.read);
                fetch.before(&mut bench.uut.fetch);
                bench.settle();
                bell.after(&bench.uut.bell);
                read.after(&bench.uut.read);
                fetch.after(&bench.uut.fetch);
                bad += usize::from(bench.uut.bad_bell.val());
                bench.edge();
                let until = read.got.len().min(fetch.got.len());
                total += follow(&mut queues, &fetch.got[seen..until], &read.got[seen..until]);
                seen = until;
                clock += 1;
            }
            if limit == 6000 {
                assert!(clock < limit, "a request hangs");
                bench.cycles(2);
                assert_eq!(bad + usize::from(bench.uut.bad_bell.val()), expected_bad);
                assert_eq!(bench.uut.entered.val(), total % 0x1_0000);
                for (qpn, queue) in queues.iter().enumerate() {
                    bench.uut.query_qpn.next = (qpn as u64).into();
                    bench.settle();
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

    #[test]
    fn a_busy_queue_gives_eight_requests_in_four_clocks_and_busy_queues_take_turns() {
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
            for qpn in 0..busy {
                ring(&mut bench, qpn, posted + if qpn == 0 { base } else { 0 });
            }
            let (mut order, mut clocks) = (vec![], vec![]);
            for _ in 0..200 {
                if bench.uut.fetch.valid.val() {
                    order.push(bench.uut.fetch.data.val().qpn.to_u64());
                    clocks.push(bench.clock_count());
                }
                bench.cycles(1);
            }
            assert_eq!(order.len() as u64, busy * posted / 8);
            assert!(clocks.windows(2).all(|pair| pair[1] - pair[0] == 4), "{clocks:?}");
            assert!(order.iter().enumerate().all(|(i, qpn)| i as u64 % busy == (*qpn + busy - order[0]) % busy), "{order:?}");
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
        ring(&mut bench, 0, 101);
        bench.settle();
        assert!(bench.uut.bad_bell.val());
        bench.cycles(1);
        assert!(!bench.uut.bad_bell.val());
        // As deep as the queue is allowed, one more is not.
        ring(&mut bench, 1, 30 + 513);
        bench.settle();
        assert!(bench.uut.bad_bell.val());
        ring(&mut bench, 1, 30 + 512);
        bench.settle();
        assert!(!bench.uut.bad_bell.val());
        bench.cycles(300);
        bench.uut.query_qpn.next = 1u64.into();
        bench.settle();
        assert_eq!(bench.uut.query_fetched.val(), 542u64);
        bench.finish();
    }
}
