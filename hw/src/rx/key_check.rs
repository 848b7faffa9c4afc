//! Looks up a received packet's QP and memory region and checks what needs no state.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `head` | sink | accepted frames |
//! | `go` | in | there is room for what another packet may cause |
//! | `qp_write`, `mr_write` | in | broadcasts to the tables; only while `ready` |
//! | `checked`, `checked_valid` | out | the packet with what was found, for one clock |
//! | `taken` | out | a head is taken in this clock |
//! | `ready` | out | low while the tables are cleared after a reset, as many clocks as there are most objects of a kind |
//!
//! Latency: [`KeyCheck::LATENCY`] clocks from a head to `checked`; it can't be stopped in between.
//! Throughput: a head every clock, but of one QP every two, as [`super::Decide`] wants it.
//!
//! A broadcast that clears a QP or moves it to RTR travels behind the packets already looked up, as a
//! [`Checked`] with `is_start`; no head is taken between the broadcast and it. So the QP's state
//! changes exactly between the packets that saw the old context and those that see the new one. Such
//! broadcasts must be three clocks apart.
//!
//! The range check is that of rocev2.md 13.3, which no sum can overflow. Each registration of a
//! region gets a number of its own, `life`, 40 bits: by it the packets of a message that come later
//! can tell whether the region is still the one that was checked, even if the index and the key's
//! changing part have come around.

use rust_hdl::prelude::*;
use verbena_abi::limits::{self, LOG_MRS, LOG_QPS};

use super::Checked;
use crate::bus::{MrEntry, MrWrite, QpContext, QpWrite, Qpn, RxHead, StreamSink};
use crate::prim::Ram;

/// What the responder needs of a QP's context.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct QpRow {
    state: Bits<3>,
    is_writable: Bit,
    ipv6: Bit,
    mtu: Bits<3>,
    pd: Bits<16>,
    remote_ip: Bits<128>,
}

/// What the responder needs of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct MrRow {
    valid: Bit,
    is_writable: Bit,
    tag: Bits<8>,
    pd: Bits<16>,
    base: Bits<64>,
    len: Bits<64>,
    delta: Bits<64>,
    life: Bits<40>,
}

/// Tables, range arithmetic and length rules.
#[derive(LogicBlock)]
pub struct KeyCheck {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub ready: Signal<Out, Bit>,
    pub head: StreamSink<RxHead>,
    pub go: Signal<In, Bit>,
    pub taken: Signal<Out, Bit>,
    pub qp_write: Signal<In, QpWrite>,
    pub mr_write: Signal<In, MrWrite>,
    /// Number of the registration that `mr_write` makes, valid with it.
    pub life: Signal<Out, Bits<40>>,
    pub checked: Signal<Out, Checked>,
    pub checked_valid: Signal<Out, Bit>,
    pub peek_qpn: Signal<Out, Qpn>,

    qps: Ram<QpRow, { limits::LOG_QPS }>,
    mrs: Ram<MrRow, { limits::LOG_MRS }>,
    cleared: DFF<Bits<{ limits::LOG_OBJECTS + 1 }>>,
    is_clear: Signal<Local, Bit>,
    life_count: DFF<Bits<40>>,
    qp_context: Signal<Local, QpContext>,
    context_access: Signal<Local, Bits<4>>,
    context_flags: Signal<Local, Bits<3>>,
    entry: Signal<Local, MrEntry>,
    entry_access: Signal<Local, Bits<4>>,

    // Issue.
    is_resting: DFF<Bit>,
    is_resting_all: DFF<Bit>,
    last_qpn: DFF<Qpn>,
    must_rest: Signal<Local, Bit>,
    start: DFF<Bit>,
    start_qpn: DFF<Qpn>,
    start_psn: DFF<Bits<24>>,
    can_take: Signal<Local, Bit>,
    takes: Signal<Local, Bit>,
    starts: Signal<Local, Bit>,
    head_qpn: Signal<Local, Bits<24>>,
    head_rkey: Signal<Local, Bits<32>>,

    // First stage: the head beside the rows.
    first: DFF<RxHead>,
    first_valid: DFF<Bit>,
    first_start: DFF<Bit>,
    qpn: Signal<Local, Bits<24>>,
    rkey: Signal<Local, Bits<32>>,
    opcode: Signal<Local, Bits<8>>,
    len: Signal<Local, Bits<13>>,
    len_low: Signal<Local, Bits<2>>,
    pad_sum: Signal<Local, Bits<2>>,
    wide_len: Signal<Local, Bits<32>>,
    wide_dma_len: Signal<Local, Bits<64>>,
    mtu_bytes: Signal<Local, Bits<13>>,
    wide_mtu: Signal<Local, Bits<32>>,

    // Second stage: differences and findings.
    second: DFF<Checked>,
    second_valid: DFF<Bit>,
    has_peer: DFF<Bit>,
    has_qp: DFF<Bit>,
    is_rts: DFF<Bit>,
    is_writable: DFF<Bit>,
    has_key: DFF<Bit>,
    is_below: DFF<Bit>,
    is_longer: DFF<Bit>,
    is_empty: DFF<Bit>,
    has_pad: DFF<Bit>,
    fits_first: DFF<Bit>,
    fits_middle: DFF<Bit>,
    fits_last: DFF<Bit>,
    fits_only: DFF<Bit>,
    distance: DFF<Bits<64>>,
    room: DFF<Bits<64>>,
    is_known: Signal<Local, Bit>,

    // Third stage: the verdict.
    third: DFF<Checked>,
    third_valid: DFF<Bit>,

    clear_end: Constant<Bits<{ limits::LOG_OBJECTS + 1 }>>,
    no_qp: Constant<QpRow>,
    no_mr: Constant<MrRow>,
    none: Constant<Checked>,
    smallest: Constant<Bits<13>>,
    longest: Constant<Bits<32>>,
    qpn_end: Constant<Bits<24>>,
    key_end: Constant<Bits<32>>,
    end_of_writes: Constant<Bits<8>>,
    end_of_requests: Constant<Bits<8>>,
}

impl KeyCheck {
    /// Clocks from a head to `checked`.
    pub const LATENCY: usize = 3;
}

impl Default for KeyCheck {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            ready: Default::default(),
            head: Default::default(),
            go: Default::default(),
            taken: Default::default(),
            qp_write: Default::default(),
            mr_write: Default::default(),
            life: Default::default(),
            checked: Default::default(),
            checked_valid: Default::default(),
            peek_qpn: Default::default(),
            qps: Default::default(),
            mrs: Default::default(),
            cleared: Default::default(),
            is_clear: Default::default(),
            life_count: Default::default(),
            qp_context: Default::default(),
            context_access: Default::default(),
            context_flags: Default::default(),
            entry: Default::default(),
            entry_access: Default::default(),
            is_resting: Default::default(),
            is_resting_all: Default::default(),
            last_qpn: Default::default(),
            must_rest: Default::default(),
            start: Default::default(),
            start_qpn: Default::default(),
            start_psn: Default::default(),
            can_take: Default::default(),
            takes: Default::default(),
            starts: Default::default(),
            head_qpn: Default::default(),
            head_rkey: Default::default(),
            first: Default::default(),
            first_valid: Default::default(),
            first_start: Default::default(),
            qpn: Default::default(),
            rkey: Default::default(),
            opcode: Default::default(),
            len: Default::default(),
            len_low: Default::default(),
            pad_sum: Default::default(),
            wide_len: Default::default(),
            wide_dma_len: Default::default(),
            mtu_bytes: Default::default(),
            wide_mtu: Default::default(),
            second: Default::default(),
            second_valid: Default::default(),
            has_peer: Default::default(),
            has_qp: Default::default(),
            is_rts: Default::default(),
            is_writable: Default::default(),
            has_key: Default::default(),
            is_below: Default::default(),
            is_longer: Default::default(),
            is_empty: Default::default(),
            has_pad: Default::default(),
            fits_first: Default::default(),
            fits_middle: Default::default(),
            fits_last: Default::default(),
            fits_only: Default::default(),
            distance: Default::default(),
            room: Default::default(),
            is_known: Default::default(),
            third: Default::default(),
            third_valid: Default::default(),
            clear_end: Constant::new((1usize << limits::LOG_OBJECTS).to_bits()),
            no_qp: Constant::new(QpRow::default()),
            no_mr: Constant::new(MrRow::default()),
            none: Constant::new(Checked::default()),
            smallest: Constant::new(128u64.to_bits()),
            longest: Constant::new(0x8000_0000u64.to_bits()),
            qpn_end: Constant::new(limits::QPS.to_bits()),
            key_end: Constant::new((limits::MRS << 8).to_bits()),
            end_of_writes: Constant::new(0x0Cu64.to_bits()),
            end_of_requests: Constant::new(0x0Du64.to_bits()),
        }
    }
}

impl Logic for KeyCheck {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, cleared, life_count, is_resting, is_resting_all, last_qpn, start, start_qpn, start_psn);
        dff_setup!(self, clock, first, first_valid, first_start, second, second_valid, third, third_valid);
        dff_setup!(self, clock, has_peer, has_qp, is_rts, is_writable, has_key, is_below, is_longer, is_empty, has_pad);
        dff_setup!(self, clock, fits_first, fits_middle, fits_last, fits_only, distance, room);
        clock!(self, clock, qps, mrs);

        // Tables.
        self.is_clear.next = self.cleared.q.val() == self.clear_end.val();
        self.ready.next = self.cleared.q.val() == self.clear_end.val();
        self.qp_context.next = self.qp_write.val().context;
        self.context_access.next = self.qp_context.val().access;
        self.context_flags.next = self.qp_context.val().flags;
        self.qps.write_enable.next = self.qp_write.val().valid;
        self.qps.write_address.next = self.qp_write.val().qpn;
        self.qps.write_data.next.state = self.qp_context.val().state;
        self.qps.write_data.next.is_writable = self.context_access.val().get_bit(1);
        self.qps.write_data.next.ipv6 = self.context_flags.val().get_bit(0);
        self.qps.write_data.next.mtu = self.qp_context.val().mtu;
        self.qps.write_data.next.pd = self.qp_context.val().pd;
        self.qps.write_data.next.remote_ip = self.qp_context.val().remote_ip;
        self.entry.next = self.mr_write.val().entry;
        self.entry_access.next = self.entry.val().access;
        self.life.next = self.life_count.q.val();
        self.mrs.write_enable.next = self.mr_write.val().valid;
        self.mrs.write_address.next = self.mr_write.val().index;
        self.mrs.write_data.next.valid = self.entry.val().valid;
        self.mrs.write_data.next.is_writable = self.entry_access.val().get_bit(1);
        self.mrs.write_data.next.tag = self.entry.val().tag;
        self.mrs.write_data.next.pd = self.entry.val().pd;
        self.mrs.write_data.next.base = self.entry.val().base;
        self.mrs.write_data.next.len = self.entry.val().len;
        self.mrs.write_data.next.delta = self.entry.val().delta;
        self.mrs.write_data.next.life = self.life_count.q.val();
        if self.mr_write.val().valid {
            self.life_count.d.next = self.life_count.q.val() + 1;
        }
        if !self.is_clear.val() {
            self.qps.write_enable.next = true;
            self.qps.write_address.next = self.cleared.q.val().get_bits::<LOG_QPS>(0);
            self.qps.write_data.next = self.no_qp.val();
            self.mrs.write_enable.next = true;
            self.mrs.write_address.next = self.cleared.q.val().get_bits::<LOG_MRS>(0);
            self.mrs.write_data.next = self.no_mr.val();
            self.cleared.d.next = self.cleared.q.val() + 1;
        }

        // Issue: the start of a QP before any head. Behind a start, and between two heads of a QP, there is a clock of rest.
        self.head_qpn.next = self.head.data.val().qpn;
        self.must_rest.next =
            self.is_resting_all.q.val() | (self.is_resting.q.val() & (self.head_qpn.val().get_bits::<LOG_QPS>(0) == self.last_qpn.q.val()));
        self.can_take.next = self.is_clear.val() & self.go.val() & !self.must_rest.val() & !self.start.q.val();
        self.head.ready.next = (self.cleared.q.val() == self.clear_end.val()) & self.go.val() & !self.must_rest.val() & !self.start.q.val();
        self.takes.next = self.can_take.val() & self.head.valid.val();
        self.taken.next = self.takes.val();
        self.starts.next = self.start.q.val() & !self.is_resting.q.val();
        self.is_resting.d.next = self.takes.val() | self.starts.val();
        self.is_resting_all.d.next = self.starts.val();
        self.last_qpn.d.next = self.head_qpn.val().get_bits::<LOG_QPS>(0);
        if self.starts.val() {
            self.start.d.next = false;
        }
        if self.qp_write.val().valid & (self.qp_write.val().clear | self.qp_write.val().start_rx) {
            self.start.d.next = true;
            self.start_qpn.d.next = self.qp_write.val().qpn;
            self.start_psn.d.next = 0.into();
            if self.qp_write.val().start_rx {
                self.start_psn.d.next = self.qp_context.val().rq_psn;
            }
        }
        self.head_rkey.next = self.head.data.val().rkey;
        self.qps.read_address.next = self.head_qpn.val().get_bits::<LOG_QPS>(0);
        self.mrs.read_address.next = self.head_rkey.val().get_bits::<LOG_MRS>(8);
        self.first.d.next = self.head.data.val();
        self.first_valid.d.next = self.takes.val() | self.starts.val();
        self.first_start.d.next = self.starts.val();
        if self.starts.val() {
            self.first.d.next.qpn = bit_cast::<24, LOG_QPS>(self.start_qpn.q.val());
            self.first.d.next.psn = self.start_psn.q.val();
        }

        // First stage.
        self.qpn.next = self.first.q.val().qpn;
        self.rkey.next = self.first.q.val().rkey;
        self.opcode.next = self.first.q.val().opcode;
        self.len.next = self.first.q.val().len;
        self.len_low.next = self.len.val().get_bits::<2>(0);
        self.pad_sum.next = self.len_low.val() + self.first.q.val().pad;
        self.wide_len.next = bit_cast::<32, 13>(self.len.val());
        self.wide_dma_len.next = bit_cast::<64, 32>(self.first.q.val().dma_len);
        self.mtu_bytes.next = self.smallest.val() << self.qps.read_data.val().mtu;
        self.wide_mtu.next = bit_cast::<32, 13>(self.mtu_bytes.val());

        self.has_qp.d.next =
            (self.qpn.val() < self.qpn_end.val()) & ((self.qps.read_data.val().state == 2) | (self.qps.read_data.val().state == 3));
        self.is_rts.d.next = self.qps.read_data.val().state == 3;
        self.has_peer.d.next = (self.qps.read_data.val().remote_ip == self.first.q.val().source_ip)
            & (self.qps.read_data.val().ipv6 == self.first.q.val().ipv6);
        self.is_writable.d.next = self.qps.read_data.val().is_writable;
        self.has_key.d.next = self.mrs.read_data.val().valid
            & self.mrs.read_data.val().is_writable
            & (self.mrs.read_data.val().tag == self.rkey.val().get_bits::<8>(0))
            & (self.mrs.read_data.val().pd == self.qps.read_data.val().pd)
            & (self.rkey.val() < self.key_end.val());
        self.distance.d.next = self.first.q.val().va - self.mrs.read_data.val().base;
        self.is_below.d.next = self.first.q.val().va < self.mrs.read_data.val().base;
        self.room.d.next = self.mrs.read_data.val().len - self.wide_dma_len.val();
        self.is_longer.d.next = self.mrs.read_data.val().len < self.wide_dma_len.val();
        self.is_empty.d.next = self.first.q.val().dma_len == 0;
        self.has_pad.d.next = self.pad_sum.val() == 0;
        self.fits_first.d.next = (self.len.val() == self.mtu_bytes.val())
            & (self.first.q.val().dma_len > self.wide_mtu.val())
            & (self.first.q.val().dma_len <= self.longest.val());
        self.fits_middle.d.next = self.len.val() == self.mtu_bytes.val();
        self.fits_last.d.next = (self.len.val() != 0) & (self.len.val() <= self.mtu_bytes.val());
        self.fits_only.d.next = (self.wide_len.val() == self.first.q.val().dma_len) & (self.len.val() <= self.mtu_bytes.val());

        self.second_valid.d.next = self.first_valid.q.val();
        self.second.d.next = self.none.val();
        self.second.d.next.is_start = self.first_start.q.val();
        self.second.d.next.is_ack = self.opcode.val() == 17;
        self.second.d.next.is_request = (self.opcode.val() < self.end_of_requests.val())
            | (self.opcode.val() == 19)
            | (self.opcode.val() == 20)
            | (self.opcode.val() == 22)
            | (self.opcode.val() == 23);
        self.second.d.next.acks_duplicate =
            (self.opcode.val() < self.end_of_writes.val()) | (self.opcode.val() == 22) | (self.opcode.val() == 23);
        self.second.d.next.is_first = self.opcode.val() == 6;
        self.second.d.next.is_middle = self.opcode.val() == 7;
        self.second.d.next.is_last = self.opcode.val() == 8;
        self.second.d.next.is_only = self.opcode.val() == 10;
        self.second.d.next.ack_req = self.first.q.val().ack_req;
        self.second.d.next.qpn = self.qpn.val().get_bits::<LOG_QPS>(0);
        self.second.d.next.psn = self.first.q.val().psn;
        self.second.d.next.syndrome = self.first.q.val().syndrome;
        self.second.d.next.len = self.len.val();
        self.second.d.next.offset = self.first.q.val().offset;
        self.second.d.next.dma_len = self.first.q.val().dma_len;
        self.second.d.next.bus = self.first.q.val().va + self.mrs.read_data.val().delta;
        self.second.d.next.mr_index = self.rkey.val().get_bits::<LOG_MRS>(8);
        self.second.d.next.life = self.mrs.read_data.val().life;

        // Second stage.
        self.is_known.next = self.has_qp.q.val() & self.has_peer.q.val() & (!self.second.q.val().is_ack | self.is_rts.q.val());
        self.third_valid.d.next = self.second_valid.q.val();
        self.third.d.next = self.second.q.val();
        self.third.d.next.is_stray = !self.is_known.val() & !self.second.q.val().is_start;
        self.third.d.next.is_ack = self.is_known.val() & self.second.q.val().is_ack & !self.second.q.val().is_start;
        self.third.d.next.is_request = self.is_known.val() & self.second.q.val().is_request & !self.second.q.val().is_start;
        self.third.d.next.is_foreign =
            self.is_known.val() & !self.second.q.val().is_request & !self.second.q.val().is_ack & !self.second.q.val().is_start;
        self.third.d.next.is_legal = self.is_writable.q.val()
            & self.has_pad.q.val()
            & ((self.second.q.val().is_first & self.fits_first.q.val())
                | (self.second.q.val().is_middle & self.fits_middle.q.val())
                | (self.second.q.val().is_last & self.fits_last.q.val())
                | (self.second.q.val().is_only & self.fits_only.q.val()));
        self.third.d.next.is_granted = self.is_empty.q.val()
            | (self.has_key.q.val() & !self.is_below.q.val() & !self.is_longer.q.val() & (self.distance.q.val() <= self.room.q.val()));
        self.peek_qpn.next = self.second.q.val().qpn;
        self.checked.next = self.third.q.val();
        self.checked_valid.next = self.third_valid.q.val();

        if self.reset.val() {
            self.cleared.d.next = 0.into();
            self.start.d.next = false;
            self.is_resting.d.next = false;
            self.is_resting_all.d.next = false;
            self.first_valid.d.next = false;
            self.second_valid.d.next = false;
            self.third_valid.d.next = false;
        }
    }
}

#[cfg(test)]
mod tests;
