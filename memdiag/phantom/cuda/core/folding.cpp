// isfinite(x) is (x == x) * (abs(x) != inf), isinf(x) is abs(x) == inf, isnan(x) is x != x; then comes all() or any(). So four answers are
// enough: a comparison with infinity, of a tensor with itself, the product of two answers, and all() of them.
#include "folding.h"

#include <math.h>
#include <string.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "config.h"
#include "memory.h"
#include "values.h"

namespace phantom {
namespace {

constexpr uint64_t kMost = 64 << 20;  // bools that are multiplied
constexpr int kEqual = 0;             // of CompareEqFunctor; the other is "not equal"

bool holds(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

constexpr Float kSingle{4, 0x7f800000};
constexpr size_t kMostNotes = 4096;

struct Notes {
  std::mutex mutex;
  std::unordered_map<uint64_t, uint64_t> counts;  // of bools that were all written as true, by address; they may be overwritten since
};
Notes& notes() {
  static Notes* all = new Notes;
  return *all;
}

void note_true(uint64_t address, uint64_t count) {
  std::lock_guard<std::mutex> lock(notes().mutex);
  if (notes().counts.size() >= kMostNotes) notes().counts.clear();
  notes().counts[address] = count;
}

bool are_known_true(uint64_t address) {
  uint64_t count = 0;
  {
    std::lock_guard<std::mutex> lock(notes().mutex);
    auto found = notes().counts.find(address);
    if (found == notes().counts.end()) return false;
    count = found->second;
  }
  if (count > kMost || !is_known(address, count)) return false;
  std::vector<char> bools(count);
  read_known(bools.data(), address, count);
  return std::find(bools.begin(), bools.end(), 0) == bools.end();
}

void write(uint64_t output, uint64_t count, bool value) {
  char byte = value ? 1 : 0;
  write_pattern(output, &byte, 1, count);
  if (value) note_true(output, count);
}

bool multiply(uint64_t output, uint64_t first, uint64_t second, uint64_t count) {
  if (count > kMost || !is_known(first, count) || !is_known(second, count)) return false;
  std::vector<char> one(count), other(count);
  read_known(one.data(), first, count);
  read_known(other.data(), second, count);
  for (uint64_t i = 0; i < count; i++) one[i] = one[i] && other[i];
  write_host(output, one.data(), count);
  if (std::find(one.begin(), one.end(), 0) == one.end()) note_true(output, count);
  return true;
}

Float float_of(const std::string& name) {
  if (name.compare(0, 5, "float") == 0) return kSingle;
  if (name.compare(0, 6, "double") == 0) return {8, 0x7ffull << 52};
  if (name.compare(0, 9, "c10::Half") == 0) return {2, 0x7c00};
  if (name.compare(0, 13, "c10::BFloat16") == 0) return {2, 0x7f80};
  return {};
}

uint64_t bits_at(const char* place, Float type) {
  uint64_t bits = 0;
  memcpy(&bits, place, type.bytes);
  return bits;
}

bool is_infinite(const char* place, Float type) {
  uint64_t sign = 1ull << (8 * type.bytes - 1);
  return (bits_at(place, type) & ~sign) == type.exponent;
}

// Whether numbers are known, and one of them is infinite or not a number.
bool holds_no_number(Float type, uint64_t address, uint64_t count) {
  uint64_t bytes = count * type.bytes;
  if (!bytes || bytes > kMost || !is_known(address, bytes)) return false;
  std::vector<char> numbers(bytes);
  read_known(numbers.data(), address, bytes);
  for (uint64_t at = 0; at < bytes; at += type.bytes)
    if ((bits_at(&numbers[at], type) & type.exponent) == type.exponent) return true;
  return false;
}

bool compare_with_number(Float type, const char* functor, const uint64_t* data, uint64_t count, int operation) {
  bool is_with_infinity = is_infinite(functor + std::max(type.bytes, 4u), type);
  if (type.bytes == 2) is_with_infinity = is_with_infinity || is_infinite(functor + 4, kSingle);  // the number may be widened
  if (!is_with_infinity || is_known(data[1], count)) return false;  // made-up values are finite, those of the program may be infinite
  write(data[0], count, operation != kEqual);
  return true;
}

}  // namespace

Asked asked_by(const std::string& kernel) {
  if (holds(kernel, "reduce_kernel<") && holds(kernel, "and_kernel_cuda(")) return {Question::kAll, {}};
  if (!holds(kernel, "vectorized_elementwise_kernel<")) return {};
  if (holds(kernel, "BinaryFunctor<bool, bool, bool, at::native::binary_internal::MulFunctor<bool> >")) return {Question::kBoth, {}};
  size_t at = kernel.find("CompareEqFunctor<");
  if (at == std::string::npos) return {};
  Float type = float_of(kernel.substr(at + strlen("CompareEqFunctor<"), 16));
  if (holds(kernel, "BinaryFunctor<")) return {Question::kCompareTensors, type};
  return {type.bytes ? Question::kCompareWithNumber : Question::kNone, type};
}

bool answer(Asked asked, void** arguments) {
  uint64_t count = static_cast<uint64_t>(std::max(*static_cast<int*>(arguments[0]), 0));
  const char* functor = static_cast<const char*>(arguments[1]);
  auto* data = static_cast<const uint64_t*>(arguments[2]);
  if (asked.question == Question::kBoth) return multiply(data[0], data[1], data[2], count);
  int operation;
  memcpy(&operation, functor, sizeof operation);
  if (asked.question == Question::kCompareWithNumber) return compare_with_number(asked.type, functor, data, count, operation);
  if (data[1] != data[2] || holds_no_number(asked.type, data[1], count)) return false;
  write(data[0], count, operation == kEqual);
  return true;
}

void answer_all(uint64_t output, uint64_t input) {
  if (config().values != MadeUp::kFinite && !are_known_true(input)) return;
  uint64_t end = block_end(output);
  if (end > output && end - output <= 512) write(output, end - output, true);  // a tensor of its own, not a part of another
}

}  // namespace phantom
