//! Keeps each send queue's producer index, and turns doorbells of dead queue pairs into flushes.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `qp_write` | in | contexts |
//! | `bell_in` | sink | doorbells |
//! | `bell` | source | those of living queue pairs, for the scheduler |
//! | `halt` | sink | queue pairs whose requester has failed |
//! | `flush` | source | queue pairs of which everything posted is to be flushed |
//! | `look_qpn`, `producer`, `is_dead` | in/out | one queue pair's state: whether it is dead in the same clock, its index one clock later |
//!
//! The index is kept before the bell goes on, and a queue pair dies here before it is flushed, so
//! no request is posted behind the flush unseen: a doorbell before the death is covered by the
//! flush that the death causes, one after it causes its own.
//!
//! Latency: one clock. Throughput: one doorbell a clock. After a reset the states are cleared, one
//! a clock; nothing is taken meanwhile.

use rust_hdl::prelude::*;
use verbena_abi::limits::{self, LOG_QPS};
use verbena_abi::queue;

use crate::bus::{QpContext, QpWrite, Qpn, SqBell, StreamSink, StreamSource};
use crate::prim::{Fifo, LutRam, Ram};

/// A change that a command makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Change {
    qpn: Qpn,
    clear: Bit,
    revive: Bit,
    kill: Bit,
}

#[derive(LogicBlock)]
pub struct Posted {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub qp_write: Signal<In, QpWrite>,
    pub bell_in: StreamSink<SqBell>,
    pub bell: StreamSource<SqBell>,
    pub halt: StreamSink<Qpn>,
    pub flush: StreamSource<Qpn>,
    pub look_qpn: Signal<In, Qpn>,
    pub producer: Signal<Out, Bits<16>>,
    pub is_dead: Signal<Out, Bit>,

    // Nothing is read to be written: a doorbell brings a whole index, and whether a queue pair is dead is one bit.
    producers: Ram<Bits<16>, { limits::LOG_QPS }>,
    deads: LutRam<Bit, { limits::LOG_QPS }>,
    deads_look: LutRam<Bit, { limits::LOG_QPS }>,
    changes: Fifo<Change, 1, 2>,
    bells: Fifo<SqBell, 1, 2>,
    flushes: Fifo<Qpn, 1, 2>,
    cleared: DFF<Bits<{ limits::LOG_QPS + 1 }>>,

    broadcast: Signal<Local, QpWrite>,
    attributes: Signal<Local, QpContext>,
    change: Signal<Local, Change>,
    ringing: Signal<Local, SqBell>,
    address: Signal<Local, Qpn>,
    is_dead_now: Signal<Local, Bit>,
    write_producer: Signal<Local, Bit>,
    new_producer: Signal<Local, Bits<16>>,
    write_dead: Signal<Local, Bit>,
    new_dead: Signal<Local, Bit>,
    is_clear: Signal<Local, Bit>,
    qp_count: Constant<Bits<{ limits::LOG_QPS + 1 }>>,
    error_state: Constant<Bits<3>>,
}

impl Default for Posted {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            qp_write: Default::default(),
            bell_in: Default::default(),
            bell: Default::default(),
            halt: Default::default(),
            flush: Default::default(),
            look_qpn: Default::default(),
            producer: Default::default(),
            is_dead: Default::default(),
            producers: Default::default(),
            deads: Default::default(),
            deads_look: Default::default(),
            changes: Default::default(),
            bells: Default::default(),
            flushes: Default::default(),
            cleared: Default::default(),
            broadcast: Default::default(),
            attributes: Default::default(),
            change: Default::default(),
            ringing: Default::default(),
            address: Default::default(),
            is_dead_now: Default::default(),
            write_producer: Default::default(),
            new_producer: Default::default(),
            write_dead: Default::default(),
            new_dead: Default::default(),
            is_clear: Default::default(),
            qp_count: Constant::new(limits::QPS.to_bits()),
            error_state: Constant::new((queue::QpState::Error as u8).to_bits()),
        }
    }
}

impl Logic for Posted {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, cleared);
        clock!(self, clock, producers, deads, deads_look, changes, bells, flushes);
        self.changes.reset.next = self.reset.val();
        self.bells.reset.next = self.reset.val();
        self.flushes.reset.next = self.reset.val();
        StreamSource::<SqBell>::link(&mut self.bell, &mut self.bells.drain);
        StreamSource::<Qpn>::link(&mut self.flush, &mut self.flushes.drain);

        self.broadcast.next = self.qp_write.val();
        self.attributes.next = self.broadcast.val().context;
        self.changes.fill.valid.next = self.broadcast.val().valid;
        self.changes.fill.data.next.qpn = self.broadcast.val().qpn;
        self.changes.fill.data.next.clear = self.broadcast.val().clear;
        self.changes.fill.data.next.revive = self.broadcast.val().start_tx;
        self.changes.fill.data.next.kill = self.attributes.val().state == self.error_state.val();
        self.change.next = self.changes.drain.data.val();
        self.ringing.next = self.bell_in.data.val();
        self.is_clear.next = self.cleared.q.val() == self.qp_count.val();
        if !self.is_clear.val() {
            self.cleared.d.next = self.cleared.q.val() + 1;
        }

        self.address.next = self.ringing.val().qpn;
        if !self.is_clear.val() {
            self.address.next = self.cleared.q.val().get_bits::<LOG_QPS>(0);
        } else if self.changes.drain.valid.val() {
            self.address.next = self.change.val().qpn;
        } else if self.halt.valid.val() {
            self.address.next = self.halt.data.val();
        }
        self.deads.read_address.next = self.address.val();
        self.is_dead_now.next = self.deads.read_data.val();
        self.write_producer.next = false;
        self.new_producer.next = 0.into();
        self.write_dead.next = false;
        self.new_dead.next = false;
        self.changes.drain.ready.next = false;
        self.halt.ready.next = false;
        self.bell_in.ready.next = false;
        self.bells.fill.valid.next = false;
        self.bells.fill.data.next = self.ringing.val();
        self.flushes.fill.valid.next = false;
        self.flushes.fill.data.next = self.address.val();

        if !self.is_clear.val() {
            self.write_producer.next = true;
            self.write_dead.next = true;
        } else if self.changes.drain.valid.val() {
            if self.flushes.fill.ready.val() {
                self.changes.drain.ready.next = true;
                self.write_producer.next = self.change.val().clear;
                self.write_dead.next = self.change.val().clear | self.change.val().revive | self.change.val().kill;
                if self.change.val().kill & !self.change.val().clear & !self.change.val().revive {
                    self.new_dead.next = true;
                    self.flushes.fill.valid.next = true;
                }
            }
        } else if self.halt.valid.val() {
            if self.flushes.fill.ready.val() {
                self.halt.ready.next = true;
                self.write_dead.next = true;
                self.new_dead.next = true;
                self.flushes.fill.valid.next = true;
            }
        } else if self.bell_in.valid.val() & self.bells.fill.ready.val() & self.flushes.fill.ready.val() {
            self.bell_in.ready.next = true;
            self.write_producer.next = true;
            self.new_producer.next = self.ringing.val().index;
            self.flushes.fill.valid.next = self.is_dead_now.val();
            self.bells.fill.valid.next = !self.is_dead_now.val();
        }
        self.producers.write_enable.next = self.write_producer.val();
        self.producers.write_address.next = self.address.val();
        self.producers.write_data.next = self.new_producer.val();
        self.producers.read_address.next = self.look_qpn.val();
        self.deads.write_enable.next = self.write_dead.val();
        self.deads.write_address.next = self.address.val();
        self.deads.write_data.next = self.new_dead.val();
        self.deads_look.write_enable.next = self.write_dead.val();
        self.deads_look.write_address.next = self.address.val();
        self.deads_look.write_data.next = self.new_dead.val();
        self.deads_look.read_address.next = self.look_qpn.val();
        self.producer.next = self.producers.read_data.val();
        self.is_dead.next = self.deads_look.read_data.val();

        if self.reset.val() {
            self.cleared.d.next = 0.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    fn write(qpn: u64, clear: bool, start_tx: bool, state: queue::QpState) -> QpWrite {
        let context = QpContext { state: (state as u64).into(), ..Default::default() };
        QpWrite { valid: true, qpn: qpn.into(), clear, start_tx, context, ..Default::default() }
    }

    fn reset(bench: &mut Bench<Posted>) {
        bench.uut.bell_in.valid.next = false;
        bench.uut.halt.valid.next = false;
        bench.uut.qp_write.next = QpWrite::default();
        bench.uut.reset.next = true;
        bench.cycles(2);
        bench.uut.reset.next = false;
    }

    #[test]
    fn living_queue_pairs_ring_on_and_dead_ones_are_flushed_under_random_stalls() {
        let mut bench = Bench::new("posted", Posted::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        for (seed, limit) in [(1, 400), (1, 6000), (2, 500), (2, 6000), (3, 6000)] {
            let mut random = Stalls::new(seed);
            let bells = (0..300).map(|_| SqBell { qpn: (random.random() % 8).into(), index: (random.random() % 65536).into() });
            let mut bell_in = Driver::new(bells.collect::<Vec<_>>(), Stalls::new(seed + 10));
            let mut halt = Driver::new([], Stalls::none());
            let mut bell = Monitor::new(Stalls::new(seed + 30));
            let mut flush = Monitor::new(Stalls::new(seed + 40));
            // The model takes each event in the clock in which the block does.
            let mut model = [(0u64, false); 8];
            let (mut bells, mut flushes) = (vec![], vec![]);
            let mut command: Option<(usize, bool, bool)> = None;
            let mut clock = 0;
            // What the memory of indices held when it was asked.
            let mut asked = 0;
            while clock < limit && !(bell_in.is_done() && bell.got.len() + flush.got.len() == bells.len() + flushes.len()) {
                bell_in.before(&mut bench.uut.bell_in);
                if clock % 25 == 24 {
                    halt.queue.push_back(Qpn::from(random.random() % 8));
                }
                halt.before(&mut bench.uut.halt);
                bell.before(&mut bench.uut.bell);
                flush.before(&mut bench.uut.flush);
                bench.uut.qp_write.next = QpWrite::default();
                if clock % 40 == 39 && clock > limits::QPS + 44 && command.is_none() {
                    let qpn = random.random() % 8;
                    let (clear, start, kill) =
                        [(true, false, false), (false, true, false), (false, false, true)][random.random() as usize % 3];
                    let state = if kill { queue::QpState::Error } else { queue::QpState::Rts };
                    bench.uut.qp_write.next = write(qpn, clear, start, state);
                    command = Some((qpn as usize, clear, start));
                }
                bench.uut.look_qpn.next = (clock as u64 % 8).into();
                bench.settle();
                let uut = &bench.uut;
                let (producer, is_dead) = (asked, model[clock % 8].1);
                asked = model[clock % 8].0;
                // During the clearing the memory still holds what was before.
                if clock > limits::QPS + 1 {
                    assert_eq!((uut.producer.val().to_u64(), uut.is_dead.val()), (producer, is_dead));
                } else {
                    assert!(
                        !uut.bell_in.ready.val() && !uut.halt.ready.val() || clock >= limits::QPS,
                        "nothing is taken during the clearing"
                    );
                }
                if uut.changes.drain.valid.val() && uut.changes.drain.ready.val() {
                    let (qpn, clear, start) = command.take().unwrap();
                    if clear {
                        model[qpn] = (0, false);
                    } else if start {
                        model[qpn].1 = false;
                    } else {
                        model[qpn].1 = true;
                        flushes.push(Qpn::from(qpn as u64));
                    }
                }
                if uut.halt.valid.val() && uut.halt.ready.val() {
                    let qpn = uut.halt.data.val();
                    model[qpn.index()].1 = true;
                    flushes.push(qpn);
                }
                if uut.bell_in.valid.val() && uut.bell_in.ready.val() {
                    let ring = uut.bell_in.data.val();
                    model[ring.qpn.index()].0 = ring.index.to_u64();
                    if model[ring.qpn.index()].1 {
                        flushes.push(ring.qpn);
                    } else {
                        bells.push(ring);
                    }
                }
                bell_in.after(&bench.uut.bell_in);
                halt.after(&bench.uut.halt);
                bell.after(&bench.uut.bell);
                flush.after(&bench.uut.flush);
                bench.edge();
                clock += 1;
            }
            if limit == 6000 {
                assert!(clock < limit, "a doorbell hangs");
                assert_eq!(bell.got, bells);
                assert_eq!(flush.got, flushes);
            }
            reset(&mut bench);
        }
        bench.finish();
    }

    #[test]
    fn a_doorbell_goes_through_every_clock_and_a_full_exit_holds_it_back() {
        let mut bench = Bench::new("posted_rate", Posted::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        bench.cycles(limits::QPS);
        let bells: Vec<_> = (0..100u64).map(|i| SqBell { qpn: (i % 4).into(), index: i.into() }).collect();
        let mut bell_in = Driver::new(bells.clone(), Stalls::none());
        let mut bell = Monitor::new(Stalls::none());
        let start = bench.clock_count();
        while bell.got.len() < 100 {
            bell_in.before(&mut bench.uut.bell_in);
            bell.before(&mut bench.uut.bell);
            bench.settle();
            bell_in.after(&bench.uut.bell_in);
            bell.after(&bench.uut.bell);
            bench.edge();
            assert!(bench.clock_count() < start + 1000, "a doorbell hangs");
        }
        assert_eq!(bell.got, bells);
        assert_eq!(bench.clock_count() - start, 101);
        // Two flushes wait here: a third death and a doorbell wait outside, so none is lost.
        bench.uut.bell_in.valid.next = false;
        bench.uut.flush.ready.next = false;
        bench.uut.halt.valid.next = true;
        for qpn in 0..2u64 {
            bench.uut.halt.data.next = qpn.into();
            bench.settle();
            assert!(bench.uut.halt.ready.val());
            bench.edge();
        }
        bench.uut.halt.data.next = 2u64.into();
        bench.uut.bell_in.valid.next = true;
        bench.uut.bell_in.data.next = SqBell { qpn: 3u64.into(), index: 7u64.into() };
        bench.cycles(3);
        assert!(!bench.uut.halt.ready.val() && !bench.uut.bell_in.ready.val());
        bench.finish();
    }
}
