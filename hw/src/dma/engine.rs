//! The way to host memory: two readers and three writers on one AXI4 port.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `fetch_req`, `fetch_line` | sink, source | reads of work requests; see [`ReadEngine`] |
//! | `payload_req`, `payload_line` | sink, source | reads of payload |
//! | `cqe_req`, `cqe_line`, `cqe_done` | sink, sink, out | writes of completion entries; see [`WriteMux`] |
//! | `event_req`, `event_line`, `event_done` | sink, sink, out | writes of events and progress |
//! | `scatter_req`, `scatter_line`, `scatter_done` | sink, sink, out | writes of payload |
//! | `ar`, `r` | source, sink | AXI4 read channels; bit 7 of the ID is 0 for fetches |
//! | `aw`, `w`, `b` | source, source, sink | AXI4 write channels; the ID is 0 |
//! | `read_error`, `write_error` | out | a pulse for each response that is not OKAY |
//!
//! Latency: three clocks from a read request to `ar.valid`, five from a beat to its line; four from a
//! write request to `aw.valid`, one from the last response of a request to its `done`.
//! Throughput: one line every clock in each direction, shared by the clients.
//!
//! Every AXI output comes from a FIFO; `r.ready` and `b.ready` are always high, since room for
//! what comes back is taken before it is asked for. Writes take effect in the order of the turns in
//! [`WriteMux`], and reads do not wait for them: who must see a write's effect waits for its `done`.

use rust_hdl::prelude::*;

use super::axi::{AxiAr, AxiAw, AxiB, AxiR, AxiW};
use super::{ReadEngine, ReadMux, WriteEngine, WriteMux};
use crate::bus::{Line, ReadReq, StreamSink, StreamSource, WriteReq};

/// The DMA engine.
#[derive(LogicBlock, Default)]
pub struct DmaEngine {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub fetch_req: StreamSink<ReadReq>,
    pub fetch_line: StreamSource<Line>,
    pub payload_req: StreamSink<ReadReq>,
    pub payload_line: StreamSource<Line>,
    pub cqe_req: StreamSink<WriteReq>,
    pub cqe_line: StreamSink<Line>,
    pub cqe_done: Signal<Out, Bit>,
    pub event_req: StreamSink<WriteReq>,
    pub event_line: StreamSink<Line>,
    pub event_done: Signal<Out, Bit>,
    pub scatter_req: StreamSink<WriteReq>,
    pub scatter_line: StreamSink<Line>,
    pub scatter_done: Signal<Out, Bit>,
    pub ar: StreamSource<AxiAr>,
    pub r: StreamSink<AxiR>,
    pub aw: StreamSource<AxiAw>,
    pub w: StreamSource<AxiW>,
    pub b: StreamSink<AxiB>,
    pub read_error: Signal<Out, Bit>,
    pub write_error: Signal<Out, Bit>,

    fetch: ReadEngine,
    payload: ReadEngine,
    read_mux: ReadMux,
    write_mux: WriteMux,
    write: WriteEngine,
}

impl Logic for DmaEngine {
    #[hdl_gen]
    fn update(&mut self) {
        clock!(self, clock, fetch, payload, read_mux, write_mux, write);
        self.fetch.reset.next = self.reset.val();
        self.payload.reset.next = self.reset.val();
        self.read_mux.reset.next = self.reset.val();
        self.write_mux.reset.next = self.reset.val();
        self.write.reset.next = self.reset.val();

        StreamSink::<ReadReq>::link(&mut self.fetch_req, &mut self.fetch.req);
        StreamSource::<Line>::link(&mut self.fetch_line, &mut self.fetch.line);
        StreamSink::<ReadReq>::link(&mut self.payload_req, &mut self.payload.req);
        StreamSource::<Line>::link(&mut self.payload_line, &mut self.payload.line);
        StreamSource::<AxiAr>::join(&mut self.fetch.ar, &mut self.read_mux.ar0);
        StreamSource::<AxiAr>::join(&mut self.payload.ar, &mut self.read_mux.ar1);
        StreamSource::<AxiR>::join(&mut self.read_mux.r0, &mut self.fetch.r);
        StreamSource::<AxiR>::join(&mut self.read_mux.r1, &mut self.payload.r);
        StreamSource::<AxiAr>::link(&mut self.ar, &mut self.read_mux.ar);
        StreamSink::<AxiR>::link(&mut self.r, &mut self.read_mux.r);
        // At most one beat arrives in a clock, so the two never pulse together.
        self.read_error.next = self.fetch.error.val() | self.payload.error.val();

        StreamSink::<WriteReq>::link(&mut self.cqe_req, &mut self.write_mux.req0);
        StreamSink::<Line>::link(&mut self.cqe_line, &mut self.write_mux.line0);
        StreamSink::<WriteReq>::link(&mut self.event_req, &mut self.write_mux.req1);
        StreamSink::<Line>::link(&mut self.event_line, &mut self.write_mux.line1);
        StreamSink::<WriteReq>::link(&mut self.scatter_req, &mut self.write_mux.req2);
        StreamSink::<Line>::link(&mut self.scatter_line, &mut self.write_mux.line2);
        StreamSource::<WriteReq>::join(&mut self.write_mux.req, &mut self.write.req);
        StreamSource::<Line>::join(&mut self.write_mux.line, &mut self.write.line);
        StreamSource::<AxiAw>::link(&mut self.aw, &mut self.write.aw);
        StreamSource::<AxiW>::link(&mut self.w, &mut self.write.w);
        StreamSink::<AxiB>::link(&mut self.b, &mut self.write.b);
        self.write_mux.done.next = self.write.done.val();
        self.cqe_done.next = self.write_mux.done0.val();
        self.event_done.next = self.write_mux.done1.val();
        self.scatter_done.next = self.write_mux.done2.val();
        self.write_error.next = self.write.error.val();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::testing::{are_lines_of, count_lines, sample_ranges, writes, Accept, Memory, Order, ReadHost, WriteHost};
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    fn reads(ranges: &[(u64, u64)]) -> Vec<ReadReq> {
        ranges.iter().map(|&(addr, len)| ReadReq { addr: addr.into(), len: len.into() }).collect()
    }

    /// Reads and writes with all clients at once and returns the clocks it took.
    fn run(name: &str, fetch: &[(u64, u64)], payload: &[(u64, u64)], write: [Vec<(u64, u64)>; 3], seed: u64) -> u64 {
        let stalls = |n| if seed == 0 { Stalls::none() } else { Stalls::new(seed + n) };
        let mut bench = Bench::new(name, DmaEngine::default(), |uut| &mut uut.clock);
        let mut read_host = ReadHost::new(60, if seed == 0 { Order::Issued } else { Order::Shuffled }, seed);
        let mut write_host = WriteHost::new(40, Accept::Any, seed);
        if seed != 0 {
            read_host.is_bad = |line| line % 11 == 0;
            write_host.is_bad = |line| line % 5 == 0;
        }
        let mut errors = (0, 0);
        let mut fetch_req = Driver::new(reads(fetch), stalls(1));
        let mut payload_req = Driver::new(reads(payload), stalls(2));
        let mut fetch_line: Monitor<Line> = Monitor::new(stalls(3));
        let mut payload_line: Monitor<Line> = Monitor::new(stalls(4));
        let mut memory = Memory::default();
        let (mut write_req, mut write_line) = (vec![], vec![]);
        for (ranges, n) in write.iter().zip(10..) {
            let (requests, lines, part) = writes(ranges, n);
            write_req.push(Driver::new(requests, stalls(n)));
            write_line.push(Driver::new(lines, stalls(n + 10)));
            memory.0.extend(part.0);
        }
        let (fetched, paid) = (count_lines(fetch), count_lines(payload));
        let mut done = [0; 3];
        let wanted = write.each_ref().map(Vec::len);
        while fetch_line.got.len() < fetched || payload_line.got.len() < paid || done != wanted {
            let uut = &mut bench.uut;
            fetch_req.before(&mut uut.fetch_req);
            payload_req.before(&mut uut.payload_req);
            fetch_line.before(&mut uut.fetch_line);
            payload_line.before(&mut uut.payload_line);
            write_req[0].before(&mut uut.cqe_req);
            write_req[1].before(&mut uut.event_req);
            write_req[2].before(&mut uut.scatter_req);
            write_line[0].before(&mut uut.cqe_line);
            write_line[1].before(&mut uut.event_line);
            write_line[2].before(&mut uut.scatter_line);
            read_host.before(&mut uut.ar, &mut uut.r);
            write_host.before(&mut uut.aw, &mut uut.w, &mut uut.b);
            bench.settle();
            let uut = &bench.uut;
            fetch_req.after(&uut.fetch_req);
            payload_req.after(&uut.payload_req);
            fetch_line.after(&uut.fetch_line);
            payload_line.after(&uut.payload_line);
            write_req[0].after(&uut.cqe_req);
            write_req[1].after(&uut.event_req);
            write_req[2].after(&uut.scatter_req);
            write_line[0].after(&uut.cqe_line);
            write_line[1].after(&uut.event_line);
            write_line[2].after(&uut.scatter_line);
            read_host.after(&uut.ar, &uut.r);
            write_host.after(&uut.aw, &uut.w, &uut.b);
            errors.0 += u64::from(uut.read_error.val());
            errors.1 += usize::from(uut.write_error.val());
            done[0] += usize::from(uut.cqe_done.val());
            done[1] += usize::from(uut.event_done.val());
            done[2] += usize::from(uut.scatter_done.val());
            bench.edge();
            assert!(
                bench.clock_count() < 4_000,
                "{name}: {} and {} lines read, {done:?} requests written",
                fetch_line.got.len(),
                payload_line.got.len()
            );
        }
        assert!(are_lines_of(&fetch_line.got, fetch) && are_lines_of(&payload_line.got, payload), "lines differ");
        assert!(write_host.memory == memory && write_host.is_idle(), "memory differs");
        assert_eq!(errors, (read_host.bad_beats, write_host.responded.1));
        assert_eq!(errors.0 > 0 && errors.1 > 0, seed != 0);
        let clocks = bench.clock_count();
        bench.finish();
        clocks
    }

    #[test]
    fn all_clients_at_once_get_what_is_theirs_under_random_stalls() {
        let entries = |base: u64, count: u64| (0..count).map(|i| (base + i * 32, 32)).collect::<Vec<_>>();
        let fetch: Vec<_> = (0..40).map(|i| (0x7000_0000 + i * 320, 64 + i % 8 * 64)).collect();
        let write = [entries(0x1000, 60), entries(0x8000, 40), sample_ranges(131, 40, 500)];
        run("dma", &fetch, &sample_ranges(132, 40, 500), write, 133);
    }

    #[test]
    fn reads_and_writes_run_at_one_line_a_clock_each_way() {
        let fetch: Vec<_> = (0..25).map(|i| (0x7000_0000 + i * 512, 512)).collect();
        let payload: Vec<_> = (0..25).map(|i| (0x6000_0000 + i * 512, 512)).collect();
        let write = [(0..50).map(|i| (0x1000 + i * 64, 32)).collect(), vec![], (0..50).map(|i| (0x10_0000 + i * 512, 448)).collect()];
        let clocks = run("dma_rate", &fetch, &payload, write, 0);
        assert!(clocks <= 400 + 60 + 14, "{clocks} clocks");
    }

    #[test]
    fn a_reset_drops_what_the_host_has_not_taken() {
        let mut bench = Bench::new("dma_reset", DmaEngine::default(), |uut| &mut uut.clock);
        bench.uut.payload_req.data.next = ReadReq { addr: 0x1000u64.into(), len: 64u64.into() };
        bench.uut.scatter_req.data.next = WriteReq { addr: 0x1000u64.into(), len: 64u64.into() };
        bench.uut.scatter_line.data.next = Line { data: 5u64.into(), last: true };
        bench.uut.payload_req.valid.next = true;
        bench.uut.scatter_req.valid.next = true;
        bench.uut.scatter_line.valid.next = true;
        bench.cycles(40);
        assert!(bench.uut.ar.valid.val() && bench.uut.aw.valid.val() && bench.uut.w.valid.val());
        assert!(!bench.uut.payload_req.ready.val() && !bench.uut.scatter_line.ready.val());
        bench.uut.payload_req.valid.next = false;
        bench.uut.scatter_req.valid.next = false;
        bench.uut.scatter_line.valid.next = false;
        bench.uut.reset.next = true;
        bench.cycles(1);
        bench.uut.reset.next = false;
        for _ in 0..20 {
            bench.settle();
            assert!(!bench.uut.ar.valid.val() && !bench.uut.aw.valid.val() && !bench.uut.w.valid.val());
            assert!(!bench.uut.payload_line.valid.val() && !bench.uut.scatter_done.val());
            bench.edge();
        }
        bench.finish();
    }

    #[test]
    fn a_reset_drops_lines_that_wait_and_both_clients_get_their_own_afterwards() {
        let mut bench = Bench::new("dma_reset", DmaEngine::default(), |uut| &mut uut.clock);
        let mut host = ReadHost::new(20, Order::Shuffled, 71);
        for round in 0..3u64 {
            let (fetch, payload) = (sample_ranges(72 + round, 20, 300), sample_ranges(82 + round, 20, 300));
            // In all rounds but the last nobody takes the lines, and the reset comes when the host has answered.
            let is_last = round == 2;
            let mut reqs = [Driver::new(reads(&fetch), Stalls::new(91)), Driver::new(reads(&payload), Stalls::new(92))];
            let mut lines: [Monitor<Line>; 2] = [93, 94].map(|seed| Monitor::new(Stalls::new(seed)));
            let start = bench.clock_count();
            while if is_last {
                lines[0].got.len() < count_lines(&fetch) || lines[1].got.len() < count_lines(&payload)
            } else {
                bench.clock_count() - start < 500
            } {
                let uut = &mut bench.uut;
                reqs[0].before(&mut uut.fetch_req);
                reqs[1].before(&mut uut.payload_req);
                if is_last {
                    lines[0].before(&mut uut.fetch_line);
                    lines[1].before(&mut uut.payload_line);
                } else {
                    (uut.fetch_line.ready.next, uut.payload_line.ready.next) = (false, false);
                }
                host.before(&mut uut.ar, &mut uut.r);
                bench.settle();
                let uut = &bench.uut;
                reqs[0].after(&uut.fetch_req);
                reqs[1].after(&uut.payload_req);
                if is_last {
                    lines[0].after(&uut.fetch_line);
                    lines[1].after(&uut.payload_line);
                }
                host.after(&uut.ar, &uut.r);
                bench.edge();
                assert!(bench.clock_count() - start < 5_000, "lines do not come");
            }
            if is_last {
                assert!(are_lines_of(&lines[0].got, &fetch) && are_lines_of(&lines[1].got, &payload), "lines differ");
                break;
            }
            assert!(host.is_idle() && bench.uut.fetch_line.valid.val() && bench.uut.payload_line.valid.val(), "lines wait");
            bench.uut.fetch_req.valid.next = false;
            bench.uut.payload_req.valid.next = false;
            bench.uut.reset.next = true;
            bench.cycles(1);
            bench.uut.reset.next = false;
            bench.settle();
            assert!(!bench.uut.fetch_line.valid.val() && !bench.uut.payload_line.valid.val(), "lines of before are gone");
        }
        bench.finish();
    }
}
