//! Keeps frames until their verdict is known, and hands on those that are accepted.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `beat_valid` `beat_last` `beat_data` | in | beats of frames, one a clock, never stalled |
//! | `accept` `head` `skip` `needed` | in | with `beat_last`: keep the frame; its head; its payload begins in beat `skip`; beats up to the payload's end, 0 without payload |
//! | `overflow` | out | one clock later: the frame was to be kept and had no room |
//! | `heads` | source | heads of accepted frames |
//! | `lines` | source | payload lines of accepted frames, in the same order |
//!
//! Store and forward: beats go into a ring of `1 << N` lines behind the last accepted frame. On accept
//! the end of the ring moves up to the end of the payload, otherwise the next frame overwrites
//! them. A head is offered two clocks after its frame's last beat, when all its lines are in the
//! ring; the first line follows three clocks later. Throughput: one beat in and one line out every clock, a frame
//! every clock.
//!
//! Limits: 128 heads, and 129 frames with payload whose lines were not all read, one of them in the reader. The wire brings
//! a frame of minimal length every 1.7 clocks and a head is taken every two, so 128 heads take up, by calculation,
//! about 800 such frames in a row. Beats that find the ring full are not stored, and a frame misses its place only if it needs one of them; a frame without payload needs none,
//! so acknowledgements get through when data does not.

use rust_hdl::prelude::*;

use crate::bus::{Line, RxHead, StreamSource};
use crate::prim::{Fifo, Ram};

/// Where the lines of a frame are.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Stored {
    /// Index of the first line, as the ring counts.
    pub start: Bits<16>,
    /// Lines, at least 1.
    pub lines: Bits<7>,
}

/// The buffer, of `1 << N` lines; `M` must be `N + 1`.
#[derive(LogicBlock)]
pub struct RxBuffer<const N: usize, const M: usize> {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub beat_valid: Signal<In, Bit>,
    pub beat_last: Signal<In, Bit>,
    pub beat_data: Signal<In, Bits<512>>,
    pub accept: Signal<In, Bit>,
    pub head: Signal<In, RxHead>,
    pub skip: Signal<In, Bit>,
    pub needed: Signal<In, Bits<7>>,
    pub overflow: Signal<Out, Bit>,
    pub heads: StreamSource<RxHead>,
    pub lines: StreamSource<Line>,

    ram: Ram<Bits<512>, N>,
    head_fifo: Fifo<RxHead, 7, 8>,
    stored_fifo: Fifo<Stored, 7, 8>,
    front: Fifo<Line, 2, 3>,

    base: DFF<Bits<M>>,
    write_index: DFF<Bits<M>>,
    is_stuck: DFF<Bit>,
    overflow_flag: DFF<Bit>,
    used: Signal<Local, Bits<M>>,
    held: Signal<Local, Bits<M>>,
    is_full: Signal<Local, Bit>,
    is_missing: Signal<Local, Bit>,
    has_lines: Signal<Local, Bit>,
    needed_wide: Signal<Local, Bits<M>>,
    skip_wide: Signal<Local, Bits<M>>,
    start: Signal<Local, Bits<M>>,
    room: Signal<Local, Bit>,
    ends: Signal<Local, Bit>,
    keep: Signal<Local, Bit>,

    heads_held: Signal<Local, Bits<8>>,
    stored_held: Signal<Local, Bits<8>>,
    push_head: DFF<Bit>,
    push_stored: DFF<Bit>,
    head_in: DFF<RxHead>,
    stored_in: DFF<Stored>,

    free: DFF<Bits<M>>,
    has_frame: DFF<Bit>,
    read_index: DFF<Bits<M>>,
    left: DFF<Bits<7>>,
    stored_out: Signal<Local, Stored>,
    stored_start: Signal<Local, Bits<16>>,
    after_read: Signal<Local, Bits<M>>,
    is_last_line: Signal<Local, Bit>,
    take: Signal<Local, Bit>,
    in_flight: Signal<Local, Bits<3>>,
    read: Signal<Local, Bit>,
    is_reading: DFF<Bit>,
    reads_last: DFF<Bit>,
    line_out: Signal<Local, Line>,

    depth: Constant<Bits<M>>,
    entries: Constant<Bits<8>>,
    front_room: Constant<Bits<3>>,
}

impl<const N: usize, const M: usize> Default for RxBuffer<N, M> {
    fn default() -> Self {
        assert!(M == N + 1 && M <= 16, "indices of a ring of 2^{N} lines have {} bits", N + 1);
        Self {
            clock: Default::default(),
            reset: Default::default(),
            beat_valid: Default::default(),
            beat_last: Default::default(),
            beat_data: Default::default(),
            accept: Default::default(),
            head: Default::default(),
            skip: Default::default(),
            needed: Default::default(),
            overflow: Default::default(),
            heads: Default::default(),
            lines: Default::default(),
            ram: Default::default(),
            head_fifo: Default::default(),
            stored_fifo: Default::default(),
            front: Default::default(),
            base: Default::default(),
            write_index: Default::default(),
            is_stuck: Default::default(),
            overflow_flag: Default::default(),
            used: Default::default(),
            held: Default::default(),
            is_full: Default::default(),
            is_missing: Default::default(),
            has_lines: Default::default(),
            needed_wide: Default::default(),
            skip_wide: Default::default(),
            start: Default::default(),
            room: Default::default(),
            ends: Default::default(),
            keep: Default::default(),
            heads_held: Default::default(),
            stored_held: Default::default(),
            push_head: Default::default(),
            push_stored: Default::default(),
            head_in: Default::default(),
            stored_in: Default::default(),
            free: Default::default(),
            has_frame: Default::default(),
            read_index: Default::default(),
            left: Default::default(),
            stored_out: Default::default(),
            stored_start: Default::default(),
            after_read: Default::default(),
            is_last_line: Default::default(),
            take: Default::default(),
            in_flight: Default::default(),
            read: Default::default(),
            is_reading: Default::default(),
            reads_last: Default::default(),
            line_out: Default::default(),
            depth: Constant::new((1usize << N).to_bits()),
            entries: Constant::new(128u8.to_bits()),
            front_room: Constant::new(3u8.to_bits()),
        }
    }
}

impl<const N: usize, const M: usize> Logic for RxBuffer<N, M> {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, base, write_index, is_stuck, overflow_flag, push_head, push_stored, head_in, stored_in);
        dff_setup!(self, clock, free, has_frame, read_index, left, is_reading, reads_last);
        clock!(self, clock, ram, head_fifo, stored_fifo, front);
        self.head_fifo.reset.next = self.reset.val();
        self.stored_fifo.reset.next = self.reset.val();
        self.front.reset.next = self.reset.val();

        // Beats are stored as they come. After one that found no room the rest of the frame is left
        // out too, so what is held is always the beginning of the frame.
        self.used.next = self.write_index.q.val() - self.free.q.val();
        self.held.next = self.write_index.q.val() - self.base.q.val();
        self.is_full.next = (self.used.val() == self.depth.val()) | self.is_stuck.q.val();
        self.ram.write_enable.next = self.beat_valid.val() & !self.is_full.val();
        self.ram.write_address.next = bit_cast::<N, M>(self.write_index.q.val());
        self.ram.write_data.next = self.beat_data.val();
        if self.beat_valid.val() {
            self.is_stuck.d.next = self.is_full.val();
            if !self.is_full.val() {
                self.write_index.d.next = self.write_index.q.val() + 1;
            }
        }

        // The end of a frame.
        self.needed_wide.next = bit_cast::<M, 7>(self.needed.val());
        self.skip_wide.next = bit_cast::<M, 1>(self.skip.val().into());
        self.has_lines.next = self.needed.val() != 0;
        self.is_missing.next = self.is_full.val() & (self.held.val() < self.needed_wide.val());
        self.heads_held.next = self.head_fifo.level.val() + bit_cast::<8, 1>(self.push_head.q.val().into());
        self.stored_held.next = self.stored_fifo.level.val() + bit_cast::<8, 1>(self.push_stored.q.val().into());
        self.room.next = (self.heads_held.val() != self.entries.val())
            & ((self.stored_held.val() != self.entries.val()) | !self.has_lines.val())
            & !self.is_missing.val();
        self.ends.next = self.beat_valid.val() & self.beat_last.val();
        self.keep.next = self.ends.val() & self.accept.val() & self.room.val();
        self.overflow_flag.d.next = self.ends.val() & self.accept.val() & !self.room.val();
        self.overflow.next = self.overflow_flag.q.val();
        if self.ends.val() {
            self.is_stuck.d.next = false;
            self.write_index.d.next = self.base.q.val();
        }
        if self.keep.val() {
            self.base.d.next = self.base.q.val() + self.needed_wide.val();
            self.write_index.d.next = self.base.q.val() + self.needed_wide.val();
        }
        self.start.next = self.base.q.val() + self.skip_wide.val();
        self.push_head.d.next = self.keep.val();
        self.push_stored.d.next = self.keep.val() & self.has_lines.val();
        self.head_in.d.next = self.head.val();
        self.stored_in.d.next.start = bit_cast::<16, M>(self.start.val());
        self.stored_in.d.next.lines = self.needed.val() - bit_cast::<7, 1>(self.skip.val().into());
        self.head_fifo.fill.valid.next = self.push_head.q.val();
        self.head_fifo.fill.data.next = self.head_in.q.val();
        self.stored_fifo.fill.valid.next = self.push_stored.q.val();
        self.stored_fifo.fill.data.next = self.stored_in.q.val();

        // Lines are read while the small FIFO behind the block memory has room for what is on its
        // way. What a frame leaves out in front of its payload is given back with its first line.
        self.in_flight.next = self.front.level.val() + bit_cast::<3, 1>(self.is_reading.q.val().into());
        self.read.next = self.has_frame.q.val() & (self.in_flight.val() <= self.front_room.val());
        self.is_last_line.next = self.left.q.val() == 1;
        self.ram.read_address.next = bit_cast::<N, M>(self.read_index.q.val());
        self.is_reading.d.next = self.read.val();
        self.reads_last.d.next = self.is_last_line.val();
        self.after_read.next = self.read_index.q.val() + 1;
        if self.read.val() {
            self.read_index.d.next = self.after_read.val();
            self.free.d.next = self.after_read.val();
            self.left.d.next = self.left.q.val() - 1;
        }
        self.take.next = !self.has_frame.q.val() | (self.read.val() & self.is_last_line.val());
        self.stored_fifo.drain.ready.next = self.take.val();
        self.stored_out.next = self.stored_fifo.drain.data.val();
        self.stored_start.next = self.stored_out.val().start;
        if self.take.val() {
            self.has_frame.d.next = self.stored_fifo.drain.valid.val();
            self.read_index.d.next = bit_cast::<M, 16>(self.stored_start.val());
            self.left.d.next = self.stored_out.val().lines;
        }
        self.line_out.next.data = self.ram.read_data.val();
        self.line_out.next.last = self.reads_last.q.val();
        self.front.fill.valid.next = self.is_reading.q.val();
        self.front.fill.data.next = self.line_out.val();

        self.heads.data.next = self.head_fifo.drain.data.val();
        self.heads.valid.next = self.head_fifo.drain.valid.val();
        self.head_fifo.drain.ready.next = self.heads.ready.val();
        self.lines.data.next = self.front.drain.data.val();
        self.lines.valid.next = self.front.drain.valid.val();
        self.front.drain.ready.next = self.lines.ready.val();

        if self.reset.val() {
            self.base.d.next = 0.into();
            self.write_index.d.next = 0.into();
            self.is_stuck.d.next = false;
            self.overflow_flag.d.next = false;
            self.free.d.next = 0.into();
            self.has_frame.d.next = false;
            self.push_head.d.next = false;
            self.push_stored.d.next = false;
            self.is_reading.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests;
