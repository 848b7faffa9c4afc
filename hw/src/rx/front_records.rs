//! Records between the blocks of the receive front, and what it reports of a frame.

use rust_hdl::prelude::*;

/// One beat of a frame as the intake hands it on.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct RxBeat {
    /// 64 bytes, byte 0 in bits 7:0.
    pub data: Bits<512>,
    /// Bytes of the frame in this beat, 1 to 64.
    pub bytes: Bits<7>,
    /// Number of this beat in the frame, from 0; stays at 255 in longer frames.
    pub index: Bits<8>,
    /// Beat 0.
    pub first: Bit,
    /// Beat 1.
    pub second: Bit,
    /// Last beat.
    pub last: Bit,
    /// The MAC says that the frame is bad; counts on the last beat.
    pub bad: Bit,
    /// The frame has an 802.1Q tag; this and the next two hold for all beats of a frame.
    pub vlan: Bit,
    /// The frame is IPv4.
    pub ipv4: Bit,
    /// The frame is IPv6.
    pub ipv6: Bit,
}

/// Header fields of a frame, numbers in host order.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct RxFields {
    /// BTH opcode.
    pub opcode: Bits<8>,
    /// Solicited event.
    pub se: Bit,
    /// MigReq.
    pub migreq: Bit,
    /// Pad count.
    pub pad: Bits<2>,
    /// Transport version.
    pub tver: Bits<4>,
    /// P_Key.
    pub pkey: Bits<16>,
    /// FECN.
    pub fecn: Bit,
    /// BECN.
    pub becn: Bit,
    /// Destination QPN.
    pub dqpn: Bits<24>,
    /// AckReq.
    pub ackreq: Bit,
    /// PSN.
    pub psn: Bits<24>,
    /// The opcode has a RETH.
    pub has_reth: Bit,
    /// Virtual address of RETH or AtomicETH.
    pub va: Bits<64>,
    /// Remote key of RETH or AtomicETH.
    pub rkey: Bits<32>,
    /// RETH length.
    pub dma_len: Bits<32>,
    /// The opcode has an AETH.
    pub has_aeth: Bit,
    /// AETH syndrome.
    pub syndrome: Bits<8>,
    /// AETH MSN.
    pub msn: Bits<24>,
    /// The opcode has an ImmDt or an IETH.
    pub has_imm: Bit,
    /// Immediate, or the key of the IETH.
    pub imm: Bits<32>,
    /// The frame is IPv6.
    pub ipv6: Bit,
    /// The frame has an 802.1Q tag.
    pub vlan: Bit,
    /// UDP source port.
    pub sport: Bits<16>,
    /// Source address as in [`crate::bus::RxHead::source_ip`].
    pub source_ip: Bits<128>,
}

/// What the parser thinks of a frame, ICRC apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct RxChecks {
    /// IPv4 or IPv6 UDP to the RoCEv2 port, for whatever station.
    pub is_roce: Bit,
    /// RoCEv2, and for this station and address.
    pub is_ours: Bit,
    /// Lengths contradict each other, or the frame is shorter than they say.
    pub is_malformed: Bit,
    /// Opcode, transport version, P_Key or QP 0.
    pub is_unsupported: Bit,
    /// The extension headers that the opcode names are within the frame and its lengths.
    pub has_extension: Bit,
    /// Payload bytes without pad; 0 when the lengths leave room for none.
    pub payload_len: Bits<16>,
    /// Byte of its line at which the payload begins.
    pub offset: Bits<6>,
    /// The payload begins in beat 1, not in beat 0.
    pub skip: Bit,
    /// Beats up to the end of the payload; 0 without payload.
    pub needed: Bits<7>,
    /// Bytes of the whole frame. With more than 16384 it is 16321 to 16384, by its last beat.
    pub frame_len: Bits<15>,
}

/// What the receive front found in a frame. Fields behind a `has_` bit count only with it, and all
/// header fields only with `is_roce` and right lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct RxReport {
    /// [`verbena_abi::wire::RxVerdict`].
    pub verdict: Bits<3>,
    /// The ICRC is right.
    pub icrc_ok: Bit,
    /// IPv4 or IPv6 UDP to the RoCEv2 port, for whatever station.
    pub is_roce: Bit,
    /// BTH opcode.
    pub opcode: Bits<8>,
    /// Solicited event.
    pub se: Bit,
    /// MigReq.
    pub migreq: Bit,
    /// Pad count.
    pub pad: Bits<2>,
    /// Transport version.
    pub tver: Bits<4>,
    /// P_Key.
    pub pkey: Bits<16>,
    /// FECN.
    pub fecn: Bit,
    /// BECN.
    pub becn: Bit,
    /// Destination QPN.
    pub dqpn: Bits<24>,
    /// AckReq.
    pub ackreq: Bit,
    /// PSN.
    pub psn: Bits<24>,
    /// The opcode has a RETH.
    pub has_reth: Bit,
    /// Virtual address of RETH or AtomicETH.
    pub va: Bits<64>,
    /// Remote key of RETH or AtomicETH.
    pub rkey: Bits<32>,
    /// RETH length.
    pub dma_len: Bits<32>,
    /// The opcode has an AETH.
    pub has_aeth: Bit,
    /// AETH syndrome.
    pub syndrome: Bits<8>,
    /// AETH MSN.
    pub msn: Bits<24>,
    /// The opcode has an ImmDt or an IETH.
    pub has_imm: Bit,
    /// Immediate, or the key of the IETH.
    pub imm: Bits<32>,
    /// Payload bytes without pad.
    pub payload_len: Bits<16>,
    /// The frame is IPv6.
    pub ipv6: Bit,
    /// The frame has an 802.1Q tag.
    pub vlan: Bit,
    /// UDP source port.
    pub sport: Bits<16>,
    /// Bytes of the frame, see [`RxChecks::frame_len`].
    pub frame_len: Bits<15>,
}
