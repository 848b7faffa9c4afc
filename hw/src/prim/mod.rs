//! Small parts that everything is built from.
//!
//! Those whose Verilog is written by hand (a RustHDL kernel can't say them) are listed in
//! `docs/decisions/0002-primitives.md`: [`Ram`] and [`LutRam`].

mod deep_fifo;
mod fifo;
mod lut_ram;
mod ram;

pub use deep_fifo::DeepFifo;
pub use fifo::Fifo;
pub use lut_ram::LutRam;
pub use ram::Ram;
