//! Logical address mappings: the pages of a buffer as the card addresses them, for the privileged token.

use std::ptr::NonNull;
use std::sync::Arc;

use verbena_host::ndk::NtStatus;
use verbena_host::{DmaBuffer, Error, Mr, Pd};

use crate::abi::*;
use crate::adapter::AdapterObject;
use crate::mr::contiguous;
use crate::object::{failed, status, Object};

/// Bytes in front of the pages.
const HEADER: usize = std::mem::offset_of!(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray);

/// What `AdapterContext` points to.
struct Mapping {
    memory: DmaBuffer,
    adapter: Arc<Object<AdapterObject>>,
}

impl Mapping {
    /// Takes the memory out of the card's reach when nothing that is under way in it can need it any more.
    ///
    /// A request may be complete and still be read: when it was being sent again and its acknowledgement came late. The card tells when such reads are over
    /// as it takes a region away, so the mapping becomes a region that nobody can name, and leaves as one. When all regions, domains or places for commands are in
    /// use, that is tried again whenever events are processed.
    fn retire(self) {
        let (host, memory, adapter) = (Arc::clone(self.adapter.host()), self.memory.clone(), Arc::clone(&self.adapter));
        let retired = move |mr: Result<Arc<Mr>, Error>| match mr {
            Ok(mr) => drop(mr.close(move || drop(adapter))),
            Err(error) => tracing::warn!(%error, "a logical address mapping was taken away at once"),
        };
        match Pd::create(&host).and_then(|pd| Mr::register(&pd, memory, 0, retired)) {
            Ok(_) => {}
            Err(Error::OutOfNumbers { .. } | Error::TooManyCommands { .. }) => host.defer(move || self.retire()),
            Err(error) => tracing::warn!(%error, "a logical address mapping was taken away at once"),
        }
    }
}

/// `NDK_FN_BUILD_LAM`. Mapping takes no command, so it is done when this returns. Nothing of the descriptors is kept.
pub(crate) unsafe extern "C" fn build(
    adapter: *mut NDK_ADAPTER,
    mdl: *mut MDL,
    len: SIZE_T,
    _completion: NDK_FN_REQUEST_COMPLETION,
    _context: PVOID,
    lam: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    size: *mut ULONG,
    fbo: *mut ULONG,
) -> NTSTATUS {
    // SAFETY: the consumer gives a live adapter, a valid chain, and places for the answers.
    let (adapter, start, size, fbo) =
        unsafe { (Object::<AdapterObject>::share(adapter), contiguous(mdl, len), size.as_mut(), fbo.as_mut()) };
    let (Some(adapter), Some(start), Some(size), Some(fbo)) = (adapter, start, size, fbo) else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    let offset = start.as_ptr() as usize % PAGE_SIZE;
    // No overflow: the bytes exist, and so do the pages that hold them.
    let pages = (offset + len).div_ceil(PAGE_SIZE);
    let Some(needed) = u32::try_from(pages).ok().and_then(|pages| pages.checked_mul(8)?.checked_add(HEADER as u32)) else {
        return status(NtStatus::INSUFFICIENT_RESOURCES);
    };
    let given = std::mem::replace(size, needed);
    let Some(place) = NonNull::new(lam).filter(|_| given >= needed) else { return status(NtStatus::BUFFER_TOO_SMALL) };
    let first = start.as_ptr().wrapping_sub(offset);
    let Some(first) = NonNull::new(first) else { return status(NtStatus::INVALID_PARAMETER) };
    // SAFETY: the consumer keeps the memory until it releases the mapping (NDKPI), and pages live as long as any byte of them. The mapping outlives its release a
    // little, and the system keeps pages that are mapped for a card; on simulated cards the program does (docs/ndk.md).
    let memory = match unsafe { DmaBuffer::map(Arc::clone(adapter.host().device()), first, pages * PAGE_SIZE) } {
        Ok(memory) => memory,
        Err(error) => return failed(&error),
    };
    let iova = memory.iova();
    let mapping = Box::new(Mapping { memory, adapter });
    // SAFETY: the consumer says that there is room for header and pages. Written through the raw pointer: the declared array has one entry.
    unsafe {
        let place = place.as_ptr();
        (&raw mut (*place).AdapterContext).write(Box::into_raw(mapping).cast());
        (&raw mut (*place).AdapterPageCount).write(pages as ULONG);
        let array: *mut NDK_LOGICAL_ADDRESS = (&raw mut (*place).AdapterPageArray).cast();
        for page in 0..pages {
            array.add(page).write(NDK_LOGICAL_ADDRESS { QuadPart: iova.wrapping_add((page * PAGE_SIZE) as u64) as i64 });
        }
    }
    *fbo = offset as ULONG;
    status(NtStatus::SUCCESS)
}

/// `NDK_FN_RELEASE_LAM`. The consumer's requests that use the mapping are completed by then. The mapping is gone a little later, see [`Mapping::retire`].
pub(crate) unsafe extern "C" fn release(_adapter: *mut NDK_ADAPTER, lam: *mut NDK_LOGICAL_ADDRESS_MAPPING) {
    // SAFETY: the consumer gives a mapping that was built, or null.
    let Some(lam) = (unsafe { lam.as_mut() }) else { return };
    let mapping = std::mem::replace(&mut lam.AdapterContext, std::ptr::null_mut());
    if !mapping.is_null() {
        // SAFETY: `build` made the box, and the pointer is taken back once.
        unsafe { Box::from_raw(mapping.cast::<Mapping>()) }.retire();
    }
}
