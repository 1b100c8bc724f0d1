// Segments, blocks and the four pools of one device (section 5): what happens to them, not when.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "memory.h"
#include "recorder.h"

namespace mindspeed {

using Stream = const void*;
struct Pool;

struct Block {
  Pool* pool = nullptr;
  Stream stream = nullptr;
  char* address = nullptr;
  Bytes size = 0;
  Bytes requested = 0;
  std::int64_t segment = 0;  // the how manyth of the device
  Bytes offset = 0;          // in it
  Block *before = nullptr, *after = nullptr;
  Recorder::Note note;

  bool is_split() const { return before || after; }
};

struct BySize {
  bool operator()(const Block* left, const Block* right) const;
};

struct Pool {
  Lifetime lifetime;
  bool is_small;
  std::set<Block*, BySize> free;

  // How much a new segment for a block of this size takes.
  Bytes segment_size(Bytes size) const;

  // The smallest free block of the stream that has the size, and the one after a block; nullptr: none.
  Block* best_fit(Stream stream, Bytes size) const;
  Block* next_larger(Block* than) const;
};

class Heap {
 public:
  Heap(Wrapper& wrapper, int device) : wrapper_(wrapper), device_(device) {}

  Pool& pool(Lifetime lifetime, bool is_small) { return pools_[lifetime == Lifetime::Long][is_small]; }

  Block* new_segment(Pool& pool, Stream stream, Bytes size);  // a free block outside of the pool; nullptr: there is no memory
  Block* cut(Block* block, Bytes size, Bytes max_split_size);  // takes a free block in use and gives the rest back to its pool
  void give_back(Block* block);                                // a block in use, which merges with its neighbours
  void release(Block* free_block);                             // of a whole segment
  void release_whole(Pool& pool);                              // all segments of it that are wholly free

  Bytes reserved = 0, allocated = 0;
  std::int64_t segments_made = 0, segments_released = 0;

 private:
  void merge(Block* block, Block* neighbour);

  Wrapper& wrapper_;
  int device_;
  Pool pools_[2][2] = {
      {{Lifetime::Default, false, {}}, {Lifetime::Default, true, {}}},
      {{Lifetime::Long, false, {}}, {Lifetime::Long, true, {}}},
  };
};

// Of the whole segment that a block is a part of.
Bytes whole_size(const Block* block);

}  // namespace mindspeed
