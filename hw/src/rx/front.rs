//! The receive front: from the MAC's frames to heads and payload of those that are good and ours.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `tdata` `tkeep` `tlast` `tuser` `tvalid` `tready` | AXI4-Stream sink | frames without FCS; `tuser` on the last beat: bad frame |
//! | `mac` `ipv4` `ipv6` `promiscuous` | in | addresses of this station in wire order, first byte in bits 7:0; stable while frames come |
//! | `head` | source | one [`RxHead`] for each accepted frame, in order |
//! | `line` | source | its payload lines as they lie in the frame, from the one with the payload's first byte to the one with its last; none without payload |
//! | `report_valid` `report` | out | one [`RxReport`] for each frame, also for dropped ones; never stalled |
//!
//! Latency from a frame's last beat: 12 clocks to its report, 12 to its head, 15 to its first line.
//! Throughput: one beat every clock, back to back, also frames of one beat; `tready` is always
//! high. What finds no room behind is dropped and reported as overflow (see [`super::buffer::RxBuffer`]).
//! A head is never offered before all of its lines are stored.

use rust_hdl::prelude::*;

use super::buffer::RxBuffer;
use super::front_records::RxReport;
use super::icrc::{self, IcrcCheck};
use super::intake::RxIntake;
use super::judge::{self, RxJudge};
use super::parse::{self, RxParse};
use crate::bus::{Line, RxHead, StreamSource};
use crate::prim::Delay;

/// The receive front with `1 << N` lines of buffer; `M` must be `N + 1`.
#[derive(LogicBlock)]
pub struct RxFront<const N: usize, const M: usize> {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub tdata: Signal<In, Bits<512>>,
    pub tkeep: Signal<In, Bits<64>>,
    pub tlast: Signal<In, Bit>,
    pub tuser: Signal<In, Bit>,
    pub tvalid: Signal<In, Bit>,
    pub tready: Signal<Out, Bit>,
    pub mac: Signal<In, Bits<48>>,
    pub ipv4: Signal<In, Bits<32>>,
    pub ipv6: Signal<In, Bits<128>>,
    pub promiscuous: Signal<In, Bit>,
    pub head: StreamSource<RxHead>,
    pub line: StreamSource<Line>,
    pub report_valid: Signal<Out, Bit>,
    pub report: Signal<Out, RxReport>,

    intake: RxIntake,
    icrc: IcrcCheck,
    parse: RxParse,
    judge: RxJudge,
    carry: Delay<Bits<512>>,
    buffer: RxBuffer<N, M>,
    data: Signal<Local, Bits<512>>,
}

impl<const N: usize, const M: usize> Default for RxFront<N, M> {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            tdata: Default::default(),
            tkeep: Default::default(),
            tlast: Default::default(),
            tuser: Default::default(),
            tvalid: Default::default(),
            tready: Default::default(),
            mac: Default::default(),
            ipv4: Default::default(),
            ipv6: Default::default(),
            promiscuous: Default::default(),
            head: Default::default(),
            line: Default::default(),
            report_valid: Default::default(),
            report: Default::default(),
            intake: Default::default(),
            icrc: Default::default(),
            parse: Default::default(),
            judge: Default::default(),
            carry: Delay::new(judge::LATENCY),
            buffer: Default::default(),
            data: Default::default(),
        }
    }
}

impl<const N: usize, const M: usize> Logic for RxFront<N, M> {
    #[hdl_gen]
    fn update(&mut self) {
        clock!(self, clock, intake, icrc, parse, judge, carry, buffer);
        self.intake.reset.next = self.reset.val();
        self.icrc.reset.next = self.reset.val();
        self.judge.reset.next = self.reset.val();
        self.buffer.reset.next = self.reset.val();

        self.tready.next = true;
        self.intake.tdata.next = self.tdata.val();
        self.intake.tkeep.next = self.tkeep.val();
        self.intake.tlast.next = self.tlast.val();
        self.intake.tuser.next = self.tuser.val();
        self.intake.tvalid.next = self.tvalid.val();

        self.icrc.valid.next = self.intake.valid.val();
        self.icrc.beat.next = self.intake.beat.val();
        self.parse.valid.next = self.intake.valid.val();
        self.parse.beat.next = self.intake.beat.val();
        self.parse.mac.next = self.mac.val();
        self.parse.ipv4.next = self.ipv4.val();
        self.parse.ipv6.next = self.ipv6.val();
        self.parse.promiscuous.next = self.promiscuous.val();

        self.judge.valid.next = self.intake.valid.val();
        self.judge.last.next = self.intake.beat.val().last;
        self.judge.bad.next = self.intake.beat.val().bad;
        self.judge.fields.next = self.parse.fields.val();
        self.judge.checks.next = self.parse.checks.val();
        self.judge.icrc_ok.next = self.icrc.ok.val();

        self.data.next = self.intake.beat.val().data;
        self.carry.fill.next = self.data.val();
        self.buffer.beat_valid.next = self.judge.beat_valid.val();
        self.buffer.beat_last.next = self.judge.beat_last.val();
        self.buffer.beat_data.next = self.carry.drain.val();
        self.buffer.accept.next = self.judge.accept.val();
        self.buffer.head.next = self.judge.head.val();
        self.buffer.skip.next = self.judge.skip.val();
        self.buffer.needed.next = self.judge.needed.val();
        self.judge.overflow.next = self.buffer.overflow.val();

        self.head.data.next = self.buffer.heads.data.val();
        self.head.valid.next = self.buffer.heads.valid.val();
        self.buffer.heads.ready.next = self.head.ready.val();
        self.line.data.next = self.buffer.lines.data.val();
        self.line.valid.next = self.buffer.lines.valid.val();
        self.buffer.lines.ready.next = self.line.ready.val();
        self.report_valid.next = self.judge.report_valid.val();
        self.report.next = self.judge.report.val();
    }
}

/// Parser and ICRC check answer together, so the judge needs no second delay.
const _: () = assert!(icrc::LATENCY == parse::LATENCY);

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
