// libcudart: devices, versions, errors, the profiler's switch.
#include <stdio.h>

#include "../core/cards.h"
#include "../core/errors.h"
#include "../core/memory.h"
#include "../core/properties.h"
#include "../core/stack.h"
#include "../core/streams.h"
#include "../core/calls.h"
#include "../../shared/too_few.h"

using namespace phantom;

API int cudaGetDeviceCount(int* count) {
  *count = config().num_devices;
  return *count ? kSuccess : remember(kNoDevice);
}
// PyTorch calls this at the beginning of each operator.
API int cudaGetDevice(int* device) {
  wipe_addresses();
  *device = current_device();
  return kSuccess;
}
API int cudaSetDevice(int device) {
  if (is_no_device(device)) {
    too_few_devices(device, config().num_devices);
    return remember(kInvalidDevice);
  }
  set_current_device(device);
  return kSuccess;
}
API int cudaInitDevice(int device, unsigned, unsigned) { return is_no_device(device) ? remember(kInvalidDevice) : kSuccess; }
API int cudaSetDeviceFlags(unsigned) { return kSuccess; }
API int cudaGetDeviceFlags(unsigned* flags) {
  *flags = 0;
  return kSuccess;
}
API int cudaDriverGetVersion(int* version) {
  *version = PHANTOM_CUDA_VERSION;
  return kSuccess;
}
API int cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
API int cudaGetLastError() { return take_last_error(); }
API int cudaPeekAtLastError() { return last_error(); }
API const char* cudaGetErrorName(int error) { return error_name(error); }
API const char* cudaGetErrorString(int error) { return error_text(error); }

API int cudaGetDeviceProperties(DeviceProp* properties, int device) {
  if (is_no_device(device)) return remember(kInvalidDevice);
  fill(*properties, device);
  return kSuccess;
}
API int cudaGetDeviceProperties_v2(DeviceProp* properties, int device) { return cudaGetDeviceProperties(properties, device); }
API int cudaDeviceGetAttribute(int* value, int which, int device) {
  if (is_no_device(device)) return remember(kInvalidDevice);
  *value = which == 33 ? card_of(device) + 1 : attribute(which);
  return kSuccess;
}
API int cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  if (is_no_device(device)) return remember(kInvalidDevice);
  snprintf(text, static_cast<size_t>(bytes), "0000:%02X:00.0", card_of(device) + 1);
  return kSuccess;
}
API int cudaDeviceGetByPCIBusId(int* device, const char* text) {
  unsigned bus = 0;
  int found = sscanf(text, "%*x:%x", &bus) == 1 ? 0 : config().num_devices;
  while (found < config().num_devices && card_of(found) != static_cast<int>(bus) - 1) found++;
  if (found >= config().num_devices) return remember(kInvalidValue);
  *device = found;
  return kSuccess;
}
// Peers would let NCCL and symmetric memory map each other's memory, of which nothing is here.
API int cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return kSuccess;
}
API int cudaDeviceEnablePeerAccess(int, unsigned) { return kSuccess; }
API int cudaDeviceDisablePeerAccess(int) { return kSuccess; }
API int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return kSuccess;
}
API int cudaDeviceGetLimit(size_t* value, int) {
  *value = 8 << 20;
  return kSuccess;
}
API int cudaDeviceSetLimit(int, size_t) { return kSuccess; }
API int cudaDeviceGetCacheConfig(int* value) {
  *value = 0;
  return kSuccess;
}
API int cudaDeviceSetCacheConfig(int) { return kSuccess; }
API int cudaDeviceReset() { return kSuccess; }
API int cudaDeviceSynchronize() {
  complete_all();
  Lock lock(memory().mutex);
  note_call(Call::kDeviceSync, current_device(), 0, 0, -1);
  return kSuccess;
}
API int cudaThreadSynchronize() { return cudaDeviceSynchronize(); }
API int cudaProfilerStart() { return kSuccess; }
API int cudaProfilerStop() { return kSuccess; }
