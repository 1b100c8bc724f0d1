// libcuda: modules, kernels, streams and events (Triton, Inductor and NVRTC's users come this way).
#include "../core/kernels.h"

#include <string.h>

#include "../core/memory.h"
#include "../core/properties.h"
#include "../core/refuse.h"
#include "../core/streams.h"
#include "entry.h"

using namespace phantom;

namespace {

constexpr uint64_t kBufferPointer = 1, kBufferSize = 2;  // of cuLaunchKernel's "extra"

int load(void** module) {
  static uint64_t last = 0x2000;  // nobody looks into a module; it only must not be null
  *module = pointer(last += 16);
  return kSuccess;
}

int launch_any(void** arguments, void** extra, Stream stream) {
  if (!extra) {
    return launch(nullptr, arguments, stream);
  }
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (void** entry = extra; *entry; entry += 2) {
    if (number(entry[0]) == kBufferPointer) buffer = entry[1];
    else if (number(entry[0]) == kBufferSize) bytes = *static_cast<size_t*>(entry[1]);
  }
  if (buffer) launch_packed(buffer, bytes, stream);
  return kSuccess;
}

}  // namespace

API int cuModuleLoadData(void** module, const void*) { return load(module); }
API int cuModuleLoadDataEx(void** module, const void*, unsigned, int*, void**) { return load(module); }
API int cuModuleLoadFatBinary(void** module, const void*) { return load(module); }
API int cuModuleLoad(void** module, const char*) { return load(module); }
API int cuModuleUnload(void*) { return kSuccess; }
API int cuModuleGetFunction(void** function, void* module, const char*) {
  *function = module;
  return kSuccess;
}
API int cuModuleGetGlobal_v2(uint64_t* address, size_t* bytes, void*, const char*) {
  if (address) *address = kReservedEnd - 4096;
  if (bytes) *bytes = 8;
  return kSuccess;
}
API int cuModuleGetLoadingMode(int* mode) {
  *mode = 2;  // lazy
  return kSuccess;
}
API int cuLibraryLoadData(void** library, const void*, ...) { return load(library); }
API int cuLibraryLoadFromFile(void** library, const char*, ...) { return load(library); }
API int cuKernelGetAttribute(int* value, int, void*, int) {
  *value = 0;
  return kSuccess;
}
API int cuKernelSetAttribute(int, int, void*, int) { return kSuccess; }
API int cuLibraryUnload(void*) { return kSuccess; }
API int cuLibraryGetKernel(void** kernel, void* library, const char*) {
  *kernel = library;
  return kSuccess;
}
API int cuLibraryGetModule(void** module, void* library) {
  *module = library;
  return kSuccess;
}
API int cuKernelGetFunction(void** function, void* kernel) {
  *function = kernel;
  return kSuccess;
}
API int cuFuncGetAttribute(int* value, int which, void*) {
  *value = which == 0 ? 1024 : which == 4 ? 32 : which == 5 || which == 6 ? config().major * 10 + config().minor : 0;
  return kSuccess;
}
API int cuFuncSetAttribute(void*, int, int) { return kSuccess; }
API int cuFuncSetCacheConfig(void*, int) { return kSuccess; }
API int cuFuncGetModule(void** module, void* function) {
  *module = function;
  return kSuccess;
}
API int cuFuncGetName(const char** name, void*) {
  *name = "kernel";
  return kSuccess;
}

API int cuLaunchKernel(
    void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream stream, void** arguments, void** extra) {
  return launch_any(arguments, extra, stream);
}
API int cuLaunchKernelEx(const DriverLaunchConfig* how, void*, void** arguments, void** extra) { return launch_any(arguments, extra, how->stream); }
API int cuLaunchCooperativeKernel(
    void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream stream, void** arguments) {
  return launch_any(arguments, nullptr, stream);
}
API int cuLaunchHostFunc(Stream, void (*callback)(void*), void* data) {
  callback(data);
  return kSuccess;
}
API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t) {
  *blocks = occupancy();
  return kSuccess;
}
API int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void*, int, size_t, unsigned) {
  *blocks = occupancy();
  return kSuccess;
}
API int cuOccupancyMaxActiveClusters(int* clusters, void*, const void*) {
  *clusters = occupancy();
  return kSuccess;
}
API int cuOccupancyMaxPotentialClusterSize(int* blocks, void*, const void*) {
  *blocks = occupancy();
  return kSuccess;
}
API int cuOccupancyMaxPotentialBlockSize(int* grid, int* block, void*, void*, size_t, int) {
  *grid = config().sms;
  *block = 1024;
  return kSuccess;
}
API int cuTensorMapEncodeTiled(void* map, ...) {
  memset(map, 0, 128);
  return kSuccess;
}

API int cuStreamCreate(Stream* stream, unsigned flags) {
  *stream = make_stream(flags, 0);
  return kSuccess;
}
API int cuStreamCreateWithPriority(Stream* stream, unsigned flags, int priority) {
  *stream = make_stream(flags, priority);
  return kSuccess;
}
API int cuStreamDestroy_v2(Stream) { return kSuccess; }
API int cuStreamSynchronize(Stream stream) {
  complete(stream);
  return kSuccess;
}
API int cuStreamQuery(Stream) { return kSuccess; }
API int cuCtxGetCurrent(void** context);
API int cuStreamGetCtx(Stream, void** context) { return cuCtxGetCurrent(context); }
API int cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  wait_for(stream, event);
  return kSuccess;
}
API int cuStreamIsCapturing(Stream stream, int* status) {
  *status = is_capturing(stream) ? kCaptureActive : kCaptureNone;
  return kSuccess;
}
API int cuEventCreate(Event* event, unsigned) {
  *event = reinterpret_cast<Event>(new EventState);
  return kSuccess;
}
API int cuEventDestroy_v2(Event event) {
  delete reinterpret_cast<EventState*>(event);
  return kSuccess;
}
API int cuEventRecord(Event event, Stream stream) {
  record(event, stream);
  return kSuccess;
}
API int cuEventQuery(Event event) { return is_done(event, true) ? kSuccess : kNotReady; }
API int cuEventSynchronize(Event event) {
  synchronize(event);
  return kSuccess;
}
API int cuEventElapsedTime(float* ms, Event, Event) {
  *ms = 1e-3f;
  return kSuccess;
}

API int cuLinkCreate_v2(unsigned, ...) { return refuse("libcuda", "cuLinkCreate", kNotSupported); }
API int cuLinkAddData_v2(void*, ...) { return refuse("libcuda", "cuLinkAddData", kNotSupported); }
API int cuLinkDestroy(void*) { return kSuccess; }
API int cuLinkComplete(void*, void**, size_t*) { return refuse("libcuda", "cuLinkComplete", kNotSupported); }
API int cuGreenCtxCreate(void**, ...) { return refuse("libcuda", "cuGreenCtxCreate", kNotSupported); }
API int cuGreenCtxDestroy(void*) { return refuse("libcuda", "cuGreenCtxDestroy", kNotSupported); }
API int cuGreenCtxStreamCreate(void**, ...) { return refuse("libcuda", "cuGreenCtxStreamCreate", kNotSupported); }
API int cuCtxFromGreenCtx(void**, void*) { return refuse("libcuda", "cuCtxFromGreenCtx", kNotSupported); }
API int cuDeviceGetDevResource(int, ...) { return refuse("libcuda", "cuDeviceGetDevResource", kNotSupported); }
API int cuDevResourceGenerateDesc(void**, ...) { return refuse("libcuda", "cuDevResourceGenerateDesc", kNotSupported); }
API int cuDevSmResourceSplitByCount(void*, ...) { return refuse("libcuda", "cuDevSmResourceSplitByCount", kNotSupported); }

ALSO_PLAIN(cuModuleGetGlobal) ALSO_PLAIN(cuStreamDestroy) ALSO_PLAIN(cuEventDestroy) ALSO_PLAIN(cuLinkCreate) ALSO_PLAIN(cuLinkAddData)
