//! Cuts requests into packets of at most the path MTU, gives them their PSNs, and says which
//! bytes of local memory each packet is gathered from.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `qp_write` | in | contexts: first PSN |
//! | `halt` | sink | a queue pair whose requester has failed: nothing more of it is sent |
//! | `head`, `piece` | sink | requests and their ranges of local memory |
//! | `desc` | source | what each packet is built from, in order |
//! | `gather` | source | the parts of each packet's payload, in order |
//! | `issue` | source | each request with the PSN of its last packet |
//! | `query_*` | in/out | next PSN of one queue pair |
//!
//! Latency: two clocks. Throughput: a request takes one clock and one more for every part, where a
//! part is what one packet takes from one piece: a request of one packet and one entry takes two.
//! AckReq is set on the last packet of a message that asks for it, and on every 64th packet so that long
//! messages and rows of silent ones are acknowledged on the way. A refused request, and every later one of its queue pair, sends
//! nothing but keeps its place: it goes through as a void descriptor. Commands and deaths are taken
//! at once, also in the middle of a request, which is then sent to its end.

use rust_hdl::prelude::*;
use verbena_abi::{limits, queue, wire};

use crate::bus::{GatherReq, Issue, PacketDesc, Piece, QpContext, QpWrite, Qpn, StreamSink, StreamSource, WqeHead};
use crate::prim::{Fifo, LutRam};

/// What changes while a queue pair sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct TxState {
    next_psn: Bits<24>,
    is_dead: Bit,
}

/// A change that a command makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Change {
    qpn: Qpn,
    start: Bit,
    stop: Bit,
    psn: Bits<24>,
}

#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum State {
    Start,
    Cut,
    Discard,
}

#[derive(LogicBlock)]
pub struct Segment {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub qp_write: Signal<In, QpWrite>,
    pub halt: StreamSink<Qpn>,
    pub head: StreamSink<WqeHead>,
    pub piece: StreamSink<Piece>,
    pub desc: StreamSource<PacketDesc>,
    pub gather: StreamSource<GatherReq>,
    pub issue: StreamSource<Issue>,
    pub refused: Signal<Out, Bit>,
    pub query_qpn: Signal<In, Qpn>,
    pub query_next_psn: Signal<Out, Bits<24>>,

    state: DFF<State>,
    state_ram: LutRam<TxState, { limits::LOG_QPS }>,
    query_ram: LutRam<TxState, { limits::LOG_QPS }>,
    changes: Fifo<Change, 1, 2>,
    descs: Fifo<PacketDesc, 1, 2>,
    gathers: Fifo<GatherReq, 1, 2>,
    issues: Fifo<Issue, 2, 3>,
    request: DFF<WqeHead>,
    psn: DFF<Bits<24>>,
    left: DFF<Bits<32>>,
    packet_left: DFF<Bits<13>>,
    is_first_packet: DFF<Bit>,
    is_first_part: DFF<Bit>,
    used: DFF<Bits<32>>,
    to_discard: DFF<Bits<3>>,
    was_refused: DFF<Bit>,

    broadcast: Signal<Local, QpWrite>,
    attributes: Signal<Local, QpContext>,
    change: Signal<Local, Change>,
    address: Signal<Local, Qpn>,
    current: Signal<Local, TxState>,
    updated: Signal<Local, TxState>,
    write: Signal<Local, Bit>,
    has_change: Signal<Local, Bit>,
    fresh: Signal<Local, WqeHead>,
    mtu: Signal<Local, Bits<13>>,
    mtu_mask: Signal<Local, Bits<13>>,
    rounded: Signal<Local, Bits<32>>,
    packets: Signal<Local, Bits<24>>,
    last_psn: Signal<Local, Bits<24>>,
    previous_psn: Signal<Local, Bits<24>>,
    first_len: Signal<Local, Bits<13>>,
    now: Signal<Local, WqeHead>,
    now_mtu: Signal<Local, Bits<13>>,
    part: Signal<Local, Piece>,
    part_left: Signal<Local, Bits<32>>,
    part_len: Signal<Local, Bits<13>>,
    ends_piece: Signal<Local, Bit>,
    ends_packet: Signal<Local, Bit>,
    is_last_packet: Signal<Local, Bit>,
    packet_len: Signal<Local, Bits<13>>,
    rest: Signal<Local, Bits<32>>,
    next_len: Signal<Local, Bits<13>>,
    payload_at: Signal<Local, Bits<7>>,
    go: Signal<Local, Bit>,
    has_payload: Signal<Local, Bit>,
    send_desc: Signal<Local, Bit>,
    desc_zero: Constant<PacketDesc>,
    base_mtu: Constant<Bits<13>>,
    one: Constant<Bits<13>>,
    reth_len: Constant<Bits<7>>,
    ack_mask: Constant<Bits<24>>,
    success: Constant<Bits<4>>,
    error_state: Constant<Bits<3>>,
    write_first: Constant<Bits<8>>,
    write_middle: Constant<Bits<8>>,
    write_last: Constant<Bits<8>>,
    write_only: Constant<Bits<8>>,
}

impl Default for Segment {
    fn default() -> Self {
        let opcode = |opcode: wire::Opcode| Constant::new((opcode as u8).to_bits());
        Self {
            clock: Default::default(),
            reset: Default::default(),
            qp_write: Default::default(),
            halt: Default::default(),
            head: Default::default(),
            piece: Default::default(),
            desc: Default::default(),
            gather: Default::default(),
            issue: Default::default(),
            refused: Default::default(),
            query_qpn: Default::default(),
            query_next_psn: Default::default(),
            state: Default::default(),
            state_ram: Default::default(),
            query_ram: Default::default(),
            changes: Default::default(),
            descs: Default::default(),
            gathers: Default::default(),
            issues: Default::default(),
            request: Default::default(),
            psn: Default::default(),
            left: Default::default(),
            packet_left: Default::default(),
            is_first_packet: Default::default(),
            is_first_part: Default::default(),
            used: Default::default(),
            to_discard: Default::default(),
            was_refused: Default::default(),
            broadcast: Default::default(),
            attributes: Default::default(),
            change: Default::default(),
            address: Default::default(),
            current: Default::default(),
            updated: Default::default(),
            write: Default::default(),
            has_change: Default::default(),
            fresh: Default::default(),
            mtu: Default::default(),
            mtu_mask: Default::default(),
            rounded: Default::default(),
            packets: Default::default(),
            last_psn: Default::default(),
            previous_psn: Default::default(),
            first_len: Default::default(),
            now: Default::default(),
            now_mtu: Default::default(),
            part: Default::default(),
            part_left: Default::default(),
            part_len: Default::default(),
            ends_piece: Default::default(),
            ends_packet: Default::default(),
            is_last_packet: Default::default(),
            packet_len: Default::default(),
            rest: Default::default(),
            next_len: Default::default(),
            payload_at: Default::default(),
            go: Default::default(),
            has_payload: Default::default(),
            send_desc: Default::default(),
            desc_zero: Constant::new(PacketDesc::default()),
            base_mtu: Constant::new(128u32.to_bits()),
            one: Constant::new(1u32.to_bits()),
            reth_len: Constant::new(size_of::<wire::Reth>().to_bits()),
            ack_mask: Constant::new(63u32.to_bits()),
            success: Constant::new((queue::CqeStatus::Success as u8).to_bits()),
            error_state: Constant::new((queue::QpState::Error as u8).to_bits()),
            write_first: opcode(wire::Opcode::WriteFirst),
            write_middle: opcode(wire::Opcode::WriteMiddle),
            write_last: opcode(wire::Opcode::WriteLast),
            write_only: opcode(wire::Opcode::WriteOnly),
        }
    }
}

impl Logic for Segment {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(self, clock, state, request, psn, left, packet_left, is_first_packet, is_first_part);
        dff_setup!(self, clock, used, to_discard, was_refused);
        clock!(self, clock, state_ram, query_ram, changes, descs, gathers, issues);
        self.changes.reset.next = self.reset.val();
        self.descs.reset.next = self.reset.val();
        self.gathers.reset.next = self.reset.val();
        self.issues.reset.next = self.reset.val();
        StreamSource::<PacketDesc>::link(&mut self.desc, &mut self.descs.drain);
        StreamSource::<GatherReq>::link(&mut self.gather, &mut self.gathers.drain);
        StreamSource::<Issue>::link(&mut self.issue, &mut self.issues.drain);
        self.refused.next = self.was_refused.q.val();
        self.was_refused.d.next = false;

        self.broadcast.next = self.qp_write.val();
        self.attributes.next = self.broadcast.val().context;
        self.changes.fill.valid.next = self.broadcast.val().valid;
        self.changes.fill.data.next.qpn = self.broadcast.val().qpn;
        self.changes.fill.data.next.start = self.broadcast.val().start_tx;
        self.changes.fill.data.next.stop = self.attributes.val().state == self.error_state.val();
        self.changes.fill.data.next.psn = self.attributes.val().sq_psn;
        self.changes.drain.ready.next = false;
        self.halt.ready.next = false;
        self.change.next = self.changes.drain.data.val();

        // The new request: its packets and their PSNs.
        self.fresh.next = self.head.data.val();
        self.address.next = self.fresh.val().qpn;
        if self.changes.drain.valid.val() {
            self.address.next = self.change.val().qpn;
        } else if self.halt.valid.val() {
            self.address.next = self.halt.data.val();
        }
        self.state_ram.read_address.next = self.address.val();
        self.current.next = self.state_ram.read_data.val();
        self.updated.next = self.current.val();
        self.write.next = false;
        self.mtu.next = self.base_mtu.val() << self.fresh.val().mtu;
        self.mtu_mask.next = self.mtu.val() - self.one.val();
        self.rounded.next = self.fresh.val().len + bit_cast::<32, 13>(self.mtu_mask.val());
        self.packets.next = bit_cast::<24, 32>((self.rounded.val() >> 7) >> self.fresh.val().mtu);
        if !self.fresh.val().len.any() {
            self.packets.next = 1.into();
        }
        self.last_psn.next = self.current.val().next_psn + self.packets.val() - 1;
        self.previous_psn.next = self.current.val().next_psn - 1;
        self.first_len.next = bit_cast::<13, 32>(self.fresh.val().len);
        if self.fresh.val().len > bit_cast::<32, 13>(self.mtu.val()) {
            self.first_len.next = self.mtu.val();
        }

        // The part that this clock takes: what is left of the packet, or of the piece.
        self.now.next = self.request.q.val();
        self.now_mtu.next = self.base_mtu.val() << self.now.val().mtu;
        self.part.next = self.piece.data.val();
        self.part_left.next = self.part.val().len - self.used.q.val();
        self.ends_packet.next = self.part_left.val() >= bit_cast::<32, 13>(self.packet_left.q.val());
        self.ends_piece.next = self.part_left.val() <= bit_cast::<32, 13>(self.packet_left.q.val());
        self.part_len.next = bit_cast::<13, 32>(self.part_left.val());
        if self.ends_packet.val() {
            self.part_len.next = self.packet_left.q.val();
        }
        self.is_last_packet.next = self.left.q.val() <= bit_cast::<32, 13>(self.now_mtu.val());
        self.packet_len.next = bit_cast::<13, 32>(self.left.q.val());
        if !self.is_last_packet.val() {
            self.packet_len.next = self.now_mtu.val();
        }
        self.rest.next = self.left.q.val() - bit_cast::<32, 13>(self.packet_len.val());
        self.next_len.next = bit_cast::<13, 32>(self.rest.val());
        if self.rest.val() > bit_cast::<32, 13>(self.now_mtu.val()) {
            self.next_len.next = self.now_mtu.val();
        }
        self.has_payload.next = self.packet_len.val().any();
        self.payload_at.next = self.now.val().header_len;
        if self.is_first_packet.q.val() {
            self.payload_at.next = self.now.val().header_len + self.reth_len.val();
        }

        self.descs.fill.valid.next = false;
        self.descs.fill.data.next = self.desc_zero.val();
        self.descs.fill.data.next.qpn = self.now.val().qpn;
        self.descs.fill.data.next.psn = self.psn.q.val();
        self.descs.fill.data.next.va = self.now.val().remote_va;
        self.descs.fill.data.next.rkey = self.now.val().rkey;
        self.descs.fill.data.next.dma_len = self.now.val().len;
        self.descs.fill.data.next.has_reth = self.is_first_packet.q.val();
        self.descs.fill.data.next.len = self.packet_len.val();
        self.descs.fill.data.next.ends_request = self.is_last_packet.val();
        self.descs.fill.data.next.solicited = self.now.val().solicited & self.is_last_packet.val();
        self.descs.fill.data.next.ack_req =
            (self.is_last_packet.val() & self.now.val().asks_ack) | ((self.psn.q.val() & self.ack_mask.val()) == self.ack_mask.val());
        self.descs.fill.data.next.opcode = self.write_middle.val();
        if self.is_first_packet.q.val() & self.is_last_packet.val() {
            self.descs.fill.data.next.opcode = self.write_only.val();
        } else if self.is_first_packet.q.val() {
            self.descs.fill.data.next.opcode = self.write_first.val();
        } else if self.is_last_packet.val() {
            self.descs.fill.data.next.opcode = self.write_last.val();
        }
        self.gathers.fill.valid.next = false;
        self.gathers.fill.data.next.addr = self.part.val().addr + bit_cast::<64, 32>(self.used.q.val());
        self.gathers.fill.data.next.len = self.part_len.val();
        self.gathers.fill.data.next.first = self.is_first_part.q.val();
        self.gathers.fill.data.next.offset = bit_cast::<6, 7>(self.payload_at.val());
        self.gathers.fill.data.next.last = self.ends_packet.val();
        self.issues.fill.valid.next = false;
        self.issues.fill.data.next.qpn = self.fresh.val().qpn;
        self.issues.fill.data.next.index = self.fresh.val().index;
        self.issues.fill.data.next.last_psn = self.last_psn.val();
        self.issues.fill.data.next.signaled = self.fresh.val().signaled;
        self.issues.fill.data.next.status = self.fresh.val().status;
        self.head.ready.next = false;
        self.piece.ready.next = false;
        self.go.next = false;
        self.send_desc.next = false;

        // A request under way needs the states no more, so a change never waits for one: its pieces
        // may be many, and slow to be read.
        if self.changes.drain.valid.val() {
            self.changes.drain.ready.next = true;
            self.write.next = self.change.val().start | self.change.val().stop;
            self.updated.next.is_dead = self.change.val().stop;
            if self.change.val().start {
                self.updated.next.next_psn = self.change.val().psn;
            }
        } else if self.halt.valid.val() {
            self.halt.ready.next = true;
            self.write.next = true;
            self.updated.next.is_dead = true;
        }
        self.has_change.next = self.changes.drain.valid.val() | self.halt.valid.val();

        match self.state.q.val() {
            State::Start => {
                if !self.has_change.val() & self.head.valid.val() & self.issues.fill.ready.val() {
                    self.head.ready.next = true;
                    self.request.d.next = self.fresh.val();
                    self.psn.d.next = self.current.val().next_psn;
                    self.left.d.next = self.fresh.val().len;
                    self.packet_left.d.next = self.first_len.val();
                    self.is_first_packet.d.next = true;
                    self.is_first_part.d.next = true;
                    self.used.d.next = 0.into();
                    self.to_discard.d.next = self.fresh.val().pieces;
                    self.write.next = true;
                    if self.current.val().is_dead {
                        self.state.d.next = State::Discard;
                    } else if self.fresh.val().status != self.success.val() {
                        self.updated.next.is_dead = true;
                        self.issues.fill.valid.next = true;
                        self.issues.fill.data.next.last_psn = self.previous_psn.val();
                        self.was_refused.d.next = true;
                        self.state.d.next = State::Discard;
                    } else {
                        self.updated.next.next_psn = self.last_psn.val() + 1;
                        self.issues.fill.valid.next = true;
                        self.state.d.next = State::Cut;
                    }
                }
            }
            State::Cut => {
                self.go.next =
                    self.descs.fill.ready.val() & self.gathers.fill.ready.val() & (self.piece.valid.val() | !self.has_payload.val());
                if self.go.val() {
                    self.gathers.fill.valid.next = self.has_payload.val();
                    self.piece.ready.next = self.has_payload.val() & self.ends_piece.val();
                    self.used.d.next = self.used.q.val() + bit_cast::<32, 13>(self.part_len.val());
                    if self.ends_piece.val() {
                        self.used.d.next = 0.into();
                    }
                    self.packet_left.d.next = self.packet_left.q.val() - self.part_len.val();
                    self.is_first_part.d.next = false;
                    self.send_desc.next = self.ends_packet.val() | !self.has_payload.val();
                }
                if self.send_desc.val() {
                    self.descs.fill.valid.next = true;
                    self.psn.d.next = self.psn.q.val() + 1;
                    self.left.d.next = self.rest.val();
                    self.packet_left.d.next = self.next_len.val();
                    self.is_first_packet.d.next = false;
                    self.is_first_part.d.next = true;
                    if self.is_last_packet.val() {
                        self.state.d.next = State::Start;
                    }
                }
            }
            State::Discard => {
                if self.to_discard.q.val().any() {
                    self.piece.ready.next = true;
                    if self.piece.valid.val() {
                        self.to_discard.d.next = self.to_discard.q.val() - 1;
                    }
                } else if self.descs.fill.ready.val() {
                    self.descs.fill.valid.next = true;
                    self.descs.fill.data.next.is_void = true;
                    self.descs.fill.data.next.ends_request = true;
                    self.descs.fill.data.next.len = 0.into();
                    self.state.d.next = State::Start;
                }
            }
            _ => {
                self.state.d.next = State::Start;
            }
        }
        self.state_ram.write_enable.next = self.write.val();
        self.state_ram.write_address.next = self.address.val();
        self.state_ram.write_data.next = self.updated.val();
        self.query_ram.write_enable.next = self.write.val();
        self.query_ram.write_address.next = self.address.val();
        self.query_ram.write_data.next = self.updated.val();
        self.query_ram.read_address.next = self.query_qpn.val();
        self.query_next_psn.next = self.query_ram.read_data.val().next_psn;

        if self.reset.val() {
            self.state.d.next = State::Start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Driver, Monitor, Stalls};
    use queue::{CqeStatus, QpState};

    fn write(qpn: u64, start_tx: bool, state: QpState, psn: u64) -> QpWrite {
        let context = QpContext { state: (state as u64).into(), sq_psn: psn.into(), ..Default::default() };
        QpWrite { valid: true, qpn: qpn.into(), start_tx, context, ..Default::default() }
    }

    fn set(bench: &mut Bench<Segment>, change: QpWrite) {
        bench.uut.qp_write.next = change;
        bench.cycles(1);
        bench.uut.qp_write.next = QpWrite::default();
    }

    fn reset(bench: &mut Bench<Segment>) {
        bench.uut.head.valid.next = false;
        bench.uut.piece.valid.next = false;
        bench.uut.halt.valid.next = false;
        bench.uut.reset.next = true;
        bench.cycles(2);
        bench.uut.reset.next = false;
    }

    /// Requests, and what they are to become.
    struct Work {
        heads: Vec<WqeHead>,
        pieces: Vec<Piece>,
        descs: Vec<PacketDesc>,
        gathers: Vec<GatherReq>,
        issues: Vec<Issue>,
        psn: [u64; 4],
        is_dead: [bool; 4],
        /// Clocks that the requests take.
        clocks: usize,
    }

    impl Work {
        fn new(psn: [u64; 4]) -> Self {
            Self { heads: vec![], pieces: vec![], descs: vec![], gathers: vec![], issues: vec![], psn, is_dead: [false; 4], clocks: 0 }
        }

        fn add(&mut self, qpn: usize, mtu_code: u64, header_len: u64, status: CqeStatus, pieces: &[(u64, u64)]) {
            let len: u64 = pieces.iter().map(|piece| piece.1).sum();
            let i = self.heads.len() as u64;
            let head = WqeHead {
                qpn: (qpn as u64).into(),
                index: (3 * i).into(),
                signaled: i % 2 == 0,
                asks_ack: i % 4 < 3,
                solicited: i % 3 == 0,
                status: (status as u64).into(),
                pieces: (pieces.len() as u64).into(),
                len: (len & 0xFFFF_FFFF).into(),
                remote_va: (i << 33 | 5).into(),
                rkey: (i * 99).into(),
                mtu: mtu_code.into(),
                header_len: header_len.into(),
            };
            self.heads.push(head);
            self.pieces.extend(pieces.iter().map(|(addr, len)| Piece { addr: (*addr).into(), len: (*len).into() }));
            self.clocks += 1;
            let issue = |last_psn: u64| Issue {
                qpn: head.qpn,
                index: head.index,
                last_psn: (last_psn & 0xFF_FFFF).into(),
                signaled: head.signaled,
                status: head.status,
            };
            if self.is_dead[qpn] || head.status.any() {
                if !self.is_dead[qpn] {
                    self.issues.push(issue(self.psn[qpn] + 0xFF_FFFF));
                }
                self.is_dead[qpn] = true;
                self.descs.push(PacketDesc { qpn: head.qpn, is_void: true, ends_request: true, ..Default::default() });
                return;
            }
            let mtu = 128 << mtu_code;
            let count = len.div_ceil(mtu).max(1);
            self.issues.push(issue(self.psn[qpn] + count - 1));
            let mut pieces = pieces.iter().copied();
            let mut piece = (0, 0);
            for packet in 0..count {
                let (is_first, is_last) = (packet == 0, packet == count - 1);
                let packet_len = (len - packet * mtu).min(mtu);
                let psn = self.psn[qpn];
                self.psn[qpn] = (psn + 1) & 0xFF_FFFF;
                let opcode = match (is_first, is_last) {
                    (true, true) => wire::Opcode::WriteOnly,
                    (true, false) => wire::Opcode::WriteFirst,
                    (false, true) => wire::Opcode::WriteLast,
                    _ => wire::Opcode::WriteMiddle,
                };
                self.descs.push(PacketDesc {
                    qpn: head.qpn,
                    opcode: (opcode as u64).into(),
                    solicited: head.solicited && is_last,
                    ack_req: is_last && head.asks_ack || psn % 64 == 63,
                    psn: psn.into(),
                    va: head.remote_va,
                    rkey: head.rkey,
                    dma_len: head.len,
                    has_reth: is_first,
                    has_aeth: false,
                    len: packet_len.into(),
                    is_void: false,
                    ends_request: is_last,
                });
                let (mut left, mut is_first_part) = (packet_len, true);
                while left > 0 {
                    if piece.1 == 0 {
                        piece = pieces.next().unwrap();
                    }
                    let part = left.min(piece.1);
                    left -= part;
                    self.gathers.push(GatherReq {
                        addr: piece.0.into(),
                        len: part.into(),
                        first: is_first_part,
                        offset: ((header_len + if is_first { 16 } else { 0 }) % 64).into(),
                        last: left == 0,
                    });
                    piece = (piece.0 + part, piece.1 - part);
                    is_first_part = false;
                    self.clocks += 1;
                }
                self.clocks += usize::from(packet_len == 0);
            }
        }

        /// Requests of four queue pairs, with pieces shorter, as long, and longer than a packet.
        fn random(seed: u64, count: usize, psn: [u64; 4]) -> Self {
            let mut random = Stalls::new(seed);
            let mut work = Self::new(psn);
            for _ in 0..count {
                let mtu_code = 1 + random.random() % 2;
                let mtu = 128 << mtu_code;
                let pieces: Vec<_> = (0..random.random() % 7)
                    .map(|_| {
                        let len = match random.random() % 5 {
                            0 => mtu,
                            1 => mtu + 1 - random.random() % 3,
                            2 => 1 + random.random() % 3,
                            3 => 2 * mtu + random.random() % mtu,
                            _ => 1 + random.random() % mtu,
                        };
                        (random.random() << 10, len)
                    })
                    .collect();
                let status = [CqeStatus::LocalProtection, CqeStatus::LocalOperation, CqeStatus::LocalLength][random.random() as usize % 3];
                let status = if random.random() % 16 == 0 { status } else { CqeStatus::Success };
                work.add(random.random() as usize % 4, mtu_code, [54, 58, 74, 78][random.random() as usize % 4], status, &pieces);
            }
            work
        }
    }

    /// What stands on the streams of the block.
    struct Sides {
        head: Driver<WqeHead>,
        piece: Driver<Piece>,
        desc: Monitor<PacketDesc>,
        gather: Monitor<GatherReq>,
        issue: Monitor<Issue>,
        refused: usize,
        first: Option<u64>,
    }

    impl Sides {
        fn new(work: &Work, stalls: impl Fn(u64) -> Stalls) -> Self {
            Self {
                head: Driver::new(work.heads.iter().copied(), stalls(10)),
                piece: Driver::new(work.pieces.iter().copied(), stalls(20)),
                desc: Monitor::new(stalls(30)),
                gather: Monitor::new(stalls(40)),
                issue: Monitor::new(stalls(50)),
                refused: 0,
                first: None,
            }
        }

        fn clock(&mut self, bench: &mut Bench<Segment>) {
            self.head.before(&mut bench.uut.head);
            self.piece.before(&mut bench.uut.piece);
            self.desc.before(&mut bench.uut.desc);
            self.gather.before(&mut bench.uut.gather);
            self.issue.before(&mut bench.uut.issue);
            bench.settle();
            self.head.after(&bench.uut.head);
            self.piece.after(&bench.uut.piece);
            self.desc.after(&bench.uut.desc);
            self.gather.after(&bench.uut.gather);
            self.issue.after(&bench.uut.issue);
            self.refused += usize::from(bench.uut.refused.val());
            self.first = self.first.or(bench.uut.desc.valid.val().then_some(bench.clock_count()));
            bench.edge();
        }

        fn is_done(&self, work: &Work) -> bool {
            self.desc.got.len() == work.descs.len()
                && self.gather.got.len() == work.gathers.len()
                && self.issue.got.len() == work.issues.len()
        }

        fn check(&self, work: &Work) {
            assert!(self.head.is_done() && self.piece.is_done(), "pieces of refused requests are thrown away");
            for (got, expected) in self.desc.got.iter().zip(&work.descs) {
                if expected.is_void {
                    assert_eq!((got.is_void, got.ends_request, got.len, got.qpn), (true, true, 0u64.into(), expected.qpn));
                } else {
                    assert_eq!(got, expected);
                }
            }
            assert_eq!(self.gather.got, work.gathers);
            assert_eq!(self.issue.got, work.issues);
        }
    }

    #[test]
    fn requests_become_packets_parts_and_issues_as_a_model_says_under_random_stalls() {
        let mut bench = Bench::new("tx_segment", Segment::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        for seed in 1..5 {
            let psn = [0xFF_FFFC, 0xFF_FFFF, 0x3D, 0];
            let work = Work::random(seed, 70, psn);
            let refused = work.issues.iter().filter(|issue| issue.status.any()).count();
            assert!(refused > 0, "some queue pair dies");
            for limit in [100 + seed, 6000] {
                // A start gives a dead queue pair its life back.
                for (qpn, psn) in psn.iter().enumerate() {
                    set(&mut bench, write(qpn as u64, true, QpState::Rts, *psn));
                    bench.cycles(1);
                }
                let mut sides = Sides::new(&work, |n| Stalls::new(seed + n + limit));
                let stop = bench.clock_count() + limit;
                while bench.clock_count() < stop && !sides.is_done(&work) {
                    sides.clock(&mut bench);
                }
                if limit == 6000 {
                    assert!(bench.clock_count() < stop, "a request hangs");
                    (0..3).for_each(|_| sides.clock(&mut bench));
                    sides.check(&work);
                    assert_eq!(sides.refused, refused);
                    for qpn in 0..4u64 {
                        bench.uut.query_qpn.next = qpn.into();
                        bench.settle();
                        assert_eq!(bench.uut.query_next_psn.val(), work.psn[qpn as usize]);
                    }
                }
                reset(&mut bench);
            }
        }
        bench.finish();
    }

    #[test]
    fn a_request_of_one_part_takes_two_clocks_and_every_other_part_one_more() {
        let mut bench = Bench::new("tx_segment_rate", Segment::default(), |uut| &mut uut.clock);
        for pieces in
            [vec![(0, 64)], vec![], vec![(0, 256)], vec![(0, 10), (99, 20)], vec![(0, 257)], vec![(0, 100), (500, 600), (2000, 1)]]
        {
            reset(&mut bench);
            set(&mut bench, write(2, true, QpState::Rts, 0));
            bench.cycles(1);
            let mut work = Work::new([0; 4]);
            (0..30).for_each(|_| work.add(2, 1, 54, CqeStatus::Success, &pieces));
            let mut sides = Sides::new(&work, |_| Stalls::none());
            let start = bench.clock_count();
            while !sides.is_done(&work) {
                sides.clock(&mut bench);
                assert!(bench.clock_count() < start + 1000, "a request hangs");
            }
            sides.check(&work);
            assert_eq!((bench.clock_count() - start) as usize, work.clocks + 1);
            if pieces.len() == 1 && pieces[0].1 == 64 {
                assert_eq!(work.clocks, 60);
                assert_eq!(sides.first, Some(start + 2));
            }
        }
        bench.finish();
    }

    #[test]
    fn a_halted_or_stopped_queue_pair_sends_nothing_more_until_it_starts_again() {
        let mut bench = Bench::new("tx_segment_halt", Segment::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        for is_command in [false, true] {
            for qpn in 0..4 {
                set(&mut bench, write(qpn, true, QpState::Rts, 0x20 + qpn));
                bench.cycles(1);
            }
            let mut work = Work::new([0x20, 0x21, 0x22, 0x23]);
            let requests = |work: &mut Work| {
                for i in 0..8 {
                    work.add(i % 4, 1, 54, CqeStatus::Success, &[(64 * i as u64, 300), (9000, 3)]);
                }
            };
            requests(&mut work);
            let mut sides = Sides::new(&work, |_| Stalls::none());
            while !sides.is_done(&work) {
                sides.clock(&mut bench);
            }
            sides.check(&work);
            // The death comes in the clock in which the first request would be taken, and is taken before it.
            let mut work = Work {
                heads: vec![],
                pieces: vec![],
                descs: vec![],
                gathers: vec![],
                issues: vec![],
                is_dead: [true, false, false, false],
                ..work
            };
            requests(&mut work);
            let mut sides = Sides::new(&work, |_| Stalls::none());
            if is_command {
                set(&mut bench, write(0, false, QpState::Error, 0));
            } else {
                bench.uut.halt.data.next = 0u64.into();
                bench.uut.halt.valid.next = true;
            }
            sides.clock(&mut bench);
            bench.uut.halt.valid.next = false;
            while !sides.is_done(&work) {
                sides.clock(&mut bench);
            }
            (0..3).for_each(|_| sides.clock(&mut bench));
            sides.check(&work);
        }
        bench.finish();
    }

    #[test]
    fn commands_and_deaths_are_taken_while_a_request_waits_for_its_pieces() {
        let mut bench = Bench::new("tx_segment_wait", Segment::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        set(&mut bench, write(3, true, QpState::Rts, 7));
        bench.cycles(1);
        // A request of two packets, the piece of the second late.
        let mut work = Work::new([0, 0, 0, 7]);
        work.add(3, 1, 54, CqeStatus::Success, &[(0, 256), (0x1000, 10)]);
        let mut sides = Sides::new(&work, |_| Stalls::none());
        let late = sides.piece.queue.pop_back().unwrap();
        (0..10).for_each(|_| sides.clock(&mut bench));
        assert_eq!(sides.desc.got.len(), 1);
        for qpn in 0..8u64 {
            set(&mut bench, write(10 + qpn, true, QpState::Rts, 0x100 + qpn));
            bench.cycles(1);
        }
        bench.uut.halt.data.next = 0u64.into();
        bench.uut.halt.valid.next = true;
        bench.settle();
        assert!(bench.uut.halt.ready.val(), "a death does not wait for host memory");
        bench.cycles(1);
        bench.uut.halt.valid.next = false;
        for qpn in 0..8u64 {
            bench.uut.query_qpn.next = (10 + qpn).into();
            bench.settle();
            assert_eq!(bench.uut.query_next_psn.val(), 0x100 + qpn);
        }
        sides.piece.queue.push_back(late);
        (0..10).for_each(|_| sides.clock(&mut bench));
        sides.check(&work);
        bench.finish();
    }
}
