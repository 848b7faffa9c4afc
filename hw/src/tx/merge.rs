//! Joins headers and payload into frames.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `header` | sink | finished headers |
//! | `line` | sink | payload lines, aligned to the end of the headers |
//! | `beat` | source | frames with room for the ICRC, and where it belongs |
//!
//! Latency: one clock. Throughput: one beat a clock, across frames. A frame has as many beats as
//! its bytes need, with pad and ICRC; the last may hold nothing but a part of the ICRC.

use rust_hdl::prelude::*;
use verbena_abi::wire;

use crate::bus::{FrameBeat, Header, Line, StreamSink, StreamSource};
use crate::prim::Fifo;

#[derive(LogicBlock)]
pub struct Merge {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub header: StreamSink<Header>,
    pub line: StreamSink<Line>,
    pub beat: StreamSource<FrameBeat>,

    beats: Fifo<FrameBeat, 1, 2>,
    is_first: DFF<Bit>,
    is_second: DFF<Bit>,
    sent: DFF<Bits<13>>,
    payload_done: DFF<Bit>,

    now: Signal<Local, Header>,
    bytes: Signal<Local, Bits<752>>,
    low: Signal<Local, Bits<512>>,
    high: Signal<Local, Bits<240>>,
    covered: Signal<Local, Bits<13>>,
    covered_left: Signal<Local, Bits<13>>,
    frame_left: Signal<Local, Bits<13>>,
    needs_line: Signal<Local, Bit>,
    begins_here: Signal<Local, Bit>,
    has_payload: Signal<Local, Bit>,
    go: Signal<Local, Bit>,
    is_last: Signal<Local, Bit>,
    payload: Signal<Local, Bits<512>>,
    beat_bytes: Constant<Bits<13>>,
    short_header: Constant<Bits<7>>,
    icrc_bytes: Constant<Bits<13>>,
    zero: Constant<Bits<13>>,
}

impl Default for Merge {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            header: Default::default(),
            line: Default::default(),
            beat: Default::default(),
            beats: Default::default(),
            is_first: Default::default(),
            is_second: Default::default(),
            sent: Default::default(),
            payload_done: Default::default(),
            now: Default::default(),
            bytes: Default::default(),
            low: Default::default(),
            high: Default::default(),
            covered: Default::default(),
            covered_left: Default::default(),
            frame_left: Default::default(),
            needs_line: Default::default(),
            begins_here: Default::default(),
            has_payload: Default::default(),
            go: Default::default(),
            is_last: Default::default(),
            payload: Default::default(),
            beat_bytes: Constant::new(64u32.to_bits()),
            short_header: Constant::new(64u32.to_bits()),
            icrc_bytes: Constant::new(wire::ICRC_BYTES.to_bits()),
            zero: Constant::new(0u32.to_bits()),
        }
    }
}

impl Logic for Merge {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, is_first, is_second, sent, payload_done);
        clock!(self, clock, beats);
        self.beats.reset.next = self.reset.val();
        StreamSource::<FrameBeat>::link(&mut self.beat, &mut self.beats.drain);

        self.now.next = self.header.data.val();
        self.bytes.next = self.now.val().bytes;
        self.low.next = self.bytes.val().get_bits::<512>(0);
        self.high.next = self.bytes.val().get_bits::<240>(512);
        self.has_payload.next = self.now.val().payload.any();
        self.covered.next = bit_cast::<13, 7>(self.now.val().len) + self.now.val().payload + bit_cast::<13, 2>(self.now.val().pad);
        self.covered_left.next = self.covered.val() - self.sent.q.val();
        self.frame_left.next = self.covered_left.val() + self.icrc_bytes.val();
        self.is_last.next = self.frame_left.val() <= self.beat_bytes.val();

        // Headers of more than one beat begin the payload in the second.
        self.begins_here.next = !self.is_first.q.val() | (self.now.val().len < self.short_header.val());
        self.needs_line.next = self.has_payload.val() & self.begins_here.val() & !self.payload_done.q.val();
        self.go.next = self.header.valid.val() & self.beats.fill.ready.val() & (self.line.valid.val() | !self.needs_line.val());
        self.line.ready.next = self.needs_line.val() & self.header.valid.val() & self.beats.fill.ready.val();
        self.header.ready.next = self.go.val() & self.is_last.val();
        self.payload.next = 0.into();
        if self.needs_line.val() {
            self.payload.next = self.line.data.val().data;
        }
        self.beats.fill.valid.next = self.go.val();
        self.beats.fill.data.next.data = self.payload.val();
        if self.is_first.q.val() {
            self.beats.fill.data.next.data = self.low.val() | self.payload.val();
        } else if self.is_second.q.val() {
            self.beats.fill.data.next.data = bit_cast::<512, 240>(self.high.val()) | self.payload.val();
        }
        self.beats.fill.data.next.bytes = bit_cast::<7, 13>(self.beat_bytes.val());
        if self.is_last.val() {
            self.beats.fill.data.next.bytes = bit_cast::<7, 13>(self.frame_left.val());
        }
        self.beats.fill.data.next.last = self.is_last.val();
        self.beats.fill.data.next.first = self.is_first.q.val();
        self.beats.fill.data.next.second = self.is_second.q.val();
        // In the beat behind the last covered byte `covered_left` is 0; it never is before.
        self.beats.fill.data.next.ends_icrc = (self.covered_left.val() <= self.beat_bytes.val()) & (self.covered_left.val() != self.zero.val());
        self.beats.fill.data.next.covered = bit_cast::<6, 13>(self.covered_left.val());
        self.beats.fill.data.next.ipv6 = self.now.val().ipv6;
        self.beats.fill.data.next.vlan = self.now.val().vlan;
        if self.go.val() {
            self.is_first.d.next = false;
            self.is_second.d.next = self.is_first.q.val();
            self.sent.d.next = self.sent.q.val() + self.beat_bytes.val();
            self.payload_done.d.next = self.payload_done.q.val() | (self.needs_line.val() & self.line.data.val().last);
            if self.is_last.val() {
                self.is_first.d.next = true;
                self.is_second.d.next = false;
                self.sent.d.next = 0.into();
                self.payload_done.d.next = false;
            }
        }

        if self.reset.val() {
            self.is_first.d.next = true;
            self.is_second.d.next = false;
            self.sent.d.next = 0.into();
            self.payload_done.d.next = false;
        }
    }
}
