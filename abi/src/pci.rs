//! What the card is on PCI: what a board's shell sets in its PCIe block, and by what the driver finds the card.
//!
//! No id is registered for the project. The vendor is the maker of the FPGA, whose PCIe block has it by default; the device is a
//! number that the list of known ids (pci.ids, May 2026) does not have under this vendor, no more. Whoever makes cards for others
//! needs a vendor id of their own and changes these two numbers.
//! What proves a card is the register [`crate::regs::Id`]; the ids only say where to look for it.

/// Vendor id: Xilinx, now AMD.
pub const VENDOR: u16 = 0x10EE;
/// Device id: the letters VR, as in [`crate::regs::Id`].
pub const DEVICE: u16 = 0x5652;
/// Class, subclass and interface: a network controller of no special kind. Not an Ethernet controller, since a host's own driver
/// for one would find nothing that it knows. The driver does not look at it.
pub const CLASS: u32 = 0x02_80_00;

// The device has the first letters of the identity register; a class has 24 bits; no function is FFFF.
const _: () = assert!(DEVICE as u32 == crate::regs::Id::RESET >> 16 && CLASS < 1 << 24 && VENDOR != 0xFFFF);
