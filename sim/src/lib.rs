//! The simulation around the generated Verilog: two verilated cards, their hosts, and a link.
//!
//! ```text
//!   driver ── SimDevice ─┬─ BarPort (AXI4-Lite) ─┐           ┌─ …
//!                        └─ Memory ── HostPort ──┤ CoreModel │
//!                           (IOMMU)   (PCIe)     └─── MAC ═══╧══ link ═══ the other card
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`world`] | two cards and the link; the clocks run here |
//! | [`sim_device`] | a card as the driver sees it |
//! | [`card`] | a verilated card and what its ports need |
//! | [`ffi`] | the verilated models as Rust types |
//! | [`memory`] | host memory behind bus addresses, and canaries |
//! | [`pcie`] | timing of the PCIe link |
//! | [`axi`] | protocol checker of the AXI4 port |
//! | [`axil`] | register accesses |
//! | [`link`] | the 100 Gb/s link and its MACs |
//! | [`pcap`] | captures |
//! | [`rx_front`] | the receive parser alone |
//! | [`fault`] | what fails a run |
//! | [`ends`] | the driver's objects on both ends of a transfer |
//! | [`bench`](mod@bench) | goodput and latency of RDMA WRITE, and the limits of wire and PCIe |
//! | [`tap`] | when something passes a port |
//!
//! A run depends on its seed and nothing else: not on time, threads, or the machine.

#[cfg(target_endian = "big")]
compile_error!("the shim copies beats as they lie in memory, which needs a little-endian machine");

pub mod axi;
pub mod axil;
pub mod bench;
pub mod card;
pub mod ends;
pub mod fault;
pub mod ffi;
pub mod link;
pub mod memory;
pub mod pcap;
pub mod pcie;
pub mod rng;
pub mod rx_front;
pub mod sim_device;
pub mod tap;
pub mod world;

/// The Verilog that the models were made from.
pub mod verilog {
    /// Module `verbena_core` and everything below it.
    pub const CORE: &str = include_str!(concat!(env!("OUT_DIR"), "/verbena_core.v"));
    /// Module `verbena_rx_front` and everything below it.
    pub const RX_FRONT: &str = include_str!(concat!(env!("OUT_DIR"), "/verbena_rx_front.v"));
}

pub use ends::{End, EndOptions};
pub use fault::Fault;
pub use link::LinkConfig;
pub use pcie::PcieConfig;
pub use sim_device::SimDevice;
pub use world::{Threads, World, WorldConfig};
