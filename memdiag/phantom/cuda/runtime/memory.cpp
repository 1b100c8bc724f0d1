// libcudart: memory, pinned memory, copies, memory pools.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../core/errors.h"
#include "../core/memory.h"
#include "../core/refuse.h"
#include "../core/streams.h"
#include "../core/values.h"

using namespace phantom;

namespace {

constexpr uint64_t kPools = 0x10;  // a pool's handle: this and its device
constexpr int kPoolReservedHigh = 6, kPoolUsedHigh = 8;

void set(Stream stream, void* to, int value, size_t bytes) {
  char byte = static_cast<char>(value);
  perform(stream, [=] { set_any(to, &byte, 1, bytes); });
}
int copy(Stream stream, void* to, const void* from, size_t bytes) {
  perform(stream, [=] { copy_any(to, from, bytes); });
  return kSuccess;
}
int copy_rows(Stream stream, void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t bytes, size_t rows) {
  for (size_t i = 0; i < rows; i++) copy(stream, static_cast<char*>(to) + i * to_pitch, static_cast<const char*>(from) + i * from_pitch, bytes);
  return kSuccess;
}

// Managed memory lies in host memory: the host may touch it, and it is no part of the device's total, since the driver moves it out
// of the device when the device is full. Pages that nobody touches take no memory.
int allocate_managed(void** result, size_t bytes) {
  bytes = round_up(bytes ? bytes : 1, 4096);
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *result = nullptr;
  if (address == MAP_FAILED) return kMemoryAllocation;
  Lock lock(memory().mutex);
  memory().managed[number(address)] = bytes;
  *result = address;
  return kSuccess;
}

// Whether it was managed memory.
bool release_managed(void* address) {
  Lock lock(memory().mutex);
  auto found = memory().managed.find(number(address));
  if (found == memory().managed.end()) return false;
  munmap(address, found->second);
  memory().managed.erase(found);
  return true;
}

}  // namespace

API int cudaMalloc(void** result, size_t bytes) { return remember(allocate(result, bytes, Kind::kMalloc)); }
API int cudaFree(void* address) { return release_managed(address) ? kSuccess : remember(release(address)); }
API int cudaMallocAsync(void** result, size_t bytes, Stream) { return remember(allocate(result, bytes, Kind::kAsync)); }
API int cudaMallocFromPoolAsync(void** result, size_t bytes, void*, Stream) { return remember(allocate(result, bytes, Kind::kAsync)); }
API int cudaFreeAsync(void* address, Stream) { return remember(release(address)); }
API int cudaMallocPitch(void** result, size_t* pitch, size_t width, size_t height) {
  *pitch = round_up(width, 512);
  return remember(allocate(result, *pitch * height, Kind::kMalloc));
}
API int cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  Lock lock(memory().mutex);
  if (!memory().begin_context(current_device())) return remember(kMemoryAllocation);
  *free_bytes = memory().free_bytes(current_device());
  *total_bytes = memory().total_bytes;
  return kSuccess;
}

API int cudaHostAlloc(void** result, size_t bytes, unsigned) {
  void* address = nullptr;
  if (posix_memalign(&address, 4096, bytes ? bytes : 1)) return remember(kMemoryAllocation);
  Lock lock(memory().mutex);
  memory().pinned[number(address)] = bytes ? bytes : 1;
  *result = address;
  return kSuccess;
}
API int cudaMallocHost(void** result, size_t bytes) { return cudaHostAlloc(result, bytes, 0); }
API int cudaFreeHost(void* address) {
  {
    Lock lock(memory().mutex);
    memory().pinned.erase(number(address));
  }
  free(address);
  return kSuccess;
}
API int cudaHostRegister(void* address, size_t bytes, unsigned) {
  Lock lock(memory().mutex);
  memory().pinned[number(address)] = bytes;
  return kSuccess;
}
API int cudaHostUnregister(void* address) {
  Lock lock(memory().mutex);
  memory().pinned.erase(number(address));
  return kSuccess;
}
API int cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return kSuccess;
}
API int cudaHostGetFlags(unsigned* flags, void*) {
  *flags = 0;
  return kSuccess;
}
API int cudaPointerGetAttributes(PointerAttributes* to, const void* address) {
  Lock lock(memory().mutex);
  memset(to, 0, sizeof *to);
  auto range = memory().find(number(address));
  bool is_on_device = range != memory().ranges.end();
  to->type = is_on_device                            ? kMemoryDevice
             : memory().is_managed(number(address)) ? kMemoryManaged
             : memory().is_pinned(number(address))  ? kMemoryHost
                                                    : kMemoryUnregistered;
  to->device = is_on_device ? range->second.device : to->type == kMemoryUnregistered ? -2 : current_device();
  to->device_pointer = to->type == kMemoryUnregistered ? nullptr : const_cast<void*>(address);
  to->host_pointer = is_on_device ? nullptr : const_cast<void*>(address);
  return kSuccess;
}

API int cudaMemcpy(void* to, const void* from, size_t bytes, int) { return copy(nullptr, to, from, bytes); }
API int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, Stream stream) { return copy(stream, to, from, bytes); }
API int cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) { return copy(nullptr, to, from, bytes); }
API int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, Stream stream) { return copy(stream, to, from, bytes); }
API int cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t bytes, size_t rows, int) {
  return copy_rows(nullptr, to, to_pitch, from, from_pitch, bytes, rows);
}
API int cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t bytes, size_t rows, int, Stream stream) {
  return copy_rows(stream, to, to_pitch, from, from_pitch, bytes, rows);
}
API int cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, int) { return kSuccess; }
API int cudaMemcpyToSymbolAsync(const void*, const void*, size_t, size_t, int, Stream) { return kSuccess; }
API int cudaMemset(void* to, int value, size_t bytes) {
  set(nullptr, to, value, bytes);
  return kSuccess;
}
API int cudaMemsetAsync(void* to, int value, size_t bytes, Stream stream) {
  set(stream, to, value, bytes);
  return kSuccess;
}
API int cudaMemset2DAsync(void* to, size_t pitch, int value, size_t bytes, size_t rows, Stream stream) {
  for (size_t i = 0; i < rows; i++) set(stream, static_cast<char*>(to) + i * pitch, value, bytes);
  return kSuccess;
}

API int cudaMallocManaged(void** result, size_t bytes, unsigned) { return remember(allocate_managed(result, bytes)); }
// Where managed memory is does not matter here. The arguments differ between CUDA 12 and 13.
API int cudaMemPrefetchAsync(...) { return kSuccess; }
API int cudaMemAdvise(...) { return kSuccess; }
// Memory of other processes: there is none.
API int cudaIpcGetMemHandle(void*, void*) { return remember(refuse("libcudart", "cudaIpcGetMemHandle", kNotSupported)); }
API int cudaIpcOpenMemHandle(void**, ...) { return remember(refuse("libcudart", "cudaIpcOpenMemHandle", kNotSupported)); }

API int cudaDeviceGetDefaultMemPool(void** pool, int device) {
  *pool = pointer(kPools + static_cast<uint64_t>(device));
  return kSuccess;
}
API int cudaDeviceGetMemPool(void** pool, int device) { return cudaDeviceGetDefaultMemPool(pool, device); }
API int cudaMemPoolSetAttribute(void*, int, void*) { return kSuccess; }
API int cudaMemPoolGetAttribute(void* pool, int which, void* value) {
  Lock lock(memory().mutex);
  int device = static_cast<int>(number(pool) - kPools);
  if (is_no_device(device)) return remember(kInvalidValue);
  const DeviceMemory& own = memory().devices[device];
  *static_cast<uint64_t*>(value) = which == kPoolReservedHigh || which == kPoolUsedHigh ? own.async_peak : own.async_used;
  return kSuccess;
}
API int cudaMemPoolSetAccess(void*, const void*, size_t) { return kSuccess; }
API int cudaMemPoolTrimTo(void*, size_t) { return kSuccess; }
API int cudaDeviceGetGraphMemAttribute(int, int, void* value) {
  *static_cast<uint64_t*>(value) = 0;
  return kSuccess;
}
API int cudaDeviceSetGraphMemAttribute(int, int, void*) { return kSuccess; }
API int cudaDeviceGraphMemTrim(int) { return kSuccess; }
