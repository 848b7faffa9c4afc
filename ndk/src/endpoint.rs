//! Shared endpoints: one local address for several connections.

use std::sync::Arc;

use verbena_host::cm::SharedEndpoint;
use verbena_host::ndk::NtStatus;

use crate::abi::*;
use crate::adapter::AdapterObject;
use crate::address;
use crate::object::{close, failed, query_extension, status, Closable, ClosingSlot, Kind, Object};

pub(crate) struct EndpointObject {
    endpoint: Option<SharedEndpoint>,
    adapter: Arc<Object<AdapterObject>>,
    closing: ClosingSlot,
}

impl Kind for EndpointObject {
    type Public = NDK_SHARED_ENDPOINT;
    type Dispatch = NDK_SHARED_ENDPOINT_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeSharedEndpoint;
    const TABLE: &'static NDK_SHARED_ENDPOINT_DISPATCH = &NDK_SHARED_ENDPOINT_DISPATCH {
        NdkCloseSharedEndpoint: Some(close::<EndpointObject>),
        NdkQueryExtension: Some(query_extension),
        NdkGetLocalAddress: Some(local_address),
    };
}

impl Closable for EndpointObject {
    fn closing(&self) -> &ClosingSlot {
        &self.closing
    }
}

impl EndpointObject {
    /// Returns the driver's endpoint. It is there as long as the object is.
    pub(crate) fn endpoint(&self) -> &SharedEndpoint {
        self.endpoint.as_ref().expect("taken by the drop alone")
    }
}

impl Drop for EndpointObject {
    fn drop(&mut self) {
        let host = Arc::clone(self.adapter.host());
        let finish = self.closing.finish(&host, Arc::clone(&self.adapter));
        self.endpoint = None;
        drop(finish);
    }
}

/// `NDK_FN_CREATE_SHARED_ENDPOINT`.
pub(crate) unsafe extern "C" fn create(
    adapter: *mut NDK_ADAPTER,
    at: *const SOCKADDR,
    at_bytes: ULONG,
    completion: NDK_FN_CREATE_COMPLETION,
    _context: PVOID,
    out: *mut *mut NDK_SHARED_ENDPOINT,
) -> NTSTATUS {
    // SAFETY: the consumer gives a live adapter, an address, and a place for the object.
    let (adapter, at, out) = unsafe { (Object::<AdapterObject>::share(adapter), address::read(at, at_bytes), out.as_mut()) };
    let (Some(adapter), Some(at), Some(out), Some(_)) = (adapter, at, out, completion) else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    match adapter.manager().shared_endpoint(at) {
        Ok(endpoint) => {
            let version = adapter.version;
            *out =
                Object::new(version, EndpointObject { endpoint: Some(endpoint), adapter, closing: ClosingSlot::default() }).into_public();
            status(NtStatus::SUCCESS)
        }
        Err(error) => failed(&error),
    }
}

unsafe extern "C" fn local_address(endpoint: *mut NDK_SHARED_ENDPOINT, to: *mut SOCKADDR, len: *mut ULONG) -> NTSTATUS {
    // SAFETY: the consumer gives a live endpoint and a place for the address.
    unsafe {
        let Some(endpoint) = Object::<EndpointObject>::borrow(endpoint) else { return status(NtStatus::INVALID_PARAMETER) };
        address::write(Some(endpoint.endpoint().address()), to, len)
    }
}
