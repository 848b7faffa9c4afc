//! Small parts that everything is built from.
//!
//! Those whose Verilog is written by hand (a RustHDL kernel can't say them) are listed in
//! `docs/decisions/0002-primitives.md`: [`Ram`], [`LutRam`], [`XorNet`] and [`ByteReverse`].

mod byte_reverse;
mod coalesce;
mod crc;
mod deep_fifo;
mod delay;
mod fifo;
mod lut_ram;
mod pack;
mod ram;
mod rotate;
mod shifter;
mod xor_net;

pub use byte_reverse::ByteReverse;
pub use coalesce::Coalesce;
pub use crc::{crc32_step, undo_zero_bytes, zero_bytes, Crc512, CrcUndo};
pub use deep_fifo::DeepFifo;
pub use delay::Delay;
pub use fifo::Fifo;
pub use lut_ram::LutRam;
pub use pack::{pack, unpack};
pub use ram::Ram;
pub use rotate::Rotate;
pub use shifter::{ShiftJob, Shifter};
pub use xor_net::XorNet;
