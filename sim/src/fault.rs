//! What fails a run: accesses that a real host would not survive, and broken protocols.

use thiserror::Error;

/// A fault of the card under simulation. The first one stops the run.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Fault {
    /// A DMA access to memory that the driver has not mapped.
    #[error(
        "clock {clock}: card {card} {} {len_bytes} bytes at {address:#x} (AXI ID {id}), which is not mapped",
        if *.is_write { "writes" } else { "reads" }
    )]
    Canary {
        /// Which card: 0 or 1.
        card: usize,
        /// When.
        clock: u64,
        /// Direction, from the card's view.
        is_write: bool,
        /// First byte that is not mapped.
        address: u64,
        /// Bytes in a row that are not mapped.
        len_bytes: usize,
        /// AXI ID of the burst.
        id: u8,
    },
    /// A rule of one of the core's outer ports is broken.
    #[error("clock {clock}: card {card}: {rule}")]
    Protocol {
        /// Which card: 0 or 1.
        card: usize,
        /// When.
        clock: u64,
        /// What is broken, and by which values.
        rule: String,
    },
    /// The capture file can't be written any further.
    #[error("the capture can't be written: {reason}")]
    Capture {
        /// What the system says.
        reason: String,
    },
    /// A wait came to its end without what it waited for.
    #[error("clock {clock}: after {waited} clocks still waiting for {what}")]
    Timeout {
        /// When it was given up.
        clock: u64,
        /// How long it was waited.
        waited: u64,
        /// For what.
        what: String,
    },
}
