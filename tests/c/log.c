/*
 * What the library says to a program in C: an adapter is closed too early, with a CQ left, and says so. The warning goes through a pipe to a
 * thread that then closes the CQ, so that the close can end. Prints the warning.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "verbena_ndk.h"

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);               \
      exit(1);                                                                     \
    }                                                                              \
  } while (0)

static NDK_CQ *cq;
static int closed;
static int ends[2];

static void on_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *created) {
  (void)context;
  CHECK(status == STATUS_SUCCESS);
  cq = (NDK_CQ *)created;
}
static void on_notified(PVOID context, NTSTATUS status) { (void)context, (void)status; }
static void on_closed(PVOID context) { (void)context, closed++; }

/* Waits for the warning. */
static void *listen_for_warning(void *line) {
  FILE *pipe = fdopen(ends[0], "r");
  CHECK(pipe && fgets(line, 1000, pipe));
  CHECK(cq->Dispatch->NdkCloseCq(&cq->Header, on_closed, NULL) == STATUS_PENDING);
  return NULL;
}

int main(void) {
  NDIS_HANDLE devices[2];
  NDIS_OPEN_NDK_ADAPTER_PARAMETERS version = {.Version = {2, 1}};
  NDK_ADAPTER *adapter;
  pthread_t listener;
  char line[1000];
  CHECK(VerbenaLogToStderr(0) == STATUS_INVALID_PARAMETER && VerbenaLogToStderr(6) == STATUS_INVALID_PARAMETER);
  CHECK(VerbenaLogToStderr(2) == STATUS_SUCCESS && VerbenaLogToStderr(2) == STATUS_INVALID_DEVICE_REQUEST);
  CHECK(VerbenaOpenSimulation(1, devices) == STATUS_SUCCESS);
  CHECK(VerbenaOpenNdkAdapter(devices[0], &version, &adapter) == STATUS_SUCCESS);
  CHECK(adapter->Dispatch->NdkCreateCq(adapter, 4, on_notified, NULL, NULL, on_created, NULL, &cq) == STATUS_PENDING);
  for (; !cq; VerbenaWait(adapter)) VerbenaProcessEvents(adapter);
  CHECK(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
  CHECK(pthread_create(&listener, NULL, listen_for_warning, line) == 0);
  VerbenaCloseNdkAdapter(devices[0], adapter);
  CHECK(pthread_join(listener, NULL) == 0 && closed == 1);
  for (int i = 0; i < 2; i++) VerbenaCloseDevice(devices[i]);
  fputs(line, stdout);
  return 0;
}
