// The allocators of all devices of the process, the hooks' entry points (section 3), and a log of what was decided.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "allocator.h"

namespace mindspeed {

enum class Call : std::int64_t {
  Malloc, Free, EmptyCache, SetFraction, PreciseMatchStart, PreciseMatchEnd, MemoryRecorderStart, MemoryRecorderEnd, MallocRecorderStart,
  MallocRecorderEnd
};

// One call and the state after it; -1 where there is none.
struct Row {
  std::int64_t call, device, requested;
  std::int64_t lifetime;                  // predicted: 0 default, 2 long
  std::int64_t pool;                      // of the block: 0 default, 2 long, and 1 more where it is small
  std::int64_t level;                     // 1 to 5, 6: out of memory
  std::int64_t segment, offset, size;     // the how manyth, from its start, of the block
  std::int64_t reserved, allocated, retries, ooms, segments_made, segments_released;
};

class Process {
 public:
  Process(Driver& driver, const Settings& settings) : settings_(settings), wrapper_(driver, settings_) {}

  void* malloc(Bytes requested, int device, Stream stream);  // throws OutOfMemory
  void free(void* address, int device);
  void empty_cache();
  void set_fraction(double fraction, int device);

  void precise_match_start();
  void precise_match_end();
  void memory_recorder_start();
  void memory_recorder_end();
  void malloc_recorder_start();
  void malloc_recorder_end();

  bool write_log(const std::string& path) const;  // the rows, as they lie in memory

 private:
  Allocator& of(int device);
  void note(Call call, int device, Bytes requested, const Block* block);
  void note_mark(Call call);

  Settings settings_;
  Wrapper wrapper_;
  Phases phases_;
  std::vector<std::unique_ptr<Allocator>> devices_;
  std::vector<Row> rows_;
};

}  // namespace mindspeed
