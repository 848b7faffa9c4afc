//! Joins what parser and ICRC check say of a frame into one verdict, and reports it.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `valid` `last` `bad` | in | flags of a beat from [`super::intake::RxIntake`] |
//! | `fields` `checks` `icrc_ok` | in | what is known of its frame, [`super::parse::LATENCY`] clocks later |
//! | `beat_valid` `beat_last` | out | the beat's flags, [`LATENCY`] clocks later |
//! | `accept` `skip` `needed` `head` | out | with `beat_last`: whether and how the buffer keeps the frame |
//! | `overflow` | in | the buffer had no room after all; one clock behind `accept` |
//! | `report_valid` `report` | out | one for each frame, two clocks behind `beat_last` |
//!
//! Throughput: a frame every clock. Of several faults the report names the first of: bad frame, not
//! ours, malformed, unsupported, wrong ICRC, no room. Only the ICRC vouches for the header
//! fields, so the report of a frame with another verdict than accepted is for counters and people.

use rust_hdl::prelude::*;

use super::front_records::{RxChecks, RxFields, RxReport};
use crate::bus::RxHead;
use verbena_abi::wire::RxVerdict;

/// Clocks from a beat at the intake's output to `beat_valid`.
pub const LATENCY: usize = super::parse::LATENCY + 1;

/// The judge.
#[derive(LogicBlock)]
pub struct RxJudge {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub valid: Signal<In, Bit>,
    pub last: Signal<In, Bit>,
    pub bad: Signal<In, Bit>,
    pub fields: Signal<In, RxFields>,
    pub checks: Signal<In, RxChecks>,
    pub icrc_ok: Signal<In, Bit>,
    pub beat_valid: Signal<Out, Bit>,
    pub beat_last: Signal<Out, Bit>,
    pub accept: Signal<Out, Bit>,
    pub skip: Signal<Out, Bit>,
    pub needed: Signal<Out, Bits<7>>,
    pub head: Signal<Out, RxHead>,
    pub overflow: Signal<In, Bit>,
    pub report_valid: Signal<Out, Bit>,
    pub report: Signal<Out, RxReport>,

    valids: DFF<Bits<8>>,
    lasts: DFF<Bits<8>>,
    bads: DFF<Bits<8>>,
    is_bad: Signal<Local, Bit>,
    verdict: Signal<Local, Bits<3>>,
    length: Signal<Local, Bits<16>>,

    accept10: DFF<Bit>,
    skip10: DFF<Bit>,
    needed10: DFF<Bits<7>>,
    head10: DFF<RxHead>,
    report10: DFF<RxReport>,
    report11: DFF<RxReport>,
    valid11: DFF<Bit>,
    report12: DFF<RxReport>,
    valid12: DFF<Bit>,

    accepted: Constant<Bits<3>>,
    bad_frame: Constant<Bits<3>>,
    not_ours: Constant<Bits<3>>,
    malformed: Constant<Bits<3>>,
    unsupported: Constant<Bits<3>>,
    bad_icrc: Constant<Bits<3>>,
    no_room: Constant<Bits<3>>,
}

impl Default for RxJudge {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            valid: Default::default(),
            last: Default::default(),
            bad: Default::default(),
            fields: Default::default(),
            checks: Default::default(),
            icrc_ok: Default::default(),
            beat_valid: Default::default(),
            beat_last: Default::default(),
            accept: Default::default(),
            skip: Default::default(),
            needed: Default::default(),
            head: Default::default(),
            overflow: Default::default(),
            report_valid: Default::default(),
            report: Default::default(),
            valids: Default::default(),
            lasts: Default::default(),
            bads: Default::default(),
            is_bad: Default::default(),
            verdict: Default::default(),
            length: Default::default(),
            accept10: Default::default(),
            skip10: Default::default(),
            needed10: Default::default(),
            head10: Default::default(),
            report10: Default::default(),
            report11: Default::default(),
            valid11: Default::default(),
            report12: Default::default(),
            valid12: Default::default(),
            accepted: Constant::new((RxVerdict::Accepted as u8).to_bits()),
            bad_frame: Constant::new((RxVerdict::BadFrame as u8).to_bits()),
            not_ours: Constant::new((RxVerdict::NotOurs as u8).to_bits()),
            malformed: Constant::new((RxVerdict::Malformed as u8).to_bits()),
            unsupported: Constant::new((RxVerdict::Unsupported as u8).to_bits()),
            bad_icrc: Constant::new((RxVerdict::BadIcrc as u8).to_bits()),
            no_room: Constant::new((RxVerdict::Overflow as u8).to_bits()),
        }
    }
}

impl Logic for RxJudge {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, valids, lasts, bads, accept10, skip10, needed10, head10);
        dff_setup!(self, clock, report10, report11, valid11, report12, valid12);

        // Bit 0 is stage 3, bit 6 stage 9, bit 7 stage 10.
        self.valids.d.next = (self.valids.q.val() << 1) | bit_cast::<8, 1>(self.valid.val().into());
        self.lasts.d.next = (self.lasts.q.val() << 1) | bit_cast::<8, 1>(self.last.val().into());
        self.bads.d.next = (self.bads.q.val() << 1) | bit_cast::<8, 1>(self.bad.val().into());

        self.is_bad.next = self.bads.q.val().get_bit(6);
        self.verdict.next = self.accepted.val();
        if !self.icrc_ok.val() {
            self.verdict.next = self.bad_icrc.val();
        }
        if self.checks.val().is_unsupported {
            self.verdict.next = self.unsupported.val();
        }
        if self.checks.val().is_malformed {
            self.verdict.next = self.malformed.val();
        }
        if !self.checks.val().is_ours {
            self.verdict.next = self.not_ours.val();
        }
        if self.is_bad.val() {
            self.verdict.next = self.bad_frame.val();
        }
        self.accept10.d.next = self.verdict.val() == self.accepted.val();
        self.skip10.d.next = self.checks.val().skip;
        self.needed10.d.next = self.checks.val().needed;
        self.length.next = self.checks.val().payload_len;

        self.head10.d.next.opcode = self.fields.val().opcode;
        self.head10.d.next.solicited = self.fields.val().se;
        self.head10.d.next.ack_req = self.fields.val().ackreq;
        self.head10.d.next.pad = self.fields.val().pad;
        self.head10.d.next.qpn = self.fields.val().dqpn;
        self.head10.d.next.psn = self.fields.val().psn;
        self.head10.d.next.va = self.fields.val().va;
        self.head10.d.next.rkey = self.fields.val().rkey;
        self.head10.d.next.dma_len = self.fields.val().dma_len;
        self.head10.d.next.syndrome = self.fields.val().syndrome;
        self.head10.d.next.msn = self.fields.val().msn;
        self.head10.d.next.imm = self.fields.val().imm;
        self.head10.d.next.ipv6 = self.fields.val().ipv6;
        self.head10.d.next.source_ip = self.fields.val().source_ip;
        self.head10.d.next.len = self.length.val().get_bits::<13>(0);
        self.head10.d.next.offset = self.checks.val().offset;

        self.report10.d.next.verdict = self.verdict.val();
        self.report10.d.next.icrc_ok = self.icrc_ok.val();
        self.report10.d.next.is_roce = self.checks.val().is_roce;
        self.report10.d.next.payload_len = self.length.val();
        self.report10.d.next.opcode = self.fields.val().opcode;
        self.report10.d.next.se = self.fields.val().se;
        self.report10.d.next.migreq = self.fields.val().migreq;
        self.report10.d.next.pad = self.fields.val().pad;
        self.report10.d.next.tver = self.fields.val().tver;
        self.report10.d.next.pkey = self.fields.val().pkey;
        self.report10.d.next.fecn = self.fields.val().fecn;
        self.report10.d.next.becn = self.fields.val().becn;
        self.report10.d.next.dqpn = self.fields.val().dqpn;
        self.report10.d.next.ackreq = self.fields.val().ackreq;
        self.report10.d.next.psn = self.fields.val().psn;
        self.report10.d.next.has_reth = self.fields.val().has_reth & self.checks.val().has_extension;
        self.report10.d.next.va = self.fields.val().va;
        self.report10.d.next.rkey = self.fields.val().rkey;
        self.report10.d.next.dma_len = self.fields.val().dma_len;
        self.report10.d.next.has_aeth = self.fields.val().has_aeth & self.checks.val().has_extension;
        self.report10.d.next.syndrome = self.fields.val().syndrome;
        self.report10.d.next.msn = self.fields.val().msn;
        self.report10.d.next.has_imm = self.fields.val().has_imm & self.checks.val().has_extension;
        self.report10.d.next.imm = self.fields.val().imm;
        self.report10.d.next.ipv6 = self.fields.val().ipv6;
        self.report10.d.next.vlan = self.fields.val().vlan;
        self.report10.d.next.sport = self.fields.val().sport;
        self.report10.d.next.frame_len = self.checks.val().frame_len;
        self.report11.d.next = self.report10.q.val();
        self.valid11.d.next = self.valids.q.val().get_bit(7) & self.lasts.q.val().get_bit(7);
        self.report12.d.next = self.report11.q.val();
        if self.overflow.val() {
            self.report12.d.next.verdict = self.no_room.val();
        }
        self.valid12.d.next = self.valid11.q.val();

        self.beat_valid.next = self.valids.q.val().get_bit(7);
        self.beat_last.next = self.lasts.q.val().get_bit(7);
        self.accept.next = self.accept10.q.val();
        self.skip.next = self.skip10.q.val();
        self.needed.next = self.needed10.q.val();
        self.head.next = self.head10.q.val();
        self.report_valid.next = self.valid12.q.val();
        self.report.next = self.report12.q.val();

        if self.reset.val() {
            self.valids.d.next = 0.into();
            self.valid11.d.next = false;
            self.valid12.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests;
