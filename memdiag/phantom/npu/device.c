/* Devices and contexts: which are there, which one a thread uses, and what they are. */
#include "phantom.h"
#include "../shared/too_few.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static __thread int chosen = -1;
static char contexts[MOST_DEVICES]; /* a context is the address of its device's byte */

int current_device(void) { return chosen < 0 ? 0 : chosen; }

EXPORT int aclrtGetDeviceCount(uint32_t *count) {
  *count = (uint32_t)settings()->devices;
  return OK;
}
EXPORT int aclrtSetDevice(int32_t device) {
  if (device < 0 || device >= settings()->devices) {
    too_few_devices(device, settings()->devices);
    return BAD_DEVICE;
  }
  chosen = device;
  return OK;
}
EXPORT int aclrtGetDevice(int32_t *device) {
  if (chosen < 0) return NO_CONTEXT;
  *device = chosen;
  return OK;
}
EXPORT int aclrtGetCurrentContext(void **context) {
  *context = chosen < 0 ? NULL : &contexts[chosen];
  return chosen < 0 ? NO_CONTEXT : OK;
}
EXPORT int aclrtSetCurrentContext(void *context) {
  chosen = context ? (int)((char *)context - contexts) : -1;
  return OK;
}
EXPORT int aclrtGetPrimaryCtxState(int32_t device, uint32_t *flags, int32_t *is_active) {
  (void)device;
  if (flags) *flags = 0;
  *is_active = 1;
  return OK;
}
EXPORT int aclrtDeviceCanAccessPeer(int32_t *can, int32_t device, int32_t peer) {
  *can = device != peer;
  return OK;
}
EXPORT int aclrtGetLogicDevIdByUserDevId(int32_t given, int32_t *logical) {
  *logical = given;
  return OK;
}
EXPORT int aclrtDeviceGetBareTgid(int32_t *pid) {
  *pid = (int32_t)getpid();
  return OK;
}
EXPORT int aclrtDeviceGetUuid(int32_t device, char *uuid) {
  memset(uuid, 0, 16);
  uuid[15] = (char)card_of(device);
  return OK;
}

/* ---- what they are */

EXPORT const char *aclrtGetSocName(void) { return settings()->soc; }

enum { CUBE = 0, VECTOR = 1, L2 = 2 };

static int64_t capability(int what) {
  if (what == CUBE) return settings()->cube_cores;
  if (what == VECTOR) return settings()->vector_cores;
  return 192 * (int64_t)MIB; /* L2 cache of this class of chips */
}
EXPORT int aclGetDeviceCapability(uint32_t device, int what, int64_t *value) {
  (void)device;
  *value = capability(what);
  return OK;
}
EXPORT int aclrtGetDeviceInfo(uint32_t device, int what, int64_t *value) {
  (void)device;
  switch (what) {
    case 101: /* AI cores */
    case 102: *value = settings()->cube_cores; return OK;
    case 201: *value = settings()->vector_cores; return OK;
    case 301: *value = (int64_t)settings()->total; return OK;
    case 302: *value = capability(L2); return OK;
    default: *value = 0; return OK; /* numbers of chips, servers and pods */
  }
}
static int cores(int kind, uint32_t *value) {
  *value = (uint32_t)capability(kind == CUBE ? CUBE : VECTOR);
  return OK;
}
EXPORT int aclrtGetDeviceResLimit(int32_t device, int kind, uint32_t *value) {
  (void)device;
  return cores(kind, value);
}
EXPORT int aclrtGetStreamResLimit(void *stream, int kind, uint32_t *value) {
  (void)stream;
  return cores(kind, value);
}
EXPORT int aclrtGetResInCurrentThread(int kind, uint32_t *value) { return cores(kind, value); }

EXPORT int aclrtGetDeviceUtilizationRate(int32_t device, int32_t *rates) {
  (void)device;
  memset(rates, 0, 4 * sizeof *rates);
  return OK;
}

/* ---- versions and features */

enum { VERSION_LENGTH = 128, DRIVER_PACKAGE = 7 };

EXPORT int aclsysGetCANNVersion(int package, char *version) {
  snprintf(version, VERSION_LENGTH, "%s", package == DRIVER_PACKAGE ? settings()->driver : settings()->cann);
  return OK;
}
EXPORT int aclsysGetVersionStr(const char *package, char *version) {
  snprintf(version, VERSION_LENGTH, "%s", package && strstr(package, "driver") ? settings()->driver : settings()->cann);
  return OK;
}
EXPORT int aclGetCannAttribute(int attribute, int32_t *value) {
  (void)attribute;
  *value = 1;
  return OK;
}
EXPORT int aclGetCannAttributeList(const int **list, size_t *count) {
  static const int every[] = {0, 1, 2};
  *list = every;
  *count = 3;
  return OK;
}
EXPORT int halGetAPIVersion(int *version) {
  *version = 0x72316;
  return OK;
}
EXPORT int halGetDeviceInfo(uint32_t device, int32_t module, int32_t what, int64_t *value) {
  (void)device, (void)module, (void)what;
  *value = 0;
  return OK;
}
