//! Records of the AXI4 channels, and of the bursts that requests are cut into.
//!
//! Every burst is INCR with full beats of 64 bytes (`arsize` and `awsize` are 6), but for a read of a part of one
//! line, which is a single narrow beat. The first field of a record is its least significant.

use rust_hdl::prelude::*;

/// Read address channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AxiAr {
    /// Transaction identifier; in flight at most once.
    pub id: Bits<8>,
    /// Address of the first beat, a multiple of its size.
    pub addr: Bits<64>,
    /// Beats less one.
    pub len: Bits<8>,
    /// log2 of the bytes of a beat: 6, or less for a single beat.
    pub size: Bits<3>,
}

/// Read data channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AxiR {
    /// Identifier of the burst that this beat belongs to.
    pub id: Bits<8>,
    /// 64 bytes.
    pub data: Bits<512>,
    /// Response, 0 is OKAY.
    pub resp: Bits<2>,
    /// Last beat of the burst.
    pub last: Bit,
}

/// Write address channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AxiAw {
    /// Transaction identifier, always 0, so that writes take effect in order.
    pub id: Bits<8>,
    /// Address of the first beat, a multiple of 64.
    pub addr: Bits<64>,
    /// Beats less one.
    pub len: Bits<8>,
}

/// Write data channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AxiW {
    /// 64 bytes.
    pub data: Bits<512>,
    /// One bit for each byte that is written.
    pub strb: Bits<64>,
    /// Last beat of the burst.
    pub last: Bit,
}

/// Write response channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AxiB {
    /// Identifier of the burst that is done.
    pub id: Bits<8>,
    /// Response, 0 is OKAY.
    pub resp: Bits<2>,
}

/// A range of bytes of host memory, as it is cut into bursts.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Span {
    /// Bus address of the first byte.
    pub addr: Bits<64>,
    /// Bytes, 1 to 4096.
    pub len: Bits<13>,
}

/// A part of a [`Span`] that crosses no boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Burst {
    /// Address of the first line, in units of 64 bytes.
    pub line: Bits<58>,
    /// Lines, 1 to 64.
    pub beats: Bits<7>,
    /// Bytes of the first line that lie before the range.
    pub head: Bits<6>,
    /// Bytes of the last line that lie in the range or before it, or 0 for all 64.
    pub tail: Bits<6>,
    /// Last burst of the range.
    pub last: Bit,
}
