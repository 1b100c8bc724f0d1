#include "stack.h"

#include <alloca.h>
#include <pthread.h>
#include <string.h>

#include <algorithm>

namespace phantom {
namespace {

// Other functions leave addresses too, for example those that prepare a launch: this much is always overwritten.
constexpr uint64_t kAlways = 4 << 10;
constexpr uint64_t kDeeper = 1024, kMost = 128 << 10, kSpare = 64 << 10;

thread_local uint64_t lowest = 0;  // addresses of launches are above it; 0: there were none

uint64_t frame() { return reinterpret_cast<uint64_t>(__builtin_frame_address(0)); }

}  // namespace

const Stack& this_stack() {
  static thread_local const Stack stack = [] {
    Stack found;
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes)) return found;
    void* first = nullptr;
    size_t bytes = 0;
    pthread_attr_getstack(&attributes, &first, &bytes);
    pthread_attr_destroy(&attributes);
    found.begin = reinterpret_cast<uint64_t>(first);
    found.end = found.begin + bytes;
    return found;
  }();
  return stack;
}

void leave_addresses() {
  uint64_t here = frame() - kDeeper;
  lowest = lowest ? std::min(lowest, here) : here;
}

__attribute__((noinline)) void wipe_addresses() {
  uint64_t here = frame(), left = lowest && lowest < here ? here - lowest : 0;
  uint64_t bytes = std::min(std::max(left, kAlways), kMost);
  if (left) lowest = here;
  const Stack& stack = this_stack();
  if (!stack.holds(here) || here - stack.begin < bytes + kSpare) return;
  void* unused = alloca(bytes);
  memset(unused, 0, bytes);
  asm volatile("" : : "r"(unused) : "memory");  // keeps the compiler from removing memset
}

}  // namespace phantom
