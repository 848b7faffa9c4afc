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
mod tests;
