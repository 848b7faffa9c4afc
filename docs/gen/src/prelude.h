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
