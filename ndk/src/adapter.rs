//! Adapters: limits, and the creation of what hangs off them.

use std::sync::Arc;

use verbena_host::cm::{ConnectionManager, MAX_CALLEE_DATA, MAX_CALLER_DATA};
use verbena_host::mr::MAX_FAST_PAGES;
use verbena_host::ndk::NtStatus;
use verbena_host::Adapter;

use crate::abi::*;
use crate::object::{query_extension, status, Kind, Object};
use crate::{connector, cq, endpoint, lam, listener, pd};

/// Vendor number in `NDK_ADAPTER_INFO`: the letters VRB. No OUI is registered for the project.
const VENDOR: u32 = 0x56_5242;

/// An opened adapter. The last of its objects lets it go, and then its close returns.
pub(crate) struct AdapterObject {
    manager: Arc<ConnectionManager>,
    pub(crate) version: NDK_VERSION,
}

impl AdapterObject {
    pub(crate) fn new(manager: Arc<ConnectionManager>, version: NDK_VERSION) -> Arc<Object<Self>> {
        Object::new(version, Self { manager, version })
    }

    /// Returns the driver's adapter.
    pub(crate) fn host(&self) -> &Arc<Adapter> {
        self.manager.adapter()
    }

    pub(crate) fn manager(&self) -> &Arc<ConnectionManager> {
        &self.manager
    }
}

impl Kind for AdapterObject {
    type Public = NDK_ADAPTER;
    type Dispatch = NDK_ADAPTER_DISPATCH;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeAdapter;
    const TABLE: &'static NDK_ADAPTER_DISPATCH = &NDK_ADAPTER_DISPATCH {
        NdkQueryExtension: Some(query_extension),
        NdkQueryAdapterInfo: Some(query_info),
        NdkCreateCq: Some(cq::create),
        NdkCreatePd: Some(pd::create),
        NdkCreateSharedEndpoint: Some(endpoint::create),
        NdkCreateConnector: Some(connector::create),
        NdkCreateListener: Some(listener::create),
        NdkBuildLAM: Some(lam::build),
        NdkReleaseLAM: Some(lam::release),
    };
}

unsafe extern "C" fn query_info(adapter: *mut NDK_ADAPTER, info: *mut NDK_ADAPTER_INFO, size: *mut ULONG) -> NTSTATUS {
    // SAFETY: the consumer gives a live adapter and the size of the place for the answer.
    let (Some(adapter), Some(size)) = (unsafe { Object::<AdapterObject>::borrow(adapter) }, unsafe { size.as_mut() }) else {
        return status(NtStatus::INVALID_PARAMETER);
    };
    let needed = size_of::<NDK_ADAPTER_INFO>() as ULONG;
    let given = std::mem::replace(size, needed);
    if info.is_null() || given < needed {
        return status(NtStatus::BUFFER_TOO_SMALL);
    }
    let limits = adapter.host().info();
    let filled = NDK_ADAPTER_INFO {
        Version: adapter.version,
        VendorId: VENDOR,
        DeviceId: u32::from(limits.abi_version.0) << 16 | u32::from(limits.abi_version.1),
        // A region has 64 bits of length on the card; the end of its addresses must fit into them too.
        MaxRegistrationSize: SIZE_T::MAX,
        MaxWindowSize: 0,
        FRMRPageCount: MAX_FAST_PAGES,
        MaxInitiatorRequestSge: limits.max_send_sges,
        MaxReceiveRequestSge: limits.max_receive_sges,
        MaxReadRequestSge: limits.max_read_sges,
        MaxTransferLength: limits.max_message_bytes,
        MaxInlineDataSize: limits.max_inline_bytes,
        MaxInboundReadLimit: limits.max_inbound_reads,
        MaxOutboundReadLimit: limits.max_outbound_reads,
        MaxReceiveQueueDepth: limits.max_receive_depth,
        MaxInitiatorQueueDepth: limits.max_send_depth,
        MaxSrqDepth: 0,
        MaxCqDepth: limits.max_cq_depth,
        // Writes are all that there is, so they are worth it at any size.
        LargeRequestThreshold: 0,
        MaxCallerData: MAX_CALLER_DATA as ULONG,
        MaxCalleeData: MAX_CALLEE_DATA as ULONG,
        AdapterFlags: NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED
            | NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED
            | if adapter.host().can_moderate() { NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED } else { 0 },
        RdmaTechnology: NDK_RDMA_TECHNOLOGY::NdkRoCEv2,
    };
    // SAFETY: the consumer says that there is room, and it may not be aligned.
    unsafe { info.write_unaligned(filled) };
    status(NtStatus::SUCCESS)
}
