//! Parses the headers of every frame, whatever its layout, and checks what they say.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `valid` `beat` | in | beats from [`super::intake::RxIntake`] |
//! | `mac` `ipv4` `ipv6` `promiscuous` | in | which frames are ours; stable |
//! | `fields` `checks` | out | about the frame whose last beat came [`LATENCY`] clocks ago |
//!
//! Throughput: one beat every clock; nothing stalls. Headers reach to byte 98 (tag, IPv6, RETH,
//! ImmDt), so the first two beats are held while a frame passes, and everything behind is a function of
//! them: at the last beat both are there. `fields` and `checks` mean nothing at other beats.
//!
//! Stages: 3 holds the two beats, 4 picks the fields of the layout, 5 compares and decodes the
//! opcode, 6 to 9 do the arithmetic of lengths, one addition or comparison a stage. No length is
//! subtracted before a borrow is looked at.

use rust_hdl::prelude::*;

use super::front_records::{RxBeat, RxChecks, RxFields};
use crate::prim::{ByteReverse, Delay};

/// Clocks from a beat at the input to what is known of its frame.
pub const LATENCY: usize = 7;

/// The parser.
#[derive(LogicBlock)]
pub struct RxParse {
    pub clock: Signal<In, Clock>,
    pub beat: Signal<In, RxBeat>,
    pub valid: Signal<In, Bit>,
    pub mac: Signal<In, Bits<48>>,
    pub ipv4: Signal<In, Bits<32>>,
    pub ipv6: Signal<In, Bits<128>>,
    pub promiscuous: Signal<In, Bit>,
    pub fields: Signal<Out, RxFields>,
    pub checks: Signal<Out, RxChecks>,
    data: Signal<Local, Bits<512>>,
    index: Signal<Local, Bits<8>>,
    bytes: Signal<Local, Bits<7>>,
    low3: DFF<Bits<512>>,
    high3: DFF<Bits<272>>,
    vlan3: DFF<Bit>,
    ipv4_3: DFF<Bit>,
    ipv6_3: DFF<Bit>,
    total3: DFF<Bits<17>>,
    window: Signal<Local, Bits<784>>,
    reverse: ByteReverse<784>,
    headers: Signal<Local, Bits<784>>,
    l4_4: DFF<Bits<320>>,
    mac4: DFF<Bits<48>>,
    version4: DFF<Bits<8>>,
    fragment4: DFF<Bits<16>>,
    protocol4: DFF<Bits<8>>,
    ip_len4: DFF<Bits<16>>,
    source4: DFF<Bits<128>>,
    destination4: DFF<Bits<128>>,
    total4: DFF<Bits<17>>,
    l4_start4: DFF<Bits<8>>,
    vlan4: DFF<Bit>,
    ipv4_4: DFF<Bit>,
    ipv6_4: DFF<Bit>,
    opcode: Signal<Local, Bits<8>>,
    flags: Signal<Local, Bits<8>>,
    pkey: Signal<Local, Bits<16>>,
    mark: Signal<Local, Bits<8>>,
    dqpn: Signal<Local, Bits<24>>,
    ack: Signal<Local, Bits<8>>,
    psn: Signal<Local, Bits<24>>,
    va: Signal<Local, Bits<64>>,
    rkey: Signal<Local, Bits<32>>,
    dma_len: Signal<Local, Bits<32>>,
    syndrome: Signal<Local, Bits<8>>,
    msn: Signal<Local, Bits<24>>,
    imm_bth: Signal<Local, Bits<32>>,
    imm_deth: Signal<Local, Bits<32>>,
    imm_reth: Signal<Local, Bits<32>>,
    sport: Signal<Local, Bits<16>>,
    dport: Signal<Local, Bits<16>>,
    udp_len: Signal<Local, Bits<16>>,
    fragment: Signal<Local, Bits<14>>,
    destination_v4: Signal<Local, Bits<32>>,
    pkey_base: Signal<Local, Bits<15>>,
    is_reth_imm: Signal<Local, Bit>,
    is_plain_imm: Signal<Local, Bit>,
    is_deth_imm: Signal<Local, Bit>,
    is_aeth: Signal<Local, Bit>,
    is_atomic_ack: Signal<Local, Bit>,
    is_atomic: Signal<Local, Bit>,
    is_reth: Signal<Local, Bit>,
    is_deth: Signal<Local, Bit>,
    is_plain: Signal<Local, Bit>,
    fields5: Signal<Local, RxFields>,
    carry: Delay<RxFields>,
    mac_ok5: DFF<Bit>,
    ip_ok5: DFF<Bit>,
    roce5: DFF<Bit>,
    known5: DFF<Bit>,
    bth_ok5: DFF<Bit>,
    extension5: DFF<Bits<6>>,
    pad5: DFF<Bits<2>>,
    udp_len5: DFF<Bits<16>>,
    ip_len5: DFF<Bits<16>>,
    expected_ip_len5: DFF<Bits<16>>,
    total5: DFF<Bits<17>>,
    end5: DFF<Bits<17>>,
    l4_start5: DFF<Bits<8>>,
    roce6: DFF<Bit>,
    ours6: DFF<Bit>,
    bad6: DFF<Bit>,
    unsupported6: DFF<Bit>,
    udp_len6: DFF<Bits<16>>,
    overhead6: DFF<Bits<6>>,
    headers6: DFF<Bits<6>>,
    total6: DFF<Bits<17>>,
    start6: DFF<Bits<8>>,
    roce7: DFF<Bit>,
    ours7: DFF<Bit>,
    bad7: DFF<Bit>,
    unsupported7: DFF<Bit>,
    rest7: DFF<Bits<17>>,
    has_extension7: DFF<Bit>,
    start7: DFF<Bits<8>>,
    before7: DFF<Bits<8>>,
    length7: Signal<Local, Bits<16>>,
    is_short7: Signal<Local, Bit>,
    roce8: DFF<Bit>,
    ours8: DFF<Bit>,
    bad8: DFF<Bit>,
    unsupported8: DFF<Bit>,
    has_payload8: DFF<Bit>,
    has_extension8: DFF<Bit>,
    length8: DFF<Bits<16>>,
    start8: DFF<Bits<8>>,
    last_byte8: DFF<Bits<17>>,
    roce9: DFF<Bit>,
    ours9: DFF<Bit>,
    bad9: DFF<Bit>,
    unsupported9: DFF<Bit>,
    skip9: DFF<Bit>,
    length9: DFF<Bits<16>>,
    offset9: DFF<Bits<6>>,
    needed9: DFF<Bits<7>>,
    has_extension9: DFF<Bit>,
    last_line: Signal<Local, Bits<7>>,
    bytes6: Signal<Local, Bits<15>>,
    bytes_carry: Delay<Bits<15>>,

    twenty: Constant<Bits<16>>,
    l4_v4: Constant<Bits<8>>,
    l4_v4_vlan: Constant<Bits<8>>,
    l4_v6: Constant<Bits<8>>,
    l4_v6_vlan: Constant<Bits<8>>,
    fixed: Constant<Bits<6>>,
    bth_end: Constant<Bits<8>>,
    max_payload: Constant<Bits<17>>,
}

impl Default for RxParse {
    fn default() -> Self {
        Self {
            clock: Default::default(),
            beat: Default::default(),
            valid: Default::default(),
            mac: Default::default(),
            ipv4: Default::default(),
            ipv6: Default::default(),
            promiscuous: Default::default(),
            fields: Default::default(),
            checks: Default::default(),
            data: Default::default(),
            index: Default::default(),
            bytes: Default::default(),
            low3: Default::default(),
            high3: Default::default(),
            vlan3: Default::default(),
            ipv4_3: Default::default(),
            ipv6_3: Default::default(),
            total3: Default::default(),
            window: Default::default(),
            reverse: Default::default(),
            headers: Default::default(),
            l4_4: Default::default(),
            mac4: Default::default(),
            version4: Default::default(),
            fragment4: Default::default(),
            protocol4: Default::default(),
            ip_len4: Default::default(),
            source4: Default::default(),
            destination4: Default::default(),
            total4: Default::default(),
            l4_start4: Default::default(),
            vlan4: Default::default(),
            ipv4_4: Default::default(),
            ipv6_4: Default::default(),
            opcode: Default::default(),
            flags: Default::default(),
            pkey: Default::default(),
            mark: Default::default(),
            dqpn: Default::default(),
            ack: Default::default(),
            psn: Default::default(),
            va: Default::default(),
            rkey: Default::default(),
            dma_len: Default::default(),
            syndrome: Default::default(),
            msn: Default::default(),
            imm_bth: Default::default(),
            imm_deth: Default::default(),
            imm_reth: Default::default(),
            sport: Default::default(),
            dport: Default::default(),
            udp_len: Default::default(),
            fragment: Default::default(),
            destination_v4: Default::default(),
            pkey_base: Default::default(),
            is_reth_imm: Default::default(),
            is_plain_imm: Default::default(),
            is_deth_imm: Default::default(),
            is_aeth: Default::default(),
            is_atomic_ack: Default::default(),
            is_atomic: Default::default(),
            is_reth: Default::default(),
            is_deth: Default::default(),
            is_plain: Default::default(),
            fields5: Default::default(),
            carry: Delay::new(5),
            mac_ok5: Default::default(),
            ip_ok5: Default::default(),
            roce5: Default::default(),
            known5: Default::default(),
            bth_ok5: Default::default(),
            extension5: Default::default(),
            pad5: Default::default(),
            udp_len5: Default::default(),
            ip_len5: Default::default(),
            expected_ip_len5: Default::default(),
            total5: Default::default(),
            end5: Default::default(),
            l4_start5: Default::default(),
            roce6: Default::default(),
            ours6: Default::default(),
            bad6: Default::default(),
            unsupported6: Default::default(),
            udp_len6: Default::default(),
            overhead6: Default::default(),
            headers6: Default::default(),
            total6: Default::default(),
            start6: Default::default(),
            roce7: Default::default(),
            ours7: Default::default(),
            bad7: Default::default(),
            unsupported7: Default::default(),
            rest7: Default::default(),
            has_extension7: Default::default(),
            start7: Default::default(),
            before7: Default::default(),
            length7: Default::default(),
            is_short7: Default::default(),
            roce8: Default::default(),
            ours8: Default::default(),
            bad8: Default::default(),
            unsupported8: Default::default(),
            has_payload8: Default::default(),
            has_extension8: Default::default(),
            length8: Default::default(),
            start8: Default::default(),
            last_byte8: Default::default(),
            roce9: Default::default(),
            ours9: Default::default(),
            bad9: Default::default(),
            unsupported9: Default::default(),
            skip9: Default::default(),
            length9: Default::default(),
            offset9: Default::default(),
            needed9: Default::default(),
            has_extension9: Default::default(),
            last_line: Default::default(),
            bytes6: Default::default(),
            bytes_carry: Delay::new(3),
            twenty: Constant::new(20u8.to_bits()),
            l4_v4: Constant::new(34u8.to_bits()),
            l4_v4_vlan: Constant::new(38u8.to_bits()),
            l4_v6: Constant::new(54u8.to_bits()),
            l4_v6_vlan: Constant::new(58u8.to_bits()),
            fixed: Constant::new(24u8.to_bits()),
            bth_end: Constant::new(20u8.to_bits()),
            max_payload: Constant::new(4096u16.to_bits()),
        }
    }
}

impl Logic for RxParse {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, low3, high3, vlan3, ipv4_3, ipv6_3, total3, l4_4, mac4);
        dff_setup!(self, clock, version4, fragment4, protocol4, ip_len4, source4, destination4, total4, l4_start4);
        dff_setup!(self, clock, vlan4, ipv4_4, ipv6_4, mac_ok5, ip_ok5, roce5, known5, bth_ok5);
        dff_setup!(self, clock, extension5, pad5, udp_len5, ip_len5, expected_ip_len5, total5);
        dff_setup!(self, clock, end5, l4_start5, roce6, ours6, bad6, unsupported6, udp_len6, overhead6);
        dff_setup!(self, clock, start6, roce7, ours7, bad7, unsupported7, rest7, start7, before7);
        dff_setup!(self, clock, roce8, ours8, bad8, unsupported8, has_payload8, length8, start8, last_byte8);
        dff_setup!(self, clock, headers6, total6, has_extension7, has_extension8, has_extension9);
        dff_setup!(self, clock, roce9, ours9, bad9, unsupported9, skip9, length9, offset9, needed9);
        clock!(self, clock, carry, bytes_carry);

        // Stage 3: the first two beats of the frame, and its bytes so far.
        self.data.next = self.beat.val().data;
        self.index.next = self.beat.val().index;
        self.bytes.next = self.beat.val().bytes;
        if self.valid.val() {
            self.vlan3.d.next = self.beat.val().vlan;
            self.ipv4_3.d.next = self.beat.val().ipv4;
            self.ipv6_3.d.next = self.beat.val().ipv6;
            self.total3.d.next = (bit_cast::<17, 8>(self.index.val()) << 6) + bit_cast::<17, 7>(self.bytes.val());
            if self.beat.val().first {
                self.low3.d.next = self.data.val();
            }
            if self.beat.val().second {
                self.high3.d.next = self.data.val().get_bits::<272>(0);
            }
        }

        // Stage 4: from here on headers are big-endian, the first byte highest.
        self.window.next = bit_cast::<784, 512>(self.low3.q.val()) | (bit_cast::<784, 272>(self.high3.q.val()) << 512);
        self.reverse.operand.next = self.window.val();
        self.headers.next = self.reverse.result.val();
        self.mac4.d.next = self.low3.q.val().get_bits::<48>(0);
        self.total4.d.next = self.total3.q.val();
        self.vlan4.d.next = self.vlan3.q.val();
        self.ipv4_4.d.next = self.ipv4_3.q.val();
        self.ipv6_4.d.next = self.ipv6_3.q.val();
        self.l4_4.d.next = self.headers.val().get_bits::<320>(192);
        self.l4_start4.d.next = self.l4_v4.val();
        self.version4.d.next = self.headers.val().get_bits::<8>(664);
        self.ip_len4.d.next = self.headers.val().get_bits::<16>(640);
        self.protocol4.d.next = self.headers.val().get_bits::<8>(592);
        self.fragment4.d.next = self.headers.val().get_bits::<16>(608);
        self.source4.d.next = bit_cast::<128, 32>(self.low3.q.val().get_bits::<32>(208)) << 96;
        self.destination4.d.next = bit_cast::<128, 32>(self.low3.q.val().get_bits::<32>(240)) << 96;
        if self.vlan3.q.val() & !self.ipv6_3.q.val() {
            self.l4_4.d.next = self.headers.val().get_bits::<320>(160);
            self.l4_start4.d.next = self.l4_v4_vlan.val();
            self.version4.d.next = self.headers.val().get_bits::<8>(632);
            self.ip_len4.d.next = self.headers.val().get_bits::<16>(608);
            self.protocol4.d.next = self.headers.val().get_bits::<8>(560);
            self.fragment4.d.next = self.headers.val().get_bits::<16>(576);
            self.source4.d.next = bit_cast::<128, 32>(self.low3.q.val().get_bits::<32>(240)) << 96;
            self.destination4.d.next = bit_cast::<128, 32>(self.low3.q.val().get_bits::<32>(272)) << 96;
        }
        if !self.vlan3.q.val() & self.ipv6_3.q.val() {
            self.l4_4.d.next = self.headers.val().get_bits::<320>(32);
            self.l4_start4.d.next = self.l4_v6.val();
            self.version4.d.next = self.headers.val().get_bits::<8>(664);
            self.ip_len4.d.next = self.headers.val().get_bits::<16>(624);
            self.protocol4.d.next = self.headers.val().get_bits::<8>(616);
            self.source4.d.next = self.low3.q.val().get_bits::<128>(176);
            self.destination4.d.next = self.low3.q.val().get_bits::<128>(304);
        }
        if self.vlan3.q.val() & self.ipv6_3.q.val() {
            self.l4_4.d.next = self.headers.val().get_bits::<320>(0);
            self.l4_start4.d.next = self.l4_v6_vlan.val();
            self.version4.d.next = self.headers.val().get_bits::<8>(632);
            self.ip_len4.d.next = self.headers.val().get_bits::<16>(592);
            self.protocol4.d.next = self.headers.val().get_bits::<8>(584);
            self.source4.d.next = self.low3.q.val().get_bits::<128>(208);
            self.destination4.d.next = self.low3.q.val().get_bits::<128>(336);
        }

        // Stage 5: comparisons and the opcode. Offsets count from the end of forty bytes of UDP, BTH and what follows.
        self.opcode.next = self.l4_4.q.val().get_bits::<8>(248);
        self.flags.next = self.l4_4.q.val().get_bits::<8>(240);
        self.pkey.next = self.l4_4.q.val().get_bits::<16>(224);
        self.mark.next = self.l4_4.q.val().get_bits::<8>(216);
        self.dqpn.next = self.l4_4.q.val().get_bits::<24>(192);
        self.ack.next = self.l4_4.q.val().get_bits::<8>(184);
        self.psn.next = self.l4_4.q.val().get_bits::<24>(160);
        self.va.next = self.l4_4.q.val().get_bits::<64>(96);
        self.rkey.next = self.l4_4.q.val().get_bits::<32>(64);
        self.dma_len.next = self.l4_4.q.val().get_bits::<32>(32);
        self.syndrome.next = self.l4_4.q.val().get_bits::<8>(152);
        self.msn.next = self.l4_4.q.val().get_bits::<24>(128);
        self.imm_bth.next = self.l4_4.q.val().get_bits::<32>(128);
        self.imm_deth.next = self.l4_4.q.val().get_bits::<32>(64);
        self.imm_reth.next = self.l4_4.q.val().get_bits::<32>(0);
        self.sport.next = self.l4_4.q.val().get_bits::<16>(304);
        self.dport.next = self.l4_4.q.val().get_bits::<16>(288);
        self.udp_len.next = self.l4_4.q.val().get_bits::<16>(272);
        self.is_plain.next = (self.opcode.val() == 0x00)
            | (self.opcode.val() == 0x01)
            | (self.opcode.val() == 0x02)
            | (self.opcode.val() == 0x04)
            | (self.opcode.val() == 0x07)
            | (self.opcode.val() == 0x08)
            | (self.opcode.val() == 0x0e)
            | (self.opcode.val() == 0x81);
        self.is_plain_imm.next = (self.opcode.val() == 0x03)
            | (self.opcode.val() == 0x05)
            | (self.opcode.val() == 0x09)
            | (self.opcode.val() == 0x16)
            | (self.opcode.val() == 0x17);
        self.is_reth.next = (self.opcode.val() == 0x06) | (self.opcode.val() == 0x0a) | (self.opcode.val() == 0x0c);
        self.is_reth_imm.next = self.opcode.val() == 0x0b;
        self.is_aeth.next =
            (self.opcode.val() == 0x0d) | (self.opcode.val() == 0x0f) | (self.opcode.val() == 0x10) | (self.opcode.val() == 0x11);
        self.is_atomic_ack.next = self.opcode.val() == 0x12;
        self.is_atomic.next = (self.opcode.val() == 0x13) | (self.opcode.val() == 0x14);
        self.is_deth.next = self.opcode.val() == 0x64;
        self.is_deth_imm.next = self.opcode.val() == 0x65;
        // The sixteen reserved bytes of a CNP count as payload, as in every dissector.
        self.extension5.d.next = 0.into();
        if self.is_plain_imm.val() | self.is_aeth.val() {
            self.extension5.d.next = 4.into();
        }
        if self.is_deth.val() {
            self.extension5.d.next = 8.into();
        }
        if self.is_atomic_ack.val() | self.is_deth_imm.val() {
            self.extension5.d.next = 12.into();
        }
        if self.is_reth.val() {
            self.extension5.d.next = 16.into();
        }
        if self.is_reth_imm.val() {
            self.extension5.d.next = 20.into();
        }
        if self.is_atomic.val() {
            self.extension5.d.next = 28.into();
        }
        self.known5.d.next = self.is_plain.val()
            | self.is_plain_imm.val()
            | self.is_reth.val()
            | self.is_reth_imm.val()
            | self.is_aeth.val()
            | self.is_atomic_ack.val()
            | self.is_atomic.val()
            | self.is_deth.val()
            | self.is_deth_imm.val();
        // A limited member's P_Key (bit 15 clear) may talk to a full one.
        self.pkey_base.next = self.pkey.val().get_bits::<15>(0);
        self.bth_ok5.d.next = (self.flags.val().get_bits::<4>(0) == 0) & (self.pkey_base.val() == 0x7fff) & (self.dqpn.val() != 0);
        self.pad5.d.next = self.flags.val().get_bits::<2>(4);

        self.mac_ok5.d.next = self.mac4.q.val() == self.mac.val();
        self.destination_v4.next = self.destination4.q.val().get_bits::<32>(96);
        self.fragment.next = self.fragment4.q.val().get_bits::<14>(0);
        self.roce5.d.next = false;
        self.ip_ok5.d.next = self.destination_v4.val() == self.ipv4.val();
        self.expected_ip_len5.d.next = self.udp_len.val() + self.twenty.val();
        if self.ipv4_4.q.val() {
            // No options, and no fragment: more fragments clear, offset 0.
            self.roce5.d.next =
                (self.version4.q.val() == 0x45) & (self.fragment.val() == 0) & (self.protocol4.q.val() == 17) & (self.dport.val() == 4791);
        }
        if self.ipv6_4.q.val() {
            self.ip_ok5.d.next = self.destination4.q.val() == self.ipv6.val();
            self.expected_ip_len5.d.next = self.udp_len.val();
            self.roce5.d.next = (self.version4.q.val().get_bits::<4>(4) == 6) & (self.protocol4.q.val() == 17) & (self.dport.val() == 4791);
        }
        self.ip_len5.d.next = self.ip_len4.q.val();
        self.udp_len5.d.next = self.udp_len.val();
        self.total5.d.next = self.total4.q.val();
        self.end5.d.next = bit_cast::<17, 16>(self.udp_len.val()) + bit_cast::<17, 8>(self.l4_start4.q.val());
        self.l4_start5.d.next = self.l4_start4.q.val();

        self.fields5.next.opcode = self.opcode.val();
        self.fields5.next.se = self.flags.val().get_bit(7);
        self.fields5.next.migreq = self.flags.val().get_bit(6);
        self.fields5.next.pad = self.flags.val().get_bits::<2>(4);
        self.fields5.next.tver = self.flags.val().get_bits::<4>(0);
        self.fields5.next.pkey = self.pkey.val();
        self.fields5.next.fecn = self.mark.val().get_bit(7);
        self.fields5.next.becn = self.mark.val().get_bit(6);
        self.fields5.next.dqpn = self.dqpn.val();
        self.fields5.next.ackreq = self.ack.val().get_bit(7);
        self.fields5.next.psn = self.psn.val();
        self.fields5.next.has_reth = self.is_reth.val() | self.is_reth_imm.val();
        self.fields5.next.va = self.va.val();
        self.fields5.next.rkey = self.rkey.val();
        self.fields5.next.dma_len = self.dma_len.val();
        self.fields5.next.has_aeth = self.is_aeth.val() | self.is_atomic_ack.val();
        self.fields5.next.syndrome = self.syndrome.val();
        self.fields5.next.msn = self.msn.val();
        self.fields5.next.has_imm = self.is_plain_imm.val() | self.is_reth_imm.val() | self.is_deth_imm.val();
        self.fields5.next.imm = self.imm_bth.val();
        self.fields5.next.ipv6 = self.ipv6_4.q.val();
        self.fields5.next.vlan = self.vlan4.q.val();
        self.fields5.next.sport = self.sport.val();
        self.fields5.next.source_ip = self.source4.q.val();
        if self.is_reth_imm.val() {
            self.fields5.next.imm = self.imm_reth.val();
        }
        if self.is_deth_imm.val() {
            self.fields5.next.imm = self.imm_deth.val();
        }
        self.carry.fill.next = self.fields5.val();
        self.fields.next = self.carry.drain.val();

        // Stage 6: what is in front of and behind the payload.
        self.roce6.d.next = self.roce5.q.val();
        self.ours6.d.next = self.roce5.q.val() & (self.promiscuous.val() | (self.mac_ok5.q.val() & self.ip_ok5.q.val()));
        self.bad6.d.next = (self.ip_len5.q.val() != self.expected_ip_len5.q.val()) | (self.total5.q.val() < self.end5.q.val());
        self.unsupported6.d.next = !self.known5.q.val() | !self.bth_ok5.q.val();
        self.udp_len6.d.next = self.udp_len5.q.val();
        self.overhead6.d.next = self.fixed.val() + self.extension5.q.val() + bit_cast::<6, 2>(self.pad5.q.val());
        self.headers6.d.next = self.fixed.val() + self.extension5.q.val();
        self.total6.d.next = self.total5.q.val();
        self.bytes6.next = self.total6.q.val().get_bits::<15>(0);
        self.bytes_carry.fill.next = self.bytes6.val();
        self.start6.d.next = self.l4_start5.q.val() + self.bth_end.val() + bit_cast::<8, 6>(self.extension5.q.val());

        // Stage 7: the payload's length, with the borrow on top.
        self.roce7.d.next = self.roce6.q.val();
        self.ours7.d.next = self.ours6.q.val();
        self.bad7.d.next = self.bad6.q.val();
        self.unsupported7.d.next = self.unsupported6.q.val();
        self.rest7.d.next = bit_cast::<17, 16>(self.udp_len6.q.val()) - bit_cast::<17, 6>(self.overhead6.q.val());
        // Extension headers are there if the length has room for them and so many bytes have come.
        self.has_extension7.d.next = (self.udp_len6.q.val() >= bit_cast::<16, 6>(self.headers6.q.val()))
            & (self.total6.q.val() >= bit_cast::<17, 8>(self.start6.q.val()));
        self.start7.d.next = self.start6.q.val();
        self.before7.d.next = self.start6.q.val() - 1;

        // Stage 8: the frame's byte that is the payload's last.
        self.roce8.d.next = self.roce7.q.val();
        self.ours8.d.next = self.ours7.q.val();
        self.bad8.d.next = self.bad7.q.val() | (self.rest7.q.val() > self.max_payload.val());
        self.unsupported8.d.next = self.unsupported7.q.val();
        self.length7.next = self.rest7.q.val().get_bits::<16>(0);
        self.is_short7.next = self.rest7.q.val().get_bit(16);
        if self.is_short7.val() {
            self.length7.next = 0.into();
        }
        self.has_extension8.d.next = self.has_extension7.q.val();
        self.length8.d.next = self.length7.val();
        self.has_payload8.d.next = self.length7.val() != 0;
        self.start8.d.next = self.start7.q.val();
        self.last_byte8.d.next = self.rest7.q.val() + bit_cast::<17, 8>(self.before7.q.val());

        // Stage 9: lines.
        self.roce9.d.next = self.roce8.q.val();
        self.ours9.d.next = self.ours8.q.val();
        self.bad9.d.next = self.bad8.q.val();
        self.unsupported9.d.next = self.unsupported8.q.val();
        self.length9.d.next = self.length8.q.val();
        self.has_extension9.d.next = self.has_extension8.q.val();
        self.offset9.d.next = self.start8.q.val().get_bits::<6>(0);
        self.skip9.d.next = self.start8.q.val().get_bit(6);
        self.last_line.next = self.last_byte8.q.val().get_bits::<7>(6);
        self.needed9.d.next = 0.into();
        if self.has_payload8.q.val() {
            self.needed9.d.next = self.last_line.val() + 1;
        }

        self.checks.next.is_roce = self.roce9.q.val();
        self.checks.next.is_ours = self.ours9.q.val();
        self.checks.next.is_malformed = self.bad9.q.val();
        self.checks.next.is_unsupported = self.unsupported9.q.val();
        self.checks.next.has_extension = self.has_extension9.q.val();
        self.checks.next.payload_len = self.length9.q.val();
        self.checks.next.offset = self.offset9.q.val();
        self.checks.next.skip = self.skip9.q.val();
        self.checks.next.needed = self.needed9.q.val();
        self.checks.next.frame_len = self.bytes_carry.drain.val();
    }
}

#[cfg(test)]
mod tests;
