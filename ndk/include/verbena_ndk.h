/*
 * NDKPI's objects and functions, as ndkpi.h has them on x64, and how a card is opened outside of Windows.
 *
 * Made from ndk/src/abi.rs and ndk/src/open.rs by `cargo run -p verbena-docs`. docs/ndk.md says what this provider does where the
 * interface leaves a choice. Callbacks run inside VerbenaProcessEvents and VerbenaCloseNdkAdapter.
 */
#ifndef VERBENA_NDK_H
#define VERBENA_NDK_H

#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
/* The statuses as NTSTATUS: windows.h has some of them as DWORD. */
#define WIN32_NO_STATUS
#include <winsock2.h>
#include <windows.h>
#undef WIN32_NO_STATUS
#include <ntstatus.h>
#ifndef _NTDEF_
typedef LONG NTSTATUS;
#endif
#else
#include <sys/socket.h>
typedef void VOID;
typedef void *PVOID;
typedef uint8_t BOOLEAN;
typedef uint16_t USHORT;
typedef int16_t CSHORT;
typedef uint16_t WORD;
typedef uint32_t ULONG;
typedef uint32_t UINT32;
typedef uint64_t UINT64;
typedef uint64_t ULONG64;
typedef uint64_t ULONG_PTR;
typedef uint64_t KAFFINITY;
typedef uint64_t SIZE_T;
typedef int32_t NTSTATUS;
typedef struct sockaddr SOCKADDR, *PSOCKADDR;
typedef union LARGE_INTEGER {
  struct {
    uint32_t LowPart;
    int32_t HighPart;
  } u;
  int64_t QuadPart;
} LARGE_INTEGER, PHYSICAL_ADDRESS;
typedef struct GUID {
  uint32_t Data1;
  uint16_t Data2;
  uint16_t Data3;
  uint8_t Data4[8];
} GUID;
typedef struct GROUP_AFFINITY {
  KAFFINITY Mask;
  WORD Group;
  WORD Reserved[3];
} GROUP_AFFINITY;
#ifndef TRUE
#define TRUE 1
#define FALSE 0
#endif
#ifndef CONST
#define CONST const
#endif
#ifndef NT_SUCCESS
#define NT_SUCCESS(Status) (((NTSTATUS)(Status)) >= 0)
#endif
#endif

typedef NTSTATUS NDIS_STATUS;
typedef PVOID NDIS_HANDLE;

/* A piece of a virtually contiguous buffer. The buffer begins at StartVa + ByteOffset. */
typedef struct MDL {
  struct MDL *Next;
  int16_t Size;
  int16_t MdlFlags;
  PVOID Process;
  PVOID MappedSystemVa;
  PVOID StartVa;
  ULONG ByteCount;
  ULONG ByteOffset;
} MDL, *PMDL;

#ifdef _WIN32
typedef LARGE_INTEGER NDK_LOGICAL_ADDRESS;
#else
typedef PHYSICAL_ADDRESS NDK_LOGICAL_ADDRESS;
#endif

/* A piece of local memory: by virtual address, or by logical address with the privileged token. */
typedef struct NDK_SGE {
  union {
    PVOID VirtualAddress;
    NDK_LOGICAL_ADDRESS LogicalAddress;
  };
  ULONG Length;
  UINT32 MemoryRegionToken;
} NDK_SGE;

#ifdef __cplusplus
#define VERBENA_ASSERT(condition, what) static_assert(condition, what)
#else
#define VERBENA_ASSERT(condition, what) _Static_assert(condition, what)
#endif

/* Statuses. */
#ifndef STATUS_SUCCESS
#define STATUS_SUCCESS ((NTSTATUS)0x00000000L)
#endif
VERBENA_ASSERT(STATUS_SUCCESS == (NTSTATUS)0x00000000L, "STATUS_SUCCESS");
#ifndef STATUS_PENDING
#define STATUS_PENDING ((NTSTATUS)0x00000103L)
#endif
VERBENA_ASSERT(STATUS_PENDING == (NTSTATUS)0x00000103L, "STATUS_PENDING");
#ifndef STATUS_BUFFER_OVERFLOW
#define STATUS_BUFFER_OVERFLOW ((NTSTATUS)0x80000005L)
#endif
VERBENA_ASSERT(STATUS_BUFFER_OVERFLOW == (NTSTATUS)0x80000005L, "STATUS_BUFFER_OVERFLOW");
#ifndef STATUS_DEVICE_BUSY
#define STATUS_DEVICE_BUSY ((NTSTATUS)0x80000011L)
#endif
VERBENA_ASSERT(STATUS_DEVICE_BUSY == (NTSTATUS)0x80000011L, "STATUS_DEVICE_BUSY");
#ifndef STATUS_NO_MORE_ENTRIES
#define STATUS_NO_MORE_ENTRIES ((NTSTATUS)0x8000001AL)
#endif
VERBENA_ASSERT(STATUS_NO_MORE_ENTRIES == (NTSTATUS)0x8000001AL, "STATUS_NO_MORE_ENTRIES");
#ifndef STATUS_ACCESS_VIOLATION
#define STATUS_ACCESS_VIOLATION ((NTSTATUS)0xC0000005L)
#endif
VERBENA_ASSERT(STATUS_ACCESS_VIOLATION == (NTSTATUS)0xC0000005L, "STATUS_ACCESS_VIOLATION");
#ifndef STATUS_INVALID_PARAMETER
#define STATUS_INVALID_PARAMETER ((NTSTATUS)0xC000000DL)
#endif
VERBENA_ASSERT(STATUS_INVALID_PARAMETER == (NTSTATUS)0xC000000DL, "STATUS_INVALID_PARAMETER");
#ifndef STATUS_INVALID_DEVICE_REQUEST
#define STATUS_INVALID_DEVICE_REQUEST ((NTSTATUS)0xC0000010L)
#endif
VERBENA_ASSERT(STATUS_INVALID_DEVICE_REQUEST == (NTSTATUS)0xC0000010L, "STATUS_INVALID_DEVICE_REQUEST");
#ifndef STATUS_BUFFER_TOO_SMALL
#define STATUS_BUFFER_TOO_SMALL ((NTSTATUS)0xC0000023L)
#endif
VERBENA_ASSERT(STATUS_BUFFER_TOO_SMALL == (NTSTATUS)0xC0000023L, "STATUS_BUFFER_TOO_SMALL");
#ifndef STATUS_INVALID_PARAMETER_MIX
#define STATUS_INVALID_PARAMETER_MIX ((NTSTATUS)0xC0000030L)
#endif
VERBENA_ASSERT(STATUS_INVALID_PARAMETER_MIX == (NTSTATUS)0xC0000030L, "STATUS_INVALID_PARAMETER_MIX");
#ifndef STATUS_DATA_OVERRUN
#define STATUS_DATA_OVERRUN ((NTSTATUS)0xC000003CL)
#endif
VERBENA_ASSERT(STATUS_DATA_OVERRUN == (NTSTATUS)0xC000003CL, "STATUS_DATA_OVERRUN");
#ifndef STATUS_DATA_ERROR
#define STATUS_DATA_ERROR ((NTSTATUS)0xC000003EL)
#endif
VERBENA_ASSERT(STATUS_DATA_ERROR == (NTSTATUS)0xC000003EL, "STATUS_DATA_ERROR");
#ifndef STATUS_SHARING_VIOLATION
#define STATUS_SHARING_VIOLATION ((NTSTATUS)0xC0000043L)
#endif
VERBENA_ASSERT(STATUS_SHARING_VIOLATION == (NTSTATUS)0xC0000043L, "STATUS_SHARING_VIOLATION");
#ifndef STATUS_INSUFFICIENT_RESOURCES
#define STATUS_INSUFFICIENT_RESOURCES ((NTSTATUS)0xC000009AL)
#endif
VERBENA_ASSERT(STATUS_INSUFFICIENT_RESOURCES == (NTSTATUS)0xC000009AL, "STATUS_INSUFFICIENT_RESOURCES");
#ifndef STATUS_IO_TIMEOUT
#define STATUS_IO_TIMEOUT ((NTSTATUS)0xC00000B5L)
#endif
VERBENA_ASSERT(STATUS_IO_TIMEOUT == (NTSTATUS)0xC00000B5L, "STATUS_IO_TIMEOUT");
#ifndef STATUS_NOT_SUPPORTED
#define STATUS_NOT_SUPPORTED ((NTSTATUS)0xC00000BBL)
#endif
VERBENA_ASSERT(STATUS_NOT_SUPPORTED == (NTSTATUS)0xC00000BBL, "STATUS_NOT_SUPPORTED");
#ifndef STATUS_INTERNAL_ERROR
#define STATUS_INTERNAL_ERROR ((NTSTATUS)0xC00000E5L)
#endif
VERBENA_ASSERT(STATUS_INTERNAL_ERROR == (NTSTATUS)0xC00000E5L, "STATUS_INTERNAL_ERROR");
#ifndef STATUS_INVALID_PARAMETER_1
#define STATUS_INVALID_PARAMETER_1 ((NTSTATUS)0xC00000EFL)
#endif
VERBENA_ASSERT(STATUS_INVALID_PARAMETER_1 == (NTSTATUS)0xC00000EFL, "STATUS_INVALID_PARAMETER_1");
#ifndef STATUS_INVALID_PARAMETER_2
#define STATUS_INVALID_PARAMETER_2 ((NTSTATUS)0xC00000F0L)
#endif
VERBENA_ASSERT(STATUS_INVALID_PARAMETER_2 == (NTSTATUS)0xC00000F0L, "STATUS_INVALID_PARAMETER_2");
#ifndef STATUS_INVALID_PARAMETER_3
#define STATUS_INVALID_PARAMETER_3 ((NTSTATUS)0xC00000F1L)
#endif
VERBENA_ASSERT(STATUS_INVALID_PARAMETER_3 == (NTSTATUS)0xC00000F1L, "STATUS_INVALID_PARAMETER_3");
#ifndef STATUS_INVALID_PARAMETER_4
#define STATUS_INVALID_PARAMETER_4 ((NTSTATUS)0xC00000F2L)
#endif
VERBENA_ASSERT(STATUS_INVALID_PARAMETER_4 == (NTSTATUS)0xC00000F2L, "STATUS_INVALID_PARAMETER_4");
#ifndef STATUS_INVALID_PARAMETER_5
#define STATUS_INVALID_PARAMETER_5 ((NTSTATUS)0xC00000F3L)
#endif
VERBENA_ASSERT(STATUS_INVALID_PARAMETER_5 == (NTSTATUS)0xC00000F3L, "STATUS_INVALID_PARAMETER_5");
#ifndef STATUS_INVALID_PARAMETER_6
#define STATUS_INVALID_PARAMETER_6 ((NTSTATUS)0xC00000F4L)
#endif
VERBENA_ASSERT(STATUS_INVALID_PARAMETER_6 == (NTSTATUS)0xC00000F4L, "STATUS_INVALID_PARAMETER_6");
#ifndef STATUS_INVALID_PARAMETER_7
#define STATUS_INVALID_PARAMETER_7 ((NTSTATUS)0xC00000F5L)
#endif
VERBENA_ASSERT(STATUS_INVALID_PARAMETER_7 == (NTSTATUS)0xC00000F5L, "STATUS_INVALID_PARAMETER_7");
#ifndef STATUS_INVALID_PARAMETER_8
#define STATUS_INVALID_PARAMETER_8 ((NTSTATUS)0xC00000F6L)
#endif
VERBENA_ASSERT(STATUS_INVALID_PARAMETER_8 == (NTSTATUS)0xC00000F6L, "STATUS_INVALID_PARAMETER_8");
#ifndef STATUS_INVALID_PARAMETER_9
#define STATUS_INVALID_PARAMETER_9 ((NTSTATUS)0xC00000F7L)
#endif
VERBENA_ASSERT(STATUS_INVALID_PARAMETER_9 == (NTSTATUS)0xC00000F7L, "STATUS_INVALID_PARAMETER_9");
#ifndef STATUS_INVALID_PARAMETER_10
#define STATUS_INVALID_PARAMETER_10 ((NTSTATUS)0xC00000F8L)
#endif
VERBENA_ASSERT(STATUS_INVALID_PARAMETER_10 == (NTSTATUS)0xC00000F8L, "STATUS_INVALID_PARAMETER_10");
#ifndef STATUS_CANCELLED
#define STATUS_CANCELLED ((NTSTATUS)0xC0000120L)
#endif
VERBENA_ASSERT(STATUS_CANCELLED == (NTSTATUS)0xC0000120L, "STATUS_CANCELLED");
#ifndef STATUS_REMOTE_RESOURCES
#define STATUS_REMOTE_RESOURCES ((NTSTATUS)0xC000013DL)
#endif
VERBENA_ASSERT(STATUS_REMOTE_RESOURCES == (NTSTATUS)0xC000013DL, "STATUS_REMOTE_RESOURCES");
#ifndef STATUS_INVALID_ADDRESS
#define STATUS_INVALID_ADDRESS ((NTSTATUS)0xC0000141L)
#endif
VERBENA_ASSERT(STATUS_INVALID_ADDRESS == (NTSTATUS)0xC0000141L, "STATUS_INVALID_ADDRESS");
#ifndef STATUS_INVALID_BUFFER_SIZE
#define STATUS_INVALID_BUFFER_SIZE ((NTSTATUS)0xC0000206L)
#endif
VERBENA_ASSERT(STATUS_INVALID_BUFFER_SIZE == (NTSTATUS)0xC0000206L, "STATUS_INVALID_BUFFER_SIZE");
#ifndef STATUS_TOO_MANY_ADDRESSES
#define STATUS_TOO_MANY_ADDRESSES ((NTSTATUS)0xC0000209L)
#endif
VERBENA_ASSERT(STATUS_TOO_MANY_ADDRESSES == (NTSTATUS)0xC0000209L, "STATUS_TOO_MANY_ADDRESSES");
#ifndef STATUS_ADDRESS_ALREADY_EXISTS
#define STATUS_ADDRESS_ALREADY_EXISTS ((NTSTATUS)0xC000020AL)
#endif
VERBENA_ASSERT(STATUS_ADDRESS_ALREADY_EXISTS == (NTSTATUS)0xC000020AL, "STATUS_ADDRESS_ALREADY_EXISTS");
#ifndef STATUS_CONNECTION_REFUSED
#define STATUS_CONNECTION_REFUSED ((NTSTATUS)0xC0000236L)
#endif
VERBENA_ASSERT(STATUS_CONNECTION_REFUSED == (NTSTATUS)0xC0000236L, "STATUS_CONNECTION_REFUSED");
#ifndef STATUS_ADDRESS_ALREADY_ASSOCIATED
#define STATUS_ADDRESS_ALREADY_ASSOCIATED ((NTSTATUS)0xC0000238L)
#endif
VERBENA_ASSERT(STATUS_ADDRESS_ALREADY_ASSOCIATED == (NTSTATUS)0xC0000238L, "STATUS_ADDRESS_ALREADY_ASSOCIATED");
#ifndef STATUS_CONNECTION_INVALID
#define STATUS_CONNECTION_INVALID ((NTSTATUS)0xC000023AL)
#endif
VERBENA_ASSERT(STATUS_CONNECTION_INVALID == (NTSTATUS)0xC000023AL, "STATUS_CONNECTION_INVALID");
#ifndef STATUS_CONNECTION_ACTIVE
#define STATUS_CONNECTION_ACTIVE ((NTSTATUS)0xC000023BL)
#endif
VERBENA_ASSERT(STATUS_CONNECTION_ACTIVE == (NTSTATUS)0xC000023BL, "STATUS_CONNECTION_ACTIVE");
#ifndef STATUS_NETWORK_UNREACHABLE
#define STATUS_NETWORK_UNREACHABLE ((NTSTATUS)0xC000023CL)
#endif
VERBENA_ASSERT(STATUS_NETWORK_UNREACHABLE == (NTSTATUS)0xC000023CL, "STATUS_NETWORK_UNREACHABLE");
#ifndef STATUS_HOST_UNREACHABLE
#define STATUS_HOST_UNREACHABLE ((NTSTATUS)0xC000023DL)
#endif
VERBENA_ASSERT(STATUS_HOST_UNREACHABLE == (NTSTATUS)0xC000023DL, "STATUS_HOST_UNREACHABLE");
#ifndef STATUS_CONNECTION_ABORTED
#define STATUS_CONNECTION_ABORTED ((NTSTATUS)0xC0000241L)
#endif
VERBENA_ASSERT(STATUS_CONNECTION_ABORTED == (NTSTATUS)0xC0000241L, "STATUS_CONNECTION_ABORTED");
#ifndef STATUS_DEVICE_REMOVED
#define STATUS_DEVICE_REMOVED ((NTSTATUS)0xC00002B6L)
#endif
VERBENA_ASSERT(STATUS_DEVICE_REMOVED == (NTSTATUS)0xC00002B6L, "STATUS_DEVICE_REMOVED");
#ifndef STATUS_IMPLEMENTATION_LIMIT
#define STATUS_IMPLEMENTATION_LIMIT ((NTSTATUS)0xC000042BL)
#endif
VERBENA_ASSERT(STATUS_IMPLEMENTATION_LIMIT == (NTSTATUS)0xC000042BL, "STATUS_IMPLEMENTATION_LIMIT");
#ifndef NDIS_STATUS_BAD_VERSION
#define NDIS_STATUS_BAD_VERSION ((NTSTATUS)0xC0010004L)
#endif
VERBENA_ASSERT(NDIS_STATUS_BAD_VERSION == (NTSTATUS)0xC0010004L, "NDIS_STATUS_BAD_VERSION");
#ifndef NDIS_STATUS_ADAPTER_NOT_READY
#define NDIS_STATUS_ADAPTER_NOT_READY ((NTSTATUS)0xC0010011L)
#endif
VERBENA_ASSERT(NDIS_STATUS_ADAPTER_NOT_READY == (NTSTATUS)0xC0010011L, "NDIS_STATUS_ADAPTER_NOT_READY");

/* Objects. */
typedef struct NDK_ADAPTER NDK_ADAPTER;
typedef struct NDK_PD NDK_PD;
typedef struct NDK_CQ NDK_CQ;
typedef struct NDK_QP NDK_QP;
typedef struct NDK_MR NDK_MR;
typedef struct NDK_MW NDK_MW;
typedef struct NDK_SRQ NDK_SRQ;
typedef struct NDK_SHARED_ENDPOINT NDK_SHARED_ENDPOINT;
typedef struct NDK_CONNECTOR NDK_CONNECTOR;
typedef struct NDK_LISTENER NDK_LISTENER;

typedef enum NDK_OBJECT_TYPE {
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
} NDK_OBJECT_TYPE;

typedef enum NDK_RDMA_TECHNOLOGY {
  NdkUndefined = 0,
  NdkiWarp = 1,
  NdkInfiniBand = 2,
  NdkRoCE = 3,
  NdkRoCEv2 = 4,
  NdkMaxTechnology = 5,
} NDK_RDMA_TECHNOLOGY;

typedef enum NDK_OPERATION_TYPE {
  NdkOperationTypeReceive = 1,
  NdkOperationTypeReceiveAndInvalidate = 32769,
  NdkOperationTypeSend = 2,
  NdkOperationTypeFastRegister = 4,
  NdkOperationTypeBind = 8,
  NdkOperationTypeInvalidate = 16,
  NdkOperationTypeRead = 32,
  NdkOperationTypeWrite = 64,
} NDK_OPERATION_TYPE;

typedef struct NDK_VERSION {
  USHORT Major;
  USHORT Minor;
} NDK_VERSION;

typedef struct NDIS_OPEN_NDK_ADAPTER_PARAMETERS {
  struct NDK_VERSION Version;
  ULONG SwitchId;
  ULONG VPortId;
} NDIS_OPEN_NDK_ADAPTER_PARAMETERS;

typedef struct NDK_OBJECT_HEADER_RESERVED_BLOCK {
  PVOID rf[4];
} NDK_OBJECT_HEADER_RESERVED_BLOCK;

typedef struct NDK_OBJECT_HEADER {
  struct NDK_VERSION Version;
  enum NDK_OBJECT_TYPE ObjectType;
  struct NDK_OBJECT_HEADER_RESERVED_BLOCK NdkReserved;
} NDK_OBJECT_HEADER;

typedef struct NDK_EXTENSION_INTERFACE {
  const void *Dispatch;
} NDK_EXTENSION_INTERFACE;

typedef NTSTATUS (*NDK_FN_QUERY_EXTENSION_INTERFACE)(struct NDK_OBJECT_HEADER *pNdkObject,
                                                     GUID *ExtensionInterfaceID,
                                                     struct NDK_VERSION ExtensionInterfaceVersion,
                                                     struct NDK_EXTENSION_INTERFACE *pExtensionInterface);

typedef struct NDK_ADAPTER_INFO {
  struct NDK_VERSION Version;
  UINT32 VendorId;
  UINT32 DeviceId;
  SIZE_T MaxRegistrationSize;
  SIZE_T MaxWindowSize;
  ULONG FRMRPageCount;
  ULONG MaxInitiatorRequestSge;
  ULONG MaxReceiveRequestSge;
  ULONG MaxReadRequestSge;
  ULONG MaxTransferLength;
  ULONG MaxInlineDataSize;
  ULONG MaxInboundReadLimit;
  ULONG MaxOutboundReadLimit;
  ULONG MaxReceiveQueueDepth;
  ULONG MaxInitiatorQueueDepth;
  ULONG MaxSrqDepth;
  ULONG MaxCqDepth;
  ULONG LargeRequestThreshold;
  ULONG MaxCallerData;
  ULONG MaxCalleeData;
  ULONG AdapterFlags;
  enum NDK_RDMA_TECHNOLOGY RdmaTechnology;
} NDK_ADAPTER_INFO;

typedef NTSTATUS (*NDK_FN_QUERY_ADAPTER_INFO)(struct NDK_ADAPTER *pNdkAdapter,
                                              struct NDK_ADAPTER_INFO *pInfo,
                                              ULONG *pBufferSize);

typedef void (*NDK_FN_CQ_NOTIFICATION_CALLBACK)(PVOID CqNotificationContext, NTSTATUS CqStatus);

typedef void (*NDK_FN_CREATE_COMPLETION)(PVOID Context, NTSTATUS Status, struct NDK_OBJECT_HEADER *pNdkObject);

typedef void (*NDK_FN_CLOSE_COMPLETION)(PVOID Context);

typedef NTSTATUS (*NDK_FN_CLOSE_OBJECT)(struct NDK_OBJECT_HEADER *pNdkObject,
                                        NDK_FN_CLOSE_COMPLETION CloseCompletion,
                                        PVOID RequestContext);

typedef void (*NDK_FN_REQUEST_COMPLETION)(PVOID Context, NTSTATUS Status);

typedef NTSTATUS (*NDK_FN_RESIZE_CQ)(struct NDK_CQ *pNdkCq,
                                     ULONG CqDepth,
                                     NDK_FN_REQUEST_COMPLETION RequestCompletion,
                                     PVOID RequestContext);

typedef void (*NDK_FN_ARM_CQ)(struct NDK_CQ *pNdkCq, ULONG Type);

typedef struct NDK_RESULT {
  NTSTATUS Status;
  ULONG BytesTransferred;
  PVOID QPContext;
  PVOID RequestContext;
} NDK_RESULT;

typedef ULONG (*NDK_FN_GET_CQ_RESULTS)(struct NDK_CQ *pNdkCq, struct NDK_RESULT *Results, ULONG nResults);

typedef NTSTATUS (*NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION)(struct NDK_CQ *pNdkCq,
                                                           ULONG ModerationInterval,
                                                           ULONG ModerationCount);

typedef struct NDK_RESULT_EX {
  NTSTATUS Status;
  ULONG BytesTransferred;
  PVOID QPContext;
  PVOID RequestContext;
  enum NDK_OPERATION_TYPE Type;
  ULONG ProviderErrorCode;
  ULONG_PTR TypeSpecificCompletionOutput;
} NDK_RESULT_EX;

typedef ULONG (*NDK_FN_GET_CQ_RESULTS_EX)(struct NDK_CQ *pNdkCq, struct NDK_RESULT_EX *Results, ULONG nResults);

typedef struct NDK_CQ_DISPATCH {
  NDK_FN_CLOSE_OBJECT NdkCloseCq;
  NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
  NDK_FN_RESIZE_CQ NdkResizeCq;
  NDK_FN_ARM_CQ NdkArmCq;
  NDK_FN_GET_CQ_RESULTS NdkGetCqResults;
  NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION NdkControlCqInterruptModeration;
  NDK_FN_GET_CQ_RESULTS_EX NdkGetCqResultsEx;
} NDK_CQ_DISPATCH;

typedef struct NDK_CQ {
  struct NDK_OBJECT_HEADER Header;
  const struct NDK_CQ_DISPATCH *Dispatch;
} NDK_CQ;

typedef NTSTATUS (*NDK_FN_CREATE_CQ)(struct NDK_ADAPTER *pNdkAdapter,
                                     ULONG CqDepth,
                                     NDK_FN_CQ_NOTIFICATION_CALLBACK CqNotification,
                                     PVOID CqNotificationContext,
                                     GROUP_AFFINITY *Affinity,
                                     NDK_FN_CREATE_COMPLETION CreateCompletion,
                                     PVOID RequestContext,
                                     struct NDK_CQ **ppNdkCq);

typedef NTSTATUS (*NDK_FN_REGISTER_MR)(struct NDK_MR *pNdkMr,
                                       MDL *Mdl,
                                       SIZE_T Length,
                                       ULONG Flags,
                                       NDK_FN_REQUEST_COMPLETION RequestCompletion,
                                       PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_DEREGISTER_MR)(struct NDK_MR *pNdkMr,
                                         NDK_FN_REQUEST_COMPLETION RequestCompletion,
                                         PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_INITIALIZE_FAST_REGISTER_MR)(struct NDK_MR *pNdkMr,
                                                       ULONG AdapterPageCount,
                                                       BOOLEAN RemoteAccess,
                                                       NDK_FN_REQUEST_COMPLETION RequestCompletion,
                                                       PVOID RequestContext);

typedef UINT32 (*NDK_FN_GET_REMOTE_TOKEN_FROM_MR)(struct NDK_MR *pNdkMr);

typedef UINT32 (*NDK_FN_GET_LOCAL_TOKEN_FROM_MR)(struct NDK_MR *pNdkMr);

typedef struct NDK_MR_DISPATCH {
  NDK_FN_CLOSE_OBJECT NdkCloseMr;
  NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
  NDK_FN_REGISTER_MR NdkRegisterMr;
  NDK_FN_DEREGISTER_MR NdkDeregisterMr;
  NDK_FN_INITIALIZE_FAST_REGISTER_MR NdkInitializeFastRegisterMr;
  NDK_FN_GET_REMOTE_TOKEN_FROM_MR NdkGetRemoteTokenFromMr;
  NDK_FN_GET_LOCAL_TOKEN_FROM_MR NdkGetLocalTokenFromMr;
} NDK_MR_DISPATCH;

typedef struct NDK_MR {
  struct NDK_OBJECT_HEADER Header;
  const struct NDK_MR_DISPATCH *Dispatch;
} NDK_MR;

typedef NTSTATUS (*NDK_FN_CREATE_MR)(struct NDK_PD *pNdkPd,
                                     BOOLEAN FastRegister,
                                     NDK_FN_CREATE_COMPLETION CreateCompletion,
                                     PVOID RequestContext,
                                     struct NDK_MR **ppNdkMr);

typedef UINT32 (*NDK_FN_GET_REMOTE_TOKEN_FROM_MW)(struct NDK_MW *pNdkMw);

typedef struct NDK_MW_DISPATCH {
  NDK_FN_CLOSE_OBJECT NdkCloseMw;
  NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
  NDK_FN_GET_REMOTE_TOKEN_FROM_MW NdkGetRemoteTokenFromMw;
} NDK_MW_DISPATCH;

typedef struct NDK_MW {
  struct NDK_OBJECT_HEADER Header;
  const struct NDK_MW_DISPATCH *Dispatch;
} NDK_MW;

typedef NTSTATUS (*NDK_FN_CREATE_MW)(struct NDK_PD *pNdkPd,
                                     NDK_FN_CREATE_COMPLETION CreateCompletion,
                                     PVOID RequestContext,
                                     struct NDK_MW **ppNdkMw);

typedef void (*NDK_FN_SRQ_NOTIFICATION_CALLBACK)(PVOID SrqNotificationContext, NTSTATUS SrqStatus);

typedef NTSTATUS (*NDK_FN_MODIFY_SRQ)(struct NDK_SRQ *pNdkSrq,
                                      ULONG SrqDepth,
                                      ULONG NotifyThreshold,
                                      NDK_FN_REQUEST_COMPLETION RequestCompletion,
                                      PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_SRQ_RECEIVE)(struct NDK_SRQ *pNdkSrq, PVOID RequestContext, const NDK_SGE *pSgl, ULONG nSge);

typedef struct NDK_SRQ_DISPATCH {
  NDK_FN_CLOSE_OBJECT NdkCloseSrq;
  NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
  NDK_FN_MODIFY_SRQ NdkModifySrq;
  NDK_FN_SRQ_RECEIVE NdkSrqReceive;
} NDK_SRQ_DISPATCH;

typedef struct NDK_SRQ {
  struct NDK_OBJECT_HEADER Header;
  const struct NDK_SRQ_DISPATCH *Dispatch;
} NDK_SRQ;

typedef NTSTATUS (*NDK_FN_CREATE_SRQ)(struct NDK_PD *pNdkPd,
                                      ULONG SrqDepth,
                                      ULONG MaxReceiveRequestSge,
                                      ULONG NotifyThreshold,
                                      NDK_FN_SRQ_NOTIFICATION_CALLBACK SrqNotification,
                                      PVOID SrqNotificationContext,
                                      GROUP_AFFINITY *Affinity,
                                      NDK_FN_CREATE_COMPLETION CreateCompletion,
                                      PVOID RequestContext,
                                      struct NDK_SRQ **ppNdkSrq);

typedef void (*NDK_FN_FLUSH)(struct NDK_QP *pNdkQp);

typedef NTSTATUS (*NDK_FN_SEND)(struct NDK_QP *pNdkQp,
                                PVOID RequestContext,
                                const NDK_SGE *pSgl,
                                ULONG nSge,
                                ULONG Flags);

typedef NTSTATUS (*NDK_FN_RECEIVE)(struct NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl, ULONG nSge);

typedef NTSTATUS (*NDK_FN_BIND)(struct NDK_QP *pNdkQp,
                                PVOID RequestContext,
                                struct NDK_MR *pMr,
                                struct NDK_MW *pMw,
                                PVOID VirtualAddress,
                                SIZE_T Length,
                                ULONG Flags);

typedef NTSTATUS (*NDK_FN_FAST_REGISTER)(struct NDK_QP *pNdkQp,
                                         PVOID RequestContext,
                                         struct NDK_MR *pMr,
                                         ULONG AdapterPageCount,
                                         const NDK_LOGICAL_ADDRESS *AdapterPageArray,
                                         ULONG FBO,
                                         SIZE_T Length,
                                         PVOID BaseVirtualAddress,
                                         ULONG Flags);

typedef NTSTATUS (*NDK_FN_INVALIDATE)(struct NDK_QP *pNdkQp,
                                      PVOID RequestContext,
                                      struct NDK_OBJECT_HEADER *pNdkMrOrMw,
                                      ULONG Flags);

typedef NTSTATUS (*NDK_FN_READ)(struct NDK_QP *pNdkQp,
                                PVOID RequestContext,
                                const NDK_SGE *pSgl,
                                ULONG nSge,
                                UINT64 RemoteAddress,
                                UINT32 RemoteToken,
                                ULONG Flags);

typedef NTSTATUS (*NDK_FN_WRITE)(struct NDK_QP *pNdkQp,
                                 PVOID RequestContext,
                                 const NDK_SGE *pSgl,
                                 ULONG nSge,
                                 UINT64 RemoteAddress,
                                 UINT32 RemoteToken,
                                 ULONG Flags);

typedef NTSTATUS (*NDK_FN_SEND_AND_INVALIDATE)(struct NDK_QP *pNdkQp,
                                               PVOID RequestContext,
                                               const NDK_SGE *pSgl,
                                               ULONG nSge,
                                               ULONG Flags,
                                               UINT32 RemoteToken);

typedef struct NDK_QP_DISPATCH {
  NDK_FN_CLOSE_OBJECT NdkCloseQp;
  NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
  NDK_FN_FLUSH NdkFlush;
  NDK_FN_SEND NdkSend;
  NDK_FN_RECEIVE NdkReceive;
  NDK_FN_BIND NdkBind;
  NDK_FN_FAST_REGISTER NdkFastRegister;
  NDK_FN_INVALIDATE NdkInvalidate;
  NDK_FN_READ NdkRead;
  NDK_FN_WRITE NdkWrite;
  NDK_FN_SEND_AND_INVALIDATE NdkSendAndInvalidate;
} NDK_QP_DISPATCH;

typedef struct NDK_QP {
  struct NDK_OBJECT_HEADER Header;
  const struct NDK_QP_DISPATCH *Dispatch;
} NDK_QP;

typedef NTSTATUS (*NDK_FN_CREATE_QP)(struct NDK_PD *pNdkPd,
                                     struct NDK_CQ *pReceiveCq,
                                     struct NDK_CQ *pInitiatorCq,
                                     PVOID QPContext,
                                     ULONG ReceiveQueueDepth,
                                     ULONG InitiatorQueueDepth,
                                     ULONG MaxReceiveRequestSge,
                                     ULONG MaxInitiatorRequestSge,
                                     ULONG InlineDataSize,
                                     NDK_FN_CREATE_COMPLETION CreateCompletion,
                                     PVOID RequestContext,
                                     struct NDK_QP **ppNdkQp);

typedef NTSTATUS (*NDK_FN_CREATE_QP_WITH_SRQ)(struct NDK_PD *pNdkPd,
                                              struct NDK_CQ *pReceiveCq,
                                              struct NDK_CQ *pInitiatorCq,
                                              struct NDK_SRQ *pSrq,
                                              PVOID QPContext,
                                              ULONG InitiatorQueueDepth,
                                              ULONG MaxInitiatorRequestSge,
                                              ULONG InlineDataSize,
                                              NDK_FN_CREATE_COMPLETION CreateCompletion,
                                              PVOID RequestContext,
                                              struct NDK_QP **ppNdkQp);

typedef void (*NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN)(struct NDK_PD *pNdkPd, UINT32 *pToken);

typedef struct NDK_PD_DISPATCH {
  NDK_FN_CLOSE_OBJECT NdkClosePd;
  NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
  NDK_FN_CREATE_MR NdkCreateMr;
  NDK_FN_CREATE_MW NdkCreateMw;
  NDK_FN_CREATE_SRQ NdkCreateSrq;
  NDK_FN_CREATE_QP NdkCreateQp;
  NDK_FN_CREATE_QP_WITH_SRQ NdkCreateQpWithSrq;
  NDK_FN_GET_PRIVILEGED_MEMORY_REGION_TOKEN NdkGetPrivilegedMemoryRegionToken;
} NDK_PD_DISPATCH;

typedef struct NDK_PD {
  struct NDK_OBJECT_HEADER Header;
  const struct NDK_PD_DISPATCH *Dispatch;
} NDK_PD;

typedef NTSTATUS (*NDK_FN_CREATE_PD)(struct NDK_ADAPTER *pNdkAdapter,
                                     NDK_FN_CREATE_COMPLETION CreateCompletion,
                                     PVOID RequestContext,
                                     struct NDK_PD **ppNdkPd);

typedef NTSTATUS (*NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS)(struct NDK_SHARED_ENDPOINT *pNdkSharedEndpoint,
                                                             SOCKADDR *pAddress,
                                                             ULONG *pAddressLength);

typedef struct NDK_SHARED_ENDPOINT_DISPATCH {
  NDK_FN_CLOSE_OBJECT NdkCloseSharedEndpoint;
  NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
  NDK_FN_GET_SHARED_ENDPOINT_LOCAL_ADDRESS NdkGetLocalAddress;
} NDK_SHARED_ENDPOINT_DISPATCH;

typedef struct NDK_SHARED_ENDPOINT {
  struct NDK_OBJECT_HEADER Header;
  const struct NDK_SHARED_ENDPOINT_DISPATCH *Dispatch;
} NDK_SHARED_ENDPOINT;

typedef NTSTATUS (*NDK_FN_CREATE_SHARED_ENDPOINT)(struct NDK_ADAPTER *pNdkAdapter,
                                                  const SOCKADDR *pAddress,
                                                  ULONG AddressLength,
                                                  NDK_FN_CREATE_COMPLETION CreateCompletion,
                                                  PVOID RequestContext,
                                                  struct NDK_SHARED_ENDPOINT **ppNdkSharedEndpoint);

typedef NTSTATUS (*NDK_FN_CONNECT)(struct NDK_CONNECTOR *pNdkConnector,
                                   struct NDK_QP *pNdkQp,
                                   const SOCKADDR *pSrcAddress,
                                   ULONG SrcAddressLength,
                                   const SOCKADDR *pDestAddress,
                                   ULONG DestAddressLength,
                                   ULONG InboundReadLimit,
                                   ULONG OutboundReadLimit,
                                   const void *pPrivateData,
                                   ULONG PrivateDataLength,
                                   NDK_FN_REQUEST_COMPLETION RequestCompletion,
                                   PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_CONNECT_WITH_SHARED_ENDPOINT)(struct NDK_CONNECTOR *pNdkConnector,
                                                        struct NDK_QP *pNdkQp,
                                                        struct NDK_SHARED_ENDPOINT *pNdkSharedEndpoint,
                                                        const SOCKADDR *pDestAddress,
                                                        ULONG DestAddressLength,
                                                        ULONG InboundReadLimit,
                                                        ULONG OutboundReadLimit,
                                                        const void *pPrivateData,
                                                        ULONG PrivateDataLength,
                                                        NDK_FN_REQUEST_COMPLETION RequestCompletion,
                                                        PVOID RequestContext);

typedef void (*NDK_FN_DISCONNECT_EVENT_CALLBACK)(PVOID DisconnectEventContext);

typedef NTSTATUS (*NDK_FN_COMPLETE_CONNECT)(struct NDK_CONNECTOR *pNdkConnector,
                                            NDK_FN_DISCONNECT_EVENT_CALLBACK DisconnectEvent,
                                            PVOID DisconnectEventContext,
                                            NDK_FN_REQUEST_COMPLETION RequestCompletion,
                                            PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_ACCEPT)(struct NDK_CONNECTOR *pNdkConnector,
                                  struct NDK_QP *pNdkQp,
                                  ULONG InboundReadLimit,
                                  ULONG OutboundReadLimit,
                                  const void *pPrivateData,
                                  ULONG PrivateDataLength,
                                  NDK_FN_DISCONNECT_EVENT_CALLBACK DisconnectEvent,
                                  PVOID DisconnectEventContext,
                                  NDK_FN_REQUEST_COMPLETION RequestCompletion,
                                  PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_REJECT)(struct NDK_CONNECTOR *pNdkConnector, const void *pPrivateData, ULONG PrivateDataLength);

typedef NTSTATUS (*NDK_FN_GET_CONNECTION_DATA)(struct NDK_CONNECTOR *pNdkConnector,
                                               ULONG *pInboundReadLimit,
                                               ULONG *pOutboundReadLimit,
                                               PVOID pPrivateData,
                                               ULONG *pPrivateDataLength);

typedef NTSTATUS (*NDK_FN_GET_LOCAL_ADDRESS)(struct NDK_CONNECTOR *pNdkConnector,
                                             SOCKADDR *pAddress,
                                             ULONG *pAddressLength);

typedef NTSTATUS (*NDK_FN_GET_PEER_ADDRESS)(struct NDK_CONNECTOR *pNdkConnector,
                                            SOCKADDR *pAddress,
                                            ULONG *pAddressLength);

typedef NTSTATUS (*NDK_FN_DISCONNECT)(struct NDK_CONNECTOR *pNdkConnector,
                                      NDK_FN_REQUEST_COMPLETION RequestCompletion,
                                      PVOID RequestContext);

typedef void (*NDK_FN_DISCONNECT_EVENT_CALLBACK_EX)(PVOID DisconnectEventContext, ULONG ProviderDisconnectReason);

typedef NTSTATUS (*NDK_FN_COMPLETE_CONNECT_EX)(struct NDK_CONNECTOR *pNdkConnector,
                                               NDK_FN_DISCONNECT_EVENT_CALLBACK_EX DisconnectEvent,
                                               PVOID DisconnectEventContext,
                                               NDK_FN_REQUEST_COMPLETION RequestCompletion,
                                               PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_ACCEPT_EX)(struct NDK_CONNECTOR *pNdkConnector,
                                     struct NDK_QP *pNdkQp,
                                     ULONG InboundReadLimit,
                                     ULONG OutboundReadLimit,
                                     const void *pPrivateData,
                                     ULONG PrivateDataLength,
                                     NDK_FN_DISCONNECT_EVENT_CALLBACK_EX DisconnectEvent,
                                     PVOID DisconnectEventContext,
                                     NDK_FN_REQUEST_COMPLETION RequestCompletion,
                                     PVOID RequestContext);

typedef struct NDK_CONNECTOR_DISPATCH {
  NDK_FN_CLOSE_OBJECT NdkCloseConnector;
  NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
  NDK_FN_CONNECT NdkConnect;
  NDK_FN_CONNECT_WITH_SHARED_ENDPOINT NdkConnectWithSharedEndpoint;
  NDK_FN_COMPLETE_CONNECT NdkCompleteConnect;
  NDK_FN_ACCEPT NdkAccept;
  NDK_FN_REJECT NdkReject;
  NDK_FN_GET_CONNECTION_DATA NdkGetConnectionData;
  NDK_FN_GET_LOCAL_ADDRESS NdkGetLocalAddress;
  NDK_FN_GET_PEER_ADDRESS NdkGetPeerAddress;
  NDK_FN_DISCONNECT NdkDisconnect;
  NDK_FN_COMPLETE_CONNECT_EX NdkCompleteConnectEx;
  NDK_FN_ACCEPT_EX NdkAcceptEx;
} NDK_CONNECTOR_DISPATCH;

typedef struct NDK_CONNECTOR {
  struct NDK_OBJECT_HEADER Header;
  const struct NDK_CONNECTOR_DISPATCH *Dispatch;
} NDK_CONNECTOR;

typedef NTSTATUS (*NDK_FN_CREATE_CONNECTOR)(struct NDK_ADAPTER *pNdkAdapter,
                                            NDK_FN_CREATE_COMPLETION CreateCompletion,
                                            PVOID RequestContext,
                                            struct NDK_CONNECTOR **ppNdkConnector);

typedef void (*NDK_FN_CONNECT_EVENT_CALLBACK)(PVOID ConnectEventContext, struct NDK_CONNECTOR *pNdkConnector);

typedef NTSTATUS (*NDK_FN_LISTEN)(struct NDK_LISTENER *pNdkListener,
                                  const SOCKADDR *pAddress,
                                  ULONG AddressLength,
                                  NDK_FN_REQUEST_COMPLETION RequestCompletion,
                                  PVOID RequestContext);

typedef NTSTATUS (*NDK_FN_GET_LISTENER_LOCAL_ADDRESS)(struct NDK_LISTENER *pNdkListener,
                                                      SOCKADDR *pAddress,
                                                      ULONG *pAddressLength);

typedef void (*NDK_FN_CONTROL_CONNECT_EVENTS)(struct NDK_LISTENER *pNdkListener, BOOLEAN Pause);

typedef struct NDK_LISTENER_DISPATCH {
  NDK_FN_CLOSE_OBJECT NdkCloseListener;
  NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
  NDK_FN_LISTEN NdkListen;
  NDK_FN_GET_LISTENER_LOCAL_ADDRESS NdkGetLocalAddress;
  NDK_FN_CONTROL_CONNECT_EVENTS NdkControlConnectEvents;
} NDK_LISTENER_DISPATCH;

typedef struct NDK_LISTENER {
  struct NDK_OBJECT_HEADER Header;
  const struct NDK_LISTENER_DISPATCH *Dispatch;
} NDK_LISTENER;

typedef NTSTATUS (*NDK_FN_CREATE_LISTENER)(struct NDK_ADAPTER *pNdkAdapter,
                                           NDK_FN_CONNECT_EVENT_CALLBACK ConnectEvent,
                                           PVOID ConnectEventContext,
                                           NDK_FN_CREATE_COMPLETION CreateCompletion,
                                           PVOID RequestContext,
                                           struct NDK_LISTENER **ppNdkListener);

typedef struct NDK_LOGICAL_ADDRESS_MAPPING {
  PVOID AdapterContext;
  ULONG AdapterPageCount;
  NDK_LOGICAL_ADDRESS AdapterPageArray[1];
} NDK_LOGICAL_ADDRESS_MAPPING;

typedef NTSTATUS (*NDK_FN_BUILD_LAM)(struct NDK_ADAPTER *pNdkAdapter,
                                     MDL *Mdl,
                                     SIZE_T Length,
                                     NDK_FN_REQUEST_COMPLETION RequestCompletion,
                                     PVOID RequestContext,
                                     struct NDK_LOGICAL_ADDRESS_MAPPING *pNdkLAM,
                                     ULONG *pLAMSize,
                                     ULONG *pFBO);

typedef void (*NDK_FN_RELEASE_LAM)(struct NDK_ADAPTER *pNdkAdapter, struct NDK_LOGICAL_ADDRESS_MAPPING *pNdkLAM);

typedef struct NDK_ADAPTER_DISPATCH {
  NDK_FN_QUERY_EXTENSION_INTERFACE NdkQueryExtension;
  NDK_FN_QUERY_ADAPTER_INFO NdkQueryAdapterInfo;
  NDK_FN_CREATE_CQ NdkCreateCq;
  NDK_FN_CREATE_PD NdkCreatePd;
  NDK_FN_CREATE_SHARED_ENDPOINT NdkCreateSharedEndpoint;
  NDK_FN_CREATE_CONNECTOR NdkCreateConnector;
  NDK_FN_CREATE_LISTENER NdkCreateListener;
  NDK_FN_BUILD_LAM NdkBuildLAM;
  NDK_FN_RELEASE_LAM NdkReleaseLAM;
} NDK_ADAPTER_DISPATCH;

typedef struct NDK_ADAPTER {
  struct NDK_OBJECT_HEADER Header;
  const struct NDK_ADAPTER_DISPATCH *Dispatch;
} NDK_ADAPTER;

/**
 * What NDIS asks an adapter for by `OID_NDK_STATISTICS`. Traffic counts since the reset of the card: frames of RDMA, acknowledgements included, and
 * their octets, headers included, preamble and FCS not. The rest counts since the adapter was opened.
 */
typedef struct NDIS_NDK_PERFORMANCE_COUNTERS {
  ULONG64 Connect;
  ULONG64 Accept;
  ULONG64 ConnectFailure;
  ULONG64 ConnectionError;
  ULONG64 ActiveConnection;
  ULONG64 Reserved01;
  ULONG64 Reserved02;
  ULONG64 Reserved03;
  ULONG64 Reserved04;
  ULONG64 Reserved05;
  ULONG64 Reserved06;
  ULONG64 Reserved07;
  ULONG64 Reserved08;
  ULONG64 Reserved09;
  ULONG64 Reserved10;
  ULONG64 Reserved11;
  ULONG64 Reserved12;
  ULONG64 Reserved13;
  ULONG64 Reserved14;
  ULONG64 Reserved15;
  ULONG64 Reserved16;
  ULONG64 Reserved17;
  ULONG64 Reserved18;
  ULONG64 Reserved19;
  ULONG64 Reserved20;
  ULONG64 CQError;
  ULONG64 RDMAInOctets;
  ULONG64 RDMAOutOctets;
  ULONG64 RDMAInFrames;
  ULONG64 RDMAOutFrames;
} NDIS_NDK_PERFORMANCE_COUNTERS;

#define NDK_CQ_NOTIFY_ERRORS 0

#define NDK_CQ_NOTIFY_ANY 1

#define NDK_CQ_NOTIFY_SOLICITED 2

#define NDK_MR_FLAG_ALLOW_LOCAL_READ 0

#define NDK_MR_FLAG_ALLOW_LOCAL_WRITE 1

#define NDK_MR_FLAG_ALLOW_REMOTE_READ 2

#define NDK_MR_FLAG_ALLOW_REMOTE_WRITE 5

#define NDK_MR_FLAG_RDMA_READ_SINK 8

#define NDK_OP_FLAG_SILENT_SUCCESS 1

#define NDK_OP_FLAG_READ_FENCE 2

#define NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT 4

#define NDK_OP_FLAG_ALLOW_REMOTE_READ 8

#define NDK_OP_FLAG_ALLOW_LOCAL_WRITE 16

#define NDK_OP_FLAG_ALLOW_REMOTE_WRITE 48

#define NDK_OP_FLAG_INLINE 64

#define NDK_OP_FLAG_RDMA_READ_SINK 128

#define NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE 256

#define NDK_OP_FLAG_DEFER 512

#define NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED 1

#define NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED 2

#define NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED 4

#define NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED 8

#define NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED 16

#define NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED 256

#define NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED 65536

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Opens an adapter (`OPEN_NDK_ADAPTER_HANDLER`). May block.
 *
 * Gives `NDIS_STATUS_BAD_VERSION` for a major number that there is none of, or a minor number above the highest,
 * `NDIS_STATUS_RESOURCES` for a device that is open, since a card has one driver at a time, and the driver's status if the card can't be opened.
 *
 * By contract: `device` is a handle of a device, `parameters` and `adapter` are valid.
 */
NDIS_STATUS VerbenaOpenNdkAdapter(NDIS_HANDLE device,
                                  const struct NDIS_OPEN_NDK_ADAPTER_PARAMETERS *parameters,
                                  struct NDK_ADAPTER **adapter);

/**
 * Closes an adapter (`CLOSE_NDK_ADAPTER_HANDLER`). Blocks until everything that was created from it is closed, and every callback
 * has returned; it runs the callbacks meanwhile. Where it waits for long, it warns in the log that objects are left. Not for use inside a callback.
 *
 * By contract: `adapter` came from `VerbenaOpenNdkAdapter` with this `device` and is not used any more.
 */
void VerbenaCloseNdkAdapter(NDIS_HANDLE device,
                            struct NDK_ADAPTER *adapter);

/**
 * Runs the callbacks that are due, and returns how many events there were. To be called in a loop, by any thread; callbacks of one
 * adapter never overlap.
 *
 * By contract: `adapter` is an open adapter.
 */
ULONG VerbenaProcessEvents(struct NDK_ADAPTER *adapter);

/**
 * Waits until something may have happened: an interrupt, or a bounded time. For programs that have nothing else to do; with simulated cards this is
 * what lets their clocks run.
 *
 * By contract: `adapter` is an open adapter.
 */
void VerbenaWait(struct NDK_ADAPTER *adapter);

/**
 * Tells what went over the wire and what became of connections, as a miniport answers `OID_NDK_STATISTICS`. No counter is missing.
 *
 * Gives `STATUS_INVALID_PARAMETER` for a null pointer, `STATUS_DEVICE_REMOVED` for a card that is gone, and `NDIS_STATUS_BAD_VERSION` for one whose interface is
 * older than 1.3.
 *
 * By contract: `adapter` is an open adapter, `counters` is valid.
 */
NTSTATUS VerbenaQueryStatistics(struct NDK_ADAPTER *adapter,
                                struct NDIS_NDK_PERFORMANCE_COUNTERS *counters);

/**
 * Writes to standard error from now on what the library has to say: errors with level 1, warnings too with 2, and so on up to everything with 5.
 * Without it nothing is said. The first call counts, and none in a program that has a subscriber of `tracing` by then.
 *
 * Gives `STATUS_INVALID_PARAMETER` for any other level, and `STATUS_INVALID_DEVICE_REQUEST` for a call that does not count.
 */
NTSTATUS VerbenaLogToStderr(ULONG level);

/**
 * Gives a device back. Its adapter is closed by then.
 *
 * By contract: `device` is a handle of a device and is not used any more.
 */
void VerbenaCloseDevice(NDIS_HANDLE device);

#if defined(VERBENA_HAS_SIM)
/**
 * Makes two simulated cards, joined by a link, with the addresses 192.0.2.1 and 192.0.2.2. Everything that happens by chance comes from `seed`.
 *
 * By contract: `devices` has room for two handles, each of which `VerbenaCloseDevice` takes back.
 */
NDIS_STATUS VerbenaOpenSimulation(ULONG64 seed,
                                  NDIS_HANDLE *devices);
#endif

#if defined(VERBENA_HAS_VFIO)
/**
 * Opens a card that is bound to `vfio-pci`.
 *
 * `sysfs` is the function's folder, for instance `/sys/bus/pci/devices/0000:41:00.0`; `mac` has six bytes and `ipv4` four, first byte first.
 *
 * By contract: `sysfs` is a string that ends with a zero, the other pointers are valid.
 */
NDIS_STATUS VerbenaOpenVfio(const char *sysfs,
                            const uint8_t *mac,
                            const uint8_t *ipv4,
                            NDIS_HANDLE *device);
#endif

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/* The layout of ndkpi.h on x64. */
VERBENA_ASSERT(sizeof(NDK_VERSION) == 4, "NDK_VERSION");
VERBENA_ASSERT(offsetof(NDK_VERSION, Major) == 0, "NDK_VERSION.Major");
VERBENA_ASSERT(offsetof(NDK_VERSION, Minor) == 2, "NDK_VERSION.Minor");
VERBENA_ASSERT(sizeof(NDK_OBJECT_HEADER_RESERVED_BLOCK) == 32, "NDK_OBJECT_HEADER_RESERVED_BLOCK");
VERBENA_ASSERT(offsetof(NDK_OBJECT_HEADER_RESERVED_BLOCK, rf) == 0, "NDK_OBJECT_HEADER_RESERVED_BLOCK.rf");
VERBENA_ASSERT(sizeof(NDK_OBJECT_HEADER) == 40, "NDK_OBJECT_HEADER");
VERBENA_ASSERT(offsetof(NDK_OBJECT_HEADER, Version) == 0, "NDK_OBJECT_HEADER.Version");
VERBENA_ASSERT(offsetof(NDK_OBJECT_HEADER, ObjectType) == 4, "NDK_OBJECT_HEADER.ObjectType");
VERBENA_ASSERT(offsetof(NDK_OBJECT_HEADER, NdkReserved) == 8, "NDK_OBJECT_HEADER.NdkReserved");
VERBENA_ASSERT(sizeof(NDK_RESULT) == 24, "NDK_RESULT");
VERBENA_ASSERT(offsetof(NDK_RESULT, Status) == 0, "NDK_RESULT.Status");
VERBENA_ASSERT(offsetof(NDK_RESULT, BytesTransferred) == 4, "NDK_RESULT.BytesTransferred");
VERBENA_ASSERT(offsetof(NDK_RESULT, QPContext) == 8, "NDK_RESULT.QPContext");
VERBENA_ASSERT(offsetof(NDK_RESULT, RequestContext) == 16, "NDK_RESULT.RequestContext");
VERBENA_ASSERT(sizeof(NDK_RESULT_EX) == 40, "NDK_RESULT_EX");
VERBENA_ASSERT(offsetof(NDK_RESULT_EX, Status) == 0, "NDK_RESULT_EX.Status");
VERBENA_ASSERT(offsetof(NDK_RESULT_EX, BytesTransferred) == 4, "NDK_RESULT_EX.BytesTransferred");
VERBENA_ASSERT(offsetof(NDK_RESULT_EX, QPContext) == 8, "NDK_RESULT_EX.QPContext");
VERBENA_ASSERT(offsetof(NDK_RESULT_EX, RequestContext) == 16, "NDK_RESULT_EX.RequestContext");
VERBENA_ASSERT(offsetof(NDK_RESULT_EX, Type) == 24, "NDK_RESULT_EX.Type");
VERBENA_ASSERT(offsetof(NDK_RESULT_EX, ProviderErrorCode) == 28, "NDK_RESULT_EX.ProviderErrorCode");
VERBENA_ASSERT(offsetof(NDK_RESULT_EX, TypeSpecificCompletionOutput) == 32, "NDK_RESULT_EX.TypeSpecificCompletionOutput");
VERBENA_ASSERT(sizeof(NDK_LOGICAL_ADDRESS_MAPPING) == 24, "NDK_LOGICAL_ADDRESS_MAPPING");
VERBENA_ASSERT(offsetof(NDK_LOGICAL_ADDRESS_MAPPING, AdapterContext) == 0, "NDK_LOGICAL_ADDRESS_MAPPING.AdapterContext");
VERBENA_ASSERT(offsetof(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageCount) == 8, "NDK_LOGICAL_ADDRESS_MAPPING.AdapterPageCount");
VERBENA_ASSERT(offsetof(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray) == 16, "NDK_LOGICAL_ADDRESS_MAPPING.AdapterPageArray");
VERBENA_ASSERT(sizeof(NDK_SGE) == 16, "NDK_SGE");
VERBENA_ASSERT(offsetof(NDK_SGE, Length) == 8, "NDK_SGE.Length");
VERBENA_ASSERT(offsetof(NDK_SGE, MemoryRegionToken) == 12, "NDK_SGE.MemoryRegionToken");
VERBENA_ASSERT(sizeof(NDK_EXTENSION_INTERFACE) == 8, "NDK_EXTENSION_INTERFACE");
VERBENA_ASSERT(offsetof(NDK_EXTENSION_INTERFACE, Dispatch) == 0, "NDK_EXTENSION_INTERFACE.Dispatch");
VERBENA_ASSERT(sizeof(NDK_ADAPTER_INFO) == 104, "NDK_ADAPTER_INFO");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, Version) == 0, "NDK_ADAPTER_INFO.Version");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, VendorId) == 4, "NDK_ADAPTER_INFO.VendorId");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, DeviceId) == 8, "NDK_ADAPTER_INFO.DeviceId");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, MaxRegistrationSize) == 16, "NDK_ADAPTER_INFO.MaxRegistrationSize");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, MaxWindowSize) == 24, "NDK_ADAPTER_INFO.MaxWindowSize");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, FRMRPageCount) == 32, "NDK_ADAPTER_INFO.FRMRPageCount");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, MaxInitiatorRequestSge) == 36, "NDK_ADAPTER_INFO.MaxInitiatorRequestSge");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, MaxReceiveRequestSge) == 40, "NDK_ADAPTER_INFO.MaxReceiveRequestSge");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, MaxReadRequestSge) == 44, "NDK_ADAPTER_INFO.MaxReadRequestSge");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, MaxTransferLength) == 48, "NDK_ADAPTER_INFO.MaxTransferLength");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, MaxInlineDataSize) == 52, "NDK_ADAPTER_INFO.MaxInlineDataSize");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, MaxInboundReadLimit) == 56, "NDK_ADAPTER_INFO.MaxInboundReadLimit");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, MaxOutboundReadLimit) == 60, "NDK_ADAPTER_INFO.MaxOutboundReadLimit");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, MaxReceiveQueueDepth) == 64, "NDK_ADAPTER_INFO.MaxReceiveQueueDepth");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, MaxInitiatorQueueDepth) == 68, "NDK_ADAPTER_INFO.MaxInitiatorQueueDepth");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, MaxSrqDepth) == 72, "NDK_ADAPTER_INFO.MaxSrqDepth");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, MaxCqDepth) == 76, "NDK_ADAPTER_INFO.MaxCqDepth");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, LargeRequestThreshold) == 80, "NDK_ADAPTER_INFO.LargeRequestThreshold");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, MaxCallerData) == 84, "NDK_ADAPTER_INFO.MaxCallerData");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, MaxCalleeData) == 88, "NDK_ADAPTER_INFO.MaxCalleeData");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, AdapterFlags) == 92, "NDK_ADAPTER_INFO.AdapterFlags");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_INFO, RdmaTechnology) == 96, "NDK_ADAPTER_INFO.RdmaTechnology");
VERBENA_ASSERT(sizeof(NDIS_OPEN_NDK_ADAPTER_PARAMETERS) == 12, "NDIS_OPEN_NDK_ADAPTER_PARAMETERS");
VERBENA_ASSERT(offsetof(NDIS_OPEN_NDK_ADAPTER_PARAMETERS, Version) == 0, "NDIS_OPEN_NDK_ADAPTER_PARAMETERS.Version");
VERBENA_ASSERT(offsetof(NDIS_OPEN_NDK_ADAPTER_PARAMETERS, SwitchId) == 4, "NDIS_OPEN_NDK_ADAPTER_PARAMETERS.SwitchId");
VERBENA_ASSERT(offsetof(NDIS_OPEN_NDK_ADAPTER_PARAMETERS, VPortId) == 8, "NDIS_OPEN_NDK_ADAPTER_PARAMETERS.VPortId");
VERBENA_ASSERT(sizeof(NDIS_NDK_PERFORMANCE_COUNTERS) == 240, "NDIS_NDK_PERFORMANCE_COUNTERS");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Connect) == 0, "NDIS_NDK_PERFORMANCE_COUNTERS.Connect");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Accept) == 8, "NDIS_NDK_PERFORMANCE_COUNTERS.Accept");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, ConnectFailure) == 16, "NDIS_NDK_PERFORMANCE_COUNTERS.ConnectFailure");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, ConnectionError) == 24, "NDIS_NDK_PERFORMANCE_COUNTERS.ConnectionError");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, ActiveConnection) == 32, "NDIS_NDK_PERFORMANCE_COUNTERS.ActiveConnection");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved01) == 40, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved01");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved02) == 48, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved02");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved03) == 56, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved03");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved04) == 64, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved04");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved05) == 72, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved05");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved06) == 80, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved06");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved07) == 88, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved07");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved08) == 96, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved08");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved09) == 104, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved09");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved10) == 112, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved10");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved11) == 120, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved11");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved12) == 128, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved12");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved13) == 136, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved13");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved14) == 144, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved14");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved15) == 152, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved15");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved16) == 160, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved16");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved17) == 168, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved17");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved18) == 176, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved18");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved19) == 184, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved19");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, Reserved20) == 192, "NDIS_NDK_PERFORMANCE_COUNTERS.Reserved20");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, CQError) == 200, "NDIS_NDK_PERFORMANCE_COUNTERS.CQError");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, RDMAInOctets) == 208, "NDIS_NDK_PERFORMANCE_COUNTERS.RDMAInOctets");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, RDMAOutOctets) == 216, "NDIS_NDK_PERFORMANCE_COUNTERS.RDMAOutOctets");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, RDMAInFrames) == 224, "NDIS_NDK_PERFORMANCE_COUNTERS.RDMAInFrames");
VERBENA_ASSERT(offsetof(NDIS_NDK_PERFORMANCE_COUNTERS, RDMAOutFrames) == 232, "NDIS_NDK_PERFORMANCE_COUNTERS.RDMAOutFrames");
VERBENA_ASSERT(sizeof(GROUP_AFFINITY) == 16, "GROUP_AFFINITY");
VERBENA_ASSERT(offsetof(GROUP_AFFINITY, Mask) == 0, "GROUP_AFFINITY.Mask");
VERBENA_ASSERT(offsetof(GROUP_AFFINITY, Group) == 8, "GROUP_AFFINITY.Group");
VERBENA_ASSERT(offsetof(GROUP_AFFINITY, Reserved) == 10, "GROUP_AFFINITY.Reserved");
VERBENA_ASSERT(sizeof(GUID) == 16, "GUID");
VERBENA_ASSERT(offsetof(GUID, Data1) == 0, "GUID.Data1");
VERBENA_ASSERT(offsetof(GUID, Data2) == 4, "GUID.Data2");
VERBENA_ASSERT(offsetof(GUID, Data3) == 6, "GUID.Data3");
VERBENA_ASSERT(offsetof(GUID, Data4) == 8, "GUID.Data4");
VERBENA_ASSERT(sizeof(MDL) == 48, "MDL");
VERBENA_ASSERT(offsetof(MDL, Next) == 0, "MDL.Next");
VERBENA_ASSERT(offsetof(MDL, Size) == 8, "MDL.Size");
VERBENA_ASSERT(offsetof(MDL, MdlFlags) == 10, "MDL.MdlFlags");
VERBENA_ASSERT(offsetof(MDL, Process) == 16, "MDL.Process");
VERBENA_ASSERT(offsetof(MDL, MappedSystemVa) == 24, "MDL.MappedSystemVa");
VERBENA_ASSERT(offsetof(MDL, StartVa) == 32, "MDL.StartVa");
VERBENA_ASSERT(offsetof(MDL, ByteCount) == 40, "MDL.ByteCount");
VERBENA_ASSERT(offsetof(MDL, ByteOffset) == 44, "MDL.ByteOffset");
VERBENA_ASSERT(sizeof(NDK_ADAPTER) == 48, "NDK_ADAPTER");
VERBENA_ASSERT(offsetof(NDK_ADAPTER, Header) == 0, "NDK_ADAPTER.Header");
VERBENA_ASSERT(offsetof(NDK_ADAPTER, Dispatch) == 40, "NDK_ADAPTER.Dispatch");
VERBENA_ASSERT(sizeof(NDK_PD) == 48, "NDK_PD");
VERBENA_ASSERT(offsetof(NDK_PD, Header) == 0, "NDK_PD.Header");
VERBENA_ASSERT(offsetof(NDK_PD, Dispatch) == 40, "NDK_PD.Dispatch");
VERBENA_ASSERT(sizeof(NDK_CQ) == 48, "NDK_CQ");
VERBENA_ASSERT(offsetof(NDK_CQ, Header) == 0, "NDK_CQ.Header");
VERBENA_ASSERT(offsetof(NDK_CQ, Dispatch) == 40, "NDK_CQ.Dispatch");
VERBENA_ASSERT(sizeof(NDK_QP) == 48, "NDK_QP");
VERBENA_ASSERT(offsetof(NDK_QP, Header) == 0, "NDK_QP.Header");
VERBENA_ASSERT(offsetof(NDK_QP, Dispatch) == 40, "NDK_QP.Dispatch");
VERBENA_ASSERT(sizeof(NDK_MR) == 48, "NDK_MR");
VERBENA_ASSERT(offsetof(NDK_MR, Header) == 0, "NDK_MR.Header");
VERBENA_ASSERT(offsetof(NDK_MR, Dispatch) == 40, "NDK_MR.Dispatch");
VERBENA_ASSERT(sizeof(NDK_MW) == 48, "NDK_MW");
VERBENA_ASSERT(offsetof(NDK_MW, Header) == 0, "NDK_MW.Header");
VERBENA_ASSERT(offsetof(NDK_MW, Dispatch) == 40, "NDK_MW.Dispatch");
VERBENA_ASSERT(sizeof(NDK_SRQ) == 48, "NDK_SRQ");
VERBENA_ASSERT(offsetof(NDK_SRQ, Header) == 0, "NDK_SRQ.Header");
VERBENA_ASSERT(offsetof(NDK_SRQ, Dispatch) == 40, "NDK_SRQ.Dispatch");
VERBENA_ASSERT(sizeof(NDK_SHARED_ENDPOINT) == 48, "NDK_SHARED_ENDPOINT");
VERBENA_ASSERT(offsetof(NDK_SHARED_ENDPOINT, Header) == 0, "NDK_SHARED_ENDPOINT.Header");
VERBENA_ASSERT(offsetof(NDK_SHARED_ENDPOINT, Dispatch) == 40, "NDK_SHARED_ENDPOINT.Dispatch");
VERBENA_ASSERT(sizeof(NDK_CONNECTOR) == 48, "NDK_CONNECTOR");
VERBENA_ASSERT(offsetof(NDK_CONNECTOR, Header) == 0, "NDK_CONNECTOR.Header");
VERBENA_ASSERT(offsetof(NDK_CONNECTOR, Dispatch) == 40, "NDK_CONNECTOR.Dispatch");
VERBENA_ASSERT(sizeof(NDK_LISTENER) == 48, "NDK_LISTENER");
VERBENA_ASSERT(offsetof(NDK_LISTENER, Header) == 0, "NDK_LISTENER.Header");
VERBENA_ASSERT(offsetof(NDK_LISTENER, Dispatch) == 40, "NDK_LISTENER.Dispatch");
VERBENA_ASSERT(sizeof(NDK_ADAPTER_DISPATCH) == 72, "NDK_ADAPTER_DISPATCH");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_DISPATCH, NdkQueryExtension) == 0, "NDK_ADAPTER_DISPATCH.NdkQueryExtension");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_DISPATCH, NdkQueryAdapterInfo) == 8, "NDK_ADAPTER_DISPATCH.NdkQueryAdapterInfo");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_DISPATCH, NdkCreateCq) == 16, "NDK_ADAPTER_DISPATCH.NdkCreateCq");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_DISPATCH, NdkCreatePd) == 24, "NDK_ADAPTER_DISPATCH.NdkCreatePd");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_DISPATCH, NdkCreateSharedEndpoint) == 32, "NDK_ADAPTER_DISPATCH.NdkCreateSharedEndpoint");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_DISPATCH, NdkCreateConnector) == 40, "NDK_ADAPTER_DISPATCH.NdkCreateConnector");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_DISPATCH, NdkCreateListener) == 48, "NDK_ADAPTER_DISPATCH.NdkCreateListener");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_DISPATCH, NdkBuildLAM) == 56, "NDK_ADAPTER_DISPATCH.NdkBuildLAM");
VERBENA_ASSERT(offsetof(NDK_ADAPTER_DISPATCH, NdkReleaseLAM) == 64, "NDK_ADAPTER_DISPATCH.NdkReleaseLAM");
VERBENA_ASSERT(sizeof(NDK_PD_DISPATCH) == 64, "NDK_PD_DISPATCH");
VERBENA_ASSERT(offsetof(NDK_PD_DISPATCH, NdkClosePd) == 0, "NDK_PD_DISPATCH.NdkClosePd");
VERBENA_ASSERT(offsetof(NDK_PD_DISPATCH, NdkQueryExtension) == 8, "NDK_PD_DISPATCH.NdkQueryExtension");
VERBENA_ASSERT(offsetof(NDK_PD_DISPATCH, NdkCreateMr) == 16, "NDK_PD_DISPATCH.NdkCreateMr");
VERBENA_ASSERT(offsetof(NDK_PD_DISPATCH, NdkCreateMw) == 24, "NDK_PD_DISPATCH.NdkCreateMw");
VERBENA_ASSERT(offsetof(NDK_PD_DISPATCH, NdkCreateSrq) == 32, "NDK_PD_DISPATCH.NdkCreateSrq");
VERBENA_ASSERT(offsetof(NDK_PD_DISPATCH, NdkCreateQp) == 40, "NDK_PD_DISPATCH.NdkCreateQp");
VERBENA_ASSERT(offsetof(NDK_PD_DISPATCH, NdkCreateQpWithSrq) == 48, "NDK_PD_DISPATCH.NdkCreateQpWithSrq");
VERBENA_ASSERT(offsetof(NDK_PD_DISPATCH, NdkGetPrivilegedMemoryRegionToken) == 56, "NDK_PD_DISPATCH.NdkGetPrivilegedMemoryRegionToken");
VERBENA_ASSERT(sizeof(NDK_CQ_DISPATCH) == 56, "NDK_CQ_DISPATCH");
VERBENA_ASSERT(offsetof(NDK_CQ_DISPATCH, NdkCloseCq) == 0, "NDK_CQ_DISPATCH.NdkCloseCq");
VERBENA_ASSERT(offsetof(NDK_CQ_DISPATCH, NdkQueryExtension) == 8, "NDK_CQ_DISPATCH.NdkQueryExtension");
VERBENA_ASSERT(offsetof(NDK_CQ_DISPATCH, NdkResizeCq) == 16, "NDK_CQ_DISPATCH.NdkResizeCq");
VERBENA_ASSERT(offsetof(NDK_CQ_DISPATCH, NdkArmCq) == 24, "NDK_CQ_DISPATCH.NdkArmCq");
VERBENA_ASSERT(offsetof(NDK_CQ_DISPATCH, NdkGetCqResults) == 32, "NDK_CQ_DISPATCH.NdkGetCqResults");
VERBENA_ASSERT(offsetof(NDK_CQ_DISPATCH, NdkControlCqInterruptModeration) == 40, "NDK_CQ_DISPATCH.NdkControlCqInterruptModeration");
VERBENA_ASSERT(offsetof(NDK_CQ_DISPATCH, NdkGetCqResultsEx) == 48, "NDK_CQ_DISPATCH.NdkGetCqResultsEx");
VERBENA_ASSERT(sizeof(NDK_QP_DISPATCH) == 88, "NDK_QP_DISPATCH");
VERBENA_ASSERT(offsetof(NDK_QP_DISPATCH, NdkCloseQp) == 0, "NDK_QP_DISPATCH.NdkCloseQp");
VERBENA_ASSERT(offsetof(NDK_QP_DISPATCH, NdkQueryExtension) == 8, "NDK_QP_DISPATCH.NdkQueryExtension");
VERBENA_ASSERT(offsetof(NDK_QP_DISPATCH, NdkFlush) == 16, "NDK_QP_DISPATCH.NdkFlush");
VERBENA_ASSERT(offsetof(NDK_QP_DISPATCH, NdkSend) == 24, "NDK_QP_DISPATCH.NdkSend");
VERBENA_ASSERT(offsetof(NDK_QP_DISPATCH, NdkReceive) == 32, "NDK_QP_DISPATCH.NdkReceive");
VERBENA_ASSERT(offsetof(NDK_QP_DISPATCH, NdkBind) == 40, "NDK_QP_DISPATCH.NdkBind");
VERBENA_ASSERT(offsetof(NDK_QP_DISPATCH, NdkFastRegister) == 48, "NDK_QP_DISPATCH.NdkFastRegister");
VERBENA_ASSERT(offsetof(NDK_QP_DISPATCH, NdkInvalidate) == 56, "NDK_QP_DISPATCH.NdkInvalidate");
VERBENA_ASSERT(offsetof(NDK_QP_DISPATCH, NdkRead) == 64, "NDK_QP_DISPATCH.NdkRead");
VERBENA_ASSERT(offsetof(NDK_QP_DISPATCH, NdkWrite) == 72, "NDK_QP_DISPATCH.NdkWrite");
VERBENA_ASSERT(offsetof(NDK_QP_DISPATCH, NdkSendAndInvalidate) == 80, "NDK_QP_DISPATCH.NdkSendAndInvalidate");
VERBENA_ASSERT(sizeof(NDK_MR_DISPATCH) == 56, "NDK_MR_DISPATCH");
VERBENA_ASSERT(offsetof(NDK_MR_DISPATCH, NdkCloseMr) == 0, "NDK_MR_DISPATCH.NdkCloseMr");
VERBENA_ASSERT(offsetof(NDK_MR_DISPATCH, NdkQueryExtension) == 8, "NDK_MR_DISPATCH.NdkQueryExtension");
VERBENA_ASSERT(offsetof(NDK_MR_DISPATCH, NdkRegisterMr) == 16, "NDK_MR_DISPATCH.NdkRegisterMr");
VERBENA_ASSERT(offsetof(NDK_MR_DISPATCH, NdkDeregisterMr) == 24, "NDK_MR_DISPATCH.NdkDeregisterMr");
VERBENA_ASSERT(offsetof(NDK_MR_DISPATCH, NdkInitializeFastRegisterMr) == 32, "NDK_MR_DISPATCH.NdkInitializeFastRegisterMr");
VERBENA_ASSERT(offsetof(NDK_MR_DISPATCH, NdkGetRemoteTokenFromMr) == 40, "NDK_MR_DISPATCH.NdkGetRemoteTokenFromMr");
VERBENA_ASSERT(offsetof(NDK_MR_DISPATCH, NdkGetLocalTokenFromMr) == 48, "NDK_MR_DISPATCH.NdkGetLocalTokenFromMr");
VERBENA_ASSERT(sizeof(NDK_MW_DISPATCH) == 24, "NDK_MW_DISPATCH");
VERBENA_ASSERT(offsetof(NDK_MW_DISPATCH, NdkCloseMw) == 0, "NDK_MW_DISPATCH.NdkCloseMw");
VERBENA_ASSERT(offsetof(NDK_MW_DISPATCH, NdkQueryExtension) == 8, "NDK_MW_DISPATCH.NdkQueryExtension");
VERBENA_ASSERT(offsetof(NDK_MW_DISPATCH, NdkGetRemoteTokenFromMw) == 16, "NDK_MW_DISPATCH.NdkGetRemoteTokenFromMw");
VERBENA_ASSERT(sizeof(NDK_SRQ_DISPATCH) == 32, "NDK_SRQ_DISPATCH");
VERBENA_ASSERT(offsetof(NDK_SRQ_DISPATCH, NdkCloseSrq) == 0, "NDK_SRQ_DISPATCH.NdkCloseSrq");
VERBENA_ASSERT(offsetof(NDK_SRQ_DISPATCH, NdkQueryExtension) == 8, "NDK_SRQ_DISPATCH.NdkQueryExtension");
VERBENA_ASSERT(offsetof(NDK_SRQ_DISPATCH, NdkModifySrq) == 16, "NDK_SRQ_DISPATCH.NdkModifySrq");
VERBENA_ASSERT(offsetof(NDK_SRQ_DISPATCH, NdkSrqReceive) == 24, "NDK_SRQ_DISPATCH.NdkSrqReceive");
VERBENA_ASSERT(sizeof(NDK_SHARED_ENDPOINT_DISPATCH) == 24, "NDK_SHARED_ENDPOINT_DISPATCH");
VERBENA_ASSERT(offsetof(NDK_SHARED_ENDPOINT_DISPATCH, NdkCloseSharedEndpoint) == 0, "NDK_SHARED_ENDPOINT_DISPATCH.NdkCloseSharedEndpoint");
VERBENA_ASSERT(offsetof(NDK_SHARED_ENDPOINT_DISPATCH, NdkQueryExtension) == 8, "NDK_SHARED_ENDPOINT_DISPATCH.NdkQueryExtension");
VERBENA_ASSERT(offsetof(NDK_SHARED_ENDPOINT_DISPATCH, NdkGetLocalAddress) == 16, "NDK_SHARED_ENDPOINT_DISPATCH.NdkGetLocalAddress");
VERBENA_ASSERT(sizeof(NDK_CONNECTOR_DISPATCH) == 104, "NDK_CONNECTOR_DISPATCH");
VERBENA_ASSERT(offsetof(NDK_CONNECTOR_DISPATCH, NdkCloseConnector) == 0, "NDK_CONNECTOR_DISPATCH.NdkCloseConnector");
VERBENA_ASSERT(offsetof(NDK_CONNECTOR_DISPATCH, NdkQueryExtension) == 8, "NDK_CONNECTOR_DISPATCH.NdkQueryExtension");
VERBENA_ASSERT(offsetof(NDK_CONNECTOR_DISPATCH, NdkConnect) == 16, "NDK_CONNECTOR_DISPATCH.NdkConnect");
VERBENA_ASSERT(offsetof(NDK_CONNECTOR_DISPATCH, NdkConnectWithSharedEndpoint) == 24, "NDK_CONNECTOR_DISPATCH.NdkConnectWithSharedEndpoint");
VERBENA_ASSERT(offsetof(NDK_CONNECTOR_DISPATCH, NdkCompleteConnect) == 32, "NDK_CONNECTOR_DISPATCH.NdkCompleteConnect");
VERBENA_ASSERT(offsetof(NDK_CONNECTOR_DISPATCH, NdkAccept) == 40, "NDK_CONNECTOR_DISPATCH.NdkAccept");
VERBENA_ASSERT(offsetof(NDK_CONNECTOR_DISPATCH, NdkReject) == 48, "NDK_CONNECTOR_DISPATCH.NdkReject");
VERBENA_ASSERT(offsetof(NDK_CONNECTOR_DISPATCH, NdkGetConnectionData) == 56, "NDK_CONNECTOR_DISPATCH.NdkGetConnectionData");
VERBENA_ASSERT(offsetof(NDK_CONNECTOR_DISPATCH, NdkGetLocalAddress) == 64, "NDK_CONNECTOR_DISPATCH.NdkGetLocalAddress");
VERBENA_ASSERT(offsetof(NDK_CONNECTOR_DISPATCH, NdkGetPeerAddress) == 72, "NDK_CONNECTOR_DISPATCH.NdkGetPeerAddress");
VERBENA_ASSERT(offsetof(NDK_CONNECTOR_DISPATCH, NdkDisconnect) == 80, "NDK_CONNECTOR_DISPATCH.NdkDisconnect");
VERBENA_ASSERT(offsetof(NDK_CONNECTOR_DISPATCH, NdkCompleteConnectEx) == 88, "NDK_CONNECTOR_DISPATCH.NdkCompleteConnectEx");
VERBENA_ASSERT(offsetof(NDK_CONNECTOR_DISPATCH, NdkAcceptEx) == 96, "NDK_CONNECTOR_DISPATCH.NdkAcceptEx");
VERBENA_ASSERT(sizeof(NDK_LISTENER_DISPATCH) == 40, "NDK_LISTENER_DISPATCH");
VERBENA_ASSERT(offsetof(NDK_LISTENER_DISPATCH, NdkCloseListener) == 0, "NDK_LISTENER_DISPATCH.NdkCloseListener");
VERBENA_ASSERT(offsetof(NDK_LISTENER_DISPATCH, NdkQueryExtension) == 8, "NDK_LISTENER_DISPATCH.NdkQueryExtension");
VERBENA_ASSERT(offsetof(NDK_LISTENER_DISPATCH, NdkListen) == 16, "NDK_LISTENER_DISPATCH.NdkListen");
VERBENA_ASSERT(offsetof(NDK_LISTENER_DISPATCH, NdkGetLocalAddress) == 24, "NDK_LISTENER_DISPATCH.NdkGetLocalAddress");
VERBENA_ASSERT(offsetof(NDK_LISTENER_DISPATCH, NdkControlConnectEvents) == 32, "NDK_LISTENER_DISPATCH.NdkControlConnectEvents");
VERBENA_ASSERT(offsetof(NDK_SGE, VirtualAddress) == 0, "NDK_SGE.VirtualAddress");
VERBENA_ASSERT(offsetof(NDK_SGE, LogicalAddress) == 0, "NDK_SGE.LogicalAddress");
VERBENA_ASSERT(sizeof(NDK_LOGICAL_ADDRESS) == 8, "NDK_LOGICAL_ADDRESS");

#endif
