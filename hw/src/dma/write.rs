//! Writes host memory, at any byte address, in order.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `req` | sink | address and length in bytes, 1 to 4096 |
//! | `line` | sink | each aligned line that the requests touch, in order |
//! | `aw` | source | bursts of 1 to 64 lines inside one 4 KiB page, all with ID 0 |
//! | `w` | source | lines with strobes for the bytes of the request |
//! | `b` | sink | one response for each burst; always taken |
//! | `done` | out | high for one clock for each request, in order, when its last response is in |
//! | `error` | out | a pulse for each response that is not OKAY |
//!
//! Latency: three clocks from an accepted request to `aw.valid` and to `line.ready`, one from a line
//! to `w.valid`; `done` comes with the last response. Throughput: one line every clock, across
//! requests; one request every clock while each is one burst. In flight at most: 128 bursts.
//!
//! Addresses and data leave through separate FIFOs. Neither waits for the other, so it does not
//! matter which one the host takes first. Of addresses, up to 16 go ahead of their data.
//! The number of lines comes from the request; `last` of a line is not looked at. A request whose
//! response is bad is done like any other. A response without a burst is not possible on AXI and
//! does nothing.

use rust_hdl::prelude::*;

use super::axi::{AxiAw, AxiB, AxiW, Burst};
use super::Split;
use crate::bus::{Line, StreamSink, StreamSource, WriteReq};
use crate::prim::Fifo;

/// How the lines of a burst are strobed.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Run {
    beats: Bits<7>,
    first_strb: Bits<64>,
    last_strb: Bits<64>,
}

/// The write engine.
#[derive(LogicBlock)]
pub struct WriteEngine {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub req: StreamSink<WriteReq>,
    pub line: StreamSink<Line>,
    pub aw: StreamSource<AxiAw>,
    pub w: StreamSource<AxiW>,
    pub b: StreamSink<AxiB>,
    pub done: Signal<Out, Bit>,
    pub error: Signal<Out, Bit>,

    split: Split<6>,
    aws: Fifo<AxiAw, 4, 5>,
    runs: Fifo<Run, 4, 5>,
    ws: Fifo<AxiW, 1, 2>,
    /// For each burst without a response: is it the last one of its request?
    pending: Fifo<Bit, 7, 8>,
    beat: DFF<Bits<7>>,
    is_bad: DFF<Bit>,

    burst: Signal<Local, Burst>,
    burst_line: Signal<Local, Bits<58>>,
    burst_beats: Signal<Local, Bits<7>>,
    burst_head: Signal<Local, Bits<6>>,
    burst_tail: Signal<Local, Bits<6>>,
    byte_addr: Signal<Local, Bits<64>>,
    less_one: Signal<Local, Bits<7>>,
    first_strb: Signal<Local, Bits<64>>,
    behind: Signal<Local, Bits<64>>,
    last_strb: Signal<Local, Bits<64>>,
    is_open: Signal<Local, Bit>,
    push: Signal<Local, Bit>,
    run: Signal<Local, Run>,
    run_beats: Signal<Local, Bits<7>>,
    beat_after: Signal<Local, Bits<7>>,
    is_last: Signal<Local, Bit>,
    move_line: Signal<Local, Bit>,
    front_mask: Signal<Local, Bits<64>>,
    back_mask: Signal<Local, Bits<64>>,
    strb: Signal<Local, Bits<64>>,
    all: Constant<Bits<64>>,
}

impl Default for WriteEngine {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            req: Default::default(),
            line: Default::default(),
            aw: Default::default(),
            w: Default::default(),
            b: Default::default(),
            done: Default::default(),
            error: Default::default(),
            split: Default::default(),
            aws: Default::default(),
            runs: Default::default(),
            ws: Default::default(),
            pending: Default::default(),
            beat: Default::default(),
            is_bad: Default::default(),
            burst: Default::default(),
            burst_line: Default::default(),
            burst_beats: Default::default(),
            burst_head: Default::default(),
            burst_tail: Default::default(),
            byte_addr: Default::default(),
            less_one: Default::default(),
            first_strb: Default::default(),
            behind: Default::default(),
            last_strb: Default::default(),
            is_open: Default::default(),
            push: Default::default(),
            run: Default::default(),
            run_beats: Default::default(),
            beat_after: Default::default(),
            is_last: Default::default(),
            move_line: Default::default(),
            front_mask: Default::default(),
            back_mask: Default::default(),
            strb: Default::default(),
            all: Constant::new(u64::MAX.to_bits()),
        }
    }
}

impl Logic for WriteEngine {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, beat, is_bad);
        clock!(self, clock, split, aws, runs, ws, pending);
        self.split.reset.next = self.reset.val();
        self.aws.reset.next = self.reset.val();
        self.runs.reset.next = self.reset.val();
        self.ws.reset.next = self.reset.val();
        self.pending.reset.next = self.reset.val();
        StreamSource::<AxiAw>::link(&mut self.aw, &mut self.aws.drain);
        StreamSource::<AxiW>::link(&mut self.w, &mut self.ws.drain);

        self.split.span.data.next.addr = self.req.data.val().addr;
        self.split.span.data.next.len = self.req.data.val().len;
        self.split.span.valid.next = self.req.valid.val();
        self.req.ready.next = self.split.span.ready.val();

        // A burst goes to its three followers at once: address, strobes, response.
        self.burst.next = self.split.burst.data.val();
        self.burst_line.next = self.burst.val().line;
        self.burst_beats.next = self.burst.val().beats;
        self.burst_head.next = self.burst.val().head;
        self.burst_tail.next = self.burst.val().tail;
        self.is_open.next = self.aws.fill.ready.val() & self.runs.fill.ready.val() & self.pending.fill.ready.val();
        self.push.next = self.split.burst.valid.val() & self.is_open.val();
        self.split.burst.ready.next = self.is_open.val();
        self.byte_addr.next = bit_cast::<64, 58>(self.burst_line.val()) << 6;
        self.less_one.next = self.burst_beats.val() - 1;
        self.aws.fill.valid.next = self.push.val();
        self.aws.fill.data.next.id = 0.into();
        self.aws.fill.data.next.addr = self.byte_addr.val();
        self.aws.fill.data.next.len = bit_cast::<8, 7>(self.less_one.val());
        self.first_strb.next = self.all.val() << self.burst_head.val();
        self.behind.next = self.all.val() << self.burst_tail.val();
        self.last_strb.next = self.all.val();
        if self.burst_tail.val() != 0 {
            self.last_strb.next = self.all.val() ^ self.behind.val();
        }
        self.runs.fill.valid.next = self.push.val();
        self.runs.fill.data.next.beats = self.burst_beats.val();
        self.runs.fill.data.next.first_strb = self.first_strb.val();
        self.runs.fill.data.next.last_strb = self.last_strb.val();
        self.pending.fill.valid.next = self.push.val();
        self.pending.fill.data.next = self.burst.val().last;

        // Lines take the strobes of the oldest burst that is not complete.
        self.run.next = self.runs.drain.data.val();
        self.run_beats.next = self.run.val().beats;
        self.beat_after.next = self.beat.q.val() + 1;
        self.is_last.next = self.beat_after.val() == self.run_beats.val();
        self.front_mask.next = self.all.val();
        if self.beat.q.val() == 0 {
            self.front_mask.next = self.run.val().first_strb;
        }
        self.back_mask.next = self.all.val();
        if self.is_last.val() {
            self.back_mask.next = self.run.val().last_strb;
        }
        self.strb.next = self.front_mask.val() & self.back_mask.val();
        self.line.ready.next = self.runs.drain.valid.val() & self.ws.fill.ready.val();
        self.move_line.next = self.line.valid.val() & self.runs.drain.valid.val() & self.ws.fill.ready.val();
        self.ws.fill.valid.next = self.move_line.val();
        self.ws.fill.data.next.data = self.line.data.val().data;
        self.ws.fill.data.next.strb = self.strb.val();
        self.ws.fill.data.next.last = self.is_last.val();
        self.runs.drain.ready.next = self.move_line.val() & self.is_last.val();
        if self.move_line.val() {
            self.beat.d.next = self.beat_after.val();
            if self.is_last.val() {
                self.beat.d.next = 0.into();
            }
        }

        self.b.ready.next = true;
        self.pending.drain.ready.next = self.b.valid.val();
        self.done.next = self.b.valid.val() & self.pending.drain.valid.val() & self.pending.drain.data.val();
        self.is_bad.d.next = self.b.valid.val() & (self.b.data.val().resp != 0);
        self.error.next = self.is_bad.q.val();

        if self.reset.val() {
            self.beat.d.next = 0.into();
            self.is_bad.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::testing::{sample_ranges, writes, Accept, Memory, WriteHost};
    use crate::testing::{Bench, Driver, Stalls};

    /// The engine, its client and its host.
    struct Setup {
        bench: Bench<WriteEngine>,
        requests: Driver<WriteReq>,
        lines: Driver<Line>,
        host: WriteHost,
        memory: Memory,
        /// Bursts up to and with each request.
        bursts: Vec<usize>,
        done: usize,
        errors: usize,
    }

    impl Setup {
        fn new(name: &str, ranges: &[(u64, u64)], host: WriteHost, stalls: [Stalls; 2]) -> Self {
            let (requests, lines, memory) = writes(ranges, 77);
            let [request_stalls, line_stalls] = stalls;
            let mut bursts = vec![];
            for (addr, len) in ranges {
                let pages = 1 + (addr + len - 1) / 4096 - addr / 4096;
                bursts.push(pages as usize + bursts.last().unwrap_or(&0));
            }
            Self {
                bench: Bench::new(name, WriteEngine::default(), |uut| &mut uut.clock),
                requests: Driver::new(requests, request_stalls),
                lines: Driver::new(lines, line_stalls),
                host,
                memory,
                bursts,
                done: 0,
                errors: 0,
            }
        }

        fn step(&mut self) {
            let uut = &mut self.bench.uut;
            self.requests.before(&mut uut.req);
            self.lines.before(&mut uut.line);
            self.host.before(&mut uut.aw, &mut uut.w, &mut uut.b);
            self.bench.settle();
            let uut = &self.bench.uut;
            self.errors += usize::from(uut.error.val());
            self.requests.after(&uut.req);
            self.lines.after(&uut.line);
            self.host.after(&uut.aw, &uut.w, &uut.b);
            if uut.done.val() {
                assert!(self.host.responded.0 >= self.bursts[self.done], "done before the response of the last burst");
                self.done += 1;
            }
            self.bench.edge();
        }

        fn run_until_done(&mut self, limit: u64) {
            while self.done < self.bursts.len() {
                self.step();
                assert!(self.bench.clock_count() < limit, "{} of {} requests are done", self.done, self.bursts.len());
            }
            // The pulse for a bad response comes a clock later.
            self.step();
        }

        fn check(self) {
            assert!(self.lines.is_done() && self.host.is_idle(), "something is left over");
            assert!(self.host.memory == self.memory, "memory differs");
            self.bench.finish();
        }
    }

    #[test]
    fn memory_is_right_whichever_channel_the_host_takes_first() {
        for (seed, accept) in [(71, Accept::Any), (72, Accept::AddressFirst), (73, Accept::DataFirst)] {
            let ranges = sample_ranges(seed, 110, 700);
            let host = WriteHost::new(30, accept, seed);
            let mut setup = Setup::new(&format!("write_{seed}"), &ranges, host, [Stalls::new(seed + 1), Stalls::new(seed + 2)]);
            setup.run_until_done(8_000);
            assert_eq!(setup.errors, 0);
            setup.check();
        }
    }

    #[test]
    fn the_longest_requests_and_those_around_a_page_border_are_cut_there() {
        let mut ranges = vec![(0, 4096), (0x1_0001, 4096), (0x2_003F, 4096), (0x3_0FFF, 4096)];
        ranges.extend((1..70).step_by(9).map(|n| (0x10_1000 + 0x1_0000 * n - n, 2 * n)));
        ranges.extend((0..64).step_by(7).map(|n| (0x100_0000 + 0x1000 * n + n, 1 + n)));
        let mut setup = Setup::new("write_long", &ranges, WriteHost::new(3, Accept::Any, 81), [Stalls::none(), Stalls::none()]);
        setup.run_until_done(4_000);
        setup.check();
    }

    #[test]
    fn a_line_goes_out_every_clock_across_requests() {
        let ranges: Vec<_> = (0..12).map(|i| (0x10_0000 + i * 4096, 4096)).collect();
        let mut setup = Setup::new("write_rate_large", &ranges, WriteHost::new(200, Accept::Any, 0), [Stalls::none(), Stalls::none()]);
        setup.run_until_done(4_000);
        assert!(setup.bench.clock_count() <= 12 * 64 + 200 + 10, "{} clocks", setup.bench.clock_count());
        setup.check();
    }

    #[test]
    fn a_small_request_goes_out_every_clock() {
        let ranges: Vec<_> = (0..400).map(|i| (0x10_0000 + i * 64 + i % 32, 32)).collect();
        let mut setup = Setup::new("write_rate_small", &ranges, WriteHost::new(100, Accept::Any, 0), [Stalls::none(), Stalls::none()]);
        setup.run_until_done(4_000);
        assert!(setup.bench.clock_count() <= 400 + 100 + 10, "{} clocks", setup.bench.clock_count());
        setup.check();
    }

    #[test]
    fn with_128_bursts_in_flight_the_next_one_waits() {
        let ranges: Vec<_> = (0..200).map(|i| (0x10_0000 + i * 64, 64)).collect();
        let mut setup = Setup::new("write_full", &ranges, WriteHost::new(1, Accept::Any, 0), [Stalls::none(), Stalls::none()]);
        setup.host.is_paused = true;
        for _ in 0..250 {
            setup.step();
        }
        assert_eq!(setup.host.most_in_flight, 128);
        setup.host.is_paused = false;
        setup.run_until_done(2_000);
        setup.check();
    }

    #[test]
    fn a_bad_response_is_reported_and_nothing_hangs() {
        let ranges = sample_ranges(91, 60, 300);
        let mut host = WriteHost::new(10, Accept::Any, 91);
        host.is_bad = |line| line % 3 == 0;
        let mut setup = Setup::new("write_error", &ranges, host, [Stalls::new(92), Stalls::new(93)]);
        setup.run_until_done(4_000);
        assert!(setup.host.responded.1 > 5);
        assert_eq!(setup.errors, setup.host.responded.1);
        setup.check();
    }

    #[test]
    fn a_reset_drops_requests_that_the_host_has_not_seen() {
        let ranges = sample_ranges(95, 40, 300);
        let mut setup = Setup::new("write_reset", &ranges, WriteHost::new(10, Accept::Any, 96), [Stalls::new(97), Stalls::new(98)]);
        setup.bench.uut.req.data.next = WriteReq { addr: 0x66_6000u64.into(), len: 100u64.into() };
        setup.bench.uut.req.valid.next = true;
        setup.bench.uut.line.valid.next = true;
        setup.bench.cycles(20);
        assert!(setup.bench.uut.aw.valid.val() && setup.bench.uut.w.valid.val());
        setup.bench.uut.reset.next = true;
        setup.bench.uut.req.valid.next = false;
        setup.bench.uut.line.valid.next = false;
        setup.bench.cycles(1);
        setup.bench.uut.reset.next = false;
        setup.run_until_done(4_000);
        setup.check();
    }
}
