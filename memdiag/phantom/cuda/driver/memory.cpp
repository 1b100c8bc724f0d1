// libcuda: memory, virtual memory (expandable segments are made of it), copies.
#include <string.h>

#include <algorithm>
#include <iterator>

#include "../core/abi.h"
#include "../core/calls.h"
#include "../core/memory.h"
#include "../core/refuse.h"
#include "../core/streams.h"
#include "../core/values.h"
#include "entry.h"

using namespace phantom;

namespace {

using Handles = std::unordered_map<uint64_t, Physical>;

void drop_if_unused(Handles::iterator handle) {
  if (handle->second.num_references > 0 || handle->second.num_maps > 0) return;
  memory().give(handle->second.device, handle->second.bytes);
  memory().physical.erase(handle);
}

int set(Stream stream, uint64_t to, uint64_t value, unsigned each, size_t count) {
  perform(stream, [=] { set_any(pointer(to), &value, each, count * each); });
  return kSuccess;
}
int copy(Stream stream, void* to, const void* from, size_t bytes) {
  perform(stream, [=] { copy_any(to, from, bytes); });
  return kSuccess;
}
int no_such(const char* function) { return refuse("libcuda", function, kNotSupported); }

}  // namespace

API int cuMemAlloc_v2(uint64_t* result, size_t bytes) {
  void* address = nullptr;
  int error = bytes ? allocate(&address, bytes, Kind::kMalloc) : kInvalidValue;
  *result = number(address);
  return error;
}
API int cuMemFree_v2(uint64_t address) { return release(pointer(address)); }
API int cuMemAllocAsync(uint64_t* result, size_t bytes, Stream) { return cuMemAlloc_v2(result, bytes); }
API int cuMemFreeAsync(uint64_t address, Stream) { return release(pointer(address)); }
API int cuMemGetAddressRange_v2(uint64_t* begin, size_t* bytes, uint64_t address) {
  Lock lock(memory().mutex);
  auto range = memory().find(address);
  if (range == memory().ranges.end()) return kNotFound;
  if (begin) *begin = range->first;
  if (bytes) *bytes = range->second.bytes;
  return kSuccess;
}

API int cuMemGetAllocationGranularity(size_t* bytes, const AllocationProp*, int) {
  *bytes = kPage;
  return kSuccess;
}
API int cuMemAddressReserve(uint64_t* result, size_t bytes, size_t alignment, uint64_t, unsigned long long) {
  Memory& all = memory();
  Lock lock(all.mutex);
  if (!bytes || bytes % kPage) return kInvalidValue;
  uint64_t address = all.reserved_space.take(bytes, std::max<uint64_t>(alignment, kPage));
  if (!address) return kMemoryAllocation;
  int64_t ordinal = all.next_ordinal++;
  all.ranges[address] = {bytes, 0, ordinal, Kind::kReserved, current_device(), bytes};
  note_call(Call::kReserve, current_device(), address, bytes, ordinal);
  *result = address;
  return kSuccess;
}
API int cuMemAddressFree(uint64_t address, size_t bytes) {
  Memory& all = memory();
  Lock lock(all.mutex);
  auto range = all.ranges.find(address);
  if (range == all.ranges.end() || range->second.kind != Kind::kReserved || range->second.bytes != bytes) return kInvalidValue;
  auto mapping = all.mappings.lower_bound(address);
  if (mapping != all.mappings.end() && mapping->first < address + bytes) return kInvalidValue;
  note_call(Call::kUnreserve, range->second.device, address, bytes, range->second.ordinal);
  all.ranges.erase(range);
  all.reserved_space.give_back(address, bytes);
  return kSuccess;
}
API int cuMemCreate(uint64_t* handle, size_t bytes, const AllocationProp* how, unsigned long long) {
  Memory& all = memory();
  Lock lock(all.mutex);
  int device = how ? how->location.id : current_device();
  if (is_no_device(device) || !bytes || bytes % kPage) return kInvalidValue;
  if (!all.take(device, bytes)) {
    note_call(Call::kCreateFailed, device, 0, bytes, -1);
    return kMemoryAllocation;
  }
  *handle = all.next_handle++;
  all.physical[*handle] = {bytes, device, 0, 1};
  note_call(Call::kCreate, device, *handle, bytes, -1);
  return kSuccess;
}
API int cuMemRelease(uint64_t handle) {
  Lock lock(memory().mutex);
  auto found = memory().physical.find(handle);
  if (found == memory().physical.end() || found->second.num_references <= 0) return kInvalidValue;
  note_call(Call::kRelease, found->second.device, handle, found->second.bytes, -1);
  found->second.num_references--;
  drop_if_unused(found);
  return kSuccess;
}
API int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, unsigned long long) {
  Memory& all = memory();
  Lock lock(all.mutex);
  auto found = all.physical.find(handle);
  auto range = all.find(address);
  if (found == all.physical.end() || range == all.ranges.end() || range->second.kind != Kind::kReserved) return kInvalidValue;
  if (address + bytes > range->first + range->second.bytes || offset + bytes > found->second.bytes) return kInvalidValue;
  auto next = all.mappings.lower_bound(address);
  bool overlaps_next = next != all.mappings.end() && next->first < address + bytes;
  bool overlaps_last = next != all.mappings.begin() && std::prev(next)->first + std::prev(next)->second.bytes > address;
  if (overlaps_next || overlaps_last) return kInvalidValue;
  all.mappings[address] = {bytes, handle};
  found->second.num_maps++;
  note_call(Call::kMap, found->second.device, address, bytes, range->second.ordinal);
  return kSuccess;
}
API int cuMemSetAccess(uint64_t, size_t, const void*, size_t) { return kSuccess; }
API int cuMemUnmap(uint64_t address, size_t bytes) {
  Memory& all = memory();
  Lock lock(all.mutex);
  for (uint64_t at = address; at < address + bytes;) {
    auto mapping = all.mappings.find(at);
    if (mapping == all.mappings.end() || at + mapping->second.bytes > address + bytes) return kInvalidValue;
    at += mapping->second.bytes;
  }
  auto range = all.find(address);
  note_call(Call::kUnmap, range->second.device, address, bytes, range->second.ordinal);
  for (uint64_t at = address; at < address + bytes;) {
    auto mapping = all.mappings.find(at);
    at += mapping->second.bytes;
    auto handle = all.physical.find(mapping->second.handle);
    all.mappings.erase(mapping);
    handle->second.num_maps--;
    drop_if_unused(handle);
  }
  forget(address, bytes);
  return kSuccess;
}
API int cuMemRetainAllocationHandle(uint64_t* handle, void* address) {
  Lock lock(memory().mutex);
  auto after = memory().mappings.upper_bound(number(address));
  if (after == memory().mappings.begin()) return kInvalidValue;
  auto mapping = std::prev(after);
  if (number(address) >= mapping->first + mapping->second.bytes) return kInvalidValue;
  *handle = mapping->second.handle;
  memory().physical[*handle].num_references++;
  return kSuccess;
}
API int cuMemGetAllocationPropertiesFromHandle(AllocationProp* to, uint64_t handle) {
  Lock lock(memory().mutex);
  auto found = memory().physical.find(handle);
  if (found == memory().physical.end()) return kInvalidValue;
  memset(to, 0, sizeof *to);
  to->type = 1;           // pinned
  to->location.type = 1;  // on a device
  to->location.id = found->second.device;
  return kSuccess;
}
API int cuMemExportToShareableHandle(void*, uint64_t, int, unsigned long long) { return no_such("cuMemExportToShareableHandle"); }
API int cuMemImportFromShareableHandle(uint64_t*, void*, int) { return no_such("cuMemImportFromShareableHandle"); }

API int cuMemcpy(uint64_t to, uint64_t from, size_t bytes) { return copy(nullptr, pointer(to), pointer(from), bytes); }
API int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, Stream stream) { return copy(stream, pointer(to), pointer(from), bytes); }
API int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) { return copy(nullptr, pointer(to), from, bytes); }
API int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, Stream stream) { return copy(stream, pointer(to), from, bytes); }
API int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) { return copy(nullptr, to, pointer(from), bytes); }
API int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, Stream stream) { return copy(stream, to, pointer(from), bytes); }
API int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes) { return copy(nullptr, pointer(to), pointer(from), bytes); }
API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream stream) { return copy(stream, pointer(to), pointer(from), bytes); }
API int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t count) { return set(nullptr, to, value, 1, count); }
API int cuMemsetD8Async(uint64_t to, unsigned char value, size_t count, Stream stream) { return set(stream, to, value, 1, count); }
API int cuMemsetD16_v2(uint64_t to, unsigned short value, size_t count) { return set(nullptr, to, value, 2, count); }
API int cuMemsetD16Async(uint64_t to, unsigned short value, size_t count, Stream stream) { return set(stream, to, value, 2, count); }
API int cuMemsetD32_v2(uint64_t to, unsigned value, size_t count) { return set(nullptr, to, value, 4, count); }
API int cuMemsetD32Async(uint64_t to, unsigned value, size_t count, Stream stream) { return set(stream, to, value, 4, count); }
API int cuStreamWriteValue32_v2(Stream stream, uint64_t to, unsigned value, unsigned) { return set(stream, to, value, 4, 1); }
API int cuStreamWaitValue32_v2(Stream, uint64_t, unsigned, unsigned) { return kSuccess; }
// Numba asks for the address of this one when it begins, and fails if there is none, although it may never call it.
API int cuIpcOpenMemHandle_v2(uint64_t*, ...) { return no_such("cuIpcOpenMemHandle"); }
API int cuIpcGetMemHandle(void*, uint64_t) { return no_such("cuIpcGetMemHandle"); }
API int cuIpcCloseMemHandle(uint64_t) { return no_such("cuIpcCloseMemHandle"); }

API int cuMulticastCreate(void*, ...) { return no_such("cuMulticastCreate"); }
API int cuMulticastAddDevice(void*, ...) { return no_such("cuMulticastAddDevice"); }
API int cuMulticastBindMem(void*, ...) { return no_such("cuMulticastBindMem"); }
API int cuMulticastUnbind(void*, ...) { return no_such("cuMulticastUnbind"); }

ALSO_PLAIN(cuIpcOpenMemHandle) ALSO_PLAIN(cuMemAlloc) ALSO_PLAIN(cuMemFree) ALSO_PLAIN(cuMemGetAddressRange) ALSO_PLAIN(cuMemcpyHtoD) ALSO_PLAIN(cuMemcpyHtoDAsync)
ALSO_PLAIN(cuMemcpyDtoH) ALSO_PLAIN(cuMemcpyDtoHAsync) ALSO_PLAIN(cuMemcpyDtoD) ALSO_PLAIN(cuMemcpyDtoDAsync) ALSO_PLAIN(cuMemsetD8)
ALSO_PLAIN(cuMemsetD16) ALSO_PLAIN(cuMemsetD32) ALSO_PLAIN(cuStreamWriteValue32) ALSO_PLAIN(cuStreamWaitValue32)
