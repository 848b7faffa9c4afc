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
//! nothing, not even the key check; inline data has no key, it only counts.
//!
//! Latency: four clocks. Throughput: one entry a clock. What leaves goes into FIFOs; an entry is
//! taken only while there is room for all that are under way.

use rust_hdl::prelude::*;
use verbena_abi::limits::{self, LOG_MRS};
use verbena_abi::queue;

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
    // Stage 1: what the tables answer. Stage 2: differences. Stage 3: verdict.
    valid1: DFF<Bit>,
    item1: DFF<SgeItem>,
    valid2: DFF<Bit>,
    item2: DFF<SgeItem>,
    qp2: DFF<QpPart>,
    into2: DFF<Bits<64>>,
    size2: DFF<Bits<64>>,
    addr2: DFF<Bits<64>>,
    is_key_good2: DFF<Bit>,
    valid3: DFF<Bit>,
    item3: DFF<SgeItem>,
    qp3: DFF<QpPart>,
    addr3: DFF<Bits<64>>,
    is_good3: DFF<Bit>,
    sum: DFF<Sum>,

    broadcast: Signal<Local, QpWrite>,
    attributes: Signal<Local, QpContext>,
    context_flags: Signal<Local, Bits<3>>,
    region: Signal<Local, MrWrite>,
    under_way: Signal<Local, Bits<6>>,
    take: Signal<Local, Bit>,
    key0: Signal<Local, Bits<32>>,
    entry_now: Signal<Local, MrEntry>,
    key1: Signal<Local, Bits<32>>,
    tag1: Signal<Local, Bits<8>>,
    index1: Signal<Local, Bits<24>>,
    room2: Signal<Local, Bits<64>>,
    fits2: Signal<Local, Bit>,
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
            into2: Default::default(),
            size2: Default::default(),
            addr2: Default::default(),
            is_key_good2: Default::default(),
            valid3: Default::default(),
            item3: Default::default(),
            qp3: Default::default(),
            addr3: Default::default(),
            is_good3: Default::default(),
            sum: Default::default(),
            broadcast: Default::default(),
            attributes: Default::default(),
            context_flags: Default::default(),
            region: Default::default(),
            under_way: Default::default(),
            take: Default::default(),
            key0: Default::default(),
            entry_now: Default::default(),
            key1: Default::default(),
            tag1: Default::default(),
            index1: Default::default(),
            room2: Default::default(),
            fits2: Default::default(),
            base_now: Default::default(),
            total: Default::default(),
            has_bytes: Default::default(),
            sum_zero: Constant::new(Sum::default()),
            regions: Constant::new(limits::MRS.to_bits()),
            largest: Constant::new(u64::from(limits::MAX_MESSAGE).to_bits()),
            room_for_pieces: Constant::new(27u8.to_bits()),
            room_for_heads: Constant::new(11u8.to_bits()),
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
        dff_setup!(self, clock, valid1, item1);
        dff_setup!(self, clock, valid2, item2, qp2, into2, size2, addr2, is_key_good2);
        dff_setup!(self, clock, valid3, item3, qp3, addr3, is_good3, sum);
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

        // Room is kept for the three entries that may be under way.
        self.under_way.next = bit_cast::<6, 5>(self.heads.level.val());
        self.take.next = (self.pieces.level.val() <= self.room_for_pieces.val()) & (self.under_way.val() <= self.room_for_heads.val());
        self.item.ready.next = self.take.val();
        self.valid1.d.next = self.take.val() & self.item.valid.val();
        self.item1.d.next = self.item.data.val();
        self.key0.next = self.item.data.val().lkey;
        self.mr_ram.read_address.next = self.key0.val().get_bits::<LOG_MRS>(8);
        self.qp_ram.read_address.next = self.item.data.val().qpn;

        self.key1.next = self.item1.q.val().lkey;
        self.tag1.next = self.key1.val().get_bits::<8>(0);
        self.index1.next = self.key1.val().get_bits::<24>(8);

        // An address below the base gives a huge offset, which no size admits: one comparison less.
        self.valid2.d.next = self.valid1.q.val();
        self.item2.d.next = self.item1.q.val();
        self.qp2.d.next = self.qp_ram.read_data.val();
        self.entry_now.next = self.mr_ram.read_data.val();
        self.into2.d.next = self.item1.q.val().va - self.entry_now.val().base;
        self.size2.d.next = self.entry_now.val().len;
        self.addr2.d.next = self.item1.q.val().va + self.entry_now.val().delta;
        self.is_key_good2.d.next = self.entry_now.val().valid
            & (self.entry_now.val().tag == self.tag1.val())
            & (self.index1.val() < self.regions.val())
            & (self.entry_now.val().pd == self.qp_ram.read_data.val().pd);

        self.valid3.d.next = self.valid2.q.val();
        self.item3.d.next = self.item2.q.val();
        self.qp3.d.next = self.qp2.q.val();
        self.addr3.d.next = self.addr2.q.val();
        self.room2.next = self.size2.q.val() - self.into2.q.val();
        self.fits2.next = (self.into2.q.val() <= self.size2.q.val()) & (bit_cast::<64, 32>(self.item2.q.val().len) <= self.room2.val());
        self.is_good3.d.next = (self.is_key_good2.q.val() & self.fits2.val()) | self.item2.q.val().is_inline;

        self.has_bytes.next = self.item3.q.val().has_sge & self.item3.q.val().len.any();
        self.base_now.next = self.sum.q.val();
        self.total.next = self.base_now.val();
        if self.has_bytes.val() {
            self.total.next.len = self.base_now.val().len + bit_cast::<35, 32>(self.item3.q.val().len);
            self.total.next.pieces = self.base_now.val().pieces + 1;
            self.total.next.is_refused = self.base_now.val().is_refused | !self.is_good3.q.val();
        }
        self.pieces.fill.valid.next = self.valid3.q.val() & self.has_bytes.val();
        self.pieces.fill.data.next.is_inline = self.item3.q.val().is_inline;
        self.pieces.fill.data.next.addr = self.addr3.q.val();
        self.pieces.fill.data.next.len = self.item3.q.val().len;
        self.heads.fill.valid.next = self.valid3.q.val() & self.item3.q.val().last;
        self.heads.fill.data.next.qpn = self.item3.q.val().qpn;
        self.heads.fill.data.next.index = self.item3.q.val().index;
        self.heads.fill.data.next.signaled = self.item3.q.val().signaled;
        self.heads.fill.data.next.asks_ack = self.item3.q.val().asks_ack;
        self.heads.fill.data.next.solicited = self.item3.q.val().solicited;
        self.heads.fill.data.next.status = self.success.val();
        if self.item3.q.val().is_bad {
            self.heads.fill.data.next.status = self.bad_operation.val();
        } else if self.total.val().is_refused {
            self.heads.fill.data.next.status = self.bad_key.val();
        } else if self.total.val().len > self.largest.val() {
            self.heads.fill.data.next.status = self.bad_length.val();
        }
        self.heads.fill.data.next.pieces = self.total.val().pieces;
        self.heads.fill.data.next.len = bit_cast::<32, 35>(self.total.val().len);
        self.heads.fill.data.next.remote_va = self.item3.q.val().remote_va;
        self.heads.fill.data.next.rkey = self.item3.q.val().rkey;
        self.heads.fill.data.next.mtu = self.qp3.q.val().mtu;
        self.heads.fill.data.next.header_len = self.qp3.q.val().header_len;
        if self.valid3.q.val() {
            self.sum.d.next = self.total.val();
            if self.item3.q.val().last {
                self.sum.d.next = self.sum_zero.val();
            }
        }

        if self.reset.val() {
            self.valid1.d.next = false;
            self.valid2.d.next = false;
            self.valid3.d.next = false;
            self.sum.d.next = self.sum_zero.val();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};
    use queue::{qp_flags, CqeStatus};

    /// Queue pairs 1 to 4 have the four layouts, and 2 is of another protection domain.
    const FLAGS: [u8; 4] = [0, qp_flags::VLAN, qp_flags::IPV6, qp_flags::IPV6 | qp_flags::VLAN];

    fn domain(qpn: u64) -> u64 {
        if qpn == 2 {
            8
        } else {
            7
        }
    }

    /// Region 0x3FF is huge, 5 is of the second protection domain, 6 is not in use.
    fn region(index: u64) -> MrEntry {
        MrEntry {
            valid: index != 6,
            tag: (0xA0 + index % 16).into(),
            pd: (if index == 5 { 8 } else { 7u64 }).into(),
            access: 0u64.into(),
            base: (0x10_0000 * index).into(),
            len: (if index == 0x3FF { 1 << 40 } else { 0x1000u64 }).into(),
            delta: 0xFFFF_FFFF_FFF1_0000u64.into(),
        }
    }

    /// Key of an entry that stands for inline data; no region has it.
    const INLINE: u64 = 0x77;

    fn key(index: u64) -> u64 {
        index << 8 | (0xA0 + index % 16)
    }

    fn write_tables(bench: &mut Bench<KeyCheck>) {
        for index in [3, 5, 6, 0x3FF] {
            bench.uut.mr_write.next = MrWrite { valid: true, index: index.into(), entry: region(index) };
            let qpn = 1 + [3, 5, 6, 0x3FF].iter().position(|i| *i == index).unwrap() as u64;
            let flags = u64::from(FLAGS[qpn as usize - 1]);
            let context = QpContext { flags: flags.into(), pd: domain(qpn).into(), mtu: qpn.into(), ..Default::default() };
            bench.uut.qp_write.next = QpWrite { valid: true, qpn: qpn.into(), context, ..Default::default() };
            bench.cycles(1);
        }
        bench.uut.mr_write.next = MrWrite::default();
        bench.uut.qp_write.next = QpWrite::default();
    }

    /// Items, and the pieces and heads that they are to become.
    #[derive(Default)]
    struct Work {
        items: Vec<SgeItem>,
        pieces: Vec<Piece>,
        heads: Vec<WqeHead>,
    }

    impl Work {
        fn add(&mut self, qpn: u64, is_bad: bool, sges: &[(u64, u64, u64)]) {
            let i = self.heads.len() as u64;
            let common = SgeItem {
                qpn: qpn.into(),
                index: i.into(),
                signaled: i % 2 == 0,
                asks_ack: i % 4 < 3,
                solicited: i % 3 == 0,
                is_bad,
                has_sge: !sges.is_empty(),
                last: true,
                remote_va: (i << 40 | 0x1234).into(),
                rkey: (i * 77).into(),
                ..Default::default()
            };
            if sges.is_empty() {
                self.items.push(common);
            }
            let (mut is_refused, mut total, mut pieces) = (false, 0u64, 0u64);
            for (n, (va, len, lkey)) in sges.iter().copied().enumerate() {
                self.items.push(SgeItem {
                    is_inline: lkey == INLINE,
                    last: n == sges.len() - 1,
                    va: va.into(),
                    len: len.into(),
                    lkey: lkey.into(),
                    ..common
                });
                if len == 0 {
                    continue;
                }
                let index = lkey >> 8;
                let entry = if [3, 5, 6, 0x3FF].contains(&index) { region(index) } else { MrEntry::default() };
                let base = u128::from(entry.base.to_u64());
                let fits = u128::from(va) >= base && u128::from(va) + u128::from(len) <= base + u128::from(entry.len.to_u64());
                // One entry with the key of nobody is inline data here.
                let is_inline = lkey == INLINE;
                let is_good = entry.valid && entry.tag == (lkey & 0xFF) && entry.pd == domain(qpn) && fits;
                is_refused |= !is_inline && !is_good;
                self.pieces.push(Piece { is_inline, addr: va.wrapping_add(0xFFFF_FFFF_FFF1_0000).into(), len: len.into() });
                total += len;
                pieces += 1;
            }
            let status = match (is_bad, is_refused, total > 1 << 31) {
                (true, ..) => CqeStatus::LocalOperation,
                (_, true, _) => CqeStatus::LocalProtection,
                (.., true) => CqeStatus::LocalLength,
                _ => CqeStatus::Success,
            };
            self.heads.push(WqeHead {
                qpn: qpn.into(),
                index: i.into(),
                signaled: common.signaled,
                asks_ack: common.asks_ack,
                solicited: common.solicited,
                status: (status as u64).into(),
                pieces: pieces.into(),
                len: (total & 0xFFFF_FFFF).into(),
                remote_va: common.remote_va,
                rkey: common.rkey,
                mtu: qpn.into(),
                header_len: [54u64, 58, 74, 78][qpn as usize - 1].into(),
            });
        }

        /// Random requests, with keys and ranges at their limits.
        fn new(seed: u64, count: usize) -> Self {
            let mut random = Stalls::new(seed);
            let mut work = Self::default();
            for _ in 0..count {
                let qpn = 1 + random.random() % 4;
                let sges: Vec<_> = (0..random.random() % 7)
                    .map(|_| {
                        let at = random.random() % 0x1000;
                        let good = if qpn == 2 { 5 } else { 3 };
                        let base = 0x10_0000 * good;
                        match random.random() % 20 {
                            0 => (base + at, 8, key(good) ^ 1),
                            1 => (base + at, 0x1000 - at + 1, key(good)),
                            2 => (base - 1, 2, key(good)),
                            3 => (base + at, 1, key(6)),
                            4 => (base + at, 1, key(8 - good)),
                            5 => (base + at, 1, key(good) | (limits::MRS as u64) << 8),
                            6 => (u64::MAX - 3, 8, key(good)),
                            7 => (random.random(), 0, 0),
                            8 => (0x3FF0_0000, 0x8000_0000 - at % 2, key(0x3FF)),
                            9 => (base + 0x1000, 1, key(good)),
                            10 => (base, 0xFFFF_FFFF, key(good)),
                            11 => (base, 0x1000, key(good)),
                            _ => (base + at, 1 + random.random() % (0x1000 - at), key(good)),
                        }
                    })
                    .collect();
                let is_inline = random.random() % 8 == 0;
                let sges = if is_inline { vec![(random.random(), random.random() % 97, INLINE)] } else { sges };
                let is_bad = sges.is_empty() && random.random() % 2 == 0;
                work.add(qpn, is_bad, &sges);
            }
            work
        }
    }

    fn reset(bench: &mut Bench<KeyCheck>) {
        bench.uut.item.valid.next = false;
        bench.uut.reset.next = true;
        bench.cycles(2);
        bench.uut.reset.next = false;
    }

    /// Sends all, until it is out or for `limit` clocks; returns the clocks to the first head and to the end.
    fn run(bench: &mut Bench<KeyCheck>, work: &Work, stalls: [Stalls; 3], limit: usize) -> (usize, usize) {
        let [item, piece, head] = stalls;
        let mut item = Driver::new(work.items.iter().copied(), item);
        let mut piece = Monitor::new(piece);
        let mut head = Monitor::new(head);
        let (mut first, mut clock, mut announced) = (0, 0, 0);
        while clock < limit && (head.got.len() < work.heads.len() || piece.got.len() < work.pieces.len()) {
            item.before(&mut bench.uut.item);
            piece.before(&mut bench.uut.piece);
            head.before(&mut bench.uut.head);
            bench.settle();
            item.after(&bench.uut.item);
            piece.after(&bench.uut.piece);
            let before = head.got.len();
            head.after(&bench.uut.head);
            if head.got.len() > before {
                announced += head.got[before].pieces.index();
                let there = piece.got.len() + bench.uut.pieces.level.val().index();
                assert!(announced <= there + 1, "a request comes behind its pieces");
            }
            if first == 0 && bench.uut.head.valid.val() {
                first = clock;
            }
            bench.edge();
            clock += 1;
        }
        if clock < limit {
            // Inline data has no address.
            let known = |piece: &Piece| if piece.is_inline { Piece { addr: 0u64.into(), ..*piece } } else { *piece };
            assert_eq!(piece.got.iter().map(known).collect::<Vec<_>>(), work.pieces.iter().map(known).collect::<Vec<_>>());
            assert_eq!(head.got, work.heads);
        }
        (first, clock)
    }

    #[test]
    fn keys_ranges_and_sums_are_judged_as_a_model_does_under_random_stalls() {
        let mut bench = Bench::new("tx_key_check", KeyCheck::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        write_tables(&mut bench);
        for seed in 1..5 {
            let work = Work::new(seed, 100);
            let refused = work.heads.iter().filter(|head| head.status.any()).count();
            assert!(refused > 10 && refused < 90, "{refused} of 100 requests are refused");
            run(&mut bench, &work, [10, 20, 30].map(|n| Stalls::new(seed + n)), 80 + seed as usize);
            reset(&mut bench);
            assert!(run(&mut bench, &work, [40, 50, 60].map(|n| Stalls::new(seed + n)), 5000).1 < 5000, "a request hangs");
        }
        bench.finish();
    }

    #[test]
    fn an_entry_is_checked_every_clock_and_full_exits_hold_the_entry_back() {
        let mut bench = Bench::new("tx_key_check_rate", KeyCheck::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        write_tables(&mut bench);
        let mut work = Work::default();
        for i in 0..60 {
            work.add(1, false, &vec![(0x30_0000 + i, 5, key(3)); 1 + i as usize % 3]);
        }
        let (first, end) = run(&mut bench, &work, [Stalls::none(), Stalls::none(), Stalls::none()], 1000);
        assert_eq!(first, 4);
        assert_eq!(end, work.items.len() + 4);
        // Either exit shut: what was taken has its place in the FIFO, and nothing more is taken.
        for (sges, shut_pieces) in [(6, true), (1, false)] {
            let mut work = Work::default();
            for i in 0..40 {
                work.add(1, false, &vec![(0x30_0000 + i, 5, key(3)); sges]);
            }
            reset(&mut bench);
            let mut item = Driver::new(work.items.iter().copied(), Stalls::none());
            let (mut pieces, mut heads) = (Monitor::new(Stalls::none()), Monitor::new(Stalls::none()));
            for clock in 0..400 {
                item.before(&mut bench.uut.item);
                pieces.before(&mut bench.uut.piece);
                heads.before(&mut bench.uut.head);
                if clock < 60 {
                    bench.uut.piece.ready.next = !shut_pieces;
                    bench.uut.head.ready.next = shut_pieces;
                }
                bench.settle();
                item.after(&bench.uut.item);
                pieces.after(&bench.uut.piece);
                heads.after(&bench.uut.head);
                bench.edge();
                if clock == 58 {
                    assert!(!bench.uut.item.ready.val());
                    let level = if shut_pieces { bench.uut.pieces.level.val() } else { bit_cast::<6, 5>(bench.uut.heads.level.val()) };
                    assert_eq!(level.index(), if shut_pieces { 31 } else { 15 });
                }
            }
            assert_eq!(pieces.got, work.pieces);
            assert_eq!(heads.got, work.heads);
        }
        bench.finish();
    }
}
