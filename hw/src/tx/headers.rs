//! Builds the headers of a packet: Ethernet, 802.1Q tag, IPv4 or IPv6, UDP, BTH, RETH or AETH.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `qp_write` | in | contexts: where each queue pair's packets go |
//! | `mac`, `ipv4`, `ipv6` | in | own addresses, first byte in the lowest bits |
//! | `packet` | sink | what is sent |
//! | `header` | source | finished headers with what the merger needs |
//!
//! Latency: five clocks. Throughput: one packet a clock. It is a pipeline without stalls; a packet
//! is taken only while the FIFO behind has room for all that are under way.
//!
//! UDP checksum 0, identification 0 with DF (RFC 6864), flow label 0, MigReq 0. The IPv4 checksum
//! is summed over words as they lie in memory: the one's complement sum does not mind the byte
//! order, so nothing is swapped on the way (RFC 1071).

use rust_hdl::prelude::*;
use verbena_abi::{limits, queue, wire};

use crate::bus::{Header, PacketDesc, QpContext, QpWrite, StreamSink, StreamSource};
use crate::prim::{Fifo, Ram};

/// Bytes of the headers up to and including the BTH.
pub(super) fn header_bytes(ipv6: bool, vlan: bool) -> usize {
    let ip = if ipv6 { size_of::<wire::Ipv6>() } else { size_of::<wire::Ipv4>() };
    let tag = if vlan { size_of::<wire::Vlan>() } else { 0 };
    size_of::<wire::Ethernet>() + tag + ip + size_of::<wire::Udp>() + size_of::<wire::Bth>()
}

/// Ethernet header without tag, in wire order.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Ethernet {
    destination: Bits<48>,
    source: Bits<48>,
    ethertype: Bits<16>,
}

/// Ethernet header with tag, in wire order.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct TaggedEthernet {
    destination: Bits<48>,
    source: Bits<48>,
    tag_type: Bits<16>,
    tci: Bits<16>,
    ethertype: Bits<16>,
}

/// IPv4 header, in wire order.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Ipv4 {
    version_ihl: Bits<8>,
    tos: Bits<8>,
    total_length: Bits<16>,
    identification: Bits<16>,
    fragment: Bits<16>,
    ttl: Bits<8>,
    protocol: Bits<8>,
    checksum: Bits<16>,
    source: Bits<32>,
    destination: Bits<32>,
}

/// IPv6 header, in wire order.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Ipv6 {
    version_class: Bits<8>,
    class_flow: Bits<8>,
    flow: Bits<16>,
    payload_length: Bits<16>,
    next_header: Bits<8>,
    hop_limit: Bits<8>,
    source: Bits<128>,
    destination: Bits<128>,
}

/// UDP, BTH and the longest extension header, in wire order.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Transport {
    source_port: Bits<16>,
    destination_port: Bits<16>,
    udp_length: Bits<16>,
    udp_checksum: Bits<16>,
    opcode: Bits<8>,
    flags: Bits<8>,
    pkey: Bits<16>,
    reserved: Bits<8>,
    qpn: Bits<24>,
    ack_req: Bits<8>,
    psn: Bits<24>,
    extension: Bits<128>,
}

/// A packet on its way through the stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Work {
    valid: Bit,
    desc: PacketDesc,
}

#[derive(LogicBlock)]
pub struct Headers {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub qp_write: Signal<In, QpWrite>,
    pub mac: Signal<In, Bits<48>>,
    pub ipv4: Signal<In, Bits<32>>,
    pub ipv6: Signal<In, Bits<128>>,
    pub packet: StreamSink<PacketDesc>,
    pub header: StreamSource<Header>,

    config_ram: Ram<QpContext, { limits::LOG_QPS }>,
    headers: Fifo<Header, 4, 5>,
    work1: DFF<Work>,
    work3: DFF<Work>,
    config3: DFF<QpContext>,
    pad3: DFF<Bits<2>>,
    udp_len3: DFF<Bits<16>>,
    addresses3: DFF<Bits<20>>,
    rest3: DFF<Bits<20>>,
    work4: DFF<Work>,
    config4: DFF<QpContext>,
    pad4: DFF<Bits<2>>,
    udp_len4: DFF<Bits<16>>,
    sum4: DFF<Bits<20>>,
    work5: DFF<Work>,
    config5: DFF<QpContext>,
    pad5: DFF<Bits<2>>,
    udp_len5: DFF<Bits<16>>,
    checksum5: DFF<Bits<16>>,

    broadcast: Signal<Local, QpWrite>,
    attributes: Signal<Local, QpContext>,
    context_state: Signal<Local, Bits<3>>,
    has_room: Signal<Local, Bit>,
    incoming: Signal<Local, PacketDesc>,
    now2: Signal<Local, Work>,
    desc2: Signal<Local, PacketDesc>,
    len2: Signal<Local, Bits<13>>,
    low2: Signal<Local, Bits<2>>,
    pad2: Signal<Local, Bits<2>>,
    ext2: Signal<Local, Bits<16>>,
    context2: Signal<Local, QpContext>,
    remote2: Signal<Local, Bits<128>>,
    src_lo: Signal<Local, Bits<16>>,
    src_hi: Signal<Local, Bits<16>>,
    dst_lo: Signal<Local, Bits<16>>,
    dst_hi: Signal<Local, Bits<16>>,
    tos_word: Signal<Local, Bits<16>>,
    ttl_word: Signal<Local, Bits<16>>,
    ip_len3: Signal<Local, Bits<16>>,
    ip_len3_wire: Signal<Local, Bits<16>>,
    sum_now: Signal<Local, Bits<20>>,
    sum_low: Signal<Local, Bits<16>>,
    sum_high: Signal<Local, Bits<4>>,
    folded: Signal<Local, Bits<17>>,
    folded_low: Signal<Local, Bits<16>>,
    folded_carry: Signal<Local, Bits<1>>,
    checksum: Signal<Local, Bits<16>>,
    now5: Signal<Local, Work>,
    desc5: Signal<Local, PacketDesc>,
    context5: Signal<Local, QpContext>,
    flags5: Signal<Local, Bits<3>>,
    is_ipv6: Signal<Local, Bit>,
    is_vlan: Signal<Local, Bit>,
    remote5: Signal<Local, Bits<128>>,
    class5: Signal<Local, Bits<8>>,
    port5: Signal<Local, Bits<16>>,
    pkey5: Signal<Local, Bits<16>>,
    tci5: Signal<Local, Bits<16>>,
    qpn5: Signal<Local, Bits<24>>,
    psn5: Signal<Local, Bits<24>>,
    va5: Signal<Local, Bits<64>>,
    va_high: Signal<Local, Bits<32>>,
    va_low: Signal<Local, Bits<32>>,
    rkey5: Signal<Local, Bits<32>>,
    dma_len5: Signal<Local, Bits<32>>,
    ip_len5: Signal<Local, Bits<16>>,
    va_high_wire: Signal<Local, Bits<32>>,
    va_low_wire: Signal<Local, Bits<32>>,
    rkey_wire: Signal<Local, Bits<32>>,
    dma_len_wire: Signal<Local, Bits<32>>,
    plain: Signal<Local, Ethernet>,
    with_tag: Signal<Local, TaggedEthernet>,
    ip4: Signal<Local, Ipv4>,
    ip6: Signal<Local, Ipv6>,
    transport: Signal<Local, Transport>,
    transport_bits: Signal<Local, Bits<288>>,
    ip4_bits: Signal<Local, Bits<160>>,
    ip6_bits: Signal<Local, Bits<320>>,
    plain_bits: Signal<Local, Bits<112>>,
    with_tag_bits: Signal<Local, Bits<144>>,
    network: Signal<Local, Bits<608>>,
    bytes: Signal<Local, Bits<752>>,
    base_len: Signal<Local, Bits<7>>,
    ext_len: Signal<Local, Bits<7>>,
    room: Constant<Bits<5>>,
    reset_state: Constant<Bits<3>>,
    udp_fixed: Constant<Bits<16>>,
    reth_len: Constant<Bits<16>>,
    aeth_len: Constant<Bits<16>>,
    reth_bytes: Constant<Bits<7>>,
    aeth_bytes: Constant<Bits<7>>,
    ip4_len: Constant<Bits<16>>,
    type_ipv4: Constant<Bits<16>>,
    type_ipv6: Constant<Bits<16>>,
    type_vlan: Constant<Bits<16>>,
    df_wire: Constant<Bits<16>>,
    version4: Constant<Bits<8>>,
    version6: Constant<Bits<8>>,
    udp_protocol: Constant<Bits<8>>,
    roce_port: Constant<Bits<16>>,
    ones16: Constant<Bits<16>>,
    byte0: Constant<Bits<32>>,
    byte1: Constant<Bits<32>>,
    byte1_of_3: Constant<Bits<24>>,
    zero16: Constant<Bits<16>>,
    zero8: Constant<Bits<8>>,
    len_v4: Constant<Bits<7>>,
    len_v4_vlan: Constant<Bits<7>>,
    len_v6: Constant<Bits<7>>,
    len_v6_vlan: Constant<Bits<7>>,
}

impl Default for Headers {
    fn default() -> Self {
        let swapped = |value: u16| Constant::new(value.swap_bytes().to_bits());
        Self {
            clock: Default::default(),
            reset: Default::default(),
            qp_write: Default::default(),
            mac: Default::default(),
            ipv4: Default::default(),
            ipv6: Default::default(),
            packet: Default::default(),
            header: Default::default(),
            config_ram: Default::default(),
            headers: Default::default(),
            work1: Default::default(),
            work3: Default::default(),
            config3: Default::default(),
            pad3: Default::default(),
            udp_len3: Default::default(),
            addresses3: Default::default(),
            rest3: Default::default(),
            work4: Default::default(),
            config4: Default::default(),
            pad4: Default::default(),
            udp_len4: Default::default(),
            sum4: Default::default(),
            work5: Default::default(),
            config5: Default::default(),
            pad5: Default::default(),
            udp_len5: Default::default(),
            checksum5: Default::default(),
            broadcast: Default::default(),
            attributes: Default::default(),
            context_state: Default::default(),
            has_room: Default::default(),
            incoming: Default::default(),
            now2: Default::default(),
            desc2: Default::default(),
            len2: Default::default(),
            low2: Default::default(),
            pad2: Default::default(),
            ext2: Default::default(),
            context2: Default::default(),
            remote2: Default::default(),
            src_lo: Default::default(),
            src_hi: Default::default(),
            dst_lo: Default::default(),
            dst_hi: Default::default(),
            tos_word: Default::default(),
            ttl_word: Default::default(),
            ip_len3: Default::default(),
            ip_len3_wire: Default::default(),
            sum_now: Default::default(),
            sum_low: Default::default(),
            sum_high: Default::default(),
            folded: Default::default(),
            folded_low: Default::default(),
            folded_carry: Default::default(),
            checksum: Default::default(),
            now5: Default::default(),
            desc5: Default::default(),
            context5: Default::default(),
            flags5: Default::default(),
            is_ipv6: Default::default(),
            is_vlan: Default::default(),
            remote5: Default::default(),
            class5: Default::default(),
            port5: Default::default(),
            pkey5: Default::default(),
            tci5: Default::default(),
            qpn5: Default::default(),
            psn5: Default::default(),
            va5: Default::default(),
            va_high: Default::default(),
            va_low: Default::default(),
            rkey5: Default::default(),
            dma_len5: Default::default(),
            ip_len5: Default::default(),
            va_high_wire: Default::default(),
            va_low_wire: Default::default(),
            rkey_wire: Default::default(),
            dma_len_wire: Default::default(),
            plain: Default::default(),
            with_tag: Default::default(),
            ip4: Default::default(),
            ip6: Default::default(),
            transport: Default::default(),
            transport_bits: Default::default(),
            ip4_bits: Default::default(),
            ip6_bits: Default::default(),
            plain_bits: Default::default(),
            with_tag_bits: Default::default(),
            network: Default::default(),
            bytes: Default::default(),
            base_len: Default::default(),
            ext_len: Default::default(),
            room: Constant::new(9u8.to_bits()),
            reset_state: Constant::new((queue::QpState::Reset as u8).to_bits()),
            udp_fixed: Constant::new((size_of::<wire::Udp>() + size_of::<wire::Bth>() + wire::ICRC_BYTES).to_bits()),
            reth_len: Constant::new(size_of::<wire::Reth>().to_bits()),
            aeth_len: Constant::new(size_of::<wire::Aeth>().to_bits()),
            reth_bytes: Constant::new(size_of::<wire::Reth>().to_bits()),
            aeth_bytes: Constant::new(size_of::<wire::Aeth>().to_bits()),
            ip4_len: Constant::new(size_of::<wire::Ipv4>().to_bits()),
            type_ipv4: swapped(wire::ETHERTYPE_IPV4),
            type_ipv6: swapped(wire::ETHERTYPE_IPV6),
            type_vlan: swapped(wire::ETHERTYPE_VLAN),
            df_wire: swapped(0x4000),
            version4: Constant::new(0x45u8.to_bits()),
            version6: Constant::new(0x60u8.to_bits()),
            udp_protocol: Constant::new(wire::IP_UDP.to_bits()),
            roce_port: swapped(wire::ROCE_PORT),
            ones16: Constant::new(0xFFFFu16.to_bits()),
            byte0: Constant::new(0xFFu32.to_bits()),
            byte1: Constant::new(0xFF00u32.to_bits()),
            byte1_of_3: Constant::new(0xFF00u32.to_bits()),
            zero16: Constant::new(0u8.to_bits()),
            zero8: Constant::new(0u8.to_bits()),
            len_v4: Constant::new(header_bytes(false, false).to_bits()),
            len_v4_vlan: Constant::new(header_bytes(false, true).to_bits()),
            len_v6: Constant::new(header_bytes(true, false).to_bits()),
            len_v6_vlan: Constant::new(header_bytes(true, true).to_bits()),
        }
    }
}

impl Logic for Headers {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, work1);
        dff_setup!(self, clock, work3, config3, pad3, udp_len3, addresses3, rest3, work4, config4, pad4, udp_len4, sum4);
        dff_setup!(self, clock, work5, config5, pad5, udp_len5, checksum5);
        clock!(self, clock, config_ram, headers);
        self.headers.reset.next = self.reset.val();
        StreamSource::<Header>::link(&mut self.header, &mut self.headers.drain);

        // A context that goes to RESET is not taken: packets that are under way keep their peer.
        self.broadcast.next = self.qp_write.val();
        self.attributes.next = self.broadcast.val().context;
        self.context_state.next = self.attributes.val().state;
        self.config_ram.write_enable.next = self.broadcast.val().valid & (self.context_state.val() != self.reset_state.val());
        self.config_ram.write_address.next = self.broadcast.val().qpn;
        self.config_ram.write_data.next = self.broadcast.val().context;

        // Stage 1: the context is looked up.
        self.has_room.next = self.headers.level.val() <= self.room.val();
        self.packet.ready.next = self.has_room.val();
        self.incoming.next = self.packet.data.val();
        self.config_ram.read_address.next = self.incoming.val().qpn;
        self.work1.d.next.valid = self.packet.valid.val() & self.has_room.val();
        self.work1.d.next.desc = self.incoming.val();

        // Stage 2: lengths, and the first sums of the IPv4 checksum.
        self.now2.next = self.work1.q.val();
        self.desc2.next = self.now2.val().desc;
        self.len2.next = self.desc2.val().len;
        self.low2.next = self.len2.val().get_bits::<2>(0);
        self.pad2.next = 0 - self.low2.val();
        self.ext2.next = self.zero16.val();
        if self.desc2.val().has_reth {
            self.ext2.next = self.reth_len.val();
        } else if self.desc2.val().has_aeth {
            self.ext2.next = self.aeth_len.val();
        }
        self.work3.d.next = self.now2.val();
        self.config3.d.next = self.config_ram.read_data.val();
        self.pad3.d.next = self.pad2.val();
        self.udp_len3.d.next =
            bit_cast::<16, 13>(self.len2.val()) + bit_cast::<16, 2>(self.pad2.val()) + self.ext2.val() + self.udp_fixed.val();
        self.context2.next = self.config_ram.read_data.val();
        self.remote2.next = self.context2.val().remote_ip;
        self.src_lo.next = self.ipv4.val().get_bits::<16>(0);
        self.src_hi.next = self.ipv4.val().get_bits::<16>(16);
        self.dst_lo.next = self.remote2.val().get_bits::<16>(96);
        self.dst_hi.next = self.remote2.val().get_bits::<16>(112);
        self.tos_word.next = (bit_cast::<16, 8>(self.context2.val().traffic_class) << 8) | bit_cast::<16, 8>(self.version4.val());
        self.ttl_word.next = (bit_cast::<16, 8>(self.udp_protocol.val()) << 8) | bit_cast::<16, 8>(self.context2.val().ttl);
        self.addresses3.d.next = bit_cast::<20, 16>(self.src_lo.val())
            + bit_cast::<20, 16>(self.src_hi.val())
            + bit_cast::<20, 16>(self.dst_lo.val())
            + bit_cast::<20, 16>(self.dst_hi.val());
        self.rest3.d.next =
            bit_cast::<20, 16>(self.tos_word.val()) + bit_cast::<20, 16>(self.ttl_word.val()) + bit_cast::<20, 16>(self.df_wire.val());

        // Stages 3 and 4: the sum, folded twice.
        self.ip_len3.next = self.udp_len3.q.val() + self.ip4_len.val();
        self.ip_len3_wire.next = (self.ip_len3.val() << 8) | (self.ip_len3.val() >> 8);
        self.work4.d.next = self.work3.q.val();
        self.config4.d.next = self.config3.q.val();
        self.pad4.d.next = self.pad3.q.val();
        self.udp_len4.d.next = self.udp_len3.q.val();
        self.sum4.d.next = self.addresses3.q.val() + self.rest3.q.val() + bit_cast::<20, 16>(self.ip_len3_wire.val());
        self.sum_now.next = self.sum4.q.val();
        self.sum_low.next = self.sum_now.val().get_bits::<16>(0);
        self.sum_high.next = self.sum_now.val().get_bits::<4>(16);
        self.folded.next = bit_cast::<17, 16>(self.sum_low.val()) + bit_cast::<17, 4>(self.sum_high.val());
        self.folded_low.next = self.folded.val().get_bits::<16>(0);
        self.folded_carry.next = self.folded.val().get_bits::<1>(16);
        self.checksum.next = self.folded_low.val() + bit_cast::<16, 1>(self.folded_carry.val());
        self.work5.d.next = self.work4.q.val();
        self.config5.d.next = self.config4.q.val();
        self.pad5.d.next = self.pad4.q.val();
        self.udp_len5.d.next = self.udp_len4.q.val();
        self.checksum5.d.next = self.checksum.val() ^ self.ones16.val();

        // Stage 5: the bytes, big-endian fields swapped here and nowhere else.
        self.now5.next = self.work5.q.val();
        self.desc5.next = self.now5.val().desc;
        self.context5.next = self.config5.q.val();
        self.flags5.next = self.context5.val().flags;
        self.is_ipv6.next = self.flags5.val().get_bit(0);
        self.is_vlan.next = self.flags5.val().get_bit(1);
        self.remote5.next = self.context5.val().remote_ip;
        self.class5.next = self.context5.val().traffic_class;
        self.port5.next = self.context5.val().source_port;
        self.pkey5.next = self.context5.val().pkey;
        self.tci5.next = self.context5.val().vlan_tci;
        self.qpn5.next = self.context5.val().remote_qpn;
        self.psn5.next = self.desc5.val().psn;
        self.va5.next = self.desc5.val().va;
        self.va_low.next = self.va5.val().get_bits::<32>(0);
        self.va_high.next = self.va5.val().get_bits::<32>(32);
        self.rkey5.next = self.desc5.val().rkey;
        self.dma_len5.next = self.desc5.val().dma_len;
        self.ip_len5.next = self.udp_len5.q.val() + self.ip4_len.val();
        self.va_high_wire.next = (self.va_high.val() << 24)
            | ((self.va_high.val() & self.byte1.val()) << 8)
            | ((self.va_high.val() >> 8) & self.byte1.val())
            | (self.va_high.val() >> 24);
        self.va_low_wire.next = (self.va_low.val() << 24)
            | ((self.va_low.val() & self.byte1.val()) << 8)
            | ((self.va_low.val() >> 8) & self.byte1.val())
            | (self.va_low.val() >> 24);
        self.rkey_wire.next = (self.rkey5.val() << 24)
            | ((self.rkey5.val() & self.byte1.val()) << 8)
            | ((self.rkey5.val() >> 8) & self.byte1.val())
            | (self.rkey5.val() >> 24);
        self.dma_len_wire.next = (self.dma_len5.val() << 24)
            | ((self.dma_len5.val() & self.byte1.val()) << 8)
            | ((self.dma_len5.val() >> 8) & self.byte1.val())
            | (self.dma_len5.val() >> 24);

        self.plain.next.destination = self.context5.val().remote_mac;
        self.plain.next.source = self.mac.val();
        self.plain.next.ethertype = self.type_ipv4.val();
        if self.is_ipv6.val() {
            self.plain.next.ethertype = self.type_ipv6.val();
        }
        self.with_tag.next.destination = self.context5.val().remote_mac;
        self.with_tag.next.source = self.mac.val();
        self.with_tag.next.tag_type = self.type_vlan.val();
        self.with_tag.next.tci = (self.tci5.val() << 8) | (self.tci5.val() >> 8);
        self.with_tag.next.ethertype = self.plain.val().ethertype;
        self.ip4.next.version_ihl = self.version4.val();
        self.ip4.next.tos = self.class5.val();
        self.ip4.next.total_length = (self.ip_len5.val() << 8) | (self.ip_len5.val() >> 8);
        self.ip4.next.identification = self.zero16.val();
        self.ip4.next.fragment = self.df_wire.val();
        self.ip4.next.ttl = self.context5.val().ttl;
        self.ip4.next.protocol = self.udp_protocol.val();
        self.ip4.next.checksum = self.checksum5.q.val();
        self.ip4.next.source = self.ipv4.val();
        self.ip4.next.destination = self.remote5.val().get_bits::<32>(96);
        self.ip6.next.version_class = self.version6.val() | (self.class5.val() >> 4);
        self.ip6.next.class_flow = self.class5.val() << 4;
        self.ip6.next.flow = self.zero16.val();
        self.ip6.next.payload_length = (self.udp_len5.q.val() << 8) | (self.udp_len5.q.val() >> 8);
        self.ip6.next.next_header = self.udp_protocol.val();
        self.ip6.next.hop_limit = self.context5.val().ttl;
        self.ip6.next.source = self.ipv6.val();
        self.ip6.next.destination = self.remote5.val();
        self.transport.next.source_port = (self.port5.val() << 8) | (self.port5.val() >> 8);
        self.transport.next.destination_port = self.roce_port.val();
        self.transport.next.udp_length = (self.udp_len5.q.val() << 8) | (self.udp_len5.q.val() >> 8);
        self.transport.next.udp_checksum = self.zero16.val();
        self.transport.next.opcode = self.desc5.val().opcode;
        self.transport.next.flags = (bit_cast::<8, 1>(self.desc5.val().solicited.into()) << 7) | (bit_cast::<8, 2>(self.pad5.q.val()) << 4);
        self.transport.next.pkey = (self.pkey5.val() << 8) | (self.pkey5.val() >> 8);
        self.transport.next.reserved = self.zero8.val();
        self.transport.next.qpn = (self.qpn5.val() << 16) | (self.qpn5.val() & self.byte1_of_3.val()) | (self.qpn5.val() >> 16);
        self.transport.next.ack_req = bit_cast::<8, 1>(self.desc5.val().ack_req.into()) << 7;
        self.transport.next.psn = (self.psn5.val() << 16) | (self.psn5.val() & self.byte1_of_3.val()) | (self.psn5.val() >> 16);
        self.transport.next.extension = 0.into();
        self.ext_len.next = 0.into();
        if self.desc5.val().has_reth {
            self.transport.next.extension = bit_cast::<128, 32>(self.va_high_wire.val())
                | (bit_cast::<128, 32>(self.va_low_wire.val()) << 32)
                | (bit_cast::<128, 32>(self.rkey_wire.val()) << 64)
                | (bit_cast::<128, 32>(self.dma_len_wire.val()) << 96);
            self.ext_len.next = self.reth_bytes.val();
        } else if self.desc5.val().has_aeth {
            self.transport.next.extension = bit_cast::<128, 32>(self.rkey_wire.val());
            self.ext_len.next = self.aeth_bytes.val();
        }
        self.transport_bits.next = self.transport.val().into();
        self.ip4_bits.next = self.ip4.val().into();
        self.ip6_bits.next = self.ip6.val().into();
        self.plain_bits.next = self.plain.val().into();
        self.with_tag_bits.next = self.with_tag.val().into();
        self.network.next = bit_cast::<608, 160>(self.ip4_bits.val()) | (bit_cast::<608, 288>(self.transport_bits.val()) << 160);
        self.base_len.next = self.len_v4.val();
        if self.is_ipv6.val() {
            self.network.next = bit_cast::<608, 320>(self.ip6_bits.val()) | (bit_cast::<608, 288>(self.transport_bits.val()) << 320);
            self.base_len.next = self.len_v6.val();
        }
        self.bytes.next = bit_cast::<752, 112>(self.plain_bits.val()) | (bit_cast::<752, 608>(self.network.val()) << 112);
        if self.is_vlan.val() {
            self.bytes.next = bit_cast::<752, 144>(self.with_tag_bits.val()) | (bit_cast::<752, 608>(self.network.val()) << 144);
            self.base_len.next = self.len_v4_vlan.val();
            if self.is_ipv6.val() {
                self.base_len.next = self.len_v6_vlan.val();
            }
        }
        self.headers.fill.valid.next = self.now5.val().valid;
        self.headers.fill.data.next.bytes = self.bytes.val();
        self.headers.fill.data.next.len = self.base_len.val() + self.ext_len.val();
        self.headers.fill.data.next.payload = self.desc5.val().len;
        self.headers.fill.data.next.pad = self.pad5.q.val();
        self.headers.fill.data.next.ipv6 = self.is_ipv6.val();
        self.headers.fill.data.next.vlan = self.is_vlan.val();

        if self.reset.val() {
            self.work1.d.next.valid = false;
            self.work3.d.next.valid = false;
            self.work4.d.next.valid = false;
            self.work5.d.next.valid = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::{pack, unpack};
    use crate::testing::{Bench, Driver, Monitor, Stalls};
    use queue::{qp_flags, QpState};

    const MAC: [u8; 6] = [2, 0, 0, 0, 0xAB, 1];
    const IPV4: [u8; 4] = [10, 250, 3, 1];

    fn own_ipv6() -> [u8; 16] {
        core::array::from_fn(|i| 0x40 + i as u8)
    }

    fn random_context(random: &mut Stalls, flags: u8) -> QpContext {
        QpContext {
            state: (QpState::Rts as u64).into(),
            flags: u64::from(flags).into(),
            ttl: (random.random() % 256).into(),
            traffic_class: (random.random() % 256).into(),
            remote_qpn: (random.random() % (1 << 24)).into(),
            source_port: (random.random() % 65536).into(),
            vlan_tci: (random.random() % 65536).into(),
            remote_mac: (random.random() % (1 << 48)).into(),
            pkey: (random.random() % 65536).into(),
            remote_ip: pack(&core::array::from_fn::<u8, 16, _>(|_| random.random() as u8)),
            ..Default::default()
        }
    }

    /// Returns the headers as a host would write them.
    fn expect(context: &QpContext, desc: &PacketDesc) -> Header {
        let flags = context.flags.to_u64() as u8;
        let (ipv6, vlan) = (flags & qp_flags::IPV6 != 0, flags & qp_flags::VLAN != 0);
        let mut extension = vec![];
        if desc.has_reth {
            extension.extend(desc.va.to_u64().to_be_bytes());
            extension.extend((desc.rkey.to_u64() as u32).to_be_bytes());
            extension.extend((desc.dma_len.to_u64() as u32).to_be_bytes());
        } else if desc.has_aeth {
            extension.extend((desc.rkey.to_u64() as u32).to_be_bytes());
        }
        let len = desc.len.index();
        let pad = (4 - len % 4) % 4;
        let udp_len = (8 + 12 + extension.len() + len + pad + 4) as u16;
        let mut bytes = vec![];
        bytes.extend(unpack(context.remote_mac));
        bytes.extend(MAC);
        if vlan {
            bytes.extend([0x81, 0x00]);
            bytes.extend((context.vlan_tci.to_u64() as u16).to_be_bytes());
        }
        let (ttl, class) = (context.ttl.to_u64() as u8, context.traffic_class.to_u64() as u8);
        let remote = unpack(context.remote_ip);
        if ipv6 {
            bytes.extend([0x86, 0xDD, 0x60 | class >> 4, class << 4, 0, 0]);
            bytes.extend(udp_len.to_be_bytes());
            bytes.extend([17, ttl]);
            bytes.extend(own_ipv6());
            bytes.extend(remote);
        } else {
            let mut ip = vec![0x45, class];
            ip.extend((udp_len + 20).to_be_bytes());
            ip.extend([0, 0, 0x40, 0, ttl, 17, 0, 0]);
            ip.extend(IPV4);
            ip.extend(&remote[12..]);
            let mut sum: u32 = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
            while sum > 0xFFFF {
                sum = (sum & 0xFFFF) + (sum >> 16);
            }
            ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
            bytes.extend([0x08, 0x00]);
            bytes.extend(ip);
        }
        bytes.extend((context.source_port.to_u64() as u16).to_be_bytes());
        bytes.extend(wire::ROCE_PORT.to_be_bytes());
        bytes.extend(udp_len.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend([desc.opcode.to_u64() as u8, u8::from(desc.solicited) << 7 | (pad as u8) << 4]);
        bytes.extend((context.pkey.to_u64() as u16).to_be_bytes());
        bytes.extend((context.remote_qpn.to_u64() as u32).to_be_bytes());
        bytes.extend((u32::from(desc.ack_req) << 31 | desc.psn.to_u64() as u32).to_be_bytes());
        bytes.extend(extension);
        Header { bytes: pack(&bytes), len: (bytes.len() as u64).into(), payload: desc.len, pad: (pad as u64).into(), ipv6, vlan }
    }

    fn random_packets(seed: u64, count: usize) -> Vec<PacketDesc> {
        let mut random = Stalls::new(seed);
        (0..count)
            .map(|_| {
                let kind = random.random() % 3;
                PacketDesc {
                    qpn: (random.random() % 4).into(),
                    opcode: (random.random() % 256).into(),
                    solicited: random.random() % 2 == 0,
                    ack_req: random.random() % 2 == 0,
                    psn: (random.random() % (1 << 24)).into(),
                    va: (random.random() << 20 ^ random.random()).into(),
                    rkey: (random.random() & 0xFFFF_FFFF).into(),
                    dma_len: (random.random() & 0xFFFF_FFFF).into(),
                    has_reth: kind == 0,
                    has_aeth: kind == 1,
                    len: (if random.random() % 4 == 0 { 4096 } else { random.random() % 4097 }).into(),
                    is_void: false,
                    ends_request: random.random() % 2 == 0,
                }
            })
            .collect()
    }

    fn start(bench: &mut Bench<Headers>) {
        bench.uut.mac.next = pack(&MAC);
        bench.uut.ipv4.next = pack(&IPV4);
        bench.uut.ipv6.next = pack(&own_ipv6());
        reset(bench);
    }

    fn reset(bench: &mut Bench<Headers>) {
        bench.uut.packet.valid.next = false;
        bench.uut.header.ready.next = false;
        bench.uut.reset.next = true;
        bench.cycles(2);
        bench.uut.reset.next = false;
    }

    fn set(bench: &mut Bench<Headers>, qpn: u64, context: QpContext) {
        bench.uut.qp_write.next = QpWrite { valid: true, qpn: qpn.into(), context, ..Default::default() };
        bench.cycles(1);
        bench.uut.qp_write.next = QpWrite::default();
    }

    /// Sends all, until it is out or for `limit` clocks; returns the clocks to the first header and to the end.
    fn run(
        bench: &mut Bench<Headers>,
        contexts: &[QpContext],
        packets: &[PacketDesc],
        stalls: [Stalls; 2],
        limit: usize,
    ) -> Option<(usize, usize)> {
        let [packet, header] = stalls;
        let mut packet = Driver::new(packets.iter().copied(), packet);
        let mut header = Monitor::new(header);
        let mut first = None;
        for clock in 0..limit {
            packet.before(&mut bench.uut.packet);
            header.before(&mut bench.uut.header);
            bench.settle();
            packet.after(&bench.uut.packet);
            header.after(&bench.uut.header);
            first = first.or(bench.uut.header.valid.val().then_some(clock));
            bench.edge();
            if header.got.len() == packets.len() {
                for (got, desc) in header.got.iter().zip(packets) {
                    assert_eq!(*got, expect(&contexts[desc.qpn.index()], desc));
                }
                return Some((first.unwrap(), clock + 1));
            }
        }
        None
    }

    #[test]
    fn headers_are_byte_for_byte_what_a_host_would_write_under_random_stalls() {
        let mut bench = Bench::new("tx_headers", Headers::default(), |uut| &mut uut.clock);
        start(&mut bench);
        for seed in 1..4 {
            let mut random = Stalls::new(seed);
            let flags = [0, qp_flags::VLAN, qp_flags::IPV6, qp_flags::IPV6 | qp_flags::VLAN];
            let contexts: Vec<_> = flags.into_iter().map(|flags| random_context(&mut random, flags)).collect();
            for (qpn, context) in contexts.iter().enumerate() {
                set(&mut bench, qpn as u64, *context);
            }
            // A queue pair that goes to RESET keeps its peer for packets that are under way.
            let state = (QpState::Reset as u64).into();
            set(&mut bench, 1, QpContext { state, ..random_context(&mut random, 0) });
            let packets = random_packets(seed, 60);
            assert!(run(&mut bench, &contexts, &packets, [10, 20].map(|n| Stalls::new(seed + n)), 30).is_none());
            reset(&mut bench);
            assert!(run(&mut bench, &contexts, &packets, [30, 40].map(|n| Stalls::new(seed + n)), 2000).is_some(), "a packet hangs");
        }
        bench.finish();
    }

    #[test]
    fn a_packet_passes_every_clock_and_a_full_exit_loses_none() {
        let mut bench = Bench::new("tx_headers_rate", Headers::default(), |uut| &mut uut.clock);
        start(&mut bench);
        let contexts = [random_context(&mut Stalls::new(1), 0); 4];
        for qpn in 0..4 {
            set(&mut bench, qpn, contexts[0]);
        }
        let packets = random_packets(1, 60);
        let ends = run(&mut bench, &contexts, &packets, [Stalls::none(), Stalls::none()], 500);
        assert_eq!(ends, Some((5, 65)));
        bench.uut.packet.data.next = packets[0];
        bench.uut.packet.valid.next = true;
        bench.uut.header.ready.next = false;
        bench.cycles(30);
        assert!(!bench.uut.packet.ready.val());
        assert_eq!(bench.uut.headers.level.val(), 14u64);
        bench.finish();
    }
}
