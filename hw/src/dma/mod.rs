//! Host memory: read and write engines over AXI4.
//!
//! | block | does |
//! |---|---|
//! | [`DmaEngine`] | all of the below on one AXI4 port |
//! | [`ReadEngine`] | reads, many in flight, answers in order |
//! | [`ReadMux`] | joins two read engines on one port |
//! | [`WriteEngine`] | writes at any byte address, in order |
//! | [`WriteMux`] | merges three writers in front of the write engine |
//! | [`Split`] | cuts a range into bursts that cross no boundary |

pub mod axi;
mod engine;
mod read;
mod read_mux;
mod split;
#[cfg(test)]
mod testing;
mod write;
mod write_mux;

pub use engine::DmaEngine;
pub use read::ReadEngine;
pub use read_mux::ReadMux;
pub use split::Split;
pub use write::WriteEngine;
pub use write_mux::WriteMux;
