//! A PCI function through Linux VFIO, by the crate `pci-driver`. What it adds to that crate is said at each call.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("the feature `vfio` is for x86-64 Linux: see \"Hosts\" in the documentation of `pci` for what other hosts need");

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use pci_driver::backends::vfio::VfioPciDevice;
use pci_driver::device::PciDevice;
use pci_driver::regions::{MappedOwningPciRegion, PciRegion, Permissions};
use volatile::VolatilePtr;

use crate::error::Error;
use crate::pci::card::Card;
use crate::pci::find::FoundCard;
use crate::pci::function::{Counters, Identity, PciFunction, Registers};

/// A card bound to `vfio-pci`.
pub type PciCard = Card<VfioFunction>;

impl PciCard {
    /// Opens the function with the given folder in sysfs, for instance `/sys/bus/pci/devices/0000:41:00.0`; see [`crate::pci::find()`].
    ///
    /// Fails with [`Error::OtherFunction`], [`Error::NoIommu`], [`Error::NotBound`], with [`Error::Os`], which says what the kernel
    /// refused, and as [`Card::over`] does.
    pub fn open(sysfs: impl AsRef<Path>) -> Result<Arc<Self>, Error> {
        // Before the kernel is asked: its errors are numbers that say little.
        FoundCard::look_at(&sysfs)?.check()?;
        let function = VfioFunction::open(sysfs.as_ref()).map_err(|source| Error::Os { what: "opening the card through VFIO", source })?;
        Self::over(function)
    }
}

/// A PCI function bound to `vfio-pci`, alone in its container.
pub struct VfioFunction {
    device: VfioPciDevice,
}

impl VfioFunction {
    fn open(sysfs: &Path) -> io::Result<Self> {
        Ok(Self { device: VfioPciDevice::open(sysfs)? })
    }
}

impl fmt::Debug for VfioFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfioFunction").field("device", &self.device).finish()
    }
}

impl PciFunction for VfioFunction {
    type Registers = MappedRegisters;
    type Counters = EventCounters;

    fn identity(&self) -> io::Result<Identity> {
        let config = self.device.config();
        Ok(Identity { vendor: config.vendor_id().read()?, device: config.device_id().read()? })
    }

    fn reset(&self) -> io::Result<()> {
        // The kernel waits for what the function has under way, resets it, and waits until it answers again.
        self.device.reset()
    }

    fn set_memory_space(&self, on: bool) -> io::Result<()> {
        self.device.config().command().memory_space_enable().write(on)
    }

    fn set_bus_master(&self, on: bool) -> io::Result<()> {
        self.device.config().command().bus_master_enable().write(on)
    }

    fn bar0_len(&self) -> u64 {
        self.device.bar(0).map_or(0, |bar| bar.len())
    }

    fn map_bar0(&self) -> io::Result<MappedRegisters> {
        let bar = self.device.bar(0).ok_or_else(|| io::Error::other("the function has no BAR0"))?;
        // The kernel maps a BAR of `vfio-pci` with `pgprot_noncached`, prefetchable or not, hence uncached and not write-combining.
        Ok(MappedRegisters { mapping: bar.map(.., Permissions::ReadWrite)? })
    }

    fn vectors(&self) -> usize {
        self.device.interrupts().msi_x().max()
    }

    fn enable_vectors(&self, count: usize) -> io::Result<EventCounters> {
        let counters = EventCounters::new(count)?;
        let descriptors: Vec<RawFd> = counters.files.iter().map(AsRawFd::as_raw_fd).collect();
        self.device.interrupts().msi_x().enable(&descriptors)?;
        Ok(counters)
    }

    fn disable_vectors(&self) -> io::Result<()> {
        self.device.interrupts().msi_x().disable()
    }

    fn iommu_page(&self) -> usize {
        self.device.iommu().alignment()
    }

    fn iova_ranges(&self) -> Vec<Range<u64>> {
        // Of each range the crate leaves out the last address, as it takes the kernel's end for the one behind: a page is lost, no more.
        self.device.iommu().valid_iova_ranges().to_vec()
    }

    unsafe fn map(&self, iova: u64, ptr: NonNull<u8>, len: usize) -> io::Result<()> {
        // SAFETY: the caller vouches for the memory.
        unsafe { self.device.iommu().map(iova, len, ptr.as_ptr(), Permissions::ReadWrite) }
    }

    fn unmap(&self, iova: u64, len: usize) -> io::Result<()> {
        // `VFIO_IOMMU_UNMAP_DMA` comes back when the IOMMU's caches are flushed and the pages are no more pinned.
        self.device.iommu().unmap(iova, len)
    }
}

/// BAR0, mapped into this process. Keeps the function open.
pub struct MappedRegisters {
    mapping: MappedOwningPciRegion,
}

impl fmt::Debug for MappedRegisters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MappedRegisters({} bytes)", self.mapping.len())
    }
}

impl MappedRegisters {
    /// Returns the register at `offset`.
    ///
    /// # Panics
    /// If the offset is not aligned or not inside the mapping.
    fn at(&self, offset: usize) -> VolatilePtr<'_, u32> {
        assert!(offset % 4 == 0 && offset < self.mapping.len() && self.mapping.len() - offset >= 4, "offset {offset:#x} is not mapped");
        // SAFETY: `mmap` gave the address, so it is neither null nor unaligned; `mapping` keeps it valid while `self` is
        // borrowed; the assertion keeps the register inside.
        // The crate asks that no other thread uses the pointer, to exclude data races. This is not memory but the card's
        // registers: each access is one aligned bus transaction that the card serialises, and nothing of Rust's lies there.
        unsafe { VolatilePtr::new(NonNull::new_unchecked(self.mapping.as_mut_ptr().add(offset).cast())) }
    }
}

impl Registers for MappedRegisters {
    fn len_bytes(&self) -> usize {
        self.mapping.len()
    }

    fn read(&self, offset: usize) -> u32 {
        u32::from_le(self.at(offset).read())
    }

    fn write(&self, offset: usize, value: u32) {
        self.at(offset).write(value.to_le());
    }
}

/// One event counter of the kernel (`eventfd`) for each vector. An interrupt adds one; a read gives the sum and sets it back to zero, or
/// fails if it is zero, since the descriptors do not block.
#[derive(Debug)]
pub struct EventCounters {
    files: Vec<File>,
}

impl EventCounters {
    fn new(count: usize) -> io::Result<Self> {
        Ok(Self { files: (0..count).map(|_| event_counter()).collect::<io::Result<_>>()? })
    }
}

impl Counters for EventCounters {
    fn raised(&self, timeout_ms: u32) -> u32 {
        let mut polled: Vec<libc::pollfd> =
            self.files.iter().map(|file| libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
        let timeout = i32::try_from(timeout_ms).unwrap_or(i32::MAX);
        // SAFETY: the array is ours and has as many elements as we say; the kernel writes `revents` alone.
        let found = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
        // A failure (a signal came) is like nothing found: whoever waits comes again.
        if found <= 0 {
            return 0;
        }
        let is_raised = |entry: &libc::pollfd| entry.revents & libc::POLLIN != 0;
        // Never more than 32: `Card` enables no more.
        (0u32..).zip(&polled).filter(|(_, entry)| is_raised(entry)).fold(0, |mask, (vector, _)| mask | 1 << vector)
    }

    fn take(&self, vector: u32) -> bool {
        // All eight bytes at once, or the kernel refuses.
        self.files.get(vector as usize).is_some_and(|mut file| matches!(file.read(&mut [0; 8]), Ok(8)))
    }
}

/// Returns a new event counter of the kernel.
fn event_counter() -> io::Result<File> {
    // SAFETY: the call takes two numbers and touches no memory of ours.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and open, and nobody else has it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::{Duration, Instant};

    fn interrupt(counters: &EventCounters, vector: usize) {
        // What the kernel does for each interrupt.
        let mut file = &counters.files[vector];
        file.write_all(&1u64.to_ne_bytes()).unwrap();
    }

    #[test]
    fn several_interrupts_of_a_vector_are_one_and_are_taken_once() {
        let counters = EventCounters::new(3).unwrap();
        assert_eq!(counters.raised(0), 0);
        for vector in [2, 0, 2, 2] {
            interrupt(&counters, vector);
        }
        // Looking takes nothing.
        assert_eq!((counters.raised(0), counters.raised(0)), (0b101, 0b101));
        assert!(counters.take(2) && !counters.take(2) && !counters.take(1));
        assert_eq!(counters.raised(0), 0b001);
        assert!(!counters.take(3), "a vector that does not exist");
    }

    #[test]
    fn waiting_ends_with_the_first_interrupt_or_with_the_time() {
        let counters = EventCounters::new(32).unwrap();
        let begin = Instant::now();
        assert_eq!(counters.raised(20), 0);
        assert!(begin.elapsed() >= Duration::from_millis(15));
        std::thread::scope(|scope| {
            scope.spawn(|| interrupt(&counters, 31));
            // A minute is a bound for a test that hangs.
            assert_eq!(counters.raised(60_000), 1 << 31);
        });
    }

    #[test]
    fn a_folder_that_is_no_card_is_told_before_the_kernel_is_asked() {
        let folder = tempfile::TempDir::new().unwrap();
        for (name, value) in [("vendor", "0x10ee\n"), ("device", "0x903f\n")] {
            std::fs::write(folder.path().join(name), value).unwrap();
        }
        let error = PciCard::open(folder.path()).unwrap_err();
        assert_eq!(error.to_string(), "PCI function 10ee:903f is no Verbena card, which is 10ee:5652");
        std::fs::write(folder.path().join("device"), "0x5652\n").unwrap();
        assert!(matches!(PciCard::open(folder.path()), Err(Error::NoIommu { .. })));
    }
}
