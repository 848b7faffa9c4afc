//! Cuts what a fetch brings into requests, and each request into its scatter/gather entries.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `fetch` | sink | which requests the lines hold, in order |
//! | `line` | sink | the lines: one unit of a send queue each |
//! | `item` | source | one entry a clock with its request; a request without entries is one item |
//!
//! Latency: one clock. Throughput: a request of one entry takes two clocks, one of `n` entries
//! `n + 1`, one of two units one more. A request that is malformed (opcode, unknown flags, more
//! entries than its units hold) becomes one item marked `is_bad`; its lines are taken all the same.

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

    state: DFF<State>,
    request: DFF<Bits<256>>,
    entries: DFF<Bits<768>>,
    left: DFF<Bits<3>>,
    is_bad: DFF<Bit>,
    passed: DFF<Bits<4>>,
    items: Fifo<SgeItem, 1, 2>,

    data: Signal<Local, Bits<512>>,
    head: Signal<Local, Bits<256>>,
    tail: Signal<Local, Bits<256>>,
    opcode: Signal<Local, Bits<8>>,
    flags: Signal<Local, Bits<8>>,
    sges: Signal<Local, Bits<8>>,
    limit: Signal<Local, Bits<8>>,
    is_malformed: Signal<Local, Bit>,
    next_passed: Signal<Local, Bits<4>>,
    kept: Signal<Local, Bits<256>>,
    kept_flags: Signal<Local, Bits<8>>,
    now: Signal<Local, Bits<768>>,
    more: Signal<Local, Bits<768>>,
    is_last: Signal<Local, Bit>,
    write_op: Constant<Bits<8>>,
    known_flags: Constant<Bits<8>>,
    one_unit: Constant<Bits<8>>,
    two_units: Constant<Bits<8>>,
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
            state: Default::default(),
            request: Default::default(),
            entries: Default::default(),
            left: Default::default(),
            is_bad: Default::default(),
            passed: Default::default(),
            items: Default::default(),
            data: Default::default(),
            head: Default::default(),
            tail: Default::default(),
            opcode: Default::default(),
            flags: Default::default(),
            sges: Default::default(),
            limit: Default::default(),
            is_malformed: Default::default(),
            next_passed: Default::default(),
            kept: Default::default(),
            kept_flags: Default::default(),
            now: Default::default(),
            more: Default::default(),
            is_last: Default::default(),
            write_op: Constant::new((queue::WqeOp::Write as u8).to_bits()),
            known_flags: Constant::new(known.to_bits()),
            one_unit: Constant::new(limits::SGES_ONE_UNIT.to_bits()),
            two_units: Constant::new(limits::MAX_SGES.to_bits()),
        }
    }
}

impl Logic for Decode {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, state, request, entries, left, is_bad, passed);
        clock!(self, clock, items);
        self.items.reset.next = self.reset.val();
        StreamSource::<SgeItem>::link(&mut self.item, &mut self.items.drain);

        self.data.next = self.line.data.val().data;
        self.head.next = self.data.val().get_bits::<256>(0);
        self.tail.next = self.data.val().get_bits::<256>(256);
        self.opcode.next = self.data.val().get_bits::<8>(0);
        self.flags.next = self.data.val().get_bits::<8>(8);
        self.sges.next = self.data.val().get_bits::<8>(16);
        self.limit.next = self.one_unit.val();
        if self.fetch.data.val().two_units {
            self.limit.next = self.two_units.val();
        }
        self.is_malformed.next = (self.opcode.val() != self.write_op.val())
            | ((self.flags.val() | self.known_flags.val()) != self.known_flags.val())
            | (self.sges.val() > self.limit.val());
        self.next_passed.next = self.passed.q.val() + 1;

        self.line.ready.next = false;
        self.fetch.ready.next = false;
        self.kept.next = self.request.q.val();
        self.kept_flags.next = self.kept.val().get_bits::<8>(8);
        self.now.next = self.entries.q.val();
        self.more.next = self.entries.q.val() >> 128;
        self.is_last.next = !(self.left.q.val().get_bit(1) | self.left.q.val().get_bit(2));
        self.items.fill.valid.next = false;
        self.items.fill.data.next.qpn = self.fetch.data.val().qpn;
        self.items.fill.data.next.index = self.fetch.data.val().index + bit_cast::<16, 4>(self.passed.q.val());
        self.items.fill.data.next.signaled = self.kept_flags.val().get_bit(0);
        self.items.fill.data.next.solicited = self.kept_flags.val().get_bit(1);
        self.items.fill.data.next.is_bad = self.is_bad.q.val();
        self.items.fill.data.next.has_sge = self.left.q.val().any();
        self.items.fill.data.next.last = self.is_last.val();
        self.items.fill.data.next.remote_va = self.kept.val().get_bits::<64>(64);
        self.items.fill.data.next.rkey = self.kept.val().get_bits::<32>(128);
        self.items.fill.data.next.va = self.now.val().get_bits::<64>(0);
        self.items.fill.data.next.len = self.now.val().get_bits::<32>(64);
        self.items.fill.data.next.lkey = self.now.val().get_bits::<32>(96);

        match self.state.q.val() {
            State::First => {
                if self.line.valid.val() & self.fetch.valid.val() {
                    self.line.ready.next = true;
                    self.request.d.next = self.head.val();
                    self.entries.d.next = bit_cast::<768, 256>(self.tail.val());
                    self.is_bad.d.next = self.is_malformed.val();
                    self.left.d.next = bit_cast::<3, 8>(self.sges.val());
                    if self.is_malformed.val() {
                        self.left.d.next = 0.into();
                    }
                    self.state.d.next = State::Emit;
                    if self.fetch.data.val().two_units {
                        self.state.d.next = State::Second;
                    }
                }
            }
            State::Second => {
                if self.line.valid.val() {
                    self.line.ready.next = true;
                    self.entries.d.next = self.now.val() | (bit_cast::<768, 512>(self.data.val()) << 256);
                    self.state.d.next = State::Emit;
                }
            }
            State::Emit => {
                self.items.fill.valid.next = true;
                if self.items.fill.ready.val() {
                    self.entries.d.next = self.more.val();
                    self.left.d.next = self.left.q.val() - 1;
                    if self.is_last.val() {
                        self.passed.d.next = self.next_passed.val();
                        if self.next_passed.val() == self.fetch.data.val().count {
                            self.fetch.ready.next = true;
                            self.passed.d.next = 0.into();
                        }
                        self.state.d.next = State::First;
                    }
                }
            }
            _ => {
                self.state.d.next = State::First;
            }
        }

        if self.reset.val() {
            self.state.d.next = State::First;
            self.passed.d.next = 0.into();
        }
    }
}
