//! What lies in host memory and in the command window: little-endian, sizes asserted.

use core::mem::size_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits;

/// A byte that is none of an enumeration's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownCode(pub u8);

macro_rules! code {
    ($(#[doc = $doc:literal])+ $name:ident { $( $(#[doc = $vdoc:literal])+ $variant:ident = $value:literal, )+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $( $(#[doc = $vdoc])+ $variant = $value, )+ }
        impl $name {
            /// All values with their meaning, for the documentation.
            pub const ALL: &'static [($name, &'static str, &'static str)] =
                &[ $( ($name::$variant, stringify!($variant), concat!($($vdoc),+)), )+ ];
        }
        impl TryFrom<u8> for $name {
            type Error = UnknownCode;
            fn try_from(raw: u8) -> Result<Self, UnknownCode> {
                match raw { $( $value => Ok($name::$variant), )+ other => Err(UnknownCode(other)) }
            }
        }
    };
}
pub(crate) use code;

/// Bytes of one unit of a send queue.
pub const SQ_UNIT: usize = 64;

code! {
    /// Operation of a send request.
    WqeOp {
        /// RDMA WRITE.
        Write = 1,
    }
}

/// Flags of a send request.
pub mod wqe_flags {
    /// Success makes a completion entry. Errors and cancellation always make one.
    pub const SIGNALED: u8 = 1 << 0;
    /// The peer's completion is a solicited one (requests that make one there).
    pub const SOLICITED: u8 = 1 << 1;
    /// Wait for earlier READs of this QP.
    pub const FENCE: u8 = 1 << 2;
}

/// A scatter/gather entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Sge {
    /// First byte, as an address of the region.
    pub va: U64,
    /// Bytes; 0 is legal and takes part in nothing, not even the key check.
    pub len_bytes: U32,
    /// Local key of the region.
    pub lkey: U32,
}
const _: () = assert!(size_of::<Sge>() == limits::SGE_BYTES);

/// First unit of a send request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SqWqe {
    /// A [`WqeOp`].
    pub opcode: u8,
    /// Bits of [`wqe_flags`].
    pub flags: u8,
    /// Number of entries in use, 0 to [`limits::MAX_SGES`]; 0 with inline data.
    pub sges: u8,
    /// Bytes of inline data, which stand in the place of the entries and go on in the second unit:
    /// 0 to [`limits::INLINE_ONE_UNIT`], or to [`limits::MAX_INLINE`] with two units.
    pub inline_bytes: u8,
    /// 0.
    pub reserved0: [u8; 4],
    /// Remote virtual address.
    pub remote_va: U64,
    /// Remote key.
    pub rkey: U32,
    /// 0.
    pub reserved1: [u8; 12],
    /// Entries 0 and 1.
    pub sge: [Sge; limits::SGES_ONE_UNIT],
}
const _: () = assert!(size_of::<SqWqe>() == SQ_UNIT);

impl SqWqe {
    /// Returns the request as the words in memory that its bytes are. Field by field, so that a compiler keeps a request that it has
    /// just made in registers.
    #[inline]
    pub fn words(&self) -> [u64; SQ_UNIT / 8] {
        let [r0, r1, r2, r3] = self.reserved0;
        let [k0, k1, k2, k3] = self.rkey.to_bytes();
        let [p0, p1, p2, p3, q0, q1, q2, q3, q4, q5, q6, q7] = self.reserved1;
        let lengths = self.sge.map(|sge| {
            let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (sge.len_bytes.to_bytes(), sge.lkey.to_bytes());
            [a0, a1, a2, a3, b0, b1, b2, b3]
        });
        [
            [self.opcode, self.flags, self.sges, self.inline_bytes, r0, r1, r2, r3],
            self.remote_va.to_bytes(),
            [k0, k1, k2, k3, p0, p1, p2, p3],
            [q0, q1, q2, q3, q4, q5, q6, q7],
            self.sge[0].va.to_bytes(),
            lengths[0],
            self.sge[1].va.to_bytes(),
            lengths[1],
        ]
        .map(u64::from_ne_bytes)
    }
}

/// Second unit of a send request, of QPs whose requests have two units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SqWqeMore {
    /// Entries 2 to 5.
    pub sge: [Sge; limits::MAX_SGES - limits::SGES_ONE_UNIT],
}
const _: () = assert!(size_of::<SqWqeMore>() == SQ_UNIT);

code! {
    /// Result of a request. The numbers are those of the InfiniBand verbs (`ibv_wc_status`).
    CqeStatus {
        /// The request is done and acknowledged.
        Success = 0,
        /// Message longer than the limit.
        LocalLength = 1,
        /// The entry is malformed: opcode, flags, number of SGEs or bytes of inline data.
        LocalOperation = 2,
        /// A local key is not valid, of another PD, or the range is outside the region.
        LocalProtection = 4,
        /// Cancelled: the QP is in error.
        Flushed = 5,
        /// The peer's NAK: invalid request.
        RemoteInvalidRequest = 9,
        /// The peer's NAK: remote access error.
        RemoteAccess = 10,
        /// The peer's NAK: remote operational error.
        RemoteOperation = 11,
        /// No acknowledgement after the last retry.
        RetryExceeded = 12,
        /// The peer had no receive request after the last retry.
        RnrRetryExceeded = 13,
    }
}

/// Bit of [`Cqe::phase`] and [`Eqe::phase`] that tells a new entry from an old one.
pub const PHASE: u8 = 1;

/// A completion queue entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Cqe {
    /// Queue pair, 24 bits.
    pub qpn: U32,
    /// Free-running index of the request in its send queue. All earlier requests of the queue
    /// are done too, so it frees their slots.
    pub wqe_index: U16,
    /// A [`CqeStatus`].
    pub status: u8,
    /// A [`WqeOp`].
    pub opcode: u8,
    /// AETH syndrome that caused the status, or 0.
    pub syndrome: u8,
    /// 0.
    pub reserved: [u8; 22],
    /// [`PHASE`] as [`crate::arith::Ring::phase`] gives it; other bits 0.
    pub phase: u8,
}
const _: () = assert!(size_of::<Cqe>() == 32);

code! {
    /// What an event tells.
    EventKind {
        /// An armed CQ has a completion of the kind that was asked for. `number` is the CQN.
        Completion = 1,
        /// A command is done. `number` is its tag, `code` a [`CommandCode`].
        Command = 2,
        /// A CQ was full: it and its QPs are dead. `number` is the CQN.
        CqOverrun = 3,
        /// A QP refused a request of its peer and is in error. `number` is the QPN, `code` the NAK syndrome.
        QpAccess = 4,
        /// A QP's requester is in error. `number` is the QPN, `code` the [`CqeStatus`].
        QpFatal = 5,
    }
}

/// An event queue entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Eqe {
    /// Number of the queue, or tag of the command.
    pub number: U32,
    /// An [`EventKind`].
    pub kind: u8,
    /// Depends on the kind.
    pub code: u8,
    /// 0.
    pub reserved: [u8; 25],
    /// [`PHASE`] as [`crate::arith::Ring::phase`] gives it; other bits 0.
    pub phase: u8,
}
const _: () = assert!(size_of::<Eqe>() == 32);

/// What the card writes to the progress address of a QP: the free-running index of the oldest
/// request that is not done, so that silent requests free their slots. The card writes it when the
/// last request that is done was silent, and once in 16,384 requests in any case, so it is never a lap
/// of its 16 bits old. It stops before a request that failed or was flushed: what is behind it is known
/// by completion entries alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SqProgress {
    /// Index, bits 15:0.
    pub consumer: U32,
}
const _: () = assert!(size_of::<SqProgress>() == 4);

code! {
    /// A command.
    CommandOp {
        /// Creates a QP in the state and with the attributes of [`CmdQp`]: RESET or INIT.
        CreateQp = 1,
        /// Changes state and attributes of a QP to those of [`CmdQp`].
        ModifyQp = 2,
        /// Reports what the card knows of a QP; `CmdResult` then holds a [`QueryQpResult`].
        QueryQp = 3,
        /// Removes a QP. Done when nothing of it is under way in the card.
        DestroyQp = 4,
        /// Creates a CQ, see [`CmdCq`].
        CreateCq = 5,
        /// Removes a CQ.
        DestroyCq = 6,
        /// Registers a memory region, see [`CmdMr`].
        CreateMr = 7,
        /// Removes a memory region. Done when no access through it is under way in the card.
        DestroyMr = 8,
        /// Reports whether a CQ exists; `CmdResult` then holds a [`QueryCqResult`].
        QueryCq = 9,
        /// Reports whether a region exists; `CmdResult` word 0 is 1 or 0.
        QueryMr = 10,
    }
}

code! {
    /// Result of a command. Any but `Ok` has changed nothing.
    CommandCode {
        /// Done.
        Ok = 0,
        /// No such command.
        BadOpcode = 1,
        /// QPN, CQN or region index out of range: too high, a QPN below [`limits::FIRST_QPN`], region 0.
        BadIndex = 2,
        /// Not allowed in the QP's state.
        BadState = 3,
        /// The number is taken.
        InUse = 4,
        /// The number is not taken.
        NotInUse = 5,
        /// An argument is out of range.
        BadParameter = 6,
    }
}

code! {
    /// State of a QP (IBTA vol. 1, 10.3).
    QpState {
        /// Exists, does nothing.
        Reset = 0,
        /// May be given receives, does nothing.
        Init = 1,
        /// Answers requests.
        Rtr = 2,
        /// Answers and sends.
        Rts = 3,
        /// Dead: everything posted is flushed.
        Error = 6,
    }
}

/// Access rights, of a region and of a QP.
pub mod access {
    /// The card may write (local destination). A local source needs no right.
    pub const LOCAL_WRITE: u8 = 1 << 0;
    /// The peer may write.
    pub const REMOTE_WRITE: u8 = 1 << 1;
    /// The peer may read.
    pub const REMOTE_READ: u8 = 1 << 2;
    /// The peer may do atomics.
    pub const REMOTE_ATOMIC: u8 = 1 << 3;
}

/// Flags of [`CmdQp`].
pub mod qp_flags {
    /// Peer and own address are IPv6.
    pub const IPV6: u8 = 1 << 0;
    /// Frames carry an 802.1Q tag.
    pub const VLAN: u8 = 1 << 1;
    /// Send requests have two units (128 bytes).
    pub const TWO_UNITS: u8 = 1 << 2;
}

/// Arguments of create, modify, query and destroy of a QP: the whole context. Query and destroy look at `qpn` alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CmdQp {
    /// Word 0: queue pair number.
    pub qpn: U32,
    /// Word 1, bits 7:0: a [`QpState`].
    pub state: u8,
    /// Bits 15:8: bits of [`qp_flags`].
    pub flags: u8,
    /// Bits 23:16: bits of [`access`] that the peer has.
    pub access: u8,
    /// Bits 31:24: path MTU, 1 to 5 for 256 to 4096 bytes (the verbs enumeration).
    pub mtu: u8,
    /// Word 2: protection domain.
    pub pd: U16,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Type of service, or traffic class.
    pub traffic_class: u8,
    /// Word 3: CQ of the send queue.
    pub send_cqn: U16,
    /// CQ of the receive queue.
    pub receive_cqn: U16,
    /// Word 4: QPN of the peer.
    pub remote_qpn: U32,
    /// Word 5: first PSN to send.
    pub sq_psn: U32,
    /// Word 6: first PSN to expect.
    pub rq_psn: U32,
    /// Word 7: UDP source port, C000 to FFFF.
    pub source_port: U16,
    /// 802.1Q tag control information.
    pub vlan_tci: U16,
    /// Words 8 and 9: station address of the peer or of the next hop, byte 0 first.
    pub remote_mac: [u8; 6],
    /// P_Key.
    pub pkey: U16,
    /// Words 10 to 13: IP address of the peer, first byte first; an IPv4 address is in the last four, the others 0.
    pub remote_ip: [u8; 16],
    /// Words 14 and 15: send queue, address of slot 0; 64-byte aligned.
    pub sq_address: U64,
    /// Words 16 and 17: where the card writes [`SqProgress`]; 4-byte aligned.
    pub progress_address: U64,
    /// Word 18: log2 of the slots of the send queue.
    pub sq_log_depth: u8,
    /// Local ACK timeout exponent, 0 to 31: 4.096 us times two to that power (IBTA vol. 1, 9.7.6.1.3); 0: off.
    pub timeout: u8,
    /// Times that the card sends again without progress, 0 to 7, before it gives up.
    pub retry_count: u8,
    /// RNR retries, 0 to 7; 7: without end.
    pub rnr_retry: u8,
    /// 0.
    pub reserved: [U32; 13],
}
const _: () = assert!(size_of::<CmdQp>() == 128);

/// Arguments of create, query and destroy of a CQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CmdCq {
    /// Word 0: completion queue number.
    pub cqn: U32,
    /// Word 1: log2 of the number of entries.
    pub log_depth: u8,
    /// 0.
    pub reserved0: [u8; 3],
    /// Words 2 and 3: address of entry 0; 64-byte aligned.
    pub address: U64,
    /// 0.
    pub reserved: [U32; 28],
}
const _: () = assert!(size_of::<CmdCq>() == 128);

/// Arguments of create, query and destroy of a memory region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CmdMr {
    /// Word 0: key: index in bits 31:8, in bits 7:0 a part that changes at each registration. Query and destroy look at it alone.
    pub key: U32,
    /// Word 1: protection domain.
    pub pd: U16,
    /// Bits of [`access`].
    pub access: u8,
    /// 0.
    pub reserved0: u8,
    /// Words 2 and 3: address of the first byte as consumers and peers name it.
    pub base_va: U64,
    /// Words 4 and 5: bytes.
    pub len_bytes: U64,
    /// Words 6 and 7: address of the first byte on the bus.
    pub iova: U64,
    /// 0.
    pub reserved: [U32; 24],
}
const _: () = assert!(size_of::<CmdMr>() == 128);

/// What a query of a QP reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct QueryQpResult {
    /// Word 0: a [`QpState`]; errors that the card found by itself included.
    pub state: U32,
    /// Word 1: PSN of the next new request packet.
    pub next_psn: U32,
    /// Word 2: oldest unacknowledged PSN.
    pub unacked_psn: U32,
    /// Word 3: next PSN expected from the peer.
    pub expected_psn: U32,
    /// Word 4: message sequence number.
    pub msn: U32,
    /// Word 5: producer index of the send queue, as rung.
    pub sq_producer: U32,
    /// Word 6: index of the next request to fetch.
    pub sq_fetched: U32,
    /// Word 7: index of the oldest request that is not done.
    pub sq_consumer: U32,
}
const _: () = assert!(size_of::<QueryQpResult>() == 32);

/// What a query of a CQ reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct QueryCqResult {
    /// Word 0: 0 not in use, 1 in use, 2 overrun.
    pub state: U32,
    /// Word 1: producer index.
    pub producer: U32,
    /// Word 2: consumer index, as last rung.
    pub consumer: U32,
    /// 0.
    pub reserved: [U32; 5],
}
const _: () = assert!(size_of::<QueryCqResult>() == 32);

/// A memory key: index and the part that changes at each registration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key(pub u32);

impl Key {
    /// Bits of the part that changes.
    pub const TAG_BITS: usize = 8;

    /// Returns the key of region `index` with the changing part `tag`.
    pub const fn new(index: u32, tag: u8) -> Self {
        Self((index << Self::TAG_BITS) | tag as u32)
    }

    /// Returns the index of the region.
    pub const fn index(self) -> u32 {
        self.0 >> Self::TAG_BITS
    }

    /// Returns the part that changes.
    pub const fn tag(self) -> u8 {
        self.0 as u8
    }
}

/// Returns the bytes of a path MTU code, or nothing if there is no such code.
pub const fn mtu_bytes(code: u8) -> Option<u32> {
    match code {
        1..=5 => Some(128 << code),
        _ => None,
    }
}

/// Returns the code of a path MTU in bytes, or nothing if there is no such MTU.
pub const fn mtu_code(bytes: u32) -> Option<u8> {
    match bytes {
        256 => Some(1),
        512 => Some(2),
        1024 => Some(3),
        2048 => Some(4),
        4096 => Some(5),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_bytes_where_the_layout_says() {
        let wqe = SqWqe {
            opcode: WqeOp::Write as u8,
            flags: wqe_flags::SIGNALED,
            sges: 2,
            remote_va: 0x1122_3344_5566_7788.into(),
            rkey: 0xAABB_CCDD.into(),
            sge: [
                Sge { va: 0x10.into(), len_bytes: 0x20.into(), lkey: 0x30.into() },
                Sge { va: 0x40.into(), len_bytes: 0x50.into(), lkey: 0x60.into() },
            ],
            ..Default::default()
        };
        let bytes = wqe.as_bytes();
        assert_eq!(bytes[..3], [1, 1, 2]);
        assert_eq!(bytes[8..20], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xDD, 0xCC, 0xBB, 0xAA]);
        assert_eq!((bytes[32], bytes[40], bytes[44], bytes[48], bytes[56], bytes[60]), (0x10, 0x20, 0x30, 0x40, 0x50, 0x60));
        assert_eq!(SqWqe::read_from_bytes(bytes).unwrap(), wqe);
    }

    #[test]
    fn the_words_of_a_request_are_its_bytes() {
        let bytes: [u8; SQ_UNIT] = core::array::from_fn(|index| index as u8 + 1);
        let wqe = SqWqe::read_from_bytes(&bytes).unwrap();
        assert_eq!(wqe.words().as_bytes(), bytes);
    }

    #[test]
    fn an_entry_ends_with_its_phase() {
        let cqe = Cqe { qpn: 5.into(), wqe_index: 0x0102.into(), status: 10, opcode: 1, phase: 1, ..Default::default() };
        let bytes = cqe.as_bytes();
        assert_eq!(bytes[..8], [5, 0, 0, 0, 2, 1, 10, 1]);
        assert_eq!(bytes[31], 1);
        let eqe = Eqe { number: 7.into(), kind: 2, code: 3, phase: 1, ..Default::default() };
        assert_eq!(eqe.as_bytes()[..6], [7, 0, 0, 0, 2, 3]);
        assert_eq!(eqe.as_bytes()[31], 1);
    }

    #[test]
    fn a_context_has_its_words_where_the_comments_say() {
        let qp = CmdQp {
            qpn: 1.into(),
            state: 3,
            flags: 4,
            access: 2,
            mtu: 5,
            pd: 6.into(),
            sq_psn: 0x55.into(),
            pkey: 0xFFFF.into(),
            remote_ip: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2],
            sq_address: 0x40.into(),
            progress_address: 0x80.into(),
            sq_log_depth: 9,
            ..Default::default()
        };
        let bytes = qp.as_bytes();
        assert_eq!(bytes[4..8], [3, 4, 2, 5]);
        assert_eq!((bytes[8], bytes[20]), (6, 0x55));
        assert_eq!(bytes[38..40], [0xFF, 0xFF]);
        assert_eq!(bytes[52..56], [10, 0, 0, 2]);
        assert_eq!((bytes[56], bytes[64], bytes[72]), (0x40, 0x80, 9));
    }

    #[test]
    fn codes_come_back_from_their_bytes_and_others_do_not() {
        for (state, _, _) in QpState::ALL {
            assert_eq!(QpState::try_from(*state as u8), Ok(*state));
        }
        assert_eq!(QpState::try_from(4), Err(UnknownCode(4)));
        assert_eq!(CqeStatus::try_from(3), Err(UnknownCode(3)));
    }

    #[test]
    fn mtu_codes_and_bytes_belong_together() {
        for code in 0..=255 {
            if let Some(bytes) = mtu_bytes(code) {
                assert_eq!(mtu_code(bytes), Some(code));
            }
        }
        assert_eq!(mtu_bytes(5), Some(4096));
        assert_eq!(mtu_code(1500), None);
    }

    #[test]
    fn a_key_is_index_and_tag() {
        let key = Key::new(3, 0xA5);
        assert_eq!((key.0, key.index(), key.tag()), (0x3A5, 3, 0xA5));
    }
}
