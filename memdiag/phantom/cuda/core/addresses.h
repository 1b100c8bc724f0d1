// Hands out ranges of address space by one of several rules, since the real driver's rule is not published.
#pragma once
#include <map>
#include <unordered_map>
#include <vector>

#include "config.h"

namespace phantom {

class AddressSpace {
 public:
  AddressSpace(uint64_t begin, uint64_t end, Addresses rule) : begin_(begin), end_(end), rule_(rule), edge_(rule == Addresses::kDown ? end : begin) {}

  uint64_t take(uint64_t bytes, uint64_t alignment);  // 0: no room
  void give_back(uint64_t address, uint64_t bytes);

 private:
  uint64_t from_holes(uint64_t bytes, uint64_t alignment);
  uint64_t from_fresh(uint64_t bytes, uint64_t alignment);

  const uint64_t begin_, end_;
  const Addresses rule_;
  uint64_t edge_;                       // of the part never used: [edge_, end_), or [begin_, edge_) where addresses go down
  std::map<uint64_t, uint64_t> holes_;  // address -> bytes, neighbours merged
  std::unordered_map<uint64_t, std::vector<uint64_t>> freed_;  // kLastFreed: bytes -> addresses
};

}  // namespace phantom
