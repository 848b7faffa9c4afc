//! Packets, QPs and regions for the benches of the receive path's blocks.

use rust_hdl::prelude::*;
use verbena_abi::limits;

use crate::bus::{MrEntry, MrWrite, QpContext, QpWrite, RxHead};
use crate::prim::pack;

/// What counts of an accepted frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    pub opcode: u8,
    pub ack_req: bool,
    pub pad: u8,
    pub qpn: u32,
    pub psn: u32,
    pub va: u64,
    pub rkey: u32,
    pub dma_len: u32,
    pub syndrome: u8,
    pub len: u32,
    pub offset: u8,
    pub ipv6: bool,
    /// Each byte of the source address.
    pub ip: u8,
}

/// What counts of a QP's context.
#[derive(Clone, Copy, Debug, Default)]
pub struct Qp {
    pub state: u8,
    pub access: u8,
    pub mtu: u8,
    pub pd: u16,
    pub ipv6: bool,
    /// Each byte of the peer's address.
    pub ip: u8,
}

/// A memory region.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mr {
    pub valid: bool,
    pub tag: u8,
    pub pd: u16,
    pub access: u8,
    pub base: u64,
    pub len: u64,
    pub delta: u64,
    /// Number of its registration.
    pub life: u64,
}

impl Qp {
    /// Returns the broadcast of this context.
    pub fn broadcast(&self, qpn: usize, clear: bool, start_rx: bool, psn: u32) -> QpWrite {
        let context = QpContext {
            state: (self.state as u64).to_bits(),
            flags: (self.ipv6 as u64).to_bits(),
            access: (self.access as u64).to_bits(),
            mtu: (self.mtu as u64).to_bits(),
            pd: (self.pd as u64).to_bits(),
            rq_psn: (psn as u64).to_bits(),
            remote_ip: pack(&[self.ip; 16]),
            ..Default::default()
        };
        QpWrite { valid: true, qpn: qpn.to_bits(), start_rx, clear, context, ..Default::default() }
    }
}

impl Mr {
    /// Returns the broadcast of this region.
    pub fn broadcast(&self, index: usize) -> MrWrite {
        let entry = MrEntry {
            valid: self.valid,
            tag: (self.tag as u64).to_bits(),
            pd: (self.pd as u64).to_bits(),
            access: (self.access as u64).to_bits(),
            base: self.base.to_bits(),
            len: self.len.to_bits(),
            delta: self.delta.to_bits(),
        };
        MrWrite { valid: true, index: index.to_bits(), entry }
    }
}

/// Returns `head` as the front hands it on.
pub fn wire(head: &Head) -> RxHead {
    RxHead {
        opcode: (head.opcode as u64).to_bits(),
        ack_req: head.ack_req,
        pad: (head.pad as u64).to_bits(),
        qpn: (head.qpn as u64).to_bits(),
        psn: (head.psn as u64).to_bits(),
        va: head.va.to_bits(),
        rkey: (head.rkey as u64).to_bits(),
        dma_len: (head.dma_len as u64).to_bits(),
        syndrome: (head.syndrome as u64).to_bits(),
        len: (head.len as u64).to_bits(),
        offset: (head.offset as u64).to_bits(),
        ipv6: head.ipv6,
        source_ip: pack(&[head.ip; 16]),
        ..Default::default()
    }
}

/// QPs in several states.
pub const QPS: [(u8, Qp); 6] = [
    (1, Qp { state: 3, access: 2, mtu: 1, pd: 7, ipv6: false, ip: 9 }),
    (2, Qp { state: 2, access: 7, mtu: 2, pd: 7, ipv6: true, ip: 8 }),
    (3, Qp { state: 3, access: 5, mtu: 3, pd: 7, ipv6: false, ip: 9 }),
    (4, Qp { state: 6, access: 7, mtu: 3, pd: 7, ipv6: false, ip: 9 }),
    (6, Qp { state: 3, access: 2, mtu: 5, pd: 0xFFFF, ipv6: false, ip: 6 }),
    (7, Qp { state: 1, access: 7, mtu: 3, pd: 7, ipv6: false, ip: 9 }),
];

/// Regions at the ends of the address space and of the table, and such that grant nothing to a peer.
pub const MRS: [(usize, Mr); 7] = [
    (0, Mr { valid: true, tag: 1, pd: 7, access: 3, base: 0x1_0000, len: 0x10_0000, delta: 0x7000_1000, life: 0 }),
    (1, Mr { valid: true, tag: 2, pd: 7, access: 3, base: 0xFFFF_FFFF_FFFF_F000, len: 0x1000, delta: 0x5000, life: 0 }),
    (2, Mr { valid: true, tag: 3, pd: 7, access: 5, base: 0x1_0000, len: 0x10_0000, delta: 0, life: 0 }),
    (3, Mr { valid: true, tag: 4, pd: 8, access: 3, base: 0x1_0000, len: 0x10_0000, delta: 0, life: 0 }),
    (limits::MRS - 1, Mr { valid: true, tag: 0xFF, pd: 7, access: 2, base: 0x123, len: 0x301, delta: u64::MAX, life: 0 }),
    (5, Mr { valid: true, tag: 6, pd: 7, access: 3, base: 0, len: u64::MAX, delta: 0, life: 0 }),
    (9, Mr { valid: true, tag: 7, pd: 0xFFFF, access: 3, base: 0x1000, len: 0x1_0000_0000, delta: 0x40, life: 0 }),
];

/// A WRITE Only for QP 1 and region 0 of these.
pub fn only(psn: u32, len: u32) -> Head {
    let pad = (len.wrapping_neg() & 3) as u8;
    Head { opcode: 0x0A, ack_req: true, pad, qpn: 1, psn, va: 0x1_0000, rkey: 1, dma_len: len, len, ip: 9, ..Default::default() }
}
