//! Writes send queues' progress, beside the event writer on one port of the DMA engine.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `progress` | sink | indices and where the host wants them |
//! | `event_req`, `event_line`, `event_done` | sink, sink, out | the event writer's writes, one line each |
//! | `req`, `line`, `done` | source, source, in | both, for the DMA engine |
//!
//! Latency: one clock. Throughput: one write every clock; they take turns when both wait. A tag for
//! each write under way tells whose it is, so that `event_done` is given for events alone; there is
//! room for 128, and no more are begun than that.

use rust_hdl::prelude::*;

use crate::bus::{Line, Progress, StreamSink, StreamSource, WriteReq};
use crate::prim::Fifo;

#[derive(LogicBlock)]
pub struct ProgressWriter {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub progress: StreamSink<Progress>,
    pub event_req: StreamSink<WriteReq>,
    pub event_line: StreamSink<Line>,
    pub event_done: Signal<Out, Bit>,
    pub req: StreamSource<WriteReq>,
    pub line: StreamSource<Line>,
    pub done: Signal<In, Bit>,

    reqs: Fifo<WriteReq, 1, 2>,
    lines: Fifo<Line, 1, 2>,
    tags: Fifo<Bit, 7, 8>,
    was_event: DFF<Bit>,
    item: Signal<Local, Progress>,
    address: Signal<Local, Bits<64>>,
    place: Signal<Local, Bits<9>>,
    has_room: Signal<Local, Bit>,
    has_event: Signal<Local, Bit>,
    take_event: Signal<Local, Bit>,
    take_progress: Signal<Local, Bit>,
    record_bytes: Constant<Bits<13>>,
}

impl Default for ProgressWriter {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            progress: Default::default(),
            event_req: Default::default(),
            event_line: Default::default(),
            event_done: Default::default(),
            req: Default::default(),
            line: Default::default(),
            done: Default::default(),
            reqs: Default::default(),
            lines: Default::default(),
            tags: Default::default(),
            was_event: Default::default(),
            item: Default::default(),
            address: Default::default(),
            place: Default::default(),
            has_room: Default::default(),
            has_event: Default::default(),
            take_event: Default::default(),
            take_progress: Default::default(),
            record_bytes: Constant::new(size_of::<verbena_abi::queue::SqProgress>().to_bits()),
        }
    }
}

impl Logic for ProgressWriter {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, was_event);
        clock!(self, clock, reqs, lines, tags);
        self.reqs.reset.next = self.reset.val();
        self.lines.reset.next = self.reset.val();
        self.tags.reset.next = self.reset.val();
        StreamSource::<WriteReq>::link(&mut self.req, &mut self.reqs.drain);
        StreamSource::<Line>::link(&mut self.line, &mut self.lines.drain);

        self.item.next = self.progress.data.val();
        self.address.next = self.item.val().addr;
        self.place.next = bit_cast::<9, 64>(self.address.val()) << 3;
        self.has_room.next = self.reqs.fill.ready.val() & self.lines.fill.ready.val() & self.tags.fill.ready.val();
        self.has_event.next = self.event_req.valid.val() & self.event_line.valid.val();
        self.take_event.next = self.has_room.val() & self.has_event.val() & !(self.was_event.q.val() & self.progress.valid.val());
        self.take_progress.next = self.has_room.val() & self.progress.valid.val() & !self.take_event.val();
        self.event_req.ready.next = self.take_event.val();
        self.event_line.ready.next = self.take_event.val();
        self.progress.ready.next = self.take_progress.val();
        self.reqs.fill.valid.next = self.take_event.val() | self.take_progress.val();
        self.lines.fill.valid.next = self.take_event.val() | self.take_progress.val();
        self.tags.fill.valid.next = self.take_event.val() | self.take_progress.val();
        self.tags.fill.data.next = self.take_event.val();
        self.reqs.fill.data.next = self.event_req.data.val();
        self.lines.fill.data.next = self.event_line.data.val();
        if self.take_event.val() {
            self.was_event.d.next = true;
        } else if self.take_progress.val() {
            self.was_event.d.next = false;
            self.reqs.fill.data.next.addr = self.address.val();
            self.reqs.fill.data.next.len = self.record_bytes.val();
            self.lines.fill.data.next.data = bit_cast::<512, 16>(self.item.val().index) << self.place.val();
            self.lines.fill.data.next.last = true;
        }
        self.tags.drain.ready.next = self.done.val();
        self.event_done.next = self.done.val() & self.tags.drain.data.val();

        if self.reset.val() {
            self.was_event.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::unpack;
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    #[test]
    fn events_and_progress_take_turns_and_each_done_goes_to_its_writer() {
        let mut bench = Bench::new("progress_writer", ProgressWriter::default(), |uut| &mut uut.clock);
        let progress = (0..60u64).map(|i| Progress { addr: (0x1000 + 4 * i).into(), index: (0x500 + i).into() });
        let mut progress = Driver::new(progress, Stalls::new(1));
        let event = |i: u64| WriteReq { addr: (0x8000 + 32 * i).into(), len: 32u64.into() };
        let mut event_req = Driver::new((0..50).map(event), Stalls::new(2));
        let mut event_line = Driver::new((0..50u64).map(|i| Line { data: i.into(), last: true }), Stalls::new(3));
        let (mut req, mut line) = (Monitor::new(Stalls::new(4)), Monitor::new(Stalls::new(5)));
        let (mut stalls, mut finished, mut told) = (Stalls::new(6), 0, vec![]);
        while finished < 110 {
            progress.before(&mut bench.uut.progress);
            event_req.before(&mut bench.uut.event_req);
            event_line.before(&mut bench.uut.event_line);
            req.before(&mut bench.uut.req);
            line.before(&mut bench.uut.line);
            bench.uut.done.next = finished < line.got.len().min(req.got.len()) && stalls.go();
            bench.settle();
            progress.after(&bench.uut.progress);
            event_req.after(&bench.uut.event_req);
            event_line.after(&bench.uut.event_line);
            req.after(&bench.uut.req);
            line.after(&bench.uut.line);
            if bench.uut.done.val() {
                told.push(bench.uut.event_done.val());
                finished += 1;
            }
            bench.edge();
            assert!(bench.clock_count() < 10_000, "a write hangs");
        }
        let (mut events, mut records) = (0, 0);
        for ((req, line), told) in req.got.iter().zip(&line.got).zip(told) {
            let addr = req.addr.to_u64();
            assert_eq!(told, addr >= 0x8000);
            if told {
                assert_eq!((*req, line.data), (event(events), Bits::from(events)));
                events += 1;
            } else {
                assert_eq!((addr, req.len.to_u64()), (0x1000 + 4 * records, 4));
                let at = addr as usize % 64;
                let mut expected = [0; 64];
                expected[at..at + 4].copy_from_slice(&(0x500 + records as u32).to_le_bytes());
                assert_eq!(unpack(line.data), expected);
                records += 1;
            }
        }
        assert_eq!((events, records), (50, 60));
        bench.finish();
    }

    #[test]
    fn a_reset_forgets_what_waits_and_whose_writes_were_under_way() {
        let mut bench = Bench::new("progress_writer_reset", ProgressWriter::default(), |uut| &mut uut.clock);
        let event = WriteReq { addr: 0x8000u64.into(), len: 32u64.into() };
        for round in 0..4u64 {
            // An event's write is under way, others wait, and nobody takes any more.
            bench.uut.event_req.data.next = event;
            bench.uut.event_line.data.next = Line { data: 7u64.into(), last: true };
            bench.uut.progress.data.next = Progress { addr: 0x1000u64.into(), index: 3u64.into() };
            bench.uut.event_req.valid.next = true;
            bench.uut.event_line.valid.next = true;
            bench.uut.progress.valid.next = round % 2 == 0;
            (bench.uut.req.ready.next, bench.uut.line.ready.next) = (true, true);
            bench.cycles(2 + round as usize);
            (bench.uut.req.ready.next, bench.uut.line.ready.next) = (false, false);
            bench.cycles(6);
            bench.uut.event_req.valid.next = false;
            bench.uut.event_line.valid.next = false;
            bench.uut.progress.valid.next = false;
            bench.uut.reset.next = true;
            bench.cycles(1);
            bench.uut.reset.next = false;
            bench.settle();
            assert!(!bench.uut.req.valid.val() && !bench.uut.line.valid.val(), "nothing waits in round {round}");
            // The first write is a record of progress, and its answer is nobody else's.
            let mut progress = Driver::new([Progress { addr: 0x2044u64.into(), index: 9u64.into() }], Stalls::none());
            let (mut req, mut line) = (Monitor::new(Stalls::none()), Monitor::new(Stalls::none()));
            for _ in 0..10 {
                progress.before(&mut bench.uut.progress);
                req.before(&mut bench.uut.req);
                line.before(&mut bench.uut.line);
                bench.settle();
                progress.after(&bench.uut.progress);
                req.after(&bench.uut.req);
                line.after(&bench.uut.line);
                bench.edge();
            }
            assert_eq!(req.got, [WriteReq { addr: 0x2044u64.into(), len: 4u64.into() }]);
            assert_eq!(line.got.len(), 1);
            bench.uut.done.next = true;
            bench.settle();
            assert!(!bench.uut.event_done.val());
            bench.edge();
            bench.uut.done.next = false;
        }
        bench.finish();
    }
}
