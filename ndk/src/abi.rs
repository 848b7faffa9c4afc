//! The C interface: what `ndkpi.h` declares, laid out as it is on x64.
//!
//! Names are those of the interface, so that code written for it compiles. `verbena_ndk.h` is made from this file.
//! Sizes and offsets are those of the reference; [`layouts!`] has them once, asserts them here, and the header asserts
//! them again in C.

#![allow(non_camel_case_types, non_snake_case, reason = "the names of ndkpi.h")]
#![allow(clippy::upper_case_acronyms, clippy::enum_variant_names, reason = "the names of ndkpi.h")]
#![allow(missing_docs, reason = "NDKPI's reference documents them; docs/ndk.md says what this provider does")]

use std::ffi::c_void;
use std::mem::{offset_of, size_of};

pub type BOOLEAN = u8;
pub type USHORT = u16;
pub type ULONG = u32;
pub type UINT32 = u32;
pub type UINT64 = u64;
pub type ULONG64 = u64;
pub type ULONG_PTR = usize;
pub type SIZE_T = usize;
pub type PVOID = *mut c_void;
pub type NTSTATUS = i32;
pub type NDIS_STATUS = i32;
pub type NDIS_HANDLE = *mut c_void;

/// Address of a socket, as the system lays it out. Excluded from the header, which takes the system's.
#[repr(C)]
pub struct SOCKADDR {
    pub sa_family: u16,
    pub sa_data: [u8; 14],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct LARGE_INTEGER {
    pub QuadPart: i64,
}

/// Bytes of a page of logical addresses.
pub const PAGE_SIZE: usize = 4096;

#[repr(C)]
pub struct GUID {
    pub Data1: u32,
    pub Data2: u16,
    pub Data3: u16,
    pub Data4: [u8; 8],
}

#[repr(C)]
pub struct GROUP_AFFINITY {
    pub Mask: ULONG_PTR,
    pub Group: u16,
    pub Reserved: [u16; 3],
}

/// A memory descriptor list: one piece of a virtually contiguous buffer.
#[repr(C)]
pub struct MDL {
    pub Next: *mut MDL,
    pub Size: i16,
    pub MdlFlags: i16,
    pub Process: PVOID,
    pub MappedSystemVa: PVOID,
    pub StartVa: PVOID,
    pub ByteCount: ULONG,
    pub ByteOffset: ULONG,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NDK_VERSION {
    pub Major: USHORT,
    pub Minor: USHORT,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NDK_OBJECT_TYPE {
    NdkObjectTypeUndefined = 0,
    NdkObjectTypeAdapter = 1,
    NdkObjectTypeQp = 2,
    NdkObjectTypeCq = 3,
    NdkObjectTypeMr = 4,
    NdkObjectTypeMw = 5,
    NdkObjectTypePd = 6,
    NdkObjectTypeSharedEndpoint = 7,
    NdkObjectTypeConnector = 8,
    NdkObjectTypeListener = 9,
    NdkObjectTypeSrq = 10,
    NdkObjectTypeMax = 11,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NDK_OPERATION_TYPE {
    NdkOperationTypeReceive = 1,
    NdkOperationTypeReceiveAndInvalidate = 0x8001,
    NdkOperationTypeSend = 2,
    NdkOperationTypeFastRegister = 4,
    NdkOperationTypeBind = 8,
    NdkOperationTypeInvalidate = 16,
    NdkOperationTypeRead = 32,
    NdkOperationTypeWrite = 64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NDK_RDMA_TECHNOLOGY {
    NdkUndefined = 0,
    NdkiWarp = 1,
    NdkInfiniBand = 2,
    NdkRoCE = 3,
    NdkRoCEv2 = 4,
    NdkMaxTechnology = 5,
}

#[repr(C)]
pub struct NDK_OBJECT_HEADER_RESERVED_BLOCK {
    pub rf: [PVOID; 4],
}

#[repr(C)]
pub struct NDK_OBJECT_HEADER {
    pub Version: NDK_VERSION,
    pub ObjectType: NDK_OBJECT_TYPE,
    pub NdkReserved: NDK_OBJECT_HEADER_RESERVED_BLOCK,
}

#[repr(C)]
pub struct NDK_ADAPTER {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_ADAPTER_DISPATCH,
}

#[repr(C)]
pub struct NDK_PD {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_PD_DISPATCH,
}

#[repr(C)]
pub struct NDK_CQ {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_CQ_DISPATCH,
}

#[repr(C)]
pub struct NDK_QP {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_QP_DISPATCH,
}

#[repr(C)]
pub struct NDK_MR {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_MR_DISPATCH,
}

#[repr(C)]
pub struct NDK_MW {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_MW_DISPATCH,
}

#[repr(C)]
pub struct NDK_SRQ {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_SRQ_DISPATCH,
}

#[repr(C)]
pub struct NDK_SHARED_ENDPOINT {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_SHARED_ENDPOINT_DISPATCH,
}

#[repr(C)]
pub struct NDK_CONNECTOR {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_CONNECTOR_DISPATCH,
}

#[repr(C)]
pub struct NDK_LISTENER {
    pub Header: NDK_OBJECT_HEADER,
    pub Dispatch: *const NDK_LISTENER_DISPATCH,
}

// Callbacks of the consumer.

pub type NDK_FN_CLOSE_COMPLETION = Option<unsafe extern "C" fn(Context: PVOID)>;
pub type NDK_FN_REQUEST_COMPLETION = Option<unsafe extern "C" fn(Context: PVOID, Status: NTSTATUS)>;
pub type NDK_FN_CREATE_COMPLETION = Option<unsafe extern "C" fn(Context: PVOID, Status: NTSTATUS, pNdkObject: *mut NDK_OBJECT_HEADER)>;
pub type NDK_FN_CQ_NOTIFICATION_CALLBACK = Option<unsafe extern "C" fn(CqNotificationContext: PVOID, CqStatus: NTSTATUS)>;
pub type NDK_FN_SRQ_NOTIFICATION_CALLBACK = Option<unsafe extern "C" fn(SrqNotificationContext: PVOID, SrqStatus: NTSTATUS)>;
pub type NDK_FN_CONNECT_EVENT_CALLBACK = Option<unsafe extern "C" fn(ConnectEventContext: PVOID, pNdkConnector: *mut NDK_CONNECTOR)>;
pub type NDK_FN_DISCONNECT_EVENT_CALLBACK = Option<unsafe extern "C" fn(DisconnectEventContext: PVOID)>;
pub type NDK_FN_DISCONNECT_EVENT_CALLBACK_EX = Option<unsafe extern "C" fn(DisconnectEventContext: PVOID, ProviderDisconnectReason: ULONG)>;

#[repr(C)]
pub struct NDK_EXTENSION_INTERFACE {
    pub Dispatch: *const c_void,
}

#[repr(C)]
pub struct NDK_RESULT {
    pub Status: NTSTATUS,
    pub BytesTransferred: ULONG,
    pub QPContext: PVOID,
    pub RequestContext: PVOID,
}

#[repr(C)]
pub struct NDK_RESULT_EX {
    pub Status: NTSTATUS,
    pub BytesTransferred: ULONG,
    pub QPContext: PVOID,
    pub RequestContext: PVOID,
    pub Type: NDK_OPERATION_TYPE,
    pub ProviderErrorCode: ULONG,
    pub TypeSpecificCompletionOutput: ULONG_PTR,
}

pub type NDK_LOGICAL_ADDRESS = LARGE_INTEGER;

#[repr(C)]
pub struct NDK_LOGICAL_ADDRESS_MAPPING {
    pub AdapterContext: PVOID,
    pub AdapterPageCount: ULONG,
    pub AdapterPageArray: [NDK_LOGICAL_ADDRESS; 1],
}

/// A piece of local memory. The address is a union in C, which the header writes out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NDK_SGE {
    pub Address: u64,
    pub Length: ULONG,
    pub MemoryRegionToken: UINT32,
}

#[repr(C)]
pub struct NDK_ADAPTER_INFO {
    pub Version: NDK_VERSION,
    pub VendorId: UINT32,
    pub DeviceId: UINT32,
    pub MaxRegistrationSize: SIZE_T,
    pub MaxWindowSize: SIZE_T,
    pub FRMRPageCount: ULONG,
    pub MaxInitiatorRequestSge: ULONG,
    pub MaxReceiveRequestSge: ULONG,
    pub MaxReadRequestSge: ULONG,
    pub MaxTransferLength: ULONG,
    pub MaxInlineDataSize: ULONG,
    pub MaxInboundReadLimit: ULONG,
    pub MaxOutboundReadLimit: ULONG,
    pub MaxReceiveQueueDepth: ULONG,
    pub MaxInitiatorQueueDepth: ULONG,
    pub MaxSrqDepth: ULONG,
    pub MaxCqDepth: ULONG,
    pub LargeRequestThreshold: ULONG,
    pub MaxCallerData: ULONG,
    pub MaxCalleeData: ULONG,
    pub AdapterFlags: ULONG,
    pub RdmaTechnology: NDK_RDMA_TECHNOLOGY,
}

#[repr(C)]
pub struct NDIS_OPEN_NDK_ADAPTER_PARAMETERS {
    pub Version: NDK_VERSION,
    pub SwitchId: ULONG,
    pub VPortId: ULONG,
}

/// What NDIS asks an adapter for by `OID_NDK_STATISTICS`. Traffic counts since the reset of the card: frames of RDMA, acknowledgements included, and
/// their octets, headers included, preamble and FCS not. The rest counts since the adapter was opened.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NDIS_NDK_PERFORMANCE_COUNTERS {
    pub Connect: ULONG64,
    pub Accept: ULONG64,
    pub ConnectFailure: ULONG64,
    pub ConnectionError: ULONG64,
    pub ActiveConnection: ULONG64,
    pub Reserved01: ULONG64,
    pub Reserved02: ULONG64,
    pub Reserved03: ULONG64,
    pub Reserved04: ULONG64,
    pub Reserved05: ULONG64,
    pub Reserved06: ULONG64,
    pub Reserved07: ULONG64,
    pub Reserved08: ULONG64,
    pub Reserved09: ULONG64,
    pub Reserved10: ULONG64,
    pub Reserved11: ULONG64,
    pub Reserved12: ULONG64,
    pub Reserved13: ULONG64,
    pub Reserved14: ULONG64,
    pub Reserved15: ULONG64,
    pub Reserved16: ULONG64,
    pub Reserved17: ULONG64,
    pub Reserved18: ULONG64,
    pub Reserved19: ULONG64,
    pub Reserved20: ULONG64,
    pub CQError: ULONG64,
    pub RDMAInOctets: ULONG64,
    pub RDMAOutOctets: ULONG64,
    pub RDMAInFrames: ULONG64,
    pub RDMAOutFrames: ULONG64,
}

// Functions of the provider.

pub type NDK_FN_CLOSE_OBJECT = Option<
    unsafe extern "C" fn(pNdkObject: *mut NDK_OBJECT_HEADER, CloseCompletion: NDK_FN_CLOSE_COMPLETION, RequestContext: PVOID) -> NTSTATUS,
>;
pub type NDK_FN_QUERY_EXTENSION_INTERFACE = Option<
    unsafe extern "C" fn(
        pNdkObject: *mut NDK_OBJECT_HEADER,
        ExtensionInterfaceID: *mut GUID,
        ExtensionInterfaceVersion: NDK_VERSION,
        pExtensionInterface: *mut NDK_EXTENSION_INTERFACE,
    ) -> NTSTATUS,
>;
pub type NDK_FN_QUERY_ADAPTER_INFO =
    Option<unsafe extern "C" fn(pNdkAdapter: *mut NDK_ADAPTER, pInfo: *mut NDK_ADAPTER_INFO, pBufferSize: *mut ULONG) -> NTSTATUS>;
pub type NDK_FN_CREATE_CQ = Option<
    unsafe extern "C" fn(
        pNdkAdapter: *mut NDK_ADAPTER,
        CqDepth: ULONG,
        CqNotification: NDK_FN_CQ_NOTIFICATION_CALLBACK,
        CqNotificationContext: PVOID,
        Affinity: *mut GROUP_AFFINITY,
        CreateCompletion: NDK_FN_CREATE_COMPLETION,
        RequestContext: PVOID,
        ppNdkCq: *mut *mut NDK_CQ,
    ) -> NTSTATUS,
>;
pub type NDK_FN_CREATE_PD = Option<
    unsafe extern "C" fn(
        pNdkAdapter: *mut NDK_ADAPTER,
        CreateCompletion: NDK_FN_CREATE_COMPLETION,
        RequestContext: PVOID,
        ppNdkPd: *mut *mut NDK_PD,
    ) -> NTSTATUS,
>;
pub type NDK_FN_CREATE_SHARED_ENDPOINT = Option<
    unsafe extern "C" fn(
        pNdkAdapter: *mut NDK_ADAPTER,
        pAddress: *const SOCKADDR,
        AddressLength: ULONG,
        CreateCompletion: NDK_FN_CREATE_COMPLETION,
        RequestContext: PVOID,
        ppNdkSharedEndpoint: *mut *mut NDK_SHARED_ENDPOINT,
    ) -> NTSTATUS,
>;
pub type NDK_FN_CREATE_CONNECTOR = Option<
    unsafe extern "C" fn(
        pNdkAdapter: *mut NDK_ADAPTER,
        CreateCompletion: NDK_FN_CREATE_COMPLETION,
        RequestContext: PVOID,
        ppNdkConnector: *mut *mut NDK_CONNECTOR,
    ) -> NTSTATUS,
>;
pub type NDK_FN_CREATE_LISTENER = Option<
    unsafe extern "C" fn(
        pNdkAdapter: *mut NDK_ADAPTER,
        ConnectEvent: NDK_FN_CONNECT_EVENT_CALLBACK,
        ConnectEventContext: PVOID,
        CreateCompletion: NDK_FN_CREATE_COMPLETION,
        RequestContext: PVOID,
        ppNdkListener: *mut *mut NDK_LISTENER,
    ) -> NTSTATUS,
>;
pub type NDK_FN_BUILD_LAM = Option<
    unsafe extern "C" fn(
        pNdkAdapter: *mut NDK_ADAPTER,
        Mdl: *mut MDL,
        Length: SIZE_T,
        RequestCompletion: NDK_FN_REQUEST_COMPLETION,
        RequestContext: PVOID,
        pNdkLAM: *mut NDK_LOGICAL_ADDRESS_MAPPING,
        pLAMSize: *mut ULONG,
        pFBO: *mut ULONG,
    ) -> NTSTATUS,
>;
pub type NDK_FN_RELEASE_LAM = Option<unsafe extern "C" fn(pNdkAdapter: *mut NDK_ADAPTER, pNdkLAM: *mut NDK_LOGICAL_ADDRESS_MAPPING)>;

pub type NDK_FN_CREATE_MR = Option<
    unsafe extern "C" fn(
        pNdkPd: *mut NDK_PD,
        FastRegister: BOOLEAN,
        CreateCompletion: NDK_FN_CREATE_COMPLETION,
        RequestContext: PVOID,
        ppNdkMr: *mut *mut NDK_MR,
    ) -> NTSTATUS,
>;
pub type NDK_FN_CREATE_MW = Option<
    unsafe extern "C" fn(
        pNdkPd: *mut NDK_PD,
        CreateCompletion: NDK_FN_CREATE_COMPLETION,
        RequestContext: PVOID,
        ppNdkMw: *mut *mut NDK_MW,
    ) -> NTSTATUS,
>;
pub type NDK_FN_CREATE_SRQ = Option<
    unsafe extern "C" fn(
        pNdkPd: *mut NDK_PD,
        SrqDepth: ULONG,
        MaxReceiveRequestSge: ULONG,
        NotifyThreshold: ULONG,
        SrqNotification: NDK_FN_SRQ_NOTIFICATION_CALLBACK,
        SrqNotificationContext: PVOID,
        Affinity: *mut GROUP_AFFINITY,
        CreateCompletion: NDK_FN_CREATE_COMPLETION,
        RequestContext: PVOID,
        ppNdkSrq: *mut *mut NDK_SRQ,
    ) -> NTSTATUS,
>;
pub type NDK_FN_CREATE_QP = Option<
    unsafe extern "C" fn(
        pNdkPd: *mut NDK_PD,
        pReceiveCq: *mut NDK_CQ,
        pInitiatorCq: *mut NDK_CQ,
        QPContext: PVOID,
        ReceiveQueueDepth: ULONG,
        InitiatorQueueDepth: ULONG,
        MaxReceiveRequestSge: ULONG,
        MaxInitiatorRequestSge: ULONG,
        InlineDataSize: ULONG,
        CreateCompletion: NDK_FN_CREATE_COMPLETION,
        RequestContext: PVOID,
        ppNdkQp: *mut *mut NDK_QP,
    ) -> NTSTATUS,
>;
pub type NDK_FN_CREATE_QP_WITH_SRQ = Option<
    unsafe extern "C" fn(
        pNdkPd: *mut NDK_PD,
        pReceiveCq: *mut NDK_CQ,
        pInitiatorCq: *mut NDK_CQ,
        pSrq: *mut NDK_SRQ,
        QPContext: PVOID,
        InitiatorQueueDepth: ULONG,
        MaxInitiatorRequestSge: ULONG,
        InlineDataSize: ULONG,
        CreateCompletion: NDK_FN_CREATE_COMPLETION,
        RequestContext: PVOID,
        ppNdkQp: *mut *mut NDK_QP,
    ) -> NTSTATUS,
>;
pub type NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN = Option<unsafe extern "C" fn(pNdkPd: *mut NDK_PD, pToken: *mut UINT32)>;

pub type NDK_FN_RESIZE_CQ = Option<
    unsafe extern "C" fn(
        pNdkCq: *mut NDK_CQ,
        CqDepth: ULONG,
        RequestCompletion: NDK_FN_REQUEST_COMPLETION,
        RequestContext: PVOID,
    ) -> NTSTATUS,
>;
pub type NDK_FN_ARM_CQ = Option<unsafe extern "C" fn(pNdkCq: *mut NDK_CQ, Type: ULONG)>;
pub type NDK_FN_GET_CQ_RESULTS = Option<unsafe extern "C" fn(pNdkCq: *mut NDK_CQ, Results: *mut NDK_RESULT, nResults: ULONG) -> ULONG>;
pub type NDK_FN_GET_CQ_RESULTS_EX =
    Option<unsafe extern "C" fn(pNdkCq: *mut NDK_CQ, Results: *mut NDK_RESULT_EX, nResults: ULONG) -> ULONG>;
pub type NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION =
    Option<unsafe extern "C" fn(pNdkCq: *mut NDK_CQ, ModerationInterval: ULONG, ModerationCount: ULONG) -> NTSTATUS>;

pub type NDK_FN_FLUSH = Option<unsafe extern "C" fn(pNdkQp: *mut NDK_QP)>;
pub type NDK_FN_SEND =
    Option<unsafe extern "C" fn(pNdkQp: *mut NDK_QP, RequestContext: PVOID, pSgl: *const NDK_SGE, nSge: ULONG, Flags: ULONG) -> NTSTATUS>;
pub type NDK_FN_RECEIVE =
    Option<unsafe extern "C" fn(pNdkQp: *mut NDK_QP, RequestContext: PVOID, pSgl: *const NDK_SGE, nSge: ULONG) -> NTSTATUS>;
pub type NDK_FN_BIND = Option<
    unsafe extern "C" fn(
        pNdkQp: *mut NDK_QP,
        RequestContext: PVOID,
        pMr: *mut NDK_MR,
        pMw: *mut NDK_MW,
        VirtualAddress: PVOID,
        Length: SIZE_T,
        Flags: ULONG,
    ) -> NTSTATUS,
>;
pub type NDK_FN_FAST_REGISTER = Option<
    unsafe extern "C" fn(
        pNdkQp: *mut NDK_QP,
        RequestContext: PVOID,
        pMr: *mut NDK_MR,
        AdapterPageCount: ULONG,
        AdapterPageArray: *const NDK_LOGICAL_ADDRESS,
        FBO: ULONG,
        Length: SIZE_T,
        BaseVirtualAddress: PVOID,
        Flags: ULONG,
    ) -> NTSTATUS,
>;
pub type NDK_FN_INVALIDATE =
    Option<unsafe extern "C" fn(pNdkQp: *mut NDK_QP, RequestContext: PVOID, pNdkMrOrMw: *mut NDK_OBJECT_HEADER, Flags: ULONG) -> NTSTATUS>;
pub type NDK_FN_READ = Option<
    unsafe extern "C" fn(
        pNdkQp: *mut NDK_QP,
        RequestContext: PVOID,
        pSgl: *const NDK_SGE,
        nSge: ULONG,
        RemoteAddress: UINT64,
        RemoteToken: UINT32,
        Flags: ULONG,
    ) -> NTSTATUS,
>;
pub type NDK_FN_WRITE = Option<
    unsafe extern "C" fn(
        pNdkQp: *mut NDK_QP,
        RequestContext: PVOID,
        pSgl: *const NDK_SGE,
        nSge: ULONG,
        RemoteAddress: UINT64,
        RemoteToken: UINT32,
        Flags: ULONG,
    ) -> NTSTATUS,
>;
pub type NDK_FN_SEND_AND_INVALIDATE = Option<
    unsafe extern "C" fn(
        pNdkQp: *mut NDK_QP,
        RequestContext: PVOID,
        pSgl: *const NDK_SGE,
        nSge: ULONG,
        Flags: ULONG,
        RemoteToken: UINT32,
    ) -> NTSTATUS,
>;

pub type NDK_FN_REGISTER_MR = Option<
    unsafe extern "C" fn(
        pNdkMr: *mut NDK_MR,
        Mdl: *mut MDL,
        Length: SIZE_T,
        Flags: ULONG,
        RequestCompletion: NDK_FN_REQUEST_COMPLETION,
        RequestContext: PVOID,
    ) -> NTSTATUS,
>;
pub type NDK_FN_DEREGISTER_MR =
    Option<unsafe extern "C" fn(pNdkMr: *mut NDK_MR, RequestCompletion: NDK_FN_REQUEST_COMPLETION, RequestContext: PVOID) -> NTSTATUS>;
pub type NDK_FN_INITIALIZE_FAST_REGISTER_MR = Option<
    unsafe extern "C" fn(
        pNdkMr: *mut NDK_MR,
        AdapterPageCount: ULONG,
        RemoteAccess: BOOLEAN,
        RequestCompletion: NDK_FN_REQUEST_COMPLETION,
        RequestContext: PVOID,
    ) -> NTSTATUS,
>;
pub type NDK_FN_GET_REMOTE_TOKEN_FROM_MR = Option<unsafe extern "C" fn(pNdkMr: *mut NDK_MR) -> UINT32>;
pub type NDK_FN_GET_LOCAL_TOKEN_FROM_MR = Option<unsafe extern "C" fn(pNdkMr: *mut NDK_MR) -> UINT32>;
pub type NDK_FN_GET_REMOTE_TOKEN_FROM_MW = Option<unsafe extern "C" fn(pNdkMw: *mut NDK_MW) -> UINT32>;

pub type NDK_FN_MODIFY_SRQ = Option<
    unsafe extern "C" fn(
        pNdkSrq: *mut NDK_SRQ,
        SrqDepth: ULONG,
        NotifyThreshold: ULONG,
        RequestCompletion: NDK_FN_REQUEST_COMPLETION,
        RequestContext: PVOID,
    ) -> NTSTATUS,
>;
pub type NDK_FN_SRQ_RECEIVE =
    Option<unsafe extern "C" fn(pNdkSrq: *mut NDK_SRQ, RequestContext: PVOID, pSgl: *const NDK_SGE, nSge: ULONG) -> NTSTATUS>;

pub type NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS = Option<
    unsafe extern "C" fn(pNdkSharedEndpoint: *mut NDK_SHARED_ENDPOINT, pAddress: *mut SOCKADDR, pAddressLength: *mut ULONG) -> NTSTATUS,
>;

pub type NDK_FN_CONNECT = Option<
    unsafe extern "C" fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        pNdkQp: *mut NDK_QP,
        pSrcAddress: *const SOCKADDR,
        SrcAddressLength: ULONG,
        pDestAddress: *const SOCKADDR,
        DestAddressLength: ULONG,
        InboundReadLimit: ULONG,
        OutboundReadLimit: ULONG,
        pPrivateData: *const c_void,
        PrivateDataLength: ULONG,
        RequestCompletion: NDK_FN_REQUEST_COMPLETION,
        RequestContext: PVOID,
    ) -> NTSTATUS,
>;
pub type NDK_FN_CONNECT_WITH_SHARED_ENDPOINT = Option<
    unsafe extern "C" fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        pNdkQp: *mut NDK_QP,
        pNdkSharedEndpoint: *mut NDK_SHARED_ENDPOINT,
        pDestAddress: *const SOCKADDR,
        DestAddressLength: ULONG,
        InboundReadLimit: ULONG,
        OutboundReadLimit: ULONG,
        pPrivateData: *const c_void,
        PrivateDataLength: ULONG,
        RequestCompletion: NDK_FN_REQUEST_COMPLETION,
        RequestContext: PVOID,
    ) -> NTSTATUS,
>;
pub type NDK_FN_COMPLETE_CONNECT = Option<
    unsafe extern "C" fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        DisconnectEvent: NDK_FN_DISCONNECT_EVENT_CALLBACK,
        DisconnectEventContext: PVOID,
        RequestCompletion: NDK_FN_REQUEST_COMPLETION,
        RequestContext: PVOID,
    ) -> NTSTATUS,
>;
pub type NDK_FN_COMPLETE_CONNECT_EX = Option<
    unsafe extern "C" fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        DisconnectEvent: NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
        DisconnectEventContext: PVOID,
        RequestCompletion: NDK_FN_REQUEST_COMPLETION,
        RequestContext: PVOID,
    ) -> NTSTATUS,
>;
pub type NDK_FN_ACCEPT = Option<
    unsafe extern "C" fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        pNdkQp: *mut NDK_QP,
        InboundReadLimit: ULONG,
        OutboundReadLimit: ULONG,
        pPrivateData: *const c_void,
        PrivateDataLength: ULONG,
        DisconnectEvent: NDK_FN_DISCONNECT_EVENT_CALLBACK,
        DisconnectEventContext: PVOID,
        RequestCompletion: NDK_FN_REQUEST_COMPLETION,
        RequestContext: PVOID,
    ) -> NTSTATUS,
>;
pub type NDK_FN_ACCEPT_EX = Option<
    unsafe extern "C" fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        pNdkQp: *mut NDK_QP,
        InboundReadLimit: ULONG,
        OutboundReadLimit: ULONG,
        pPrivateData: *const c_void,
        PrivateDataLength: ULONG,
        DisconnectEvent: NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
        DisconnectEventContext: PVOID,
        RequestCompletion: NDK_FN_REQUEST_COMPLETION,
        RequestContext: PVOID,
    ) -> NTSTATUS,
>;
pub type NDK_FN_REJECT =
    Option<unsafe extern "C" fn(pNdkConnector: *mut NDK_CONNECTOR, pPrivateData: *const c_void, PrivateDataLength: ULONG) -> NTSTATUS>;
pub type NDK_FN_GET_CONNECTION_DATA = Option<
    unsafe extern "C" fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        pInboundReadLimit: *mut ULONG,
        pOutboundReadLimit: *mut ULONG,
        pPrivateData: PVOID,
        pPrivateDataLength: *mut ULONG,
    ) -> NTSTATUS,
>;
pub type NDK_FN_GET_LOCAL_ADDRESS =
    Option<unsafe extern "C" fn(pNdkConnector: *mut NDK_CONNECTOR, pAddress: *mut SOCKADDR, pAddressLength: *mut ULONG) -> NTSTATUS>;
pub type NDK_FN_GET_PEER_ADDRESS =
    Option<unsafe extern "C" fn(pNdkConnector: *mut NDK_CONNECTOR, pAddress: *mut SOCKADDR, pAddressLength: *mut ULONG) -> NTSTATUS>;
pub type NDK_FN_DISCONNECT = Option<
    unsafe extern "C" fn(
        pNdkConnector: *mut NDK_CONNECTOR,
        RequestCompletion: NDK_FN_REQUEST_COMPLETION,
        RequestContext: PVOID,
    ) -> NTSTATUS,
>;

pub type NDK_FN_LISTEN = Option<
    unsafe extern "C" fn(
        pNdkListener: *mut NDK_LISTENER,
        pAddress: *const SOCKADDR,
        AddressLength: ULONG,
        RequestCompletion: NDK_FN_REQUEST_COMPLETION,
        RequestContext: PVOID,
    ) -> NTSTATUS,
>;
pub type NDK_FN_GET_LISTENER_LOCAL_ADDRESS =
    Option<unsafe extern "C" fn(pNdkListener: *mut NDK_LISTENER, pAddress: *mut SOCKADDR, pAddressLength: *mut ULONG) -> NTSTATUS>;
pub type NDK_FN_CONTROL_CONNECT_EVENTS = Option<unsafe extern "C" fn(pNdkListener: *mut NDK_LISTENER, Pause: BOOLEAN)>;

// Tables of functions, in the order of the interface.

#[repr(C)]
pub struct NDK_ADAPTER_DISPATCH {
    pub NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
    pub NdkQueryAdapterInfo: NDK_FN_QUERY_ADAPTER_INFO,
    pub NdkCreateCq: NDK_FN_CREATE_CQ,
    pub NdkCreatePd: NDK_FN_CREATE_PD,
    pub NdkCreateSharedEndpoint: NDK_FN_CREATE_SHARED_ENDPOINT,
    pub NdkCreateConnector: NDK_FN_CREATE_CONNECTOR,
    pub NdkCreateListener: NDK_FN_CREATE_LISTENER,
    pub NdkBuildLAM: NDK_FN_BUILD_LAM,
    pub NdkReleaseLAM: NDK_FN_RELEASE_LAM,
}

#[repr(C)]
pub struct NDK_PD_DISPATCH {
    pub NdkClosePd: NDK_FN_CLOSE_OBJECT,
    pub NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
    pub NdkCreateMr: NDK_FN_CREATE_MR,
    pub NdkCreateMw: NDK_FN_CREATE_MW,
    pub NdkCreateSrq: NDK_FN_CREATE_SRQ,
    pub NdkCreateQp: NDK_FN_CREATE_QP,
    pub NdkCreateQpWithSrq: NDK_FN_CREATE_QP_WITH_SRQ,
    pub NdkGetPrivilegedMemoryRegionToken: NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN,
}

#[repr(C)]
pub struct NDK_CQ_DISPATCH {
    pub NdkCloseCq: NDK_FN_CLOSE_OBJECT,
    pub NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
    pub NdkResizeCq: NDK_FN_RESIZE_CQ,
    pub NdkArmCq: NDK_FN_ARM_CQ,
    pub NdkGetCqResults: NDK_FN_GET_CQ_RESULTS,
    pub NdkControlCqInterruptModeration: NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION,
    pub NdkGetCqResultsEx: NDK_FN_GET_CQ_RESULTS_EX,
}

#[repr(C)]
pub struct NDK_QP_DISPATCH {
    pub NdkCloseQp: NDK_FN_CLOSE_OBJECT,
    pub NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
    pub NdkFlush: NDK_FN_FLUSH,
    pub NdkSend: NDK_FN_SEND,
    pub NdkReceive: NDK_FN_RECEIVE,
    pub NdkBind: NDK_FN_BIND,
    pub NdkFastRegister: NDK_FN_FAST_REGISTER,
    pub NdkInvalidate: NDK_FN_INVALIDATE,
    pub NdkRead: NDK_FN_READ,
    pub NdkWrite: NDK_FN_WRITE,
    pub NdkSendAndInvalidate: NDK_FN_SEND_AND_INVALIDATE,
}

#[repr(C)]
pub struct NDK_MR_DISPATCH {
    pub NdkCloseMr: NDK_FN_CLOSE_OBJECT,
    pub NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
    pub NdkRegisterMr: NDK_FN_REGISTER_MR,
    pub NdkDeregisterMr: NDK_FN_DEREGISTER_MR,
    pub NdkInitializeFastRegisterMr: NDK_FN_INITIALIZE_FAST_REGISTER_MR,
    pub NdkGetRemoteTokenFromMr: NDK_FN_GET_REMOTE_TOKEN_FROM_MR,
    pub NdkGetLocalTokenFromMr: NDK_FN_GET_LOCAL_TOKEN_FROM_MR,
}

#[repr(C)]
pub struct NDK_MW_DISPATCH {
    pub NdkCloseMw: NDK_FN_CLOSE_OBJECT,
    pub NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
    pub NdkGetRemoteTokenFromMw: NDK_FN_GET_REMOTE_TOKEN_FROM_MW,
}

#[repr(C)]
pub struct NDK_SRQ_DISPATCH {
    pub NdkCloseSrq: NDK_FN_CLOSE_OBJECT,
    pub NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
    pub NdkModifySrq: NDK_FN_MODIFY_SRQ,
    pub NdkSrqReceive: NDK_FN_SRQ_RECEIVE,
}

#[repr(C)]
pub struct NDK_SHARED_ENDPOINT_DISPATCH {
    pub NdkCloseSharedEndpoint: NDK_FN_CLOSE_OBJECT,
    pub NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
    pub NdkGetLocalAddress: NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS,
}

#[repr(C)]
pub struct NDK_CONNECTOR_DISPATCH {
    pub NdkCloseConnector: NDK_FN_CLOSE_OBJECT,
    pub NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
    pub NdkConnect: NDK_FN_CONNECT,
    pub NdkConnectWithSharedEndpoint: NDK_FN_CONNECT_WITH_SHARED_ENDPOINT,
    pub NdkCompleteConnect: NDK_FN_COMPLETE_CONNECT,
    pub NdkAccept: NDK_FN_ACCEPT,
    pub NdkReject: NDK_FN_REJECT,
    pub NdkGetConnectionData: NDK_FN_GET_CONNECTION_DATA,
    pub NdkGetLocalAddress: NDK_FN_GET_LOCAL_ADDRESS,
    pub NdkGetPeerAddress: NDK_FN_GET_PEER_ADDRESS,
    pub NdkDisconnect: NDK_FN_DISCONNECT,
    pub NdkCompleteConnectEx: NDK_FN_COMPLETE_CONNECT_EX,
    pub NdkAcceptEx: NDK_FN_ACCEPT_EX,
}

#[repr(C)]
pub struct NDK_LISTENER_DISPATCH {
    pub NdkCloseListener: NDK_FN_CLOSE_OBJECT,
    pub NdkQueryExtension: NDK_FN_QUERY_EXTENSION_INTERFACE,
    pub NdkListen: NDK_FN_LISTEN,
    pub NdkGetLocalAddress: NDK_FN_GET_LISTENER_LOCAL_ADDRESS,
    pub NdkControlConnectEvents: NDK_FN_CONTROL_CONNECT_EVENTS,
}

// Values.

pub const NDK_CQ_NOTIFY_ERRORS: ULONG = 0;
pub const NDK_CQ_NOTIFY_ANY: ULONG = 1;
pub const NDK_CQ_NOTIFY_SOLICITED: ULONG = 2;

pub const NDK_MR_FLAG_ALLOW_LOCAL_READ: ULONG = 0x0000_0000;
pub const NDK_MR_FLAG_ALLOW_LOCAL_WRITE: ULONG = 0x0000_0001;
pub const NDK_MR_FLAG_ALLOW_REMOTE_READ: ULONG = 0x0000_0002;
pub const NDK_MR_FLAG_ALLOW_REMOTE_WRITE: ULONG = 0x0000_0005;
pub const NDK_MR_FLAG_RDMA_READ_SINK: ULONG = 0x0000_0008;

pub const NDK_OP_FLAG_SILENT_SUCCESS: ULONG = 0x0000_0001;
pub const NDK_OP_FLAG_READ_FENCE: ULONG = 0x0000_0002;
pub const NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT: ULONG = 0x0000_0004;
pub const NDK_OP_FLAG_ALLOW_REMOTE_READ: ULONG = 0x0000_0008;
pub const NDK_OP_FLAG_ALLOW_LOCAL_WRITE: ULONG = 0x0000_0010;
pub const NDK_OP_FLAG_ALLOW_REMOTE_WRITE: ULONG = 0x0000_0030;
pub const NDK_OP_FLAG_INLINE: ULONG = 0x0000_0040;
pub const NDK_OP_FLAG_RDMA_READ_SINK: ULONG = 0x0000_0080;
pub const NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE: ULONG = 0x0000_0100;
pub const NDK_OP_FLAG_DEFER: ULONG = 0x0000_0200;

pub const NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED: ULONG = 0x0000_0001;
pub const NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED: ULONG = 0x0000_0002;
pub const NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED: ULONG = 0x0000_0004;
pub const NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED: ULONG = 0x0000_0008;
pub const NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED: ULONG = 0x0000_0010;
pub const NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED: ULONG = 0x0000_0100;
pub const NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED: ULONG = 0x0001_0000;

/// A structure with its size, and the offsets of its fields.
pub type Layout = (&'static str, usize, &'static [(&'static str, usize)]);

macro_rules! layouts {
    ($($name:ident: $size:literal { $($field:ident @ $offset:literal,)* })*) => {
        $(const _: () = assert!(size_of::<$name>() == $size $(&& offset_of!($name, $field) == $offset)*);)*
        /// Layouts of the structures, for the assertions in the header.
        pub const LAYOUTS: &[Layout] = &[$((stringify!($name), $size, &[$((stringify!($field), $offset),)*]),)*];
    };
}

layouts! {
    NDK_VERSION: 4 { Major @ 0, Minor @ 2, }
    NDK_OBJECT_HEADER_RESERVED_BLOCK: 32 { rf @ 0, }
    NDK_OBJECT_HEADER: 40 { Version @ 0, ObjectType @ 4, NdkReserved @ 8, }
    NDK_RESULT: 24 { Status @ 0, BytesTransferred @ 4, QPContext @ 8, RequestContext @ 16, }
    NDK_RESULT_EX: 40 {
        Status @ 0, BytesTransferred @ 4, QPContext @ 8, RequestContext @ 16,
        Type @ 24, ProviderErrorCode @ 28, TypeSpecificCompletionOutput @ 32,
    }
    NDK_LOGICAL_ADDRESS_MAPPING: 24 { AdapterContext @ 0, AdapterPageCount @ 8, AdapterPageArray @ 16, }
    NDK_SGE: 16 { Length @ 8, MemoryRegionToken @ 12, }
    NDK_EXTENSION_INTERFACE: 8 { Dispatch @ 0, }
    NDK_ADAPTER_INFO: 104 {
        Version @ 0, VendorId @ 4, DeviceId @ 8, MaxRegistrationSize @ 16, MaxWindowSize @ 24, FRMRPageCount @ 32,
        MaxInitiatorRequestSge @ 36, MaxReceiveRequestSge @ 40, MaxReadRequestSge @ 44, MaxTransferLength @ 48,
        MaxInlineDataSize @ 52, MaxInboundReadLimit @ 56, MaxOutboundReadLimit @ 60, MaxReceiveQueueDepth @ 64,
        MaxInitiatorQueueDepth @ 68, MaxSrqDepth @ 72, MaxCqDepth @ 76, LargeRequestThreshold @ 80, MaxCallerData @ 84,
        MaxCalleeData @ 88, AdapterFlags @ 92, RdmaTechnology @ 96,
    }
    NDIS_OPEN_NDK_ADAPTER_PARAMETERS: 12 { Version @ 0, SwitchId @ 4, VPortId @ 8, }
    NDIS_NDK_PERFORMANCE_COUNTERS: 240 {
        Connect @ 0, Accept @ 8, ConnectFailure @ 16, ConnectionError @ 24, ActiveConnection @ 32,
        Reserved01 @ 40, Reserved02 @ 48, Reserved03 @ 56, Reserved04 @ 64, Reserved05 @ 72, Reserved06 @ 80, Reserved07 @ 88, Reserved08 @ 96, Reserved09 @ 104, Reserved10 @ 112,
        Reserved11 @ 120, Reserved12 @ 128, Reserved13 @ 136, Reserved14 @ 144, Reserved15 @ 152, Reserved16 @ 160, Reserved17 @ 168, Reserved18 @ 176, Reserved19 @ 184, Reserved20 @ 192,
        CQError @ 200, RDMAInOctets @ 208, RDMAOutOctets @ 216, RDMAInFrames @ 224, RDMAOutFrames @ 232,
    }
    GROUP_AFFINITY: 16 { Mask @ 0, Group @ 8, Reserved @ 10, }
    GUID: 16 { Data1 @ 0, Data2 @ 4, Data3 @ 6, Data4 @ 8, }
    MDL: 48 { Next @ 0, Size @ 8, MdlFlags @ 10, Process @ 16, MappedSystemVa @ 24, StartVa @ 32, ByteCount @ 40, ByteOffset @ 44, }
    NDK_ADAPTER: 48 { Header @ 0, Dispatch @ 40, }
    NDK_PD: 48 { Header @ 0, Dispatch @ 40, }
    NDK_CQ: 48 { Header @ 0, Dispatch @ 40, }
    NDK_QP: 48 { Header @ 0, Dispatch @ 40, }
    NDK_MR: 48 { Header @ 0, Dispatch @ 40, }
    NDK_MW: 48 { Header @ 0, Dispatch @ 40, }
    NDK_SRQ: 48 { Header @ 0, Dispatch @ 40, }
    NDK_SHARED_ENDPOINT: 48 { Header @ 0, Dispatch @ 40, }
    NDK_CONNECTOR: 48 { Header @ 0, Dispatch @ 40, }
    NDK_LISTENER: 48 { Header @ 0, Dispatch @ 40, }
    NDK_ADAPTER_DISPATCH: 72 { NdkQueryExtension @ 0, NdkQueryAdapterInfo @ 8, NdkCreateCq @ 16, NdkCreatePd @ 24, NdkCreateSharedEndpoint @ 32, NdkCreateConnector @ 40, NdkCreateListener @ 48, NdkBuildLAM @ 56, NdkReleaseLAM @ 64, }
    NDK_PD_DISPATCH: 64 { NdkClosePd @ 0, NdkQueryExtension @ 8, NdkCreateMr @ 16, NdkCreateMw @ 24, NdkCreateSrq @ 32, NdkCreateQp @ 40, NdkCreateQpWithSrq @ 48, NdkGetPrivilegedMemoryRegionToken @ 56, }
    NDK_CQ_DISPATCH: 56 { NdkCloseCq @ 0, NdkQueryExtension @ 8, NdkResizeCq @ 16, NdkArmCq @ 24, NdkGetCqResults @ 32, NdkControlCqInterruptModeration @ 40, NdkGetCqResultsEx @ 48, }
    NDK_QP_DISPATCH: 88 { NdkCloseQp @ 0, NdkQueryExtension @ 8, NdkFlush @ 16, NdkSend @ 24, NdkReceive @ 32, NdkBind @ 40, NdkFastRegister @ 48, NdkInvalidate @ 56, NdkRead @ 64, NdkWrite @ 72, NdkSendAndInvalidate @ 80, }
    NDK_MR_DISPATCH: 56 { NdkCloseMr @ 0, NdkQueryExtension @ 8, NdkRegisterMr @ 16, NdkDeregisterMr @ 24, NdkInitializeFastRegisterMr @ 32, NdkGetRemoteTokenFromMr @ 40, NdkGetLocalTokenFromMr @ 48, }
    NDK_MW_DISPATCH: 24 { NdkCloseMw @ 0, NdkQueryExtension @ 8, NdkGetRemoteTokenFromMw @ 16, }
    NDK_SRQ_DISPATCH: 32 { NdkCloseSrq @ 0, NdkQueryExtension @ 8, NdkModifySrq @ 16, NdkSrqReceive @ 24, }
    NDK_SHARED_ENDPOINT_DISPATCH: 24 { NdkCloseSharedEndpoint @ 0, NdkQueryExtension @ 8, NdkGetLocalAddress @ 16, }
    NDK_CONNECTOR_DISPATCH: 104 { NdkCloseConnector @ 0, NdkQueryExtension @ 8, NdkConnect @ 16, NdkConnectWithSharedEndpoint @ 24, NdkCompleteConnect @ 32, NdkAccept @ 40, NdkReject @ 48, NdkGetConnectionData @ 56, NdkGetLocalAddress @ 64, NdkGetPeerAddress @ 72, NdkDisconnect @ 80, NdkCompleteConnectEx @ 88, NdkAcceptEx @ 96, }
    NDK_LISTENER_DISPATCH: 40 { NdkCloseListener @ 0, NdkQueryExtension @ 8, NdkListen @ 16, NdkGetLocalAddress @ 24, NdkControlConnectEvents @ 32, }
}

// The header has a union there, which it asserts itself.
const _: () = assert!(std::mem::offset_of!(NDK_SGE, Address) == 0);
