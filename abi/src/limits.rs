//! How much of everything a card has: the one place from which a build takes its sizes.
//!
//! The hardware sizes its tables with these, the capability registers report them, and the
//! driver reads the registers. A build with other numbers needs a change here and nowhere else.

/// log2 of the number of queue pairs.
pub const LOG_QPS: usize = 11;
/// Queue pair numbers, of which those below [`FIRST_QPN`] are never used.
pub const QPS: usize = 1 << LOG_QPS;
/// Lowest usable QPN: the wire forbids 0, and 1 is the general services interface
/// (connection management, IBTA vol. 1, 3.5.3), where a peer expects nothing else.
pub const FIRST_QPN: u32 = 2;
/// log2 of the number of completion queues.
pub const LOG_CQS: usize = 8;
/// Completion queues.
pub const CQS: usize = 1 << LOG_CQS;
/// log2 of the number of memory regions.
pub const LOG_MRS: usize = 11;
/// Memory regions. Index 0 is never used, so that a key of zero is never valid.
pub const MRS: usize = 1 << LOG_MRS;
/// log2 of the most objects of a kind.
pub const LOG_OBJECTS: usize = max(LOG_QPS, max(LOG_CQS, LOG_MRS));

const fn max(a: usize, b: usize) -> usize {
    if a > b {
        a
    } else {
        b
    }
}

// Events carry the number of a queue in 16 bits, and a key the index of a region in 24; the card compares with the number of them.
const _: () = assert!(LOG_QPS < 16 && LOG_CQS < 16 && LOG_MRS < 24);

/// Protection domains are 16-bit labels that the driver hands out.
pub const PDS: usize = 1 << 16;

/// log2 of the deepest send queue, in requests.
pub const LOG_SQ_DEPTH: usize = 9;
/// Deepest send queue, in requests; also the most requests of one QP that are under way at once.
pub const SQ_DEPTH: usize = 1 << LOG_SQ_DEPTH;
/// log2 of the deepest receive queue, in requests. The driver keeps receives: no operation that this build executes takes one.
pub const LOG_RQ_DEPTH: usize = LOG_SQ_DEPTH;
/// log2 of the deepest completion queue, in entries.
pub const LOG_CQ_DEPTH: usize = 16;
/// Deepest completion queue, in entries.
pub const CQ_DEPTH: usize = 1 << LOG_CQ_DEPTH;
/// log2 of the deepest event queue, in entries.
pub const LOG_EQ_DEPTH: usize = 16;

/// Most requests that one fetch takes from a send queue.
pub const FETCH_BATCH: usize = 8;
/// Most requests that are fetched and not begun: enough for one every two clocks while host memory answers within 1.4 us.
/// More would only make a queue pair wait longer whose turn begins anew.
pub const FETCH_AHEAD: usize = 192;
/// Bytes with which the turn of a queue pair ends, if others have requests to send.
pub const TURN_BYTES: usize = 32 << 10;
/// Scatter/gather entries in a request of one 64-byte unit.
pub const SGES_ONE_UNIT: usize = 2;
/// Most scatter/gather entries of a request (two 64-byte units).
pub const MAX_SGES: usize = 6;
/// Bytes of one scatter/gather entry.
pub const SGE_BYTES: usize = 16;
/// Most bytes of inline data in a request of one 64-byte unit. They stand in the place of the entries.
pub const INLINE_ONE_UNIT: usize = SGES_ONE_UNIT * SGE_BYTES;
/// Most bytes of inline data of a request (two 64-byte units).
pub const MAX_INLINE: usize = MAX_SGES * SGE_BYTES;
/// Largest message, bytes (RETH length above it is an invalid request, IBTA vol. 1 9.4.3).
pub const MAX_MESSAGE: u32 = 1 << 31;
/// Largest path MTU, bytes.
pub const MAX_MTU: usize = 4096;
/// MSI-X vectors.
pub const VECTORS: usize = 32;
/// Clock of the core, kHz.
pub const CLOCK_KHZ: u32 = 250_000;

/// Bytes of one beat of every internal stream.
pub const BEAT_BYTES: usize = 64;
/// Bits of one beat.
pub const BEAT_BITS: usize = BEAT_BYTES * 8;
