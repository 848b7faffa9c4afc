//! Cuts requests into packets of at most the path MTU, gives them their PSNs, says which
//! bytes of local memory each packet is gathered from, ends turns, and goes back to what was lost.
//!
//! | port | role | carries |
//! |---|---|---|
//! | `qp_write` | in | contexts: first PSN |
//! | `halt` | sink | a queue pair whose requester has failed: nothing more of it is sent |
//! | `restart` | sink | where a queue pair begins to send again |
//! | `retired` | in | requests that are done |
//! | `head`, `piece` | sink | requests and their ranges of local memory |
//! | `desc` | source | what each packet is built from, in order |
//! | `gather` | source | the parts of each packet's payload, in order |
//! | `issue` | source | each request with the PSN of its last packet |
//! | `rewind` | source | turns that ended, requests of long ones that are done, and restarts: where the scheduler fetches on |
//! | `asked` | out | the PSN behind each packet with AckReq, and behind a request that can't be sent; at a restart, the one from which is sent again |
//! | `begun` | out | one clock for each request that is begun, or found to be void |
//! | `sending_qpn`, `others_wait` | out, in | whether another queue pair than this one has requests to send |
//! | `query_*` | in/out | next PSN of one queue pair, one clock later |
//!
//! Latency: three clocks. Throughput: a request takes one clock and one more for every part, where a
//! part is what one packet takes from one piece: a request of one packet and one entry takes two.
//! AckReq is set on the last packet of a message that asks for it, and on every 64th packet so that long
//! messages and rows of silent ones are acknowledged on the way. A refused request, and every later one of its queue pair, sends
//! nothing but keeps its place: it goes through as a void descriptor. Those before it may have to be sent again, so the queue pair lives until the
//! completer has come to it. Commands and deaths are taken at once, also in the middle of a request, which is then sent to its end.
//!
//! **Turns.** When [`TURN_BYTES`] of a queue pair are sent in a row and others wait, its turn ends, behind this packet or in front of
//! the next request. The state keeps which request comes next and how much of it is sent. What the scheduler has fetched
//! ahead comes with another index and goes through as void; the same request comes once more, its pieces are passed over up
//! to where it stopped, and it goes on with the PSN that is due. If its key is not good any more by then, it
//! fails like any other.
//!
//! **Restarts.** A restart names the oldest request that is not done, the first PSN to send, and the one behind the
//! request, from which follows how much of it is passed over. It is taken at once, but in the middle of a request of the same
//! queue pair at the end of a packet. What was issued is not issued again. An acknowledgement that comes late may retire
//! requests that are to be sent again, and the consumer may use their slots anew; so a request that is issued and
//! done is not sent, whatever was read from its slot, and sending goes on with the oldest one that is not done. One that is done while it is
//! being sent ends with this packet.
//!
//! [`TURN_BYTES`]: verbena_abi::limits::TURN_BYTES

use rust_hdl::prelude::*;
use verbena_abi::{limits, queue, wire};

use crate::bus::{
    Asked, GatherReq, Issue, PacketDesc, Piece, QpContext, QpWrite, Qpn, Restart, Retired, Rewind, StreamSink, StreamSource, WqeHead,
};
use crate::prim::{Fifo, LutRam, Ram};

/// What a queue pair sends next.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Due {
    /// The request that comes next. What comes with another index was fetched in vain.
    index: Bits<16>,
    /// PSN with which it begins, or goes on.
    psn: Bits<24>,
    /// PSN behind it, if a part of it is sent already.
    end_psn: Bits<24>,
    /// A part of it may be sent already.
    is_middle: Bit,
    /// It was sent once already, as a whole or in part.
    is_again: Bit,
    /// The request before it asked for an acknowledgement.
    is_asked: Bit,
    /// The scheduler waits for a report.
    is_long: Bit,
}

/// What is issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Issued {
    /// Index behind it.
    index: Bits<16>,
    /// The last one is refused: it and all behind it are not sent.
    is_refused: Bit,
}

/// The oldest request that is not done.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Oldest {
    index: Bits<16>,
    /// Its first PSN.
    psn: Bits<24>,
}

/// A change that a command makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
struct Change {
    qpn: Qpn,
    clear: Bit,
    start: Bit,
    stop: Bit,
    psn: Bits<24>,
}

#[derive(Clone, Copy, Debug, PartialEq, LogicState)]
enum State {
    Start,
    Locate,
    Remain,
    Resume,
    Cut,
    Yield,
    Report,
    Discard,
}

#[derive(LogicBlock)]
pub struct Segment {
    pub clock: Signal<In, Clock>,
    pub reset: Signal<In, Bit>,
    pub qp_write: Signal<In, QpWrite>,
    pub halt: StreamSink<Qpn>,
    pub restart: StreamSink<Restart>,
    pub retired: Signal<In, Retired>,
    pub head: StreamSink<WqeHead>,
    pub piece: StreamSink<Piece>,
    pub desc: StreamSource<PacketDesc>,
    pub gather: StreamSource<GatherReq>,
    pub issue: StreamSource<Issue>,
    pub rewind: StreamSource<Rewind>,
    pub sending_qpn: Signal<Out, Qpn>,
    pub others_wait: Signal<In, Bit>,
    pub asked: Signal<Out, Asked>,
    pub begun: Signal<Out, Bit>,
    pub refused: Signal<Out, Bit>,
    pub query_qpn: Signal<In, Qpn>,
    pub query_next_psn: Signal<Out, Bits<24>>,

    state: DFF<State>,
    due_ram: Ram<Due, { limits::LOG_QPS }>,
    issued_ram: Ram<Issued, { limits::LOG_QPS }>,
    oldest_ram: Ram<Oldest, { limits::LOG_QPS }>,
    query_ram: Ram<Bits<24>, { limits::LOG_QPS }>,
    dead_ram: LutRam<Bit, { limits::LOG_QPS }>,
    changes: Fifo<Change, 1, 2>,
    descs: Fifo<PacketDesc, 1, 2>,
    gathers: Fifo<GatherReq, 1, 2>,
    issues: Fifo<Issue, 2, 3>,
    rewinds: Fifo<Rewind, 2, 3>,
    // The request that is next, measured while its state is read.
    is_loaded: DFF<Bit>,
    loaded: DFF<WqeHead>,
    packets: DFF<Bits<24>>,
    first_len: DFF<Bits<13>>,
    has_written: DFF<Bit>,
    // The request under way.
    request: DFF<WqeHead>,
    psn: DFF<Bits<24>>,
    end_psn: DFF<Bits<24>>,
    is_long: DFF<Bit>,
    is_again: DFF<Bit>,
    must_ask: DFF<Bit>,
    is_retired: DFF<Bit>,
    all_packets: DFF<Bits<24>>,
    sent: DFF<Bits<32>>,
    to_skip: DFF<Bits<32>>,
    to_discard: DFF<Bits<3>>,
    // Its packet: bytes, those that are not gathered yet, and what comes behind it.
    packet_len: DFF<Bits<13>>,
    packet_left: DFF<Bits<13>>,
    rest: DFF<Bits<32>>,
    is_first_packet: DFF<Bit>,
    is_first_part: DFF<Bit>,
    // What is left of the piece.
    has_piece: DFF<Bit>,
    part: DFF<Piece>,
    // The turn.
    turn_qpn: DFF<Qpn>,
    turn: DFF<Bits<17>>,
    was_refused: DFF<Bit>,
    has_begun: DFF<Bit>,
    last_asked: DFF<Asked>,
    // Of a command: it lets those of packets go first.
    held_asked: DFF<Asked>,

    broadcast: Signal<Local, QpWrite>,
    attributes: Signal<Local, QpContext>,
    change: Signal<Local, Change>,
    has_change: Signal<Local, Bit>,
    write: Signal<Local, Bit>,
    write_qpn: Signal<Local, Qpn>,
    updated: Signal<Local, Due>,
    write_issued: Signal<Local, Bit>,
    issued_qpn: Signal<Local, Qpn>,
    new_issued: Signal<Local, Issued>,
    issued_now: Signal<Local, Issued>,
    behind: Signal<Local, Bits<16>>,
    was_refused_before: Signal<Local, Bit>,
    since_mine: Signal<Local, Bits<16>>,
    new_next_psn: Signal<Local, Bits<24>>,
    done: Signal<Local, Retired>,
    again: Signal<Local, Restart>,
    is_mine: Signal<Local, Bit>,
    take_restart: Signal<Local, Bit>,
    load: Signal<Local, Bit>,
    incoming: Signal<Local, WqeHead>,
    look_qpn: Signal<Local, Qpn>,
    in_mtu: Signal<Local, Bits<13>>,
    in_mask: Signal<Local, Bits<13>>,
    rounded: Signal<Local, Bits<32>>,
    current: Signal<Local, Due>,
    oldest: Signal<Local, Oldest>,
    since_done: Signal<Local, Bits<16>>,
    is_done: Signal<Local, Bit>,
    is_issued: Signal<Local, Bit>,
    fresh: Signal<Local, WqeHead>,
    is_dead: Signal<Local, Bit>,
    is_due: Signal<Local, Bit>,
    turn_is_over: Signal<Local, Bit>,
    turn_now: Signal<Local, Bits<17>>,
    fills_turn: Signal<Local, Bit>,
    is_same_qp: Signal<Local, Bit>,
    start: Signal<Local, Bit>,
    left_packets: Signal<Local, Bits<24>>,
    done_packets: Signal<Local, Bits<24>>,
    after_psn: Signal<Local, Bits<24>>,
    now: Signal<Local, WqeHead>,
    mtu: Signal<Local, Bits<13>>,
    next_len: Signal<Local, Bits<13>>,
    part_now: Signal<Local, Piece>,
    part_len: Signal<Local, Bits<13>>,
    ends_piece: Signal<Local, Bit>,
    ends_packet: Signal<Local, Bit>,
    is_last_packet: Signal<Local, Bit>,
    has_payload: Signal<Local, Bit>,
    payload_at: Signal<Local, Bits<7>>,
    skip: Signal<Local, Bits<32>>,
    go: Signal<Local, Bit>,
    drop_piece: Signal<Local, Bit>,
    send_desc: Signal<Local, Bit>,
    asks_now: Signal<Local, Bit>,
    told: Signal<Local, Asked>,
    measure: Signal<Local, Bit>,
    desc_zero: Constant<PacketDesc>,
    base_mtu: Constant<Bits<13>>,
    one: Constant<Bits<13>>,
    reth_len: Constant<Bits<7>>,
    ack_mask: Constant<Bits<24>>,
    turn_bytes: Constant<Bits<17>>,
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
            restart: Default::default(),
            retired: Default::default(),
            head: Default::default(),
            piece: Default::default(),
            desc: Default::default(),
            gather: Default::default(),
            issue: Default::default(),
            rewind: Default::default(),
            sending_qpn: Default::default(),
            others_wait: Default::default(),
            asked: Default::default(),
            begun: Default::default(),
            refused: Default::default(),
            query_qpn: Default::default(),
            query_next_psn: Default::default(),
            state: Default::default(),
            due_ram: Default::default(),
            issued_ram: Default::default(),
            oldest_ram: Default::default(),
            query_ram: Default::default(),
            dead_ram: Default::default(),
            changes: Default::default(),
            descs: Default::default(),
            gathers: Default::default(),
            issues: Default::default(),
            rewinds: Default::default(),
            is_loaded: Default::default(),
            loaded: Default::default(),
            packets: Default::default(),
            first_len: Default::default(),
            has_written: Default::default(),
            request: Default::default(),
            psn: Default::default(),
            end_psn: Default::default(),
            is_long: Default::default(),
            is_again: Default::default(),
            must_ask: Default::default(),
            is_retired: Default::default(),
            all_packets: Default::default(),
            sent: Default::default(),
            to_skip: Default::default(),
            to_discard: Default::default(),
            packet_len: Default::default(),
            packet_left: Default::default(),
            rest: Default::default(),
            is_first_packet: Default::default(),
            is_first_part: Default::default(),
            has_piece: Default::default(),
            part: Default::default(),
            turn_qpn: Default::default(),
            turn: Default::default(),
            was_refused: Default::default(),
            has_begun: Default::default(),
            last_asked: Default::default(),
            held_asked: Default::default(),
            broadcast: Default::default(),
            attributes: Default::default(),
            change: Default::default(),
            has_change: Default::default(),
            write: Default::default(),
            write_qpn: Default::default(),
            updated: Default::default(),
            write_issued: Default::default(),
            issued_qpn: Default::default(),
            new_issued: Default::default(),
            issued_now: Default::default(),
            behind: Default::default(),
            was_refused_before: Default::default(),
            since_mine: Default::default(),
            new_next_psn: Default::default(),
            done: Default::default(),
            again: Default::default(),
            is_mine: Default::default(),
            take_restart: Default::default(),
            load: Default::default(),
            incoming: Default::default(),
            look_qpn: Default::default(),
            in_mtu: Default::default(),
            in_mask: Default::default(),
            rounded: Default::default(),
            current: Default::default(),
            oldest: Default::default(),
            since_done: Default::default(),
            is_done: Default::default(),
            is_issued: Default::default(),
            fresh: Default::default(),
            is_dead: Default::default(),
            is_due: Default::default(),
            turn_is_over: Default::default(),
            turn_now: Default::default(),
            fills_turn: Default::default(),
            is_same_qp: Default::default(),
            start: Default::default(),
            left_packets: Default::default(),
            done_packets: Default::default(),
            after_psn: Default::default(),
            now: Default::default(),
            mtu: Default::default(),
            next_len: Default::default(),
            part_now: Default::default(),
            part_len: Default::default(),
            ends_piece: Default::default(),
            ends_packet: Default::default(),
            is_last_packet: Default::default(),
            has_payload: Default::default(),
            payload_at: Default::default(),
            skip: Default::default(),
            go: Default::default(),
            drop_piece: Default::default(),
            send_desc: Default::default(),
            asks_now: Default::default(),
            told: Default::default(),
            measure: Default::default(),
            desc_zero: Constant::new(PacketDesc::default()),
            base_mtu: Constant::new(128u32.to_bits()),
            one: Constant::new(1u32.to_bits()),
            reth_len: Constant::new(size_of::<wire::Reth>().to_bits()),
            ack_mask: Constant::new(63u32.to_bits()),
            turn_bytes: Constant::new(limits::TURN_BYTES.to_bits()),
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
        dff_setup!(self, clock, state, is_loaded, loaded, packets, first_len, has_written);
        dff_setup!(self, clock, request, psn, end_psn, is_long, is_again, must_ask, is_retired, all_packets, sent, to_skip, to_discard);
        dff_setup!(self, clock, packet_len, packet_left, rest, is_first_packet, is_first_part);
        dff_setup!(self, clock, has_piece, part, turn_qpn, turn, was_refused, has_begun, last_asked, held_asked);
        clock!(self, clock, due_ram, issued_ram, oldest_ram, query_ram, dead_ram, changes, descs, gathers, issues, rewinds);
        self.changes.reset.next = self.reset.val();
        self.descs.reset.next = self.reset.val();
        self.gathers.reset.next = self.reset.val();
        self.issues.reset.next = self.reset.val();
        self.rewinds.reset.next = self.reset.val();
        StreamSource::<PacketDesc>::link(&mut self.desc, &mut self.descs.drain);
        StreamSource::<GatherReq>::link(&mut self.gather, &mut self.gathers.drain);
        StreamSource::<Issue>::link(&mut self.issue, &mut self.issues.drain);
        StreamSource::<Rewind>::link(&mut self.rewind, &mut self.rewinds.drain);
        self.refused.next = self.was_refused.q.val();
        self.begun.next = self.has_begun.q.val();
        self.was_refused.d.next = false;
        self.sending_qpn.next = self.turn_qpn.q.val();

        self.broadcast.next = self.qp_write.val();
        self.attributes.next = self.broadcast.val().context;
        self.changes.fill.valid.next = self.broadcast.val().valid;
        self.changes.fill.data.next.qpn = self.broadcast.val().qpn;
        self.changes.fill.data.next.clear = self.broadcast.val().clear;
        self.changes.fill.data.next.start = self.broadcast.val().start_tx;
        self.changes.fill.data.next.stop = self.attributes.val().state == self.error_state.val();
        self.changes.fill.data.next.psn = self.attributes.val().sq_psn;
        self.changes.drain.ready.next = true;
        self.change.next = self.changes.drain.data.val();
        self.has_change.next = self.changes.drain.valid.val();

        // The next request: its packets, and its state.
        self.fresh.next = self.loaded.q.val();
        self.incoming.next = self.head.data.val();
        self.in_mtu.next = self.base_mtu.val() << self.incoming.val().mtu;
        self.in_mask.next = self.in_mtu.val() - self.one.val();
        self.rounded.next = self.incoming.val().len + bit_cast::<32, 13>(self.in_mask.val());
        self.current.next = self.due_ram.read_data.val();
        self.dead_ram.read_address.next = self.fresh.val().qpn;
        self.is_dead.next = self.dead_ram.read_data.val();
        self.is_due.next = self.fresh.val().index == self.current.val().index;
        self.issued_now.next = self.issued_ram.read_data.val();
        self.behind.next = self.fresh.val().index + 1;
        self.is_issued.next = self.issued_now.val().index != self.fresh.val().index;
        self.was_refused_before.next =
            self.issued_now.val().is_refused & (!self.is_issued.val() | (self.issued_now.val().index == self.behind.val()));
        self.oldest.next = self.oldest_ram.read_data.val();
        self.since_done.next = self.oldest.val().index - self.fresh.val().index;
        self.is_done.next = self.is_issued.val() & self.since_done.val().any() & !self.since_done.val().get_bit(15);
        self.is_same_qp.next = self.fresh.val().qpn == self.turn_qpn.q.val();
        self.turn_is_over.next = (self.turn.q.val() >= self.turn_bytes.val()) & self.others_wait.val();
        self.after_psn.next = self.current.val().psn + self.packets.q.val();
        if self.current.val().is_middle {
            self.after_psn.next = self.current.val().end_psn;
        }

        // The part that this clock takes: what is left of the packet, or of the piece.
        self.now.next = self.request.q.val();
        self.mtu.next = self.base_mtu.val() << self.now.val().mtu;
        self.part_now.next = self.part.q.val();
        self.ends_packet.next = self.part_now.val().len >= bit_cast::<32, 13>(self.packet_left.q.val());
        self.ends_piece.next = self.part_now.val().len <= bit_cast::<32, 13>(self.packet_left.q.val());
        self.part_len.next = bit_cast::<13, 32>(self.part_now.val().len);
        if self.ends_packet.val() {
            self.part_len.next = self.packet_left.q.val();
        }
        self.is_last_packet.next = !self.rest.q.val().any();
        self.has_payload.next = self.packet_len.q.val().any();
        self.payload_at.next = self.now.val().header_len;
        if self.is_first_packet.q.val() {
            self.payload_at.next = self.now.val().header_len + self.reth_len.val();
        }
        self.turn_now.next = self.turn.q.val() + bit_cast::<17, 13>(self.packet_len.q.val());
        self.fills_turn.next = self.turn_now.val() >= self.turn_bytes.val();
        self.next_len.next = bit_cast::<13, 32>(self.rest.q.val());
        if self.rest.q.val() > bit_cast::<32, 13>(self.mtu.val()) {
            self.next_len.next = self.mtu.val();
        }
        // A request that goes on passes over what is sent: a piece or a part of one each clock.
        self.skip.next = bit_cast::<32, 13>(self.part_len.val());
        if self.state.q.val() == State::Resume {
            self.skip.next = self.to_skip.q.val();
        }
        // What is left of it can't be more than all of it, unless the request in its slot is another one by now.
        self.left_packets.next = self.end_psn.q.val() - self.psn.q.val();
        self.done_packets.next = self.all_packets.q.val() - self.left_packets.val();
        if self.left_packets.val() > self.all_packets.q.val() {
            self.done_packets.next = 0.into();
        }

        // A restart is a write of the state, so it is taken when nobody else writes. In the middle of a request of its own
        // queue pair it waits for the end of a packet, and what is left of the request is thrown away.
        self.again.next = self.restart.data.val();
        self.is_mine.next = self.restart.valid.val() & (self.again.val().qpn == self.now.val().qpn);
        self.last_asked.d.next.valid = false;

        self.descs.fill.valid.next = false;
        self.descs.fill.data.next = self.desc_zero.val();
        self.descs.fill.data.next.qpn = self.now.val().qpn;
        self.descs.fill.data.next.psn = self.psn.q.val();
        self.descs.fill.data.next.va = self.now.val().remote_va;
        self.descs.fill.data.next.rkey = self.now.val().rkey;
        self.descs.fill.data.next.dma_len = self.now.val().len;
        self.descs.fill.data.next.has_reth = self.is_first_packet.q.val();
        self.descs.fill.data.next.len = self.packet_len.q.val();
        self.descs.fill.data.next.ends_request = self.is_last_packet.val();
        self.descs.fill.data.next.solicited = self.now.val().solicited & self.is_last_packet.val();
        self.asks_now.next = (self.is_last_packet.val() & (self.now.val().asks_ack | self.must_ask.q.val()))
            | ((self.psn.q.val() & self.ack_mask.val()) == self.ack_mask.val());
        self.descs.fill.data.next.ack_req = self.asks_now.val();
        self.last_asked.d.next.qpn = self.now.val().qpn;
        self.last_asked.d.next.psn = self.psn.q.val() + 1;
        if self.state.q.val() == State::Start {
            // Only of a request that can't be sent: what is before it is waited for, and if it is issued already, all of it.
            self.last_asked.d.next.qpn = self.fresh.val().qpn;
            self.last_asked.d.next.psn = self.current.val().psn + 1;
            if self.is_issued.val() {
                self.last_asked.d.next.psn = self.after_psn.val();
            }
        }
        self.descs.fill.data.next.opcode = self.write_middle.val();
        if self.is_first_packet.q.val() & self.is_last_packet.val() {
            self.descs.fill.data.next.opcode = self.write_only.val();
        } else if self.is_first_packet.q.val() {
            self.descs.fill.data.next.opcode = self.write_first.val();
        } else if self.is_last_packet.val() {
            self.descs.fill.data.next.opcode = self.write_last.val();
        }
        self.gathers.fill.valid.next = false;
        self.gathers.fill.data.next.is_inline = self.part_now.val().is_inline;
        self.gathers.fill.data.next.is_void = false;
        self.gathers.fill.data.next.addr = self.part_now.val().addr;
        self.gathers.fill.data.next.len = self.part_len.val();
        self.gathers.fill.data.next.first = self.is_first_part.q.val();
        self.gathers.fill.data.next.offset = bit_cast::<6, 7>(self.payload_at.val());
        self.gathers.fill.data.next.last = self.ends_packet.val();
        self.issues.fill.valid.next = false;
        self.issues.fill.data.next.qpn = self.fresh.val().qpn;
        self.issues.fill.data.next.index = self.fresh.val().index;
        self.issues.fill.data.next.last_psn = self.after_psn.val() - 1;
        self.issues.fill.data.next.signaled = self.fresh.val().signaled;
        self.issues.fill.data.next.status = self.fresh.val().status;
        self.issues.fill.data.next.is_unasked = false;
        self.rewinds.fill.valid.next = false;
        self.rewinds.fill.data.next.qpn = self.now.val().qpn;
        self.rewinds.fill.data.next.index = self.now.val().index;
        self.rewinds.fill.data.next.is_long = true;
        self.write.next = false;
        self.write_qpn.next = self.now.val().qpn;
        self.updated.next.index = self.now.val().index;
        self.updated.next.psn = self.psn.q.val();
        self.updated.next.end_psn = self.end_psn.q.val();
        self.updated.next.is_middle = true;
        self.updated.next.is_again = self.is_again.q.val();
        self.updated.next.is_asked = false;
        self.updated.next.is_long = true;
        self.write_issued.next = false;
        self.issued_qpn.next = self.fresh.val().qpn;
        self.new_issued.next.index = self.behind.val();
        self.new_issued.next.is_refused = false;
        self.new_next_psn.next = self.after_psn.val();
        self.start.next = false;
        self.go.next = false;
        self.drop_piece.next = false;
        self.send_desc.next = false;
        self.measure.next = false;

        match self.state.q.val() {
            State::Start => {
                // A state that was written in the last clock is not read yet.
                self.start.next = self.is_loaded.q.val()
                    & !self.has_change.val()
                    & !self.restart.valid.val()
                    & !self.halt.valid.val()
                    & !self.has_written.q.val()
                    & self.issues.fill.ready.val()
                    & self.rewinds.fill.ready.val();
                if self.start.val() {
                    self.request.d.next = self.fresh.val();
                    self.psn.d.next = self.current.val().psn;
                    self.end_psn.d.next = self.after_psn.val();
                    self.is_long.d.next = self.current.val().is_long;
                    self.is_again.d.next = self.current.val().is_again & self.is_issued.val();
                    self.must_ask.d.next = self.issued_now.val().is_refused | (self.current.val().is_again & self.is_issued.val());
                    self.is_retired.d.next = false;
                    self.all_packets.d.next = self.packets.q.val();
                    self.sent.d.next = 0.into();
                    self.to_discard.d.next = self.fresh.val().pieces;
                    self.packet_len.d.next = self.first_len.q.val();
                    self.packet_left.d.next = self.first_len.q.val();
                    self.rest.d.next = self.fresh.val().len - bit_cast::<32, 13>(self.first_len.q.val());
                    self.is_first_packet.d.next = true;
                    self.is_first_part.d.next = true;
                    self.turn_qpn.d.next = self.fresh.val().qpn;
                    if !self.is_same_qp.val() {
                        self.turn.d.next = 0.into();
                    }
                    self.write_qpn.next = self.fresh.val().qpn;
                    self.updated.next.index = self.behind.val();
                    self.updated.next.psn = self.after_psn.val();
                    self.updated.next.is_middle = false;
                    self.updated.next.is_again = self.current.val().is_again & self.is_issued.val();
                    self.updated.next.is_asked = self.fresh.val().asks_ack;
                    self.updated.next.is_long = self.current.val().is_long;
                    if self.is_dead.val() | !self.is_due.val() {
                        self.state.d.next = State::Discard;
                    } else if self.is_done.val() {
                        self.write.next = true;
                        self.updated.next.index = self.oldest.val().index;
                        self.updated.next.psn = self.oldest.val().psn;
                        self.updated.next.is_again = true;
                        self.updated.next.is_asked = true;
                        self.updated.next.is_long = false;
                        self.rewinds.fill.valid.next = true;
                        self.rewinds.fill.data.next.qpn = self.fresh.val().qpn;
                        self.rewinds.fill.data.next.index = self.oldest.val().index;
                        self.rewinds.fill.data.next.is_long = false;
                        self.state.d.next = State::Discard;
                    } else if self.was_refused_before.val() {
                        self.state.d.next = State::Discard;
                    } else if self.is_same_qp.val() & self.turn_is_over.val() {
                        self.turn.d.next = 0.into();
                        self.rewinds.fill.valid.next = true;
                        self.rewinds.fill.data.next.qpn = self.fresh.val().qpn;
                        self.rewinds.fill.data.next.index = self.fresh.val().index;
                        self.rewinds.fill.data.next.is_long = self.current.val().is_long;
                        self.state.d.next = State::Discard;
                    } else if (self.fresh.val().status != self.success.val()) & self.current.val().is_again & self.is_issued.val() {
                        // What it needs was taken away while it was outstanding. It is looked at again until somebody acknowledges it, or the
                        // timer, which goes on, has no retry left.
                        self.last_asked.d.next.valid = true;
                        self.rewinds.fill.valid.next = true;
                        self.rewinds.fill.data.next.qpn = self.fresh.val().qpn;
                        self.rewinds.fill.data.next.index = self.fresh.val().index;
                        self.rewinds.fill.data.next.is_long = self.current.val().is_long;
                        self.state.d.next = State::Discard;
                    } else if self.fresh.val().status != self.success.val() {
                        // It stays the one that is due, so nothing behind it is. What is before it is waited for, whoever asked.
                        self.write_issued.next = true;
                        self.new_issued.next.is_refused = true;
                        self.new_next_psn.next = self.current.val().psn;
                        self.last_asked.d.next.valid = true;
                        self.issues.fill.valid.next = true;
                        self.issues.fill.data.next.last_psn = self.current.val().psn - 1;
                        self.issues.fill.data.next.is_unasked = !self.current.val().is_asked;
                        self.was_refused.d.next = true;
                        self.state.d.next = State::Discard;
                    } else {
                        self.write.next = true;
                        self.write_issued.next = !self.is_issued.val();
                        self.issues.fill.valid.next = !self.is_issued.val();
                        self.state.d.next = State::Cut;
                        if self.current.val().is_middle {
                            self.state.d.next = State::Locate;
                        }
                    }
                }
            }
            State::Locate => {
                self.is_first_packet.d.next = !self.done_packets.val().any();
                self.sent.d.next = (bit_cast::<32, 24>(self.done_packets.val()) << 7) << self.now.val().mtu;
                self.state.d.next = State::Remain;
            }
            State::Remain => {
                self.rest.d.next = self.now.val().len - self.sent.q.val();
                self.to_skip.d.next = self.sent.q.val();
                self.state.d.next = State::Resume;
            }
            State::Resume => {
                if !self.to_skip.q.val().any() {
                    self.measure.next = true;
                    self.state.d.next = State::Cut;
                } else if self.has_piece.q.val() {
                    self.go.next = true;
                    self.to_skip.d.next = 0.into();
                    if self.to_skip.q.val() >= self.part_now.val().len {
                        self.drop_piece.next = true;
                        self.to_skip.d.next = self.to_skip.q.val() - self.part_now.val().len;
                    }
                }
            }
            State::Cut => {
                self.go.next =
                    self.descs.fill.ready.val() & self.gathers.fill.ready.val() & (self.has_piece.q.val() | !self.has_payload.val());
                if self.go.val() {
                    self.gathers.fill.valid.next = self.has_payload.val();
                    self.drop_piece.next = self.has_payload.val() & self.ends_piece.val();
                    self.packet_left.d.next = self.packet_left.q.val() - self.part_len.val();
                    self.is_first_part.d.next = false;
                    self.send_desc.next = self.ends_packet.val() | !self.has_payload.val();
                }
                if self.send_desc.val() {
                    self.descs.fill.valid.next = true;
                    self.psn.d.next = self.psn.q.val() + 1;
                    self.last_asked.d.next.valid = self.asks_now.val();
                    if self.turn.q.val() < self.turn_bytes.val() {
                        self.turn.d.next = self.turn_now.val();
                    }
                    self.measure.next = true;
                    self.is_first_packet.d.next = false;
                    if self.is_last_packet.val() {
                        self.state.d.next = State::Start;
                        if self.is_long.q.val() {
                            self.state.d.next = State::Report;
                        }
                    } else if self.is_mine.val() | (self.is_retired.q.val() & !self.is_long.q.val()) {
                        self.state.d.next = State::Discard;
                    } else if self.fills_turn.val() & self.others_wait.val() {
                        self.state.d.next = State::Yield;
                    }
                }
            }
            State::Yield => {
                // The void descriptor that follows keeps the count of finished requests true.
                if !self.has_change.val() & self.rewinds.fill.ready.val() {
                    self.write.next = true;
                    self.rewinds.fill.valid.next = true;
                    self.turn.d.next = 0.into();
                    self.state.d.next = State::Discard;
                }
            }
            State::Report => {
                if !self.has_change.val() & self.rewinds.fill.ready.val() {
                    self.write.next = true;
                    self.updated.next.index = self.now.val().index + 1;
                    self.updated.next.psn = self.end_psn.q.val();
                    self.updated.next.is_middle = false;
                    self.updated.next.is_asked = self.now.val().asks_ack;
                    self.updated.next.is_long = false;
                    self.rewinds.fill.valid.next = true;
                    self.rewinds.fill.data.next.index = self.now.val().index + 1;
                    self.rewinds.fill.data.next.is_long = false;
                    self.state.d.next = State::Start;
                }
            }
            State::Discard => {
                if self.to_discard.q.val().any() {
                    // Inline data is on its way to be gathered, so it is thrown away there.
                    self.gathers.fill.data.next.is_void = true;
                    self.gathers.fill.data.next.len = bit_cast::<13, 32>(self.part_now.val().len);
                    self.gathers.fill.data.next.last = false;
                    self.gathers.fill.valid.next = self.has_piece.q.val() & self.part_now.val().is_inline;
                    self.drop_piece.next = self.has_piece.q.val() & (self.gathers.fill.ready.val() | !self.part_now.val().is_inline);
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
        if self.measure.val() {
            self.packet_len.d.next = self.next_len.val();
            self.packet_left.d.next = self.next_len.val();
            self.rest.d.next = self.rest.q.val() - bit_cast::<32, 13>(self.next_len.val());
            self.is_first_part.d.next = true;
        }

        self.has_begun.d.next = self.start.val();

        // The piece: what is left of it, or the next one.
        self.piece.ready.next = !self.has_piece.q.val() | self.drop_piece.val();
        if self.drop_piece.val() {
            self.has_piece.d.next = false;
            self.to_discard.d.next = self.to_discard.q.val() - 1;
        }
        if self.go.val() {
            self.part.d.next.addr = self.part_now.val().addr + bit_cast::<64, 32>(self.skip.val());
            self.part.d.next.len = self.part_now.val().len - self.skip.val();
        }
        if (!self.has_piece.q.val() | self.drop_piece.val()) & self.piece.valid.val() {
            self.has_piece.d.next = true;
            self.part.d.next = self.piece.data.val();
        }

        // The request behind: its state is read again until it starts, since commands may change it.
        self.load.next = !self.is_loaded.q.val() | self.start.val();
        self.head.ready.next = self.load.val();
        self.look_qpn.next = self.fresh.val().qpn;
        if self.load.val() {
            self.is_loaded.d.next = self.head.valid.val();
            self.loaded.d.next = self.incoming.val();
            self.packets.d.next = bit_cast::<24, 32>((self.rounded.val() >> 7) >> self.incoming.val().mtu);
            if !self.incoming.val().len.any() {
                self.packets.d.next = 1.into();
            }
            self.first_len.d.next = bit_cast::<13, 32>(self.incoming.val().len);
            if self.incoming.val().len > bit_cast::<32, 13>(self.in_mtu.val()) {
                self.first_len.d.next = self.in_mtu.val();
            }
            self.look_qpn.next = self.incoming.val().qpn;
        }
        self.due_ram.read_address.next = self.look_qpn.val();
        self.issued_ram.read_address.next = self.look_qpn.val();
        self.oldest_ram.read_address.next = self.look_qpn.val();
        self.done.next = self.retired.val();
        self.oldest_ram.write_enable.next = self.done.val().valid;
        self.oldest_ram.write_address.next = self.done.val().qpn;
        self.oldest_ram.write_data.next.index = self.done.val().index;
        self.oldest_ram.write_data.next.psn = self.done.val().psn;
        self.since_mine.next = self.done.val().index - self.now.val().index;
        if self.done.val().valid
            & (self.done.val().qpn == self.now.val().qpn)
            & self.since_mine.val().any()
            & !self.since_mine.val().get_bit(15)
            & !self.start.val()
        {
            self.is_retired.d.next = true;
        }

        self.take_restart.next = self.restart.valid.val()
            & !self.has_change.val()
            & self.rewinds.fill.ready.val()
            & ((self.state.q.val() == State::Start) | ((self.state.q.val() == State::Cut) & !self.is_mine.val() & !self.send_desc.val()));
        self.restart.ready.next = self.take_restart.val();
        if self.take_restart.val() {
            self.write.next = true;
            self.write_qpn.next = self.again.val().qpn;
            self.updated.next.index = self.again.val().index;
            self.updated.next.psn = self.again.val().psn;
            self.updated.next.end_psn = self.again.val().end_psn;
            self.updated.next.is_middle = true;
            self.updated.next.is_again = true;
            self.updated.next.is_asked = true;
            self.updated.next.is_long = false;
            self.rewinds.fill.valid.next = true;
            self.rewinds.fill.data.next.qpn = self.again.val().qpn;
            self.rewinds.fill.data.next.index = self.again.val().index;
            self.rewinds.fill.data.next.is_long = false;
            self.last_asked.d.next.valid = true;
            self.last_asked.d.next.qpn = self.again.val().qpn;
            self.last_asked.d.next.psn = self.again.val().psn;
        }

        // Commands and deaths. They never wait, and what is under way waits for them with its own writes.
        self.halt.ready.next = !self.has_change.val();
        self.dead_ram.write_enable.next = self.has_change.val() & (self.change.val().start | self.change.val().stop);
        self.dead_ram.write_address.next = self.change.val().qpn;
        self.dead_ram.write_data.next = self.change.val().stop;
        if !self.has_change.val() {
            self.dead_ram.write_enable.next = self.halt.valid.val();
            self.dead_ram.write_data.next = true;
            self.dead_ram.write_address.next = self.halt.data.val();
        }
        if self.has_change.val() & self.change.val().start {
            self.write.next = true;
            self.write_qpn.next = self.change.val().qpn;
            self.updated.next.index = 0.into();
            self.updated.next.psn = self.change.val().psn;
            self.updated.next.is_middle = false;
            self.updated.next.is_again = false;
            self.updated.next.is_asked = true;
            self.updated.next.is_long = false;
            self.write_issued.next = true;
            self.issued_qpn.next = self.change.val().qpn;
            self.new_issued.next.index = 0.into();
            self.new_issued.next.is_refused = false;
            self.new_next_psn.next = self.change.val().psn;
        }
        self.told.next = self.last_asked.q.val();
        self.asked.next = self.last_asked.q.val();
        if !self.told.val().valid {
            self.asked.next = self.held_asked.q.val();
            self.held_asked.d.next.valid = false;
        }
        if self.has_change.val() & (self.change.val().start | self.change.val().clear) {
            self.held_asked.d.next.valid = true;
            self.held_asked.d.next.qpn = self.change.val().qpn;
            self.held_asked.d.next.psn = self.change.val().psn;
        }
        self.has_written.d.next = self.write.val();
        self.due_ram.write_enable.next = self.write.val();
        self.due_ram.write_address.next = self.write_qpn.val();
        self.due_ram.write_data.next = self.updated.val();
        self.issued_ram.write_enable.next = self.write_issued.val();
        self.issued_ram.write_address.next = self.issued_qpn.val();
        self.issued_ram.write_data.next = self.new_issued.val();
        self.query_ram.write_enable.next = self.write_issued.val();
        self.query_ram.write_address.next = self.issued_qpn.val();
        self.query_ram.write_data.next = self.new_next_psn.val();
        self.query_ram.read_address.next = self.query_qpn.val();
        self.query_next_psn.next = self.query_ram.read_data.val();

        if self.reset.val() {
            self.state.d.next = State::Start;
            self.is_loaded.d.next = false;
            self.has_piece.d.next = false;
            self.turn.d.next = 0.into();
            self.has_begun.d.next = false;
            self.held_asked.d.next.valid = false;
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
        bench.uut.restart.valid.next = false;
        bench.uut.retired.next = Retired::default();
        bench.uut.reset.next = true;
        bench.cycles(2);
        bench.uut.reset.next = false;
    }

    /// In this model the upper bits of an address tell whether the piece is inline data.
    fn is_inline(addr: u64) -> bool {
        addr >> 62 == 3
    }

    fn piece((addr, len): (u64, u64)) -> Piece {
        Piece { is_inline: is_inline(addr), addr: addr.into(), len: len.into() }
    }

    /// Requests, and what they are to become.
    struct Work {
        heads: Vec<WqeHead>,
        pieces: Vec<Piece>,
        descs: Vec<PacketDesc>,
        gathers: Vec<GatherReq>,
        issues: Vec<Issue>,
        psn: [u64; 4],
        index: [u64; 4],
        is_dead: [bool; 4],
        /// The last request asked for an acknowledgement.
        asked: [bool; 4],
        /// Clocks that the requests take.
        clocks: usize,
    }

    impl Work {
        fn new(psn: [u64; 4]) -> Self {
            Self {
                heads: vec![],
                pieces: vec![],
                descs: vec![],
                gathers: vec![],
                issues: vec![],
                psn,
                index: [0; 4],
                is_dead: [false; 4],
                asked: [true; 4],
                clocks: 0,
            }
        }

        fn add(&mut self, qpn: usize, mtu_code: u64, header_len: u64, status: CqeStatus, pieces: &[(u64, u64)]) {
            let len: u64 = pieces.iter().map(|piece| piece.1).sum();
            let i = self.heads.len() as u64;
            let head = WqeHead {
                qpn: (qpn as u64).into(),
                index: self.index[qpn].into(),
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
            self.index[qpn] += 1;
            self.heads.push(head);
            self.pieces.extend(pieces.iter().copied().map(piece));
            self.clocks += 1;
            let issue = |last_psn: u64| Issue {
                qpn: head.qpn,
                index: head.index,
                last_psn: (last_psn & 0xFF_FFFF).into(),
                signaled: head.signaled,
                status: head.status,
                is_unasked: false,
            };
            if self.is_dead[qpn] || head.status.any() {
                if !self.is_dead[qpn] {
                    self.issues.push(Issue { is_unasked: !self.asked[qpn], ..issue(self.psn[qpn] + 0xFF_FFFF) });
                }
                self.is_dead[qpn] = true;
                for (addr, len) in pieces.iter().copied().filter(|(addr, _)| is_inline(*addr)) {
                    let (addr, len) = (addr.into(), (len % 8192).into());
                    self.gathers.push(GatherReq { is_inline: true, is_void: true, addr, len, ..Default::default() });
                }
                self.descs.push(PacketDesc { qpn: head.qpn, is_void: true, ends_request: true, ..Default::default() });
                return;
            }
            self.asked[qpn] = head.asks_ack;
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
                        is_inline: is_inline(piece.0),
                        is_void: false,
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
        rewind: Monitor<Rewind>,
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
                rewind: Monitor::new(stalls(60)),
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
            self.rewind.before(&mut bench.uut.rewind);
            bench.settle();
            self.head.after(&bench.uut.head);
            self.piece.after(&bench.uut.piece);
            self.desc.after(&bench.uut.desc);
            self.gather.after(&bench.uut.gather);
            self.issue.after(&bench.uut.issue);
            self.rewind.after(&bench.uut.rewind);
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
            assert_eq!(self.gather.got.len(), work.gathers.len());
            for (got, expected) in self.gather.got.iter().zip(&work.gathers) {
                if expected.is_void {
                    assert_eq!((got.is_void, got.is_inline, got.len, got.last), (true, true, expected.len, false));
                } else {
                    assert_eq!(got, expected);
                }
            }
            assert_eq!(self.issue.got, work.issues);
            assert_eq!(self.rewind.got, [], "no turn ends while nobody waits");
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
                        bench.cycles(1);
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
            assert_eq!((bench.clock_count() - start) as usize, work.clocks + 2);
            if pieces.len() == 1 && pieces[0].1 == 64 {
                assert_eq!(work.clocks, 60);
                assert_eq!(sides.first, Some(start + 3));
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
            bench.cycles(1);
            assert_eq!(bench.uut.query_next_psn.val(), 0x100 + qpn);
        }
        sides.piece.queue.push_back(late);
        (0..10).for_each(|_| sides.clock(&mut bench));
        sides.check(&work);
        bench.finish();
    }

    /// A queue pair with long messages against the scheduler's side of the contract.
    struct Sender {
        /// Pieces of each request.
        requests: Vec<Vec<(u64, u64)>>,
        mtu_code: u64,
    }

    impl Sender {
        fn head(&self, qpn: u64, index: usize, status: CqeStatus) -> WqeHead {
            let pieces = &self.requests[index];
            WqeHead {
                qpn: qpn.into(),
                index: (index as u64).into(),
                signaled: true,
                asks_ack: true,
                status: (status as u64).into(),
                pieces: (pieces.len() as u64).into(),
                len: pieces.iter().map(|piece| piece.1).sum::<u64>().into(),
                remote_va: (qpn << 40 | index as u64).into(),
                mtu: self.mtu_code.into(),
                header_len: 54u64.into(),
                ..Default::default()
            }
        }
    }

    /// Lets senders take turns as the scheduler does: what a rewind names comes behind what is fetched already. A resumed
    /// request of queue pair `spoilt` fails. Returns descriptors, parts, issues, and rewinds.
    fn take_turns(
        bench: &mut Bench<Segment>,
        senders: &[Sender],
        seed: u64,
        spoilt: Option<u64>,
    ) -> (Vec<PacketDesc>, Vec<GatherReq>, Vec<Issue>, Vec<Rewind>) {
        reset(bench);
        for qpn in 0..senders.len() as u64 {
            set(bench, write(qpn, true, QpState::Rts, 0xFF_FFF0 + qpn));
        }
        bench.uut.others_wait.next = true;
        let empty = Work::new([0; 4]);
        let mut sides = Sides::new(&empty, |n| if seed == 0 { Stalls::none() } else { Stalls::new(seed + n) });
        let fetch = |sides: &mut Sides, qpn: u64, indices: std::ops::Range<usize>, is_again: bool| {
            for index in indices {
                let is_spoilt = is_again && spoilt == Some(qpn);
                let status = if is_spoilt { CqeStatus::LocalProtection } else { CqeStatus::Success };
                let sender = &senders[qpn as usize];
                sides.head.queue.push_back(sender.head(qpn, index, status));
                sides.piece.queue.extend(sender.requests[index].iter().copied().map(piece));
            }
        };
        for (qpn, sender) in senders.iter().enumerate() {
            fetch(&mut sides, qpn as u64, 0..sender.requests.len(), false);
        }
        let (mut seen, mut quiet, mut count) = (0, 0, 0);
        while quiet < 200 {
            sides.clock(bench);
            let events = sides.desc.got.len() + sides.gather.got.len() + sides.rewind.got.len();
            quiet = if events == count { quiet + 1 } else { 0 };
            count = events;
            while let Some(rewind) = sides.rewind.got.get(seen).copied() {
                let (qpn, index) = (rewind.qpn.to_u64(), rewind.index.index());
                let all = senders[qpn as usize].requests.len();
                fetch(&mut sides, qpn, index..if rewind.is_long { index + 1 } else { all }, rewind.is_long);
                seen += 1;
            }
        }
        assert!(sides.head.is_done() && sides.piece.is_done());
        (sides.desc.got, sides.gather.got, sides.issue.got, sides.rewind.got)
    }

    /// Requests of 0 to 200 KiB in up to six pieces, long and short mixed.
    fn senders(seed: u64) -> Vec<Sender> {
        let mut random = Stalls::new(seed);
        (0..3)
            .map(|_| {
                let requests = (0..5)
                    .map(|_| {
                        let longest = [64, 5_000, 40_000][random.random() as usize % 3];
                        (0..random.random() % 7).map(|_| ((random.random() >> 2) & !0xF_FFFF, 1 + random.random() % longest)).collect()
                    })
                    .collect();
                Sender { requests, mtu_code: 3 + random.random() % 3 }
            })
            .collect()
    }

    #[test]
    fn turns_end_when_others_wait_and_every_message_goes_on_where_it_stopped() {
        let mut bench = Bench::new("tx_segment_turns", Segment::default(), |uut| &mut uut.clock);
        let mut long = 0;
        for seed in 0..3 {
            let senders = senders(seed);
            let (descs, gathers, issues, rewinds) = take_turns(&mut bench, &senders, seed, None);
            long += rewinds.iter().filter(|rewind| rewind.is_long).count();
            for (qpn, sender) in senders.iter().enumerate() {
                let qpn = qpn as u64;
                // As without turns: a model that sends this queue pair alone.
                let mut model = Work::new([0; 4]);
                model.psn[qpn as usize] = 0xFF_FFF0 + qpn;
                for pieces in &sender.requests {
                    model.add(qpn as usize, sender.mtu_code, 54, CqeStatus::Success, pieces);
                }
                let key = |desc: &PacketDesc| (desc.psn, desc.opcode, desc.len, desc.dma_len, desc.has_reth, desc.ends_request);
                let sent: Vec<_> = descs.iter().filter(|desc| desc.qpn == qpn && !desc.is_void).map(key).collect();
                assert_eq!(sent, model.descs.iter().map(key).collect::<Vec<_>>(), "seed {seed}, QP {qpn}");
                let issued: Vec<_> = issues.iter().filter(|issue| issue.qpn == qpn).map(|issue| (issue.index, issue.last_psn)).collect();
                assert_eq!(issued, model.issues.iter().map(|issue| (issue.index, issue.last_psn)).collect::<Vec<_>>());
                let places =
                    |parts: &[GatherReq]| parts.iter().map(|part| (part.addr, part.len, part.first, part.offset, part.last)).collect();
                let wanted: Vec<_> = places(&model.gathers);
                let all: Vec<_> = places(&gathers);
                // Each queue pair has addresses of its own, so its parts can be told apart.
                let mine: Vec<_> = all.into_iter().filter(|part| wanted.contains(part)).collect();
                assert_eq!(mine, wanted);
            }
            // Nobody sends more than a turn in a row, but for the packet that fills it.
            let (mut last, mut row) = (99, 0);
            for desc in &descs {
                let qpn = desc.qpn.to_u64();
                row = if qpn == last && !desc.is_void { row } else { 0 };
                last = qpn;
                assert!(desc.is_void || row < limits::TURN_BYTES, "a turn of {row} bytes goes on");
                row += desc.len.index();
            }
            // Every request that was fetched comes out once as done or void.
            let ends = descs.iter().filter(|desc| desc.ends_request).count();
            let again: usize = rewinds
                .iter()
                .map(|rewind| {
                    let all = senders[rewind.qpn.index()].requests.len();
                    if rewind.is_long {
                        1
                    } else {
                        all - rewind.index.index()
                    }
                })
                .sum();
            assert_eq!(ends, 15 + again);
        }
        assert!(long > 10, "messages are interrupted, {long} times");
        bench.finish();
    }

    #[test]
    fn a_message_whose_key_is_taken_away_in_its_middle_fails_behind_what_was_sent() {
        let mut bench = Bench::new("tx_segment_spoilt", Segment::default(), |uut| &mut uut.clock);
        let long = || vec![vec![(0, 50_000)], vec![(0, 64)]];
        let senders = [Sender { requests: long(), mtu_code: 5 }, Sender { requests: long(), mtu_code: 5 }];
        let (descs, _, issues, _) = take_turns(&mut bench, &senders, 0, Some(0));
        let sent = descs.iter().filter(|desc| desc.qpn == 0u64 && !desc.is_void).count();
        assert_eq!(sent, limits::TURN_BYTES / 4096);
        let of_first: Vec<_> = issues.iter().filter(|issue| issue.qpn == 0u64).map(|issue| (issue.index, issue.status.to_u64())).collect();
        assert_eq!(of_first, [(0u64.into(), 0), (0u64.into(), CqeStatus::LocalProtection as u64)]);
        let last = issues.iter().rfind(|issue| issue.qpn == 0u64).unwrap();
        assert_eq!(last.last_psn, 0xFF_FFF0 + sent as u64 - 1, "the PSN of the last packet that was sent");
        assert_eq!(descs.iter().filter(|desc| desc.qpn == 1u64 && desc.ends_request && !desc.is_void).count(), 2, "the other goes on");
        bench.finish();
    }

    /// What became of a queue pair's packets, by what a peer would have taken.
    struct Peer {
        first_psn: u64,
        /// What it is to get: packets with the parts of their payload.
        packets: Vec<(PacketDesc, Vec<GatherReq>)>,
        /// Last PSNs of the requests, from the first PSN on.
        ends: Vec<u64>,
        taken: u64,
        /// Of `taken`, so many are acknowledged.
        unacked: u64,
    }

    impl Peer {
        fn new(qpn: usize, sender: &Sender, first_psn: u64) -> Self {
            let mut model = Work::new([0; 4]);
            model.psn[qpn] = first_psn;
            let (mut packets, mut ends) = (vec![], vec![]);
            for (index, pieces) in sender.requests.iter().enumerate() {
                model.add(qpn, sender.mtu_code, 54, CqeStatus::Success, pieces);
                let head = sender.head(qpn as u64, index, CqeStatus::Success);
                let mut parts = model.gathers.drain(..);
                for desc in model.descs.drain(..) {
                    let desc = PacketDesc { va: head.remote_va, rkey: head.rkey, ..desc };
                    let mut of_packet = vec![];
                    while desc.len.any() && of_packet.last().is_none_or(|part: &GatherReq| !part.last) {
                        of_packet.push(parts.next().unwrap());
                    }
                    packets.push((desc, of_packet));
                }
                ends.push(packets.len() as u64 - 1);
            }
            Self { first_psn, packets, ends, taken: 0, unacked: 0 }
        }

        /// Takes a packet, unless it is lost, and checks it either way.
        fn take(&mut self, desc: &PacketDesc, parts: &[GatherReq], is_lost: bool) {
            let at = (desc.psn.to_u64().wrapping_sub(self.first_psn) & 0xFF_FFFF) as usize;
            let (wanted, wanted_parts) = &self.packets[at];
            let key =
                |desc: &PacketDesc| (desc.psn, desc.opcode, desc.va, desc.rkey, desc.dma_len, desc.has_reth, desc.len, desc.ends_request);
            assert_eq!(key(desc), key(wanted));
            assert_eq!(parts, wanted_parts, "the parts of PSN {:?}", desc.psn);
            self.taken += u64::from(at as u64 == self.taken && !is_lost);
        }

        /// Returns the index of the oldest request that is not done.
        fn oldest(&self) -> usize {
            self.ends.iter().take_while(|end| **end < self.unacked).count()
        }

        fn psn(&self, at: u64) -> Bits<24> {
            ((self.first_psn + at) & 0xFF_FFFF).into()
        }
    }

    #[test]
    fn lost_packets_are_sent_again_from_where_it_is_said_and_slots_of_done_requests_may_hold_anything() {
        let mut bench = Bench::new("tx_segment_restart", Segment::default(), |uut| &mut uut.clock);
        let (mut restarts, mut early, mut stale) = (0, 0, 0);
        for seed in 1..19 {
            let senders = senders(seed);
            reset(&mut bench);
            let mut random = Stalls::new(100 + seed);
            let psn = |qpn: u64| 0xFF_FFE0 + qpn;
            for qpn in 0..senders.len() as u64 {
                bench.uut.retired.next = Retired { valid: true, qpn: qpn.into(), index: 0u64.into(), psn: psn(qpn).into() };
                set(&mut bench, write(qpn, true, QpState::Rts, psn(qpn)));
            }
            bench.uut.others_wait.next = seed % 2 == 0;
            let mut peers: Vec<_> = senders.iter().enumerate().map(|(qpn, sender)| Peer::new(qpn, sender, psn(qpn as u64))).collect();
            let empty = Work::new([0; 4]);
            let mut sides = Sides::new(&empty, |n| if seed % 3 == 0 { Stalls::new(seed + n) } else { Stalls::none() });
            let mut restart = Driver::new([], Stalls::none());
            let mut retired = std::collections::VecDeque::new();
            // Slots of requests before these may be in use anew.
            let mut told = [0; 3];
            let (mut descs, mut parts, mut rewinds, mut quiet, mut count) = (0, 0, 0, 0, 0);
            let mut to_fetch: Vec<(u64, usize, usize)> =
                senders.iter().enumerate().map(|(qpn, s)| (qpn as u64, 0, s.requests.len())).collect();
            let start = bench.clock_count();
            while peers.iter().any(|peer| peer.unacked as usize != peer.packets.len()) {
                assert!(bench.clock_count() < start + 200_000, "a packet never comes");
                // The host: a slot whose request is done holds another one.
                let arrives = random.random() % 16 == 0;
                for (qpn, from, to) in to_fetch.drain(..if arrives { to_fetch.len() } else { 0 }) {
                    for index in from..to {
                        let is_stale = index < told[qpn as usize];
                        let mut head = senders[qpn as usize].head(qpn, index, CqeStatus::Success);
                        let mut pieces = senders[qpn as usize].requests[index].clone();
                        stale += usize::from(is_stale);
                        if is_stale {
                            pieces = (0..random.random() % 7).map(|n| (n << 20, 1 + random.random() % 20_000)).collect();
                            head.pieces = (pieces.len() as u64).into();
                            head.len = pieces.iter().map(|piece| piece.1).sum::<u64>().into();
                            head.remote_va = random.random().into();
                            head.status = (random.random() % 2 * CqeStatus::LocalProtection as u64).into();
                        }
                        sides.head.queue.push_back(head);
                        sides.piece.queue.extend(pieces.into_iter().map(piece));
                    }
                }
                let done: Retired = retired.pop_front().unwrap_or_default();
                told[done.qpn.index()] = told[done.qpn.index()].max(done.index.index());
                bench.uut.retired.next = done;
                restart.before(&mut bench.uut.restart);
                bench.settle();
                restart.after(&bench.uut.restart);
                sides.clock(&mut bench);
                // The peer.
                while let Some(desc) = sides.desc.got.get(descs).copied() {
                    let sent: Vec<_> = sides.gather.got[parts..].iter().take_while(|part| !part.last).copied().collect();
                    let all = parts + sent.len();
                    if !desc.is_void && desc.len.any() {
                        let Some(last) = sides.gather.got.get(all).copied() else { break };
                        let of_packet: Vec<_> = sent.into_iter().chain([last]).collect();
                        parts = all + 1;
                        peers[desc.qpn.index()].take(&desc, &of_packet, random.random() % 12 == 0);
                    } else if !desc.is_void {
                        peers[desc.qpn.index()].take(&desc, &[], random.random() % 12 == 0);
                    }
                    descs += 1;
                }
                // The scheduler.
                while let Some(rewind) = sides.rewind.got.get(rewinds).copied() {
                    let (qpn, index) = (rewind.qpn.to_u64(), rewind.index.index());
                    let all = senders[qpn as usize].requests.len();
                    to_fetch.push((qpn, index, if rewind.is_long { index + 1 } else { all }));
                    rewinds += 1;
                }
                // The requester: acknowledgements by chance, at any time; restarts when it is quiet, and sometimes too early.
                let events = sides.desc.got.len() + sides.rewind.got.len();
                quiet = if events == count { quiet + 1 } else { 0 };
                count = events;
                let is_quiet = quiet > 60;
                if random.random() % 20 == 0 || is_quiet {
                    for (qpn, peer) in peers.iter_mut().enumerate() {
                        let issued = sides.issue.got.iter().filter(|issue| issue.qpn == qpn as u64).count();
                        let is_early = random.random() % 8 == 0;
                        // Late acknowledgements come behind the restart, the others in front of it.
                        for is_late in [false, true] {
                            let (before, news) = (peer.oldest(), peer.taken - peer.unacked);
                            peer.unacked += if is_quiet { news } else { random.random() % (news + 1) };
                            for index in before..peer.oldest() {
                                let (psn, index) = (peer.psn(peer.ends[index] + 1), (index as u64 + 1).into());
                                retired.push_back(Retired { valid: true, qpn: (qpn as u64).into(), index, psn });
                            }
                            let oldest = peer.oldest();
                            if !is_late && (is_quiet || is_early) && restart.is_done() && oldest < issued {
                                restart.queue.push_back(Restart {
                                    qpn: (qpn as u64).into(),
                                    index: (oldest as u64).into(),
                                    psn: peer.psn(peer.unacked),
                                    end_psn: peer.psn(peer.ends[oldest] + 1),
                                });
                                restarts += 1;
                                early += usize::from(is_early);
                            }
                        }
                    }
                    quiet = 0;
                }
            }
            (0..400).for_each(|_| sides.clock(&mut bench));
            for (qpn, peer) in peers.iter().enumerate() {
                let issued: Vec<_> = sides.issue.got.iter().filter(|issue| issue.qpn == qpn as u64).collect();
                assert_eq!(issued.len(), peer.ends.len(), "each request is issued once");
                for (index, (issue, end)) in issued.iter().zip(&peer.ends).enumerate() {
                    assert_eq!((issue.index.index(), issue.last_psn, issue.status.any()), (index, peer.psn(*end), false));
                }
            }
        }
        assert!(restarts > 30 && early > 10 && stale > 5, "{restarts} restarts, {early} of them early, {stale} slots used anew");
        bench.finish();
    }

    /// Gives one restart, as soon as it is taken.
    fn restart(bench: &mut Bench<Segment>, sides: &mut Sides, again: Restart) {
        bench.uut.restart.data.next = again;
        bench.uut.restart.valid.next = true;
        loop {
            bench.settle();
            let is_taken = bench.uut.restart.ready.val();
            sides.clock(bench);
            if is_taken {
                break;
            }
        }
        bench.uut.restart.valid.next = false;
    }

    #[test]
    fn what_is_before_a_refused_request_is_sent_again_asks_and_the_refused_one_stays_refused() {
        let mut bench = Bench::new("tx_segment_before", Segment::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        set(&mut bench, write(2, true, QpState::Rts, 10));
        let mut work = Work::new([10; 4]);
        // Requests 0 to 2, of which the last does not ask; 3 is refused, 4 is not due any more.
        for (len, status) in [(300, CqeStatus::Success), (5, CqeStatus::Success), (6, CqeStatus::Success)] {
            work.add(2, 1, 54, status, &[(0, len)]);
        }
        work.heads.iter_mut().for_each(|head| head.asks_ack = false);
        work.descs.iter_mut().for_each(|desc| desc.ack_req = false);
        work.asked[2] = false;
        work.add(2, 1, 54, CqeStatus::LocalProtection, &[]);
        work.add(2, 1, 54, CqeStatus::Success, &[(0, 8)]);
        let mut sides = Sides::new(&work, |_| Stalls::none());
        let mut asked = vec![];
        while !sides.is_done(&work) {
            sides.clock(&mut bench);
            asked.extend(bench.uut.asked.val().valid.then(|| bench.uut.asked.val().psn.to_u64()));
        }
        sides.check(&work);
        assert_eq!(asked.last(), Some(&15), "what was sent is waited for, though no packet has asked");
        assert!(work.issues.last().unwrap().is_unasked);
        // From the middle of request 0 on. The slot of the refused one may hold a good request by now.
        let before = (sides.desc.got.len(), sides.issue.got.len(), sides.rewind.got.len());
        restart(&mut bench, &mut sides, Restart { qpn: 2u64.into(), index: 0u64.into(), psn: 11u64.into(), end_psn: 12u64.into() });
        for (index, head) in work.heads.iter().enumerate() {
            let head = WqeHead { status: 0u64.into(), pieces: 1u64.into(), len: work.heads[index].len.to_u64().max(3).into(), ..*head };
            sides.head.queue.push_back(head);
            sides.piece.queue.push_back(piece((0, head.len.to_u64())));
        }
        (0..60).for_each(|_| sides.clock(&mut bench));
        let again: Vec<_> = sides.desc.got[before.0..].iter().filter(|desc| !desc.is_void).collect();
        assert_eq!(again.iter().map(|desc| (desc.psn.to_u64(), desc.ack_req)).collect::<Vec<_>>(), [(11, true), (12, true), (13, true)]);
        assert_eq!(sides.desc.got.len() - before.0, 5, "each request comes out once");
        assert_eq!((sides.issue.got.len(), sides.rewind.got.len()), (before.1, before.2 + 1));
        bench.uut.query_qpn.next = 2u64.into();
        bench.cycles(1);
        assert_eq!(bench.uut.query_next_psn.val(), 14u64);
        bench.finish();
    }

    #[test]
    fn a_request_that_can_not_be_sent_again_is_looked_at_until_it_is_done() {
        let mut bench = Bench::new("tx_segment_taken", Segment::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        set(&mut bench, write(2, true, QpState::Rts, 10));
        let mut work = Work::new([10; 4]);
        // The second one has three packets.
        let lens = [100, 600, 100];
        lens.iter().for_each(|len| work.add(2, 1, 54, CqeStatus::Success, &[(0, *len)]));
        let mut sides = Sides::new(&work, |_| Stalls::none());
        while !sides.is_done(&work) {
            sides.clock(&mut bench);
        }
        sides.check(&work);
        restart(&mut bench, &mut sides, Restart { qpn: 2u64.into(), index: 0u64.into(), psn: 10u64.into(), end_psn: 11u64.into() });
        // The key of request 1 was taken away.
        let bad = WqeHead { status: (CqeStatus::LocalProtection as u64).into(), pieces: 0u64.into(), ..work.heads[1] };
        let (sent, rewound) = (sides.desc.got.len(), sides.rewind.got.len());
        for head in [work.heads[0], bad, work.heads[2], bad, work.heads[2], bad] {
            sides.head.queue.push_back(head);
            sides.piece.queue.extend((0..head.pieces.to_u64()).map(|_| piece((0, head.len.to_u64()))));
        }
        let mut asked = vec![];
        for _ in 0..80 {
            sides.clock(&mut bench);
            asked.extend(bench.uut.asked.val().valid.then(|| bench.uut.asked.val().psn.to_u64()));
        }
        let psns = |sides: &Sides| -> Vec<u64> {
            sides.desc.got[sent..].iter().filter(|desc| !desc.is_void).map(|desc| desc.psn.to_u64()).collect()
        };
        assert_eq!(psns(&sides), [10]);
        assert_eq!((sides.issue.got.len(), sides.refused), (3, 0), "it is issued already, and nobody is told anything else");
        let looks: Vec<_> = sides.rewind.got[rewound..].iter().map(|rewind| (rewind.index.to_u64(), rewind.is_long)).collect();
        assert_eq!(looks, [(0, false), (1, false), (1, false), (1, false)]);
        assert_eq!(asked, [11, 14, 14, 14], "the timer goes on until all of it is acknowledged");
        // A late acknowledgement of it: what is behind goes on.
        bench.uut.retired.next = Retired { valid: true, qpn: 2u64.into(), index: 2u64.into(), psn: 14u64.into() };
        sides.clock(&mut bench);
        bench.uut.retired.next = Retired::default();
        for head in [bad, work.heads[2]] {
            sides.head.queue.push_back(head);
            sides.piece.queue.extend((0..head.pieces.to_u64()).map(|_| piece((0, head.len.to_u64()))));
        }
        (0..40).for_each(|_| sides.clock(&mut bench));
        assert_eq!(psns(&sides), [10, 14]);
        bench.finish();
    }

    #[test]
    fn a_request_that_is_done_while_it_is_sent_again_ends_with_the_packet() {
        let mut bench = Bench::new("tx_segment_ended", Segment::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        set(&mut bench, write(2, true, QpState::Rts, 10));
        let mut work = Work::new([10; 4]);
        work.add(2, 1, 54, CqeStatus::Success, &[(0, 25_600)]);
        work.add(2, 1, 54, CqeStatus::Success, &[(0, 7)]);
        let mut sides = Sides::new(&work, |_| Stalls::none());
        while !sides.is_done(&work) {
            sides.clock(&mut bench);
        }
        sides.check(&work);
        let sent = sides.desc.got.len();
        restart(&mut bench, &mut sides, Restart { qpn: 2u64.into(), index: 0u64.into(), psn: 10u64.into(), end_psn: 110u64.into() });
        for (head, len) in work.heads.iter().zip([25_600, 7]) {
            sides.head.queue.push_back(*head);
            sides.piece.queue.push_back(piece((0, len)));
        }
        (0..20).for_each(|_| sides.clock(&mut bench));
        bench.uut.retired.next = Retired { valid: true, qpn: 2u64.into(), index: 1u64.into(), psn: 110u64.into() };
        sides.clock(&mut bench);
        bench.uut.retired.next = Retired::default();
        (0..20).for_each(|_| sides.clock(&mut bench));
        let again: Vec<_> = sides.desc.got[sent..].iter().filter(|desc| !desc.is_void).map(|desc| desc.psn.to_u64()).collect();
        assert!(again.len() < 25 && again[..3] == [10, 11, 12], "{again:?}");
        assert_eq!(again.last(), Some(&110), "the one behind has its PSN");
        bench.finish();
    }

    #[test]
    fn an_acknowledgement_is_waited_for_from_the_packet_that_asks_and_no_longer_at_a_restart() {
        let mut bench = Bench::new("tx_segment_asked", Segment::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        set(&mut bench, write(2, true, QpState::Rts, 0x3E));
        let mut asked = vec![];
        let mut watch = |bench: &mut Bench<Segment>| {
            let told = bench.uut.asked.val();
            asked.extend(told.valid.then(|| (told.qpn.to_u64(), told.psn.to_u64())));
        };
        // Every 64th PSN asks, and the last packet of three requests in four.
        let mut work = Work::new([0; 4]);
        work.psn[2] = 0x3E;
        for len in [256, 512, 10, 700] {
            work.add(2, 1, 54, CqeStatus::Success, &[(0, len)]);
        }
        let mut sides = Sides::new(&work, |_| Stalls::none());
        while !sides.is_done(&work) {
            watch(&mut bench);
            sides.clock(&mut bench);
        }
        let again = Restart { qpn: 2u64.into(), index: 1u64.into(), psn: 0x3Fu64.into(), end_psn: 0x41u64.into() };
        bench.uut.restart.data.next = again;
        bench.uut.restart.valid.next = true;
        watch(&mut bench);
        bench.cycles(1);
        bench.uut.restart.valid.next = false;
        for _ in 0..3 {
            watch(&mut bench);
            bench.cycles(1);
        }
        let wanted: Vec<_> = work.descs.iter().filter(|desc| desc.ack_req).map(|desc| (2, desc.psn.to_u64() + 1)).collect();
        assert_eq!(wanted.len(), 4);
        assert_eq!(asked, [vec![(2, 0x3E)], wanted, vec![(2, 0x3F)]].concat());
        // In its slot there is a shorter request by now, though it is not done: nobody knows what to send, but nothing hangs.
        sides.head.queue.push_back(WqeHead { index: 1u64.into(), ..work.heads[2] });
        sides.piece.queue.push_back(work.pieces[2]);
        let before = sides.desc.got.len();
        (0..20).for_each(|_| sides.clock(&mut bench));
        let again = &sides.desc.got[before..];
        assert_eq!((again.len(), again[0].psn.to_u64(), again[0].len.to_u64(), again[0].ends_request), (1, 0x3F, 10, true));
        bench.finish();
    }

    #[test]
    fn without_others_a_turn_has_no_end() {
        let mut bench = Bench::new("tx_segment_alone", Segment::default(), |uut| &mut uut.clock);
        reset(&mut bench);
        set(&mut bench, write(2, true, QpState::Rts, 0));
        let mut work = Work::new([0; 4]);
        (0..4).for_each(|_| work.add(2, 5, 54, CqeStatus::Success, &[(0, 100_000)]));
        let mut sides = Sides::new(&work, |_| Stalls::none());
        while !sides.is_done(&work) {
            sides.clock(&mut bench);
            assert!(bench.clock_count() < 1000, "a request hangs");
        }
        sides.check(&work);
        bench.finish();
    }
}
