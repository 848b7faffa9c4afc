//! Cuts what a fetch brings into requests, and each request into its scatter/gather entries.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `fetch` | sink | which requests the lines hold, in order |
//! | `line` | sink | the lines: one unit of a send queue each |
//! | `item` | source | one entry a clock with its request; a request without entries is one item |
//! | `inline` | source | inline data, before its item: `ceil(bytes / 64)` lines for each request that has some |
//!
//! Inline data is one item too. Its lines go straight to where payload is gathered, in the order of the items.
//!
//! Latency: two clocks, three with two units. Throughput: a request takes a clock for each of its units and one
//! for each entry, or line of inline data, behind the first; the first request of a batch takes one more. A request that is malformed (opcode,
//! unknown flags, more entries or inline data than its units hold, or both) becomes one item marked `is_bad`; its lines are taken all the same.

use rust_hdl::prelude::*;
use verbena_abi::{limits, queue};

use crate::bus::{Fetch, Line, SgeItem, StreamSink, StreamSource};
use crate::prim::Fifo;

#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum State {
    First,
    Second,
    Emit,
}

#[derive(LogicBlock)]
pub struct Decode {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub fetch: StreamSink<Fetch>,
    pub line: StreamSink<Line>,
    pub item: StreamSource<SgeItem>,
    pub inline: StreamSource<Bits<512>>,

    state: DFF<State>,
    request: DFF<Bits<256>>,
    entries: DFF<Bits<768>>,
    left: DFF<Bits<3>>,
    is_bad: DFF<Bit>,
    is_inline: DFF<Bit>,
    passed: DFF<Bits<4>>,
    items: Fifo<SgeItem, 1, 2>,
    inlines: Fifo<Bits<512>, 1, 2>,

    data: Signal<Local, Bits<512>>,
    head: Signal<Local, Bits<256>>,
    tail: Signal<Local, Bits<256>>,
    opcode: Signal<Local, Bits<8>>,
    flags: Signal<Local, Bits<8>>,
    sges: Signal<Local, Bits<8>>,
    inline_bytes: Signal<Local, Bits<8>>,
    limit: Signal<Local, Bits<8>>,
    inline_limit: Signal<Local, Bits<8>>,
    has_inline: Signal<Local, Bit>,
    is_malformed: Signal<Local, Bit>,
    next_passed: Signal<Local, Bits<4>>,
    kept: Signal<Local, Bits<256>>,
    kept_flags: Signal<Local, Bits<8>>,
    kept_bytes: Signal<Local, Bits<8>>,
    now: Signal<Local, Bits<768>>,
    more: Signal<Local, Bits<768>>,
    is_last: Signal<Local, Bit>,
    advance: Signal<Local, Bit>,
    ends_batch: Signal<Local, Bit>,
    take_first: Signal<Local, Bit>,
    write_op: Constant<Bits<8>>,
    known_flags: Constant<Bits<8>>,
    one_unit: Constant<Bits<8>>,
    two_units: Constant<Bits<8>>,
    inline_one_unit: Constant<Bits<8>>,
    inline_two_units: Constant<Bits<8>>,
    line_bytes: Constant<Bits<8>>,
}

impl Default for Decode {
    fn default() -> Self {
        let known = queue::wqe_flags::SIGNALED | queue::wqe_flags::SOLICITED | queue::wqe_flags::FENCE;
        Self {
            clock: Default::default(),
            reset: Default::default(),
            fetch: Default::default(),
            line: Default::default(),
            item: Default::default(),
            inline: Default::default(),
            state: Default::default(),
            request: Default::default(),
            entries: Default::default(),
            left: Default::default(),
            is_bad: Default::default(),
            is_inline: Default::default(),
            passed: Default::default(),
            items: Default::default(),
            inlines: Default::default(),
            data: Default::default(),
            head: Default::default(),
            tail: Default::default(),
            opcode: Default::default(),
            flags: Default::default(),
            sges: Default::default(),
            inline_bytes: Default::default(),
            limit: Default::default(),
            inline_limit: Default::default(),
            has_inline: Default::default(),
            is_malformed: Default::default(),
            next_passed: Default::default(),
            kept: Default::default(),
            kept_flags: Default::default(),
            kept_bytes: Default::default(),
            now: Default::default(),
            more: Default::default(),
            is_last: Default::default(),
            advance: Default::default(),
            ends_batch: Default::default(),
            take_first: Default::default(),
            write_op: Constant::new((queue::WqeOp::Write as u8).to_bits()),
            known_flags: Constant::new(known.to_bits()),
            one_unit: Constant::new(limits::SGES_ONE_UNIT.to_bits()),
            two_units: Constant::new(limits::MAX_SGES.to_bits()),
            inline_one_unit: Constant::new(limits::INLINE_ONE_UNIT.to_bits()),
            inline_two_units: Constant::new(limits::MAX_INLINE.to_bits()),
            line_bytes: Constant::new(limits::BEAT_BYTES.to_bits()),
        }
    }
}

impl Logic for Decode {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, state, request, entries, left, is_bad, is_inline, passed);
        clock!(self, clock, items, inlines);
        self.items.reset.next = self.reset.val();
        self.inlines.reset.next = self.reset.val();
        StreamSource::<SgeItem>::link(&mut self.item, &mut self.items.drain);
        StreamSource::<Bits<512>>::link(&mut self.inline, &mut self.inlines.drain);

        self.data.next = self.line.data.val().data;
        self.head.next = self.data.val().get_bits::<256>(0);
        self.tail.next = self.data.val().get_bits::<256>(256);
        self.opcode.next = self.data.val().get_bits::<8>(0);
        self.flags.next = self.data.val().get_bits::<8>(8);
        self.sges.next = self.data.val().get_bits::<8>(16);
        self.inline_bytes.next = self.data.val().get_bits::<8>(24);
        self.limit.next = self.one_unit.val();
        self.inline_limit.next = self.inline_one_unit.val();
        if self.fetch.data.val().two_units {
            self.limit.next = self.two_units.val();
            self.inline_limit.next = self.inline_two_units.val();
        }
        self.has_inline.next = self.inline_bytes.val().any();
        self.is_malformed.next = (self.opcode.val() != self.write_op.val())
            | ((self.flags.val() | self.known_flags.val()) != self.known_flags.val())
            | (self.sges.val() > self.limit.val())
            | (self.inline_bytes.val() > self.inline_limit.val())
            | (self.has_inline.val() & self.sges.val().any());
        self.next_passed.next = self.passed.q.val() + 1;
        self.ends_batch.next = self.next_passed.val() == self.fetch.data.val().count;

        self.line.ready.next = false;
        self.fetch.ready.next = false;
        self.kept.next = self.request.q.val();
        self.kept_flags.next = self.kept.val().get_bits::<8>(8);
        self.kept_bytes.next = self.kept.val().get_bits::<8>(24);
        self.now.next = self.entries.q.val();
        self.more.next = self.entries.q.val() >> 128;
        if self.is_inline.q.val() {
            self.more.next = self.entries.q.val() >> 512;
        }
        self.is_last.next = !(self.left.q.val().get_bit(1) | self.left.q.val().get_bit(2));
        self.items.fill.valid.next = false;
        self.items.fill.data.next.qpn = self.fetch.data.val().qpn;
        self.items.fill.data.next.index = self.fetch.data.val().index + bit_cast::<16, 4>(self.passed.q.val());
        self.items.fill.data.next.signaled = self.kept_flags.val().get_bit(0);
        // Of silent requests only the last one posted: an acknowledgement covers all before it.
        self.items.fill.data.next.asks_ack = self.kept_flags.val().get_bit(0) | (self.fetch.data.val().is_tail & self.ends_batch.val());
        self.items.fill.data.next.solicited = self.kept_flags.val().get_bit(1);
        self.items.fill.data.next.is_bad = self.is_bad.q.val();
        self.items.fill.data.next.is_inline = self.is_inline.q.val();
        self.items.fill.data.next.has_sge = self.left.q.val().any();
        self.items.fill.data.next.last = self.is_last.val();
        self.items.fill.data.next.remote_va = self.kept.val().get_bits::<64>(64);
        self.items.fill.data.next.rkey = self.kept.val().get_bits::<32>(128);
        self.items.fill.data.next.va = self.now.val().get_bits::<64>(0);
        self.items.fill.data.next.len = self.now.val().get_bits::<32>(64);
        if self.is_inline.q.val() {
            self.items.fill.data.next.len = bit_cast::<32, 8>(self.kept_bytes.val());
        }
        self.items.fill.data.next.lkey = self.now.val().get_bits::<32>(96);
        self.inlines.fill.valid.next = false;
        self.inlines.fill.data.next = self.now.val().get_bits::<512>(0);
        self.advance.next = false;
        self.take_first.next = false;

        match self.state.q.val() {
            State::First => {
                self.take_first.next = self.line.valid.val() & self.fetch.valid.val();
            }
            State::Second => {
                if self.line.valid.val() {
                    self.line.ready.next = true;
                    self.entries.d.next = self.now.val() | (bit_cast::<768, 512>(self.data.val()) << 256);
                    self.state.d.next = State::Emit;
                }
            }
            State::Emit => {
                // Both ways have room, or nothing moves: so no line is ever without its item for long.
                self.advance.next = self.items.fill.ready.val() & (self.inlines.fill.ready.val() | !self.is_inline.q.val());
                self.inlines.fill.valid.next = self.advance.val() & self.is_inline.q.val();
                self.items.fill.valid.next = self.advance.val() & (self.is_last.val() | !self.is_inline.q.val());
                if self.advance.val() {
                    self.entries.d.next = self.more.val();
                    self.left.d.next = self.left.q.val() - 1;
                    if self.is_last.val() {
                        self.passed.d.next = self.next_passed.val();
                        self.state.d.next = State::First;
                        if self.ends_batch.val() {
                            self.fetch.ready.next = true;
                            self.passed.d.next = 0.into();
                        }
                        // The next one of the batch may come at once.
                        self.take_first.next = self.line.valid.val() & !self.ends_batch.val();
                    }
                }
            }
            _ => {
                self.state.d.next = State::First;
            }
        }
        if self.take_first.val() {
            self.line.ready.next = true;
            self.request.d.next = self.head.val();
            self.entries.d.next = bit_cast::<768, 256>(self.tail.val());
            self.is_bad.d.next = self.is_malformed.val();
            self.is_inline.d.next = self.has_inline.val() & !self.is_malformed.val();
            self.left.d.next = bit_cast::<3, 8>(self.sges.val());
            if self.has_inline.val() {
                self.left.d.next = 1.into();
                if self.inline_bytes.val() > self.line_bytes.val() {
                    self.left.d.next = 2.into();
                }
            }
            if self.is_malformed.val() {
                self.left.d.next = 0.into();
            }
            self.state.d.next = State::Emit;
            if self.fetch.data.val().two_units {
                self.state.d.next = State::Second;
            }
        }

        if self.reset.val() {
            self.state.d.next = State::First;
            self.passed.d.next = 0.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::{pack, unpack};
    use crate::testing::{Bench, Driver, Monitor, Stalls};

    /// Fetches, their lines, and the items that they are to become.
    #[derive(Default)]
    struct Work {
        fetches: Vec<Fetch>,
        lines: Vec<Line>,
        items: Vec<SgeItem>,
        /// Lines of inline data, as far as they count.
        inline: Vec<Vec<u8>>,
    }

    impl Work {
        fn fetch(&mut self, qpn: u64, index: u64, two_units: bool, requests: &[[u8; 128]]) {
            let count = requests.len() as u64;
            let is_tail = index % 3 == 0;
            self.fetches.push(Fetch { qpn: qpn.into(), index: (index % 0x1_0000).into(), count: count.into(), two_units, is_tail });
            for (i, bytes) in requests.iter().enumerate() {
                let is_last = i == requests.len() - 1;
                if two_units {
                    self.lines.push(Line { data: pack(&bytes[..64]), last: false });
                    self.lines.push(Line { data: pack(&bytes[64..]), last: is_last });
                } else {
                    self.lines.push(Line { data: pack(&bytes[..64]), last: is_last });
                }
                let limit = if two_units { limits::MAX_SGES } else { limits::SGES_ONE_UNIT };
                let inline = usize::from(bytes[3]);
                let is_bad = bytes[0] != queue::WqeOp::Write as u8
                    || bytes[1] & !7 != 0
                    || usize::from(bytes[2]) > limit
                    || inline > limit * limits::SGE_BYTES
                    || (inline > 0 && bytes[2] > 0);
                let is_inline = inline > 0 && !is_bad;
                let sges = if is_bad { 0 } else { usize::from(bytes[2]).max(usize::from(is_inline)) };
                if is_inline {
                    self.inline.extend(bytes[32..32 + inline].chunks(64).map(<[u8]>::to_vec));
                }
                let word = |at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
                for sge in 0..sges.max(1) {
                    let at = 32 + 16 * sge;
                    self.items.push(SgeItem {
                        qpn: qpn.into(),
                        index: ((index + i as u64) % 0x1_0000).into(),
                        signaled: bytes[1] & 1 != 0,
                        asks_ack: bytes[1] & 1 != 0 || (is_tail && is_last),
                        solicited: bytes[1] & 2 != 0,
                        is_bad,
                        is_inline,
                        has_sge: sges > 0,
                        last: sge + 1 >= sges,
                        remote_va: (word(8) | word(12) << 32).into(),
                        rkey: word(16).into(),
                        va: (word(at) | word(at + 4) << 32).into(),
                        len: if is_inline { inline as u64 } else { word(at + 8) }.into(),
                        lkey: word(at + 12).into(),
                    });
                }
            }
        }

        /// Batches of 1 to 8 requests of one or two units, some of them malformed.
        fn new(seed: u64, count: usize) -> Self {
            let mut random = Stalls::new(seed);
            let mut work = Self::default();
            for _ in 0..count {
                let two_units = random.random() % 2 == 0;
                let limit = if two_units { limits::MAX_SGES } else { limits::SGES_ONE_UNIT } as u64;
                let requests: Vec<_> = (0..1 + random.random() % 8)
                    .map(|_| {
                        let mut bytes = core::array::from_fn(|_| random.random() as u8);
                        (bytes[0], bytes[1], bytes[2], bytes[3]) = (1, bytes[1] % 8, (random.random() % (limit + 1)) as u8, 0);
                        if random.random() % 3 == 0 {
                            (bytes[2], bytes[3]) = (0, (random.random() % (16 * limit + 1)) as u8);
                        }
                        match random.random() % 16 {
                            0 => bytes[0] = random.random() as u8,
                            1 => bytes[1] |= 8 << (random.random() % 5),
                            2 => bytes[2] = (limit + 1) as u8,
                            3 => bytes[2] = 0xF8 | random.random() as u8,
                            4 => bytes[3] = (16 * limit + 1) as u8,
                            5 => (bytes[2], bytes[3]) = (1, 1),
                            _ => {}
                        }
                        bytes
                    })
                    .collect();
                work.fetch(random.random() % 256, random.random() % 0x1_0000, two_units, &requests);
            }
            // The index of a request passes 2^16.
            let mut request = [1; 128];
            request[3] = 0;
            work.fetch(7, 0xFFFD, false, &[request; 8]);
            work
        }
    }

    fn reset(bench: &mut Bench<Decode>) {
        bench.uut.fetch.valid.next = false;
        bench.uut.line.valid.next = false;
        bench.uut.reset.next = true;
        bench.cycles(2);
        bench.uut.reset.next = false;
    }

    /// Sends all, until it is out or for `limit` clocks; returns the clocks to the first item and to the end.
    fn run(bench: &mut Bench<Decode>, work: &Work, stalls: [Stalls; 4], limit: usize) -> (usize, usize) {
        let [fetch, line, item, inline] = stalls;
        let mut fetch = Driver::new(work.fetches.iter().copied(), fetch);
        let mut line = Driver::new(work.lines.iter().copied(), line);
        let mut item = Monitor::new(item);
        let mut inline = Monitor::new(inline);
        let (mut first, mut clock) = (0, 0);
        while clock < limit && item.got.len() < work.items.len() {
            fetch.before(&mut bench.uut.fetch);
            line.before(&mut bench.uut.line);
            item.before(&mut bench.uut.item);
            inline.before(&mut bench.uut.inline);
            bench.settle();
            fetch.after(&bench.uut.fetch);
            line.after(&bench.uut.line);
            item.after(&bench.uut.item);
            inline.after(&bench.uut.inline);
            if first == 0 && bench.uut.item.valid.val() {
                first = clock;
            }
            bench.edge();
            clock += 1;
        }
        // Fields of an entry that is not there do not count.
        let known = |item: &SgeItem| {
            let mut item = *item;
            if item.is_inline {
                (item.va, item.lkey) = (0u64.into(), 0u64.into());
            }
            if !item.has_sge {
                (item.va, item.len, item.lkey) = (0u64.into(), 0u64.into(), 0u64.into());
            }
            item
        };
        if clock < limit {
            for (got, expected) in item.got.iter().zip(&work.items) {
                assert_eq!(known(got), known(expected));
            }
            assert!(fetch.is_done() && line.is_done(), "lines of malformed requests are taken too");
            assert_eq!(inline.got.len(), work.inline.len(), "lines of inline data are there with their items");
            for (got, expected) in inline.got.iter().zip(&work.inline) {
                assert_eq!(unpack(*got)[..expected.len()], expected[..]);
            }
        }
        (first, clock)
    }

    #[test]
    fn lines_become_entries_and_malformed_requests_are_marked_under_random_stalls() {
        let mut bench = Bench::new("tx_decode", Decode::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        for seed in 1..5 {
            let work = Work::new(seed, 20);
            run(&mut bench, &work, [10, 20, 30, 35].map(|n| Stalls::new(seed + n)), 70 + seed as usize);
            reset(&mut bench);
            assert!(run(&mut bench, &work, [40, 50, 60, 65].map(|n| Stalls::new(seed + n)), 4000).1 < 4000, "a request hangs");
        }
        bench.finish();
    }

    #[test]
    fn a_request_takes_a_clock_for_each_unit_and_each_entry_or_inline_line_behind_the_first() {
        let mut bench = Bench::new("tx_decode_rate", Decode::default(), |uut| &mut uut.clock);
        for (two_units, sges, inline) in [
            (false, 0, 0_usize),
            (false, 1, 0),
            (false, 2, 0),
            (false, 0, 32),
            (true, 0, 0),
            (true, 1, 0),
            (true, 6, 0),
            (true, 0, 64),
            (true, 0, 96),
        ] {
            reset(&mut bench);
            let mut request = [0; 128];
            (request[0], request[2], request[3]) = (1, sges as u8, inline as u8);
            let mut work = Work::default();
            for batch in 0..4 {
                work.fetch(5, 8 * batch, two_units, &[request; 8]);
            }
            let (first, end) = run(&mut bench, &work, core::array::from_fn(|_| Stalls::none()), 1000);
            let lines = inline.div_ceil(64);
            assert_eq!(first, 2 + usize::from(two_units) + usize::from(lines == 2));
            let behind_the_first = sges.max(lines).max(1) - 1;
            assert_eq!(end, 32 * (1 + usize::from(two_units) + behind_the_first) + 4 + 1, "{two_units}, {sges} entries, {inline} bytes");
        }
        bench.finish();
    }
}
