// libcuda: start, devices, contexts, errors, pointers.
#include <stdio.h>
#include <string.h>

#include "../core/errors.h"
#include "../core/memory.h"
#include "../core/properties.h"
#include "../core/streams.h"
#include "entry.h"

using namespace phantom;

namespace {

constexpr uint64_t kContexts = 0x1000;  // a context's handle: this and its device

enum : int { kContextOf = 1, kTypeOf = 2, kDevicePointerOf = 3, kHostPointerOf = 4, kBufferOf = 7, kOrdinalOf = 9, kStartOf = 11, kSizeOf = 12 };

int attribute_of(void* to, int which, uint64_t address) {
  Lock lock(memory().mutex);
  auto range = memory().find(address);
  bool is_on_device = range != memory().ranges.end();
  if (!is_on_device && !memory().is_pinned(address)) return kInvalidValue;
  uint64_t device = is_on_device ? static_cast<uint64_t>(range->second.device) : 0;
  switch (which) {
    case kContextOf: *static_cast<uint64_t*>(to) = kContexts + device; return kSuccess;
    case kTypeOf: *static_cast<unsigned*>(to) = is_on_device ? kMemoryDevice : kMemoryHost; return kSuccess;
    case kDevicePointerOf: *static_cast<uint64_t*>(to) = address; return kSuccess;
    case kOrdinalOf: *static_cast<int*>(to) = static_cast<int>(device); return kSuccess;
    case kHostPointerOf:
      if (is_on_device) return kInvalidValue;
      *static_cast<uint64_t*>(to) = address;
      return kSuccess;
    case kBufferOf:
      *static_cast<uint64_t*>(to) = is_on_device ? static_cast<uint64_t>(range->second.ordinal + 1) : 0;
      return kSuccess;
    case kStartOf: *static_cast<uint64_t*>(to) = is_on_device ? range->first : address; return kSuccess;
    case kSizeOf: *static_cast<uint64_t*>(to) = is_on_device ? range->second.bytes : 0; return kSuccess;
    default: return kInvalidValue;
  }
}

}  // namespace

API int cuInit(unsigned) { return config().num_devices ? kSuccess : kNoDevice; }
API int cuDriverGetVersion(int* version) {
  *version = PHANTOM_CUDA_VERSION;
  return kSuccess;
}
API int cuGetErrorString(int error, const char** text) {
  *text = error_text(error);
  return kSuccess;
}
API int cuGetErrorName(int error, const char** text) {
  *text = error == kSuccess ? "CUDA_SUCCESS" : error == kMemoryAllocation ? "CUDA_ERROR_OUT_OF_MEMORY" : error_name(error);
  return kSuccess;
}

API int cuDeviceGetCount(int* count) {
  *count = config().num_devices;
  return kSuccess;
}
API int cuDeviceGet(int* device, int ordinal) {
  if (is_no_device(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}
API int cuDeviceGetName(char* text, int bytes, int) {
  snprintf(text, static_cast<size_t>(bytes), "%s", config().name.c_str());
  return kSuccess;
}
API int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = config().total_bytes;
  return kSuccess;
}
API int cuDeviceGetUuid(char* uuid, int device) {
  DeviceProp properties;
  fill(properties, device);
  memcpy(uuid, properties.uuid, 16);
  return kSuccess;
}
API int cuDeviceGetUuid_v2(char* uuid, int device) { return cuDeviceGetUuid(uuid, device); }
API int cuDeviceGetPCIBusId(char* text, int bytes, int device) {
  snprintf(text, static_cast<size_t>(bytes), "0000:%02X:00.0", device + 1);
  return kSuccess;
}
API int cuDeviceGetAttribute(int* value, int which, int device) {
  if (is_no_device(device)) return kInvalidDevice;
  *value = which == 33 ? device + 1 : attribute(which);
  return kSuccess;
}
API int cuDeviceComputeCapability(int* major, int* minor, int) {
  *major = config().major;
  *minor = config().minor;
  return kSuccess;
}
API int cuDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return kSuccess;
}
API int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  Lock lock(memory().mutex);
  *free_bytes = memory().free_bytes(current_device());
  *total_bytes = memory().total_bytes;
  return kSuccess;
}

API int cuCtxGetCurrent(void** context) {
  *context = pointer(kContexts + static_cast<uint64_t>(current_device()));
  return kSuccess;
}
API int cuCtxSetCurrent(void* context) {
  int device = static_cast<int>(number(context) - kContexts);
  if (!is_no_device(device)) set_current_device(device);
  return kSuccess;
}
API int cuCtxPushCurrent_v2(void* context) { return cuCtxSetCurrent(context); }
API int cuCtxPopCurrent_v2(void** context) { return cuCtxGetCurrent(context); }
API int cuCtxGetDevice(int* device) {
  *device = current_device();
  return kSuccess;
}
API int cuCtxGetApiVersion(void*, unsigned* version) {
  *version = PHANTOM_CUDA_VERSION;
  return kSuccess;
}
API int cuCtxGetLimit(size_t* value, int) {
  *value = 1 << 20;
  return kSuccess;
}
API int cuCtxSetLimit(int, size_t) { return kSuccess; }
API int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return kSuccess;
}
API int cuCtxSynchronize() {
  complete_all();
  return kSuccess;
}
API int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  if (flags) *flags = 0;
  *active = 1;
  return kSuccess;
}
API int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = pointer(kContexts + static_cast<uint64_t>(device));
  return kSuccess;
}
API int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
API int cuDevicePrimaryCtxSetFlags_v2(int, unsigned) { return kSuccess; }

API int cuPointerGetAttribute(void* to, int which, uint64_t address) { return attribute_of(to, which, address); }
API int cuPointerGetAttributes(unsigned count, int* which, void** to, uint64_t address) {
  for (unsigned i = 0; i < count; i++) attribute_of(to[i], which[i], address);
  return kSuccess;
}
API int cuPointerSetAttribute(const void*, int, uint64_t) { return kSuccess; }

ALSO_PLAIN(cuDeviceTotalMem) ALSO_PLAIN(cuMemGetInfo) ALSO_PLAIN(cuCtxPushCurrent) ALSO_PLAIN(cuCtxPopCurrent)
ALSO_PLAIN(cuDevicePrimaryCtxRelease) ALSO_PLAIN(cuDevicePrimaryCtxSetFlags)
