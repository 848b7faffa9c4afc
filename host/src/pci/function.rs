//! What the driver needs of a PCI function: VFIO has it, and so has the mock bus.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// Vendor and device id, from the function's configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor.
    pub vendor: u16,
    /// Device.
    pub device: u16,
}

/// A PCI function that is open. Dropping it closes it, which takes all mappings of the IOMMU back.
///
/// The calls are what the bus and the kernel do, one by one; [`super::card::Card`] decides about their order.
pub trait PciFunction: Send + Sync + 'static {
    /// BAR0, mapped into this process.
    type Registers: Registers;
    /// Event counters of the interrupts.
    type Counters: Counters;

    /// Reads the ids.
    fn identity(&self) -> io::Result<Identity>;
    /// Resets the function, and no other.
    fn reset(&self) -> io::Result<()>;
    /// Lets the function answer to accesses of its BARs, or not.
    fn set_memory_space(&self, on: bool) -> io::Result<()>;
    /// Lets the function access memory and raise interrupts, or not.
    fn set_bus_master(&self, on: bool) -> io::Result<()>;
    /// Returns the size of BAR0 in bytes; 0 if there is none.
    fn bar0_len(&self) -> u64;
    /// Maps all of BAR0, uncached and not write-combining.
    fn map_bar0(&self) -> io::Result<Self::Registers>;
    /// Returns how many MSI-X vectors the function has.
    fn vectors(&self) -> usize;
    /// Routes MSI-X vectors `0..count` to new event counters.
    fn enable_vectors(&self, count: usize) -> io::Result<Self::Counters>;
    /// Disables MSI-X.
    fn disable_vectors(&self) -> io::Result<()>;
    /// Returns the IOMMU's page size: a power of two, at least the system's. Addresses and sizes of mappings are multiples of it.
    fn iommu_page(&self) -> usize;
    /// Returns the bus addresses that may be mapped; what is between them is reserved.
    fn iova_ranges(&self) -> Vec<Range<u64>>;
    /// Maps `len` bytes at `ptr` to the bus address `iova`, for reads and writes of the function.
    ///
    /// # Safety
    /// The memory must stay valid until it is unmapped, and the process must be ready for the function's writes into it.
    unsafe fn map(&self, iova: u64, ptr: NonNull<u8>, len: usize) -> io::Result<()>;
    /// Takes exactly one mapping back. When it returns with success, the function reaches the memory no more: what it still had
    /// under way has arrived or is refused.
    fn unmap(&self, iova: u64, len: usize) -> io::Result<()>;
}

/// Mapped registers. Accesses are single, aligned transactions of 32 bits, in program order among themselves. Offsets are
/// multiples of 4 below [`PciFunction::bar0_len`]; an implementation must not rely on that for memory safety.
pub trait Registers: Send + Sync {
    /// Returns the bytes that are mapped.
    fn len_bytes(&self) -> usize;
    /// Reads.
    fn read(&self, offset: usize) -> u32;
    /// Writes.
    fn write(&self, offset: usize, value: u32);
}

/// Counters of interrupts, one a vector. Several interrupts between two looks are one.
pub trait Counters: Send + Sync {
    /// Returns the vectors whose counter is not zero, as a mask. Waits up to `timeout_ms` for one; 0 looks and does not wait.
    fn raised(&self, timeout_ms: u32) -> u32;
    /// Sets a counter back to zero and tells whether it was not. Of several threads at most one gets a yes for an interrupt.
    fn take(&self, vector: u32) -> bool;
}
