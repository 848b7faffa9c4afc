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
//! AckReq is set on the last packet of a message, and on every 64th so that long messages are
//! acknowledged on the way. A refused request, and every later one of its queue pair, sends
//! nothing but keeps its place: it goes through as a void descriptor.

use rust_hdl::prelude::*;
use verbena_abi::{limits, queue, wire};

use crate::bus::{GatherReq, Issue, PacketDesc, Piece, QpContext, QpWrite, StreamSink, StreamSource, WqeHead};
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
    qpn: Bits<8>,
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
    pub halt: StreamSink<Bits<8>>,
    pub head: StreamSink<WqeHead>,
    pub piece: StreamSink<Piece>,
    pub desc: StreamSource<PacketDesc>,
    pub gather: StreamSource<GatherReq>,
    pub issue: StreamSource<Issue>,
    pub refused: Signal<Out, Bit>,
    pub query_qpn: Signal<In, Bits<8>>,
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
    address: Signal<Local, Bits<8>>,
    current: Signal<Local, TxState>,
    updated: Signal<Local, TxState>,
    write: Signal<Local, Bit>,
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
            self.is_last_packet.val() | ((self.psn.q.val() & self.ack_mask.val()) == self.ack_mask.val());
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

        match self.state.q.val() {
            State::Start => {
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
                } else if self.head.valid.val() & self.issues.fill.ready.val() {
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
                self.go.next = self.descs.fill.ready.val()
                    & self.gathers.fill.ready.val()
                    & (self.piece.valid.val() | !self.has_payload.val());
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
