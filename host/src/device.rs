//! The seam between the driver and whatever carries it to a card: VFIO, the verilated card, a mock.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::dma::DmaBuffer;
use crate::error::Error;

/// BAR0 of a card. Accesses are 32 bits wide, aligned, and reach the card in program order.
///
/// They are ordered with the thread's accesses of memory as well: what it read or wrote before [`Bar::write32`] is done when the
/// card sees the write, and what it reads after [`Bar::read32`] is not older than what the card had written when it answered.
pub trait Bar: Send + Sync {
    /// Reads the register at byte `offset`.
    fn read32(&self, offset: u32) -> u32;
    /// Writes the register at byte `offset`. Posted: it may return before the card has seen it.
    fn write32(&self, offset: u32, value: u32);
}

/// A card, as the driver reaches it.
pub trait Device: Send + Sync {
    /// Returns BAR0.
    fn bar(&self) -> &dyn Bar;

    /// Allocates zeroed memory that the card can reach until the buffer is dropped.
    ///
    /// `align` is a power of two of at least 64. Fails with [`Error::OutOfMemory`].
    fn alloc(self: Arc<Self>, len: usize, align: usize) -> Result<DmaBuffer, Error>;

    /// Makes `len` bytes at `ptr` reachable for the card and returns their bus address.
    ///
    /// # Safety
    /// The memory must stay valid, and be touched by copies and volatile accesses alone, until
    /// [`Device::unmap`] of the address that this call returns.
    unsafe fn map(&self, ptr: NonNull<u8>, len: usize) -> Result<u64, Error>;

    /// Takes a mapping of [`Device::map`] back.
    fn unmap(&self, iova: u64, len: usize);

    /// Takes a mapping back whose bus addresses are not to be used again, as the card may still have a use for them.
    fn unmap_for_good(&self, iova: u64, len: usize) {
        self.unmap(iova, len);
    }

    /// Returns how many vectors [`Device::take_interrupts`] can report: those below this number.
    fn vectors(&self) -> u32 {
        u32::BITS
    }

    /// Returns the vectors that were raised since the last call, as a bit mask, and clears them. Never blocks.
    fn take_interrupts(&self) -> u32;

    /// Gives the card time: blocks until something may have changed (an interrupt, some clocks of
    /// simulation), but no longer than the backend's own bound. Used by blocking conveniences only.
    fn wait(&self);
}
