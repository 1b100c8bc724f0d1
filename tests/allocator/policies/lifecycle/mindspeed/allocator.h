// MindSpeed's allocator of one device: where a request goes (section 6).
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "heap.h"

namespace mindspeed {

// Where a block was found: the levels of section 6.
enum Level { REUSED = 1, NEW = 2, DESPERATE = 3, SMALL_IN_LARGE = 4, AFTER_RELEASE = 5, NOT_AT_ALL = 6 };

class OutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Allocator {
 public:
  Allocator(Wrapper& wrapper, const Phases& phases, const Settings& settings, int device)
      : heap(wrapper, device), wrapper_(wrapper), phases_(phases), settings_(settings), device_(device) {}

  Block* malloc(Bytes requested, Stream stream);  // throws OutOfMemory
  void free(void* address);
  void empty_cache();
  void set_fraction(double fraction);

  Heap heap;
  Recorder recorder;
  Level last_level = REUSED;                      // of the last request
  Lifetime last_lifetime = Lifetime::Default;     // that was predicted for it
  std::int64_t num_retries = 0, num_ooms = 0;

 private:
  struct Request {
    Bytes size;  // N
    Bytes requested;
    Stream stream;
    Prediction prediction;
    Pool *own, *other;
  };

  Block* find(const Request& request);
  Block* reuse(const Request& request, Pool& pool);
  Block* reuse_optimized(const Request& request, Pool& pool);
  Block* reuse_desperately(const Request& request, Pool& pool, bool is_banned_in_forward);
  bool is_oversize(const Request& request, const Block& candidate) const;
  bool is_forbidden(const Request& request, const Pool& pool, const Block& candidate) const;
  bool meets_a_conflict(const Request& request, Bytes segment);
  Block* new_segment(const Request& request, bool is_retry);
  bool release_oversize(const Request& request);
  [[noreturn]] void fail(const Request& request);

  Wrapper& wrapper_;
  const Phases& phases_;
  const Settings& settings_;
  int device_;
  std::optional<Bytes> most_reserved_;  // by set_per_process_memory_fraction
  std::unordered_map<void*, Block*> in_use_;
};

}  // namespace mindspeed
