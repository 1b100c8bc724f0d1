// For the part of memdiag that computes small tensors inside the program (boot/computing): what is known of bytes on the device, new
// bytes for them, and what the operator that a thread is at may write at all. Without that, all that its kernels seem to be given
// counts as written, which takes in what an earlier kernel has left on the stack.
#include "computed.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "abi.h"
#include "memory.h"
#include "values.h"

namespace phantom {
namespace {

struct Operator {
  uint64_t first_block;  // blocks from this one on were made by it
  int64_t told;
  std::vector<std::pair<uint64_t, uint64_t>> written;  // begin and end
};

thread_local std::vector<Operator> t_operators;  // one within another
thread_local int t_num_agreed;

Strided strided(const uint64_t* numbers) {
  return {numbers[0], numbers[1], numbers[2], numbers + 3, numbers + 3 + numbers[2]};
}

}  // namespace

bool is_within_operator() { return !t_operators.empty(); }

bool made_by_operator(uint64_t block) { return block >= t_operators.back().first_block; }

std::vector<std::pair<uint64_t, uint64_t>> written_by_operator(uint64_t begin, uint64_t end) {
  std::vector<std::pair<uint64_t, uint64_t>> found;
  for (const auto& span : t_operators.back().written) {
    uint64_t first = std::max(begin, span.first), last = std::min(end, span.second);
    if (first < last) found.push_back({first, last});
  }
  return found;
}

bool is_agreed() { return t_num_agreed > 0; }

int64_t told_count() { return t_operators.empty() ? -1 : t_operators.back().told; }

}  // namespace phantom

using namespace phantom;

// Copies bytes to the host, if there is one, and if all of them are known; whether they are. Not counted as read by the program.
API int memdiag_phantom_peek(void* host, uint64_t device, uint64_t bytes) {
  return is_device(device) && is_known(device, bytes) && (!host || read_known(host, device, bytes));
}

// Makes bytes known; without a host's, unknown.
API void memdiag_phantom_poke(uint64_t device, const void* host, uint64_t bytes) {
  if (!is_device(device)) return;
  if (host) write_host(device, host, bytes);
  else forget(device, bytes);
}

// The same for a strided tensor: `numbers` are its address, bytes of an element, number of dimensions, sizes and strides (in elements).
API int memdiag_phantom_peek_strided(void* host, const uint64_t* numbers) {
  return is_device(numbers[0]) && read_pieces(host, strided(numbers));
}

API void memdiag_phantom_poke_strided(const uint64_t* numbers, const void* host) {
  if (!is_device(numbers[0])) return;
  if (host) write_pieces(strided(numbers), host);
  else forget_pieces(strided(numbers));
}

// This thread begins an operator, perhaps within another. `numbers` describe each tensor that it writes, beside those that it makes;
// `told` is how many elements it will find (-1: that is not known).
API void memdiag_phantom_begin(const uint64_t* numbers, uint64_t num_tensors, int64_t told) {
  t_operators.push_back({next_block(), told, {}});
  for (uint64_t i = 0; i < num_tensors; i++, numbers += 3 + 2 * numbers[2]) {
    each_piece(strided(numbers), [](uint64_t begin, uint64_t bytes) {
      t_operators.back().written.push_back({begin, begin + bytes});
      return true;
    });
  }
}

// It has ended.
API void memdiag_phantom_end() {
  if (!t_operators.empty()) t_operators.pop_back();
}

// With 1, a condition that this thread reads, and that is not known, is true, until the same call with -1. See boot/validation.py.
API void memdiag_phantom_agree(int change) { t_num_agreed += change; }
