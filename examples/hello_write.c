/* Hello, write: NDKPI on two simulated cards. README.md says how to compile it. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "verbena_ndk.h"

static NDK_ADAPTER *adapter[2];
static int calls; /* Every callback counts; a real consumer would look at the status. */
static void *object;

static void on_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *created) { (void)context, (void)status, object = created, calls++; }
static void on_done(PVOID context, NTSTATUS status) { (void)context, (void)status, calls++; }
static void on_connect(PVOID context, NDK_CONNECTOR *connector) { (void)context, object = connector, calls++; }

/* Lets the cards run until `count` more callbacks came, and returns the last object that one brought. */
static void *wait_for(int count) {
  for (; calls < count; VerbenaWait(adapter[0]))
    for (int i = 0; i < 2; i++) VerbenaProcessEvents(adapter[i]);
  calls = 0;
  return object;
}

int main(void) {
  NDIS_HANDLE device[2];
  NDIS_OPEN_NDK_ADAPTER_PARAMETERS version = {.Version = {2, 1}};
  static char memory[2][4096] = {"hello, write"};
  NDK_PD *pd[2];
  NDK_CQ *cq[2];
  NDK_QP *qp[2];
  NDK_MR *mr[2];
  UINT32 token[2];

  VerbenaLogToStderr(2); /* Errors and warnings. */
  VerbenaOpenSimulation(1, device);
  for (int i = 0; i < 2; i++) {
    VerbenaOpenNdkAdapter(device[i], &version, &adapter[i]);
    /* These take a command of the card, so they pend, and the callback brings the object. */
    adapter[i]->Dispatch->NdkCreatePd(adapter[i], on_created, NULL, &pd[i]), pd[i] = wait_for(1);
    adapter[i]->Dispatch->NdkCreateCq(adapter[i], 16, on_done, NULL, NULL, on_created, NULL, &cq[i]), cq[i] = wait_for(1);
    pd[i]->Dispatch->NdkCreateQp(pd[i], cq[i], cq[i], NULL, 0, 16, 0, 1, 0, on_created, NULL, &qp[i]), qp[i] = wait_for(1);
    pd[i]->Dispatch->NdkCreateMr(pd[i], FALSE, on_created, NULL, &mr[i]);
    MDL mdl = {.StartVa = memory[i], .ByteCount = sizeof memory[i]};
    mr[i]->Dispatch->NdkRegisterMr(mr[i], &mdl, sizeof memory[i], NDK_MR_FLAG_ALLOW_REMOTE_WRITE, on_done, NULL), wait_for(1);
    token[i] = mr[i]->Dispatch->NdkGetRemoteTokenFromMr(mr[i]);
  }

  /* B listens, A connects. */
  struct sockaddr_in a = {.sin_family = AF_INET}, b = {.sin_family = AF_INET, .sin_port = htons(445)};
  a.sin_addr.s_addr = htonl(0xC0000201), b.sin_addr.s_addr = htonl(0xC0000202); /* 192.0.2.1 and 192.0.2.2 */
  NDK_LISTENER *listener;
  NDK_CONNECTOR *active;
  adapter[1]->Dispatch->NdkCreateListener(adapter[1], on_connect, NULL, on_created, NULL, &listener);
  listener->Dispatch->NdkListen(listener, (SOCKADDR *)&b, sizeof b, on_done, NULL);
  adapter[0]->Dispatch->NdkCreateConnector(adapter[0], on_created, NULL, &active);
  active->Dispatch->NdkConnect(active, qp[0], (SOCKADDR *)&a, sizeof a, (SOCKADDR *)&b, sizeof b, 0, 0, NULL, 0, on_done, NULL);
  NDK_CONNECTOR *passive = wait_for(1);
  passive->Dispatch->NdkAccept(passive, qp[1], 0, 0, NULL, 0, NULL, NULL, on_done, NULL), wait_for(1);
  active->Dispatch->NdkCompleteConnect(active, NULL, NULL, on_done, NULL), wait_for(2);

  /* The write itself, and its completion. */
  NDK_SGE source = {.VirtualAddress = memory[0], .Length = 13, .MemoryRegionToken = token[0]};
  qp[0]->Dispatch->NdkWrite(qp[0], NULL, &source, 1, (UINT64)memory[1], token[1], 0);
  NDK_RESULT result;
  while (cq[0]->Dispatch->NdkGetCqResults(cq[0], &result, 1) == 0) VerbenaWait(adapter[0]);
  printf("status %08x, and B's memory says: %s\n", (unsigned)result.Status, memory[1]);
  return strcmp(memory[1], "hello, write"); /* The process ends here; tests/c/consumer.c shows how everything is closed. */
}
