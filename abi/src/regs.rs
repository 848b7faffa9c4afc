//! BAR0, register by register, in address order; doorbell pages above.
//!
//! The table [`BAR0`] is walked by the generated documentation and by the register test; the
//! constants are what hardware and driver use.

use crate::limits;
use crate::stages::Stage;

/// What a write or a read of a register does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads give the value, writes are ignored.
    Ro,
    /// Reads give what was written.
    Rw,
    /// Writes act, reads give 0.
    Wo,
}

/// A field of a register: bits `hi..=lo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name, as in the documentation.
    pub name: &'static str,
    /// What it means.
    pub doc: &'static str,
    /// Highest bit.
    pub hi: u8,
    /// Lowest bit.
    pub lo: u8,
}

impl Field {
    /// Returns the width in bits.
    pub const fn width(self) -> usize {
        (self.hi - self.lo + 1) as usize
    }

    /// Returns the largest value that fits.
    pub const fn max(self) -> u32 {
        if self.width() == 32 {
            u32::MAX
        } else {
            (1 << self.width()) - 1
        }
    }

    /// Returns the field's value in `raw`.
    pub const fn get(self, raw: u32) -> u32 {
        (raw >> self.lo) & self.max()
    }

    /// Returns `value` at its place, cut to the field's width.
    pub const fn place(self, value: u32) -> u32 {
        (value & self.max()) << self.lo
    }
}

/// A register as the documentation and the register test see it.
#[derive(Clone, Copy, Debug)]
pub struct RegisterInfo {
    /// Name, as in the code.
    pub name: &'static str,
    /// Byte offset in BAR0.
    pub offset: u32,
    /// Registers in a row, 4 bytes apart, that share this description.
    pub count: u32,
    /// What access does.
    pub access: Access,
    /// Value after reset.
    pub reset: u32,
    /// What it is for.
    pub doc: &'static str,
    /// Its fields; bits in none of them are reserved and read 0.
    pub fields: &'static [Field],
}

/// A register value under construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value(u32);

impl Value {
    /// Returns the value with `field` set to `value`.
    #[must_use]
    pub const fn with(self, field: Field, value: u32) -> Self {
        Self((self.0 & !(field.max() << field.lo)) | field.place(value))
    }

    /// Returns the 32 bits to write.
    pub const fn raw(self) -> u32 {
        self.0
    }
}

macro_rules! registers {
    ($(#[doc = $tdoc:literal])* $table:ident {
        $( $(#[doc = $doc:literal])+ $name:ident @ $offset:literal $([$count:expr])?, $access:ident, reset $reset:expr, {
            $( $(#[doc = $fdoc:literal])+ [$hi:literal : $lo:literal] $field:ident, )*
        } )*
    }) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug)]
            pub struct $name;
            impl $name {
                /// Byte offset in BAR0.
                pub const OFFSET: u32 = $offset;
                /// Value after reset.
                pub const RESET: u32 = $reset;
                $( $(#[doc = $fdoc])+ pub const $field: Field = Field {
                    name: stringify!($field), doc: concat!($($fdoc),+), hi: $hi, lo: $lo,
                }; )*
                /// Returns the reset value, to be changed field by field.
                pub const fn reset() -> Value { Value(Self::RESET) }
            }
        )*
        $(#[doc = $tdoc])*
        pub static $table: &[RegisterInfo] = &[
            $( RegisterInfo {
                name: stringify!($name),
                offset: $offset,
                count: 1 $(* $count)?,
                access: Access::$access,
                reset: $reset,
                doc: concat!($($doc),+),
                fields: &[ $( $name::$field, )* ],
            }, )*
        ];
    };
}

registers! {
    /// Every register of BAR0 below the doorbell pages, in address order.
    BAR0 {
        /// Identity: the letters VRBN.
        Id @ 0x0000, Ro, reset 0x5652_424E, {
            /// Constant by which a driver knows the card.
            [31:0] MAGIC,
        }
        /// Version of this interface. Another major number is another interface.
        AbiVersion @ 0x0004, Ro, reset ((crate::ABI_VERSION.0 as u32) << 16) | crate::ABI_VERSION.1 as u32, {
            /// Major number.
            [31:16] MAJOR,
            /// Minor number: additions only.
            [15:0] MINOR,
        }
        /// State of the card.
        Status @ 0x0008, Ro, reset 0, {
            /// The tables are cleared and commands are taken.
            [0:0] READY,
            /// A host memory access came back with an error response since reset.
            [1:1] DMA_ERROR,
        }
        /// Queue pair numbers; those below 2 are not usable.
        CapQps @ 0x0020, Ro, reset limits::QPS as u32, {
            /// Number.
            [31:0] COUNT,
        }
        /// Completion queues.
        CapCqs @ 0x0024, Ro, reset limits::CQS as u32, {
            /// Number.
            [31:0] COUNT,
        }
        /// Memory regions; index 0 is not usable.
        CapMrs @ 0x0028, Ro, reset limits::MRS as u32, {
            /// Number.
            [31:0] COUNT,
        }
        /// Protection domains.
        CapPds @ 0x002C, Ro, reset limits::PDS as u32, {
            /// Number.
            [31:0] COUNT,
        }
        /// Queue depths.
        CapQueues @ 0x0030, Ro, reset ((limits::LOG_EQ_DEPTH as u32) << 24) | ((limits::LOG_CQ_DEPTH as u32) << 16) | ((limits::LOG_RQ_DEPTH as u32) << 8) | limits::LOG_SQ_DEPTH as u32, {
            /// log2 of the deepest send queue, requests.
            [7:0] LOG_SQ,
            /// log2 of the deepest receive queue, requests; 0: no receive queues. The driver keeps them and flushes them: this
            /// build executes no operation that takes a receive.
            [15:8] LOG_RQ,
            /// log2 of the deepest completion queue, entries.
            [23:16] LOG_CQ,
            /// log2 of the deepest event queue, entries.
            [31:24] LOG_EQ,
        }
        /// Scatter/gather entries of a request.
        CapSges @ 0x0034, Ro, reset ((limits::MAX_SGES as u32) << 8) | limits::MAX_SGES as u32, {
            /// Most in an initiator request.
            [7:0] INITIATOR,
            /// Most in a receive request.
            [15:8] RECEIVE,
            /// Most in a read request.
            [23:16] READ,
        }
        /// Inline data.
        CapInline @ 0x0038, Ro, reset limits::MAX_INLINE as u32, {
            /// Most bytes of inline data in a request.
            [31:0] BYTES,
        }
        /// Largest message.
        CapMessage @ 0x003C, Ro, reset limits::MAX_MESSAGE, {
            /// Bytes.
            [31:0] BYTES,
        }
        /// Largest path MTU.
        CapMtu @ 0x0040, Ro, reset limits::MAX_MTU as u32, {
            /// Bytes.
            [31:0] BYTES,
        }
        /// Interrupt vectors.
        CapVectors @ 0x0044, Ro, reset limits::VECTORS as u32, {
            /// Number.
            [31:0] COUNT,
        }
        /// RDMA READ and atomic requests under way.
        CapReads @ 0x0048, Ro, reset 0, {
            /// Most that a QP answers at once.
            [15:0] INBOUND,
            /// Most that a QP has outstanding.
            [31:16] OUTBOUND,
        }
        /// Clock of the core.
        CapClock @ 0x004C, Ro, reset limits::CLOCK_KHZ, {
            /// Kilohertz.
            [31:0] KHZ,
        }
        /// Station address, first four bytes: byte 0 of the address in bits 7:0.
        MacLo @ 0x0080, Rw, reset 0, {
            /// Bytes 0 to 3.
            [31:0] BYTES,
        }
        /// Station address, last two bytes.
        MacHi @ 0x0084, Rw, reset 0, {
            /// Bytes 4 and 5.
            [15:0] BYTES,
        }
        /// IPv4 address: first byte in bits 7:0.
        Ipv4 @ 0x0088, Rw, reset 0, {
            /// The four bytes.
            [31:0] BYTES,
        }
        /// IPv6 address, four bytes a register: first byte in bits 7:0 of the first.
        Ipv6 @ 0x0090 [4], Rw, reset 0, {
            /// Four bytes.
            [31:0] BYTES,
        }
        /// Event queue: address of entry 0, low half. 64-byte aligned.
        EqBaseLo @ 0x00A0, Rw, reset 0, {
            /// Bits 31 to 0 of the address.
            [31:0] ADDRESS,
        }
        /// Event queue: address of entry 0, high half.
        EqBaseHi @ 0x00A4, Rw, reset 0, {
            /// Bits 63 to 32 of the address.
            [31:0] ADDRESS,
        }
        /// Event queue: size and interrupt. Writing it starts the queue anew at index 0.
        EqConfig @ 0x00A8, Rw, reset 0, {
            /// log2 of the number of entries.
            [4:0] LOG_DEPTH,
            /// Interrupt vector raised after an entry is visible.
            [15:8] VECTOR,
            /// Entries are written.
            [31:31] ENABLE,
        }
        /// Event queue: free-running index of the next entry that the driver will read.
        EqConsumer @ 0x00AC, Rw, reset 0, {
            /// Index.
            [31:0] INDEX,
        }
        /// Counting of stages.
        StageControl @ 0x00C0, Rw, reset 0, {
            /// `Clocks`, `StageBeats` and `StageStalls` stand still. 64 clocks later they can be read as of one instant.
            [0:0] HOLD,
        }
        /// Clocks since reset without those under `StageControl.HOLD`, low 32 bits. A stage is idle in those that are neither beats nor stalls.
        Clocks @ 0x00C4, Ro, reset 0, {
            /// Count.
            [31:0] COUNT,
        }
        /// Counters since reset; they wrap. In the order of [`Counter`].
        Counters @ 0x0100 [Counter::COUNT as u32], Ro, reset 0, {
            /// Count.
            [31:0] COUNT,
        }
        /// Counters of 64 bits since reset, two registers each, the low word first. In the order of [`WideCounter`].
        WideCounters @ 0x0180 [2 * WideCounter::COUNT as u32], Ro, reset 0, {
            /// Half of a count.
            [31:0] WORD,
        }
        /// Clocks in which a stage moves something; they wrap. In the order of [`Stage`].
        StageBeats @ 0x0200 [Stage::COUNT as u32], Ro, reset 0, {
            /// Count.
            [31:0] COUNT,
        }
        /// Clocks in which a stage offers something that is not taken; they wrap. In the order of [`Stage`].
        StageStalls @ 0x0280 [Stage::COUNT as u32], Ro, reset 0, {
            /// Count.
            [31:0] COUNT,
        }
        /// Arguments of a command, laid out as the `Cmd…` structures of [`crate::queue`].
        CmdArgs @ 0x1000 [32], Rw, reset 0, {
            /// Four bytes of the argument structure.
            [31:0] WORD,
        }
        /// Starts the command whose arguments are in the window.
        CmdGo @ 0x1080, Wo, reset 0, {
            /// Command, see [`crate::queue::CommandOp`].
            [7:0] OPCODE,
            /// Any number; comes back in status and event.
            [31:16] TAG,
        }
        /// Result of the last command.
        CmdStatus @ 0x1084, Ro, reset 0, {
            /// The command is being executed. `CmdGo` written meanwhile is ignored and counted.
            [0:0] BUSY,
            /// Result, see [`crate::queue::CommandCode`].
            [15:8] CODE,
            /// Tag of the command.
            [31:16] TAG,
        }
        /// What a query command found, see `QueryQpResult` in [`crate::queue`].
        CmdResult @ 0x10A0 [8], Ro, reset 0, {
            /// Four bytes of the result structure.
            [31:0] WORD,
        }
    }
}

macro_rules! counters {
    ($(#[doc = $edoc:literal])+ $counter:ident in $registers:ident, $bytes:literal bytes {
        $( $(#[doc = $doc:literal])+ $name:ident, )*
    }) => {
        $(#[doc = $edoc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum $counter { $( $(#[doc = $doc])+ $name, )* }
        impl $counter {
            /// All of them, with what they mean.
            pub const ALL: &'static [($counter, &'static str, &'static str)] =
                &[ $( ($counter::$name, stringify!($name), concat!($($doc),+)), )* ];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();
            /// Returns the byte offset of the counter in BAR0.
            pub const fn offset(self) -> u32 { $registers::OFFSET + $bytes * self as u32 }
        }
    };
}

counters! {
    /// What the card counts, in the order of the `Counters` registers.
    Counter in Counters, 4 bytes {
        /// Frames from the MAC.
        RxFrames,
        /// Frames that parser and ICRC check let through, and for which there was room.
        RxAccepted,
        /// Frames dropped because the MAC marked them bad.
        RxBadFrame,
        /// Frames dropped because they are not RoCEv2 or not for this station.
        RxNotOurs,
        /// Frames dropped because a header or a length is malformed.
        RxMalformed,
        /// Frames dropped because opcode, version or P_Key is not supported.
        RxUnsupported,
        /// Frames dropped because the ICRC is wrong.
        RxBadIcrc,
        /// Frames dropped because the receive buffer was full.
        RxOverflow,
        /// Packets dropped because their QP does not exist, is not ready or has another peer.
        RxNoQp,
        /// Packets of an operation that this build does not execute.
        RxNotExecuted,
        /// Request packets executed.
        RxRequests,
        /// Duplicate request packets.
        RxDuplicates,
        /// Request packets ahead of the expected PSN.
        RxOutOfOrder,
        /// Acknowledgements taken by the requester.
        RxAcks,
        /// NAKs taken by the requester.
        RxNaks,
        /// Acknowledgements that fit no outstanding request.
        RxGhostAcks,
        /// Packets sent.
        TxPackets,
        /// Acknowledgements and NAKs sent.
        TxAcks,
        /// NAKs sent.
        TxNaks,
        /// Send requests fetched.
        WqesFetched,
        /// Send requests refused: malformed entry or local key error.
        WqesRefused,
        /// Completion entries written.
        Cqes,
        /// Event entries written.
        Eqes,
        /// Completions or events lost because their queue was full.
        QueueOverruns,
        /// Doorbells dropped: unknown queue or an index that cannot be.
        BadDoorbells,
        /// Commands refused, and `CmdGo` written while busy.
        BadCommands,
        /// Host memory accesses that came back with an error response.
        DmaErrors,
        /// Times that a QP began to send again because no acknowledgement came in time.
        AckTimeouts,
    }
}

counters! {
    /// What the card counts in 64 bits, in the order of the `WideCounters` registers: the traffic of RDMA. Since interface 1.3. An octet is a byte of a
    /// frame as the MAC has it, headers included, preamble and FCS not. The names are those of `NDIS_NDK_PERFORMANCE_COUNTERS`.
    WideCounter in WideCounters, 8 bytes {
        /// Octets of the frames of [`Counter::RxAccepted`]. One of more than 16384 counts as 16321 to 16384.
        RdmaInOctets,
        /// Octets of the frames sent.
        RdmaOutOctets,
        /// Frames of [`Counter::RxAccepted`].
        RdmaInFrames,
        /// Frames sent, those of [`Counter::TxPackets`].
        RdmaOutFrames,
    }
}

/// Offset of doorbell page 0.
pub const DOORBELL_BASE: u32 = 0x1_0000;
/// Bytes of a doorbell page. One page a queue number: QP words and CQ words of the same number share it.
pub const DOORBELL_PAGE: u32 = 0x1000;
/// Doorbell pages.
pub const DOORBELL_PAGES: usize = if limits::QPS > limits::CQS { limits::QPS } else { limits::CQS };
/// Address bits of BAR0: 24, or more if there are so many pages.
pub const BAR0_ADDR_BITS: usize = {
    let mut bits = 24;
    while (1 << bits) < DOORBELL_BASE as usize + DOORBELL_PAGES * DOORBELL_PAGE as usize {
        bits += 1;
    }
    bits
};

/// A word of a doorbell page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Doorbell {
    /// Send queue: new free-running producer index, in requests, bits 15:0. The last one written counts: where several processors
    /// ring for one queue, whoever finds that a later index was rung for before rings for that one again.
    Sq = 0x0,
    /// Receive queue: new free-running producer index. Ignored by this build.
    Rq = 0x4,
    /// Completion queue: new free-running consumer index, bits 23:0.
    CqConsumer = 0x8,
    /// Completion queue: arm. Bits 23:0 the consumer index up to which the driver has seen
    /// entries, bits 25:24 an [`ArmKind`].
    CqArm = 0xC,
    /// Completion queue: [`Moderation`] of its events, since interface 1.2.
    CqModeration = 0x10,
}

impl Doorbell {
    /// Returns the byte offset in BAR0 of this word for queue `number`.
    pub const fn offset(self, number: u32) -> u32 {
        DOORBELL_BASE + number * DOORBELL_PAGE + self as u32
    }
}

/// Bits of the index in the CQ doorbell words.
pub const CQ_INDEX_BITS: usize = 24;

/// Which completions of an armed CQ raise an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ArmKind {
    /// Only those with an error status.
    Errors = 0,
    /// Any.
    Any = 1,
    /// Solicited receives and errors.
    Solicited = 2,
}

impl ArmKind {
    /// Returns the word to write to [`Doorbell::CqArm`].
    pub const fn word(self, consumer: u32) -> u32 {
        ((self as u32) << CQ_INDEX_BITS) | (consumer & ((1 << CQ_INDEX_BITS) - 1))
    }
}

/// How long the event of a CQ may be held back: until `interval_us` are over since the completion that satisfied the arm,
/// or until there are `count` completions, that one included. A CQ begins without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moderation {
    /// Microseconds; 0: no moderation, [`Moderation::NO_LIMIT`]: however long it takes.
    pub interval_us: u16,
    /// Completions; 0 or 1: no moderation, [`Moderation::NO_LIMIT`]: however many there are.
    pub count: u16,
}

impl Moderation {
    /// The other one decides alone. Both together are no moderation.
    pub const NO_LIMIT: u16 = u16::MAX;
    /// No moderation.
    pub const OFF: Self = Self { interval_us: 0, count: 0 };

    /// Returns the word to write to [`Doorbell::CqModeration`]: the interval in bits 15:0, the count in bits 31:16.
    pub const fn word(self) -> u32 {
        self.interval_us as u32 | (self.count as u32) << 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_in_order_and_do_not_overlap() {
        for pair in BAR0.windows(2) {
            assert!(pair[0].offset + 4 * pair[0].count <= pair[1].offset, "{} and {}", pair[0].name, pair[1].name);
        }
        let last = BAR0.last().unwrap();
        assert!(last.offset + 4 * last.count <= DOORBELL_BASE);
    }

    #[test]
    fn fields_do_not_overlap_and_reset_values_fit() {
        for register in BAR0 {
            let mut seen = 0u32;
            for field in register.fields {
                let bits = field.place(field.max());
                assert_eq!(seen & bits, 0, "{}.{}", register.name, field.name);
                seen |= bits;
            }
            assert_eq!(register.reset & !seen, 0, "{}", register.name);
        }
    }

    #[test]
    fn a_value_is_built_field_by_field() {
        let value = EqConfig::reset().with(EqConfig::LOG_DEPTH, 10).with(EqConfig::VECTOR, 3).with(EqConfig::ENABLE, 1);
        assert_eq!(value.raw(), 0x8000_030A);
        assert_eq!(EqConfig::VECTOR.get(value.raw()), 3);
    }

    #[test]
    fn doorbells_of_a_queue_share_a_page() {
        assert_eq!(Doorbell::Sq.offset(1), 0x1_1000);
        assert_eq!(Doorbell::CqArm.offset(255), 0x1_0000 + 255 * 0x1000 + 12);
        assert_eq!(ArmKind::Solicited.word(0xFF00_0001), 0x0200_0001);
    }
}
