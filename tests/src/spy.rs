//! A device that remembers what the driver allocates, so that a test can spoil a ring as no driver would, and that says of registers what a test wants.

use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use verbena_host::device::{Bar, Device};
use verbena_host::dma::DmaBuffer;
use verbena_host::error::Error;
use verbena_sim::SimDevice;

/// A simulated card that passes everything on, and watches when it is told to.
pub struct Spy {
    device: Arc<SimDevice>,
    /// What was allocated since [`Spy::watch`]; nothing while nobody watches.
    seen: Mutex<Option<Vec<DmaBuffer>>>,
    /// What some registers read as.
    answers: Mutex<BTreeMap<u32, u32>>,
}

impl fmt::Debug for Spy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spy").field("device", &self.device).finish_non_exhaustive()
    }
}

impl Spy {
    /// Returns a device that passes everything on to `device`.
    pub fn new(device: Arc<SimDevice>) -> Self {
        Self { device, seen: Mutex::default(), answers: Mutex::default() }
    }

    /// Keeps what is allocated from now on, which keeps it from being freed.
    pub fn watch(&self) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    }

    /// Lets a register read as `value` from now on.
    pub fn answer(&self, offset: u32, value: u32) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(offset, value);
    }

    /// Returns what was allocated since [`Spy::watch`], and watches no more.
    pub fn take(&self) -> Vec<DmaBuffer> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }
}

impl Bar for Spy {
    fn read32(&self, offset: u32) -> u32 {
        let answer = self.answers.lock().unwrap_or_else(PoisonError::into_inner).get(&offset).copied();
        answer.unwrap_or_else(|| self.device.bar().read32(offset))
    }

    fn write32(&self, offset: u32, value: u32) {
        self.device.bar().write32(offset, value);
    }
}

impl Device for Spy {
    fn bar(&self) -> &dyn Bar {
        self
    }

    fn alloc(self: Arc<Self>, len: usize, align: usize) -> Result<DmaBuffer, Error> {
        let buffer = Arc::clone(&self.device).alloc(len, align)?;
        if let Some(seen) = &mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner) {
            seen.push(buffer.clone());
        }
        Ok(buffer)
    }

    unsafe fn map(&self, ptr: NonNull<u8>, len: usize) -> Result<u64, Error> {
        // SAFETY: the caller's.
        unsafe { self.device.map(ptr, len) }
    }

    fn unmap(&self, iova: u64, len: usize) {
        self.device.unmap(iova, len);
    }

    fn take_interrupts(&self) -> u32 {
        self.device.take_interrupts()
    }

    fn wait(&self) {
        self.device.wait();
    }
}
