//! Memory regions: registered by a list of descriptors, or reserved for fast registration.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use verbena_host::ndk::{access_of_mr_flags, NtStatus};
use verbena_host::{DmaBuffer, FastMr, Mr, Submitted};

use crate::abi::*;
use crate::object::{close, failed, query_extension, status, Closable, ClosingSlot, Kind, Object, Request};
use crate::pd::PdObject;

pub(crate) struct MrObject {
    is_fast: bool,
    region: Mutex<Region>,
    pd: Option<Arc<Object<PdObject>>>,
    closing: ClosingSlot,
}

enum Region {
    None,
    /// A registration, or its end, is under way.
    Changing,
    Registered(Arc<Mr>),
    Fast(FastMr),
}

impl Kind for MrObject {
    type Public = NDK_MR;
    type Dispatch = NDK_MR_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeMr;
    const TABLE: &'static NDK_MR_DISPATCH = &NDK_MR_DISPATCH {
        NdkCloseMr: Some(close::<MrObject>),
        NdkQueryExtension: Some(query_extension),
        NdkRegisterMr: Some(register),
        NdkDeregisterMr: Some(deregister),
        NdkInitializeFastRegisterMr: Some(initialize_fast_register),
        NdkGetRemoteTokenFromMr: Some(token),
        NdkGetLocalTokenFromMr: Some(token),
    };
}

impl Closable for MrObject {
    fn closing(&self) -> &ClosingSlot {
        &self.closing
    }
}

impl MrObject {
    /// Returns a region of nothing.
    pub(crate) fn create(pd: Arc<Object<PdObject>>, is_fast: bool) -> Arc<Object<Self>> {
        let version = pd.adapter.version;
        Object::new(version, Self { is_fast, region: Mutex::new(Region::None), pd: Some(pd), closing: ClosingSlot::default() })
    }

    fn pd(&self) -> &Arc<Object<PdObject>> {
        self.pd.as_ref().expect("taken by the drop alone")
    }

    fn region(&self) -> MutexGuard<'_, Region> {
        self.region.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MrObject {
    fn drop(&mut self) {
        let Some(pd) = self.pd.take() else { return };
        let host = Arc::clone(pd.adapter.host());
        let finish = self.closing.finish(&host, pd);
        match std::mem::replace(&mut *self.region(), Region::None) {
            // The memory is mapped until the card has given the region up, or has refused to.
            Region::Registered(mr) => {
                let _ = mr.close(move || drop(finish));
            }
            Region::None | Region::Changing | Region::Fast(_) => drop(finish),
        }
    }
}

/// Returns the first byte of a chain of descriptors, if it is contiguous over `len` bytes, and there are any.
///
/// # Safety
/// The chain is valid.
pub(crate) unsafe fn contiguous(mut mdl: *const MDL, len: SIZE_T) -> Option<NonNull<u8>> {
    let mut first = None;
    let (mut next, mut left) = (0, len);
    // SAFETY: the caller vouches for the chain.
    while let Some(piece) = unsafe { mdl.as_ref() } {
        let start = (piece.StartVa as usize).checked_add(piece.ByteOffset as usize)?;
        match first {
            None => first = Some(NonNull::new(start as *mut u8)?),
            Some(_) if start != next => return None,
            Some(_) => {}
        }
        next = start.checked_add(piece.ByteCount as usize)?;
        left = left.saturating_sub(piece.ByteCount as usize);
        if left == 0 {
            break;
        }
        mdl = piece.Next;
    }
    first.filter(|_| left == 0 && len > 0)
}

unsafe extern "C" fn register(
    mr: *mut NDK_MR,
    mdl: *mut MDL,
    len: SIZE_T,
    flags: ULONG,
    completion: NDK_FN_REQUEST_COMPLETION,
    context: PVOID,
) -> NTSTATUS {
    let request = Request::new(completion, context);
    // SAFETY: the consumer gives a live region and a valid chain.
    let (Some(mr), Some(start), Some(request)) = (unsafe { Object::<MrObject>::share(mr) }, unsafe { contiguous(mdl, len) }, request)
    else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    let rights = match access_of_mr_flags(flags) {
        Ok(rights) => rights,
        Err(error) => return failed(&error),
    };
    {
        let mut region = mr.region();
        if mr.is_fast || !matches!(*region, Region::None) {
            return status(NtStatus::INVALID_DEVICE_REQUEST);
        }
        *region = Region::Changing;
    }
    let device = Arc::clone(mr.pd().adapter.host().device());
    // SAFETY: the consumer keeps the memory valid for the whole registration (NDKPI), and the mapping goes with it.
    let submitted = unsafe { DmaBuffer::map(device, start, len) }.and_then(|memory| {
        let registered = Arc::clone(&mr);
        let base_va = start.as_ptr() as u64;
        let done = move |outcome: Result<Arc<Mr>, _>| {
            let (region, outcome) = match outcome {
                Ok(region) => (Region::Registered(region), Ok(())),
                Err(error) => (Region::None, Err(error)),
            };
            *registered.region() = region;
            request.call(outcome);
        };
        Mr::register_at(mr.pd().pd(), memory, base_va, rights, done)
    });
    match submitted {
        Ok(Submitted::Pending) => status(NtStatus::PENDING),
        Err(error) => {
            *mr.region() = Region::None;
            failed(&error)
        }
    }
}

unsafe extern "C" fn deregister(mr: *mut NDK_MR, completion: NDK_FN_REQUEST_COMPLETION, context: PVOID) -> NTSTATUS {
    // SAFETY: the consumer gives a live region.
    let (Some(mr), Some(request)) = (unsafe { Object::<MrObject>::share(mr) }, Request::new(completion, context)) else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    let registered = {
        let mut region = mr.region();
        match std::mem::replace(&mut *region, Region::Changing) {
            Region::Registered(registered) => registered,
            other => {
                *region = other;
                return status(NtStatus::INVALID_DEVICE_REQUEST);
            }
        }
    };
    let host = Arc::clone(mr.pd().adapter.host());
    let _ = registered.close(move || {
        // On a card that is gone this runs inside the call.
        host.defer(move || {
            *mr.region() = Region::None;
            request.call(Ok(()));
        });
    });
    status(NtStatus::PENDING)
}

unsafe extern "C" fn initialize_fast_register(
    mr: *mut NDK_MR,
    pages: ULONG,
    is_remote: BOOLEAN,
    _completion: NDK_FN_REQUEST_COMPLETION,
    _context: PVOID,
) -> NTSTATUS {
    // SAFETY: the consumer gives a live region.
    let Some(mr) = (unsafe { Object::<MrObject>::borrow(mr) }) else { return status(NtStatus::INVALID_PARAMETER) };
    let mut region = mr.region();
    if !mr.is_fast {
        return status(NtStatus::INVALID_DEVICE_REQUEST);
    }
    match FastMr::reserve(mr.pd().pd(), pages, is_remote != 0) {
        Ok(fast) => {
            *region = Region::Fast(fast);
            status(NtStatus::SUCCESS)
        }
        Err(error) => failed(&error),
    }
}

/// Returns the token, for this end and for the peer, which are the same; 0, which no region has, if there is none.
unsafe extern "C" fn token(mr: *mut NDK_MR) -> UINT32 {
    // SAFETY: the consumer gives a live region.
    let Some(mr) = (unsafe { Object::<MrObject>::borrow(mr) }) else { return 0 };
    let region = mr.region();
    match &*region {
        Region::Registered(mr) => mr.rkey(),
        Region::Fast(fast) => fast.key(),
        Region::None | Region::Changing => 0,
    }
}
