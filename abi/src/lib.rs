//! The contract between card, driver and documentation. Knows nobody, allocates nothing.
//!
//! | module | holds |
//! |---|---|
//! | [`limits`] | how many of everything; the hardware is sized by it |
//! | [`pci`] | ids of the PCI function |
//! | [`regs`] | BAR0: registers, command window, doorbell pages |
//! | [`stages`] | the streams in the card whose clocks are counted |
//! | [`queue`] | entries of the queues in host memory, command arguments |
//! | [`wire`] | RoCEv2 headers and opcodes |
//! | [`arith`] | PSN and ring arithmetic |
//!
//! Structures in host memory are little-endian, headers big-endian. Byte 0 of a packet is bits
//! 7:0 of the first beat of an internal stream.

#![no_std]
#![forbid(unsafe_code)]

pub mod arith;
pub mod limits;
pub mod pci;
pub mod queue;
pub mod regs;
pub mod stages;
pub mod wire;

/// Version of everything in this crate. The driver refuses a card with another major number.
pub const ABI_VERSION: (u16, u16) = (1, 3);
