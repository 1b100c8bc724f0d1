#include "addresses.h"

#include <iterator>

namespace phantom {

uint64_t AddressSpace::take(uint64_t bytes, uint64_t alignment) {
  if (rule_ == Addresses::kFirstFit)
    if (uint64_t address = from_holes(bytes, alignment)) return address;
  if (rule_ == Addresses::kLastFreed) {
    auto& same_size = freed_[bytes];
    if (!same_size.empty()) {
      uint64_t address = same_size.back();
      same_size.pop_back();
      return address;
    }
  }
  uint64_t address = from_fresh(bytes, alignment);
  return address ? address : from_holes(bytes, alignment);
}

uint64_t AddressSpace::from_fresh(uint64_t bytes, uint64_t alignment) {
  if (rule_ == Addresses::kDown) {
    if (bytes > edge_ - begin_) return 0;
    uint64_t address = (edge_ - bytes) / alignment * alignment;
    if (address < begin_) return 0;
    return edge_ = address;
  }
  uint64_t address = round_up(edge_, alignment);
  if (address + bytes > end_) return 0;
  if (address > edge_ && rule_ == Addresses::kFirstFit) give_back(edge_, address - edge_);
  edge_ = address + bytes;
  return address;
}

uint64_t AddressSpace::from_holes(uint64_t bytes, uint64_t alignment) {
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    uint64_t start = hole->first, end = start + hole->second, address = round_up(start, alignment);
    if (address + bytes > end) continue;
    holes_.erase(hole);
    if (address > start) holes_[start] = address - start;
    if (end > address + bytes) holes_[address + bytes] = end - address - bytes;
    return address;
  }
  return 0;
}

void AddressSpace::give_back(uint64_t address, uint64_t bytes) {
  if (rule_ == Addresses::kLastFreed) {
    freed_[bytes].push_back(address);
    return;
  }
  auto next = holes_.lower_bound(address);
  if (next != holes_.end() && address + bytes == next->first) {
    bytes += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == address) {
      previous->second += bytes;
      return;
    }
  }
  holes_[address] = bytes;
}

}  // namespace phantom
