//! Merges three writers in front of the write engine.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `req0`, `line0` | sink | completion entries |
//! | `req1`, `line1` | sink | events and progress |
//! | `req2`, `line2` | sink | payload |
//! | `req`, `line` | source | whole requests, one after the other |
//! | `done` | in | the engine has finished its oldest request |
//! | `done0`, `done1`, `done2` | out | high for one clock for each request of the client, in order |
//!
//! Latency: one clock from both a request and its first line to `req` and `line`; one from `done`
//! to the client's. Throughput: one line every clock, across requests and clients; a request of one
//! line takes one clock.
//!
//! Clients take turns, request by request, so a small write waits for at most one request of each
//! other client. A turn goes only to a client whose request and first line are both there: one
//! that has no data yet keeps nobody waiting. A request ends with the line that carries `last`;
//! those of clients 0 and 1 are always one line, which nothing here relies on. At most 256
//! requests are on their way at once, more than the engine can hold; beyond that, new ones wait.

use rust_hdl::prelude::*;

use crate::bus::{Line, StreamSink, StreamSource, WriteReq};
use crate::prim::Fifo;

/// The multiplexer.
#[derive(LogicBlock, Default)]
pub struct WriteMux {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub req0: StreamSink<WriteReq>,
    pub line0: StreamSink<Line>,
    pub req1: StreamSink<WriteReq>,
    pub line1: StreamSink<Line>,
    pub req2: StreamSink<WriteReq>,
    pub line2: StreamSink<Line>,
    pub req: StreamSource<WriteReq>,
    pub line: StreamSource<Line>,
    pub done: Signal<In, Bit>,
    pub done0: Signal<Out, Bit>,
    pub done1: Signal<Out, Bit>,
    pub done2: Signal<Out, Bit>,

    reqs: Fifo<WriteReq, 1, 2>,
    /// A line gets to the engine four clocks before its request has become a burst there. With less
    /// room than that, each request would stop the lines of the next one.
    lines: Fifo<Line, 3, 4>,
    /// Clients of the requests that are not done, oldest first.
    owners: Fifo<Bits<2>, 8, 9>,
    /// Client of the last turn; the turn goes on while `is_open`.
    client: DFF<Bits<2>>,
    is_open: DFF<Bit>,
    is_done0: DFF<Bit>,
    is_done1: DFF<Bit>,
    is_done2: DFF<Bit>,

    wants0: Signal<Local, Bit>,
    wants1: Signal<Local, Bit>,
    wants2: Signal<Local, Bit>,
    chosen: Signal<Local, Bits<2>>,
    grant: Signal<Local, Bit>,
    line_valid: Signal<Local, Bit>,
    line_out: Signal<Local, Line>,
    move_line: Signal<Local, Bit>,
    owner_valid: Signal<Local, Bit>,
}

impl Logic for WriteMux {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, client, is_open, is_done0, is_done1, is_done2);
        clock!(self, clock, reqs, lines, owners);
        self.reqs.reset.next = self.reset.val();
        self.lines.reset.next = self.reset.val();
        self.owners.reset.next = self.reset.val();
        StreamSource::<WriteReq>::link(&mut self.req, &mut self.reqs.drain);
        StreamSource::<Line>::link(&mut self.line, &mut self.lines.drain);

        // Whose turn is it? The one after the last that has a request and a line.
        self.wants0.next = self.req0.valid.val() & self.line0.valid.val();
        self.wants1.next = self.req1.valid.val() & self.line1.valid.val();
        self.wants2.next = self.req2.valid.val() & self.line2.valid.val();
        self.chosen.next = self.client.q.val();
        if !self.is_open.q.val() {
            if self.client.q.val() == 0 {
                if self.wants1.val() {
                    self.chosen.next = 1.into();
                } else if self.wants2.val() {
                    self.chosen.next = 2.into();
                }
            } else if self.client.q.val() == 1 {
                if self.wants2.val() {
                    self.chosen.next = 2.into();
                } else if self.wants0.val() {
                    self.chosen.next = 0.into();
                }
            } else {
                if self.wants0.val() {
                    self.chosen.next = 0.into();
                } else if self.wants1.val() {
                    self.chosen.next = 1.into();
                }
            }
        }
        self.grant.next = !self.is_open.q.val()
            & (self.wants0.val() | self.wants1.val() | self.wants2.val())
            & self.reqs.fill.ready.val()
            & self.lines.fill.ready.val()
            & self.owners.fill.ready.val();

        self.line_out.next = self.line2.data.val();
        self.line_valid.next = self.line2.valid.val();
        self.reqs.fill.data.next = self.req2.data.val();
        if self.chosen.val() == 0 {
            self.line_out.next = self.line0.data.val();
            self.line_valid.next = self.line0.valid.val();
            self.reqs.fill.data.next = self.req0.data.val();
        }
        if self.chosen.val() == 1 {
            self.line_out.next = self.line1.data.val();
            self.line_valid.next = self.line1.valid.val();
            self.reqs.fill.data.next = self.req1.data.val();
        }
        // A turn begins with a line, so `move_line` covers the first line too.
        self.move_line.next = self.grant.val() | (self.is_open.q.val() & self.line_valid.val() & self.lines.fill.ready.val());
        self.reqs.fill.valid.next = self.grant.val();
        self.owners.fill.valid.next = self.grant.val();
        self.owners.fill.data.next = self.chosen.val();
        self.lines.fill.valid.next = self.move_line.val();
        self.lines.fill.data.next = self.line_out.val();
        self.req0.ready.next = self.grant.val() & (self.chosen.val() == 0);
        self.req1.ready.next = self.grant.val() & (self.chosen.val() == 1);
        self.req2.ready.next = self.grant.val() & (self.chosen.val() == 2);
        self.line0.ready.next = self.move_line.val() & (self.chosen.val() == 0);
        self.line1.ready.next = self.move_line.val() & (self.chosen.val() == 1);
        self.line2.ready.next = self.move_line.val() & (self.chosen.val() == 2);
        if self.move_line.val() {
            self.client.d.next = self.chosen.val();
            self.is_open.d.next = !self.line_out.val().last;
        }

        self.owner_valid.next = self.done.val() & self.owners.drain.valid.val();
        self.owners.drain.ready.next = self.done.val();
        self.is_done0.d.next = self.owner_valid.val() & (self.owners.drain.data.val() == 0);
        self.is_done1.d.next = self.owner_valid.val() & (self.owners.drain.data.val() == 1);
        self.is_done2.d.next = self.owner_valid.val() & (self.owners.drain.data.val() == 2);
        self.done0.next = self.is_done0.q.val();
        self.done1.next = self.is_done1.q.val();
        self.done2.next = self.is_done2.q.val();

        if self.reset.val() {
            self.client.d.next = 2.into();
            self.is_open.d.next = false;
            self.is_done0.d.next = false;
            self.is_done1.d.next = false;
            self.is_done2.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    /// Requests of a client and their lines; addresses and data say whose they are.
    fn traffic(client: u64, lengths: &[u64]) -> (Vec<WriteReq>, Vec<Line>) {
        let requests = (0..).zip(lengths).map(|(i, &n)| WriteReq { addr: (client << 32 | i).into(), len: n.into() }).collect();
        let lines = (0..)
            .zip(lengths)
            .flat_map(|(i, &n)| (0..n).map(move |line| Line { data: (client << 32 | i << 8 | line).into(), last: line + 1 == n }));
        (requests, lines.collect())
    }

    struct Setup {
        bench: Bench<WriteMux>,
        requests: Vec<Driver<WriteReq>>,
        lines: Vec<Driver<Line>>,
        engine_requests: Monitor<WriteReq>,
        engine_lines: Monitor<Line>,
        done_stalls: Stalls,
        /// Requests that the engine holds: clients, oldest first.
        held: std::collections::VecDeque<u64>,
        /// Clients in the order of `done`, and in the order in which their pulses came.
        told: Vec<u64>,
        heard: Vec<u64>,
    }

    impl Setup {
        fn new(name: &str, lengths: [Vec<u64>; 3], seed: u64) -> Self {
            let stalls = |n| if seed == 0 { Stalls::none() } else { Stalls::new(seed + n) };
            let traffic = (0..).zip(&lengths).map(|(client, lengths)| traffic(client, lengths));
            let (requests, lines): (Vec<_>, Vec<_>) = traffic.unzip();
            Self {
                bench: Bench::new(name, WriteMux::default(), |uut| &mut uut.clock),
                requests: (0..).zip(requests).map(|(i, requests)| Driver::new(requests, stalls(i))).collect(),
                lines: (0..).zip(lines).map(|(i, lines)| Driver::new(lines, stalls(10 + i))).collect(),
                engine_requests: Monitor::new(stalls(20)),
                engine_lines: Monitor::new(stalls(21)),
                done_stalls: stalls(22),
                held: Default::default(),
                told: vec![],
                heard: vec![],
            }
        }

        fn step(&mut self) {
            let uut = &mut self.bench.uut;
            self.requests[0].before(&mut uut.req0);
            self.requests[1].before(&mut uut.req1);
            self.requests[2].before(&mut uut.req2);
            self.lines[0].before(&mut uut.line0);
            self.lines[1].before(&mut uut.line1);
            self.lines[2].before(&mut uut.line2);
            self.engine_requests.before(&mut uut.req);
            self.engine_lines.before(&mut uut.line);
            let done = !self.held.is_empty() && self.done_stalls.go();
            if done {
                self.told.extend(self.held.pop_front());
            }
            uut.done.next = done;
            self.bench.settle();
            let uut = &self.bench.uut;
            self.requests[0].after(&uut.req0);
            self.requests[1].after(&uut.req1);
            self.requests[2].after(&uut.req2);
            self.lines[0].after(&uut.line0);
            self.lines[1].after(&uut.line1);
            self.lines[2].after(&uut.line2);
            let before = self.engine_requests.got.len();
            self.engine_requests.after(&uut.req);
            self.engine_lines.after(&uut.line);
            self.held.extend(self.engine_requests.got[before..].iter().map(|req| u64::from(req.addr) >> 32));
            let pulses = [uut.done0.val(), uut.done1.val(), uut.done2.val()];
            self.heard.extend((0..).zip(pulses).filter(|&(_, pulse)| pulse).map(|(client, _)| client));
            self.bench.edge();
        }

        /// Runs until `count` requests are done and checks that lines follow their requests.
        fn run(&mut self, count: usize) {
            while self.heard.len() < count {
                self.step();
                assert!(self.bench.clock_count() < 8_000, "{} of {count} requests are done", self.heard.len());
            }
            // The model of the engine tells `done` for a request that it has taken, lines or not.
            let lines: u64 = self.engine_requests.got.iter().map(|req| u64::from(req.len)).sum();
            while (self.engine_lines.got.len() as u64) < lines {
                self.step();
                assert!(self.bench.clock_count() < 8_000, "{} of {lines} lines have come", self.engine_lines.got.len());
            }
            assert_eq!(self.told, self.heard);
            let mut lines = self.engine_lines.got.iter();
            let mut next = [0; 3];
            for req in &self.engine_requests.got {
                let (client, index) = (u64::from(req.addr) >> 32, u64::from(req.addr) & 0xFFFF_FFFF);
                assert_eq!(index, next[client as usize], "requests of a client stay in order");
                next[client as usize] += 1;
                for line in 0..u64::from(req.len) {
                    let got = lines.next().expect("a line for each request");
                    assert_eq!(got.data, Bits::<512>::from(client << 32 | index << 8 | line));
                    assert_eq!(got.last, line + 1 == u64::from(req.len));
                }
            }
            assert!(lines.next().is_none(), "a line without a request");
        }
    }

    #[test]
    fn requests_stay_whole_and_in_order_and_done_goes_to_their_clients() {
        let mut setup = Setup::new("write_mux", [vec![1; 120], vec![1; 100], (0..60).map(|i| 1 + i * 7 % 13).collect()], 111);
        setup.run(280);
        setup.bench.finish();
    }

    #[test]
    fn a_line_goes_through_every_clock_across_clients() {
        let mut setup = Setup::new("write_mux_rate", [vec![1; 60], vec![1; 60], vec![4; 60]], 0);
        setup.run(180);
        // One clock through the multiplexer, one to the engine's `done`, one back.
        assert!(setup.bench.clock_count() <= 360 + 6, "{} clocks", setup.bench.clock_count());
        // While all have requests, a small one waits for one of each other client.
        let order: Vec<_> = setup.engine_requests.got.iter().map(|req| u64::from(req.addr) >> 32).collect();
        assert!(order[3..150].chunks(3).all(|turns| turns.contains(&0) && turns.contains(&1) && turns.contains(&2)), "{order:?}");
        setup.bench.finish();
    }

    #[test]
    fn a_client_without_data_keeps_nobody_waiting() {
        let mut setup = Setup::new("write_mux_wait", [vec![1; 10], vec![1; 10], vec![3; 2]], 0);
        let late = std::mem::take(&mut setup.lines[2].queue);
        setup.run(20);
        assert!(setup.heard.iter().all(|&client| client != 2));
        setup.lines[2].queue = late;
        setup.run(22);
        setup.bench.finish();
    }

    #[test]
    fn a_reset_in_the_middle_of_a_request_starts_afresh() {
        let mut setup = Setup::new("write_mux_reset", [vec![1; 5], vec![], vec![40]], 0);
        for _ in 0..20 {
            setup.step();
        }
        setup.bench.uut.reset.next = true;
        setup.bench.uut.done.next = false;
        setup.bench.cycles(1);
        setup.bench.uut.reset.next = false;
        let fresh = Setup::new("write_mux_reset_twin", [vec![1; 20], vec![2; 10], vec![5; 10]], 121);
        let mut setup = Setup { bench: setup.bench, ..fresh };
        setup.run(40);
        setup.bench.finish();
    }
}
