// What the lambda captures, as in PyTorch's CUDALoops.cuh and OffsetCalculator.cuh, for n tensors:
//
//     int dims; struct { unsigned divisor, magic, shift; } sizes[25]; unsigned strides[25][n]; char* data[n]; functor …
//
// data[0] is the output. The form is recognised by the divisors, because magic and shift depend on them. The name of the kernel does not
// contain n, so the output is looked for with each n. If several fit, the output of each counts as written.
#include "elementwise.h"

#include "memory.h"

namespace phantom {
namespace {

constexpr int kMostDimensions = 25;
constexpr unsigned kMostTensors = 6;

struct Divider {
  unsigned divisor, magic, shift;
};

// As IntDivider computes it.
bool is_divider(const Divider& one) {
  if (!one.divisor || one.shift > 32) return false;
  uint64_t above = uint64_t{1} << one.shift, below = one.shift ? uint64_t{1} << (one.shift - 1) : 0;
  if (above < one.divisor || below >= one.divisor) return false;
  return one.magic == static_cast<unsigned>(((uint64_t{1} << 32) * (above - one.divisor)) / one.divisor + 1);
}

}  // namespace

bool words_of_elementwise(const void* lambda, uint64_t end, std::vector<uint64_t>& words) {
  const char* begin = static_cast<const char*>(lambda);
  constexpr size_t kStrides = sizeof(int) + kMostDimensions * sizeof(Divider);
  if (number(begin) + kStrides > end) return false;
  int dims = *reinterpret_cast<const int*>(begin);
  if (dims < 1 || dims > kMostDimensions) return false;
  auto* sizes = reinterpret_cast<const Divider*>(begin + sizeof(int));
  for (int i = 0; i < dims; i++)
    if (!is_divider(sizes[i])) return false;
  bool is_found = false;
  for (unsigned count = 1; count <= kMostTensors; count++) {
    size_t offset = (kStrides + kMostDimensions * count * sizeof(unsigned) + 7) & ~size_t{7};
    if (number(begin) + offset + count * 8 > end) break;
    auto* data = reinterpret_cast<const uint64_t*>(begin + offset);
    bool is_data = true;
    for (unsigned i = 0; i < count; i++) is_data = is_data && is_device(data[i]);
    if (!is_data) continue;
    words.push_back(data[0]);
    is_found = true;
  }
  return is_found;
}

}  // namespace phantom
