//! A real card, through Linux VFIO.
//!
//! The card's function must be bound to `vfio-pci`, and its IOMMU group must hold nothing that
//! another driver uses. Nothing in the project's tests reaches this file beyond the compiler: it needs a
//! card and an IOMMU. What can be tested without them, the hand-out of bus addresses, is in a file of its own.
//!
//! What is not obvious:
//!
//! * BAR0 is mapped uncached, so reads and writes of one thread reach the card in program order.
//! * The IOMMU maps whole pages. Memory that shares a page with a mapping is within the card's reach.
//! * Interrupts are event counters of the kernel; several between two looks show as one.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use pci_driver::backends::vfio::VfioPciDevice;
use pci_driver::device::PciDevice;
use pci_driver::regions::{MappedOwningPciRegion, Permissions};
use verbena_abi::regs::BAR0_ADDR_BITS;
use volatile::VolatilePtr;

use crate::device::{Bar, Device};
use crate::dma::{DmaBuffer, HeapMemory};
use crate::error::Error;
use crate::iova::IovaSpace;
use crate::lock;

/// Most vectors that [`Device::take_interrupts`] can report.
const MAX_VECTORS: usize = 32;
/// Longest time that [`Device::wait`] takes, milliseconds.
const WAIT_MS: i32 = 1;

/// BAR0 of a card, mapped into this process.
pub struct PciBar {
    mapping: MappedOwningPciRegion,
}

impl PciBar {
    /// Maps the BAR. Fails with [`Error::Os`] if there is none, if it is too small, or if the kernel refuses.
    fn map(card: &VfioPciDevice) -> Result<Self, Error> {
        let what = "mapping BAR0";
        let bar = card.bar(0).ok_or_else(|| Error::Os { what, source: io::Error::other("the card has no BAR0") })?;
        let mapping = bar.map(.., Permissions::ReadWrite).map_err(|source| Error::Os { what, source })?;
        if mapping.len() < 1 << BAR0_ADDR_BITS {
            let message = format!("BAR0 has {} bytes, {} are needed", mapping.len(), 1 << BAR0_ADDR_BITS);
            return Err(Error::Os { what, source: io::Error::other(message) });
        }
        Ok(Self { mapping })
    }

    /// Returns the register at `offset`.
    ///
    /// # Panics
    /// If the offset is not aligned or not inside the BAR: a bug of the driver, which takes offsets
    /// from the register table and from numbers that were checked when the card was opened.
    fn register(&self, offset: u32) -> VolatilePtr<'_, u32> {
        let offset = offset as usize;
        assert!(offset % 4 == 0 && offset + 4 <= self.mapping.len(), "offset {offset:#x} is no register of BAR0");
        // SAFETY: `mmap` gave the address, so it is neither null nor unaligned; `mapping` keeps it valid while `self` is
        // borrowed; the assertion keeps the register inside.
        // The crate asks that no other thread uses the pointer, to exclude data races. This is not memory but the card's
        // registers: each access is one aligned bus transaction that the card serialises, and nothing of Rust's lies there.
        unsafe { VolatilePtr::new(NonNull::new_unchecked(self.mapping.as_mut_ptr().add(offset).cast())) }
    }
}

impl Bar for PciBar {
    fn read32(&self, offset: u32) -> u32 {
        u32::from_le(self.register(offset).read())
    }

    fn write32(&self, offset: u32, value: u32) {
        self.register(offset).write(value.to_le());
    }
}

/// A card bound to `vfio-pci`.
pub struct PciCard {
    // In this order: the mapping of the BAR goes before the device that it belongs to.
    bar: PciBar,
    device: VfioPciDevice,
    iovas: Mutex<IovaSpace>,
    /// Alignment of mappings, a power of two, at least the system's page size.
    page: usize,
    /// One event counter a vector.
    interrupts: Vec<File>,
}

impl fmt::Debug for PciCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PciCard").field("device", &self.device).finish_non_exhaustive()
    }
}

impl PciCard {
    /// Opens the function with the given directory in sysfs, for instance `/sys/bus/pci/devices/0000:41:00.0`.
    ///
    /// Resets it, maps BAR0, routes its MSI-X vectors here, and lets it be bus master.
    /// Fails with [`Error::Os`], which says what the kernel refused.
    pub fn open(sysfs: impl AsRef<Path>) -> Result<Arc<Self>, Error> {
        let at = |what| move |source| Error::Os { what, source };
        let device = VfioPciDevice::open(sysfs).map_err(at("opening the card through VFIO"))?;
        // The card may still hold queues of a driver that died, in memory that is somebody else's by now.
        device.reset().map_err(at("resetting the card"))?;
        let command = device.config().command();
        command.memory_space_enable().write(true).map_err(at("enabling memory space"))?;
        let bar = PciBar::map(&device)?;

        let vectors = device.interrupts().msi_x().max().min(MAX_VECTORS);
        let interrupts = (0..vectors).map(|_| event_counter()).collect::<Result<Vec<_>, _>>()?;
        let descriptors: Vec<RawFd> = interrupts.iter().map(AsRawFd::as_raw_fd).collect();
        device.interrupts().msi_x().enable(&descriptors).map_err(at("enabling MSI-X"))?;

        // A message-signalled interrupt is a memory write, so bus mastering is what lets the card do anything at all.
        command.bus_master_enable().write(true).map_err(at("enabling bus mastering"))?;

        let iovas = Mutex::new(IovaSpace::new(device.iommu().valid_iova_ranges()));
        let page = device.iommu().alignment();
        Ok(Arc::new(Self { bar, device, iovas, page, interrupts }))
    }

    /// Returns the pages that hold `len` bytes at `address`: first byte and length.
    fn pages(&self, address: u64, len: usize) -> Option<(u64, usize)> {
        let mask = self.page as u64 - 1;
        let first = address & !mask;
        let end = address.checked_add(len as u64)?.checked_add(mask)? & !mask;
        Some((first, usize::try_from(end - first).ok()?))
    }

    fn poll(&self, timeout_ms: i32) -> u32 {
        let mut polled: Vec<libc::pollfd> =
            self.interrupts.iter().map(|file| libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
        // SAFETY: the array is ours and has as many elements as we say; the kernel writes `revents` alone.
        let found = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout_ms) };
        // A failure (a signal came) is like nothing found: whoever waits comes again.
        if found <= 0 {
            return 0;
        }
        polled.iter().enumerate().filter(|(_, entry)| entry.revents & libc::POLLIN != 0).fold(0, |mask, (vector, _)| mask | 1 << vector)
    }
}

impl Drop for PciCard {
    fn drop(&mut self) {
        // Buffers hold the card, so none is mapped any more. Stops what the card might still do in spite of that.
        if let Err(error) = self.device.config().command().bus_master_enable().write(false) {
            tracing::warn!(%error, "disabling bus mastering");
        }
        if let Err(error) = self.device.interrupts().msi_x().disable() {
            tracing::warn!(%error, "disabling MSI-X");
        }
    }
}

impl Device for PciCard {
    fn bar(&self) -> &dyn Bar {
        &self.bar
    }

    fn alloc(self: Arc<Self>, len: usize, align: usize) -> Result<DmaBuffer, Error> {
        let out_of_memory = Error::OutOfMemory { len_bytes: len, align };
        // Whole pages of our own, so that the card reaches nothing else.
        let Some(bytes) = len.checked_next_multiple_of(self.page).filter(|bytes| *bytes > 0) else {
            return Err(out_of_memory);
        };
        let memory = HeapMemory::new(bytes, align.max(self.page))?;
        let ptr = memory.ptr;
        // SAFETY: the memory is zeroed and owned by `Allocation`, which takes the mapping back before it frees it, and
        // keeps both if that fails. It is touched through `DmaBuffer` alone, whose accesses are atomic.
        let iova = unsafe { self.map(ptr, bytes)? };
        let owner = Arc::new(Allocation { card: self, iova, len: bytes, memory: Some(memory) });
        // SAFETY: `owner` keeps `bytes` >= `len` initialised bytes at `ptr` valid and mapped at `iova`.
        Ok(unsafe { DmaBuffer::from_parts(ptr, len, iova, owner) })
    }

    unsafe fn map(&self, ptr: NonNull<u8>, len: usize) -> Result<u64, Error> {
        let address = ptr.as_ptr() as u64;
        let no_room = Error::OutOfMemory { len_bytes: len, align: self.page };
        let Some((first, bytes)) = self.pages(address, len).filter(|(_, bytes)| *bytes > 0) else { return Err(no_room) };
        let Some(iova) = lock(&self.iovas).take(bytes as u64, self.page as u64) else { return Err(no_room) };
        // SAFETY: the caller keeps the memory valid until it is unmapped, and pages live as long as any byte of them.
        // The bus addresses were free and are taken now; address and length are multiples of the IOMMU's page.
        let mapped = unsafe { self.device.iommu().map(iova, bytes, first as *const u8, Permissions::ReadWrite) };
        if let Err(source) = mapped {
            lock(&self.iovas).give_back(iova, iova + bytes as u64);
            return Err(Error::Os { what: "mapping memory for the card", source });
        }
        Ok(iova + (address - first))
    }

    fn unmap(&self, iova: u64, len: usize) {
        let _ = self.try_unmap(iova, len);
    }

    fn take_interrupts(&self) -> u32 {
        let raised = self.poll(0);
        for (vector, mut counter) in self.interrupts.iter().enumerate() {
            if raised >> vector & 1 == 1 {
                // Reading sets the counter back. That another thread was faster is no error.
                let _ = counter.read(&mut [0; 8]);
            }
        }
        raised
    }

    fn wait(&self) {
        self.poll(WAIT_MS);
    }
}

impl PciCard {
    /// Takes a mapping back and tells whether that worked.
    fn try_unmap(&self, iova: u64, len: usize) -> bool {
        let Some((first, bytes)) = self.pages(iova, len) else { return false };
        match self.device.iommu().unmap(first, bytes) {
            Ok(()) => {
                lock(&self.iovas).give_back(first, first + bytes as u64);
                true
            }
            Err(error) => {
                // The addresses stay taken: whatever the card reaches there must not become somebody else's.
                tracing::error!(%error, iova, bytes, "unmapping memory of the card");
                false
            }
        }
    }
}

/// Memory of this process that the card reaches.
struct Allocation {
    card: Arc<PciCard>,
    iova: u64,
    len: usize,
    memory: Option<HeapMemory>,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if !self.card.try_unmap(self.iova, self.len) {
            // The card may still write there, so nobody else may ever get this memory.
            std::mem::forget(self.memory.take());
        }
    }
}

/// Returns a new event counter of the kernel.
fn event_counter() -> Result<File, Error> {
    // SAFETY: the call takes two numbers and touches no memory of ours.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(Error::Os { what: "creating an event counter", source: io::Error::last_os_error() });
    }
    // SAFETY: the descriptor is new and open, and nobody else has it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}
