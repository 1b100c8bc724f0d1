#include "process.h"

#include <cstdio>

namespace mindspeed {

Allocator& Process::of(int device) {
  auto index = static_cast<std::size_t>(device);
  while (devices_.size() <= index) {
    devices_.push_back(std::make_unique<Allocator>(wrapper_, phases_, settings_, static_cast<int>(devices_.size())));
  }
  return *devices_[index];
}

void* Process::malloc(Bytes requested, int device, Stream stream) {
  try {
    Block* block = of(device).malloc(requested, stream);
    note(Call::Malloc, device, requested, block);
    return block->address;
  } catch (const OutOfMemory&) {
    note(Call::Malloc, device, requested, nullptr);
    throw;
  }
}

void Process::free(void* address, int device) {
  of(device).free(address);
  note(Call::Free, device, 0, nullptr);
}

void Process::empty_cache() {
  for (auto& device : devices_) device->empty_cache();
  note_mark(Call::EmptyCache);
}

void Process::set_fraction(double fraction, int device) {
  of(device).set_fraction(fraction);
  note_mark(Call::SetFraction);
}

void Process::precise_match_start() {
  phases_.is_precise_match = true;
  note_mark(Call::PreciseMatchStart);
}

void Process::precise_match_end() {
  phases_.is_precise_match = false;
  note_mark(Call::PreciseMatchEnd);
}

// The first one outside of the precise phases does not begin a forward: it is the one that the hook of the model's set-up makes.
void Process::memory_recorder_start() {
  if (!phases_.is_precise_match && phases_.forwards_begun++ != 0) phases_.is_in_forward = true;
  for (auto& device : devices_) device->recorder.forward.restart_ticks();
  note_mark(Call::MemoryRecorderStart);
}

void Process::memory_recorder_end() {
  phases_.is_in_forward = false;
  for (auto& device : devices_) device->recorder.forward.end();
  note_mark(Call::MemoryRecorderEnd);
}

void Process::malloc_recorder_start() {
  phases_.is_in_step = true;
  for (auto& device : devices_) device->recorder.step.restart_ticks();
  note_mark(Call::MallocRecorderStart);
}

void Process::malloc_recorder_end() {
  phases_.is_in_step = false;
  for (auto& device : devices_) device->recorder.step.end();
  note_mark(Call::MallocRecorderEnd);
}

void Process::note_mark(Call call) { note(call, 0, 0, nullptr); }

void Process::note(Call call, int device, Bytes requested, const Block* block) {
  const Allocator& now = of(device);
  auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  bool is_malloc = call == Call::Malloc;
  Row row{number(call), device, number(requested), is_malloc ? number(now.last_lifetime) : -1, -1, is_malloc ? number(now.last_level) : -1,
          -1, -1, -1, number(now.heap.reserved), number(now.heap.allocated), now.num_retries, now.num_ooms, now.heap.segments_made,
          now.heap.segments_released};
  if (block) {
    row.pool = number(block->pool->lifetime) + block->pool->is_small;
    row.segment = block->segment;
    row.offset = number(block->offset);
    row.size = number(block->size);
  }
  rows_.push_back(row);
}

bool Process::write_log(const std::string& path) const {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) return false;
  bool is_whole = std::fwrite(rows_.data(), sizeof(Row), rows_.size(), file) == rows_.size();
  return std::fclose(file) == 0 && is_whole;
}

}  // namespace mindspeed
