//! The bench of a block: steps it in RustHDL, records every port, and repeats the run on the
//! verilated Verilog of the same block, which must give the same outputs on every clock.

mod bench;
mod lockstep;
mod stream;

pub use bench::Bench;
pub use stream::{Driver, Monitor, Stalls};
