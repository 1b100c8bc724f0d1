#include "allocator.h"

#include <algorithm>
#include <cstdio>

namespace mindspeed {

Block* Allocator::malloc(Bytes requested, Stream stream) {
  Request request{rounded(requested), requested, stream, recorder.predict(phases_, settings_, requested), nullptr, nullptr};
  bool is_small = request.size <= MOST_SMALL;
  bool is_long = request.prediction.lifetime == Lifetime::Long;
  request.own = &heap.pool(request.prediction.lifetime, is_small);
  request.other = &heap.pool(is_long ? Lifetime::Default : Lifetime::Long, is_small);
  last_lifetime = request.prediction.lifetime;
  Block* found = find(request);
  if (!found) fail(request);
  Block* block = heap.cut(found, request.size, settings_.max_split_size);
  block->requested = requested;
  block->note = recorder.allocated(phases_, requested);
  in_use_[block->address] = block;
  return block;
}

// The levels in order. P6 asks Python's SwapManager, which nothing registers where no swapping is configured: it always fails here.
Block* Allocator::find(const Request& request) {
  last_level = REUSED;
  for (Pool* pool : {request.own, request.other}) {
    if (Block* block = reuse(request, *pool)) return block;
  }
  last_level = NEW;
  if (Block* block = new_segment(request, false)) return block;
  if (release_oversize(request)) {
    if (Block* block = new_segment(request, false)) return block;
  }
  last_level = DESPERATE;
  for (Pool* pool : {request.other, request.own}) {
    if (Block* block = reuse_desperately(request, *pool, true)) return block;
  }
  last_level = SMALL_IN_LARGE;
  if (request.own->is_small) {
    for (Pool* pool : {request.own, request.other}) {
      if (Block* block = reuse_desperately(request, heap.pool(pool->lifetime, false), false)) return block;
    }
  }
  last_level = AFTER_RELEASE;
  empty_cache();
  Request again = request;  // the last pool that was searched is a large one
  again.own = &heap.pool(request.own->lifetime, false);
  if (Block* block = new_segment(again, true)) return block;
  last_level = NOT_AT_ALL;
  return nullptr;
}

// P1: one candidate of a pool.
Block* Allocator::reuse(const Request& request, Pool& pool) {
  if (settings_.open_memory_optimize) return reuse_optimized(request, pool);
  Block* candidate = pool.best_fit(request.stream, request.size);
  return candidate && !is_forbidden(request, pool, *candidate) ? candidate : nullptr;
}

// P1 with open_memory_optimize: only blocks of far larger segments are ever taken, which looks like a defect and is imitated as it is.
// The first candidate that the rules forbid ends the search.
Block* Allocator::reuse_optimized(const Request& request, Pool& pool) {
  Block* candidate = pool.best_fit(request.stream, request.size);
  for (int i = 0; i < MOST_CANDIDATES && candidate; i++) {
    if (is_forbidden(request, pool, *candidate)) return nullptr;
    Bytes segment = whole_size(candidate);
    if (segment < request.size + SIZE_LIMIT) return nullptr;
    if (!meets_a_conflict(request, segment)) return candidate;
    candidate = pool.next_larger(candidate);
  }
  return nullptr;
}

// Whether, while this tensor is expected to live, one is expected for which such a segment would be made.
bool Allocator::meets_a_conflict(const Request& request, Bytes segment) {
  auto sizes = recorder.step.sizes_between(request.prediction.step_span.value_or(recorder.step.from_now_on()));
  return std::any_of(sizes.begin(), sizes.end(), [&](Bytes size) {
    return size > MOST_SMALL && request.own->segment_size(size) == segment;
  });
}

// Rule a.
bool Allocator::is_oversize(const Request& request, const Block& candidate) const {
  Bytes most = settings_.max_split_size;
  if (request.size < most) return candidate.size >= most;
  return candidate.size >= request.size + LARGE_SEGMENT;
}

// Rules a to e.
bool Allocator::is_forbidden(const Request& request, const Pool& pool, const Block& candidate) const {
  if (is_oversize(request, candidate)) return true;
  if (pool.is_small) return false;
  bool is_own = &pool == request.own;
  if (request.own->lifetime == Lifetime::Default) {
    bool is_nibbled = candidate.size >= VERY_LARGE && candidate.size - request.size >= LARGE_SEGMENT;
    if (is_own && is_nibbled && !phases_.is_in_forward) return true;  // b
    return !is_own && phases_.is_in_forward;                // c
  }
  if (!is_own) return true;                                                                       // e
  return candidate.size != request.own->segment_size(request.size) || candidate.is_split();  // d
}

// P3, and P4 in the large pools: rule a, and where banned, that a short request does not take of the long large pool in a forward.
Block* Allocator::reuse_desperately(const Request& request, Pool& pool, bool is_banned_in_forward) {
  bool is_short_in_long = request.own->lifetime == Lifetime::Default && pool.lifetime == Lifetime::Long && !pool.is_small;
  if (is_banned_in_forward && is_short_in_long && phases_.is_in_forward) return nullptr;
  Block* candidate = pool.best_fit(request.stream, request.size);
  return candidate && !is_oversize(request, *candidate) ? candidate : nullptr;
}

// P2. A refusal by the pre-judgement counts as a failed attempt; so do those of the fraction and of ALR_MAX.
Block* Allocator::new_segment(const Request& request, bool is_retry) {
  Bytes size = request.own->segment_size(request.size);
  if (is_retry) num_retries++;
  if (!is_retry && wrapper_.is_hopeless(size)) return nullptr;
  if (most_reserved_ && heap.reserved + size > *most_reserved_) return nullptr;
  return heap.new_segment(*request.own, request.stream, size);
}

// Cached blocks that are never cut, as torch_npu releases them: the smallest that is large enough, else several, largest first.
bool Allocator::release_oversize(const Request& request) {
  if (settings_.max_split_size == NO_LIMIT) return false;
  Pool& pool = *request.own;
  Bytes wanted = std::max(request.size, settings_.max_split_size);
  if (Block* block = pool.best_fit(request.stream, wanted)) {
    heap.release(block);
    return true;
  }
  Bytes released = 0;
  while (released < wanted) {
    Block key;
    key.stream = request.stream;
    key.size = NO_LIMIT;
    auto after = pool.free.lower_bound(&key);
    if (after == pool.free.begin()) break;
    Block* largest = *std::prev(after);
    if (largest->stream != request.stream || largest->size < settings_.max_split_size) break;
    released += largest->size;
    heap.release(largest);
  }
  return released >= wanted;
}

void Allocator::free(void* address) {
  auto found = in_use_.find(address);
  if (found == in_use_.end()) throw std::invalid_argument("this is no block of the allocator");
  Block* block = found->second;
  in_use_.erase(found);
  recorder.freed(phases_, block->note);
  heap.give_back(block);
}

void Allocator::empty_cache() {
  for (Lifetime lifetime : {Lifetime::Default, Lifetime::Long}) {
    for (bool is_small : {false, true}) heap.release_whole(heap.pool(lifetime, is_small));
  }
}

void Allocator::set_fraction(double fraction) {
  most_reserved_ = static_cast<Bytes>(fraction * static_cast<double>(wrapper_.driver().total_bytes(device_)));
}

void Allocator::fail(const Request& request) {
  num_ooms++;
  Driver& driver = wrapper_.driver();
  constexpr double GIB = 1024.0 * static_cast<double>(MIB);
  auto gib = [&](Bytes bytes) { return static_cast<double>(bytes) / GIB; };
  char text[512];
  std::snprintf(text, sizeof text,
                "NPU out of memory. Tried to allocate %.2f GiB (NPU %d; %.2f GiB total capacity; %.2f GiB already allocated; %.2f GiB "
                "current active; %.2f GiB free; %.2f GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
                "setting max_split_size_mb to avoid fragmentation.",
                gib(request.own->segment_size(request.size)), device_, gib(driver.total_bytes(device_)), gib(heap.allocated),
                gib(heap.allocated), gib(driver.free_bytes(device_)), gib(heap.reserved));
  throw OutOfMemory(text);
}

}  // namespace mindspeed
