/* Functions that are not imitated fail by name: torch_npu puts the text of aclGetRecentErrMsg into the exception it raises. */
#include "phantom.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char recent[512];
static const char *said[256];
static int count;

int refuse(const char *function, const char *library) {
  pthread_mutex_lock(&lock);
  snprintf(recent, sizeof recent,
           "memdiag: the phantom NPU does not imitate %s (%s). Leave out what needs it, or record on a real device; see docs/phantom.md.",
           function, library);
  int is_new = 1;
  for (int i = 0; i < count; i++) is_new &= strcmp(said[i], function) != 0;
  if (is_new && count < 256) said[count++] = function;
  pthread_mutex_unlock(&lock);
  if (is_new) dprintf(2, "%s\n", recent);
  return NOT_SUPPORTED;
}

size_t refused_names(char *text, size_t room) {
  size_t at = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < count && at + strlen(said[i]) + 8 < room; i++) at += (size_t)sprintf(text + at, "%s\"%s\"", i ? ", " : "", said[i]);
  pthread_mutex_unlock(&lock);
  return at;
}

/* For what is refused in Python (boot/compiling.py). The texts must stay where they are. */
EXPORT int memdiag_phantom_refuse(const char *function, const char *library) { return refuse(function, library); }

EXPORT const char *aclGetRecentErrMsg(void) { return recent; }
