/* Streams and events. All work is done as soon as it is asked for, so every event has happened.
 *
 * Their handles are addresses that are the same in every run: torch_npu writes them into traces and orders free blocks by them.
 */
#define _GNU_SOURCE
#include "phantom.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define AREA UINT64_C(0x11f000000000)
enum { MOST_STREAMS = 1 << 20, STREAM_BYTES = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *area;
static int32_t created;

EXPORT int aclrtCreateStream(void **stream) {
  pthread_mutex_lock(&lock);
  if (!area) {
    void *got = mmap((void *)AREA, (size_t)MOST_STREAMS * STREAM_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    area = got == MAP_FAILED ? NULL : got;
  }
  int is_possible = area && created < MOST_STREAMS - 1;
  if (is_possible) {
    *stream = area + (size_t)++created * STREAM_BYTES;
    *(int32_t *)*stream = created;
  }
  pthread_mutex_unlock(&lock);
  return is_possible ? OK : OUT_OF_MEMORY;
}
EXPORT int aclrtCreateStreamWithConfig(void **stream, uint32_t priority, uint32_t flags) {
  (void)priority, (void)flags;
  return aclrtCreateStream(stream);
}
EXPORT int aclrtStreamGetId(void *stream, int32_t *id) {
  *id = stream ? *(int32_t *)stream : 0;
  return OK;
}
EXPORT int aclrtStreamQuery(void *stream, int *status) {
  (void)stream;
  *status = 0; /* complete */
  return OK;
}
EXPORT int aclrtGetStreamOverflowSwitch(void *stream, uint32_t *flag) {
  (void)stream;
  *flag = 0;
  return OK;
}

/* ---- events */

typedef struct {
  struct timespec recorded;
} event_t;

static int create_event(void **event) {
  *event = calloc(1, sizeof(event_t));
  return *event ? OK : OUT_OF_MEMORY;
}
EXPORT int aclrtCreateEvent(void **event) { return create_event(event); }
EXPORT int aclrtCreateEventWithFlag(void **event, uint32_t flag) {
  (void)flag;
  return create_event(event);
}
EXPORT int aclrtCreateEventExWithFlag(void **event, uint32_t flag) {
  (void)flag;
  return create_event(event);
}
EXPORT int aclrtDestroyEvent(void *event) {
  free(event);
  return OK;
}
EXPORT int aclrtRecordEvent(event_t *event, void *stream) {
  (void)stream;
  clock_gettime(CLOCK_MONOTONIC, &event->recorded);
  return OK;
}
EXPORT int aclrtQueryEventStatus(void *event, int *status) {
  (void)event;
  *status = 1; /* complete */
  return OK;
}
EXPORT int aclrtQueryEventWaitStatus(void *event, int *status) {
  (void)event;
  *status = 0; /* complete */
  return OK;
}
EXPORT int aclrtEventElapsedTime(float *milliseconds, const event_t *from, const event_t *to) {
  *milliseconds = (float)((double)(to->recorded.tv_sec - from->recorded.tv_sec) * 1e3 +
                          (double)(to->recorded.tv_nsec - from->recorded.tv_nsec) / 1e6);
  return OK;
}
EXPORT int aclrtEventGetTimestamp(const event_t *event, uint64_t *microseconds) {
  *microseconds = (uint64_t)event->recorded.tv_sec * 1000000 + (uint64_t)event->recorded.tv_nsec / 1000;
  return OK;
}

/* ---- callbacks, done at once as well */

EXPORT int aclrtLaunchHostFunc(void *stream, void (*function)(void *), void *argument) {
  (void)stream;
  function(argument);
  return OK;
}
EXPORT int aclrtLaunchCallback(void (*function)(void *), void *argument, int is_blocking, void *stream) {
  (void)is_blocking, (void)stream;
  function(argument);
  return OK;
}

/* ---- graphs: what is captured does nothing, so a graph has nothing in it; memory is the allocator's business */

typedef struct {
  uint32_t id;
} graph_t;
static void *capturing; /* the stream; one capture at a time, as torch_npu does it */
static graph_t *graph;

EXPORT int aclmdlRICaptureBegin(void *stream, int mode) {
  (void)mode;
  static uint32_t count;
  capturing = stream;
  graph = calloc(1, sizeof *graph);
  graph->id = ++count;
  return OK;
}
EXPORT int aclmdlRICaptureGetInfo(void *stream, int *status, void **model) {
  int is_captured = capturing && capturing == stream;
  if (status) *status = is_captured;
  if (model) *model = is_captured ? graph : NULL;
  return OK;
}
EXPORT int aclmdlRICaptureEnd(void *stream, void **model) {
  (void)stream;
  *model = graph;
  capturing = NULL;
  return graph ? OK : BAD_ARGUMENT;
}
EXPORT int aclmdlRIGetId(const graph_t *model, uint32_t *id) {
  *id = model->id;
  return OK;
}
EXPORT int aclmdlRICaptureTaskGrpEnd(void *stream, void **group) {
  (void)stream;
  *group = &capturing;
  return OK;
}
EXPORT int aclmdlRIDestroy(void *model) {
  free(model);
  return OK;
}
