#include "memory.h"

#include <algorithm>
#include <iterator>

#include "abi.h"
#include "calls.h"
#include "cards.h"
#include "values.h"

namespace phantom {
namespace {

thread_local int t_device = 0;

}  // namespace

Memory::Memory()
    : total_bytes(config().total_bytes),
      devices(config().num_devices),
      malloc_space(kMallocBegin, kMallocEnd, config().addresses),
      // expandable segments are reserved once and kept: the direction of these addresses decides nothing
      reserved_space(kReservedBegin, kReservedEnd, config().addresses == Addresses::kDown ? Addresses::kUp : config().addresses) {}

Memory& memory() {
  static Memory* const all = new Memory;
  return *all;
}

bool Memory::begin_context(int device) {
  DeviceMemory& own = devices[device];
  if (is_card_shared() && !own.has_context) own.has_context = set_on_card(card_of(device), config().context_bytes, total_bytes);
  return own.has_context || !is_card_shared();
}

uint64_t Memory::free_bytes(int device) {
  if (!begin_context(device)) return 0;
  uint64_t taken = config().context_bytes + devices[device].used + devices[device].foreign;
  if (is_card_shared()) taken += of_others(card_of(device));
  return taken >= total_bytes ? 0 : total_bytes - taken;
}

uint64_t Memory::free_on_card(int card) {
  if (!is_card_shared()) return is_no_device(card) ? total_bytes : free_bytes(card);
  uint64_t taken = 0;
  for (const Share& share : shares_of(card)) taken += share.bytes;
  return taken >= total_bytes ? 0 : total_bytes - taken;
}

bool Memory::take(int device, uint64_t bytes) {
  if (bytes > free_bytes(device)) return false;
  DeviceMemory& own = devices[device];
  if (is_card_shared() && !set_on_card(card_of(device), config().context_bytes + own.used + bytes, total_bytes)) return false;
  own.used += bytes;
  own.peak = std::max(own.peak, own.used);
  return true;
}

void Memory::give(int device, uint64_t bytes) {
  DeviceMemory& own = devices[device];
  own.used -= bytes;
  if (is_card_shared()) set_on_card(card_of(device), config().context_bytes + own.used, total_bytes);
}

bool Memory::resize_graphs(int device, uint64_t bytes) {
  DeviceMemory& own = devices[device];
  uint64_t before = round_up(own.graph_bytes, kPage), after = round_up(bytes, kPage);
  if (after > before && !take(device, after - before)) return false;
  if (after < before) give(device, before - after);
  own.graph_bytes = bytes;
  return true;
}

std::map<uint64_t, Range>::iterator Memory::find(uint64_t address) {
  auto after = ranges.upper_bound(address);
  if (after == ranges.begin()) return ranges.end();
  auto range = std::prev(after);
  return address < range->first + range->second.bytes ? range : ranges.end();
}

bool Memory::is_within(const std::map<uint64_t, uint64_t>& spans, uint64_t address) {
  auto after = spans.upper_bound(address);
  if (after == spans.begin()) return false;
  auto range = std::prev(after);
  return address < range->first + range->second;
}

int current_device() { return t_device; }
void set_current_device(int device) { t_device = device; }
bool is_no_device(int device) { return device < 0 || device >= config().num_devices; }

int allocate(void** result, uint64_t bytes, Kind kind) {
  if (!result) return kInvalidValue;
  *result = nullptr;
  if (!bytes) return kSuccess;
  Memory& all = memory();
  Lock lock(all.mutex);
  uint64_t physical_bytes = round_up(bytes, config().granularity), span_bytes = physical_bytes + config().gap_bytes;
  if (physical_bytes < bytes || !all.take(t_device, physical_bytes)) {
    note_call(Call::kMallocFailed, t_device, 0, bytes, -1);
    return kMemoryAllocation;
  }
  uint64_t address = all.malloc_space.take(span_bytes, config().granularity);
  if (!address) {
    all.give(t_device, physical_bytes);
    return kMemoryAllocation;
  }
  int64_t ordinal = all.next_ordinal++;
  all.ranges[address] = {bytes, physical_bytes, ordinal, kind, t_device, span_bytes};
  if (kind == Kind::kAsync) {
    DeviceMemory& own = all.devices[t_device];
    own.async_used += physical_bytes;
    own.async_peak = std::max(own.async_peak, own.async_used);
  }
  note_call(Call::kMalloc, t_device, address, bytes, ordinal);
  *result = pointer(address);
  return kSuccess;
}

int release(void* address) {
  if (!address) return kSuccess;
  Memory& all = memory();
  Lock lock(all.mutex);
  auto found = all.ranges.find(number(address));
  if (found == all.ranges.end() || found->second.kind == Kind::kReserved) return kInvalidValue;
  Range range = found->second;
  all.ranges.erase(found);
  all.give(range.device, range.physical_bytes);
  if (range.kind == Kind::kAsync) all.devices[range.device].async_used -= range.physical_bytes;
  all.malloc_space.give_back(number(address), range.span_bytes);
  note_call(Call::kFree, range.device, number(address), range.bytes, range.ordinal);
  forget(number(address), range.bytes);
  return kSuccess;
}

}  // namespace phantom
