//! Checks the local key of every scatter/gather entry and translates its address.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `qp_write`, `mr_write` | in | tables, as the command processor broadcasts them |
//! | `item` | sink | entries with their requests |
//! | `piece` | source | ranges of bus addresses, of entries with bytes |
//! | `head` | source | requests, each behind its pieces |
//!
//! So nothing of a request is sent before all of it is checked. A request whose key, PD or range
//! is wrong, whose sum of bytes is above the limit, or that is malformed comes out with an error
//! status; its pieces come out too and are to be thrown away. An entry without bytes takes part in
//! nothing, not even the key check.
//!
//! Latency: five clocks. Throughput: one entry a clock. What leaves goes into FIFOs; an entry is
//! taken only while there is room for all that are under way.

use rust_hdl::prelude::*;
use verbena_abi::{limits, queue};

use super::headers::header_bytes;
use crate::bus::{MrEntry, MrWrite, Piece, QpContext, QpWrite, SgeItem, StreamSink, StreamSource, WqeHead};
use crate::prim::{Fifo, Ram};

/// What a request needs of its QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct QpPart {
    pd: Bits<16>,
    mtu: Bits<3>,
    header_len: Bits<7>,
}

/// The sum over the entries of a request so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Sum {
    len: Bits<35>,
    pieces: Bits<3>,
    is_refused: Bit,
}

#[derive(LogicBlock)]
pub struct KeyCheck {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub qp_write: Signal<In, QpWrite>,
    pub mr_write: Signal<In, MrWrite>,
    pub item: StreamSink<SgeItem>,
    pub piece: StreamSource<Piece>,
    pub head: StreamSource<WqeHead>,

    qp_ram: Ram<QpPart, { limits::LOG_QPS }>,
    mr_ram: Ram<MrEntry, { limits::LOG_MRS }>,
    pieces: Fifo<Piece, 5, 6>,
    heads: Fifo<WqeHead, 4, 5>,
    // Stage 1: tables are being read. Stage 2: their answers. Stage 3: differences. Stage 4: verdict.
    valid1: DFF<Bit>,
    item1: DFF<SgeItem>,
    valid2: DFF<Bit>,
    item2: DFF<SgeItem>,
    qp2: DFF<QpPart>,
    mr2: DFF<MrEntry>,
    in_table2: DFF<Bit>,
    valid3: DFF<Bit>,
    item3: DFF<SgeItem>,
    qp3: DFF<QpPart>,
    into3: DFF<Bits<64>>,
    size3: DFF<Bits<64>>,
    addr3: DFF<Bits<64>>,
    is_key_good3: DFF<Bit>,
    valid4: DFF<Bit>,
    item4: DFF<SgeItem>,
    qp4: DFF<QpPart>,
    addr4: DFF<Bits<64>>,
    is_good4: DFF<Bit>,
    sum: DFF<Sum>,

    broadcast: Signal<Local, QpWrite>,
    attributes: Signal<Local, QpContext>,
    context_flags: Signal<Local, Bits<3>>,
    region: Signal<Local, MrWrite>,
    under_way: Signal<Local, Bits<6>>,
    take: Signal<Local, Bit>,
    key0: Signal<Local, Bits<32>>,
    entry_now: Signal<Local, MrEntry>,
    key2: Signal<Local, Bits<32>>,
    tag2: Signal<Local, Bits<8>>,
    index2: Signal<Local, Bits<24>>,
    room3: Signal<Local, Bits<64>>,
    fits3: Signal<Local, Bit>,
    base_now: Signal<Local, Sum>,
    total: Signal<Local, Sum>,
    has_bytes: Signal<Local, Bit>,
    sum_zero: Constant<Sum>,
    regions: Constant<Bits<24>>,
    largest: Constant<Bits<35>>,
    room_for_pieces: Constant<Bits<6>>,
    room_for_heads: Constant<Bits<6>>,
    ipv6_bit: Constant<Bits<3>>,
    vlan_bit: Constant<Bits<3>>,
    len_v4: Constant<Bits<7>>,
    len_v4_vlan: Constant<Bits<7>>,
    len_v6: Constant<Bits<7>>,
    len_v6_vlan: Constant<Bits<7>>,
    success: Constant<Bits<4>>,
    bad_operation: Constant<Bits<4>>,
    bad_key: Constant<Bits<4>>,
    bad_length: Constant<Bits<4>>,
}

impl Default for KeyCheck {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            reset: Default::default(),
            qp_write: Default::default(),
            mr_write: Default::default(),
            item: Default::default(),
            piece: Default::default(),
            head: Default::default(),
            qp_ram: Default::default(),
            mr_ram: Default::default(),
            pieces: Default::default(),
            heads: Default::default(),
            valid1: Default::default(),
            item1: Default::default(),
            valid2: Default::default(),
            item2: Default::default(),
            qp2: Default::default(),
            mr2: Default::default(),
            in_table2: Default::default(),
            valid3: Default::default(),
            item3: Default::default(),
            qp3: Default::default(),
            into3: Default::default(),
            size3: Default::default(),
            addr3: Default::default(),
            is_key_good3: Default::default(),
            valid4: Default::default(),
            item4: Default::default(),
            qp4: Default::default(),
            addr4: Default::default(),
            is_good4: Default::default(),
            sum: Default::default(),
            broadcast: Default::default(),
            attributes: Default::default(),
            context_flags: Default::default(),
            region: Default::default(),
            under_way: Default::default(),
            take: Default::default(),
            key0: Default::default(),
            entry_now: Default::default(),
            key2: Default::default(),
            tag2: Default::default(),
            index2: Default::default(),
            room3: Default::default(),
            fits3: Default::default(),
            base_now: Default::default(),
            total: Default::default(),
            has_bytes: Default::default(),
            sum_zero: Constant::new(Sum::default()),
            regions: Constant::new(limits::MRS.to_bits()),
            largest: Constant::new(u64::from(limits::MAX_MESSAGE).to_bits()),
            room_for_pieces: Constant::new(26u8.to_bits()),
            room_for_heads: Constant::new(10u8.to_bits()),
            ipv6_bit: Constant::new(queue::qp_flags::IPV6.to_bits()),
            vlan_bit: Constant::new(queue::qp_flags::VLAN.to_bits()),
            len_v4: Constant::new(header_bytes(false, false).to_bits()),
            len_v4_vlan: Constant::new(header_bytes(false, true).to_bits()),
            len_v6: Constant::new(header_bytes(true, false).to_bits()),
            len_v6_vlan: Constant::new(header_bytes(true, true).to_bits()),
            success: Constant::new((queue::CqeStatus::Success as u8).to_bits()),
            bad_operation: Constant::new((queue::CqeStatus::LocalOperation as u8).to_bits()),
            bad_key: Constant::new((queue::CqeStatus::LocalProtection as u8).to_bits()),
            bad_length: Constant::new((queue::CqeStatus::LocalLength as u8).to_bits()),
        }
    }
}

impl Logic for KeyCheck {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, valid1, item1, valid2, item2, qp2, mr2, in_table2);
        dff_setup!(self, clock, valid3, item3, qp3, into3, size3, addr3, is_key_good3);
        dff_setup!(self, clock, valid4, item4, qp4, addr4, is_good4, sum);
        clock!(self, clock, qp_ram, mr_ram, pieces, heads);
        self.pieces.reset.next = self.reset.val();
        self.heads.reset.next = self.reset.val();
        StreamSource::<Piece>::link(&mut self.piece, &mut self.pieces.drain);
        StreamSource::<WqeHead>::link(&mut self.head, &mut self.heads.drain);

        self.broadcast.next = self.qp_write.val();
        self.attributes.next = self.broadcast.val().context;
        self.context_flags.next = self.attributes.val().flags;
        self.qp_ram.write_enable.next = self.broadcast.val().valid;
        self.qp_ram.write_address.next = self.broadcast.val().qpn;
        self.qp_ram.write_data.next.pd = self.attributes.val().pd;
        self.qp_ram.write_data.next.mtu = self.attributes.val().mtu;
        self.qp_ram.write_data.next.header_len = self.len_v4.val();
        if (self.context_flags.val() & self.ipv6_bit.val()).any() {
            self.qp_ram.write_data.next.header_len = self.len_v6.val();
            if (self.context_flags.val() & self.vlan_bit.val()).any() {
                self.qp_ram.write_data.next.header_len = self.len_v6_vlan.val();
            }
        } else if (self.context_flags.val() & self.vlan_bit.val()).any() {
            self.qp_ram.write_data.next.header_len = self.len_v4_vlan.val();
        }
        self.region.next = self.mr_write.val();
        self.mr_ram.write_enable.next = self.region.val().valid;
        self.mr_ram.write_address.next = self.region.val().index;
        self.mr_ram.write_data.next = self.region.val().entry;

        // Room is kept for the four entries that may be under way.
        self.under_way.next = bit_cast::<6, 5>(self.heads.level.val());
        self.take.next = (self.pieces.level.val() <= self.room_for_pieces.val()) & (self.under_way.val() <= self.room_for_heads.val());
        self.item.ready.next = self.take.val();
        self.valid1.d.next = self.take.val() & self.item.valid.val();
        self.item1.d.next = self.item.data.val();
        self.key0.next = self.item.data.val().lkey;
        self.mr_ram.read_address.next = self.key0.val().get_bits::<10>(8);
        self.qp_ram.read_address.next = self.item.data.val().qpn;

        self.valid2.d.next = self.valid1.q.val();
        self.item2.d.next = self.item1.q.val();
        self.qp2.d.next = self.qp_ram.read_data.val();
        self.mr2.d.next = self.mr_ram.read_data.val();
        self.key2.next = self.item2.q.val().lkey;
        self.tag2.next = self.key2.val().get_bits::<8>(0);
        self.index2.next = self.key2.val().get_bits::<24>(8);

        // An address below the base gives a huge offset, which no size admits: one comparison less.
        self.valid3.d.next = self.valid2.q.val();
        self.item3.d.next = self.item2.q.val();
        self.qp3.d.next = self.qp2.q.val();
        self.entry_now.next = self.mr2.q.val();
        self.into3.d.next = self.item2.q.val().va - self.entry_now.val().base;
        self.size3.d.next = self.entry_now.val().len;
        self.addr3.d.next = self.item2.q.val().va + self.entry_now.val().delta;
        self.is_key_good3.d.next = self.entry_now.val().valid
            & (self.entry_now.val().tag == self.tag2.val())
            & (self.index2.val() < self.regions.val())
            & (self.entry_now.val().pd == self.qp2.q.val().pd);

        self.valid4.d.next = self.valid3.q.val();
        self.item4.d.next = self.item3.q.val();
        self.qp4.d.next = self.qp3.q.val();
        self.addr4.d.next = self.addr3.q.val();
        self.room3.next = self.size3.q.val() - self.into3.q.val();
        self.fits3.next =
            (self.into3.q.val() <= self.size3.q.val()) & (bit_cast::<64, 32>(self.item3.q.val().len) <= self.room3.val());
        self.is_good4.d.next = self.is_key_good3.q.val() & self.fits3.val();

        self.has_bytes.next = self.item4.q.val().has_sge & self.item4.q.val().len.any();
        self.base_now.next = self.sum.q.val();
        self.total.next = self.base_now.val();
        if self.has_bytes.val() {
            self.total.next.len = self.base_now.val().len + bit_cast::<35, 32>(self.item4.q.val().len);
            self.total.next.pieces = self.base_now.val().pieces + 1;
            self.total.next.is_refused = self.base_now.val().is_refused | !self.is_good4.q.val();
        }
        self.pieces.fill.valid.next = self.valid4.q.val() & self.has_bytes.val();
        self.pieces.fill.data.next.addr = self.addr4.q.val();
        self.pieces.fill.data.next.len = self.item4.q.val().len;
        self.heads.fill.valid.next = self.valid4.q.val() & self.item4.q.val().last;
        self.heads.fill.data.next.qpn = self.item4.q.val().qpn;
        self.heads.fill.data.next.index = self.item4.q.val().index;
        self.heads.fill.data.next.signaled = self.item4.q.val().signaled;
        self.heads.fill.data.next.solicited = self.item4.q.val().solicited;
        self.heads.fill.data.next.status = self.success.val();
        if self.item4.q.val().is_bad {
            self.heads.fill.data.next.status = self.bad_operation.val();
        } else if self.total.val().is_refused {
            self.heads.fill.data.next.status = self.bad_key.val();
        } else if self.total.val().len > self.largest.val() {
            self.heads.fill.data.next.status = self.bad_length.val();
        }
        self.heads.fill.data.next.pieces = self.total.val().pieces;
        self.heads.fill.data.next.len = bit_cast::<32, 35>(self.total.val().len);
        self.heads.fill.data.next.remote_va = self.item4.q.val().remote_va;
        self.heads.fill.data.next.rkey = self.item4.q.val().rkey;
        self.heads.fill.data.next.mtu = self.qp4.q.val().mtu;
        self.heads.fill.data.next.header_len = self.qp4.q.val().header_len;
        if self.valid4.q.val() {
            self.sum.d.next = self.total.val();
            if self.item4.q.val().last {
                self.sum.d.next = self.sum_zero.val();
            }
        }

        if self.reset.val() {
            self.valid1.d.next = false;
            self.valid2.d.next = false;
            self.valid3.d.next = false;
            self.valid4.d.next = false;
            self.sum.d.next = self.sum_zero.val();
        }
    }
}
