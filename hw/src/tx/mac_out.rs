//! Gives frames to the MAC as AXI4-Stream.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `beat` | sink | finished frames |
//! | `tdata`, `tkeep`, `tlast`, `tvalid`, `tready` | AXI4-Stream source | the same |
//!
//! Latency: two clocks. Throughput: one beat a clock. Between frames `tvalid` may fall; inside one
//! it does not, since the stages before give a frame without gaps and the FIFO here holds eight
//! beats against the clock that a refill takes.

use rust_hdl::prelude::*;

use crate::bus::{Beat, StreamSink};
use crate::prim::Fifo;

/// A beat as the MAC wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct MacBeat {
    data: Bits<512>,
    keep: Bits<64>,
    last: Bit,
}

#[derive(LogicBlock)]
pub struct MacOut {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub beat: StreamSink<Beat>,
    pub tdata: Signal<Out, Bits<512>>,
    pub tkeep: Signal<Out, Bits<64>>,
    pub tlast: Signal<Out, Bit>,
    pub tvalid: Signal<Out, Bit>,
    pub tready: Signal<In, Bit>,

    beats: Fifo<MacBeat, 3, 4>,
    incoming: Signal<Local, Beat>,
    bytes: Signal<Local, Bits<7>>,
    is_full: Signal<Local, Bit>,
    all: Constant<Bits<64>>,
}

impl Default for MacOut {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            beat: Default::default(),
            tdata: Default::default(),
            tkeep: Default::default(),
            tlast: Default::default(),
            tvalid: Default::default(),
            tready: Default::default(),
            beats: Default::default(),
            incoming: Default::default(),
            bytes: Default::default(),
            is_full: Default::default(),
            all: Constant::new(u64::MAX.to_bits()),
        }
    }
}

impl Logic for MacOut {
    #[hdl_gen]
    fn update(&mut self) {
        clock!(self, clock, beats);
        self.beats.reset.next = self.reset.val();
        self.incoming.next = self.beat.data.val();
        self.bytes.next = self.incoming.val().bytes;
        self.is_full.next = self.bytes.val().get_bit(6);
        self.beat.ready.next = self.beats.fill.ready.val();
        self.beats.fill.valid.next = self.beat.valid.val();
        self.beats.fill.data.next.data = self.incoming.val().data;
        self.beats.fill.data.next.keep = self.all.val();
        if !self.is_full.val() {
            self.beats.fill.data.next.keep = self.all.val() ^ (self.all.val() << self.bytes.val());
        }
        self.beats.fill.data.next.last = self.incoming.val().last;
        self.tdata.next = self.beats.drain.data.val().data;
        self.tkeep.next = self.beats.drain.data.val().keep;
        self.tlast.next = self.beats.drain.data.val().last;
        self.tvalid.next = self.beats.drain.valid.val();
        self.beats.drain.ready.next = self.tready.val();
    }
}
