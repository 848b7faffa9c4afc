//! A card behind a PCI function: opening, memory, interrupts, closing.

use std::any::Any;
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use verbena_abi::regs::BAR0_ADDR_BITS;

use crate::device::{Bar, Device};
use crate::dma::{DmaBuffer, HeapMemory};
use crate::error::Error;
use crate::lock;
use crate::pci::bar::PciBar;
use crate::pci::find;
use crate::pci::function::{Counters, PciFunction};
use crate::pci::iova::IovaSpace;

/// Bytes of BAR0 that the driver may touch.
const BAR0_BYTES: u64 = 1 << BAR0_ADDR_BITS;
/// Most vectors that [`Device::take_interrupts`] can report. Further ones of a card stay disabled.
const MAX_VECTORS: usize = u32::BITS as usize;
/// Longest time that [`Device::wait`] takes, milliseconds.
const WAIT_MS: u32 = 1;

/// A card behind a PCI function of its own.
pub struct Card<F: PciFunction> {
    // Dropped in this order, which is that of opening backwards. First the card stops: no access of memory, no interrupt.
    _bus_master: Switch<F>,
    _vectors: Switch<F>,
    counters: F::Counters,
    bar: PciBar<F::Registers>,
    _memory_space: Switch<F>,
    /// The last holder: closes the function, and with it the IOMMU's mappings.
    function: Arc<F>,
    /// Memory that could not be unmapped: nobody else may get it while the card might reach it, hence behind the function.
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
    iovas: Mutex<IovaSpace>,
    /// The IOMMU's page size.
    page: usize,
    /// How many vectors are enabled.
    vector_count: u32,
}

/// Something that is on and goes off when this is dropped.
struct Switch<F> {
    function: Arc<F>,
    what: &'static str,
    off: fn(&F) -> io::Result<()>,
}

impl<F> Drop for Switch<F> {
    fn drop(&mut self) {
        // There is nobody to tell, and the next step matters as much: the kernel does all of this again when the function is closed.
        if let Err(error) = (self.off)(&self.function) {
            tracing::warn!(%error, "{}", self.what);
        }
    }
}

impl<F: PciFunction> fmt::Debug for Card<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card").field("page", &self.page).field("vectors", &self.vector_count).finish_non_exhaustive()
    }
}

impl<F: PciFunction> Card<F> {
    /// Takes a function over: resets it, maps BAR0, routes its MSI-X vectors here, and lets it be bus master.
    ///
    /// Fails with [`Error::OtherFunction`], [`Error::NoReset`], [`Error::PciLimit`] for a BAR0 that is too small, for no MSI-X vector or
    /// an IOMMU without page size, or with [`Error::Os`], which says what the system refused. What was on by then is off again.
    pub fn over(function: F) -> Result<Arc<Self>, Error> {
        let at = |what| move |source| Error::Os { what, source };
        // What is made here is dropped backwards if a later step fails.
        let function = Arc::new(function);
        // Before anything is written: this may be somebody else's device.
        find::check(function.identity().map_err(at("reading the card's ids"))?)?;

        // The card may still hold queues of a driver that died. Their bus addresses are ours soon, since we hand out the lowest first,
        // so a card that cannot be reset is refused. Bus mastering goes off before, as the kernel saves the command register
        // over a reset and writes it back.
        function.set_bus_master(false).map_err(at("disabling bus mastering"))?;
        function.reset().map_err(|source| Error::NoReset { source })?;

        // Behind the reset, which clears it in the card. Before the first access of BAR0 and before MSI-X, whose table
        // the kernel writes through a BAR.
        function.set_memory_space(true).map_err(at("enabling memory space"))?;
        let _memory_space = Switch { function: Arc::clone(&function), what: "disabling memory space", off: |f| f.set_memory_space(false) };

        let len = function.bar0_len();
        if len < BAR0_BYTES {
            return Err(Error::PciLimit { what: "size of BAR0 in bytes", value: len, min: BAR0_BYTES });
        }
        let bar = PciBar::new(function.map_bar0().map_err(at("mapping BAR0"))?);

        // With fewer vectors than the driver knows, `Adapter::open` refuses those that do not exist.
        let count = function.vectors().min(MAX_VECTORS);
        if count == 0 {
            return Err(Error::PciLimit { what: "number of MSI-X vectors", value: 0, min: 1 });
        }
        let counters = function.enable_vectors(count).map_err(at("enabling MSI-X"))?;
        let _vectors = Switch { function: Arc::clone(&function), what: "disabling MSI-X", off: |f| f.disable_vectors() };

        let page = function.iommu_page();
        if !page.is_power_of_two() {
            return Err(Error::PciLimit { what: "page size in its IOMMU", value: page as u64, min: 4096 });
        }
        let iovas = Mutex::new(IovaSpace::new(&function.iova_ranges()));

        // Last: the card has been reset and has no queue, and an interrupt, which is a write to memory too, finds its vector.
        function.set_bus_master(true).map_err(at("enabling bus mastering"))?;
        let _bus_master = Switch { function: Arc::clone(&function), what: "disabling bus mastering", off: |f| f.set_bus_master(false) };

        let vector_count = count as u32;
        Ok(Arc::new(Self {
            _bus_master,
            _vectors,
            counters,
            bar,
            _memory_space,
            function,
            kept: Mutex::default(),
            iovas,
            page,
            vector_count,
        }))
    }

    /// Returns the pages that hold `len` bytes at `address`: first byte and length. None for no bytes or beyond the last address.
    fn pages(&self, address: u64, len: usize) -> Option<(u64, usize)> {
        let mask = self.page as u64 - 1;
        let first = address & !mask;
        let end = address.checked_add(len as u64)?.checked_add(mask)? & !mask;
        usize::try_from(end - first).ok().filter(|bytes| len > 0 && *bytes > 0).map(|bytes| (first, bytes))
    }

    /// Maps whole pages to a bus address that is a multiple of `align`, and returns it.
    ///
    /// # Safety
    /// As [`PciFunction::map`]. `ptr` and `bytes` are multiples of the IOMMU's page.
    unsafe fn map_pages(&self, ptr: NonNull<u8>, bytes: usize, align: usize) -> Result<u64, Error> {
        let Some(iova) = lock(&self.iovas).take(bytes as u64, align as u64) else {
            return Err(Error::OutOfMemory { len_bytes: bytes, align });
        };
        // SAFETY: the caller vouches for the memory. The addresses were free and are taken now.
        if let Err(source) = unsafe { self.function.map(iova, ptr, bytes) } {
            let mut iovas = lock(&self.iovas);
            if iovas.withdraw(iova, bytes as u64) {
                iovas.give_back(iova, bytes as u64);
            }
            return Err(Error::Os { what: "mapping memory for the card, which counts as locked memory (RLIMIT_MEMLOCK)", source });
        }
        Ok(iova)
    }

    /// Takes a mapping of whole pages back and tells whether the card has lost it. Its addresses are free again if `reuse` says so.
    ///
    /// No fence is needed on either side of it. Before: the card has ended its use, and whoever learnt that (the answer to a command
    /// that destroys a queue or a region) learnt it behind the card's last write. After: the kernel returns when the IOMMU has
    /// forgotten the pages, and a system call is no place over which an access of memory moves.
    fn unmap_pages(&self, iova: u64, bytes: usize, reuse: bool) -> Unmapped {
        if !lock(&self.iovas).withdraw(iova, bytes as u64) {
            tracing::error!(iova, bytes, "unmapping memory that is not mapped for the card");
            return Unmapped::Never;
        }
        match self.function.unmap(iova, bytes) {
            Ok(()) => {
                if reuse {
                    lock(&self.iovas).give_back(iova, bytes as u64);
                }
                Unmapped::Yes
            }
            Err(error) => {
                // The addresses stay withdrawn: whatever the card reaches there must not become somebody else's.
                tracing::error!(%error, iova, bytes, "unmapping memory of the card");
                Unmapped::No
            }
        }
    }

    /// Takes a mapping of [`Device::map`] back, or stops the card.
    fn unmap_mapping(&self, iova: u64, len: usize, reuse: bool) {
        let Some((first, bytes)) = self.pages(iova, len) else { return };
        if self.unmap_pages(first, bytes, reuse) == Unmapped::No {
            match self.function.set_bus_master(false) {
                Ok(()) => tracing::error!("the card was stopped"),
                Err(error) => tracing::error!(%error, "stopping the card"),
            }
        }
    }
}

/// How a mapping was taken back.
#[derive(PartialEq, Eq)]
enum Unmapped {
    /// The card reaches it no more.
    Yes,
    /// The card may still reach it.
    No,
    /// There was no such mapping.
    Never,
}

impl<F: PciFunction> Device for Card<F> {
    fn bar(&self) -> &dyn Bar {
        &self.bar
    }

    fn alloc(self: Arc<Self>, len: usize, align: usize) -> Result<DmaBuffer, Error> {
        // Whole pages of our own, so that the card reaches nothing else.
        let Some(bytes) = len.checked_next_multiple_of(self.page).filter(|bytes| *bytes > 0) else {
            return Err(Error::OutOfMemory { len_bytes: len, align });
        };
        let align = align.max(self.page);
        let memory = HeapMemory::new(bytes, align)?;
        let ptr = memory.ptr;
        // SAFETY: the memory is zeroed and owned by `Allocation`, which takes the mapping back before it frees it, and leaves
        // both to the card if that fails. It is touched through `DmaBuffer` alone, whose accesses are atomic.
        let iova = unsafe { self.map_pages(ptr, bytes, align)? };
        let owner = Arc::new(Allocation { card: self, iova, bytes, memory: Some(memory) });
        // SAFETY: `owner` keeps `bytes` >= `len` initialised bytes at `ptr` valid and mapped at `iova`.
        Ok(unsafe { DmaBuffer::from_parts(ptr, len, iova, owner) })
    }

    unsafe fn map(&self, ptr: NonNull<u8>, len: usize) -> Result<u64, Error> {
        let address = ptr.as_ptr() as u64;
        let Some((first, bytes)) = self.pages(address, len) else {
            return Err(Error::OutOfMemory { len_bytes: len, align: self.page });
        };
        let into_page = (address - first) as usize;
        let Some(start) = NonNull::new(ptr.as_ptr().wrapping_sub(into_page)) else {
            return Err(Error::OutOfMemory { len_bytes: len, align: self.page });
        };
        // SAFETY: the caller keeps the memory valid until it is unmapped, and pages live as long as any byte of them.
        let iova = unsafe { self.map_pages(start, bytes, self.page)? };
        Ok(iova + into_page as u64)
    }

    /// Takes a mapping back. If the system does not, the card loses bus mastering and is of no use any more: whoever owns the
    /// memory frees it after this call, and the card would write into somebody else's.
    fn unmap(&self, iova: u64, len: usize) {
        self.unmap_mapping(iova, len, true);
    }

    fn unmap_for_good(&self, iova: u64, len: usize) {
        self.unmap_mapping(iova, len, false);
    }

    fn vectors(&self) -> u32 {
        self.vector_count
    }

    /// An interrupt says where to look and orders nothing: what the driver then reads it orders by the phase of the entries. An interrupt
    /// that comes between the look and the reset of its counter is part of this answer, one that comes later is part of the
    /// next; the driver looks at the queues after this call, so neither is lost.
    fn take_interrupts(&self) -> u32 {
        let raised = self.counters.raised(0);
        // A counter that another thread has taken meanwhile is that thread's.
        (0..self.vector_count)
            .filter(|vector| raised >> vector & 1 == 1 && self.counters.take(*vector))
            .fold(0, |mask, vector| mask | 1 << vector)
    }

    fn wait(&self) {
        self.counters.raised(WAIT_MS);
    }
}

/// Memory of this process that the card reaches.
struct Allocation<F: PciFunction> {
    card: Arc<Card<F>>,
    iova: u64,
    bytes: usize,
    memory: Option<HeapMemory>,
}

impl<F: PciFunction> Drop for Allocation<F> {
    fn drop(&mut self) {
        if self.card.unmap_pages(self.iova, self.bytes, true) != Unmapped::Yes {
            if let Some(memory) = self.memory.take() {
                lock(&self.card.kept).push(Box::new(memory));
            }
        }
    }
}

#[cfg(test)]
mod tests;
