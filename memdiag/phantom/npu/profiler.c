/* What profilers ask: the time, numbers for names. */
#include "phantom.h"

#include <stdlib.h>
#include <time.h>

EXPORT uint64_t MsprofSysCycleTime(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}
EXPORT uint64_t MsprofGetHashId(const char *text, size_t length) {
  uint64_t hash = UINT64_C(14695981039346656037);
  for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * UINT64_C(1099511628211);
  return hash;
}
EXPORT void *aclprofCreateConfig(void) { return calloc(1, 64); }
EXPORT int aclprofDestroyConfig(void *options) {
  free(options);
  return OK;
}
EXPORT void *aclprofCreateStepInfo(void) { return calloc(1, 64); }
EXPORT void aclprofDestroyStepInfo(void *info) { free(info); }
