//! Counts, for every stage of the card, the clocks in which it moves something and those in which it is held up.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `valid`, `ready` | in | bit n of both is the stream of stage n, in the order of [`Stage`] |
//! | `hold` | in | nothing is counted |
//! | `read_address`, `read_value` | in, out | what a register holds, one clock later: 0 to 31 are beats, 32 to 63 stalls |
//! | `clocks` | out | the clocks in which stages were counted |
//! | `cleared` | out | the sums can be read |
//!
//! A beat is a clock with `valid` and `ready`, a stall one with `valid` alone. Both inputs end in a flop, so that no stream has a longer way than to
//! here, whatever block it comes from.
//!
//! Latency: a beat is in its sum after 33 clocks at most, see [`Tally`]; `hold` and `clocks` go through the same flop. So when `hold` has been high for
//! as long, beats and stalls of a stage are together no more than `clocks`, and what is missing was idle. Throughput: every stage every clock, a read every clock.
//!
//! For 32 clocks after reset `cleared` is low and sums read 0; what happens meanwhile is counted. `clocks` starts with the first clock after reset. All of them wrap.

use rust_hdl::prelude::*;
use verbena_abi::stages::Stage;

use super::Tally;

const STAGES: usize = 30;
const _: () = assert!(Stage::COUNT == STAGES);

/// Beats and stalls of all stages.
#[derive(LogicBlock, Default)]
pub struct StageCounters {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub valid: Signal<In, Bits<30>>,
    pub ready: Signal<In, Bits<30>>,
    pub hold: Signal<In, Bit>,
    pub read_address: Signal<In, Bits<6>>,
    pub read_value: Signal<Out, Bits<32>>,
    pub clocks: Signal<Out, Bits<32>>,
    pub cleared: Signal<Out, Bit>,

    was_valid: DFF<Bits<30>>,
    was_ready: DFF<Bits<30>>,
    is_held: DFF<Bit>,
    moved: Signal<Local, Bits<30>>,
    beats: Tally<30>,
    stalls: Tally<30>,
    count: DFF<Bits<32>>,
    value: DFF<Bits<32>>,
}

impl Logic for StageCounters {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, was_valid, was_ready, is_held, count, value);
        clock!(self, clock, beats, stalls);
        self.beats.reset.next = self.reset.val();
        self.stalls.reset.next = self.reset.val();

        self.was_valid.d.next = self.valid.val();
        self.was_ready.d.next = self.ready.val();
        self.is_held.d.next = self.hold.val();
        self.moved.next = self.was_valid.q.val() & self.was_ready.q.val();
        self.beats.pulses.next = self.moved.val();
        self.stalls.pulses.next = self.was_valid.q.val() ^ self.moved.val();
        self.count.d.next = self.count.q.val() + 1;
        if self.is_held.q.val() {
            self.beats.pulses.next = 0.into();
            self.stalls.pulses.next = 0.into();
            self.count.d.next = self.count.q.val();
        }
        self.clocks.next = self.count.q.val();

        self.cleared.next = self.beats.ready.val() & self.stalls.ready.val();
        self.beats.read_address.next = self.read_address.val().get_bits::<5>(0);
        self.stalls.read_address.next = self.read_address.val().get_bits::<5>(0);
        self.value.d.next = self.beats.read_data.val();
        if self.read_address.val().get_bit(5) {
            self.value.d.next = self.stalls.read_data.val();
        }
        if !self.cleared.val() {
            self.value.d.next = 0.into();
        }
        self.read_value.next = self.value.q.val();

        if self.reset.val() {
            self.was_valid.d.next = 0.into();
            self.count.d.next = 0.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Stalls};

    const ALL: u64 = (1 << STAGES) - 1;
    /// Clocks until a beat is in its sum.
    const SETTLED: usize = 33;

    /// What the block should have counted.
    struct Model {
        beats: [u64; STAGES],
        stalls: [u64; STAGES],
        clocks: u64,
    }

    impl Model {
        /// Returns what stands after a reset: its last clock is counted, its streams are not.
        fn new() -> Self {
            Self { beats: [0; STAGES], stalls: [0; STAGES], clocks: 1 }
        }
    }

    struct Run {
        bench: Bench<StageCounters>,
        model: Model,
    }

    impl Run {
        fn new(name: &str) -> Self {
            Self { bench: Bench::new(name, StageCounters::default(), |uut| &mut uut.clock), model: Model::new() }
        }

        fn clock(&mut self, valid: u64, ready: u64, hold: bool) {
            let uut = &mut self.bench.uut;
            (uut.valid.next, uut.ready.next, uut.hold.next) = (valid.into(), ready.into(), hold);
            if !hold {
                self.model.clocks += 1;
                for stage in 0..STAGES {
                    self.model.beats[stage] += valid >> stage & ready >> stage & 1;
                    self.model.stalls[stage] += valid >> stage & !ready >> stage & 1;
                }
            }
            self.bench.edge();
        }

        /// Returns what a read gives one clock after its address, and sees that it does not give it before.
        fn read(&mut self, address: usize) -> u64 {
            self.bench.settle();
            let before = self.bench.uut.read_value.val();
            self.bench.uut.read_address.next = (address as u64).into();
            self.bench.settle();
            assert_eq!(self.bench.uut.read_value.val(), before, "an answer in the clock of its address");
            self.clock(0, 0, true);
            self.bench.uut.read_value.val().to_u64()
        }

        /// Holds the counting, with streams that go on, until the sums are current, and compares.
        fn check(&mut self, what: &str) {
            for _ in 0..SETTLED {
                self.clock(ALL, ALL ^ 0x155, true);
            }
            assert_eq!(self.bench.uut.clocks.val().to_u64(), self.model.clocks, "{what}: clocks");
            for stage in 0..32 {
                let beats = self.model.beats.get(stage).copied().unwrap_or(0);
                let stalls = self.model.stalls.get(stage).copied().unwrap_or(0);
                assert_eq!(self.read(stage), beats, "{what}: beats of stage {stage}");
                assert_eq!(self.read(32 + stage), stalls, "{what}: stalls of stage {stage}");
                assert!(beats + stalls <= self.model.clocks);
            }
        }
    }

    #[test]
    fn beats_and_stalls_of_random_streams_are_counted_one_by_one() {
        let mut run = Run::new("stages");
        let mut random = Stalls::new(77);
        let mut hold = Stalls::new(78);
        for clock in 0..900 {
            // First all stages in each clock, so that what collects between two turns is filled as far as it can be.
            let (valid, ready) = match clock {
                0..120 => (ALL, ALL),
                120..240 => (ALL, 0),
                _ => (random.random() & ALL, random.random() & ALL),
            };
            run.clock(valid, ready, clock > 300 && !hold.go());
        }
        run.check("after random streams");
        // Let go again: the counting continues where it stood.
        for _ in 0..50 {
            run.clock(random.random() & ALL, random.random() & ALL, false);
        }
        run.check("after another part");
        run.bench.finish();
    }

    #[test]
    fn a_reset_in_the_middle_leaves_no_count_and_none_is_lost_after_it() {
        let mut run = Run::new("stages_reset");
        for _ in 0..100 {
            run.clock(ALL, 0x2AAA_AAAA, false);
        }
        run.bench.uut.reset.next = true;
        run.bench.edge();
        run.bench.uut.reset.next = false;
        run.model = Model::new();
        // Stage 3 moves and stage 4 stalls from the first clock on.
        for clock in 0..32 {
            run.bench.settle();
            assert!(!run.bench.uut.cleared.val(), "{clock} clocks after the reset");
            run.bench.uut.read_address.next = (32 + 4u64).into();
            assert!(clock == 0 || run.bench.uut.read_value.val() == 0u64, "a sum is read before it is cleared");
            run.clock(0x18, 0x08, false);
        }
        assert!(run.bench.uut.cleared.val());
        run.check("after the reset");
        assert_eq!((run.model.beats[3], run.model.stalls[4]), (32, 32));
        run.bench.finish();
    }

    #[test]
    fn a_count_is_in_its_sum_after_33_clocks() {
        let mut run = Run::new("stages_latency");
        run.bench.cycles(32);
        let stage = STAGES - 1;
        // Two turns and a clock apart, so that every place in a turn is met.
        for start in 0..STAGES as u64 {
            run.clock(1 << stage, 0, false);
            for _ in 1..SETTLED {
                run.clock(0, 0, false);
            }
            assert_eq!(run.read(32 + stage), start + 1, "stall {start}");
            run.bench.cycles(2 * STAGES - SETTLED);
        }
        run.bench.finish();
    }
}
