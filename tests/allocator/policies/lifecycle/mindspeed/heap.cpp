#include "heap.h"

#include <tuple>

namespace mindspeed {

bool BySize::operator()(const Block* left, const Block* right) const {
  return std::tie(left->stream, left->size, left->address) < std::tie(right->stream, right->size, right->address);
}

// Section 5, the table of segment sizes.
Bytes Pool::segment_size(Bytes size) const {
  if (is_small || size <= MOST_SMALL) return SMALL_SEGMENT;
  if (lifetime == Lifetime::Default && size < LEAST_OWN_SEGMENT) return LARGE_SEGMENT;
  return round_up(size, PAGE);
}

Block* Pool::best_fit(Stream stream, Bytes size) const {
  Block key;
  key.stream = stream;
  key.size = size;
  auto found = free.lower_bound(&key);
  return found != free.end() && (*found)->stream == stream ? *found : nullptr;
}

Block* Pool::next_larger(Block* than) const {
  auto found = free.upper_bound(than);
  return found != free.end() && (*found)->stream == than->stream ? *found : nullptr;
}

Block* Heap::new_segment(Pool& pool, Stream stream, Bytes size) {
  void* address = wrapper_.take(device_, size);
  if (!address) return nullptr;
  auto* block = new Block;
  block->pool = &pool;
  block->stream = stream;
  block->address = static_cast<char*>(address);
  block->size = size;
  block->segment = segments_made++;
  reserved += size;
  return block;
}

Block* Heap::cut(Block* block, Bytes size, Bytes max_split_size) {
  Pool& pool = *block->pool;
  pool.free.erase(block);
  Bytes rest = block->size - size;
  bool is_cut = pool.is_small ? rest >= SMALLEST : size < max_split_size && rest > MOST_SMALL;
  if (is_cut) {
    auto* tail = new Block(*block);
    tail->address += size;
    tail->offset += size;
    tail->size = rest;
    tail->before = block;
    if (tail->after) tail->after->before = tail;
    block->after = tail;
    block->size = size;
    pool.free.insert(tail);
  }
  allocated += block->size;
  return block;
}

void Heap::give_back(Block* block) {
  allocated -= block->size;
  block->requested = 0;
  block->note = {};
  merge(block, block->before);
  merge(block, block->after);
  block->pool->free.insert(block);
}

// A neighbour that is free becomes a part of the block.
void Heap::merge(Block* block, Block* neighbour) {
  if (!neighbour || !block->pool->free.erase(neighbour)) return;
  if (neighbour == block->before) {
    block->address = neighbour->address;
    block->offset = neighbour->offset;
    block->before = neighbour->before;
    if (block->before) block->before->after = block;
  } else {
    block->after = neighbour->after;
    if (block->after) block->after->before = block;
  }
  block->size += neighbour->size;
  delete neighbour;
}

void Heap::release(Block* free_block) {
  free_block->pool->free.erase(free_block);
  reserved -= free_block->size;
  segments_released++;
  wrapper_.give(device_, free_block->address, free_block->size);
  delete free_block;
}

void Heap::release_whole(Pool& pool) {
  std::vector<Block*> whole;
  for (Block* block : pool.free) {
    if (!block->is_split()) whole.push_back(block);
  }
  for (Block* block : whole) release(block);
}

Bytes whole_size(const Block* block) {
  const Block* one = block;
  while (one->before) one = one->before;
  Bytes size = 0;
  for (; one; one = one->after) size += one->size;
  return size;
}

}  // namespace mindspeed
