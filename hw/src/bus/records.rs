//! Records that travel on streams. The first field of a record is its least significant.

use rust_hdl::prelude::*;
use verbena_abi::limits;
use verbena_abi::regs::BAR0_ADDR_BITS;

/// Number of a queue pair.
pub type Qpn = Bits<{ limits::LOG_QPS }>;
/// Number of a completion queue.
pub type Cqn = Bits<{ limits::LOG_CQS }>;
/// Number of a memory region: the upper part of its key.
pub type MrIndex = Bits<{ limits::LOG_MRS }>;
/// Byte offset in BAR0.
pub type BarOffset = Bits<{ BAR0_ADDR_BITS }>;

/// One beat of a packet, byte 0 in bits 7:0.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Beat {
    /// 64 bytes.
    pub data: Bits<512>,
    /// Bytes that count, 1 to 64; 64 on every beat but the last.
    pub bytes: Bits<7>,
    /// Last beat of the packet.
    pub last: Bit,
}

/// A whole line of 64 bytes of host memory, or of a packet's payload as it lies in the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Line {
    /// 64 bytes.
    pub data: Bits<512>,
    /// Last line of the request or of the packet.
    pub last: Bit,
}

/// A read of host memory. The answer is one [`Line`] for every aligned 64-byte line that the range
/// touches, in order, over all requests in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct ReadReq {
    /// Bus address of the first byte.
    pub addr: Bits<64>,
    /// Bytes, 1 to 4096.
    pub len: Bits<13>,
}

/// A write to host memory. Behind it, on the line stream, comes one [`Line`] for every aligned
/// 64-byte line that the range touches; bytes outside the range are not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WriteReq {
    /// Bus address of the first byte.
    pub addr: Bits<64>,
    /// Bytes, 1 to 4096.
    pub len: Bits<13>,
}

/// What the receive parser found in a frame that it lets through.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct RxHead {
    /// BTH opcode.
    pub opcode: Bits<8>,
    /// Solicited event.
    pub solicited: Bit,
    /// AckReq.
    pub ack_req: Bit,
    /// Pad count.
    pub pad: Bits<2>,
    /// Destination QPN.
    pub qpn: Bits<24>,
    /// PSN.
    pub psn: Bits<24>,
    /// RETH virtual address; valid for opcodes with a RETH.
    pub va: Bits<64>,
    /// RETH remote key.
    pub rkey: Bits<32>,
    /// RETH length, bytes.
    pub dma_len: Bits<32>,
    /// AETH syndrome; valid for opcodes with an AETH.
    pub syndrome: Bits<8>,
    /// AETH MSN.
    pub msn: Bits<24>,
    /// Immediate; valid for opcodes with ImmDt.
    pub imm: Bits<32>,
    /// Payload bytes without pad, 0 to 4096.
    pub len: Bits<13>,
    /// Byte of the first payload line at which the payload begins. The number of payload lines
    /// is `ceil((offset + len) / 64)`, or 0 without payload.
    pub offset: Bits<6>,
    /// The frame is IPv6.
    pub ipv6: Bit,
    /// Source address in wire order, first byte in bits 7:0; an IPv4 address is in the last four bytes, the others 0.
    pub source_ip: Bits<128>,
}

/// The context of a QP as the command processor broadcasts it; every table takes what it needs.
/// Bytes of multi-byte addresses are in wire order, first byte in the lowest bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct QpContext {
    /// [`verbena_abi::queue::QpState`].
    pub state: Bits<3>,
    /// [`verbena_abi::queue::qp_flags`].
    pub flags: Bits<3>,
    /// [`verbena_abi::queue::access`].
    pub access: Bits<4>,
    /// Path MTU code, 1 to 5.
    pub mtu: Bits<3>,
    /// Protection domain.
    pub pd: Bits<16>,
    /// Time to live or hop limit.
    pub ttl: Bits<8>,
    /// Type of service or traffic class.
    pub traffic_class: Bits<8>,
    /// CQ of the send queue.
    pub send_cqn: Bits<16>,
    /// QPN of the peer.
    pub remote_qpn: Bits<24>,
    /// First PSN to send.
    pub sq_psn: Bits<24>,
    /// First PSN to expect.
    pub rq_psn: Bits<24>,
    /// UDP source port.
    pub source_port: Bits<16>,
    /// 802.1Q tag control information.
    pub vlan_tci: Bits<16>,
    /// Station address of the peer.
    pub remote_mac: Bits<48>,
    /// P_Key.
    pub pkey: Bits<16>,
    /// IP address of the peer, as in [`RxHead::source_ip`].
    pub remote_ip: Bits<128>,
    /// Send queue, address of slot 0.
    pub sq_address: Bits<64>,
    /// Where progress is written.
    pub progress_address: Bits<64>,
    /// log2 of the send queue's slots.
    pub sq_log_depth: Bits<4>,
    /// Local ACK timeout, exponent; 0: off.
    pub ack_timeout: Bits<5>,
    /// Retries after it.
    pub retry_count: Bits<3>,
}

/// A write of a QP's context into all tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct QpWrite {
    /// Write now.
    pub valid: Bit,
    /// Which QP.
    pub qpn: Qpn,
    /// The transition is to RTR: responder state starts from `rq_psn`.
    pub start_rx: Bit,
    /// The transition is to RTS: requester state starts from `sq_psn`.
    pub start_tx: Bit,
    /// The QP starts from nothing (create or to RESET): all state is cleared.
    pub clear: Bit,
    /// The context.
    pub context: QpContext,
}

/// A memory region as the key check sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct MrEntry {
    /// In use.
    pub valid: Bit,
    /// Changing part of the key.
    pub tag: Bits<8>,
    /// Protection domain.
    pub pd: Bits<16>,
    /// [`verbena_abi::queue::access`].
    pub access: Bits<4>,
    /// Address of the first byte as consumers and peers name it.
    pub base: Bits<64>,
    /// Bytes.
    pub len: Bits<64>,
    /// What to add to such an address to get the bus address, modulo 2^64.
    pub delta: Bits<64>,
}

/// A write of a memory region into all tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct MrWrite {
    /// Write now.
    pub valid: Bit,
    /// Which region.
    pub index: MrIndex,
    /// The region.
    pub entry: MrEntry,
}

/// What the responder wants sent: an acknowledgement or a NAK.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AckReq {
    /// The QP that answers.
    pub qpn: Qpn,
    /// PSN to acknowledge or to refuse.
    pub psn: Bits<24>,
    /// AETH syndrome.
    pub syndrome: Bits<8>,
    /// Messages completed.
    pub msn: Bits<24>,
}

/// An acknowledgement that arrived for the requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct AckIn {
    /// The QP that sent the request.
    pub qpn: Qpn,
    /// PSN acknowledged or refused.
    pub psn: Bits<24>,
    /// AETH syndrome.
    pub syndrome: Bits<8>,
}

/// What the transmitter builds one packet from.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct PacketDesc {
    /// The QP that sends.
    pub qpn: Qpn,
    /// BTH opcode.
    pub opcode: Bits<8>,
    /// Solicited event.
    pub solicited: Bit,
    /// AckReq.
    pub ack_req: Bit,
    /// PSN.
    pub psn: Bits<24>,
    /// RETH virtual address.
    pub va: Bits<64>,
    /// RETH remote key.
    pub rkey: Bits<32>,
    /// RETH length, bytes.
    pub dma_len: Bits<32>,
    /// A RETH follows the BTH.
    pub has_reth: Bit,
    /// An AETH follows the BTH: syndrome in bits 31:24 and MSN in bits 23:0 of `rkey`.
    pub has_aeth: Bit,
    /// Payload bytes, 0 to 4096.
    pub len: Bits<13>,
    /// Nothing is sent: the request was refused. Keeps the count of finished requests true.
    pub is_void: Bit,
    /// Last packet of its request.
    pub ends_request: Bit,
}

/// A send queue's doorbell.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SqBell {
    /// Queue pair.
    pub qpn: Qpn,
    /// Free-running producer index.
    pub index: Bits<16>,
}

/// Requests on their way from a send queue: `count` entries from `index` on are being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Fetch {
    /// Queue pair.
    pub qpn: Qpn,
    /// Index of the first.
    pub index: Bits<16>,
    /// How many, 1 to 8.
    pub count: Bits<4>,
    /// Each has two lines.
    pub two_units: Bit,
    /// Nothing is posted behind them.
    pub is_tail: Bit,
}

/// A turn that ended before what was fetched for it: fetching goes on at `index`.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Rewind {
    /// Queue pair.
    pub qpn: Qpn,
    /// The request to fetch next.
    pub index: Bits<16>,
    /// It is a long one, of which a part is sent: only this one is fetched, and nothing more until the next such report.
    pub is_long: Bit,
}

/// Where a queue pair begins to send again. Nothing of it is issued anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Restart {
    /// Queue pair.
    pub qpn: Qpn,
    /// The oldest request that is not done.
    pub index: Bits<16>,
    /// The oldest PSN that is not acknowledged, in this request.
    pub psn: Bits<24>,
    /// PSN behind this request.
    pub end_psn: Bits<24>,
}

/// A request is done: what comes behind it. Known before its completion can be seen, or its slot be used anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Retired {
    /// This is one.
    pub valid: Bit,
    /// Queue pair.
    pub qpn: Qpn,
    /// Index of the request behind it.
    pub index: Bits<16>,
    /// PSN behind it.
    pub psn: Bits<24>,
}

/// An acknowledgement is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Asked {
    /// It is.
    pub valid: Bit,
    /// Queue pair.
    pub qpn: Qpn,
    /// PSN behind the packet that asks: all before it are waited for.
    pub psn: Bits<24>,
}

/// A queue pair's oldest unacknowledged PSN has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Unacked {
    /// It has.
    pub valid: Bit,
    /// Queue pair.
    pub qpn: Qpn,
    /// The PSN.
    pub psn: Bits<24>,
    /// Its requester has failed.
    pub is_dead: Bit,
    /// It begins anew, by a command.
    pub is_new: Bit,
}

/// A scatter/gather entry with the request that it belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct SgeItem {
    /// Queue pair.
    pub qpn: Qpn,
    /// Index of the request.
    pub index: Bits<16>,
    /// Success makes a completion entry.
    pub signaled: Bit,
    /// An acknowledgement is asked for: somebody waits for this request.
    pub asks_ack: Bit,
    /// Solicited event.
    pub solicited: Bit,
    /// The request is malformed; there is no entry.
    pub is_bad: Bit,
    /// The bytes stand in the request itself: `len` of them, without address and key. Their lines go by another way.
    pub is_inline: Bit,
    /// There is an entry (a request may have none).
    pub has_sge: Bit,
    /// Last item of the request.
    pub last: Bit,
    /// Remote virtual address.
    pub remote_va: Bits<64>,
    /// Remote key.
    pub rkey: Bits<32>,
    /// Address of the entry.
    pub va: Bits<64>,
    /// Bytes of the entry.
    pub len: Bits<32>,
    /// Local key of the entry.
    pub lkey: Bits<32>,
}

/// A range of local memory, checked and translated, or inline data.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Piece {
    /// Inline data: there is no address.
    pub is_inline: Bit,
    /// Bus address.
    pub addr: Bits<64>,
    /// Bytes, at least 1.
    pub len: Bits<32>,
}

/// A request whose pieces are all checked; they precede it on the piece stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct WqeHead {
    /// Queue pair.
    pub qpn: Qpn,
    /// Index of the request.
    pub index: Bits<16>,
    /// Success makes a completion entry.
    pub signaled: Bit,
    /// An acknowledgement is asked for.
    pub asks_ack: Bit,
    /// Solicited event.
    pub solicited: Bit,
    /// [`verbena_abi::queue::CqeStatus`]: other than success, nothing is sent.
    pub status: Bits<4>,
    /// Number of pieces.
    pub pieces: Bits<3>,
    /// Bytes of all pieces; at most 2^31 when `status` is success.
    pub len: Bits<32>,
    /// Remote virtual address.
    pub remote_va: Bits<64>,
    /// Remote key.
    pub rkey: Bits<32>,
    /// Path MTU code.
    pub mtu: Bits<3>,
    /// Bytes of headers before extension headers: 54, 58, 74 or 78.
    pub header_len: Bits<7>,
}

/// A request that got its PSNs, for the requester's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Issue {
    /// Queue pair.
    pub qpn: Qpn,
    /// Index of the request.
    pub index: Bits<16>,
    /// PSN of its last packet; if refused, of the last packet before it.
    pub last_psn: Bits<24>,
    /// Success makes a completion entry.
    pub signaled: Bit,
    /// [`verbena_abi::queue::CqeStatus`].
    pub status: Bits<4>,
    /// It is refused, and the last packet before it did not ask for an acknowledgement.
    pub is_unasked: Bit,
}

/// Finished headers of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Header {
    /// The headers in wire order, first byte in the lowest bits; zero behind them.
    pub bytes: Bits<752>,
    /// Bytes of the headers, 54 to 94; never a multiple of 4, so never 64.
    pub len: Bits<7>,
    /// Bytes of payload.
    pub payload: Bits<13>,
    /// Bytes of pad.
    pub pad: Bits<2>,
    /// IPv6, not IPv4.
    pub ipv6: Bit,
    /// With a tag.
    pub vlan: Bit,
}

/// A beat of a frame on its way through the ICRC stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct FrameBeat {
    /// 64 bytes; the ICRC's are zero.
    pub data: Bits<512>,
    /// Bytes that count, 1 to 64; 64 on every beat but the last.
    pub bytes: Bits<7>,
    /// Last beat of the frame.
    pub last: Bit,
    /// First beat of the frame.
    pub first: Bit,
    /// Second beat of the frame.
    pub second: Bit,
    /// The last byte that the ICRC covers is in this beat.
    pub ends_icrc: Bit,
    /// Bytes of this beat that it covers, modulo 64, if so.
    pub covered: Bits<6>,
    /// IPv6, not IPv4.
    pub ipv6: Bit,
    /// With a tag.
    pub vlan: Bit,
}

/// A part of a packet's payload to be gathered.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct GatherReq {
    /// Not from memory, but the next lines of inline data, from byte 0 of the first one on.
    pub is_inline: Bit,
    /// These lines are thrown away: they are of a request that is not sent.
    pub is_void: Bit,
    /// Bus address.
    pub addr: Bits<64>,
    /// Bytes, 1 to 4096.
    pub len: Bits<13>,
    /// First part: payload begins at `offset` of the packet's first line.
    pub first: Bit,
    /// Byte of the line.
    pub offset: Bits<6>,
    /// Last part of the packet.
    pub last: Bit,
}

/// A completion for the CQ writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CqeReq {
    /// Completion queue.
    pub cqn: Cqn,
    /// Queue pair.
    pub qpn: Qpn,
    /// Index of the request.
    pub index: Bits<16>,
    /// [`verbena_abi::queue::CqeStatus`].
    pub status: Bits<8>,
    /// [`verbena_abi::queue::WqeOp`].
    pub opcode: Bits<8>,
    /// AETH syndrome, or 0.
    pub syndrome: Bits<8>,
}

/// An event for the event writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct EventReq {
    /// Number of the queue or tag of the command.
    pub number: Bits<16>,
    /// [`verbena_abi::queue::EventKind`].
    pub kind: Bits<8>,
    /// Code.
    pub code: Bits<8>,
}

/// A write to BAR0.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct BarWrite {
    /// Byte offset; the last two bits do not count.
    pub offset: BarOffset,
    /// The four bytes.
    pub value: Bits<32>,
}

/// A doorbell of a completion queue: new consumer index, arm, or moderation.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CqBell {
    /// Which CQ.
    pub cqn: Cqn,
    /// Consumer index up to which the driver has seen entries.
    pub index: Bits<24>,
    /// [`verbena_abi::regs::ArmKind`]; 0 unless `is_arm`.
    pub kind: Bits<2>,
    /// It arms; otherwise it frees entries, or moderates.
    pub is_arm: Bit,
    /// It moderates: `index` is the interval, and this is the count.
    pub is_moderation: Bit,
    /// As [`verbena_abi::regs::Moderation`] has it.
    pub count: Bits<16>,
}

/// An event of a completion queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CqEvent {
    /// Which CQ.
    pub cqn: Cqn,
    /// The CQ is dead; otherwise its arm is satisfied.
    pub is_overrun: Bit,
    /// Index of the entry that satisfied the arm, or of the first one that was not seen when it was armed.
    pub index: Bits<24>,
}

/// How a completion queue's events are moderated from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CqModeration {
    /// Write now.
    pub valid: Bit,
    /// Which CQ.
    pub cqn: Cqn,
    /// Microseconds.
    pub interval: Bits<16>,
    /// Completions.
    pub count: Bits<16>,
}

/// An entry of a completion queue is visible to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CqVisible {
    /// One is.
    pub valid: Bit,
    /// Which CQ.
    pub cqn: Cqn,
    /// Index behind it.
    pub index: Bits<24>,
}

/// A completion queue as the CQ writer sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CqEntry {
    /// In use.
    pub valid: Bit,
    /// Address of entry 0, 64-byte aligned.
    pub address: Bits<64>,
    /// log2 of the number of entries.
    pub log_depth: Bits<5>,
}

/// A write of a completion queue into all tables; its state starts from nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct CqWrite {
    /// Write now.
    pub valid: Bit,
    /// Which CQ.
    pub cqn: Cqn,
    /// The queue.
    pub entry: CqEntry,
}

/// A send queue's progress for the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, LogicStruct)]
pub struct Progress {
    /// Where the host wants it.
    pub addr: Bits<64>,
    /// Index of the oldest request that is not done.
    pub index: Bits<16>,
}
