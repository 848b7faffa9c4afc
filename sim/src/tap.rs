//! Notes when something passes a port of a card, for measuring latencies.

use crate::ffi::{CoreIn, CoreOut};

/// What passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// A register was written.
    RegisterWrite,
    /// A read of host memory was asked for.
    ReadRequest,
    /// The last beat of a read came.
    ReadEnd,
    /// The last beat of a write went.
    WriteEnd,
    /// A write was answered.
    WriteAnswer,
    /// The first beat of a frame went to the MAC.
    FrameStart,
    /// The last beat of a frame went to the MAC.
    FrameEnd,
    /// The first beat of a frame came from the MAC.
    ArrivalStart,
    /// The last beat of a frame came from the MAC.
    ArrivalEnd,
}

/// The record of a card.
#[derive(Debug, Default)]
pub struct Tap {
    notes: Vec<(u64, Passed)>,
    in_frame: bool,
    in_arrival: bool,
}

impl Tap {
    /// Notes what passes in `clock`.
    pub(crate) fn note(&mut self, clock: u64, input: &CoreIn, output: &CoreOut) {
        let mut note = |passed, what| {
            if passed {
                self.notes.push((clock, what));
            }
        };
        let sends = output.tx.valid && input.tx_ready;
        let receives = input.rx.valid && output.rx_ready;
        note(input.axil.wvalid && output.axil.wready, Passed::RegisterWrite);
        note(output.axi.arvalid && input.axi.arready, Passed::ReadRequest);
        note(input.axi.rvalid && output.axi.rready && input.axi.rlast, Passed::ReadEnd);
        note(output.axi.wvalid && input.axi.wready && output.axi.wlast, Passed::WriteEnd);
        note(input.axi.bvalid && output.axi.bready, Passed::WriteAnswer);
        note(sends && !self.in_frame, Passed::FrameStart);
        note(sends && output.tx.last, Passed::FrameEnd);
        note(receives && !self.in_arrival, Passed::ArrivalStart);
        note(receives && input.rx.last, Passed::ArrivalEnd);
        self.in_frame = if sends { !output.tx.last } else { self.in_frame };
        self.in_arrival = if receives { !input.rx.last } else { self.in_arrival };
    }

    /// Returns what was noted since the last call, oldest first, with its clock.
    pub fn take(&mut self) -> Vec<(u64, Passed)> {
        std::mem::take(&mut self.notes)
    }
}
