//! The card, described in RustHDL: one 250 MHz clock, 512-bit streams.
//!
//! | module | holds |
//! |---|---|
//! | [`bus`] | what travels between blocks: the stream bundle and every record |
//! | [`prim`] | small parts: memories, FIFOs, shifters, the CRC network |
//! | [`csr`] | what the driver reaches through BAR0: registers, doorbells, commands |
//! | [`cq`] | completion and event queues |
//! | [`dma`] | host memory: read and write engines over AXI4 |
//! | [`rx`] | from the MAC to host memory |
//! | [`tx`] | from a doorbell to the MAC |
//! | [`qp`] | what is outstanding: completion, timers, flushes |
//! | [`top`] | the core, which only wires |
//! | [`verilog`] | the Verilog, under names that a shell can instantiate |
//! | [`testing`] | the bench that steps a block in RustHDL and repeats the run on verilated Verilog |

#![forbid(unsafe_code)]

pub mod bus;
pub mod cq;
pub mod csr;
pub mod dma;
pub mod prim;
pub mod qp;
pub mod rx;
pub mod testing;
pub mod top;
pub mod tx;
mod untangle;
pub mod verilog;

pub use untangle::untangle;
