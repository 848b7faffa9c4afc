//! Moves the payload of packets from one byte of a line to another.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `job` | sink | a packet to come: where its payload begins, where it shall begin, how long it is |
//! | `fill` | sink | its lines, `ceil((from + len) / 64)`; their `last` is not looked at |
//! | `drain` | source | the lines moved, `ceil((to + len) / 64)`, `last` on the last; bytes outside the payload are 0 |
//!
//! Latency: seven clocks from a job and its first line, offered together, to the first line out, if
//! the second line follows at once where its bytes are needed.
//! Throughput: a line every clock at the end that has more, back to back over packets of any jobs.
//! A packet's last line does not wait for the next packet.
//!
//! Lines go through [`Rotate`], which can't stop; so no more enter than the FIFO behind it has room
//! for. There the output takes bytes below the rotation's amount from one line and the others from
//! the line before or behind: `primary` holds the line under way, `previous` the one before, and the
//! FIFO offers the one behind. Payload that moves up (or stays) combines `previous` and `primary`
//! and may have one line more at its end; payload that moves down combines `primary` and the FIFO's,
//! and may have one line less.

use rust_hdl::prelude::*;

use super::{pack, Fifo, Rotate};
use crate::bus::{Line, StreamSink, StreamSource};

/// A packet to move.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ShiftJob {
    /// Byte of the first input line at which the payload begins.
    pub from: Bits<6>,
    /// Byte of the first output line at which it shall begin.
    pub to: Bits<6>,
    /// Bytes, 1 to 4096.
    pub len: Bits<13>,
}

/// What the input needs of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct InPlan {
    amount: Bits<6>,
    lines: Bits<7>,
}

/// What the output needs of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct OutPlan {
    is_down: Bit,
    amount: Bits<6>,
    begin: Bits<6>,
    // Byte behind the last, in the last line; 0: that line is full.
    finish: Bits<6>,
    in_lines: Bits<7>,
    out_lines: Bits<7>,
}

/// Rotate and merge.
#[derive(LogicBlock)]
pub struct Shifter {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub job: StreamSink<ShiftJob>,
    pub fill: StreamSink<Line>,
    pub drain: StreamSource<Line>,

    in_plans: Fifo<InPlan, 2, 3>,
    out_plans: Fifo<OutPlan, 3, 4>,
    rotate: Rotate,
    rotated: Fifo<Bits<512>, 3, 4>,
    out: Fifo<Line, 2, 3>,

    // Input side.
    job_len: Signal<Local, Bits<13>>,
    job_from: Signal<Local, Bits<13>>,
    job_to: Signal<Local, Bits<13>>,
    in_end: Signal<Local, Bits<13>>,
    out_end: Signal<Local, Bits<13>>,
    in_round: Signal<Local, Bits<13>>,
    out_round: Signal<Local, Bits<13>>,
    accepts_job: Signal<Local, Bit>,
    in_index: DFF<Bits<7>>,
    in_next: Signal<Local, Bits<7>>,
    // Lines in `rotate` and `rotated`.
    entered: DFF<Bits<4>>,
    enters: Signal<Local, Bit>,
    in_pipe: DFF<Bits<2>>,

    // Output side.
    previous: DFF<Bits<512>>,
    primary: DFF<Bits<512>>,
    has_primary: DFF<Bit>,
    out_index: DFF<Bits<7>>,
    out_next: Signal<Local, Bits<7>>,
    at_in_end: Signal<Local, Bit>,
    at_out_end: Signal<Local, Bit>,
    is_extra: Signal<Local, Bit>,
    needs_next: Signal<Local, Bit>,
    steps: Signal<Local, Bit>,
    emits: Signal<Local, Bit>,
    advances: Signal<Local, Bit>,
    is_done: Signal<Local, Bit>,
    loads: Signal<Local, Bit>,
    amount_bits: Signal<Local, Bits<9>>,
    begin_bits: Signal<Local, Bits<9>>,
    finish_bits: Signal<Local, Bits<9>>,
    above_begin: Signal<Local, Bits<512>>,
    below_end: Signal<Local, Bits<512>>,
    upper: Signal<Local, Bits<512>>,
    low: DFF<Bits<512>>,
    high: DFF<Bits<512>>,
    low_mask: DFF<Bits<512>>,
    high_mask: DFF<Bits<512>>,
    merges: DFF<Bit>,
    merges_last: DFF<Bit>,
    can_merge: Signal<Local, Bit>,

    ones: Constant<Bits<512>>,
    round_up: Constant<Bits<13>>,
    room: Constant<Bits<4>>,
}

impl Default for Shifter {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            job: Default::default(),
            fill: Default::default(),
            drain: Default::default(),
            in_plans: Default::default(),
            out_plans: Default::default(),
            rotate: Default::default(),
            rotated: Default::default(),
            out: Default::default(),
            job_len: Default::default(),
            job_from: Default::default(),
            job_to: Default::default(),
            in_end: Default::default(),
            out_end: Default::default(),
            in_round: Default::default(),
            out_round: Default::default(),
            accepts_job: Default::default(),
            in_index: Default::default(),
            in_next: Default::default(),
            entered: Default::default(),
            enters: Default::default(),
            in_pipe: Default::default(),
            previous: Default::default(),
            primary: Default::default(),
            has_primary: Default::default(),
            out_index: Default::default(),
            out_next: Default::default(),
            at_in_end: Default::default(),
            at_out_end: Default::default(),
            is_extra: Default::default(),
            needs_next: Default::default(),
            steps: Default::default(),
            emits: Default::default(),
            advances: Default::default(),
            is_done: Default::default(),
            loads: Default::default(),
            amount_bits: Default::default(),
            begin_bits: Default::default(),
            finish_bits: Default::default(),
            above_begin: Default::default(),
            below_end: Default::default(),
            upper: Default::default(),
            low: Default::default(),
            high: Default::default(),
            low_mask: Default::default(),
            high_mask: Default::default(),
            merges: Default::default(),
            merges_last: Default::default(),
            can_merge: Default::default(),
            ones: Constant::new(pack(&[0xFF; 64])),
            round_up: Constant::new(63u64.to_bits()),
            room: Constant::new(8u64.to_bits()),
        }
    }
}

impl Logic for Shifter {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, in_index, entered, in_pipe, previous, primary, has_primary, out_index);
        dff_setup!(self, clock, low, high, low_mask, high_mask, merges, merges_last);
        clock!(self, clock, in_plans, out_plans, rotate, rotated, out);
        self.in_plans.reset.next = self.reset.val();
        self.out_plans.reset.next = self.reset.val();
        self.rotated.reset.next = self.reset.val();
        self.out.reset.next = self.reset.val();

        // Jobs: a plan for each side.
        self.job_len.next = self.job.data.val().len;
        self.job_from.next = bit_cast::<13, 6>(self.job.data.val().from);
        self.job_to.next = bit_cast::<13, 6>(self.job.data.val().to);
        self.in_end.next = self.job_from.val() + self.job_len.val();
        self.out_end.next = self.job_to.val() + self.job_len.val();
        self.in_round.next = self.in_end.val() + self.round_up.val();
        self.out_round.next = self.out_end.val() + self.round_up.val();
        self.accepts_job.next = self.in_plans.fill.ready.val() & self.out_plans.fill.ready.val();
        self.job.ready.next = self.in_plans.fill.ready.val() & self.out_plans.fill.ready.val();
        self.in_plans.fill.valid.next = self.job.valid.val() & self.accepts_job.val();
        self.in_plans.fill.data.next.amount = self.job.data.val().to - self.job.data.val().from;
        self.in_plans.fill.data.next.lines = self.in_round.val().get_bits::<7>(6);
        self.out_plans.fill.valid.next = self.job.valid.val() & self.accepts_job.val();
        self.out_plans.fill.data.next.is_down = self.job.data.val().to < self.job.data.val().from;
        self.out_plans.fill.data.next.amount = self.job.data.val().to - self.job.data.val().from;
        self.out_plans.fill.data.next.begin = self.job.data.val().to;
        self.out_plans.fill.data.next.finish = self.out_end.val().get_bits::<6>(0);
        self.out_plans.fill.data.next.in_lines = self.in_round.val().get_bits::<7>(6);
        self.out_plans.fill.data.next.out_lines = self.out_round.val().get_bits::<7>(6);

        // Lines into the rotation.
        self.fill.ready.next = self.in_plans.drain.valid.val() & (self.entered.q.val() != self.room.val());
        self.enters.next = self.fill.valid.val() & self.in_plans.drain.valid.val() & (self.entered.q.val() != self.room.val());
        self.in_next.next = self.in_index.q.val() + 1;
        self.in_plans.drain.ready.next = false;
        if self.enters.val() {
            self.in_index.d.next = self.in_next.val();
            if self.in_next.val() == self.in_plans.drain.data.val().lines {
                self.in_index.d.next = 0.into();
                self.in_plans.drain.ready.next = true;
            }
        }
        self.rotate.data.next = self.fill.data.val().data;
        self.rotate.amount.next = self.in_plans.drain.data.val().amount;
        self.in_pipe.d.next = (self.in_pipe.q.val() << 1) | bit_cast::<2, 1>(self.enters.val().into());
        self.rotated.fill.data.next = self.rotate.result.val();
        self.rotated.fill.valid.next = self.in_pipe.q.val().get_bit(1);

        // One output line, or one input line that gives none, a step.
        self.can_merge.next = !self.merges.q.val() | self.out.fill.ready.val();
        self.out_next.next = self.out_index.q.val() + 1;
        self.at_in_end.next = self.out_next.val() == self.out_plans.drain.data.val().in_lines;
        self.at_out_end.next = self.out_next.val() == self.out_plans.drain.data.val().out_lines;
        self.is_extra.next = self.out_index.q.val() == self.out_plans.drain.data.val().in_lines;
        self.needs_next.next = self.out_plans.drain.data.val().is_down & !self.at_in_end.val();
        self.steps.next = self.out_plans.drain.valid.val()
            & self.has_primary.q.val()
            & self.can_merge.val()
            & (!self.needs_next.val() | self.rotated.drain.valid.val());
        self.emits.next = !(self.out_plans.drain.data.val().is_down & self.at_in_end.val() & !self.at_out_end.val());
        self.advances.next = self.out_plans.drain.data.val().is_down | !self.at_in_end.val() | self.at_out_end.val();
        self.is_done.next =
            self.is_extra.val() | (self.at_in_end.val() & (self.out_plans.drain.data.val().is_down | self.at_out_end.val()));

        self.loads.next = !self.has_primary.q.val() | (self.steps.val() & self.advances.val());
        self.rotated.drain.ready.next = self.loads.val();
        if self.steps.val() & self.advances.val() {
            self.previous.d.next = self.primary.q.val();
        }
        if self.loads.val() {
            self.primary.d.next = self.rotated.drain.data.val();
            self.has_primary.d.next = self.rotated.drain.valid.val();
        }
        if self.enters.val() & !(self.loads.val() & self.rotated.drain.valid.val()) {
            self.entered.d.next = self.entered.q.val() + 1;
        }
        if !self.enters.val() & (self.loads.val() & self.rotated.drain.valid.val()) {
            self.entered.d.next = self.entered.q.val() - 1;
        }

        // Masks of the step: the bytes of the payload, and those from the amount on.
        self.amount_bits.next = bit_cast::<9, 6>(self.out_plans.drain.data.val().amount) << 3;
        self.begin_bits.next = bit_cast::<9, 6>(self.out_plans.drain.data.val().begin) << 3;
        self.finish_bits.next = bit_cast::<9, 6>(self.out_plans.drain.data.val().finish) << 3;
        self.upper.next = self.ones.val() << self.amount_bits.val();
        self.above_begin.next = self.ones.val();
        self.below_end.next = self.ones.val();
        if self.out_index.q.val() == 0 {
            self.above_begin.next = self.ones.val() << self.begin_bits.val();
        }
        if self.at_out_end.val() & (self.out_plans.drain.data.val().finish != 0) {
            self.below_end.next = (self.ones.val() << self.finish_bits.val()) ^ self.ones.val();
        }
        self.out_plans.drain.ready.next = false;
        if self.can_merge.val() {
            self.merges.d.next = self.steps.val() & self.emits.val();
            self.merges_last.d.next = self.at_out_end.val();
            self.low_mask.d.next = self.above_begin.val() & self.below_end.val() & (self.upper.val() ^ self.ones.val());
            self.high_mask.d.next = self.above_begin.val() & self.below_end.val() & self.upper.val();
            self.low.d.next = self.previous.q.val();
            self.high.d.next = self.primary.q.val();
            if self.out_plans.drain.data.val().is_down | self.is_extra.val() {
                self.low.d.next = self.primary.q.val();
            }
            if self.out_plans.drain.data.val().is_down {
                self.high.d.next = self.rotated.drain.data.val();
            }
        }
        if self.steps.val() {
            self.out_index.d.next = self.out_next.val();
            if self.is_done.val() {
                self.out_index.d.next = 0.into();
                self.out_plans.drain.ready.next = true;
            }
        }

        self.out.fill.data.next.data = (self.low.q.val() & self.low_mask.q.val()) | (self.high.q.val() & self.high_mask.q.val());
        self.out.fill.data.next.last = self.merges_last.q.val();
        self.out.fill.valid.next = self.merges.q.val();
        self.drain.data.next = self.out.drain.data.val();
        self.drain.valid.next = self.out.drain.valid.val();
        self.out.drain.ready.next = self.drain.ready.val();

        if self.reset.val() {
            self.in_index.d.next = 0.into();
            self.entered.d.next = 0.into();
            self.in_pipe.d.next = 0.into();
            self.has_primary.d.next = false;
            self.out_index.d.next = 0.into();
            self.merges.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    /// A packet: job, input lines and the output lines that must come.
    struct Case {
        job: ShiftJob,
        fill: Vec<Line>,
        drain: Vec<Line>,
    }

    fn lines(bytes: &[u8]) -> Vec<Line> {
        let count = bytes.len() / 64;
        bytes.chunks(64).enumerate().map(|(i, chunk)| Line { data: pack(chunk), last: i + 1 == count }).collect()
    }

    fn case(random: &mut Stalls, from: usize, to: usize, len: usize) -> Case {
        let job = ShiftJob { from: from.to_bits(), to: to.to_bits(), len: len.to_bits() };
        // Around the payload lie bytes that must not come out.
        let mut input: Vec<u8> = (0..(from + len).div_ceil(64) * 64).map(|_| random.random() as u8 | 1).collect();
        let mut output = vec![0; (to + len).div_ceil(64) * 64];
        for i in 0..len {
            input[from + i] = random.random() as u8;
            output[to + i] = input[from + i];
        }
        Case { job, fill: lines(&input), drain: lines(&output) }
    }

    /// Runs the cases back to back; returns the clocks until the last line came out.
    fn run(bench: &mut Bench<Shifter>, cases: &[Case], mut stalls: impl FnMut() -> Stalls) -> u64 {
        let begin = bench.clock_count();
        let mut jobs = Driver::new(cases.iter().map(|case| case.job), stalls());
        let mut fill = Driver::new(cases.iter().flat_map(|case| case.fill.clone()), stalls());
        let mut drain = Monitor::new(stalls());
        let expected: Vec<Line> = cases.iter().flat_map(|case| case.drain.clone()).collect();
        while drain.got.len() < expected.len() {
            jobs.before(&mut bench.uut.job);
            fill.before(&mut bench.uut.fill);
            drain.before(&mut bench.uut.drain);
            bench.settle();
            jobs.after(&bench.uut.job);
            fill.after(&bench.uut.fill);
            drain.after(&bench.uut.drain);
            let index = drain.got.len();
            assert!(index == 0 || drain.got[index - 1] == expected[index - 1], "line {} differs", index - 1);
            bench.edge();
            assert!(bench.clock_count() - begin < 20 * expected.len() as u64 + 400, "the shifter hangs");
        }
        assert!(jobs.is_done() && fill.is_done());
        bench.uut.job.valid.next = false;
        bench.uut.fill.valid.next = false;
        bench.clock_count() - begin
    }

    fn bench(name: &str) -> Bench<Shifter> {
        Bench::new(name, Shifter::default(), |uut| &mut uut.clock)
    }

    #[test]
    fn payload_moves_from_any_byte_to_any_byte_under_random_stalls() {
        let mut random = Stalls::new(31);
        let mut cases: Vec<Case> = (0..160)
            .map(|_| {
                let (from, to) = (random.random() as usize % 64, random.random() as usize % 64);
                let len = 1 + random.random() as usize % 200;
                case(&mut random, from, to, len)
            })
            .collect();
        // The borders of lines, at both ends.
        for (from, to, len) in [
            (0, 0, 64),
            (0, 0, 1),
            (63, 0, 1),
            (0, 63, 1),
            (63, 0, 2),
            (0, 63, 2),
            (63, 62, 65),
            (62, 63, 66),
            (0, 63, 4096),
            (63, 0, 4096),
        ] {
            cases.push(case(&mut random, from, to, len));
        }
        let mut bench = bench("shifter");
        let mut seed = 100;
        run(&mut bench, &cases, || {
            seed += 1;
            Stalls::new(seed)
        });
        bench.finish();
    }

    #[test]
    fn a_packet_takes_no_more_clocks_than_its_lines_at_the_end_that_has_more() {
        let mut random = Stalls::new(32);
        let cases: Vec<Case> = (0..150)
            .map(|_| {
                let (from, to) = (random.random() as usize % 64, random.random() as usize % 64);
                let len = 1 + random.random() as usize % 128;
                case(&mut random, from, to, len)
            })
            .collect();
        let clocks: usize = cases.iter().map(|case| case.fill.len().max(case.drain.len())).sum();
        let mut bench = bench("shifter_rate");
        let taken = run(&mut bench, &cases, Stalls::none);
        assert!(taken <= clocks as u64 + 8, "{taken} clocks for {clocks}");
        bench.finish();
    }

    #[test]
    fn a_line_takes_seven_clocks_also_if_it_takes_bytes_of_the_next() {
        let mut random = Stalls::new(33);
        for (from, to, len) in [(0, 0, 20), (10, 0, 20), (0, 10, 20), (60, 5, 20)] {
            let cases = [case(&mut random, from, to, len)];
            let mut bench = bench("shifter_latency");
            assert_eq!(run(&mut bench, &cases, Stalls::none), 8);
        }
    }

    #[test]
    fn a_reset_in_the_middle_leaves_nothing_behind() {
        let mut random = Stalls::new(34);
        let mut bench = bench("shifter_reset");
        for round in 0..4 {
            let begun = case(&mut random, 5, 60, 300);
            bench.uut.job.data.next = begun.job;
            bench.uut.job.valid.next = true;
            bench.uut.fill.data.next = begun.fill[0];
            bench.uut.fill.valid.next = true;
            bench.cycles(3 + 2 * round);
            bench.uut.job.valid.next = false;
            bench.uut.fill.valid.next = false;
            bench.uut.reset.next = true;
            bench.edge();
            bench.uut.reset.next = false;
            let after = [case(&mut random, 60, 5, 100), case(&mut random, 3, 9, 200)];
            run(&mut bench, &after, Stalls::none);
        }
        bench.finish();
    }
}
