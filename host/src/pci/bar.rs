//! BAR0 as the driver wants it: checked offsets, and ordered with memory.

use std::sync::atomic::{fence, Ordering};

use crate::device::Bar;
use crate::pci::function::Registers;

/// BAR0 of a card, mapped into this process.
///
/// The fences keep the promise of [`Bar`] that register accesses are ordered with accesses of memory. They bind the compiler: it
/// moves no access of memory, of whatever kind, over a fence or a volatile access over another. On x86-64, where BAR0 is mapped
/// uncached, they need no instruction, since the processor does the rest:
///
/// * Stores become visible in program order, uncached ones among cached ones. An exception are stores that are write-combining or
///   non-temporal; the driver makes none, BAR0 is not mapped so, and a library's copy that uses them ends with its own `sfence`.
/// * Loads are done in program order, and no store becomes visible before an earlier load is done.
/// * A store followed by a load of another address may change places in memory, and nothing here relies on that it does not:
///   an uncached load waits for the uncached stores before it.
///
/// (Intel SDM vol. 3, "Memory Ordering" and "Methods of Caching Available"; AMD APM vol. 2, "Memory System".) The fence of [`Ordering::Release`] keeps earlier reads and writes ahead
/// of the write, that of [`Ordering::Acquire`] keeps later ones behind the read.
#[derive(Debug)]
pub struct PciBar<R> {
    registers: R,
}

impl<R: Registers> PciBar<R> {
    pub(super) fn new(registers: R) -> Self {
        Self { registers }
    }

    /// Returns the offset as a number of bytes.
    ///
    /// # Panics
    /// If it is not aligned or not inside the BAR: a bug of the driver, which takes offsets from the register table and from numbers
    /// that were checked when the card was opened.
    fn checked(&self, offset: u32) -> usize {
        let bytes = offset as usize;
        assert!(bytes % 4 == 0 && bytes + 4 <= self.registers.len_bytes(), "offset {offset:#x} is no register of BAR0");
        bytes
    }
}

impl<R: Registers> Bar for PciBar<R> {
    fn read32(&self, offset: u32) -> u32 {
        let value = self.registers.read(self.checked(offset));
        // Pairs with the card: its answer pushes its earlier writes into memory, since on PCIe no answer overtakes a write.
        fence(Ordering::Acquire);
        value
    }

    fn write32(&self, offset: u32, value: u32) {
        let offset = self.checked(offset);
        // Pairs with the card's reads of memory, which follow from the write that it got: entries of a ring before the doorbell,
        // zeroes of a ring before its base, reads of entries before the index that lets the card overwrite them.
        fence(Ordering::Release);
        self.registers.write(offset, value);
    }
}
