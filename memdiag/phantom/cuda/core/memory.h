// Memory of the devices: a number with a limit, and ranges of addresses at which nothing is.
//
// Addresses lie where Linux places nothing of its own, so that a device pointer can be told from a host pointer by its value alone,
// and touching one faults.
#pragma once
#include <stdint.h>

#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "addresses.h"

namespace phantom {

constexpr uint64_t kMallocBegin = 0x100000000000, kMallocEnd = 0x2f0000000000;
constexpr uint64_t kReservedBegin = 0x300000000000, kReservedEnd = 0x4f0000000000;
constexpr uint64_t kPage = 2ull << 20;  // physical memory comes in such pages

inline uint64_t number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }
inline void* pointer(uint64_t number) { return reinterpret_cast<void*>(number); }
inline bool is_device(uint64_t address) { return address >= kMallocBegin && address < kReservedEnd; }
inline bool is_device(const void* address) { return is_device(number(address)); }

enum class Kind : int { kMalloc = 0, kReserved = 1, kAsync = 2 };

struct Range {
  uint64_t bytes, physical_bytes;
  int64_t ordinal;  // the how-manieth range of the process
  Kind kind;
  int device;
  uint64_t span_bytes;  // of address space
};

struct Physical {
  uint64_t bytes;
  int device, num_maps, num_references;
};

struct Mapping {
  uint64_t bytes, handle;
};

struct DeviceMemory {
  uint64_t used = 0, peak = 0, foreign = 0, async_used = 0, async_peak = 0;
  uint64_t graph_bytes = 0;  // of executable graphs, part of used in whole pages
  bool has_context = false;  // on a shared card: only a process that uses the device takes memory for its context
};

struct Memory {
  std::mutex mutex;
  uint64_t total_bytes;
  std::vector<DeviceMemory> devices;
  AddressSpace malloc_space, reserved_space;
  std::map<uint64_t, Range> ranges;
  std::map<uint64_t, Mapping> mappings;
  std::unordered_map<uint64_t, Physical> physical;
  std::map<uint64_t, uint64_t> pinned;   // host memory: address -> bytes
  std::map<uint64_t, uint64_t> managed;  // likewise, of cudaMallocManaged
  uint64_t next_handle = 0x680000000000;
  int64_t next_ordinal = 0;

  Memory();
  bool begin_context(int device);  // false: a shared card has no room for it
  uint64_t free_bytes(int device);
  uint64_t free_on_card(int card);  // as monitors see it: looking creates no context
  bool take(int device, uint64_t bytes);
  void give(int device, uint64_t bytes);
  bool resize_graphs(int device, uint64_t bytes);  // sets graph_bytes
  std::map<uint64_t, Range>::iterator find(uint64_t address);
  bool is_pinned(uint64_t address) const { return is_within(pinned, address); }
  bool is_managed(uint64_t address) const { return is_within(managed, address); }
  static bool is_within(const std::map<uint64_t, uint64_t>& spans, uint64_t address);
};

Memory& memory();
using Lock = std::lock_guard<std::mutex>;

int current_device();
void set_current_device(int device);
bool is_no_device(int device);

int allocate(void** result, uint64_t bytes, Kind kind);  // a cudaError_t
int release(void* address);

}  // namespace phantom
