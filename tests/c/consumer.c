/*
 * A consumer of NDKPI in C: queries the adapter, creates CQ, PD and QP, connects, posts, arms, reaps, flushes, and closes in an
 * unfriendly order. Runs on two simulated cards; prints one line for each step, and the first thing that is not as it should be.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbena_ndk.h"

#ifndef _WIN32
#include <arpa/inet.h>
#include <netinet/in.h>
#endif

/* Values of ndkpi.h, which programs have compiled in. */
VERBENA_ASSERT(NDK_OP_FLAG_SILENT_SUCCESS == 1 && NDK_OP_FLAG_READ_FENCE == 2 && NDK_OP_FLAG_INLINE == 0x40, "flags");
VERBENA_ASSERT(NDK_OP_FLAG_DEFER == 0x200 && NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT == 4, "flags");
VERBENA_ASSERT(NDK_MR_FLAG_ALLOW_LOCAL_WRITE == 1 && NDK_MR_FLAG_ALLOW_REMOTE_WRITE == 5, "rights");
VERBENA_ASSERT(NDK_CQ_NOTIFY_ERRORS == 0 && NDK_CQ_NOTIFY_ANY == 1 && NDK_CQ_NOTIFY_SOLICITED == 2, "arms");
VERBENA_ASSERT(NdkOperationTypeReceiveAndInvalidate == 0x8001 && NdkOperationTypeWrite == 64, "operations");
VERBENA_ASSERT(NdkObjectTypeQp == 2 && NdkObjectTypeSrq == 10 && NdkRoCEv2 == 4, "kinds");

#define DEPTH 32
#define BYTES 8192
#define PORT 445

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);      \
      exit(1);                                                                     \
    }                                                                              \
  } while (0)

/* One asynchronous call: what came of it. */
struct call {
  int count;
  NTSTATUS status;
  NDK_OBJECT_HEADER *object;
};

struct side {
  NDIS_HANDLE device;
  NDK_ADAPTER *adapter;
  NDK_PD *pd;
  NDK_CQ *receive_cq, *initiator_cq;
  NDK_QP *qp;
  NDK_MR *mr;
  NDK_CONNECTOR *connector;
  UINT32 token;
  int notifications, disconnects;
  unsigned char memory[BYTES];
};

static struct side sides[2];

static void run_until(const int *count, int wanted, const char *what) {
  for (int i = 0; i < 20000; i++) {
    VerbenaProcessEvents(sides[0].adapter);
    VerbenaProcessEvents(sides[1].adapter);
    if (*count >= wanted) return;
    VerbenaWait(sides[0].adapter);
  }
  fprintf(stderr, "gave up waiting for %s\n", what);
  exit(1);
}

static void on_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object) {
  struct call *call = context;
  call->count++;
  call->status = status;
  call->object = object;
}

static void on_done(PVOID context, NTSTATUS status) {
  struct call *call = context;
  call->count++;
  call->status = status;
}

static void on_closed(PVOID context) { ((struct call *)context)->count++; }

static void on_disconnected(PVOID context) { ((struct side *)context)->disconnects++; }

/* A stream of writes, WINDOW under way at a time, or none. */
#define STREAM 40
#define WINDOW 4
static struct {
  int is_on, posted, completed;
} stream;

static void post_next(struct side *from) {
  int offset = 64 * stream.posted;
  NDK_SGE sge = {.VirtualAddress = from->memory + offset, .Length = 64, .MemoryRegionToken = from->token};
  UINT64 remote = (UINT64)(ULONG_PTR)sides[1].memory + offset;
  PVOID context = (PVOID)(ULONG_PTR)(100 + stream.posted++);
  CHECK(from->qp->Dispatch->NdkWrite(from->qp, context, &sge, 1, remote, sides[1].token, 0) == STATUS_SUCCESS);
}

/* The pattern of kernel consumers: a notification drains the CQ, posts what comes next, and arms again. */
static void on_notified(PVOID context, NTSTATUS status) {
  struct side *side = context;
  CHECK(status == STATUS_SUCCESS);
  side->notifications++;
  if (!stream.is_on) return;
  NDK_CQ *cq = side->initiator_cq;
  NDK_RESULT results[3];
  ULONG count;
  while ((count = cq->Dispatch->NdkGetCqResults(cq, results, 3)) > 0) {
    for (ULONG i = 0; i < count; i++) {
      CHECK(results[i].Status == STATUS_SUCCESS && results[i].QPContext == side);
      CHECK(results[i].RequestContext == (PVOID)(ULONG_PTR)(100 + stream.completed++));
      if (stream.posted < STREAM) post_next(side);
    }
  }
  cq->Dispatch->NdkArmCq(cq, NDK_CQ_NOTIFY_ANY);
}

static void on_connect(PVOID context, NDK_CONNECTOR *connector) {
  struct call *call = context;
  call->count++;
  call->object = &connector->Header;
}

/* Returns the object of a creation: `out` is where it is if there was nothing to wait for. */
static void *created(NTSTATUS status, struct call *call, void *out, const char *what) {
  if (status == STATUS_SUCCESS) return *(void **)out;
  CHECK(status == STATUS_PENDING);
  run_until(&call->count, 1, what);
  CHECK(call->count == 1 && call->status == STATUS_SUCCESS && call->object != NULL);
  return call->object;
}

static void done(NTSTATUS status, struct call *call, const char *what) {
  if (status == STATUS_PENDING) {
    run_until(&call->count, 1, what);
    status = call->status;
  }
  CHECK(status == STATUS_SUCCESS);
}

static void open_side(struct side *side) {
  NDIS_OPEN_NDK_ADAPTER_PARAMETERS parameters = {.Version = {1, 2}};
  CHECK(VerbenaOpenNdkAdapter(side->device, &parameters, &side->adapter) == STATUS_SUCCESS);
  CONST NDK_ADAPTER_DISPATCH *adapter = side->adapter->Dispatch;

  NDK_ADAPTER_INFO info;
  ULONG size = 0;
  CHECK(adapter->NdkQueryAdapterInfo(side->adapter, NULL, &size) == STATUS_BUFFER_TOO_SMALL && size == sizeof info);
  CHECK(adapter->NdkQueryAdapterInfo(side->adapter, &info, &size) == STATUS_SUCCESS);
  CHECK(info.RdmaTechnology == NdkRoCEv2 && info.MaxInitiatorQueueDepth >= DEPTH && info.MaxReceiveQueueDepth >= DEPTH);
  CHECK(info.Version.Major == 1 && info.Version.Minor == 2);

  struct call cqs[2] = {{0}, {0}}, pd = {0}, qp = {0}, mr = {0};
  NDK_CQ *cq = NULL;
  side->receive_cq = created(adapter->NdkCreateCq(side->adapter, DEPTH, on_notified, side, NULL, on_created, &cqs[0], &cq), &cqs[0], &cq, "a CQ");
  side->initiator_cq = created(adapter->NdkCreateCq(side->adapter, DEPTH, on_notified, side, NULL, on_created, &cqs[1], &cq), &cqs[1], &cq, "a CQ");
  NDK_PD *out_pd = NULL;
  side->pd = created(adapter->NdkCreatePd(side->adapter, on_created, &pd, &out_pd), &pd, &out_pd, "a PD");
  NDK_QP *out_qp = NULL;
  NTSTATUS status = side->pd->Dispatch->NdkCreateQp(side->pd, side->receive_cq, side->initiator_cq, side, DEPTH, DEPTH, 2, 2,
                                                    info.MaxInlineDataSize, on_created, &qp, &out_qp);
  side->qp = created(status, &qp, &out_qp, "a QP");
  CHECK(side->qp->Header.ObjectType == NdkObjectTypeQp);

  NDK_MR *out_mr = NULL;
  side->mr = created(side->pd->Dispatch->NdkCreateMr(side->pd, FALSE, on_created, &mr, &out_mr), &mr, &out_mr, "an MR");
  MDL mdl = {.StartVa = side->memory, .ByteCount = BYTES};
  struct call registered = {0};
  ULONG flags = NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
  done(side->mr->Dispatch->NdkRegisterMr(side->mr, &mdl, BYTES, flags, on_done, &registered), &registered, "a registration");
  side->token = side->mr->Dispatch->NdkGetRemoteTokenFromMr(side->mr);
  CHECK(side->token != 0);
}

/* Side `number` is 192.0.2.1 or 192.0.2.2. */
static struct sockaddr_in address(int number, int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
  address.sin_addr.s_addr = htonl(0xC0000201u + (unsigned)number);
  return address;
}

static NDK_LISTENER *connect_sides(void) {
  struct call requests = {0}, listening = {0}, connected = {0}, accepted = {0}, completed = {0};
  NDK_LISTENER *listener = NULL;
  CONST NDK_ADAPTER_DISPATCH *passive = sides[1].adapter->Dispatch;
  CHECK(passive->NdkCreateListener(sides[1].adapter, on_connect, &requests, on_created, &listening, &listener) == STATUS_SUCCESS);
  struct sockaddr_in at = address(1, PORT), from = address(0, 0);
  done(listener->Dispatch->NdkListen(listener, (SOCKADDR *)&at, sizeof at, on_done, &listening), &listening, "listening");

  CHECK(sides[0].adapter->Dispatch->NdkCreateConnector(sides[0].adapter, on_created, &connected, &sides[0].connector) == STATUS_SUCCESS);
  NDK_CONNECTOR *active = sides[0].connector;
  NTSTATUS status = active->Dispatch->NdkConnect(active, sides[0].qp, (SOCKADDR *)&from, sizeof from, (SOCKADDR *)&at, sizeof at, 0, 0,
                                                 "hello", 5, on_done, &connected);
  CHECK(status == STATUS_PENDING);
  run_until(&requests.count, 1, "a connect event");
  sides[1].connector = (NDK_CONNECTOR *)requests.object;
  char data[64];
  ULONG length = sizeof data;
  CHECK(sides[1].connector->Dispatch->NdkGetConnectionData(sides[1].connector, NULL, NULL, data, &length) == STATUS_SUCCESS);
  CHECK(length == 5 && memcmp(data, "hello", 5) == 0);
  status = sides[1].connector->Dispatch->NdkAccept(sides[1].connector, sides[1].qp, 0, 0, NULL, 0, on_disconnected, &sides[1], on_done, &accepted);
  CHECK(status == STATUS_PENDING);
  done(STATUS_PENDING, &connected, "the answer");
  done(active->Dispatch->NdkCompleteConnect(active, on_disconnected, &sides[0], on_done, &completed), &completed, "the connection");
  done(STATUS_PENDING, &accepted, "the acceptance");
  return listener;
}

/* A chain of deferred writes, a silent one, an inline one; one notification; all completions in order. */
static void write_and_reap(void) {
  struct side *from = &sides[0], *to = &sides[1];
  for (int i = 0; i < BYTES; i++) from->memory[i] = (unsigned char)(i * 7 + 1);
  CONST NDK_QP_DISPATCH *qp = from->qp->Dispatch;
  from->initiator_cq->Dispatch->NdkArmCq(from->initiator_cq, NDK_CQ_NOTIFY_ANY);
  NDK_SGE sges[2] = {
      {.VirtualAddress = from->memory + 3, .Length = 1000, .MemoryRegionToken = from->token},
      {.VirtualAddress = from->memory + 5000, .Length = 3, .MemoryRegionToken = from->token},
  };
  UINT64 remote = (UINT64)(ULONG_PTR)to->memory;
  CHECK(qp->NdkWrite(from->qp, (PVOID)1, sges, 2, remote + 100, to->token, NDK_OP_FLAG_DEFER) == STATUS_SUCCESS);
  CHECK(qp->NdkWrite(from->qp, (PVOID)2, sges, 1, remote + 2000, to->token, NDK_OP_FLAG_DEFER | NDK_OP_FLAG_SILENT_SUCCESS) == STATUS_SUCCESS);
  char text[] = "inline";
  NDK_SGE piece = {.VirtualAddress = text, .Length = 6};
  CHECK(qp->NdkWrite(from->qp, (PVOID)3, &piece, 1, remote + 4001, to->token, NDK_OP_FLAG_INLINE) == STATUS_SUCCESS);
  memset(text, 0, sizeof text);

  NDK_RESULT_EX results[DEPTH];
  int count = 0;
  run_until(&from->notifications, 1, "the notification");
  for (int i = 0; i < 1000 && count < 2; i++) {
    count += (int)from->initiator_cq->Dispatch->NdkGetCqResultsEx(from->initiator_cq, results + count, (ULONG)(DEPTH - count));
    if (count < 2) VerbenaWait(from->adapter);
  }
  CHECK(count == 2 && results[0].RequestContext == (PVOID)1 && results[1].RequestContext == (PVOID)3);
  for (int i = 0; i < 2; i++)
    CHECK(results[i].Status == STATUS_SUCCESS && results[i].QPContext == from && results[i].Type == NdkOperationTypeWrite);
  CHECK(memcmp(to->memory + 100, from->memory + 3, 1000) == 0 && memcmp(to->memory + 1100, from->memory + 5000, 3) == 0);
  CHECK(memcmp(to->memory + 2000, from->memory + 3, 1000) == 0);
  CHECK(memcmp(to->memory + 4001, "inline", 6) == 0 && to->memory[4000] == 0 && to->memory[4007] == 0);
  CHECK(from->notifications == 1);
}

/* Writes that keep themselves going from their notifications. */
static void stream_writes(void) {
  struct side *from = &sides[0], *to = &sides[1];
  for (int i = 0; i < BYTES; i++) from->memory[i] = (unsigned char)(i * 5 + i / 256);
  stream.is_on = 1;
  from->initiator_cq->Dispatch->NdkArmCq(from->initiator_cq, NDK_CQ_NOTIFY_ANY);
  while (stream.posted < WINDOW) post_next(from);
  run_until(&stream.completed, STREAM, "the stream");
  CHECK(stream.posted == STREAM && from->notifications > 1 && from->notifications <= 1 + STREAM);
  CHECK(memcmp(to->memory, from->memory, 64 * STREAM) == 0);
  stream.is_on = 0;
}

/* Receives come back cancelled; nothing can be posted any more. */
static void flush(void) {
  struct side *side = &sides[0];
  CONST NDK_QP_DISPATCH *qp = side->qp->Dispatch;
  NDK_SGE sge = {.VirtualAddress = side->memory, .Length = 64, .MemoryRegionToken = side->token};
  CHECK(qp->NdkReceive(side->qp, (PVOID)10, &sge, 1) == STATUS_SUCCESS);
  CHECK(qp->NdkReceive(side->qp, (PVOID)11, NULL, 0) == STATUS_SUCCESS);
  qp->NdkFlush(side->qp);
  NDK_RESULT results[4];
  ULONG count = side->receive_cq->Dispatch->NdkGetCqResults(side->receive_cq, results, 4);
  CHECK(count == 2 && results[0].RequestContext == (PVOID)10 && results[1].RequestContext == (PVOID)11);
  CHECK(results[0].Status == STATUS_CANCELLED && results[1].Status == STATUS_CANCELLED);
  CHECK(qp->NdkWrite(side->qp, NULL, NULL, 0, 0, 0, 0) == STATUS_CONNECTION_INVALID);
}

static void query_statistics(void) {
  NDIS_NDK_PERFORMANCE_COUNTERS counters[2];
  for (int i = 0; i < 2; i++) CHECK(VerbenaQueryStatistics(sides[i].adapter, &counters[i]) == STATUS_SUCCESS);
  CHECK(VerbenaQueryStatistics(sides[0].adapter, NULL) == STATUS_INVALID_PARAMETER);
  CHECK(VerbenaQueryStatistics(NULL, &counters[0]) == STATUS_INVALID_PARAMETER);
  CHECK(counters[0].Connect == 1 && counters[0].Accept == 0 && counters[1].Connect == 0 && counters[1].Accept == 1);
  for (int i = 0; i < 2; i++) {
    CHECK(counters[i].ConnectFailure == 0 && counters[i].CQError == 0);
    CHECK(counters[i].RDMAOutFrames > 0 && counters[i].RDMAOutOctets >= 62 * counters[i].RDMAOutFrames);
    CHECK(counters[i].RDMAInFrames == counters[1 - i].RDMAOutFrames);
    CHECK(counters[i].RDMAInOctets == counters[1 - i].RDMAOutOctets);
  }
}

static void begin_close(NDK_FN_CLOSE_OBJECT close, void *object, struct call *call) {
  NTSTATUS status = close(object, on_closed, call);
  CHECK(status == STATUS_SUCCESS || status == STATUS_PENDING);
  if (status == STATUS_SUCCESS) call->count++;
}

int main(void) {
  NDIS_HANDLE devices[2];
  CHECK(VerbenaOpenSimulation(1, devices) == STATUS_SUCCESS);
  for (int i = 0; i < 2; i++) {
    sides[i].device = devices[i];
    open_side(&sides[i]);
  }
  puts("adapters are open, objects created");
  NDK_LISTENER *listener = connect_sides();
  puts("connected");
  write_and_reap();
  puts("written, notified, reaped");
  stream_writes();
  puts("streamed");
  flush();
  puts("flushed");
  query_statistics();

  /* Antecedents first, and nothing is waited for before all closes are under way. */
  struct call calls[14] = {{0}};
  int n = 0;
  for (int i = 0; i < 2; i++) {
    begin_close(sides[i].pd->Dispatch->NdkClosePd, sides[i].pd, &calls[n++]);
    begin_close(sides[i].receive_cq->Dispatch->NdkCloseCq, sides[i].receive_cq, &calls[n++]);
    begin_close(sides[i].initiator_cq->Dispatch->NdkCloseCq, sides[i].initiator_cq, &calls[n++]);
    begin_close(sides[i].qp->Dispatch->NdkCloseQp, sides[i].qp, &calls[n++]);
  }
  begin_close(listener->Dispatch->NdkCloseListener, listener, &calls[n++]);
  for (int i = 0; i < 2; i++) {
    begin_close(sides[i].connector->Dispatch->NdkCloseConnector, sides[i].connector, &calls[n++]);
    begin_close(sides[i].mr->Dispatch->NdkCloseMr, sides[i].mr, &calls[n++]);
  }
  for (int i = 0; i < n; i++) run_until(&calls[i].count, 1, "a close");
  for (int i = 0; i < 2; i++) VerbenaCloseNdkAdapter(sides[i].device, sides[i].adapter);
  for (int i = 0; i < n; i++) CHECK(calls[i].count == 1);
  for (int i = 0; i < 2; i++) VerbenaCloseDevice(sides[i].device);
  puts("closed");
  return 0;
}
