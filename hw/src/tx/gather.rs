//! Gathers a packet's payload: reads its parts from host memory and joins them, byte for byte, so
//! that the payload begins where the packet's headers end.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `part` | sink | parts of payloads, in order |
//! | `read` | source | reads of host memory |
//! | `line_in` | sink | what they bring: the lines that each part touches |
//! | `inline` | sink | lines of inline data, in the order of their parts; nothing is read for these |
//! | `line` | source | payload lines: zero outside the payload, `last` on each packet's last |
//! | `announces` | out | a packet's last line is under way: it is offered three clocks later, if those before it are taken |
//!
//! A line of a part is rotated by the same amount, whatever its place in the part: the difference
//! between where the payload stands and where the part begins. The rotated bytes fill the line
//! under construction from there on, and what goes around the end begins the next line.
//!
//! Latency: four clocks behind the memory. Throughput: one line in or out every clock: a packet
//! takes as many clocks as its parts touch lines, and one more if the joined payload has a line
//! more than the last part left to give. Output is held back by credit: lines are taken from the
//! memory only while the FIFO behind has room for all that are under way.

use num_bigint::BigUint;
use rust_hdl::prelude::*;

use crate::bus::{GatherReq, Line, ReadReq, StreamSink, StreamSource};
use crate::prim::{Fifo, Rotate};

/// Where a part lies in its first line and in its packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Place {
    is_inline: Bit,
    is_void: Bit,
    from: Bits<6>,
    len: Bits<13>,
    first: Bit,
    offset: Bits<6>,
    last: Bit,
}

/// What happens to a rotated line.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Step {
    valid: Bit,
    /// Place of the line's first byte in the line under construction.
    at: Bits<6>,
    /// Byte behind its last, 1 to 127: above 64 it goes on in the next line.
    until: Bits<7>,
    /// The packet ends with this line.
    last: Bit,
    /// A line of its own for what is left over: nothing is read in this step.
    flush: Bit,
}

#[derive(LogicBlock)]
pub struct Gather {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub part: StreamSink<GatherReq>,
    pub read: StreamSource<ReadReq>,
    pub line_in: StreamSink<Line>,
    pub inline: StreamSink<Bits<512>>,
    pub line: StreamSource<Line>,
    pub announces: Signal<Out, Bit>,

    reads: Fifo<ReadReq, 1, 2>,
    places: Fifo<Place, 8, 9>,
    lines: Fifo<Line, 4, 5>,
    rotate: Rotate,
    // Stage 0: which bytes of this line count, and where they go.
    is_started: DFF<Bit>,
    left: DFF<Bits<13>>,
    at: DFF<Bits<6>>,
    amount: DFF<Bits<6>>,
    must_flush: DFF<Bit>,
    step1: DFF<Step>,
    step2: DFF<Step>,
    // Stage 3: the line under construction.
    step3: DFF<Step>,
    rotated: DFF<Bits<512>>,
    held: DFF<Bits<512>>,

    request: Signal<Local, GatherReq>,
    request_addr: Signal<Local, Bits<64>>,
    place: Signal<Local, Place>,
    from: Signal<Local, Bits<6>>,
    start_at: Signal<Local, Bits<6>>,
    left_now: Signal<Local, Bits<13>>,
    at_now: Signal<Local, Bits<6>>,
    amount_now: Signal<Local, Bits<6>>,
    room: Signal<Local, Bits<7>>,
    bytes: Signal<Local, Bits<7>>,
    is_last_line: Signal<Local, Bit>,
    stop_at: Signal<Local, Bits<7>>,
    over: Signal<Local, Bits<7>>,
    has_room: Signal<Local, Bit>,
    may_take: Signal<Local, Bit>,
    has_line: Signal<Local, Bit>,
    reads_memory: Signal<Local, Bit>,
    take: Signal<Local, Bit>,
    step: Signal<Local, Step>,
    step_zero: Constant<Step>,
    now: Signal<Local, Step>,
    begun: Signal<Local, Step>,
    low_mask: Signal<Local, Bits<512>>,
    high_mask: Signal<Local, Bits<512>>,
    wrap_mask: Signal<Local, Bits<512>>,
    at_bits: Signal<Local, Bits<10>>,
    until_bits: Signal<Local, Bits<10>>,
    wraps: Signal<Local, Bit>,
    goes_on: Signal<Local, Bit>,
    here: Signal<Local, Bits<512>>,
    next_held: Signal<Local, Bits<512>>,
    fills: Signal<Local, Bit>,
    ones: Constant<Bits<512>>,
    full: Constant<Bits<7>>,
    credit: Constant<Bits<5>>,
}

impl Default for Gather {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            part: Default::default(),
            read: Default::default(),
            line_in: Default::default(),
            inline: Default::default(),
            line: Default::default(),
            announces: Default::default(),
            reads: Default::default(),
            places: Default::default(),
            lines: Default::default(),
            rotate: Default::default(),
            is_started: Default::default(),
            left: Default::default(),
            at: Default::default(),
            amount: Default::default(),
            must_flush: Default::default(),
            step1: Default::default(),
            step2: Default::default(),
            step3: Default::default(),
            rotated: Default::default(),
            held: Default::default(),
            request: Default::default(),
            request_addr: Default::default(),
            place: Default::default(),
            from: Default::default(),
            start_at: Default::default(),
            left_now: Default::default(),
            at_now: Default::default(),
            amount_now: Default::default(),
            room: Default::default(),
            bytes: Default::default(),
            is_last_line: Default::default(),
            stop_at: Default::default(),
            over: Default::default(),
            has_room: Default::default(),
            may_take: Default::default(),
            has_line: Default::default(),
            reads_memory: Default::default(),
            take: Default::default(),
            step: Default::default(),
            step_zero: Constant::new(Step::default()),
            now: Default::default(),
            begun: Default::default(),
            low_mask: Default::default(),
            high_mask: Default::default(),
            wrap_mask: Default::default(),
            at_bits: Default::default(),
            until_bits: Default::default(),
            wraps: Default::default(),
            goes_on: Default::default(),
            here: Default::default(),
            next_held: Default::default(),
            fills: Default::default(),
            ones: Constant::new(Bits::<512>::from((BigUint::from(1u32) << 512u32) - 1u32)),
            full: Constant::new(64u8.to_bits()),
            credit: Constant::new(10u8.to_bits()),
        }
    }
}

impl Logic for Gather {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, is_started, left, at, amount, must_flush, step1, step2, step3, rotated, held);
        clock!(self, clock, reads, places, lines, rotate);
        self.reads.reset.next = self.reset.val();
        self.places.reset.next = self.reset.val();
        self.lines.reset.next = self.reset.val();
        StreamSource::<ReadReq>::link(&mut self.read, &mut self.reads.drain);
        StreamSource::<Line>::link(&mut self.line, &mut self.lines.drain);

        self.request.next = self.part.data.val();
        self.request_addr.next = self.request.val().addr;
        self.part.ready.next = self.reads.fill.ready.val() & self.places.fill.ready.val();
        self.reads_memory.next = !self.request.val().is_inline;
        self.reads.fill.valid.next = self.part.valid.val() & self.places.fill.ready.val() & self.reads_memory.val();
        self.reads.fill.data.next.addr = self.request.val().addr;
        self.reads.fill.data.next.len = self.request.val().len;
        self.places.fill.valid.next = self.part.valid.val() & self.reads.fill.ready.val();
        self.places.fill.data.next.is_inline = self.request.val().is_inline;
        self.places.fill.data.next.is_void = self.request.val().is_void;
        self.places.fill.data.next.from = self.request_addr.val().get_bits::<6>(0);
        if self.request.val().is_inline {
            self.places.fill.data.next.from = 0.into();
        }
        self.places.fill.data.next.len = self.request.val().len;
        self.places.fill.data.next.first = self.request.val().first;
        self.places.fill.data.next.offset = self.request.val().offset;
        self.places.fill.data.next.last = self.request.val().last;

        // Stage 0. The first line of a part sets the rotation; later lines begin at byte 0.
        self.place.next = self.places.drain.data.val();
        self.from.next = self.place.val().from;
        self.start_at.next = self.at.q.val();
        if self.place.val().first {
            self.start_at.next = self.place.val().offset;
        }
        self.left_now.next = self.left.q.val();
        self.at_now.next = self.at.q.val();
        self.amount_now.next = self.amount.q.val();
        self.room.next = self.full.val();
        if !self.is_started.q.val() {
            self.left_now.next = self.place.val().len;
            self.at_now.next = self.start_at.val();
            self.amount_now.next = self.start_at.val() - self.from.val();
            self.room.next = self.full.val() - bit_cast::<7, 6>(self.from.val());
        }
        self.is_last_line.next = self.left_now.val() <= bit_cast::<13, 7>(self.room.val());
        self.bytes.next = self.room.val();
        if self.is_last_line.val() {
            self.bytes.next = bit_cast::<7, 13>(self.left_now.val());
        }
        self.stop_at.next = bit_cast::<7, 6>(self.at_now.val()) + self.bytes.val();
        self.over.next = self.stop_at.val() - self.full.val();
        self.has_room.next = self.lines.level.val() <= self.credit.val();
        self.has_line.next = self.line_in.valid.val();
        if self.place.val().is_inline {
            self.has_line.next = self.inline.valid.val();
        }
        self.may_take.next = self.has_room.val() & !self.must_flush.q.val() & self.places.drain.valid.val();
        self.take.next = self.may_take.val() & self.has_line.val();
        self.line_in.ready.next = self.may_take.val() & !self.place.val().is_inline;
        self.inline.ready.next = self.may_take.val() & self.place.val().is_inline;
        self.places.drain.ready.next = self.take.val() & self.is_last_line.val();
        self.step.next = self.step_zero.val();
        self.step.next.at = self.at_now.val();
        self.step.next.until = self.stop_at.val();
        self.step.next.last = self.is_last_line.val() & self.place.val().last;
        if self.take.val() {
            self.step.next.valid = !self.place.val().is_void;
            self.is_started.d.next = !self.is_last_line.val();
            self.left.d.next = self.left_now.val() - bit_cast::<13, 7>(self.bytes.val());
            self.at.d.next = bit_cast::<6, 7>(self.stop_at.val());
            self.amount.d.next = self.amount_now.val();
            // Bytes that went around the end of the packet's last line need a line of their own.
            if self.is_last_line.val() & self.place.val().last & (self.stop_at.val() > self.full.val()) {
                self.must_flush.d.next = true;
                self.step.next.last = false;
            }
        }
        if self.must_flush.q.val() & self.has_room.val() {
            self.must_flush.d.next = false;
            self.step.next.valid = true;
            self.step.next.flush = true;
            self.step.next.last = true;
        }
        self.rotate.data.next = self.line_in.data.val().data;
        if self.place.val().is_inline {
            self.rotate.data.next = self.inline.data.val();
        }
        self.rotate.amount.next = self.amount_now.val();
        self.step1.d.next = self.step.val();
        self.begun.next = self.step1.q.val();
        self.announces.next = self.begun.val().valid & self.begun.val().last;
        self.step2.d.next = self.step1.q.val();
        self.step3.d.next = self.step2.q.val();
        self.rotated.d.next = self.rotate.result.val();

        // Stage 3. `here` are the bytes for this line, `wrap_mask` those that begin the next.
        self.now.next = self.step3.q.val();
        self.at_bits.next = bit_cast::<10, 6>(self.now.val().at) << 3;
        self.until_bits.next = bit_cast::<10, 7>(self.now.val().until) << 3;
        self.goes_on.next = self.now.val().until > self.full.val();
        self.wraps.next = self.now.val().until >= self.full.val();
        self.low_mask.next = self.ones.val() << self.at_bits.val();
        self.high_mask.next = self.ones.val() << bit_cast::<9, 10>(self.until_bits.val());
        self.wrap_mask.next = self.ones.val() ^ self.high_mask.val();
        self.here.next = self.held.q.val() | (self.rotated.q.val() & self.low_mask.val());
        if !self.wraps.val() {
            self.here.next = self.held.q.val() | (self.rotated.q.val() & self.low_mask.val() & self.wrap_mask.val());
        }
        self.next_held.next = self.rotated.q.val() & self.wrap_mask.val();
        if !self.goes_on.val() {
            self.next_held.next = 0.into();
        }
        self.fills.next = self.wraps.val() | self.now.val().last;
        if self.now.val().flush {
            self.here.next = self.held.q.val();
            self.next_held.next = 0.into();
            self.fills.next = true;
        }
        self.lines.fill.valid.next = self.now.val().valid & self.fills.val();
        self.lines.fill.data.next.data = self.here.val();
        self.lines.fill.data.next.last = self.now.val().last;
        if self.now.val().valid {
            self.held.d.next = self.here.val();
            if self.fills.val() {
                self.held.d.next = self.next_held.val();
            }
        }

        if self.reset.val() {
            self.is_started.d.next = false;
            self.must_flush.d.next = false;
            self.step1.d.next = self.step_zero.val();
            self.step2.d.next = self.step_zero.val();
            self.step3.d.next = self.step_zero.val();
            self.held.d.next = 0.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::{pack, unpack};
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    const MEMORY: usize = 1 << 14;

    /// Parts of packets, and the lines that they are to become.
    struct Work {
        memory: Vec<u8>,
        parts: Vec<GatherReq>,
        /// Lines of inline data, as they come beside the parts.
        inline: Vec<Bits<512>>,
        lines: Vec<Vec<u8>>,
        /// Clocks that the packets take.
        clocks: usize,
    }

    impl Work {
        fn new(seed: u64) -> Self {
            let mut random = Stalls::new(seed);
            Self { memory: (0..MEMORY).map(|_| random.random() as u8).collect(), parts: vec![], inline: vec![], lines: vec![], clocks: 0 }
        }

        fn packet(&mut self, offset: usize, parts: &[(usize, usize)]) {
            let mut bytes = vec![0; offset];
            let (mut at, mut touched) = (offset, 0);
            for (i, (addr, len)) in parts.iter().copied().enumerate() {
                let last = i == parts.len() - 1;
                bytes.extend(&self.memory[addr..addr + len]);
                self.parts.push(GatherReq {
                    is_inline: false,
                    is_void: false,
                    addr: (addr as u64).into(),
                    len: (len as u64).into(),
                    first: i == 0,
                    offset: (offset as u64).into(),
                    last,
                });
                let lines = (addr + len - 1) / 64 - addr / 64 + 1;
                touched += lines;
                if last {
                    // The last line of memory fills the line under construction and goes on in one more.
                    let start = if lines == 1 { at % 64 } else { (at + 64 * lines - 64 - addr % 64) % 64 };
                    let count = if lines == 1 { len } else { (addr + len - 1) % 64 + 1 };
                    touched += usize::from(start + count > 64);
                }
                at += len;
            }
            self.clocks += touched;
            self.lines.extend(bytes.chunks(64).map(<[u8]>::to_vec));
        }

        /// A packet of inline data. One that is not sent comes with `offset` of none.
        fn inline(&mut self, offset: Option<usize>, bytes: &[u8]) {
            for line in bytes.chunks(64) {
                // What is behind the data does not count.
                let mut line = line.to_vec();
                line.resize(64, 0xEE);
                self.inline.push(pack(&line));
            }
            self.parts.push(GatherReq {
                is_inline: true,
                is_void: offset.is_none(),
                addr: 0x1235u64.into(),
                len: (bytes.len() as u64).into(),
                first: true,
                offset: (offset.unwrap_or(7) as u64).into(),
                last: offset.is_some(),
            });
            if let Some(offset) = offset {
                self.lines.extend([&vec![0; offset], bytes].concat().chunks(64).map(<[u8]>::to_vec));
            }
        }

        fn random(seed: u64, count: usize) -> Self {
            let mut work = Self::new(seed);
            let mut random = Stalls::new(seed + 100);
            for _ in 0..count {
                let parts: Vec<_> = (0..1 + random.random() % 4)
                    .map(|_| {
                        let len = match random.random() % 3 {
                            0 => 1 + random.random() % 4,
                            1 => 60 + random.random() % 10,
                            _ => 1 + random.random() % 300,
                        };
                        ((random.random() % (MEMORY as u64 - len)) as usize, len as usize)
                    })
                    .collect();
                work.packet((random.random() % 64) as usize, &parts);
                if random.random() % 2 == 0 {
                    let bytes: Vec<u8> = (0..1 + random.random() % 96).map(|_| random.random() as u8).collect();
                    work.inline((random.random() % 4 != 0).then_some((random.random() % 64) as usize), &bytes);
                }
            }
            work
        }

        /// Returns the lines that the memory gives for a read.
        fn serve(&self, req: &ReadReq) -> Vec<Line> {
            let (addr, len) = (req.addr.to_u64() as usize, req.len.index());
            let (first, last) = (addr / 64, (addr + len - 1) / 64);
            (first..=last).map(|line| Line { data: pack(&self.memory[64 * line..64 * line + 64]), last: line == last }).collect()
        }
    }

    fn reset(bench: &mut Bench<Gather>) {
        bench.uut.part.valid.next = false;
        bench.uut.line_in.valid.next = false;
        bench.uut.inline.valid.next = false;
        bench.uut.reset.next = true;
        bench.cycles(6);
        bench.uut.reset.next = false;
    }

    /// Sends all, until it is out or for `limit` clocks; returns the clocks from the first line in to the first and last out.
    fn run(bench: &mut Bench<Gather>, work: &Work, stalls: [Stalls; 5], limit: usize) -> Option<(usize, usize)> {
        let [part, read, line_in, line, inline] = stalls;
        let mut part = Driver::new(work.parts.iter().copied(), part);
        let mut read = Monitor::new(read);
        let mut line_in = Driver::new([], line_in);
        let mut inline = Driver::new(work.inline.iter().copied(), inline);
        let mut line = Monitor::new(line);
        let (mut served, mut start, mut first) = (0, None, None);
        // Clocks in which a packet's last line was announced, and in which it was taken.
        let (mut announced, mut ended) = (vec![], vec![]);
        for clock in 0..limit {
            part.before(&mut bench.uut.part);
            read.before(&mut bench.uut.read);
            line_in.before(&mut bench.uut.line_in);
            inline.before(&mut bench.uut.inline);
            line.before(&mut bench.uut.line);
            bench.settle();
            part.after(&bench.uut.part);
            read.after(&bench.uut.read);
            line_in.after(&bench.uut.line_in);
            inline.after(&bench.uut.inline);
            line.after(&bench.uut.line);
            start = start.or((bench.uut.line_in.valid.val() && bench.uut.line_in.ready.val()).then_some(clock));
            first = first.or(bench.uut.line.valid.val().then_some(clock));
            announced.extend(bench.uut.announces.val().then_some(clock));
            let port = &bench.uut.line;
            ended.extend((port.valid.val() && port.ready.val() && port.data.val().last).then_some(clock));
            for req in &read.got[served..] {
                line_in.queue.extend(work.serve(req));
            }
            served = read.got.len();
            bench.edge();
            if line.got.len() == work.lines.len() {
                let mut lines = work.lines.iter();
                for got in &line.got {
                    let mut expected = lines.next().unwrap().clone();
                    assert!(got.last || expected.len() == 64);
                    expected.resize(64, 0);
                    assert!(unpack(got.data) == expected, "payload differs, or is not zero outside");
                }
                let from_memory = work.parts.iter().filter(|part| !part.is_inline);
                let reads: Vec<_> = from_memory.map(|part| ReadReq { addr: part.addr, len: part.len }).collect();
                assert_eq!(read.got, reads);
                let packets = work.parts.iter().filter(|part| part.last).count();
                assert_eq!((announced.len(), ended.len()), (packets, packets));
                let leads = announced.iter().zip(&ended).map(|(announced, ended)| ended.checked_sub(*announced));
                assert_eq!(leads.min(), Some(Some(3)), "the nearest announcement is three clocks ahead, none is late");
                assert_eq!(line.got.iter().filter(|line| line.last).count(), packets);
                if line.got.len() == work.lines.len() && work.parts.last().is_some_and(|part| !part.is_void) {
                    assert!(inline.is_done(), "inline data of what is not sent is thrown away");
                }
                return Some((first.unwrap() - start.unwrap(), clock - start.unwrap()));
            }
        }
        None
    }

    #[test]
    fn parts_of_any_length_at_any_place_are_joined_under_random_stalls() {
        let mut bench = Bench::new("tx_gather", Gather::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        for seed in 1..4 {
            let work = Work::random(seed, 40);
            run(&mut bench, &work, [10, 20, 30, 40, 45].map(|n| Stalls::new(seed + n)), 80 + seed as usize);
            reset(&mut bench);
            assert!(run(&mut bench, &work, [50, 60, 70, 80, 85].map(|n| Stalls::new(seed + n)), 5000).is_some(), "a packet hangs");
        }
        bench.finish();
    }

    #[test]
    fn a_line_moves_every_clock_and_what_does_not_fit_is_held_back() {
        let mut bench = Bench::new("tx_gather_rate", Gather::default(), |uut| &mut uut.clock);
        let free = || core::array::from_fn(|_| Stalls::none());
        // Packets of 4096 bytes from aligned memory, behind 54 + 16 and 54 bytes of headers, then every other place.
        let mut work = Work::new(1);
        for offset in [6, 54, 0, 63, 1] {
            work.packet(offset, &[(64 * offset, 4096)]);
        }
        for addr in [0, 1, 37, 63] {
            work.packet(10, &[(addr, 700), (addr + 900, 500)]);
        }
        reset(&mut bench);
        let (first, end) = run(&mut bench, &work, free(), 2000).expect("all packets come");
        assert_eq!(first, 4);
        assert_eq!(end, work.clocks + 3, "the last line leaves four clocks behind the last that came in");
        // The exit shut: lines taken from memory have their places.
        reset(&mut bench);
        bench.uut.part.data.next = GatherReq { len: 4096u64.into(), first: true, last: true, ..Default::default() };
        bench.uut.part.valid.next = true;
        bench.uut.line_in.valid.next = true;
        bench.uut.line.ready.next = false;
        bench.uut.read.ready.next = true;
        bench.cycles(30);
        assert!(!bench.uut.line_in.ready.val());
        assert_eq!(bench.uut.lines.level.val(), 14u64);
        // A memory that does not answer: 256 parts are under way, and no more.
        reset(&mut bench);
        bench.uut.part.valid.next = true;
        bench.cycles(256);
        assert!(!bench.uut.part.ready.val());
        assert_eq!(bench.uut.places.level.val(), 256u64);
        bench.finish();
    }
}
