//! A verilated card behind the driver's [`Device`] and [`Bar`] traits.
//!
//! A register write is posted; a register read, and [`Device::wait`], let the clocks run. A fault of
//! the card makes the call that met it panic with the fault's text, because a driver has no use for
//! it: the card broke its contract with the host, and the run is void.

use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::ptr::NonNull;
use std::sync::Arc;

use verbena_host::device::{Bar, Device};
use verbena_host::dma::DmaBuffer;
use verbena_host::error::Error;

use crate::fault::Fault;
use crate::world::World;

/// Clocks that [`Device::wait`] runs.
const WAIT_CLOCKS: u64 = 256;

const PAGE: usize = 4096;

/// A card of a [`World`].
#[derive(Debug)]
pub struct SimDevice {
    world: Arc<World>,
    number: usize,
}

impl SimDevice {
    pub(crate) fn new(world: Arc<World>, number: usize) -> Self {
        Self { world, number }
    }

    /// Returns the world that the card is in.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Returns the number of mappings that the card can reach: 0 when everything is closed.
    pub fn mappings(&self) -> usize {
        self.world.with_card(self.number, |card| card.memory.mappings())
    }
}

/// Ends the run. While a panic unwinds and drops the driver's objects, a second one would abort the
/// process and hide the first; they get `gone` then.
fn void<T>(result: Result<T, Fault>, gone: T) -> T {
    match result {
        Ok(value) => value,
        Err(_) if std::thread::panicking() => gone,
        Err(fault) => panic!("the simulation is stopped: {fault}"),
    }
}

impl Bar for SimDevice {
    fn read32(&self, offset: u32) -> u32 {
        void(self.world.read_register(self.number, offset), u32::MAX)
    }

    fn write32(&self, offset: u32, value: u32) {
        self.world.with_card(self.number, |card| card.write_register(offset, value));
    }
}

impl Device for SimDevice {
    fn bar(&self) -> &dyn Bar {
        self
    }

    fn alloc(self: Arc<Self>, len: usize, align: usize) -> Result<DmaBuffer, Error> {
        // Whole pages: the place of memory in its page shows in bus addresses, and must not depend on
        // the allocator if a run is to be repeatable.
        let layout = Layout::from_size_align(len.max(1).next_multiple_of(PAGE), align.max(PAGE))
            .map_err(|_| Error::OutOfMemory { len_bytes: len, align })?;
        // SAFETY: the size is not zero.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Error::OutOfMemory { len_bytes: len, align })?;
        // SAFETY: the memory lives until `Allocation` is dropped, which takes the mapping back
        // first; a `DmaBuffer` gives out no references to it.
        let iova = self.world.with_card(self.number, |card| unsafe { card.memory.map(ptr, len, align) });
        let owner = Arc::new(Allocation { device: self, ptr, layout, iova, len });
        // SAFETY: `ptr` is valid for `len` bytes as long as `owner` lives, and mapped at `iova`.
        Ok(unsafe { DmaBuffer::from_parts(ptr, len, iova, owner) })
    }

    unsafe fn map(&self, ptr: NonNull<u8>, len: usize) -> Result<u64, Error> {
        // SAFETY: the caller promises what `Memory::map` asks for.
        Ok(self.world.with_card(self.number, |card| unsafe { card.memory.map(ptr, len, 1) }))
    }

    fn unmap(&self, iova: u64, len: usize) {
        let was_mapped = self.world.with_card(self.number, |card| card.memory.unmap(iova, len));
        debug_assert!(was_mapped, "{len} bytes at {iova:#x} were not mapped");
    }

    fn take_interrupts(&self) -> u32 {
        self.world.with_card(self.number, |card| card.take_interrupts())
    }

    fn wait(&self) {
        void(self.world.run(WAIT_CLOCKS), ());
    }
}

/// Memory of a [`DmaBuffer`].
struct Allocation {
    device: Arc<SimDevice>,
    ptr: NonNull<u8>,
    layout: Layout,
    iova: u64,
    len: usize,
}

// SAFETY: the pointer is used by `drop` alone, and may be freed by any thread.
unsafe impl Send for Allocation {}
// SAFETY: nothing can be done with a shared reference.
unsafe impl Sync for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.device.unmap(self.iova, self.len);
        // SAFETY: allocated with this layout, freed once, and the card reaches it no more.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) }
    }
}
