//! Records between the blocks of the responder.

use rust_hdl::prelude::*;

use crate::bus::{MrIndex, Qpn};

/// A packet that was looked up and checked as far as that goes without the state of its QP.
/// At most one of `is_start`, `is_stray`, `is_ack`, `is_foreign` and `is_request` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Checked {
    /// No packet: the QP's state starts anew, with `psn` as the expected PSN.
    pub is_start: Bit,
    /// Of no QP, of a QP that is not ready, or of another peer.
    pub is_stray: Bit,
    /// An acknowledgement for the requester.
    pub is_ack: Bit,
    /// Neither an acknowledgement nor a request.
    pub is_foreign: Bit,
    /// A request, of whatever kind.
    pub is_request: Bit,
    /// A request whose duplicate is acknowledged: WRITE or SEND.
    pub acks_duplicate: Bit,
    /// WRITE First.
    pub is_first: Bit,
    /// WRITE Middle.
    pub is_middle: Bit,
    /// WRITE Last.
    pub is_last: Bit,
    /// WRITE Only.
    pub is_only: Bit,
    /// The QP grants the operation, and length and pad fit the position.
    pub is_legal: Bit,
    /// First or Only: the region grants the whole range.
    pub is_granted: Bit,
    /// AckReq.
    pub ack_req: Bit,
    /// QP.
    pub qpn: Qpn,
    /// PSN.
    pub psn: Bits<24>,
    /// AETH syndrome.
    pub syndrome: Bits<8>,
    /// Payload bytes.
    pub len: Bits<13>,
    /// Byte of the first payload line at which the payload begins.
    pub offset: Bits<6>,
    /// RETH length.
    pub dma_len: Bits<32>,
    /// Bus address of the RETH's address.
    pub bus: Bits<64>,
    /// Index of the region.
    pub mr_index: MrIndex,
    /// Which registration of that index it was.
    pub life: Bits<40>,
}

/// What is to be done with the payload of a packet. Every packet gives one, with or without payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct RxAction {
    /// The payload is written; otherwise its lines are discarded. Not set without payload.
    pub write: Bit,
    /// Bus address of the first byte.
    pub addr: Bits<64>,
    /// Payload bytes, 0 to 4096.
    pub len: Bits<13>,
    /// Byte of the first payload line at which the payload begins.
    pub offset: Bits<6>,
}

/// An acknowledgement or NAK with the write that must be done before it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AckRecord {
    /// The QP that answers.
    pub qpn: Qpn,
    /// PSN to acknowledge or to refuse.
    pub psn: Bits<24>,
    /// AETH syndrome.
    pub syndrome: Bits<8>,
    /// Messages completed.
    pub msn: Bits<24>,
    /// Writes since reset, modulo 2^16, up to and with the packet that is answered.
    pub after: Bits<16>,
    /// Says nothing that an answer of the QP still queued does not say.
    pub is_weak: Bit,
}
