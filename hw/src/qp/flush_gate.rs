//! Holds a dead queue pair back until nothing of it is under way in the transmitter, so that a
//! flushed request's memory is not read any more when its completion says that it is free.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `put` | in | the oldest queue pair that waits, of a coalescing queue |
//! | `flush` | source | the same, when it may be flushed |
//! | `is_busy` | out | a queue pair waits here |
//! | `entered`, `finished` | in | requests asked for, and requests whose payload is on the card, modulo 2^16 |
//!
//! Requests go through the transmitter in order, so what was asked for when the queue pair came is
//! done when `finished` has reached the number that `entered` had then. One queue pair waits at a
//! time; the others wait in the queue in front. A short wait before the count is taken lets the
//! scheduler hear of the death first. Throughput: a queue pair every 35 clocks while the transmitter is idle.

use rust_hdl::prelude::*;

use crate::bus::{Qpn, StreamSink, StreamSource};

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
    pub put: StreamSink<Qpn>,
    pub flush: StreamSource<Qpn>,
    pub entered: Signal<In, Bits<16>>,
    pub finished: Signal<In, Bits<16>>,
    pub is_busy: Signal<Out, Bit>,

    state: DFF<State>,
    qpn: DFF<Qpn>,
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
        self.is_busy.next = self.state.q.val() != State::Idle;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    fn reset(bench: &mut Bench<FlushGate>) {
        bench.uut.put.valid.next = false;
        bench.uut.reset.next = true;
        bench.cycles(2);
        bench.uut.reset.next = false;
    }

    #[test]
    fn a_queue_pair_comes_out_when_all_that_was_entered_before_is_finished() {
        let mut bench = Bench::new("flush_gate", FlushGate::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        // The counts pass 2^16 on the way.
        let (mut entered, mut finished) = (0xFF80u64, 0xFF80u64);
        for (seed, limit) in [(1, 50), (1, 9000), (2, 333), (2, 9000), (3, 9000)] {
            let mut put = Driver::new((0..25u64).map(|i| Qpn::from(7 * i)), Stalls::new(seed));
            let mut flush = Monitor::new(Stalls::new(seed + 10));
            let (mut enters, mut finishes) = (Stalls::new(seed + 20), Stalls::new(seed + 30));
            // What was entered when the queue pair was taken, and the clock of it.
            let mut taken: Option<(u64, u64)> = None;
            let stop = bench.clock_count() + limit;
            while flush.got.len() < 25 && bench.clock_count() < stop {
                entered += u64::from(enters.go());
                finished += u64::from(finishes.go() && finished < entered);
                bench.uut.entered.next = (entered % 0x1_0000).into();
                bench.uut.finished.next = (finished % 0x1_0000).into();
                put.before(&mut bench.uut.put);
                flush.before(&mut bench.uut.flush);
                bench.settle();
                if bench.uut.flush.valid.val() {
                    let (goal, clock) = taken.expect("one at a time");
                    assert!(finished >= goal, "requests are still under way");
                    assert!(bench.clock_count() >= clock + 34, "there is a wait for the scheduler to hear of it");
                    if bench.uut.flush.ready.val() {
                        taken = None;
                    }
                }
                if bench.uut.put.valid.val() & bench.uut.put.ready.val() {
                    assert!(taken.is_none());
                    taken = Some((entered, bench.clock_count()));
                }
                put.after(&bench.uut.put);
                flush.after(&bench.uut.flush);
                bench.edge();
            }
            if limit == 9000 {
                assert_eq!(flush.got, (0..25u64).map(|i| Qpn::from(7 * i)).collect::<Vec<_>>());
            } else {
                reset(&mut bench);
            }
        }
        bench.finish();
    }

    #[test]
    fn an_idle_transmitter_holds_nothing_back_for_longer_than_the_wait() {
        let mut bench = Bench::new("flush_gate_wait", FlushGate::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        bench.uut.put.valid.next = true;
        bench.uut.put.data.next = 9u64.into();
        bench.cycles(1);
        bench.uut.put.valid.next = false;
        let start = bench.clock_count();
        while !bench.uut.flush.valid.val() {
            bench.cycles(1);
            assert!(bench.clock_count() < 100, "the gate stays shut");
        }
        assert_eq!(bench.clock_count() - start, 33);
        // Entered behind the wait: not waited for. Entered during it: waited for.
        bench.uut.flush.ready.next = true;
        bench.cycles(1);
        bench.uut.flush.ready.next = false;
        bench.uut.put.valid.next = true;
        bench.cycles(1);
        bench.uut.put.valid.next = false;
        bench.cycles(20);
        bench.uut.entered.next = 3u64.into();
        bench.cycles(13);
        bench.uut.entered.next = 100u64.into();
        bench.uut.finished.next = 2u64.into();
        bench.cycles(50);
        assert!(!bench.uut.flush.valid.val());
        bench.uut.finished.next = 3u64.into();
        bench.cycles(1);
        assert!(bench.uut.flush.valid.val());
        assert_eq!(bench.uut.flush.data.val(), 9u64);
        bench.finish();
    }

    #[test]
    fn waiting_queue_pairs_pass_one_after_the_other_every_35_clocks() {
        let mut bench = Bench::new("flush_gate_rate", FlushGate::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        let mut put = Driver::new((0..8u64).map(Qpn::from), Stalls::none());
        let mut flush = Monitor::new(Stalls::none());
        let mut clocks = vec![];
        let begin = bench.clock_count();
        while flush.got.len() < 8 {
            put.before(&mut bench.uut.put);
            flush.before(&mut bench.uut.flush);
            bench.settle();
            put.after(&bench.uut.put);
            flush.after(&bench.uut.flush);
            clocks.resize(flush.got.len(), bench.clock_count() - begin);
            bench.edge();
            assert!(bench.clock_count() < 400, "the gate stays shut");
        }
        // One to come in, 32 of waiting, one to look, one to go out.
        assert_eq!(clocks, Vec::from_iter((0..8).map(|i| 34 + 35 * i)));
        bench.finish();
    }
}
